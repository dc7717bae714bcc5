//! Remedies of `check`, applied: the API server accepts them, and the scheduler puts the pods on the nodes in the table.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::node::v1::RuntimeClass;
use kube::api::{ListParams, PostParams};
use kube::{Api, Client};
use serde_json::json;
use winpool_core::api::names;
use winpool_e2e::harness::objects::{node_of, unschedulable, windows_class};
use winpool_e2e::machine::wait::{LIMIT, wait_for};
use winpool_e2e::nodes::simulated::SimulatedNode;
use winpool_e2e::servers::cluster::Cluster;
use winpool_e2e::servers::lending::lend_cluster;

use super::example_remedies::{Case, cases};
use super::{create, example, workload};

const NODES: [(&str, Option<&str>); 3] =
    [("linux-1", None), ("win-2019", Some("10.0.17763")), ("win-2022", Some("10.0.20348"))];

async fn cluster() -> Cluster {
    let cluster = lend_cluster().await.unwrap();
    let client = cluster.client();
    let classes: Api<RuntimeClass> = Api::all(client.clone());
    for (name, build) in NODES {
        let node = match build {
            Some(build) => {
                let class = windows_class(&name.replace("win-", "windows-"), &json!({names::WINDOWS_BUILD: build}));
                classes.create(&PostParams::default(), &serde_json::from_value(class).unwrap()).await.unwrap();
                SimulatedNode::windows(&format!("{build}.2000")).taint("os", "windows", "NoSchedule")
            }
            None => SimulatedNode::linux(),
        };
        node.name(name).join(&client).await.unwrap();
        cluster.node_ready(name).await.unwrap();
    }
    cluster
}

/// Creates as many pods as there are nodes. No two of them fit on one node, because all want the same port of it.
async fn create_pods(client: &Client, number: usize, case: &Case) {
    let api: Api<Pod> = Api::namespaced(client.clone(), "default");
    let mut spec = example::windows(&case.after);
    if spec["containers"].is_null() {
        spec["containers"] = json!([{"name": "c", "image": "example.com/app:1.0"}]);
    }
    spec["containers"][0]["ports"] = json!([{"containerPort": 80, "hostPort": 20_000 + number}]);
    for copy in 0..NODES.len() {
        let labels = json!({"case": number.to_string()});
        let pod = json!({"metadata": {"name": format!("case-{number}-{copy}"), "labels": labels}, "spec": spec});
        let created = api.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await;
        created.unwrap_or_else(|error| panic!("{error}: {case:?}"));
    }
}

#[tokio::test]
async fn remedied_pods_are_accepted_and_land_where_the_table_says() {
    let cluster = cluster().await;
    let client = cluster.client();
    let (mut accepted, mut landed) = (0, 0);
    for case in cases() {
        let mut spec = example::windows(&case.after);
        if spec["containers"].is_null() {
            spec["containers"] = json!([{"name": "c", "image": "example.com/app:1.0"}]);
        }
        let kind = if case.kind == "DaemonSet" { "DaemonSet" } else { "Pod" };
        let answer = create(&client, "default", &workload(kind, &spec)).await;
        assert_eq!(answer.code == 201, !case.refused, "{case:?}: {}", answer.body);
        accepted += usize::from(answer.code == 201);
    }
    let lands: Vec<(usize, Case)> =
        cases().into_iter().enumerate().filter(|(_, case)| !case.lands.is_empty()).collect();
    for (number, case) in &lands {
        create_pods(&client, *number, case).await;
    }
    let api: Api<Pod> = Api::namespaced(client.clone(), "default");
    for (number, case) in &lands {
        let selected = ListParams::default().labels(&format!("case={number}"));
        let mut seen = Vec::new();
        let decided = wait_for("the scheduler has decided", LIMIT, async || {
            seen = api.list(&selected).await?.items;
            Ok(seen.iter().all(|pod| node_of(pod).is_some() || unschedulable(pod).is_some()).then_some(()))
        });
        decided.await.unwrap_or_else(|error| panic!("{error}: {case:?}"));
        let bound: BTreeSet<&str> = seen.iter().filter_map(node_of).collect();
        assert_eq!(bound, case.lands.iter().map(String::as_str).collect(), "{case:?}");
        landed += bound.len();
    }
    println!("{accepted} remedied pods accepted, {landed} landed as predicted");
    assert!(accepted > 40 && landed > 20);
}
