//! The sentences of both pages.

use k8s_openapi::jiff::Timestamp;
use k8s_openapi::jiff::civil::Date;
use winpool_core::api::ObjectReference;
use winpool_core::words::count;

use crate::explain::blockers::Blocker;
use crate::explain::groups::By;
use crate::explain::installation::{Installation, InstallationState};
use crate::explain::pod_count::PodCount;
use crate::explain::status::PoolSummary;
use crate::finding::Severity;
use crate::kubernetes::KubernetesSupport;
use crate::view::kubernetes_version;

use super::super::numbers::NEAR;
use super::super::{
    ClassUse, FailingPool, Fleet, GroupNumbers, Lack, NumberChange, Progress, Report, SupportDay, VendorDays,
    VersionNodes, VersionWorkloads, WaitingTaint,
};
use super::limits::shown;

pub(super) const TITLE: &str = "Windows in this cluster";
pub(super) const FLEET: &str = "Windows in all clusters";
pub(super) const CLUSTERS: &str = "Clusters";
/// The columns about a cluster in the table of clusters, before its numbers.
pub(super) const CLUSTER: [&str; 3] = ["Cluster", "Report of", "Kubernetes"];
/// The short names of the numbers, in their order. The table leaves out the last one, notes.
pub(super) const NUMBERS: [&str; 10] = [
    "Windows nodes",
    "Out of support",
    "Ends within a year",
    "Pinned",
    "Not assessed",
    "Can move",
    "Held taints",
    "Failing pods",
    "Errors",
    "Warnings",
];
/// The columns of the table of groups.
pub(super) const GROUP: [&str; 6] = ["Group", "Pinned", "Not assessed", "Can move", "Errors", "Warnings"];
pub(super) const UNKNOWN: &str = "What this report does not know";
pub(super) const PROGRESS: &str = "Progress";
pub(super) const VERSIONS: &str = "Windows versions and their support";
pub(super) const WORKLOADS: &str = "Workloads by Windows version";
pub(super) const TAINTS: &str = "Taints that wait";
pub(super) const CLASSES: &str = "RuntimeClasses";
pub(super) const FINDINGS: &str = "Findings by rule";
pub(super) const FAILING: &str = "Failing pods";
pub(super) const WINPOOL: &str = "winpool";
pub(super) const POOLS: &str = "WindowsPools";
/// Said instead of failing pods.
pub(super) const WITHOUT_POOL: &str = "There is no WindowsPool. winpool searches only the pods of pools.";
pub(super) const NOT_KNOWN: &str = "Not known.";

/// `2026-11-24 06:30 UTC`.
pub(super) fn time(time: Timestamp) -> String {
    time.strftime("%Y-%m-%d %H:%M UTC").to_string()
}

/// The time and the cluster of the report.
pub(super) fn subject(report: &Report) -> Vec<String> {
    let mut parts: Vec<String> = report.cluster.iter().map(|name| format!("Cluster {}", shown(name))).collect();
    parts.push(time(report.time));
    parts.extend(report.kubernetes.as_ref().map(|version| format!("Kubernetes {version}")));
    parts.extend(report.assumed.as_ref().map(|assumed| format!("This is the report if {}.", shown(assumed))));
    parts
}

/// The rows of the table of clusters: each cluster, and the totals.
pub(super) fn clusters(fleet: &Fleet) -> Vec<Vec<String>> {
    let numbers = |numbers: &[(Option<usize>, bool)]| -> Vec<String> {
        let shown = numbers.iter().take(NUMBERS.len());
        shown.map(|(number, is_complete)| self::number(*number, *is_complete)).collect()
    };
    let of_report = |report: &Report| -> Vec<(Option<usize>, bool)> {
        report.named_numbers().map(|(_, number, is_complete)| (number, is_complete)).collect()
    };
    let row = |report: &Report| {
        let or_dash = |text: &Option<String>| text.as_deref().map_or_else(|| "–".to_owned(), shown);
        let head = [or_dash(&report.cluster), time(report.time), or_dash(&report.kubernetes)];
        [head.to_vec(), numbers(&of_report(report))].concat()
    };
    let all: Vec<_> = fleet.clusters.iter().map(of_report).collect();
    let is_complete = |at: usize| all.iter().all(|own| own.get(at).is_some_and(|(number, is)| *is && number.is_some()));
    let totals = fleet.totals.named().into_iter().enumerate();
    let totals: Vec<_> = totals.map(|(at, (_, number, _))| (number, is_complete(at))).collect();
    let total = [vec!["Total".to_owned(), String::new(), String::new()], numbers(&totals)].concat();
    fleet.clusters.iter().map(row).chain([total]).collect()
}

