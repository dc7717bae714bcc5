//! The least change with which a workload runs on the nodes of both versions.

use k8s_openapi::api::core::v1::{NodeSelectorRequirement, NodeSelectorTerm};
use serde_json::{Map, Value, json};
use winpool_core::{
    api::names,
    plan::owner,
    pod::{PodSpec, System, WorkloadKind, selects_windows, tolerations::toleration},
    windows::image,
    words::yaml,
};

use crate::{
    explain::{blockers::image_change, pod::TemplateFit},
    placement::Obstacle,
    pod::ClassExt,
    view::Node,
    workload::KINDS,
};

use super::{
    facts::UpgradeFacts,
    pool_change::PoolChange,
    result::{PodOutcome, Remedy, short_name},
    stage::{Role, Scenario, Stage, Stages},
    subject::UpgradeSubject,
};

/// Changes of pools that were tried, with the cluster as it is then.
pub(super) struct PoolChanges<'s> {
    scenario: &'s Scenario,
    tried: Vec<(PoolChange, Stage, Stage)>,
}

impl<'s> PoolChanges<'s> {
    pub fn new(scenario: &'s Scenario) -> Self {
        Self { scenario, tried: Vec::new() }
    }

    /// Returns the change of a pool with which the workload runs while the nodes change and afterwards. If it is not known
    /// whether it starts now, that remains.
    pub fn helps(
        &mut self,
        subject: &UpgradeSubject,
        now: PodOutcome,
        stages: &Stages,
        facts: &UpgradeFacts<'_>,
    ) -> Option<Remedy> {
        let class = subject.template.spec.runtime_class.as_ref()?;
        let object = stages.now.objects.get(class).or_else(|| stages.after.objects.get(class))?;
        let (name, pools) = (owner(object)?, &self.scenario.now.pools);
        let pool = pools.iter().find(|pool| pool.metadata.name.as_deref() == Some(name))?;
        let change = PoolChange::of(pool, class)?;
        if !self.tried.iter().any(|(tried, ..)| *tried == change) {
            let (rolling, after) = (self.scenario.rolling(Some(&change)), self.scenario.after(Some(&change)));
            self.tried.push((change.clone(), rolling, after));
        }
        let (change, rolling, after) = self.tried.iter().find(|(tried, ..)| *tried == change)?;
        let runs = |stage: &Stage| {
            let runs = stage.answer(&stage.fits(subject, facts), facts);
            runs.runs() || runs == PodOutcome::Unknown && now == PodOutcome::Unknown
        };
        (runs(rolling) && runs(after)).then(|| change.remedy(pools))
    }
}

/// Returns the change of the workload itself with which its pods can be scheduled on the nodes with the new version.
pub(super) fn own(
    subject: &UpgradeSubject,
    stage: &Stage,
    fits: &TemplateFit,
    facts: &UpgradeFacts<'_>,
) -> Option<Remedy> {
    if fits.refused.is_some() {
        return None;
    }
    let news = stage.with_role(Role::New, fits);
    let (index, fit) = news.min_by_key(|(_, fit)| (fit.obstacles.len(), fit.starts == Some(false)))?;
    let node = stage.nodes.get(index)?;
    let mut edit = Edit {
        subject: subject.changed(subject.template.spec.clone()),
        steps: Vec::new(),
        patch: Some(Map::new()),
        allows_more: false,
    };
    for obstacle in &fit.obstacles {
        edit.overcome(obstacle, stage, node, facts)?;
    }
    if fit.starts == Some(false) {
        edit.change_images(node);
    } else if !edit.steps.is_empty() {
        edit.keep_off_linux();
        let runs = |edit: &Edit| stage.answer(&stage.fits(&edit.subject, facts), facts);
        if runs(&edit) == PodOutcome::MayNotStart {
            edit.select_builds(facts);
        }
        if matches!(runs(&edit), PodOutcome::NoNode | PodOutcome::OldNodesOnly) {
            return None;
        }
    }
    (!edit.steps.is_empty()).then(|| Remedy {
        object: subject.object.clone(),
        change: edit.steps.join("; "),
        patch: edit.patch(),
    })
}

/// A change of a workload.
struct Edit {
    /// The workload with the change.
    subject: UpgradeSubject,
    steps: Vec<String>,
    /// The changes of its pod spec as a merge patch; `None` if these are not all.
    patch: Option<Map<String, Value>>,
    /// True if its required node affinity stays, and allows more nodes.
    allows_more: bool,
}

impl Edit {
    fn spec(&mut self) -> &mut PodSpec {
        &mut self.subject.template.spec
    }

    fn step(&mut self, step: String) {
        self.steps.push(step);
        self.patch = None;
    }

    /// Adds a change of a label of the node selector to the patch.
    fn patch_selector(&mut self, key: &str, value: Value) {
        if let Some(patch) = &mut self.patch {
            patch.entry("nodeSelector").or_insert_with(|| json!({}))[key] = value;
        }
    }

