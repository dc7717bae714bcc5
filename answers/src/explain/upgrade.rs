//! What happens to workloads when nodes get another Windows version: with the nodes of today, while they change one
//! after the other, and after the last one.

mod change;
mod ended;
mod pool_change;
mod stage;
mod subject;

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use winpool_core::{
    api::ObjectReference,
    plan::reconcile::Now,
    pod::Class,
    windows::{
        Build,
        compatibility::{can_run_by_process_isolation, runs_by_process_isolation},
        product,
    },
};

use crate::{
    explain::blockers::{Evidence, evidence, unknown},
    image::{Images, isolation_with},
    lint::Facts,
    view::{
        Known, View,
        assume::{AssumeError, Assumed, AssumedNodes, Assumption, assume},
    },
};

use change::PoolChanges;
use stage::{Scenario, Stage};
use subject::{UpgradeSubject, subjects};

pub use ended::{EndedPods, Replaced};

/// The effects on workloads when nodes get another Windows version.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Upgrade {
    /// The nodes, and the versions that they are assumed to run.
    pub assume: Vec<AssumedNodes>,
    /// The workloads that can use these nodes, now or afterwards.
    pub workloads: Vec<UpgradedWorkload>,
    /// The pods that the kubelet ends when a node starts as the new version; absent if the pods are not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_pods: Option<EndedPods>,
    /// Facts that winpool cannot determine, with the reasons.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

impl Upgrade {
    /// True if every workload runs while the nodes change and afterwards, and no pod is lost.
    pub fn is_harmless(&self) -> bool {
        let runs = |workload: &UpgradedWorkload| workload.rolling.runs() && workload.after.runs();
        let loses = |ended: &EndedPods| !ended.without_controller.is_empty();
        self.workloads.iter().all(runs) && !self.ended_pods.as_ref().is_some_and(loses) && self.notes.is_empty()
    }
}

/// A workload before, during and after the upgrade.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UpgradedWorkload {
    /// The object that creates the pods.
    pub object: ObjectReference,
    /// With the nodes of today.
    pub now: PodOutcome,
    /// While some nodes have the old version, and others the new one.
    pub rolling: PodOutcome,
    /// With the last node changed.
    pub after: PodOutcome,
    /// The evidence that the new version runs its images.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evidence: Option<Evidence>,
    /// The least change with which it runs all the time; absent if it needs none, or none is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<Remedy>,
    /// The reason why nothing better is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The nodes on which new pods of a workload run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub enum PodOutcome {
    /// They start on every node on which they can be scheduled.
    Runs,
    /// They can be scheduled only on nodes with the version of today.
    OldNodesOnly,
    /// They can be scheduled only on nodes with the new version.
    NewNodesOnly,
    /// They can be scheduled on no node.
    NoNode,
    /// They can be scheduled on a node on which they do not start.
    MayNotStart,
    /// It is not known whether they can be scheduled, or whether they start.
    Unknown,
}

impl PodOutcome {
    /// True if pods run, perhaps only on the new nodes.
    pub fn runs(self) -> bool {
        matches!(self, Self::Runs | Self::NewNodesOnly)
    }
}

/// A change with which a workload runs all the time.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Remedy {
    /// The object to change.
    pub object: ObjectReference,
    /// The change in words.
    pub change: String,
    /// The change as a JSON merge patch, if it can be written as one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub patch: Option<Value>,
}

/// The reason for workloads that do not need an upgrade to fail.
const STRAY: &str = "it can be scheduled on a node on which it does not start today; winpool why shows the node";

/// Returns what happens to the workloads of this cluster if the assumptions come true.
///
/// # Errors
/// Fails if an assumption selects no node or a node of another system, or if a node gets two versions.
pub fn upgrade(mut view: View, assumptions: &[Assumption], images: Images, now: Now) -> Result<Upgrade, AssumeError> {
    let (before, started) = (view.nodes.all().to_vec(), view.started());
    let assumed = assume(&mut view, assumptions)?;
    let mut facts = view.facts_with_planned_classes();
    facts.add_images(images);
    let ended_pods = view.pods.known().map(|pods| ended::ended(pods, &view.hosts(), &assumed));
    let notes = notes(&view);
    let scenario = Scenario::new(&before, view, &assumed, now);
    let question = UpgradeQuestion { stages: scenario.stages(), assumed: &assumed, facts: &facts };
    let subjects = subjects(&scenario, &started, &question.stages.now.classes);
    let mut changes = PoolChanges::new(&scenario);
    let workloads = subjects.iter().filter_map(|subject| question.workload(subject, &mut changes)).collect();
    Ok(Upgrade { assume: assumed.parts, workloads, ended_pods, notes })
}

