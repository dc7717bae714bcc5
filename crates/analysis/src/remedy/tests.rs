use super::*;

fn remedy() -> Remedy {
    Remedy::of(vec![
        Edit::class("windows-2022"),
        Edit::select_windows(),
        Edit::unselect("disk"),
        Edit::tolerate(&Taint::os_windows()),
        Edit::remove_field("containers[0].securityContext.privileged"),
    ])
}

#[test]
fn the_words_come_from_the_edits() {
    insta::assert_snapshot!(remedy().text, @"set runtimeClassName: windows-2022; set nodeSelector kubernetes.io/os: windows; remove nodeSelector disk; add the toleration {key: os, operator: Equal, value: windows, effect: NoSchedule}; remove containers[0].securityContext.privileged");
}

#[test]
fn a_json_patch_creates_what_is_not_there() {
    let changed = |mut object: Value, template: &str| {
        let patch = remedy().json_patch(&object, template);
        json_patch::patch(&mut object, &patch).unwrap();
        object
    };
    let toleration = json!({"key": "os", "operator": "Equal", "value": "windows", "effect": "NoSchedule"});
    let selector = json!({"kubernetes.io/os": "windows"});
    assert_eq!(
        changed(json!({"spec": null}), "/spec/template"),
        json!({"spec": {"template": {"spec": {
            "runtimeClassName": "windows-2022", "nodeSelector": selector, "tolerations": [toleration]}}}})
    );
    let full = json!({"spec": {
        "nodeSelector": {"disk": "ssd"}, "tolerations": [{"operator": "Exists"}],
        "containers": [{"securityContext": {"privileged": true}}]}});
    assert_eq!(
        changed(full, ""),
        json!({"spec": {
            "runtimeClassName": "windows-2022", "nodeSelector": selector, "tolerations": [{"operator": "Exists"}, toleration],
            "containers": [{}]}})
    );
}

#[test]
fn an_object_without_fields_is_removed_unless_it_means_something() {
    let affinity =
        json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}});
    let pod = json!({"spec": {"affinity": affinity, "volumes": [{"name": "a", "emptyDir": {"medium": "Memory"}}],
        "securityContext": {"fsGroup": 1, "runAsUser": 1}}});
    let edits = vec![
        Edit::require_nothing(),
        Edit::remove_field("volumes[0].emptyDir.medium"),
        Edit::remove_field("securityContext.fsGroup"),
    ];
    let mut changed = pod.clone();
    json_patch::patch(&mut changed, &Remedy::of(edits).json_patch(&pod, "")).unwrap();
    assert_eq!(
        changed,
        json!({"spec": {"volumes": [{"name": "a", "emptyDir": {}}], "securityContext": {"runAsUser": 1}}})
    );
}

#[test]
fn edits_outside_of_lists_are_a_command() {
    let web = ObjectReference::namespaced("Deployment", "shop", "web");
    assert_eq!(remedy().command(&web), None);
    let image = Remedy::of(vec![Edit::set_field("containers[0].image", "a:2")]);
    insta::assert_snapshot!(image.command(&web).unwrap(), @r#"kubectl patch deployment web -n shop --type json -p '[{"op":"add","path":"/spec/template/spec/containers/0/image","value":"a:2"}]'"#);
    let remedy = Remedy::of(vec![Edit::class("windows-2022"), Edit::unselect("a/b")]);
    insta::assert_snapshot!(remedy.command(&web).unwrap(), @r#"kubectl patch deployment web -n shop --type merge -p '{"spec":{"template":{"spec":{"nodeSelector":{"a/b":null},"runtimeClassName":"windows-2022"}}}}'"#);
    assert_eq!(remedy.command(&ObjectReference::namespaced("Pod", "shop", "web")), None, "a pod does not change");
    let edits = vec![Edit::set(&["spec", "runtimeClasses", "1", "hostMatch"], "Compatible")];
    let of_pool = Remedy { object: Some(ObjectReference::windows_pool("default")), ..Remedy::of(edits) };
    insta::assert_snapshot!(of_pool.command(&web).unwrap(), @r#"kubectl patch windowspool default --type json -p '[{"op":"add","path":"/spec/runtimeClasses/1/hostMatch","value":"Compatible"}]'"#);
}

#[test]
fn edits_change_a_pod_spec_as_the_patch_changes_the_pod() {
    let pod = json!({"spec": {"nodeSelector": {"disk": "ssd"}, "containers": [{"name": "c", "image": "a:1"}]}});
    let mut edits = remedy().edits;
    edits.push(Edit::set_field("containers[0].image", "a:2"));
    edits.push(Edit::remove(&["spec", "nodeName"]));
    let mut spec = PodSpec::deserialize(&pod["spec"]).unwrap();
    for edit in &edits {
        edit.apply(&mut spec);
    }
    let mut changed = pod;
    let patch = Remedy::of(edits).json_patch(&changed, "");
    json_patch::patch(&mut changed, &patch).unwrap();
    assert_eq!(spec, PodSpec::deserialize(&changed["spec"]).unwrap());
}

/// The status of a pool names the change in a command that the core writes.
#[test]
fn the_command_to_make_a_class_compatible_is_the_one_in_the_status_of_the_pool() {
    let pool = |spec: Value| {
        let object = json!({"apiVersion": "winpool.dev/v1alpha1", "kind": "WindowsPool", "metadata": {"name": "web"}, "spec": spec});
        PoolSpec::read(&serde_json::from_value(object).unwrap()).unwrap()
    };
    let class = |name: &str, more: Value| {
        let mut class = json!({"name": name, "version": "2022"});
        json_patch::merge(&mut class, &more);
        class
    };
    let declared = pool(json!({"runtimeClasses": [
        class("any", json!({"version": "Any"})),
        class("exact", json!({})),
        class("compatible", json!({"hostMatch": "Compatible"})),
        class("hyperv", json!({"isolation": "HyperV"})),
    ]}));
    let compatible = pool(json!({"runtimeClassHostMatch": "Compatible"}));
    for (pool, class, is_exact) in [
        (&declared, "windows-2022", true),
        (&declared, "exact", true),
        (&declared, "any", false),
        (&declared, "compatible", false),
        (&declared, "hyperv", false),
        (&compatible, "windows-2022", false),
    ] {
        assert_eq!(Remedy::compatible(pool, class).is_some(), is_exact, "{class}");
    }
}
