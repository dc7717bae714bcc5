//! Rules about placement: the pods can be scheduled, and their images start on the nodes.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Toleration;
use serde_json::Value;
use winpool_core::api::{Effect, Mode, Taint, TaintPolicy, names};
use winpool_core::pod::{ARCH_KEYS, BETA_OS, Class, OS_KEYS, System, Tolerance, selects_windows, tolerance, tolerate};
use winpool_core::windows::Build;
use winpool_core::windows::taint::SPELLINGS;
use winpool_core::words::joined;

use crate::finding::Consequence::{Fails, Note, Pending};
use crate::finding::Severity::{Error, Info, Warning};
use crate::lint::field::{cel_list, volumes};
use crate::lint::rejected;
use crate::lint::rule::{Hit, Judgement, Rule, Scope, Subject, Test, own, rules};
use crate::placement::Obstacle;
use crate::pod::{ClassExt, Target};
use crate::remedy::{Edit, Remedy};
use crate::system;

pub(super) mod builds;
pub(super) mod classes;
pub(super) mod images;

/// The values of the label of the operating system.
const SYSTEMS: [&str; 2] = ["windows", "linux"];
const SAY_WINDOWS: &str = "set os.name: windows; set nodeSelector kubernetes.io/os: windows";
const SELECT_WINDOWS: &str = "set nodeSelector kubernetes.io/os: windows";
const TOLERATE: &str = "add the toleration {key: os, operator: Equal, value: windows, effect: NoSchedule}";
/// Follows a remedy that a class makes unnecessary, if the class of the pod does not exist.
const UNLESS_CLASS: &str = ", unless the RuntimeClass that you name or create does";

/// Follows a remedy that selects other labels.
const OR_NODE: &str = "; or add a node that has all of it";

const FOR_LINUX: &str = "; for a Linux workload instead: nodeSelector kubernetes.io/os: linux";

