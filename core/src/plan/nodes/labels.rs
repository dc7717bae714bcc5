//! The search for pods that need capability labels of a node which its pool does not want.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Instant,
};

use crate::plan::{label_users::LabelSearch, watched::Sighting};

use super::{
    event::NodeNote,
    object::NodeObject,
    request::{Purpose, Request},
    step::{NodeAnswer, NodeStep},
    table::NodeTable,
};

impl NodeTable {
    pub(super) fn find_pods(&mut self, object: &NodeObject, labels: BTreeSet<String>) -> NodeStep {
        let request = Request { uid: object.uid.clone(), purpose: Purpose::FindPods(labels) };
        self.requests.insert(Arc::clone(&object.name), request);
        NodeStep::FindPods
    }

    /// Records which labels pods need, and removes the others.
    pub(super) fn found_pods(
        &mut self,
        name: &str,
        labels: BTreeSet<String>,
        answer: &NodeAnswer,
        now: Instant,
    ) -> NodeStep {
        let user = |label: &str| match answer {
            NodeAnswer::Users(users) => Ok(users.of(name, label)),
            NodeAnswer::Failed(reason) => Err(*reason),
            _ => Err("failed"),
        };
        let found: Result<BTreeMap<_, _>, _> =
            labels.into_iter().map(|label| user(&label).map(|user| (label, user))).collect();
        let found = match found {
            Ok(found) => found,
            Err(reason) => return self.fail(name, reason, now),
        };
        let Some(entry) = self.entries.get_mut(name) else { return NodeStep::Wait(None) };
        entry.forget_failures();
        let is_news = |label: &String| entry.watched.found().and_then(|found| found.user(label)).is_none();
        let needed = found.iter().filter_map(|(label, user)| Some((label.clone(), user.clone()?)));
        let news: BTreeMap<_, _> = needed.filter(|(label, _)| is_news(label)).collect();
        if !news.is_empty() {
            self.notes.push((Arc::clone(&entry.object), NodeNote::LabelsNeeded(news)));
        }
        entry.watched = std::mem::take(&mut entry.watched).with_found(LabelSearch::new(found, now));
        self.count(name, Sighting::Changed, now);
        self.next(name, now)
    }
}
