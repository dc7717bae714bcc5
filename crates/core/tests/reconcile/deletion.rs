//! The end of a pool: what it waits for, and for how long.

use winpool_core::api::names::condition;
use winpool_core::node::NodeFields;

use super::cluster::{MINE, World, daemon_set, denied, failed, of_class, pool};
use crate::common::{node, set_label};

/// True if a request is one that is refused.
type Matches = fn(&str) -> bool;

/// A pool that is an hour old, with two nodes that carry its taint, and its class.
fn world() -> World {
    let mut world = World::new([pool("{}")], [("win-1", node("{}")), ("win-2", node("{}"))]);
    world.rest();
    world.advance(std::time::Duration::from_hours(1));
    world.rest();
    assert_eq!((world.taints("win-1").len(), world.classes.len()), (1, 1));
    world.take_sent(&[]);
    world
}

/// The number of seconds until the pool is deleted, at most an hour.
fn seconds_until_gone(world: &mut World) -> u64 {
    for second in 0..3600 {
        world.rest();
        if !world.pools.iter().any(|pool| pool.metadata.deletion_timestamp.is_some()) {
            return second;
        }
        world.advance(std::time::Duration::from_secs(1));
    }
    panic!("the deletion hangs: {:?}", world.condition(condition::READY));
}

#[test]
fn a_pool_is_deleted_with_its_taints_labels_and_classes() {
    let mut world = world();
    world.delete();
    assert!(seconds_until_gone(&mut world) < 5);
    assert!(world.classes.is_empty() && world.taints("win-1").is_empty());
    assert_eq!(world.nodes["win-2"].labels.get("winpool.dev/pool"), None);
    assert_eq!(world.take_sent(&["SetFinalizer"]), ["SetFinalizer false"]);
}

#[test]
fn a_class_that_no_status_records_is_deleted_if_the_deleted_pool_wants_it_and_released_if_not() {
    let mut world = world();
    let labels = "labels: {winpool.dev/pool: default, app.kubernetes.io/managed-by: winpool}";
    world.class(&format!("{{metadata: {{name: copy, {labels}}}, handler: h}}"));
    // The former leader ended before it recorded its class.
    world.change_pool("default", "status: {runtimeClasses: null}");
    world.restart();
    world.delete();
    assert!(seconds_until_gone(&mut world) < 5);
    assert_eq!(world.classes.keys().collect::<Vec<_>>(), ["copy"]);
    assert!(world.is_released("copy"));
}