pub(super) const RULES: &[Rule] = rules!([
    /// - Breaks: `os: null`
    Rule {
        id: "os-name-missing",
        verdict: Judgement(Info, Note),
        since: 24,
        field: "os.name",
        reason: "the pod is for Windows and has no os.name, so the API server does not reject the fields that Windows \
                 does not support",
        remedy: "set os.name: windows",
        test: own(|subject, hits| {
            if subject.pod.os.is_none() {
                let refused = rejected::fields(subject);
                let removed = refused.iter().map(|field| Edit::remove_field(field));
                let remedy = Remedy::of(removed.chain([say_windows()]).collect());
                let why = if refused.is_empty() {
                    ""
                } else {
                    "; remove the fields first: with os.name the API server refuses them"
                };
                hits.push(Hit::at("os.name").remedied_by(remedy.and(why)));
            }
        }),
        ..Rule::DEFAULT
    },
    /// - Breaks: `nodeSelector: {kubernetes.io/os: linux, node.kubernetes.io/windows-build: '10.0.20348'}`
    /// - Keeps: `os: {name: linux}, nodeSelector: {kubernetes.io/os: linux}`
    Rule {
        id: "os-contradicts-selector",
        verdict: Judgement(Error, Fails),
        scope: Scope::Any,
        field: "nodeSelector",
        reason: "os.name and nodeSelector name different operating systems, so the kubelet refuses the pod \
                 (PodOSNotSupported)",
        remedy: "make both the same",
        test: Test::Own {
            find: os_contradiction,
            cel: Some(|| {
                format!(
                    "variables.os != '' && {}.exists(k, k in variables.selector && variables.selector[k] != variables.os) \
                     || variables.os == 'linux' && variables.placed",
                    cel_list(OS_KEYS)
                )
            }),
        },
        ..Rule::DEFAULT
    },
    /// - Breaks: `nodeSelector: null`
    /// - Breaks: `nodeSelector: {disk: ssd}`
    /// - Breaks: `nodeSelector: null, affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution:
    ///   {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/os, operator: In, values: [windows]}]},
    ///   {matchFields: [{key: metadata.name, operator: In, values: [win-1]}]}]}}}`. A node has to match one term, and the second
    ///   says nothing about its system.
    /// - Keeps: `nodeSelector: null, runtimeClassName: any`
    /// - Keeps: `nodeSelector: null, nodeName: win-1`
    /// - Keeps: `nodeSelector: null, affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution:
    ///   {nodeSelectorTerms: [{}, {matchExpressions: [{key: kubernetes.io/os, operator: In, values: [windows]}]},
    ///   {matchExpressions: [], matchFields: []}]}}}`. No node matches an empty term.
    Rule {
        id: "os-selector-missing",
        verdict: Judgement(Error, Fails),
        field: "nodeSelector",
        reason: "no selector, affinity or class keeps the pod off Linux nodes, where it never starts; the scheduler \
                 reads neither os.name nor windowsOptions",
        remedy: SELECT_WINDOWS,
        test: Test::Own {
            find: os_selector,
            cel: Some(|| {
                "!variables.placed && !variables.placedElsewhere && !has(variables.pod.nodeName) \
                 && (variables.isDaemonSet || !has(variables.pod.runtimeClassName))"
                    .to_owned()
            }),
        },
        ..Rule::DEFAULT
    },
    /// - Breaks: `os: null, nodeSelector: {kubernetes.io/os: Linux}`
    /// - Breaks: `os: null, nodeSelector: {kubernetes.io/os: darwin}`
    /// - Keeps: `nodeSelector: {kubernetes.io/os: windows, disk: Windows}`
    Rule {
        id: "os-unknown",
        verdict: Judgement(Error, Pending),
        scope: Scope::Any,
        field: "nodeSelector",
        reason: "no node has this operating system, because the label is windows or linux, in lower case",
        remedy: "set nodeSelector kubernetes.io/os: windows, or linux",
        test: own(|subject, hits| {
            let selected = OS_KEYS.iter().filter_map(|key| Some((*key, subject.pod.selected(key)?)));
            for (key, value) in selected.filter(|(_, value)| !SYSTEMS.contains(value)) {
                let value: String = value.chars().take(63).collect();
                let hit = Hit::at("nodeSelector").saying(format!("no node has {key}={value}"));
                let meant = SYSTEMS.iter().find(|system| value.eq_ignore_ascii_case(system));
                hits.push(match meant {
                    Some(system) => hit.remedied_by(vec![Edit::select(key, system)]),
                    None => hit,
                });
            }
        }),
        ..Rule::DEFAULT
    },
    /// - Breaks: `nodeSelector: {beta.kubernetes.io/os: windows}`
    Rule {
        id: "os-selector-beta",
        verdict: Judgement(Info, Note),
        field: "nodeSelector",
        reason: "beta.kubernetes.io/os is deprecated since Kubernetes 1.14",
        remedy: "use kubernetes.io/os",
        test: own(|subject, hits| {
            if let Some(system) = subject.pod.selected(BETA_OS) {
                let edits = vec![Edit::select(names::OS, system), Edit::unselect(BETA_OS)];
                hits.push(Hit::at("nodeSelector").remedied_by(edits));
            }
        }),
        ..Rule::DEFAULT
    },
    /// - Breaks: `os: null, nodeSelector: null, containers: [{image: mcr.microsoft.com/windows/servercore}]`
    /// - Keeps: `containers: [{image: mcr.microsoft.com/windows/servercore}]`
    Rule {
        id: "windows-image-without-os",
        verdict: Judgement(Warning, Fails),
        scope: Scope::WindowsImage,
        field: "nodeSelector",
        reason: "an image is for Windows, and nothing keeps the pod off Linux nodes, where it never starts",
        remedy: SAY_WINDOWS,
        test: own(|subject, hits| {
            if subject.pod.node.is_some() || has_unknown_class(subject) || !subject.facts.may_be_on_linux(subject.pods)
            {
                return;
            }
            let hit = Hit::at("nodeSelector");
            let hit = match doubt(subject) {
                Some(sign) => hit.saying(format!(
                    "{sign}, so the pod is probably for Windows, and nothing keeps it off Linux nodes, where it then never starts"
                )),
                None if subject.facts.guess(subject.pod).is_none_or(|guess| !guess.is_certain()) => hit.saying(
                    "its pods have run on Windows nodes only, and nothing keeps new ones off Linux nodes".to_owned(),
                ),
                None => hit,
            };
            let remedy = Remedy::of(vec![say_windows(), to_windows(subject)]);
            hits.push(hit.remedied_by(or_for_linux(subject, remedy)));
        }),
        ..Rule::DEFAULT
    },
    /// - Breaks in a known cluster: `os: null, nodeSelector: null, tolerations: null`
    Rule {
        id: "linux-may-land-on-windows",
        verdict: Judgement(Warning, Fails),
        scope: Scope::Unplaced,
        field: "nodeSelector",
        reason: "the pod does not say which operating system it needs, and no taint keeps it off the Windows nodes",
        remedy: "set nodeSelector kubernetes.io/os: linux",
        test: own(lands_on_windows),
        ..Rule::DEFAULT
    },
    /// - Breaks in a known cluster: `os: null, nodeSelector: null, tolerations: null, topologySpreadConstraints: [{maxSkew:
    ///   1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app:
    ///   a}}}]`
    Rule {
        id: "spread-over-windows-nodes",
        verdict: Judgement(Warning, Pending),
        scope: Scope::Unplaced,
        field: "topologySpreadConstraints",
        reason: "a spread constraint counts Windows nodes, whose taints the pod does not tolerate, as empty, because \
                 nodeTaintsPolicy is Ignore by default: when every other node has maxSkew pods, the next stay Pending",
        remedy: "set nodeSelector kubernetes.io/os: linux",
        test: own(spread),
        ..Rule::DEFAULT
    },
    /// - Breaks in a known cluster: `nodeSelector: {kubernetes.io/os: windows, disk: ssd}`
    Rule {
        id: "selector-without-node",
        verdict: Judgement(Warning, Pending),
        scope: Scope::AnyWindows,
        field: "nodeSelector",
        reason: "no known Windows node has the labels that the pod selects",
        remedy: "select labels that nodes have, or add such nodes",
        test: own(selector_without_node),
        ..Rule::DEFAULT
    },
    Rule {
        id: "node-name-unsuitable",
        scope: Scope::Any,
        field: "nodeName",
        reason: "nodeName puts the pod on a node on which it does not start",
        remedy: "remove nodeName",
        test: own(chosen_node),
        ..Rule::DEFAULT
    },
    /// - Breaks in a known cluster: `tolerations: null`
    Rule {
        id: "toleration-missing",
        verdict: Judgement(Error, Pending),
        scope: Scope::AnyWindows,
        field: "tolerations",
        reason: "the pod does not tolerate the taints of the Windows nodes; a warning if a WindowsPool adds the \
                 toleration",
        remedy: TOLERATE,
        test: own(toleration),
        ..Rule::DEFAULT
    },
    /// - Breaks in a known cluster: `tolerations: null`
    Rule {
        id: "daemon-set-toleration-missing",
        verdict: Judgement(Error, Pending),
        scope: Scope::AnyWindows,
        field: "tolerations",
        reason: "the DaemonSet controller creates no pods for nodes whose taints the template does not tolerate, and \
                 reports no error; it ignores the tolerations of a RuntimeClass (kubernetes/kubernetes#111590)",
        remedy: "add the tolerations to the template",
        test: own(daemon_set_toleration),
        ..Rule::DEFAULT
    },
    /// - Breaks: `tolerations: null`
    /// - Breaks: `tolerations: [{key: os, value: linux}]`
    /// - Keeps: `tolerations: [{key: os, value: Windows, effect: NoSchedule}]`
    /// - Keeps: `tolerations: [{operator: Exists}]`
    /// - Keeps: `tolerations: null, runtimeClassName: any`
    Rule {
        id: "toleration-unknown",
        verdict: Judgement(Info, Note),
        field: "tolerations",
        reason: "the pod tolerates no Windows taint, and the taints of the nodes are not known; a WindowsPool adds \
         os=windows:NoSchedule by default",
        remedy: TOLERATE,
        test: own(unknown_toleration),
        ..Rule::DEFAULT
    },
    /// - Breaks: `tolerations: [{key: os, operator: Gt, value: '1'}]`
    /// - Breaks: `tolerations: [{operator: Exists}, {key: tier, operator: Maybe}]`
    /// - Keeps: `tolerations: [{key: os, operator: '', value: windows}]`
    Rule {
        id: "toleration-operator-unknown",
        verdict: Judgement(Warning, Note),
        field: "tolerations",
        reason: "winpool cannot tell which taints it tolerates: Gt and Lt need the alpha feature gate \
                 TaintTolerationComparisonOperators, and the API server refuses other operators",
        remedy: "use the operator Equal or Exists",
        test: own(|subject, hits| {
            let is_known = |operator: &str| ["", "Equal", "Exists"].contains(&operator);
            let tolerations = &subject.pod.tolerations;
            if !tolerations.iter().all(|toleration| toleration.operator.as_deref().is_none_or(is_known)) {
                hits.push(Hit::at("tolerations"));
            }
        }),
        ..Rule::DEFAULT
    },
]);

