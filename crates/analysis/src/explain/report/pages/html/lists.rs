//! Lists of workloads, RuntimeClasses, findings and pools.

use std::collections::BTreeMap;

use maud::{Markup, html};
use winpool_core::api::ObjectReference;
use winpool_core::words::count;

use crate::explain::blockers::Blocker;
use crate::explain::groups::{By, Grouped};
use crate::explain::status::{NO_POOL, PoolSummary};

use super::super::super::{BrokenRule, ClassUse, MovableWorkload, Report, UnclearWorkload, VersionWorkloads};
use super::super::limits::{OBJECTS, WORKLOADS, shown};
use super::super::sentences;
use super::empty::none;

/// The number of entries up to which a list is open at first.
const OPEN: usize = 25;

pub(super) fn workloads(versions: &[VersionWorkloads], report: &Report) -> Markup {
    let (is_complete, by) = (report.has_all_workloads(), report.grouping());
    html! {
        @if versions.is_empty() { (none("No node has a Windows version that a newer one replaces, and nothing is pinned to one.")) }
        @for version in versions {
            article {
                h3 { (version.product) " " span.quiet { "→ " (version.move_to) } }
                p { (sentences::groups(version, is_complete)) }
                (share(version))
                (groups(version, &by))
                (pinned(version, &by))
                (unknown(version, &by))
                (can_move(version, &by))
            }
        }
    }
}

/// The three groups as parts of a bar. The sentence above says the same.
fn share(version: &VersionWorkloads) -> Markup {
    let parts = [version.pinned.len(), version.unknown.len(), version.can_move.len()];
    html! {
        @if parts.iter().any(|part| *part > 0) {
            div.share aria-hidden="true" {
                @for (part, style) in parts.into_iter().zip(["bad", "warn", "good"]) {
                    @if part > 0 { span class=(style) style={"flex:" (part)} {} }
                }
            }
        }
    }
}

/// The numbers of each namespace, or of each value of the label.
fn groups(version: &VersionWorkloads, by: &By) -> Markup {
    let mut numbers: BTreeMap<String, [usize; 3]> = BTreeMap::new();
    let all = [
        version.pinned.iter().map(|it| (&it.group, &it.object)).collect::<Vec<_>>(),
        version.unknown.iter().map(|it| (&it.group, &it.object)).collect(),
        version.can_move.iter().map(|it| (&it.group, &it.object)).collect(),
    ];
    for (column, objects) in all.iter().enumerate() {
        for (group, object) in objects {
            let title = sentences::group_of(by, group.as_deref(), object);
            if let Some(number) = numbers.entry(title).or_default().get_mut(column) {
                *number += 1;
            }
        }
    }
    let head = if *by == By::Namespace { "Namespace" } else { "Group" };
    html! {
        @if !numbers.is_empty() {
            table {
                thead { tr { th scope="col" { (head) } th.number scope="col" { "Pinned" } th.number scope="col" { "Not known" } th.number scope="col" { "Can move" } } }
                tbody {
                    @for (title, numbers) in numbers.iter().take(WORKLOADS) {
                        tr { th scope="row" { (title) } @for number in numbers { td.number { (number) } } }
                    }
                }
            }
            @if let Some(more) = sentences::more(numbers.len(), WORKLOADS) { p.more { (more) } }
        }
    }
}

/// A list that a reader can open. `entries` renders the objects of one group.
fn group<T>(
    title: &str,
    all: &[Grouped<T>],
    by: &By,
    object: fn(&T) -> &ObjectReference,
    entries: impl Fn(&[Grouped<T>]) -> Markup,
) -> Markup {
    let listed = all.get(..WORKLOADS).unwrap_or(all);
    let title_of = |it: &Grouped<T>| sentences::group_of(by, it.group.as_deref(), object(it));
    html! {
        @if !all.is_empty() {
            details open[all.len() <= OPEN] {
                summary { (title) " " span.quiet { (all.len()) } }
                @for of_one in listed.chunk_by(|one, other| title_of(one) == title_of(other)) {
                    @for first in of_one.iter().take(1) { h4 { (title_of(first)) } }
                    ul.plain { (entries(of_one)) }
                }
                @if let Some(more) = sentences::more(all.len(), WORKLOADS) { p.more { (more) } }
            }
        }
    }
}

