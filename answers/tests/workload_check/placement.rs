//! The nodes for a template's pods, the signs of Windows, classes, and admission policies.

use winpool_core::{api::PodDefaults, plan::ClassSource};

use super::scene::{Scene, TOLERATES, WINDOWS, workload};

/// The API server takes such tolerations only with a feature gate on, and winpool does not know whether they work.
#[test]
fn a_toleration_with_an_unknown_operator_never_settles_a_question() {
    let tier = |operator: &str| format!("{WINDOWS}, tolerations: [{{key: tier, operator: {operator}, value: '9'}}]");
    let holds = |scene: &Scene, fact: &str, kind: &str, spec: &str, expected: bool| {
        let name = format!("{kind} shop/web");
        let expected = if expected { &[(name.as_str(), 0)][..] } else { &[] };
        scene.holds(fact, &[workload(kind, "web", spec, "{}")], expected);
    };
    let other = Scene { nodes: vec![("other", "{}", &["tier=9:NoSchedule"])], ..Scene::default() };
    for (operator, has_refuge) in [("Equal", true), ("Gt", false), ("Lt", false), ("Soon", false)] {
        holds(&other, operator, "Deployment", &tier(operator), !has_refuge);
    }
    let asked = format!("{WINDOWS}, tolerations: [{{key: os, operator: Gt, value: '1'}}]");
    holds(&Scene::default(), "the taint that is asked about", "Deployment", &asked, true);
}

#[test]
fn taints_and_conditions_of_candidates_excuse_nobody_and_a_refuge_has_to_serve() {
    let maintenance: &[&str] = &["maintenance=patching:NoSchedule"];
    let (one, two) = (Scene::default, || Scene { nodes: vec![("win-2", "{}", &[])], ..Scene::default() });
    for (fact, scene, expected) in [
        ("a passing taint of others on the candidate", Scene { taints: maintenance, ..one() }, true),
        (
            "a startup taint of others on the candidate",
            Scene { taints: &["ebs.csi.aws.com/agent-not-ready:NoExecute"], ..one() },
            true,
        ),
        ("the candidate does not serve", Scene { down: vec!["win"], ..one() }, true),
        ("another node serves", two(), false),
        ("the other node is cordoned or not ready", Scene { down: vec!["win-2"], ..two() }, true),
        (
            "the other node is not reachable",
            Scene { nodes: vec![("win-2", "{}", &["node.kubernetes.io/unreachable:NoSchedule"])], ..one() },
            true,
        ),
    ] {
        holds(&scene, fact, WINDOWS, expected);
        let waiting = [super::scene::pod("web", WINDOWS, "{}")];
        scene.holds(fact, &waiting, if expected { &[("Pod shop/web", 1)] } else { &[] });
    }
}

#[test]
fn before_a_taint_is_approved_workloads_for_future_nodes_of_the_pool_count() {
    let group = "os: {name: windows}, nodeSelector: {grp: b}";
    let affinity = |expression: &str| {
        format!(
            "os: {{name: windows}}, affinity: {{nodeAffinity: {{requiredDuringSchedulingIgnoredDuringExecution: \
             {{nodeSelectorTerms: [{{matchExpressions: [{{{expression}}}]}}]}}}}}}"
        )
    };
    let asks = |pool: &'static str| Scene { is_approved: false, pool, ..Scene::default() };
    for (fact, scene, spec, expected) in [
        ("a node group at zero", asks("{}"), group, true),
        ("every node carries the taint", Scene { all_carry: true, ..asks("{}") }, group, true),
        ("every node carries it, also its own", Scene { all_carry: true, ..asks("{}") }, WINDOWS, true),
        (
            "a node that waits for a class",
            Scene { nodes: vec![("win-2", "{team: b}", &["os=windows:NoSchedule"])], ..asks("{}") },
            "os: {name: windows}, nodeSelector: {team: b}",
            true,
        ),
        ("the pool has other nodes", asks("{grp: c}"), group, false),
        ("a selector that agrees", asks("{grp: b}"), group, true),
        ("affinity that agrees", asks("{grp: b}"), &affinity("key: grp, operator: In, values: [b, d]"), true),
        ("affinity that contradicts", asks("{grp: b}"), &affinity("key: grp, operator: In, values: [c]"), false),
        ("a Linux workload that fits no node", asks("{}"), "nodeSelector: {gpu: h100}", false),
        ("a misspelt system, which no node has", asks("{}"), "nodeSelector: {kubernetes.io/os: Windows}", false),
        (
            "affinity to a system that no Windows node has",
            asks("{}"),
            &affinity("key: kubernetes.io/os, operator: In, values: [linux]"),
            false,
        ),
        (
            "it fits a node of another pool",
            Scene { nodes: vec![("win-2", "{grp: b}", &[])], ..asks("{team: a}") },
            group,
            false,
        ),
        ("the taint is approved", Scene::default(), group, false),
    ] {
        holds(&scene, fact, spec, expected);
        let is_held = !scene.check(&[workload("DaemonSet", "agent", spec, "{}")]).held.is_empty();
        assert_eq!(is_held, expected, "{fact}: DaemonSet");
        let is_held = !scene.check(&[super::scene::pod("web", spec, "{}")]).held.is_empty();
        assert_eq!(is_held, expected, "{fact}: waiting pod");
    }
}

