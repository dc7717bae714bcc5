//! The changes since an earlier report.

use std::collections::BTreeSet;

use k8s_openapi::jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use winpool_core::api::ObjectReference;

use crate::image::known::name_of;

use super::numbers::Numbers;
use super::workloads::VersionWorkloads;

/// The part of an earlier report in JSON that is compared.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Earlier {
    time: Timestamp,
    numbers: Numbers,
    #[serde(default)]
    workloads: Vec<EarlierVersion>,
    unknown: Vec<Value>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
struct EarlierVersion {
    pinned: Vec<EarlierObject>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
struct EarlierObject {
    object: ObjectReference,
}

/// The changes since an earlier report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Progress {
    /// The time of the earlier report.
    #[schemars(with = "String")]
    pub since: Timestamp,
    /// The numbers then and now.
    pub numbers: Vec<NumberChange>,
    /// True if something is not known in one of the reports. Then numbers may differ because of that.
    pub is_incomplete: bool,
    /// Workloads and pools that are no longer pinned, or are gone; empty if something is not known.
    pub freed: Vec<ObjectReference>,
    /// Workloads and pools that are pinned now; empty if something is not known.
    pub newly_pinned: Vec<ObjectReference>,
}

/// A number then and now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NumberChange {
    /// The name of the number.
    pub name: String,
    /// The number then; absent if it was not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<usize>,
    /// The number now; absent if it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub now: Option<usize>,
}

impl Progress {
    /// `is_complete` is false if something is not known in the new report.
    pub(super) fn since(
        earlier: &Earlier,
        numbers: &Numbers,
        workloads: &[VersionWorkloads],
        is_complete: bool,
    ) -> Self {
        let is_incomplete = !earlier.unknown.is_empty() || !is_complete;
        let then = earlier.workloads.iter().flat_map(|version| version.pinned.iter().map(|pinned| &pinned.object));
        let now = workloads.iter().flat_map(|version| version.pinned.iter().map(|pinned| &pinned.object));
        let (then, now): (BTreeSet<_>, BTreeSet<_>) = (then.collect(), now.collect());
        let only = |one: &BTreeSet<&ObjectReference>, other: &BTreeSet<&ObjectReference>| {
            let objects = one.difference(other).filter(|_| !is_incomplete);
            objects.map(|object| (*object).clone()).collect()
        };
        Self {
            since: earlier.time,
            numbers: changes(&earlier.numbers, numbers),
            is_incomplete,
            freed: only(&then, &now),
            newly_pinned: only(&now, &then),
        }
    }
}

fn changes(before: &Numbers, now: &Numbers) -> Vec<NumberChange> {
    let named = before.named().into_iter().zip(now.named());
    let named = named.map(|((name, before, _), (_, now, _))| NumberChange { name: name.to_owned(), before, now });
    let builds: BTreeSet<&String> = before.nodes_by_build.keys().chain(now.nodes_by_build.keys()).collect();
    let of = |numbers: &Numbers, build: &str| {
        numbers.node_count.map(|_| numbers.nodes_by_build.get(build).copied().unwrap_or_default())
    };
    let by_build = builds.into_iter().map(|build| NumberChange {
        name: format!("Nodes with {}", build.parse().map_or_else(|_| build.clone(), name_of)),
        before: of(before, build),
        now: of(now, build),
    });
    named.chain(by_build).collect()
}
