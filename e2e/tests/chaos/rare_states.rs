//! An API server that answers a write late.

use std::net::{Ipv4Addr, SocketAddr};

use serde_json::json;
use winpool_e2e::harness::operator::{Operator, alone};
use winpool_e2e::machine::process::free_port;
use winpool_e2e::machine::wait::{LIMIT, wait_for};
use winpool_e2e::servers::faults::schedule::Fault;
use winpool_e2e::servers::requests::scrape;
use winpool_operator::Options;

use crate::stage::{Stage, hits};

/// The lines of `/metrics` about the pool.
async fn series_of_pool(address: SocketAddr) -> Result<Vec<String>, winpool_e2e::error::Error> {
    let text = scrape(address).await?;
    Ok(text.lines().filter(|line| line.contains("pool=\"default\"")).map(str::to_owned).collect())
}

#[tokio::test]
async fn the_duration_of_a_reconcile_does_not_include_the_time_before_its_pool_was_created() {
    let stage = Stage::new().await;
    let harness = &stage.harness;
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port().unwrap()));
    let operator = Operator::start_with(stage.config(), Options { listen: Some(address), ..alone() });
    harness.apply_until_ready(json!({})).await;
    // The answer never arrives, so this step ends after its time limit.
    stage.proxy.inject(hits("patch", "windowspools", 0..1, Fault::Mute));
    harness.delete_pool("default").await;
    harness.pool_is_gone("default").await;
    let has_none = async || Ok(series_of_pool(address).await?.is_empty().then_some(()));
    if let Err(error) = wait_for("the operator has seen the deletion", LIMIT, has_none).await {
        panic!("{error}: {:#?}", series_of_pool(address).await);
    }
    harness.apply_until_ready(json!({})).await;
    let text = scrape(address).await.unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let number = |start: &str| lines.iter().find_map(|line| line.strip_prefix(start)?.trim().parse::<u64>().ok());
    let all = number("winpool_reconcile_duration_seconds_count{controller=\"pool\"}").unwrap();
    let short = lines.iter().find_map(|line| {
        let is_it = line.starts_with("winpool_reconcile_duration_seconds_bucket{")
            && line.contains("controller=\"pool\"")
            && line.contains("le=\"5.0\"");
        line.rsplit(' ').next().filter(|_| is_it)?.parse::<u64>().ok()
    });
    assert_eq!(short, Some(all), "{lines:#?}");
    operator.stop().await;
}