/// The title of the numbers of groups.
pub(super) fn by(by: &By) -> String {
    match by {
        By::Namespace => "By namespace".to_owned(),
        By::Label(key) => format!("By the label {}", shown(key)),
    }
}

/// The row of a group.
pub(super) fn group(by: &By, group: &GroupNumbers) -> [String; 6] {
    let GroupNumbers { group, pinned, unknown, can_move, errors, warnings, .. } = group;
    let [pinned, unknown, can_move, errors, warnings] =
        [pinned, unknown, can_move, errors, warnings].map(ToString::to_string);
    [title(by, group.as_deref()), pinned, unknown, can_move, errors, warnings]
}

/// The title of a group: `shop`, `team: web`, or `Without the label team`.
pub(super) fn title(by: &By, group: Option<&str>) -> String {
    match (by, group) {
        (By::Namespace, Some(name)) => shown(name),
        _ => shown(&by.title(group)),
    }
}

pub(super) fn lack(lack: &Lack) -> String {
    let why = shown(lack.why.trim_end_matches('.'));
    format!("{why}. {}", lack.effect)
}

/// A number; `at least` if objects that it counts may be missing.
pub(super) fn number(number: Option<usize>, is_complete: bool) -> String {
    match number {
        None => "not known".to_owned(),
        Some(number) if is_complete => number.to_string(),
        Some(number) => format!("at least {number}"),
    }
}

/// True if this number should be zero and is not.
pub(super) fn is_bad(name: &str, number: Option<usize>) -> bool {
    let is_wrong = ["Nodes out of support", "Failing pods", "Findings: errors"].contains(&name);
    is_wrong && number.is_some_and(|number| number > 0)
}

/// `Deployment web`, for lists by namespace.
pub(super) fn named(object: &ObjectReference) -> String {
    format!("{} {}", shown(&object.kind), shown(&object.name))
}

/// `Deployment shop/web`.
pub(super) fn full(object: &ObjectReference) -> String {
    match &object.namespace {
        Some(namespace) => format!("{} {}/{}", shown(&object.kind), shown(namespace), shown(&object.name)),
        None => named(object),
    }
}

/// The name of a `DaemonSet` with the number of nodes on which it would have no pod.
pub(super) fn with_nodes(set: &PodCount) -> String {
    format!("{} ({})", full(&set.object), count(set.pods, "node"))
}

/// The title of the group of an object.
pub(super) fn group_of(by: &By, group: Option<&str>, object: &ObjectReference) -> String {
    title(by, if *by == By::Namespace { object.namespace.as_deref() } else { group })
}

/// `and 7 more`, if a list is cut.
pub(super) fn more(all: usize, limit: usize) -> Option<String> {
    (all > limit).then(|| format!("and {} more, which -o json lists", all - limit))
}

pub(super) fn changed(change: &NumberChange) -> [String; 3] {
    let number = |number: Option<usize>| number.map_or_else(|| "not known".to_owned(), |number| number.to_string());
    let difference = change.before.zip(change.now).map(|(before, now)| match now.cmp(&before) {
        std::cmp::Ordering::Equal => "no change".to_owned(),
        std::cmp::Ordering::Greater => format!("+{}", now - before),
        std::cmp::Ordering::Less => format!("−{}", before - now),
    });
    [number(change.before), number(change.now), difference.unwrap_or_default()]
}

pub(super) fn since(progress: &Progress) -> String {
    let incomplete = if progress.is_incomplete {
        " Something is not known in one of the two reports, so numbers may differ because of that."
    } else {
        ""
    };
    format!("Changes since the report of {}.{incomplete}", time(progress.since))
}

