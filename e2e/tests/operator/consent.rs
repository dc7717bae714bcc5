//! A taint is put on a node only after a check of the workloads that need that node, made at that time.

use futures::{StreamExt, stream};
use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicyBinding;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use winpool_e2e::prelude::*;

use crate::{
    denials::{deny, until_denied},
    policies::{admitted_until, install},
};

pub(super) const WEB: &str = "Deployment default/web";
/// A taint that a pool wants besides the one for its operating system.
const DEDICATED: &str = "dedicated=windows:NoSchedule";

/// The taints in `status.approvedTaints` of the pool `default`.
pub(super) async fn approved(harness: &Harness) -> Vec<String> {
    approved_of(harness, "default").await
}

/// The same of another pool.
pub(super) async fn approved_of(harness: &Harness, pool: &str) -> Vec<String> {
    let pool = schema::untyped(&harness.client).get(pool).await.unwrap();
    let approvals = pool.data["status"]["approvedTaints"].as_array().cloned().unwrap_or_default();
    approvals.iter().map(|approval| approval["taint"].as_str().unwrap().to_owned()).collect()
}

pub(super) async fn join(harness: &Harness, name: &str) {
    harness.join_node(SimulatedNode::server_2022(name).label("team", name)).await;
}

/// An operator and two nodes, `free` and `busy`, each with a label `team` of its own.
async fn with_two_nodes() -> (Harness, Operator) {
    let harness = Harness::new().await;
    join(&harness, "free").await;
    join(&harness, "busy").await;
    let operator = harness.operator().await;
    (harness, operator)
}

/// Waits until winpool holds the taint of `busy` because of the pod that `run_web` runs there.
async fn is_held_for_web(harness: &Harness) {
    harness.held(OS_WINDOWS, &["busy"], &[WEB]).await;
}

/// Removes all taints of `busy`, as an administrator does to let a pod run there.
async fn untaint(harness: &Harness) {
    harness.edit_node("busy", json!({"spec": {"taints": null}})).await;
}

#[tokio::test]
async fn a_check_made_in_a_dry_run_does_not_count_when_the_pool_enforces() {
    let (harness, _operator) = with_two_nodes().await;
    harness.apply_until_ready(json!({"mode": "DryRun"})).await;
    harness.run_web("busy").await;
    harness.apply_pool(json!({})).await;
    is_held_for_web(&harness).await;
}

/// winpool reads the policies once a minute for its report, and again at the start of each check.
#[tokio::test]
async fn a_policy_that_was_deleted_a_moment_ago_excuses_nobody() {
    needs!(MUTATING_ADMISSION_POLICY);
    let harness = Harness::unguarded().await;
    join(&harness, "busy").await;
    harness.apply(workload("Deployment", "web", json!({"nodeSelector": {"kubernetes.io/os": "windows"}}))).await;
    install(&harness.client, "tolerate-windows").await;
    let _operator = harness.operator().await;
    harness.apply_pool(json!({"taintPolicy": "Never"})).await;
    let is_known = |pool: &WindowsPool| {
        let installed = json!({"name": "tolerate-windows", "state": "Installed"});
        json!(pool.status)["admissionPolicies"].as_array().is_some_and(|all| all.contains(&installed))
    };
    harness.pool_until("default", "reports the policy", is_known).await;
    let kind = GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", "MutatingAdmissionPolicyBinding");
    let bindings: Api<DynamicObject> = Api::all_with(harness.client.clone(), &ApiResource::from_gvk(&kind));
    bindings.delete("winpool-tolerate-windows-pods", &DeleteParams::default()).await.unwrap();
    harness.apply_pool(json!({})).await;
    harness.held(OS_WINDOWS, &["busy"], &[WEB]).await;
}

#[tokio::test]
async fn never_removes_the_taint_and_nodes_are_checked_again_afterwards() {
    let (harness, _operator) = with_two_nodes().await;
    harness.apply_until_ready(json!({})).await;
    harness.apply_pool(json!({"taintPolicy": "Never"})).await;
    harness.node_until("busy", "loses its taint", |node| !has_taint(node, OS_WINDOWS)).await;
    let class = harness.classes().get("windows-2022").await.unwrap();
    assert!(tolerates(&class, OS_WINDOWS), "classes tolerate the taint all the same");
    harness.run_web("busy").await;
    harness.apply_pool(json!({})).await;
    is_held_for_web(&harness).await;
}

