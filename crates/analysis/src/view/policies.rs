//! winpool's admission policies that change new pods and `DaemonSets`, as the API server applies them (`config/components/`).

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use k8s_openapi::api::core::v1::{NodeSelectorRequirement, NodeSelectorTerm};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::ResourceExt;
use kube::core::{Selector, SelectorExt};
use regex::Regex;
use serde::Deserialize;
use winpool_core::api::{
    ANY_VERSION, ClassState, DEFAULT_ARCHITECTURE, Effect, Isolation, Mode, RuntimeClassStatus, Taint, TaintPolicy,
    WindowsPool, names,
};
use winpool_core::plan::pools::pool::GuardedPool;
use winpool_core::pod::tolerations::toleration;
use winpool_core::pod::{ARCH_KEYS, BETA_OS, Class, OS_KEYS, is_on_windows_only, tolerate};
use winpool_core::windows::Build;
use winpool_core::windows::builds;
use winpool_core::windows::compatibility::can_run;
use winpool_core::windows::taint::SPELLINGS;
use winpool_core::words::joined;

use crate::placement::HOSTNAME;
use crate::pod::{ClassExt, PodSpec};
use crate::reference::assign_class::pattern;

use super::{Known, Related, View};

/// The kind of the policies.
pub const POLICY: &str = "MutatingAdmissionPolicy";
/// The kind of what puts a policy in force.
pub const BINDING: &str = "MutatingAdmissionPolicyBinding";
pub(crate) const ADMISSION: &[&str] = &["admissionregistration.k8s.io/v1"];

pub const ASSIGN_CLASS: &str = "winpool-assign-class";
const HOST_AFFINITY: &str = "winpool-host-affinity";
const LINUX: &str = "winpool-linux-by-default";
const TOLERATE: &str = "winpool-tolerate-windows";
/// The names of the last two are the beginnings of two policies each, which end with these.
const KINDS: [&str; 2] = ["-pods", "-daemonsets"];

/// The label of each namespace with its name.
pub(crate) const NAME_OF_NAMESPACE: &str = "kubernetes.io/metadata.name";

/// The policies of a cluster that are in force, by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Policies(BTreeMap<String, Bound>);

/// A policy with its binding.
#[derive(Clone, Debug, PartialEq)]
struct Bound {
    /// Selects the namespaces in which it applies.
    namespaces: Selector,
    /// The pool that the binding names; `None` if it names all.
    pool: Option<String>,
}

impl Policies {
    /// Returns winpool's policies among these objects.
    pub fn of(related: &Related) -> Known<Self> {
        let policy = |name: &str| {
            let policy = related.get(POLICY, "", name)?;
            let selector = &policy["spec"]["matchConstraints"]["namespaceSelector"];
            let selector = Option::<LabelSelector>::deserialize(selector).ok()?.unwrap_or_default();
            Selector::try_from(selector).ok()
        };
        let bound = related.all(BINDING).filter_map(|binding| {
            let name = binding["spec"]["policyName"].as_str().filter(|name| is_known(name))?;
            let pool = binding["spec"]["paramRef"]["name"].as_str().map(str::to_owned);
            Some((name.to_owned(), Bound { namespaces: policy(name)?, pool }))
        });
        let found = Self(bound.collect());
        match [POLICY, BINDING].map(|kind| related.listed(kind)) {
            [Some(Err(reason)), _] | [_, Some(Err(reason))] => Known::Forbidden(reason.to_owned()),
            [Some(Ok(())), Some(Ok(()))] => Known::Complete(found),
            _ if found.0.is_empty() => Known::NotRead,
            _ => Known::Partial(found),
        }
    }

    /// Returns the pool that the policy `assign-class` reads, if it is in force.
    pub fn pool_of_assign_class(&self) -> Option<Option<&str>> {
        self.0.get(ASSIGN_CLASS).map(|bound| bound.pool.as_deref())
    }
}

