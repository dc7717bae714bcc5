//! What this program does as a child of itself: the bare clients, and whatever needs a process for its memory.

use crate::{
    Result, fleet,
    stage::{WINDOWS, policy},
};
use futures::{StreamExt, TryStreamExt};
use json_patch::Patch as JsonPatch;
use kube::api::{ListParams, Patch, PatchParams};
use kube::core::ObjectList;
use kube::runtime::{WatchStreamExt, reflector, watcher};
use kube::{Api, Client, Config};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;
use tokio::io::AsyncBufReadExt;
use tokio::sync::Semaphore;
use winpool::{
    Options,
    api_server::pods::{ListedPod, ListedWorkload},
    cache::{index::Index, node::CachedNode},
    controllers::pool::check::everything,
};
use winpool_core::{
    api::Taint,
    plan::{CheckAnswer, CheckScope, Consent, KnownNode, Policy, Question, WorkloadCheck, assess, node_patch},
    pod::{LISTED_KINDS, WorkloadKind},
};
use winpool_e2e::Usage;

/// Objects in one page of a list, as kube's watcher asks for them if nothing is said.
const PAGE: u32 = 500;

/// Does what these arguments say.
pub async fn run(arguments: &[String]) -> Result<()> {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["patch", spec] => patch_all(&policy(spec)?).await,
        ["join", spec] => watch_and_patch(policy(spec)?).await,
        ["watch"] => watch().await,
        ["list"] => list().await,
        ["pages"] => pages().await,
        ["look", pods] => look(pods.parse()?).await,
        ["decode-nodes", count] => decode_nodes(count.parse()?),
        ["decode-pods", count] => decode_pods(count.parse()?),
        _ => Err(format!("no such child: {arguments:?}").into()),
    }
}

/// The operator's own client.
async fn client() -> Result<Client> {
    Ok(winpool::api_server::client::connect(Config::infer().await?, None)?)
}

fn say(word: &str) {
    println!("{word}");
}

/// Waits for the parent's word; without a parent it ends.
async fn until_go() -> Result<()> {
    let mut line = String::new();
    tokio::io::BufReader::new(tokio::io::stdin()).read_line(&mut line).await?;
    if line == "go\n" { Ok(()) } else { Err("the parent is gone".into()) }
}

/// The very patch that the operator would send.
fn patch_of(node: &CachedNode, policy: &Policy) -> Option<JsonPatch> {
    let plan = assess(&node.seen, policy, Consent::Given).plan;
    (!plan.is_empty()).then(|| node_patch(node.uid(), &node.seen, &plan, policy))
}

/// Like the operator, it has only the metadata sent back.
async fn send(nodes: &Api<CachedNode>, name: &str, patch: JsonPatch) -> Result<()> {
    nodes.patch_metadata(name, &PatchParams::default(), &Patch::<()>::Json(patch)).await?;
    Ok(())
}

/// All patches are made before the clock starts. Then they are sent, as many at a time as the operator sends.
async fn patch_all(policy: &Policy) -> Result<()> {
    let nodes: Api<CachedNode> = Api::all(client().await?);
    let mut patches = Vec::new();
    each_page(&nodes, &ListParams::default().labels(WINDOWS), |node: CachedNode| {
        patches.extend(patch_of(&node, policy).map(|patch| (node.name().to_owned(), patch)));
    })
    .await?;
    say("ready");
    until_go().await?;
    let patches = Arc::new(std::sync::Mutex::new(patches.into_iter()));
    let workers = (0..Options::DEFAULT_CONCURRENCY).map(|_| {
        let (nodes, patches) = (nodes.clone(), Arc::clone(&patches));
        tokio::spawn(async move {
            loop {
                let next = patches.lock().map_err(|_| "a worker panicked")?.next();
                let Some((name, patch)) = next else { return Result::Ok(()) };
                send(&nodes, &name, patch).await?;
            }
        })
    });
    for worker in workers.collect::<Vec<_>>() {
        worker.await??;
    }
    say("done");
    until_go().await
}

