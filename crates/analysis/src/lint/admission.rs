//! Rules about what the API server admits into a namespace, and Kueue from a queue.

use crate::finding::Consequence::{Note, Pending, Rejected};
use crate::finding::Severity::{Error, Info};
use crate::lint::Rule;
use crate::lint::rule::{Hit, Judgement, Scope, Subject, own, rules};
use crate::pod::Target;
use crate::pod_security::{CHANGE_FIELDS, Forbidden, Violations};
use crate::view::Queued;

pub(crate) const NAMESPACE_CONFLICT: &str = "namespace-selector-conflict";
pub(crate) const FORBIDDEN: &str = "pod-security-refused";
/// What to do about a queue without a flavor for the pods.
pub(crate) const OTHER_QUEUE: &str = "tolerate its taints in the template, or name another queue";

pub(super) const RULES: &[Rule] = rules!([
    /// - Breaks in a namespace for Linux: `nodeSelector: {kubernetes.io/os: windows}`
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
    /// - Breaks in a namespace with the level baseline:
    ///   `hostNetwork: true, securityContext: {windowsOptions: {hostProcess: true}}`
    Rule {
        id: FORBIDDEN,
        verdict: Judgement(Error, Rejected),
        scope: Scope::Any,
        field: "securityContext",
        reason: "the PodSecurity level that the namespace enforces forbids the pod",
        remedy: CHANGE_FIELDS,
        test: own(pod_security),
        ..Rule::DEFAULT
    },
    /// - Breaks in a queue for tainted nodes: `tolerations: null`
    Rule {
        id: "queue-starts-none",
        verdict: Judgement(Error, Pending),
        scope: Scope::Any,
        field: "tolerations",
        reason: "Kueue never starts the pods: no ResourceFlavor of their queue fits",
        remedy: OTHER_QUEUE,
        test: own(|subject, hits| {
            let never = subject.pods.added.queued.as_ref().and_then(Queued::never);
            hits.extend(never.map(|never| Hit::at("tolerations").saying(never)));
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
            let why = subject.pods.unknown_flavor().filter(|_| subject.target != Target::Linux);
            hits.extend(why.map(|why| Hit::at("nodeSelector").saying(why.clone())));
        }),
        ..Rule::DEFAULT
    },
]);

fn node_selector(subject: &Subject<'_>, hits: &mut Vec<Hit>) {
    let namespace = subject.workload.namespace();
    if let Some((key, value)) = subject.pods.added.conflict {
        let own = subject.pod.selected(key).unwrap_or_default();
        let message = format!("nodeSelector wants {key}={own} and the namespace {namespace} wants {key}={value}");
        hits.push(Hit::at("nodeSelector").saying(message));
    }
}

fn pod_security(subject: &Subject<'_>, hits: &mut Vec<Hit>) {
    let workload = subject.workload;
    let Some(level) = subject.facts.cluster.admission.level_of(workload.namespace()) else { return };
    let forbidden = level.refuses(workload.namespace(), &Violations::of(workload.raw, workload.metadata));
    let hit =
        |forbidden: Forbidden| Hit::at("securityContext").saying(forbidden.to_string()).remedied_by(forbidden.remedy());
    hits.extend(forbidden.map(hit));
}
