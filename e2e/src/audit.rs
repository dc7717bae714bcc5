//! What an API server was asked: its audit log.

use crate::error::{FileContext, text};
use crate::guard::{Folder, Guard};
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

/// Operators use the account of their installation, or are users whose names start like this, by impersonation.
const OPERATOR: &str = "winpool";

/// With this, tests ask in the operator's name what it may do.
const REVIEW: &str = "selfsubjectaccessreviews";

/// What operators asked.
pub struct AuditLog(Folder);

/// A request, with what it carried.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// Who asked.
    pub user: String,
    /// When it was received.
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
    /// Starts an API server that writes one, for one test.
    ///
    /// # Errors
    /// When it does not start.
    pub async fn start() -> Result<(ApiServer, Self)> {
        let log = Self(Guard::get()?.folder("audit")?);
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

    /// The requests of all operators so far, watches and lists apart.
    #[must_use]
    pub fn requests(&self) -> Vec<Request> {
        self.events().iter().filter_map(Request::of).collect()
    }

    /// All requests of all operators so far, as the API server wrote them down; a watch once it has ended.
    #[must_use]
    pub fn events(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.file()).unwrap_or_default();
        let events = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let of_operator = |event: &Value| {
            // Who only impersonates the account is a test.
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