/// Patches each node that needs it as soon as its event comes, first come, first served.
async fn watch_and_patch(policy: Policy) -> Result<()> {
    let nodes: Api<CachedNode> = Api::all(client().await?);
    say("ready");
    until_go().await?;
    let slots = Arc::new(Semaphore::new(Options::DEFAULT_CONCURRENCY.into()));
    let mut events = watcher(nodes.clone(), watcher::Config::default().labels(WINDOWS)).boxed();
    while let Some(event) = events.try_next().await? {
        let node = match event {
            watcher::Event::Apply(node) | watcher::Event::InitApply(node) => node,
            watcher::Event::InitDone => {
                say("watching");
                continue;
            }
            watcher::Event::Init | watcher::Event::Delete(_) => continue,
        };
        let Some(patch) = patch_of(&node, &policy) else { continue };
        let (nodes, slots) = (nodes.clone(), Arc::clone(&slots));
        tokio::spawn(async move {
            let _slot = slots.acquire_owned().await;
            if let Err(error) = send(&nodes, node.name(), patch).await {
                eprintln!("bench: node {}: {error}", node.name());
            }
        });
    }
    Ok(())
}

/// A cache and nothing else.
async fn watch() -> Result<()> {
    let nodes: Api<CachedNode> = Api::all(client().await?);
    let (reader, writer) = reflector::store();
    let mut events = watcher(nodes, watcher::Config::default().labels(WINDOWS)).reflect(writer).boxed();
    while let Some(event) = events.try_next().await? {
        if matches!(event, watcher::Event::InitDone) {
            say("watching");
        }
    }
    drop(reader);
    Ok(())
}

/// All nodes in pages, decoded and dropped.
async fn list() -> Result<()> {
    let nodes: Api<CachedNode> = Api::all(client().await?);
    each_page(&nodes, &ListParams::default().labels(WINDOWS), |_: CachedNode| ()).await?;
    say("done");
    until_go().await
}

async fn each_page<K>(api: &Api<K>, parameters: &ListParams, mut take: impl FnMut(K)) -> Result<()>
where
    K: Clone + DeserializeOwned + std::fmt::Debug,
{
    let mut parameters = parameters.clone().limit(PAGE);
    loop {
        let page = api.list(&parameters).await?;
        page.items.into_iter().for_each(&mut take);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => parameters = parameters.continue_token(&token),
            None => return Ok(()),
        }
    }
}

/// Everything that a workload check lists, in pages that are only received: what it costs at least.
async fn pages() -> Result<()> {
    let client = client().await?;
    client.apiserver_version().await?;
    let before = Instant::now();
    let mut bytes = 0;
    for (_, group, version, plural) in LISTED_KINDS {
        let api = if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") };
        bytes += receive(&client, &format!("/{api}/{plural}?")).await?;
    }
    let unfinished = "/api/v1/pods?fieldSelector=status.phase%21%3DSucceeded%2Cstatus.phase%21%3DFailed&";
    bytes += receive(&client, unfinished).await?;
    print_json(&json!({"seconds": before.elapsed().as_secs_f64(), "bytes": bytes}));
    Ok(())
}

