//! `winpool plan --assume`: what an upgrade of Windows nodes does to workloads.

use std::collections::BTreeSet;

use anstyle::Style;
use winpool_analysis::explain::blockers::Evidence;
use winpool_analysis::explain::upgrade::{EndedPods, LeftOut, LeftOutReason, Upgrade, UpgradedWorkload};
use winpool_analysis::image::known::{name_of, short_of};
use winpool_analysis::remedy::Remedy;
use winpool_analysis::verdict::PodOutcome;
use winpool_analysis::view::assume::AssumedNodes;
use winpool_client::terminal;
use winpool_core::api::ObjectReference;
use winpool_core::words::{count, joined};

use crate::print::text::{BAD, BOLD, DIM, GOOD, Table, Text, WARN};

/// Names shown of nodes and pods.
const SHOWN: usize = 5;

/// The answer as text.
pub fn text(upgrade: &Upgrade) -> Text {
    let mut text = Text::new();
    let versions = VersionNames::of(upgrade);
    let assumed = upgrade.assume.iter().map(assumption).collect::<Vec<_>>().join(", and ");
    text.wrapped("", BOLD, &format!("If {assumed}:"));
    text.gap();
    if upgrade.workloads.is_empty() {
        text.styled("", GOOD, "No workload uses these nodes.");
    } else {
        workloads(&mut text, &upgrade.workloads, &versions);
    }
    if let Some(ended) = &upgrade.ended_pods {
        text.gap();
        ended_pods(&mut text, ended, &versions);
    }
    if !upgrade.left_out.is_empty() {
        let left_out: Vec<String> = upgrade.left_out.iter().map(left_out).collect();
        text.hanging("", "  ", WARN, "Left out", &format!(": {}.", left_out.join("; ")));
    }
    for note in &upgrade.notes {
        text.wrapped("", WARN, &format!("Note: {note}"));
    }
    text.hanging("", "  ", DIM, "Not considered:", &format!(" {}", unknown(&upgrade.assume)));
    text
}

/// `2 workloads that cannot be scheduled on these nodes (1 Deployment, 1 StatefulSet)`.
fn left_out(LeftOut { reason, count: number, kinds }: &LeftOut) -> String {
    let kinds = || joined(kinds.iter().map(|(kind, number)| count(*number, kind)));
    let of = match reason {
        LeftOutReason::KindNotRead => "of a kind that this command does not read",
        LeftOutReason::UnknownLabel => "with a selector for a label whose value is unknown",
        LeftOutReason::NoToleration => "without a toleration for the taints of these nodes",
        LeftOutReason::OtherNodes => "that cannot be scheduled on these nodes",
        LeftOutReason::NotForWindows => "not known to be for Windows",
        LeftOutReason::NoController => return format!("{} without a controller", count(*number, "pod")),
    };
    format!("{} {of} ({})", count(*number, "workload"), kinds())
}

/// `win-1 and win-2 run Windows Server 2025 (now 2022)`.
fn assumption(part: &AssumedNodes) -> String {
    let verb = if part.node_names.len() == 1 { "runs" } else { "run" };
    let now = short(&part.now);
    let now = if now.is_empty() { String::new() } else { format!(" (now {now})") };
    let name = part.build.parse().map_or_else(|_| part.build.clone(), name_of);
    format!("{} {verb} {name}{now}", listed(&part.node_names))
}

/// `win-1, win-2 and win-3`.
fn listed(names: &[String]) -> String {
    match names {
        [first @ .., last] if !first.is_empty() && names.len() <= SHOWN => {
            format!("{} and {last}", first.join(", "))
        }
        names => terminal::some(names, SHOWN),
    }
}

/// `2019, 2022`.
fn short<'a>(builds: impl IntoIterator<Item = &'a String>) -> String {
    builds.into_iter().map(|build| short_of(build)).collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>().join(", ")
}

/// Names what the answer does not consider: the update level of the new nodes, labels, and errors that every version has.
fn unknown(assume: &[AssumedNodes]) -> String {
    let names: BTreeSet<&str> = assume.iter().flat_map(|part| &part.unknown).map(String::as_str).collect();
    let (revision, labels): (Vec<_>, Vec<_>) = names.into_iter().partition(|name| !name.contains('/'));
    let revision = revision.into_iter().map(|_| "the update level of the new nodes".to_owned());
    let errors = ["errors of winpool check".to_owned()];
    revision.chain(labels.into_iter().map(str::to_owned)).chain(errors).collect::<Vec<_>>().join(", ")
}

/// The versions before and after the upgrade, in words.
struct VersionNames {
    now: String,
    after: String,
}

impl VersionNames {
    fn of(upgrade: &Upgrade) -> Self {
        let now = short(upgrade.assume.iter().flat_map(|part| &part.now));
        Self { now, after: short(upgrade.assume.iter().map(|part| &part.build)) }
    }

