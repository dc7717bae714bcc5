//! The sums over the nodes of one pool. They are updated with each node, so one change costs the same in any cluster.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use crate::{
    api::{NodeCounts, Problem, Taint, number},
    windows::{Build, Vendor},
};

use super::{
    classes::NodeSummary,
    contribution::{Contribution, NodeProblem},
    node::NodeState,
};

/// The sums over the nodes of one pool.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tally {
    states: BTreeMap<(Option<Build>, NodeState), usize>,
    /// Nodes by build and revision.
    pub(super) revisions: BTreeMap<Build, BTreeMap<Option<u32>, usize>>,
    /// Nodes by build and the vendor that their labels show.
    pub(super) vendors: BTreeMap<(Build, Vendor), usize>,
    tolerate: BTreeMap<Taint, usize>,
    owned: BTreeMap<Taint, usize>,
    problems: BTreeMap<NodeProblem, BTreeSet<Arc<str>>>,
    /// The number of nodes without the right label.
    pub(super) unlabeled: usize,
    /// The number of nodes without the right taints.
    pub(super) untainted: usize,
    held: BTreeMap<Taint, usize>,
    uncarried: BTreeMap<Taint, usize>,
    /// The builds whose capability labels nodes are to get.
    unlabelled: BTreeMap<Build, usize>,
    unfinished: usize,
    /// Nodes that an older pool owns, with that pool.
    overlaps: BTreeMap<Arc<str>, String>,
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

/// Adds one to the count of this key, or subtracts one.
fn count<K: Clone + Ord>(counts: &mut BTreeMap<K, usize>, key: &K, adds: bool) {
    match counts.get_mut(key) {
        Some(count) if adds => *count += 1,
        Some(count) if *count > 1 => *count -= 1,
        Some(_) => _ = counts.remove(key),
        None if adds => _ = counts.insert(key.clone(), 1),
        None => {}
    }
}

impl Tally {
    pub fn add(&mut self, name: &Arc<str>, contribution: &Contribution) {
        self.change(name, contribution, true);
    }

    pub fn subtract(&mut self, name: &Arc<str>, contribution: &Contribution) {
        self.change(name, contribution, false);
    }

    fn change(&mut self, name: &Arc<str>, contribution: &Contribution, adds: bool) {
        let build = contribution.version.map(|version| version.build);
        count(&mut self.states, &(build, contribution.state), adds);
        if let Some(version) = contribution.version {
            let mut revisions = self.revisions.remove(&version.build).unwrap_or_default();
            count(&mut revisions, &version.revision, adds);
            self.revisions.extend((!revisions.is_empty()).then_some((version.build, revisions)));
        }
        if let Some((version, vendor)) = contribution.version.zip(contribution.vendor) {
            count(&mut self.vendors, &(version.build, vendor), adds);
        }
        for (number, counts) in [
            (&mut self.unlabeled, contribution.unlabeled),
            (&mut self.untainted, contribution.untainted),
            (&mut self.unfinished, contribution.unfinished),
        ] {
            let one = usize::from(counts);
            *number = if adds { *number + one } else { number.saturating_sub(one) };
        }
        for (counts, taints) in [
            (&mut self.held, &contribution.held),
            (&mut self.tolerate, &contribution.tolerate),
            (&mut self.owned, &contribution.owned),
            (&mut self.uncarried, &contribution.uncarried),
        ] {
            for taint in taints {
                count(counts, taint, adds);
            }
        }
        for image in &contribution.unlabelled {
            count(&mut self.unlabelled, image, adds);
        }
        for problem in &contribution.problems {
            let mut nodes = self.problems.remove(problem).unwrap_or_default();
            if adds {
                nodes.insert(Arc::clone(name));
            } else {
                nodes.remove(name);
            }
            self.problems.extend((!nodes.is_empty()).then(|| (problem.clone(), nodes)));
        }
    }

    /// True if no node contributes anything.
    pub fn is_empty(&self) -> bool {
        self.states.is_empty() && self.overlaps.is_empty()
    }

    /// Records that the pool selects this node and the older pool `owner` owns it.
    pub fn overlaps(&mut self, node: &Arc<str>, owner: &str) {
        self.overlaps.insert(Arc::clone(node), owner.to_owned());
    }

    /// Removes that record.
    pub fn overlaps_no_longer(&mut self, node: &str) {
        self.overlaps.remove(node);
    }

    /// Numbers of nodes by build, if it is known, and state.
    pub fn states(&self) -> impl Iterator<Item = (Option<Build>, NodeState, usize)> {
        self.states.iter().map(|((build, state), count)| (*build, *state, *count))
    }

    /// The number of nodes that are to get the capability label for images of this build.
    pub(super) fn unlabelled(&self, image: Build) -> usize {
        self.unlabelled.get(&image).copied().unwrap_or_default()
    }

    /// The number of nodes that still need a write.
    pub fn unfinished(&self) -> usize {
        self.unfinished
    }

    /// Nodes that the pool selects and an older one owns.
    pub fn overlap(&self) -> Option<Overlap> {
        let (example, owner) = self.overlaps.first_key_value()?;
        Some(Overlap { nodes: self.overlaps.len(), example: example.to_string(), owner: owner.clone() })
    }

    /// Nodes by state.
    pub fn counts(&self) -> NodeCounts {
        let mut counts = NodeCounts::default();
        for ((_, state), count) in &self.states {
            let count = number(*count);
            counts.selected += count;
            match state {
                NodeState::Converged => counts.converged += count,
                NodeState::Pending => counts.pending += count,
                NodeState::Held => counts.held += count,
                NodeState::Contested => counts.contested += count,
                NodeState::Blocked => counts.blocked += count,
                NodeState::Ignored => counts.ignored += count,
            }
        }
        counts
    }

    /// True if a node waits for a taint.
    pub fn waits(&self) -> bool {
        !self.held.is_empty()
    }

    /// True if a node lacks this taint and may not get it now.
    pub fn is_held(&self, taint: &Taint) -> bool {
        self.held.contains_key(taint)
    }

    /// The number of nodes that have this taint from winpool or are about to get it, and of those that lack it and may not get
    /// it now.
    pub(super) fn nodes_with(&self, taint: &Taint) -> (usize, usize) {
        let number = |counts: &BTreeMap<Taint, usize>| counts.get(taint).copied().unwrap_or_default();
        (number(&self.owned), number(&self.held))
    }

    /// winpool's taints on the nodes.
    pub fn owned(&self) -> impl Iterator<Item = &Taint> {
        self.owned.keys()
    }

    /// The facts from which the pool's RuntimeClasses are made.
    pub fn seen(&self) -> NodeSummary {
        NodeSummary {
            builds: self.revisions.iter().map(|(build, revisions)| (*build, revisions.values().sum())).collect(),
            tolerate: self.tolerate.keys().cloned().collect(),
            ..NodeSummary::default()
        }
    }

    /// One problem of each kind, with the number of nodes and one example.
    pub fn problems(&self) -> Vec<Problem> {
        self.problems
            .iter()
            .filter_map(|(problem, nodes)| Some(problem.describe(nodes.first()?, nodes.len())))
            .collect()
    }
}