async fn receive(client: &Client, path: &str) -> Result<usize> {
    let (mut bytes, mut token) = (0, String::new());
    loop {
        let path = format!("{path}limit={PAGE}&continue={token}");
        let text = client.request_text(http::Request::get(path).body(Vec::new())?).await?;
        bytes += text.len();
        // The token stands in the first few hundred bytes.
        let next = text.split_once(r#""continue":""#).and_then(|(_, rest)| rest.split_once('"'));
        match next {
            Some((next, _)) => next.clone_into(&mut token),
            None => return Ok(bytes),
        }
    }
}

/// The operator's own workload check, on the API server.
async fn look(pods: usize) -> Result<()> {
    let client = client().await?;
    client.apiserver_version().await?;
    let idle = Usage::own()?;
    let before = Instant::now();
    let answers = everything(&client, check_of(pods)?).await?;
    print_look(&answers, before.elapsed().as_secs_f64(), 0.0, idle)
}

/// A check of the nodes of so many pods, about a taint that none of them tolerates: every pod is counted.
fn check_of(pods: usize) -> Result<WorkloadCheck> {
    let node = |number: usize| KnownNode {
        name: fleet::name(number).into(),
        uid: format!("uid-{number}").into(),
        labels: [("kubernetes.io/os", "windows")].into_iter().collect(),
        taints: Vec::new(),
    };
    let nodes: Vec<KnownNode> = (0..pods.div_ceil(fleet::PODS_OF_A_NODE)).map(node).collect();
    let question = Question {
        pool: "default".to_owned(),
        taint: Taint::new("example.com/measured", "", "NoSchedule"),
        candidates: (0..nodes.len()).collect(),
        enforces: true,
    };
    let scope = CheckScope { nodes, questions: vec![question], ..CheckScope::default() };
    WorkloadCheck::start(scope).ok_or_else(|| "no question is asked".into())
}

fn print_look(answers: &BTreeMap<String, CheckAnswer>, seconds: f64, judging: f64, idle: Usage) -> Result<()> {
    let usage = Usage::own()?;
    let counted = || answers.values().flat_map(|answer| answer.unschedulable.values());
    print_json(&json!({
        "seconds": seconds, "judging": judging, "pods": counted().sum::<usize>(), "workloads": counted().count(),
        "megabytes": usage.peak_mb - idle.resident_mb, "peak": usage.peak_mb,
    }));
    Ok(())
}

/// Decodes pages of generated nodes, as they come from an API server, into the operator's cache.
fn decode_nodes(count: usize) -> Result<()> {
    let (reader, mut writer) = reflector::store::<CachedNode>();
    let template = fleet::served_node()?;
    let idle = Usage::own()?;
    writer.apply_watcher_event(&watcher::Event::Init);
    each_generated(count, |page| {
        let list: ObjectList<CachedNode> = serde_json::from_str(&page_of("NodeList", &template, page))?;
        for node in list.items {
            writer.apply_watcher_event(&watcher::Event::InitApply(node));
        }
        Ok(())
    })?;
    writer.apply_watcher_event(&watcher::Event::InitDone);
    let cached = Usage::own()?;
    let index = Index::default();
    index.judge_by(policy("{}")?, || reader.state());
    let usage = Usage::own()?;
    print_json(&json!({
        "nodes": index.tally("default").counts().selected, "bytes": template.len(),
        "megabytes": cached.resident_mb - idle.resident_mb, "index": usage.resident_mb - cached.resident_mb,
        "resident": usage.resident_mb, "peak": usage.peak_mb,
    }));
    Ok(())
}

/// Decodes pages of generated Deployments and pods as the operator does, and hands them to a workload check.
fn decode_pods(count: usize) -> Result<()> {
    let (pod, deployment) = (fleet::served_pod()?, fleet::served_deployment()?);
    let deployments = count.div_ceil(fleet::PODS_OF_A_DEPLOYMENT);
    let idle = Usage::own()?;
    let mut check = check_of(count)?;
    let add = |listed: ListedWorkload| check.workload(WorkloadKind::Deployment, &listed.workload);
    let first = hand_over("DeploymentList", &deployment, deployments, add)?;
    let last = hand_over("PodList", &pod, count, |listed: ListedPod| check.pod(&listed.pod))?;
    let before = Instant::now();
    let answers = check.finish();
    let judging = first.judging + last.judging + before.elapsed().as_secs_f64();
    print_look(&answers, first.decoding + last.decoding + judging, judging, idle)
}

/// Seconds.
#[derive(Default)]
struct Took {
    decoding: f64,
    judging: f64,
}

/// Decodes generated pages and hands over what is in them.
fn hand_over<K>(kind: &str, template: &str, count: usize, mut judge: impl FnMut(K)) -> Result<Took>
where
    K: Clone + DeserializeOwned,
{
    let mut took = Took::default();
    each_generated(count, |page| {
        let text = page_of(kind, template, page);
        let before = Instant::now();
        let list: ObjectList<K> = serde_json::from_str(&text)?;
        let decoded = Instant::now();
        list.items.into_iter().for_each(&mut judge);
        took.decoding += (decoded - before).as_secs_f64();
        took.judging += decoded.elapsed().as_secs_f64();
        Ok(())
    })?;
    Ok(took)
}

fn each_generated(count: usize, mut page: impl FnMut(std::ops::Range<usize>) -> Result<()>) -> Result<()> {
    let size = PAGE as usize;
    (0..count).step_by(size).try_for_each(|start| page(start..(start + size).min(count)))
}

/// A page of objects that differ as those of a cluster do: by name, uid and whatever else is numbered.
fn page_of(kind: &str, template: &str, numbers: std::ops::Range<usize>) -> String {
    let items: Vec<String> = numbers.map(|number| fleet::numbered(template, number)).collect();
    let items = items.join(",");
    format!(r#"{{"kind":"{kind}","apiVersion":"v1","metadata":{{"resourceVersion":"1"}},"items":[{items}]}}"#)
}

fn print_json(value: &Value) {
    println!("{value}");
}
