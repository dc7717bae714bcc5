//! The numbers of nodes in each pool: what one node contributes, and the sums.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::Instant,
};

use crate::{
    api::{NodeCounts, ObjectReference, Problem, Taint, names::reason, number},
    interner::Interner,
    plan::{
        classes::NodeSummary,
        nodes::{
            assessment::{Assessment, assess, assess_as},
            capability_labels::build_of,
            node::{NodeState, Watched},
            table::Entry,
        },
        patch::STRIPPED,
        pools::pool::Policy,
        taints::Consent,
    },
    windows::Build,
    words::count as count_of,
};

/// The contribution of one node to one pool.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Contribution {
    pool: String,
    build: Option<Build>,
    state: NodeState,
    is_unlabeled: bool,
    is_untainted: bool,
    is_unfinished: bool,
    /// Wanted taints that it may not get now.
    held: Vec<Taint>,
    tolerate: Vec<Taint>,
    owned: Vec<Taint>,
    /// The builds whose capability labels it is to get.
    unlabelled: Vec<Build>,
    problems: Vec<NodeProblem>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum NodeProblem {
    OperatingSystemDiffers,
    BuildUnknown,
    /// The message of the API server, which refuses to change the node.
    Denied(Arc<str>),
    /// The writer that keeps reverting winpool's changes.
    Contested(Arc<str>),
    ValueDiffers(Taint),
    WouldChange,
}

impl Contribution {
    /// The contribution of a node to its pool, with what keeps winpool from changing the node.
    fn of(assessment: Assessment, hindrance: Option<NodeProblem>) -> Option<Self> {
        let state = match &hindrance {
            Some(NodeProblem::Denied(_)) => NodeState::Blocked,
            Some(NodeProblem::Contested(_)) => NodeState::Contested,
            _ => assessment.state(),
        };
        let Assessment { pool, build, ignored, tolerate, differing, plan, held, owned, uncarried, .. } = assessment;
        let differs = assessment.contradicts_itself && !ignored;
        let is_unknown = build.is_none() && !ignored;
        let is_to_be_labelled = plan.windows_build.is_some() || assessment.label_settles.is_some();
        let missing = plan.capability_labels.iter().filter(|change| change.to.is_some());
        let unlabelled: Vec<Build> = missing.filter_map(|change| build_of(&change.key)).collect();
        let unreadable = if differs { NodeProblem::OperatingSystemDiffers } else { NodeProblem::BuildUnknown };
        let problems = is_unknown.then_some(unreadable).into_iter().chain(hindrance);
        Some(Self {
            pool: pool?,
            build,
            state,
            is_unlabeled: is_unknown || is_to_be_labelled || !unlabelled.is_empty(),
            is_untainted: plan.taints.is_some() || !held.is_empty() || differs && !uncarried.is_empty(),
            is_unfinished: !plan.is_empty() || !held.is_empty() || is_to_be_labelled,
            problems: problems.chain(differing.into_iter().map(NodeProblem::ValueDiffers)).collect(),
            unlabelled,
            held,
            tolerate,
            owned,
        })
    }

    /// The contribution of a node to a pool in dry run, which adds no taint.
    fn preview(assessment: Assessment) -> Option<Self> {
        let would_change = (!assessment.plan.is_empty()).then_some(NodeProblem::WouldChange);
        let mut preview = Self::of(Assessment { owned: Vec::new(), ..assessment }, None)?;
        preview.problems.extend(would_change);
        Some(preview)
    }
}

impl Entry {
    /// Computes what the node contributes: to the pool that it belongs to, and to those in dry run that would select it. A
    /// pool that is being deleted counts the nodes that winpool still has to clean up. Returns true if something has changed.
    pub(crate) fn contribute(&mut self, policy: &Policy, shared: &mut Interner<Contribution>, now: Instant) -> bool {
        let mut assessment = assess(&self.object.node, policy, self.consent(now));
        self.pending_since = match assessment.state() {
            NodeState::Pending => self.pending_since.or(Some(now)),
            _ => None,
        };
        let (node, name) = (&self.object.node, &*self.object.name);
        let (mut contributions, mut overlaps): (Vec<_>, Vec<_>) = (Vec::new(), Vec::new());
        // A node with another operating system belongs to no pool. The deletion of its pool finds it by a list from the API server.
        if !node.was_reimaged() {
            let is_reverted =
                !assessment.plan.is_empty() && self.pause(policy, assessment.pool.as_deref(), now).is_some();
            let refusal = self.refusal_message(&assessment.plan).filter(|_| !assessment.plan.is_empty());
            let other_writer = self.other_writer().filter(|_| is_reverted).map(|writer| Arc::clone(&writer.name));
            let hindrance = refusal.map(NodeProblem::Denied).or_else(|| other_writer.map(NodeProblem::Contested));
            let is_deleted = |name: &String| policy.pool(name).is_some_and(|pool| pool.spec.deleting);
            assessment.pool = assessment.pool.or(assessment.releasing.take().filter(is_deleted));
            // Nothing is known of the node's past as a node of a pool in dry run.
            let consent = Consent::Known { name, watched: &Watched::default(), now };
            let previews = policy.previews(&node.labels);
            let previews =
                previews.filter_map(|pool| Contribution::preview(assess_as(node, Some(pool), policy, consent)));
            contributions.extend(Contribution::of(assessment, hindrance).into_iter().chain(previews));
            let mut selecting = policy.selecting(&node.labels).map(|entry| entry.pool.spec.name.clone());
            let owner = selecting.next();
            overlaps.extend(selecting.filter_map(|pool| Some((pool, owner.clone()?))));
        }
        let contributions: Box<[_]> = contributions.into_iter().map(|added| shared.intern(added)).collect();
        let is_changed = contributions != self.contributions || overlaps != self.overlaps;
        (self.contributions, self.overlaps) = (contributions, overlaps);
        is_changed
    }
}

