//! The operator's process: caches, controllers, endpoints and termination.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use clap::ArgAction;
use futures::{FutureExt, future};
use k8s_openapi::api::node::v1::RuntimeClass;
use kube::runtime::reflector::store::Writer;
use kube::runtime::reflector::{self};
use kube::{Client, Config};
use parking_lot::Mutex;
use thiserror::Error;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use winpool_client::client::{self, ConnectError};
use winpool_client::pages;
use winpool_client::requests::Counter;
use winpool_core::plan::reconcile::Pauses;

use crate::controllers::{self, CLASSES, Context, GuardedPool, NODES, OTHERS, POOLS, SharedPods, WatchHealth};
use crate::election::Elector;
use crate::leadership::Leadership;
use crate::metrics::Metrics;
use crate::nodes::SharedNodes;
use crate::uninstall::InstallationObjects;
use crate::write::Applier;
use crate::{server, together};

/// The options of `winpool-operator run`.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Address of /metrics, /healthz and /readyz.
    #[arg(long, env = "WINPOOL_LISTEN", default_value = "0.0.0.0:8080")]
    pub listen: Option<SocketAddr>,
    /// Number of nodes to write at the same time; each uses one connection.
    #[arg(long, env = "WINPOOL_CONCURRENCY", default_value_t = Self::DEFAULT_CONCURRENCY,
          value_parser = clap::value_parser!(u16).range(1..=256))]
    pub concurrency: u16,
    /// Elect a leader, so that several replicas can run; only the one that holds the Lease writes.
    #[arg(long, env = "WINPOOL_LEADER_ELECTION", value_name = "true|false", default_value_t = true,
          action = ArgAction::Set)]
    pub leader_election: bool,
    /// Namespace of the Lease; the one of the pod or of the current context if not set.
    #[arg(long, env = "WINPOOL_LEASE_NAMESPACE", value_name = "NAMESPACE")]
    pub lease_namespace: Option<String>,
    /// Name of the operator's ClusterRoleBinding and of the objects installed with it. If they are being deleted, the operator
    /// cleans up the cluster and exits.
    #[arg(long, env = "WINPOOL_INSTALLATION", default_value = InstallationObjects::DEFAULT_NAME)]
    pub installation: Option<String>,
    /// Name of the pod of this process. By it winpool tests that a policy confines its permission to patch pods.
    #[arg(long, env = "WINPOOL_POD")]
    pub pod: Option<String>,
    /// The pause after a write that was refused, and the time for which nodes that refuse may delay the deletion of
    /// their pool.
    #[arg(skip = Self::DEFAULT_PATIENCE)]
    pub patience: Duration,
    /// The other pauses of the loop of pools.
    #[arg(skip)]
    pub pauses: Pauses,
}

impl Options {
    /// More than 16 requests at the same time are no faster.
    pub const DEFAULT_CONCURRENCY: u16 = 16;
    /// Long enough not to disturb, and short enough that a corrected policy soon takes effect.
    const DEFAULT_PATIENCE: Duration = Duration::from_mins(10);
}

/// No endpoints and no cleanup on removal.
impl Default for Options {
    fn default() -> Self {
        Self {
            listen: None,
            concurrency: Self::DEFAULT_CONCURRENCY,
            leader_election: true,
            lease_namespace: None,
            patience: Self::DEFAULT_PATIENCE,
            pauses: Pauses::default(),
            installation: None,
            pod: None,
        }
    }
}

/// The operator cannot start.
#[derive(Debug, Error)]
pub enum Error {
    #[error(transparent)]
    Client(#[from] ConnectError),
    #[error("cannot listen on {address}; choose another address with --listen: {error}")]
    Listen {
        address: SocketAddr,
        #[source]
        error: std::io::Error,
    },
    /// The watches would show nothing until the resourceVersions have caught up.
    #[error(
        "the resourceVersion of the Lease became smaller: the API server was restored from a backup; winpool has to start \
         again, and reads everything anew"
    )]
    HistoryWentBack,
}

/// The time limit for requests in flight. The Lease is released after that.
const GRACE: Duration = Duration::from_secs(4);

