//! The audit log of an API server.

use crate::error::{FileContext, text};
use crate::guard::{Directory, Guard};
use crate::harness::USER;
use crate::{ApiServer, Result, lend_with};
use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

const POLICY: &str = "apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
- level: Request
";

/// The operator's requests come from the account of its installation, or from users with this prefix, by
/// impersonation.
const OPERATOR: &str = "winpool";

/// Tests use this kind to ask for the operator's permissions.
const REVIEW: &str = "selfsubjectaccessreviews";

/// The requests of operators.
pub struct AuditLog(Directory);

/// A request with its content.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    pub user: String,
    pub received: Timestamp,
    /// `get`, `create`, `update`, `patch`, `delete`.
    pub verb: String,
    /// `nodes`, or `nodes/status`.
    pub resource: String,
    /// The object's name.
    pub name: String,
    /// The code of the answer.
    pub code: u64,
    /// The request's body.
    pub body: Value,
}

impl AuditLog {
    /// Starts an API server that writes an audit log, for one test.
    pub async fn start() -> Result<(ApiServer, Self)> {
        let log = Self(Guard::get()?.directory("audit")?);
        let policy = log.0.path().join("policy.yaml");
        std::fs::write(&policy, POLICY).when("write", &policy)?;
        let policy = format!("--audit-policy-file={}", text(&policy)?);
        let file = format!("--audit-log-path={}", text(&log.file())?);
        let server = lend_with(&[&policy, &file, "--audit-log-mode=blocking"]).await?;
        Ok((server, log))
    }

    fn file(&self) -> std::path::PathBuf {
        self.0.path().join("requests.jsonl")
    }

    /// Returns the requests of all operators so far, without watches and lists.
    pub fn requests(&self) -> Vec<Request> {
        self.events().iter().filter_map(Request::of).collect()
    }

    /// The requests with this verb for this resource.
    pub fn of(&self, verb: &str, resource: &str) -> Vec<Request> {
        self.requests().into_iter().filter(|request| request.verb == verb && request.resource == resource).collect()
    }

    /// The patches of this node.
    pub fn patches(&self, node: &str) -> Vec<Request> {
        self.of("patch", "nodes").into_iter().filter(|request| request.name == node).collect()
    }

    /// Returns all audit events of all operators so far. A watch is logged when it ends.
    pub fn events(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.file()).unwrap_or_default();
        let events = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let of_operator = |event: &Value| {
            // A user that only impersonates the account is a test.
            let is_operator =
                event["user"]["username"] == USER || user(event).is_some_and(|user| user.starts_with(OPERATOR));
            is_operator && event["objectRef"]["resource"] != REVIEW
        };
        events.filter(of_operator).collect()
    }
}

fn user(event: &Value) -> Option<&str> {
    event["impersonatedUser"]["username"].as_str().or_else(|| event["user"]["username"].as_str())
}

impl Request {
    fn of(event: &Value) -> Option<Self> {
        let (verb, object) = (event["verb"].as_str()?, &event["objectRef"]);
        let text = |key: &str| object[key].as_str().unwrap_or_default().to_owned();
        let subresource = object["subresource"].as_str().map(|s| format!("/{s}")).unwrap_or_default();
        (!matches!(verb, "watch" | "list")).then_some(Self {
            user: user(event)?.to_owned(),
            received: event["requestReceivedTimestamp"].as_str()?.parse().ok()?,
            verb: verb.to_owned(),
            resource: text("resource") + &subresource,
            name: text("name"),
            code: event["responseStatus"]["code"].as_u64().unwrap_or_default(),
            body: event["requestObject"].clone(),
        })
    }
}
