//! Pods: bound ones, terminating ones, strays, and those that no template stands for.

use serde_json::{Value, json};

use super::scene::{Object, Scene, TOLERATES, WINDOWS, minute, owned_by, pod, running, workload};
use crate::common::yaml;

/// `first` merged with `second`.
fn both(first: &str, second: &str) -> String {
    let mut value: Value = yaml(first);
    json_patch::merge(&mut value, &yaml(second));
    value.to_string()
}

#[test]
fn an_unfinished_pod_on_a_candidate_counts_unless_it_tolerates_the_taint() {
    let web: &[(&str, usize)] = &[("Pod shop/web", 1)];
    for (fact, spec, changes, expected) in [
        ("it says nothing and runs", "", "{}", web),
        ("it says Windows", WINDOWS, "{}", web),
        ("it tolerates the taint", TOLERATES, "{}", &[]),
        ("it tolerates everything", "tolerations: [{operator: Exists}]", "{}", &[]),
        ("it tolerates another effect", "tolerations: [{key: os, operator: Exists, effect: NoExecute}]", "{}", web),
        ("it has finished", "", "status: {phase: Succeeded}", &[]),
        ("it has failed", "", "status: {phase: Failed}", &[]),
        ("it is a mirror pod", "", "metadata: {annotations: {kubernetes.io/config.mirror: x}}", &[]),
        ("it is ignored", "", "metadata: {annotations: {winpool.dev/ignore: 'true'}}", &[]),
        ("the annotation has another value", "", "metadata: {annotations: {winpool.dev/ignore: 'yes'}}", web),
        ("it runs on another system", "nodeName: lin", "{}", &[]),
    ] {
        Scene::default().holds(fact, &[running("web", spec, changes)], expected);
    }
}

#[test]
fn a_linux_pod_that_cannot_start_does_not_count() {
    let recent = format!("metadata: {{creationTimestamp: '{}'}}", minute(-9));
    let no_variant = |message: &str| {
        json!({"status": {"containerStatuses": [{"name": "c", "image": "i", "imageID": "", "ready": false, "restartCount": 0,
            "state": {"waiting": {"reason": "ErrImagePull", "message": message}}}]}})
        .to_string()
    };
    let (manifest, matching) = (
        no_variant("no match for platform in manifest: not found"),
        no_variant("no matching manifest for windows/amd64"),
    );
    let linux_field = "containers: [{name: c, securityContext: {runAsUser: 1000}}]";
    let web: &[(&str, usize)] = &[("Pod shop/web", 1)];
    for (fact, spec, changes, expected) in [
        ("it waits for nine minutes", "", recent.clone(), web),
        ("it waits for an hour", "", "{}".to_owned(), &[]),
        ("its image has no variant", "", both(&recent, &manifest), &[]),
        ("its image has no variant, in other words", "", both(&recent, &matching), &[]),
        ("another error", "", both(&recent, &no_variant("unauthorized")), web),
        ("it uses a field that Windows refuses", linux_field, recent.clone(), &[]),
        ("it is on the host's network", "hostNetwork: true", recent.clone(), &[]),
        ("it says Linux", "os: {name: linux}", recent.clone(), &[]),
        ("it selects Linux", "nodeSelector: {kubernetes.io/os: linux}", recent.clone(), &[]),
        ("it says Windows and has no variant", WINDOWS, both(&recent, &manifest), web),
        ("it says Windows and waits for an hour", WINDOWS, "{}".to_owned(), web),
        ("windowsOptions", "securityContext: {windowsOptions: {}}", "{}".to_owned(), web),
        ("a selector", "nodeSelector: {kubernetes.io/os: windows}", "{}".to_owned(), web),
        ("a capability label", "nodeSelector: {runtimeclass.winpool.dev/any: 'true'}", "{}".to_owned(), web),
        ("a selector that only Windows nodes match", "nodeSelector: {team: a}", "{}".to_owned(), web),
        ("a selector that Linux nodes match too", "nodeSelector: {team: shared}", "{}".to_owned(), &[]),
    ] {
        let Object::Pod(mut object) = pod("web", spec, &changes) else { panic!("{fact}") };
        object.spec.node = Some("win".to_owned());
        Scene::default().holds(fact, &[Object::Pod(object)], expected);
    }
}

#[test]
fn a_pod_that_waits_counts_if_another_one_of_its_workload_has_started_on_windows() {
    let waits = pod("web-1", "nodeName: win", &owned_by("Rollout", "web"));
    let started = |node: &str| running("web-2", &format!("{TOLERATES}, nodeName: {node}"), &owned_by("Rollout", "web"));
    let old = both(&owned_by("Rollout", "web"), &format!("metadata: {{creationTimestamp: '{}'}}", minute(-90)));
    let started_before = running("web-0", TOLERATES, &old);
    let scene = Scene::default();
    scene.holds("no other pod", std::slice::from_ref(&waits), &[]);
    scene.holds("an older one runs there", &[started_before, waits.clone()], &[("Rollout shop/web", 1)]);
    scene.holds("one runs on another system", &[waits, started("lin")], &[]);
}

