//! A report about Windows in a cluster: one value, which JSON and the HTML page show.

mod classes;
mod failing;
mod findings;
mod fleet;
mod groups;
mod lacks;
mod numbers;
mod order;
mod pages;
mod progress;
mod taints;
mod versions;
mod workloads;

use k8s_openapi::jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use winpool_core::plan::Now;
use winpool_core::windows::builds::Product;
use winpool_simulation::Unfinished;

use crate::explain::forecast::Snapshot;
use crate::explain::groups::{By, Groups};
use crate::explain::installation::Installation;
use crate::explain::status::{PoolSummary, name_held_for, status};
use crate::image::Images;
use crate::lint::Facts;
use crate::view::View;

pub use classes::ClassUse;
pub use failing::FailingPool;
pub use findings::BrokenRule;
pub use fleet::Fleet;
pub use groups::GroupNumbers;
pub use lacks::Lack;
pub use numbers::{About, Numbers};
pub use pages::{fleet_html, html};
pub use progress::{Earlier, NumberChange, Progress};
pub use taints::WaitingTaint;
pub use versions::{PoolNodes, SupportDay, VendorDays, VersionNodes};
pub use workloads::{MovableWorkload, UnclearWorkload, VersionWorkloads};

/// Windows in a cluster at one moment. An absent part is not known; `unknown` has the reasons.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "WindowsReport")]
pub struct Report {
    /// The name of the cluster, from `--name` or the context; absent for manifests without `--name`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// The time at which winpool read the cluster.
    #[schemars(with = "String")]
    pub time: Timestamp,
    /// The version of Kubernetes, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kubernetes: Option<String>,
    /// The nodes that `--assume` changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub assumed: Option<String>,
    /// The objects that winpool could not read, with the reasons. The numbers do not include them.
    pub unknown: Vec<Lack>,
    /// The numbers that the page shows first.
    pub numbers: Numbers,
    /// What `--by` groups by: `namespace`, or `label:` and a key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// The numbers of each group, with `--by`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub groups: Option<Vec<GroupNumbers>>,
    /// The changes since an earlier report, with `--previous`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<Progress>,
    /// winpool's own installation; absent for manifests, or if you may not list Deployments.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub installation: Option<Installation>,
    /// The WindowsPools.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pools: Option<Vec<PoolSummary>>,
    /// The Windows versions of the nodes, oldest first, with their ends of support.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub versions: Option<Vec<VersionNodes>>,
    /// The workloads that need each Windows version, oldest first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workloads: Option<Vec<VersionWorkloads>>,
    /// The taints that winpool does not add yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub taints: Option<Vec<WaitingTaint>>,
    /// The RuntimeClasses for Windows, and the workloads that name them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtime_classes: Option<Vec<ClassUse>>,
    /// Number of unfinished pods on Windows nodes that have no RuntimeClass.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pods_without_class: Option<usize>,
    /// The findings of `winpool check`, by rule, the most severe first.
    pub findings: Vec<BrokenRule>,
    /// The pods that fail because of Windows, by pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failing_pods: Option<Vec<FailingPool>>,
}

impl Report {
    /// True if no workload can be missing.
    pub fn has_all_workloads(&self) -> bool {
        self.unknown.iter().all(|lack| [lacks::IMAGES, lacks::INSTALLATION].contains(&lack.what.as_str()))
    }

    /// True if it lacks nothing: everything is known, and each workload is assessed.
    pub fn is_complete(&self) -> bool {
        self.unknown.is_empty() && self.numbers.unknown.unwrap_or_default() == 0
    }

    /// What the lists are grouped by.
    fn grouping(&self) -> By {
        self.by.as_deref().and_then(|by| by.parse().ok()).unwrap_or(By::Namespace)
    }

    /// True if there is no WindowsPool.
    fn has_no_pool(&self) -> bool {
        self.pools.as_ref().is_some_and(Vec::is_empty)
    }

