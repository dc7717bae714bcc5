//! The reason why one pod fails, if Windows is the reason for certain.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use crate::{
    labels::Labels,
    plan::{
        node_groups,
        nodes::{NodeObject, NodeTable},
        pool_spec::PoolSpec,
        pools::Policy,
        trial_check::digest,
    },
    pod::{Cause, Certainty, ContainerFailure, KnownError, Pod, PodProgress, PodSpec, Target},
    windows::{ContainerRuntime, compatibility::runs_by_process_isolation, image},
    words::plain,
};

/// The limit of different placements that are compared with all nodes in one round. Pods with others are found when
/// these are gone.
const PLACEMENTS: usize = 100;
/// The longest list of labels in a message.
const LABELS: usize = 300;

/// The facts by which pods are judged.
pub struct ClusterFacts<'a> {
    /// The Windows nodes.
    pub nodes: &'a NodeTable,
    pub policy: &'a Policy,
    /// The pools of RuntimeClasses.
    pub classes: &'a BTreeMap<String, String>,
}

/// A pod that fails because of Windows.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PodFailure {
    pub pool: String,
    pub cause: Cause,
    /// Such as `Deployment shop/web`.
    pub workload: String,
    /// Namespace and name.
    pub pod: String,
    pub node: Option<Arc<str>>,
    pub explanation: Explanation,
}

/// The explanation of a failure.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Explanation {
    Known(&'static KnownError),
    /// No node has the labels in this text.
    NoNode(String),
}

/// True if a node has the labels that a placement selects, by the digest of the placement.
pub(super) type Fits = HashMap<u64, bool>;