#[test]
fn a_terminating_pod_counts_only_where_no_template_tells_what_replaces_it() {
    let deleted =
        |minutes: i64, owner: &str| both(owner, &format!("metadata: {{deletionTimestamp: '{}'}}", minute(minutes)));
    let updating = workload("StatefulSet", "db", TOLERATES, "status: {currentRevision: a, updateRevision: b}");
    let (rollout, stateful_set) = (owned_by("GameServer", "web"), owned_by("StatefulSet", "db"));
    let forbidden = || Scene { unlisted: vec!["statefulsets"], ..Scene::default() };
    let game: &[(&str, usize)] = &[("GameServer shop/web", 1)];
    let db: &[(&str, usize)] = &[("StatefulSet shop/db", 1)];
    for (fact, scene, owner, minutes, expected) in [
        ("a kind that is not listed", Scene::default(), &rollout, 1, game),
        ("nine minutes after its grace period", Scene::default(), &rollout, -9, game),
        ("ten minutes after its grace period", Scene::default(), &rollout, -10, &[]),
        ("a kind that is listed", Scene::default(), &owned_by("ReplicaSet", "web"), 1, &[]),
        ("a kind that may not be listed", forbidden(), &stateful_set, 1, db),
        ("nothing makes it again", Scene::default(), &"{}".to_owned(), 1, &[]),
    ] {
        scene.holds(fact, &[running("web", WINDOWS, &deleted(minutes, owner))], expected);
    }
    let terminating = running("db-0", WINDOWS, &deleted(1, &stateful_set));
    Scene::default().holds("a StatefulSet with two revisions", &[updating, terminating.clone()], db);
    let steady = workload("StatefulSet", "db", TOLERATES, "status: {currentRevision: a, updateRevision: a}");
    Scene::default().holds("a StatefulSet with one", &[steady, terminating], &[]);
}

#[test]
fn a_pod_elsewhere_that_says_windows_counts_only_if_it_would_fit_no_windows_node() {
    let scene = |nodes| Scene { nodes, ..Scene::default() };
    let waiting: &[(&str, usize)] = &[("Pod shop/web", 1)];
    let tainted: &[&str] = &["os=windows:NoSchedule"];
    for (fact, nodes, spec, expected) in [
        ("it is not bound and fits the candidate only", vec![], WINDOWS.to_owned(), waiting),
        ("it says nothing", vec![], String::new(), &[]),
        ("it tolerates the taint", vec![], format!("{WINDOWS}, {TOLERATES}"), &[]),
        ("it fits another node", vec![("win-2", "{}", &[][..])], WINDOWS.to_owned(), &[]),
        ("the other node has the taint already", vec![("win-2", "{}", tainted)], WINDOWS.to_owned(), waiting),
        (
            "it selects another node",
            vec![("win-2", "{team: b}", &[])],
            format!("{WINDOWS}, nodeSelector: {{team: b}}"),
            &[],
        ),
        (
            "it selects the candidate",
            vec![("win-2", "{team: b}", &[])],
            format!("{WINDOWS}, nodeSelector: {{team: a}}"),
            waiting,
        ),
        (
            "it is on a node that it would not fit again",
            vec![("win-2", "{}", tainted)],
            format!("{WINDOWS}, nodeName: win-2"),
            waiting,
        ),
        ("it is on a node that it fits", vec![("win-2", "{}", &[])], format!("{WINDOWS}, nodeName: win-2"), &[]),
        (
            "its class tolerates the taint, which is too late for it",
            vec![],
            "runtimeClassName: own, nodeSelector: {kubernetes.io/os: windows}".to_owned(),
            waiting,
        ),
    ] {
        let own = "{metadata: {name: own}, handler: h, scheduling: {tolerations: [{operator: Exists}]}}";
        let scene = Scene { classes: vec![own], ..scene(nodes) };
        scene.holds(fact, &[pod("web", &spec, "{}")], expected);
    }
}

#[test]
fn the_newest_pod_decides_for_all_of_a_workload() {
    let at = |minutes| {
        both(&owned_by("ReplicaSet", "web"), &format!("metadata: {{creationTimestamp: '{}'}}", minute(minutes)))
    };
    let template = |spec: &str| workload("ReplicaSet", "web", spec, "{}");
    let tolerant = format!("{WINDOWS}, {TOLERATES}");
    let web: &[(&str, usize)] = &[("ReplicaSet shop/web", 1)];
    for (fact, spec, pods, expected) in [
        ("nothing but a template", WINDOWS, vec![], &[("ReplicaSet shop/web", 0)][..]),
        ("an admission policy gives a toleration", WINDOWS, vec![running("web-1", &tolerant, &at(-5))], &[]),
        ("the newest one does not tolerate it", &tolerant, vec![running("web-1", WINDOWS, &at(-5))], web),
        (
            "old pods are about to be replaced",
            &tolerant,
            vec![running("web-2", &tolerant, &at(-5)), running("web-1", WINDOWS, &at(-50))],
            &[],
        ),
        ("a rollback", WINDOWS, vec![running("web-1", &tolerant, &at(-50)), running("web-2", WINDOWS, &at(-5))], web),
    ] {
        let objects: Vec<Object> = [template(spec)].into_iter().chain(pods).collect();
        Scene::default().holds(fact, &objects, expected);
    }
    let set = workload("StatefulSet", "db", &tolerant, "status: {currentRevision: a, updateRevision: b}");
    let of_set = |name: &str, spec: &str, minutes: i64| {
        running(
            name,
            spec,
            &both(&owned_by("StatefulSet", "db"), &format!("metadata: {{creationTimestamp: '{}'}}", minute(minutes))),
        )
    };
    let pods = [set, of_set("db-0", WINDOWS, -50), of_set("db-1", &tolerant, -5)];
    Scene::default().holds("each pod of a StatefulSet with two revisions", &pods, &[("StatefulSet shop/db", 1)]);
}
