//! What status says about pods: the pods that fail because of Windows, by pool, cause and workload, and the pods of classes.

use std::{cmp::Reverse, collections::BTreeMap, sync::Arc};

use k8s_openapi::api::node::v1::RuntimeClass;

use crate::{
    api::{ObjectReference, Problem, names::reason},
    plan::{nodes::NodeTable, pools::Policy},
    pod::Cause,
    words::count,
};

use super::{
    failure::{Explanation, PodFailure},
    help::PoolHelp,
    users::ClassPods,
};

/// The limit of workloads that are kept as examples while pods are counted. Others only count.
const GROUPS: usize = 1000;
/// The limit of workloads that a pool reports.
const WORKLOADS: usize = 10;

/// The facts besides pods by which pods are counted.
pub struct ClusterFacts<'a> {
    /// The Windows nodes.
    pub nodes: &'a NodeTable,
    pub policy: &'a Policy,
    pub classes: &'a [Arc<RuntimeClass>],
}

/// What was counted of all pods.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodSummary {
    /// The pods that fail because of Windows, by pool.
    pub pools: BTreeMap<String, PoolFailures>,
    /// The pods of each class of a pool that has some. Pods of other classes have problems of their own.
    pub classes: BTreeMap<String, ClassPods>,
    /// The pods that got tolerations, by pool.
    pub help: BTreeMap<String, PoolHelp>,
}

/// The last count of pods, if there is one.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum PodHealth {
    /// There are no Windows nodes.
    #[default]
    Off,
    /// The pods are not counted yet.
    NotYet,
    Seen {
        summary: Arc<PodSummary>,
        /// The reason why winpool does not see all pods or Events.
        unseen: Option<String>,
    },
}

impl PodHealth {
    /// The number of failing pods of this pool by cause; `None` if nothing is known.
    pub fn counts(&self, pool: &str) -> Option<BTreeMap<Cause, usize>> {
        let Self::Seen { summary, unseen } = self else { return None };
        let counts = summary.pools.get(pool).map(|failures| failures.counts.clone());
        counts.or_else(|| unseen.is_none().then(BTreeMap::new))
    }

    /// The pods of this class.
    pub(in crate::plan) fn of_class(&self, class: &str) -> Option<&ClassPods> {
        let Self::Seen { summary, .. } = self else { return None };
        summary.classes.get(class)
    }
}

/// The pods of one pool that fail because of Windows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PoolFailures {
    /// The number of pods by cause.
    pub counts: BTreeMap<Cause, usize>,
    /// At most ten workloads, those with most pods first.
    pub workloads: Vec<WorkloadFailure>,
    /// The number of other workloads.
    pub more: usize,
}

/// A workload whose pods fail.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkloadFailure {
    pub object: ObjectReference,
    pub cause: Cause,
    pub pods: usize,
    /// An example, the explanation, and the remedy.
    pub message: String,
    /// True if the problem of its RuntimeClass has the explanation and the remedy.
    is_of_class: bool,
}

impl WorkloadFailure {
    /// Its problem, unless that of its RuntimeClass says the same.
    pub(in crate::plan) fn problem(&self) -> Option<Problem> {
        let problem = || Problem::new(reason::PODS_FAILING, self.object.clone(), self.message.clone());
        (!self.is_of_class).then(problem)
    }
}

/// The failures that one count found.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct PodFailures {
    groups: BTreeMap<(String, Cause, String), FailureGroup>,
    counts: BTreeMap<(String, Cause), usize>,
}

#[derive(Clone, Debug, PartialEq)]
struct FailureGroup {
    pods: usize,
    /// The pod whose name is the first one, so that status stays the same.
    example: PodFailure,
}

impl Extend<PodFailure> for PodFailures {
    fn extend<I: IntoIterator<Item = PodFailure>>(&mut self, failures: I) {
        failures.into_iter().for_each(|failure| self.add(failure));
    }
}

impl PodFailures {
    fn add(&mut self, failure: PodFailure) {
        *self.counts.entry((failure.pool.clone(), failure.cause)).or_default() += 1;
        let key = (failure.pool.clone(), failure.cause, failure.workload.clone());
        let is_full = self.groups.len() >= GROUPS;
        match self.groups.get_mut(&key) {
            Some(group) => {
                group.pods += 1;
                if failure.pod < group.example.pod {
                    group.example = failure;
                }
            }
            None if !is_full => {
                self.groups.insert(key, FailureGroup { pods: 1, example: failure });
            }
            None => {}
        }
    }

    pub fn report(self) -> BTreeMap<String, PoolFailures> {
        let mut pools: BTreeMap<String, PoolFailures> = BTreeMap::new();
        for ((pool, cause), number) in self.counts {
            pools.entry(pool).or_default().counts.insert(cause, number);
        }
        let mut groups: Vec<_> = self.groups.into_iter().collect();
        groups.sort_by_key(|(_, group)| Reverse(group.pods));
        for ((pool, cause, workload), group) in groups {
            let pool = pools.entry(pool).or_default();
            if pool.workloads.len() < WORKLOADS {
                let message = group.message();
                let object = ObjectReference::named(&workload);
                let is_of_class = matches!(group.example.explanation, Explanation::OfClass(_));
                pool.workloads.push(WorkloadFailure { object, cause, pods: group.pods, message, is_of_class });
            } else {
                pool.more += 1;
            }
        }
        pools
    }
}

impl FailureGroup {
    fn message(&self) -> String {
        let PodFailure { pod, node, explanation, .. } = &self.example;
        let node = node.as_ref().map(|node| format!(" on node {node}")).unwrap_or_default();
        let (pods, fail) = (count(self.pods, "pod"), if self.pods == 1 { "fails" } else { "fail" });
        let example = format!("{pods} {fail}, such as {pod}{node}");
        match explanation {
            Explanation::Known(error) => format!("{example}: {}; {}", error.meaning, error.remedy),
            Explanation::NoNode(labels) => format!(
                "{example}: no Windows node has the labels that it selects: {labels}; add such a node, or let the workload \
                 select labels that nodes have"
            ),
            Explanation::OfClass(class) => format!("{example}: see the problem of RuntimeClass {class}"),
        }
    }
}