impl ClusterFacts<'_> {
    /// The reason why a pod that has not finished fails at present.
    pub(super) fn judge(&self, pod: &Pod, fits: &mut Fits) -> Option<PodFailure> {
        if pod.is_terminating() || pod.is_ignored || pod.progress == PodProgress::Finished {
            return None;
        }
        if pod.spec.node.is_none() {
            return self.without_node(pod, fits);
        }
        self.failure(pod)
    }

    /// The reason why a container of the pod does not run.
    pub(super) fn failure(&self, pod: &Pod) -> Option<PodFailure> {
        let host = self.host(pod);
        pod.start_status.failures.iter().find_map(|failure| {
            let (cause, certainty) = failure.error.counted?;
            let is_certain = match certainty {
                Certainty::Always => host.is_some(),
                Certainty::OnWindows => host.is_some() || image::is_for_windows(&failure.image),
                Certainty::IfNodeIsOlder => host.is_some_and(|host| is_older(host, &failure.image)),
                Certainty::IfItLasts => false,
            };
            let cause = if cause == Cause::NoVariant { variant(host, failure) } else { cause };
            self.found(pod, cause, Explanation::Known(failure.error)).filter(|_| is_certain)
        })
    }

    /// The failure of a pod that has this error by an Event.
    pub(super) fn known(&self, pod: &Pod, error: &'static KnownError) -> Option<PodFailure> {
        self.found(pod, error.counted?.0, Explanation::Known(error))
    }

    /// The failure of a pod that had this error and is gone.
    pub(super) fn gone(
        &self,
        (namespace, name): &(String, String),
        node: &str,
        error: &'static KnownError,
    ) -> Option<PodFailure> {
        let host = self.nodes.object(node)?;
        let pod = format!("{namespace}/{name}");
        Some(PodFailure {
            pool: self.pool_of_node(&host.node.labels)?.name.clone(),
            cause: error.counted?.0,
            workload: format!("Pod {pod}"),
            pod,
            node: Some(Arc::clone(&host.name)),
            explanation: Explanation::Known(error),
        })
    }

    fn found(&self, pod: &Pod, cause: Cause, explanation: Explanation) -> Option<PodFailure> {
        let host = self.host(pod);
        let pool = match host {
            Some(host) => self.pool_of_node(&host.node.labels)?.name.clone(),
            None => self.pool_of_spec(&pod.spec)?,
        };
        Some(PodFailure {
            pool,
            cause,
            workload: pod.workload(),
            pod: format!("{}/{}", pod.namespace, pod.name),
            node: host.map(|host| Arc::clone(&host.name)),
            explanation,
        })
    }

    /// The Windows node that it is on.
    fn host(&self, pod: &Pod) -> Option<&NodeObject> {
        self.nodes.object(pod.spec.node.as_deref()?).map(AsRef::as_ref).filter(|host| !host.node.contradicts_itself())
    }

    /// The pool that owns the node, or else the oldest that selects it.
    fn pool_of_node(&self, labels: &Labels) -> Option<&PoolSpec> {
        let owner = self.policy.owner(labels).map(|entry| &entry.pool);
        owner.or_else(|| self.policy.previews(labels).next()).map(|pool| pool.spec.as_ref())
    }

    /// The pool of its class, or else the oldest whose nodes it may select. Only pods for Windows have one.
    fn pool_of_spec(&self, spec: &PodSpec) -> Option<String> {
        let of_class = spec.runtime_class.as_ref().and_then(|class| self.classes.get(class));
        if let Some(pool) = of_class.filter(|pool| self.policy.exists(pool)) {
            return Some(pool.clone());
        }
        let is_open = |(key, value): (&String, &String)| spec.selected(key).is_none_or(|selected| selected == value);
        let mut pools = self.policy.pools().filter(|pool| !pool.spec.deleting);
        let pool = pools.find(|pool| pool.spec.node_selector.iter().all(is_open))?;
        let is_for_windows = matches!(spec.target(None), Target::Windows | Target::WindowsImage);
        is_for_windows.then(|| pool.spec.name.clone())
    }

    /// The failure of a pod that selects labels which no Windows node has. Full nodes and taints do not count.
    fn without_node(&self, pod: &Pod, fits: &mut Fits) -> Option<PodFailure> {
        let spec = &pod.spec;
        let waits = pod.start_status.is_unschedulable && spec.scheduling_gates.is_empty();
        if !waits || spec.target(None) != Target::Windows {
            return None;
        }
        // The text may be as large as a pod.
        let placement = digest(&format!("{:?} {:?}", spec.node_selector, spec.terms));
        let fits_a_node = match fits.get(&placement) {
            Some(fits) => *fits,
            None if fits.len() >= PLACEMENTS => true,
            None => {
                let found =
                    self.nodes.objects().any(|object| node_groups::fits(spec, &object.node.labels, &object.name));
                fits.insert(placement, found);
                found
            }
        };
        if fits_a_node {
            return None;
        }
        let mut labels: Vec<String> = spec.node_selector.iter().map(|(key, value)| format!("{key}={value}")).collect();
        if !spec.terms.is_empty() {
            labels.push("its required node affinity".to_owned());
        }
        self.found(pod, Cause::NoNode, Explanation::NoNode(plain(&labels.join(", "), LABELS)))
    }
}

/// True if the node has the build of the image's tag and an older update.
fn is_older(host: &NodeObject, name: &str) -> bool {
    let versions = host.node.windows_version().zip(image::version_of(name));
    versions.is_some_and(|(host, image)| {
        host.build == image.build && host.revision.zip(image.revision).is_some_and(|(host, image)| host < image)
    })
}

/// The cause for an image without a variant for the node.
fn variant(host: Option<&NodeObject>, failure: &ContainerFailure) -> Cause {
    let Some(build) = image::build_of(&failure.image) else { return Cause::NoVariant };
    let host = host.and_then(|host| Some((host.node.windows_version()?.build, host.node.container_runtime.as_deref())));
    let runs_it = |(host, runtime): (_, Option<&str>)| {
        let runtime = runtime.and_then(|text| text.parse::<ContainerRuntime>().ok());
        runs_by_process_isolation(host, runtime, build)
    };
    if host.is_some_and(|host| !runs_it(host)) { Cause::OtherBuild } else { Cause::NoVariant }
}