    /// Removes an obstacle on this node. Returns `None` if a change of the workload cannot remove it.
    fn overcome(&mut self, obstacle: &Obstacle, stage: &Stage, node: &Node, facts: &UpgradeFacts<'_>) -> Option<()> {
        match obstacle {
            Obstacle::Selector { key, found, .. } if self.spec().node_selector.remove(key).is_some() => {
                let instead = found.as_ref().map_or_else(String::new, |found| format!(", or set {found} at the end"));
                self.steps.push(format!("nodeSelector: remove {key}{instead}"));
                self.patch_selector(key, Value::Null);
            }
            Obstacle::Selector { .. } => {
                let class = self.other_class(stage, facts)?;
                if self.spec().runtime_class.as_ref() != Some(&class) {
                    self.step(format!("runtimeClassName: {class} at the end"));
                    self.spec().runtime_class = Some(class);
                }
            }
            Obstacle::Affinity(expressions) => {
                let version = node.version.map_or_else(String::new, |version| short_name(version.build));
                self.step(format!("nodeAffinity: allow nodes of {version} too ({})", expressions.join(" and ")));
                self.spec().terms.clear();
                self.allows_more = true;
            }
            Obstacle::Taint(taint) | Obstacle::UnknownOperator(taint) => {
                self.step(format!("tolerations: add {}", yaml(&json!(toleration(taint)))));
                self.spec().tolerations.push(toleration(taint));
            }
            Obstacle::NamesAnotherNode(_) | Obstacle::Unschedulable | Obstacle::Resource { .. } => return None,
        }
        Some(())
    }

    /// Returns a RuntimeClass with which the pods run on nodes with the new version.
    fn other_class(&self, stage: &Stage, facts: &UpgradeFacts<'_>) -> Option<String> {
        let spec = &self.subject.template.spec;
        let may = stage
            .classes
            .iter()
            .filter(|(_, class)| selects_windows(&class.selector) && class.conflict(spec).is_none());
        let runs = |name: &str| {
            let changed = PodSpec { runtime_class: Some(name.to_owned()), ..spec.clone() };
            let fits = stage.fits(&self.subject.changed(changed), facts);
            let mut news = stage.with_role(Role::New, &fits);
            news.any(|(_, fit)| fit.obstacles.is_empty() && fit.starts != Some(false))
        };
        may.map(|(name, _)| name.clone()).find(|name| runs(name))
    }

    fn change_images(&mut self, node: &Node) {
        let Some(version) = node.version else { return };
        let images: Vec<String> = self.subject.template.spec.images().map(|(_, name)| name.to_owned()).collect();
        for name in images {
            if let Some(build) = image::build_of(&name).filter(|build| *build != version.build) {
                self.step(format!("image: {}", image_change(&name, build, Some(version.build))));
            }
        }
    }

    /// Selects Windows if the labels that the change removes were all that did so.
    fn keep_off_linux(&mut self) {
        // The DaemonSet controller ignores classes.
        let has_class = self.spec().runtime_class.is_some() && self.subject.kind != Some(WorkloadKind::DaemonSet);
        if self.allows_more || has_class || self.spec().placed_system() == Some(System::Windows) {
            return;
        }
        self.spec().node_selector.insert(names::OS.to_owned(), names::WINDOWS.to_owned());
        self.steps.push(format!("nodeSelector: add {}: {}", names::OS, names::WINDOWS));
        self.patch_selector(names::OS, json!(names::WINDOWS));
    }

    /// Selects the versions of today and the new ones, so that the pods stay off nodes on which they do not start.
    fn select_builds(&mut self, facts: &UpgradeFacts<'_>) {
        if self.allows_more || !self.spec().terms.is_empty() {
            return;
        }
        let builds = facts.builds_now().into_iter().chain(facts.targets());
        let values: Vec<String> = builds.map(|build| build.to_string()).collect();
        let key = names::WINDOWS_BUILD;
        self.steps.push(format!("nodeAffinity: require {key} In ({})", values.join(", ")));
        let terms = json!([{"matchExpressions": [{"key": key, "operator": "In", "values": values}]}]);
        if let Some(patch) = &mut self.patch {
            let required = json!({"nodeSelectorTerms": terms});
            let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}});
            patch.insert("affinity".to_owned(), affinity);
        }
        let requirement =
            NodeSelectorRequirement { key: key.to_owned(), operator: "In".to_owned(), values: Some(values) };
        self.spec().terms.push(NodeSelectorTerm { match_expressions: Some(vec![requirement]), match_fields: None });
    }

    /// Returns the change as a merge patch, if it can be written as one and the API server accepts it.
    fn patch(self) -> Option<Value> {
        use WorkloadKind::{CronJob, DaemonSet, Deployment, ReplicationController, StatefulSet};
        let kind = self.subject.kind?;
        let is_mutable = [Deployment, StatefulSet, DaemonSet, ReplicationController, CronJob].contains(&kind);
        let changes = self.patch.filter(|changes| is_mutable && !changes.is_empty())?;
        let (.., path) = KINDS.iter().find(|(known, ..)| *known == kind.as_str())?;
        Some(path.rsplit('.').fold(json!(changes), |inner, key| json!({ key: inner })))
    }
}
