//! The HTML page: one file that needs nothing else.
//!
//! Texts from the cluster are escaped by the templates, and are never part of an attribute or a style.

mod empty;
mod lists;
mod timeline;

use maud::{DOCTYPE, Markup, PreEscaped, html};
use winpool_core::words::count;

use empty::none;

use super::super::{FailingPool, Fleet, Progress, Report, WaitingTaint};
use super::limits::{OBJECTS, WORKLOADS, shown};
use super::sentences;

const STYLE: &str = include_str!("style.css");
/// No script, no request: only the style of the page itself.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src data:";
/// A browser asks for an icon unless the page has one.
const ICON: &str = "data:,";

/// Renders the page.
pub fn page(report: &Report) -> String {
    document(sentences::TITLE, &head(report), &body(report, ""))
}

/// Renders the page about several clusters.
pub fn fleet(fleet: &Fleet) -> String {
    let columns = sentences::CLUSTER.iter().chain(&sentences::NUMBERS).enumerate();
    let is_number = |column: usize| (column >= sentences::CLUSTER.len()).then_some("number");
    let rows = sentences::clusters(fleet);
    let head = html! { header { h1 { (sentences::FLEET) } } };
    let body = html! {
        section id="clusters" {
            h2 { (sentences::CLUSTERS) }
            div.wide {
                table {
                    thead { tr { @for (at, name) in columns { th scope="col" class=[is_number(at)] { (name) } } } }
                    tbody {
                        @for (row, cells) in rows.iter().enumerate() {
                            tr {
                                @for (at, cell) in cells.iter().enumerate() {
                                    @if at > 0 { td class=[is_number(at)] { (cell) } }
                                    @else if row < fleet.clusters.len() { th scope="row" { a href={"#cluster-" (row)} { (cell) } } }
                                    @else { th scope="row" { strong { (cell) } } }
                                }
                            }
                        }
                    }
                }
            }
        }
        @for (index, report) in fleet.clusters.iter().enumerate() {
            section.cluster id={"cluster-" (index)} {
                h1 { (shown(report.cluster.as_deref().unwrap_or_default())) }
                p.meta { @for part in &sentences::subject(report) { span { (part) } " " } }
                (self::body(report, &format!("cluster-{index}-")))
            }
        }
    };
    document(sentences::FLEET, &head, &body)
}

fn document(title: &str, head: &Markup, body: &Markup) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                meta name="color-scheme" content="light dark";
                meta name="generator" content=(concat!("winpool ", env!("CARGO_PKG_VERSION")));
                link rel="icon" href=(ICON);
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                (head)
                main { (body) }
                footer { p { "Made by winpool " (env!("CARGO_PKG_VERSION")) ". The numbers are those of " code { "winpool report -o json" } "." } }
            }
        }
    };
    page.into_string()
}

fn head(report: &Report) -> Markup {
    let subject = sentences::subject(report);
    html! {
        header {
            h1 { (sentences::TITLE) }
            p.meta { @for part in &subject { span { (part) } " " } }
            nav aria-label="Sections" {
                ul { @for (id, title) in SECTIONS { li { a href={"#" (id)} { (title) } } } }
            }
        }
    }
}

const SECTIONS: [(&str, &str); 7] = [
    ("versions", sentences::VERSIONS),
    ("workloads", sentences::WORKLOADS),
    ("taints", sentences::TAINTS),
    ("classes", sentences::CLASSES),
    ("findings", sentences::FINDINGS),
    ("failing", sentences::FAILING),
    ("pools", sentences::POOLS),
];

/// The sections about a cluster. Their names begin with `prefix`, because a page may have several clusters.
fn body(report: &Report, prefix: &str) -> Markup {
    let section = |id: &str, title: &str, content: Option<Markup>| section(&format!("{prefix}{id}"), title, content);
    let without_pool = || report.has_no_pool().then(|| none(sentences::WITHOUT_POOL));
    html! {
        (lacks(report, prefix))
        section aria-label="Numbers" {
            dl.numbers {
                @for (name, number, is_complete) in report.named_numbers() {
                    div { dt { (name) } dd class=[sentences::is_bad(name, number).then_some("bad")] { (sentences::number(number, is_complete)) } }
                }
            }
        }
        @if report.groups.is_some() { (section("groups", &sentences::by(&report.grouping()), Some(groups(report)))) }
        @if let Some(progress) = &report.progress { (self::progress(progress, prefix)) }
        (section("versions", sentences::VERSIONS, report.versions.as_deref().map(|versions| timeline::versions(versions, report))))
        (section("workloads", sentences::WORKLOADS, report.workloads.as_deref().map(|versions| lists::workloads(versions, report))))
        (section("taints", sentences::TAINTS, report.taints.as_deref().map(taints)))
        (section("classes", sentences::CLASSES, report.runtime_classes.as_deref().map(|classes| lists::classes(classes, report.pods_without_class))))
        (section("findings", sentences::FINDINGS, report.numbers.errors.map(|_| lists::findings(&report.findings))))
        (section("failing", sentences::FAILING, report.failing_pods.as_deref().map(failing).or_else(without_pool)))
        @if let Some(installation) = &report.installation {
            section id={(prefix) "winpool"} {
                h2 { (sentences::WINPOOL) }
                @for sentence in sentences::installation(installation) { p { (sentence) } }
            }
        }
        (section("pools", sentences::POOLS, report.pools.as_deref().map(lists::pools)))
    }
}

