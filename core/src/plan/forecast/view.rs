//! What the nodes of a pool show.

use std::collections::{BTreeMap, BTreeSet};

use crate::api::Taint;

use super::super::{Pool, Seen, Standing};

/// What the nodes of a pool show in one round.
#[derive(Default)]
pub(super) struct View {
    pub seen: Seen,
    pub carried: BTreeSet<Taint>,
    pub waiting: BTreeSet<String>,
    pub nodes: usize,
    pub pending: usize,
    pub unreadable: Vec<String>,
    pub differing: BTreeMap<Taint, Vec<String>>,
}

impl View {
    pub fn add(&mut self, name: &str, standing: Standing, pool: Option<&Pool>) {
        let Standing { version, ignored, tolerate, differing, held, owned, plan, .. } = standing;
        self.nodes += 1;
        self.pending += usize::from(!plan.is_empty());
        match version {
            Some(version) => *self.seen.builds.entry(version.build).or_default() += 1,
            None if !ignored => self.unreadable.push(name.to_owned()),
            None => {}
        }
        let lingering = tolerate.iter().filter(|taint| pool.is_some_and(|pool| pool.ever_applied.contains(taint)));
        self.carried.extend(owned.into_iter().chain(lingering.cloned()));
        self.seen.tolerate.extend(tolerate);
        if held {
            self.waiting.insert(name.to_owned());
        }
        for taint in differing {
            self.differing.entry(taint).or_default().push(name.to_owned());
        }
    }
}
