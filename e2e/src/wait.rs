//! Waiting for conditions.

use crate::{Error, Result};
use std::time::{Duration, Instant};

/// Short, because most conditions become true within a few milliseconds.
const INTERVAL: Duration = Duration::from_millis(20);

/// The limit for any condition in a simulated cluster.
pub const LIMIT: Duration = Duration::from_secs(30);

/// Polls until `probe` returns a value. After `limit` the error names the condition.
///
/// An error of the probe ends the wait.
///
/// ```no_run
/// # use winpool_e2e::{wait_for, LIMIT, Result};
/// # async fn example(nodes: kube::Api<k8s_openapi::api::core::v1::Node>) -> Result<()> {
/// let node = wait_for("node a is there", LIMIT, async || Ok(nodes.get_opt("a").await?)).await?;
/// # Ok(()) }
/// ```
pub async fn wait_for<T>(what: &str, limit: Duration, mut probe: impl AsyncFnMut() -> Result<Option<T>>) -> Result<T> {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(value) = probe().await? {
            return Ok(value);
        }
        if Instant::now() >= deadline {
            return Err(Error::Timeout { what: what.to_owned(), limit, seen: String::new() });
        }
        tokio::time::sleep(INTERVAL).await;
    }
}
