//! The container runtime that a node reports in `status.nodeInfo.containerRuntimeVersion`.

use std::fmt;
use std::str::FromStr;

use super::build::UnreadableVersion;
use super::number;

/// The container runtime of a node, such as `containerd://1.7.17+azure`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ContainerRuntime {
    /// The name before `://`.
    pub name: RuntimeName,
    /// The version; `None` if it cannot be read. A kubelet writes `Unknown` while the runtime does not answer
    /// (kubernetes/kubernetes `pkg/kubelet/nodestatus/setters.go`).
    pub version: Option<RuntimeVersion>,
}

impl ContainerRuntime {
    /// True for this release of containerd or a later one, and false if the version cannot be read. A
    /// pre-release comes before its release: `1.7.19-rc.1` is not at least 1.7.19.
    pub fn is_containerd_at_least(self, wanted: RuntimeVersion) -> bool {
        self.name == RuntimeName::Containerd && self.version.is_some_and(|version| version >= wanted)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum RuntimeName {
    /// containerd, which can run Windows containers for Kubernetes since its 1.4.
    Containerd,
    /// Docker or Mirantis Container Runtime, by dockershim or cri-dockerd.
    Docker,
    /// Another runtime; none is known to run Windows containers.
    Other,
}

/// A version without vendors' additions. Versions are ordered by their fields, so a pre-release comes before its
/// release; two pre-releases of the same version are equal.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RuntimeVersion {
    pub major: u32,
    pub minor: u32,
    pub patch: u32,
    pub stage: VersionStage,
}

impl RuntimeVersion {
    /// The release with this number.
    pub const fn release(major: u32, minor: u32, patch: u32) -> Self {
        Self { major, minor, patch, stage: VersionStage::Release }
    }
}

impl fmt::Display for RuntimeVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { major, minor, patch, .. } = self;
        write!(f, "{major}.{minor}.{patch}")
    }
}

/// The stage of a version.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum VersionStage {
    /// An alpha, a beta, a release candidate or a development build.
    PreRelease,
    /// The release, possibly rebuilt or patched by a vendor.
    Release,
}

impl FromStr for ContainerRuntime {
    type Err = UnreadableVersion;

    /// Parses `<name>://<version>`. The kubelet composes it from the runtime's report, which may be any text, so only a
    /// text without a name is an error.
    fn from_str(text: &str) -> Result<Self, UnreadableVersion> {
        let (name, version) = text.split_once("://").filter(|(name, _)| !name.is_empty()).ok_or(UnreadableVersion)?;
        let name = match name {
            "containerd" => RuntimeName::Containerd,
            "docker" => RuntimeName::Docker,
            _ => RuntimeName::Other,
        };
        Ok(Self { name, version: runtime_version(version) })
    }
}

/// The words that begin the part after `-` in a pre-release; containerd uses alpha, beta and rc. All other words were
/// added to a release: `-k3s2` by k3s, `-12-g449e926` by `git describe` twelve commits later.
const PRE_RELEASES: &[&str] = &["alpha", "beta", "rc", "dev", "pre"];

/// Parses three numbers, followed by nothing or by a text that begins with `-`, `+` (build metadata) or `~` (Debian's
/// spelling of a pre-release).
fn runtime_version(text: &str) -> Option<RuntimeVersion> {
    let (numbers, suffix) = text.split_at(text.find(['-', '+', '~']).unwrap_or(text.len()));
    // Docker's versions have leading zeros (`19.03`).
    let mut numbers = numbers.split('.').map(number);
    let (major, minor, patch) = (numbers.next()??, numbers.next()??, numbers.next()??);
    if numbers.next().is_some() {
        return None;
    }
    let mark = suffix.strip_prefix(['-', '~']).map(leading_letters);
    let is_pre_release = mark.is_some_and(|mark| PRE_RELEASES.contains(&mark));
    let stage = if is_pre_release { VersionStage::PreRelease } else { VersionStage::Release };
    Some(RuntimeVersion { major, minor, patch, stage })
}

