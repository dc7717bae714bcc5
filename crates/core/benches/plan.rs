//! Measures the pure core: one node, whole pools, builds. The targets are in docs/performance.md.
#![allow(clippy::expect_used, reason = "a bench fails by panicking")]

use std::collections::BTreeSet;
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use serde_json::json;
use winpool_core::api::{TaintPolicy, WindowsPool, WindowsPoolSpec, names};
use winpool_core::labels::Labels;
use winpool_core::node::{NodeFields, NodeObject, TaintList};
use winpool_core::plan::nodes::assessment::assess;
use winpool_core::plan::nodes::{NodeEvent, NodeTable};
use winpool_core::plan::patch::node_patch;
use winpool_core::plan::pools::pool::{Policy, Pool, PoolEntry};
use winpool_core::plan::taints::Consent;
use winpool_core::windows::compatibility::{WindowsHost, runs};
use winpool_core::windows::{Build, ContainerRuntime, KernelVersion};

const SIZES: [usize; 5] = [10, 100, 1000, 10_000, 100_000];

fn policy() -> Policy {
    policy_of(WindowsPoolSpec::default())
}

fn policy_of(spec: WindowsPoolSpec) -> Policy {
    let pool = WindowsPool::new("default", spec);
    let pool = Pool::read(&pool).expect("an empty pool is valid");
    Policy::new([PoolEntry { pool: Arc::new(pool), ready: true }], BTreeSet::new())
}

/// A node as its kubelet registers it, with the labels of a cloud.
fn new_node(number: usize) -> NodeFields {
    let mut labels: Vec<(String, String)> = (0..12)
        .map(|label| (format!("kubernetes.example.com/label-{label:02}"), format!("value-{label:02}")))
        .collect();
    let own = [(names::OS, "windows"), (names::WINDOWS_BUILD, "10.0.20348"), ("kubernetes.io/arch", "amd64")];
    labels.extend(own.map(|(key, value)| (key.to_owned(), value.to_owned())));
    labels.push(("kubernetes.io/hostname".to_owned(), format!("node-{number}")));
    NodeFields {
        labels: labels.into_iter().collect::<Labels>(),
        has_annotations: true,
        taints: Arc::new(TaintList::new(Some(vec![
            json!({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}),
        ]))),
        kernel_version: Some("10.0.20348.2655".into()),
        operating_system: Some("windows".into()),
        container_runtime: Some("containerd://1.7.17+azure".into()),
        ..NodeFields::default()
    }
}

