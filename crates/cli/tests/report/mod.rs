//! `winpool report`: one value as JSON and as a page.

mod browser;
mod cluster;
mod shown;

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use serde_json::Value;
use winpool::read::view::{Everything, Seen};
use winpool_analysis::explain::report::{Earlier, Lack, Report, ReportInputs, html, report};
use winpool_analysis::image::Images;
use winpool_analysis::kinds::WorkloadKind;
use winpool_analysis::view::assume::{Assumption, assume};
use winpool_analysis::view::{Known, View, changed_pool, kubernetes_version};
use winpool_core::api::Mode;
use winpool_core::plan::Now;

use cluster::{Objects, hostile, many, mixed};
pub use shown::shown;

/// The view of these objects, as `-f` reads it.
fn view(objects: &Objects) -> View {
    let file = tempfile::NamedTempFile::with_suffix(".json").unwrap();
    std::fs::write(file.path(), objects.list()).unwrap();
    let files = [PathBuf::from(file.path())];
    Seen::of_version::<Everything>(&files, io::empty(), kubernetes_version("1.36")).unwrap().view
}

/// The report about this view on a certain day.
fn of_view(view: View, previous: Option<&Earlier>, lacks: Vec<Lack>) -> Report {
    let question = ReportInputs {
        cluster: None,
        by: None,
        now: Now { instant: Instant::now(), time: "2026-11-24T06:30:00Z".parse().unwrap() },
        images: Images::default(),
        move_to: None,
        assumed: None,
        installation: None,
        lacks,
        previous,
    };
    report(view, question).unwrap()
}

fn of(objects: &Objects) -> Report {
    of_view(view(objects), None, Vec::new())
}

fn json(report: &Report) -> String {
    serde_json::to_string_pretty(report).unwrap()
}

/// Saves the page where a browser can open it.
fn saved(report: &Report, directory: &Path, name: &str) -> PathBuf {
    let file = directory.join(name);
    std::fs::write(&file, html(report)).unwrap();
    file
}

#[test]
fn a_report_has_versions_workloads_taints_classes_findings_and_failing_pods() {
    let report = of(&mixed());
    insta::assert_snapshot!("json", json(&report));
    insta::assert_snapshot!("page", shown(&html(&report)));
}

#[test]
fn a_pool_in_dry_run_would_hold_a_taint() {
    let mut view = view(&mixed());
    for (_, pool) in view.pools.known_mut().unwrap() {
        *pool = changed_pool(pool, |pool| pool.spec.mode = Mode::DryRun);
    }
    let report = of_view(view, None, Vec::new());
    let page = html(&report);
    assert!(page.contains("winpool would hold it") && !page.contains("winpool holds it"), "{page}");
}

#[test]
fn the_page_is_the_same_each_time() {
    assert_eq!(html(&of(&mixed())), html(&of(&mixed())));
}

#[test]
fn the_page_has_the_numbers_of_json() {
    let report = of(&mixed());
    let page = html(&report);
    let numbers: Value = serde_json::from_str::<Value>(&json(&report)).unwrap()["numbers"].clone();
    assert_eq!((&numbers["nodeCount"], &numbers["pinned"], &numbers["failingPods"]), (&6.into(), &4.into(), &1.into()));
    for (name, number, _) in report.numbers.named() {
        let number = number.unwrap();
        let numbers = page.replace("<dd class=\"bad\">", "<dd>");
        assert!(numbers.contains(&format!("<dt>{name}</dt><dd>{number}</dd>")), "{name}: {number}");
    }
    for version in report.workloads.iter().flatten() {
        for (title, all) in
            [("Pinned: what to change", version.pinned.len()), ("These can move", version.can_move.len())]
        {
            if all > 0 {
                assert!(page.contains(&format!("{title} <span class=\"quiet\">{all}</span>")), "{title}: {all}");
            }
        }
    }
}

#[test]
fn the_page_needs_no_other_file() {
    let page = html(&of(&mixed()));
    assert!(page.contains("default-src 'none'"));
    for part in ["<script", "<img", "<iframe", "@import", "url(", "src="] {
        assert!(!page.contains(part), "{part}");
    }
    let hosts: BTreeSet<&str> = page.split("https://").skip(1).map(|rest| rest.split('/').next().unwrap()).collect();
    assert_eq!(hosts, BTreeSet::from(["github.com", "learn.microsoft.com"]), "sources of vendors, as links");
}

#[test]
fn names_from_a_cluster_are_escaped() {
    let page = html(&of(&hostile()));
    assert!(page.contains("&lt;script&gt;"));
    for part in ["<script", "<img", "\u{202e}", "\u{1b}", "\" onmouseover"] {
        assert!(!page.contains(part), "{part:?} in HTML");
    }
}