const CLASSES: [&str; 4] = [
    "{metadata: {name: tolerant}, handler: h, scheduling: {nodeSelector: {kubernetes.io/os: windows}, \
      tolerations: [{key: os, operator: Exists}]}}",
    "{metadata: {name: foreign}, handler: h, scheduling: {nodeSelector: {kubernetes.io/os: windows}}}",
    "{metadata: {name: team-b}, handler: h, scheduling: {nodeSelector: {kubernetes.io/os: windows, team: b}}}",
    "{metadata: {name: sandbox}, handler: h}",
];

fn holds(scene: &Scene, fact: &str, spec: &str, expected: bool) {
    let expected = if expected { &[("Deployment shop/web", 0)][..] } else { &[] };
    scene.holds(fact, &[workload("Deployment", "web", spec, "{}")], expected);
}

#[test]
fn a_template_counts_only_if_it_says_windows() {
    let affinity = |terms: &str| {
        format!(
            "affinity: {{nodeAffinity: {{requiredDuringSchedulingIgnoredDuringExecution: {{nodeSelectorTerms: [{terms}]}}}}}}"
        )
    };
    let windows = "{matchExpressions: [{key: kubernetes.io/os, operator: In, values: [windows]}]}";
    let any = "{matchExpressions: [{key: kubernetes.io/arch, operator: In, values: [amd64]}]}";
    let build = "{matchExpressions: [{key: node.kubernetes.io/windows-build, operator: Exists}]}";
    let not_linux = "{matchExpressions: [{key: kubernetes.io/os, operator: NotIn, values: [linux]}]}";
    for (fact, spec, expected) in [
        ("nothing", String::new(), false),
        ("os.name", WINDOWS.to_owned(), true),
        ("another os.name", "os: {name: linux}, nodeSelector: {team: a}".to_owned(), false),
        ("windowsOptions of the pod", "securityContext: {windowsOptions: {runAsUserName: a}}".to_owned(), true),
        (
            "windowsOptions of a container",
            "containers: [{name: c, securityContext: {windowsOptions: {runAsUserName: a}}}]".to_owned(),
            true,
        ),
        ("a selector", "nodeSelector: {kubernetes.io/os: windows}".to_owned(), true),
        ("a build", "nodeSelector: {node.kubernetes.io/windows-build: 10.0.20348}".to_owned(), true),
        (
            "another build, which fits no candidate",
            "nodeSelector: {node.kubernetes.io/windows-build: 10.0.17763}".to_owned(),
            false,
        ),
        ("affinity", affinity(windows), true),
        ("every term", affinity(&format!("{windows}, {build}")), true),
        ("a term beside an empty one", affinity(&format!("{{}}, {windows}")), true),
        ("an empty term", affinity("{}"), false),
        ("one term of two", affinity(&format!("{windows}, {any}")), false),
        ("affinity that excludes Linux", affinity(not_linux), true),
        ("its class", "runtimeClassName: foreign".to_owned(), true),
        ("a class that selects nothing", "runtimeClassName: sandbox".to_owned(), false),
        ("a selector that no other node matches", "nodeSelector: {team: a}".to_owned(), true),
        (
            "affinity that no other node matches",
            affinity("{matchExpressions: [{key: team, operator: In, values: [a]}]}"),
            true,
        ),
        ("affinity that other nodes match", affinity(any), false),
        (
            "a term that no node matches does not speak",
            affinity(&format!("{windows}, {{matchExpressions: [{{key: team, operator: In, values: [ghost]}}]}}")),
            true,
        ),
        ("a selector that other nodes match", "nodeSelector: {kubernetes.io/arch: amd64}".to_owned(), false),
    ] {
        let others = vec!["{kubernetes.io/os: linux, kubernetes.io/arch: amd64}"];
        holds(&Scene { classes: CLASSES.to_vec(), others, ..Scene::default() }, fact, &spec, expected);
    }
}

