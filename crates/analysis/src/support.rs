//! The support of Windows versions by Microsoft and by vendors of clusters.
//!
//! The tables contain only public statements; everything else is unknown.

use k8s_openapi::jiff::civil::{Date, date};
use winpool_core::labels::Labels;
use winpool_core::windows::{Build, builds};

/// The vendor that supports every Windows version for some time.
pub const MICROSOFT: &str = "Microsoft";

/// A vendor that runs or ships clusters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Vendor {
    Aks,
    Eks,
    Gke,
    OpenShift,
    Rke2,
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
    pub const ALL: [Self; 5] = [Self::Aks, Self::Eks, Self::Gke, Self::OpenShift, Self::Rke2];

    /// Returns the name, as messages have it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Aks => "AKS",
            Self::Eks => "EKS",
            Self::Gke => "GKE",
            Self::OpenShift => "OpenShift",
            Self::Rke2 => "RKE2",
        }
    }

    /// Returns the vendor that a node's labels show.
    pub fn of(labels: &Labels) -> Option<Self> {
        let has = |(prefix, _): &&(&str, Self)| labels.with_prefix(prefix).next().is_some();
        LABELS.iter().find(has).map(|(_, vendor)| *vendor)
    }

    /// Returns the last day on which the vendor supports a build, if it names one.
    pub fn support_end(self, build: Build) -> Option<Date> {
        Statement::of(self, build)?.support_end
    }
}

/// Returns the last days of support of a build, each with the vendor: Microsoft, and those of the others that name a
/// day.
pub fn ends_of_support<'a>(
    build: Build,
    vendors: impl IntoIterator<Item = &'a (Build, Vendor)>,
) -> impl Iterator<Item = (&'static str, Date)> {
    let by_microsoft = builds::by_build(build).map(|product| (MICROSOFT, product.end_of_support));
    let of_build = vendors.into_iter().filter(move |(supported, _)| *supported == build);
    let by_vendor = of_build.filter_map(move |(_, vendor)| Some((vendor.as_str(), vendor.support_end(build)?)));
    by_microsoft.into_iter().chain(by_vendor)
}

/// The statement of another vendor about a Windows version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statement {
    pub vendor: Vendor,
    pub build: Build,
    /// The first minor version of Kubernetes 1 with which it can be used.
    pub first: Option<u32>,
    /// The first one with which it cannot be used any more.
    pub removed: Option<u32>,
    /// The last day on which the vendor supports it.
    pub support_end: Option<Date>,
    /// The last day on which its node images exist; afterwards such nodes cannot be created or replaced.
    pub images_end: Option<Date>,
    /// A restriction that the other fields do not cover.
    pub note: Option<&'static str>,
    pub source: &'static str,
    /// The day on which the source was last read.
    pub checked: Date,
}

impl Statement {
    const fn new(vendor: Vendor, build: u32, source: &'static str) -> Self {
        let (build, checked) = (Build::new(build), date(2026, 11, 28));
        Self {
            vendor,
            build,
            first: None,
            removed: None,
            support_end: None,
            images_end: None,
            note: None,
            source,
            checked,
        }
    }

    /// Returns the statement of this vendor about a build, if there is one.
    pub fn of(vendor: Vendor, build: Build) -> Option<&'static Self> {
        STATEMENTS.iter().find(|row| row.vendor == vendor && row.build == build)
    }
}

const AKS_UPGRADE: &str = "https://learn.microsoft.com/azure/aks/upgrade-windows-os";
const AKS_MAY_2026: &str = "https://github.com/Azure/AKS/releases/tag/2026-05-29";
const AKS_JUNE_2026: &str = "https://github.com/Azure/AKS/releases/tag/2026-06-19";
const EKS_IMAGES: &str = "https://docs.aws.amazon.com/eks/latest/userguide/eks-ami-versions-windows.html";
const GKE_VERSIONS: &str =
    "https://docs.cloud.google.com/php/docs/reference/cloud-container/latest/V1.WindowsNodeConfig.OSVersion";

/// Every statement of a vendor, by vendor and build. What is not in it is unknown, so a new build needs no row here.
pub const STATEMENTS: &[Statement] = &[
    Statement {
        removed: Some(33),
        support_end: Some(date(2026, 3, 1)),
        images_end: Some(date(2027, 3, 31)),
        ..Statement::new(Vendor::Aks, 17763, AKS_MAY_2026)
    },
    Statement {
        removed: Some(37),
        support_end: Some(date(2028, 6, 30)),
        images_end: Some(date(2029, 6, 29)),
        ..Statement::new(Vendor::Aks, 20348, AKS_JUNE_2026)
    },
    Statement {
        support_end: Some(date(2026, 5, 15)),
        images_end: Some(date(2027, 5, 14)),
        ..Statement::new(Vendor::Aks, 25398, AKS_MAY_2026)
    },
    Statement {
        first: Some(32),
        note: Some("needs FIPS: --enable-fips-image, and is the only version from Kubernetes 1.37 on"),
        ..Statement::new(Vendor::Aks, 26100, AKS_UPGRADE)
    },
    Statement { first: Some(35), checked: date(2026, 11, 23), ..Statement::new(Vendor::Eks, 26100, EKS_IMAGES) },
    Statement {
        note: Some("not offered: its node pools have 2019 or 2022"),
        ..Statement::new(Vendor::Gke, 26100, GKE_VERSIONS)
    },
    Statement {
        note: Some("WMCO 10.21 is the last that supports it"),
        ..Statement::new(Vendor::OpenShift, 17763, "https://github.com/openshift/openshift-docs/pull/105866")
    },
    Statement {
        note: Some("needs WMCO 10.22 or later"),
        ..Statement::new(Vendor::OpenShift, 26100, "https://github.com/openshift/openshift-docs/pull/111470")
    },
    Statement {
        note: Some("not supported yet, mainly because of Calico"),
        ..Statement::new(Vendor::Rke2, 26100, "https://github.com/rancher/rancher/issues/50915")
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_vendor_speaks_twice_about_a_build_and_images_outlive_support() {
        for row in STATEMENTS {
            assert_eq!(Statement::of(row.vendor, row.build), Some(row));
            assert!(row.images_end.is_none_or(|images| row.support_end.is_some_and(|end| end < images)), "{row:?}");
            assert!(row.source.starts_with("https://") && row.checked > date(2026, 1, 1), "{row:?}");
        }
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
            let pairs = [("kubernetes.io/os", "windows"), (key, "x")];
            let labels: Labels = pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
            assert_eq!(Vendor::of(&labels), expected, "{key}");
        }
    }

    #[test]
    fn a_vendor_can_end_its_support_before_microsoft_does() {
        let build = Build::new(17763);
        let ends = |vendor| ends_of_support(build, &[(build, vendor)]).collect::<Vec<_>>();
        let by_microsoft = (MICROSOFT, date(2029, 1, 9));
        assert_eq!(ends(Vendor::Aks), [by_microsoft, ("AKS", date(2026, 3, 1))]);
        assert_eq!(ends(Vendor::Gke), [by_microsoft], "GKE names no day");
    }
}
