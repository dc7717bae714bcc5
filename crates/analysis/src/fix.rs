//! `winpool fix`: the changes that need no decision, and the workloads that need one.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Toleration;
use serde::Deserialize;
use serde_json::{Value, json};
use winpool_core::{api::ObjectReference, windows::Build};

use crate::{
    explain::{
        blockers::{Blocker, Group, group, pool_blockers},
        upgrade::Upgrade,
    },
    finding::{Finding, Severity},
    lint::{Facts, check, check_landing},
    pod::PodSpec,
    remedy::{Edit, Operation, Rank, Remedy},
    system,
    view::{Placed, View},
    workload::{WorkloadManifest, template_of},
};

/// The steps for one workload, at most. Each solves a problem, so there are far fewer.
const STEPS: usize = 100;

/// The changes that the user wants.
#[derive(Clone, Debug, Default)]
pub struct Choice {
    /// The rules whose findings to fix; all if empty.
    pub only: BTreeSet<String>,
    /// The rules whose findings to leave alone.
    pub skip: BTreeSet<String>,
    /// True to change workloads whose system is only probable too.
    pub probable: bool,
    /// True if a Linux workload selects Linux nodes even if a taint keeps it off Windows nodes. Manifests may be applied to
    /// any cluster; in a live cluster the change would only restart pods.
    pub any_cluster: bool,
}

impl Choice {
    fn names(&self, finding: &Finding) -> bool {
        (self.only.is_empty() || self.only.contains(&finding.rule)) && !self.skip.contains(&finding.rule)
    }

    /// True if the remedy of this finding is to be applied.
    fn takes(&self, finding: &Finding) -> bool {
        let lowest = if self.probable { Rank::Probable } else { Rank::Certain };
        let Remedy { rank, object, edits, .. } = &finding.remedy;
        self.names(finding) && *rank <= lowest && object.is_none() && !edits.is_empty()
    }

    /// True if the user has to know that this finding is left.
    fn tells(&self, finding: &Finding) -> bool {
        self.names(finding) && (finding.severity > Severity::Info || !self.only.is_empty())
    }
}

/// The changes of one object.
#[derive(Clone, Debug, PartialEq)]
pub struct Fix {
    pub object: ObjectReference,
    /// The JSON Pointer of the pod template in the object; empty for a Pod, a WindowsPool or a RuntimeClass.
    pub template: String,
    pub remedy: Remedy,
    /// The only sign for the system of the workload, if that is not certain.
    pub doubt: Option<&'static str>,
}

/// An object that needs a decision.
#[derive(Clone, Debug, PartialEq)]
pub struct ByHand {
    pub object: ObjectReference,
    /// What there is to decide, each beginning with the name of its rule, if there is one.
    pub decisions: Vec<String>,
}

/// The changes that need no decision, and the rest.
#[derive(Clone, Debug, Default)]
pub struct Fixes {
    pub changed: Vec<Placed<Fix>>,
    pub by_hand: Vec<Placed<ByHand>>,
}

impl Fixes {
    fn add(&mut self, (source, fix): Placed<Fix>, decisions: Vec<String>) {
        if !decisions.is_empty() {
            self.by_hand.push((source.clone(), ByHand { object: fix.object.clone(), decisions }));
        }
        if !fix.remedy.edits.is_empty() {
            self.changed.push((source, fix));
        }
    }
}

/// Changes beside those of rules, by object and pod template: for another Windows version.
#[derive(Debug, Default)]
pub struct Moves(BTreeMap<(String, String), Vec<Remedy>>);

impl Moves {
    /// Adds the changes that move workloads and pools from one Windows version to another, as `winpool blockers` says.
    pub fn away_from(&mut self, retired: Build, target: Build, view: &View, facts: &Facts) {
        let mut add = |template: &str, blocker: Blocker| {
            blocker.pins.into_iter().for_each(|pin| self.add(&blocker.object, template, pin.remedy));
        };
        view.written.each(|_, workload| {
            if let Some(Group::Pinned(blocker)) = group(workload, facts, &view.written.started, retired, Some(target)) {
                add(&workload.template(), blocker);
            }
        });
        let pools = view.guarded().into_iter().flatten().filter_map(|pool| pool.pool().ok());
        pools.filter_map(|pool| pool_blockers(pool, facts, retired, Some(target))).for_each(|blocker| add("", blocker));
    }

    /// Adds the changes with which workloads run during an upgrade and afterwards, as `winpool plan --assume` says.
    pub fn for_upgrade(&mut self, upgrade: Upgrade) {
        for workload in upgrade.workloads {
            if let Some(remedy) = workload.remedy {
                let template = template_of(&workload.object.kind).unwrap_or_default();
                self.add(&workload.object, &template, remedy);
            }
        }
    }

    /// Adds a remedy of this object, or of the object that the remedy names.
    fn add(&mut self, object: &ObjectReference, template: &str, remedy: Remedy) {
        let (object, template) = remedy.object.as_ref().map_or((object, template), |object| (object, ""));
        let known = self.0.entry((object.to_string(), template.to_owned())).or_default();
        if !known.contains(&remedy) {
            known.push(remedy);
        }
    }

    /// Returns the edits to make in this object, and what there is to decide. A change of a pool is one that the user has asked for.
    fn of(&self, object: &ObjectReference, template: &str) -> (Vec<Edit>, Vec<String>) {
        let all = self.0.get(&(object.to_string(), template.to_owned())).into_iter().flatten();
        let is_taken =
            |remedy: &&Remedy| !remedy.edits.is_empty() && (remedy.rank == Rank::Certain || remedy.object.is_some());
        let (taken, left): (Vec<_>, Vec<_>) = all.partition(is_taken);
        let edits = taken.into_iter().flat_map(|remedy| remedy.edits.iter().cloned());
        (edits.collect(), left.into_iter().map(|remedy| remedy.text.clone()).collect())
    }
}