#[tokio::test]
async fn nodes_that_a_wider_selector_adds_are_checked() {
    let (harness, _operator) = with_two_nodes().await;
    harness.apply_until_ready(json!({"nodeSelector": {"team": "free"}})).await;
    harness.run_web("busy").await;
    harness.apply_pool(json!({})).await;
    is_held_for_web(&harness).await;
    assert!(has_taint(&harness.node("free").await, OS_WINDOWS), "a node keeps the taint that it has");
    assert_eq!(approved(&harness).await, Vec::<String>::new());
}

#[tokio::test]
async fn nodes_that_an_older_pool_hands_over_are_checked() {
    let (harness, _operator) = with_two_nodes().await;
    harness.run_web("busy").await;
    let spec = |mode: &str| json!({"mode": mode, "nodeSelector": {"team": "busy"}});
    harness.apply_pool_named("a-older", spec("Enforce")).await;
    harness.nodes_until("a-older", "holds the taint", |nodes| nodes.held == 1).await;
    harness.apply_pool(json!({})).await;
    harness.is_tainted("free").await;
    harness.apply_pool_named("a-older", spec("DryRun")).await;
    is_held_for_web(&harness).await;
}

#[tokio::test]
async fn a_node_whose_ignore_annotation_is_removed_is_checked() {
    let (harness, _operator) = with_two_nodes().await;
    harness.apply_until_ready(json!({})).await;
    let ignore = |value: Value| json!({"metadata": {"annotations": {"winpool.dev/ignore": value}}});
    harness.edit_node("busy", ignore(json!("true"))).await;
    harness.nodes_until("default", "ignores the node", |nodes| nodes.ignored == 1).await;
    untaint(&harness).await;
    harness.run_web("busy").await;
    harness.edit_node("busy", ignore(Value::Null)).await;
    is_held_for_web(&harness).await;
}

#[tokio::test]
async fn a_node_that_lost_its_taint_while_no_operator_ran_is_checked() {
    let (harness, operator) = with_two_nodes().await;
    harness.apply_until_ready(json!({})).await;
    operator.stop().await;
    untaint(&harness).await;
    harness.run_web("busy").await;
    let _operator = harness.operator().await;
    is_held_for_web(&harness).await;
}

/// Creates a pool that is Ready with the default taint and then wants [`DEDICATED`] too, while a policy refuses every change
/// of a RuntimeClass.
async fn with_a_class_that_cannot_be_widened(harness: &Harness) -> Operator {
    join(harness, "busy").await;
    let operator = Operator::impatient(harness.account.config.clone());
    harness.apply_until_ready(json!({})).await;
    let resources = json!({"node.k8s.io": ["runtimeclasses"]});
    let never = json!({"expression": "false", "message": "classes stay as they are"});
    deny(&harness.client, "classes", &resources, "UPDATE", never).await;
    let (dry_run, change) = (PatchParams { dry_run: true, ..PatchParams::default() }, json!({"overhead": null}));
    let change = Patch::Merge(change);
    until_denied("classes", async || harness.classes().patch("windows-2022", &dry_run, &change).await.err()).await;
    harness.apply_pool(json!({"taints": [taint(OS_WINDOWS), taint(DEDICATED)]})).await;
    let waits = |pool: &WindowsPool| condition(pool, "RuntimeClassesApplied") == Some("False");
    harness.pool_until("default", "waits for its class", waits).await;
    operator
}

#[tokio::test]
async fn a_taint_that_waited_for_its_class_is_added_only_after_another_check() {
    let harness = Harness::new().await;
    let _operator = with_a_class_that_cannot_be_widened(&harness).await;
    harness.run_web("busy").await;
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(harness.client.clone());
    bindings.delete("classes", &DeleteParams::default()).await.unwrap();
    harness.held(DEDICATED, &["busy"], &[WEB]).await;
    assert_eq!(approved(&harness).await, [OS_WINDOWS]);
}

