//! `runtimeClassHostMatch`: nodes get the labels first, and then the class selects them.

use std::time::Duration;

use serde_json::Value;
use winpool_core::api::names::{condition, reason};
use winpool_core::node::NodeFields;
use winpool_core::plan::pods::{PodTable, UnknownPods};
use winpool_core::plan::reconcile::Step;

use super::cluster::{World, of_class, pool};
use crate::common::{node, set_label};

const CLASS: &str = "windows-2022";
const LABEL: &str = "runs.winpool.dev/10.0.20348";
const COMPATIBLE: &str = "spec: {runtimeClassHostMatch: Compatible}";
const EXACT: &str = "spec: {runtimeClassHostMatch: Exact}";

fn host(kernel: &str) -> Value {
    let build = kernel.rsplit_once('.').unwrap().0;
    node(&format!(
        "{{metadata: {{labels: {{node.kubernetes.io/windows-build: '{build}'}}}}, \
          status: {{nodeInfo: {{kernelVersion: {kernel}, containerRuntimeVersion: 'containerd://2.0.4'}}}}}}"
    ))
}

fn server_2022() -> Value {
    host("10.0.20348.2655")
}

fn server_2025() -> Value {
    host("10.0.26100.4061")
}

/// Two nodes of 2022 and one each of 2025 and 2019, with their classes.
fn world() -> World {
    let nodes =
        [("win-1", server_2022()), ("win-2", server_2022()), ("new", server_2025()), ("old", host("10.0.17763.6659"))];
    let mut world = World::new([pool("{}")], nodes);
    world.rest();
    assert!(!selects(&world, CLASS, LABEL));
    world
}

fn selects(world: &World, class: &str, key: &str) -> bool {
    world.classes[class].scheduling.iter().flat_map(|scheduling| &scheduling.node_selector).any(|s| s.contains_key(key))
}

fn by_label(world: &World) -> bool {
    selects(world, CLASS, LABEL)
}

fn labelled(world: &World) -> Vec<&str> {
    let labelled = world.nodes.iter().filter(|(_, node)| node.labels.get(LABEL).is_some());
    labelled.map(|(name, _)| name.as_str()).collect()
}

/// Rests, and calls `holds` after every request.
fn rest_while(world: &mut World, holds: impl Fn(&World)) {
    for _ in 0..100 {
        let step = world.step("default");
        holds(world);
        if matches!(step, Step::Wait(_)) && !world.write_nodes() {
            return;
        }
        holds(world);
    }
    panic!("no rest");
}

#[test]
fn nodes_are_labelled_before_the_class_selects_the_label_and_after_it_selects_the_build() {
    let mut world = world();
    world.change_pool("default", COMPATIBLE);
    rest_while(&mut world, |world| {
        assert!(!by_label(world) || labelled(world).len() == 3, "{:?}", labelled(world));
    });
    assert!(by_label(&world) && !selects(&world, CLASS, "node.kubernetes.io/windows-build"));
    assert_eq!(labelled(&world), ["new", "win-1", "win-2"]);
    for class in ["windows-2025", "windows-2019"] {
        assert!(
            selects(&world, class, "node.kubernetes.io/windows-build"),
            "no newer Windows runs its images: {class}"
        );
    }
    world.wait(2);
    assert!(world.condition(condition::READY).0.starts_with("True"));
    let (state, message) = world.condition(condition::RUNTIME_CLASSES_APPLIED);
    assert!(state == "True Done" && message.contains("by capability label: windows-2022"), "{state} {message}");
    // Another leader goes on where the last one was.
    world.restart();
    rest_while(&mut world, |world| assert!(by_label(world) && labelled(world).len() == 3));

    world.change_pool("default", EXACT);
    rest_while(&mut world, |world| assert_eq!(labelled(world).len(), 3, "it is still true"));
    world.wait(2);
    assert!(!by_label(&world));
    assert!(selects(&world, CLASS, "node.kubernetes.io/windows-build"));
}

