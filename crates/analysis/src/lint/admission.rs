//! Rules about what the API server admits into a namespace.

use crate::finding::Consequence::Rejected;
use crate::finding::Severity::Error;
use crate::lint::Rule;
use crate::lint::rule::{Hit, Judgement, Scope, Subject, own, rule};
use crate::pod_security::ENFORCE;

pub(super) const RULES: &[Rule] = &[
    rule(
        "namespace-selector-conflict",
        Judgement(Error, Rejected),
        Scope::Any,
        "nodeSelector",
        "the pod and its namespace select different nodes, so the API server refuses the pod: OpenShift and the admission plugin \
     PodNodeSelector read the annotation node-selector of the namespace",
        "select the same nodes, or use a namespace that selects none",
        own(node_selector),
    ),
    rule(
        "pod-security-refused",
        Judgement(Error, Rejected),
        Scope::Any,
        "securityContext",
        "the PodSecurity level that the namespace enforces forbids the pod, so the API server refuses it",
        "change these fields, or let the namespace enforce another level, with its label pod-security.kubernetes.io/enforce",
        own(pod_security),
    ),
];

fn node_selector(subject: &Subject<'_>, hits: &mut Vec<Hit>) {
    let (own, of_namespace) = (&subject.workload.pod.node_selector, subject.facts.node_selector_of(subject.workload));
    for (key, value) in of_namespace.into_iter().flatten() {
        if let Some(own) = own.get(key).filter(|own| *own != value) {
            let namespace = subject.workload.namespace;
            let message = format!("nodeSelector wants {key}={own} and the namespace {namespace} wants {key}={value}");
            hits.push(Hit::at("nodeSelector").saying(message));
        }
    }
}

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
