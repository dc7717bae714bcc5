//! What the nodes of one pool add up to.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use winpool_core::{
    api::{NodeCounts, Problem, Taint, names::reason},
    plan::{Overlap, Seen, Standing, State, number},
    windows::{Build, KernelVersion},
};

use super::Refusal;

/// What one node adds to one pool.
#[derive(Clone, PartialEq, Eq, Hash)]
#[expect(clippy::struct_excessive_bools, reason = "each is counted by itself")]
pub(super) struct Contribution {
    pub pool: String,
    version: Option<KernelVersion>,
    state: State,
    unlabeled: bool,
    untainted: bool,
    waits: bool,
    unfinished: bool,
    tolerate: Vec<Taint>,
    owned: Vec<Taint>,
    problems: Vec<NodeProblem>,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum NodeProblem {
    BuildUnknown,
    Denied(Arc<str>),
    Contested(Arc<str>),
    ValueDiffers(Taint),
    WouldChange,
}

/// What the nodes of one pool add up to.
#[derive(Clone, Default)]
pub struct Totals {
    pub(super) states: BTreeMap<(Option<Build>, State), usize>,
    revisions: BTreeMap<Build, BTreeMap<Option<u32>, usize>>,
    tolerate: BTreeMap<Taint, usize>,
    owned: BTreeMap<Taint, usize>,
    problems: BTreeMap<NodeProblem, BTreeSet<Arc<str>>>,
    unlabeled: usize,
    untainted: usize,
    waiting: usize,
    /// Nodes that a write would make what the pool wants.
    pub(super) unfinished: usize,
    /// Nodes that an older pool owns, with that pool.
    pub(super) overlaps: BTreeMap<Arc<str>, String>,
}

fn decrement<K: Ord>(counts: &mut BTreeMap<K, usize>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}

/// What a node adds to the pool that it belongs to.
pub(super) fn contribution(
    standing: Standing,
    refusal: Option<&Refusal>,
    rival: Option<Arc<str>>,
) -> Option<Contribution> {
    let state = match (refusal, &rival) {
        (Some(_), _) => State::Blocked,
        (None, Some(_)) => State::Contested,
        (None, None) => standing.state(),
    };
    let Standing { pool, version, ignored, tolerate, differing, plan, held, owned, releasing: _ } = standing;
    let unknown = version.is_none() && !ignored;
    let problems = unknown
        .then_some(NodeProblem::BuildUnknown)
        .into_iter()
        .chain(refusal.map(|refusal| NodeProblem::Denied(Arc::clone(&refusal.message))))
        .chain(rival.map(NodeProblem::Contested))
        .chain(differing.into_iter().map(NodeProblem::ValueDiffers))
        .collect();
    Some(Contribution {
        pool: pool?,
        version,
        state,
        unlabeled: unknown || plan.windows_build.is_some(),
        untainted: plan.taints.is_some() || held,
        waits: held,
        unfinished: !plan.is_empty() || held,
        tolerate,
        owned,
        problems,
    })
}

/// What a node would add to a pool in dry run.
pub(super) fn preview(standing: Standing) -> Option<Contribution> {
    let changes = !standing.plan.is_empty();
    // It puts on nothing.
    let mut contribution = contribution(Standing { owned: Vec::new(), ..standing }, None, None)?;
    if changes {
        contribution.problems.push(NodeProblem::WouldChange);
    }
    Some(contribution)
}

impl Totals {
    pub(super) fn add(&mut self, name: &Arc<str>, contribution: &Contribution) {
        let build = contribution.version.map(|version| version.build);
        *self.states.entry((build, contribution.state)).or_default() += 1;
        if let Some(version) = contribution.version {
            *self.revisions.entry(version.build).or_default().entry(version.revision).or_default() += 1;
        }
        self.unlabeled += usize::from(contribution.unlabeled);
        self.untainted += usize::from(contribution.untainted);
        self.waiting += usize::from(contribution.waits);
        self.unfinished += usize::from(contribution.unfinished);
        for taint in &contribution.tolerate {
            *self.tolerate.entry(taint.clone()).or_default() += 1;
        }
        for taint in &contribution.owned {
            *self.owned.entry(taint.clone()).or_default() += 1;
        }
        for problem in &contribution.problems {
            self.problems.entry(problem.clone()).or_default().insert(Arc::clone(name));
        }
    }

