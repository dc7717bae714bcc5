//! A proxy that injects faults between a client and an API server.
//!
//! It uses TLS on both sides, so clients notice no difference. It passes tokens on. Clients with certificates
//! cannot be passed on.

use std::future::pending;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use http::header::{CONNECTION, CONTENT_LENGTH, HOST, TRANSFER_ENCODING};
use http::{Request, Response, Uri};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kube::client::Body;
use kube::{Client, Config};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::{CancellationToken, DropGuard};
use winpool_client::request_info::RequestInfo;

use super::answer::{self, ResponseBody, Severed};
use super::schedule::Fault;
use super::traffic::{Passed, Passing, Traffic};
use crate::error::Result;
use crate::machine::wait::wait_for;
use crate::network::certificates::tls;
use crate::network::kubeconfig::token_kubeconfig;
use crate::network::proxy::serve;
use crate::servers::api_server::ApiServer;

/// Passes requests on to an API server, except for injected faults.
pub struct FaultProxy {
    port: u16,
    authority: PathBuf,
    directory: PathBuf,
    shared: Arc<ProxyState>,
    _stop: DropGuard,
}

struct ProxyState {
    server: Client,
    traffic: Traffic,
    /// Cancelled while the network is cut. All connections depend on it.
    network: Mutex<CancellationToken>,
    /// Cancelled when the open connections fall silent. New connections get another one.
    talking: Mutex<CancellationToken>,
}

impl FaultProxy {
    pub async fn start(server: &ApiServer) -> Result<Self> {
        let identity = server.serving();
        let tls = TlsAcceptor::from(Arc::new(tls(&identity.certificate, &identity.key)?));
        let shared = Arc::new(ProxyState {
            server: Client::try_from(bare(server)?)?,
            traffic: Traffic::default(),
            network: Mutex::default(),
            talking: Mutex::default(),
        });
        let connections = Arc::clone(&shared);
        let (port, stop) = serve(move |stream| {
            let network = lock(&connections.network).clone();
            let talking = lock(&connections.talking).clone();
            let serving = Arc::clone(&connections).serve(stream, tls.clone());
            network.run_until_cancelled_owned(until_silent(talking, serving)).map(|_| ())
        })
        .await?;
        let (authority, directory) = (server.authority_file(), server.directory().to_owned());
        Ok(Self { port, authority, directory, shared, _stop: stop })
    }

    /// Returns `config` with this proxy as the server.
    pub fn config(&self, config: &Config) -> Result<Config> {
        let mut config = config.clone();
        config.cluster_url = url(self.port)?;
        Ok(config)
    }

    /// A kubeconfig of a user with this token, who works in this namespace.
    pub fn kubeconfig(&self, token: &str, namespace: &str) -> Result<PathBuf> {
        let file = self.directory.join(format!("kubeconfig-proxy-{}", self.port));
        token_kubeconfig(&format!("https://127.0.0.1:{}", self.port), &self.authority, token, namespace, &file)?;
        Ok(file)
    }

    /// Sets the rule that selects the fault for each request, and resets the counts of requests.
    pub fn inject(&self, rule: impl Fn(&Passing) -> Option<Fault> + Send + Sync + 'static) {
        self.shared.traffic.inject(Box::new(rule));
    }

    /// Stops all faults, and releases requests that are held back.
    pub fn calm(&self) {
        self.inject(|_| None);
    }

    /// Cuts the network: closes all connections, and new ones too.
    pub fn cut(&self) {
        lock(&self.shared.network).cancel();
    }

    /// Restores the network.
    pub fn mend(&self) {
        *lock(&self.shared.network) = CancellationToken::new();
    }

    /// Silences all open connections without closing them, like a router that forgets them. New ones work.
    pub fn silence(&self) {
        std::mem::take(&mut *lock(&self.shared.talking)).cancel();
    }

    /// Returns all requests so far, in the order in which they were decided, with their outcomes.
    pub fn passed(&self) -> Vec<Passed> {
        self.shared.traffic.passed()
    }

    /// Waits until this many requests met a fault since the last [`FaultProxy::inject`].
    pub async fn faulted(&self, count: usize, limit: Duration) -> Result<()> {
        let faulted = async || Ok((self.shared.traffic.faulted() >= count).then_some(()));
        wait_for(&format!("{count} requests have met a fault"), limit, faulted).await
    }
}

impl ProxyState {
    async fn serve(self: Arc<Self>, stream: TcpStream, tls: TlsAcceptor) {
        let Ok(stream) = tls.accept(stream).await else { return };
        let service = service_fn(|request| Arc::clone(&self).pass(request));
        // An error says that one of both has closed the connection.
        let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
    }