#[test]
fn a_pool_is_not_ready_before_its_class_selects_the_label() {
    let mut world = world();
    world.pods = vec![of_class(CLASS)];
    world.pods[0].spec.node_selector.insert(LABEL.to_owned(), "true".to_owned());
    for (generation, host_match) in [(2, COMPATIBLE), (3, EXACT), (4, COMPATIBLE)] {
        // The next status is written at once.
        world.wait(2);
        world.change_pool("default", host_match);
        rest_while(&mut world, |world| {
            let is_new = world.status().observed_generation == Some(generation);
            let is_ready = is_new && world.condition(condition::READY).0.starts_with("True");
            assert!(!is_ready || by_label(world) == (host_match == COMPATIBLE), "{generation}");
        });
        world.wait(2);
        assert!(world.condition(condition::READY).0.starts_with("True"));
    }
}

#[test]
fn a_node_that_cannot_serve_the_class_does_not_count() {
    type Change = fn(&mut NodeFields);
    let cases: [(&str, Change); 2] = [
        ("it is ignored", |node| node.ignore = Some("true".into())),
        ("it reports another system", |node| node.operating_system = Some("linux".into())),
    ];
    for (fact, change) in cases {
        let mut world = world();
        world.change_node("win-1", change);
        world.change_pool("default", COMPATIBLE);
        world.wait(2);
        assert!(by_label(&world), "{fact}");
        assert_eq!(labelled(&world), ["new", "win-2"], "{fact}");
    }
    // An older pool takes a node.
    let older = pool(
        "{metadata: {name: older, creationTimestamp: '2020-01-01T00:00:00Z'}, \
                       spec: {nodeSelector: {team: a}, runtimeClassDiscovery: Disabled}}",
    );
    let mut theirs = server_2022();
    theirs["metadata"]["labels"]["team"] = "a".into();
    let mut world = World::new([older, pool(COMPATIBLE)], [("theirs", theirs), ("ours", server_2022())]);
    world.wait(2);
    assert!(by_label(&world));
    assert_eq!(labelled(&world), ["ours"]);
}

#[test]
fn a_class_selects_its_build_while_no_node_gets_the_label() {
    let ignore = |ignored: bool| move |node: &mut NodeFields| node.ignore = ignored.then(|| "true".into());
    let mut world = World::new([pool("{}")], [("win-1", server_2022())]);
    world.rest();
    world.change_node("win-1", ignore(true));
    world.change_pool("default", COMPATIBLE);
    world.wait(10);
    assert!(!by_label(&world), "its pods would find no node");
    assert!(world.problems(reason::WAITING_FOR_LABELS)[0].message.contains("1 more node"), "{:?}", world.status());
    world.change_node("win-1", ignore(false));
    world.wait(10);
    assert!(by_label(&world) && labelled(&world) == ["win-1"]);

    let mut world = World::new([pool("{}")], [("win-1", server_2022())]);
    world.rest();
    world.nodes.clear();
    world.watch();
    world.change_pool("default", COMPATIBLE);
    world.wait(10);
    assert!(by_label(&world), "there are no nodes");
}

#[test]
fn a_refused_label_holds_the_change_and_is_named_in_status() {
    let mut world = world();
    world.blocked.insert("win-1".to_owned());
    world.change_pool("default", COMPATIBLE);
    world.wait(30);
    assert!(!by_label(&world));
    assert_eq!(labelled(&world), ["new", "win-2"]);
    assert_eq!(world.condition(condition::NODES_LABELED).0, "False AdmissionDenied");
    let problems = world.problems(reason::WAITING_FOR_LABELS);
    assert!(problems[0].message.contains("1 more node"), "{problems:?}");

    world.blocked.clear();
    world.advance(Duration::from_mins(10));
    world.wait(2);
    assert!(by_label(&world));
    assert!(world.problems(reason::WAITING_FOR_LABELS).is_empty());
    assert_eq!(world.condition(condition::NODES_LABELED).0, "True Done");
}

