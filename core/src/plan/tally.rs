//! What the nodes of one pool add up to: kept as nodes change, so that one change costs the same in any cluster.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use crate::{
    api::{NodeCounts, Problem, Taint, names::reason},
    windows::{Build, KernelVersion},
};

use super::{Consent, Node, Overlap, Policy, Seen, Standing, State, Watched, assess_as, number};

/// What one node adds to one pool.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Contribution {
    /// Name of the pool.
    pub pool: String,
    version: Option<KernelVersion>,
    state: State,
    unlabeled: bool,
    untainted: bool,
    /// Wanted taints that it may not get now.
    held: Vec<Taint>,
    unfinished: bool,
    tolerate: Vec<Taint>,
    owned: Vec<Taint>,
    /// Wanted taints that it does not carry, for whatever reason.
    uncarried: Vec<Taint>,
    problems: Vec<NodeProblem>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum NodeProblem {
    BuildUnknown,
    Denied(Arc<str>),
    Contested(Arc<str>),
    ValueDiffers(Taint),
    WouldChange,
}

/// What the nodes of one pool add up to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tally {
    states: BTreeMap<(Option<Build>, State), usize>,
    revisions: BTreeMap<Build, BTreeMap<Option<u32>, usize>>,
    tolerate: BTreeMap<Taint, usize>,
    owned: BTreeMap<Taint, usize>,
    problems: BTreeMap<NodeProblem, BTreeSet<Arc<str>>>,
    unlabeled: usize,
    untainted: usize,
    waiting: usize,
    held: BTreeMap<Taint, usize>,
    uncarried: BTreeMap<Taint, usize>,
    unfinished: usize,
    /// Nodes that an older pool owns, with that pool.
    overlaps: BTreeMap<Arc<str>, String>,
}

fn decrement<K: Ord>(counts: &mut BTreeMap<K, usize>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}

impl Contribution {
    /// What a node adds to the pool that it belongs to. `refusal` says why the API server refuses to change it, and
    /// `other_writer` who keeps reverting it.
    #[must_use]
    pub fn of(standing: Standing, refusal: Option<Arc<str>>, other_writer: Option<Arc<str>>) -> Option<Self> {
        let state = match (&refusal, &other_writer) {
            (Some(_), _) => State::Blocked,
            (None, Some(_)) => State::Contested,
            (None, None) => standing.state(),
        };
        let Standing { pool, version, ignored, tolerate, differing, plan, held, owned, uncarried, .. } = standing;
        let unknown = version.is_none() && !ignored;
        let is_to_be_labelled = plan.windows_build.is_some() || standing.label_settles.is_some();
        let problems = unknown
            .then_some(NodeProblem::BuildUnknown)
            .into_iter()
            .chain(refusal.map(NodeProblem::Denied))
            .chain(other_writer.map(NodeProblem::Contested))
            .chain(differing.into_iter().map(NodeProblem::ValueDiffers))
            .collect();
        Some(Self {
            pool: pool?,
            version,
            state,
            unlabeled: unknown || is_to_be_labelled,
            untainted: plan.taints.is_some() || !held.is_empty(),
            unfinished: !plan.is_empty() || !held.is_empty() || is_to_be_labelled,
            held,
            uncarried,
            tolerate,
            owned,
            problems,
        })
    }

    /// What a node would add to a pool in dry run.
    #[must_use]
    pub fn preview(standing: Standing) -> Option<Self> {
        let changes = !standing.plan.is_empty();
        // It puts on nothing.
        let mut contribution = Self::of(Standing { owned: Vec::new(), ..standing }, None, None)?;
        if changes {
            contribution.problems.push(NodeProblem::WouldChange);
        }
        Some(contribution)
    }
}

/// What one node adds to all pools.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeShare {
    /// To the pool that it belongs to, and to those in dry run that would select it.
    pub contributions: Vec<Contribution>,
    /// Pools that select the node and do not own it, each with the owner.
    pub overlaps: Vec<(String, String)>,
}

