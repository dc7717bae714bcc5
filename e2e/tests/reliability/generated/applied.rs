//! Generated pools under a running operator, one over the other: each comes to the same end as on a fresh cluster.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use k8s_openapi::api::node::v1::RuntimeClass;
use kube::{
    Client, ResourceExt,
    api::{DeleteParams, DynamicObject, ListParams, PostParams},
};
use serde_json::{Value, json};
use winpool_core::{
    api::{TaintPolicy, WindowsPool},
    explain::forecast::{Outcome, Snapshot, forecast},
    plan::{self, GuardedPool, Pool, WantedTaints},
};
use winpool_e2e::{
    Dice, SimulatedNode,
    harness::{
        APPLIED, Harness, POOL,
        schema::{loosen_schema, object, untyped},
    },
};

use crate::drift::{drift, look, no_drift, writes_stop, writes_within};

use super::{first, generator::Generator};

/// Each group of nodes has a pool of its own, so that many are tried at the same time.
const GROUPS: u64 = 10;
const GROUP: &str = "example.com/group";
const KERNELS: [&str; 4] = ["10.0.17763.6659", "10.0.20348.2655", "10.0.26100.4061", "10.0.29000.1"];
/// Changed tolerations hold up nodes for 5 seconds, each time. A taint that was held, because a class of that name was
/// another pool's then, is looked at again after a minute.
const LIMIT: Duration = Duration::from_secs(150);

#[tokio::test]
async fn generated_pools_come_to_the_same_end_over_others_as_on_a_fresh_cluster() {
    apply(3, Duration::from_secs(8)).await;
}

#[tokio::test]
#[ignore = "takes minutes: make chaos"]
async fn many_generated_pools_come_to_the_same_end_over_others_as_on_a_fresh_cluster() {
    // Longer than the operator waits before it looks at anything again.
    apply(60, Duration::from_secs(70)).await;
}

#[derive(Default)]
struct Tally {
    applied: usize,
    refused: usize,
    recreated: usize,
    compared_nodes: usize,
    compared_classes: usize,
    /// Rounds, and how long the slowest took.
    slowest: Duration,
}

