//! The Markdown page, for issues, wikis and pull requests.
//!
//! Characters with a meaning in Markdown or HTML are escaped in texts from the cluster.

use winpool_core::api::ObjectReference;
use winpool_core::words::count;

use super::super::{
    BrokenRule, ClassUse, FailingPool, Fleet, PinnedObject, Progress, Report, VersionNodes, VersionWorkloads,
    WaitingTaint,
};
use super::limits::{OBJECTS, WORKLOADS, shown};
use super::sentences;
use crate::explain::groups::Grouped;
use crate::explain::status::{NO_POOL, PoolSummary};

/// The characters that Markdown or HTML may interpret.
const SPECIAL: &[char] = &['\\', '`', '*', '_', '{', '}', '[', ']', '<', '>', '#', '|', '~', '&', '@', '!', '$'];

/// Markdown that grows.
#[derive(Default)]
struct Page(String);

impl Page {
    /// Adds a block after an empty line.
    fn block(&mut self, text: &str) -> &mut Self {
        if !self.0.is_empty() {
            self.0.push('\n');
        }
        self.line(text)
    }

    fn line(&mut self, text: &str) -> &mut Self {
        self.0.push_str(text);
        self.0.push('\n');
        self
    }

    /// Adds a section; without content it is not known.
    fn section<T: ?Sized>(&mut self, title: &str, part: Option<&T>, add: impl FnOnce(&mut Self, &T)) {
        self.block(&format!("## {title}"));
        match part {
            Some(part) => add(self, part),
            None => {
                self.block(sentences::NOT_KNOWN);
            }
        }
    }

    fn items(&mut self, items: impl Iterator<Item = String>) {
        self.0.push('\n');
        items.for_each(|item| {
            self.line(&format!("- {item}"));
        });
    }

    /// Adds a table with these names of columns.
    fn table(&mut self, names: &[&str], rows: impl Iterator<Item = impl AsRef<[String]>>) {
        self.block(&format!("| {} |", names.join(" | "))).line(&format!("|{}", "---|".repeat(names.len())));
        for row in rows {
            self.line(&format!("| {} |", row.as_ref().join(" | ")));
        }
    }
}

/// Escapes a text from others.
fn safe(text: &str) -> String {
    let mut safe = String::new();
    for c in text.chars() {
        if SPECIAL.contains(&c) {
            safe.push('\\');
        }
        safe.push(c);
    }
    safe
}

/// Renders the page.
pub fn page(report: &Report) -> String {
    let mut page = Page::default();
    page.block(&format!("# {}", sentences::TITLE));
    body(&mut page, report);
    page.0
}

/// Renders the page about several clusters.
pub fn fleet(fleet: &Fleet) -> String {
    let mut page = Page::default();
    page.block(&format!("# {}", sentences::FLEET));
    let columns = [&sentences::CLUSTER[..], &sentences::NUMBERS[..]].concat();
    let rows = sentences::clusters(fleet).into_iter();
    page.table(&columns, rows.map(|row| row.iter().map(|cell| safe(cell)).collect::<Vec<_>>()));
    for report in &fleet.clusters {
        page.block(&format!("# {}", safe(&shown(report.cluster.as_deref().unwrap_or_default()))));
        body(&mut page, report);
    }
    page.0
}

