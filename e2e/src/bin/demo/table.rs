//! A table of the nodes with their labels, taints and pods.

use crate::Result;
use k8s_openapi::api::core::v1::{Node, Pod, Taint};
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use std::collections::BTreeMap;
use winpool_e2e::nodes::simulated::WINDOWS_BUILD;
use winpool_e2e::servers::cluster::Cluster;

type Row = [String; 5];

/// Prints one line per node.
pub async fn show(cluster: &Cluster) -> Result<()> {
    let everything = ListParams::default();
    let nodes = Api::<Node>::all(cluster.client()).list(&everything).await?;
    let pods = Api::<Pod>::default_namespaced(cluster.client()).list(&everything).await?.items;
    let header = ["NODE", "SYSTEM", "WINDOWS-BUILD", "TAINTS", "PODS"].map(str::to_owned);
    let rows = nodes.iter().map(|node| row(node, &pods));
    print_aligned(&[header].into_iter().chain(rows).collect::<Vec<_>>());
    Ok(())
}

fn row(node: &Node, pods: &[Pod]) -> Row {
    let info = node.status.as_ref().and_then(|status| status.node_info.as_ref());
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    [
        node.name_any(),
        info.map(|info| info.os_image.clone()).unwrap_or_default(),
        node.labels().get(WINDOWS_BUILD).cloned().unwrap_or_default(),
        taints.map(written).collect::<Vec<_>>().join(","),
        pods_of(node, pods),
    ]
    .map(|cell| if cell.is_empty() { "-".to_owned() } else { cell })
}

fn written(taint: &Taint) -> String {
    let Taint { key, value, effect, .. } = taint;
    value.as_ref().map_or_else(|| format!("{key}:{effect}"), |value| format!("{key}={value}:{effect}"))
}

/// `iis-2019, linux-web x2`: by Deployment, from the label `app`.
fn pods_of(node: &Node, pods: &[Pod]) -> String {
    let name = node.name_any();
    let on_node = pods.iter().filter(|pod| {
        let bound_to = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
        bound_to == Some(name.as_str()) && pod.metadata.deletion_timestamp.is_none()
    });
    let mut numbers: BTreeMap<String, usize> = BTreeMap::new();
    for pod in on_node {
        let app = pod.labels().get("app").cloned().unwrap_or_else(|| pod.name_any());
        *numbers.entry(app).or_default() += 1;
    }
    let written = |(app, number)| if number == 1 { app } else { format!("{app} x{number}") };
    numbers.into_iter().map(written).collect::<Vec<_>>().join(", ")
}

fn print_aligned(rows: &[Row]) {
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or_default();
    let widths: [usize; 5] = std::array::from_fn(width);
    println!();
    for row in rows {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        println!("{}", cells.collect::<Vec<_>>().join("  ").trim_end());
    }
    println!();
}
