//! RuntimeClasses: back-off, recreation, and which of them winpool deletes.

use std::{cell::Cell, time::Duration};

use serde_json::json;
use winpool_core::{
    api::names::reason,
    plan::reconcile::Refusal,
    pod::{Pod, PodProgress},
};

use super::cluster::{World, denied, failed, of_class, pool};

const OWN: &str = "spec: {runtimeClassDiscovery: Disabled, runtimeClasses: [{name: own, version: '2022'}]}";

fn owning(handler: &str) -> String {
    format!(
        "spec: {{runtimeClassDiscovery: Disabled, runtimeClasses: [{{name: own, version: '2022', handler: {handler}}}]}}"
    )
}

#[test]
fn three_restorations_of_one_target_back_off_and_changes_of_the_target_do_not() {
    let mut world = World::checked("{}");
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

    let mut world = World::checked("{}");
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

#[test]
fn a_class_gets_another_handler_only_if_it_may_be_created_and_no_pod_uses_it() {
    let verbs = ["FindUsers", "TryCreate", "Delete", "Create"].map(|verb| format!("{verb} own"));
    for (fact, used, refusal, expected) in [
        ("nobody uses it", false, None, &verbs[..]),
        ("a pod uses it", true, None, &verbs[..1]),
        ("the new one would be refused", false, Some(denied()), &verbs[..2]),
        ("nobody knows whether it would be", false, Some(failed()), &verbs[..2]),
    ] {
        let mut world = World::checked(&owning("old"));
        world.pods = Ok(if used { vec![of_class("own")] } else { vec![] });
        world.advance(Duration::from_mins(2));
        world.rest();
        world.take_sent(&[]);
        world.refuse = Box::new(move |line| line.starts_with("TryCreate").then(|| refusal.clone()).flatten());
        world.change_pool("default", &owning("new"));
        world.rest();
        let sent = world.take_sent(&["FindUsers", "TryCreate", "Delete", "Create", "Patch"]);
        assert_eq!(sent, expected, "{fact}");
        assert_eq!(world.classes["own"].handler, if expected.len() == 4 { "new" } else { "old" }, "{fact}");
    }
}

#[test]
fn a_class_is_deleted_only_after_a_try_with_the_handler_that_it_is_to_get() {
    let mut world = World::checked(&owning("old"));
    world.advance(Duration::from_mins(2));
    world.refuse("Delete", failed());
    world.change_pool("default", &owning("new"));
    world.rest();
    assert_eq!(world.take_sent(&["TryCreate", "Delete"]), ["TryCreate own", "Delete own"]);
    world.refuse("TryCreate", denied());
    world.change_pool("default", &owning("other"));
    world.wait(20);
    assert_eq!(world.classes["own"].handler, "old");
}

#[test]
fn a_refused_class_is_not_sent_again_each_time_that_another_writer_changes_it() {
    let mut world = World::checked("{}");
    world.refuse("Patch", denied());
    for round in 0..20 {
        world.change_class("windows-2022", &format!("scheduling: {{tolerations: [{{key: other-{round}}}]}}"));
        world.rest();
    }
    assert_eq!(world.take_sent(&["Patch"]).len(), 1);
}

#[test]
fn a_class_to_which_another_writer_gives_the_label_of_a_pool_again_and_again_is_released_with_pauses() {
    let mut world = World::checked("spec: {runtimeClassDiscovery: Disabled}");
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
    let mut world = World::checked(OWN);
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
    assert!(world.classes.is_empty(), "{:?}", world.problems(reason::CLASS_NOT_RECORDED));
}

#[test]
fn a_recreated_class_is_recorded_with_its_new_uid() {
    let mut world = World::checked(&owning("old"));
    world.change_pool("default", &owning("new"));
    world.wait(3);
    let recorded = world.status().runtime_classes[0].uid.clone();
    assert_eq!(recorded, world.classes["own"].metadata.uid);
}

#[test]
fn only_a_recorded_class_is_deleted_once_the_pool_does_not_want_it() {
    let mut world = World::checked(OWN);
    world.wait(2);
    world.class(
        "{metadata: {name: copy, labels: {winpool.dev/pool: default, app.kubernetes.io/managed-by: winpool}}, handler: h}",
    );
    world.change_pool("default", "spec: {runtimeClasses: null}");
    world.rest();
    world.wait(3);
    assert_eq!(world.classes.keys().collect::<Vec<_>>(), ["copy"]);
    let [problem] = world.problems(reason::CLASS_NOT_RECORDED).try_into().unwrap_or_else(|all| panic!("{all:?}"));
    assert_eq!(problem.object.to_string(), "RuntimeClass copy");
    assert!(world.status().runtime_classes.is_empty());
    world.take_sent(&[]);
    world.wait(100);
    assert_eq!(world.take_sent(&["Delete", "Patch"]), [""; 0]);
}

#[test]
fn a_class_stays_in_status_until_it_is_deleted_even_after_a_restart() {
    let mut world = World::checked(OWN);
    world.wait(2);
    world.refuse("Delete own", failed());
    world.change_pool("default", "spec: {runtimeClasses: null}");
    world.rest();
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
fn a_class_that_is_used_is_released_when_the_pool_does_not_want_it() {
    let mut world = World::checked(OWN);
    world.pods = Ok(vec![of_class("own")]);
    world.advance(Duration::from_mins(2));
    world.change_pool("default", "spec: {runtimeClasses: null}");
    world.rest();
    assert!(world.is_released("own"));
}

#[test]
fn a_write_that_conflicts_is_sent_again_after_a_read_and_pauses_in_the_end() {
    for (conflicts, expected) in [
        (1, &["Patch", "Read", "Patch"][..]),
        (9, &["Patch", "Read", "Patch", "Read", "Patch", "Read", "Patch", "Read", "Patch"]),
    ] {
        let mut world = World::checked("{}");
        world.change_class("windows-2022", "scheduling: {tolerations: null}");
        world.take_sent(&[]);
        let left: Cell<u32> = Cell::new(conflicts);
        world.refuse = Box::new(move |line| {
            let conflicts = line.starts_with("Patch") && left.replace(left.get().saturating_sub(1)) > 0;
            conflicts.then_some(Refusal::Conflict)
        });
        world.rest();
        let sent = world.take_sent(&["Patch", "Read"]);
        assert_eq!(sent.iter().map(|line| line.split(' ').next().unwrap()).collect::<Vec<_>>(), expected);
    }
}

#[test]
fn a_class_that_another_writer_changes_is_restored_after_writes_that_failed() {
    let mut world = World::checked("{}");
    world.refuse("Patch", failed());
    world.change_class("windows-2022", "scheduling: {tolerations: null}");
    world.rest();
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
        world.check();
        world.wait(2);
        assert_eq!(world.status().runtime_classes[0].uid.as_deref(), recorded, "{manager}");
        world.delete();
        world.wait(5);
        assert_eq!((world.pools.len(), world.classes.contains_key("own")), (0, recorded.is_none()), "{manager}");
    }
}

#[test]
fn users_are_counted_again_before_a_delete_that_had_to_wait() {
    for (verb, spec) in
        [("TryCreate", owning("new")), ("Delete", owning("new")), ("Delete", "spec: {runtimeClasses: null}".to_owned())]
    {
        let mut world = World::checked(&owning("old"));
        world.advance(Duration::from_mins(2));
        world.refuse(verb, failed());
        world.change_pool("default", &spec);
        world.rest();
        world.wait(3);
        world.pods = Ok(vec![of_class("own")]);
        world.accept_all();
        world.wait(20);
        assert_eq!(world.classes["own"].handler, "old", "{verb} {spec}");
    }
}

#[test]
fn pods_that_were_created_before_their_class_tolerated_the_taints_are_named_until_they_are_gone() {
    let mut world = World::checked("{}");
    let early = Pod { progress: PodProgress::Waiting, ..of_class("windows-2022") };
    world.pods = Ok(vec![early]);
    world.advance(Duration::from_mins(2));
    world.change_class("windows-2022", "scheduling: {tolerations: null}");
    world.rest();
    world.wait(2);
    let [problem] = world.problems(reason::PODS_CREATED_TOO_EARLY).try_into().unwrap_or_else(|all| panic!("{all:?}"));
    assert!(problem.message.contains("Pod shop/web (1)"), "{}", problem.message);
    world.pods = Ok(vec![]);
    world.wait(62);
    assert!(world.problems(reason::PODS_CREATED_TOO_EARLY).is_empty());
}

#[test]
fn a_class_keeps_the_tolerations_of_former_taints_while_patches_of_nodes_may_be_under_way() {
    let own = "taintPolicy: Always, runtimeClassDiscovery: Disabled, runtimeClasses: [{name: own, version: '2022'}]";
    let mut world = World::new([pool(&format!("spec: {{{own}, nodeSelector: {{team: none}}}}"))], []);
    world.rest();
    world.change_pool("default", "spec: {taints: [{key: dedicated, value: windows, effect: NoSchedule}]}");
    world.rest();
    let tolerates_os = |world: &World| {
        let scheduling = world.classes["own"].scheduling.clone().unwrap_or_default();
        scheduling.tolerations.into_iter().flatten().any(|toleration| toleration.key.as_deref() == Some("os"))
    };
    assert!(tolerates_os(&world));
    world.wait(6);
    assert!(!tolerates_os(&world));
}