/// True for a rule that compares the pod with nodes. What the pod says of its system by itself is the subject of others.
pub(super) fn depends_on_nodes(rule: &Rule) -> bool {
    let is_about_nodes = rule.scope != Scope::Any && (rule.verdict.1 != Note || rule.id == "toleration-unknown");
    is_about_nodes && RULES.iter().chain(builds::RULES).any(|other| other.id == rule.id)
}

/// Returns the only sign that the pod is for Windows, if that is not certain.
fn doubt(subject: &Subject<'_>) -> Option<&'static str> {
    subject.facts.guess_of_admitted(subject.pods).and_then(system::doubt)
}

/// Adds what to do if the workload is for Linux, unless it is certainly for Windows.
fn or_for_linux(subject: &Subject<'_>, remedy: Remedy) -> Remedy {
    if doubt(subject).is_some() { remedy.and(FOR_LINUX).probable() } else { remedy }
}

fn say_windows() -> Edit {
    Edit::set(&["spec", "os", "name"], names::WINDOWS)
}

/// Puts the pod on Windows nodes: those of its class, if there is one, or all.
fn to_windows(subject: &Subject<'_>) -> Edit {
    fitting_class(subject).map_or_else(Edit::select_windows, |(name, _)| Edit::class(name))
}

/// Returns the class of the build that the pod asks for, by its selector or by all of its images. `None` for a DaemonSet, because
/// its controller ignores classes, for a pod that has a class or a node, and if there are nodes and none has the build.
fn fitting_class<'a>(subject: &Subject<'a>) -> Option<(&'a str, &'a Class)> {
    let (pod, facts) = (subject.pod, subject.facts);
    let is_open = pod.node.is_none() && (pod.runtime_class.is_none() || facts.lacks_class_of(pod));
    let (build, there) = (pod.asked_build().filter(|_| is_open)?, facts.builds());
    class_of(subject, build).filter(|_| there.is_empty() || there.contains_key(&build))
}