    /// True if no node and no pool can be missing where some are known.
    fn has_all_nodes(&self) -> bool {
        self.unknown.iter().all(|lack| lack.what != lacks::MANIFESTS && lack.what != lacks::POOL)
    }

    /// The numbers with their names, in the order of the page. The last value is false if objects may be missing.
    fn named_numbers(&self) -> impl Iterator<Item = (&'static str, Option<usize>, bool)> {
        let (nodes, workloads) = (self.has_all_nodes(), self.has_all_workloads());
        self.numbers.named().into_iter().map(move |(name, number, about)| {
            let is_complete = match about {
                About::Nodes => nodes,
                About::Workloads => workloads,
            };
            (name, number, is_complete)
        })
    }
}

/// The input of a report besides the cluster.
#[derive(Debug)]
pub struct ReportInputs<'a> {
    /// The name of the cluster.
    pub cluster: Option<String>,
    /// What to group by.
    pub by: Option<By>,
    pub now: Now,
    /// The answers of registries about images.
    pub images: Images,
    /// The version to move to; by default the next release with long-term support.
    pub move_to: Option<&'static Product>,
    pub assumed: Option<String>,
    pub installation: Option<Installation>,
    /// Objects that could not be read, besides those in the view.
    pub lacks: Vec<Lack>,
    pub previous: Option<&'a Earlier>,
}

/// Makes the report about this cluster.
///
/// # Errors
/// Fails if the operator does not finish.
pub fn report(view: View, question: ReportInputs<'_>) -> Result<Report, Unfinished> {
    let facts = facts(&view, question.images, question.now);
    let (now, unknown) = (question.now, lacks::all(&view, question.lacks));
    let kubernetes = view.kubernetes;
    let knows_pools = view.pools.known().is_some();
    let owners = versions::owners(&view);
    let groups = question.by.as_ref().map(|by| Groups::of(&view, by));
    let workloads =
        workloads::are_known(&view).then(|| workloads::by_version(&view, &facts, question.move_to, groups.as_ref()));
    let users = classes::users(&view);
    let mut numbers = groups.map(|groups| groups::Numbers::new(groups, workloads.as_deref().unwrap_or_default()));
    let findings = findings::by_rule(&view, &facts, |finding| numbers.iter_mut().for_each(|all| all.add(finding)));
    let failures = failing::failures(&view, now);
    let knows_classes = view.classes.known().is_some();
    let snapshot = Snapshot::of(view, now);
    let mut state = status(&snapshot, question.assumed.is_some())?;
    name_held_for(&mut state.pools, &snapshot)?;
    let mut report = Report {
        cluster: question.cluster,
        time: now.time,
        kubernetes: kubernetes.map(|version| version.to_string()),
        assumed: question.assumed,
        numbers: Numbers::default(),
        by: question.by.map(|by| by.to_string()),
        groups: numbers.map(groups::Numbers::listed),
        progress: None,
        installation: question.installation,
        pods_without_class: state.pods_without_class.filter(|_| owners.is_some()),
        versions: owners.map(|owners| versions::versions(&state, &owners, kubernetes, now.time)),
        workloads,
        taints: knows_pools.then(|| taints::waiting(&state.pools)),
        runtime_classes: knows_classes.then(|| classes::uses(state.runtime_classes, users)),
        findings,
        failing_pods: failures.map(|failures| failing::by_pool(failures, &state.pools)),
        pools: knows_pools.then_some(state.pools),
        unknown,
    };
    report.numbers = Numbers::of(
        report.versions.as_deref(),
        report.workloads.as_deref(),
        &report.findings,
        report.taints.as_deref(),
        report.failing_pods.as_deref(),
    );
    report.progress = question.previous.map(|earlier| {
        let workloads = report.workloads.as_deref().unwrap_or_default();
        Progress::since(earlier, &report.numbers, workloads, report.unknown.is_empty())
    });
    Ok(report)
}

fn facts(view: &View, images: Images, now: Now) -> Facts {
    let mut facts = Facts::of(view);
    facts.read_workloads(view, now);
    facts.add_images(images);
    facts
}
