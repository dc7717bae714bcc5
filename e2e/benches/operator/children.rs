//! The bench's own child processes: the floor's clients, and measurements of memory.

use crate::Result;
use crate::objects::{self, PARALLEL, PODS_PER_DEPLOYMENT, PODS_PER_NODE, WINDOWS, each, policy};
use futures::{StreamExt, TryStreamExt};
use kube::api::{Patch, PatchParams};
use kube::core::ObjectList;
use kube::runtime::watcher;
use kube::{Api, Client, Config};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Instant;
use tokio::io::AsyncBufReadExt;
use tokio::sync::Semaphore;
use winpool::{
    Options,
    cache::{
        index::Index,
        node::{CachedNode, ListedNode},
    },
    controllers::pool::check::everything,
};
use winpool_core::{
    api::Taint,
    plan::{CheckAnswer, CheckScope, Consent, KnownNode, Policy, Question, WorkloadCheck, assess, node_patch},
    pod::{LISTED_KINDS, Pod, Workload, WorkloadKind},
};
use winpool_e2e::Usage;

/// Objects in one page of a list: the default of kube's watcher.
const PAGE: usize = 500;

/// Runs the child that the arguments name.
pub async fn run(arguments: &[String]) -> Result<()> {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["patch", spec] => patch(policy(spec)?).await,
        ["watch", spec] => watch(policy(spec)?).await,
        ["cache", _] => cache().await,
        ["pages", _] => pages().await,
        ["check", pods] => check(pods.parse()?).await,
        ["decode-nodes", count, node] => decode_nodes(count.parse()?, node),
        ["decode-pods", count, pod, deployment] => decode_pods(count.parse()?, pod, deployment),
        _ => Err(format!("no such child: {arguments:?}").into()),
    }
}

/// The operator's own client.
async fn client() -> Result<Client> {
    Ok(winpool::api_server::client::connect(Config::infer().await?, None)?)
}

async fn nodes() -> Result<(Api<ListedNode>, watcher::Config)> {
    Ok((Api::all(client().await?), watcher::Config::default().labels(WINDOWS)))
}

/// Waits for the parent's signal. Ends with an error if the parent is gone.
async fn until_go() -> Result<()> {
    let mut line = String::new();
    tokio::io::BufReader::new(tokio::io::stdin()).read_line(&mut line).await?;
    if line == "go\n" { Ok(()) } else { Err("the parent is gone".into()) }
}

type NodePatch = (String, json_patch::Patch);

/// The patch that the operator would send.
fn patch_of(node: &CachedNode, policy: &Policy) -> Option<NodePatch> {
    let plan = assess(&node.seen, policy, Consent::Given).plan;
    (!plan.is_empty()).then(|| (node.name().to_owned(), node_patch(node.uid(), &node.seen, &plan, policy)))
}

/// Sends patches as the operator does: in parallel up to its limit, and only the metadata is sent back.
#[derive(Clone)]
struct Sender {
    nodes: Api<ListedNode>,
    slots: Arc<Semaphore>,
}

impl Sender {
    fn new(nodes: Api<ListedNode>) -> Self {
        Self { nodes, slots: Arc::new(Semaphore::new(Options::DEFAULT_CONCURRENCY.into())) }
    }

    async fn send(self, (name, patch): NodePatch) -> Result<()> {
        let _slot = self.slots.acquire().await?;
        self.nodes.patch_metadata(&name, &PatchParams::default(), &Patch::<()>::Json(patch)).await?;
        Ok(())
    }
}

/// Prepares all patches before the clock starts, then sends them.
async fn patch(policy: Policy) -> Result<()> {
    let (nodes, config) = nodes().await?;
    let mut patches = Vec::new();
    let mut events = watcher(nodes.clone(), config).boxed();
    while let Some(event) = events.try_next().await? {
        match event {
            watcher::Event::InitApply(listed) => patches.extend(patch_of(&listed.node, &policy)),
            watcher::Event::InitDone => break,
            _ => {}
        }
    }
    drop(events);
    println!("ready");
    until_go().await?;
    let sender = Sender::new(nodes);
    each(PARALLEL, patches, async |patch| tokio::spawn(sender.clone().send(patch)).await?).await?;
    println!("done");
    until_go().await
}

/// Patches each node that needs it as soon as its event arrives.
async fn watch(policy: Policy) -> Result<()> {
    let (nodes, config) = nodes().await?;
    println!("ready");
    until_go().await?;
    let sender = Sender::new(nodes.clone());
    let mut events = watcher(nodes, config).boxed();
    while let Some(event) = events.try_next().await? {
        match event {
            watcher::Event::Apply(listed) | watcher::Event::InitApply(listed) => {
                let Some(patch) = patch_of(&listed.node, &policy) else { continue };
                let send = sender.clone().send(patch);
                tokio::spawn(async move { send.await.inspect_err(|error| eprintln!("bench: {error}")) });
            }
            watcher::Event::InitDone => println!("done"),
            watcher::Event::Init | watcher::Event::Delete(_) => {}
        }
    }
    Ok(())
}

/// Keeps a cache of the nodes and does nothing else.
async fn cache() -> Result<()> {
    let (nodes, config) = nodes().await?;
    let mut cached = HashMap::new();
    let mut events = watcher(nodes, config).boxed();
    while let Some(event) = events.try_next().await? {
        match event {
            watcher::Event::Apply(ListedNode { node, .. }) | watcher::Event::InitApply(ListedNode { node, .. }) => {
                cached.insert(node.name().to_owned(), node);
            }
            watcher::Event::InitDone => println!("ready"),
            watcher::Event::Init | watcher::Event::Delete(_) => {}
        }
    }
    Ok(())
}

