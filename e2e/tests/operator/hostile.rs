//! Hundreds of nodes with invented values: neither the pool's status nor its classes grow with them.

use std::{ops::Range, time::Duration};

use futures::{StreamExt, TryStreamExt, stream};
use winpool_core::api::WindowsPoolStatus;
use winpool_e2e::prelude::*;

const FEW: usize = 10;
/// Many times the bounds of a status: a value that grows with the nodes is too large long before.
const MANY: usize = 300;
/// Requests in parallel.
const HANDS: usize = 32;
const TIME: Duration = Duration::from_mins(1);

async fn join(harness: &Harness, numbers: Range<usize>, node: impl Fn(usize) -> SimulatedNode) {
    let nodes = harness.nodes();
    let node = |number| node(number).name(&format!("node-{number:04}")).node();
    let posts = numbers.map(|number| {
        let (nodes, node) = (nodes.clone(), node(number));
        async move { nodes.create(&PostParams::default(), &node).await }
    });
    stream::iter(posts).buffer_unordered(HANDS).try_collect::<Vec<_>>().await.unwrap();
}

/// The status of the pool once nothing is left to do for this number of nodes.
async fn settled(harness: &Harness, nodes: usize) -> WindowsPoolStatus {
    let pools = harness.pools();
    let done = |pool: WindowsPool| {
        let status = pool.status?;
        let counts = status.nodes;
        let all = i64::try_from(nodes) == Ok(counts.selected) && counts.converged + counts.blocked == counts.selected;
        (all && status.observed_generation == pool.metadata.generation).then_some(status)
    };
    wait_for(&format!("{nodes} nodes are done"), TIME, async || Ok(done(pools.get("default").await?))).await.unwrap()
}

fn size(status: &WindowsPoolStatus) -> usize {
    json!(status).to_string().len()
}

fn assert_small(status: &WindowsPoolStatus) {
    assert!(status.problems.len() <= 10, "{:#?}", status.problems);
    assert!(status.builds.len() <= 32, "{}", status.builds.len());
    assert!(status.taints.len() <= 32, "{:?}", status.taints);
}

#[tokio::test]
async fn hundreds_of_nodes_without_a_readable_build_are_as_small_as_ten() {
    let harness = Harness::new().await;
    let _operator = harness.operator().await;
    harness.apply_pool(json!({})).await;
    let broken = |number: usize| SimulatedNode::windows(&format!("garbage {number} {}", "x".repeat(number)));
    join(&harness, 0..FEW, broken).await;
    let few = settled(&harness, FEW).await;
    join(&harness, FEW..MANY, broken).await;
    let many = settled(&harness, MANY).await;

    assert_eq!(many.nodes.blocked, 300);
    assert_small(&many);
    assert_eq!(many.problems.len(), few.problems.len());
    // The same with longer numbers.
    assert!(size(&many) < size(&few) + 50, "{} bytes became {}: {many:#?}", size(&few), size(&many));
    assert_eq!(harness.classes().list(&ListParams::default()).await.unwrap().items, []);
}

#[tokio::test]
async fn hundreds_of_invented_builds_get_no_class_and_a_bounded_status() {
    let harness = Harness::new().await;
    let _operator = harness.operator().await;
    // Each of their taints is in the way of this one.
    harness.apply_pool(json!({"taints": [{"key": "os", "value": "windows", "effect": "NoSchedule"}]})).await;
    let liar = |number: usize| {
        let node = SimulatedNode::windows(&format!("10.0.{}.{number}", 30_000 + number));
        node.taint("os", &format!("Windows{number}"), "NoSchedule")
    };
    join(&harness, 0..FEW, liar).await;
    let few = settled(&harness, FEW).await;
    // One regular node among them.
    harness.join_node(SimulatedNode::windows("10.0.99999.1").name("unknown")).await;
    harness.join("honest").await;
    join(&harness, FEW..MANY, liar).await;
    let many = settled(&harness, MANY + 2).await;

    assert_small(&many);
    assert_eq!((many.builds.len(), many.problems.len()), (32, 10));
    assert!(many.builds.iter().any(|build| build.build == "10.0.20348" && build.nodes == 1), "{:#?}", many.builds);
    assert!(size(&many) < 3 * size(&few), "{} bytes became {}: {many:#?}", size(&few), size(&many));
    let classes = harness.classes().list(&ListParams::default()).await.unwrap().items;
    assert_eq!(classes.iter().map(ResourceExt::name_any).collect::<Vec<_>>(), ["windows-2022"]);
    for class in classes {
        let tolerations = scheduling(&class)["tolerations"].as_array().unwrap().len();
        assert_eq!(tolerations, 17, "the pool's own and a bounded number of others, {}", class.name_any());
    }
}
