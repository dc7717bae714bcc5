//! Rules about what the API server admits into a namespace.

use crate::finding::Consequence::Rejected;
use crate::finding::Severity::Error;
use crate::lint::Rule;
use crate::lint::rule::{Hit, Judgement, Scope, Subject, own, rule};
use crate::pod_security::ENFORCE;

pub(super) const RULES: &[Rule] = &[rule(
    "pod-security-refused",
    Judgement(Error, Rejected),
    Scope::AnyWindows,
    "securityContext",
    "the PodSecurity level that the namespace enforces forbids the pod, so the API server refuses it",
    "change these fields, or let the namespace enforce another level, with its label pod-security.kubernetes.io/enforce",
    own(pod_security),
)];

fn pod_security(subject: &Subject<'_>, hits: &mut Vec<Hit>) {
    let Some((level, violations)) = subject.facts.violations(subject.workload) else { return };
    let (namespace, named) = (subject.workload.namespace, violations.join(", "));
    let message = format!(
        "namespace {namespace} enforces the PodSecurity level {level}, so the API server refuses the pod: {named}"
    );
    let hit = Hit::at("securityContext").saying(message);
    hits.push(if violations.contains(&"hostProcess") {
        hit.remedied_by(format!("set the label {ENFORCE}: privileged on the namespace, which HostProcess pods need"))
    } else {
        hit
    });
}
