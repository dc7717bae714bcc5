//! RuntimeClasses: back-off, other handlers, and which of them winpool deletes.

use std::cell::Cell;
use std::time::Duration;

use serde_json::json;
use winpool_core::api::names::reason;
use winpool_core::plan::attempt::RequestError;
use winpool_core::plan::pods::PodTable;
use winpool_core::pod::{Pod, PodProgress};

use super::cluster::{World, denied, failed, of_class, pool};

const OWN: &str = "spec: {runtimeClassDiscovery: Disabled, runtimeClasses: [{name: own, version: '2022'}]}";

fn owning(handler: &str) -> String {
    format!(
        "spec: {{runtimeClassDiscovery: Disabled, runtimeClasses: [{{name: own, version: '2022', handler: {handler}}}]}}"
    )
}

#[test]
fn three_restorations_of_one_target_back_off_and_changes_of_the_target_do_not() {
    let mut world = World::at_rest("{}");
    for round in 1..=4 {
        // The other writer puts another value there each time.
        world.change_class(
            "windows-2022",
            &format!("scheduling: {{nodeSelector: {{kubernetes.io/arch: 'other-{round}'}}}}"),
        );
        world.take_sent(&[]);
        world.rest();
        let restored = world.take_sent(&["Patch"]).len();
        assert_eq!(restored, usize::from(round <= 2), "round {round}: it was created first");
        world.wait(3);
    }
    assert_eq!(world.problems(reason::CONTESTED).len(), 1);

    let mut world = World::at_rest("{}");
    for key in ["a", "b", "c", "d", "e"] {
        world.change_pool(
            "default",
            &format!("spec: {{runtimeClasses: [{{name: own, version: '2022', nodeSelector: {{team: {key}}}}}]}}"),
        );
        world.take_sent(&[]);
        world.rest();
        assert_eq!(world.take_sent(&["Create", "Patch"]).len(), 1, "{key}");
    }
    assert!(world.problems(reason::CONTESTED).is_empty());
}

/// The writes of winpool in 45 seconds in which another writer gives the class these values in turn. `None` deletes it:
/// status says whether a class exists, so its writes do not count then.
fn cost(spec: &str, values: [Option<&str>; 2]) -> usize {
    let mut world = World::at_rest(spec);
    world.wait(2);
    let kept = world.classes.get("windows-2022").cloned();
    world.take_sent(&[]);
    for round in 0..45 {
        match (values[round % 2], &kept) {
            (None, _) => drop(world.classes.remove("windows-2022")),
            (Some(value), Some(class)) => {
                world.classes.entry("windows-2022".to_owned()).or_insert_with(|| class.clone());
                world.change_class("windows-2022", value);
            }
            (Some(value), None) => {
                world.class("{metadata: {name: windows-2022}, handler: other}");
                world.change_class("windows-2022", value);
            }
        }
        world.wait(1);
    }
    let counted = if values.contains(&None) { 3 } else { 4 };
    world.take_sent(&["Create", "Patch", "Delete", "WriteStatus"][..counted]).len()
}

#[test]
fn a_writer_that_alternates_values_costs_no_more_than_one_that_repeats_one() {
    const RIGHT: Option<&str> = Some("scheduling: {nodeSelector: {node.kubernetes.io/windows-build: 10.0.20348}}");
    let wrong = Some("scheduling: {nodeSelector: {node.kubernetes.io/windows-build: 10.0.17763}}");
    let tolerations =
        ["null", "[{key: a, operator: Exists}]"].map(|list| format!("scheduling: {{tolerations: {list}}}"));
    let labels = ["other", "null", "default"].map(|pool| format!("metadata: {{labels: {{winpool.dev/pool: {pool}}}}}"));
    let [intolerant, tolerant] = tolerations.each_ref().map(|text| Some(text.as_str()));
    let [other, unlabelled, labelled] = labels.each_ref().map(|text| Some(text.as_str()));
    for (fact, spec, values) in [
        ("a wrong and the right selector", "{}", [wrong, RIGHT]),
        ("tolerations", "{}", [intolerant, tolerant]),
        ("a selector and tolerations", "{}", [wrong, intolerant]),
        ("labels", "{}", [other, unlabelled]),
        ("a wrong and the right label", "{}", [labelled, other]),
        ("nothing and a wrong selector", "{}", [None, wrong]),
        ("nothing and the right selector", "{}", [None, RIGHT]),
        ("nothing and a label that no pool wants there", "spec: {nodeSelector: {team: a}}", [None, labelled]),
    ] {
        let repeated = values.map(|value| cost(spec, [value; 2])).into_iter().max().unwrap();
        let alternated = cost(spec, values);
        assert!(alternated <= repeated && repeated < 15, "{fact}: {alternated} instead of {repeated}");
    }
}

