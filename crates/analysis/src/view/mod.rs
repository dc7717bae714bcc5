//! What winpool knows about a cluster when it answers: pure values, read from the API server or from manifests.

mod admission;
mod against;
pub mod assume;
mod known;
mod node;
pub mod policies;
mod reduced;
mod related;
mod source;
mod started;
mod workload;
mod written;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::node::v1::RuntimeClass;
use kube::ResourceExt;
use serde_json::Value;
use winpool_core::api::ObjectReference;
use winpool_core::plan::pools::pool::GuardedPool;
use winpool_core::pod::Class;

use crate::autoscalers::Autoscalers;
use crate::finding::Finding;
use crate::image::Images;
use crate::kubernetes::KubernetesVersion;
use crate::pod::{Pod, PodEvent};
use crate::verdict::Cluster;

pub use admission::{Added, Admission, Queued};
pub use known::{Known, Workloads};
pub(crate) use node::{EKS_ADDRESS, PAUSE};
pub use node::{Node, SeenNode, reduced_node};
pub use policies::{Creation, Policies, Request};
pub use reduced::Reduced;
pub(crate) use related::{CONFIGURATION, FILE_SYSTEM, IS_DEFAULT, KUEUE, QUEUE};
pub use related::{RELATED, Related, RelatedKind};
pub use source::{Placed, Position};
pub use started::Started;
pub use winpool_simulation::request::changed_pool;
pub use workload::Workload;
pub use written::Written;

/// The API group of `GMSACredentialSpec`.
pub const GMSA_GROUP: &str = "windows.k8s.io";

/// The annotations of a namespace with which `OpenShift`, and Kubernetes with the admission plugin `PodNodeSelector`, select the nodes of
/// its pods.
pub const NODE_SELECTORS: [&str; 2] = ["openshift.io/node-selector", "scheduler.alpha.kubernetes.io/node-selector"];

/// Parses the version of a release of Kubernetes: `1.36` or `v1.36.3`.
pub fn kubernetes_version(release: &str) -> Option<KubernetesVersion> {
    let mut parts = release.strip_prefix('v').unwrap_or(release).split('.');
    KubernetesVersion::parse(parts.next()?, parts.next()?)
}

/// The objects of a cluster that winpool read to answer a question.
#[derive(Debug, Default)]
pub struct View {
    /// The version of Kubernetes, if it is known.
    pub kubernetes: Option<KubernetesVersion>,
    pub nodes: Known<Vec<SeenNode>>,
    /// The pools, including those that do not decode.
    pub pools: Known<Vec<Placed<GuardedPool>>>,
    pub classes: Known<Vec<Arc<RuntimeClass>>>,
    pub pods: Known<Vec<Pod>>,
    /// The Events about pods in manifests.
    pub events: Known<Vec<PodEvent>>,
    /// The workloads that create pods from a template.
    pub workloads: Workloads,
    /// Pods and workloads as they were written, for rules.
    pub written: Written,
    /// The namespace that the user asked about, if it had to be looked up.
    pub namespace: Known<()>,
    /// The labels of namespaces, by name, as far as the question needs them, and the annotations with which they select nodes.
    pub namespace_labels: BTreeMap<String, BTreeMap<String, String>>,
    /// The objects that workloads refer to, as far as they are known.
    pub related: Arc<Related>,
    pub services: Known<Vec<Placed<Value>>>,
    /// The `GMSACredentialSpec` objects.
    pub credential_specs: Known<Vec<Placed<Value>>>,
    /// The roles and their bindings, if workloads name a `GMSACredentialSpec`.
    pub permissions: Known<Vec<Value>>,
    /// The `MutatingWebhookConfiguration` objects, if workloads name a `GMSACredentialSpec`.
    pub webhooks: Known<Vec<Value>>,
    /// Findings about workloads without a pod spec, or with one that cannot be read.
    pub refused: Vec<(Position, Finding)>,
    /// The number of manifests that no rule checks, by kind.
    pub skipped: BTreeMap<String, usize>,
    /// The workloads of other kinds in manifests, for commands that do not read their templates.
    pub unread: Vec<ObjectReference>,
    /// The templates from which autoscalers create nodes.
    pub autoscalers: Autoscalers,
}

impl View {
    /// The nodes on which containers of the workloads have started.
    pub fn started(&self) -> Started {
        Started::of(self)
    }

    /// Returns all nodes as pods see them, if nodes are known.
    pub fn hosts(&self) -> Option<Vec<Node>> {
        Some(self.nodes.known()?.iter().map(SeenNode::host).collect())
    }

    /// Returns what new pods find.
    pub fn cluster(&self, images: &Images) -> Cluster {
        let (images, admission) = (images.clone(), self.admission());
        Cluster { nodes: self.hosts().unwrap_or_default(), classes: self.class_fields(), images, admission }
    }

    /// Returns the known RuntimeClasses, by name.
    pub fn class_fields(&self) -> BTreeMap<String, Class> {
        let classes = self.classes.known().into_iter().flatten();
        classes.map(|class| (class.name_any(), Class::from(&**class))).collect()
    }

    /// Returns what is added to new pods before the scheduler sees them.
    pub fn admission(&self) -> Admission {
        Admission::of(self)
    }

    /// True if a workload may refer to an object of this kind, or depend on it. winpool's policies are there with a pool.
    pub fn mentions(&self, related: &RelatedKind) -> bool {
        let is_queued =
            || self.workloads.known().into_iter().flatten().any(|(_, workload)| workload.pod.queue.is_some());
        if related.mention.is_empty() {
            return self.guarded().is_some_and(|mut pools| pools.next().is_some());
        }
        self.written.mention(related.mention) || related.mention == QUEUE && is_queued()
    }

    /// Returns the pools without their positions, if pools are known.
    pub fn guarded(&self) -> Option<impl Iterator<Item = &GuardedPool>> {
        Some(self.pools.known()?.iter().map(|(_, pool)| pool))
    }

    /// Returns the resources that the user may not list.
    pub fn forbidden(&self) -> BTreeSet<String> {
        let parts = [
            ("gmsacredentialspecs", self.credential_specs.is_forbidden()),
            ("namespaces", self.namespace.is_forbidden()),
            ("nodes", self.nodes.is_forbidden()),
            ("pods", self.pods.is_forbidden()),
            ("runtimeclasses", self.classes.is_forbidden()),
            ("services", self.services.is_forbidden()),
            ("windowspools", self.pools.is_forbidden()),
        ];
        let parts = parts.into_iter().filter_map(|(resource, is_forbidden)| is_forbidden.then_some(resource));
        parts.chain(self.workloads.refused().into_keys()).map(str::to_owned).collect()
    }

    /// Sorts nodes, pools and classes by name.
    pub fn sort(&mut self) {
        self.nodes.known_mut().into_iter().for_each(|nodes| nodes.sort_by(|a, b| a.object.name.cmp(&b.object.name)));
        self.pools.known_mut().into_iter().for_each(|pools| pools.sort_by_key(|(_, pool)| pool.name_any()));
        self.classes.known_mut().into_iter().for_each(|classes| classes.sort_by_key(|class| class.name_any()));
    }
}