#[test]
fn a_template_counts_only_if_it_would_fit_no_windows_node_afterwards() {
    for (fact, nodes, spec, expected) in [
        ("the candidate is the only node", vec![], WINDOWS, true),
        ("another node stays free", vec![("win-2", "{}", &[][..])], WINDOWS, false),
        ("the other node has another taint", vec![("win-2", "{}", &["a=b:NoSchedule"])], WINDOWS, true),
        ("the other node only advises", vec![("win-2", "{}", &["a=b:PreferNoSchedule"])], WINDOWS, false),
        ("it selects the candidate", vec![("win-2", "{}", &[])], "os: {name: windows}, nodeSelector: {team: a}", true),
        (
            "it selects the other node",
            vec![("win-2", "{team: b}", &[])],
            "os: {name: windows}, nodeSelector: {team: b}",
            false,
        ),
        ("its class selects the other node", vec![("win-2", "{team: b}", &[])], "runtimeClassName: team-b", false),
        ("it fits no node at all", vec![], "os: {name: windows}, nodeSelector: {team: c}", false),
    ] {
        holds(&Scene { classes: CLASSES.to_vec(), nodes, ..Scene::default() }, fact, spec, expected);
    }
}

#[test]
fn a_template_tolerates_what_its_class_tolerates_and_a_class_alone_holds_nothing() {
    let scene = Scene { classes: CLASSES.to_vec(), ..Scene::default() };
    scene.holds("classes without users", &[], &[]);
    for (fact, spec, expected) in [
        ("a class that tolerates the taint", "runtimeClassName: tolerant", false),
        ("a class that does not", "runtimeClassName: foreign", true),
        (
            "a class that does not exist: the API server refuses the pods",
            "os: {name: windows}, runtimeClassName: gone",
            false,
        ),
    ] {
        holds(&scene, fact, spec, expected);
    }
    holds(&scene, "its own toleration", &format!("runtimeClassName: foreign, {TOLERATES}"), false);
}

#[test]
fn the_policy_tolerate_windows_gives_the_toleration_where_it_sees_windows() {
    let scene = Scene { classes: CLASSES.to_vec(), tolerates_windows: true, ..Scene::default() };
    for (fact, spec, expected) in [
        ("os.name", WINDOWS, false),
        ("a selector", "nodeSelector: {kubernetes.io/os: windows}", false),
        ("a build", "nodeSelector: {node.kubernetes.io/windows-build: 10.0.20348}", false),
        ("it does not read windowsOptions", "securityContext: {windowsOptions: {runAsUserName: a}}", true),
        ("it does not know the class of others", "runtimeClassName: foreign", true),
        ("it does not know other selectors", "nodeSelector: {team: a}", true),
    ] {
        holds(&scene, fact, spec, expected);
    }
    let in_kube_system = workload("Deployment", "web", WINDOWS, "metadata: {namespace: kube-system}");
    scene.holds("the policy leaves out kube-system", &[in_kube_system], &[("Deployment kube-system/web", 0)]);
}