#[test]
fn a_contested_class_is_up_to_date_ten_seconds_after_its_last_change_or_at_once_for_another_spec() {
    for (changes_spec, seconds) in [(false, 12), (true, 1)] {
        let mut world = World::at_rest("{}");
        for _ in 0..4 {
            world.change_class("windows-2022", "scheduling: {nodeSelector: {kubernetes.io/arch: other}}");
            world.wait(3);
        }
        assert_eq!(world.problems(reason::CONTESTED).len(), 1);
        if changes_spec {
            world.change_pool("default", "spec: {deletionPolicy: Retain}");
        } else {
            world.change_class("windows-2022", "scheduling: {nodeSelector: {kubernetes.io/arch: amd64}}");
            world.wait(2);
            assert_eq!(world.problems(reason::CONTESTED).len(), 1, "it may change again");
        }
        world.take_sent(&[]);
        world.wait(seconds);
        assert_eq!(world.take_sent(&["Patch"]).len(), usize::from(changes_spec));
        assert!(world.problems(reason::CONTESTED).is_empty());
    }
}

#[test]
fn a_class_gets_another_handler_when_its_user_deletes_it() {
    let mut world = World::at_rest(&owning("old"));
    world.wait(2);
    world.take_sent(&[]);
    world.change_pool("default", &owning("new"));
    world.wait(90);
    assert_eq!(world.take_sent(&["Delete", "Create", "Patch"]), [""; 0]);
    let [problem] = world.problems(reason::CLASS_CONFLICT).try_into().unwrap_or_else(|all| panic!("{all:?}"));
    assert!(problem.message.contains("kubectl delete runtimeclass own"), "{}", problem.message);
    assert_eq!(world.status().runtime_classes[0].handler, "old");
    world.classes.remove("own");
    world.wait(3);
    assert_eq!(world.take_sent(&["Create", "Delete"]), ["Create own"]);
    let recorded = &world.status().runtime_classes[0];
    assert_eq!((recorded.handler.as_str(), &recorded.uid), ("new", &world.classes["own"].metadata.uid));
    assert!(world.problems(reason::CLASS_CONFLICT).is_empty());
}

#[test]
fn a_class_that_is_deleted_before_the_cache_showed_it_is_created_again() {
    let mut world = World::with(OWN);
    while world.take_sent(&["Create"]).is_empty() {
        world.step("default");
    }
    world.classes.remove("own");
    world.wait(6);
    assert_eq!(world.take_sent(&["Create"]), ["Create own"]);
    world.wait(60);
    assert_eq!(world.take_sent(&["Create"]), [""; 0]);
}

#[test]
fn a_class_with_another_handler_gets_the_toleration_before_its_nodes_get_the_taint() {
    let spec = |handler: &str, key: &str| {
        format!(
            "spec: {{taintPolicy: TaintOnly, taints: [{{key: {key}, effect: NoSchedule}}], runtimeClassDiscovery: Disabled, \
             runtimeClasses: [{{name: own, version: '2022', handler: {handler}}}]}}"
        )
    };
    let mut world = World::at_rest(&spec("old", "first"));
    world.wait(10);
    world.change_pool("default", &spec("new", "second"));
    world.wait(4);
    assert_eq!(world.taints("win"), ["first:NoSchedule"], "API servers may not know the toleration yet");
    world.wait(4);
    assert_eq!(world.taints("win"), ["second:NoSchedule"]);
    assert_eq!(world.classes["own"].handler, "old");
}