/// Receives everything that a workload check lists, and decodes nothing.
async fn pages() -> Result<()> {
    let client = client().await?;
    client.apiserver_version().await?;
    let before = Instant::now();
    for (_, group, plural) in LISTED_KINDS {
        let api = if group.is_empty() { "api/v1".to_owned() } else { format!("apis/{group}/v1") };
        receive(&client, &format!("/{api}/{plural}?")).await?;
    }
    receive(&client, "/api/v1/pods?fieldSelector=status.phase%21%3DSucceeded%2Cstatus.phase%21%3DFailed&").await?;
    print(&json!({"seconds": before.elapsed().as_secs_f64()}));
    Ok(())
}

async fn receive(client: &Client, path: &str) -> Result<()> {
    let mut token = String::new();
    loop {
        let path = format!("{path}limit={PAGE}&continue={token}");
        let text = client.request_text(http::Request::get(path).body(Vec::new())?).await?;
        // The token is in the first few hundred bytes.
        match text.split_once(r#""continue":""#).and_then(|(_, rest)| rest.split_once('"')) {
            Some((next, _)) => next.clone_into(&mut token),
            None => return Ok(()),
        }
    }
}

/// Runs the operator's workload check on the API server.
async fn check(pods: usize) -> Result<()> {
    let client = client().await?;
    client.apiserver_version().await?;
    let idle = Usage::own()?;
    let before = Instant::now();
    let answers = everything(&client, check_of(pods)?).await?;
    print_answers(&answers, before.elapsed().as_secs_f64(), 0.0, idle)
}

/// A check of the nodes of these pods, with a taint that no pod tolerates: every pod counts.
fn check_of(pods: usize) -> Result<WorkloadCheck> {
    let node = |number: usize| KnownNode {
        name: objects::node_name(number).into(),
        uid: format!("uid-{number}").into(),
        labels: [("kubernetes.io/os", "windows")].into_iter().collect(),
        taints: Vec::new(),
    };
    let nodes: Vec<KnownNode> = (0..pods.div_ceil(PODS_PER_NODE)).map(node).collect();
    let question = Question {
        pool: "default".to_owned(),
        taint: Taint::new("example.com/measured", "", "NoSchedule"),
        candidates: (0..nodes.len()).collect(),
        enforces: true,
    };
    let scope = CheckScope { nodes, questions: vec![question], ..CheckScope::default() };
    WorkloadCheck::start(scope).ok_or_else(|| "the check has no question".into())
}

fn print_answers(answers: &BTreeMap<String, CheckAnswer>, seconds: f64, judging: f64, idle: Usage) -> Result<()> {
    let counted: usize = answers.values().flat_map(|answer| answer.unschedulable.values()).sum();
    let peak = Usage::own()?.peak_mb - idle.resident_mb;
    print(&json!({"seconds": seconds, "judging": judging, "counted": counted, "peak": peak}));
    Ok(())
}

/// Decodes generated Deployments and pods, and hands them to a workload check.
fn decode_pods(count: usize, pod: &str, deployment: &str) -> Result<()> {
    let idle = Usage::own()?;
    let mut check = check_of(count)?;
    let add = |workload: Workload| check.workload(WorkloadKind::Deployment, &workload);
    let deployments = decode(deployment, count.div_ceil(PODS_PER_DEPLOYMENT), add)?;
    let pods = decode(pod, count, |pod: Pod| check.pod(&pod))?;
    let before = Instant::now();
    let answers = check.finish();
    let judging = deployments.1 + pods.1 + before.elapsed().as_secs_f64();
    print_answers(&answers, deployments.0 + pods.0 + judging, judging, idle)
}

/// Decodes generated nodes into the operator's cache, and counts them in its index.
fn decode_nodes(count: usize, template: &str) -> Result<()> {
    let (index, mut nodes) = (Index::default(), Vec::new());
    index.judge_by(policy("{}")?);
    let idle = Usage::own()?.resident_mb;
    decode(template, count, |node: CachedNode| nodes.push(Arc::new(node)))?;
    let cached = Usage::own()?.resident_mb;
    index.replace(&nodes);
    let usage = Usage::own()?;
    let selected = index.tally("default").counts().selected;
    let each = (cached - idle) * 1e3 / f64::from(u32::try_from(count)?);
    let (bytes, cache, index) = (template.len(), cached - idle, usage.resident_mb - cached);
    let (resident, peak) = (usage.resident_mb, usage.peak_mb);
    print(&json!({
        "counted": selected, "bytes": bytes, "cache": cache, "each": each, "index": index, "resident": resident,
        "peak": peak,
    }));
    Ok(())
}

/// Decodes pages of generated objects and hands over each. Returns the seconds for decoding and for handing over.
fn decode<K: Clone + DeserializeOwned>(template: &str, count: usize, mut take: impl FnMut(K)) -> Result<(f64, f64)> {
    let (mut decoding, mut taking) = (0.0, 0.0);
    for start in (0..count).step_by(PAGE) {
        let numbers = start..(start + PAGE).min(count);
        let items: Vec<String> = numbers.map(|number| objects::numbered(template, number)).collect();
        let text = format!(r#"{{"metadata":{{"resourceVersion":"1"}},"items":[{}]}}"#, items.join(","));
        let before = Instant::now();
        let list: ObjectList<K> = serde_json::from_str(&text)?;
        let decoded = Instant::now();
        list.items.into_iter().for_each(&mut take);
        decoding += (decoded - before).as_secs_f64();
        taking += decoded.elapsed().as_secs_f64();
    }
    Ok((decoding, taking))
}

fn print(value: &Value) {
    println!("{value}");
}
