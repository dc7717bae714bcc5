//! `winpool fix`: the changes that need no decision, and the workloads that need one.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Toleration;
use serde::Deserialize;
use serde_json::{Value, json};
use winpool_core::api::{ObjectReference, names};
use winpool_core::windows::Build;
use winpool_core::windows::compatibility::Runs;

use crate::explain::blockers::{By, Group, MovesTo, Pin, group, pool_blockers};
use crate::explain::upgrade::Upgrade;
use crate::finding::{Finding, Severity};
use crate::kinds::{template_at, template_of};
use crate::lint::{Facts, check_everywhere};
use crate::pod::{PodSpec, isolation_with};
use crate::remedy::{Edit, Operation, Rank, Remedy};
use crate::system;
use crate::view::{Placed, View, Workload};
use crate::workload::WorkloadManifest;

/// The steps for one workload, at most. Each solves a problem, so there are far fewer.
const STEPS: usize = 100;
/// Follows a move with which the pods fit no node.
const NO_NODE: &str = ", once a node of that version has the labels that the pod then selects";

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

/// Changes beside those of rules: for another Windows version.
#[derive(Debug, Default)]
pub struct Moves {
    /// The changes by object and pod template.
    remedies: BTreeMap<(String, String), Vec<Remedy>>,
    /// The builds that nodes will no longer have. No other change pins a workload to one of them.
    retired: BTreeSet<Build>,
}

impl Moves {
    /// Adds the changes that move workloads and pools from one Windows version to another, as `winpool blockers` says.
    pub fn away_from(&mut self, retired: Build, target: Build, view: &View, facts: &Facts) {
        self.retired.insert(retired);
        let started = view.started();
        view.written.each(|_, workload| {
            let Some(Group::Pinned(blocker)) = group(workload, facts, &started, retired, Some(target)) else { return };
            let isolation = isolation_with(facts.known_class(&workload.pod));
            let may_stay = matches!(facts.runs(isolation, retired, target), Runs::IfContainerd(_));
            let is_optional = |pin: &Pin| may_stay && pin.by == By::Image && pin.moves_to.is_none();
            let needed = blocker.pins.into_iter().filter(|pin| pin.moves_to != Some(MovesTo::SameTag));
            let (optional, needed): (Vec<_>, Vec<_>) = needed.partition(is_optional);
            // All or none: an image of one version does not start on nodes of the other.
            let whole = needed.into_iter().map(|pin| pin.remedy).reduce(Remedy::then);
            let whole = whole.map(|whole| placed(whole, workload, facts, target));
            for remedy in whole.into_iter().chain(optional.into_iter().map(|pin| pin.remedy)) {
                self.add(&blocker.object, &workload.template(), remedy);
            }
        });
        let pools = view.guarded().into_iter().flatten().filter_map(|pool| pool.pool().ok());
        for blocker in pools.filter_map(|pool| pool_blockers(pool, facts, retired, Some(target))) {
            blocker.pins.into_iter().for_each(|pin| self.add(&blocker.object, "", pin.remedy));
        }
    }

    /// Adds the changes with which workloads run during an upgrade and afterwards, as `winpool plan --assume` says.
    pub fn for_upgrade(&mut self, upgrade: Upgrade, view: &View) {
        let mut stay: BTreeSet<_> = upgrade.assume.iter().filter_map(|part| part.build.parse().ok()).collect();
        let is_assumed = |name: &String| upgrade.assume.iter().any(|part| part.node_names.contains(name));
        let other_nodes = view.hosts().into_iter().flatten().filter(|node| !is_assumed(&node.name));
        stay.extend(other_nodes.filter_map(|node| Some(node.version?.build)));
        let now = upgrade.assume.iter().flat_map(|part| &part.now).filter_map(|build| build.parse().ok());
        self.retired.extend(now.filter(|build| !stay.contains(build)));
        for workload in upgrade.workloads {
            if let Some(remedy) = workload.remedy {
                let template = workload.path.as_deref().map(template_at);
                let template = template.or_else(|| template_of(&workload.object.kind)).unwrap_or_default();
                self.add(&workload.object, &template, remedy);
            }
        }
    }

