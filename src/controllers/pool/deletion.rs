//! The end of a pool: its marks are taken off, its classes go or stay, and then its finalizer goes.

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

use k8s_openapi::api::node::v1::RuntimeClass;
use kube::{Resource, ResourceExt, api::ListParams, runtime::events::EventType};
use winpool_core::{
    api::{
        Problem,
        names::{self, reason},
    },
    plan::{
        Policy, Pool, Remains, Retirement, Standing, assess, classes_of_others, is_to_be_taken_over, owner,
        retire_class, suspended_status, users_of_class, who_uses_it,
    },
};

use crate::{apply::WriteError, controllers::GuardedPool, node::CachedNode, pages, telemetry::words};

use super::{Error, State};

/// How soon the next step of cleaning up is tried.
const NEXT_STEP: Duration = Duration::from_secs(1);

impl State {
    /// Puts the finalizer on a pool that cleans up, and takes it off one that does not. Tells whether it wrote. Where
    /// that is refused, nothing is done for the pool, because nothing could be taken off again, and its status says so.
    pub(super) async fn settle_finalizer(&self, guarded: &GuardedPool, pool: &Pool) -> Result<bool, Error> {
        let wanted = pool.needs_cleanup();
        if has_finalizer(guarded) == wanted {
            return Ok(false);
        }
        let result = self.set_finalizer(guarded, wanted).await;
        if let Err(Error { source: WriteError::Denied(words), .. }) = &result {
            let message =
                format!("the API server refuses the finalizer {}, so nothing is done: {words}", names::CLEANUP);
            let generation = guarded.meta().generation;
            self.report(guarded, |previous, now| {
                suspended_status(&pool.name, reason::ADMISSION_DENIED, &message, generation, previous, now)
            })
            .await?;
        }
        result.map(|()| true)
    }

    async fn set_finalizer(&self, guarded: &GuardedPool, wanted: bool) -> Result<(), Error> {
        match self.shared.applier.set_finalizer(guarded.meta(), wanted).await {
            Ok(()) | Err(WriteError::Gone) => {
                tracing::info!(pool = guarded.name_any(), present = wanted, "finalizer written");
                Ok(())
            }
            Err(source) => Err(Error { pool: guarded.name_any(), object: "finalizer".to_owned(), source }),
        }
    }

    /// One step of cleaning up. Nodes are cleaned by their own controller, which sees the pool going. Returns when to
    /// look again; nothing more is to be done after the finalizer is gone.
    pub(super) async fn clean_up(
        &self,
        guarded: &GuardedPool,
        pool: &Pool,
        policy: &Policy,
    ) -> Result<Option<Duration>, Error> {
        if !has_finalizer(guarded) {
            return Ok(None);
        }
        if pool.needs_cleanup() {
            let overdue = self.going_for(&pool.name) >= self.shared.patience;
            let remains = self.remains(pool, policy).await?;
            if remains.keep(overdue) {
                return Ok(Some(NEXT_STEP));
            }
            let nodes = remains.nodes;
            if nodes.selected > 0 {
                let note = format!(
                    "{} node(s) refuse to be changed and {} are ignored; they keep their marks, see label {}={}",
                    nodes.blocked,
                    nodes.ignored,
                    names::POOL,
                    pool.name
                );
                self.warn(guarded, reason::DELETING, "KeepMarks", note).await;
            }
            if self.give_up_classes(guarded, pool, policy).await? {
                return Ok(Some(NEXT_STEP));
            }
        }
        self.set_finalizer(guarded, false).await?;
        tracing::info!(pool = pool.name, "pool cleaned up");
        Ok(None)
    }

    /// How long this process has been cleaning up. The time since the deletion would count outages of the operator, and
    /// clocks that differ: nodes would be given up that nobody has tried.
    fn going_for(&self, pool: &str) -> Duration {
        self.progress(pool, |progress| progress.going_since.get_or_insert_with(Instant::now).elapsed())
    }

    /// What the pool may still have on nodes. What is under way is looked at first, then what the API server knows of it,
    /// and then what the cache shows.
    async fn remains(&self, pool: &Pool, policy: &Policy) -> Result<Remains, Error> {
        let writing = !self.shared.policy.is_settled();
        let nodes = self.shared.index.totals(&pool.name).counts();
        if nodes.pending > 0 {
            // It stays anyway, so the API server need not be asked.
            return Ok(Remains { nodes, writing, ..Remains::default() });
        }
        let mut marked = BTreeSet::new();
        if !writing {
            let labels = format!("{}={},{}={}", names::OS, names::WINDOWS, names::POOL, pool.name);
            let nodes = pages::each(&self.shared.metadata, ListParams::default().labels(&labels), |node| {
                marked.insert(node.name_any());
            });
            nodes.await.map_err(|source| Error { pool: pool.name.clone(), object: "nodes".to_owned(), source })?;
        }
        let cached = self.shared.nodes.state();
        let handing_over = cached.iter().any(|node| is_to_be_taken_over(&node.seen, &pool.name, policy));
        let mut nodes = self.shared.index.totals(&pool.name).counts();
        for node in cached.iter().filter(|node| node.seen.labels.get(names::POOL) == Some(&pool.name)) {
            marked.remove(node.name());
            // The index follows the cache a moment later.
            if nodes.pending == 0 && self.is_to_be_cleaned(node, pool, policy) {
                nodes.pending = 1;
            }
        }
        Ok(Remains { nodes, handing_over, writing, unseen: !marked.is_empty() })
    }