/// True for the name of one of these policies.
pub(crate) fn is_known(name: &str) -> bool {
    let of_kind = |prefix| KINDS.iter().any(|kind| name.strip_prefix(prefix) == Some(kind));
    [ASSIGN_CLASS, HOST_AFFINITY].contains(&name) || [LINUX, TOLERATE].into_iter().any(of_kind)
}

/// The policies in force, with what they read.
#[derive(Clone, Debug, Default)]
pub(super) struct InForce {
    policies: Policies,
    pools: Vec<WindowsPool>,
    classes: BTreeMap<String, Class>,
}

/// What policies read of a pod or a template beside its spec.
#[derive(Clone, Copy, Debug)]
pub struct Creation<'a> {
    pub namespace: &'a str,
    pub request: Request,
    /// True if it has the annotation `winpool.dev/ignore`.
    pub is_ignored: bool,
}

/// The request with which the API server gets a pod spec.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// The creation of a pod.
    Pod,
    /// The creation of a DaemonSet. Policies change its template.
    DaemonSet,
    /// None: the object exists, and policies have seen it before.
    Earlier,
}

impl InForce {
    pub(super) fn of(view: &View) -> Self {
        let policies = Policies::of(&view.related).known().cloned().unwrap_or_default();
        let pools: Vec<_> = view.guarded().into_iter().flatten().cloned().map(Arc::new).collect();
        Self { policies, ..Self::default() }.with(&pools, &view.class_fields())
    }

    /// Returns the same policies with these pools and RuntimeClasses.
    pub(super) fn with(&self, pools: &[Arc<GuardedPool>], classes: &BTreeMap<String, Class>) -> Self {
        let pools = pools
            .iter()
            .filter_map(|pool| Some(WindowsPool { status: pool.status.clone(), ..pool.pool().ok()?.clone() }));
        Self { policies: self.policies.clone(), pools: pools.collect(), classes: classes.clone() }
    }

    /// Changes a new pod, or the template of a new DaemonSet, in a namespace with these labels, its name among them. Returns what was
    /// added, as the ends of sentences about the policy.
    pub(super) fn admit(
        &self,
        creation: Creation<'_>,
        labels: &BTreeMap<String, String>,
        spec: &mut PodSpec,
    ) -> Vec<String> {
        let mut added = Vec::new();
        let is_daemon_set = creation.request == Request::DaemonSet;
        if self.policies.0.is_empty() || spec.node.is_some() || creation.request == Request::Earlier {
            return added;
        }
        let bound = |name: &str| self.policies.0.get(name).filter(|bound| bound.namespaces.matches(labels));
        let of_kind = |prefix: &str| bound(&format!("{prefix}{}", KINDS[usize::from(is_daemon_set)]));
        if !is_daemon_set {
            let from_namespace = labels.get(names::RUNTIME_CLASS).map(String::as_str);
            for pool in self.enforced(bound(ASSIGN_CLASS)) {
                added.extend(assign_class(pool, from_namespace, spec));
            }
            for pool in self.enforced(bound(HOST_AFFINITY)) {
                added.extend(host_affinity(pool, spec));
            }
        }
        if of_kind(LINUX).is_some() && says_no_system(spec) {
            spec.node_selector.insert(names::OS.to_owned(), "linux".to_owned());
            added.push("linux-by-default adds the nodeSelector kubernetes.io/os=linux".to_owned());
        }
        for pool in self.enforced(of_kind(TOLERATE).filter(|_| !creation.is_ignored)) {
            if pool.spec.taint_policy == TaintPolicy::TaintAndTolerate {
                added.extend(self.tolerate(pool, is_daemon_set, spec));
            }
        }
        added
    }

    /// Returns the pools that the policy reads and that are enforced.
    fn enforced(&self, bound: Option<&Bound>) -> impl Iterator<Item = &WindowsPool> {
        let pools = bound.into_iter().flat_map(|bound| {
            self.pools.iter().filter(|pool| bound.pool.as_ref().is_none_or(|name| *name == pool.name_any()))
        });
        pools.filter(|pool| pool.spec.mode == Mode::Enforce && pool.metadata.deletion_timestamp.is_none())
    }