#[test]
fn the_policy_assign_class_gives_the_default_class_where_it_would() {
    let scene = |class: &str| {
        let defaults = PodDefaults { runtime_class_name: Some(class.to_owned()), from_image_tags: false };
        let ready = [class.to_owned()].into();
        let assign_class = Some(ClassSource { defaults, ready, ..ClassSource::default() });
        Scene { classes: CLASSES.to_vec(), assign_class, ..Scene::default() }
    };
    for (fact, class, spec, expected) in [
        ("os.name", "tolerant", WINDOWS, false),
        (
            "os.name and the selector of the system",
            "tolerant",
            "os: {name: windows}, nodeSelector: {kubernetes.io/os: windows}",
            false,
        ),
        ("a class that does not tolerate the taint", "foreign", WINDOWS, true),
        ("a class that does not exist is not given", "gone", WINDOWS, true),
        ("it has a class", "tolerant", "os: {name: windows}, runtimeClassName: foreign", true),
        ("it is on the host's network", "tolerant", "os: {name: windows}, hostNetwork: true", true),
        ("it only selects Windows", "tolerant", "nodeSelector: {kubernetes.io/os: windows}", true),
        (
            "it selects a team",
            "tolerant",
            "os: {name: windows}, nodeSelector: {kubernetes.io/os: windows, team: a}",
            true,
        ),
        (
            "it selects a build",
            "tolerant",
            "os: {name: windows}, nodeSelector: {node.kubernetes.io/windows-build: 10.0.20348}",
            true,
        ),
    ] {
        holds(&scene(class), fact, spec, expected);
    }
}

#[test]
fn the_policy_assign_class_prefers_the_namespace_and_the_images_to_the_default_class() {
    let defaults = |class: &str| PodDefaults { runtime_class_name: Some(class.to_owned()), from_image_tags: true };
    let scene = |class: &str| {
        let assign_class = ClassSource {
            ready: [class.to_owned()].into(),
            by_build: [("10.0.17763".parse().unwrap(), "tolerant".to_owned())].into(),
            defaults: defaults(class),
        };
        let namespace_classes = vec![("legacy", "foreign"), ("gone", "gone")];
        Scene { classes: CLASSES.to_vec(), assign_class: Some(assign_class), namespace_classes, ..Scene::default() }
    };
    let annotated = |value: &str| {
        format!("spec: {{template: {{metadata: {{annotations: {{winpool.dev/images-run-on: '{value}'}}}}}}}}")
    };
    for (fact, default, images, other, expected) in [
        ("no image names a build", "tolerant", &["app:1"][..], String::new(), false),
        ("its namespace is excluded", "tolerant", &["app:1"], "metadata: {namespace: ci}".to_owned(), true),
        ("its namespace names a class", "tolerant", &["app:1"], "metadata: {namespace: legacy}".to_owned(), true),
        ("its namespace names no class", "tolerant", &["app:1"], "metadata: {namespace: gone}".to_owned(), true),
        ("its tags name a build with a class", "foreign", &["app:ltsc2019"], String::new(), false),
        ("its tags name a build without a class", "tolerant", &["app:ltsc2022"], String::new(), true),
        ("its tags name several builds", "tolerant", &["app:ltsc2019", "b:ltsc2022"], String::new(), true),
        ("one tag names no build", "tolerant", &["app:ltsc2019", "b:1"], String::new(), true),
        ("a registry names a build with a class", "foreign", &["app:1"], annotated("10.0.17763 for app:1"), false),
        ("a registry names a build without a class", "tolerant", &["app:1"], annotated("10.0.20348 for app:1"), true),
        ("a registry named a build for other images", "tolerant", &["app:2"], annotated("10.0.20348 for app:1"), false),
    ] {
        let containers = images.iter().map(|image| format!("{{image: '{image}'}}")).collect::<Vec<_>>().join(", ");
        let spec = format!("{WINDOWS}, containers: [{containers}]");
        let other = format!("{{{other}}}");
        let object = workload("Deployment", "web", &spec, &other);
        let held = !scene(default).check(&[object]).held.is_empty();
        assert_eq!(held, expected, "{fact}");
    }
}
