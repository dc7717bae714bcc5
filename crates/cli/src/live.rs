//! Reads a live cluster and shows progress on a terminal.

use std::collections::BTreeSet;
use std::io::{self, IsTerminal};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use kube::api::{GetParams, ListParams};
use kube::core::Request;
use kube::{Api, Client, Config, Resource};
use serde::de::DeserializeOwned;
use thiserror::Error;
use winpool_analysis::kubernetes::KubernetesVersion;
use winpool_analysis::view::Known;
use winpool_client::client::{ConnectError, connect_with};
use winpool_client::error::{Failure, RequestError, in_time, read_in_time};
use winpool_client::kubeconfig::{Connection, Unusable};
use winpool_client::pages;
use winpool_client::terminal::escape_lines;

/// Creates a client for reading.
pub fn connect(config: Config) -> Result<Client, ConnectError> {
    connect_with(config, None, std::convert::identity)
}

/// Returns a client for the cluster that these options select.
pub async fn client(connection: &Connection) -> Result<Client, Unusable> {
    Ok(connect(connection.config().await?)?)
}

/// Returns the version of Kubernetes, if it can be read.
pub async fn kubernetes_version(client: &Client) -> Option<KubernetesVersion> {
    let answer = in_time(client.apiserver_version()).await.ok()?;
    KubernetesVersion::parse(&answer.major, &answer.minor)
}

/// A cluster that a command cannot read.
#[derive(Debug, Error)]
pub enum ReadError {
    #[error(
        "the cluster has no WindowsPools: install winpool, or at least its CRD (winpool crd | kubectl apply -f -); to read \
         manifests instead, use -f"
    )]
    NoDefinition,
    #[error("not allowed to {verb} {what}: {message}; you need the permission to {verb} {what}")]
    Forbidden { verb: &'static str, what: String, message: String },
    #[error("the cluster does not accept these credentials")]
    Unauthorized,
    #[error("cannot read {what}: {error}")]
    Failed {
        what: String,
        #[source]
        error: RequestError,
    },
}

impl ReadError {
    /// Converts the error of a request for the resource `what`.
    fn of(verb: &'static str, what: &str, error: RequestError) -> Self {
        let what = what.to_owned();
        match error {
            RequestError::Denied(message) => Self::Forbidden { verb, what, message },
            RequestError::Gone if what == "windowspools" => Self::NoDefinition,
            RequestError::Failed { failure: Failure::Unauthorized, .. } => Self::Unauthorized,
            error => Self::Failed { what, error },
        }
    }
}

/// Selects pods that have not finished.
pub(super) fn unfinished_pods() -> ListParams {
    ListParams::default().fields("status.phase!=Succeeded,status.phase!=Failed")
}

/// Returns the groups that the API server serves, each with a version: `apps/v1`.
pub(super) async fn groups(client: &Client) -> Result<BTreeSet<String>, ReadError> {
    let listed = read_in_time(client.list_api_groups()).await;
    let groups = listed.map_err(|error| ReadError::of("get", "the API groups", error))?.groups;
    Ok(groups.into_iter().flat_map(|group| group.versions).map(|version| version.group_version).collect())
}

/// Lists the objects of the resource `what` that `parameters` select, in pages, and passes each to `found`.
pub(super) async fn list<K: Resource + Clone, T: Clone + DeserializeOwned>(
    what: &str,
    api: &Api<K>,
    parameters: ListParams,
    mut found: impl FnMut(T),
) -> Result<(), ReadError> {
    let progress = ProgressLine::new(format!("reading {what}"));
    let listed = pages::each(api, parameters, |object| {
        progress.one();
        found(object);
    });
    progress.during(listed).await.map_err(|error| ReadError::of("list", what, error))
}

/// Lists the objects of the resource `what`, and keeps of each what `part` returns.
pub(super) async fn collect<K: Resource + Clone, T: Clone + DeserializeOwned, P>(
    what: &str,
    api: &Api<K>,
    parameters: ListParams,
    part: impl Fn(T) -> P,
) -> Result<Vec<P>, ReadError> {
    let mut parts = Vec::new();
    list(what, api, parameters, |object| parts.push(part(object))).await?;
    Ok(parts)
}

/// Fails with any error other than a missing permission.
pub(super) fn known<T>(listed: Result<T, ReadError>) -> Result<Known<T>, ReadError> {
    match listed {
        Ok(objects) => Ok(Known::Complete(objects)),
        Err(ReadError::Forbidden { message, .. }) => Ok(Known::Forbidden(message)),
        Err(error) => Err(error),
    }
}

