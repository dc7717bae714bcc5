//! Explains a node.

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use winpool_core::explain::{
    forecast::forecast,
    node::{NodeStory, UNOWNED, node_story, policy_of},
    status::unread,
};

use crate::cli::{
    Common, Error,
    cluster::Cluster,
    live,
    output::{BOLD, GOOD, Table, Text, WARN},
    plan::{changes_text, snapshot},
};

pub(super) async fn why(name: &str, common: &Common) -> Result<NodeStory, Error> {
    let (mut cluster, found) = if common.origin.files.is_empty() {
        let client = common.origin.connection.client().await?;
        let nodes: Api<Node> = Api::all(client.clone());
        let found = live::get("nodes", &nodes, name).await?;
        (Cluster::live(&client).await?, found)
    } else {
        let cluster = Cluster::from_manifests(&common.origin.files)?;
        let mut nodes = cluster.nodes.iter().chain(&cluster.other_nodes);
        let found = nodes.find(|node| node.name() == name).cloned();
        (cluster, found)
    };
    let node = found.ok_or_else(|| Error::NotFound { kind: "Node", name: name.to_owned() })?;
    cluster.nodes.retain(|other| other.name() != name);
    cluster.nodes.push(node.clone());
    let classes = cluster.classes.clone();
    let snapshot = snapshot(cluster);
    for text in unread(&snapshot) {
        live::note(&text);
    }
    let policy = policy_of(&snapshot.pools);
    let outcome = live::during("computing what the operator would do", || forecast(snapshot));
    Ok(node_story(name, &node.seen, &policy, &classes, &outcome))
}

pub(super) fn text(story: &NodeStory) -> Text {
    let mut text = Text::new();
    let is = if story.state == UNOWNED { "belongs to no WindowsPool" } else { &format!("is {}", story.state) };
    text.styled("", BOLD, &format!("Node {} {is}", story.node));
    if let Some(build) = &story.build {
        let product = story.product.as_deref().unwrap_or("a build that this release has no name for");
        let support = story.end_of_support.as_ref().map_or_else(String::new, |day| format!("; supported until {day}"));
        text.paragraph("  ", &format!("{build}, {product}{support}"));
    }
    for reason in &story.reasons {
        text.paragraph("  ", reason);
    }
    if !story.taints.is_empty() {
        let mut table = Table::new(&["TAINT", "FROM"]);
        for taint in &story.taints {
            table.row([&taint.taint, &taint.origin]);
        }
        text.gap().table(&table);
    }
    let classes = if story.runtime_classes.is_empty() { "none".to_owned() } else { story.runtime_classes.join(", ") };
    text.gap().paragraph("", &format!("RuntimeClasses that lead to it: {classes}"));
    text.gap();
    if story.changes.is_empty() {
        text.styled("", GOOD, "The operator would change nothing.");
    } else {
        text.styled("", WARN, "The operator would change:");
    }
    changes_text(&mut text, &story.changes);
    text
}
