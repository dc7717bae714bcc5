//! The requests that passed, and their faults.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use http::Uri;
use tokio::sync::watch;
use winpool_client::request_info::RequestInfo;

use super::schedule::Fault;

/// A request, before its fate is decided.
#[derive(Clone, Debug)]
pub struct Passing {
    pub asked: RequestInfo,
    /// Its path and query.
    pub path: String,
    /// Its number among requests of the same kind, from 0.
    pub number: u64,
    /// Its number among the writes of state, from 0. Events and Leases do not count.
    pub write: Option<u64>,
    pub received: Instant,
}

/// A request and its outcome.
#[derive(Clone, Debug)]
pub struct Passed {
    pub request: Passing,
    pub fault: Option<Fault>,
    /// The code of the server's answer, even if the client did not get it; `None` if there was none.
    pub code: Option<u16>,
}

impl Passed {
    /// `patch nodes 200`.
    pub fn summary(&self) -> String {
        let RequestInfo { verb, resource } = self.request.asked;
        let code = self.code.map_or_else(|| "-".to_owned(), |code| code.to_string());
        format!("{verb} {resource} {code}")
    }
}

pub(super) type FaultRule = Box<dyn Fn(&Passing) -> Option<Fault> + Send + Sync>;

#[derive(Default)]
struct TrafficRecords {
    rule: Option<FaultRule>,
    counts: BTreeMap<RequestInfo, u64>,
    writes: u64,
    faulted: usize,
    passed: Vec<Passed>,
    /// By path without query.
    oldest: BTreeMap<String, String>,
}

/// The records of a proxy.
#[derive(Default)]
pub(super) struct Traffic {
    state: Mutex<TrafficRecords>,
    /// The number of the present rule: a new rule releases requests that are held back.
    rules: watch::Sender<u64>,
}

impl Traffic {
    pub fn inject(&self, rule: FaultRule) {
        let mut state = self.state();
        state.rule = Some(rule);
        state.counts.clear();
        (state.writes, state.faulted) = (0, 0);
        drop(state);
        self.rules.send_modify(|rules| *rules += 1);
    }

    /// Counts a request and decides its fate.
    pub fn next(&self, asked: RequestInfo, uri: &Uri) -> (Passing, Option<Fault>) {
        let mut state = self.state();
        let count = state.counts.entry(asked).or_default();
        let number = *count;
        *count += 1;
        let write = is_write(asked).then_some(state.writes);
        state.writes += u64::from(write.is_some());
        let path = uri.path_and_query().map(ToString::to_string).unwrap_or_default();
        let passing = Passing { asked, path, number, write, received: Instant::now() };
        if let Some(version) = version(uri).filter(|_| asked.verb == "watch") {
            state.oldest.entry(uri.path().to_owned()).or_insert(version);
        }
        let fault = state.rule.as_ref().and_then(|rule| rule(&passing));
        (passing, fault)
    }

    /// The resourceVersion that the first watch of this kind started from.
    pub fn oldest_version(&self, passing: &Passing) -> Option<String> {
        let path = passing.path.split('?').next()?;
        self.state().oldest.get(path).cloned()
    }

    pub fn note(&self, request: Passing, fault: Option<Fault>, code: Option<u16>) {
        let mut state = self.state();
        state.faulted += usize::from(fault.is_some());
        state.passed.push(Passed { request, fault, code });
    }

    pub fn faulted(&self) -> usize {
        self.state().faulted
    }

    pub fn passed(&self) -> Vec<Passed> {
        self.state().passed.clone()
    }

    /// Returns when the rule has changed.
    pub fn released(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut rules = self.rules.subscribe();
        async move {
            // An error means that the proxy is dropped.
            let _ = rules.changed().await;
        }
    }

    fn state(&self) -> MutexGuard<'_, TrafficRecords> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_write(asked: RequestInfo) -> bool {
    matches!(asked.verb, "create" | "update" | "patch" | "delete")
        && !matches!(asked.resource, "events" | "leases" | "other")
}

fn version(uri: &Uri) -> Option<String> {
    let query = form_urlencoded::parse(uri.query()?.as_bytes());
    query.into_iter().find(|(key, _)| key == "resourceVersion").map(|(_, value)| value.into_owned())
}
