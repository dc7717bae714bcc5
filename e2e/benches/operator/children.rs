//! What this program does as a child of itself: the bare clients, and whatever needs a process for its memory.

use crate::Result;
use crate::fleet;
use crate::stage::{WINDOWS, policy};
use futures::{StreamExt, TryStreamExt};
use json_patch::Patch as JsonPatch;
use kube::api::{ListParams, Patch, PatchParams};
use kube::core::ObjectList;
use kube::runtime::{WatchStreamExt, reflector, watcher};
use kube::{Api, Client, Config};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Instant;
use tokio::io::AsyncBufReadExt;
use tokio::sync::Semaphore;
use winpool::Options;
use winpool::index::Index;
use winpool::node::CachedNode;
use winpool::pod::{ListedPod, list_unfinished};
use winpool_core::api::Taint;
use winpool_core::plan::{self, Policy, assess, node_patch, stranded};
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
        ["pages"] => pages_of_pods().await,
        ["look"] => look().await,
        ["decode-nodes", count] => decode_nodes(count.parse()?),
        ["decode-pods", count] => decode_pods(count.parse()?),
        _ => Err(format!("no such child: {arguments:?}").into()),
    }
}

/// The operator's own client.
async fn client() -> Result<Client> {
    Ok(winpool::client::connect(Config::infer().await?, None)?)
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
    let plan = assess(&node.seen, policy).plan;
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

/// All unfinished pods in pages, only received: what the look at them costs at least.
async fn pages_of_pods() -> Result<()> {
    let client = client().await?;
    client.apiserver_version().await?;
    let before = Instant::now();
    let mut bytes = 0;
    let mut token = String::new();
    loop {
        let path = format!(
            "/api/v1/pods?limit={PAGE}&fieldSelector=status.phase%21%3DSucceeded%2Cstatus.phase%21%3DFailed&continue={token}"
        );
        let text = client.request_text(http::Request::get(path).body(Vec::new())?).await?;
        bytes += text.len();
        // The token stands in the first few hundred bytes.
        let next = text.split_once(r#""continue":""#).and_then(|(_, rest)| rest.split_once('"'));
        match next {
            Some((next, _)) => next.clone_into(&mut token),
            None => break,
        }
    }
    print_json(&json!({"seconds": before.elapsed().as_secs_f64(), "bytes": bytes}));
    Ok(())
}

/// What the operator does before a pool's first taint: all unfinished pods are listed, and judged.
async fn look() -> Result<()> {
    let client = client().await?;
    client.apiserver_version().await?;
    let idle = Usage::own()?;
    let before = Instant::now();
    let pods = list_unfinished(&Api::<ListedPod>::all(client)).await?;
    let result = judge(&pods);
    let seconds = before.elapsed().as_secs_f64();
    result_of_look(&pods, result, seconds, idle)
}

fn judge(pods: &[plan::Pod]) -> (usize, f64) {
    let before = Instant::now();
    let workloads = stranded(pods, |node| node.starts_with(fleet::NAME), &[Taint::os_windows()]).len();
    (workloads, before.elapsed().as_secs_f64())
}

fn result_of_look(pods: &[plan::Pod], judged: (usize, f64), seconds: f64, idle: Usage) -> Result<()> {
    let usage = Usage::own()?;
    print_json(&json!({
        "seconds": seconds, "judging": judged.1, "pods": pods.len(), "workloads": judged.0,
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
    index.judge_by(&policy("{}")?, || reader.state());
    let usage = Usage::own()?;
    print_json(&json!({
        "nodes": index.totals("default").counts().selected, "bytes": template.len(),
        "megabytes": cached.resident_mb - idle.resident_mb, "index": usage.resident_mb - cached.resident_mb,
        "resident": usage.resident_mb, "peak": usage.peak_mb,
    }));
    Ok(())
}

/// Decodes pages of generated pods as the operator does, and judges them.
fn decode_pods(count: usize) -> Result<()> {
    let template = fleet::served_pod()?;
    let idle = Usage::own()?;
    let mut pods: Vec<plan::Pod> = Vec::new();
    let mut decoding = 0.0;
    each_generated(count, |page| {
        let text = page_of("PodList", &template, page);
        let before = Instant::now();
        let list: ObjectList<ListedPod> = serde_json::from_str(&text)?;
        pods.extend(list.items.into_iter().map(plan::Pod::from));
        decoding += before.elapsed().as_secs_f64();
        Ok(())
    })?;
    let judged = judge(&pods);
    result_of_look(&pods, judged, decoding + judged.1, idle)
}

fn each_generated(count: usize, mut page: impl FnMut(std::ops::Range<usize>) -> Result<()>) -> Result<()> {
    let size = PAGE as usize;
    (0..count).step_by(size).try_for_each(|start| page(start..(start + size).min(count)))
}

/// A page of objects that differ as those of a cluster do: by name, uid and whatever else is numbered.
fn page_of(kind: &str, template: &str, numbers: std::ops::Range<usize>) -> String {
    let items: Vec<String> = numbers.map(|number| template.replace(fleet::NUMBER, &format!("{number:06}"))).collect();
    let items = items.join(",");
    format!(r#"{{"kind":"{kind}","apiVersion":"v1","metadata":{{"resourceVersion":"1"}},"items":[{items}]}}"#)
}

fn print_json(value: &Value) {
    println!("{value}");
}