#[test]
fn what_is_not_known_is_named_and_never_none() {
    let mut view = view(&mixed());
    let words = || "nodes is forbidden: User \"member\" cannot list it".to_owned();
    (view.nodes, view.pods, view.pools) =
        (Known::Forbidden(words()), Known::Forbidden(words()), Known::Forbidden(words()));
    *view.workloads.of_kind(WorkloadKind::own("CronJob").unwrap()) =
        Known::Forbidden("cronjobs is forbidden".to_owned());
    let report = of_view(view, None, vec![Lack::installation("leases is forbidden")]);
    let unknown: Vec<&str> = report.unknown.iter().map(|lack| lack.what.as_str()).collect();
    assert_eq!(unknown, ["nodes", "windowspools", "pods", "cronjobs", "installation"]);
    let value: Value = serde_json::from_str(&json(&report)).unwrap();
    for part in ["versions", "pools", "taints", "failingPods", "podsWithoutClass"] {
        assert_eq!(value.get(part), None, "{part}");
    }
    for number in ["nodes", "heldTaints", "failingPods"] {
        assert_eq!(value["numbers"].get(number), None, "{number}");
    }
    let page = html(&report);
    for part in [
        "What this report does not know",
        "cronjobs is forbidden",
        "not known",
        "at least",
        "leases is forbidden. The state",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    for part in ["There is no WindowsPool", "There is no Windows node", "No taint waits", "Nothing keeps"] {
        assert!(!page.contains(part), "{part}: {page}");
    }
}

#[test]
fn an_earlier_report_shows_progress() {
    let before: Earlier = serde_json::from_str(&json(&of(&mixed()))).unwrap();
    let after = mixed().without("cart").with_web_on_2022();
    let report = of_view(view(&after), Some(&before), Vec::new());
    let progress = report.progress.as_ref().unwrap();
    let freed: Vec<&str> = progress.freed.iter().map(|object| object.name.as_str()).collect();
    assert!(freed.contains(&"cart") && !progress.is_incomplete, "{progress:?}");
    let pinned = progress.numbers.iter().find(|change| change.name.starts_with("Pinned")).unwrap();
    assert_eq!((pinned.before, pinned.now), (Some(4), Some(3)));
    let page = html(&report);
    assert!(page.contains("Changes since the report of 2026-11-24 06:30 UTC") && page.contains("−1"), "{page}");

    // A workload that is not seen has not moved.
    let mut unseen = view(&after);
    *unseen.workloads.of_kind(WorkloadKind::own("Deployment").unwrap()) =
        Known::Forbidden("deployments is forbidden".to_owned());
    let report = of_view(unseen, Some(&before), Vec::new());
    let progress = report.progress.as_ref().unwrap();
    assert!(progress.is_incomplete && progress.freed.is_empty(), "{progress:?}");
}

#[test]
fn a_report_can_assume_another_version() {
    let mut view = view(&mixed());
    let assumption: Assumption = "kubernetes.azure.com/agentpool=old:2022".parse().unwrap();
    assume(&mut view, &[assumption]).unwrap();
    let report = of_view(view, None, Vec::new());
    assert_eq!(report.numbers.nodes_by_build.get("10.0.17763"), None);
    assert_eq!(report.numbers.nodes_out_of_support, Some(0));
}

#[test]
fn the_page_about_5000_nodes_and_2000_workloads_is_at_most_1_mb() {
    let report = of(&many(5000, 2000));
    assert_eq!((report.numbers.node_count, report.numbers.pinned), (Some(5000), Some(2000)));
    let bytes = html(&report).len();
    assert!((100_000..=1_000_000).contains(&bytes), "{bytes} bytes");
}

#[test]
fn the_command_writes_a_page_by_default_and_reads_an_earlier_report() {
    let directory = tempfile::tempdir().unwrap();
    let (file, last) = (directory.path().join("cluster.json"), directory.path().join("last.json"));
    std::fs::write(&file, mixed().list()).unwrap();
    let run = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_winpool"));
        command.args(["report", "-f", file.to_str().unwrap()]).args(arguments).env("KUBECONFIG", "/nonexistent");
        let output = command.output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    let (code, page, error) = run(&[]);
    assert_eq!((code, error.as_str()), (Some(2), ""), "a workload is not assessed");
    assert!(page.starts_with("<!DOCTYPE html>"), "{page}");
    let (_, report, _) = run(&["-o", "json"]);
    std::fs::write(&last, report).unwrap();
    let previous = ["--previous", last.to_str().unwrap()];
    let (code, page, _) = run(&previous);
    assert!(code == Some(2) && page.contains("<h2>Progress</h2>"), "{page}");
    let (code, page, _) = run(&["--assume", "kubernetes.azure.com/agentpool=old:2022"]);
    assert!(code == Some(2) && page.contains("This is the report if"), "{page}");

    std::fs::write(&last, "{}").unwrap();
    let (code, _, error) = run(&previous);
    assert!(code == Some(1) && error.contains("cannot read the earlier report"), "{error}");
}