/// Returns the most suitable class of this build that the workload may name.
fn class_of<'a>(subject: &Subject<'a>, build: Build) -> Option<(&'a str, &'a Class)> {
    let mut classes = subject.facts.classes_of(build).filter(|_| subject.workload.takes_class());
    classes.find(|(_, class)| class.conflict(subject.pod).is_none())
}

/// Returns true if the RuntimeClass of the pod exists perhaps, and its selector and tolerations are not known.
fn has_unknown_class(subject: &Subject<'_>) -> bool {
    subject.pod.runtime_class.is_some() && subject.class.is_none() && !subject.facts.lacks_class_of(subject.pod)
}

fn os_contradiction(subject: &Subject<'_>, hits: &mut Vec<Hit>) {
    let Some(os) = &subject.pod.os else { return };
    if OS_KEYS.iter().any(|key| subject.pod.selected(key).is_some_and(|selected| selected != os)) {
        hits.push(Hit::at("nodeSelector"));
    } else if os == "linux" && subject.pod.placed_system() == Some(System::Windows) {
        hits.push(Hit::at("nodeSelector").saying("os.name is linux, and the pod selects Windows nodes".to_owned()));
    }
}

fn os_selector(subject: &Subject<'_>, hits: &mut Vec<Hit>) {
    let pod = subject.pod;
    // If the class of a DaemonSet selects Windows, another rule reports what the template lacks.
    let is_by_class = match subject.class {
        Some(class) => selects_windows(&class.selector),
        None => has_unknown_class(subject) && !subject.workload.is_daemon_set(),
    };
    let is_placed = pod.placed_system().is_some()
        || pod.requests_windows_resource()
        || !subject.facts.may_be_on_linux(subject.pods);
    if !is_placed && pod.node.is_none() && !is_by_class {
        let remedy = Remedy::of(vec![to_windows(subject)]);
        hits.push(Hit::at("nodeSelector").remedied_by(unless_class(subject, remedy)));
    }
}

