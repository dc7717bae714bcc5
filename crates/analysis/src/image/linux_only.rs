//! Images that exist only for Linux, most of which are added to pods without regard to their operating system.

use std::collections::BTreeMap;

use serde_json::Value;

use self::On::{Any, Values};
use self::Switch::{Annotation, Label};
use super::name::{is_for_windows, last_part, repository, tag, words};

/// A product whose injector adds Linux containers to pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Injector {
    pub name: &'static str,
    /// The ends of the repositories of its images.
    images: &'static [&'static str],
    /// The label or annotation of the pod template that switches it on and off.
    pub switch: Switch,
    /// The values with which the pod template asks for it.
    on: On,
    /// The value with which the pod template leaves it out. `None` if only a template without the annotation does.
    pub off: Option<&'static str>,
    /// The labels with which a namespace asks for it. The first one that the namespace has decides.
    namespace: &'static [(&'static str, On)],
}

/// The values of a label or an annotation that ask for an injector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum On {
    /// All, except the one that leaves it out.
    Any,
    Values(&'static [&'static str]),
}

impl On {
    /// Returns the end of a sentence about a value that asks for the injector: `is true`.
    fn describe(self, value: &str) -> Option<String> {
        match self {
            Any => Some("is set".to_owned()),
            Values(values) => {
                values.iter().find(|asking| asking.eq_ignore_ascii_case(value)).map(|asking| format!("is {asking}"))
            }
        }
    }
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

const TRUE: On = Values(&["true"]);
const FALSE: Option<&str> = Some("false");
/// The values of Kuma's label, on pods and on namespaces.
const KUMA: On = Values(&["enabled", "true"]);

/// The known injectors. None of them is known to leave pods for Windows out. Products with Windows images are not here: Dapr
/// (dapr/dapr#1864), Open Service Mesh (openservicemesh/osm#3861), New Relic (newrelic/k8s-agents-operator
/// `internal/apm/dotnetwindows.go`) and Infisical (Infisical/infisical#4699).
pub(crate) static INJECTORS: [Injector; 16] = [
    // linkerd/linkerd2#2882, #3298 and `pkg/inject/report.go`.
    injector(
        "Linkerd",
        &["linkerd/proxy-init", "linkerd/proxy"],
        Annotation("linkerd.io/inject"),
        Values(&["enabled", "ingress"]),
        Some("disabled"),
    ),
    // istio/istio#39788, `pkg/kube/inject/inject.go` and `mutatingwebhook.yaml`, and "Installing the Sidecar" of Istio.
    injector("Istio", &["istio/proxyv2"], Label("sidecar.istio.io/inject"), TRUE, FALSE)
        .by_namespace(&[("istio-injection", Values(&["enabled"])), ("istio.io/rev", Any)]),
    // hashicorp/consul-k8s#1845, and "Annotations and labels" of Consul.
    injector(
        "Consul",
        &["hashicorp/consul-dataplane", "hashicorp/consul-k8s-control-plane"],
        Annotation("consul.hashicorp.com/connect-inject"),
        TRUE,
        FALSE,
    ),
    // "Single Step Instrumentation" of Datadog, which does not support Windows pods (DataDog/documentation#25154).
    injector(
        "Datadog",
        &["datadoghq/apm-inject", "datadog/apm-inject", "dd-lib-dotnet-init", "dd-lib-java-init", "dd-lib-js-init"],
        Label("admission.datadoghq.com/enabled"),
        TRUE,
        FALSE,
    ),
    // hashicorp/vault-k8s#80 and `agent-inject/agent/agent.go`.
    injector("Vault Agent", &["hashicorp/vault"], Annotation("vault.hashicorp.com/agent-inject"), TRUE, FALSE),
    // kumahq/kuma `pkg/plugins/runtime/k8s/webhooks/injector/precheck.go`, and "Data plane on Kubernetes" of Kuma.
    injector("Kuma", &["kuma-dp", "kuma-init"], Label("kuma.io/sidecar-injection"), KUMA, Some("disabled"))
        .by_namespace(&[("kuma.io/sidecar-injection", KUMA)]),
    // open-telemetry/opentelemetry-operator#642, #2791, `pkg/sidecar/annotation.go` and `internal/instrumentation/annotation.go`.
    // Tags of the collector for Windows have the word windows. Amazon's CloudWatch operator reads the same annotations, and has
    // Windows images for .NET and Java (aws/amazon-cloudwatch-agent-operator#193).
    opentelemetry(&[], "sidecar.opentelemetry.io/inject"),
    opentelemetry(&["autoinstrumentation-dotnet"], "instrumentation.opentelemetry.io/inject-dotnet"),
    opentelemetry(&["autoinstrumentation-java"], "instrumentation.opentelemetry.io/inject-java"),
    opentelemetry(&["autoinstrumentation-nodejs"], "instrumentation.opentelemetry.io/inject-nodejs"),
    opentelemetry(&["autoinstrumentation-python"], "instrumentation.opentelemetry.io/inject-python"),
    // GoogleCloudPlatform/gcs-fuse-csi-driver `pkg/webhook/mutatingwebhook.go`.
    injector(
        "Cloud Storage FUSE",
        &["gcs-fuse-csi-driver-sidecar-mounter", "gcs-fuse-csi-driver-metadata-prefetch"],
        Annotation("gke-gcsfuse/volumes"),
        TRUE,
        FALSE,
    ),
    // Azure/azure-workload-identity#1017 and `pkg/webhook/webhook.go`, which reads no value of the annotation.
    injector(
        "Azure Workload Identity",
        &["azure/workload-identity/proxy-init", "azure/workload-identity/proxy"],
        Annotation("azure.workload.identity/inject-proxy-sidecar"),
        Any,
        None,
    ),
    // Dynatrace/dynatrace-operator `pkg/webhook/mutation/pod`, and "Configure monitoring for namespaces and pods" of Dynatrace: the
    // annotation only leaves pods out.
    injector("Dynatrace", &["dynatrace/dynatrace-operator"], Annotation("dynatrace.com/inject"), Values(&[]), FALSE),
    // instana/instana-autotrace-webhook, which supports only Linux nodes.
    injector("Instana", &["instana/instrumentation"], Label("instana-autotrace"), TRUE, FALSE)
        .by_namespace(&[("instana-autotrace", TRUE)]),
    // elastic/apm-k8s-attacher `patch.go`, and "Add a pod template annotation" of Elastic.
    injector(
        "Elastic APM",
        &["observability/apm-agent-dotnet", "observability/apm-agent-java", "observability/apm-agent-nodejs"],
        Annotation("co.elastic.apm/attach"),
        Any,
        None,
    ),
];

/// Returns an injector that no label of a namespace asks for.
const fn injector(
    name: &'static str,
    images: &'static [&'static str],
    switch: Switch,
    on: On,
    off: Option<&'static str>,
) -> Injector {
    Injector { name, images, switch, on, off, namespace: &[] }
}