fn body(page: &mut Page, report: &Report) {
    page.block(&safe(&sentences::subject(report).join(" · ")));
    if !report.unknown.is_empty() {
        page.block(&format!("## {}", sentences::UNKNOWN));
        let lacks = report.unknown.iter();
        page.items(lacks.map(|lack| format!("**{}**: {}", safe(&shown(&lack.what)), safe(&sentences::lack(lack)))));
    }
    let numbers = report.named_numbers();
    let rows = numbers.map(|(name, number, is_complete)| [name.to_owned(), sentences::number(number, is_complete)]);
    page.table(&["", "Number"], rows);
    if let Some(groups) = &report.groups {
        let by = report.grouping();
        page.block(&format!("## {}", safe(&sentences::by(&by))));
        let rows = groups.iter().take(WORKLOADS).map(|group| sentences::group(&by, group).map(|cell| safe(&cell)));
        page.table(&sentences::GROUP, rows);
        if let Some(more) = sentences::more(groups.len(), WORKLOADS) {
            page.block(&more);
        }
    }
    if let Some(progress) = &report.progress {
        self::progress(page, progress);
    }
    let kubernetes = report.kubernetes.as_deref();
    page.section(sentences::VERSIONS, report.versions.as_deref(), |page, all| versions(page, all, kubernetes));
    page.section(sentences::WORKLOADS, report.workloads.as_deref(), |page, all| {
        workloads(page, all, report);
    });
    page.section(sentences::TAINTS, report.taints.as_deref(), taints);
    page.section(sentences::CLASSES, report.runtime_classes.as_deref(), |page, all| {
        classes(page, all, report.pods_without_class);
    });
    page.section(sentences::FINDINGS, report.numbers.errors.map(|_| report.findings.as_slice()), findings);
    if report.failing_pods.is_none() && report.has_no_pool() {
        page.block(&format!("## {}", sentences::FAILING)).block(sentences::WITHOUT_POOL);
    } else {
        page.section(sentences::FAILING, report.failing_pods.as_deref(), failing);
    }
    if let Some(installation) = &report.installation {
        page.block(&format!("## {}", sentences::WINPOOL));
        page.items(sentences::installation(installation).iter().map(|sentence| safe(sentence)));
    }
    page.section(sentences::POOLS, report.pools.as_deref(), pools);
}

fn progress(page: &mut Page, progress: &Progress) {
    page.block(&format!("## {}", sentences::PROGRESS)).block(&sentences::since(progress));
    let rows = progress.numbers.iter().map(|change| {
        let [before, now, difference] = sentences::changed(change);
        [safe(&shown(&change.name)), before, now, difference]
    });
    page.table(&["", "Then", "Now", "Change"], rows);
    for (title, objects) in [("No longer pinned", &progress.freed), ("Newly pinned", &progress.newly_pinned)] {
        if !objects.is_empty() {
            page.block(&format!("{title}: {}", names(objects)));
        }
    }
}

fn versions(page: &mut Page, versions: &[VersionNodes], kubernetes: Option<&str>) {
    if versions.is_empty() {
        page.block("There is no Windows node.");
    }
    for version in versions {
        let (state, _) = sentences::support(version);
        page.block(&format!("### {}: {state}", safe(version.name())));
        page.block(&safe(&sentences::nodes(version)));
        let vendors = version.vendors.iter().map(|vendor| {
            let source = sentences::source(vendor);
            let source = source.map(|(source, checked)| format!(" [Source]({source}) (read on {checked})."));
            safe(&sentences::vendor(vendor, kubernetes)) + &source.unwrap_or_default()
        });
        page.items([safe(&sentences::microsoft(version, kubernetes))].into_iter().chain(vendors));
    }
}

fn workloads(page: &mut Page, versions: &[VersionWorkloads], report: &Report) {
    let is_complete = report.has_all_workloads();
    if versions.is_empty() {
        page.block("No node has a Windows version that a newer one replaces, and nothing is pinned to one.");
    }
    for version in versions {
        page.block(&format!("### {} → {}", safe(&shown(&version.product)), safe(&shown(&version.move_to))))
            .block(&safe(&sentences::groups(version, is_complete)));
        let [pinned, unknown, can_move] = sentences::GROUPS;
        group(page, report, pinned, &version.pinned, self::pinned);
        group(page, report, unknown, &version.unknown, |it| {
            format!("{}: {}", bold(&it.object), safe(&shown(&it.reason)))
        });
        group(page, report, can_move, &version.can_move, |it| {
            format!("{}: {}", bold(&it.object), it.evidence.describe())
        });
    }
}

/// Adds a list. With groups, each of them has a title.
fn group<T>(page: &mut Page, report: &Report, title: &str, all: &[Grouped<T>], entry: impl Fn(&T) -> String) {
    if all.is_empty() {
        return;
    }
    page.block(&format!("#### {title} ({})", all.len()));
    let listed = all.get(..WORKLOADS).unwrap_or(all);
    for of_one in listed.chunk_by(|one, other| one.group == other.group) {
        if let (Some(_), [first, ..]) = (&report.by, of_one) {
            let title = sentences::title(&report.grouping(), first.group.as_deref());
            page.block(&format!("##### {}", safe(&title)));
        }
        page.items(of_one.iter().map(|it| entry(&it.found)));
    }
    if let Some(more) = sentences::more(all.len(), WORKLOADS) {
        page.line(&format!("- {more}"));
    }
}