fn selector_without_node(subject: &Subject<'_>, hits: &mut Vec<Hit>) {
    let is_refused = subject.class.is_some_and(|class| class.conflict(subject.pod).is_some());
    let closest = subject.facts.closest(subject.pods).filter(|_| subject.pod.node.is_none() && !is_refused);
    let Some((node, lacked)) = closest else { return };
    let field = match lacked.as_slice() {
        [Obstacle::Affinity(_)] => "affinity.nodeAffinity",
        _ => "nodeSelector",
    };
    let lacked = joined(lacked.iter().map(|obstacle| subject.pods.describe(obstacle)));
    let message =
        format!("no known Windows node has all that the pod selects: on the closest, {}, {lacked}", node.name);
    let change = change(subject).map(|change| change.and(OR_NODE).undecided());
    hits.push(Hit { remedy: change, ..Hit::at(field).saying(message) });
}

/// Returns the change with which the pods run, as `why` proposes it. `None` if no change of them helps.
fn change(subject: &Subject<'_>) -> Option<Remedy> {
    let remedy = subject.pods.remedy(&subject.facts.cluster);
    Some(remedy).filter(|remedy| !remedy.edits.is_empty() && subject.facts.has_nodes())
}

/// True if a Linux selector changes nothing but that the pod keeps off Windows nodes, as far as winpool knows.
fn may_be_sent_to_linux(subject: &Subject<'_>) -> bool {
    let (pod, facts) = (subject.pod, subject.facts);
    // Other labels may exclude nodes that are not known, or be those of Windows nodes.
    let selects = || pod.node_selector.keys().any(|key| !ARCH_KEYS.contains(&key.as_str()));
    let is_unclear = !facts.has_nodes() && (!pod.terms.is_empty() || selects());
    let chooses = is_unclear || pod.node.is_some() || pod.runtime_class.is_some();
    // What has started there is not for Linux alone.
    !chooses && facts.started_on_windows(subject.workload).is_none() && facts.linux_takes(subject.pods)
}

fn chosen_node(subject: &Subject<'_>, hits: &mut Vec<Hit>) {
    let Some(name) = &subject.pod.node else { return };
    let hit = |message| Hit { remedy: change(subject), ..Hit::at("nodeName").saying(message) };
    match subject.facts.chosen(subject.pods) {
        // Another rule is about those for no system on Windows nodes.
        Some((node, _)) if node.is_windows() && subject.target == Target::Unknown => {}
        Some((_, on)) if on.starts == Some(false) => {
            let why = on.why.join("; ");
            hits.push(hit(format!("nodeName puts the pod on {name}, where it does not start: {why}")));
        }
        None if subject.facts.knows_all_nodes() => {
            hits.push(hit(format!("no node has the name {name}")).judged(Judgement(Error, Pending)));
        }
        _ => {}
    }
}

fn spread(subject: &Subject<'_>, hits: &mut Vec<Hit>) {
    let (pod, facts) = (subject.pod, subject.facts);
    let is_closed =
        |taints: &BTreeSet<Taint>| taints.iter().any(|taint| !tolerate(&subject.pods.spec.tolerations, taint));
    let counts =
        pod.spreads_over_tainted_nodes && facts.knows_taints() && facts.barriers(subject.pods).iter().any(is_closed);
    if counts && may_be_sent_to_linux(subject) {
        hits.push(Hit::at("topologySpreadConstraints").remedied_by(vec![Edit::select(names::OS, "linux")]));
    }
}

