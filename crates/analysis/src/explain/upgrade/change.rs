//! The least change with which a workload runs on the nodes of both versions.

use winpool_core::pod::{Class, System, selects_windows};
use winpool_simulation::Unfinished;

use crate::explain::blockers::image_change;
use crate::explain::pool_change::compatible;
use crate::explain::subject::WorkloadSubject;
use crate::image::known::short;
use crate::image::name::build_of;
use crate::kinds::WorkloadKind;
use crate::placement::Obstacle;
use crate::pod::{ClassExt, PodSpec, path_of};
use crate::remedy::{Edit, Rank, Remedy};
use crate::verdict::{PodOutcome, Verdict};
use crate::view::Node;

use super::facts::UpgradeFacts;
use super::stage::{Role, Scenario, Stage, Stages};

/// Changes of pools that were tried, with the cluster as it is then.
pub(super) struct PoolChanges<'s> {
    scenario: &'s Scenario,
    tried: Vec<(Remedy, Stage, Stage)>,
    /// Why a change could not be tried.
    pub unfinished: Option<Unfinished>,
}

impl<'s> PoolChanges<'s> {
    pub fn new(scenario: &'s Scenario) -> Self {
        Self { scenario, tried: Vec::new(), unfinished: None }
    }

    /// Returns the change of a pool with which the workload runs while the nodes change and afterwards. If it is not known
    /// whether it starts now, that remains.
    pub fn helps(
        &mut self,
        subject: &WorkloadSubject,
        now: PodOutcome,
        stages: &Stages,
        facts: &UpgradeFacts<'_>,
    ) -> Option<Remedy> {
        let class = subject.template.spec.runtime_class.as_ref()?;
        let object = stages.now.objects.get(class).or_else(|| stages.after.objects.get(class))?;
        let change = compatible(object, &self.scenario.now.pools)?;
        if !self.tried.iter().any(|(tried, ..)| *tried == change) {
            let after = || self.scenario.after(Some(&change));
            match self.scenario.rolling(Some(&change)).and_then(|rolling| Ok((rolling, after()?))) {
                Ok((rolling, after)) => self.tried.push((change.clone(), rolling, after)),
                Err(error) => self.unfinished = Some(error),
            }
        }
        let (change, rolling, after) = self.tried.iter().find(|(tried, ..)| *tried == change)?;
        let runs = |stage: &Stage| {
            let runs = stage.answer(&stage.verdict(subject, facts), facts);
            runs.runs() || runs == PodOutcome::Unknown && now == PodOutcome::Unknown
        };
        (runs(rolling) && runs(after)).then(|| change.clone())
    }
}

/// Returns the change of the workload itself with which its pods can be scheduled on the nodes with the new version.
pub(super) fn own(
    subject: &WorkloadSubject,
    stage: &Stage,
    verdict: &Verdict<'_>,
    facts: &UpgradeFacts<'_>,
) -> Option<Remedy> {
    if verdict.refused.is_some() {
        return None;
    }
    let news = stage.with_role(Role::New, verdict);
    let (node, on) = news.min_by_key(|(_, on)| (on.obstacles.len(), on.starts == Some(false)))?;
    if let Some(added) = on.obstacles.iter().find_map(|obstacle| verdict.pod.added_by(obstacle)) {
        return Some(Remedy::advice(added));
    }
    let mut change = Changed {
        subject: subject.changed(subject.template.spec.clone()),
        remedy: Remedy::of(Vec::new()),
        allows_more: false,
    };
    for obstacle in &on.obstacles {
        change.overcome(obstacle, stage, node, facts)?;
    }
    if on.starts == Some(false) {
        if !change.use_own_nodes(stage, facts) {
            change.change_images(node);
        }
    } else if !change.remedy.text.is_empty() {
        change.keep_off_linux();
        let runs = |change: &Changed| stage.answer(&stage.verdict(&change.subject, facts), facts);
        if runs(&change) == PodOutcome::MayNotStart {
            change.select_builds(facts);
        }
        if matches!(runs(&change), PodOutcome::NoNode | PodOutcome::OldNodesOnly) {
            return None;
        }
    }
    Some(change.remedy).filter(|remedy| !remedy.text.is_empty())
}

/// A workload with a change.
struct Changed {
    subject: WorkloadSubject,
    remedy: Remedy,
    /// True if its required node affinity stays, and allows more nodes.
    allows_more: bool,
}

impl Changed {
    fn spec(&mut self) -> &mut PodSpec {
        &mut self.subject.template.spec
    }

    fn edit(&mut self, edit: Edit) {
        edit.apply(self.spec());
        self.remedy.push(edit);
    }

