//! The RuntimeClasses of a pool: written, or previewed.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use k8s_openapi::api::node::v1::RuntimeClass;
use kube::{Resource, ResourceExt, runtime::events::EventType};
use winpool_core::{
    api::{
        ClassState, Problem, RuntimeClassStatus,
        names::{self, reason},
    },
    plan::{ClassAction, ClassesPlan, DesiredClass, PlannedClass, Policy, describe, plan_class, runtime_class_patch},
};

use crate::{
    apply::WriteError,
    controllers::GuardedPool,
    telemetry::{list, words},
};

use super::{ATTEMPTS, Error, LOOK_AGAIN, Postponed, State};

/// What became of a pool's classes.
#[derive(Default)]
pub(super) struct Outcome {
    pub classes: Vec<RuntimeClassStatus>,
    pub problems: Vec<Problem>,
    /// Classes that were there before and got tolerations that they lacked.
    pub widened: Vec<String>,
    /// A class that pods may use does not tolerate what the nodes are to get.
    pub holds_nodes: bool,
}

impl Outcome {
    fn add(&mut self, desired: &DesiredClass, state: ClassState) {
        self.classes.push(RuntimeClassStatus {
            name: desired.name.clone(),
            build: desired.hosts.build().map_or_else(|| "Any".to_owned(), |build| build.to_string()),
            isolation: desired.isolation,
            handler: desired.handler.clone(),
            state,
            nodes: 0,
        });
    }

    /// A write that is not to be sent, or not again before a while.
    fn postponed(&mut self, planned: &PlannedClass, problem: Problem) {
        self.holds_nodes |= matches!(planned.action, ClassAction::Change { tolerations: true, .. });
        self.problems.push(problem);
        self.add(&planned.desired, ClassState::Pending);
    }
}

/// The state of a class after it was written: one that winpool did not make is adopted.
fn written_state(planned: &PlannedClass) -> ClassState {
    match &planned.action {
        ClassAction::Change { adopted: true, .. } => ClassState::Adopted,
        _ => ClassState::Applied,
    }
}

fn contested(desired: &DesiredClass, class: Option<&RuntimeClass>) -> Problem {
    let mut managers = class.iter().flat_map(|class| class.managed_fields()).filter_map(|e| e.manager.as_deref());
    let rival = managers.rfind(|manager| *manager != names::FIELD_MANAGER).unwrap_or("unknown");
    Problem {
        reason: reason::CONTESTED.to_owned(),
        object: format!("RuntimeClass/{}", desired.name),
        message: format!(
            "somebody keeps undoing winpool's changes (field manager: {rival}); correct the class where it is kept, or \
             give this pool's classes other names with classNameFormat"
        ),
    }
}

fn denied(desired: &DesiredClass, message: &str) -> Problem {
    Problem {
        reason: reason::ADMISSION_DENIED.to_owned(),
        object: format!("RuntimeClass/{}", desired.name),
        message: format!("the API server refuses the class, next try within 10 minutes: {message}"),
    }
}

/// What would become of the classes, without writing any.
pub(super) fn preview(plan: ClassesPlan) -> Outcome {
    let mut outcome = Outcome { problems: plan.problems, ..Outcome::default() };
    for PlannedClass { desired, action, state } in plan.classes {
        let would = describe(&action).map(|message| Problem {
            reason: reason::WOULD_CHANGE.to_owned(),
            object: format!("RuntimeClass/{}", desired.name),
            message,
        });
        outcome.problems.extend(would);
        if let ClassAction::Conflict(problem) = action {
            outcome.problems.push(problem);
        }
        outcome.add(&desired, state);
    }
    outcome
}

/// Writes what the plan says. `existing` are the classes that it was made from.
pub(super) async fn apply(
    pool: &GuardedPool,
    plan: ClassesPlan,
    existing: &[Arc<RuntimeClass>],
    policy: &Policy,
    state: &State,
) -> Result<Outcome, Error> {
    let mut outcome = Outcome { problems: plan.problems, ..Outcome::default() };
    for planned in plan.classes {
        let current = existing.iter().find(|class| class.name_any() == planned.desired.name);
        let current = current.map(|class| class.as_ref().clone());
        apply_one(pool, planned, current, policy, state, &mut outcome).await?;
    }
    Ok(outcome)
}

