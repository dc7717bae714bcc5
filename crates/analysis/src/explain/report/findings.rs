//! The findings of `winpool check`, by rule.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use winpool_core::api::ObjectReference;

use crate::finding::{Consequence, Finding, Severity};
use crate::lint::{Facts, rule, survey};
use crate::view::View;

use super::order::by_namespace;

/// A rule that objects break.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BrokenRule {
    /// The name of the rule.
    pub rule: String,
    /// The severity.
    pub severity: Severity,
    /// The consequence for the workloads.
    pub consequence: Consequence,
    /// The problem and its reason; those of the first object if they differ.
    pub message: String,
    /// The remedy; that of the first object if they differ.
    pub remedy: String,
    /// Number of findings.
    pub findings: usize,
    /// The objects that break the rule.
    pub objects: Vec<ObjectReference>,
}

/// Checks everything in the view, and calls `seen` with each finding.
pub(super) fn by_rule(view: &View, facts: &Facts, mut seen: impl FnMut(&Finding)) -> Vec<BrokenRule> {
    let mut rules: BTreeMap<(Reverse<Severity>, String), BrokenRule> = BTreeMap::new();
    survey(view, facts, None, true, |_, findings| {
        for finding in findings {
            seen(&finding);
            let object = finding.object.clone();
            let key = (Reverse(finding.severity), finding.rule.clone());
            let broken = rules.entry(key).or_insert_with(|| BrokenRule::of(finding));
            broken.findings += 1;
            broken.objects.push(object);
        }
    });
    let mut rules: Vec<BrokenRule> = rules.into_values().collect();
    for rule in &mut rules {
        rule.objects.sort_by_cached_key(by_namespace);
        rule.objects.dedup();
    }
    rules
}

impl BrokenRule {
    fn of(finding: Finding) -> Self {
        // The texts of the rule name no object. Those of a finding may.
        let general = rule(&finding.rule).filter(|rule| rule.sentence(true) == rule.reason);
        Self {
            rule: finding.rule,
            severity: finding.severity,
            consequence: finding.consequence,
            message: general.map_or(finding.message, |rule| rule.reason.to_owned()),
            remedy: general.map_or(finding.remedy.text, |rule| rule.remedy.to_owned()),
            findings: 0,
            objects: Vec::new(),
        }
    }
}