/// A part of the page; without content it is not known.
fn section(id: &str, title: &str, content: Option<Markup>) -> Markup {
    html! {
        section id=(id) {
            h2 { (title) }
            @match content {
                Some(content) => (content),
                None => p.unknown { (sentences::NOT_KNOWN) },
            }
        }
    }
}

/// The numbers of each group.
fn groups(report: &Report) -> Markup {
    let by = report.grouping();
    let groups = report.groups.as_deref().unwrap_or_default();
    let numbers = |cells: &[String]| html! { @for cell in cells.iter().skip(1) { td.number { (cell) } } };
    html! {
        table {
            thead { tr { @for (at, name) in sentences::GROUP.iter().enumerate() { th scope="col" class=[(at > 0).then_some("number")] { (name) } } } }
            tbody {
                @for group in groups.iter().take(WORKLOADS) {
                    @let cells = sentences::group(&by, group);
                    tr { @for name in cells.iter().take(1) { th scope="row" { (name) } } (numbers(&cells)) }
                }
            }
        }
        @if let Some(more) = sentences::more(groups.len(), WORKLOADS) { p.more { (more) } }
    }
}

fn lacks(report: &Report, prefix: &str) -> Markup {
    html! {
        @if !report.unknown.is_empty() {
            section.lacks id={(prefix) "unknown"} {
                h2 { (sentences::UNKNOWN) }
                ul { @for lack in &report.unknown { li { strong { (shown(&lack.what)) } ": " (sentences::lack(lack)) } } }
            }
        }
    }
}

fn progress(progress: &Progress, prefix: &str) -> Markup {
    html! {
        section id={(prefix) "progress"} {
            h2 { (sentences::PROGRESS) }
            p { (sentences::since(progress)) }
            table {
                thead { tr { th scope="col" { "Number" } th.number scope="col" { "Then" } th.number scope="col" { "Now" } th.number scope="col" { "Change" } } }
                tbody {
                    @for change in &progress.numbers {
                        @let [before, now, difference] = sentences::changed(change);
                        tr { th scope="row" { (change.name) } td.number { (before) } td.number { (now) } td.number { (difference) } }
                    }
                }
            }
            @for (title, objects) in [("No longer pinned", &progress.freed), ("Newly pinned", &progress.newly_pinned)] {
                @if !objects.is_empty() { h3 { (title) } (lists::objects(objects, OBJECTS)) }
            }
        }
    }
}

fn taints(taints: &[WaitingTaint]) -> Markup {
    html! {
        @if taints.is_empty() { (none("No taint waits.")) }
        @for taint in taints {
            article {
                h3 { code { (shown(&taint.taint)) } " of pool " (shown(&taint.pool)) }
                p { (sentences::held(taint)) }
                @if !taint.workloads.is_empty() {
                    ul.plain {
                        @for workload in taint.workloads.iter().take(OBJECTS) {
                            li { (sentences::with_nodes(workload)) }
                        }
                        @if let Some(more) = sentences::more(taint.workloads.len(), OBJECTS) { li.more { (more) } }
                    }
                }
            }
        }
    }
}

fn failing(pools: &[FailingPool]) -> Markup {
    html! {
        @if pools.is_empty() { (none("No pod is known to fail because of Windows.")) }
        @for pool in pools {
            article {
                h3 { "Pool " (shown(&pool.pool)) }
                p { (sentences::failing(pool)) }
                ul.plain {
                    @for workload in &pool.workloads {
                        li { strong { (sentences::full(&workload.object)) } ": " (shown(&workload.message)) }
                    }
                    @for problem in &pool.reported {
                        li { strong { (sentences::full(&problem.object)) } ": " (shown(&problem.message)) }
                    }
                    @if pool.more > 0 { li.more { "and " (count(pool.more, "other workload")) } }
                }
            }
        }
    }
}