/// Runs the operator until `stop` is cancelled.
pub async fn run(config: Config, options: Options, stop: CancellationToken) -> Result<(), Error> {
    let stop = stop.child_token();
    let namespace = config.default_namespace.clone();
    let clients = Clients::connect(config, &options)?;
    let client = clients.reading.clone();
    let installation =
        options.installation.as_ref().map(|name| InstallationObjects::new(client.clone(), name, &namespace));
    let ending = CancellationToken::new();
    let lease_namespace = options.lease_namespace.clone().unwrap_or(namespace);
    let elector = options.leader_election.then(|| Elector::new(client, &lease_namespace));
    let leadership = elector.as_ref().map_or_else(Leadership::alone, Elector::leadership);
    let parting = Applier::new(clients.writing.clone(), Leadership::alone());
    let (context, caches) = clients.context(leadership, &options, BTreeSet::new());
    let endpoints = server::Endpoints {
        metrics: Arc::clone(&context.metrics),
        unlisted: context.unlisted.subscribe(),
        watch_health: Arc::clone(&context.watch_health),
    };
    let listener = listen(options.listen).await?;
    tracing::info!(version = env!("CARGO_PKG_VERSION"), "winpool starts");
    // In its own task, so that no work of the controllers delays a renewal.
    let (mut election, resign, went_back) = (JoinSet::new(), CancellationToken::new(), CancellationToken::new());
    if let Some(elector) = elector {
        let standing = stand(elector, context.unlisted.subscribe(), resign.clone(), context.uninstalled.clone());
        let (stop, went_back) = (stop.clone(), went_back.clone());
        election.spawn(async move {
            if standing.await {
                went_back.cancel();
                stop.cancel();
            }
        });
    }
    let controllers = Box::pin(caches.follow(&context, options.concurrency, &ending));
    let serving = async {
        if let Some(listener) = listener {
            server::serve(listener, endpoints, ending.child_token()).await;
        }
    };
    let ended = async { tokio::join!(controllers, serving) };
    let working = async {
        tokio::select! {
            _ = ended => true,
            () = overdue(&ending) => {
                tracing::warn!("requests in flight did not end in time");
                false
            }
            never = context.follow_leadership() => match never {},
        }
    };
    let removal = removed(installation.as_ref(), &context, &parting, &stop, &ending).boxed();
    let (in_time, is_removed) = tokio::join!(working, removal);
    if is_removed {
        // The Lease is kept, so that no other process leads any more.
        tracing::info!("winpool ends");
        return Ok(());
    }
    // Requests in flight may still arrive, so the Lease is not released but expires.
    if in_time {
        resign.cancel();
        while election.join_next().await.is_some() {}
        tracing::info!("winpool ends");
    }
    if went_back.is_cancelled() { Err(Error::HistoryWentBack) } else { Ok(()) }
}

/// Treats all pools as deleted, and those that are `missing`, in this process and with this leadership, until nothing is left
/// to do or `limit` is over.
pub async fn uninstall(
    config: Config,
    leadership: Leadership,
    missing: BTreeSet<String>,
    limit: Duration,
) -> Result<(), ConnectError> {
    let options = Options::default();
    let (context, caches) = Clients::connect(config, &options)?.context(leadership, &options, missing);
    context.uninstalled.cancel();
    let ending = CancellationToken::new();
    let done = async {
        let _ = timeout(limit, context.clean.cancelled()).await;
        ending.cancel();
    };
    let controllers = Box::pin(caches.follow(&context, options.concurrency, &ending));
    tokio::select! {
        _ = future::join(controllers, done) => {}
        () = overdue(&ending) => {}
        never = context.follow_leadership() => match never {},
    }
    Ok(())
}

/// The clients of a process, and what they share.
struct Clients {
    /// Lists nothing, and so does without the limit on the size of pages.
    writing: Client,
    reading: Client,
    nodes: Arc<SharedNodes>,
    metrics: Arc<Metrics>,
}

/// The writers of the caches that the controllers keep up to date.
struct Caches {
    pools: Writer<GuardedPool>,
    classes: Writer<RuntimeClass>,
}

