//! The status of a pool: its inputs, and when it is written.

use std::sync::Arc;

use k8s_openapi::api::node::v1::RuntimeClass;
use kube::ResourceExt;

use crate::{
    api::{ObjectReference, Problem, WindowsPoolStatus},
    pod::Class,
};

use super::{
    super::{ClassesPlan, GuardedPool, Observation, Pool, Tally, guarded::recorded, status, suspended_status},
    Cluster, Memory, Now, Request, Step,
    check::whole_seconds,
    write_failed,
};

impl Memory {
    /// Writes the status of a pool that is not being deleted, or waits.
    pub(super) fn report(
        &mut self,
        cluster: &Cluster<'_>,
        guarded: &GuardedPool,
        pool: &Pool,
        plan: ClassesPlan,
        tally: &Tally,
        now: Now,
    ) -> Step {
        let existing = self.classes(cluster, &pool.name);
        self.record_own(pool, &plan, &existing);
        let builds = tally.seen().builds;
        let (classes, mut problems) = self.class_report(pool, plan, &existing, &builds, now.instant);
        let memory = self.of(&pool.name);
        let is_needless = guarded.has_finalizer() && !pool.needs_cleanup();
        let failed = memory.retry(Request::Users, now.instant).into_iter();
        let failed = failed.chain(memory.retries.get(&Request::Finalizer).filter(|_| is_needless));
        let object = || ObjectReference::windows_pool(&pool.name);
        problems.extend(failed.map(|retry| write_failed(object(), retry.refusal.words())));
        problems.extend(tally.problems());
        let admission = cluster.control_plane.admission.clone();
        problems.extend(admission.unlisted_taints(pool).filter(|_| pool.enforces()));
        problems.extend(
            guarded
                .pool
                .as_ref()
                .ok()
                .and_then(|pool| admission.unused_pod_defaults(pool, cluster.control_plane.kubernetes)),
        );
        problems.extend(no_start_from_zero(cluster, pool));
        let mut windows_nodes = 0;
        if tally.counts().selected == 0 {
            (cluster.nodes)(&mut |_| windows_nodes += 1);
        }
        let observation = Observation {
            generation: guarded.metadata.generation,
            nodes: tally.counts(),
            windows_nodes,
            unlabeled: tally.unlabeled,
            untainted: tally.untainted,
            held: self.held(pool, tally),
            unlisted: self.unlisted(&pool.name),
            kubernetes: cluster.control_plane.kubernetes,
            overlap: tally.overlap(),
            builds: tally.revisions.clone(),
            classes,
            admission,
            problems,
        };
        // A dry run records no taints.
        let intended = if pool.enforces() { self.intended(pool) } else { pool.clone().into() };
        let status = status(&intended, &observation, self.recorded_status(guarded), whole_seconds(now.time));
        self.write_status(guarded, status, now)
    }

    /// Writes the status of a pool that is suspended, or waits.
    pub(super) fn suspend(&mut self, guarded: &GuardedPool, reason: &'static str, message: &str, now: Now) -> Step {
        let (generation, time) = (guarded.metadata.generation, whole_seconds(now.time));
        let previous = self.recorded_status(guarded);
        let status = suspended_status(&guarded.name_any(), reason, message, generation, previous, time);
        self.write_status(guarded, status, now)
    }

    /// Writes the status if it changed: at once if it records a taint that nodes are to get, otherwise after
    /// [`STATUS_INTERVAL`].
    fn write_status(&mut self, guarded: &GuardedPool, status: WindowsPoolStatus, now: Now) -> Step {
        let memory = self.of(&guarded.name_any());
        memory.reported = Some(status.clone());
        let previous = memory.written.as_ref().or(guarded.status.as_ref());
        if previous == Some(&status) {
            return Step::Wait(None);
        }
        if let Some(retry) = memory.retry(Request::Status, now.instant) {
            return Step::Wait(Some(retry.until));
        }
        let records = previous.is_none_or(|old| {
            let is_old = |taint: &String| old.approved_taints.iter().any(|approved| approved.taint == *taint);
            status.managed_taints.iter().any(|taint| !old.managed_taints.contains(taint))
                || status.approved_taints.iter().any(|approved| !is_old(&approved.taint))
        });
        let next = memory.next_status.filter(|next| now.instant < *next && !records);
        if next.is_some() {
            return Step::Wait(next);
        }
        let mut news = status.problems.clone();
        news.retain(|problem| {
            let mut known = previous.iter().flat_map(|old| &old.problems);
            !known.any(|known| (&known.reason, &known.object) == (&problem.reason, &problem.object))
        });
        let seen = memory.written.as_ref().map(recorded).or_else(|| guarded.recorded.clone());
        Step::WriteStatus { seen, status: Box::new(status), news }
    }

    /// The recorded status, as far as winpool knows.
    pub(super) fn recorded_status<'a>(&'a self, guarded: &'a GuardedPool) -> Option<&'a WindowsPoolStatus> {
        let written = self.pools.get(&guarded.name_any()).and_then(|memory| memory.written.as_ref());
        written.or(guarded.status.as_ref())
    }
}

/// The problems of declared classes that have no nodes and that no autoscaler makes nodes for.
fn no_start_from_zero(cluster: &Cluster<'_>, pool: &Pool) -> Vec<Problem> {
    let autoscalers = &cluster.control_plane.autoscalers;
    let of_class = |class: &Arc<RuntimeClass>| {
        let (name, class) = (class.name_any(), Class::from(class.as_ref()));
        let problem = autoscalers.problem(pool, &name, &class)?;
        let mut has_nodes = false;
        (cluster.nodes)(&mut |seen| has_nodes |= seen.node.labels.matches(&class.selector));
        (!has_nodes).then_some(problem)
    };
    cluster.classes.iter().filter_map(of_class).collect()
}