/// Returns the error of a request that the user has no permission for, so that the command can do without. Fails with any
/// other error.
pub(super) fn unless_forbidden(result: Result<(), ReadError>) -> Result<Option<ReadError>, ReadError> {
    match result {
        Err(error @ ReadError::Forbidden { .. }) => Ok(Some(error)),
        result => result.map(|()| None),
    }
}

/// Prints a note to standard error.
pub(super) fn note(text: &str) {
    eprintln!("winpool: {}", escape_lines(text));
}

/// Reads the object of the resource `what` with this name. Returns `None` if it does not exist.
pub(super) async fn get<K: Resource + Clone, T: DeserializeOwned>(
    what: &str,
    api: &Api<K>,
    name: &str,
) -> Result<Option<T>, ReadError> {
    let progress = ProgressLine::new(format!("reading {what}"));
    let request = Request::new(api.resource_url()).get(name, &GetParams::default());
    let client = api.clone().into_client();
    let answer = async { client.request(request.map_err(kube::Error::BuildRequest)?).await };
    match progress.during(read_in_time(answer)).await {
        Err(RequestError::Gone) => Ok(None),
        found => found.map(Some).map_err(|error| ReadError::of("get", what, error)),
    }
}

/// Waits for `work`, such as requests to registries. After a second, a terminal shows `what`.
pub(super) async fn waiting<T>(what: &str, work: impl Future<Output = T>) -> T {
    ProgressLine::new(what.to_owned()).during(work).await
}

/// Runs `work`, such as a plan for a large cluster. After a second, a terminal shows `what`.
pub(super) fn during<T>(what: &str, work: impl FnOnce() -> T) -> T {
    let progress = ProgressLine::new(what.to_owned());
    if !progress.is_shown {
        return work();
    }
    let (working, done) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let progress = &progress;
        scope.spawn(move || {
            while done.recv_timeout(progress.patience) == Err(RecvTimeoutError::Timeout) {
                progress.show();
            }
        });
        let result = work();
        drop(working);
        result
    })
}

/// The time until the line appears on a terminal, and between two updates of it.
const PATIENCE: Duration = Duration::from_secs(1);
/// Clears the line and returns to its beginning.
const CLEAR: &str = "\r\u{1b}[K";

/// A line on standard error that shows progress. It appears only on a terminal, and is cleared at the end.
struct ProgressLine {
    what: String,
    count: AtomicUsize,
    is_shown: bool,
    patience: Duration,
    was_shown: AtomicBool,
    since: Instant,
}

impl ProgressLine {
    fn new(what: String) -> Self {
        Self {
            what,
            count: AtomicUsize::new(0),
            is_shown: io::stderr().is_terminal(),
            patience: PATIENCE,
            was_shown: AtomicBool::new(false),
            since: Instant::now(),
        }
    }

    fn one(&self) {
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    /// Waits for the result and shows progress.
    async fn during<T>(&self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        loop {
            tokio::select! {
                result = &mut work => return result,
                () = tokio::time::sleep(self.patience), if self.is_shown => self.show(),
            }
        }
    }

    fn show(&self) {
        self.was_shown.store(true, Ordering::Relaxed);
        eprint!("{CLEAR}{}", line(&self.what, self.count.load(Ordering::Relaxed), self.since.elapsed()));
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        if *self.was_shown.get_mut() {
            eprint!("{CLEAR}");
        }
    }
}

/// `reading pods: 12,000 (3 s)…`
fn line(what: &str, count: usize, since: Duration) -> String {
    let count = if count == 0 { String::new() } else { format!(": {}", with_commas(count)) };
    format!("{what}{count} ({} s)…", since.as_secs())
}

/// `12,000`.
fn with_commas(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_shows_the_work_and_its_duration() {
        assert_eq!(line("reading pods", 12_345, Duration::from_millis(3900)), "reading pods: 12,345 (3 s)…");
        assert_eq!(line("planning", 0, Duration::from_secs(1)), "planning (1 s)…");
    }

    #[tokio::test]
    async fn progress_is_shown_after_the_patience() {
        let mut progress = ProgressLine::new("waiting".to_owned());
        (progress.is_shown, progress.patience) = (true, Duration::ZERO);
        let until_shown = async {
            while !progress.was_shown.load(Ordering::Relaxed) {
                tokio::task::yield_now().await;
            }
        };
        progress.during(until_shown).await;
        let mut quick = ProgressLine::new("waiting".to_owned());
        quick.is_shown = true;
        quick.during(async {}).await;
        assert!(!quick.was_shown.load(Ordering::Relaxed));
    }

    #[test]
    fn thousands_are_kept_apart() {
        for (number, text) in [(7, "7"), (999, "999"), (1000, "1,000"), (12_345, "12,345"), (1_234_567, "1,234,567")] {
            assert_eq!(with_commas(number), text);
        }
    }
}
