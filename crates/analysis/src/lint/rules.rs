//! The table of all rules, and the check of a workload against them.

use winpool_core::api::names;
use winpool_core::pod::OS_KEYS;

use crate::finding::{Consequence, Finding, Severity};
use crate::lint::facts::Facts;
use crate::lint::rule::{Hit, Scope, Subject, Test};
use crate::lint::{
    Rule, admission, cloud, gmsa, linux, objects, placement, recommended, rejected, storage, unsupported, wellformed,
};
use crate::pod::{PodSpec, Target};
use crate::workload::WorkloadManifest;

/// Returns the groups of rules: placement, images in registries, whole objects, fields that the API server refuses, fields that
/// Windows does not support, recommendations, GMSA, Services and nodes.
pub(crate) fn groups() -> [&'static [&'static [Rule]]; 9] {
    [
        &[placement::RULES, placement::classes::RULES, placement::builds::RULES, linux::IMAGES],
        &[placement::images::RULES],
        &[wellformed::RULES],
        &[rejected::RULES, admission::RULES],
        &[unsupported::RULES, storage::RULES, linux::PROGRAMS, cloud::RULES],
        &[recommended::RULES],
        &[gmsa::RULES],
        &[objects::SERVICES],
        &[objects::NODES],
    ]
}

/// Returns every rule, in the order of findings.
pub fn rules() -> impl Iterator<Item = &'static Rule> {
    groups().into_iter().flatten().copied().flatten()
}

pub fn rule(id: &str) -> Option<&'static Rule> {
    rules().find(|rule| rule.id == id)
}

/// Returns the findings about a workload.
pub fn check(workload: &WorkloadManifest<'_>, facts: &Facts) -> Vec<Finding> {
    check_by(rules(), workload, facts)
}

/// Returns the findings about a workload's images that follow from the answers of registries.
pub fn check_images(workload: &WorkloadManifest<'_>, facts: &Facts) -> Vec<Finding> {
    check_by(placement::images::RULES.iter(), workload, facts)
}

/// Returns the finding that the workload is spread over nodes whose taints it does not tolerate.
pub fn check_spread(workload: &WorkloadManifest<'_>, facts: &Facts) -> Option<Finding> {
    check_by(rule("spread-over-windows-nodes").into_iter(), workload, facts).into_iter().next()
}

/// Returns the finding that the workload does not tolerate the taints which Windows nodes have, or which pools add to them.
pub fn check_tolerations(workload: &WorkloadManifest<'_>, facts: &Facts) -> Option<Finding> {
    check_by(rules().filter(|rule| is_about_taints(rule.id)), workload, facts).into_iter().next()
}

/// The rule about a `DaemonSet` that holds a taint.
pub(super) const HOLDS_TAINTS: &str = "daemon-set-toleration-missing";

/// The rule about pods for Linux that Windows nodes take.
const LANDING: &str = "linux-may-land-on-windows";

/// The rule about pods that wait because Windows nodes count as nodes without pods.
const SPREAD: &str = "spread-over-windows-nodes";

/// True for the rules about taints that a workload for Windows does not tolerate.
fn is_about_taints(rule: &str) -> bool {
    ["toleration-missing", HOLDS_TAINTS].contains(&rule)
}

/// Returns the finding that the pods of a Linux workload can be scheduled to Windows nodes.
pub fn check_landing(workload: &WorkloadManifest<'_>, facts: &Facts) -> Option<Finding> {
    check_by(rule(LANDING).into_iter(), workload, facts).into_iter().next()
}

/// Returns the findings about a workload, and what happens to it in other clusters, whose Windows nodes are `open`.
pub fn check_everywhere(workload: &WorkloadManifest<'_>, facts: &Facts, open: Option<&Facts>) -> Vec<Finding> {
    let mut found = check(workload, facts);
    found.extend(elsewhere(workload, &found, open));
    found
}

/// Returns the finding that the workload can land on Windows nodes in other clusters, unless it is found for this one.
pub(super) fn elsewhere(workload: &WorkloadManifest<'_>, found: &[Finding], open: Option<&Facts>) -> Option<Finding> {
    let open = open.filter(|_| found.iter().all(|finding| finding.rule != LANDING))?;
    let message = "in a cluster that does not taint its Windows nodes, nothing keeps the pod off them".to_owned();
    check_landing(workload, open).map(|landing| Finding { message, ..landing })
}

/// Returns the errors of a workload that do not show when its pods are compared with nodes: the reasons for which the API server
/// refuses it, and fields that do not work on Windows.
pub fn check_errors(workload: &WorkloadManifest<'_>, facts: &Facts) -> Vec<Finding> {
    let mut found = check(workload, facts);
    found.retain(|finding| {
        finding.severity == Severity::Error && (finding.consequence == Consequence::Rejected || !is_by_node(finding))
    });
    found
}

