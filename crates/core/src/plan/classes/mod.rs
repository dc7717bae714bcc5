//! The RuntimeClasses of a pool: discovered and declared ones, and those that it created earlier.

pub mod runtime_class;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Toleration;
use k8s_openapi::api::node::v1::RuntimeClass;
use kube::ResourceExt;

use crate::api::names::{self, is_class_name, reason};
use crate::api::{DEFAULT_ARCHITECTURE, ObjectReference, PROCESS_ISOLATION_HANDLER, Problem, RuntimeClassSpec, Taint};
use crate::plan::classes::runtime_class::{DesiredClass, PlannedClass, owner, plan_class};
use crate::plan::nodes::capability_labels;
use crate::plan::nodes::numbers::NodeSummary;
use crate::plan::pools::pool::{Hosts, Policy, Pool};
use crate::pod::selector_of;
use crate::pod::tolerations::{normalised, toleration};
use crate::windows::{Build, builds};
use crate::words::count;

/// The limit of other writers' taints that a class tolerates: a node can register with any taint.
const FOREIGN_TAINTS: usize = 16;

/// The plan for the classes of a pool.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClassesPlan {
    /// The wanted classes, by name.
    pub classes: Vec<PlannedClass>,
    /// Names of classes that have the pool's label and that it does not want.
    pub leftover: Vec<String>,
    /// The classes that are to select a capability label when nodes have it, each with the number of nodes that lack it; 0
    /// if that is not known yet.
    pub to_label: BTreeMap<String, usize>,
    /// Problems that belong to no class above.
    pub problems: Vec<Problem>,
}

impl ClassesPlan {
    /// The builds whose nodes its classes select.
    pub(crate) fn builds(&self) -> impl Iterator<Item = Build> + '_ {
        self.classes.iter().filter_map(|planned| planned.desired.hosts.build())
    }

    /// The builds whose capability labels nodes get: those that a class is to select, and those that one still selects.
    pub(crate) fn images(&self, existing: &[Arc<RuntimeClass>]) -> BTreeSet<Build> {
        let of_class = |PlannedClass { desired: DesiredClass { name, hosts, .. }, .. }: &PlannedClass| {
            let image = hosts.build()?;
            let label = capability_labels::key(image);
            let selects_label = |class: &Arc<RuntimeClass>| {
                class.metadata.name.as_ref() == Some(name) && selector_of(class).contains_key(&label)
            };
            let is_by_label =
                self.to_label.contains_key(name) || hosts.is_by_label() || existing.iter().any(selects_label);
            is_by_label.then_some(image)
        };
        self.classes.iter().filter_map(of_class).collect()
    }
}

/// Plans the classes of `pool`. `seen` returns the facts about a pool's nodes, `existing` are all RuntimeClasses of
/// the cluster.
///
/// A pool never takes a class that an older pool wants, not even for a moment: an adopted class keeps the tolerations
/// that it gets.
pub fn plan_classes(
    pool: &Pool,
    policy: &Policy,
    seen: &dyn Fn(&str) -> NodeSummary,
    existing: &[Arc<RuntimeClass>],
    selects_nodes: &dyn Fn(&BTreeMap<String, String>) -> bool,
) -> ClassesPlan {
    let (wanted, plan) = wanted(pool, &seen(&pool.spec.name), existing);
    let older: Vec<(&str, BTreeSet<String>)> = policy
        .pools()
        .filter(|other| other.spec.enforces() && policy.is_older(&other.spec.name, &pool.spec.name))
        .map(|other| (other.spec.name.as_str(), class_names(other, seen, existing)))
        .collect();
    let classes = wanted.into_values().map(|class| {
        let taken_by = older.iter().find(|(_, names)| names.contains(&class.name)).map(|(name, _)| *name);
        let found = existing.iter().find(|found| found.metadata.name.as_ref() == Some(&class.name));
        plan_class(class, taken_by, found.map(AsRef::as_ref), policy, selects_nodes)
    });
    ClassesPlan { classes: classes.collect(), ..plan }
}

/// The names of the classes that all other pools want, even if they do not get them.
pub fn classes_of_others(
    pool: &Pool,
    policy: &Policy,
    seen: &dyn Fn(&str) -> NodeSummary,
    existing: &[Arc<RuntimeClass>],
) -> BTreeSet<String> {
    let others = policy.pools().filter(|other| other.spec.name != pool.spec.name && other.spec.enforces());
    others.flat_map(|other| class_names(other, seen, existing)).collect()
}

/// The names of the classes that a pool wants.
fn class_names(pool: &Pool, seen: &dyn Fn(&str) -> NodeSummary, existing: &[Arc<RuntimeClass>]) -> BTreeSet<String> {
    wanted(pool, &seen(&pool.spec.name), existing).0.into_keys().collect()
}

