//! What happens to new pods before the scheduler sees them: the node selectors of namespaces, the levels of PodSecurity, the
//! flavors of Kueue, and winpool's admission policies.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Toleration;
use serde::Deserialize;
use serde_json::Value;
use winpool_core::api::{Effect, Taint};
use winpool_core::plan::pools::pool::GuardedPool;
use winpool_core::pod::{Class, tolerate};
use winpool_core::words::joined;

use crate::pod::PodSpec;
use crate::pod_security::{ENFORCE, PodSecurity, VERSION};

use super::policies::{InForce, NAME_OF_NAMESPACE};
use super::related::CONFIGURATION;
use super::{Creation, NODE_SELECTORS, Related, View};

/// What is added to new pods by their namespace, their queue and policies, and which pods the API server refuses.
#[derive(Clone, Debug, Default)]
pub struct Admission {
    selectors: BTreeMap<String, BTreeMap<String, String>>,
    levels: BTreeMap<String, Option<PodSecurity>>,
    /// That of other namespaces.
    default_level: Option<PodSecurity>,
    labels: Arc<BTreeMap<String, BTreeMap<String, String>>>,
    policies: Arc<InForce>,
    related: Arc<Related>,
}

/// What is added to a new pod.
#[derive(Clone, Debug, Default)]
pub struct Added<'a> {
    /// The labels that its namespace adds to the `nodeSelector`.
    pub selector: Option<&'a BTreeMap<String, String>>,
    /// A label of which pod and namespace select different values, with that of the namespace. The API server refuses the pod.
    pub conflict: Option<(&'a String, &'a String)>,
    /// What Kueue does with it, if it is in a queue.
    pub queued: Option<Queued>,
    /// What winpool's policies add, as the ends of sentences about the policy.
    pub by_policies: Vec<String>,
}

/// What Kueue does with the pods of a queue.
#[derive(Clone, Debug, PartialEq)]
pub enum Queued {
    /// It starts them with the labels and tolerations of this flavor.
    With(Flavor),
    /// It never starts them, for these reasons.
    Never(String),
    /// It is not known with which flavor it starts them, for this reason.
    Unknown(String),
}

impl Queued {
    /// Returns that Kueue never starts the pods, with the reasons, if so.
    pub fn never(&self) -> Option<String> {
        if let Self::Never(why) = self { Some(format!("Kueue never starts the pods: {why}")) } else { None }
    }

    /// Returns why it is not known with which flavor Kueue starts the pods, if so.
    pub fn unknown(&self) -> Option<&String> {
        if let Self::Unknown(why) = self { Some(why) } else { None }
    }

    /// True if the label is one of the flavor.
    pub fn adds(&self, key: &str) -> bool {
        matches!(self, Self::With(flavor) if flavor.node_labels.contains_key(key))
    }
}

/// A `ResourceFlavor` of Kueue.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Flavor {
    node_labels: BTreeMap<String, String>,
    node_taints: Vec<Taint>,
    tolerations: Vec<Toleration>,
}

impl Admission {
    pub(super) fn of(view: &View) -> Self {
        let selectors = view.namespace_labels.iter().map(|(name, labels)| {
            let selected = NODE_SELECTORS.iter().filter_map(|key| labels.get(*key)).flat_map(|text| text.split(','));
            let pairs = selected.filter_map(|pair| pair.split_once('='));
            (name.clone(), pairs.map(|(key, value)| (key.trim().to_owned(), value.trim().to_owned())).collect())
        });
        let selectors = selectors.filter(|(_, selector): &(String, BTreeMap<_, _>)| !selector.is_empty());
        let (default, exempt) = defaults(&view.related);
        let level = |labels: &BTreeMap<String, String>| {
            let all: BTreeMap<_, _> = default.clone().into_iter().chain(labels.clone()).collect();
            PodSecurity::of(&all, view.kubernetes)
        };
        let levels = view.namespace_labels.iter().map(|(name, labels)| (name.clone(), level(labels)));
        let exempt = exempt.into_iter().map(|name| (name, None));
        Self {
            selectors: selectors.collect(),
            levels: levels.chain(exempt).collect(),
            default_level: level(&BTreeMap::new()),
            labels: Arc::new(
                view.namespace_labels.iter().map(|(name, labels)| (name.clone(), named(name, labels))).collect(),
            ),
            policies: Arc::new(InForce::of(view)),
            related: Arc::clone(&view.related),
        }
    }

    /// Returns the same with these pools and RuntimeClasses, which policies read.
    #[must_use]
    pub fn with(&self, pools: &[Arc<GuardedPool>], classes: &BTreeMap<String, Class>) -> Self {
        Self { policies: Arc::new(self.policies.with(pools, classes)), ..self.clone() }
    }

