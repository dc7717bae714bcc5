//! Windows build numbers and the strings in which nodes report them.

use std::fmt;
use std::ops::Deref;
use std::str::FromStr;
use std::sync::Arc;

use super::number;

/// A Windows build: the third part of `10.0.<build>`, such as 17763 of Windows Server 2019.
///
/// It parses and formats the value of the label `node.kubernetes.io/windows-build`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Build(u32);

impl Build {
    /// Returns the build with this number. Windows builds have one to six digits; others can be created but not parsed.
    pub const fn new(number: u32) -> Self {
        Self(number)
    }

    /// Returns the bare number, without `10.0.`.
    pub const fn number(self) -> u32 {
        self.0
    }
}

impl fmt::Display for Build {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "10.0.{}", self.0)
    }
}

impl FromStr for Build {
    type Err = UnreadableVersion;

    fn from_str(text: &str) -> Result<Self, UnreadableVersion> {
        text.strip_prefix("10.0.").and_then(build_number).ok_or(UnreadableVersion)
    }
}

/// The text is not a version in the form that nodes report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnreadableVersion;

/// The version in `status.nodeInfo.kernelVersion` of a Windows node.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct KernelVersion {
    pub build: Build,
    /// The update revision (UBR), which monthly updates raise; `None` if only the build is known.
    pub revision: Option<u32>,
}

impl FromStr for KernelVersion {
    type Err = UnreadableVersion;

    /// Parses `10.0.17763.6659`, or `10.0.17763` without a revision.
    fn from_str(text: &str) -> Result<Self, UnreadableVersion> {
        let rest = text.strip_prefix("10.0.").ok_or(UnreadableVersion)?;
        let (build, revision) = match rest.split_once('.') {
            Some((build, revision)) => (build, Some(decimal(revision).ok_or(UnreadableVersion)?)),
            None => (rest, None),
        };
        Ok(Self { build: build_number(build).ok_or(UnreadableVersion)?, revision })
    }
}

/// `status.nodeInfo.kernelVersion` of a node, parsed once.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReportedVersion {
    text: Arc<str>,
    /// `None` if the node does not report a Windows version.
    pub version: Option<KernelVersion>,
}

impl From<Arc<str>> for ReportedVersion {
    fn from(text: Arc<str>) -> Self {
        Self { version: text.parse().ok(), text }
    }
}

impl From<&str> for ReportedVersion {
    fn from(text: &str) -> Self {
        Arc::<str>::from(text).into()
    }
}

/// The text as the node reports it.
impl Deref for ReportedVersion {
    type Target = str;

    fn deref(&self) -> &str {
        &self.text
    }
}

fn build_number(text: &str) -> Option<Build> {
    decimal(text).filter(|number| (1..=999_999).contains(number)).map(Build)
}

/// Parses a number of digits only, without a leading zero.
fn decimal(text: &str) -> Option<u32> {
    number(text).filter(|_| text == "0" || !text.starts_with('0'))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn kernel(text: &str) -> Option<(u32, Option<u32>)> {
        text.parse::<KernelVersion>().ok().map(|version| (version.build.number(), version.revision))
    }

    #[test]
    fn kernel_versions_that_nodes_have_reported_are_read() {
        let reported = [
            // From public descriptions of nodes: AKS, aks-engine, acs-engine, ACS, kubeadm.
            ("10.0.20348.2655", 20348, Some(2655)),
            ("10.0.17763.3887", 17763, Some(3887)),
            ("10.0.26100.32995", 26100, Some(32995)),
            ("10.0.20348.825", 20348, Some(825)),
            ("10.0.17763.437", 17763, Some(437)),
            ("10.0.17763.557", 17763, Some(557)),
            ("10.0.17763.737", 17763, Some(737)),
            ("10.0.17763.2452", 17763, Some(2452)),
            ("10.0.19041.804", 19041, Some(804)),
            ("10.0.17134.112", 17134, Some(112)),
            ("10.0.14393", 14393, None),
            ("10.0.17763.1397", 17763, Some(1397)),
            // Invented, because no such node is described in public.
            ("10.0.18362.1256", 18362, Some(1256)),
            ("10.0.19042.1889", 19042, Some(1889)),
            ("10.0.25398.1611", 25398, Some(1611)),
        ];
        for (text, build, revision) in reported {
            assert_eq!(kernel(text), Some((build, revision)), "{text}");
        }
    }

    #[test]
    fn other_kernel_versions_are_refused() {
        let others = [
            "",
            " ",
            "10.0",
            "10.0.",
            "10.0.17763.",
            "10.0.17763.437.1",
            "10.0.17763.x",
            "10.0.017763.437",
            "10.0.17763.0437",
            "10.0.0.1",
            "10.0.1000000.1",
            "10.0.+17763.437",
            "10.0.-17763",
            "10.0.17763.4294967296",
            " 10.0.17763.437",
            "10.0.17763.437\n",
            "6.3.9600.17031",
            "10.1.17763.437",
            "10.0.１７７６３",
            "10.0 14393",
            // Kubelets wrote this before 1.9.
            "10.0 14393 (14393.1715.amd64fre.rs1_release_inmarket.170906-1810)",
            "Microsoft Windows [Version 10.0.14393]",
            "5.15.0-1019-azure",
            "6.1.0-13-amd64",
            "6.8.0-1013-aws",
            "5.10.192-183.736.amzn2.x86_64",
        ];
        for text in others {
            assert_eq!(kernel(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_build_is_parsed_only_in_the_form_of_the_label() {
        assert_eq!("10.0.17763".parse(), Ok(Build::new(17763)));
        assert_eq!("10.0.1".parse(), Ok(Build::new(1)));
        assert_eq!("10.0.999999".parse(), Ok(Build::new(999_999)));
        let incomplete = ["", "17763", "10.0", "10.0.", "10.0.1.2"];
        let ill_formed = ["10.0.0", "10.0.017763", "10.0.1000000", "10.0.+1", "10.0. 1", "10.0.1 ", "v10.0.1"];
        for text in incomplete.into_iter().chain(ill_formed) {
            assert!(text.parse::<Build>().is_err(), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn a_build_is_read_back_as_written(number in 1_u32..=999_999) {
            let build = Build::new(number);
            prop_assert_eq!(build.to_string().parse(), Ok(build));
        }

        #[test]
        fn every_form_of_a_kernel_version_is_read(number in 1_u32..=999_999, revision: u32) {
            let build = Build::new(number);
            let full = KernelVersion { build, revision: Some(revision) };
            prop_assert_eq!(format!("{build}.{revision}").parse(), Ok(full));
            prop_assert_eq!(build.to_string().parse(), Ok(KernelVersion { build, revision: None }));
        }

        #[test]
        fn no_input_panics_and_what_is_read_is_what_was_written(
            text in prop_oneof![any::<String>(), "10\\.0[. ][0-9.+() a-z]{0,24}"]
        ) {
            if let Ok(build) = text.parse::<Build>() {
                prop_assert_eq!(build.to_string(), text.clone());
            }
            if let Ok(version) = text.parse::<KernelVersion>() {
                prop_assert!((1..=999_999).contains(&version.build.number()));
                prop_assert!(text.contains(&version.build.number().to_string()));
            }
        }
    }
}
