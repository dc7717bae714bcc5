//! `winpool why`: explains a node, or where pods can be scheduled and started.

mod class;
mod node;
mod pod;

pub(super) use class::section as scaling;

use std::time::{Duration, Instant};

use winpool_analysis::explain::pod::PodExplanation;
use winpool_analysis::kinds::WorkloadKind;
use winpool_client::terminal::Outcome;

use crate::Error;
use crate::commands::options::{Common, Namespace};
use crate::print::{output, progress};
use crate::read::against::Against;
use crate::read::assume::Assume;
use crate::read::gaps::Gaps;
use crate::read::resolve::Resolve;

/// The pause before the same question is asked again.
const AGAIN: Duration = Duration::from_secs(3);

/// Explain the state of a node, or why pods can or cannot be scheduled and started.
///
/// `why node/NAME` shows the node's build and pool, where its taints come from, which RuntimeClasses select it, and what the
/// operator would change.
///
/// `why pod/NAME`, `why deployment/NAME` and the other workload kinds show on which nodes the pods can be scheduled and started,
/// what their errors mean, and the smallest change after which they are scheduled only to nodes on which they start. winpool
/// considers os, selector, RuntimeClass, required node affinity, taints and tolerations, cordons, extended resources, and the
/// Windows version in image tags. With --resolve-images it considers the platforms that registries have instead of tags. It does
/// not consider cpu, memory, volumes, ports, affinity between pods, topology spread, or the resources of other pods. A pod without
/// any sign of Windows is a Linux pod, unless it has run on a Windows node. Events about the pods count too, in a cluster and in
/// manifests.
///
/// `why class/NAME` shows if the RuntimeClass can start from zero nodes: which NodePool of Karpenter, or node group with tags for
/// cluster-autoscaler, creates a node for its pods, or what each of them lacks. winpool reads NodePools and node classes in the
/// cluster or in manifests; in manifests also ClusterConfigs of eksctl and annotations of Cluster API. It does not consider
/// instance types, zones, quotas, or what is left of limits.
///
/// Exit code 0: done; 2: winpool cannot tell, because you may not list something, a registry did not answer, the manifests lack it,
/// or pods fail for a reason that winpool does not know; 1: an error, or a part of the manifests cannot be read.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:
  winpool why node/win-1
  winpool why pod/web-0 -n shop
  winpool why deployment/web -n shop
  winpool why deployment/web -n shop --wait 600
  winpool why deployment/web -f web.yaml --against cluster.yaml
  winpool why daemonset/agent -f agent.yaml -f nodes.yaml
  winpool why class/windows-2022 -f nodepools.yaml -f pool.yaml")]
pub struct Arguments {
    /// Object to explain, as KIND/NAME or KIND NAME. Kinds: node, pod, class, deployment, statefulset, daemonset, replicaset,
    /// replicationcontroller, job, cronjob, and kubectl's short names for them; raycluster, rayjob, rayservice, leaderworkerset, and the
    /// jobs of Kubeflow, such as pytorchjob.
    #[arg(value_name = "KIND/NAME", required = true, num_args = 1..=2)]
    pub object: Vec<String>,
    #[command(flatten)]
    pub namespace: Namespace,
    /// Path of the pod template, for a workload with several: spec.headGroupSpec.template.
    #[arg(long, value_name = "PATH")]
    pub template: Option<String>,
    #[command(flatten)]
    pub common: Common,
    #[command(flatten)]
    pub resolve: Resolve,
    #[command(flatten)]
    pub assume: Assume,
    #[command(flatten)]
    pub against: Against,
    /// Ask again until new pods of the pod or workload run, for at most this many seconds. Exit code 0: they run; 2: the time is over.
    #[arg(long, value_name = "SECONDS", conflicts_with = "files")]
    pub wait: Option<u64>,
}

/// A kind of object that can be explained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Node,
    Pod,
    Class,
    Workload(&'static WorkloadKind),
}

impl Kind {
    /// Reads a kind as kubectl does: in any case, singular, plural or short.
    fn parse(text: &str) -> Option<Self> {
        match text.to_ascii_lowercase().as_str() {
            "node" | "nodes" | "no" => Some(Self::Node),
            "pod" | "pods" | "po" => Some(Self::Pod),
            "class" | "runtimeclass" | "runtimeclasses" => Some(Self::Class),
            other => WorkloadKind::by_any_name(other).filter(|kind| kind.has_template()).map(Self::Workload),
        }
    }
}

