//! The numbers of a report.

use std::collections::{BTreeMap, BTreeSet};
use std::iter::Sum;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use winpool_core::api::ObjectReference;

use crate::finding::Severity;

use super::failing::FailingPool;
use super::findings::BrokenRule;
use super::taints::WaitingTaint;
use super::versions::VersionNodes;
use super::workloads::VersionWorkloads;

/// The days before an end of support in which it is near.
pub(super) const NEAR: i32 = 365;

/// The numbers of a report. An absent number is not known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Numbers {
    /// Windows nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_count: Option<usize>,
    /// Windows nodes by build.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub nodes_by_build: BTreeMap<String, usize>,
    /// Windows nodes whose version Microsoft or the vendor no longer supports.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodes_out_of_support: Option<usize>,
    /// Windows nodes whose version they support for less than another year.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodes_near_end: Option<usize>,
    /// Workloads and pools that are pinned to a Windows version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pinned: Option<usize>,
    /// Workloads of which winpool cannot tell if they run on another version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unknown: Option<usize>,
    /// Workloads that can move to a newer version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub can_move: Option<usize>,
    /// Taints that winpool holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held_taints: Option<usize>,
    /// Findings that are errors.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub errors: Option<usize>,
    /// Findings that are warnings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warnings: Option<usize>,
    /// Findings for information.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub infos: Option<usize>,
    /// Pods that fail because of Windows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failing_pods: Option<usize>,
}

impl Numbers {
    pub(super) fn of(
        versions: Option<&[VersionNodes]>,
        workloads: Option<&[VersionWorkloads]>,
        broken: &[BrokenRule],
        taints: Option<&[WaitingTaint]>,
        failing: Option<&[FailingPool]>,
    ) -> Self {
        let ending = |is_it: fn(i32) -> bool| {
            let left = |version: &VersionNodes| version.first_end().map(|(_, day)| day.days_left);
            versions.map(|all| all.iter().filter(|it| left(it).is_some_and(is_it)).map(|it| it.node_count).sum())
        };
        let knows_findings = workloads.is_some() || !broken.is_empty();
        let findings = |severity: Severity| {
            let found = broken.iter().filter(|rule| rule.severity == severity).map(|rule| rule.findings).sum();
            knows_findings.then_some(found)
        };
        let by_build = versions.unwrap_or_default().iter().filter_map(|it| Some((it.build.clone()?, it.node_count)));
        let needs = |all: fn(&VersionWorkloads) -> Vec<&ObjectReference>| {
            workloads.map(|versions| versions.iter().flat_map(all).collect::<BTreeSet<_>>().len())
        };
        Self {
            node_count: versions.map(|all| all.iter().map(|it| it.node_count).sum()),
            nodes_by_build: by_build.collect(),
            nodes_out_of_support: ending(|left| left < 0),
            nodes_near_end: ending(|left| (0..NEAR).contains(&left)),
            pinned: needs(|it| it.pinned.iter().map(|pinned| &pinned.object).collect()),
            unknown: needs(|it| it.unknown.iter().map(|unclear| &unclear.object).collect()),
            can_move: needs(|it| it.can_move.iter().map(|moving| &moving.object).collect()),
            held_taints: taints.map(<[_]>::len),
            errors: findings(Severity::Error),
            warnings: findings(Severity::Warning),
            infos: findings(Severity::Info),
            failing_pods: failing.map(|pools| pools.iter().flat_map(|pool| pool.causes.values()).sum()),
        }
    }

    /// The numbers, in the order of the pages.
    fn all_mut(&mut self) -> [&mut Option<usize>; 11] {
        [
            &mut self.node_count,
            &mut self.nodes_out_of_support,
            &mut self.nodes_near_end,
            &mut self.pinned,
            &mut self.unknown,
            &mut self.can_move,
            &mut self.held_taints,
            &mut self.failing_pods,
            &mut self.errors,
            &mut self.warnings,
            &mut self.infos,
        ]
    }

    /// The numbers with their names, in the order of the pages.
    pub fn named(&self) -> [(&'static str, Option<usize>, About); 11] {
        use About::{Nodes, Workloads};
        [
            ("Windows nodes", self.node_count, Nodes),
            ("Nodes out of support", self.nodes_out_of_support, Nodes),
            ("Nodes with less than a year of support", self.nodes_near_end, Nodes),
            ("Pinned workloads and pools", self.pinned, Workloads),
            ("Workloads that winpool cannot assess", self.unknown, Workloads),
            ("Workloads that can move", self.can_move, Workloads),
            ("Held taints", self.held_taints, Nodes),
            ("Failing pods", self.failing_pods, Nodes),
            ("Findings: errors", self.errors, Workloads),
            ("Findings: warnings", self.warnings, Workloads),
            ("Findings: notes", self.infos, Workloads),
        ]
    }
}

/// Adds the numbers that are known.
impl<'n> Sum<&'n Numbers> for Numbers {
    fn sum<I: Iterator<Item = &'n Self>>(all: I) -> Self {
        let mut sum = Self::default();
        for numbers in all {
            let mut numbers = numbers.clone();
            for (sum, number) in sum.all_mut().into_iter().zip(numbers.all_mut()) {
                *sum = number.map_or(*sum, |number| Some(sum.unwrap_or_default().saturating_add(number)));
            }
            for (build, number) in numbers.nodes_by_build {
                let sum = sum.nodes_by_build.entry(build).or_default();
                *sum = sum.saturating_add(number);
            }
        }
        sum
    }
}

/// The objects from which a number follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum About {
    /// Nodes, pools and pods, which are known or not.
    Nodes,
    /// Workloads, of which some kinds may not be known.
    Workloads,
}