#[test]
fn a_taint_whose_record_was_replaced_while_winpool_did_not_run_stays_and_is_named() {
    let mut world = world();
    world.nodes.get_mut("win-1").unwrap().applied = Some(r#"{"pool":"default","taints":[]}"#.into());
    world.restart();
    world.delete();
    assert!(seconds_until_gone(&mut world) < 5);
    assert_eq!((world.taints("win-1").len(), world.taints("win-2").len()), (1, 0));
    let notes = format!("{:?}", world.operator.memory.take_notes());
    assert!(
        notes.contains("1 node with a taint of the pool") && notes.contains("taint nodes win-1 os:NoSchedule-"),
        "{notes}"
    );
}

#[test]
fn a_taint_that_a_record_claims_is_not_said_to_have_no_record() {
    let mut ignored = world();
    ignored.change_node("win-1", |node| node.ignore = Some("true".into()));
    let mut handed_over = World::new([pool("{}"), pool("{metadata: {name: second}}")], [("win-1", node("{}"))]);
    handed_over.rest();
    for (fact, mut world) in [("it is ignored", ignored), ("another pool takes it over", handed_over)] {
        world.rest();
        world.delete();
        assert!(seconds_until_gone(&mut world) < 5, "{fact}");
        assert_eq!(world.taints("win-1"), [MINE], "{fact}");
        assert!(world.nodes["win-1"].applied.as_deref().unwrap().contains(MINE), "{fact}");
        let notes = format!("{:?}", world.operator.memory.take_notes());
        assert!(!notes.contains("that no record says"), "{fact}: {notes}");
    }
}

#[test]
fn an_uninstall_does_not_wait_for_what_the_api_server_refuses() {
    let mut world = world();
    world.blocked.insert("win-1".to_owned());
    world.refuse("Patch", denied());
    world.operator.memory.is_uninstalled = true;
    world.delete();
    assert!(seconds_until_gone(&mut world) < 5);
    assert_eq!((world.taints("win-1").len(), world.taints("win-2").len()), (1, 0));
    assert!(world.classes.contains_key("windows-2022"));
}

#[test]
fn a_deletion_without_progress_says_what_it_waits_for_and_ends_after_ten_minutes() {
    let never: Matches = |_| false;
    let cases: [(&str, bool, Matches, &str, bool); 4] = [
        ("a node refuses its change", true, never, "node", true),
        ("the class is refused", false, |line| line.starts_with("Delete"), "RuntimeClass windows-2022", true),
        ("nodes cannot be listed", false, |line| line == "ListLabelledNodes", "nodes cannot be listed", true),
        ("nothing is refused", false, never, "", false),
    ];
    for (fact, blocks_node, is_refused, expected, takes_long) in cases {
        for refusal in [failed(), denied()] {
            let (mut world, is_denied) = (world(), refusal == denied());
            if blocks_node {
                world.blocked.insert("win-1".to_owned());
            }
            world.refuse = Box::new(move |line| is_refused(line).then(|| refusal.clone()));
            world.delete();
            world.wait(5);
            if takes_long {
                assert!(!world.pools.is_empty(), "{fact}");
                let message = world.condition(condition::READY).1;
                assert!(message.contains("waits") && message.contains(expected), "{fact}: {message}");
                let seconds = seconds_until_gone(&mut world);
                assert!((580..720).contains(&seconds), "{fact}: {seconds}");
                let notes = format!("{:?}", world.operator.memory.take_notes());
                let words = if blocks_node { "1 node that winpool cannot change" } else { "keeps winpool's labels" };
                let is_said = blocks_node || (expected.contains("RuntimeClass") && is_denied);
                assert_eq!(notes.contains(words), is_said, "{fact}: {notes}");
            } else {
                assert!(world.pools.is_empty(), "{fact}");
            }
        }
    }
}

#[test]
fn a_class_is_released_instead_of_deleted_while_a_node_keeps_a_taint_that_it_tolerates() {
    type Change = fn(&mut NodeFields);
    let without_label: Change = |node| set_label(node, "winpool.dev/pool", None);
    let of_another_build: Change = |node| {
        node.kernel_version = Some("10.0.17763.6189".into());
        set_label(node, "node.kubernetes.io/windows-build", Some("10.0.17763"));
    };
    let cases: [(&str, bool, Vec<Change>); 4] = [
        ("the API server refuses to change it", true, vec![]),
        ("its annotation still says which pool added the taint", true, vec![without_label]),
        ("it is ignored", false, vec![|node| node.ignore = Some("true".into())]),
        ("its kubelet added the taint", false, vec![without_label, |node| node.applied = None]),
    ];
    for (fact, is_refused, changes) in cases {
        let mut world = world();
        if is_refused {
            world.blocked.insert("win-1".to_owned());
        }
        for change in changes {
            world.change_node("win-1", change);
        }
        world.rest();
        world.delete();
        assert_eq!(seconds_until_gone(&mut world) < 5, !is_refused, "{fact}");
        assert_eq!((world.taints("win-1"), world.taints("win-2")), (vec![MINE.to_owned()], vec![]), "{fact}");
        assert!(world.is_released("windows-2022"), "{fact}");
    }
    // It tolerates also what it was not asked to tolerate, because its nodes have it.
    for (fact, taint) in [
        ("the taint is written as another tool writes it", "{key: os, value: Windows, effect: NoSchedule}"),
        ("the taint has another value", "{key: os, value: mine, effect: NoSchedule}"),
    ] {
        let tainted = node(&format!("spec: {{taints: [{taint}]}}"));
        let mut world = World::new([pool("{}")], [("win-1", tainted), ("win-2", node("{}"))]);
        world.wait(10);
        let before = world.taints("win-1");
        world.delete();
        seconds_until_gone(&mut world);
        assert_eq!((world.taints("win-1"), world.taints("win-2")), (before, vec![]), "{fact}");
        assert!(world.is_released("windows-2022"), "{fact}");
    }
    // No pod of the class runs on this node.
    let mut world = world();
    world.change_node("win-1", of_another_build);
    world.wait(10);
    world.change_node("win-1", without_label);
    world.change_node("win-1", |node| node.applied = None);
    world.rest();
    world.delete();
    seconds_until_gone(&mut world);
    assert!(world.is_released("windows-2019") && !world.classes.contains_key("windows-2022"));
}

#[test]
fn time_in_which_the_api_server_does_not_answer_does_not_count() {
    let mut world = world();
    world.blocked.insert("win-1".to_owned());
    world.delete();
    world.wait(100);
    world.refuse = Box::new(|_| Some(failed()));
    world.wait(1800);
    assert!(!world.pools.is_empty());
    world.accept_all();
    world.wait(300);
    assert!(!world.pools.is_empty(), "ten minutes of answers have not passed");
    assert!(seconds_until_gone(&mut world) < 330);
}

#[test]
fn progress_restarts_the_ten_minutes() {
    let mut world = world();
    world.blocked.extend(["win-1".to_owned(), "win-2".to_owned()]);
    world.delete();
    world.wait(500);
    world.nodes.remove("win-2");
    world.watch();
    world.wait(500);
    assert!(!world.pools.is_empty());
    assert!((50..150).contains(&seconds_until_gone(&mut world)));
}

#[test]
fn a_class_that_another_pool_wants_is_handed_over_or_released_after_ten_minutes() {
    for (finalizers, owner) in [("[winpool.dev/cleanup]", Some("younger")), ("[]", None)] {
        let younger = format!(
            "{{metadata: {{name: younger, creationTimestamp: '2026-02-01T00:00:00Z', finalizers: {finalizers}}}, \
             spec: {{nodeSelector: {{team: none}}, runtimeClasses: [{{name: windows-2022, version: '2022'}}]}}}}"
        );
        let mut world = World::new([pool("{}"), pool(&younger)], [("win", node("{}"))]);
        // Without its finalizer a pool takes over nothing.
        world.refuse("SetFinalizer true", denied());
        world.wait(2);
        let before = world.classes["windows-2022"].metadata.uid.clone();
        world.pods = vec![of_class("windows-2022")];
        world.delete();
        world.rest();
        if owner.is_none() {
            world.wait(10);
            let message = world.condition(condition::READY).1;
            assert!(message.contains("another pool has yet to take over RuntimeClass windows-2022"), "{message}");
        }
        let seconds = seconds_until_gone(&mut world);
        assert!(if owner.is_some() { seconds < 30 } else { (580..720).contains(&seconds) }, "{seconds}");
        let class = &world.classes["windows-2022"];
        assert_eq!((&class.metadata.uid, winpool_core::plan::classes::runtime_class::owner(class)), (&before, owner));
    }
}

#[test]
fn the_removal_of_a_finalizer_is_retried_if_it_is_refused() {
    let mut world = world();
    world.refuse("SetFinalizer", denied());
    world.delete();
    world.wait(20);
    assert!(!world.pools.is_empty());
    world.accept_all();
    assert!(seconds_until_gone(&mut world) <= 600);
}

#[test]
fn a_node_that_came_back_as_linux_is_cleaned_before_the_pool_goes() {
    let mut world = world();
    world.change_node("win-1", |node| {
        set_label(node, "kubernetes.io/os", Some("linux"));
        node.operating_system = Some("linux".into());
    });
    world.restart();
    world.delete();
    assert!(seconds_until_gone(&mut world) < 30);
    assert_eq!((world.nodes["win-1"].labels.get("winpool.dev/pool"), world.taints("win-1").len()), (None, 0));
}

#[test]
fn a_pool_that_retains_everything_is_deleted_at_once() {
    let mut world = World::with("{metadata: {finalizers: null}, spec: {deletionPolicy: Retain}}");
    world.wait(2);
    assert_eq!(world.taints("win"), [MINE]);
    assert!(!world.guarded("default").has_finalizer());
}

#[test]
fn a_pool_stays_until_the_next_one_has_recorded_its_taints_on_their_nodes() {
    let spec = |taint: &str| format!("spec: {{taints: [{{key: {taint}/os, value: win, effect: NoSchedule}}]}}");
    let younger = "metadata: {name: younger, creationTimestamp: '2026-02-01T00:00:00Z'}";
    let pools = [pool(&format!("{{{}}}", spec("older"))), pool(&format!("{{{younger}, {}}}", spec("younger")))];
    let mut world = World::new(pools, [("win", node("{}"))]);
    world.daemon_sets =
        vec![daemon_set("agent", "{os: {name: windows}, tolerations: [{key: older/os, operator: Exists}]}")];
    world.wait(2);
    assert_eq!(world.taints("win"), ["older/os=win:NoSchedule"]);
    world.refuse("WriteStatus", failed());
    world.delete();
    world.wait(20);
    assert_eq!(world.nodes["win"].labels.get("winpool.dev/pool"), Some("younger"));
    assert!(
        world.pools.iter().any(|pool| pool.metadata.deletion_timestamp.is_some()),
        "nothing else records the taint of the older pool"
    );
    world.accept_all();
    world.rest();
    assert!(seconds_until_gone(&mut world) < 90);
    assert_eq!(world.taints("win"), ["older/os=win:NoSchedule"]);
    world.daemon_sets.clear();
    world.wait(601);
    assert_eq!(world.taints("win"), ["younger/os=win:NoSchedule"]);
}
