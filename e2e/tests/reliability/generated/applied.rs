//! Generated pools with a running operator, one after the other: each leads to the same state as on a new cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use k8s_openapi::api::node::v1::RuntimeClass;
use kube::api::{DeleteParams, DynamicObject, ListParams, PostParams};
use kube::{Client, ResourceExt};
use serde::Deserialize;
use serde_json::{Value, json};
use winpool_analysis::explain::forecast::{ForecastOutcome, Snapshot, forecast};
use winpool_core::api::{TaintPolicy, WindowsPool};
use winpool_core::node::NodeFields;
use winpool_core::plan::pools::pool::{GuardedPool, Pool, WantedTaints};
use winpool_e2e::harness::operator::Operator;
use winpool_e2e::harness::schema::{loosen_schema, object, untyped};
use winpool_e2e::harness::{APPLIED, Harness, POOL};
use winpool_e2e::machine::dice::Dice;
use winpool_e2e::nodes::simulated::SimulatedNode;

use crate::drift::{drift, look, no_drift, writes_stop, writes_within};

use super::first;
use super::generator::Generator;

/// Each group of nodes has its own pool, so that many pools are tested in parallel.
const GROUPS: u64 = 10;
const GROUP: &str = "example.com/group";
/// The rounds without validation.
const ROUNDS: u64 = 4;
const KERNELS: [&str; 4] = ["10.0.17763.6659", "10.0.20348.2655", "10.0.26100.4061", "10.0.29000.1"];
/// Each change of tolerations delays nodes for 5 seconds. A taint that was held because another pool owned the class is
/// checked again after a minute.
const LIMIT: Duration = Duration::from_secs(150);

#[tokio::test]
async fn generated_pools_lead_to_the_same_state_with_and_without_a_history() {
    apply(3, Duration::from_secs(8)).await;
}

#[tokio::test]
#[ignore = "takes minutes: make chaos-long"]
async fn many_generated_pools_lead_to_the_same_state_with_and_without_a_history() {
    // Longer than any pause of the operator.
    apply(60, Duration::from_secs(70)).await;
}

#[derive(Default)]
struct Tally {
    applied: usize,
    refused: usize,
    recreated: usize,
    compared_nodes: usize,
    compared_classes: usize,
    /// The number of rounds, and the duration of the slowest.
    slowest: Duration,
}

async fn apply(rounds: u64, quiet: Duration) {
    let harness = Harness::unguarded().await;
    let client = &harness.client;
    join(client).await;
    let fresh = look(client).await;
    let operator = Operator::unhurried(harness.account.config.clone());
    let (generator, mut tally) = (Generator::new(), Tally::default());
    for group in 0..GROUPS {
        put(client, group, &in_group(group, json!({}))).await.unwrap();
    }
    for round in 0..rounds {
        let numbers = (0..GROUPS).map(|group| (group, first() + round * GROUPS + group));
        let began = Instant::now();
        for (group, number) in numbers {
            step(client, group, number, &generator, &mut tally).await;
        }
        let when = format!("round {round}, WINPOOL_SEED={}", first() + round * GROUPS);
        settled(client, &when).await;
        tally.slowest = tally.slowest.max(began.elapsed());
        compare(client, &fresh, &when, &mut tally).await;
    }

    put_valid_pools(client).await;
    for group in 0..GROUPS {
        harness.ready(&name(group)).await;
    }
    let before = tally.compared_nodes;
    compare(client, &fresh, "valid pools at last", &mut tally).await;
    assert_eq!(tally.compared_nodes - before, KERNELS.len() * usize::try_from(GROUPS).unwrap(), "all is healed");
    assert_eq!(writes_within(client, quiet).await, "", "nothing is left to do");
    operator.stop().await;
    let Tally { applied, refused, recreated, compared_nodes, compared_classes, slowest } = tally;
    println!(
        "generated pools, applied: {rounds} rounds of {GROUPS} from {}: {applied} applied ({recreated} of them deleted \
         first), {refused} refused; as on a fresh cluster: {compared_nodes} nodes, {compared_classes} RuntimeClasses; \
         slowest round {slowest:?}",
        first()
    );
    assert!(applied > refused, "{applied} applied, {refused} refused");
}

