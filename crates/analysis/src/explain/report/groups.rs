//! The numbers of each group of a report.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use winpool_core::api::ObjectReference;

use crate::explain::groups::{Groups, order};
use crate::finding::{Finding, Severity};

use super::workloads::VersionWorkloads;

/// The numbers of a group, such as a team.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GroupNumbers {
    /// The namespace, or the value of the label; absent for what has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Workloads that are pinned to a Windows version, and pools.
    pub pinned: usize,
    /// Workloads of which winpool cannot tell if they run on another version.
    pub unknown: usize,
    /// Workloads that can move to a newer version.
    pub can_move: usize,
    /// Findings that are errors.
    pub errors: usize,
    /// Findings that are warnings.
    pub warnings: usize,
    /// Findings for information.
    pub infos: usize,
}

/// The numbers of all groups.
pub(super) struct Numbers {
    groups: Groups,
    by_group: BTreeMap<(bool, Option<String>), GroupNumbers>,
}

impl Numbers {
    /// Counts these workloads. One that needs several versions counts once.
    pub fn new(groups: Groups, versions: &[VersionWorkloads]) -> Self {
        let mut numbers = Self { groups, by_group: BTreeMap::new() };
        let all = |list: fn(&VersionWorkloads) -> Vec<&ObjectReference>| versions.iter().flat_map(list).collect();
        let pinned: BTreeSet<_> = all(|it| it.pinned.iter().map(|pinned| &pinned.object).collect());
        let unknown: BTreeSet<_> = all(|it| it.unknown.iter().map(|unclear| &unclear.object).collect());
        let can_move: BTreeSet<_> = all(|it| it.can_move.iter().map(|moving| &moving.object).collect());
        for object in pinned {
            numbers.of(object).pinned += 1;
        }
        for object in unknown {
            numbers.of(object).unknown += 1;
        }
        for object in can_move {
            numbers.of(object).can_move += 1;
        }
        numbers
    }

    pub fn add(&mut self, finding: &Finding) {
        let numbers = self.of(&finding.object);
        match finding.severity {
            Severity::Error => numbers.errors += 1,
            Severity::Warning => numbers.warnings += 1,
            Severity::Info => numbers.infos += 1,
        }
    }

    fn of(&mut self, object: &ObjectReference) -> &mut GroupNumbers {
        let group = self.groups.group(object);
        let key = order(group.as_deref());
        self.by_group.entry(key).or_insert_with(|| GroupNumbers { group, ..GroupNumbers::default() })
    }

    /// Returns the groups by name; what has no group is last.
    pub fn listed(self) -> Vec<GroupNumbers> {
        self.by_group.into_values().collect()
    }
}