#[test]
fn a_class_whose_pods_would_find_no_node_keeps_its_label() {
    for (is_used, is_listed) in [(true, true), (false, true), (false, false)] {
        let mut world = world();
        world.change_pool("default", COMPATIBLE);
        world.wait(2);
        for name in ["win-1", "win-2"] {
            world.change_node(name, |node| {
                node.kernel_version = Some("10.0.26100.4061".into());
                set_label(node, "node.kubernetes.io/windows-build", Some("10.0.26100"));
            });
        }
        world.wait(2);
        assert!(by_label(&world) && labelled(&world).len() == 3, "2025 runs the images");
        world.pods = is_used.then(|| of_class(CLASS)).into_iter().collect();
        world.unknown_pods = (!is_listed).then(|| UnknownPods::Denied("no permission".to_owned()));
        world.change_pool("default", EXACT);
        world.wait(5);
        let is_kept = is_used || !is_listed;
        assert_eq!(by_label(&world), is_kept);
        assert_eq!(world.problems(reason::CLASS_IN_USE).len(), usize::from(is_kept));
        if is_kept {
            world.add_node("late", &server_2025());
            world.rest();
            assert_eq!(labelled(&world).len(), 4, "a new node serves it too");
            // A node with the build of the class.
            world.add_node("back", &server_2022());
            world.wait(2);
            assert!(!by_label(&world));
        }
    }
}

#[test]
fn a_declared_class_follows_its_own_host_match() {
    let mut world = world();
    let declared = |host_match| {
        format!(
            "spec: {{runtimeClassHostMatch: Compatible, \
             runtimeClasses: [{{name: windows-2022, version: '2022', hostMatch: {host_match}}}]}}"
        )
    };
    world.change_pool("default", &declared("Exact"));
    world.wait(2);
    assert!(!by_label(&world) && labelled(&world).is_empty());
    world.change_pool("default", &declared("Compatible"));
    rest_while(&mut world, |world| assert!(!by_label(world) || labelled(world).len() == 3));
    assert!(by_label(&world));
}

#[test]
fn a_dry_run_shows_the_class_as_it_will_be() {
    let mut world = world();
    world.change_pool("default", "spec: {mode: DryRun, runtimeClassHostMatch: Compatible}");
    world.wait(2);
    let problems = world.problems(reason::WOULD_CHANGE);
    assert!(problems.iter().any(|problem| problem.object.name == CLASS), "{problems:?}");
    assert!(!by_label(&world) && labelled(&world).is_empty());
}

#[test]
fn pods_of_a_class_without_nodes_are_named() {
    let mut world = World::new([pool("{}")], [("win", server_2022())]);
    world.counted = Some(PodTable::default());
    world.rest();
    world.change_node("win", |node| {
        node.kernel_version = Some("10.0.26100.4061".into());
        node.container_runtime = Some("containerd://2.0.4".into());
        set_label(node, "node.kubernetes.io/windows-build", Some("10.0.26100"));
    });
    world.wait(65);
    assert!(world.problems(reason::CLASS_WITHOUT_NODES).is_empty(), "no pod uses it");
    let mut waiting = of_class(CLASS);
    waiting.spec.node_selector = world.classes[CLASS].scheduling.clone().unwrap().node_selector.unwrap();
    world.pods = vec![waiting];
    world.wait(30);
    let problems = world.problems(reason::CLASS_WITHOUT_NODES);
    for part in ["such as shop/web; let it select all nodes that run images of its build", "add a node that it selects"]
    {
        assert!(problems[0].message.contains(part), "{part}: {problems:?}");
    }

    // The class finds the node, and the pod keeps its selector.
    world.change_pool("default", COMPATIBLE);
    world.wait(15);
    assert!(by_label(&world) && world.problems(reason::CLASS_WITHOUT_NODES).is_empty());
    let problems = world.problems(reason::PODS_CREATED_TOO_EARLY);
    assert!(problems[0].message.contains("Delete these pods"), "{problems:?}");
    world.pods.clear();
    world.wait(15);
    assert!(world.problems(reason::PODS_CREATED_TOO_EARLY).is_empty());
}