/// Pools that were stored without validation do no harm, and leave no trace once they are corrected.
#[tokio::test]
async fn generated_pools_that_were_stored_without_validation_do_no_harm() {
    let harness = Harness::unguarded().await;
    let client = &harness.client;
    join(client).await;
    let fresh = look(client).await;
    let specs = without_validation(client).await;
    loosen_schema(client).await;
    let operator = Operator::unhurried(harness.account.config.clone());
    for group in 0..GROUPS {
        put(client, group, &in_group(group, json!({}))).await.unwrap();
    }
    let mut invalid = 0;
    for (round, specs) in (0..ROUNDS).zip(specs.chunks(usize::try_from(GROUPS).unwrap())) {
        for (group, spec) in (0..GROUPS).zip(specs) {
            put(client, group, spec).await.unwrap();
        }
        settled(client, &format!("round {round}, WINPOOL_SEED={}", first())).await;
        invalid += look(client).await.pools.iter().filter(|pool| pool.read().is_err()).count();
    }
    put_valid_pools(client).await;
    let mut tally = Tally::default();
    compare(client, &fresh, "valid pools at last", &mut tally).await;
    println!("generated pools, stored without rules: {} applied, {invalid} of them invalid", ROUNDS * GROUPS);
    assert!(invalid > 10, "{invalid}");
    operator.stop().await;
}

/// Specs that no rule has checked. Those are left out that winpool reads and the API server refuses: it refuses what winpool
/// writes for them too, so that they never settle.
async fn without_validation(client: &Client) -> Vec<Value> {
    let (generator, pools, mut specs) = (Generator::new(), untyped(client), Vec::new());
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    for number in first().. {
        if specs.len() as u64 == ROUNDS * GROUPS {
            break;
        }
        let spec = generator.any(number);
        // The API server refuses a spec that is not an object even without rules.
        let spec = if spec.is_object() { spec } else { json!({"taints": spec}) };
        let pool = object("probe", &spec);
        let is_read = GuardedPool::deserialize(json!(pool)).unwrap().read().is_ok();
        if !is_read || pools.create(&dry_run, &pool).await.is_ok() {
            specs.push(spec);
        }
    }
    specs
}

async fn join(client: &Client) {
    for group in 0..GROUPS {
        for (number, kernel) in KERNELS.into_iter().enumerate() {
            let mut node =
                SimulatedNode::windows(kernel).name(&format!("win-{group}-{number}")).label(GROUP, &group.to_string());
            node = match number {
                // No generated pool retires these keys.
                0 => node.taint("kubernetes.azure.com/scalesetpriority", "spot", "NoExecute").label("team", "a"),
                1 => node.taint("kubernetes.io/os", "windows", "NoSchedule").label("tier", "b"),
                _ => node.label("team", "b"),
            };
            node.join(client).await.unwrap();
        }
    }
}

fn name(group: u64) -> String {
    format!("pool-{group}")
}

fn in_group(group: u64, mut spec: Value) -> Value {
    if let Some(spec) = spec.as_object_mut() {
        let selector = spec.entry("nodeSelector").or_insert_with(|| json!({}));
        if let Some(selector) = selector.as_object_mut() {
            selector.insert(GROUP.to_owned(), json!(group.to_string()));
        }
    }
    spec
}

/// Replaces the spec of every pool by a valid one, and waits until the writes stop.
async fn put_valid_pools(client: &Client) {
    for group in 0..GROUPS {
        let spec = json!({
            "runtimeClassNameFormat": "windows-{version}-{pool}", "taintPolicy": "TaintOnly",
            "taints": [{"key": "os", "value": "windows", "effect": "NoSchedule"}],
        });
        put(client, group, &in_group(group, spec)).await.unwrap();
    }
    settled(client, "valid pools at last").await;
}

