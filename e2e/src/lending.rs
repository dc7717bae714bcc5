//! API servers and clusters for the tests of one binary, all on one etcd.

use crate::Result;
use crate::api_server::{ApiServer, PODS_WITHOUT_SERVICE_ACCOUNTS};
use crate::audit::{AuditFile, AuditLog};
use crate::cluster::{Cluster, Flags};
use crate::emptying::Baseline;
use crate::etcd::Etcd;
use crate::go::progress;
use kube::Client;
use std::ops::Deref;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The number of idle API servers that are kept. Each takes 265 MB.
const IDLE: usize = 8;

/// An API server that can be lent repeatedly, with its initial objects.
struct Lendable {
    server: ApiServer,
    audit: AuditFile,
    baseline: Baseline,
    /// The token of the operator's account, if winpool is installed.
    token: Option<String>,
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
    match lend_idle(false).await {
        Some(lent) => Ok(lent),
        None => lend_new(async |_, _| Ok(None)).await,
    }
}

/// Lends an API server that has what `install` installs and nothing else. `install` returns a token for
/// [`Lent::token`].
pub(crate) async fn lend_installed(install: impl AsyncFnOnce(&ApiServer, &Client) -> Result<String>) -> Result<Lent> {
    match lend_idle(true).await {
        Some(lent) => Ok(lent),
        None => lend_new(async |server, client| Ok(Some(install(server, client).await?))).await,
    }
}

async fn lend_idle(is_installed: bool) -> Option<Lent> {
    while let Some(lendable) = take_idle(is_installed) {
        match emptied(&lendable).await {
            Ok(client) => return Some(Lent { client, lendable }),
            // Printed, because each new server costs seconds.
            Err(error) => progress(&format!("an API server is thrown away: {error}")),
        }
    }
    None
}

async fn lend_new(install: impl AsyncFnOnce(&ApiServer, &Client) -> Result<Option<String>>) -> Result<Lent> {
    let audit = AuditFile::new()?;
    let flags = audit.flags()?;
    let server = lend_with(&flags.each_ref().map(String::as_str)).await?;
    let client = server.connect()?;
    let mut baseline = Baseline::of(&client).await?;
    let token = install(&server, &client).await?;
    if token.is_some() {
        baseline = Baseline::of(&client).await?;
    }
    Ok(Lent { client, lendable: Arc::new(Lendable { server, audit, baseline, token }) })
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

    /// The requests of operators from now on.
    pub fn audit(&self) -> AuditLog {
        self.lendable.audit.log()
    }

    /// The token that was returned when this server was prepared.
    pub(crate) fn token(&self) -> Option<&str> {
        self.lendable.token.as_deref()
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

fn take_idle(is_installed: bool) -> Option<Arc<Lendable>> {
    let mut idle = idle_servers();
    let found = idle.iter().position(|lendable| lendable.token.is_some() == is_installed)?;
    Some(idle.swap_remove(found))
}

fn idle_servers() -> std::sync::MutexGuard<'static, Vec<Arc<Lendable>>> {
    IDLE_SERVERS.lock().unwrap_or_else(PoisonError::into_inner)
}