fn lands_on_windows(subject: &Subject<'_>, hits: &mut Vec<Hit>) {
    let facts = subject.facts;
    if let Some((node, _)) = facts.chosen(subject.pods).filter(|(node, _)| node.is_windows())
        && facts.started_on_windows(subject.workload).is_none()
    {
        let message = format!(
            "nodeName puts the pod on the Windows node {}, and nothing shows that it is for Windows",
            node.name
        );
        let remedy = "name a Linux node, or remove nodeName; for a Windows workload: set os.name: windows";
        return hits.push(Hit::at("nodeName").saying(message).remedied_by(remedy.to_owned()));
    }
    let tolerates = |taint: &Taint| tolerate(&subject.pods.spec.tolerations, taint);
    let is_open = facts.barriers(subject.pods).iter().any(|taints| taints.iter().all(tolerates));
    if is_open && may_be_sent_to_linux(subject) {
        let hit = Hit::at("nodeSelector").remedied_by(vec![Edit::select(names::OS, "linux")]);
        let has_disk = |volume: &Value| !volume["persistentVolumeClaim"].is_null();
        let is_stateful =
            subject.workload.claims().is_array() || volumes(subject.workload.raw).any(|(_, volume)| has_disk(volume));
        hits.push(if subject.target == Target::Linux {
            hit.saying(
                "os.name says Linux, which the scheduler does not read, and no taint keeps the pod off the Windows nodes, whose \
                 kubelets refuse it (PodOSNotSupported)"
                    .to_owned(),
            )
        } else if is_stateful {
            hit.saying(
                "the pod does not say which operating system it needs, and no taint keeps it off the Windows nodes, where its new \
                 disks would be formatted as NTFS"
                    .to_owned(),
            )
        } else if facts.taints_are_held {
            hit.saying(
                "the pod does not say which operating system it needs, and no taint keeps it off the Windows nodes: winpool \
                 holds its taint while DaemonSets here do not tolerate it"
                    .to_owned(),
            )
        } else {
            hit
        });
    }
}

fn toleration(subject: &Subject<'_>, hits: &mut Vec<Hit>) {
    if subject.workload.is_daemon_set() || subject.pod.node.is_some() || has_unknown_class(subject) {
        return;
    }
    let Some(missing) = subject.facts.untolerated(subject.pods) else { return };
    // The taints that a pool wants stay on the node. A taint with another spelling may be an earlier one.
    let unwanted = |missing: &Vec<Taint>| missing.iter().filter(|taint| !subject.facts.is_wanted(taint)).count();
    let Some(least) = missing.into_iter().min_by_key(|missing| (!missing.is_empty(), unwanted(missing), missing.len()))
    else {
        return;
    };
    if !least.is_empty() {
        let is_enforced = is_enforced(subject);
        let is_there = least.iter().any(|taint| subject.facts.is_on_a_node(taint));
        let whose = match (is_there, is_enforced) {
            (true, _) => "the taints of any Windows node that it selects",
            (_, true) => "a taint that a WindowsPool will add to every Windows node that it selects",
            (_, false) => "a taint that a WindowsPool in dry run would add to every Windows node that it selects",
        };
        let message = format!("the pod does not tolerate {whose}: {}", list(&least));
        let message = message + &other_spelling(&subject.pods.spec.tolerations, &least);
        let remedy = match class_that_tolerates(subject) {
            Some(name) => Remedy::of(vec![Edit::class(name)]),
            None => unless_class(subject, tolerating(&least)),
        };
        let hit = Hit::at("tolerations").remedied_by(or_for_linux(subject, remedy));
        let is_added = adds_tolerations(subject, &least) && (is_enforced || !is_there);
        hits.push(if is_added {
            let when = if is_enforced { "while winpool runs, it" } else { "with mode: Enforce, winpool" };
            hit.saying(format!("{message}; {when} adds the toleration to each new pod"))
                .judged(Judgement(Warning, Note))
        } else {
            hit.saying(message)
        });
    }
}

/// True if a pool that is not in dry run adds taints to nodes that the pod selects.
fn is_enforced(subject: &Subject<'_>) -> bool {
    subject.facts.pools_of(subject.pods).iter().any(|pool| pool.mode == Mode::Enforce)
}

/// True if winpool adds the tolerations of all these taints to the pods.
fn adds_tolerations(subject: &Subject<'_>, taints: &[Taint]) -> bool {
    let added = subject.facts.added_by_winpool(subject.workload, subject.pods);
    taints.iter().all(|taint| added.contains(taint))
}

/// Returns the class that fits the pod, if its tolerations are all that the pod lacks.
fn class_that_tolerates<'a>(subject: &Subject<'a>) -> Option<&'a str> {
    let (name, class) = fitting_class(subject)?;
    subject.facts.untolerated(&subject.pods.with_class(name, class))?.iter().any(Vec::is_empty).then_some(name)
}