/// Creates the pool, or replaces its whole spec.
async fn put(client: &Client, group: u64, spec: &Value) -> kube::Result<DynamicObject> {
    let (pools, name) = (untyped(client), name(group));
    loop {
        let Some(current) = pools.get_opt(&name).await? else {
            return pools.create(&PostParams::default(), &object(&name, spec)).await;
        };
        let mut pool = object(&name, spec);
        pool.metadata = current.metadata;
        pool.metadata.managed_fields = None;
        match pools.replace(&name, &PostParams::default(), &pool).await {
            // The operator wrote its status.
            Err(kube::Error::Api(status)) if status.is_conflict() => {}
            result => return result,
        }
    }
}

/// Applies the spec with this number to the pool of this group, if the API server accepts it. Some pools are deleted first.
async fn step(client: &Client, group: u64, number: u64, generator: &Generator, tally: &mut Tally) {
    let mut spec = in_group(group, generator.plausible(number));
    // Only taints that mean Windows may have another policy.
    if let Some(spec) = spec.as_object_mut() {
        spec.entry("taintPolicy").or_insert_with(|| json!("TaintOnly"));
    }
    let mut dice = Dice::new(number);
    let pools = untyped(client);
    // A new cluster does not have what a pool retains.
    let old = pools.get(&name(group)).await.unwrap().data["spec"].take();
    let cleans_up = old["deletionPolicy"] != "Retain" && old["mode"] != "DryRun";
    if cleans_up && dice.once_in(8) {
        pools.delete(&name(group), &DeleteParams::default()).await.unwrap();
        let gone = async || Ok(pools.get_opt(&name(group)).await?.is_none().then_some(()));
        winpool_e2e::machine::wait::wait_for(&format!("{} is gone, WINPOOL_SEED={number}", name(group)), LIMIT, gone)
            .await
            .unwrap();
        tally.recreated += 1;
    }
    match put(client, group, &spec).await {
        Ok(_) => tally.applied += 1,
        Err(kube::Error::Api(status)) if matches!(status.code, 400 | 422) => {
            tally.refused += 1;
            // It recreates a deleted pool.
            if pools.get_opt(&name(group)).await.unwrap().is_none() {
                put(client, group, &in_group(group, json!({"taintPolicy": "TaintOnly"}))).await.unwrap();
            }
        }
        Err(error) => panic!("WINPOOL_SEED={number}: {error}\n{spec}"),
    }
}

/// Waits until the status of every pool is current, everything is as planned, and the writes have stopped.
async fn settled(client: &Client, when: &str) {
    let mut waiting = Vec::new();
    let reported = winpool_e2e::machine::wait::wait_for("every pool is reported", LIMIT, async || {
        let pools = untyped(client).list(&ListParams::default()).await?;
        let current =
            |pool: &&DynamicObject| pool.data["status"]["observedGeneration"] == json!(pool.metadata.generation);
        waiting = pools.iter().filter(|pool| !current(pool)).map(|pool| json!([pool.name_any(), pool.data])).collect();
        Ok(waiting.is_empty().then_some(()))
    });
    reported.await.unwrap_or_else(|error| panic!("{when}: {error}: {:#}", json!(waiting)));
    no_drift(client, LIMIT, when).await;
    writes_stop(client, Duration::from_millis(1500), LIMIT, when).await;
    assert_eq!(drift(client).await, Vec::<String>::new(), "{when}: it stays so");
}

/// The cluster as these pools would plan it for new nodes and without classes.
fn from_fresh(pools: Vec<GuardedPool>, fresh: &Snapshot) -> ForecastOutcome {
    let valid = pools.into_iter().filter(|pool| pool.read().is_ok()).filter_map(|pool| pool.pool().ok().cloned());
    let without_status = valid.map(|pool| GuardedPool::from(WindowsPool { status: None, ..pool }));
    forecast(&Snapshot { pools: without_status.collect(), ..fresh.clone() }).unwrap()
}

/// True if the history does not matter. In `DryRun` a pool leaves earlier changes, earlier taints are not
/// held, and without a list of taints any Windows taint is accepted, including the pool's earlier one.
fn forgets(pool: &Pool) -> bool {
    pool.spec.enforces()
        && pool.spec.taint_policy != TaintPolicy::TaintAndTolerate
        && pool.spec.wants != Some(WantedTaints::Guard)
}