async fn apply_one(
    pool: &GuardedPool,
    mut planned: PlannedClass,
    mut current: Option<RuntimeClass>,
    policy: &Policy,
    state: &State,
    outcome: &mut Outcome,
) -> Result<(), Error> {
    let name = planned.desired.name.clone();
    let failed = |source| Error { pool: pool.name_any(), object: format!("RuntimeClass/{name}"), source };
    let applier = &state.shared.applier;
    for _ in 0..ATTEMPTS {
        if let Some(problem) = state.postponed(&pool.name_any(), &planned) {
            outcome.postponed(&planned, problem);
            return Ok(());
        }
        if let Some(pause) = state.class_contested(&pool.name_any(), &planned) {
            let problem = contested(&planned.desired, current.as_ref());
            outcome.postponed(&planned, problem.clone());
            state.postpone(pool, planned, problem, pause);
            return Ok(());
        }
        let written = match (&planned.action, &current) {
            (ClassAction::Create(class), _) => applier.create_class(class).await,
            (ClassAction::Change { changes, .. }, Some(class)) => {
                let (uid, version) = (class.uid().unwrap_or_default(), class.resource_version().unwrap_or_default());
                applier.patch_class(&name, runtime_class_patch(&uid, &version, changes)).await
            }
            (ClassAction::Replace(class), Some(existing)) => {
                if let Some(problem) = state.in_use(pool, existing).await? {
                    outcome.postponed(&planned, problem.clone());
                    state.postpone(pool, planned, problem, LOOK_AGAIN);
                    return Ok(());
                }
                match applier.delete_class(existing).await {
                    Ok(()) => applier.create_class(class).await,
                    Err(error) => Err(error),
                }
            }
            (ClassAction::Nothing | ClassAction::Change { .. } | ClassAction::Replace(_), _) => {
                outcome.add(&planned.desired, planned.state);
                return Ok(());
            }
            (ClassAction::Conflict(problem), _) => {
                outcome.problems.push(problem.clone());
                outcome.add(&planned.desired, planned.state);
                return Ok(());
            }
        };
        match written {
            Ok(_) => {
                state.class_written(pool, &planned).await;
                if matches!(planned.action, ClassAction::Change { tolerations: true, .. }) {
                    outcome.widened.push(name.clone());
                }
                outcome.add(&planned.desired, written_state(&planned));
                return Ok(());
            }
            Err(WriteError::Conflict | WriteError::Stale | WriteError::Gone) => {
                current = applier.read_class(&name).await.map_err(failed)?;
                planned = plan_class(planned.desired, current.as_ref(), policy);
            }
            Err(WriteError::Denied(message)) => {
                let problem = denied(&planned.desired, &message);
                outcome.postponed(&planned, problem.clone());
                state.postpone(pool, planned, problem, state.shared.patience);
                return Ok(());
            }
            Err(error) => return Err(failed(error)),
        }
    }
    Err(failed(WriteError::Conflict))
}

impl State {
    fn postponed(&self, pool: &str, planned: &PlannedClass) -> Option<Problem> {
        self.progress(pool, |progress| {
            let postponed = progress.postponed.get(&planned.desired.name)?;
            let stands = postponed.action == planned.action && Instant::now() < postponed.until;
            stands.then(|| postponed.problem.clone())
        })
    }

    fn postpone(&self, pool: &GuardedPool, planned: PlannedClass, problem: Problem, wait: Duration) {
        let PlannedClass { desired, action, .. } = planned;
        let (name, reason, detail) = (&desired.name, &problem.reason, words(&problem.message));
        tracing::warn!(
            pool = pool.name_any(),
            class = name,
            reason,
            detail,
            wait_ms = wait.as_millis(),
            "RuntimeClass not written"
        );
        let postponed = Postponed { action, problem, until: Instant::now() + wait };
        self.progress(&pool.name_any(), |progress| progress.postponed.insert(desired.name, postponed));
    }

    /// How long this write has to wait because somebody keeps undoing it.
    fn class_contested(&self, pool: &str, planned: &PlannedClass) -> Option<Duration> {
        let contest = self.progress(pool, |progress| progress.contests.get(&planned.desired.name).cloned());
        contest?.pause(&describe(&planned.action), Instant::now())
    }

    async fn class_written(&self, pool: &GuardedPool, planned: &PlannedClass) {
        let name = &planned.desired.name;
        let (reason, fields) = match &planned.action {
            ClassAction::Change { changes, .. } => {
                ("RuntimeClassChanged", changes.iter().map(|change| change.path.join(".")).collect())
            }
            ClassAction::Replace(_) => ("RuntimeClassReplaced", vec!["handler".to_owned()]),
            _ => ("RuntimeClassCreated", Vec::new()),
        };
        tracing::info!(
            pool = pool.name_any(),
            class = name,
            reason,
            fields = list(fields.clone()),
            "RuntimeClass written"
        );
        let (what, now) = (describe(&planned.action), Instant::now());
        self.progress(&pool.name_any(), |progress| {
            progress.postponed.remove(name);
            progress.contests.entry(name.clone()).or_default().written(what, now);
        });
        let note = if fields.is_empty() { name.clone() } else { format!("{name}: {}", fields.join(", ")) };
        self.shared.applier.event(&pool.object_ref(&()), EventType::Normal, reason, name, note).await;
    }
}