fn pinned(version: &VersionWorkloads, by: &By) -> Markup {
    let [title, ..] = sentences::GROUPS;
    let entry = |pinned: &Blocker| {
        html! {
            li {
                strong { (name(by, &pinned.object)) }
                ul.pins {
                    @for (field, value, change) in sentences::pins(pinned) {
                        li { span.field { (field) } " " code.old { (value) } " → " code { (change) } }
                    }
                }
            }
        }
    };
    group(title, &version.pinned, by, |it| &it.object, |of_one| html! { @for it in of_one { (entry(it)) } })
}

fn unknown(version: &VersionWorkloads, by: &By) -> Markup {
    let [_, title, _] = sentences::GROUPS;
    let entries = |of_one: &[Grouped<UnclearWorkload>]| {
        html! { @for it in of_one { li { strong { (name(by, &it.object)) } ": " (shown(&it.reason)) } } }
    };
    group(title, &version.unknown, by, |it| &it.object, entries)
}

fn can_move(version: &VersionWorkloads, by: &By) -> Markup {
    let [.., title] = sentences::GROUPS;
    let entries = |of_one: &[Grouped<MovableWorkload>]| {
        let mut by_evidence: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for moving in of_one {
            by_evidence.entry(moving.evidence.describe()).or_default().push(name(by, &moving.object));
        }
        html! { @for (evidence, names) in by_evidence { li { (names.join(", ")) ": " span.quiet { (evidence) } } } }
    };
    group(title, &version.can_move, by, |it| &it.object, entries)
}

/// The name of an object in a list: its group may have its namespace as title.
fn name(by: &By, object: &ObjectReference) -> String {
    if *by == By::Namespace { sentences::named(object) } else { sentences::full(object) }
}

/// Names of objects, one after the other.
pub(super) fn objects(objects: &[ObjectReference], limit: usize) -> Markup {
    let names: Vec<String> = objects.iter().take(limit).map(sentences::full).collect();
    html! {
        p.names {
            (names.join(", "))
            @if let Some(more) = sentences::more(objects.len(), limit) { ", " (more) }
        }
    }
}

pub(super) fn classes(classes: &[ClassUse], without: Option<usize>) -> Markup {
    html! {
        @if classes.is_empty() { (none("No RuntimeClass selects Windows nodes.")) }
        @for class in classes {
            @let [pool, state, nodes, pods] = sentences::class(class);
            article {
                h3 { (shown(&class.class.name)) }
                dl.facts {
                    div { dt { "Pool" } dd { (pool) } }
                    div { dt { "State" } dd { (state) } }
                    div { dt { "Selects" } dd { (nodes) } }
                    div { dt { "Pods" } dd { (pods) } }
                    div { dt { "Workloads" } dd { (class.users.len()) } }
                }
                @if !class.users.is_empty() { (objects(&class.users, OBJECTS)) }
            }
        }
        @if let Some(pods) = without { p { "Pods on Windows nodes without a RuntimeClass: " (pods) "." } }
    }
}

pub(super) fn findings(rules: &[BrokenRule]) -> Markup {
    html! {
        @if rules.is_empty() { (none("No rule is broken.")) }
        @for rule in rules {
            @let (severity, style) = sentences::severity(rule.severity);
            article {
                h3 { span.chip.(style) { (severity) } " " (rule.rule) " " span.quiet { (count(rule.findings, "finding")) } }
                p { (sentences::sentence(&rule.message)) }
                p { strong { "Remedy: " } (sentences::sentence(&rule.remedy)) }
                (objects(&rule.objects, OBJECTS))
            }
        }
    }
}

pub(super) fn pools(pools: &[PoolSummary]) -> Markup {
    html! {
        @if pools.is_empty() { (none(NO_POOL)) }
        @for pool in pools {
            @let [mode, ready, converged, message] = sentences::pool(pool);
            article {
                h3 { (shown(&pool.name)) }
                dl.facts {
                    div { dt { "Mode" } dd { (mode) } }
                    div { dt { "Ready" } dd { (ready) } }
                    div { dt { "Converged nodes" } dd { (converged) } }
                }
                p { (message) }
                @if !pool.problems.is_empty() {
                    ul.plain {
                        @for problem in &pool.problems {
                            li { strong { (shown(&problem.reason)) } " " (sentences::full(&problem.object)) ": " (shown(&problem.message)) }
                        }
                    }
                }
            }
        }
    }
}
