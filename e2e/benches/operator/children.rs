//! The bench's own child processes: the floor's clients, and measurements of memory.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::{StreamExt, TryStreamExt};
use json_patch::{Patch, PatchOperation};
use k8s_openapi::jiff::Timestamp;
use kube::api::{self, PatchParams, ValidationDirective};
use kube::core::ObjectList;
use kube::runtime::watcher;
use kube::{Api, Client, Config};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::io::AsyncBufReadExt;
use tokio::sync::Semaphore;
use winpool_client::node::ListedNode;
use winpool_client::pods::ListedPod;
use winpool_core::node::NodeObject;
use winpool_core::plan::Now;
use winpool_core::plan::nodes::assessment::assess;
use winpool_core::plan::nodes::{NodeEvent, NodeTable};
use winpool_core::plan::patch::node_patch;
use winpool_core::plan::pods::PodTable;
use winpool_core::plan::pools::pool::Policy;
use winpool_core::plan::taints::Consent;
use winpool_e2e::machine::usage::Usage;
use winpool_operator::Options;

use crate::Result;
use crate::objects::{self, PARALLEL, WINDOWS, each, policy};

/// Objects in one page of a list: the default of kube's watcher.
const PAGE: usize = 500;

/// Runs the child that the arguments name.
pub async fn run(arguments: &[String]) -> Result<()> {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["patch", spec] => patch(policy(spec)?, |patch| patch).await,
        ["smallest-patch", spec] => patch(policy(spec)?, smallest).await,
        ["watch", spec] => watch(policy(spec)?).await,
        ["cache", _] => cache().await,
        ["decode-nodes", count, node] => decode_nodes(count.parse()?, node),
        ["decode-pod-table", count, pod] => decode_pod_table(count.parse()?, pod),
        _ => Err(format!("no such child: {arguments:?}").into()),
    }
}

/// The operator's own client.
async fn client() -> Result<Client> {
    Ok(winpool_client::client::connect_with(Config::infer().await?, None, std::convert::identity)?)
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

type NodePatch = (String, Patch);

/// The patch that the operator would send.
fn patch_of(node: &NodeObject, policy: &Policy) -> Option<NodePatch> {
    let plan = assess(&node.node, policy, Consent::Given).plan;
    (!plan.is_empty()).then(|| (node.name.to_string(), node_patch(&node.uid, &node.node, &plan, policy)))
}

/// The same writes with the fewest tests by which no taint of others can be lost, and no other node be written.
fn smallest(mut patch: Patch) -> Patch {
    let is_needed = |path: &str| ["/metadata/uid", "/spec/taints"].contains(&path);
    patch.0.retain(|operation| match operation {
        PatchOperation::Test(test) => is_needed(test.path.as_str()),
        _ => true,
    });
    patch
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
        let parameters = PatchParams { field_validation: Some(ValidationDirective::Ignore), ..PatchParams::default() };
        self.nodes.patch_metadata(&name, &parameters, &api::Patch::<()>::Json(patch)).await?;
        Ok(())
    }
}

/// Prepares all patches before the clock starts, then sends them.
async fn patch(policy: Policy, change: fn(Patch) -> Patch) -> Result<()> {
    let (nodes, config) = nodes().await?;
    let mut patches = Vec::new();
    let mut events = watcher(nodes.clone(), config).boxed();
    while let Some(event) = events.try_next().await? {
        match event {
            watcher::Event::InitApply(listed) => {
                patches.extend(patch_of(&listed.object, &policy).map(|(name, patch)| (name, change(patch))));
            }
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
                let Some(patch) = patch_of(&listed.object, &policy) else { continue };
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
            watcher::Event::Apply(ListedNode { object: node, .. })
            | watcher::Event::InitApply(ListedNode { object: node, .. }) => {
                cached.insert(node.name.to_string(), node);
            }
            watcher::Event::InitDone => println!("ready"),
            watcher::Event::Init | watcher::Event::Delete(_) => {}
        }
    }
    Ok(())
}

/// Decodes generated nodes as the operator does, and shows them to its table.
fn decode_nodes(count: usize, template: &str) -> Result<()> {
    let (mut table, mut nodes) = (NodeTable::new(Duration::from_mins(10)), Vec::new());
    table.count_by(policy("{}")?, Instant::now());
    let idle = Usage::of_this_process()?.resident_mb;
    decode(template, count, |node: ListedNode| nodes.push(Arc::new(node.object)))?;
    let cached = Usage::of_this_process()?.resident_mb;
    table.observe(NodeEvent::Listed(nodes), Instant::now());
    let usage = Usage::of_this_process()?;
    let selected = table.tally("default").counts().selected;
    let each = (cached - idle) * 1e3 / f64::from(u32::try_from(count)?);
    let (bytes, cache, table) = (template.len(), cached - idle, usage.resident_mb - cached);
    let (resident, peak) = (usage.resident_mb, usage.peak_mb);
    print(&json!({
        "counted": selected, "bytes": bytes, "cache": cache, "each": each, "table": table, "resident": resident,
        "peak": peak,
    }));
    Ok(())
}

/// Decodes generated pods as the operator does, and shows them to its table.
fn decode_pod_table(count: usize, template: &str) -> Result<()> {
    let (mut table, now) = (PodTable::default(), Now { instant: Instant::now(), time: Timestamp::now() });
    let mut show = |pod: ListedPod| {
        table.see(&pod.pod, now);
        table.look(None, now.instant);
    };
    // The first page is not measured: its memory is used again.
    decode(template, PAGE, &mut show)?;
    let idle = Usage::of_this_process()?.resident_mb;
    let (decoding, taking) = decode(template, count, &mut show)?;
    let each = (decoding + taking) * 1e6 / f64::from(u32::try_from(count)?);
    let counted = table.placements().count();
    print(&json!({"counted": counted, "each": each, "table": Usage::of_this_process()?.resident_mb - idle}));
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
