//! The support of Windows versions by vendors of clusters, besides Microsoft's own.
//!
//! The table contains only public statements of vendors; everything else is unknown. The sources, and what vendors say besides,
//! are in `crates/analysis/src/support.rs`.

use k8s_openapi::jiff::civil::{Date, date};

use super::{Build, product};
use crate::labels::Labels;

named! {
    /// A vendor that runs or ships clusters.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum Vendor {
        Aks = "AKS",
        Eks = "EKS",
        Gke = "GKE",
        OpenShift = "OpenShift",
        Rke2 = "RKE2",
    }
}

/// Prefixes of labels that only one vendor's nodes have.
const LABELS: [(&str, Vendor); 6] = [
    ("kubernetes.azure.com/", Vendor::Aks),
    ("eks.amazonaws.com/", Vendor::Eks),
    ("alpha.eksctl.io/", Vendor::Eks),
    ("cloud.google.com/gke-", Vendor::Gke),
    // The Windows Machine Config Operator sets `node.openshift.io/os_id`.
    ("node.openshift.io/", Vendor::OpenShift),
    ("egress.rke2.io/", Vendor::Rke2),
];

impl Vendor {
    /// Returns the vendor that a node's labels show.
    pub fn of(labels: &Labels) -> Option<Self> {
        let has = |(prefix, _): &&(&str, Self)| labels.with_prefix(prefix).next().is_some();
        LABELS.iter().find(has).map(|(_, vendor)| *vendor)
    }

    /// Returns the end of the vendor's support of a build, if the vendor names one.
    pub fn support_of(self, build: Build) -> Option<&'static VendorSupport> {
        VENDORS.iter().find(|row| row.vendor == self && row.build == build)
    }
}

/// The end of a vendor's support of a Windows version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VendorSupport {
    pub vendor: Vendor,
    pub build: Build,
    /// The last day on which the vendor supports it.
    pub end: Date,
}

impl VendorSupport {
    /// True if the vendor no longer supports it on this day.
    pub fn has_ended(&self, today: Date) -> bool {
        self.end < today
    }
}

/// The vendor that supports every Windows version for some time.
pub const MICROSOFT: &str = "Microsoft";

/// Returns the last days of support of a build, each with the vendor: Microsoft, and those of the others that name a
/// day.
pub fn ends_of_support<'a>(
    build: Build,
    vendors: impl IntoIterator<Item = &'a (Build, Vendor)>,
) -> impl Iterator<Item = (&'static str, Date)> {
    let by_microsoft = product::by_build(build).map(|product| (MICROSOFT, product.end_of_support));
    let of_build = vendors.into_iter().filter(move |(its, _)| *its == build);
    let by_vendor = of_build.filter_map(move |(_, vendor)| Some((vendor.as_str(), vendor.support_of(build)?.end)));
    by_microsoft.into_iter().chain(by_vendor)
}

const fn ends(vendor: Vendor, build: u32, end: Date) -> VendorSupport {
    VendorSupport { vendor, build: Build::new(build), end }
}

/// Every end that a vendor names.
pub const VENDORS: &[VendorSupport] = &[
    ends(Vendor::Aks, 17763, date(2026, 3, 1)),
    ends(Vendor::Aks, 20348, date(2028, 6, 30)),
    ends(Vendor::Aks, 25398, date(2026, 5, 15)),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn labels_of_a_node_show_its_vendor() {
        for (key, expected) in [
            ("kubernetes.azure.com/agentpool", Some(Vendor::Aks)),
            ("eks.amazonaws.com/nodegroup", Some(Vendor::Eks)),
            ("alpha.eksctl.io/cluster-name", Some(Vendor::Eks)),
            ("cloud.google.com/gke-nodepool", Some(Vendor::Gke)),
            ("node.openshift.io/os_id", Some(Vendor::OpenShift)),
            ("egress.rke2.io/cluster", Some(Vendor::Rke2)),
            ("topology.kubernetes.io/zone", None),
        ] {
            assert_eq!(Vendor::of(&labels(&[("kubernetes.io/os", "windows"), (key, "x")])), expected, "{key}");
        }
    }

    #[test]
    fn no_vendor_speaks_twice_about_a_build() {
        for (place, row) in VENDORS.iter().enumerate() {
            assert_eq!(
                VENDORS.iter().position(|other| (other.vendor, other.build) == (row.vendor, row.build)),
                Some(place)
            );
        }
    }

    #[test]
    fn support_ends_after_its_last_day() {
        let aks_2022 = Vendor::Aks.support_of(Build::new(20348)).unwrap();
        assert!(!aks_2022.has_ended(date(2028, 6, 30)) && aks_2022.has_ended(date(2028, 7, 1)));
        assert_eq!(Vendor::Gke.support_of(Build::new(17763)), None);
    }
}