/// Adds that a class makes the change unnecessary, if the class of the pod does not exist and none is suggested.
fn unless_class(subject: &Subject<'_>, remedy: Remedy) -> Remedy {
    let lacks_class = subject.pod.runtime_class.is_some() && subject.class.is_none();
    let is_needless = !lacks_class || subject.workload.is_daemon_set() || fitting_class(subject).is_some();
    if is_needless { remedy } else { remedy.and(UNLESS_CLASS).undecided() }
}

fn daemon_set_toleration(subject: &Subject<'_>, hits: &mut Vec<Hit>) {
    if !subject.workload.is_daemon_set() {
        return;
    }
    let Some(missing) = subject.facts.untolerated(subject.pods) else { return };
    let missing: BTreeSet<Taint> = missing.into_iter().flatten().collect();
    // Nodes with other taints may be reserved for other pods.
    let missing: Vec<Taint> = missing.into_iter().filter(|taint| subject.facts.is_windows_taint(taint)).collect();
    if !missing.is_empty() {
        let message = format!(
            "the DaemonSet controller creates no pods for nodes with {}, which the template does not tolerate, and reports \
             no error; it ignores the tolerations of a RuntimeClass (kubernetes/kubernetes#111590)",
            list(&missing)
        );
        let message = message + &other_spelling(&subject.pod.tolerations, &missing) + hold(subject, &missing);
        hits.push(Hit::at("tolerations").saying(message).remedied_by(or_for_linux(subject, tolerating(&missing))));
    }
}

/// Says if pools add these taints before the DaemonSet tolerates them.
fn hold(subject: &Subject<'_>, taints: &[Taint]) -> &'static str {
    let Subject { workload, facts, .. } = subject;
    let pools = facts.pools_of(subject.pods);
    if pools.is_empty() || taints.iter().any(|taint| facts.is_on_a_node(taint)) {
        ""
    } else if workload.is_ignored || pools.iter().any(|pool| pool.taint_policy == TaintPolicy::TaintOnly) {
        "; winpool does not wait for this DaemonSet before it adds the taint"
    } else if is_enforced(subject) {
        "; winpool holds the taint if the DaemonSet is older than the taint"
    } else {
        "; with mode: Enforce, winpool holds the taint if the DaemonSet is older than the taint"
    }
}

/// Returns the known Windows taints, and others that these tolerations name.
fn windows_taints(tolerations: &[Toleration]) -> impl Iterator<Item = Taint> {
    let known = SPELLINGS.iter().map(|spelling| Taint::new(spelling.key, spelling.value, Effect::NoSchedule));
    let named = tolerations.iter().filter_map(|toleration| {
        Some(Taint::new(toleration.key.as_deref()?, toleration.value.as_deref()?, Effect::NoSchedule))
    });
    known.chain(named.filter(Taint::marks_windows))
}

/// Names a toleration of the same taint by another spelling, which is the most frequent reason why one is missing.
fn other_spelling(tolerations: &[Toleration], missing: &[Taint]) -> String {
    let other = windows_taints(tolerations).find(|taint| !missing.contains(taint) && tolerate(tolerations, taint));
    other
        .map(|taint| format!("; the pod tolerates {}={}, another spelling", taint.key, taint.value))
        .unwrap_or_default()
}

/// The largest number of taints in a message.
const NAMED: usize = 4;

fn list(taints: &[Taint]) -> String {
    let named: Vec<String> = taints.iter().take(NAMED).map(ToString::to_string).collect();
    let more = taints.len().saturating_sub(NAMED);
    if more > 0 { format!("{} and {more} more", named.join(", ")) } else { named.join(", ") }
}

fn tolerating(taints: &[Taint]) -> Remedy {
    Remedy::of(taints.iter().map(Edit::tolerate).collect())
}

fn unknown_toleration(subject: &Subject<'_>, hits: &mut Vec<Hit>) {
    let by_class = subject.pod.runtime_class.is_some() && !subject.workload.is_daemon_set();
    if subject.facts.knows_taints() || by_class || subject.pod.node.is_some() {
        return;
    }
    let tolerations = &subject.pod.tolerations;
    if windows_taints(tolerations).all(|taint| tolerance(tolerations, [&taint]) == Tolerance::No) {
        let remedy = Remedy::of(vec![Edit::tolerate(&Taint::os_windows())]);
        hits.push(Hit::at("tolerations").remedied_by(remedy.undecided()));
    }
}
