//! A network that can be cut: bytes go through a proxy in this process.

use crate::error::{Error, Result};
use std::net::SocketAddr;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

/// Passes connections on to an address of this machine, until it is cut. The connections may use TLS: certificates are
/// for the address, with any port.
pub struct Proxy {
    port: u16,
    cut: watch::Sender<bool>,
    _stop: DropGuard,
}

impl Proxy {
    /// Listens on a free port and connects to this port.
    pub async fn start(target: u16) -> Result<Self> {
        let cut = watch::Sender::new(false);
        let connections = cut.clone();
        let pass_on = move |client| pass_on(client, target, connections.subscribe());
        let (port, stop) = serve(pass_on).await?;
        Ok(Self { port, cut, _stop: stop })
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Cuts the network. Connections stay open, as in a network that loses packets, and new ones are accepted.
    pub fn cut(&self) {
        self.cut.send_replace(true);
    }

    /// Passes new connections on again, and closes those that were cut.
    pub fn mend(&self) {
        self.cut.send_replace(false);
    }
}

/// Listens on a free port, and calls `work` for each connection, until the guard is dropped.
pub(crate) async fn serve<F>(work: impl Fn(TcpStream) -> F + Send + 'static) -> Result<(u16, DropGuard)>
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.map_err(Error::Port)?;
    let port = listener.local_addr().map_err(Error::Port)?.port();
    let stop = CancellationToken::new();
    let stopped = stop.clone();
    tokio::spawn(stop.clone().run_until_cancelled_owned(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(stopped.clone().run_until_cancelled_owned(work(stream)));
        }
    }));
    Ok((port, stop.drop_guard()))
}

async fn pass_on(mut client: TcpStream, target: u16, mut cut: watch::Receiver<bool>) {
    let passing = async {
        let mut server = TcpStream::connect(SocketAddr::from(([127, 0, 0, 1], target))).await?;
        copy_bidirectional(&mut client, &mut server).await
    };
    let was_cut = tokio::select! {
        biased;
        was_cut = cut.wait_for(|cut| *cut) => was_cut.is_ok(),
        _ = passing => false,
    };
    if was_cut {
        // An error means that the proxy is dropped.
        let _ = cut.wait_for(|cut| !*cut).await;
    }
}