/// Compares nodes and classes with those of a new cluster. An invalid pool changes nothing.
async fn compare(client: &Client, fresh: &Snapshot, when: &str, tally: &mut Tally) {
    let now = look(client).await;
    let valid = now.pools.iter().filter_map(|pool| pool.read().ok());
    let comparable: BTreeSet<String> = valid.filter(forgets).map(|pool| pool.spec.name.clone()).collect();
    let expected = from_fresh(now.pools, fresh);
    let mut faults = Vec::new();
    for (name, node) in &now.nodes {
        let expected = &expected.nodes[name];
        let group = node.labels.get(GROUP).map(|group| format!("pool-{group}"));
        // A pool without a selector has nodes of other groups too.
        let owners = [node, expected].map(|node| node.labels.get(POOL).map(str::to_owned));
        if owners.into_iter().flatten().chain(group).all(|pool| comparable.contains(&pool)) {
            tally.compared_nodes += 1;
            let (found, expected) = (face_of_node(&without_older_facts(node, expected)), face_of_node(expected));
            if found != expected {
                faults.push(format!("Node/{name}: found {found}\n  on a fresh cluster {expected}"));
            }
        }
    }
    let found: BTreeMap<String, &RuntimeClass> =
        now.classes.iter().map(|class| (class.name_any(), class.as_ref())).collect();
    for (name, class) in &expected.classes {
        let owner = |class: &RuntimeClass| class.labels().get(POOL).cloned();
        match found.get(name) {
            // Two pools want the name, and the first one owns it.
            Some(found) if owner(found) != owner(class) => {}
            Some(class) if owner(class).is_some_and(|pool| !comparable.contains(&pool)) => {}
            Some(found) => {
                tally.compared_classes += 1;
                let (found, expected) = (face_of_class(found), face_of_class(class));
                if found != expected {
                    faults.push(format!("RuntimeClass/{name}: found {found}\n  on a fresh cluster {expected}"));
                }
            }
            None => faults.push(format!("RuntimeClass/{name} is missing")),
        }
    }
    assert!(faults.is_empty(), "{when}:\n{}\nof the pools {:#}", faults.join("\n"), pools_as_they_are(client).await);
}

/// The node without the capability labels that a new cluster would not have. They stay while they are true.
fn without_older_facts(node: &NodeFields, expected: &NodeFields) -> NodeFields {
    let older = node.labels.with_prefix("runs.winpool.dev/").filter(|(key, _)| expected.labels.get(key).is_none());
    NodeFields {
        labels: winpool_simulation::request::labels(&node.labels, older.map(|(key, _)| (key, None))),
        ..node.clone()
    }
}

async fn pools_as_they_are(client: &Client) -> Value {
    let pools = untyped(client).list(&ListParams::default()).await.unwrap();
    pools.iter().map(|pool| json!([pool.name_any(), pool.data])).collect()
}

/// The fields of a node that winpool can write. The order of taints and the marks without taints depend on the history.
fn face_of_node(node: &NodeFields) -> Value {
    let mut labels: BTreeMap<_, _> = node.labels.with_prefix("").collect();
    let taints: BTreeSet<String> = node.taints.taints().iter().map(ToString::to_string).collect();
    let applied = node.applied.as_deref().filter(|applied| !applied.ends_with(r#""taints":[]}"#));
    if applied.is_none() {
        labels.remove(POOL);
    }
    json!({"labels": labels, "taints": taints, "applied": applied})
}

/// The API server normalizes quantities.
fn face_of_class(class: &RuntimeClass) -> Value {
    let scheduling = class.scheduling.clone().unwrap_or_default();
    json!({
        "handler": class.handler, "labels": class.labels(), "applied": class.annotations().get(APPLIED),
        "nodeSelector": scheduling.node_selector.unwrap_or_default(), "tolerations": scheduling.tolerations.unwrap_or_default(),
    })
}
