//! Rules about RuntimeClasses: they exist and agree with the pod spec.

use std::collections::BTreeSet;

use winpool_core::api::{Mode, ObjectReference};
use winpool_core::plan::pools::pool::PoolSpec;
use winpool_core::pod::selects_windows;

use crate::finding::Consequence::{Fails, Note, Pending, Rejected};
use crate::finding::Severity::{Error, Info};
use crate::lint::facts::Facts;
use crate::lint::rule::{Hit, Judgement, Rule, Scope, Subject, own, rules};
use crate::pod::ClassExt;
use crate::remedy::{Edit, Remedy};

/// What to do about a handler that no node has.
pub(crate) const CORRECT_HANDLER: &str = "correct the handler of the RuntimeClass, which containerd calls runhcs-wcow-process for Windows, or choose another class";
/// Describes a template whose own labels select the same nodes as its class.
const NEEDLESS: &str = "the DaemonSet controller ignores the selector of the class; each node that is known has all of its labels or is \
                        not selected by the template";
/// The rule about a class that does not exist.
pub(crate) const NOT_FOUND: &str = "class-not-found";
/// The rule about a class and a selector that want different labels.
pub(crate) const CONTRADICTS_SELECTOR: &str = "class-contradicts-selector";

pub(in crate::lint) const RULES: &[Rule] = rules!([
    /// - Breaks in a known cluster: `runtimeClassName: windows-2022`
    Rule {
        id: "daemon-set-relies-on-class",
        verdict: Judgement(Error, Pending),
        scope: Scope::Any,
        field: "runtimeClassName",
        reason: "the DaemonSet controller reads the template's own selector and ignores that of the class: it creates \
                 pods for nodes that the class does not allow, and these pods stay Pending \
                 (kubernetes/kubernetes#111590)",
        remedy: "set the labels of the class in the template's nodeSelector",
        test: own(daemon_set),
        ..Rule::DEFAULT
    },
    /// - Breaks in a known cluster: `runtimeClassName: gone`
    Rule {
        id: NOT_FOUND,
        verdict: Judgement(Error, Rejected),
        scope: Scope::Any,
        field: "runtimeClassName",
        reason: "no RuntimeClass has this name",
        remedy: "name one that exists, or declare it in a WindowsPool's runtimeClasses",
        test: own(not_found),
        ..Rule::DEFAULT
    },
    /// - Breaks in a known cluster: `nodeSelector: {node.kubernetes.io/windows-build: '10.0.17763'}, runtimeClassName:
    ///   windows-2022`
    Rule {
        id: CONTRADICTS_SELECTOR,
        verdict: Judgement(Error, Rejected),
        scope: Scope::Any,
        field: "nodeSelector",
        reason: "nodeSelector and the RuntimeClass's scheduling.nodeSelector require different values of the same \
                 label",
        remedy: "remove the label from nodeSelector, or choose another class",
        test: own(selector),
        ..Rule::DEFAULT
    },
    /// - Breaks in a known cluster: `runtimeClassName: windows-2022, affinity: {nodeAffinity:
    ///   {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key:
    ///   node.kubernetes.io/windows-build, operator: In, values: ['10.0.17763']}]}]}}}`
    Rule {
        id: "class-contradicts-affinity",
        verdict: Judgement(Error, Pending),
        scope: Scope::Any,
        field: "affinity.nodeAffinity",
        reason: "no node satisfies both the required node affinity and the RuntimeClass's selector",
        remedy: "remove the label from the affinity, or choose another class",
        test: own(affinity),
        ..Rule::DEFAULT
    },
    /// - Breaks in a known cluster: `os: {name: linux}, nodeSelector: null, runtimeClassName: windows-2022`
    Rule {
        id: "class-of-another-os",
        verdict: Judgement(Error, Fails),
        scope: Scope::Any,
        field: "runtimeClassName",
        reason: "os.name and the RuntimeClass are for different operating systems, so the kubelet refuses the pod \
                 (PodOSNotSupported)",
        remedy: "choose another class, or another os.name",
        test: own(other_os),
        ..Rule::DEFAULT
    },
    /// - Breaks if no node has its handler: `runtimeClassName: w`
    Rule {
        id: "runtime-handler-missing",
        verdict: Judgement(Error, Fails),
        field: "runtimeClassName",
        reason: "no Windows node that the pod selects has the runtime handler of the RuntimeClass, so no sandbox is \
                 created",
        remedy: CORRECT_HANDLER,
        test: own(handler),
        ..Rule::DEFAULT
    },
]);

fn daemon_set(subject: &Subject<'_>, hits: &mut Vec<Hit>) {
    let (pod, Some(class)) = (subject.pod, subject.class) else { return };
    if !subject.workload.is_daemon_set() || !selects_windows(&class.selector) {
        return;
    }
    let is_required = |key: &str, value: &str| {
        pod.selected(key) == Some(value)
            || pod.affinity_values(key).is_some_and(|values| values == BTreeSet::from([value]))
    };
    let missing = class.selector.iter().filter(|(key, value)| !is_required(key, value));
    let missing: Vec<Edit> = missing.map(|(key, value)| Edit::select(key, value)).collect();
    if !missing.is_empty() {
        let hit = Hit::at("runtimeClassName").remedied_by(missing);
        let is_needless = subject.facts.has_class_on_all(subject.pods);
        hits.push(if is_needless { hit.saying(NEEDLESS.to_owned()).judged(Judgement(Info, Note)) } else { hit });
    }
}

