//! Rules about what the API server admits into a namespace, and Kueue from a queue.

use crate::finding::Consequence::{Note, Pending, Rejected};
use crate::finding::Severity::{Error, Info};
use crate::lint::Rule;
use crate::lint::rule::{Hit, Judgement, Scope, Subject, own};
use crate::pod::Target;
use crate::pod_security::Violations;
use crate::remedy::Remedy;
use crate::view::Queued;

pub(crate) const NAMESPACE_CONFLICT: &str = "namespace-selector-conflict";
pub(crate) const FORBIDDEN: &str = "pod-security-refused";

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: NAMESPACE_CONFLICT,
        verdict: Judgement(Error, Rejected),
        scope: Scope::Any,
        field: "nodeSelector",
        reason: "the pod and its namespace, by the annotation node-selector of OpenShift or PodNodeSelector, select \
                 different nodes",
        remedy: "select the same nodes, or use a namespace that selects none",
        test: own(node_selector),
        ..Rule::DEFAULT
    },
    Rule {
        id: FORBIDDEN,
        verdict: Judgement(Error, Rejected),
        scope: Scope::Any,
        field: "securityContext",
        reason: "the PodSecurity level that the namespace enforces forbids the pod",
        remedy: "change these fields, or let the namespace enforce another level, with its label \
                 pod-security.kubernetes.io/enforce",
        test: own(pod_security),
        ..Rule::DEFAULT
    },
    Rule {
        id: "queue-starts-none",
        verdict: Judgement(Error, Pending),
        scope: Scope::Any,
        field: "tolerations",
        reason: "Kueue never starts the pods: no ResourceFlavor of their queue fits",
        remedy: "tolerate its taints in the template, or name another queue",
        test: own(|subject, hits| {
            if let Some(Queued::Never(why)) = &subject.added.queued {
                hits.push(Hit::at("tolerations").saying(format!("Kueue never starts the pods: {why}")));
            }
        }),
        ..Rule::DEFAULT
    },
    Rule {
        id: "queue-unknown",
        verdict: Judgement(Info, Note),
        scope: Scope::Any,
        field: "nodeSelector",
        reason: "Kueue adds the labels and tolerations of a ResourceFlavor that winpool does not know",
        remedy: "add the LocalQueue, its ClusterQueue and ResourceFlavors with -f",
        test: own(|subject, hits| {
            let why = subject.unknown_flavor().filter(|_| subject.target != Target::Linux);
            hits.extend(why.map(|why| Hit::at("nodeSelector").saying(why.clone())));
        }),
        ..Rule::DEFAULT
    },
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
