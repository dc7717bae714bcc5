//! The releases of Windows Server that can be Kubernetes nodes, one row a build. winpool knows a new build by its row.
//!
//! Sources: Microsoft's "Base image servicing lifecycles" and "Windows container version compatibility"
//! (MicrosoftDocs/Virtualization-Documentation, the current text and, for releases dropped from it, its history),
//! microsoft/hcsshim `osversion/windowsbuilds.go` for the build numbers, endoflife-date/endoflife.date for 23H2.
//! If sources differ on an end date, the table has the earlier one, so that a warning comes too early rather than too
//! late.
//!
//! What vendors of clusters state about a build is in `STATEMENTS` in `crates/analysis/src/support.rs`. A build without a
//! statement is unknown there.

use k8s_openapi::jiff::civil::{Date, date};

use super::Build;
use Cloud::{Aks, Aws, Gke};

/// One release of Windows Server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Product {
    /// The build that nodes report and containers must match.
    pub build: Build,
    /// The name in RuntimeClass names and in `version` of a pool's `runtimeClasses`: `2019`, `20h2`.
    pub version: &'static str,
    /// The full name: `Windows Server 2019`.
    pub name: &'static str,
    /// The half-year by which GitLab names the release in the tags of its runner's helper images: `servercore21H2`
    /// (gitlab-org/gitlab-runner `helpers/container/windows/version.go`).
    pub half_year: Option<&'static str>,
    /// True for the Long-Term Servicing Channel. The others are the Semi-Annual Channel, which Microsoft ended with 20H2, and
    /// the Annual Channel for Containers.
    pub is_ltsc: bool,
    /// The first day of general availability.
    pub available: Date,
    /// The last day of mainstream support. Later than that, extended support may follow.
    pub mainstream_end: Date,
    /// The last day on which Microsoft publishes fixes.
    pub end_of_support: Date,
    /// The tags of Microsoft's base images, the usual one first; there are more tags, by update and by full version. A
    /// release without tags has no base images of its own.
    pub base_tags: &'static [&'static str],
    /// The first and the last version of Kubernetes' pause image that has a variant for the build; the last is `None` if the
    /// newest version has one. Source: kubernetes/kubernetes `build/pause/CHANGELOG.md`.
    pub pause_images: Option<(&'static str, Option<&'static str>)>,
    /// The first and the last minor version of Kubernetes 1 whose documentation lists the build; the last is `None` if the
    /// newest version that winpool knows lists it. Source: the section "Windows OS version support" of kubernetes/website,
    /// under its various names and places.
    pub kubernetes: Option<(u32, Option<u32>)>,
    /// The clouds that have images of nodes with the build. For the others `winpool render` refuses it.
    pub clouds: &'static [Cloud],
}

/// A cloud that has images of Windows nodes for some builds only.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cloud {
    /// Azure. Sources: those of `STATEMENTS` in `crates/analysis/src/support.rs`.
    Aks,
    /// Karpenter and eksctl. Sources for 2025: karpenter-provider-aws#8842 and eksctl 0.222.
    Aws,
    /// Google Cloud. Source: the GKE documentation of Windows Server node pools.
    Gke,
}

impl Product {
    /// Returns the spellings of the version: `2022`, and `ltsc2022` for a release of the Long-Term Servicing Channel.
    pub fn spellings(&self) -> impl Iterator<Item = String> + use<> {
        let long_term = self.is_ltsc.then(|| format!("ltsc{}", self.version));
        [self.version.to_owned()].into_iter().chain(long_term)
    }
}

/// Returns a release of which nothing else is known. The days are those of its availability and of the two ends.
#[rustfmt::skip]
const fn row(build: u32, version: &'static str, name: &'static str, days: [Date; 3]) -> Product {
    Product {
        build: Build::new(build), version, name, half_year: None, is_ltsc: false, available: days[0], mainstream_end: days[1],
        end_of_support: days[2], base_tags: &[], pause_images: None, kubernetes: None, clouds: &[],
    }
}

