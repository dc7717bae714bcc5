//! Two processes of `winpool-operator run`, of which one leads.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use futures::{StreamExt, stream};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::api::{ListParams, PostParams};
use kube::{Api, Client, ResourceExt};
use winpool_core::api::{WindowsPool, WindowsPoolSpec, names};
use winpool_e2e::machine::wait::{LIMIT, wait_for};
use winpool_e2e::nodes::simulated::SimulatedNode;
use winpool_e2e::scene::install_crd;
use winpool_e2e::servers::audit::{AuditLog, AuditedRequest};
use winpool_e2e::servers::lending::{Lent, lend};
use winpool_e2e::servers::requests::sample;

use crate::program::Program;

const FIRST: &str = "winpool-first";
const SECOND: &str = "winpool-second";

/// A leader and a standby, and a pool with one converged node: from now on each node needs one request.
async fn two_programs() -> (Lent, AuditLog, Client, Program, Program) {
    let server = lend().await.unwrap();
    let (client, audit) = (server.client(), server.audit());
    install_crd(&client).await.unwrap();
    let pools: Api<WindowsPool> = Api::all(client.clone());
    let pool = WindowsPool::new("default", WindowsPoolSpec::default());
    pools.create(&PostParams::default(), &pool).await.unwrap();
    let mut first = Program::start_as(&server, FIRST);
    first.leads(true).await;
    let mut second = Program::start_as(&server, SECOND);
    second.answers("/readyz", "is ready", |code, _| code == 200).await;
    second.leads(false).await;
    node(0).join(&client).await.unwrap();
    nodes_are_right(&client, 1).await;
    (server, audit, client, first, second)
}

fn node(number: usize) -> SimulatedNode {
    SimulatedNode::server_2022(&format!("win-{number}")).without_label(names::WINDOWS_BUILD)
}

/// All writes except those of the Lease.
fn writes_of<'a>(user: &str, requests: &'a [AuditedRequest]) -> Vec<&'a AuditedRequest> {
    let writes = requests.iter().filter(|request| request.user == user && request.verb != "get");
    writes.filter(|request| request.resource != "leases").collect()
}

fn is_right(node: &Node) -> bool {
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    let labels = node.labels();
    labels.get(names::WINDOWS_BUILD).is_some_and(|build| build == "10.0.20348")
        && labels.contains_key(names::POOL)
        && taints.filter(|taint| taint.key == "os").count() == 1
}

async fn right_nodes(client: &Client) -> usize {
    let nodes: Api<Node> = Api::all(client.clone());
    nodes.list(&ListParams::default()).await.unwrap().iter().filter(|node| is_right(node)).count()
}

async fn nodes_are_right(client: &Client, count: usize) {
    let right = async || Ok((right_nodes(client).await == count).then_some(()));
    wait_for(&format!("{count} nodes are right"), LIMIT, right).await.unwrap();
}

async fn holder(client: &Client) -> Option<String> {
    let leases: Api<Lease> = Api::namespaced(client.clone(), "default");
    leases.get(names::LEASE).await.unwrap().spec?.holder_identity
}

#[tokio::test]
async fn a_standby_completes_the_work_of_a_killed_leader_without_double_writes() {
    const NODES: usize = 200;
    let (_server, audit, client, mut first, mut second) = two_programs().await;
    assert_eq!(writes_of(SECOND, &audit.requests()), Vec::<&AuditedRequest>::new(), "a standby writes nothing");

    let join = async |number: usize| node(number).join(&client).await.unwrap();
    let mut joins = stream::iter(1..=NODES).map(join).buffer_unordered(8);
    joins.by_ref().take(NODES / 2).for_each(async |_| ()).await;
    let begun = async || Ok((right_nodes(&client).await > NODES / 10).then_some(()));
    wait_for("the leader has written nodes", LIMIT, begun).await.unwrap();
    first.kill();
    let killed = Instant::now();
    joins.for_each(async |_| ()).await;

    let before = holder(&client).await;
    let taken_over = async || Ok(Some(holder(&client).await).filter(|now| *now != before));
    wait_for("the standby has the Lease", LIMIT, taken_over).await.unwrap();
    let taken_after = killed.elapsed();
    second.leads(true).await;
    nodes_are_right(&client, NODES + 1).await;
    println!("leader killed: Lease taken after {taken_after:?}, {NODES} nodes right after {:?}", killed.elapsed());
    let converged = r#"winpool_nodes{pool="default",build="10.0.20348",state="converged"}"#;
    let counts = |_, body: &str| sample(body, converged) == Some(201.0);
    second.answers("/metrics", "counts all nodes", counts).await;

    let requests = audit.requests();
    let (by_first, by_second) = (writes_of(FIRST, &requests), writes_of(SECOND, &requests));
    let last = by_first.iter().map(|request| request.received).max().unwrap();
    let next = by_second.iter().map(|request| request.received).min().unwrap();
    assert!(last < next, "one writes until {last}, the other from {next}");
    let mut patches: BTreeMap<&str, Vec<&AuditedRequest>> = BTreeMap::new();
    for patch in by_first.iter().chain(&by_second).filter(|request| request.resource == "nodes") {
        patches.entry(&patch.name).or_default().push(patch);
    }
    // It may have got its label before the pods were listed.
    patches.remove("win-0");
    assert_eq!(patches.len(), NODES);
    for (node, patches) in patches {
        let accepted = patches.iter().filter(|patch| patch.code == 200).count();
        // In flight when its sender was killed: the second process saw if it was executed.
        let interrupted = patches.iter().any(|patch| patch.user == FIRST && patch.code == 504);
        assert!(accepted == 1 || (accepted == 0 && interrupted), "{node}: {patches:#?}");
    }
    let nodes_of = |writes: &[&AuditedRequest]| writes.iter().filter(|request| request.resource == "nodes").count();
    println!("node writes: {} by the first, {} by the second", nodes_of(&by_first), nodes_of(&by_second));
    let classes = |writes: &[&AuditedRequest]| writes.iter().filter(|r| r.resource == "runtimeclasses").count();
    assert_eq!(classes(&by_first) + classes(&by_second), 1, "the class is made once");
}

#[tokio::test]
async fn a_standby_leads_at_once_after_the_leader_is_terminated() {
    let (_server, audit, client, mut first, mut second) = two_programs().await;
    assert_eq!(writes_of(SECOND, &audit.requests()), Vec::<&AuditedRequest>::new(), "a standby writes nothing");

    let told = Instant::now();
    first.tell_to_end();
    node(1).join(&client).await.unwrap();
    second.leads(true).await;
    let leads_after = told.elapsed();
    nodes_are_right(&client, 2).await;
    let right_after = told.elapsed();
    let status = first.ended().await;
    println!(
        "leader told to end: the standby leads after {leads_after:?}, a node that joined meanwhile is right after {right_after:?}"
    );
    assert_eq!(status.code(), Some(0), "{status}");
    assert!(told.elapsed() < Duration::from_secs(10), "a release is not waited for: {:?}", told.elapsed());

    assert_eq!(second.terminate().code(), Some(0));
    assert_eq!(holder(&client).await, None, "released");
}