    /// `tolerate-windows`.
    fn tolerate(&self, pool: &WindowsPool, is_daemon_set: bool, spec: &mut PodSpec) -> Option<String> {
        // The API server adds the class to a pod first.
        let class = spec.runtime_class.as_ref().and_then(|name| self.classes.get(name)).filter(|_| !is_daemon_set);
        let mut merged = spec.clone();
        if let Some(class) = class {
            class.admit(&mut merged);
        }
        let is_of_pool = || {
            let name = spec.runtime_class.as_deref()?;
            classes(pool).iter().find(|class| class.name == name && class.state != ClassState::Conflict)
        };
        let is_for_windows =
            [spec.os.as_deref(), merged.selected(names::OS)].iter().flatten().all(|os| *os == names::WINDOWS);
        let by_labels = selects_windows_by_labels(&merged);
        let fits = || pool.spec.node_selector.iter().all(|(key, value)| !merged.selects_another(key, value));
        let says = by_labels || spec.os.is_some() || is_of_pool().is_some();
        if !(is_for_windows && says && fits()) {
            return None;
        }
        let mut added = Vec::new();
        if !by_labels {
            spec.node_selector.insert(names::OS.to_owned(), names::WINDOWS.to_owned());
            added.push("the nodeSelector kubernetes.io/os=windows");
        }
        let mut taints = tolerated(pool);
        taints.retain(|taint| !tolerate(&merged.tolerations, taint));
        if !taints.is_empty() {
            spec.tolerations.extend(taints.iter().map(toleration));
            added.push("tolerations of the taints of Windows nodes");
        }
        let words = added.join(" and ");
        (!words.is_empty()).then(|| format!("tolerate-windows adds {words}"))
    }
}

/// The taints that the policy `tolerate-windows` knows of a pool.
fn tolerated(pool: &WindowsPool) -> Vec<Taint> {
    let spellings = || SPELLINGS.iter().map(|own| Taint::new(own.key, own.value, "NoSchedule")).collect();
    let mut taints: Vec<Taint> = pool.spec.taints.clone().unwrap_or_else(spellings);
    taints.extend(pool.spec.retired_taints.iter().cloned());
    taints.retain(|taint| taint.effect == Effect::NoSchedule);
    taints
}

fn classes(pool: &WindowsPool) -> &[RuntimeClassStatus] {
    pool.status.as_ref().map_or(&[], |status| &status.runtime_classes)
}

fn expressions(term: &NodeSelectorTerm) -> &[NodeSelectorRequirement] {
    term.match_expressions.as_deref().unwrap_or_default()
}

fn has_fields(term: &NodeSelectorTerm) -> bool {
    term.match_fields.as_ref().is_some_and(|fields| !fields.is_empty())
}

/// True if the selector or an expression of a term has a key like this.
fn names_key(spec: &PodSpec, is_key: impl Fn(&str) -> bool) -> bool {
    spec.node_selector.keys().any(|key| is_key(key))
        || spec.terms.iter().flat_map(expressions).any(|expression| is_key(&expression.key))
}

/// True if nothing in the spec names an operating system, for the policy `linux-by-default`.
fn says_no_system(spec: &PodSpec) -> bool {
    let is_os = |key: &str| OS_KEYS.contains(&key) || is_on_windows_only(key);
    let says = spec.os.is_some() || spec.runtime_class.is_some() || spec.has_windows_options;
    !(says || names_key(spec, is_os) || spec.names_a_windows_taint())
}

/// True if labels put the pod on Windows nodes, for the policy `tolerate-windows`.
fn selects_windows_by_labels(spec: &PodSpec) -> bool {
    let expects = |expression: &NodeSelectorRequirement| {
        let (key, operator) = (expression.key.as_str(), expression.operator.as_str());
        let mut values = expression.values.iter().flatten();
        OS_KEYS.contains(&key) && operator == "In" && values.all(|value| value == names::WINDOWS)
            || key == names::WINDOWS_BUILD && ["In", "Exists"].contains(&operator)
    };
    let mut terms = spec.selecting_terms().peekable();
    OS_KEYS.iter().any(|key| spec.selected(key) == Some(names::WINDOWS))
        || spec.node_selector.keys().any(|key| is_on_windows_only(key))
        || terms.peek().is_some() && terms.all(|term| expressions(term).iter().any(expects))
}

