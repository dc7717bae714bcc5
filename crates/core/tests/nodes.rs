//! The table of nodes: the steps of an attempt, and what the table remembers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use winpool_core::api::{Taint, names};
use winpool_core::node::NodeObject;
use winpool_core::plan::attempt::RequestError;
use winpool_core::plan::nodes::assessment::NodeState;
use winpool_core::plan::nodes::{NodeAnswer, NodeEvent, NodeNote, NodeStep, NodeTable};
use winpool_core::plan::pools::pool::Policy;
use winpool_core::windows::Build;

use crate::common::{self, node, policy, pool, read, with_consent};

const MINE: &str = "os=windows:NoSchedule";
const PATIENCE: Duration = Duration::from_mins(10);
const SECOND: Duration = Duration::from_secs(1);

/// A pool that adds its taint at once.
const ALWAYS: &str = "{spec: {taintPolicy: TaintOnly}, status: {taints: [{taint: 'os=windows:NoSchedule'}]}}";

fn always() -> Arc<Policy> {
    let planned = with_consent(pool(ALWAYS), |consent| {
        consent.planned_builds.insert(Build::new(20348));
    });
    policy([planned]).into()
}

/// A node without the build label and the taint.
fn bare() -> Value {
    node("metadata: {labels: {node.kubernetes.io/windows-build: null}}")
}

fn object(name: &str, version: u64, value: &Value) -> Arc<NodeObject> {
    Arc::new(NodeObject {
        name: name.into(),
        uid: name.into(),
        resource_version: version.to_string().into(),
        node: read(value),
        other_writer: value["writer"].as_str().map(Into::into),
    })
}

/// A table with the node `win`, which is written by this policy.
struct Scene {
    table: NodeTable,
    now: Instant,
}

impl Scene {
    fn new(policy: Arc<Policy>, value: &Value) -> Self {
        let now = Instant::now();
        let mut table = NodeTable::new(PATIENCE);
        table.count_by(Policy::clone(&policy), now);
        table.write_by(Some(policy), now);
        table.observe(NodeEvent::Listed(vec![object("win", 1, value)]), now);
        Self { table, now }
    }

    fn see(&mut self, version: u64, value: &Value) -> bool {
        !self.table.observe(NodeEvent::Seen(object("win", version, value)), self.now).is_empty()
    }

    fn next(&mut self) -> NodeStep {
        self.table.next("win", self.now)
    }

    fn answer(&mut self, answer: NodeAnswer) -> NodeStep {
        self.table.answer("win", answer, self.now)
    }

    /// The patch is accepted, and the node has this version then.
    fn written(&mut self, version: u64) -> NodeStep {
        self.answer(NodeAnswer::Written(Some(version.to_string().into())))
    }

    fn denied(&mut self) -> NodeStep {
        self.answer(NodeAnswer::Refused(RequestError::Denied("nodes \"win\" is forbidden: no".to_owned())))
    }

    fn stale(&mut self) -> NodeStep {
        self.answer(NodeAnswer::Refused(RequestError::Stale))
    }

    fn states(&self) -> Vec<NodeState> {
        self.table.states().into_iter().map(|count| count.state).collect()
    }

    /// The description of the other writer after three writes of a node with this label that are reverted.
    fn described(label: &str, writer: &str) -> String {
        let mut shows = bare();
        json_patch::merge(
            &mut shows,
            &json!({"metadata": {"labels": {"kubernetes.azure.com/agentpool": null}}, "writer": writer}),
        );
        json_patch::merge(&mut shows, &json!({"metadata": {"labels": {label: "x"}}}));
        let mut scene = Self::new(always(), &shows);
        for write in 0..3 {
            scene.next();
            scene.answer(NodeAnswer::Written(None));
            scene.see(write + 2, &shows);
        }
        scene.next();
        let described = scene.table.take_notes().into_iter().find_map(|(_, note)| match note {
            NodeNote::Contested { writer, .. } => Some(writer),
            _ => None,
        });
        described.unwrap()
    }

    /// The names of the notes since the last call.
    fn notes(&mut self) -> Vec<&'static str> {
        let name = |note| match note {
            NodeNote::Written { .. } => "written",
            NodeNote::Refused { .. } => "refused",
            NodeNote::Contested { .. } => "contested",
            NodeNote::Failed { .. } => "failed",
        };
        self.table.take_notes().into_iter().map(|(_, note)| name(note)).collect()
    }
}

