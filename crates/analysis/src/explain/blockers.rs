//! The workloads and pools that are pinned to a Windows version, and the changes that they need.

mod departure;
mod group;

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::jiff::civil::Date;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use winpool_core::api::{Isolation, ObjectReference, WindowsPool, names};
use winpool_core::plan::pools::pool::{Hosts, Pool};
use winpool_core::pod::{OS_KEYS, SYSTEM_LABELS};
use winpool_core::windows::Build;
use winpool_core::windows::builds::{Product, by_version};
use winpool_core::windows::compatibility::{Runs, WindowsHost};

use crate::explain::images::{Move, moved};
use crate::image::name::build_of;
use crate::image::{Sign, can_run, runs, tags};
use crate::kubernetes::KubernetesSupport;
use crate::lint::Facts;
use crate::pod::{ClassExt, Target, isolation_with, path_of};
use crate::remedy::{Edit, Remedy};
use crate::verdict::AdmittedPod;
use crate::view::QUEUE;
use crate::workload::WorkloadManifest;

pub use departure::{Evidence, departure, evidence, unknown};
pub use group::{Group, group};

/// The kind of field that pins a workload or a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum By {
    /// `nodeSelector`.
    Selector,
    /// Required node affinity.
    Affinity,
    /// `runtimeClassName`.
    Class,
    /// The tag of an image.
    Image,
    /// `nodeName`, which its author has set.
    NodeName,
    /// The node selector of its namespace, or the `ResourceFlavor` of its queue.
    Admission,
    /// A RuntimeClass that a pool declares.
    Declared,
    /// The RuntimeClass that a pool gives to pods without one.
    PodDefault,
    /// A pool's name for a build.
    NamedBuild,
}

/// A field that pins an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Pin {
    /// The kind of field.
    pub by: By,
    /// The path of the field in the object.
    pub field: String,
    /// The value of the field.
    pub value: String,
    /// The change that moves it.
    pub remedy: Remedy,
    /// The location of the image for the target, if a registry was queried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub moves_to: Option<MovesTo>,
}

impl Pin {
    fn new(by: By, field: String, value: &str, remedy: impl Into<Remedy>) -> Self {
        Self { by, field, value: value.to_owned(), remedy: remedy.into(), moves_to: None }
    }
}

/// The location of the image for the target of a migration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum MovesTo {
    /// The same tag has a variant for the target; no change is necessary.
    SameTag,
    /// Another tag has a variant for the target.
    OtherTag,
    /// None of the tags that winpool checked has a variant for the target.
    Nowhere,
    /// The registry does not provide the answer.
    Unknown,
}

/// A pinned object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Blocker {
    /// The workload or WindowsPool.
    pub object: ObjectReference,
    /// The fields that pin it.
    pub pins: Vec<Pin>,
}

/// A Windows version that you retire.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RetiredWindows {
    /// The build, as in the label.
    pub build: String,
    /// The name of the product.
    pub product: String,
    /// The last day of Microsoft's mainstream support.
    #[schemars(with = "String")]
    pub mainstream_end: Date,
    /// The last day of any support by Microsoft.
    #[schemars(with = "String")]
    pub end_of_support: Date,
    /// The version of Kubernetes, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kubernetes: Option<String>,
    /// The support of the build in the documentation of that version.
    pub kubernetes_support: KubernetesSupport,
    /// The number of remaining nodes with the build; absent if the nodes are not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_count: Option<usize>,
}

impl RetiredWindows {
    /// Returns the facts about this version.
    pub fn of(product: &Product, facts: &Facts) -> Self {
        let version = facts.kubernetes;
        Self {
            build: product.build.to_string(),
            product: product.name.to_owned(),
            mainstream_end: product.mainstream_end,
            end_of_support: product.end_of_support,
            kubernetes: version.map(|version| version.to_string()),
            kubernetes_support: version.map_or(KubernetesSupport::Unknown, |version| version.support_of(product.build)),
            node_count: facts.knows_nodes().then(|| facts.builds().get(&product.build).copied().unwrap_or_default()),
        }
    }
}

