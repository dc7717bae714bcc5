//! The pods that need a capability label.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use k8s_openapi::api::node::v1::RuntimeClass;
use kube::ResourceExt;

use crate::{
    api::names,
    labels::Labels,
    pod::{Pod, PodProgress, selector_of},
};

/// The time for which "no pod needs it" is assumed to stay true.
const UNUSED: Duration = Duration::from_secs(5);

/// The limit of labels that are kept for one node. A pod can select thousands, and pools have at most 64 classes.
const LABELS: usize = 1000;

/// The unfinished pods that select capability labels.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelUsers {
    /// One pod for each node and label. `None` stands for no node.
    pods: BTreeMap<Option<String>, BTreeMap<String, String>>,
    /// The RuntimeClasses that stay and select a label.
    classes: BTreeMap<String, String>,
    /// The reason why the pods are unknown.
    unreadable: Option<String>,
}

impl LabelUsers {
    /// Any pod may need any label, because pods cannot be listed for this reason.
    pub fn unreadable(message: &str) -> Self {
        Self { unreadable: Some(format!("pods cannot be listed: {message}")), ..Self::default() }
    }

    /// Adds the labels that the pod needs until it has finished.
    pub fn add(&mut self, pod: &Pod) {
        if pod.progress == PodProgress::Finished {
            return;
        }
        let expressions = pod.spec.terms.iter().flat_map(|term| term.match_expressions.iter().flatten());
        let keys = pod.spec.node_selector.keys().chain(expressions.map(|expression| &expression.key));
        for key in keys.filter(|key| key.starts_with(names::CAPABILITY_LABEL_PREFIX)) {
            let of_node = self.pods.entry(pod.spec.node.clone()).or_default();
            if of_node.len() >= LABELS && !of_node.contains_key(key) {
                let select = || format!("pods such as {}/{} select too many labels", pod.namespace, pod.name);
                self.unreadable.get_or_insert_with(select);
                return;
            }
            of_node.entry(key.clone()).or_insert_with(|| format!("{}/{}", pod.namespace, pod.name));
        }
    }

    /// Adds a RuntimeClass that stays. Its next pod may come to any node.
    pub fn add_class(&mut self, class: &RuntimeClass) {
        let labels = selector_of(class).into_keys().filter(|key| key.starts_with(names::CAPABILITY_LABEL_PREFIX));
        self.classes.extend(labels.map(|label| (label, format!("RuntimeClass {}", class.name_any()))));
    }

    /// A pod on this node, or without a node, that selects this label, or a RuntimeClass; or the reason why that is unknown.
    pub fn of(&self, node: &str, label: &str) -> Option<String> {
        let on = |node: Option<String>| self.pods.get(&node)?.get(label).cloned();
        let by_class = || self.classes.get(label).cloned();
        on(Some(node.to_owned())).or_else(|| on(None)).or_else(by_class).or_else(|| self.unreadable.clone())
    }
}

impl<'a> FromIterator<&'a Pod> for LabelUsers {
    fn from_iter<I: IntoIterator<Item = &'a Pod>>(pods: I) -> Self {
        let mut users = Self::default();
        pods.into_iter().for_each(|pod| users.add(pod));
        users
    }
}

/// The result of a search for pods that need labels of one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelSearch {
    at: Instant,
    /// The labels that were searched for. Each has a pod that needs it, or the reason why pods cannot be listed.
    labels: BTreeMap<String, Option<String>>,
}

impl LabelSearch {
    pub(super) fn new(labels: BTreeMap<String, Option<String>>, at: Instant) -> Self {
        Self { at, labels }
    }

    /// True if the label may leave the node now.
    pub(super) fn frees(&self, label: &str, now: Instant) -> bool {
        self.labels.get(label).is_some_and(Option::is_none) && now < self.at + UNUSED
    }

    /// The pod that needs the label, if one was found.
    pub(super) fn user(&self, label: &str) -> Option<&str> {
        self.labels.get(label)?.as_deref()
    }

    /// The time of the next search for pods that need the label.
    pub(super) fn again(&self, label: &str, patience: Duration) -> Option<Instant> {
        let needed = self.labels.get(label)?.is_some();
        Some(self.at + if needed { patience } else { UNUSED })
    }

    /// The same, if the node still has one of the labels.
    pub(super) fn still(found: Option<&Arc<Self>>, labels: &Labels) -> Option<Arc<Self>> {
        found.filter(|found| found.labels.keys().any(|key| labels.get(key).is_some())).cloned()
    }
}
