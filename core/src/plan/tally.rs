//! The sums over the nodes of one pool. They are updated with each node, so one change costs the same in any cluster.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Instant,
};

use crate::{
    api::{NodeCounts, ObjectReference, Problem, Taint, names::reason, number},
    windows::{Build, KernelVersion, Vendor},
    words::count as count_of,
};

use super::{
    assessment::{Assessment, assess_as},
    classes::SeenNodes,
    consent::Consent,
    node::{NodeFields, NodeState},
    pools::Policy,
    watched::Watched,
};

/// The contribution of one node to one pool.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Contribution {
    pub pool: String,
    version: Option<KernelVersion>,
    vendor: Option<Vendor>,
    state: NodeState,
    unlabeled: bool,
    untainted: bool,
    /// Wanted taints that it may not get now.
    held: Vec<Taint>,
    unfinished: bool,
    tolerate: Vec<Taint>,
    owned: Vec<Taint>,
    taken_over: Vec<(Taint, Option<Instant>)>,
    replaced: Vec<Taint>,
    /// Wanted taints that it lacks, for any reason.
    uncarried: Vec<Taint>,
    /// Capability labels that it is to get.
    unlabelled: Vec<String>,
    problems: Vec<NodeProblem>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum NodeProblem {
    OperatingSystemDiffers,
    BuildUnknown,
    Denied(Arc<str>),
    Contested(Arc<str>),
    ValueDiffers(Taint),
    LabelInUse(String),
    WouldChange,
}

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
    taken_over: BTreeMap<(Taint, Option<Instant>), usize>,
    replaced: BTreeMap<Taint, usize>,
    problems: BTreeMap<NodeProblem, BTreeSet<Arc<str>>>,
    /// The number of nodes without the right label.
    pub(super) unlabeled: usize,
    /// The number of nodes without the right taints.
    pub(super) untainted: usize,
    held: BTreeMap<Taint, usize>,
    uncarried: BTreeMap<Taint, usize>,
    /// Capability labels that nodes of a build are to get.
    unlabelled: BTreeMap<(Build, String), usize>,
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
    let before = counts.remove(key).unwrap_or_default();
    let after = if adds { before + 1 } else { before.saturating_sub(1) };
    if after > 0 {
        counts.insert(key.clone(), after);
    }
}

impl Contribution {
    /// The contribution of a node to its pool. `refusal` is the API server's message if it refuses to change the node,
    /// and `other_writer` names the writer that keeps reverting winpool's changes.
    pub fn of(
        assessment: Assessment,
        vendor: Option<Vendor>,
        refusal: Option<Arc<str>>,
        other_writer: Option<Arc<str>>,
    ) -> Option<Self> {
        let state = match (&refusal, &other_writer) {
            (Some(_), _) => NodeState::Blocked,
            (None, Some(_)) => NodeState::Contested,
            (None, None) => assessment.state(),
        };
        let Assessment { pool, version, ignored, tolerate, differing, needed, plan, held, uncarried, .. } = assessment;
        let differs = assessment.contradicts_itself && !ignored;
        let unknown = version.is_none() && !ignored;
        let is_to_be_labelled = plan.windows_build.is_some() || assessment.label_settles.is_some();
        let missing = plan.capability_labels.iter().filter(|change| change.to.is_some());
        let unlabelled: Vec<String> = missing.map(|change| change.key.clone()).collect();
        let unreadable = if differs { NodeProblem::OperatingSystemDiffers } else { NodeProblem::BuildUnknown };
        let problems = unknown
            .then_some(unreadable)
            .into_iter()
            .chain(refusal.map(NodeProblem::Denied))
            .chain(other_writer.map(NodeProblem::Contested))
            .chain(differing.into_iter().map(NodeProblem::ValueDiffers))
            .chain(needed.into_iter().map(NodeProblem::LabelInUse))
            .collect();
        Some(Self {
            pool: pool?,
            version,
            vendor,
            state,
            unlabeled: unknown || is_to_be_labelled || !unlabelled.is_empty(),
            unlabelled,
            untainted: plan.taints.is_some() || !held.is_empty() || differs && !uncarried.is_empty(),
            unfinished: !plan.is_empty() || !held.is_empty() || is_to_be_labelled,
            held,
            uncarried,
            tolerate,
            owned: assessment.owned,
            taken_over: assessment.taken_over,
            replaced: assessment.replaced,
            problems,
        })
    }

    /// The contribution of a node to a pool in dry run.
    pub fn preview(assessment: Assessment, vendor: Option<Vendor>) -> Option<Self> {
        let changes = !assessment.plan.is_empty();
        // A dry run adds no taint.
        let (owned, taken_over, replaced) = Default::default();
        let mut contribution = Self::of(Assessment { owned, taken_over, replaced, ..assessment }, vendor, None, None)?;
        if changes {
            contribution.problems.push(NodeProblem::WouldChange);
        }
        Some(contribution)
    }
}