/// Returns the fields that pin this workload to `retired`, if any; with `target`, also the changes that move it there.
pub fn blockers(
    workload: &WorkloadManifest<'_>,
    facts: &Facts,
    retired: Build,
    target: Option<Build>,
) -> Option<Blocker> {
    let pod = &workload.pod;
    let mut pins = Vec::new();
    let mut pin = |by, field: &str, value: &str, remedy: Remedy| {
        pins.push(Pin::new(by, workload.field(field), value, remedy));
    };
    let label = retired.to_string();
    if pod.selected(names::WINDOWS_BUILD) == Some(label.as_str()) {
        let key = names::WINDOWS_BUILD;
        let open = || Remedy::of(vec![Edit::unselect(key)]).and(", or name another build").undecided();
        let remedy = target.map_or_else(open, |to| Remedy::of(vec![Edit::select(key, &to.to_string())]));
        pin(By::Selector, "nodeSelector", &format!("{key}: {label}"), remedy);
    }
    if let Some(allowed) = pod.affinity_values(names::WINDOWS_BUILD)
        && allowed.iter().all(|value| *value == label)
        && !allowed.is_empty()
    {
        let key = names::WINDOWS_BUILD;
        let build = target.map_or_else(|| "another build".to_owned(), |to| to.to_string());
        let remedy = Remedy::advice(format!("allow {build} in {key} of the node affinity"));
        pin(By::Affinity, "affinity.nodeAffinity", &format!("{key} in {label}"), remedy);
    }
    if let Some(name) = &pod.runtime_class
        && let Some(class) = facts.classes().get(name)
        && class.build() == Some(retired)
    {
        let other = target.and_then(|to| facts.classes_of(to).next());
        let remedy = match (other, target) {
            (Some((other, _)), _) => Remedy::of(vec![Edit::class(other)]),
            (None, Some(to)) => Remedy::advice(format!("name a RuntimeClass of {to}; there is none yet")),
            (None, None) => Remedy::advice("name a RuntimeClass of another build"),
        };
        let tagged = || pod.images().filter(|(container, _)| !container.is_host_process);
        let images = tagged().filter_map(|(_, name)| build_of(name)).chain([retired]);
        let stays = |to: Build| images.map(|image| facts.runs(Isolation::Process, image, to)).max();
        let remedy = match (facts.compatible(name), target.and_then(stays)) {
            (Some(pool), Some(stays @ (Runs::Yes | Runs::IfContainerd(_)))) => {
                let condition = match stays {
                    Runs::IfContainerd(since) => format!(" and their containerd is {since} or later"),
                    _ => String::new(),
                };
                let or = format!("; or, if you upgrade the nodes in place{condition}, {}", pool.text);
                remedy.and(&or).undecided()
            }
            _ => remedy,
        };
        pin(By::Class, "runtimeClassName", name, remedy);
    }
    let new = facts.pod_of(workload);
    let pods = facts.admitted(&new, workload);
    if let Some(added) = facts.added_for(&pods, retired) {
        let (field, value) = match &pod.queue {
            Some(queue) if pods.added.selector.is_none() => (QUEUE, queue.as_str()),
            _ => ("metadata.namespace", workload.namespace()),
        };
        pins.push(Pin::new(By::Admission, field.to_owned(), value, Remedy::advice(added)));
    }
    if pins.is_empty() || cloud_builds(&pod.node_selector).any(|build| build == retired) {
        pins.extend(label_pin(workload, &pods, facts, retired, target));
    }
    pins.extend(image_pins(workload, facts, retired, target, !pins.is_empty()));
    (!pins.is_empty()).then(|| Blocker { object: workload.object(), pins })
}

/// Returns the field by which a Windows workload selects nodes of `retired` only, though there are nodes of other builds.
fn label_pin(
    workload: &WorkloadManifest<'_>,
    pods: &AdmittedPod<'_>,
    facts: &Facts,
    retired: Build,
    target: Option<Build>,
) -> Option<Pin> {
    let (pod, class) = (&workload.pod, facts.known_class(&workload.pod));
    let is_for_windows = matches!(facts.target(pod), Target::Windows | Target::WindowsImage);
    let selects = |selector: &BTreeMap<String, String>| cloud_builds(selector).any(|build| build == retired);
    let by_table = selects(&pod.node_selector) || class.is_some_and(|class| selects(&class.selector));
    let is_only = || facts.builds_of(pods) == BTreeSet::from([retired]);
    if !is_for_windows || !by_table && !is_only() {
        return None;
    }
    let chosen = |selector: &BTreeMap<String, String>| -> Vec<String> {
        selector.iter().filter(|(key, _)| chooses(key)).map(|(key, value)| format!("{key}: {value}")).collect()
    };
    let labels = chosen(&pod.node_selector);
    let (by, field, value) = match &pod.runtime_class {
        _ if pod.node.is_some() => (By::NodeName, "nodeName", pod.node.clone().unwrap_or_default()),
        _ if !labels.is_empty() => (By::Selector, "nodeSelector", labels.join(", ")),
        _ if !pod.terms.is_empty() => {
            (By::Affinity, "affinity.nodeAffinity", format!("allows nodes of {retired} only"))
        }
        Some(name) if class.is_some_and(|class| !chosen(&class.selector).is_empty()) => {
            (By::Class, "runtimeClassName", name.clone())
        }
        _ => return None,
    };
    let nodes = target.map_or_else(|| "nodes of another build".to_owned(), |to| format!("nodes of {to}"));
    let other = target.filter(|_| by == By::Selector).and_then(|to| label_of_build(&pod.node_selector, facts, to));
    let unnamed = || match by {
        By::NodeName => Remedy::advice(format!("remove nodeName, or name one of the {nodes}")),
        _ => Remedy::advice(format!("select {nodes}; now only nodes of {retired} match")),
    };
    let remedy = other.map_or_else(unnamed, |label| Remedy::of(vec![label]));
    Some(Pin::new(by, workload.field(field), &value, remedy))
}