/// The releases whose tags the policies read, with the expression of their images.
static TAGS: LazyLock<Vec<(Build, Regex)>> = LazyLock::new(|| {
    let releases = builds::all().iter().filter(|product| product.is_ltsc);
    releases.filter_map(|product| Some((product.build, Regex::new(&pattern(product)).ok()?))).collect()
});

/// Returns the builds in the tag of each image.
fn builds_of_images(spec: &PodSpec) -> Vec<Vec<Build>> {
    let of_image = |image: &str| {
        let name = image.split('@').next().unwrap_or_default().to_ascii_lowercase();
        TAGS.iter().filter(|(_, tags)| tags.is_match(&name)).map(|(build, _)| *build).collect()
    };
    spec.images().map(|(_, image)| of_image(image)).collect()
}

/// `assign-class`: the first source that names a class decides, unless the pod contradicts that class.
fn assign_class(pool: &WindowsPool, from_namespace: Option<&str>, spec: &mut PodSpec) -> Option<String> {
    let is_open = spec.os.as_deref() == Some(names::WINDOWS) && spec.runtime_class.is_none() && !spec.has_host_network;
    let chooses = |key: &str| is_on_windows_only(key) || key == HOSTNAME;
    if !is_open || names_key(spec, chooses) || spec.terms.iter().any(has_fields) {
        return None;
    }
    let defaults = pool.spec.pod_defaults.clone().unwrap_or_default();
    let (name, source) = match from_namespace {
        Some(name) if !name.is_empty() => (name.to_owned(), "the label of its namespace"),
        _ => {
            let builds = if defaults.from_image_tags { builds_of_images(spec) } else { Vec::new() };
            if let Some(class) = class_of_tags(pool, &builds, spec) {
                (class, "the tags of its images")
            } else if builds.iter().all(Vec::is_empty) {
                (default_class(pool, defaults.runtime_class_name.as_deref()?, spec)?, "podDefaults")
            } else {
                return None;
            }
        }
    };
    if contradicts(pool, &name, spec) {
        return None;
    }
    spec.node_selector.entry(names::OS.to_owned()).or_insert_with(|| names::WINDOWS.to_owned());
    let given = format!("assign-class gives it RuntimeClass {name}, by {source}");
    spec.runtime_class = Some(name);
    Some(given)
}

fn is_ready(class: &RuntimeClassStatus) -> bool {
    [ClassState::Applied, ClassState::Adopted, ClassState::Satisfied].contains(&class.state)
}

/// True if no label but those of operating system and processor sets the pod apart from other Windows pods.
fn is_unselective(spec: &PodSpec) -> bool {
    let is_general = |key: &String| OS_KEYS.iter().chain(&ARCH_KEYS).any(|general| general == key);
    spec.terms.is_empty() && spec.node_selector.keys().all(is_general)
}

/// Returns the class of the build that the tags of all images name.
fn class_of_tags(pool: &WindowsPool, builds: &[Vec<Build>], spec: &PodSpec) -> Option<String> {
    let [build] = builds.first()?.as_slice() else { return None };
    if !builds.iter().all(|named| named == &[*build]) {
        return None;
    }
    let build = build.to_string();
    let is_usable = |class: &&RuntimeClassStatus| {
        let is_whole = class.state == ClassState::Applied || is_unselective(spec);
        is_ready(class) && class.isolation == Isolation::Process && is_whole && class.build == build
    };
    let usable: Vec<_> = classes(pool).iter().filter(is_usable).collect();
    let discovered = pool.status.iter().flat_map(|status| &status.builds).filter_map(|of| of.runtime_class.as_ref());
    let discovered: Vec<&String> = discovered.collect();
    let chosen = usable.iter().find(|class| usable.len() == 1 || discovered.contains(&&class.name))?;
    Some(chosen.name.clone())
}

