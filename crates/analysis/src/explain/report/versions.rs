//! The Windows versions of the nodes, and their ends of support.

use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;
use k8s_openapi::jiff::civil::Date;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use winpool_core::plan::pools::pool::policy_of;
use winpool_core::windows::Build;
use winpool_core::windows::builds::{self, Product};

use crate::explain::status::{BuildSummary, ClusterStatus, days_until};
use crate::kubernetes::{KubernetesSupport, KubernetesVersion};
use crate::support::{MICROSOFT, Statement, Vendor};
use crate::view::View;

/// The nodes of a Windows version.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VersionNodes {
    /// The build, such as `10.0.20348`; absent for nodes whose build is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub build: Option<String>,
    /// The product of the build; absent if winpool does not know the build.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub product: Option<String>,
    /// Number of nodes.
    pub node_count: usize,
    /// Number of nodes by pool.
    pub pools: Vec<PoolNodes>,
    /// The first day on which the product was available.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub available: Option<Date>,
    /// The last days of support by Microsoft: of mainstream support, and of any support. Empty if winpool does not know the build.
    pub microsoft: Vec<SupportDay>,
    /// The vendors that labels of these nodes show, with what they say about this version.
    pub vendors: Vec<VendorDays>,
    /// The support in the documentation of the cluster's Kubernetes version.
    pub kubernetes_support: KubernetesSupport,
}

/// The nodes of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PoolNodes {
    /// The pool; absent for nodes that no pool selects.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// Number of its nodes.
    pub node_count: usize,
}

/// A last day of support.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SupportDay {
    /// The last day.
    #[schemars(with = "String")]
    pub day: Date,
    /// Days until then; negative if it is over.
    pub days_left: i32,
}

/// A vendor's support of a Windows version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VendorDays {
    /// The vendor, such as `AKS`.
    pub vendor: String,
    /// The last day on which the vendor supports it; absent if the vendor names none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub support: Option<SupportDay>,
    /// The last day on which node images exist.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub images: Option<SupportDay>,
    /// The first version of Kubernetes with which it cannot be used any more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub removed_in: Option<String>,
    /// A condition or exception.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// The source; absent if winpool knows of no statement.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The day on which the source was last read.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub checked: Option<Date>,
}

impl VersionNodes {
    /// The end of support that comes first, with the one who ends it.
    pub fn first_end(&self) -> Option<(&str, &SupportDay)> {
        let microsoft = self.microsoft.last().map(|day| (MICROSOFT, day));
        let vendors = self.vendors.iter().filter_map(|vendor| Some((vendor.vendor.as_str(), vendor.support.as_ref()?)));
        microsoft.into_iter().chain(vendors).min_by_key(|(_, day)| day.day)
    }

    /// The product, the build, or `Unknown version`.
    pub fn name(&self) -> &str {
        self.product.as_deref().or(self.build.as_deref()).unwrap_or("Unknown version")
    }
}

/// The numbers of nodes by build and pool.
pub(super) type Owners = BTreeMap<Option<Build>, BTreeMap<Option<String>, usize>>;

/// Counts the Windows nodes, if nodes are known, by build and by the pool that owns them or else previews its changes.
pub(super) fn owners(view: &View) -> Option<Owners> {
    let pools: Vec<_> = view.guarded().into_iter().flatten().cloned().collect();
    let policy = policy_of(&pools);
    let mut owners = Owners::new();
    for seen in view.nodes.known()? {
        let node = &seen.object.node;
        if !node.is_windows() {
            continue;
        }
        let owner = policy.owner(&node.labels).map(|entry| entry.pool.spec.name.clone());
        let pool = owner.or_else(|| policy.previews(&node.labels).next().map(|pool| pool.spec.name.clone()));
        let build = node.windows_build();
        *owners.entry(build).or_default().entry(pool).or_default() += 1;
    }
    Some(owners)
}

pub(super) fn versions(
    state: &ClusterStatus,
    owners: &Owners,
    kubernetes: Option<KubernetesVersion>,
    now: Timestamp,
) -> Vec<VersionNodes> {
    let day = |day: Date| SupportDay { day, days_left: days_until(day, now) };
    let version = |summary: &BuildSummary| {
        let build: Option<Build> = summary.build.as_deref().and_then(|text| text.parse().ok());
        let product = build.and_then(builds::by_build);
        let pools = owners.get(&build).into_iter().flatten();
        VersionNodes {
            build: summary.build.clone(),
            product: product.map(|product| product.name.to_owned()),
            node_count: summary.node_count,
            pools: pools.map(|(pool, nodes)| PoolNodes { pool: pool.clone(), node_count: *nodes }).collect(),
            available: product.map(|product| product.available),
            microsoft: product.map(|product| of_microsoft(product, day)).unwrap_or_default(),
            vendors: build.map(|build| vendors(build, summary, day)).unwrap_or_default(),
            kubernetes_support: kubernetes
                .zip(build)
                .map_or(KubernetesSupport::Unknown, |(kubernetes, build)| kubernetes.support_of(build)),
        }
    };
    state.builds.iter().map(version).collect()
}

fn of_microsoft(product: &Product, day: impl Fn(Date) -> SupportDay) -> Vec<SupportDay> {
    let mut days = vec![product.mainstream_end, product.end_of_support];
    days.dedup();
    days.into_iter().map(day).collect()
}

fn vendors(build: Build, summary: &BuildSummary, day: impl Fn(Date) -> SupportDay) -> Vec<VendorDays> {
    let shown = Vendor::ALL.into_iter().filter(|vendor| summary.vendors.contains_key(vendor.as_str()));
    let days = shown.map(|vendor| {
        let name = vendor.as_str().to_owned();
        let Some(row) = Statement::of(vendor, build) else {
            return VendorDays { vendor: name, ..VendorDays::default() };
        };
        VendorDays {
            vendor: name,
            support: row.support_end.map(&day),
            images: row.images_end.map(&day),
            removed_in: row.removed.map(|minor| format!("1.{minor}")),
            note: row.note.map(str::to_owned),
            source: Some(row.source.to_owned()),
            checked: Some(row.checked),
        }
    });
    days.collect()
}