fn leading_letters(text: &str) -> &str {
    text.split(|letter: char| !letter.is_ascii_alphabetic()).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::RuntimeName::{Containerd, Docker, Other};
    use super::VersionStage::{PreRelease, Release};
    use super::*;

    fn runtime(text: &str) -> ContainerRuntime {
        text.parse().unwrap()
    }

    #[test]
    fn runtimes_that_nodes_have_reported_are_read() {
        let reported = [
            // From public descriptions of nodes: AKS, k3s, aks-engine, acs-engine, kubeadm.
            ("containerd://1.7.17+azure", Containerd, (1, 7, 17), Release),
            ("containerd://1.6.14+unknown", Containerd, (1, 6, 14), Release),
            ("containerd://1.6.6+azure", Containerd, (1, 6, 6), Release),
            ("containerd://2.0.4+azure", Containerd, (2, 0, 4), Release),
            ("containerd://2.0.2-k3s2", Containerd, (2, 0, 2), Release),
            ("containerd://1.6.0-rc.1", Containerd, (1, 6, 0), PreRelease),
            ("containerd://1.4.1", Containerd, (1, 4, 1), Release),
            ("docker://19.3.14", Docker, (19, 3, 14), Release),
            ("docker://17.6.2", Docker, (17, 6, 2), Release),
            // Invented.
            ("docker://19.03.14", Docker, (19, 3, 14), Release),
            ("containerd://2.0.0-alpha.1", Containerd, (2, 0, 0), PreRelease),
            ("containerd://2.0.0-beta.2+azure", Containerd, (2, 0, 0), PreRelease),
            ("containerd://2.0.0-rc1", Containerd, (2, 0, 0), PreRelease),
            ("containerd://2.0.0~rc.1", Containerd, (2, 0, 0), PreRelease),
            ("containerd://2.0.0-rc.1-12-g449e926.m", Containerd, (2, 0, 0), PreRelease),
            ("containerd://1.7.19-12-g449e926.m", Containerd, (1, 7, 19), Release),
            ("containerd://1.7.19-k3s1-rc1", Containerd, (1, 7, 19), Release),
            ("containerd://1.7.19-rke2", Containerd, (1, 7, 19), Release),
            ("containerd://1.7.19+rc.1", Containerd, (1, 7, 19), Release),
            ("cri-o://1.30.1", Other, (1, 30, 1), Release),
            ("Containerd://1.7.19", Other, (1, 7, 19), Release),
        ];
        for (text, name, (major, minor, patch), stage) in reported {
            let version = Some(RuntimeVersion { major, minor, patch, stage });
            assert_eq!(runtime(text), ContainerRuntime { name, version }, "{text}");
        }
    }

    #[test]
    fn a_version_that_cannot_be_read_is_unknown() {
        // A node reported the first one in 2017.
        for version in [
            "Unknown",
            "",
            "1",
            "1.7",
            "1.7.",
            "1.7.19.1",
            "v1.7.19",
            "1.7.+19",
            "1.7.x",
            "1.7.4294967296",
            " 1.7.19",
            "-",
        ] {
            assert_eq!(runtime(&format!("containerd://{version}")).version, None, "{version:?}");
        }
        assert_eq!(runtime("docker://Unknown"), ContainerRuntime { name: Docker, version: None });
    }

    #[test]
    fn a_text_without_a_name_is_refused() {
        for text in ["", " ", "containerd", "1.7.19", "containerd:1.7.19", "containerd:/1.7.19", "://1.7.19"] {
            assert!(text.parse::<ContainerRuntime>().is_err(), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn versions_are_ordered_as_their_numbers(one: (u32, u32, u32), other: (u32, u32, u32)) {
            let read = |(major, minor, patch), suffix| runtime(&format!("containerd://{major}.{minor}.{patch}{suffix}"));
            let at_least = |reported: ContainerRuntime| reported.is_containerd_at_least(RuntimeVersion::release(other.0, other.1, other.2));
            prop_assert_eq!(at_least(read(one, "")), one >= other);
            prop_assert_eq!(at_least(read(one, "-k3s2")), one >= other);
            prop_assert_eq!(at_least(read(one, "-rc.1")), one > other);
            prop_assert!(read(one, "-rc.1").version < read(one, "+azure").version);
        }

        #[test]
        fn no_input_panics_and_vendors_suffixes_change_nothing(
            text in prop_oneof![any::<String>(), "(containerd|docker)://[0-9.]{0,12}[-+~]?[a-z0-9.~+-]{0,12}"],
            metadata in "[a-z0-9.-]{0,12}",
        ) {
            if let Ok(read) = text.parse::<ContainerRuntime>() {
                prop_assert!(text.contains("://"));
                if read.version.is_some() {
                    prop_assert_eq!(runtime(&format!("{text}+{metadata}")), read);
                }
            }
        }
    }
}