fn pinned(pinned: &PinnedObject) -> String {
    let pins = sentences::pins(pinned)
        .map(|(field, value, change)| format!("\n  - {}: {} → **{}**", safe(&field), safe(&value), safe(&change)));
    bold(&pinned.object) + &pins.collect::<String>()
}

fn bold(object: &ObjectReference) -> String {
    format!("**{}**", safe(&sentences::full(object)))
}

fn names(objects: &[ObjectReference]) -> String {
    let names = objects.iter().take(OBJECTS).map(|object| safe(&sentences::full(object)));
    names.chain(sentences::more(objects.len(), OBJECTS)).collect::<Vec<_>>().join(", ")
}

fn taints(page: &mut Page, taints: &[WaitingTaint]) {
    if taints.is_empty() {
        page.block("No taint waits.");
    }
    for taint in taints {
        let head = format!("**{}** of pool {}", safe(&shown(&taint.taint)), safe(&shown(&taint.pool)));
        page.block(&format!("{head}: {}", sentences::held(taint)));
        let workloads = taint.workloads.iter().take(OBJECTS);
        let workloads = workloads.map(|it| safe(&sentences::with_nodes(it)));
        page.items(workloads.chain(sentences::more(taint.workloads.len(), OBJECTS)));
    }
}

fn classes(page: &mut Page, classes: &[ClassUse], without: Option<usize>) {
    if classes.is_empty() {
        page.block("No RuntimeClass selects Windows nodes.");
    } else {
        let rows = classes.iter().map(|class| {
            let [pool, state, nodes, pods] = sentences::class(class).map(|text| safe(&text));
            let users = format!("{}: {}", class.users.len(), names(&class.users));
            [safe(&shown(&class.class.name)), pool, state, nodes, pods, users]
        });
        page.table(&["RuntimeClass", "Pool", "State", "Selects", "Pods", "Workloads"], rows);
    }
    if let Some(pods) = without {
        page.block(&format!("Pods on Windows nodes without a RuntimeClass: {pods}."));
    }
}

fn findings(page: &mut Page, rules: &[BrokenRule]) {
    if rules.is_empty() {
        page.block("No rule is broken.");
        return;
    }
    for rule in rules {
        let (severity, _) = sentences::severity(rule.severity);
        page.block(&format!("### {severity}: {} ({})", safe(&shown(&rule.rule)), count(rule.findings, "finding")));
        page.block(&safe(&sentences::sentence(&rule.message)));
        page.block(&format!("Remedy: {}", safe(&sentences::sentence(&rule.remedy))));
        page.block(&names(&rule.objects));
    }
}

fn failing(page: &mut Page, pools: &[FailingPool]) {
    if pools.is_empty() {
        page.block("No pod is known to fail because of Windows.");
    }
    for pool in pools {
        page.block(&format!("Pool {}. {}", safe(&shown(&pool.pool)), safe(&sentences::failing(pool))));
        let workloads = pool.workloads.iter().map(|it| (&it.object, &it.message));
        let workloads = workloads.chain(pool.reported.iter().map(|it| (&it.object, &it.message)));
        let more = (pool.more > 0).then(|| format!("and {}", count(pool.more, "other workload")));
        page.items(workloads.map(|(object, text)| format!("{}: {}", bold(object), safe(&shown(text)))).chain(more));
    }
}

fn pools(page: &mut Page, pools: &[PoolSummary]) {
    if pools.is_empty() {
        page.block(NO_POOL);
        return;
    }
    let rows = pools.iter().map(|pool| {
        let [mode, ready, converged, message] = sentences::pool(pool).map(|text| safe(&text));
        [safe(&shown(&pool.name)), mode, ready, converged, message]
    });
    page.table(&["Pool", "Mode", "Ready", "Converged nodes", "Message"], rows);
    for pool in pools.iter().filter(|pool| !pool.problems.is_empty()) {
        let problems = pool
            .problems
            .iter()
            .map(|it| format!("{} {}: {}", safe(&shown(&it.reason)), bold(&it.object), safe(&shown(&it.message))));
        page.items(problems);
    }
}