/// The classes that a pool wants, without regard to other pools, and the rest of the plan.
fn wanted(
    pool: &Pool,
    seen: &NodeSummary,
    existing: &[Arc<RuntimeClass>],
) -> (BTreeMap<String, DesiredClass>, ClassesPlan) {
    let (mut classes, mut problems, mut to_label) = (BTreeMap::new(), Vec::new(), BTreeMap::new());
    let owned = existing.iter().filter(|class| owner(class) == Some(&pool.spec.name));
    let owned: BTreeSet<String> = owned.map(|class| class.name_any()).collect();
    let mut labels_first = |hosts: Hosts, name: &str, problems: &mut Vec<Problem>| {
        // It selects its build until the nodes have the label.
        match (hosts, seen.awaited_capabilities.get(name)) {
            (Hosts::Running(image), Some((build, nodes))) if image == *build => {
                to_label.insert(name.to_owned(), *nodes);
                problems.extend((*nodes > 0).then(|| awaited_capability_problem(name, image, *nodes)));
                Hosts::Of(image)
            }
            (hosts, _) => hosts,
        }
    };
    for (hosts, spec) in &pool.spec.declared {
        let hosts = labels_first(*hosts, &spec.name, &mut problems);
        classes.insert(spec.name.clone(), desired_class(pool, hosts, &spec.name, Some(spec), seen));
    }
    if pool.spec.discover {
        problems.extend(unnamed_problem(pool, seen));
        let known = builds::all().iter().map(|product| product.build).chain(pool.spec.named_builds.keys().copied());
        for build in known.collect::<BTreeSet<Build>>() {
            let Some(name) = pool.spec.class_name(build) else { continue };
            // Discovered classes stay when their last node goes, because workloads name them.
            if !seen.builds.contains_key(&build) && !owned.contains(&name) {
                continue;
            }
            if !is_class_name(&name) {
                problems.push(name_problem(&name, pool, build));
            } else if !classes.contains_key(&name) {
                let hosts = labels_first(pool.spec.discovered_hosts(build), &name, &mut problems);
                classes.insert(name.clone(), desired_class(pool, hosts, &name, None, seen));
            }
        }
    }
    let leftover = owned.into_iter().filter(|name| !classes.contains_key(name)).collect();
    (classes, ClassesPlan { classes: Vec::new(), leftover, to_label, problems })
}

fn awaited_capability_problem(class: &str, build: Build, nodes: usize) -> Problem {
    let message = format!(
        "selects the build {build} until the label {} is on {} that can run its images",
        capability_labels::key(build),
        count(nodes, "more node")
    );
    Problem::new(reason::WAITING_FOR_LABELS, ObjectReference::runtime_class(class), message)
}

pub fn is_declared(pool: &Pool, class: &str) -> bool {
    pool.spec.declared.iter().any(|(_, spec)| spec.name == class)
}

/// The problem of builds without a name, which get no class: a node can report any number as its build.
fn unnamed_problem(pool: &Pool, seen: &NodeSummary) -> Option<Problem> {
    let unnamed: Vec<&Build> = seen.builds.keys().filter(|build| pool.spec.version_of(**build).is_none()).collect();
    let example = unnamed.first()?;
    let message = format!(
        "{} without a name in this release, such as {example}, and so without a RuntimeClass: name it in spec.buildNames, such \
         as {{build: {example}, version: preview}}",
        count(unnamed.len(), "build")
    );
    Some(Problem::new(reason::BUILD_NOT_NAMED, ObjectReference::windows_pool(&pool.spec.name), message))
}

fn name_problem(name: &str, pool: &Pool, build: Build) -> Problem {
    let message = format!(
        "the RuntimeClass of build {build} would be called {name:?}, which is no DNS subdomain of at most 63 characters; \
         choose a shorter spec.runtimeClassNameFormat"
    );
    Problem::new(reason::CLASS_NAME_INVALID, ObjectReference::windows_pool(&pool.spec.name), message)
}

/// The class of this name, with what the pool declares of it.
fn desired_class(
    pool: &Pool,
    hosts: Hosts,
    name: &str,
    declared: Option<&RuntimeClassSpec>,
    seen: &NodeSummary,
) -> DesiredClass {
    let mut node_selector = pool.spec.node_selector.clone();
    node_selector.extend(declared.into_iter().flat_map(|spec| spec.node_selector.clone()));
    node_selector.insert(names::OS.to_owned(), names::WINDOWS.to_owned());
    let architecture = declared.map_or(DEFAULT_ARCHITECTURE, |spec| &spec.architecture);
    // A pool that selects one architecture has no other nodes.
    node_selector.entry(names::ARCH.to_owned()).or_insert_with(|| architecture.to_owned());
    match hosts {
        // The nodes whose container runtime has the handler are in the class's own selector.
        Hosts::Any | Hosts::HyperV(_) => None,
        Hosts::Of(build) => node_selector.insert(names::WINDOWS_BUILD.to_owned(), build.to_string()),
        // A RuntimeClass cannot select several builds by their labels.
        Hosts::Running(build) => node_selector.insert(capability_labels::key(build), "true".to_owned()),
    };
    DesiredClass {
        name: name.to_owned(),
        pool: pool.spec.name.clone(),
        hosts,
        isolation: declared.map(|spec| spec.isolation).unwrap_or_default(),
        handler: declared.map_or(PROCESS_ISOLATION_HANDLER, RuntimeClassSpec::effective_handler).to_owned(),
        overhead: declared.and_then(|spec| spec.overhead.clone()).unwrap_or_default().pod_fixed,
        node_selector,
        tolerations: tolerations(pool, seen, declared.map_or(&[], |spec| &spec.tolerations)),
    }
}

/// The tolerations of the pool's taints, the retired ones, winpool's taints that nodes still carry, and a limited
/// number of other taints on its nodes, known spellings first.
fn tolerations(pool: &Pool, seen: &NodeSummary, own: &[Toleration]) -> Vec<Toleration> {
    let (lingering, mut foreign): (Vec<&Taint>, Vec<&Taint>) =
        seen.tolerate.iter().partition(|taint| pool.managed_taints.contains(taint));
    foreign.sort_by_key(|taint| !taint.marks_windows());
    let foreign = foreign.into_iter().take(FOREIGN_TAINTS);
    let taints = pool.spec.tolerated_taints.iter().chain(&pool.spec.retired_taints).chain(lingering).chain(foreign);
    normalised(taints.map(toleration).chain(own.iter().cloned()))
}
