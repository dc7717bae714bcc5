//! The contribution of one node to the sums of pools.

use std::sync::Arc;

use crate::{
    api::{ObjectReference, Problem, Taint, names::reason},
    windows::{Build, KernelVersion, Vendor},
    words::count as count_of,
};

use super::{
    assessment::{Assessment, assess_as},
    capability_labels::build_of,
    consent::Consent,
    node::{NodeFields, NodeState},
    pools::Policy,
    watched::Watched,
};

/// The contribution of one node to one pool.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Contribution {
    pub pool: String,
    pub(super) version: Option<KernelVersion>,
    pub(super) vendor: Option<Vendor>,
    pub(super) state: NodeState,
    pub(super) unlabeled: bool,
    pub(super) untainted: bool,
    /// Wanted taints that it may not get now.
    pub(super) held: Vec<Taint>,
    pub(super) unfinished: bool,
    pub(super) tolerate: Vec<Taint>,
    pub(super) owned: Vec<Taint>,
    /// Wanted taints that it lacks, for any reason.
    pub(super) uncarried: Vec<Taint>,
    /// The builds whose capability labels it is to get.
    pub(super) unlabelled: Vec<Build>,
    pub(super) problems: Vec<NodeProblem>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum NodeProblem {
    OperatingSystemDiffers,
    BuildUnknown,
    Denied(Arc<str>),
    Contested(Arc<str>),
    ValueDiffers(Taint),
    WouldChange,
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
        let Assessment { pool, version, ignored, tolerate, differing, plan, held, uncarried, .. } = assessment;
        let differs = assessment.contradicts_itself && !ignored;
        let unknown = version.is_none() && !ignored;
        let is_to_be_labelled = plan.windows_build.is_some() || assessment.label_settles.is_some();
        let missing = plan.capability_labels.iter().filter(|change| change.to.is_some());
        let unlabelled: Vec<Build> = missing.filter_map(|change| build_of(&change.key)).collect();
        let unreadable = if differs { NodeProblem::OperatingSystemDiffers } else { NodeProblem::BuildUnknown };
        let problems = unknown
            .then_some(unreadable)
            .into_iter()
            .chain(refusal.map(NodeProblem::Denied))
            .chain(other_writer.map(NodeProblem::Contested))
            .chain(differing.into_iter().map(NodeProblem::ValueDiffers))
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
            problems,
        })
    }

    /// The contribution of a node to a pool in dry run.
    pub fn preview(assessment: Assessment, vendor: Option<Vendor>) -> Option<Self> {
        let changes = !assessment.plan.is_empty();
        // A dry run adds no taint.
        let mut contribution = Self::of(Assessment { owned: Vec::new(), ..assessment }, vendor, None, None)?;
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
            Consent::Known { name, now, .. } => Consent::Known { name, now, watched: &past },
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

impl NodeProblem {
    pub(super) fn describe(&self, example: &str, nodes: usize) -> Problem {
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
            Self::WouldChange => (reason::WOULD_CHANGE, format!("winpool would change {nodes}")),
        };
        Problem::new(reason, ObjectReference::node(example), message)
    }
}
