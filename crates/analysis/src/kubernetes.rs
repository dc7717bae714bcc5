//! The Windows builds that the documentation of each Kubernetes version lists.
//!
//! The lists contain the builds that Kubernetes tests and supports. Vendors support other builds, and builds that are
//! no longer listed still run.

use std::fmt;
use std::ops::RangeInclusive;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use winpool_core::windows::{Build, builds, number};

/// A minor version of Kubernetes, such as 1.36.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct KubernetesVersion {
    pub major: u32,
    pub minor: u32,
}

impl KubernetesVersion {
    /// Parses `major` and `minor` of the API server's answer at `/version`.
    ///
    /// `minor` is "numeric possibly followed by +" (kubernetes/component-base `version/base.go`): builds that were not
    /// made from a release tag report `36+`.
    pub fn parse(major: &str, minor: &str) -> Option<Self> {
        let minor = minor.strip_suffix('+').unwrap_or(minor);
        Some(Self { major: number(major)?, minor: number(minor)? })
    }

    /// Returns the support of a Windows build for nodes, by the documentation of this version.
    pub fn support_of(self, build: Build) -> KubernetesSupport {
        if self.major != 1 || !KNOWN.contains(&self.minor) {
            return KubernetesSupport::Unknown;
        }
        let listed = builds::by_build(build).and_then(|product| product.kubernetes);
        let is_in = |(first, last): (u32, Option<u32>)| (first..=last.unwrap_or(u32::MAX)).contains(&self.minor);
        if listed.is_some_and(is_in) { KubernetesSupport::Listed } else { KubernetesSupport::Unlisted }
    }
}

impl fmt::Display for KubernetesVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// The support of a Windows build in the documentation of a Kubernetes version.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub enum KubernetesSupport {
    /// The list contains the build.
    Listed,
    /// The list does not contain the build.
    Unlisted,
    /// This release of winpool does not know the list: the version is newer, or before 1.14, with which Windows nodes became stable.
    #[default]
    Unknown,
}

/// The minor versions of Kubernetes 1 whose lists [`builds`] has.
///
/// For 1.37: the changelog of 1.37 (kubernetes/kubernetes CHANGELOG/CHANGELOG-1.37.md) changes no Windows release, and the
/// page without a version, concepts/windows/intro, lists the same two.
const KNOWN: RangeInclusive<u32> = 14..=37;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::KubernetesSupport::{Listed, Unknown, Unlisted};
    use super::*;

    fn support(minor: u32, build: u32) -> KubernetesSupport {
        KubernetesVersion { major: 1, minor }.support_of(Build::new(build))
    }

    #[test]
    fn each_version_lists_what_its_documentation_says() {
        let rows = [
            (14..=17, "2019"),
            (18..=18, "2019 1903 1909"),
            (19..=19, "2019 1909 2004"),
            (20..=20, "2019 1909 2004"),
            (21..=21, "2019 2004 20h2"),
            (22..=22, "2019 2004 20h2"),
            (23..=28, "2019 20h2 2022"),
            (29..=34, "2019 20h2 2022"),
            (35..=37, "2022 2025"),
        ];
        for (minors, versions) in rows {
            for minor in minors {
                for product in builds::all() {
                    let is_listed = versions.split(' ').any(|version| version == product.version);
                    let expected = if is_listed { Listed } else { Unlisted };
                    let found = support(minor, product.build.number());
                    assert_eq!(found, expected, "the table and the rows here differ: {} with 1.{minor}", product.name);
                }
            }
        }
    }

    #[test]
    fn a_build_off_the_list_is_unlisted() {
        let off = [(16, 17134), (22, 20348), (34, 26100), (35, 17763), (37, 25398), (37, 26200), (37, 29000)];
        for (minor, build) in off {
            assert_eq!(support(minor, build), Unlisted, "{build} with 1.{minor}");
        }
    }

    #[test]
    fn a_version_without_a_known_list_is_unknown() {
        for minor in [0, 4, 9, 10, 11, 12, 13, 38, 100] {
            for product in builds::all() {
                assert_eq!(support(minor, product.build.number()), Unknown, "1.{minor}");
            }
        }
        for major in [0, 2] {
            let version = KubernetesVersion { major, minor: 36 };
            assert_eq!(version.support_of(Build::new(20348)), Unknown, "{version}");
        }
    }

    #[test]
    fn a_build_is_listed_by_known_versions() {
        for product in builds::all() {
            let Some((first, last)) = product.kubernetes else { continue };
            let last = last.unwrap_or(*KNOWN.end());
            assert!(first <= last && KNOWN.contains(&first) && KNOWN.contains(&last), "{}", product.name);
        }
    }

    #[test]
    fn versions_that_servers_report_are_read() {
        for (major, minor, read) in [("1", "36", "1.36"), ("1", "36+", "1.36"), ("1", "9", "1.9"), ("2", "0", "2.0")] {
            assert_eq!(KubernetesVersion::parse(major, minor).unwrap().to_string(), read);
        }
        for (major, minor) in [
            ("", ""),
            ("1", ""),
            ("", "36"),
            ("1", "+"),
            ("1", "+36"),
            ("1", "36++"),
            ("1", "36-eks"),
            ("v1", "36"),
            ("1+", "36"),
        ] {
            assert!(KubernetesVersion::parse(major, minor).is_none(), "{major:?} {minor:?}");
        }
    }

    proptest! {
        #[test]
        fn a_version_is_read_back_as_written_with_and_without_plus(major: u32, minor: u32) {
            let version = KubernetesVersion { major, minor };
            prop_assert_eq!(KubernetesVersion::parse(&major.to_string(), &minor.to_string()), Some(version));
            prop_assert_eq!(KubernetesVersion::parse(&major.to_string(), &format!("{minor}+")), Some(version));
        }

        #[test]
        fn no_input_panics_and_no_version_knows_only_some_builds(
            major: String, minor: String, version: (u32, u32), builds: (u32, u32),
        ) {
            let _ = KubernetesVersion::parse(&major, &minor);
            let version = KubernetesVersion { major: version.0 % 3, minor: version.1 % 60 };
            let is_known = |build| version.support_of(Build::new(build)) != Unknown;
            prop_assert_eq!(is_known(builds.0), is_known(builds.1));
        }
    }
}
