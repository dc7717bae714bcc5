//! What decides on which nodes a pod may run. Thousands of pods share few placements, so each is stored once.

use std::collections::{BTreeMap, HashMap};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{NodeSelectorRequirement, NodeSelectorTerm, Toleration};

use crate::budget::{BESIDE_TEXT, PLACEMENT, PLACEMENTS};
use crate::labels::Labels;
use crate::pod::tolerations::{covers, normalised};
use crate::pod::{Class, Pod, PodSpec, System, affinity};

/// What decides on which nodes a pod may run.
#[derive(Clone, Debug, Default, PartialEq)]
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

/// The placements of pods, each stored once, with the namespace that had it first and the bytes that it needs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Placements {
    stored: HashMap<Arc<Placement>, (String, usize)>,
    bytes: usize,
    /// True if one was not stored since the last list, because there was no room.
    was_full: bool,
}

impl Placements {
    /// Stores the placement of a pod. If its text is too long, or if there is no room, it is stored without the text.
    pub(crate) fn store(&mut self, pod: &Pod) -> Arc<Placement> {
        let placement = Placement::of(pod);
        let length = placement.bytes();
        let fits = length <= PLACEMENT + BESIDE_TEXT;
        let has_room = fits && (self.stored.contains_key(&placement) || self.has_room(&pod.namespace, length));
        self.was_full |= fits && !has_room;
        let placement = if has_room { placement } else { placement.without_text() };
        if let Some((known, _)) = self.stored.get_key_value(&placement) {
            return Arc::clone(known);
        }
        let (bytes, placement) = (placement.bytes(), Arc::new(placement));
        self.bytes += bytes;
        self.stored.insert(Arc::clone(&placement), (pod.namespace.clone(), bytes));
        placement
    }

    /// True if there is room for so many bytes more. When all is full, each namespace may have an equal part, however much
    /// others have.
    fn has_room(&mut self, namespace: &str, length: usize) -> bool {
        if self.bytes + length > PLACEMENTS {
            self.sweep();
        }
        if self.bytes + length <= PLACEMENTS {
            return true;
        }
        let mut parts: BTreeMap<&str, usize> = [(namespace, length)].into();
        for (namespace, bytes) in self.stored.values() {
            *parts.entry(namespace).or_default() += bytes;
        }
        parts.get(namespace).is_some_and(|part| *part <= PLACEMENTS / parts.len())
    }

    /// Forgets placements that no pod has.
    pub(crate) fn sweep(&mut self) {
        self.stored.retain(|placement, _| Arc::strong_count(placement) > 1);
        self.bytes = self.stored.values().map(|(_, bytes)| bytes).sum();
    }

    /// True, once, if placements were not stored, and there is room for them now.
    pub(crate) fn has_room_again(&mut self) -> bool {
        self.bytes < PLACEMENTS / 2 && std::mem::take(&mut self.was_full)
    }
}

impl Placement {
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

    /// What it needs, in bytes.
    fn bytes(&self) -> usize {
        let text = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        let selector = self.node_selector.iter().map(|(key, value)| key.len() + value.len());
        let terms = self.terms.iter().flat_map(requirements).map(|requirement| {
            let values = requirement.values.iter().flatten().map(|value| value.len() + size_of::<String>());
            requirement.key.len() + requirement.operator.len() + values.sum::<usize>()
        });
        let tolerations =
            self.tolerations.iter().map(|own| text(&own.key) + text(&own.value) + size_of::<Toleration>() / 4);
        BESIDE_TEXT + selector.chain(terms).chain(tolerations).sum::<usize>()
    }

    pub(crate) fn without_text(&self) -> Self {
        Self { class: self.class.clone(), system: self.system, is_gated: self.is_gated, ..Self::default() }
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
