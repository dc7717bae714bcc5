//! Rules about what the API server admits into a namespace, and Kueue from a queue.

use crate::finding::Consequence::{Note, Pending, Rejected};
use crate::finding::Severity::{Error, Info};
use crate::lint::Rule;
use crate::lint::rule::{Hit, Judgement, Scope, Subject, own, rule};
use crate::pod::Target;
use crate::pod_security::Violations;
use crate::remedy::Remedy;
use crate::view::Queued;

pub(crate) const NAMESPACE_CONFLICT: &str = "namespace-selector-conflict";
pub(crate) const FORBIDDEN: &str = "pod-security-refused";

pub(super) const RULES: &[Rule] = &[
    rule(
        NAMESPACE_CONFLICT,
        Judgement(Error, Rejected),
        Scope::Any,
        "nodeSelector",
        "the pod and its namespace, by the annotation node-selector of OpenShift or PodNodeSelector, select different nodes",
        "select the same nodes, or use a namespace that selects none",
        own(node_selector),
    ),
    rule(
        FORBIDDEN,
        Judgement(Error, Rejected),
        Scope::Any,
        "securityContext",
        "the PodSecurity level that the namespace enforces forbids the pod",
        "change these fields, or let the namespace enforce another level, with its label pod-security.kubernetes.io/enforce",
        own(pod_security),
    ),
    rule(
        "queue-starts-none",
        Judgement(Error, Pending),
        Scope::Any,
        "tolerations",
        "Kueue never starts the pods: no ResourceFlavor of their queue fits",
        "tolerate its taints in the template, or name another queue",
        own(|subject, hits| {
            if let Some(Queued::Never(why)) = &subject.added.queued {
                hits.push(Hit::at("tolerations").saying(format!("Kueue never starts the pods: {why}")));
            }
        }),
    ),
    rule(
        "queue-unknown",
        Judgement(Info, Note),
        Scope::Any,
        "nodeSelector",
        "Kueue adds the labels and tolerations of a ResourceFlavor that winpool does not know",
        "add the LocalQueue, its ClusterQueue and ResourceFlavors with -f",
        own(|subject, hits| {
            let why = subject.unknown_flavor().filter(|_| subject.target != Target::Linux);
            hits.extend(why.map(|why| Hit::at("nodeSelector").saying(why.clone())));
        }),
    ),
];

fn node_selector(subject: &Subject<'_>, hits: &mut Vec<Hit>) {
    let namespace = subject.workload.namespace;
    if let Some((key, value)) = subject.added.conflict {
        let own = subject.pod.selected(key).unwrap_or_default();
        let message = format!("nodeSelector wants {key}={own} and the namespace {namespace} wants {key}={value}");
        hits.push(Hit::at("nodeSelector").saying(message));
    }
}

fn pod_security(subject: &Subject<'_>, hits: &mut Vec<Hit>) {
    let violations = Violations::of(subject.workload.raw, subject.workload.metadata);
    let forbidden = subject.facts.admission.forbids(subject.workload.namespace, &violations);
    hits.extend(forbidden.map(|forbidden| {
        let hit = Hit::at("securityContext").saying(forbidden.to_string());
        Hit { remedy: forbidden.remedy().map(Remedy::advice), ..hit }
    }));
}
