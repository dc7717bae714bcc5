//! The RuntimeClasses of a pool: written, or previewed.

use std::{sync::Arc, time::Instant};

use k8s_openapi::api::node::v1::RuntimeClass;
use kube::{Resource, ResourceExt, runtime::events::EventType};
use winpool_core::{
    api::{ClassState, Problem, RuntimeClassStatus, names::reason},
    plan::{ClassAction, ClassesPlan, DesiredClass, PlannedClass, Policy, describe, plan_class, runtime_class_patch},
};

use crate::{apply::WriteError, controllers::GuardedPool};

use super::{ATTEMPTS, Error, REFUSED, Refusal, State};

/// What became of a pool's classes.
#[derive(Default)]
pub(super) struct Outcome {
    pub classes: Vec<RuntimeClassStatus>,
    pub problems: Vec<Problem>,
    /// The tolerations of a class that was there before were changed.
    pub tolerations_changed: bool,
    /// A class that pods may use does not tolerate what the nodes are to get.
    pub holds_nodes: bool,
    /// When the first of the refused classes is to be tried again.
    pub retry_at: Option<Instant>,
}

impl Outcome {
    fn add(&mut self, desired: &DesiredClass, state: ClassState) {
        self.classes.push(RuntimeClassStatus {
            name: desired.name.clone(),
            build: desired.build.to_string(),
            handler: desired.handler.clone(),
            state,
            nodes: 0,
        });
    }

    fn refused(&mut self, planned: &PlannedClass, message: &str, until: Instant) {
        self.retry_at = Some(self.retry_at.map_or(until, |earlier| earlier.min(until)));
        self.holds_nodes |= matches!(planned.action, ClassAction::Change { tolerations: true, .. });
        self.problems.push(Problem {
            reason: reason::ADMISSION_DENIED.to_owned(),
            object: format!("RuntimeClass/{}", planned.desired.name),
            message: format!("the API server refuses the class, next try within 10 minutes: {message}"),
        });
        self.add(&planned.desired, ClassState::Pending);
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
        let name = planned.desired.name.clone();
        apply_one(pool, planned, current, policy, state, &mut outcome).await.map_err(|source| Error {
            pool: pool.name_any(),
            object: format!("RuntimeClass/{name}"),
            source,
        })?;
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
) -> Result<(), WriteError> {
    let name = planned.desired.name.clone();
    let applier = &state.shared.applier;
    for _ in 0..ATTEMPTS {
        if let Some(Refusal { message, until, .. }) = state.refusal(&pool.name_any(), &planned) {
            outcome.refused(&planned, &message, until);
            return Ok(());
        }
        let written = match (&planned.action, &current) {
            (ClassAction::Create(class), _) => applier.create_class(class).await,
            (ClassAction::Change { changes, .. }, Some(class)) => {
                let (uid, version) = (class.uid().unwrap_or_default(), class.resource_version().unwrap_or_default());
                applier.patch_class(&name, runtime_class_patch(&uid, &version, changes)).await
            }
            (ClassAction::Nothing | ClassAction::Change { .. }, _) => {
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
                outcome.tolerations_changed |= matches!(planned.action, ClassAction::Change { tolerations: true, .. });
                outcome.add(&planned.desired, ClassState::Applied);
                return Ok(());
            }
            Err(WriteError::Conflict | WriteError::Stale | WriteError::Gone) => {
                current = applier.read_class(&name).await?;
                planned = plan_class(planned.desired, current.as_ref(), policy);
            }
            Err(WriteError::Denied(message)) => {
                let until = Instant::now() + REFUSED;
                outcome.refused(&planned, &message, until);
                state.class_refused(pool, planned, message, until);
                return Ok(());
            }
            Err(error) => return Err(error),
        }
    }
    Err(WriteError::Conflict)
}

impl State {
    fn refusal(&self, pool: &str, planned: &PlannedClass) -> Option<Refusal> {
        self.progress(pool, |progress| {
            let refusal = progress.refused.get(&planned.desired.name)?;
            let stands = refusal.action == planned.action && Instant::now() < refusal.until;
            stands.then(|| refusal.clone())
        })
    }

    fn class_refused(&self, pool: &GuardedPool, planned: PlannedClass, message: String, until: Instant) {
        let PlannedClass { desired, action, .. } = planned;
        tracing::warn!(pool = pool.name_any(), class = desired.name, %message, "the API server refuses a RuntimeClass");
        self.progress(&pool.name_any(), |progress| {
            progress.refused.insert(desired.name, Refusal { action, message, until });
        });
    }

    async fn class_written(&self, pool: &GuardedPool, planned: &PlannedClass) {
        let name = &planned.desired.name;
        let (reason, fields) = match &planned.action {
            ClassAction::Change { changes, .. } => {
                ("RuntimeClassChanged", changes.iter().map(|change| change.path.join(".")).collect())
            }
            _ => ("RuntimeClassCreated", Vec::new()),
        };
        tracing::info!(pool = pool.name_any(), class = name, ?fields, "RuntimeClass written");
        self.progress(&pool.name_any(), |progress| progress.refused.remove(name));
        let note = if fields.is_empty() { name.clone() } else { format!("{name}: {}", fields.join(", ")) };
        self.shared.applier.event(&pool.object_ref(&()), EventType::Normal, reason, name, note).await;
    }
}