impl Clients {
    fn connect(config: Config, options: &Options) -> Result<Self, ConnectError> {
        let nodes = Arc::new(SharedNodes::new(options.patience));
        let metrics = Arc::new(Metrics::new(Arc::clone(&nodes)));
        let writing = connect(config, Some(Arc::clone(&metrics)))?;
        Ok(Self { reading: pages::small(&writing), writing, nodes, metrics })
    }

    fn context(self, leadership: Leadership, options: &Options, missing: BTreeSet<String>) -> (Arc<Context>, Caches) {
        let (pools, pool_writer) = reflector::store();
        let (classes, class_writer) = reflector::store();
        let changed = watch::Sender::new(());
        let context = Context {
            applier: Applier::new(self.writing, leadership.clone()),
            leadership,
            metrics: self.metrics,
            nodes: self.nodes,
            reimaged: SharedNodes::new(options.patience),
            others: Mutex::default(),
            open_term: Mutex::default(),
            pools,
            classes,
            own_pod: options.pod.clone(),
            unlisted: watch::Sender::new(vec![NODES, OTHERS, POOLS, CLASSES]),
            uninstalled: CancellationToken::new(),
            missing,
            clean: CancellationToken::new(),
            watch_health: Arc::new(WatchHealth::new(changed.clone())),
            pods: SharedPods::new(options.pauses.pods, WatchHealth::new(changed.clone())),
            changed,
            client: self.reading,
            patience: options.patience,
            pauses: options.pauses,
        };
        (Arc::new(context), Caches { pools: pool_writer, classes: class_writer })
    }
}

impl Caches {
    /// Runs all controllers until `ending` is cancelled and their requests in flight have ended.
    async fn follow(self, context: &Arc<Context>, concurrency: u16, ending: &CancellationToken) {
        let (context, ending) = (|| Arc::clone(context), || ending.child_token());
        tokio::join!(
            controllers::node::run(context(), concurrency, ending()),
            controllers::node::run_reimaged(context(), ending()),
            controllers::node::run_others(context(), ending()),
            controllers::pool::watch(POOLS, self.pools, context(), ending()),
            controllers::pool::watch(CLASSES, self.classes, context(), ending()),
            controllers::pool::run(context(), ending()),
            controllers::pods::run(context(), ending()),
            controllers::tolerations::run(context(), ending()),
        );
    }
}

/// Waits for the stop, and uninstalls winpool if its installation is deleted. Returns true then.
async fn removed(
    installation: Option<&InstallationObjects>,
    context: &Context,
    parting: &Applier,
    stop: &CancellationToken,
    ending: &CancellationToken,
) -> bool {
    let Some(installation) = installation else {
        stop.cancelled().await;
        ending.cancel();
        return false;
    };
    let is_removed = installation.is_removed(stop).await;
    let is_clean = is_removed && installation.clean_up(context).await;
    ending.cancel();
    if is_clean {
        installation.release_all(parting).await;
    }
    is_removed
}

/// Waits for the end of the time that requests in flight have after the stop.
async fn overdue(ending: &CancellationToken) {
    ending.cancelled().await;
    tokio::time::sleep(GRACE).await;
}

async fn listen(address: Option<SocketAddr>) -> Result<Option<TcpListener>, Error> {
    let Some(address) = address else { return Ok(None) };
    TcpListener::bind(address).await.map(Some).map_err(|error| Error::Listen { address, error })
}

/// Becomes a candidate once the caches are filled, so that a leader can work at once. Returns true if the API server's
/// history went back.
async fn stand(
    elector: Elector,
    mut unlisted: watch::Receiver<Vec<&'static str>>,
    resign: CancellationToken,
    uninstalled: CancellationToken,
) -> bool {
    tokio::select! {
        () = resign.cancelled() => return false,
        _ = unlisted.wait_for(Vec::is_empty) => {}
    }
    elector.run(resign, uninstalled).await
}

/// A client whose requests are counted, and that can withhold the bodies of several writes.
pub fn connect(config: Config, metrics: Option<Arc<Metrics>>) -> Result<Client, ConnectError> {
    client::connect_with(config, metrics.map(|metrics| metrics as Arc<dyn Counter>), together::gated)
}