/// True for labels that do not say the operating system, the architecture or the build.
fn chooses(key: &str) -> bool {
    !OS_KEYS.contains(&key) && ![names::ARCH, names::WINDOWS_BUILD].contains(&key)
}

/// Selects the label, such as `agentpool: win-2022`, of nodes of this build in place of the only one in the selector.
fn label_of_build(selector: &BTreeMap<String, String>, facts: &Facts, build: Build) -> Option<Edit> {
    let mut chosen = selector.keys().filter(|key| chooses(key));
    let (key, None) = (chosen.next()?, chosen.next()) else { return None };
    Some(Edit::select(key, facts.value_of_build(build, key)?))
}

/// The label with the version of Windows on nodes of GKE: `2022`.
const GKE_VERSION: &str = "cloud.google.com/gke-windows-os-version";

/// Returns the builds that labels of clouds name, such as `kubernetes.azure.com/os-sku: Windows2019`.
fn cloud_builds(selector: &BTreeMap<String, String>) -> impl Iterator<Item = Build> {
    selector.iter().filter_map(|(key, value)| {
        let value = value.to_ascii_lowercase();
        let version = match key.as_str() {
            GKE_VERSION => Some(value.as_str()),
            key => value.strip_prefix("windows").filter(|_| SYSTEM_LABELS.contains(&key)),
        };
        by_version(version?).map(|product| product.build)
    })
}

/// Returns the images that keep a workload on `retired`, by their tags or by the answers of registries. If another
/// field pins the workload, returns every image that was resolved, to show which of them must be built.
fn image_pins(
    workload: &WorkloadManifest<'_>,
    facts: &Facts,
    retired: Build,
    target: Option<Build>,
    is_pinned: bool,
) -> Vec<Pin> {
    // Host-process containers run on every build.
    let images = workload.pod.images().filter(|(container, _)| !container.is_host_process);
    let class = facts.known_class(&workload.pod);
    let isolation = isolation_with(class);
    let wanted = workload.pod.wanted_builds(class);
    let has_moved =
        wanted.is_some_and(|hosts| hosts.iter().any(|host| *host != retired && can_run(isolation, retired, *host)));
    let stays = target.is_some_and(|target| facts.runs(isolation, retired, target) == Runs::Yes);
    let hosts = |build: Build| facts.hosts().filter(|host| host.kernel.build == build).collect::<Vec<_>>();
    let pins = images.filter_map(|(container, name)| {
        let moved = target.and_then(|target| moved(name, target, &hosts(target), isolation, facts.images()));
        let is_for_it = match facts.images().sign(name) {
            Some(Sign::Registry(image)) => image.builds().eq([retired]),
            Some(Sign::Tag(build)) => build == retired && !stays,
            None => false,
        };
        let own_path = format!("{}.image", path_of(container));
        let change = || image_change(&own_path, name, retired, target);
        let (remedy, moves_to) = match &moved {
            None => (change(), None),
            Some(Move::SameTag(version)) => {
                let none = format!("none: this image has a variant that runs there, {version}");
                (Remedy::advice(none), Some(MovesTo::SameTag))
            }
            Some(Move::OtherTag(other)) => {
                (Remedy::of(vec![Edit::set_field(&own_path, other)]), Some(MovesTo::OtherTag))
            }
            Some(Move::Nowhere) => (change(), Some(MovesTo::Nowhere)),
            Some(Move::Unknown(reason)) => (Remedy::advice(format!("unknown: {reason}")), Some(MovesTo::Unknown)),
        };
        let counts = match moves_to {
            Some(MovesTo::SameTag) => is_pinned,
            _ => !has_moved && is_for_it || is_pinned && moves_to.is_some(),
        };
        let field = workload.field(&own_path);
        // Such a pod has no template: the field is elsewhere in the object.
        let remedy =
            if workload.is_assembled() { Remedy::advice(remedy.text.replace(&own_path, &field)) } else { remedy };
        counts.then(|| Pin { moves_to, ..Pin::new(By::Image, field, name, remedy) })
    });
    pins.collect()
}

