//! A workload check in progress: its input, and what it has seen so far.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, OnceLock},
};

use k8s_openapi::{api::core::v1::Toleration, jiff::Timestamp};

use winpool_core::{
    plan::{Admission, CheckScope, NodeChoice, QUESTIONS, node_groups::NodeGroups},
    pod::{Class, PodSpec, tolerate},
};

use super::{
    Mask,
    seen::{NewestSets, SeenWorkload},
};

/// The memory for what pods require of nodes, in bytes. Every user can write much of that, without a pod.
const CHOICES: usize = 8 << 20;

/// The memory for one of them besides its texts, and for one quotation mark of a text.
const OVERHEAD: (usize, usize) = (200, 20);

/// A check in progress.
#[derive(Clone, Debug)]
pub struct WorkloadCheck {
    pub(super) scope: CheckScope,
    pub(super) by_name: HashMap<Arc<str>, usize>,
    /// The questions about each node.
    pub(super) candidates: Vec<Mask>,
    /// Those for which a workload that fits the node counts: the node is a candidate, or a node of a pool for which the
    /// taint is to be approved.
    pub(super) concerned: Vec<Mask>,
    /// Those of pools that enforce: the node gets these taints if no workload counts against them.
    pub(super) coming: Vec<Mask>,
    /// The nodes in groups for which all of this is equal. Made for the first pod that needs them.
    pub(super) groups: OnceLock<NodeGroups>,
    /// Every pod of another controller may be one. This map needs less memory than a hash map while it grows.
    pub(super) workloads: BTreeMap<String, SeenWorkload>,
    /// The newest `ReplicaSets` of each rollout controller.
    pub(super) newest_sets: HashMap<String, NewestSets>,
    pub(super) unlisted: BTreeMap<String, String>,
    pub(super) used_classes: BTreeSet<String>,
    /// The requirements of pods and templates on nodes that nodes of another operating system may meet too. True if one
    /// does, and `None` until that is known.
    pub(super) choices: Vec<(NodeChoice, Option<bool>)>,
    pub(super) by_choice: HashMap<String, usize>,
    /// Their size in memory, roughly.
    pub(super) size_of_choices: usize,
}

impl WorkloadCheck {
    pub fn start(mut scope: CheckScope) -> Self {
        scope.questions.truncate(QUESTIONS);
        let empty = || vec![0; scope.nodes.len()];
        let (mut candidates, mut concerned, mut coming) = (empty(), empty(), empty());
        for (bit, question) in scope.questions.iter().enumerate() {
            for node in &question.candidates {
                candidates[*node] |= 1 << bit;
                coming[*node] |= Mask::from(question.enforces) << bit;
            }
            let of_pool = question.to_approve.iter().flat_map(|pool| &pool.present);
            for node in question.candidates.iter().chain(of_pool) {
                concerned[*node] |= 1 << bit;
            }
        }
        Self {
            by_name: scope.nodes.iter().enumerate().map(|(index, node)| (Arc::clone(&node.name), index)).collect(),
            candidates,
            concerned,
            coming,
            groups: OnceLock::new(),
            scope,
            workloads: BTreeMap::new(),
            newest_sets: HashMap::new(),
            unlisted: BTreeMap::new(),
            used_classes: BTreeSet::new(),
            choices: Vec::new(),
            by_choice: HashMap::new(),
            size_of_choices: 0,
        }
    }

    /// Replaces what a cache or an earlier answer showed by what the API server has at the start of the listing. `now` is
    /// its time, in whole seconds.
    pub fn begin(&mut self, classes: impl IntoIterator<Item = (String, Class)>, admission: Admission, now: Timestamp) {
        self.scope.classes = classes.into_iter().collect();
        (self.scope.admission, self.scope.now) = (admission, now);
    }

    /// The input, fixed at the start.
    pub fn scope(&self) -> &CheckScope {
        &self.scope
    }

    /// Records that the API server does not allow to list this kind, named in the plural.
    pub fn unlisted(&mut self, plural: &str, message: String) {
        self.unlisted.insert(plural.to_owned(), message);
    }

    /// The choices of nodes for which it is still unknown if a node of another system matches them.
    pub fn undecided(&self) -> Vec<NodeChoice> {
        let open = self.choices.iter().filter(|(_, answer)| answer.is_none());
        open.map(|(choice, _)| choice.clone()).collect()
    }

    /// Records if a node of another system matches this choice.
    pub fn decide(&mut self, choice: &NodeChoice, on_another_system: bool) {
        if let Some(index) = self.by_choice.get(&key(choice)) {
            self.choices[*index].1 = Some(on_another_system);
        }
    }

    pub(super) fn untolerated(&self, tolerations: &[Toleration]) -> Mask {
        let questions = self.scope.questions.iter().enumerate();
        questions
            .filter(|(_, question)| !tolerate(tolerations, &question.taint))
            .fold(0, |all, (bit, _)| all | 1 << bit)
    }

    pub(super) fn class(&self, name: &str) -> Option<&Class> {
        self.scope.planned_classes.get(name).or_else(|| self.scope.classes.get(name))
    }

    /// Records that a pod or a template uses this class, if it exists.
    pub(super) fn uses(&mut self, class: Option<&String>) {
        if let Some(name) = class.filter(|name| !self.used_classes.contains(*name) && self.class(name).is_some()) {
            self.used_classes.insert(name.clone());
        }
    }

    /// The index of what this pod requires of nodes; `None` if too much is kept already. The pod then counts as one for
    /// Windows.
    pub(super) fn choice(&mut self, spec: &PodSpec) -> Option<usize> {
        let choice = NodeChoice::of(spec);
        let key = key(&choice);
        if let Some(index) = self.by_choice.get(&key) {
            return Some(*index);
        }
        let size = key.len() + OVERHEAD.0 + OVERHEAD.1 * key.matches('"').count();
        if self.size_of_choices + size > CHOICES {
            return None;
        }
        self.size_of_choices += size;
        let index = self.choices.len();
        self.by_choice.insert(key, index);
        self.choices.push((choice, None));
        Some(index)
    }
}

/// The requirements as a text by which they are found again.
fn key(choice: &NodeChoice) -> String {
    serde_json::to_string(&(&choice.selector, &choice.terms)).unwrap_or_default()
}
