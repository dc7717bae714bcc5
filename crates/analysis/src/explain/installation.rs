//! Judges winpool's own installation: if it is there, if it works, and what to do if not.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use winpool_core::election::LEASE_DURATION;
use winpool_core::words::{count, plain};

use crate::view::Known;

/// The label selector of the operator's Deployment.
pub const SELECTOR: &str = "app.kubernetes.io/name=winpool";
/// The label of the operator's pods, besides those of the Deployment.
const COMPONENT: (&str, &str) = ("app.kubernetes.io/component", "operator");
const CRD_REMEDY: &str = "install it: winpool crd | kubectl apply -f -";
const INSTALL: &str = "install winpool: https://github.com/winpool/winpool/blob/main/docs/guides/install.md";
/// The age from which a leader that does not renew its Lease counts as missing, in seconds. Clocks differ by some of them.
const STALE: i64 = 4 * LEASE_DURATION.as_secs().cast_signed();
/// The longest message of a pod, in bytes.
const MESSAGE: usize = 300;

/// The parts of an installation, as read from a cluster.
#[derive(Debug, Default)]
pub struct Parts {
    pub has_crd: bool,
    /// Deployments with winpool's label, in all namespaces.
    pub deployments: Vec<Deployment>,
    /// The pods of these.
    pub pods: Known<Vec<Pod>>,
    /// The Leases with the name of winpool's.
    pub leases: Known<Vec<Lease>>,
}

/// The state of winpool's own installation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Installation {
    pub state: InstallationState,
    /// The namespace of the operator; absent if no Deployment runs it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The image of the operator; absent if no Deployment runs it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Number of replicas of the Deployment.
    pub replicas: i32,
    /// Number of those that are ready.
    pub ready: i32,
    /// The replica that writes; absent if none does, or if you may not read the Lease.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leader: Option<String>,
    /// A problem and its remedy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<InstallationProblem>,
}

/// The state of an installation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum InstallationState {
    /// The cluster has neither the CRD nor the operator.
    #[default]
    Missing,
    /// A part is missing or does not work.
    Broken,
    /// All parts are there, and the operator runs.
    Healthy,
}

/// A problem of an installation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InstallationProblem {
    /// The problem.
    pub problem: String,
    /// The remedy.
    pub remedy: String,
}

/// True if this Deployment runs the operator.
pub fn is_operator(deployment: &Deployment) -> bool {
    let template = deployment.spec.as_ref().and_then(|spec| spec.template.metadata.as_ref());
    let labels = template.and_then(|metadata| metadata.labels.as_ref());
    labels.is_some_and(|labels| labels.get(COMPONENT.0).map(String::as_str) == Some(COMPONENT.1))
}

/// Judges the installation.
pub fn judge(parts: &Parts, now: Timestamp) -> Installation {
    let operators: Vec<&Deployment> = parts.deployments.iter().filter(|deployment| is_operator(deployment)).collect();
    let leases = parts.leases.known();
    let leader = leases.and_then(|leases| leases.iter().find_map(|lease| leader(lease, now)));
    let mut judged = Installation { leader: leader.clone(), ..Installation::default() };
    let mut problems = Vec::new();
    let mut add = |problem: String, remedy: String| problems.push(InstallationProblem { problem, remedy });
    if !parts.has_crd {
        add("the CRD windowspools.winpool.dev is missing".to_owned(), CRD_REMEDY.to_owned());
    }
    match operators.as_slice() {
        [] if leader.is_none() => add("no operator is installed".to_owned(), INSTALL.to_owned()),
        [] => {}
        [operator, others @ ..] => {
            let namespace = operator.namespace().unwrap_or_default();
            judged.replicas = operator.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
            judged.ready = operator.status.as_ref().and_then(|status| status.ready_replicas).unwrap_or_default();
            judged.image = image(operator);
            let logs = format!("kubectl -n {namespace} logs deployment/{}", operator.name_any());
            if !others.is_empty() {
                let problem = format!("winpool is installed {}", count(operators.len(), "time"));
                add(problem, format!("uninstall all but one: {}", names(&operators)));
            }
            if judged.replicas == 0 {
                let scale = format!("kubectl -n {namespace} scale deployment/{} --replicas=2", operator.name_any());
                add("the operator is scaled to 0 replicas".to_owned(), format!("start it: {scale}"));
            } else if judged.ready == 0 {
                let (reason, remedy) = waiting(parts, &namespace, &logs);
                add(format!("none of {} is ready{reason}", count(judged.replicas, "replica")), remedy);
            } else if leases.is_some() && leader.is_none() {
                add("no replica leads, so winpool writes nothing".to_owned(), format!("read the log: {logs}"));
            }
            judged.namespace = Some(namespace);
        }
    }
    judged.state = match (parts.has_crd, operators.as_slice(), problems.as_slice()) {
        (false, [], _) => InstallationState::Missing,
        (_, _, []) => InstallationState::Healthy,
        _ => InstallationState::Broken,
    };
    judged.problems = problems;
    judged
}

/// The holder of the Lease, if it still renews it.
fn leader(lease: &Lease, now: Timestamp) -> Option<String> {
    let spec = lease.spec.as_ref()?;
    let renewed = spec.renew_time.as_ref()?.0;
    let age = now.as_second().saturating_sub(renewed.as_second());
    spec.holder_identity.clone().filter(|holder| !holder.is_empty() && age < STALE)
}