    /// Removes an obstacle on this node. Returns `None` if a change of the workload cannot remove it.
    fn overcome(&mut self, obstacle: &Obstacle, stage: &Stage, node: &Node, facts: &UpgradeFacts<'_>) -> Option<()> {
        match obstacle {
            Obstacle::Selector { key, found, .. } if self.spec().node_selector.contains_key(key) => {
                self.edit(Edit::unselect(key));
                if let Some(found) = found {
                    self.remedy.text = format!("{}, or set {found} at the end", self.remedy.text);
                }
            }
            Obstacle::Selector { .. } => {
                let runs = |verdict: &Verdict<'_>| {
                    let mut news = stage.with_role(Role::New, verdict);
                    news.any(|(_, on)| on.is_possible() && on.starts != Some(false))
                };
                let class = self.class_with(stage, facts, runs)?;
                if self.spec().runtime_class.as_ref() != Some(&class) {
                    self.edit(Edit::class(&class));
                    self.remedy.text.push_str(" at the end");
                    self.remedy.rank = Rank::Decision;
                }
            }
            Obstacle::Affinity(expressions) => {
                let version = node.version.map_or_else(String::new, |version| short(version.build));
                let expressions = expressions.join(" and ");
                self.remedy.also(&format!("allow nodes of {version} too in the node affinity ({expressions})"));
                self.remedy.rank = Rank::Decision;
                self.spec().terms.clear();
                self.allows_more = true;
            }
            Obstacle::Taint(taint) | Obstacle::UnknownOperator(taint) => self.edit(Edit::tolerate(taint)),
            Obstacle::NamesAnotherNode(_) | Obstacle::Unschedulable | Obstacle::Resource { .. } => return None,
        }
        Some(())
    }

    /// Uses the RuntimeClass of the build of its images, if its nodes are there and stay. Returns false if there is none.
    fn use_own_nodes(&mut self, stage: &Stage, facts: &UpgradeFacts<'_>) -> bool {
        let (template, build) = (&self.subject.template.spec, self.subject.template.spec.asked_build());
        if template.runtime_class.is_some()
            || self.subject.kind.is_some_and(WorkloadKind::is_daemon_set)
            || build.is_none()
        {
            return false;
        }
        let start = |verdict: &Verdict<'_>| {
            let mut possible = verdict.nodes.iter().filter(|on| on.is_possible()).peekable();
            possible.peek().is_some() && possible.all(|on| on.starts == Some(true))
        };
        let class = self.class_with(stage, facts, start);
        class.inspect(|class| self.edit(Edit::class(class))).is_some()
    }

    /// Returns the most suitable RuntimeClass with which the pods run.
    fn class_with(
        &self,
        stage: &Stage,
        facts: &UpgradeFacts<'_>,
        runs: impl Fn(&Verdict<'_>) -> bool,
    ) -> Option<String> {
        let spec = &self.subject.template.spec;
        let may = |class: &Class| selects_windows(&class.selector) && class.conflict(spec).is_none();
        let mut classes: Vec<_> = stage.cluster.classes.iter().filter(|(_, class)| may(class)).collect();
        classes.sort_by_key(|(name, class)| (class.image_build() != spec.asked_build(), class.preference(name)));
        let runs = |name: &str| {
            let mut changed = spec.clone();
            changed.runtime_class = Some(name.to_owned());
            runs(&stage.verdict(&self.subject.changed(changed), facts))
        };
        classes.into_iter().map(|(name, _)| name).find(|name| runs(name)).cloned()
    }

    fn change_images(&mut self, node: &Node) {
        let Some(version) = node.version else { return };
        let images: Vec<(String, String)> = self
            .subject
            .template
            .spec
            .images()
            .map(|(container, name)| (format!("{}.image", path_of(container)), name.to_owned()))
            .collect();
        for (field, name) in images {
            if let Some(build) = build_of(&name).filter(|build| *build != version.build) {
                let change = image_change(&field, &name, build, Some(version.build));
                self.remedy = self.remedy.clone().then(change);
            }
        }
    }

    /// Selects Windows if the labels that the change removes were all that did so.
    fn keep_off_linux(&mut self) {
        // The DaemonSet controller ignores classes.
        let has_class =
            self.spec().runtime_class.is_some() && !self.subject.kind.is_some_and(WorkloadKind::is_daemon_set);
        if !self.allows_more && !has_class && self.spec().placed_system() != Some(System::Windows) {
            self.edit(Edit::select_windows());
        }
    }

    /// Selects the versions of today and the new ones, so that the pods stay off nodes on which they do not start.
    fn select_builds(&mut self, facts: &UpgradeFacts<'_>) {
        if self.allows_more || !self.spec().terms.is_empty() {
            return;
        }
        let builds = facts.builds_now().into_iter().chain(facts.targets());
        self.edit(Edit::require_builds(builds.map(|build| build.to_string())));
    }
}