/// Returns what limits the answer.
fn notes(view: &View) -> Vec<String> {
    let pods = match &view.pods {
        Known::Forbidden(message) => Some(format!(
            "Pods cannot be listed, so it is not known which pods the kubelet ends and which images start: {message}"
        )),
        Known::NotRead => Some(
            "The manifests have no pods, so it is not known which pods the kubelet ends and which images start."
                .to_owned(),
        ),
        Known::Complete(_) | Known::Partial(_) => None,
    };
    let unlisted = view.unlisted.iter().map(|(kind, message)| format!("{kind} cannot be listed: {message}"));
    pods.into_iter().chain(unlisted).collect()
}

/// The three moments that each workload is asked about.
struct Stages {
    now: Stage,
    rolling: Stage,
    after: Stage,
}

/// The input of the answer for each workload.
struct UpgradeQuestion<'a> {
    stages: Stages,
    assumed: &'a Assumed,
    facts: &'a Facts,
}

impl UpgradeQuestion<'_> {
    /// Returns the answer for a workload. `None` if the assumed nodes do not concern it.
    fn workload(&self, subject: &UpgradeSubject, changes: &mut PoolChanges<'_>) -> Option<UpgradedWorkload> {
        let Stages { now, rolling, after } = &self.stages;
        let [at_first, at_last] = [now, after].map(|stage| stage.fits(subject, self));
        let is_windows = at_first.is_windows || at_last.is_windows;
        let fits = now.fits_assumed(&at_first) || after.fits_assumed(&at_last);
        if !is_windows || !(fits || subject.is_on(self.assumed)) {
            return None;
        }
        let answers = (now.answer(&at_first, self), self.rolling(subject, rolling), after.answer(&at_last, self));
        let mut workload = UpgradedWorkload {
            object: subject.object.clone(),
            now: answers.0,
            rolling: answers.1,
            after: answers.2,
            evidence: None,
            remedy: None,
            reason: None,
        };
        if workload.rolling.runs() && workload.after.runs() {
            workload.evidence = self.targets().into_iter().find_map(|target| self.evidence(subject, after, target));
            return Some(workload);
        }
        workload.remedy =
            changes.helps(subject, workload.now, self).or_else(|| change::own(subject, after, &at_last, self));
        if workload.remedy.is_none() {
            let target = self.targets().into_iter().next();
            let retired = subject.started_on.iter().next().copied().or_else(|| self.builds_now().into_iter().next());
            let unknown = |retired| unknown(&subject.template.spec, self.facts, retired, target);
            let stray = (workload.now == PodOutcome::MayNotStart).then(|| STRAY.to_owned());
            let refused = at_last.refused.clone();
            workload.reason = refused.or(stray).or_else(|| self.old_containerd(after)).or_else(|| retired.map(unknown));
        }
        Some(workload)
    }

    fn rolling(&self, subject: &UpgradeSubject, stage: &Stage) -> PodOutcome {
        stage.answer(&stage.fits(subject, self), self)
    }

    /// Returns what to do if the new version runs the images of today, but not with the containerd of the nodes.
    fn old_containerd(&self, stage: &Stage) -> Option<String> {
        stage.upgraded().find_map(|node| {
            let (host, runtime) = (node.version?.build, node.runtime?);
            let is_too_old = |image: &Build| {
                can_run_by_process_isolation(host, *image) && !runs_by_process_isolation(host, Some(runtime), *image)
            };
            let image = self.builds_now().into_iter().find(is_too_old)?;
            let (name, host, image) = (&node.name, short_name(host), short_name(image));
            Some(format!("update containerd too: {host} runs images of {image} with containerd 1.7.19 or later, and {name} has an older one"))
        })
    }

    /// The builds that the nodes are assumed to run.
    fn targets(&self) -> BTreeSet<Build> {
        self.assumed.nodes.values().copied().collect()
    }

    /// The builds that these nodes run now.
    fn builds_now(&self) -> BTreeSet<Build> {
        let builds = self.assumed.parts.iter().flat_map(|part| &part.now);
        builds.filter_map(|build| build.parse().ok()).collect()
    }

    /// Returns how it is known that nodes of this build run the images of the workload.
    fn evidence(&self, subject: &UpgradeSubject, stage: &Stage, target: Build) -> Option<Evidence> {
        let spec = &subject.template.spec;
        let class: Option<&Class> = spec.runtime_class.as_ref().and_then(|name| stage.classes.get(name));
        let on = &subject.started_on;
        let mut retired = on.iter().copied().chain(self.builds_now());
        retired.find_map(|retired| evidence(spec, isolation_with(class), self.facts, retired, target, on))
    }
}

/// The name of a Windows version in a table: `2022`.
pub fn short_name(build: Build) -> String {
    product::by_build(build).map_or_else(|| build.to_string(), |product| product.version.to_owned())
}