fn image(operator: &Deployment) -> Option<String> {
    let pod = operator.spec.as_ref()?.template.spec.as_ref()?;
    pod.containers.first()?.image.clone()
}

fn names(operators: &[&Deployment]) -> String {
    let name = |operator: &&Deployment| {
        format!("Deployment {}/{}", operator.namespace().unwrap_or_default(), operator.name_any())
    };
    operators.iter().map(name).collect::<Vec<_>>().join(", ")
}

/// Says why the pods in this namespace are not ready, and what to do.
fn waiting(parts: &Parts, namespace: &str, logs: &str) -> (String, String) {
    let pods = parts.pods.known().into_iter().flatten();
    let mut pods = pods.filter(|pod| pod.namespace().as_deref() == Some(namespace));
    let Some((pod, reason)) = pods.find_map(|pod| Some((pod.name_any(), reason(pod)?))) else {
        return (String::new(), format!("read the log: {logs}"));
    };
    let remedy = format!("kubectl -n {namespace} describe pod {pod}");
    (format!(": pod {pod}: {}", plain(&reason, MESSAGE)), remedy)
}

/// The reason for which a pod does not run.
fn reason(pod: &Pod) -> Option<String> {
    let status = pod.status.as_ref()?;
    let containers = status.container_statuses.iter().flatten();
    let waiting = containers.filter_map(|container| container.state.as_ref()?.waiting.as_ref()).find_map(|waiting| {
        let message = waiting.message.as_ref().map(|message| format!(": {message}")).unwrap_or_default();
        Some(format!("{}{message}", waiting.reason.as_ref()?))
    });
    let conditions = status.conditions.iter().flatten();
    let mut unscheduled =
        conditions.filter(|condition| condition.type_ == "PodScheduled" && condition.status == "False");
    waiting.or_else(|| unscheduled.next()?.message.clone())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const NOW: &str = "2026-01-01T00:01:00Z";

    fn object<T: serde::de::DeserializeOwned>(value: Value) -> T {
        serde_json::from_value(value).unwrap()
    }

    fn operator(namespace: &str, ready: i32) -> Deployment {
        let template = json!({"metadata": {"labels": {"app.kubernetes.io/component": "operator"}},
            "spec": {"containers": [{"name": "winpool", "image": "winpool:v1"}]}});
        object(json!({"metadata": {"name": "winpool", "namespace": namespace}, "status": {"readyReplicas": ready},
            "spec": {"replicas": 2, "selector": {}, "template": template}}))
    }

    fn lease(renewed: &str) -> Lease {
        object(json!({"spec": {"holderIdentity": "a", "renewTime": renewed}}))
    }

    fn healthy() -> Parts {
        Parts {
            has_crd: true,
            deployments: vec![operator("winpool-system", 2)],
            pods: Known::Complete(Vec::new()),
            leases: Known::Complete(vec![lease("2026-01-01T00:00:50.000000Z")]),
        }
    }

    fn judged(parts: &Parts) -> (InstallationState, Vec<String>) {
        let Installation { state, problems, .. } = judge(parts, NOW.parse().unwrap());
        (state, problems.into_iter().map(|problem| problem.problem).collect())
    }

    #[test]
    fn an_installation_is_healthy_if_all_parts_are_there_and_a_replica_leads() {
        use InstallationState::{Broken, Healthy, Missing};
        let waiting: Pod = object(json!({"metadata": {"name": "winpool-1", "namespace": "winpool-system"}, "status":
            {"containerStatuses": [{"name": "winpool", "image": "", "imageID": "", "ready": false, "restartCount": 0,
                "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no\nimage"}}}]}}));
        let none = || Known::Complete(Vec::new());
        for (parts, state, problems) in [
            (healthy(), Healthy, &[][..]),
            (Parts { leases: Known::Forbidden(String::new()), ..healthy() }, Healthy, &[]),
            (Parts { deployments: Vec::new(), ..healthy() }, Healthy, &[]),
            (Parts { leases: none(), ..healthy() }, Broken, &["no replica leads, so winpool writes nothing"]),
            (
                Parts { leases: Known::Complete(vec![lease("2026-01-01T00:00:00.000000Z")]), ..healthy() },
                Broken,
                &["no replica leads, so winpool writes nothing"],
            ),
            (
                Parts {
                    deployments: vec![operator("winpool-system", 0)],
                    pods: Known::Complete(vec![waiting]),
                    ..healthy()
                },
                Broken,
                &["none of 2 replicas is ready: pod winpool-1: ImagePullBackOff: no image"],
            ),
            (Parts { has_crd: false, ..healthy() }, Broken, &["the CRD windowspools.winpool.dev is missing"]),
            (
                Parts { deployments: vec![operator("a", 2), operator("b", 2)], ..healthy() },
                Broken,
                &["winpool is installed 2 times"],
            ),
            (Parts { deployments: Vec::new(), leases: none(), ..healthy() }, Broken, &["no operator is installed"]),
            (Parts::default(), Missing, &["the CRD windowspools.winpool.dev is missing", "no operator is installed"]),
        ] {
            let problems = problems.iter().map(|problem| (*problem).to_owned()).collect();
            assert_eq!(judged(&parts), (state, problems), "{parts:?}");
        }
    }
}