/// Returns the warnings of a workload that do not show when its pods are compared with nodes: its pods may fail on Windows.
pub fn check_warnings(workload: &WorkloadManifest<'_>, facts: &Facts) -> Vec<Finding> {
    let mut found = check(workload, facts);
    found.retain(|finding| {
        let is_shown = finding.consequence == Consequence::Fails && !is_by_node(finding) || finding.rule == SPREAD;
        finding.severity == Severity::Warning && is_shown
    });
    found
}

/// True for a finding about the nodes to which the pods can be scheduled.
fn is_by_node(finding: &Finding) -> bool {
    placement_rules().any(|other| other.id == finding.rule)
}

/// Returns the errors of a pod that exists: the API server has accepted it, unless its RuntimeClass is for another system since.
pub fn check_errors_of_existing(workload: &WorkloadManifest<'_>, facts: &Facts) -> Vec<Finding> {
    let class = facts.known_class(&workload.pod);
    let of_class = |key: &str| class.and_then(|class| class.selector.get(key));
    let contradicts_class = OS_KEYS
        .iter()
        .any(|key| workload.pod.selected(key).zip(of_class(key)).is_some_and(|(own, of_class)| own != of_class));
    let mut found = check_errors(workload, facts);
    found.retain(|finding| {
        finding.consequence != Consequence::Rejected
            || contradicts_class && finding.rule == placement::classes::CONTRADICTS_SELECTOR
    });
    found
}

fn placement_rules() -> impl Iterator<Item = &'static Rule> {
    let [placement, images, ..] = groups();
    placement.iter().chain(images).copied().flatten()
}

fn check_by(
    rules: impl Iterator<Item = &'static Rule>,
    workload: &WorkloadManifest<'_>,
    facts: &Facts,
) -> Vec<Finding> {
    let new = facts.pod_of(workload);
    let pods = facts.admitted(&new, workload);
    let mut pod = pods.template();
    pod.runtime_class = workload.pod.runtime_class.clone().or(pod.runtime_class.take());
    let (class, target) = (pods.class.map(|(_, class)| class), Target::of(facts.guess_of_admitted(&pods)));
    let subject = Subject { workload, pod: &pod, pods: &pods, class, target, facts };
    let is_known = |rule: &Rule| pods.unknown_flavor().is_none() || !placement::depends_on_nodes(rule);
    let mut findings = Vec::new();
    for rule in rules.filter(|rule| rule.holds_for(facts.kubernetes) && applies(rule.scope, &subject) && is_known(rule))
    {
        let hits = match rule.test {
            Test::Field(trigger) => trigger.hits(rule.field, workload.raw).map(Hit::at).collect(),
            Test::Own { find, .. } => {
                let mut hits = Vec::new();
                find(&subject, &mut hits);
                hits
            }
            Test::Object(_) => Vec::new(),
        };
        findings.extend(hits.into_iter().map(|hit| finding(rule, &subject, hit)));
    }
    findings
}

fn applies(scope: Scope, subject: &Subject<'_>) -> bool {
    match scope {
        Scope::Any => true,
        Scope::Windows => subject.target == Target::Windows,
        Scope::WindowsImage => subject.target == Target::WindowsImage,
        Scope::AnyWindows => matches!(subject.target, Target::Windows | Target::WindowsImage),
        Scope::LinuxByName => subject.pod.os.as_deref() == Some("linux"),
        Scope::Unplaced => is_unplaced(subject.target, subject.pod),
        Scope::Service | Scope::Node | Scope::CredentialSpec | Scope::WithoutTemplate => false,
    }
}

/// True for pods that are not for Windows, and whose own fields do not keep them on Linux nodes.
pub(super) fn is_unplaced(target: Target, pod: &PodSpec) -> bool {
    let by_name = || pod.os.as_deref() == Some("linux") && pod.placed_system().is_none();
    target == Target::Unknown || target == Target::Linux && by_name()
}

/// Returns the path of a field in the object. `apiVersion` is a field of the object itself.
fn path_of(workload: &WorkloadManifest<'_>, field: &str) -> String {
    if field == "apiVersion" {
        return field.to_owned();
    }
    workload.field(field)
}

fn finding(rule: &Rule, subject: &Subject<'_>, hit: Hit) -> Finding {
    let remedy = hit.remedy.unwrap_or_else(|| rule.remedy_at(&hit.field, rejected::remedy(rule, subject)));
    let says_os = subject.pod.os.as_deref() == Some(names::WINDOWS);
    let of_rule = if says_os { rule.verdict } else { rule.verdict_without_os() };
    let verdict = hit.verdict.unwrap_or(of_rule);
    Finding {
        rule: rule.id.to_owned(),
        severity: verdict.0,
        consequence: verdict.1,
        object: subject.workload.object(),
        field: path_of(subject.workload, &hit.field),
        message: hit.message.unwrap_or_else(|| rule.sentence(says_os)),
        remedy,
    }
}