/// `2 nodes`, with the pools.
pub(super) fn nodes(version: &VersionNodes) -> String {
    let pools = version.pools.iter().map(|pool| {
        let name = pool.pool.as_deref().map_or_else(|| "no pool".to_owned(), |name| format!("pool {}", shown(name)));
        format!("{} in {name}", pool.node_count)
    });
    format!("{}: {}", count(version.node_count, "node"), pools.collect::<Vec<_>>().join(", "))
}

fn day(what: &str, SupportDay { day, days_left }: &SupportDay) -> String {
    match days_left {
        ..0 => format!("{what} ended on {day}, {} ago", count(days_left.unsigned_abs(), "day")),
        0 => format!("{what} ends today, {day}"),
        _ => format!("{what} ends on {day}, in {}", count(*days_left, "day")),
    }
}

/// The ends of support by Microsoft, and what the documentation of Kubernetes says.
pub(super) fn microsoft(version: &VersionNodes, kubernetes: Option<&str>) -> String {
    let mut parts: Vec<String> = match version.microsoft.as_slice() {
        [] => vec!["winpool does not know the end of Microsoft's support".to_owned()],
        [only] => vec![day("Microsoft's support", only)],
        [mainstream, last @ ..] => {
            let last = last.iter().map(|last| day("Microsoft's extended support", last));
            [day("Microsoft's mainstream support", mainstream)].into_iter().chain(last).collect()
        }
    };
    let listed = match version.kubernetes_support {
        KubernetesSupport::Listed => Some("lists"),
        KubernetesSupport::Unlisted => Some("does not list"),
        KubernetesSupport::Unknown => None,
    };
    parts.extend(listed.zip(kubernetes).map(|(verb, of)| format!("the documentation of Kubernetes {of} {verb} it")));
    format!("{}.", parts.join("; "))
}

/// The vendors' support, and the requirements of an upgrade of the cluster.
pub(super) fn vendor(days: &VendorDays, kubernetes: Option<&str>) -> String {
    let VendorDays { vendor, support, images, removed_in, note, source, .. } = days;
    if source.is_none() {
        return format!("{vendor}: winpool knows no statement about this version.");
    }
    let mut parts: Vec<String> = Vec::new();
    parts.push(
        support.as_ref().map_or_else(
            || format!("{vendor} names no end of support"),
            |end| day(&format!("{vendor}'s support"), end),
        ),
    );
    parts.extend(images.as_ref().map(|SupportDay { day, days_left }| {
        let has = if *days_left < 0 { "had" } else { "has" };
        format!("it {has} node images until {day}")
    }));
    parts.extend(removed_in.as_ref().map(|removed| {
        let versions = kubernetes.and_then(kubernetes_version).zip(kubernetes_version(removed));
        let is_ahead = versions.is_some_and(|(now, removed)| now < removed);
        if is_ahead {
            format!("upgrading this cluster to Kubernetes {removed} needs a newer Windows")
        } else {
            format!("{vendor} does not support it with Kubernetes {removed} or later")
        }
    }));
    parts.extend(note.clone());
    format!("{}.", parts.join("; "))
}

/// The source of a vendor's statement, and the day on which it was read. A report in a file may contain any text in place of it.
pub(super) fn source(vendor: &VendorDays) -> Option<(&str, Date)> {
    let source = vendor.source.as_deref()?;
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._~:/?#=&%+".contains(c);
    (source.starts_with("https://") && source.chars().all(is_plain)).then_some((source, vendor.checked?))
}

/// The state of the support, in two words and the name of a style.
pub(super) fn support(version: &VersionNodes) -> (&'static str, &'static str) {
    match version.first_end().map(|(_, day)| day.days_left) {
        None => ("end not known", "quiet"),
        Some(..0) => ("out of support", "bad"),
        Some(0..NEAR) => ("ends within a year", "warn"),
        Some(_) => ("supported", "good"),
    }
}

