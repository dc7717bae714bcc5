//! The releases of Windows Server that can be Kubernetes nodes, keyed by build.
//!
//! Sources: Microsoft's "Base image servicing lifecycles" and "Windows container version compatibility"
//! (MicrosoftDocs/Virtualization-Documentation, the current text and, for releases dropped from it, its history),
//! microsoft/hcsshim `osversion/windowsbuilds.go` for the build numbers, endoflife-date/endoflife.date for 23H2.
//! If sources differ on an end date, the table has the earlier one, so that a warning comes too early rather than too
//! late.

use k8s_openapi::jiff::civil::{Date, date};

use super::Build;

/// One release of Windows Server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Product {
    /// The build that nodes report and containers must match.
    pub build: Build,
    /// The name in RuntimeClass names and in `version` of a pool's `runtimeClasses`: `2019`, `20h2`.
    pub version: &'static str,
    /// The full name: `Windows Server 2019`.
    pub name: &'static str,
    /// True for the Long-Term Servicing Channel. The others are the Semi-Annual Channel, which Microsoft ended with 20H2, and
    /// the Annual Channel for Containers.
    pub is_ltsc: bool,
    /// The last day on which Microsoft publishes fixes.
    pub end_of_support: Date,
}

impl Product {
    /// Returns the spellings of the version: `2022`, and `ltsc2022` for a release of the Long-Term Servicing Channel.
    pub fn spellings(&self) -> impl Iterator<Item = String> + use<> {
        let long_term = self.is_ltsc.then(|| format!("ltsc{}", self.version));
        [self.version.to_owned()].into_iter().chain(long_term)
    }
}

/// Returns a release of the Long-Term Servicing Channel.
const fn ltsc(build: u32, version: &'static str, name: &'static str, end_of_support: Date) -> Product {
    Product { build: Build::new(build), version, name, is_ltsc: true, end_of_support }
}

/// Returns this release as one of another channel.
const fn other(release: Product) -> Product {
    Product { is_ltsc: false, ..release }
}

/// Every known release, in ascending order of build.
///
/// Builds of Windows clients are not included, although some share a number with a server (26100 is Windows 11 24H2
/// too).
pub const PRODUCTS: &[Product] = &[
    // Microsoft's container documentation states the 11th, and its product lifecycle pages the 12th.
    ltsc(14393, "2016", "Windows Server 2016", date(2027, 1, 11)),
    other(ltsc(16299, "1709", "Windows Server, version 1709", date(2019, 4, 9))),
    other(ltsc(17134, "1803", "Windows Server, version 1803", date(2019, 11, 12))),
    // Version 1809 of the Semi-Annual Channel, until 2020-11-10, has the same build.
    ltsc(17763, "2019", "Windows Server 2019", date(2029, 1, 9)),
    other(ltsc(18362, "1903", "Windows Server, version 1903", date(2020, 12, 8))),
    other(ltsc(18363, "1909", "Windows Server, version 1909", date(2021, 5, 11))),
    other(ltsc(19041, "2004", "Windows Server, version 2004", date(2021, 12, 14))),
    // Its end was first announced as 2022-05-10, and then moved by Microsoft.
    other(ltsc(19042, "20h2", "Windows Server, version 20H2", date(2022, 8, 9))),
    ltsc(20348, "2022", "Windows Server 2022", date(2031, 10, 14)),
    // Azure Stack HCI 23H2 reportedly has this build too.
    other(ltsc(25398, "23h2", "Windows Server, version 23H2", date(2025, 10, 24))),
    // Later texts state 2034-11-14.
    ltsc(26100, "2025", "Windows Server 2025", date(2034, 10, 10)),
];

/// Returns the release with this build, or `None` for a client, a preview, or a release newer than this table.
pub fn by_build(build: Build) -> Option<&'static Product> {
    PRODUCTS.iter().find(|product| product.build == build)
}

/// The name of the release with this build, or else the build.
pub fn name_of(build: Build) -> String {
    by_build(build).map_or_else(|| build.to_string(), |product| product.name.to_owned())
}

/// Returns the release with this name, in one of its [spellings](Product::spellings).
pub fn by_version(version: &str) -> Option<&'static Product> {
    PRODUCTS.iter().find(|product| product.spellings().any(|spelling| spelling == version))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_table_is_in_order_and_names_nothing_twice() {
        assert!(PRODUCTS.is_sorted_by(|one, next| one.build < next.build), "rows stand in order of build");
        let versions: BTreeSet<_> = PRODUCTS.iter().map(|product| product.version).collect();
        assert_eq!(versions.len(), PRODUCTS.len());
    }

    #[test]
    fn versions_can_be_part_of_a_runtime_class_name() {
        for product in PRODUCTS {
            assert!(product.version.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit()));
        }
    }

    #[test]
    fn every_release_is_found_by_build_and_by_version() {
        for product in PRODUCTS {
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