fn default_class(pool: &WindowsPool, name: &str, spec: &PodSpec) -> Option<String> {
    let is_it = |class: &&RuntimeClassStatus| class.name == name && is_ready(class);
    classes(pool).iter().find(is_it).filter(|_| is_unselective(spec)).map(|class| class.name.clone())
}

/// True if the pod selects other nodes than the class, as far as the pool tells: the API server would refuse it.
fn contradicts(pool: &WindowsPool, name: &str, spec: &PodSpec) -> bool {
    let declared = pool.spec.runtime_classes.iter().find(|class| class.name == name);
    let of_pool = classes(pool).iter().any(|class| class.name == name);
    let own = declared.map(|class| class.node_selector.clone()).unwrap_or_default();
    let from_pool = if of_pool { pool.spec.node_selector.clone() } else { BTreeMap::new() };
    let mut demands: Vec<(&str, &str)> = [names::OS, BETA_OS].map(|key| (key, names::WINDOWS)).into();
    if of_pool {
        let declared = declared.map_or(DEFAULT_ARCHITECTURE, |class| &class.architecture);
        let architecture = own.get(names::ARCH).or(from_pool.get(names::ARCH)).map_or(declared, String::as_str);
        demands.extend(ARCH_KEYS.map(|key| (key, architecture)));
    }
    demands.extend(own.iter().map(|(key, value)| (&**key, &**value)));
    let others = from_pool.iter().filter(|(key, _)| !own.contains_key(*key));
    demands.extend(others.map(|(key, value)| (&**key, &**value)));
    demands.into_iter().any(|(key, value)| {
        let excludes = |expression: &NodeSelectorRequirement| {
            let has = expression.values.iter().flatten().any(|own| own == value);
            expression.key == key
                && match expression.operator.as_str() {
                    "In" => !has,
                    "NotIn" => has,
                    operator => operator != "Exists",
                }
        };
        spec.selects_another(key, value) || spec.terms.iter().flat_map(expressions).any(excludes)
    })
}

/// `winpool-host-affinity`: a pod of a class for any build gets the builds that run its images.
fn host_affinity(pool: &WindowsPool, spec: &mut PodSpec) -> Option<String> {
    let name = spec.runtime_class.as_ref().filter(|_| !spec.has_host_network)?;
    let is_open = |class: &RuntimeClassStatus| {
        let is_for_any = class.build == ANY_VERSION && class.isolation == Isolation::Process;
        class.name == *name && is_for_any && class.state != ClassState::Conflict
    };
    let chooses = spec.node_selector.keys().any(|key| [names::WINDOWS_BUILD, HOSTNAME].contains(&key.as_str()))
        || spec.terms.iter().any(|term| has_fields(term) || expressions(term).iter().any(|own| own.key == HOSTNAME));
    if chooses || !classes(pool).iter().any(is_open) {
        return None;
    }
    let of_images = builds_of_images(spec);
    let is_host = |host: &Build| of_images.iter().all(|images| matches!(images[..], [image] if can_run(image, *host)));
    let hosts = builds::all().iter().map(|product| product.build).filter(is_host);
    let hosts: Vec<String> = hosts.map(|build| build.to_string()).collect();
    if hosts.is_empty() || of_images.is_empty() {
        return None;
    }
    let words = joined(&hosts);
    let one = NodeSelectorRequirement {
        key: names::WINDOWS_BUILD.to_owned(),
        operator: "In".to_owned(),
        values: Some(hosts),
    };
    if spec.terms.is_empty() {
        spec.terms.push(NodeSelectorTerm { match_expressions: Some(vec![one]), match_fields: None });
    } else {
        let is_about = |own: &NodeSelectorRequirement| own.key == names::WINDOWS_BUILD;
        for term in spec.terms.iter_mut().filter(|term| !expressions(term).is_empty()) {
            if !expressions(term).iter().any(is_about) {
                term.match_expressions.get_or_insert_default().push(one.clone());
            }
        }
    }
    Some(format!("host-affinity requires a node with a build that runs its images: {words}"))
}
