//! Remedies of rules, for the tests here and for tests on an API server.

use serde::Deserialize;
use serde_json::Value;

/// A remedy that is applied.
#[derive(Debug, Deserialize)]
pub struct Case {
    pub rule: String,
    #[serde(default = "deployment")]
    pub kind: String,
    /// The nodes and classes: `cluster`, `open` or `none`.
    #[serde(default = "cluster")]
    pub cluster: String,
    pub before: Value,
    /// The remedy, or its beginning.
    pub remedy: String,
    pub after: Value,
    /// The nodes on which the scheduler puts the pod.
    #[serde(default)]
    pub lands: Vec<String>,
    /// True if the API server refuses the pod for another reason.
    #[serde(default)]
    pub refused: bool,
}

fn deployment() -> String {
    "Deployment".to_owned()
}

fn cluster() -> String {
    "cluster".to_owned()
}

pub fn cases() -> Vec<Case> {
    serde_yaml::from_str(include_str!("remedies.yaml")).unwrap()
}
