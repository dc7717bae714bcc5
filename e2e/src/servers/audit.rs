//! The audit log of an API server.

use crate::error::{FileContext, Result, text};
use crate::machine::guard::{Directory, Guard};
use k8s_openapi::jiff::Timestamp;
use serde_json::Value;
use std::io::{Seek, SeekFrom};
use std::path::PathBuf;
use std::sync::Arc;

const POLICY: &str = "apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
- level: Request
";

/// The operator's account, as the API server knows it.
pub const USER: &str = "system:serviceaccount:winpool-system:winpool";

/// The operator's requests come from the account of its installation, or from users with this prefix, by
/// impersonation.
const OPERATOR: &str = "winpool";

/// Tests use this kind to ask for the operator's permissions.
const REVIEW: &str = "selfsubjectaccessreviews";

/// The file in which an API server logs all requests.
pub(crate) struct AuditFile(Arc<Directory>);

/// The requests of operators to one API server since a moment.
pub struct AuditLog {
    directory: Arc<Directory>,
    /// The length of the file at that moment.
    skipped: u64,
    /// A request that was received before may be logged later.
    since: Timestamp,
}

/// A request with its content.
#[derive(Clone, Debug, PartialEq)]
pub struct AuditedRequest {
    pub user: String,
    pub received: Timestamp,
    /// `get`, `create`, `update`, `patch`, `delete`.
    pub verb: String,
    /// `nodes`, or `nodes/status`.
    pub resource: String,
    pub name: String,
    pub code: u64,
    pub body: Value,
}

impl AuditFile {
    pub(crate) fn new() -> Result<Self> {
        Ok(Self(Arc::new(Guard::get()?.directory("audit")?)))
    }

    pub(crate) fn flags(&self) -> Result<[String; 4]> {
        let policy = self.0.path().join("policy.yaml");
        std::fs::write(&policy, POLICY).when("write", &policy)?;
        let policy = format!("--audit-policy-file={}", text(&policy)?);
        let file = format!("--audit-log-path={}", text(&file_in(&self.0))?);
        // By default it begins another file after 100 MB.
        let one_file = "--audit-log-maxsize=10000".to_owned();
        Ok([policy, file, one_file, "--audit-log-mode=blocking".to_owned()])
    }

    /// The requests from now on.
    pub(crate) fn log(&self) -> AuditLog {
        let skipped = std::fs::metadata(file_in(&self.0)).map_or(0, |file| file.len());
        AuditLog { directory: Arc::clone(&self.0), skipped, since: Timestamp::now() }
    }
}

fn file_in(directory: &Directory) -> PathBuf {
    directory.path().join("requests.jsonl")
}

impl AuditLog {
    /// Returns the requests of all operators so far, without watches and lists.
    pub fn requests(&self) -> Vec<AuditedRequest> {
        self.events().iter().filter_map(AuditedRequest::of).collect()
    }

    pub fn of(&self, verb: &str, resource: &str) -> Vec<AuditedRequest> {
        self.requests().into_iter().filter(|request| request.verb == verb && request.resource == resource).collect()
    }

    pub fn patches(&self, node: &str) -> Vec<AuditedRequest> {
        self.of("patch", "nodes").into_iter().filter(|request| request.name == node).collect()
    }

    fn text(&self) -> std::io::Result<String> {
        let mut file = std::fs::File::open(file_in(&self.directory))?;
        file.seek(SeekFrom::Start(self.skipped))?;
        std::io::read_to_string(file)
    }

    /// Returns all audit events of all operators so far. A watch is logged when it ends.
    pub fn events(&self) -> Vec<Value> {
        let text = self.text().unwrap_or_default();
        let events = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let of_operator = |event: &Value| {
            // A user that only impersonates the account is a test.
            let is_operator =
                event["user"]["username"] == USER || user(event).is_some_and(|user| user.starts_with(OPERATOR));
            let is_old = received(event).is_none_or(|received| received < self.since);
            is_operator && !is_old && event["objectRef"]["resource"] != REVIEW
        };
        events.filter(of_operator).collect()
    }
}

fn received(event: &Value) -> Option<Timestamp> {
    event["requestReceivedTimestamp"].as_str()?.parse().ok()
}

fn user(event: &Value) -> Option<&str> {
    event["impersonatedUser"]["username"].as_str().or_else(|| event["user"]["username"].as_str())
}

impl AuditedRequest {
    fn of(event: &Value) -> Option<Self> {
        let (verb, object) = (event["verb"].as_str()?, &event["objectRef"]);
        let text = |key: &str| object[key].as_str().unwrap_or_default().to_owned();
        let subresource = object["subresource"].as_str().map(|s| format!("/{s}")).unwrap_or_default();
        (!matches!(verb, "watch" | "list")).then_some(Self {
            user: user(event)?.to_owned(),
            received: received(event)?,
            verb: verb.to_owned(),
            resource: text("resource") + &subresource,
            name: text("name"),
            code: event["responseStatus"]["code"].as_u64().unwrap_or_default(),
            body: event["requestObject"].clone(),
        })
    }
}
