//! API servers and clusters for the tests of one binary, all on one etcd.

use crate::error::Result;
use crate::machine::go::progress;
use crate::servers::api_server::{ApiServer, PODS_WITHOUT_SERVICE_ACCOUNTS};
use crate::servers::audit::{AuditFile, AuditLog};
use crate::servers::cluster::{Cluster, Flags};
use crate::servers::emptying::Baseline;
use crate::servers::etcd::Etcd;
use kube::Client;
use std::ops::Deref;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The number of idle API servers that are kept. Each takes 300 MB.
const IDLE: usize = 8;

/// An API server that can be lent repeatedly.
struct Lendable {
    server: ApiServer,
    audit: AuditFile,
    /// Its initial objects.
    bare: Baseline,
    installed: Mutex<Option<Installed>>,
}

/// The objects that a test may find installed.
#[derive(Clone)]
struct Installed {
    baseline: Arc<Baseline>,
    token: String,
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
    while let Some(lendable) = take_idle(false) {
        match emptied(&lendable).await {
            Ok(client) => return Ok(Lent { client, lendable }),
            // Printed, because each new server costs seconds.
            Err(error) => progress(&format!("an API server is thrown away: {error}")),
        }
    }
    let audit = AuditFile::new()?;
    let flags = audit.flags()?;
    let server = lend_with(&flags.each_ref().map(String::as_str)).await?;
    let client = server.connect()?;
    let bare = Baseline::of(&client).await?;
    Ok(Lent { client, lendable: Arc::new(Lendable { server, audit, bare, installed: Mutex::default() }) })
}

/// Lends an API server that has what `install` installs and nothing else. Returns it with the token that `install`
/// returned, for this test or an earlier one.
pub(crate) async fn lend_installed(
    install: impl AsyncFnOnce(&ApiServer, &Client) -> Result<String>,
) -> Result<(Lent, String)> {
    if let Some(lendable) = take_idle(true) {
        if let Some(Installed { baseline, token }) = lendable.installed() {
            let client = lendable.server.connect()?;
            if lendable.server.check().is_ok() && baseline.restore(&client).await.is_ok() {
                return Ok((Lent { client, lendable }, token));
            }
        }
        // A test has changed the installation: all of it goes, and is installed again.
        lendable.set_installed(None);
        idle_servers().push(lendable);
    }
    let lent = lend().await?;
    let token = install(&lent.lendable.server, &lent.client).await?;
    let baseline = Arc::new(Baseline::of(&lent.client).await?);
    lent.lendable.set_installed(Some(Installed { baseline, token: token.clone() }));
    Ok((lent, token))
}

impl Lendable {
    fn installed(&self) -> Option<Installed> {
        self.installed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_installed(&self, installed: Option<Installed>) {
        *self.installed.lock().unwrap_or_else(PoisonError::into_inner) = installed;
    }
}

/// Starts an API server with more flags, on the same etcd as the lent ones. It serves one test and is then stopped.
pub async fn lend_with(flags: &[&str]) -> Result<ApiServer> {
    let mut all_flags = vec![PODS_WITHOUT_SERVICE_ACCOUNTS];
    all_flags.extend_from_slice(flags);
    ApiServer::start_with(&shared_etcd().await?, &fresh_prefix(), &all_flags).await
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
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// The requests of operators from now on.
    pub fn audit(&self) -> AuditLog {
        self.lendable.audit.log()
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
    lendable.set_installed(None);
    lendable.bare.restore(&client).await?;
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

/// Takes an idle server, preferably one on which winpool is installed, or one without it.
fn take_idle(is_installed: bool) -> Option<Arc<Lendable>> {
    let mut idle = idle_servers();
    let preferred = idle.iter().position(|lendable| lendable.installed().is_some() == is_installed);
    let last = idle.len().checked_sub(1)?;
    Some(idle.swap_remove(preferred.unwrap_or(last)))
}

fn idle_servers() -> std::sync::MutexGuard<'static, Vec<Arc<Lendable>>> {
    IDLE_SERVERS.lock().unwrap_or_else(PoisonError::into_inner)
}