#[test]
fn a_refused_class_is_not_sent_again_each_time_that_another_writer_changes_it() {
    let mut world = World::at_rest("{}");
    world.refuse("Patch", denied());
    for round in 0..20 {
        world.change_class("windows-2022", &format!("scheduling: {{tolerations: [{{key: other-{round}}}]}}"));
        world.rest();
    }
    assert_eq!(world.take_sent(&["Patch"]).len(), 1);
}

#[test]
fn a_class_to_which_another_writer_gives_the_label_of_a_pool_again_and_again_is_released_with_pauses() {
    let mut world = World::at_rest("spec: {runtimeClassDiscovery: Disabled}");
    for _ in 0..20 {
        world.class("{metadata: {name: foreign, labels: {winpool.dev/pool: default}}, handler: h}");
        world.rest();
    }
    assert_eq!(world.take_sent(&["Patch"]).len(), 3);
    world.wait(2);
    assert_eq!(world.problems(reason::CONTESTED).len(), 1);
}

#[test]
fn a_class_that_the_former_leader_recorded_last_is_deleted_too() {
    let mut world = World::at_rest(OWN);
    world.wait(2);
    let recorded = json!(world.status());
    // The cache of the new leader begins with an older status.
    world.change_pool("default", "status: {runtimeClasses: null}");
    world.restart();
    world.refuse("ReadPool", failed());
    world.step("default");
    world.change_pool("default", &json!({"spec": {"runtimeClasses": null}, "status": recorded}).to_string());
    world.change_pool("default", "spec: {runtimeClasses: null}");
    world.accept_all();
    world.wait(5);
    assert!(world.classes.is_empty(), "{:?}", world.classes.keys());
}

#[test]
fn only_a_recorded_class_is_deleted_once_the_pool_does_not_want_it() {
    let mut world = World::at_rest(OWN);
    world.wait(2);
    world.class(
        "{metadata: {name: copy, labels: {winpool.dev/pool: default, app.kubernetes.io/managed-by: winpool}}, handler: h}",
    );
    world.change_pool("default", "spec: {runtimeClasses: null}");
    world.wait(3);
    assert_eq!(world.classes.keys().collect::<Vec<_>>(), ["copy"]);
    assert!(world.is_released("copy") && world.status().runtime_classes.is_empty());
    world.take_sent(&[]);
    world.wait(100);
    assert_eq!(world.take_sent(&["Delete", "Patch"]), [""; 0]);
    world.delete();
    world.wait(5);
    assert!(world.pools.is_empty() && world.is_released("copy"));
}

#[test]
fn a_class_stays_in_status_until_it_is_deleted_even_after_a_restart() {
    let mut world = World::at_rest(OWN);
    world.wait(2);
    world.refuse("Delete own", failed());
    world.change_pool("default", "spec: {runtimeClasses: null}");
    world.wait(2);
    assert_eq!(world.status().runtime_classes.len(), 1);
    assert_eq!(world.problems(reason::WRITE_FAILED).len(), 1);
    world.restart();
    world.rest();
    world.accept_all();
    world.wait(60);
    assert!(world.classes.is_empty() && world.status().runtime_classes.is_empty());
}

#[test]
fn a_write_that_conflicts_is_sent_again_and_is_a_problem_in_the_end() {
    for (conflicts, patches, problems) in [(1, 2, 0), (9, 5, 1)] {
        let mut world = World::at_rest("{}");
        world.change_class("windows-2022", "scheduling: {tolerations: null}");
        world.take_sent(&[]);
        let left: Cell<u32> = Cell::new(conflicts);
        world.refuse = Box::new(move |line| {
            let conflicts = line.starts_with("Patch") && left.replace(left.get().saturating_sub(1)) > 0;
            conflicts.then_some(RequestError::Conflict)
        });
        world.wait(5);
        assert_eq!(world.take_sent(&["Patch"]).len(), patches, "{conflicts}");
        assert_eq!(world.problems(reason::WRITE_FAILED).len(), problems, "{conflicts}");
    }
}

