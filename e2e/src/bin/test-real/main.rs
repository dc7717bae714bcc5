//! `make test-real KUBECONFIG=…`: tries winpool on a cluster with real Windows nodes, and prints a report.
//!
//! It says what it will do, and asks before it writes anything and again before it writes to a node. It adds no taint
//! to any node. It removes everything that it created, also after a failure or Ctrl-C.
#![forbid(unsafe_code)]

mod checks;
mod report;

use checks::InitialCluster;
use kube::Config;
use report::TestReport;
use std::io::{BufRead, Write};
use std::process::ExitCode;
use winpool_e2e::error::{Error, Result};

/// The permissions for each part, as they are announced.
const FIRST: &str = "\
It will now create
- the namespace winpool-test-real
- the CustomResourceDefinition windowspools.winpool.dev
- a WindowsPool winpool-test-real in dry run
and run the operator in this process. No node changes. At the end it deletes all of this.";
const SECOND: &str = "\
It will now let the pool write
- the label node.kubernetes.io/windows-build on Windows nodes where it is missing or wrong; this one stays
- the label and the annotation of the pool on these nodes
- a RuntimeClass for each Windows version, unless there is one of that name
and then
- remove that build label from one node, and wait until winpool restores it
- run one pod for each Windows version, from mcr.microsoft.com/windows/nanoserver, and one Linux pod that the kubelet has to refuse
It adds no taint to any node (taintPolicy: Never). At the end it deletes pool, classes, labels and pods.";

#[tokio::main]
async fn main() -> ExitCode {
    let mut report = TestReport::default();
    let result = tokio::select! {
        result = run(&mut report) => result,
        _ = tokio::signal::ctrl_c() => Ok(()),
    };
    if let Err(error) = result {
        report.failed("the suite itself", &error.to_string());
    }
    match checks::clean_up().await {
        Ok(()) => report.passed("everything that it created is gone"),
        Err(error) => report.failed("everything that it created is gone", &error.to_string()),
    }
    println!("\n{report}");
    if report.all_passed() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

async fn run(report: &mut TestReport) -> Result<()> {
    let config = Config::infer().await.map_err(kube::Error::InferConfig)?;
    eprintln!("The cluster is {}", config.cluster_url);
    let trial = InitialCluster::survey(config, report).await?;
    if !agreed(FIRST)? {
        return Ok(());
    }
    let operator = trial.install().await?;
    trial.dry_run(report).await?;
    if agreed(SECOND)? {
        trial.enforce(report).await?;
        trial.repair(report).await?;
        trial.pods(report).await?;
        trial.release(report).await?;
    }
    operator.stop().await
}

/// True if the user agrees. `--yes` agrees to everything.
fn agreed(to: &str) -> Result<bool> {
    eprintln!("\n{to}");
    if std::env::args().any(|argument| argument == "--yes") {
        return Ok(true);
    }
    eprint!("Go on? [y/N] ");
    let unreadable = |source| Error::NotStarted { program: "the question".to_owned(), source };
    std::io::stderr().flush().map_err(unreadable)?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer).map_err(unreadable)?;
    Ok(answer.trim().eq_ignore_ascii_case("y"))
}
