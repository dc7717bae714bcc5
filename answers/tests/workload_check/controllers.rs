//! Templates of every kind, and which of them count.

use winpool_core::{api::Taint, plan::PODS};

use super::scene::{Object, Scene, TOLERATES, WINDOWS, minute, owned_by, pod, running, workload};

#[test]
fn the_template_of_every_kind_counts_even_without_pods() {
    for (kind, changes) in [
        ("Deployment", "{}"),
        ("Deployment", "spec: {replicas: 0}"),
        ("StatefulSet", "spec: {replicas: 0}"),
        ("ReplicaSet", "spec: {replicas: 0}"),
        ("ReplicationController", "spec: {replicas: 0}"),
        ("DaemonSet", "{}"),
        ("Job", "{}"),
        ("Job", "status: {conditions: [{type: Suspended, status: 'True'}]}"),
        ("CronJob", "{}"),
    ] {
        let name = format!("{kind} shop/web");
        let scene = Scene::default();
        scene.holds(&name, &[workload(kind, "web", WINDOWS, changes)], &[(&name, 0)]);
        scene.holds(&name, &[workload(kind, "web", &format!("{WINDOWS}, {TOLERATES}"), changes)], &[]);
        scene.holds(&name, &[workload(kind, "web", "", changes)], &[]);
    }
}

#[test]
fn what_makes_no_pods_any_more_or_is_bound_or_ignored_does_not_count() {
    let ignored = "annotations: {winpool.dev/ignore: 'true'}";
    for (fact, kind, spec, changes) in [
        ("it is being deleted", "Deployment", WINDOWS, format!("metadata: {{deletionTimestamp: '{}'}}", minute(-1))),
        ("it is complete", "Job", WINDOWS, "status: {conditions: [{type: Complete, status: 'True'}]}".to_owned()),
        ("it has failed", "Job", WINDOWS, "status: {conditions: [{type: Failed, status: 'True'}]}".to_owned()),
        ("its pods are bound by nodeName", "Deployment", "os: {name: windows}, nodeName: win", "{}".to_owned()),
        ("it is ignored", "Deployment", WINDOWS, format!("metadata: {{{ignored}}}")),
        ("its template is ignored", "Deployment", WINDOWS, format!("spec: {{template: {{metadata: {{{ignored}}}}}}}")),
        (
            "the template of a CronJob is ignored",
            "CronJob",
            WINDOWS,
            format!("spec: {{jobTemplate: {{spec: {{template: {{metadata: {{{ignored}}}}}}}}}}}"),
        ),
    ] {
        Scene::default().holds(fact, &[workload(kind, "web", spec, &changes)], &[]);
    }
}

#[test]
fn the_pods_of_an_ignored_workload_do_not_count() {
    let ignored = workload("StatefulSet", "db", WINDOWS, "metadata: {annotations: {winpool.dev/ignore: 'true'}}");
    let pod = running("db-0", WINDOWS, &owned_by("StatefulSet", "db"));
    Scene::default().holds("ignored", &[ignored, pod.clone()], &[]);
    Scene::default().holds(
        "not ignored",
        &[workload("StatefulSet", "db", WINDOWS, "{}"), pod],
        &[("StatefulSet shop/db", 1)],
    );
}

#[test]
fn a_job_counts_by_its_own_template_whoever_made_it() {
    let tolerant = format!("{WINDOWS}, {TOLERATES}");
    let cron_job = |spec: &str| workload("CronJob", "report", spec, "{}");
    let job = |spec: &str| workload("Job", "report-1", spec, &owned_by("CronJob", "report"));
    let run = |spec: &str| running("report-1-x", spec, &owned_by("Job", "report-1"));
    let waits: &[(&str, usize)] = &[("Job shop/report-1", 0)];
    for (fact, objects, expected) in [
        ("the CronJob is fixed, its queued Job is not", vec![cron_job(&tolerant), job(WINDOWS)], waits),
        ("a Job between two pods", vec![job(WINDOWS)], waits),
        ("a pod of it runs", vec![cron_job(&tolerant), job(WINDOWS), run(WINDOWS)], &[("Job shop/report-1", 1)]),
        ("both tolerate it", vec![cron_job(&tolerant), job(&tolerant)], &[]),
        (
            "the CronJob lost its toleration after a run",
            vec![cron_job(WINDOWS), job(&tolerant), run(&tolerant)],
            &[("CronJob shop/report", 0)],
        ),
    ] {
        Scene::default().holds(fact, &objects, expected);
    }
}

