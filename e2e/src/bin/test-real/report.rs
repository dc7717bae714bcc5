//! The report, as Markdown for an issue.

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use std::fmt;

/// The cluster, and each check with its result.
#[derive(Default)]
pub struct TestReport {
    kubernetes: String,
    nodes: Vec<[String; 5]>,
    checks: Vec<(String, Option<String>)>,
}

impl TestReport {
    /// The environment of the suite.
    pub fn cluster(&mut self, kubernetes: &str, nodes: &[Node]) {
        kubernetes.clone_into(&mut self.kubernetes);
        self.nodes = nodes
            .iter()
            .map(|node| {
                let info = node.status.clone().and_then(|status| status.node_info).unwrap_or_default();
                let os = info.os_image;
                [node.name_any(), os, info.kernel_version, info.kubelet_version, info.container_runtime_version]
            })
            .collect();
    }

    pub fn passed(&mut self, check: &str) {
        eprintln!("passed: {check}");
        self.checks.push((check.to_owned(), None));
    }

    /// Records a check that failed, with the reason.
    pub fn failed(&mut self, check: &str, why: &str) {
        eprintln!("FAILED: {check}: {why}");
        self.checks.push((check.to_owned(), Some(why.to_owned())));
    }

    pub fn check(&mut self, check: &str, result: Result<(), String>) {
        match result {
            Ok(()) => self.passed(check),
            Err(why) => self.failed(check, &why),
        }
    }

    pub fn all_passed(&self) -> bool {
        self.checks.iter().all(|(_, why)| why.is_none())
    }
}

impl fmt::Display for TestReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "## winpool {} on Windows nodes\n", env!("CARGO_PKG_VERSION"))?;
        writeln!(
            f,
            "Kubernetes {}\n\n| node | Windows | kernel | kubelet | runtime |\n|---|---|---|---|---|",
            self.kubernetes
        )?;
        for node in &self.nodes {
            writeln!(f, "| {} |", node.join(" | "))?;
        }
        writeln!(f, "\n| check | result |\n|---|---|")?;
        for (check, why) in &self.checks {
            let result = why.as_deref().map_or_else(|| "passed".to_owned(), |why| format!("FAILED: {why}"));
            writeln!(f, "| {check} | {} |", result.replace(['\n', '|'], " "))?;
        }
        Ok(())
    }
}