    pub(super) fn subtract(&mut self, name: &Arc<str>, contribution: &Contribution) {
        let build = contribution.version.map(|version| version.build);
        decrement(&mut self.states, &(build, contribution.state));
        if let Some(version) = contribution.version
            && let Some(revisions) = self.revisions.get_mut(&version.build)
        {
            decrement(revisions, &version.revision);
            if revisions.is_empty() {
                self.revisions.remove(&version.build);
            }
        }
        self.unlabeled -= usize::from(contribution.unlabeled);
        self.untainted -= usize::from(contribution.untainted);
        self.waiting -= usize::from(contribution.waits);
        self.unfinished -= usize::from(contribution.unfinished);
        contribution.tolerate.iter().for_each(|taint| decrement(&mut self.tolerate, taint));
        contribution.owned.iter().for_each(|taint| decrement(&mut self.owned, taint));
        for problem in &contribution.problems {
            let emptied = self.problems.get_mut(problem).is_some_and(|nodes| {
                nodes.remove(name);
                nodes.is_empty()
            });
            if emptied {
                self.problems.remove(problem);
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.states.is_empty() && self.overlaps.is_empty()
    }

    /// Nodes that the pool selects and an older one owns.
    #[must_use]
    pub fn overlap(&self) -> Option<Overlap> {
        let (example, owner) = self.overlaps.first_key_value()?;
        Some(Overlap { nodes: self.overlaps.len(), example: example.to_string(), owner: owner.clone() })
    }

    /// Nodes by state.
    #[must_use]
    pub fn counts(&self) -> NodeCounts {
        let mut counts = NodeCounts::default();
        for ((_, state), count) in &self.states {
            let count = number(*count);
            counts.selected += count;
            match state {
                State::Converged => counts.converged += count,
                State::Pending => counts.pending += count,
                State::Held => counts.held += count,
                State::Contested => counts.contested += count,
                State::Blocked => counts.blocked += count,
                State::Ignored => counts.ignored += count,
            }
        }
        counts
    }

    /// Nodes by build and revision.
    #[must_use]
    pub fn revisions(&self) -> &BTreeMap<Build, BTreeMap<Option<u32>, usize>> {
        &self.revisions
    }

    /// Nodes without the right label.
    #[must_use]
    pub fn unlabeled(&self) -> usize {
        self.unlabeled
    }

    /// Nodes without the right taints.
    #[must_use]
    pub fn untainted(&self) -> usize {
        self.untainted
    }

    /// Nodes that lack a held taint, whatever else is to be done to them.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// Taints of winpool's that nodes carry.
    pub fn owned(&self) -> impl Iterator<Item = &Taint> {
        self.owned.keys()
    }

    /// What the pool's RuntimeClasses are made from.
    #[must_use]
    pub fn seen(&self) -> Seen {
        Seen {
            builds: self.revisions.iter().map(|(build, revisions)| (*build, revisions.values().sum())).collect(),
            tolerate: self.tolerate.keys().cloned().collect(),
        }
    }

    /// One problem for each kind, with the number of nodes and one example.
    #[must_use]
    pub fn problems(&self) -> Vec<Problem> {
        self.problems
            .iter()
            .filter_map(|(problem, nodes)| Some(problem.describe(nodes.first()?, nodes.len())))
            .collect()
    }
}

impl NodeProblem {
    fn describe(&self, example: &str, nodes: usize) -> Problem {
        let (reason, message) = match self {
            Self::BuildUnknown => (
                reason::BUILD_UNKNOWN,
                format!(
                    "{nodes} node(s) report no Windows build in status.nodeInfo.kernelVersion and carry no well-formed \
                     label node.kubernetes.io/windows-build; check their kubelets"
                ),
            ),
            Self::Denied(message) => (
                reason::ADMISSION_DENIED,
                format!("{nodes} node(s): the API server refuses the change, next try within 10 minutes: {message}"),
            ),
            Self::Contested(rival) => (reason::CONTESTED, format!("{nodes} node(s): {rival}")),
            Self::ValueDiffers(taint) => (
                reason::TAINT_VALUE_DIFFERS,
                format!(
                    "{nodes} node(s) carry {taint}, whose key and effect are those of a wanted taint; it is left alone \
                     and RuntimeClasses tolerate it. To replace it, add it to spec.retiredTaints"
                ),
            ),
            Self::WouldChange => (reason::WOULD_CHANGE, format!("{nodes} node(s) would be changed")),
        };
        Problem { reason: reason.to_owned(), object: format!("Node/{example}"), message }
    }
}