#[test]
fn of_the_replica_sets_of_a_rollout_those_with_replicas_and_the_newest_count() {
    let set = |name: &str, spec: &str, age: i64, replicas: i64| {
        let owner = owned_by("Rollout", "web")
            .replace("metadata: {", &format!("metadata: {{creationTimestamp: '{}', ", minute(-age)));
        workload("ReplicaSet", name, spec, &format!("{owner}\nspec: {{replicas: {replicas}}}"))
    };
    let tolerant = format!("{WINDOWS}, {TOLERATES}");
    let scene = Scene::default();
    for (fact, sets, expected) in [
        ("one without replicas", vec![("a", WINDOWS, 5, 0)], &[("ReplicaSet shop/a", 0)][..]),
        ("the newest of two tolerates it", vec![("a", WINDOWS, 9, 0), ("b", &tolerant, 5, 0)], &[]),
        ("two of the same second", vec![("a", WINDOWS, 5, 0), ("b", &tolerant, 5, 0)], &[("ReplicaSet shop/a", 0)]),
        ("in another order", vec![("b", &tolerant, 5, 0), ("a", WINDOWS, 9, 0)], &[]),
        ("the newest of two does not", vec![("a", &tolerant, 9, 0), ("b", WINDOWS, 5, 0)], &[("ReplicaSet shop/b", 0)]),
        ("an old one beside one with replicas", vec![("a", WINDOWS, 9, 0), ("b", &tolerant, 5, 2)], &[]),
        ("an old one with replicas", vec![("a", WINDOWS, 9, 1), ("b", &tolerant, 5, 2)], &[("ReplicaSet shop/a", 0)]),
    ] {
        let sets: Vec<Object> =
            sets.into_iter().map(|(name, spec, age, replicas)| set(name, spec, age, replicas)).collect();
        scene.holds(fact, &sets, expected);
    }
    let of_one_owner = ["web", "worker"].map(|name| {
        workload("Deployment", name, WINDOWS, &format!("{}\nspec: {{replicas: 0}}", owned_by("Shop", "shop")))
    });
    let both = [("Deployment shop/web", 0), ("Deployment shop/worker", 0)];
    scene.holds("Deployments of one owner are no revisions of each other", &of_one_owner, &both);
}

#[test]
fn a_daemon_set_is_judged_by_its_templates_tolerations() {
    let own = "{metadata: {name: own}, handler: h, scheduling: {nodeSelector: {kubernetes.io/os: windows}, tolerations: [{operator: Exists}]}}";
    let scene = || Scene { classes: vec![own], ..Scene::default() };
    let agent: &[(&str, usize)] = &[("DaemonSet shop/agent", 0)];
    for (fact, spec, expected) in [
        ("it says Windows", WINDOWS, agent),
        ("it tolerates the taint", "os: {name: windows}, tolerations: [{operator: Exists}]", &[]),
        ("its controller ignores the tolerations of its class", "os: {name: windows}, runtimeClassName: own", agent),
        ("it fits no candidate", "os: {name: windows}, nodeSelector: {team: b}", &[]),
        ("another node is no refuge for it", WINDOWS, agent),
        ("it says Linux", "nodeSelector: {kubernetes.io/os: linux}", &[]),
        ("only Windows nodes match its selector", "nodeSelector: {team: a}", agent),
    ] {
        let nodes = vec![("win-2", "{}", &[][..])];
        Scene { nodes, ..scene() }.holds(fact, &[workload("DaemonSet", "agent", spec, "{}")], expected);
    }
    let policy = Scene { tolerates_windows: true, ..scene() };
    policy.holds("no policy changes its template", &[workload("DaemonSet", "agent", WINDOWS, "{}")], agent);
}

#[test]
fn a_daemon_set_that_says_nothing_counts_by_its_pods_on_windows() {
    let agent = |spec: &str| workload("DaemonSet", "agent", spec, "{}");
    let of_agent = owned_by("DaemonSet", "agent");
    let waits = |spec: &str| pod("agent-1", &format!("nodeName: win, {spec}"), &of_agent);
    let scene = Scene::default();
    let counts: &[(&str, usize)] = &[("DaemonSet shop/agent", 1)];
    scene.holds("no pod", &[agent("")], &[]);
    scene.holds("a pod that runs", &[agent(""), running("agent-1", "", &of_agent)], counts);
    scene.holds("its pod got a toleration", &[agent(""), running("agent-1", TOLERATES, &of_agent)], counts);
    scene.holds("its template tolerates it", &[agent(TOLERATES), running("agent-1", "", &of_agent)], &[]);
    scene.holds("a Linux pod", &[agent(""), waits("")], &[]);
    scene.holds(
        "a Linux pod beside one that runs",
        &[agent(""), waits(""), running("agent-2", "", &of_agent)],
        &[("DaemonSet shop/agent", 2)],
    );
    scene.holds("it says Windows, and its pod waits", &[agent(WINDOWS), waits(WINDOWS)], counts);
}

#[test]
fn a_kind_that_may_not_be_listed_is_left_out_and_without_pods_everything_is_held() {
    let scene = Scene { unlisted: vec!["deployments"], ..Scene::default() };
    scene.holds("no Deployment is known", &[], &[]);
    let pod = running("web-1", WINDOWS, &owned_by("ReplicaSet", "web"));
    scene.holds("its pods count", &[pod], &[("ReplicaSet shop/web", 1)]);
    assert_eq!(scene.check(&[]).unlisted["deployments"], "deployments is forbidden");

    let answer = Scene { unlisted: vec![PODS], ..Scene::default() }.check(&[]);
    assert!(answer.held.contains(&Taint::os_windows()) && answer.clean.is_empty() && answer.unschedulable.is_empty());
}