impl NodeProblem {
    fn describe(&self, example: &str, nodes: usize) -> Problem {
        let nodes = count_of(nodes, "node");
        let (reason, message) = match self {
            Self::OperatingSystemDiffers => (
                reason::OPERATING_SYSTEM_DIFFERS,
                format!(
                    "{nodes} with the label kubernetes.io/os=windows and another operating system in \
                     status.nodeInfo.operatingSystem; winpool changes the node when they agree. Check its kubelet, and \
                     who sets the label"
                ),
            ),
            Self::BuildUnknown => (
                reason::BUILD_UNKNOWN,
                format!(
                    "{nodes} without a Windows build in status.nodeInfo.kernelVersion and in the label \
                     node.kubernetes.io/windows-build; check the kubelet"
                ),
            ),
            Self::Denied(message) if **message == *STRIPPED => (reason::RECORD_REMOVED, format!("{nodes}: {message}")),
            Self::Denied(message) => (
                reason::ADMISSION_DENIED,
                format!("{nodes}: the API server refuses the change, winpool tries again within 10 minutes: {message}"),
            ),
            Self::Contested(writer) => (reason::CONTESTED, format!("{nodes}: {writer}")),
            Self::ValueDiffers(taint) => (
                reason::TAINT_VALUE_DIFFERS,
                format!(
                    "{nodes} with {taint}, whose key and effect are those of a wanted taint; winpool does not change \
                     it, and RuntimeClasses tolerate it. To replace it, add it to spec.retiredTaints"
                ),
            ),
            Self::WouldChange => (reason::WOULD_CHANGE, format!("winpool would change {nodes}")),
        };
        Problem::new(reason, ObjectReference::node(example), message)
    }
}

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
    pub(crate) unlabelled: BTreeMap<Build, usize>,
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

/// The sums of all pools over these nodes, which are sorted by name.
pub(crate) fn fold(entries: &BTreeMap<Arc<str>, Entry>) -> BTreeMap<String, Tally> {
    let mut tallies: BTreeMap<String, Tally> = BTreeMap::new();
    // Most nodes share their contribution, so it is added once for all of them.
    let mut shared: HashMap<*const Contribution, (&Contribution, &Arc<str>, usize)> = HashMap::new();
    for (name, entry) in entries {
        for contribution in &entry.contributions {
            shared.entry(Arc::as_ptr(contribution)).or_insert((contribution, name, 0)).2 += 1;
        }
        for (pool, owner) in &entry.overlaps {
            let first = || Overlap { nodes: 0, example: name.to_string(), owner: owner.clone() };
            tallies.entry(pool.clone()).or_default().overlap.get_or_insert_with(first).nodes += 1;
        }
    }
    for (contribution, first, nodes) in shared.into_values() {
        tallies.entry(contribution.pool.clone()).or_default().add(first, contribution, nodes);
    }
    tallies
}

impl Tally {
    /// Adds the contribution of so many nodes, of which this is the first.
    fn add(&mut self, first: &Arc<str>, contribution: &Contribution, nodes: usize) {
        let Contribution { build, state, is_unlabeled, is_untainted, is_unfinished, .. } = contribution;
        *self.states.entry((*build, *state)).or_default() += nodes;
        if let Some(build) = build {
            *self.builds.entry(*build).or_default() += nodes;
        }
        self.unlabeled += if *is_unlabeled { nodes } else { 0 };
        self.untainted += if *is_untainted { nodes } else { 0 };
        self.unfinished += if *is_unfinished { nodes } else { 0 };
        self.tolerate.extend(contribution.tolerate.iter().cloned());
        for (counts, taints) in [(&mut self.held, &contribution.held), (&mut self.owned, &contribution.owned)] {
            for taint in taints {
                *counts.entry(taint.clone()).or_default() += nodes;
            }
        }
        for image in &contribution.unlabelled {
            *self.unlabelled.entry(*image).or_default() += nodes;
        }
        for problem in &contribution.problems {
            let (example, number) = self.problems.entry(problem.clone()).or_insert_with(|| (Arc::clone(first), 0));
            if *first < *example {
                *example = Arc::clone(first);
            }
            *number += nodes;
        }
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

    /// The facts from which the pool's RuntimeClasses are made.
    pub fn seen(&self) -> NodeSummary {
        NodeSummary { builds: self.builds.clone(), tolerate: self.tolerate.clone(), ..NodeSummary::default() }
    }

    /// One problem of each kind, with the number of nodes and one example.
    pub fn problems(&self) -> Vec<Problem> {
        self.problems.iter().map(|(problem, (example, nodes))| problem.describe(example, *nodes)).collect()
    }
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
