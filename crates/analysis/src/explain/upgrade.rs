//! What happens to workloads when nodes get another Windows version: with the nodes of today, while they change one
//! after the other, and after the last one.

mod change;
mod ended;
mod facts;
mod result;
mod stage;

use std::mem;

use winpool_core::api::Isolation;
use winpool_core::plan::Now;
use winpool_core::windows::Build;
use winpool_core::windows::compatibility::{Runs, WindowsHost};

use crate::explain::blockers::unknown;
use crate::explain::subject::{WorkloadSubject, subjects};
use crate::image::known::short;
use crate::image::{Images, runs};
use crate::lint::Facts;
use crate::placement::Obstacle;
use crate::pod::Pod;
use crate::verdict::{Asked, PodOutcome};
use crate::view::assume::{AssumeError, Assumed, Assumption, assume};
use crate::view::{Known, View};

use change::PoolChanges;
use facts::UpgradeFacts;
use stage::{Scenario, Stage, Stages};

pub use ended::{EndedPods, Replaced};
pub use result::{LeftOut, LeftOutReason, Upgrade, UpgradedWorkload};

/// The reason for workloads that do not need an upgrade to fail.
const STRAY: &str = "see winpool why: today it can be scheduled on a node on which it does not start";

/// Returns what happens to the workloads of this cluster if the assumptions come true.
///
/// # Errors
/// Fails if an assumption selects no node or a node of another system, if a node gets two versions, or if the operator does not finish.
pub fn upgrade(mut view: View, assumptions: &[Assumption], images: &Images, now: Now) -> Result<Upgrade, AssumeError> {
    let (before, started) = (view.nodes.known().cloned().unwrap_or_default(), view.started());
    let planned = Facts::with_planned_classes(&view).classes().keys().cloned().collect();
    let assumed = assume(&mut view, assumptions)?;
    let mut facts = Facts::with_planned_classes(&view);
    facts.add_images(images.clone());
    let ended_pods = view.pods.known().zip(view.hosts()).map(|(pods, hosts)| ended::ended(pods, &hosts, &assumed));
    let notes = notes(&view);
    let mut left_out: Vec<_> = lone_pods(&view, &assumed).map(|_| (LeftOutReason::NoController, "Pod")).collect();
    let unread = mem::take(&mut view.unread);
    let mut scenario = Scenario::new(&before, view, &assumed, images, now)?;
    let subjects = subjects(&scenario.now, &started, &scenario.present());
    let asked = Asked::by(subjects.iter().map(|subject| &subject.template.spec));
    scenario.asked = asked.with_admission(scenario.admission());
    facts.group(&scenario.asked);
    let facts = UpgradeFacts { assumed: &assumed, cluster: &facts, planned };
    let stages = scenario.stages()?;
    let mut changes = PoolChanges::new(&scenario);
    let mut workloads = Vec::new();
    for subject in &subjects {
        match workload(subject, &stages, &facts, &mut changes) {
            Ok(workload) => workloads.push(workload),
            Err(reason) => left_out.push((reason, &subject.object.kind)),
        }
    }
    if let Some(unfinished) = changes.unfinished {
        return Err(unfinished.into());
    }
    let unread = unread.iter().filter(|object| !subjects.iter().any(|subject| subject.stands_for(object)));
    left_out.extend(unread.map(|object| (LeftOutReason::KindNotRead, object.kind.as_str())));
    Ok(Upgrade { left_out: LeftOut::count(left_out), assume: assumed.parts, workloads, ended_pods, notes })
}

/// The pods without a controller that are not on the assumed nodes.
fn lone_pods<'a>(view: &'a View, assumed: &'a Assumed) -> impl Iterator<Item = &'a Pod> {
    let is_on = |pod: &Pod| pod.spec.node.as_ref().is_some_and(|node| assumed.nodes.contains_key(node));
    let pods = view.pods.known().into_iter().flatten();
    pods.filter(move |pod| pod.controller.is_none() && !pod.is_mirror && !is_on(pod))
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
    let unlisted =
        view.workloads.refused().into_iter().map(|(kind, message)| format!("{kind} cannot be listed: {message}"));
    pods.into_iter().chain(unlisted).collect()
}

