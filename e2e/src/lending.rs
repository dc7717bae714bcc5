//! API servers and clusters for the tests of one binary, all on one etcd.

use crate::Result;
use crate::api_server::{ApiServer, PODS_WITHOUT_SERVICE_ACCOUNTS};
use crate::cluster::{Cluster, Flags};
use crate::emptying::Baseline;
use crate::etcd::Etcd;
use crate::go::progress;
use kube::Client;
use std::ops::Deref;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The number of idle API servers that are kept. `cargo test` runs as many tests in parallel as there are
/// cores; each server takes 265 MB.
const IDLE: usize = 2;

/// An API server that can be lent repeatedly, with its initial objects.
struct Lendable {
    server: ApiServer,
    baseline: Baseline,
}

static IDLE_SERVERS: Mutex<Vec<Arc<Lendable>>> = Mutex::new(Vec::new());

/// An API server for one test: no other test uses it, and it has only the objects of a new cluster.
///
/// Stop everything that writes to it before this is dropped.
pub struct Lent {
    client: Client,
    lendable: Arc<Lendable>,
}

/// Lends an API server with an empty state: one that another test has used and that was emptied, or a new one. See
/// [`ApiServer::start`] for the effects of a missing controller manager.
pub async fn lend() -> Result<Lent> {
    while let Some(lendable) = take_idle() {
        match emptied(&lendable).await {
            Ok(client) => return Ok(Lent { client, lendable }),
            // Printed, because each new server costs two seconds.
            Err(error) => progress(&format!("an API server is thrown away: {error}")),
        }
    }
    let server = ApiServer::start(&shared_etcd().await?, &fresh_prefix()).await?;
    let client = server.connect()?;
    let baseline = Baseline::of(&client).await?;
    let lendable = Arc::new(Lendable { server, baseline });
    Ok(Lent { client, lendable })
}

/// Starts an API server with more flags, on the same etcd as the lent ones. It serves one test and is then stopped.
pub async fn lend_with(flags: &[&str]) -> Result<ApiServer> {
    let mut all = vec![PODS_WITHOUT_SERVICE_ACCOUNTS];
    all.extend_from_slice(flags);
    ApiServer::start_with(&shared_etcd().await?, &fresh_prefix(), &all).await
}

/// Starts a whole cluster for one test, on the same etcd as the lent API servers. It is stopped afterwards, because
/// its controllers have state of their own.
pub async fn lend_cluster() -> Result<Cluster> {
    lend_cluster_with(Flags::default()).await
}

/// The same with more flags.
pub async fn lend_cluster_with(flags: Flags<'_>) -> Result<Cluster> {
    Cluster::start_on(&shared_etcd().await?, &fresh_prefix(), flags).await
}

impl Lent {
    /// A client of an administrator.
    pub fn client(&self) -> Client {
        self.client.clone()
    }
}

impl Deref for Lent {
    type Target = ApiServer;

    fn deref(&self) -> &ApiServer {
        &self.lendable.server
    }
}

/// After a failed test the server stops, and its logs are shown.
impl Drop for Lent {
    fn drop(&mut self) {
        let mut idle_servers = idle_servers();
        if !std::thread::panicking() && idle_servers.len() < IDLE {
            idle_servers.push(Arc::clone(&self.lendable));
        }
    }
}

async fn emptied(lendable: &Lendable) -> Result<Client> {
    lendable.server.check()?;
    let client = lendable.server.connect()?;
    lendable.baseline.restore(&client).await?;
    Ok(client)
}

/// The only etcd of this process. The guard stops it.
async fn shared_etcd() -> Result<Arc<Etcd>> {
    static ETCD: tokio::sync::Mutex<Option<Arc<Etcd>>> = tokio::sync::Mutex::const_new(None);
    let mut etcd = ETCD.lock().await;
    if let Some(etcd) = &*etcd {
        return Ok(Arc::clone(etcd));
    }
    let started = Arc::new(Etcd::start().await?);
    *etcd = Some(Arc::clone(&started));
    Ok(started)
}

fn fresh_prefix() -> String {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    format!("server-{}", NUMBER.fetch_add(1, Ordering::Relaxed))
}

fn take_idle() -> Option<Arc<Lendable>> {
    idle_servers().pop()
}

fn idle_servers() -> std::sync::MutexGuard<'static, Vec<Arc<Lendable>>> {
    IDLE_SERVERS.lock().unwrap_or_else(PoisonError::into_inner)
}