/// Returns an injector of the OpenTelemetry operator. The value of its annotation is `true`, or the name of an object.
const fn opentelemetry(images: &'static [&'static str], annotation: &'static str) -> Injector {
    injector("OpenTelemetry", images, Annotation(annotation), Any, FALSE)
}

impl Injector {
    /// Returns the same injector, which these labels of a namespace ask for too.
    const fn by_namespace(self, namespace: &'static [(&'static str, On)]) -> Self {
        Self { namespace, ..self }
    }

    /// Returns what asks for it, as the end of a sentence: `linkerd.io/inject is enabled`. If the pod itself asks for it, returns also
    /// the field of its `metadata` that has the switch. `namespace` is the name and the labels of the pod's namespace.
    pub fn asked(
        &self,
        metadata: &Value,
        namespace: Option<(&String, &BTreeMap<String, String>)>,
    ) -> Option<(Option<&'static str>, String)> {
        let (field, key) = self.switch.place();
        // Products read the annotation if the label is missing.
        let mut fields = [field, "annotations"].into_iter();
        let written = fields.find_map(|field| Some((field, metadata[field][key].as_str()?)));
        if let Some((field, value)) = written {
            let is_off = self.off.is_some_and(|off| off.eq_ignore_ascii_case(value));
            return self.on.describe(value).filter(|_| !is_off).map(|says| (Some(field), format!("{key} {says}")));
        }
        let (name, labels) = namespace?;
        let (key, says) = self.namespace.iter().find_map(|(key, on)| Some((key, on.describe(labels.get(*key)?))))?;
        Some((None, format!("the label {key} of namespace {name} {}", says?)))
    }

    /// Returns how to keep its containers out of pods.
    pub fn remedy(&self) -> String {
        let (name, switch) = (self.name, self.switch.describe());
        let change = match self.off {
            Some(off) => format!("set the {switch}: {off:?} on the pod or in its template"),
            None => format!("remove the {switch} from the pod or its template"),
        };
        format!("{change}, so that {name} leaves the pod alone")
    }
}