async fn apply(rounds: u64, quiet: Duration) {
    let harness = Harness::unguarded().await;
    let client = &harness.client;
    join(client).await;
    let fresh = look(client).await;
    let operator = harness.operator().await;
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

    for group in 0..GROUPS {
        let spec = json!({
            "runtimeClassNameFormat": "windows-{version}-{pool}", "taintPolicy": "Always",
            "taints": [{"key": "os", "value": "windows", "effect": "NoSchedule"}],
        });
        put(client, group, &in_group(group, spec)).await.unwrap();
    }
    settled(client, "valid pools at last").await;
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

/// What an API server without any rule let in is no danger, and is forgotten once it is corrected.
#[tokio::test]
async fn generated_pools_that_were_stored_without_any_rule_harm_nothing() {
    let harness = Harness::unguarded().await;
    let client = &harness.client;
    join(client).await;
    let fresh = look(client).await;
    loosen_schema(client).await;
    let operator = harness.operator().await;
    for group in 0..GROUPS {
        put(client, group, &in_group(group, json!({}))).await.unwrap();
    }
    let (generator, mut invalid) = (Generator::new(), 0);
    for round in 0..4 {
        for group in 0..GROUPS {
            let number = first() + round * GROUPS + group;
            let spec = generator.any(number);
            // No object at all is refused even so.
            let spec = if spec.is_object() { spec } else { json!({"taints": spec}) };
            put(client, group, &spec).await.unwrap();
        }
        let when = format!("round {round}, WINPOOL_SEED={}", first() + round * GROUPS);
        settled(client, &when).await;
        invalid += look(client).await.pools.iter().filter(|pool| pool.read().is_err()).count();
    }
    for group in 0..GROUPS {
        let spec = json!({
            "runtimeClassNameFormat": "windows-{version}-{pool}", "taintPolicy": "Always",
            "taints": [{"key": "os", "value": "windows", "effect": "NoSchedule"}],
        });
        put(client, group, &in_group(group, spec)).await.unwrap();
    }
    settled(client, "valid pools at last").await;
    let mut tally = Tally::default();
    compare(client, &fresh, "valid pools at last", &mut tally).await;
    println!("generated pools, stored without rules: {} applied, {invalid} of them invalid", 4 * GROUPS);
    assert!(invalid > 10, "{invalid}");
    operator.stop().await;
}

async fn join(client: &Client) {
    for group in 0..GROUPS {
        for (number, kernel) in KERNELS.into_iter().enumerate() {
            let mut node =
                SimulatedNode::windows(kernel).name(&format!("win-{group}-{number}")).label(GROUP, &group.to_string());
            node = match number {
                // Both keys are none that a generated pool retires.
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

/// The pool of this group gets the spec of this number, if the API server takes it. Some are deleted before.
async fn step(client: &Client, group: u64, number: u64, generator: &Generator, tally: &mut Tally) {
    let mut spec = in_group(group, generator.plausible(number));
    // Few wait for a look at pods: there are none.
    if let Some(spec) = spec.as_object_mut() {
        spec.entry("taintPolicy").or_insert_with(|| json!("Always"));
    }
    let mut dice = Dice::new(number);
    let pools = untyped(client);
    // What a pool leaves behind on purpose is nobody's afterwards, and no fresh cluster has it.
    let old = pools.get(&name(group)).await.unwrap().data["spec"].take();
    let cleans_up = old["deletionPolicy"] != "Retain" && old["mode"] != "DryRun";
    if cleans_up && dice.once_in(8) {
        pools.delete(&name(group), &DeleteParams::default()).await.unwrap();
        let gone = async || Ok(pools.get_opt(&name(group)).await?.is_none().then_some(()));
        winpool_e2e::wait_for(&format!("{} is gone, WINPOOL_SEED={number}", name(group)), LIMIT, gone).await.unwrap();
        tally.recreated += 1;
    }
    match put(client, group, &spec).await {
        Ok(_) => tally.applied += 1,
        Err(kube::Error::Api(status)) if matches!(status.code, 400 | 422) => {
            tally.refused += 1;
            // One that was deleted comes back.
            if pools.get_opt(&name(group)).await.unwrap().is_none() {
                put(client, group, &in_group(group, json!({"taintPolicy": "Always"}))).await.unwrap();
            }
        }
        Err(error) => panic!("WINPOOL_SEED={number}: {error}\n{spec}"),
    }
}

/// Waits until the operator has reported every pool as it is now, all is as planned, and nobody writes any more.
async fn settled(client: &Client, when: &str) {
    let mut waiting = Vec::new();
    let reported = winpool_e2e::wait_for("every pool is reported", LIMIT, async || {
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

/// As these pools would find nodes that nobody has touched, and no class.
fn from_fresh(pools: Vec<GuardedPool>, fresh: &Snapshot) -> Outcome {
    let without_status = |guarded: GuardedPool| {
        let pool = guarded.pool.map(|pool| WindowsPool { status: None, ..pool });
        GuardedPool { pool, status: None, recorded: None, ..guarded }
    };
    let valid = pools.into_iter().filter(|pool| pool.read().is_ok());
    forecast(Snapshot { pools: valid.map(without_status).collect(), ..fresh.clone() })
}

/// Whether it comes to the same end whatever it did before. A pool that is in dry run now leaves that; taints that were put
/// on before are not held back; and without a list of taints any Windows taint will do, also one that the pool put on.
fn forgets(pool: &Pool) -> bool {
    pool.enforces() && pool.taint_policy != TaintPolicy::WhenTolerated && pool.taints != WantedTaints::Guard
}

/// Compares nodes and classes with those of a fresh cluster. A pool that is not valid leaves everything.
async fn compare(client: &Client, fresh: &Snapshot, when: &str, tally: &mut Tally) {
    let now = look(client).await;
    let valid = now.pools.iter().filter_map(|pool| pool.read().ok());
    let comparable: BTreeSet<String> = valid.filter(forgets).map(|pool| pool.name).collect();
    let expected = from_fresh(now.pools, fresh);
    let mut faults = Vec::new();
    for (name, node) in &now.nodes {
        let expected = &expected.nodes[name];
        let group = node.labels.get(GROUP).map(|group| format!("pool-{group}"));
        // A pool without a selector has nodes of other groups too.
        let owners = [node, expected].map(|node| node.labels.get(POOL).map(str::to_owned));
        if owners.into_iter().flatten().chain(group).all(|pool| comparable.contains(&pool)) {
            tally.compared_nodes += 1;
            let (found, expected) = (face_of_node(node), face_of_node(expected));
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
            // Two pools want the name, and one of them had it first.
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

async fn pools_as_they_are(client: &Client) -> Value {
    let pools = untyped(client).list(&ListParams::default()).await.unwrap();
    pools.iter().map(|pool| json!([pool.name_any(), pool.data])).collect()
}

/// What winpool can write to a node. The order of its taints tells in which order pools wanted them; and a node that was
/// once written keeps the name of its pool, with a note of no taints, where a node that was always right has neither.
fn face_of_node(node: &plan::Node) -> Value {
    let mut labels: BTreeMap<_, _> = node.labels.with_prefix("").collect();
    let taints: BTreeSet<String> = node.taints.taints().iter().map(ToString::to_string).collect();
    let applied = node.applied.as_deref().filter(|applied| !applied.ends_with(r#""taints":[]}"#));
    if applied.is_none() {
        labels.remove(POOL);
    }
    json!({"labels": labels, "taints": taints, "applied": applied})
}

/// The API server writes quantities in its own way.
fn face_of_class(class: &RuntimeClass) -> Value {
    let scheduling = class.scheduling.clone().unwrap_or_default();
    json!({
        "handler": class.handler, "labels": class.labels(), "applied": class.annotations().get(APPLIED),
        "nodeSelector": scheduling.node_selector.unwrap_or_default(), "tolerations": scheduling.tolerations.unwrap_or_default(),
    })
}