    /// Adds a remedy of this object, or of the object that the remedy names.
    fn add(&mut self, object: &ObjectReference, template: &str, remedy: Remedy) {
        let (object, template) = remedy.object.as_ref().map_or((object, template), |object| (object, ""));
        let remedies = self.remedies.entry((object.to_string(), template.to_owned())).or_default();
        if !remedies.contains(&remedy) {
            remedies.push(remedy);
        }
    }

    /// Returns the edits to make in this object, and what there is to decide. A change of a pool is one that the user has asked for.
    fn of(&self, object: &ObjectReference, template: &str) -> (Vec<Edit>, Vec<String>) {
        let remedies = self.remedies.get(&(object.to_string(), template.to_owned())).into_iter().flatten();
        let is_taken =
            |remedy: &&Remedy| !remedy.edits.is_empty() && (remedy.rank == Rank::Certain || remedy.object.is_some());
        let (taken, undecided): (Vec<_>, Vec<_>) = remedies.partition(is_taken);
        let edits = taken.into_iter().flat_map(|remedy| remedy.edits.iter().cloned());
        (edits.collect(), undecided.into_iter().map(|remedy| remedy.text.clone()).collect())
    }

    /// True if this remedy selects the label of a build that is retired.
    fn retire(&self, remedy: &Remedy) -> bool {
        let selects = |build: &Build| Edit::select(names::WINDOWS_BUILD, &build.to_string());
        self.retired.iter().any(|build| remedy.edits.contains(&selects(build)))
    }
}

/// Leaves a move to the user if nodes are known and none of the target has the labels that the workload then selects.
fn placed(change: Remedy, workload: &WorkloadManifest<'_>, facts: &Facts, target: Build) -> Remedy {
    let mut pod = facts.pod_of(workload);
    change.edits.iter().for_each(|edit| edit.apply(&mut pod.spec));
    let fits = !facts.has_nodes() || facts.builds_of(&facts.admitted(&pod, workload)).contains(&target);
    if fits || change.rank == Rank::Decision { change } else { change.and(NO_NODE).undecided() }
}

/// Returns the changes that the user wants and that need no decision.
pub fn fixes(view: &View, facts: &Facts, choice: &Choice, moves: &Moves) -> Fixes {
    let facts = &facts.retiring(&moves.retired);
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

/// Applies the moves, and then one remedy after the other, because each may solve other problems too. Returns all edits, and what
/// is left to decide.
fn fix(
    workload: &WorkloadManifest<'_>,
    facts: &Facts,
    open: Option<&Facts>,
    choice: &Choice,
    moves: &Moves,
) -> (Fix, Vec<String>) {
    let doubt = facts.guess_of(workload).and_then(system::doubt);
    let mut changed = Changed::of(workload);
    let (edits, moves_by_hand) = moves.of(&workload.object(), &workload.template());
    if !workload.is_assembled() {
        changed.apply(&edits);
    }
    for _ in 0..STEPS {
        let findings = changed.findings(facts, open);
        let takes =
            |finding: &&Finding| workload.is_editable() && choice.takes(finding) && !moves.retire(&finding.remedy);
        if !findings.iter().filter(takes).any(|finding| changed.apply(&finding.remedy.edits)) {
            break;
        }
    }
    let remaining = changed.findings(facts, open);
    let mut decisions: Vec<String> = remaining.iter().filter(|finding| choice.tells(finding)).map(told).collect();
    if workload.is_assembled() {
        decisions.extend(edits.iter().map(ToString::to_string));
    }
    decisions.extend(moves_by_hand);
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
        let WorkloadManifest { metadata, raw, .. } = workload;
        let object = json!({"apiVersion": workload.api_version, "metadata": metadata, "spec": raw});
        Self { workload, object, edits: Vec::new() }
    }

    fn findings(&self, facts: &Facts, open: Option<&Facts>) -> Vec<Finding> {
        let (raw, metadata) = (&self.object["spec"], &self.object["metadata"]);
        let api_version = self.object["apiVersion"].as_str().unwrap_or_default().to_owned();
        let Ok(pod) = PodSpec::deserialize(raw) else { return Vec::new() };
        let pod = PodSpec { queue: self.workload.pod.queue.clone(), ..pod };
        let workload = Workload { api_version, pod, ..self.workload.workload.clone() };
        let workload = WorkloadManifest { workload, raw, metadata, ..*self.workload };
        check_everywhere(&workload, facts, open)
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