impl NodeShare {
    /// What `node` adds, of which `standing` was found. A pool that is being deleted counts the nodes that still carry
    /// its marks.
    #[must_use]
    pub fn of(
        node: &Node,
        mut standing: Standing,
        policy: &Policy,
        consent: Consent<'_>,
        refusal: Option<Arc<str>>,
        other_writer: Option<Arc<str>>,
    ) -> Self {
        let deleting = |name: &String| policy.pool(name).is_some_and(|pool| pool.deleting);
        standing.pool = standing.pool.or(standing.releasing.take().filter(deleting));
        let own = Contribution::of(standing, refusal, other_writer);
        // Nothing is known of a node's past as a node of that pool.
        let past = Watched::default();
        let consent = match consent {
            Consent::Known { uid, now, .. } => Consent::Known { uid, now, watched: &past },
            other => other,
        };
        let previews = policy.previews(&node.labels);
        let previews = previews.filter_map(|pool| Contribution::preview(assess_as(node, Some(pool), policy, consent)));
        let mut selecting = policy.selecting(&node.labels);
        let owner = selecting.next().map(|pool| pool.name.clone());
        let overlaps = selecting.filter_map(|pool| Some((pool.name.clone(), owner.clone()?))).collect();
        Self { contributions: own.into_iter().chain(previews).collect(), overlaps }
    }
}

impl Tally {
    /// Adds what this node adds.
    pub fn add(&mut self, name: &Arc<str>, contribution: &Contribution) {
        let build = contribution.version.map(|version| version.build);
        *self.states.entry((build, contribution.state)).or_default() += 1;
        if let Some(version) = contribution.version {
            *self.revisions.entry(version.build).or_default().entry(version.revision).or_default() += 1;
        }
        self.unlabeled += usize::from(contribution.unlabeled);
        self.untainted += usize::from(contribution.untainted);
        self.waiting += usize::from(!contribution.held.is_empty());
        for taint in &contribution.held {
            *self.held.entry(taint.clone()).or_default() += 1;
        }
        self.unfinished += usize::from(contribution.unfinished);
        for taint in &contribution.tolerate {
            *self.tolerate.entry(taint.clone()).or_default() += 1;
        }
        for taint in &contribution.owned {
            *self.owned.entry(taint.clone()).or_default() += 1;
        }
        for taint in &contribution.uncarried {
            *self.uncarried.entry(taint.clone()).or_default() += 1;
        }
        for problem in &contribution.problems {
            self.problems.entry(problem.clone()).or_default().insert(Arc::clone(name));
        }
    }

    /// Takes away what this node added.
    pub fn subtract(&mut self, name: &Arc<str>, contribution: &Contribution) {
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
        self.waiting -= usize::from(!contribution.held.is_empty());
        contribution.held.iter().for_each(|taint| decrement(&mut self.held, taint));
        self.unfinished -= usize::from(contribution.unfinished);
        contribution.tolerate.iter().for_each(|taint| decrement(&mut self.tolerate, taint));
        contribution.owned.iter().for_each(|taint| decrement(&mut self.owned, taint));
        contribution.uncarried.iter().for_each(|taint| decrement(&mut self.uncarried, taint));
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

    /// Whether no node adds anything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.states.is_empty() && self.overlaps.is_empty()
    }

    /// The pool selects this node, and the older pool `owner` owns it.
    pub fn overlaps(&mut self, node: &Arc<str>, owner: &str) {
        self.overlaps.insert(Arc::clone(node), owner.to_owned());
    }

    /// The pool no longer selects this node beside an older one.
    pub fn overlaps_no_longer(&mut self, node: &str) {
        self.overlaps.remove(node);
    }

    /// Numbers of nodes by build, as far as it is known, and state.
    pub fn states(&self) -> impl Iterator<Item = (Option<Build>, State, usize)> {
        self.states.iter().map(|((build, state), count)| (*build, *state, *count))
    }

    /// Whether every node, of at least one, carries this wanted taint.
    #[must_use]
    pub fn all_carry(&self, taint: &Taint) -> bool {
        let ignored = |((_, state), _): &(&(Option<Build>, State), &usize)| *state == State::Ignored;
        self.states.iter().any(|entry| !ignored(&entry)) && !self.uncarried.contains_key(taint)
    }

    /// Nodes that a write would make what the pool wants.
    #[must_use]
    pub fn unfinished(&self) -> usize {
        self.unfinished
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

    /// Whether a node lacks this taint and may not get it now.
    #[must_use]
    pub fn is_held(&self, taint: &Taint) -> bool {
        self.held.contains_key(taint)
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