/// The contributions of one node to all pools.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeShare {
    /// To the pool that it belongs to, and to those in dry run that would select it.
    pub contributions: Vec<Contribution>,
    /// Pools that select the node and do not own it, each with the owner.
    pub overlaps: Vec<(String, String)>,
}

impl NodeShare {
    /// The contributions of `node`, which was assessed with `assessment`. A pool that is being deleted counts the
    /// nodes that winpool still has to clean up.
    pub fn of(
        node: &NodeFields,
        mut assessment: Assessment,
        policy: &Policy,
        consent: Consent<'_>,
        refusal: Option<Arc<str>>,
        other_writer: Option<Arc<str>>,
    ) -> Self {
        // It is no pool's node any more. A deleted pool finds it in the API server.
        if node.was_reimaged() {
            return Self::default();
        }
        let deleting = |name: &String| policy.pool(name).is_some_and(|pool| pool.spec.deleting);
        assessment.pool = assessment.pool.or(assessment.releasing.take().filter(deleting));
        let vendor = Vendor::of(&node.labels);
        let own = Contribution::of(assessment, vendor, refusal, other_writer);
        // Nothing is known of the node's past as a node of that pool.
        let past = Watched::default();
        let consent = match consent {
            Consent::Known { uid, now, .. } => Consent::Known { uid, now, watched: &past },
            other => other,
        };
        let previews = policy.previews(&node.labels);
        let previews =
            previews.filter_map(|pool| Contribution::preview(assess_as(node, Some(pool), policy, consent), vendor));
        let mut selecting = policy.selecting(&node.labels).map(|entry| &entry.pool);
        let owner = selecting.next().map(|pool| pool.spec.name.clone());
        let overlaps = selecting.filter_map(|pool| Some((pool.spec.name.clone(), owner.clone()?))).collect();
        Self { contributions: own.into_iter().chain(previews).collect(), overlaps }
    }
}

impl Tally {
    /// The sums over these nodes for the pool.
    pub fn of(pool: &str, shares: &[(Arc<str>, NodeShare)]) -> Self {
        let mut tally = Self::default();
        for (name, NodeShare { contributions, overlaps }) in shares {
            contributions.iter().filter(|added| added.pool == pool).for_each(|added| tally.add(name, added));
            overlaps.iter().filter(|(other, _)| other == pool).for_each(|(_, owner)| tally.overlaps(name, owner));
        }
        tally
    }

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
            (&mut self.replaced, &contribution.replaced),
            (&mut self.uncarried, &contribution.uncarried),
        ] {
            for taint in taints {
                count(counts, taint, adds);
            }
        }
        for takeover in &contribution.taken_over {
            count(&mut self.taken_over, takeover, adds);
        }
        for (label, build) in contribution.unlabelled.iter().filter_map(|label| Some((label, build?))) {
            count(&mut self.unlabelled, &(build, label.clone()), adds);
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

    /// True if every node, and at least one, has this wanted taint.
    pub fn all_carry(&self, taint: &Taint) -> bool {
        let ignored = |((_, state), _): &(&(Option<Build>, NodeState), &usize)| *state == NodeState::Ignored;
        self.states.iter().any(|entry| !ignored(&entry)) && !self.uncarried.contains_key(taint)
    }

    /// The number of nodes of this build that are to get this capability label.
    pub(super) fn unlabelled(&self, build: Build, label: &str) -> usize {
        self.unlabelled.get(&(build, label.to_owned())).copied().unwrap_or_default()
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

    /// The time at which the last of the nodes came that have this taint by the record of another pool.
    pub(super) fn last_takeover(&self, taint: &Taint) -> Option<Instant> {
        self.taken_over.keys().filter(|(taken_over, _)| taken_over == taint).filter_map(|(_, since)| *since).max()
    }

    /// Taints that winpool would restore on the nodes.
    pub(super) fn replaced(&self) -> impl Iterator<Item = &Taint> {
        self.replaced.keys()
    }

    /// winpool's taints on the nodes.
    pub fn owned(&self) -> impl Iterator<Item = &Taint> {
        self.owned.keys()
    }

    /// The facts from which the pool's RuntimeClasses are made.
    pub fn seen(&self) -> SeenNodes {
        SeenNodes {
            builds: self.revisions.iter().map(|(build, revisions)| (*build, revisions.values().sum())).collect(),
            tolerate: self.tolerate.keys().cloned().collect(),
            ..SeenNodes::default()
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
            Self::LabelInUse(label) => (
                reason::LABEL_IN_USE,
                format!(
                    "{nodes} keep the label {label}, which the pool does not want, because pods select it; without the \
                     label a kubelet that starts would end them. winpool removes it when no pod needs it"
                ),
            ),
            Self::WouldChange => (reason::WOULD_CHANGE, format!("winpool would change {nodes}")),
        };
        Problem::new(reason, ObjectReference::node(example), message)
    }
}
