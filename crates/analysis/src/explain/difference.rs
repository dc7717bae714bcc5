//! The workloads whose new pods run in one of two clusters and not in the other one.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use winpool_core::api::ObjectReference;
use winpool_core::plan::Now;
use winpool_simulation::Unfinished;

use crate::image::Images;
use crate::verdict::{Asked, Cluster, Group, Verdict, one_of_each};
use crate::view::View;

use super::forecast::{Snapshot, WorkloadForecast, forecast};
use super::subject::{WorkloadSubject, subjects};

/// What differs between two clusters, once the operator has done its part in both.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Difference {
    /// The workloads whose new pods run elsewhere or no more. `now` is the first cluster, and `after` the second one.
    pub workloads: Vec<WorkloadForecast>,
    /// The workloads that only the first cluster has.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub removed: Vec<ObjectReference>,
    /// The workloads that only the second cluster has.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub added: Vec<AddedWorkload>,
    /// Facts that winpool cannot determine, with the reasons.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// A workload that only the second cluster has.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AddedWorkload {
    /// The object that creates the pods.
    pub object: ObjectReference,
    /// Why new pods of it do not run, or may not; absent if they run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl Difference {
    /// Compares two clusters.
    ///
    /// # Errors
    /// Fails if the operator does not finish in one of them.
    pub fn of(before: View, after: View, images: &Images, now: Now) -> Result<Self, Unfinished> {
        let (mut before, after) = (Side::of(before, images, now)?, Side::of(after, images, now)?);
        let (mut difference, mut others) = (Self::default(), std::mem::take(&mut before.subjects));
        for (key, subject) in &after.subjects {
            let then = after.verdict(subject);
            let Some(known) = others.remove(key) else {
                let reason = after.why_not(&then);
                difference.added.push(AddedWorkload { object: key.0.clone(), reason });
                continue;
            };
            let now = before.verdict(&known);
            let changed = WorkloadForecast::of(subject, (&now, &before.groups), (&then, &after.groups));
            let reason = || after.why_not(&then);
            difference.workloads.extend(changed.map(|changed| WorkloadForecast { reason: reason(), ..changed }));
        }
        difference.removed = others.into_keys().map(|(object, _)| object).collect();
        Ok(difference)
    }
}

/// A cluster, with one node of each group of equal ones.
struct Side {
    subjects: BTreeMap<(ObjectReference, Option<String>), WorkloadSubject>,
    cluster: Cluster,
    groups: Vec<Group>,
}

impl Side {
    fn of(view: View, images: &Images, now: Now) -> Result<Self, Unfinished> {
        let there = view.cluster(images);
        let started = view.started();
        let snapshot = Snapshot::of(view, now);
        let cluster = forecast(&snapshot)?.cluster(&there).settled();
        let subjects = subjects(&snapshot, &started, &there);
        let asked = Asked::by(subjects.iter().map(|subject| &subject.template.spec));
        let asked = asked.with_classes(cluster.classes.values()).with_admission(&cluster.admission);
        let groups = one_of_each(cluster.nodes.iter().map(|node| asked.group(node)));
        let cluster = cluster.with_one_of_each(&groups);
        let subjects = subjects.into_iter();
        let subjects = subjects.map(|subject| ((subject.object.clone(), subject.path.clone()), subject)).collect();
        Ok(Self { subjects, cluster, groups })
    }

    fn verdict<'s>(&'s self, subject: &'s WorkloadSubject) -> Verdict<'s> {
        Verdict::of(subject.question(), &self.cluster)
    }

    /// Returns why the pods do not run, or may not.
    fn why_not(&self, verdict: &Verdict<'_>) -> Option<String> {
        if let Some(refused) = &verdict.refused {
            return Some(verdict.pod.admit(refused, &self.cluster).text);
        }
        let possible = || verdict.nodes.iter().filter(|on| on.is_possible());
        if possible().next().is_some() {
            return possible().find(|on| on.starts == Some(false)).and_then(|on| on.why.first().cloned());
        }
        let closest = verdict.nodes.iter().zip(&self.cluster.nodes);
        let closest = closest.filter(|(_, node)| node.is_windows() == verdict.pod.is_windows);
        let (closest, _) = closest.min_by_key(|(on, _)| on.obstacles.len())?;
        closest.obstacles.first().map(|obstacle| verdict.pod.describe(obstacle))
    }
}