/// `label` and `taint`, as far as the step writes them; or the name of the step.
fn writes(step: &NodeStep) -> String {
    match step {
        NodeStep::Patch { plan, .. } => {
            let parts = [
                ("label", plan.windows_build.is_some()),
                ("capability", !plan.capability_labels.is_empty()),
                ("taint", plan.taints.is_some()),
            ];
            parts.iter().filter(|(_, is_there)| *is_there).map(|(part, _)| *part).collect::<Vec<_>>().join(" ")
        }
        NodeStep::Wait(_) => "wait".to_owned(),
    }
}

fn until(step: &NodeStep) -> Instant {
    let NodeStep::Wait(Some(until)) = step else { panic!("{step:?}") };
    *until
}

#[test]
fn a_refused_taint_delays_no_label_and_is_not_sent_again_before_its_pause_ends() {
    let labelled = node("{}");
    // What the watch shows after the label was accepted: the write, or nothing new yet.
    for shown in [labelled.clone(), bare()] {
        let mut scene = Scene::new(always(), &bare());
        assert_eq!(writes(&scene.next()), "label taint");
        assert_eq!(writes(&scene.denied()), "label");
        assert_eq!(writes(&scene.answer(NodeAnswer::Written(None))), "wait");
        assert!(scene.see(2, &shown));
        if shown != labelled {
            assert_eq!(writes(&scene.next()), "label", "its tests fail, so admission does not see it");
            assert_eq!(writes(&scene.stale()), "wait");
            scene.see(3, &labelled);
        }
        assert_eq!(writes(&scene.next()), "taint");
        assert_eq!(until(&scene.denied()), scene.now + PATIENCE);
        assert_eq!(scene.notes(), ["written", "refused"]);
        assert_eq!(until(&scene.next()), scene.now + PATIENCE);
        assert_eq!(scene.states(), [NodeState::Blocked]);
        scene.now += PATIENCE;
        assert_eq!(writes(&scene.next()), "taint");
    }
}

#[test]
fn a_refused_label_delays_no_taint() {
    let mut scene = Scene::new(always(), &bare());
    assert_eq!(writes(&scene.next()), "label taint");
    assert_eq!(writes(&scene.denied()), "label");
    assert_eq!(writes(&scene.denied()), "taint");
    scene.written(2);
    let mut shows = common::converge(&node("{}"), &always());
    shows["metadata"]["labels"].as_object_mut().unwrap().remove(names::WINDOWS_BUILD);
    scene.see(2, &shows);
    assert_eq!((until(&scene.next()), scene.states()), (scene.now + PATIENCE, vec![NodeState::Blocked]));
}

/// A node that is right, with the record of this taint.
fn recorded() -> Value {
    node(
        "{metadata: {labels: {winpool.dev/pool: default}, annotations: {winpool.dev/applied:
          '{\"pool\":\"default\",\"taints\":[\"os=windows:NoSchedule\"]}'}},
          spec: {taints: [{key: os, value: windows, effect: NoSchedule}]}}",
    )
}

fn without_annotation() -> Value {
    node(
        "{metadata: {labels: {winpool.dev/pool: default}, annotations: {other: x}},
          spec: {taints: [{key: os, value: windows, effect: NoSchedule}]}}",
    )
}

fn record_of(step: &NodeStep) -> Option<String> {
    let NodeStep::Patch { plan, .. } = step else { panic!("{step:?}") };
    plan.applied.as_ref()?.to.clone()
}

