//! Pods: bound ones, terminating ones, strays, and those that no template stands for.

use serde_json::{Value, json};

use super::scene::{Object, Scene, TOLERATES, WINDOWS, minute, owned_by, owned_by_group, pod, running, workload};
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
        ("windowsOptions", "securityContext: {windowsOptions: {runAsUserName: a}}", "{}".to_owned(), web),
        ("a selector", "nodeSelector: {kubernetes.io/os: windows}", "{}".to_owned(), web),
        ("a capability label", "nodeSelector: {runs.winpool.dev/10.0.20348: 'true'}", "{}".to_owned(), web),
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

/// Changes: the numbers of pods that a rollout has, wants and has updated.
fn rollout(replicas: i64, wanted: i64, updated: i64) -> String {
    format!("{{spec: {{replicas: {wanted}}}, status: {{replicas: {replicas}, updatedReplicas: {updated}}}}}")
}

#[test]
fn what_makes_the_next_pod_decides() {
    let tolerant = &*format!("{WINDOWS}, {TOLERATES}");
    let (old, new) = (WINDOWS, tolerant);
    let finished = &*rollout(2, 2, 2);
    for (fact, kind, template, changes, pods, expected) in [
        ("no pod", "Deployment", old, finished, vec![], Some(0)),
        ("a webhook adds the toleration", "Deployment", old, finished, vec![new, new], None),
        ("one pod was there before the webhook", "Deployment", old, finished, vec![new, old], Some(2)),
        ("pods that are older than the toleration", "Deployment", new, finished, vec![old, old], None),
        ("a stuck rollout", "Deployment", new, &rollout(3, 2, 1), vec![old, old, new], Some(2)),
        ("a stuck rollout of one", "Deployment", new, &rollout(2, 1, 1), vec![old, new], Some(1)),
        ("a paused canary", "Deployment", new, &rollout(5, 5, 1), vec![old, old, old, old, new], Some(4)),
        ("a rollout that a quota blocks", "Deployment", old, &rollout(1, 2, 0), vec![new], Some(0)),
        ("a paused Deployment", "Deployment", old, &rollout(2, 2, 0), vec![new, new], Some(0)),
        ("a template that nobody has read", "Deployment", new, "{metadata: {generation: 2}}", vec![old], Some(1)),
        (
            "a StatefulSet with two revisions",
            "StatefulSet",
            new,
            "{status: {currentRevision: a, updateRevision: b}}",
            vec![old, new],
            Some(1),
        ),
        ("a StatefulSet with one", "StatefulSet", new, "{}", vec![old, new], None),
        ("it lost its toleration", "ReplicationController", old, "{}", vec![new], Some(0)),
        ("it lost its toleration", "ReplicaSet", old, "{}", vec![new, new], Some(0)),
        ("it got the toleration", "ReplicaSet", new, "{}", vec![old], None),
        ("it says nothing and lost its toleration", "ReplicationController", "", "{}", vec![TOLERATES], Some(1)),
    ] {
        let owner = owned_by(kind, "web");
        let of = if kind == "Deployment" {
            both(&owned_by("ReplicaSet", "web-5d9"), "metadata: {labels: {pod-template-hash: 5d9}}")
        } else {
            owner
        };
        let pods = pods.iter().enumerate().map(|(index, spec)| running(&format!("web-{index}"), spec, &of));
        let objects: Vec<Object> = [workload(kind, "web", template, changes)].into_iter().chain(pods).collect();
        let (name, answer) = (format!("{kind} shop/web"), Scene::default().check(&objects));
        let found = answer.unschedulable.get(&name).copied();
        // How many pods count is for people. What matters is whether one does.
        assert_eq!(found.is_some(), expected.is_some(), "{fact}: {kind} {answer:?}");
        if changes != finished && expected > Some(0) {
            assert_eq!(found, expected, "{fact}: {kind}");
        }
    }
}

#[test]
fn a_foreign_kind_with_the_name_of_a_listed_one_is_another_kind() {
    let changes = |group: &str, kind: &str| {
        both(&owned_by_group(group, kind, "db"), &format!("metadata: {{deletionTimestamp: '{}'}}", minute(1)))
    };
    for (group, kind, expected) in [
        ("apps.kruise.io", "StatefulSet", Some("StatefulSet.apps.kruise.io shop/db")),
        ("batch.volcano.sh", "Job", Some("Job.batch.volcano.sh shop/db")),
        ("apps", "StatefulSet", None),
        ("batch", "Job", None),
    ] {
        let answer = Scene::default().check(&[running("db-0", WINDOWS, &changes(group, kind))]);
        assert_eq!(answer.unschedulable.keys().next().map(String::as_str), expected, "{group} {kind}");
    }
    let owned = changes("x.org", "Runner").replace("true", "false");
    Scene::default().holds(
        "an owner that does not control it",
        &[running("ci", WINDOWS, &owned)],
        &[("Pod shop/ci", 1)],
    );
}

#[test]
fn a_pod_without_a_known_template_counts_unless_its_class_tolerates_the_taint_now() {
    let own = "{metadata: {name: own}, handler: h, scheduling: {tolerations: [{operator: Exists}]}}";
    let scene = Scene { classes: vec![own], ..Scene::default() };
    for (fact, spec, owner, expected) in [
        ("no class", WINDOWS, "{}".to_owned(), true),
        ("its class tolerates it now", "os: {name: windows}, runtimeClassName: own", "{}".to_owned(), false),
        (
            "also of a kind that is not listed",
            "os: {name: windows}, runtimeClassName: own",
            owned_by("Game", "a"),
            false,
        ),
        ("its class is gone", "os: {name: windows}, runtimeClassName: gone", "{}".to_owned(), true),
    ] {
        assert_eq!(!scene.check(&[running("web", spec, &owner)]).held.is_empty(), expected, "{fact}");
    }
    let agent = |template: &str| {
        let template = format!("{template}, runtimeClassName: own");
        let pod = running("agent-1", &format!("{WINDOWS}, runtimeClassName: own"), &owned_by("DaemonSet", "agent"));
        !scene.check(&[workload("DaemonSet", "agent", &template, "{}"), pod]).held.is_empty()
    };
    assert!(agent(WINDOWS), "a class does not help a DaemonSet");
    assert!(!agent(&format!("{WINDOWS}, {TOLERATES}")), "updateStrategy OnDelete: the template is fixed");
}