/// Returns the answer for a workload, or the reason why the answer leaves it out.
fn workload(
    subject: &WorkloadSubject,
    stages: &Stages,
    facts: &UpgradeFacts<'_>,
    changes: &mut PoolChanges<'_>,
) -> Result<UpgradedWorkload, LeftOutReason> {
    let Stages { now, rolling, after } = stages;
    let [at_first, while_rolling, at_last] = [now, rolling, after].map(|stage| stage.verdict(subject, facts));
    let is_windows = at_first.pod.is_windows || at_last.pod.is_windows;
    let fits = now.fits_assumed(&at_first) || after.fits_assumed(&at_last);
    if !is_windows {
        return Err(LeftOutReason::NotForWindows);
    }
    if !(fits || subject.is_on(facts.assumed)) {
        let is_taint = |obstacle: &Obstacle| matches!(obstacle, Obstacle::Taint(_) | Obstacle::UnknownOperator(_));
        return Err(match () {
            () if after.has_unclear(&at_last, facts) => LeftOutReason::UnknownLabel,
            () if after.is_kept_off_by(&at_last, is_taint) => LeftOutReason::NoToleration,
            () => LeftOutReason::OtherNodes,
        });
    }
    let mut workload = UpgradedWorkload {
        object: subject.object.clone(),
        path: subject.path.clone(),
        now: now.answer(&at_first, facts),
        rolling: rolling.answer(&while_rolling, facts),
        after: after.answer(&at_last, facts),
        evidence: None,
        remedy: None,
        reason: None,
    };
    if workload.rolling.runs() && workload.after.runs() {
        let mut targets = facts.targets().into_iter();
        workload.evidence = targets.find_map(|target| facts.evidence(subject, &after.cluster.classes, target));
        return Ok(workload);
    }
    workload.remedy =
        changes.helps(subject, workload.now, stages, facts).or_else(|| change::own(subject, after, &at_last, facts));
    if workload.remedy.is_none() {
        let refused = at_last.refused.as_ref().map(|refused| at_last.pod.admit(refused, &after.cluster).text);
        let refused = in_dry_run(subject, after, facts).or(refused);
        workload.reason = refused.or_else(|| reason(subject, workload.now, after, facts));
    }
    Ok(workload)
}

/// Returns what to do if only a pool in dry run would create the class of the workload.
fn in_dry_run(subject: &WorkloadSubject, after: &Stage, facts: &UpgradeFacts<'_>) -> Option<String> {
    let class = subject.template.spec.runtime_class.as_ref()?;
    let is_planned = !after.cluster.classes.contains_key(class) && facts.planned.contains(class);
    is_planned.then(|| format!("set mode: Enforce in the WindowsPool, which then creates RuntimeClass {class}"))
}

/// Returns why no change is known with which the workload runs all the time.
fn reason(subject: &WorkloadSubject, now: PodOutcome, after: &Stage, facts: &UpgradeFacts<'_>) -> Option<String> {
    if now == PodOutcome::MayNotStart {
        return Some(STRAY.to_owned());
    }
    old_containerd(after, facts).or_else(|| {
        let retired = subject.started_on.iter().copied().chain(facts.builds_now()).next()?;
        Some(unknown(&subject.template.spec, facts.cluster, retired, facts.targets().into_iter().next()))
    })
}

/// Returns what to do if the new version runs the images of today, but not certainly with the containerd of the nodes.
fn old_containerd(stage: &Stage, facts: &UpgradeFacts<'_>) -> Option<String> {
    stage.upgraded().find_map(|node| {
        let host = node.host()?.windows();
        let on = |image: Build, host: WindowsHost| runs(Isolation::Process, image, host);
        let (image, since) = facts.builds_now().into_iter().find_map(|image| {
            match on(image, WindowsHost { runtime: None, ..host }) {
                Runs::IfContainerd(since) if on(image, host) != Runs::Yes => Some((image, since)),
                _ => None,
            }
        })?;
        let (name, build, of_today) = (&node.name, short(host.build), short(image));
        let runs = format!("{build} runs images of {of_today} with containerd {since} or later");
        Some(match on(image, host) {
            Runs::No => format!("update containerd too: {runs}, and {name} has an older one"),
            _ => format!("{runs}, and {name} does not report its version"),
        })
    })
}