#[tokio::test]
async fn no_node_is_registered_with_a_taint_before_its_class_tolerates_it() {
    needs!(MUTATING_ADMISSION_POLICY);
    let harness = Harness::new().await;
    let _operator = with_a_class_that_cannot_be_widened(&harness).await;
    install(&harness.client, "born-tainted").await;
    let node = json!(SimulatedNode::server_2022("new").node());
    let is_guarded = |node: &Node| has_taint(node, OS_WINDOWS);
    let what = "a node would be registered with its taint";
    let registered = admitted_until(&harness.nodes(), &node, what, is_guarded).await;
    assert_eq!(lasting_taints(&registered), [OS_WINDOWS]);
}

#[tokio::test]
async fn the_owner_of_a_node_removes_a_held_taint_that_another_pool_added() {
    needs!(MUTATING_ADMISSION_POLICY);
    let (harness, _operator) = with_two_nodes().await;
    harness.run_web("busy").await;
    harness.apply_pool_named("a-older", json!({"nodeSelector": {"team": "busy"}})).await;
    harness.nodes_until("a-older", "holds the taint", |nodes| nodes.held == 1).await;
    harness.apply_pool(json!({})).await;
    harness.is_tainted("free").await;
    install(&harness.client, "born-tainted").await;
    let new = SimulatedNode::server_2022("new").label("team", "busy");
    let (node, is_guarded) = (json!(new.node()), |node: &Node| has_taint(node, OS_WINDOWS));
    admitted_until(&harness.nodes(), &node, "a node would be registered with its taint", is_guarded).await;
    harness.join_node(new).await;
    let belongs_to_its_owner = |node: &Node| label(node, POOL) == Some("a-older") && !has_taint(node, OS_WINDOWS);
    harness.node_until("new", "belongs to the older pool and has no taint", belongs_to_its_owner).await;
}

#[tokio::test]
async fn many_node_selectors_are_decided_by_one_list() {
    const LABELS: usize = 9;
    let (harness, log) = Harness::audited().await;
    let label = |number: usize| format!("example.com/label-{number}");
    let labelled = |node: SimulatedNode, count| (0..count).fold(node, |node, number| node.label(&label(number), "x"));
    harness.join_node(labelled(SimulatedNode::server_2022("win"), LABELS)).await;
    // The Linux node lacks the last label.
    harness.join_node(labelled(SimulatedNode::linux().name("linux"), LABELS - 1)).await;
    // One Deployment for each set of the other labels, and one for the last label.
    let create = async |set: usize| {
        let chosen = (0..LABELS).filter(|number| set & (1 << number) != 0).map(|number| (label(number), json!("x")));
        let spec = json!({"nodeSelector": chosen.collect::<serde_json::Map<_, _>>()});
        let deployment = workload("Deployment", &format!("set-{set}"), spec);
        harness.apply(deployment).await;
    };
    stream::iter(1..=1 << (LABELS - 1)).map(create).buffer_unordered(16).collect::<Vec<_>>().await;

    let _operator = harness.operator().await;
    harness.apply_pool(json!({})).await;
    harness.held(OS_WINDOWS, &["win"], &["Deployment default/set-256"]).await;
    let lists = log.events().into_iter().filter(|event| event["verb"] == "list");
    let uris: Vec<_> = lists.filter_map(|event| Some(event["requestURI"].as_str()?.to_owned())).collect();
    let asked = uris.iter().filter(|uri| uri.contains("example.com")).count();
    assert_eq!(asked, 0, "{} lists", uris.len());
}

#[tokio::test]
async fn a_class_that_changes_all_the_time_and_concerns_no_pool_delays_no_taint() {
    let harness = Harness::new().await;
    harness.join("win").await;
    let linux = json!({"nodeSelector": {"kubernetes.io/os": "linux"}});
    let _: RuntimeClass =
        harness.create(json!({"metadata": {"name": "busy"}, "handler": "runc", "scheduling": linux})).await;
    let classes = harness.classes();
    let busy = async {
        for round in 0.. {
            let tolerations = json!([{"key": format!("example.com/{round}"), "operator": "Exists"}]);
            let _: RuntimeClass = merge(&classes, "busy", json!({"scheduling": {"tolerations": tolerations}})).await;
        }
    };
    let _operator = harness.operator().await;
    let tainted = async {
        harness.apply_pool(json!({})).await;
        harness.is_tainted("win").await;
    };
    tokio::select! {
        () = busy => {}
        () = tainted => {}
    }
}
