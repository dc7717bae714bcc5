//! Images that exist only for Linux, most of which are added to pods without regard to their operating system.

use super::name::{last_part, repository, tag, words};

/// A product whose injector adds Linux containers to pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Injector {
    pub name: &'static str,
    /// The ends of the repositories of its images.
    images: &'static [&'static str],
    /// The label or annotation with which the pod template leaves it out.
    pub switch: Switch,
    /// The value with which the pod template asks for it.
    pub on: &'static str,
    pub off: &'static str,
}

/// A label or an annotation of a pod template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Switch {
    Label(&'static str),
    Annotation(&'static str),
}

impl Switch {
    /// Returns the field of `metadata` that has it, and its key.
    pub fn place(self) -> (&'static str, &'static str) {
        match self {
            Self::Label(key) => ("labels", key),
            Self::Annotation(key) => ("annotations", key),
        }
    }

    /// Returns its name in a sentence: `annotation linkerd.io/inject`.
    pub fn describe(self) -> String {
        match self {
            Self::Label(key) => format!("label {key}"),
            Self::Annotation(key) => format!("annotation {key}"),
        }
    }
}

/// The known injectors. Sources: linkerd/linkerd2#3298 and "Automatic Proxy Injection" of Linkerd; istio/istio#39788 and
/// "Installing the Sidecar" of Istio; hashicorp/consul-k8s#1845 and "Annotations and labels" of Consul; "Single Step
/// Instrumentation" of Datadog, which does not support Windows pods (DataDog/documentation#25154).
pub(crate) const INJECTORS: [Injector; 4] = [
    Injector {
        name: "Linkerd",
        images: &["linkerd/proxy-init", "linkerd/proxy"],
        switch: Switch::Annotation("linkerd.io/inject"),
        on: "enabled",
        off: "disabled",
    },
    Injector {
        name: "Istio",
        images: &["istio/proxyv2"],
        switch: Switch::Label("sidecar.istio.io/inject"),
        on: "true",
        off: "false",
    },
    Injector {
        name: "Consul",
        images: &["hashicorp/consul-dataplane", "hashicorp/consul-k8s-control-plane"],
        switch: Switch::Annotation("consul.hashicorp.com/connect-inject"),
        on: "true",
        off: "false",
    },
    Injector {
        name: "Datadog",
        images: &["datadoghq/apm-inject", "datadoghq/dd-lib-dotnet-init", "datadoghq/dd-lib-java-init"],
        switch: Switch::Label("admission.datadoghq.com/enabled"),
        on: "true",
        off: "false",
    },
];

impl Injector {
    /// Returns how to keep its containers out of pods.
    pub fn remedy(&self) -> String {
        let (name, off) = (self.name, self.off);
        let switch = self.switch.describe();
        format!("set the {switch}: {off:?} on the pod or in its template, so that {name} leaves the pod alone")
    }
}

/// Returns the injector that adds this image.
pub(crate) fn injector_of(image: &str) -> Option<&'static Injector> {
    let repository = repository(image);
    let is_it = |end: &&str| repository.strip_suffix(end).is_some_and(|host| host.is_empty() || host.ends_with('/'));
    INJECTORS.iter().find(|injector| injector.images.iter().any(is_it))
}

/// True if the image exists only for Linux: it is one that an injector adds, or Docker in Docker (the tags with `dind` of
/// docker.io/library/docker have no variant for Windows: docker-library/docker), or the GMSA webhook (kubernetes-sigs/windows-gmsa
/// `admission-webhook/Dockerfile`).
pub(crate) fn is_only_for_linux(image: &str) -> bool {
    let is_docker = ["docker", "library/docker", "docker.io/docker", "docker.io/library/docker"];
    let is_dind = || tag(image).is_some_and(|tag| words(tag).any(|word| word == "dind"));
    injector_of(image).is_some()
        || last_part(image) == "k8s-gmsa-webhook"
        || is_docker.contains(&repository(image)) && is_dind()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_of_injectors_are_known_in_every_registry() {
        for (image, name) in [
            ("cr.l5d.io/linkerd/proxy-init:v2.4.0", Some("Linkerd")),
            ("registry.example:5000/mirror/linkerd/proxy:edge-1", Some("Linkerd")),
            ("docker.io/istio/proxyv2@sha256:0123", Some("Istio")),
            ("hashicorp/consul-dataplane:1.4.0", Some("Consul")),
            ("gcr.io/datadoghq/apm-inject:0", Some("Datadog")),
            ("example.com/team/proxy:1", None),
            ("example.com/notlinkerd/proxy:1", None),
            ("daprio/daprd:1.14", None),
        ] {
            assert_eq!(injector_of(image).map(|injector| injector.name), name, "{image}");
        }
    }

    #[test]
    fn docker_in_docker_and_the_gmsa_webhook_are_only_for_linux() {
        assert!(is_only_for_linux("registry.k8s.io/gmsa-webhook/k8s-gmsa-webhook:v0.12.1"));
        assert!(is_only_for_linux("docker:dind") && is_only_for_linux("docker.io/library/docker:27.3-dind-rootless"));
        assert!(
            !is_only_for_linux("docker:27-windowsservercore-ltsc2022") && !is_only_for_linux("example.com/docker:dind")
        );
    }
}