fn not_found(subject: &Subject<'_>, hits: &mut Vec<Hit>) {
    let missing = subject.pod.runtime_class.as_deref().and_then(|name| Some((name, to_create(subject.facts, name)?)));
    if let Some((name, remedy)) = missing {
        let hit = Hit::at("runtimeClassName").saying(format!("there is no RuntimeClass {name} yet"));
        return hits.push(hit.remedied_by(remedy));
    }
    if let Some(name) = &subject.pod.runtime_class
        && subject.facts.lacks_class_of(subject.pod)
    {
        let facts = subject.facts;
        let similar = facts.similar_class(name);
        let meant = similar.map(|similar| format!("; did you mean {similar}?")).unwrap_or_default();
        let hit = Hit::at("runtimeClassName").saying(format!("there is no RuntimeClass {name}{meant}"));
        let names_builds = subject.pod.image_builds().next().is_some();
        let existing: Vec<&str> =
            facts.builds().into_keys().flat_map(|build| facts.classes_of(build)).map(|(name, _)| name).collect();
        let set = |name: &str| Remedy::of(vec![Edit::class(name)]).undecided();
        hits.push(match (similar, super::fitting_class(subject)) {
            (Some(similar), _) => hit.remedied_by(set(similar)),
            (None, Some((other, _))) => hit.remedied_by(set(other).and(", or declare the class")),
            // A class of another build does not help images that name their build.
            (None, None) if names_builds => hit.remedied_by(
                "add nodes that run the images, or declare the class in a WindowsPool's runtimeClasses".to_owned(),
            ),
            (None, None) if existing.is_empty() => hit,
            (None, None) => {
                let named = existing.iter().take(super::NAMED).copied().collect::<Vec<_>>().join(", ");
                hit.remedied_by(format!("name one that exists ({named}), or declare it"))
            }
        });
    }
}

/// Returns how a pool comes to create the class, if the class does not exist yet.
pub fn to_create(facts: &Facts, class: &str) -> Option<Remedy> {
    Some(created_by(&facts.to_come.get(class)?.spec, class))
}

/// Returns what has to be done before a workload may name the class: a pool in dry run does not create it.
pub fn before_naming(facts: &Facts, class: &str) -> Option<Remedy> {
    Some(created_by(&facts.in_dry_run.get(class)?.spec, class))
}

fn created_by(spec: &PoolSpec, class: &str) -> Remedy {
    let name = &spec.name;
    match spec.mode {
        Mode::DryRun => {
            let remedy = Remedy::of(vec![Edit::set(&["spec", "mode"], Mode::Enforce)]).undecided();
            let words = format!(" in WindowsPool {name}, which then creates RuntimeClass {class}");
            Remedy { object: Some(ObjectReference::windows_pool(name)), ..remedy.and(&words) }
        }
        Mode::Enforce => Remedy::advice(format!(
            "wait until winpool has created RuntimeClass {class} for WindowsPool {name}; winpool status shows if it works"
        )),
    }
}

fn selector(subject: &Subject<'_>, hits: &mut Vec<Hit>) {
    let Some(class) = subject.class else { return };
    for (key, value) in &class.selector {
        if let Some(own) = subject.pod.selected(key).filter(|own| own != value) {
            let name = subject.pod.runtime_class.as_deref().unwrap_or_default();
            let message = format!("nodeSelector wants {key}={own} and the RuntimeClass {name} wants {key}={value}");
            hits.push(Hit::at("nodeSelector").saying(message));
        }
    }
}

fn affinity(subject: &Subject<'_>, hits: &mut Vec<Hit>) {
    let Some(class) = subject.class else { return };
    for (key, value) in &class.selector {
        if let Some(allowed) = subject.pod.affinity_values(key).filter(|allowed| !allowed.contains(value.as_str())) {
            let allowed: Vec<&str> = allowed.into_iter().take(4).collect();
            let name = subject.pod.runtime_class.as_deref().unwrap_or_default();
            let message = format!(
                "the required node affinity wants {key} in {} and the RuntimeClass {name} wants {value}",
                allowed.join(", ")
            );
            hits.push(Hit::at("affinity.nodeAffinity").saying(message));
        }
    }
}

fn handler(subject: &Subject<'_>, hits: &mut Vec<Hit>) {
    let Some(class) = subject.class.filter(|_| subject.facts.lacks_handler(subject.pods)) else { return };
    let message = format!(
        "no Windows node that the pod selects has the runtime handler {} of its RuntimeClass, so no sandbox is created",
        class.handler
    );
    hits.push(Hit { remedy: super::change(subject), ..Hit::at("runtimeClassName").saying(message) });
}

fn other_os(subject: &Subject<'_>, hits: &mut Vec<Hit>) {
    let (Some(os), Some(of_class)) = (subject.pod.os.as_deref(), subject.class.and_then(|class| class.os())) else {
        return;
    };
    if os != of_class {
        hits.push(Hit::at("runtimeClassName"));
    }
}
