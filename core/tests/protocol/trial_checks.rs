//! Trial checks of pods that wait, and of pods that no check sees.

use winpool_core::{
    plan::trial_check::TrialCheck,
    pod::{Pod, Workload, WorkloadKind},
};

use super::{
    cluster::{Kind, PoolObject, TODAY, Work, later},
    model::Break,
    operator::Operator,
    state::{State, Turn, World},
};

impl Operator {
    /// Starts the check that is due, in scenes with trial checks.
    pub fn start_trial_check(&mut self) {
        let checks = match self.broken {
            Break::NoTrial => false,
            Break::ChecksAfterApproval => self.approves(),
            _ => true,
        };
        if self.trial_check.is_none() && self.trial_checks && checks {
            self.trial_check = self.with_cluster(|cluster, memory, now| memory.start_trial_check(cluster, now));
            self.wake = self.wake.into_iter().chain(self.memory.trial_check_due()).min();
        }
    }

    /// True if the status of a pool approves a taint.
    fn approves(&self) -> bool {
        let mut statuses = self.pools.values().filter_map(|pool| pool.guarded.status.as_ref());
        statuses.any(|status| !status.approved_taints.is_empty())
    }

    /// Carries out the check that has started.
    fn check_trials(&mut self, works: &[Work]) {
        let Some(mut check) = self.trial_check.take() else { return };
        let pods = works.iter().filter_map(|work| self.waiting(work));
        pods.for_each(|pod| check.pod(&pod));
        read_workloads(&mut check, works, self.broken);
        let result = check.finish();
        self.with_cluster(|cluster, memory, now| memory.trial_checked(cluster, Ok(result), now));
    }

    /// The pod of this workload, if no node has it.
    fn waiting(&self, work: &Work) -> Option<Pod> {
        let mut pod = work.pod().filter(|pod| pod.spec.node.is_none())?;
        if self.broken == Break::RunsEndHolds {
            // A kind whose objects are gone when a run ends.
            pod.controller = Some(("Job".to_owned(), work.name.to_owned()));
        }
        Some(pod)
    }
}

fn read_workloads(check: &mut TrialCheck, works: &[Work], broken: Break) {
    let run = |work: &Work| {
        let waits = work.pod.as_ref().is_some_and(|pod| pod.node.is_none());
        let name = work.name.to_owned();
        (broken == Break::RunsEndHolds && waits).then(|| (WorkloadKind::Job, Workload { name, ..Workload::default() }))
    };
    while let Some(name) = check.unknown_workload() {
        let mut templates = works.iter().filter_map(|work| work.template().or_else(|| run(work)));
        let found = templates.find(|(kind, template)| (*kind, &template.name) == (name.0, &name.2));
        check.workload(name, found.map(|(_, template)| template));
    }
}

impl State {
    pub fn check_trials(&mut self) {
        let works: Vec<Work> = self.world.works.iter().map(Work::without_past).collect();
        self.turn(Turn::TrialCheck(works.clone()), |process| process.check_trials(&works));
    }

    /// More than a week passes while the operator does nothing.
    pub fn a_week_passes(&mut self) {
        self.world.is_late = true;
        self.turn(Turn::WeekPasses, |process| process.is_late = true);
    }

    /// True if no pod waits only because of a taint that was on trial when the pod came.
    pub fn nobody_is_overlooked(&self) -> bool {
        let (nodes, classes) = (self.world.nodes.truth(), self.world.classes.truth());
        let waits = |work: &Work| work.is_promised && work.pod.as_ref().is_some_and(|pod| pod.node.is_none());
        self.world.works.iter().all(|work| !waits(work) || work.has_node(nodes, classes))
    }

    /// True if winpool took a taint of each pool back once at most before the pause was over.
    pub fn lifts_once(&self) -> bool {
        self.world.is_late || self.world.lifts.values().all(|lifts| *lifts <= 1)
    }
}

impl World {
    /// Counts the trials that fail with this write of a pool.
    pub fn count_lifts(&mut self, name: &'static str, before: &PoolObject, after: &PoolObject) {
        let held = |pool: &PoolObject| {
            let trials = pool.guarded.status.iter().flat_map(|status| status.taint_trials.clone());
            trials.filter(|trial| trial.retry_at.is_some()).map(|trial| trial.taint).collect::<Vec<_>>()
        };
        let before = held(before);
        if held(after).iter().any(|taint| !before.contains(taint)) {
            *self.lifts.entry(name).or_default() += 1;
        }
    }

    /// A pod comes that no check sees.
    pub fn run(&mut self, name: &'static str) {
        let today = if self.is_late { later() } else { TODAY };
        let on_trial = |pool: &PoolObject| {
            let trials = pool.guarded.status.iter().flat_map(|status| &status.taint_trials);
            trials.filter_map(|trial| trial.until.as_ref()).any(|until| today < until.0)
        };
        let is_promised = self.pools.truth().values().any(on_trial);
        let mut work = Work { is_promised, ..Work::new(name, Kind::Unseen, None) };
        work.start(self);
        self.works.push(work);
    }
}