    async fn pass(self: Arc<Self>, request: Request<Incoming>) -> std::result::Result<Response<ResponseBody>, Severed> {
        let asked = RequestInfo::of(request.method(), request.uri());
        let (passing, fault) = self.traffic.next(asked, request.uri());
        let released = self.traffic.released();
        match fault {
            Some(Fault::Delay(time)) => tokio::time::sleep(time).await,
            Some(Fault::Drop) => {
                self.traffic.note(passing, fault, None);
                return Err(Severed);
            }
            Some(Fault::Swallow) => {
                self.traffic.note(passing, fault, None);
                released.await;
                return Err(Severed);
            }
            Some(Fault::Expire) if asked.verb == "watch" => {
                self.traffic.note(passing, fault, Some(200));
                return Ok(answer::expired());
            }
            Some(Fault::Refuse(refusal)) => {
                let answer = refusal.answer();
                self.traffic.note(passing, fault, Some(answer.status().as_u16()));
                return Ok(answer);
            }
            _ => {}
        }
        let request = self.prepared(request, &passing, fault).await?;
        let response = self.server.send(request).await;
        let code = response.as_ref().ok().map(|response| response.status().as_u16());
        self.traffic.note(passing, fault, code);
        let mut response = response.map_err(|_| Severed)?;
        for header in [CONNECTION, TRANSFER_ENCODING] {
            response.headers_mut().remove(header);
        }
        let watches = asked.verb == "watch" && response.status().is_success();
        match fault {
            Some(Fault::Mute) => {
                released.await;
                Err(Severed)
            }
            Some(Fault::Lose) => {
                // The server has finished when the whole body has arrived.
                if !watches {
                    let _ = response.into_body().collect().await;
                }
                Err(Severed)
            }
            Some(Fault::Halve) if !watches => answer::halved(response).await,
            Some(Fault::Halve) => Ok(answer::events(response, Fault::Cut { after: 0 }, released)),
            Some(fault) if watches => Ok(answer::events(response, fault, released)),
            _ => Ok(response.map(|body| body.map_err(Into::into).boxed_unsync())),
        }
    }

    /// The request as the server gets it.
    async fn prepared(
        &self,
        request: Request<Incoming>,
        passing: &Passing,
        fault: Option<Fault>,
    ) -> std::result::Result<Request<Body>, Severed> {
        let (mut parts, body) = request.into_parts();
        for header in [HOST, CONNECTION, TRANSFER_ENCODING, CONTENT_LENGTH] {
            parts.headers.remove(header);
        }
        if matches!(fault, Some(Fault::Rewind { .. }))
            && let Some(version) = self.traffic.oldest_version(passing)
        {
            parts.uri = with_parameter(&parts.uri, "resourceVersion", &version);
        }
        if fault == Some(Fault::NoBookmarks) {
            parts.uri = with_parameter(&parts.uri, "allowWatchBookmarks", "false");
        }
        let body = body.collect().await.map_err(|_| Severed)?.to_bytes();
        Ok(Request::from_parts(parts, Body::from(body)))
    }
}

fn lock(token: &Mutex<CancellationToken>) -> MutexGuard<'_, CancellationToken> {
    token.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Serves a connection until it falls silent. Then nothing is read or written, and it stays open.
async fn until_silent(talking: CancellationToken, serving: impl Future<Output = ()>) {
    let mut serving = pin!(serving);
    if talking.run_until_cancelled(serving.as_mut()).await.is_none() {
        pending::<()>().await;
    }
}

/// `uri` with another value of a parameter of its query.
fn with_parameter(uri: &Uri, name: &str, value: &str) -> Uri {
    let query = form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes());
    let others = query.filter(|(key, _)| key != name);
    let query = form_urlencoded::Serializer::new(String::new()).extend_pairs(others).append_pair(name, value).finish();
    // A URI with another query is still a URI.
    format!("{}?{query}", uri.path()).parse().unwrap_or_else(|_| uri.clone())
}

/// The server's configuration without a user: each request carries its own credentials.
fn bare(server: &ApiServer) -> Result<Config> {
    let mut config = server.config()?;
    config.auth_info = kube::config::AuthInfo::default();
    Ok(config)
}

fn url(port: u16) -> Result<Uri> {
    Ok(Uri::try_from(format!("https://127.0.0.1:{port}")).map_err(http::Error::from)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parameter_is_replaced_and_the_others_stay() {
        let uri =
            Uri::from_static("/api/v1/nodes?&watch=true&resourceVersion=7&labelSelector=kubernetes.io%2Fos%3Dwindows");
        let expected = "/api/v1/nodes?watch=true&labelSelector=kubernetes.io%2Fos%3Dwindows&resourceVersion=1";
        assert_eq!(with_parameter(&uri, "resourceVersion", "1").to_string(), expected);
        assert_eq!(with_parameter(&Uri::from_static("/a"), "b", "c").to_string(), "/a?b=c");
    }
}