/// The three groups in a sentence.
pub(super) fn groups(version: &VersionWorkloads, is_complete: bool) -> String {
    let VersionWorkloads { product, move_to, pinned, unknown, can_move, .. } = version;
    let move_on = format!("{} can move to {move_to}.", count(can_move.len(), "workload"));
    if version.is_clear() {
        let clear = if is_complete { "Nothing keeps" } else { "Nothing is known to keep" };
        return format!("{clear} {product} in the cluster. {move_on}");
    }
    let (pinned, unknown) = (pinned.len(), unknown.len());
    let pinned = match pinned {
        1 => "1 workload or pool is pinned".to_owned(),
        number => format!("{number} workloads or pools are pinned"),
    };
    let unknown = match unknown {
        0 => String::new(),
        1 => "; winpool cannot tell if 1 other runs on other nodes".to_owned(),
        number => format!("; winpool cannot tell if {number} others run on other nodes"),
    };
    format!("{pinned} to {product}{unknown}. {move_on}")
}

pub(super) const GROUPS: [&str; 3] =
    ["Pinned: what to change", "Not assessed: winpool cannot tell if these run on other nodes", "These can move"];

/// The pins of an object: where it is pinned, and what to write instead.
pub(super) fn pins(pinned: &Blocker) -> impl Iterator<Item = (String, String, String)> {
    pinned.pins.iter().map(|pin| (shown(&pin.field), shown(&pin.value), shown(&pin.remedy.text)))
}

/// The reason why winpool does not add the taint yet.
pub(super) fn held(taint: &WaitingTaint) -> String {
    let holds = if taint.is_dry_run { "would hold" } else { "holds" };
    if taint.workloads.is_empty() {
        format!("winpool {holds} it. The condition TaintsApplied of the pool has the reason.")
    } else {
        format!("winpool {holds} it, because with it these DaemonSets would make no pods.")
    }
}

pub(super) fn class(class: &ClassUse) -> [String; 4] {
    let of = &class.class;
    let or_dash = |text: &Option<String>| text.as_deref().map_or_else(|| "–".to_owned(), shown);
    let pods = of.pods.map_or_else(|| "not known".to_owned(), |pods| pods.to_string());
    [or_dash(&of.pool), or_dash(&of.state), count(of.node_count, "node"), pods]
}

/// The text as a sentence. A word that is a name, such as `runAsUser`, stays as it is.
pub(super) fn sentence(text: &str) -> String {
    let text = shown(text);
    let word = text.split(' ').next().unwrap_or_default();
    let is_plain = !word.is_empty() && word.chars().all(|c| c.is_ascii_lowercase());
    let end = if text.ends_with(['.', '…']) { "" } else { "." };
    let (first, rest) = text.split_at(usize::from(is_plain));
    format!("{}{rest}{end}", first.to_ascii_uppercase())
}

pub(super) fn severity(severity: Severity) -> (&'static str, &'static str) {
    match severity {
        Severity::Error => ("Error", "bad"),
        Severity::Warning => ("Warning", "warn"),
        Severity::Info => ("Note", "quiet"),
    }
}

pub(super) fn failing(pool: &FailingPool) -> String {
    let causes = pool.causes.iter().map(|(cause, pods)| format!("{pods} {}", cause.replace('_', " ")));
    let causes: Vec<String> = causes.collect();
    if causes.is_empty() { "Only Events show these.".to_owned() } else { format!("By cause: {}.", causes.join(", ")) }
}

/// The state of winpool's own installation, with what to do.
pub(super) fn installation(installation: &Installation) -> Vec<String> {
    let Installation { replicas, ready, .. } = installation;
    let state = match (installation.state, &installation.namespace) {
        (InstallationState::Missing, _) => "winpool is not installed in this cluster.".to_owned(),
        (InstallationState::Broken, _) => "The installation of winpool does not work.".to_owned(),
        (InstallationState::Healthy, None) => "winpool runs, but not as a Deployment in this cluster.".to_owned(),
        (InstallationState::Healthy, Some(namespace)) => {
            let of = count(*replicas, "replica");
            format!("winpool runs in the namespace {}: {ready} of {of} ready.", shown(namespace))
        }
    };
    let problems = installation.problems.iter();
    let problems = problems.map(|it| format!("{}: {}", sentence(&it.problem).trim_end_matches('.'), shown(&it.remedy)));
    [state].into_iter().chain(problems).collect()
}

pub(super) fn pool(pool: &PoolSummary) -> [String; 4] {
    let ready = format!("{} ({})", shown(&pool.ready), shown(&pool.reason));
    [shown(&pool.mode), ready, format!("{} of {}", pool.converged, pool.node_count), shown(&pool.message)]
}