/// Reads `KIND/NAME` or `KIND NAME`.
fn parse(words: &[String]) -> Result<(Kind, &str), Error> {
    let (kind, name) = match words {
        [kind, name] => (kind.as_str(), name.as_str()),
        [both] => both.split_once('/').unwrap_or((both, "")),
        _ => ("", ""),
    };
    match Kind::parse(kind) {
        Some(kind) if !name.is_empty() && !name.contains('/') => Ok((kind, name)),
        Some(_) => Err(Error::Subject(format!("name one {kind}: winpool why {kind}/NAME"))),
        None => Err(Error::Subject(format!(
            "there is nothing to explain about the kind {kind:?}: name a node, a pod, a RuntimeClass or a workload, such as deployment/web"
        ))),
    }
}

/// Reads the kind and name of a pod, or of a workload that creates pods.
pub(super) fn workload(words: &[String]) -> Result<(&'static WorkloadKind, &str), Error> {
    let (kind, name) = parse(words)?;
    let row = match kind {
        Kind::Workload(kind) => Some(kind),
        Kind::Pod => WorkloadKind::own("Pod"),
        Kind::Node | Kind::Class => None,
    };
    let wrong = || Error::Subject(format!("{kind:?} {name} has no pods: name a workload, such as deployment/web"));
    Ok((row.ok_or_else(wrong)?, name))
}

pub async fn run(arguments: Arguments) -> Result<Outcome, Error> {
    let Arguments { object, namespace, template, common, resolve, assume, against, wait } = arguments;
    let (format, mut is_known) = (common.output.format, true);
    let question = pod::Question {
        namespace: namespace.namespace.as_deref(),
        common: &common,
        assume: &assume,
        against: &against,
        resolve: &resolve,
    };
    let gaps = match parse(&object)? {
        (Kind::Node | Kind::Class, _) if wait.is_some() => {
            return Err(Error::Subject("--wait is for pods and workloads".to_owned()));
        }
        (Kind::Node, name) => {
            let (explanation, gaps) = node::why(name, &common, &assume).await?;
            output::print(format, &explanation, || node::text(&explanation))?;
            gaps
        }
        (Kind::Class, name) => {
            let (explanation, gaps) = class::explain(name, &common, &assume).await?;
            output::print(format, &explanation, || class::text(&explanation))?;
            is_known = explanation.scale.can_scale_from_zero.is_some();
            gaps
        }
        (kind @ (Kind::Pod | Kind::Workload(_)), name) => {
            let ask = async || match kind {
                Kind::Workload(kind) => question.workload(kind, name, template.as_deref()).await,
                _ => question.pod(name).await,
            };
            let (answer, gaps) = until_yes(ask, wait.map(Duration::from_secs)).await?;
            output::print(format, &answer, || pod::text(&answer))?;
            is_known = answer.is_known() && (wait.is_none() || answer.runs());
            gaps
        }
    };
    Ok(gaps.outcome(if is_known { Outcome::Done } else { Outcome::Pending }))
}

/// Asks until the pods run or the time is over. Meanwhile an API server that does not answer is asked again.
async fn until_yes(
    ask: impl AsyncFn() -> Result<(PodExplanation, Gaps), Error>,
    time: Option<Duration>,
) -> Result<(PodExplanation, Gaps), Error> {
    let end = time.map(|time| Instant::now() + time);
    loop {
        let asked = Box::pin(ask()).await;
        let is_over = end.is_none_or(|end| end <= Instant::now() + AGAIN);
        match asked {
            Ok((answer, gaps)) if answer.runs() || is_over => return Ok((answer, gaps)),
            Err(error) if is_over || !error.may_pass() => return Err(error),
            Ok(_) | Err(_) => progress::waiting("waiting until the pods run", tokio::time::sleep(AGAIN)).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_named_as_for_kubectl() {
        let deployment = Kind::Workload(WorkloadKind::own("Deployment").unwrap());
        for (words, expected) in [
            (&["node/win-1"][..], Some((Kind::Node, "win-1"))),
            (&["node", "win-1"], Some((Kind::Node, "win-1"))),
            (&["Pod/web"], Some((Kind::Pod, "web"))),
            (&["deploy/web"], Some((deployment, "web"))),
            (&["deployments", "web"], Some((deployment, "web"))),
            (&["cj/backup"], Some((Kind::Workload(WorkloadKind::own("CronJob").unwrap()), "backup"))),
            (&["class/windows-2022"], Some((Kind::Class, "windows-2022"))),
            (&["node"], None),
            (&["node/"], None),
            (&["node/a/b"], None),
            (&["service/web"], None),
            (&[""], None),
        ] {
            let words: Vec<String> = words.iter().map(ToString::to_string).collect();
            assert_eq!(parse(&words).ok(), expected, "{words:?}");
        }
    }
}