/// True if this label of a namespace asks for an injector with some values.
pub(crate) fn is_injection_label(key: &str) -> bool {
    INJECTORS.iter().flat_map(|injector| injector.namespace).any(|(label, _)| *label == key)
}

/// Returns the injector that adds this image, unless its tag says that it is for Windows.
pub(crate) fn injector_of(image: &str) -> Option<&'static Injector> {
    let repository = repository(image);
    let is_injected =
        |end: &&str| repository.strip_suffix(end).is_some_and(|host| host.is_empty() || host.ends_with('/'));
    INJECTORS.iter().find(|injector| injector.images.iter().any(is_injected)).filter(|_| !is_for_windows(image))
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
    use serde_json::json;

    use super::*;

    /// The injectors that are asked for by a pod with this metadata, in a namespace with these labels.
    fn asking(metadata: &Value, labels: &[(&str, &str)]) -> Vec<&'static str> {
        let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let name = "shop".to_owned();
        let asked = INJECTORS.iter().filter(|injector| injector.asked(metadata, Some((&name, &labels))).is_some());
        asked.map(|injector| injector.name).collect()
    }

    #[test]
    fn pods_switch_each_injector_on_and_off() {
        for (name, field, key, on, off) in [
            ("Linkerd", "annotations", "linkerd.io/inject", "ingress", Some("disabled")),
            ("Istio", "labels", "sidecar.istio.io/inject", "true", Some("false")),
            ("Istio", "annotations", "sidecar.istio.io/inject", "true", Some("false")),
            ("Consul", "annotations", "consul.hashicorp.com/connect-inject", "true", Some("false")),
            ("Datadog", "labels", "admission.datadoghq.com/enabled", "true", Some("false")),
            ("Vault Agent", "annotations", "vault.hashicorp.com/agent-inject", "true", Some("false")),
            ("Kuma", "labels", "kuma.io/sidecar-injection", "true", Some("disabled")),
            ("OpenTelemetry", "annotations", "sidecar.opentelemetry.io/inject", "tracing/agent", Some("False")),
            ("OpenTelemetry", "annotations", "instrumentation.opentelemetry.io/inject-dotnet", "true", Some("false")),
            ("OpenTelemetry", "annotations", "instrumentation.opentelemetry.io/inject-java", "true", Some("false")),
            ("OpenTelemetry", "annotations", "instrumentation.opentelemetry.io/inject-nodejs", "true", Some("false")),
            ("OpenTelemetry", "annotations", "instrumentation.opentelemetry.io/inject-python", "true", Some("false")),
            ("Cloud Storage FUSE", "annotations", "gke-gcsfuse/volumes", "True", Some("false")),
            ("Azure Workload Identity", "annotations", "azure.workload.identity/inject-proxy-sidecar", "false", None),
            ("Instana", "labels", "instana-autotrace", "true", Some("false")),
            ("Elastic APM", "annotations", "co.elastic.apm/attach", "dotnet", None),
        ] {
            assert_eq!(asking(&json!({field: {key: on}}), &[]), [name], "{key}");
            let off = off.map_or(Value::Null, |off| json!({field: {key: off}}));
            assert_eq!(asking(&off, &[]), [""; 0], "{key}");
        }
        for none in [
            json!({"annotations": {"dapr.io/enabled": "true"}}),
            json!({"annotations": {"openservicemesh.io/sidecar-injection": "enabled"}}),
            json!({"annotations": {"org.infisical.com/inject": "true"}}),
            json!({"annotations": {"instrumentation.opentelemetry.io/inject-sdk": "true"}}),
            json!({"annotations": {"dynatrace.com/inject": "true"}}),
            json!({"labels": {"linkerd.io/inject": "enabled"}}),
            json!({"labels": {"sidecar.istio.io/inject": "false"}, "annotations": {"sidecar.istio.io/inject": "true"}}),
            Value::Null,
        ] {
            assert_eq!(asking(&none, &[]), [""; 0], "{none}");
        }
    }

    #[test]
    fn namespaces_ask_for_injectors_unless_the_pod_refuses() {
        for (labels, names) in [
            (&[("istio-injection", "enabled")][..], &["Istio"][..]),
            (&[("istio.io/rev", "1-24-0")], &["Istio"]),
            (&[("istio-injection", "disabled"), ("istio.io/rev", "1-24-0")], &[]),
            (&[("kuma.io/sidecar-injection", "enabled"), ("instana-autotrace", "true")], &["Kuma", "Instana"]),
            (&[("kuma.io/sidecar-injection", "disabled")], &[]),
            (&[("vault.hashicorp.com/agent-inject", "true")], &[]),
        ] {
            assert_eq!(asking(&json!({}), labels), names, "{labels:?}");
        }
        let refusing = json!({"labels": {"sidecar.istio.io/inject": "false", "kuma.io/sidecar-injection": "false"}});
        let labels = [("istio-injection", "enabled"), ("kuma.io/sidecar-injection", "enabled")];
        assert_eq!(asking(&refusing, &labels), [""; 0]);
        assert!(is_injection_label("istio.io/rev") && !is_injection_label("app"));
    }

    #[test]
    fn images_of_injectors_are_known_in_every_registry() {
        for (image, name) in [
            ("cr.l5d.io/linkerd/proxy-init:v2.4.0", Some("Linkerd")),
            ("registry.example:5000/mirror/linkerd/proxy:edge-1", Some("Linkerd")),
            ("docker.io/istio/proxyv2@sha256:0123", Some("Istio")),
            ("hashicorp/consul-dataplane:1.4.0", Some("Consul")),
            ("hashicorp/consul-dataplane:1.0.0-windows", None),
            ("gcr.io/datadoghq/apm-inject:0", Some("Datadog")),
            ("docker.io/datadog/dd-lib-dotnet-init:v3", Some("Datadog")),
            ("hashicorp/vault:1.20", Some("Vault Agent")),
            ("docker.io/kumahq/kuma-dp:2.11", Some("Kuma")),
            ("ghcr.io/open-telemetry/opentelemetry-operator/autoinstrumentation-java:2", Some("OpenTelemetry")),
            ("otel/opentelemetry-collector-k8s:0.140.0", None),
            ("gke.gcr.io/gcs-fuse-csi-driver-sidecar-mounter:v1.17.1-gke.0@sha256:0123", Some("Cloud Storage FUSE")),
            ("mcr.microsoft.com/oss/v2/azure/workload-identity/proxy:v1.5.1", Some("Azure Workload Identity")),
            ("public.ecr.aws/dynatrace/dynatrace-operator:v1.7.0", Some("Dynatrace")),
            ("icr.io/instana/instrumentation:1.320.12", Some("Instana")),
            ("docker.elastic.co/observability/apm-agent-dotnet:latest", Some("Elastic APM")),
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