    fn is_to_be_cleaned(&self, node: &CachedNode, pool: &Pool, policy: &Policy) -> bool {
        let Standing { releasing, plan, .. } = assess(&node.seen, policy);
        let (index, name) = (&self.shared.index, node.name());
        let waits = || index.refusal(name, &plan).is_some() || index.contested(name, &plan).is_some();
        releasing.as_ref() == Some(&pool.name) && !plan.is_empty() && !waits()
    }

    /// Lets a pool go that cannot even be decoded: nobody can tell any more what it put where.
    pub(super) async fn abandon(&self, guarded: &GuardedPool) -> Result<Option<Duration>, Error> {
        if has_finalizer(guarded) {
            let note = "the spec cannot be decoded, so nodes keep their marks and RuntimeClasses stay".to_owned();
            self.warn(guarded, reason::INVALID_SPEC, "Delete", note).await;
            self.set_finalizer(guarded, false).await?;
        }
        Ok(None)
    }

    /// Deletes the classes of a pool that goes, or lets go of them. Tells whether another pool is still to take one.
    async fn give_up_classes(&self, guarded: &GuardedPool, pool: &Pool, policy: &Policy) -> Result<bool, Error> {
        let existing = self.shared.classes.state();
        let wanted = classes_of_others(pool, policy, &|pool| self.shared.index.totals(pool).seen(), &existing);
        let owned: Vec<_> = existing.iter().filter(|class| owner(class) == Some(&pool.name)).collect();
        let (handed_over, given_up): (Vec<_>, Vec<_>) =
            owned.into_iter().partition(|class| wanted.contains(&class.name_any()));
        let names: Vec<String> = given_up.iter().map(|class| class.name_any()).collect();
        self.retire_classes(guarded, &names, &existing).await?;
        Ok(!handed_over.is_empty())
    }

    /// Deletes those of the named classes that no unfinished pod uses; the others, and all if pods cannot be listed,
    /// lose winpool's labels and stay. What the API server refuses holds nothing up and is tried again later.
    pub(super) async fn retire_classes(
        &self,
        guarded: &GuardedPool,
        names: &[String],
        existing: &[Arc<RuntimeClass>],
    ) -> Result<(), Error> {
        let pool = guarded.name_any();
        let refused = self.progress(&pool, |progress| {
            progress.refused_ends.retain(|_, until| Instant::now() < *until);
            progress.refused_ends.clone()
        });
        let due = |name: &String| names.contains(name) && !refused.contains_key(name);
        let due: Vec<_> = existing.iter().filter(|class| due(&class.name_any())).collect();
        if due.is_empty() {
            return Ok(());
        }
        let pods = self.unfinished_pods(&pool).await?;
        for class in due {
            let name = class.name_any();
            let end = retire_class(class, pods.as_deref().map_err(String::as_str));
            match self.retire_class(guarded, class, end).await {
                Ok(()) => {}
                Err(WriteError::Denied(words)) => {
                    let until = Instant::now() + self.shared.patience;
                    self.progress(&pool, |progress| progress.refused_ends.insert(name.clone(), until));
                    let note =
                        format!("RuntimeClass {name} stays as it is, the API server refuses to give it up: {words}");
                    self.warn(guarded, reason::ADMISSION_DENIED, &name, note).await;
                }
                Err(source) => return Err(Error { pool, object: format!("RuntimeClass/{name}"), source }),
            }
        }
        Ok(())
    }

    async fn retire_class(
        &self,
        guarded: &GuardedPool,
        class: &RuntimeClass,
        end: Retirement,
    ) -> Result<(), WriteError> {
        let name = class.name_any();
        gone_is_fine(self.shared.applier.retire_class(class, &end).await)?;
        match end {
            Retirement::Delete => {
                tracing::info!(pool = guarded.name_any(), class = name, "RuntimeClass deleted");
            }
            Retirement::Release { why, .. } => {
                let note = format!("RuntimeClass {name} stays and is no longer winpool's: {why}");
                self.warn(guarded, reason::CLASS_IN_USE, &name, note).await;
            }
        }
        Ok(())
    }

    /// The unfinished pods that use a class which is to be made again, as a problem; `None` when there are none.
    pub(super) async fn in_use(&self, guarded: &GuardedPool, class: &RuntimeClass) -> Result<Option<Problem>, Error> {
        let name = class.name_any();
        let why = match self.unfinished_pods(&guarded.name_any()).await? {
            Ok(pods) => match users_of_class(&pods, &name) {
                users if users.is_empty() => return Ok(None),
                users => who_uses_it(&users),
            },
            Err(words) => format!("pods cannot be listed: {words}"),
        };
        Ok(Some(Problem {
            reason: reason::CLASS_IN_USE.to_owned(),
            object: format!("RuntimeClass/{name}"),
            message: format!("gets another handler, which means to make it again, once no pod uses it; {why}"),
        }))
    }

    async fn warn(&self, guarded: &GuardedPool, reason: &str, action: &str, note: String) {
        tracing::warn!(pool = guarded.name_any(), reason, detail = words(&note), "left as it is");
        self.shared.applier.event(&guarded.object_ref(&()), EventType::Warning, reason, action, note).await;
    }
}

/// Whether a pool that is being deleted waits for winpool.
fn has_finalizer(guarded: &GuardedPool) -> bool {
    guarded.finalizers().iter().any(|finalizer| finalizer == names::CLEANUP)
}

fn gone_is_fine(result: Result<(), WriteError>) -> Result<(), WriteError> {
    match result {
        Err(WriteError::Gone) => Ok(()),
        other => other,
    }
}