/// Returns the class of this workload if the class is unknown and no other field limits the builds of its nodes. Then
/// it is also unknown what pins the workload.
pub fn unknown_class<'a>(workload: &'a WorkloadManifest<'_>, facts: &Facts) -> Option<&'a str> {
    let pod = &workload.pod;
    let name = pod.runtime_class.as_deref()?;
    let is_open = !facts.knows_class(name) && pod.builds().is_none() && facts.target(pod) != Target::Linux;
    is_open.then_some(name)
}

/// Returns the fields of this pool that are for `retired`, if any; with `target`, also the changes that move it there.
///
/// An invalid pool creates no classes and has no blockers.
pub fn pool_blockers(pool: &WindowsPool, facts: &Facts, retired: Build, target: Option<Build>) -> Option<Blocker> {
    let (read, spec) = (Pool::read(pool).ok()?, &pool.spec);
    let declared =
        |name: &str| read.spec.declared.iter().find(|(_, class)| class.name == name).map(|(hosts, _)| hosts.build());
    let mut pins = Vec::new();
    for (index, class) in spec.runtime_classes.iter().enumerate() {
        if declared(&class.name).flatten() != Some(retired) {
            continue;
        }
        let (key, value) = match (&class.build, &class.version) {
            (Some(build), _) => ("build", build.as_str()),
            (None, version) => ("version", version.as_deref().unwrap_or_default()),
        };
        let then = format!("remove the class {} once no pod uses it", class.name);
        let change = target.map_or_else(|| then.clone(), |to| format!("declare a class of {to}, and {then}"));
        let field = format!("spec.runtimeClasses[{index}].{key}");
        pins.push(Pin::new(By::Declared, field, value, change));
    }
    let default = spec.pod_defaults.as_ref().and_then(|defaults| defaults.runtime_class_name.as_deref());
    let build_of = |name: &str| match (declared(name), facts.classes().get(name)) {
        (Some(build), _) => build,
        (None, Some(class)) => class.build(),
        (None, None) => {
            (read.spec.discover && read.spec.class_name(retired).as_deref() == Some(name)).then_some(retired)
        }
    };
    if let Some(name) = default.filter(|name| build_of(name) == Some(retired)) {
        let remedy = match target.map(|to| (to, class_of(&read, to))) {
            Some((_, Some(other))) => Remedy::of(vec![Edit::set(&["spec", "podDefaults", "runtimeClassName"], other)]),
            Some((to, None)) => Remedy::advice(format!("declare a class of {to}, and name it here")),
            None => Remedy::advice("name a RuntimeClass of another build"),
        };
        let field = "spec.podDefaults.runtimeClassName".to_owned();
        pins.push(Pin::new(By::PodDefault, field, name, remedy));
    }
    let label = retired.to_string();
    for (index, named) in spec.build_names.iter().enumerate().filter(|(_, named)| named.build == label) {
        let field = format!("spec.buildNames[{index}]");
        let change = "remove it with the last node of this build".to_owned();
        pins.push(Pin::new(By::NamedBuild, field, &format!("{label}: {}", named.version), change));
    }
    let object = ObjectReference::windows_pool(&read.spec.name);
    (!pins.is_empty()).then_some(Blocker { object, pins })
}

/// Returns the pool's class for this build: a declared class, or the one that it creates when a node has the build.
fn class_of(pool: &Pool, build: Build) -> Option<String> {
    let declared = pool.spec.declared.iter().find(|(hosts, _)| *hosts == Hosts::Of(build));
    let discovered = || pool.spec.class_name(build).filter(|_| pool.spec.discover);
    declared.map(|(_, class)| class.name.clone()).or_else(discovered)
}

/// Returns the change of the image at this field of the pod spec.
pub(super) fn image_change(field: &str, name: &str, retired: Build, target: Option<Build>) -> Remedy {
    let Some(target) = target else { return Remedy::advice("build the image for another version") };
    let moved = match tags::for_build(name, target) {
        Some(image) => Remedy::of(vec![Edit::set_field(field, image)]).and(", once it exists").undecided(),
        None => Remedy::advice(format!("build the image for {target}")),
    };
    match runs(Isolation::Process, retired, WindowsHost { build: target, runtime: None }) {
        Runs::IfContainerd(since) => moved.and(&format!("; may stay where containerd is {since} or later")),
        _ => moved,
    }
}
