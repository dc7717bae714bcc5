//! The numbers of nodes in each pool.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use crate::api::{NodeCounts, Problem, Taint, number};
use crate::plan::nodes::assessment::{Assessment, NodeProblem, NodeState};
use crate::windows::Build;

/// The sums over the nodes of one pool.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tally {
    /// Nodes by build, if it is known, and state.
    pub states: BTreeMap<(Option<Build>, NodeState), usize>,
    /// Nodes by build, if it is known.
    pub builds: BTreeMap<Build, usize>,
    tolerate: BTreeSet<Taint>,
    /// The number of nodes with each taint that they have from winpool, or are about to get.
    pub(crate) owned: BTreeMap<Taint, usize>,
    /// The first node with each problem, and the number of nodes with it.
    problems: BTreeMap<NodeProblem, (Arc<str>, usize)>,
    /// The number of nodes without the right label.
    pub unlabeled: usize,
    /// The number of nodes without the right taints.
    pub untainted: usize,
    /// The number of nodes that lack each taint and may not get it now.
    pub held: BTreeMap<Taint, usize>,
    /// The number of nodes that are to get the capability label for images of each build.
    pub(crate) awaited_capabilities: BTreeMap<Build, usize>,
    /// The number of nodes that still need a write.
    pub unfinished: usize,
    /// Nodes that the pool selects and an older one owns.
    pub overlap: Option<Overlap>,
}

/// Nodes that an older pool owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overlap {
    pub nodes: usize,
    /// The name of one of them.
    pub example: String,
    /// The pool that owns it.
    pub owner: String,
}

/// The assessments of a node: by the pool that it belongs to, and by those in dry run that would select it. Shared,
/// because most nodes of a pool have the same one.
pub(crate) type Assessments = Box<[Arc<Assessment>]>;
/// Pools that select a node and do not own it, each with the pool that does.
pub(crate) type Overlaps = Vec<(String, String)>;

/// The sums of all pools over these nodes, which are sorted by name.
pub(crate) fn fold<'a>(
    nodes: impl Iterator<Item = (&'a Arc<str>, &'a Assessments, &'a Overlaps)>,
) -> BTreeMap<String, Tally> {
    let mut tallies: BTreeMap<String, Tally> = BTreeMap::new();
    // An assessment is added once for all nodes that share it.
    let mut shared: HashMap<*const Assessment, (&Assessment, &Arc<str>, usize)> = HashMap::new();
    for (name, assessments, overlaps) in nodes {
        for assessment in assessments {
            shared.entry(Arc::as_ptr(assessment)).or_insert((assessment, name, 0)).2 += 1;
        }
        for (pool, owner) in overlaps {
            let first = || Overlap { nodes: 0, example: name.to_string(), owner: owner.clone() };
            tallies.entry(pool.clone()).or_default().overlap.get_or_insert_with(first).nodes += 1;
        }
    }
    for (assessment, first, nodes) in shared.into_values() {
        if let Some(pool) = &assessment.pool {
            tallies.entry(pool.clone()).or_default().add(first, assessment, nodes);
        }
    }
    tallies
}

impl Tally {
    /// Adds so many nodes with this assessment, of which this is the first.
    fn add(&mut self, first: &Arc<str>, assessment: &Assessment, nodes: usize) {
        let Assessment { build, ignored, tolerate, taints, plan, .. } = assessment;
        *self.states.entry((*build, assessment.state())).or_default() += nodes;
        if let Some(build) = build {
            *self.builds.entry(*build).or_default() += nodes;
        }
        for image in assessment.awaited_capabilities() {
            *self.awaited_capabilities.entry(image).or_default() += nodes;
        }
        let is_unknown = build.is_none() && !ignored;
        let awaits_label = assessment.awaits_build_label();
        let is_unlabeled = is_unknown || awaits_label || assessment.awaited_capabilities().next().is_some();
        self.unlabeled += if is_unlabeled { nodes } else { 0 };
        self.untainted += if assessment.is_untainted() { nodes } else { 0 };
        let is_unfinished = !plan.is_empty() || !taints.held.is_empty() || awaits_label;
        self.unfinished += if is_unfinished { nodes } else { 0 };
        self.tolerate.extend(tolerate.iter().cloned());
        for (counts, taints) in [(&mut self.held, &taints.held), (&mut self.owned, &taints.owned)] {
            for taint in taints {
                *counts.entry(taint.clone()).or_default() += nodes;
            }
        }
        for problem in assessment.problems() {
            let (example, number) = self.problems.entry(problem).or_insert_with(|| (Arc::clone(first), 0));
            if *first < *example {
                *example = Arc::clone(first);
            }
            *number += nodes;
        }
    }

    /// Nodes by state.
    pub fn counts(&self) -> NodeCounts {
        let of = |is_counted: &dyn Fn(NodeState) -> bool| {
            number(self.states.iter().filter(|((_, state), _)| is_counted(*state)).map(|(_, nodes)| nodes).sum())
        };
        let [converged, pending, held, contested, blocked, ignored] =
            NodeState::ALL.map(|one| of(&|state| state == one));
        NodeCounts { selected: of(&|_| true), converged, pending, held, contested, blocked, ignored }
    }

    /// The facts from which the pool's RuntimeClasses are made.
    pub fn seen(&self) -> NodeSummary {
        NodeSummary { builds: self.builds.clone(), tolerate: self.tolerate.clone(), ..NodeSummary::default() }
    }

    /// One problem of each kind, with the number of nodes and one example.
    pub fn problems(&self) -> Vec<Problem> {
        self.problems.iter().map(|(problem, (example, nodes))| problem.describe(example, *nodes)).collect()
    }
}

/// The facts about a pool's nodes from which its RuntimeClasses are planned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeSummary {
    /// Number of nodes by build.
    pub builds: BTreeMap<Build, usize>,
    /// Taints on them that the pool's classes have to tolerate besides the pool's own.
    pub tolerate: BTreeSet<Taint>,
    /// RuntimeClasses that select this build, and whose capability label is not on all nodes that run their images. Each has
    /// the number of those nodes; 0 if that is not known.
    pub awaited_capabilities: BTreeMap<String, (Build, usize)>,
}

/// The number of nodes in one pool with the same build and state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeCount {
    pub pool: String,
    /// Their build, if they report one.
    pub build: Option<Build>,
    /// True if this release or the pool has a name for the build.
    pub named: bool,
    pub state: NodeState,
    pub count: usize,
}
