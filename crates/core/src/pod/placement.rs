//! What decides on which nodes a pod may run. Thousands of pods share few placements, so each is stored once.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{NodeSelectorRequirement, NodeSelectorTerm, Toleration};

use crate::interner::Interner;
use crate::labels::Labels;
use crate::pod::tolerations::{covers, normalised};
use crate::pod::{Class, Pod, PodSpec, System, affinity};

/// The limit of the text of one placement, in bytes. Users can write longer ones.
const LONGEST: usize = 2048;
/// The limit of placements whose text is stored.
const STORED: usize = 8192;

/// What decides on which nodes a pod may run.
#[derive(Clone, Debug, PartialEq)]
pub struct Placement {
    /// `nodeSelector`.
    pub node_selector: BTreeMap<String, String>,
    /// The terms of the required node affinity. No terms mean no requirement.
    pub terms: Vec<NodeSelectorTerm>,
    /// As the API server sent them: a patch of the list tests it.
    pub tolerations: Vec<Toleration>,
    /// `runtimeClassName`.
    pub class: Option<Arc<str>>,
    /// The operating system that the pod says it is for.
    pub system: Option<System>,
    /// True if `schedulingGates` keep the scheduler off.
    pub is_gated: bool,
    /// False if the selector, the terms and the tolerations are too long to be stored.
    pub is_known: bool,
}

impl Placement {
    /// Returns the shared copy of the placement of a pod, without its text if that is too long, or if there are too many.
    pub(crate) fn shared(pod: &Pod, placements: &mut Interner<Self>) -> Arc<Self> {
        let placement = Self::of(pod);
        let fits = placement.length() <= LONGEST && placements.has_room(&placement, STORED);
        placements.intern(if fits { placement } else { placement.without_text() })
    }

    /// Reads the placement of the pods of a template.
    pub(crate) fn of_spec(spec: &PodSpec) -> Self {
        Self {
            node_selector: spec.node_selector.clone(),
            terms: spec.terms.clone(),
            tolerations: spec.tolerations.clone(),
            class: spec.runtime_class.as_deref().map(Arc::from),
            system: spec.said_system(None, || None),
            is_gated: !spec.scheduling_gates.is_empty(),
            is_known: true,
        }
    }

    /// Reads the placement of a pod. A DaemonSet pins each of its pods to one node; that counts only until the pod is there.
    fn of(pod: &Pod) -> Self {
        let mut placement = Self::of_spec(&pod.spec);
        if pod.spec.node.is_some() && pod.controller.as_ref().is_some_and(|(kind, _)| kind == "DaemonSet") {
            for term in &mut placement.terms {
                term.match_fields = None;
            }
            placement.terms.retain(|term| !affinity::is_empty(term));
        }
        placement
    }

    /// True if selector and affinity, as far as they are known, allow a node with these labels and this name.
    pub(crate) fn fits(&self, labels: &Labels, name: &str) -> bool {
        labels.matches(&self.node_selector) && affinity::matches_affinity(&self.terms, labels, name)
    }

    /// True if the pod lacks a label or a toleration that the class gives to its new pods.
    pub(crate) fn lacks(&self, class: &Class) -> bool {
        let is_selected = |(key, value): (&String, &String)| self.node_selector.get(key) == Some(value);
        let covers_all = || {
            let own = normalised(self.tolerations.iter().cloned());
            class.tolerations.iter().all(|wanted| own.iter().any(|own| covers(own, wanted)))
        };
        self.is_known && !(class.selector.iter().all(is_selected) && covers_all())
    }

    /// The length of its text, in bytes.
    fn length(&self) -> usize {
        let text = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        let selector = self.node_selector.iter().map(|(key, value)| key.len() + value.len());
        let terms = self.terms.iter().flat_map(requirements).map(|requirement| {
            let values = requirement.values.iter().flatten().map(|value| value.len() + size_of::<String>());
            requirement.key.len() + requirement.operator.len() + values.sum::<usize>()
        });
        let tolerations =
            self.tolerations.iter().map(|own| text(&own.key) + text(&own.value) + size_of::<Toleration>() / 4);
        selector.chain(terms).chain(tolerations).sum()
    }

    fn without_text(self) -> Self {
        let (node_selector, terms, tolerations) = (BTreeMap::new(), Vec::new(), Vec::new());
        Self { node_selector, terms, tolerations, is_known: false, ..self }
    }
}

pub(crate) fn requirements(term: &NodeSelectorTerm) -> impl Iterator<Item = &NodeSelectorRequirement> {
    term.match_expressions.iter().chain(&term.match_fields).flatten()
}

impl Eq for Placement {}

impl Hash for Placement {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.node_selector, &self.class, self.system, self.is_gated, self.is_known).hash(state);
        for requirement in self.terms.iter().flat_map(requirements) {
            (&requirement.key, &requirement.operator, &requirement.values).hash(state);
        }
        for own in &self.tolerations {
            (&own.key, &own.operator, &own.value, &own.effect, own.toleration_seconds).hash(state);
        }
    }
}