#[test]
fn a_class_that_another_writer_changes_is_restored_after_writes_that_failed() {
    let mut world = World::at_rest("{}");
    world.refuse("Patch", failed());
    world.change_class("windows-2022", "scheduling: {tolerations: null}");
    world.wait(2);
    assert_eq!(world.problems(reason::WRITE_FAILED).len(), 1);
    world.accept_all();
    world.wait(60);
    let scheduling = world.classes["windows-2022"].scheduling.as_ref().unwrap();
    assert_eq!(scheduling.tolerations.as_ref().map(Vec::len), Some(1));
}

#[test]
fn a_wanted_class_with_winpools_labels_is_recorded_and_deleted_with_the_pool() {
    let of = |manager: &str| {
        format!(
            "{{metadata: {{name: own, labels: {{winpool.dev/pool: default, app.kubernetes.io/managed-by: {manager}}}}}, \
              handler: runhcs-wcow-process}}"
        )
    };
    // winpool ended before it could record what it had created.
    for (manager, recorded) in [("winpool", Some("class-uid")), ("me", None)] {
        let mut world = World::with(OWN);
        world.class(&of(manager));
        world.wait(2);
        assert_eq!(world.status().runtime_classes[0].uid.as_deref(), recorded, "{manager}");
        world.delete();
        world.wait(5);
        assert_eq!((world.pools.len(), world.classes.contains_key("own")), (0, recorded.is_none()), "{manager}");
    }
}

#[test]
fn an_unwanted_class_that_pods_use_is_released_also_if_they_came_while_its_delete_had_to_wait() {
    for is_used_before in [true, false] {
        let mut world = World::at_rest(OWN);
        world.advance(Duration::from_mins(2));
        world.refuse("Delete", failed());
        world.pods = is_used_before.then(|| of_class("own")).into_iter().collect();
        world.change_pool("default", "spec: {runtimeClasses: null}");
        world.wait(3);
        assert_eq!(world.is_released("own"), is_used_before);
        world.pods = vec![of_class("own")];
        world.accept_all();
        world.wait(20);
        assert!(world.is_released("own"));
    }
}

#[test]
fn pods_that_were_created_before_their_class_tolerated_the_taints_are_named_until_they_are_gone() {
    let mut world = World::at_rest("{}");
    world.counted = Some(PodTable::default());
    let early = Pod { progress: PodProgress::Waiting, ..of_class("windows-2022") };
    world.pods = vec![early];
    world.advance(Duration::from_mins(2));
    world.change_class("windows-2022", "scheduling: {tolerations: null}");
    world.wait(12);
    let [problem] = world.problems(reason::PODS_CREATED_TOO_EARLY).try_into().unwrap_or_else(|all| panic!("{all:?}"));
    assert!(problem.message.contains("Pod shop/web (1)"), "{}", problem.message);
    world.pods.clear();
    world.wait(12);
    assert!(world.problems(reason::PODS_CREATED_TOO_EARLY).is_empty());
}

#[test]
fn a_class_keeps_the_tolerations_of_former_taints_while_patches_of_nodes_may_be_under_way() {
    let own = "taintPolicy: TaintOnly, runtimeClassDiscovery: Disabled, runtimeClasses: [{name: own, version: '2022'}]";
    let mut world = World::new([pool(&format!("spec: {{{own}, nodeSelector: {{team: none}}}}"))], []);
    world.rest();
    world.change_pool("default", "spec: {taints: [{key: example.com/os, value: windows, effect: NoSchedule}]}");
    world.rest();
    let tolerates_os = |world: &World| {
        let scheduling = world.classes["own"].scheduling.clone().unwrap_or_default();
        scheduling.tolerations.into_iter().flatten().any(|toleration| toleration.key.as_deref() == Some("os"))
    };
    assert!(tolerates_os(&world));
    world.wait(6);
    assert!(!tolerates_os(&world));
}