    /// Adds to a new pod what its namespace, Kueue and policies add; only policies change a DaemonSet. What the pod selects itself
    /// stays.
    pub fn admit(&self, creation: Creation<'_>, spec: &mut PodSpec) -> Added<'_> {
        let namespace = creation.namespace;
        let queued = self.queued(namespace, spec);
        let selector = self.selectors.get(namespace);
        let conflict = selector.into_iter().flatten().find(|(key, value)| spec.selects_another(key, value));
        for (key, value) in selector.into_iter().flatten() {
            spec.node_selector.entry(key.clone()).or_insert_with(|| value.clone());
        }
        if let Some(Queued::With(flavor)) = &queued {
            flavor.admit(spec);
        }
        let by_policies = self.admit_by_policies(creation, spec);
        Added { selector, conflict, queued, by_policies }
    }

    /// Adds what policies add, and returns it as the ends of sentences about the policy.
    pub fn admit_by_policies(&self, creation: Creation<'_>, spec: &mut PodSpec) -> Vec<String> {
        match self.labels.get(creation.namespace) {
            Some(labels) => self.policies.admit(creation, labels, spec),
            None => self.policies.admit(creation, &named(creation.namespace, &BTreeMap::new()), spec),
        }
    }

    /// Returns the level of PodSecurity that the namespace enforces, if it is known.
    pub fn level_of(&self, namespace: &str) -> Option<PodSecurity> {
        self.levels.get(namespace).copied().unwrap_or(self.default_level)
    }

    /// Returns the keys of all labels that may be added.
    pub fn keys(&self) -> impl Iterator<Item = String> {
        let of_flavors = self.related.all("ResourceFlavor").map(|flavor| &flavor["spec"]["nodeLabels"]);
        let of_flavors = of_flavors.filter_map(Value::as_object).flat_map(|labels| labels.keys().cloned());
        self.selectors.values().flat_map(|selector| selector.keys().cloned()).chain(of_flavors)
    }

    /// Returns what Kueue does with pods of this template; `None` if they are in no queue. It reads the template alone, without the
    /// tolerations of a RuntimeClass (kubernetes-sigs/kueue#14770).
    fn queued(&self, namespace: &str, template: &PodSpec) -> Option<Queued> {
        let queue = template.queue.as_deref()?;
        Some(self.flavor(namespace, queue, template).unwrap_or_else(|missing| {
            Queued::Unknown(format!(
                "Kueue adds the labels and tolerations of a ResourceFlavor to pods of LocalQueue {queue}, and winpool does not know {missing}"
            ))
        }))
    }

    fn flavor(&self, namespace: &str, queue: &str, template: &PodSpec) -> Result<Queued, String> {
        let find = |kind: &str, namespace: &str, name: &str| {
            let found = self.related.get(kind, namespace, name).map(|object| &object["spec"]);
            found.ok_or_else(|| if namespace.is_empty() { format!("{kind} {name}") } else { format!("this {kind}") })
        };
        let cluster_queue = find("LocalQueue", namespace, queue)?["clusterQueue"].as_str().unwrap_or_default();
        let groups =
            find("ClusterQueue", "", cluster_queue)?["resourceGroups"].as_array().map_or(&[][..], Vec::as_slice);
        let [group] = groups else {
            return Err(format!("which resource groups of ClusterQueue {cluster_queue} count"));
        };
        let names = group["flavors"].as_array().into_iter().flatten().filter_map(|flavor| flavor["name"].as_str());
        let (mut fitting, mut reasons) = (Vec::new(), Vec::new());
        for name in names {
            let spec = find("ResourceFlavor", "", name)?;
            let flavor = Flavor::deserialize(spec).map_err(|error| format!("ResourceFlavor {name}: {error}"))?;
            match flavor.lacked_by(template) {
                Some(reason) => reasons.push(format!("ResourceFlavor {name} {reason}")),
                None => fitting.push((name, flavor)),
            }
        }
        match fitting.as_slice() {
            [] => Ok(Queued::Never(reasons.join("; "))),
            [(_, flavor)] => Ok(Queued::With(flavor.clone())),
            several => Err(format!("which one: {}", joined(several.iter().map(|(name, _)| name)))),
        }
    }
}

/// Returns the labels with the one by which policies select the namespace.
fn named(name: &str, labels: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let name = (NAME_OF_NAMESPACE.to_owned(), name.to_owned());
    labels.clone().into_iter().chain([name]).collect()
}

/// Returns the labels that a namespace has by default for PodSecurity, and the namespaces that are exempt, as the configuration of the
/// API server says: alone, or in an `AdmissionConfiguration`.
fn defaults(related: &Related) -> (BTreeMap<String, String>, Vec<String>) {
    let plugins = related.all("AdmissionConfiguration").filter_map(|all| all["plugins"].as_array()).flatten();
    let plugins = plugins.filter(|plugin| plugin["name"] == "PodSecurity").map(|plugin| &plugin["configuration"]);
    let all: Vec<&Value> = related.all(CONFIGURATION).chain(plugins).collect();
    let label = |(field, label): (&str, &str)| {
        Some((label.to_owned(), all.iter().find_map(|one| one["defaults"][field].as_str())?.to_owned()))
    };
    let exempt = all.iter().filter_map(|one| one["exemptions"]["namespaces"].as_array()).flatten();
    let labels = [("enforce", ENFORCE), ("enforce-version", VERSION)].into_iter().filter_map(label).collect();
    (labels, exempt.filter_map(|name| name.as_str().map(str::to_owned)).collect())
}

impl Flavor {
    /// Returns why Kueue does not use the flavor for pods of this template.
    fn lacked_by(&self, template: &PodSpec) -> Option<String> {
        if let Some((key, value)) = self.node_labels.iter().find(|(key, value)| template.selects_another(key, value)) {
            return Some(format!("is for nodes with {key}={value}"));
        }
        let tolerations: Vec<Toleration> = template.tolerations.iter().chain(&self.tolerations).cloned().collect();
        let keeps_off = |taint: &&Taint| taint.effect != Effect::PreferNoSchedule && !tolerate(&tolerations, taint);
        let taint = self.node_taints.iter().find(keeps_off)?;
        Some(format!(
            "has the taint {taint}, which the template does not tolerate; Kueue ignores the tolerations of a RuntimeClass"
        ))
    }

    /// Adds the labels and tolerations to a pod.
    fn admit(&self, spec: &mut PodSpec) {
        for (key, value) in &self.node_labels {
            spec.node_selector.entry(key.clone()).or_insert_with(|| value.clone());
        }
        spec.tolerations.extend(self.tolerations.iter().cloned());
    }
}
