//! Waiting for conditions.

use crate::error::{Error, Result};
use std::time::{Duration, Instant};

/// Short at first, because most conditions become true within a few milliseconds.
const FIRST: Duration = Duration::from_millis(20);
/// Later fewer requests, because others need the processors.
const LONGEST: Duration = Duration::from_millis(80);

/// The limit for any condition in a simulated cluster, on a machine that has nothing else to do.
pub const LIMIT: Duration = Duration::from_secs(30);

/// Polls until `probe` returns a value. After `limit`, or a multiple of it while the machine is [`busy`], the error names the
/// condition.
///
/// An error of the probe ends the wait.
///
/// ```no_run
/// # use winpool_e2e::error::Result;
/// # use winpool_e2e::machine::wait::{LIMIT, wait_for};
/// # async fn example(nodes: kube::Api<k8s_openapi::api::core::v1::Node>) -> Result<()> {
/// let node = wait_for("node a is there", LIMIT, async || Ok(nodes.get_opt("a").await?)).await?;
/// # Ok(()) }
/// ```
pub async fn wait_for<T>(what: &str, limit: Duration, mut probe: impl AsyncFnMut() -> Result<Option<T>>) -> Result<T> {
    let started = Instant::now();
    loop {
        if let Some(value) = probe().await? {
            return Ok(value);
        }
        if started.elapsed() >= limit && started.elapsed() >= limit * busy() {
            return Err(Error::Timeout { what: what.to_owned(), limit, seen: String::new() });
        }
        tokio::time::sleep((started.elapsed() / 10).clamp(FIRST, LONGEST)).await;
    }
}

/// How many tasks share each processor of this machine, by the load of the last minute: at least one. They need that many times as
/// long.
pub fn busy() -> u32 {
    let load = std::fs::read_to_string("/proc/loadavg").ok();
    let load = load.and_then(|load| load.split('.').next()?.parse::<usize>().ok()).unwrap_or_default();
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    u32::try_from(load.div_ceil(processors)).unwrap_or(u32::MAX).clamp(1, 10)
}
