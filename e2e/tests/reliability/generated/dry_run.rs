//! winpool reads every pool that the API server accepts, and evaluates the rules as the API server does.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::{StreamExt, stream};
use k8s_openapi::api::node::v1::RuntimeClass;
use kube::api::PostParams;
use kube::{Api, Client};
use serde::Deserialize;
use serde_json::{Value, json};
use winpool::read::forecast::snapshot;
use winpool_analysis::crd::broken_rules;
use winpool_analysis::explain::forecast::forecast;
use winpool_analysis::view::{Known, View};
use winpool_core::plan::pools::pool::GuardedPool;
use winpool_e2e::machine::dice::Dice;
use winpool_e2e::scene::install_crd;
use winpool_e2e::servers::lending::lend;

use super::first;
use super::generator::Generator;

/// Requests in parallel.
const AT_A_TIME: usize = 8;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousands_of_generated_pools_are_refused_or_read_by_winpool_too() {
    judge(3_000).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes: make chaos-long"]
async fn a_hundred_thousand_pools_are_refused_or_read_by_winpool_too() {
    judge(100_000).await;
}

async fn judge(count: u64) {
    let server = lend().await.unwrap();
    let client = server.client();
    install_crd(&client).await.unwrap();
    let generator = Generator::new();
    let (accepted, refused) = (AtomicU64::new(0), AtomicU64::new(0));
    let (client, generator) = (&client, &generator);
    let faults = stream::iter(first()..first() + count).map(async |number| {
        let spec = generator.any(number);
        let counter = match ask(client, number, &spec).await {
            Ok(true) => &accepted,
            Ok(false) => &refused,
            Err(fault) => return Some(format!("WINPOOL_SEED={number}: {fault}\n  {}", shortened(&spec))),
        };
        counter.fetch_add(1, Ordering::Relaxed);
        None
    });
    let faults: Vec<String> = faults.buffer_unordered(AT_A_TIME).filter_map(async |fault| fault).collect().await;
    let (accepted, refused) = (accepted.into_inner(), refused.into_inner());
    println!("generated pools, dry run: {count} from {}: {refused} refused, {accepted} accepted", first());
    assert!(faults.is_empty(), "{} of {count}:\n{}", faults.len(), faults.join("\n"));
    assert!(accepted > count / 8 && refused > count / 8, "neither is rare: {accepted} accepted, {refused} refused");
}

/// True if the API server accepts it, or an error if its response is not as expected.
async fn ask(client: &Client, number: u64, spec: &Value) -> Result<bool, String> {
    let mut dice = Dice::new(number);
    let name = match dice.roll(20) {
        0 => "n".repeat(63),
        1 => "n".repeat(64),
        _ => "default".to_owned(),
    };
    let strict = dice.once_in(4);
    let pool = json!({
        "apiVersion": "winpool.dev/v1alpha1", "kind": "WindowsPool", "metadata": {"name": name}, "spec": spec,
    });
    let validation = if strict { "Strict" } else { "Ignore" };
    let path = format!("/apis/winpool.dev/v1alpha1/windowspools?dryRun=All&fieldValidation={validation}");
    let request = http::Request::post(path).header("Content-Type", "application/json");
    match client.request::<Value>(request.body(pool.to_string().into_bytes()).unwrap()).await {
        Ok(stored) => {
            let (pool, broken) = (GuardedPool::deserialize(&stored).unwrap(), broken_rules(&stored));
            match pool.read() {
                _ if !broken.is_empty() => Err(format!("accepted, but {}", broken.join("; "))),
                Ok(_) => classes_are_accepted(client, pool).await.map(|()| true),
                Err(invalid) => Err(format!("accepted, but {invalid}")),
            }
        }
        Err(kube::Error::Api(status)) => {
            let told = status.message.contains("spec") || status.message.contains("metadata.name");
            if !told || !matches!(status.code, 400 | 422) {
                return Err(format!("a refusal without a remedy: {} {}", status.code, status.message));
            }
            Ok(false)
        }
        Err(error) => Err(error.to_string()),
    }
}

/// The API server must accept the RuntimeClasses of the pool too.
async fn classes_are_accepted(client: &Client, pool: GuardedPool) -> Result<(), String> {
    let nowhere = snapshot(View { pools: Known::Complete(vec![(None, pool)]), ..View::default() });
    let classes: Api<RuntimeClass> = Api::all(client.clone());
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    for class in forecast(&nowhere).unwrap().classes.values() {
        if let Err(error) = classes.create(&dry_run, class).await {
            return Err(format!("accepted, but not its RuntimeClass: {error}"));
        }
    }
    Ok(())
}

fn shortened(spec: &Value) -> String {
    spec.to_string().chars().take(1500).collect()
}

/// The specs of the short run contain every field of the schema and exceed every limit.
#[test]
fn generated_pools_reach_every_field() {
    let generator = Generator::new();
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for number in 1..3_000 {
        count("spec", &generator.any(number), &mut seen);
    }
    let definition = json!(winpool_analysis::crd::crd());
    let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    let mut missing = Vec::new();
    fields("spec", schema, &mut |path| {
        if seen.get(&path).is_none_or(|count| *count < 20) {
            missing.push(path);
        }
    });
    assert_eq!(missing, Vec::<String>::new());
}

fn count(path: &str, value: &Value, seen: &mut BTreeMap<String, usize>) {
    *seen.entry(path.to_owned()).or_default() += 1;
    match value {
        Value::Array(items) => items.iter().for_each(|item| count(&format!("{path}[]"), item, seen)),
        Value::Object(members) => {
            members.iter().for_each(|(key, member)| count(&format!("{path}.{key}"), member, seen));
        }
        _ => {}
    }
}

fn fields(path: &str, schema: &Value, found: &mut impl FnMut(String)) {
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        fields(&path, property, found);
        found(path);
    }
    if schema["items"].is_object() {
        fields(&format!("{path}[]"), &schema["items"], found);
    }
}