/// The same node, converged.
fn right_node(number: usize) -> NodeFields {
    let node = new_node(number);
    let labels = ["kubernetes.io/arch", "kubernetes.io/hostname", names::OS, names::WINDOWS_BUILD];
    let own = labels.iter().filter_map(|key| Some(((*key).to_owned(), node.labels.get(key)?.to_owned())));
    let rest =
        node.labels.with_prefix("kubernetes.example.com/").map(|(key, value)| (key.to_owned(), value.to_owned()));
    let pool = [(names::POOL.to_owned(), "default".to_owned())];
    NodeFields {
        labels: own.chain(rest).chain(pool).collect(),
        applied: Some(r#"{"pool":"default","taints":["os=windows:NoSchedule"]}"#.into()),
        taints: Arc::new(TaintList::new(Some(vec![json!({"key": "os", "value": "windows", "effect": "NoSchedule"})]))),
        ..node
    }
}

fn one_node(criterion: &mut Criterion) {
    let policy = policy();
    let (new, right) = (new_node(0), right_node(0));
    let plan = assess(&new, &policy, Consent::Given).plan;
    assert!(
        !plan.is_empty() && assess(&right, &policy, Consent::Given).plan.is_empty(),
        "one has to be written and one has not"
    );
    criterion.bench_function("plan one node that is right", |b| {
        b.iter(|| assess(black_box(&right), &policy, Consent::Given));
    });
    criterion
        .bench_function("plan one node that is new", |b| b.iter(|| assess(black_box(&new), &policy, Consent::Given)));
    criterion
        .bench_function("the patch of a new node", |b| b.iter(|| node_patch("u", black_box(&new), &plan, &policy)));
}

/// Every tenth node has to be written.
fn pool(criterion: &mut Criterion) {
    let policy = policy();
    let mut group = criterion.benchmark_group("pool");
    for size in SIZES {
        let nodes: Vec<NodeFields> =
            (0..size).map(|number| if number % 10 == 0 { new_node(number) } else { right_node(number) }).collect();
        group.throughput(Throughput::Elements(u64::try_from(size).unwrap_or(u64::MAX)));
        group.bench_with_input(BenchmarkId::from_parameter(size), &nodes, |b, nodes| {
            b.iter(|| nodes.iter().filter(|node| !assess(node, &policy, Consent::Given).plan.is_empty()).count());
        });
    }
    group.finish();
}

/// All nodes are counted again, because the policy has changed: this happens a few times until a new pool is Ready.
fn recount(criterion: &mut Criterion) {
    const NODES: usize = 10_000;
    let never = WindowsPoolSpec { taint_policy: TaintPolicy::Never, ..WindowsPoolSpec::default() };
    let policies = [policy(), policy_of(never)];
    let (mut table, now) = (NodeTable::new(Duration::from_mins(10)), Instant::now());
    let object = |number: usize| NodeObject {
        name: format!("node-{number}").into(),
        uid: number.to_string().into(),
        resource_version: "1".into(),
        node: new_node(number),
        other_writer: None,
    };
    table.observe(NodeEvent::Listed((0..NODES).map(|number| Arc::new(object(number))).collect()), now);
    let mut group = criterion.benchmark_group("count nodes again");
    group.throughput(Throughput::Elements(u64::try_from(NODES).unwrap_or(u64::MAX)));
    let mut policies = policies.iter().cycle();
    group.bench_function(NODES.to_string(), |b| {
        b.iter(|| table.count_by(policies.next().expect("a cycle has no end").clone(), now));
    });
    group.finish();
}

/// One node has changed, so the numbers of its pool are computed again when a status is due.
fn numbers(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("numbers after an event");
    for size in [1000, 5000, 15_000] {
        let (mut table, now) = (NodeTable::new(Duration::from_mins(10)), Instant::now());
        table.count_by(policy(), now);
        let object = |number: usize, node: NodeFields| {
            let name = format!("node-{number}").into();
            let (uid, resource_version) = (number.to_string().into(), "1".into());
            Arc::new(NodeObject { name, uid, resource_version, node, other_writer: None })
        };
        table.observe(NodeEvent::Listed((1..size).map(|number| object(number, right_node(number))).collect()), now);
        let mut changes = [object(0, new_node(0)), object(0, right_node(0))].into_iter().cycle();
        for (what, is_due) in [("the event alone", false), ("and a status is due", true)] {
            group.bench_function(format!("{size} nodes, {what}"), |b| {
                b.iter(|| {
                    table.observe(NodeEvent::Seen(changes.next().expect("a cycle has no end")), now);
                    is_due.then(|| table.tally("default").counts())
                });
            });
        }
    }
    group.finish();
}

fn builds(criterion: &mut Criterion) {
    for (name, text) in
        [("kernelVersion of today", "10.0.20348.2655"), ("kernelVersion that is none", "6.12.48+deb13-amd64")]
    {
        criterion.bench_function(name, |b| b.iter(|| black_box(text).parse::<KernelVersion>().ok()));
    }
    let (host, image) = (Build::new(26100), Build::new(20348));
    let runtime: ContainerRuntime = "containerd://2.0.4+azure".parse().expect("a runtime");
    criterion.bench_function("process isolation", |b| {
        let host = WindowsHost { build: host, runtime: Some(runtime) };
        b.iter(|| runs(image, black_box(host)));
    });
}

/// Enough to show differences of a few per cent within a minute.
fn configured() -> Criterion {
    Criterion::default()
        .sample_size(30)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2))
}

criterion_group! {
    name = core;
    config = configured();
    targets = one_node, pool, recount, numbers, builds
}
criterion_main!(core);