/// Returns the changes that the user wants and that need no decision.
pub fn fixes(view: &View, facts: &Facts, choice: &Choice, moves: &Moves) -> Fixes {
    let open = choice.any_cluster.then(|| facts.with_open_nodes());
    let mut fixes = Fixes::default();
    // A field of the wrong type may be in the way of a change.
    let refused: BTreeSet<_> =
        view.refused.iter().map(|(source, finding)| (source, finding.object.to_string())).collect();
    view.written.each(|source, workload| {
        if source.is_none_or(|source| !refused.contains(&(source, workload.object().to_string()))) {
            let (fix, decisions) = fix(workload, facts, open.as_ref(), choice, moves);
            fixes.add((source.cloned(), fix), decisions);
        }
    });
    for (source, pool) in view.pools.known().into_iter().flatten() {
        let object = ObjectReference::windows_pool(pool.metadata.name.as_deref().unwrap_or_default());
        let (edits, decisions) = moves.of(&object, "");
        let fix = Fix { object, template: String::new(), remedy: Remedy::of(edits), doubt: None };
        fixes.add((source.clone(), fix), decisions);
    }
    for (source, finding) in &view.refused {
        let (object, template) = (finding.object.clone(), String::new());
        let is_taken = choice.takes(finding);
        let edits = if is_taken { finding.remedy.edits.clone() } else { Vec::new() };
        let fix = Fix { object, template, remedy: Remedy::of(edits), doubt: None };
        let decisions = (!is_taken && choice.tells(finding)).then(|| told(finding)).into_iter().collect();
        fixes.add((Some(source.clone()), fix), decisions);
    }
    fixes
}

fn told(finding: &Finding) -> String {
    format!("{}: {}", finding.rule, finding.remedy.text)
}

/// Applies one remedy after the other, because each may solve other problems too. Returns all edits, and what is left to decide.
fn fix(
    workload: &WorkloadManifest<'_>,
    facts: &Facts,
    open: Option<&Facts>,
    choice: &Choice,
    moves: &Moves,
) -> (Fix, Vec<String>) {
    let doubt = facts.guess_of(workload).and_then(system::doubt);
    let mut changed = Changed::of(workload);
    for _ in 0..STEPS {
        let found = changed.findings(facts, open);
        let takes = |finding: &&Finding| workload.is_known() && choice.takes(finding);
        if !found.iter().filter(takes).any(|finding| changed.apply(&finding.remedy.edits)) {
            break;
        }
    }
    let left = changed.findings(facts, open);
    let mut decisions: Vec<String> = left.iter().filter(|finding| choice.tells(finding)).map(told).collect();
    let (edits, others) = moves.of(&workload.object(), &workload.template());
    if workload.is_assembled() {
        decisions.extend(edits.iter().map(ToString::to_string));
    } else {
        changed.apply(&edits);
    }
    decisions.extend(others);
    let doubt = doubt.filter(|_| !changed.edits.is_empty());
    let fix =
        Fix { object: workload.object(), template: workload.template(), remedy: Remedy::of(changed.edits), doubt };
    (fix, decisions)
}

/// A workload with the edits made so far.
struct Changed<'a> {
    workload: &'a WorkloadManifest<'a>,
    /// Its pod template, with its API version.
    object: Value,
    edits: Vec<Edit>,
}

impl<'a> Changed<'a> {
    fn of(workload: &'a WorkloadManifest<'a>) -> Self {
        let WorkloadManifest { api_version, metadata, raw, .. } = workload;
        Self {
            workload,
            object: json!({"apiVersion": api_version, "metadata": metadata, "spec": raw}),
            edits: Vec::new(),
        }
    }

    fn findings(&self, facts: &Facts, open: Option<&Facts>) -> Vec<Finding> {
        let (raw, metadata) = (&self.object["spec"], &self.object["metadata"]);
        let api_version = self.object["apiVersion"].as_str().unwrap_or_default();
        let Ok(pod) = PodSpec::deserialize(raw) else { return Vec::new() };
        let workload = WorkloadManifest { api_version, pod, raw, metadata, ..self.workload.clone() };
        let mut found = check(&workload, facts);
        let landing = open.and_then(|open| check_landing(&workload, open));
        let is_new = |landing: &Finding| found.iter().all(|finding| finding.rule != landing.rule);
        found.extend(landing.filter(is_new));
        found
    }

    /// Makes these edits. Returns false if they change nothing.
    fn apply(&mut self, edits: &[Edit]) -> bool {
        let before = self.edits.len();
        for edit in edits {
            let patch = Remedy::of(vec![edit.clone()]).json_patch(&self.object, "");
            let mut changed = self.object.clone();
            let is_made = json_patch::patch(&mut changed, &patch).is_ok() && changed != self.object;
            if is_made && !self.has_item(edit) {
                self.object = changed;
                // A later value of the same field replaces the earlier one.
                self.edits.retain(|other| edit.op != Operation::Set || other.path != edit.path);
                self.edits.push(edit.clone());
            }
        }
        self.edits.len() > before
    }

    /// True if the list of tolerations has this one already.
    fn has_item(&self, edit: &Edit) -> bool {
        let read = |value: &Value| Toleration::deserialize(value).ok();
        let list = self.object.pointer(&edit.path).filter(|_| edit.op == Operation::Append).and_then(Value::as_array);
        list.into_iter()
            .flatten()
            .any(|item| *item == edit.value || read(item).is_some() && read(item) == read(&edit.value))
    }
}

#[cfg(test)]
mod tests;