    /// The cell of a table for this answer.
    fn cell(&self, object: &ObjectReference, runs: PodOutcome, is_last: bool) -> String {
        let Self { now, after } = self;
        match (runs, object.kind == "DaemonSet") {
            (PodOutcome::Runs, _) => "runs".to_owned(),
            (PodOutcome::OldNodesOnly, true) => format!("no pod on {after}"),
            (PodOutcome::OldNodesOnly, false) if is_last => "only on other nodes".to_owned(),
            (PodOutcome::OldNodesOnly, false) => format!("only on {now} nodes"),
            (PodOutcome::NewNodesOnly, true) => format!("no pod on {now}"),
            (PodOutcome::NewNodesOnly, false) => format!("only on {after} nodes"),
            (PodOutcome::NoNode, true) => "no pod".to_owned(),
            (PodOutcome::NoNode, false) => "no node".to_owned(),
            (PodOutcome::MayNotStart, _) => "may not start".to_owned(),
            (PodOutcome::Unknown, _) => "unknown".to_owned(),
        }
    }

    /// The reason why a workload needs no change.
    fn none(&self, evidence: Option<Evidence>) -> String {
        let Self { now, after } = self;
        match evidence {
            None => "none".to_owned(),
            Some(Evidence::HostProcess) => "none: host-process containers run on every version".to_owned(),
            Some(Evidence::RunsThere) => format!("none: it also runs on {after}"),
            Some(Evidence::Registry) => format!("none: the registry has variants for {after}"),
            Some(Evidence::Tag) => format!("none: {after} runs images with these tags"),
            Some(Evidence::StartsHere) => format!("none: it starts on {now}, {after} runs that"),
        }
    }
}

/// Returns the path of the pod spec after the name of its object, if there are several.
pub fn template(path: Option<&String>) -> String {
    path.map_or_else(String::new, |path| format!(", {path}"))
}

/// Adds the table, and a note for each change of a pool.
fn workloads(text: &mut Text, workloads: &[UpgradedWorkload], versions: &VersionNames) {
    let mut notes: Vec<(&Remedy, usize)> = Vec::new();
    let mut table = Table::new(&["WORKLOAD", "NOW", "DURING UPGRADE", "AFTER", "SMALLEST CHANGE"]);
    for workload in workloads {
        let UpgradedWorkload { object, path, now, rolling, after, evidence, remedy, reason } = workload;
        let change = match (remedy, reason) {
            (Some(remedy), _) if remedy.object.is_some() => {
                let position = notes.iter().position(|(listed, _)| *listed == remedy);
                let index = position.unwrap_or(notes.len());
                match notes.get_mut(index) {
                    Some((_, workloads)) => *workloads += 1,
                    None => notes.push((remedy, 1)),
                }
                format!("{} ({})", remedy.text, index + 1)
            }
            (Some(remedy), _) => remedy.text.clone(),
            (None, Some(reason)) => reason.clone(),
            (None, None) => versions.none(*evidence),
        };
        let ObjectReference { kind, namespace, name } = object;
        let named = format!("{kind} {}/{name}{}", namespace.as_deref().unwrap_or_default(), template(path.as_ref()));
        let cells = [(now, false), (rolling, false), (after, true)];
        let [now, rolling, after] = cells.map(|(runs, is_last)| versions.cell(object, *runs, is_last));
        table.row([named, now, rolling, after, change]);
    }
    text.table(&table);
    for (index, (remedy, workloads)) in notes.iter().enumerate() {
        let Some(object) = &remedy.object else { continue };
        let of = count(*workloads, "workload");
        let them = if *workloads == 1 { "it" } else { "them" };
        let note = format!(" one change in {object} for {of}; restart {them} before the upgrade");
        text.hanging("", "    ", Style::new(), &format!("({})", index + 1), &note);
        if let Some(command) = remedy.command(object) {
            text.line(&format!("    {command}"));
        }
    }
}

/// Adds the pods that kubelets end, those that nothing creates again first.
fn ended_pods(text: &mut Text, ended: &EndedPods, versions: &VersionNames) {
    let after = &versions.after;
    let EndedPods { total, without_controller, replaced, selected, unknown } = ended;
    if *total == 0 {
        text.paragraph("", &format!("The kubelet ends no pods when a node starts as {after}."));
    } else {
        let selected = selected.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        let of = count(*total, "pod");
        text.paragraph("", &format!("The kubelet ends {of} when a node starts as {after} (selected: {selected})."));
        if !without_controller.is_empty() {
            let pod_name =
                |pod: &ObjectReference| format!("{}/{}", pod.namespace.as_deref().unwrap_or_default(), pod.name);
            let names: Vec<String> = without_controller.iter().map(pod_name).collect();
            let (noun, verb) = if names.len() == 1 { ("Pod", "has") } else { ("Pods", "have") };
            let lost = if names.len() == 1 { "is lost" } else { "are lost" };
            text.hanging("  ", "    ", BAD, "", &format!("{noun} {} {verb} no controller and {lost}.", listed(&names)));
        }
        let pods: usize = replaced.iter().map(|replaced| replaced.pods).sum();
        if pods > 0 {
            let verb = if pods == 1 { "is replaced by its controller" } else { "are replaced by their controllers" };
            text.paragraph("  ", &format!("{pods} {verb}."));
        }
    }
    if *unknown > 0 {
        let (of, select) = (count(*unknown, "pod"), if *unknown == 1 { "selects" } else { "select" });
        text.paragraph(
            "",
            &format!("It is not known whether it ends {of} that {select} a label with an unknown value."),
        );
    }
}