/// Every known release, in ascending order of build.
///
/// Builds of Windows clients are not included, although some share a number with a server (26100 is Windows 11 24H2
/// too).
#[rustfmt::skip]
const ROWS: &[Product] = &[
    // Microsoft's container documentation states the 11th as the end of support, and its product lifecycle pages the 12th.
    // The tags are those of images that are no longer published: Server Core ltsc2016, Nano Server sac2016, and 1607 for both.
    Product { is_ltsc: true, base_tags: &["ltsc2016", "sac2016", "1607"],
        ..row(14393, "2016", "Windows Server 2016", [date(2016, 10, 15), date(2022, 1, 11), date(2027, 1, 11)]) },
    // The documentation of Kubernetes 1.14 to 1.16 calls 1709 and 1803 "Not Supported".
    Product { base_tags: &["1709"],
        ..row(16299, "1709", "Windows Server, version 1709", [date(2017, 10, 17), date(2019, 4, 9), date(2019, 4, 9)]) },
    Product { base_tags: &["1803"],
        ..row(17134, "1803", "Windows Server, version 1803", [date(2018, 4, 30), date(2019, 11, 12), date(2019, 11, 12)]) },
    // Version 1809 of the Semi-Annual Channel, until 2020-11-10, has the same build. A later table in the documentation of
    // Kubernetes 1.14 to 1.16 adds it, and its images continue under these tags. Until 2026 a sentence in the same
    // documentation called 2019 the only one "fully supported" (kubernetes/website#44401, #55103).
    Product { is_ltsc: true, half_year: Some("1809"), base_tags: &["ltsc2019", "1809"], pause_images: Some(("3.4", None)),
        kubernetes: Some((14, Some(34))), clouds: &[Aws, Gke],
        ..row(17763, "2019", "Windows Server 2019", [date(2018, 11, 13), date(2024, 1, 9), date(2029, 1, 9)]) },
    Product { base_tags: &["1903"], pause_images: Some(("3.4", Some("3.6"))), kubernetes: Some((18, Some(18))),
        ..row(18362, "1903", "Windows Server, version 1903", [date(2019, 5, 21), date(2020, 12, 8), date(2020, 12, 8)]) },
    Product { base_tags: &["1909"], pause_images: Some(("3.4", Some("3.6"))), kubernetes: Some((18, Some(20))),
        ..row(18363, "1909", "Windows Server, version 1909", [date(2019, 11, 12), date(2021, 5, 11), date(2021, 5, 11)]) },
    Product { base_tags: &["2004"], pause_images: Some(("3.4", Some("3.6"))), kubernetes: Some((19, Some(22))),
        ..row(19041, "2004", "Windows Server, version 2004", [date(2020, 5, 27), date(2021, 12, 14), date(2021, 12, 14)]) },
    // Its end was first announced as 2022-05-10, and then moved by Microsoft.
    Product { base_tags: &["20H2"], pause_images: Some(("3.4.1", Some("3.8"))), kubernetes: Some((21, Some(34))),
        ..row(19042, "20h2", "Windows Server, version 20H2", [date(2020, 10, 20), date(2022, 8, 9), date(2022, 8, 9)]) },
    // Kubernetes: from the documentation of 1.27 and later. It is not verified that 2022 was added with 1.23.
    Product { is_ltsc: true, half_year: Some("21H2"), base_tags: &["ltsc2022"], pause_images: Some(("3.6", None)),
        kubernetes: Some((23, None)), clouds: &[Aks, Aws, Gke],
        ..row(20348, "2022", "Windows Server 2022", [date(2021, 8, 18), date(2026, 10, 13), date(2031, 10, 14)]) },
    // Azure Stack HCI 23H2 reportedly has this build too. It has no base images of its own and runs those of 2022.
    row(25398, "23h2", "Windows Server, version 23H2", [date(2023, 10, 24), date(2025, 4, 24), date(2025, 10, 24)]),
    // Later texts state 2029-11-13 and 2034-11-14. Pause image: containerd/containerd#13156. Kubernetes: kubernetes/website#53724.
    Product { is_ltsc: true, half_year: Some("24H2"), base_tags: &["ltsc2025"], pause_images: Some(("3.10.2", None)),
        kubernetes: Some((35, None)), clouds: &[Aks, Aws],
        ..row(26100, "2025", "Windows Server 2025", [date(2024, 11, 1), date(2029, 10, 9), date(2034, 10, 10)]) },
];

/// Returns every known release, in ascending order of build.
pub fn all() -> &'static [Product] {
    #[cfg(feature = "made-up-build")]
    if let Some(rows) = MADE_UP.get() {
        return rows;
    }
    ROWS
}

/// The table with one more row, for a test that shows what a row is enough for. Programs that are shipped do not have it.
#[cfg(feature = "made-up-build")]
pub static MADE_UP: std::sync::OnceLock<Vec<Product>> = std::sync::OnceLock::new();

/// Returns the release with this build, or `None` for a client, a preview, or a release newer than this table.
pub fn by_build(build: Build) -> Option<&'static Product> {
    all().iter().find(|product| product.build == build)
}

/// Returns the release with this name, in one of its [spellings](Product::spellings).
pub fn by_version(version: &str) -> Option<&'static Product> {
    all().iter().find(|product| product.spellings().any(|spelling| spelling == version))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_table_is_in_order_and_names_nothing_twice() {
        assert!(all().is_sorted_by(|one, next| one.build < next.build), "rows stand in order of build");
        let versions: BTreeSet<_> = all().iter().map(|product| product.version).collect();
        assert_eq!(versions.len(), all().len());
    }

    #[test]
    fn support_of_every_release_ends_after_it_began() {
        for product in all() {
            assert!(product.available < product.mainstream_end, "{}", product.name);
            assert!(product.mainstream_end <= product.end_of_support, "{}", product.name);
        }
    }

    #[test]
    fn versions_can_be_part_of_a_runtime_class_name() {
        for product in all() {
            assert!(product.version.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit()));
        }
    }

    #[test]
    fn every_release_is_found_by_build_and_by_version() {
        for product in all() {
            assert_eq!(by_build(product.build), Some(product));
            product.spellings().for_each(|spelling| assert_eq!(by_version(&spelling), Some(product)));
        }
        for client_or_unknown in [15063, 19043, 19044, 19045, 22000, 22621, 29000] {
            assert_eq!(by_build(Build::new(client_or_unknown)), None);
        }
        for other in ["", "20H2", "1809", "ltsc1909", "LTSC2019", "windows-2019", "22h2", "24h2"] {
            assert_eq!(by_version(other), None, "{other}");
        }
    }

    proptest! {
        #[test]
        fn a_release_is_found_only_under_its_own_key(number: u32, version: String) {
            let build = Build::new(number);
            prop_assert!(by_build(build).is_none_or(|product| product.build == build));
            prop_assert!(by_version(&version).is_none_or(|product| product.version == version));
        }
    }
}