#[test]
fn a_record_that_somebody_removes_or_replaces_is_written_again_with_its_taints() {
    let replaced = |with: &str| {
        let mut node = recorded();
        node["metadata"]["annotations"][names::APPLIED] = with.into();
        node
    };
    let empty = replaced(r#"{"pool":"default","taints":[]}"#);
    for other in [without_annotation(), empty, replaced(r#"{"pool":"other"}"#), replaced("x")] {
        let mut scene = Scene::new(always(), &recorded());
        scene.see(2, &other);
        assert!(
            record_of(&scene.next()).unwrap().contains(MINE),
            "a deletion of the pool would leave the taint: {other}"
        );
        // A process that does not lead takes in what the leader writes.
        let mut scene = Scene::new(always(), &recorded());
        scene.table.write_by(None, scene.now);
        scene.see(2, &replaced(r#"{"pool":"default","taints":[]}"#));
        scene.table.write_by(Some(always()), scene.now);
        assert_eq!(writes(&scene.next()), "wait");
    }
}

#[test]
fn a_write_whose_record_is_removed_is_a_refusal() {
    let mut scene = Scene::new(always(), &bare());
    assert_eq!(writes(&scene.next()), "label taint");
    assert_eq!(writes(&scene.answer(NodeAnswer::Stripped("2".into()))), "wait");
    assert_eq!(scene.notes(), ["written"]);
    // winpool still knows that the taint is its own, and tries once more: now only the record is missing.
    scene.see(2, &without_annotation());
    assert!(record_of(&scene.next()).unwrap().contains(MINE));
    // Nothing is left of that write, so the watch shows no change that winpool could wait for.
    assert_eq!(until(&scene.answer(NodeAnswer::Stripped("2".into()))), scene.now + PATIENCE);
    assert_eq!(scene.notes(), ["refused"]);
    assert_eq!(scene.states(), [NodeState::Blocked]);
    let problems = scene.table.tally("default").problems();
    assert!(problems[0].message.contains("removes the annotation winpool.dev/applied"), "{problems:?}");
    scene.now += PATIENCE;
    assert!(record_of(&scene.next()).unwrap().contains(MINE));
}

#[test]
fn a_permission_that_comes_back_is_noticed_within_a_minute() {
    let message = "nodes \"win\" is forbidden: User \"winpool\" cannot patch resource \"nodes\" in API group \"\" at the cluster scope";
    let mut scene = Scene::new(always(), &bare());
    scene.next();
    assert_eq!(writes(&scene.answer(NodeAnswer::Refused(RequestError::Denied(message.to_owned())))), "label");
    scene.answer(NodeAnswer::Refused(RequestError::Denied(message.to_owned())));
    assert_eq!(
        until(&scene.answer(NodeAnswer::Refused(RequestError::Denied(message.to_owned())))),
        scene.now + Duration::from_mins(1)
    );
}

#[test]
fn a_patch_that_is_accepted_and_changes_nothing_is_a_refusal() {
    let mut scene = Scene::new(always(), &bare());
    assert_eq!(writes(&scene.next()), "label taint");
    assert_eq!(writes(&scene.written(1)), "label", "the parts may have an effect");
    assert_eq!(writes(&scene.written(2)), "wait");
    scene.see(2, &node("{}"));
    assert_eq!(writes(&scene.next()), "taint");
    assert_eq!(until(&scene.written(2)), scene.now + PATIENCE);
    assert_eq!(scene.notes(), ["written", "refused"]);
    assert_eq!((until(&scene.next()), scene.states()), (scene.now + PATIENCE, vec![NodeState::Blocked]));
    let problems = scene.table.tally("default").problems();
    assert!(problems[0].message.contains("a mutating webhook or admission policy reverts it"), "{problems:?}");
    scene.now += PATIENCE;
    assert_eq!(writes(&scene.next()), "taint");
    assert_eq!(writes(&scene.written(3)), "wait");
    scene.see(3, &common::converge(&bare(), &always()));
    assert_eq!((writes(&scene.next()), scene.states()), ("wait".to_owned(), vec![NodeState::Converged]));
}

#[test]
fn a_part_that_is_reverted_is_refused_at_the_second_attempt() {
    for (shown, rest) in [(node("{}"), "taint"), (with_taint(&bare()), "label")] {
        let mut scene = Scene::new(always(), &bare());
        assert_eq!(writes(&scene.next()), "label taint");
        assert_eq!(writes(&scene.written(2)), "wait");
        scene.see(2, &shown);
        assert_eq!(writes(&scene.next()), rest);
        assert_eq!(until(&scene.written(2)), scene.now + PATIENCE);
        assert_eq!((scene.notes(), scene.states()), (vec!["written", "refused"], vec![NodeState::Blocked]));
    }
}

/// The node with the taint of the pool.
fn with_taint(value: &Value) -> Value {
    let mut value = common::marked(value.clone(), "default", &[MINE]);
    value["spec"]["taints"] = serde_json::json!([Taint::os_windows()]);
    value
}

#[test]
fn a_version_that_another_writer_made_meanwhile_proves_nothing() {
    let mut scene = Scene::new(always(), &bare());
    assert_eq!(writes(&scene.next()), "label taint");
    // A heartbeat made version 2 before the patch, which changed nothing.
    assert_eq!(writes(&scene.written(2)), "wait");
    scene.see(2, &bare());
    assert_eq!(writes(&scene.next()), "label taint");
    assert_eq!(writes(&scene.written(2)), "label");
}

#[test]
fn a_patch_whose_tests_fail_waits_for_the_watch_to_show_the_change() {
    for refusal in [RequestError::Stale, RequestError::Conflict] {
        let mut scene = Scene::new(always(), &bare());
        assert_eq!(writes(&scene.next()), "label taint");
        let wait = until(&scene.answer(NodeAnswer::Refused(refusal.clone()))) - scene.now;
        assert!(wait >= SECOND / 2 && wait <= SECOND, "{wait:?}");
        assert_eq!(until(&scene.next()), scene.now + wait, "the watch shows nothing new");
        assert!(scene.see(2, &bare()));
        assert_eq!(writes(&scene.next()), "label taint", "at once");
        // The watch shows the change before the API server answers.
        scene.see(3, &bare());
        assert_eq!(writes(&scene.answer(NodeAnswer::Refused(refusal))), "label taint");
        assert_eq!(scene.notes(), [""; 0]);
    }
}

#[test]
fn a_node_whose_patches_fail_their_tests_for_ever_is_blocked() {
    let mut scene = Scene::new(always(), &bare());
    for _ in 0..5 {
        assert_eq!(scene.states(), [NodeState::Pending]);
        assert_eq!(writes(&scene.next()), "label taint");
        scene.now = until(&scene.stale());
    }
    assert_eq!((scene.notes(), scene.states()), (vec!["refused"], vec![NodeState::Blocked]));
    let problems = scene.table.tally("default").problems();
    assert!(problems[0].message.contains("tests fail although the node is as it was seen"), "{problems:?}");
    assert_eq!(writes(&scene.next()), "label taint", "it is tried again, with growing pauses");
    assert!(until(&scene.stale()) - scene.now >= 16 * SECOND);
    assert_eq!(scene.notes(), [""; 0]);
    scene.see(2, &bare());
    assert_eq!((writes(&scene.next()), scene.states()), ("label taint".to_owned(), vec![NodeState::Pending]));
}

#[test]
fn after_an_accepted_patch_a_node_waits_until_the_watch_shows_another_version() {
    let mut scene = Scene::new(always(), &bare());
    assert_eq!(writes(&scene.next()), "label taint");
    assert_eq!(writes(&scene.answer(NodeAnswer::Written(None))), "wait");
    assert_eq!(scene.next(), NodeStep::Wait(None), "also with another policy");
    assert!(scene.see(4, &bare()), "another writer was faster");
    assert_eq!(writes(&scene.next()), "label taint");

    // A part was accepted, and the rest refused.
    let mut scene = Scene::new(always(), &bare());
    scene.next();
    assert_eq!(writes(&scene.denied()), "label");
    assert_eq!(writes(&scene.denied()), "taint", "the label may be refused, and not the taint");
    assert_eq!(writes(&scene.written(2)), "wait");
    assert_eq!(scene.next(), NodeStep::Wait(None));
    scene.see(2, &with_taint(&bare()));
    assert_eq!((until(&scene.next()), scene.states()), (scene.now + PATIENCE, vec![NodeState::Blocked]));
}

#[test]
fn failures_make_the_pause_longer_and_an_event_does_not_shorten_it() {
    let mut scene = Scene::new(always(), &bare());
    let mut last = Duration::ZERO;
    for failures in 0..12 {
        assert_eq!(writes(&scene.next()), "label taint", "after {failures} failures");
        let wait = until(&scene.answer(NodeAnswer::Refused(RequestError::failed("timed_out")))) - scene.now;
        assert!(failures > 6 || wait > last, "{wait:?} after {last:?}");
        scene.see(failures + 2, &bare());
        assert_eq!(until(&scene.next()), scene.now + wait);
        scene.now += wait;
        last = wait;
    }
    assert!(last >= Duration::from_mins(1) && last <= Duration::from_mins(2), "{last:?}");
    scene.next();
    scene.answer(NodeAnswer::Refused(RequestError::failed("failed")));
    scene.table.observe(NodeEvent::TermBegan, scene.now);
    scene.table.write_by(Some(always()), scene.now);
    assert_eq!(writes(&scene.next()), "label taint", "a new term begins at once");
}

#[test]
fn a_change_that_another_writer_reverts_three_times_waits_and_the_writer_is_named_once() {
    let mut scene = Scene::new(always(), &bare());
    for write in 0..3 {
        assert_eq!(writes(&scene.next()), "label taint", "{write}");
        assert_eq!(writes(&scene.answer(NodeAnswer::Written(None))), "wait");
        scene.see(write + 2, &bare());
    }
    let end = until(&scene.next());
    assert_eq!(end, scene.now + 10 * SECOND);
    assert_eq!(scene.notes(), ["written", "written", "written", "contested"]);
    assert_eq!(scene.states(), [NodeState::Contested]);
    scene.see(9, &bare());
    assert_eq!(until(&scene.next()), end, "it is known already");
    scene.now = end;
    assert_eq!(writes(&scene.next()), "label taint");
}

#[test]
fn the_other_writer_is_named_with_the_place_where_a_known_provisioner_configures_its_nodes() {
    for (label, words) in [
        ("kubernetes.azure.com/agentpool", "AKS node pool"),
        ("node.openshift.io/os_id", "Windows Machine Config Operator"),
        ("karpenter.sh/nodepool", "Karpenter NodePool"),
        ("other", "winpool.dev/ignore"),
    ] {
        let text = Scene::described(label, "node-pool-api");
        assert!(text.contains(words) && text.contains("(last field manager: node-pool-api)"), "{text}");
    }
}

#[test]
fn a_node_that_registers_again_between_two_parts_gets_none_of_the_first_node() {
    let mut scene = Scene::new(always(), &bare());
    scene.next();
    assert_eq!(writes(&scene.denied()), "label");
    scene.table.observe(NodeEvent::Deleted("win".into()), scene.now);
    let new = NodeObject { uid: "new".into(), ..NodeObject::clone(&object("win", 7, &bare())) };
    assert_eq!(scene.table.observe(NodeEvent::Seen(new.into()), scene.now).len(), 1);
    assert_eq!(writes(&scene.next()), "wait", "a request is in flight");
    assert_eq!(writes(&scene.written(7)), "label taint", "the answer is about the first node");
    assert_eq!(scene.notes(), [""; 0]);
}

#[test]
fn a_node_that_turns_out_to_be_another_one_waits_for_the_watch() {
    let mut scene = Scene::new(always(), &bare());
    scene.next();
    assert_eq!(writes(&scene.stale()), "wait");
    let new = NodeObject { uid: "new".into(), ..NodeObject::clone(&object("win", 7, &bare())) };
    assert_eq!(scene.table.observe(NodeEvent::Seen(new.into()), scene.now).len(), 1);
    assert_eq!(writes(&scene.next()), "label taint");
}

#[test]
fn a_process_that_no_longer_leads_sends_no_further_part() {
    for answer in [
        NodeAnswer::Written(None),
        NodeAnswer::Refused(RequestError::Denied("no".to_owned())),
        NodeAnswer::Refused(RequestError::Stale),
    ] {
        let mut scene = Scene::new(always(), &bare());
        scene.next();
        assert_eq!(writes(&scene.denied()), "label");
        scene.table.write_by(None, scene.now);
        assert_eq!(writes(&scene.answer(answer.clone())), "wait", "{answer:?}");
        assert!(scene.table.is_settled(), "{answer:?}");
    }
}

#[test]
fn a_node_that_goes_to_another_pool_while_a_patch_is_in_flight_is_written_for_that_pool() {
    let of = |name: &str| {
        let spec = format!("{{taintPolicy: TaintOnly, nodeSelector: {{team: {name}}}}}");
        let status = "{taints: [{taint: 'os=windows:NoSchedule'}]}";
        let pool = pool(&format!("{{metadata: {{name: {name}, uid: {name}}}, spec: {spec}, status: {status}}}"));
        with_consent(pool, |consent| {
            consent.planned_builds.insert(Build::new(20348));
        })
    };
    let team = |team: &str| node(&format!("metadata: {{labels: {{team: {team}}}}}"));
    let mut scene = Scene::new(policy([of("a"), of("b")]).into(), &team("a"));
    let pool_of = |step: &NodeStep| match step {
        NodeStep::Patch { plan, .. } => plan.pool.as_ref().and_then(|change| change.to.clone()),
        NodeStep::Wait(_) => None,
    };
    assert_eq!(pool_of(&scene.next()).as_deref(), Some("a"));
    scene.see(2, &team("b"));
    assert_eq!(pool_of(&scene.stale()).as_deref(), Some("b"));
    assert_eq!(writes(&scene.written(3)), "wait");
    let notes = scene.table.take_notes();
    assert!(matches!(&notes[..], [(_, NodeNote::Written { pool, .. })] if pool.as_deref() == Some("b")), "{notes:?}");
}

#[test]
fn a_request_by_an_older_policy_counts_until_its_answer_also_if_its_node_is_gone() {
    for is_deleted in [false, true] {
        let mut scene = Scene::new(always(), &bare());
        assert_eq!(writes(&scene.next()), "label taint");
        assert!(scene.table.is_settled(), "it is the present policy");
        scene.table.write_by(Some(always()), scene.now);
        if is_deleted {
            scene.table.observe(NodeEvent::Deleted("win".into()), scene.now);
            scene.see(2, &bare());
        }
        assert_eq!(writes(&scene.next()), "wait", "a request is in flight");
        assert!(!scene.table.is_settled());
        assert_eq!(writes(&scene.answer(NodeAnswer::Written(None))), "wait");
        assert!(scene.table.is_settled());
    }
}

#[test]
fn another_node_with_the_same_name_starts_afresh() {
    let mut scene = Scene::new(always(), &node("{}"));
    scene.next();
    scene.denied();
    let new = NodeObject { uid: "new".into(), ..NodeObject::clone(&object("win", 2, &node("{}"))) };
    scene.table.observe(NodeEvent::Listed(vec![new.into()]), scene.now);
    assert_eq!((writes(&scene.next()), scene.states()), ("taint".to_owned(), vec![NodeState::Pending]));
}

#[test]
fn nodes_that_are_gone_count_no_more_and_late_answers_do_not_bring_them_back() {
    let mut scene = Scene::new(always(), &bare());
    scene.table.observe(NodeEvent::Listed(vec![object("win", 1, &bare()), object("other", 1, &bare())]), scene.now);
    assert_eq!(scene.table.tally("default").counts().selected, 2);
    scene.next();
    scene.table.observe(NodeEvent::Listed(vec![object("other", 1, &bare())]), scene.now);
    assert_eq!(scene.table.tally("default").counts().selected, 1);
    assert_eq!(writes(&scene.denied()), "wait");
    let names: Vec<_> = scene.table.nodes().map(|(object, _)| &*object.name).collect();
    assert_eq!(names, ["other"]);
    assert!(scene.table.take_changed() && !scene.table.take_changed());
}

#[test]
fn a_node_that_came_back_as_linux_and_refuses_to_be_cleaned_counts_for_no_pool() {
    let pool = pool("metadata: {deletionTimestamp: '2026-03-01T12:00:00Z', finalizers: [winpool.dev/cleanup]}");
    let linux = common::marked(node("metadata: {labels: {kubernetes.io/os: linux}}"), "default", &[MINE]);
    let linux = {
        let mut linux = linux;
        linux["status"]["nodeInfo"]["operatingSystem"] = "linux".into();
        linux
    };
    let mut scene = Scene::new(policy([pool]).into(), &linux);
    assert!(matches!(scene.next(), NodeStep::Patch { plan, .. } if plan.pool.is_some()));
    let mut step = scene.denied();
    while !matches!(step, NodeStep::Wait(_)) {
        step = scene.denied();
    }
    assert_eq!(until(&step), scene.now + PATIENCE);
    assert_eq!(scene.states(), [], "no event of a Windows node would ever correct that");
    assert_eq!(linux["metadata"]["labels"][names::POOL], "default");
}

/// A kubelet makes winpool write something else again and again. (An administrator may move a node between pools.)
#[test]
fn a_node_that_keeps_changing_what_winpool_follows_is_written_three_times_before_a_pause() {
    type Shown<'a> = &'a dyn Fn(u32) -> Value;
    let reports = |version: &str, runtime: &str| {
        let info = format!("{{kernelVersion: {version}, containerRuntimeVersion: 'containerd://{runtime}'}}");
        node(&format!("{{status: {{nodeInfo: {info}}}}}"))
    };
    let other = |number: u32| format!("10.0.{}.1", 20348 + number);
    // A label that contradicts the reported build is corrected after five seconds.
    let cases: [(&str, u32, Shown<'_>); 4] = [
        ("two builds", 6, &|number| reports(&other(number % 2), "2.0.4")),
        ("another build each time", 6, &|number| reports(&other(number), "2.0.4")),
        ("another invented label each time", 2, &|number| {
            node(&format!("metadata: {{labels: {{runs.winpool.dev/a{number}: a}}}}"))
        }),
        ("two runtimes", 2, &|number| reports("10.0.26100.1", ["2.0.4", "1.7.0"][number as usize % 2])),
    ];
    let classes = "[{name: any-2022, version: '2022', hostMatch: Compatible}]";
    let pool = pool(&format!("spec: {{taintPolicy: Never, runtimeClasses: {classes}}}"));
    for (case, seconds, shown) in cases {
        let mut scene = Scene::new(policy([pool.clone()]).into(), &shown(0));
        let mut shows = shown(0);
        let mut writes = 0;
        for number in 1..20 {
            if let NodeStep::Patch { plan, .. } = scene.next() {
                writes += 1;
                let version = u64::from(number) * 2;
                scene.written(version);
                let mut kept = shows["metadata"]["labels"].take();
                for change in plan.labels() {
                    kept[&change.key] = json!(change.to);
                }
                shows = shown(number);
                json_patch::merge(&mut shows["metadata"]["labels"], &kept);
                shows["metadata"]["annotations"] = json!({names::APPLIED: r#"{"pool":"default","taints":[]}"#});
                scene.see(version + 1, &shows);
                scene.now += seconds * SECOND;
            }
        }
        assert_eq!((writes, scene.states()), (3, vec![NodeState::Contested]), "{case}");
        scene.now += 20 * SECOND;
        assert!(matches!(scene.next(), NodeStep::Patch { .. }), "{case}");
    }
}

#[test]
fn different_ways_to_undo_a_write_are_one_conflict() {
    let undone = [bare(), node("metadata: {labels: {node.kubernetes.io/windows-build: 10.0.1}}"), node("{}")];
    let mut scene = Scene::new(always(), &bare());
    for write in 0..3 {
        assert!(matches!(scene.next(), NodeStep::Patch { .. }), "{write}");
        scene.written(write + 2);
        scene.see(write + 10, &undone[usize::try_from(write).unwrap()]);
        scene.now += 6 * SECOND;
    }
    assert_eq!((writes(&scene.next()), scene.states()), ("wait".to_owned(), vec![NodeState::Contested]));
}

#[test]
fn a_node_gets_its_label_at_once_and_its_taint_after_its_pods() {
    let spec = "{status: {taints: [{taint: 'os=windows:NoSchedule'}]}}";
    let ready = with_consent(pool(spec), |consent| {
        consent.planned_builds.insert(Build::new(20348));
        consent.may_add = true;
    });
    let mut scene = Scene::new(policy([ready]).into(), &bare());
    let awaits = |scene: &mut Scene, nodes: &[&str]| {
        let nodes = nodes.iter().map(|name| Arc::from(*name)).collect();
        scene.table.observe(NodeEvent::PodsAwaited(nodes), scene.now).len()
    };
    assert_eq!(awaits(&mut scene, &["win", "later"]), 1);
    assert_eq!((writes(&scene.next()), scene.states()), ("label".to_owned(), vec![NodeState::Pending]));
    scene.written(2);
    scene.see(2, &node("{}"));
    assert_eq!((writes(&scene.next()), scene.states()), ("wait".to_owned(), vec![NodeState::Held]));
    // One that is seen afterwards waits too.
    scene.table.observe(NodeEvent::Seen(object("later", 1, &node("{}"))), scene.now);
    assert_eq!(scene.states(), [NodeState::Held]);
    assert_eq!(awaits(&mut scene, &["later"]), 1);
    assert_eq!(writes(&scene.next()), "taint");
}
