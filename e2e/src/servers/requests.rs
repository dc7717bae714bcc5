//! Metrics, and the requests to an API server by its metrics.

use crate::error::Result;
use kube::{Client, Config};
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// The resources that winpool reads and writes. The API server's own requests for Leases and Services are left out.
const RESOURCES: [&str; 5] = ["nodes", "pods", "runtimeclasses", "windowspools", "events"];

/// Numbers of requests by verb and resource: `PATCH nodes`, `PATCH windowspools/status`. Watches are left out: they count
/// when they end.
#[derive(Clone, Debug, Default)]
pub struct Requests(BTreeMap<String, u64>);

/// The metrics of the operator that listens on this address.
pub async fn scrape(address: SocketAddr) -> Result<String> {
    let url = format!("http://{address}").parse().map_err(http::Error::from)?;
    metrics(&Client::try_from(Config::new(url))?).await
}

async fn metrics(client: &Client) -> Result<String> {
    Ok(client.request_text(http::Request::get("/metrics").body(Vec::new())?).await?)
}

impl Requests {
    pub async fn until_now(client: &Client) -> Result<Self> {
        let text = metrics(client).await?;
        let mut counts = BTreeMap::new();
        for line in text.lines().filter_map(|line| line.strip_prefix("apiserver_request_total{")) {
            let Some((labels, value)) = line.rsplit_once("} ") else { continue };
            let label = |key: &str| {
                let (_, rest) = labels.split_once(&format!("{key}=\""))?;
                Some(rest.split_once('"')?.0)
            };
            // `resource` also ends `subresource`, so that comes first.
            let (Some(verb), Some(resource)) = (label("verb"), label(",resource")) else { continue };
            if verb == "WATCH" || !RESOURCES.contains(&resource) {
                continue;
            }
            let sub = label("subresource").filter(|sub| !sub.is_empty()).map(|sub| format!("/{sub}"));
            let key = format!("{verb} {resource}{}", sub.unwrap_or_default());
            *counts.entry(key).or_default() += value.parse::<f64>().map(to_count).unwrap_or_default();
        }
        Ok(Self(counts))
    }

    pub fn since(&self, earlier: &Self) -> Self {
        let new = |(key, count): (&String, &u64)| {
            let count = count.saturating_sub(earlier.of(key));
            (count > 0).then(|| (key.clone(), count))
        };
        Self(self.0.iter().filter_map(new).collect())
    }

    pub fn of(&self, key: &str) -> u64 {
        self.0.get(key).copied().unwrap_or_default()
    }

    /// Returns the number of writes of this resource, without its status.
    pub fn writes(&self, resource: &str) -> u64 {
        ["POST", "PUT", "PATCH", "APPLY", "DELETE"].iter().map(|verb| self.of(&format!("{verb} {resource}"))).sum()
    }

    pub fn total(&self) -> u64 {
        self.0.values().sum()
    }

    /// Formats them as `1000 PATCH nodes, 1 LIST pods`.
    pub fn text(&self) -> String {
        if self.0.is_empty() {
            return "none".to_owned();
        }
        self.0.iter().map(|(key, count)| format!("{count} {key}")).collect::<Vec<_>>().join(", ")
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "Prometheus writes counts as floats")]
fn to_count(value: f64) -> u64 {
    value as u64
}

/// The value of a sample, by its name and labels as in the text format: `winpool_pending_changes{pool="default"}`.
pub fn sample(metrics: &str, name: &str) -> Option<f64> {
    metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
}
