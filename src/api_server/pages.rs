//! Lists in pages, so that no answer grows with the cluster, nor with what others write.

use std::{fmt::Debug, time::Duration};

use axum::http::{Method, Request, Response, Uri};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use kube::{Api, Client, api::ListParams, client::Body};
use serde::de::DeserializeOwned;
use tower::service_fn;

use crate::api_server::error::{RequestError, in_time};

/// Objects asked for in one request. More gain no time, and a page of nodes with all their images is 10 KB each.
pub(crate) const PAGE: u32 = 100;

/// Hands over every object that `parameters` select, one page after the other.
///
/// # Errors
/// When they cannot be listed.
pub(crate) async fn each<K: Clone + Debug + DeserializeOwned>(
    api: &Api<K>,
    parameters: ListParams,
    found: impl FnMut(K),
) -> Result<(), RequestError> {
    asking(1, api, parameters, found).await
}

/// How often [`each_patiently`] asks for a page.
const ATTEMPTS: u32 = 4;
const FIRST_PAUSE: Duration = Duration::from_millis(500);

/// As [`each`], for a listing so long that a request which fails must not end it.
///
/// # Errors
/// When they cannot be listed.
pub(crate) async fn each_patiently<K: Clone + Debug + DeserializeOwned>(
    api: &Api<K>,
    parameters: ListParams,
    found: impl FnMut(K),
) -> Result<(), RequestError> {
    asking(ATTEMPTS, api, parameters, found).await
}

async fn asking<K: Clone + Debug + DeserializeOwned>(
    attempts: u32,
    api: &Api<K>,
    parameters: ListParams,
    mut found: impl FnMut(K),
) -> Result<(), RequestError> {
    let mut parameters = parameters.limit(PAGE);
    let mut failed = 0;
    loop {
        let page = match in_time(api.list(&parameters)).await {
            Err(RequestError::Failed(_)) if failed + 1 < attempts => {
                tokio::time::sleep(FIRST_PAUSE * 2_u32.pow(failed)).await;
                failed += 1;
                continue;
            }
            page => page?,
        };
        failed = 0;
        page.items.into_iter().for_each(&mut found);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => parameters = parameters.continue_token(&token),
            None => return Ok(()),
        }
    }
}

/// A page that is larger is asked for again with fewer objects. Whoever writes an object decides how large it is: up to
/// 1.5 MiB in etcd, which can be six times as much in JSON. A hundred nodes of 40 KB each still fit.
const LARGEST: usize = 4 << 20;
/// How many times fewer.
const FEWER: u32 = 10;

/// A client that gives up pages which turn out too large, and asks for smaller ones.
pub(crate) fn small(client: Client) -> Client {
    let namespace = client.default_namespace().to_owned();
    Client::new(service_fn(move |request| send(client.clone(), request)), namespace)
}

async fn send(client: Client, request: Request<Body>) -> kube::Result<Response<Body>> {
    let Some(mut limit) = limit(&request) else { return client.send(request).await };
    let (asked, _) = request.into_parts();
    loop {
        let mut parts = asked.clone();
        parts.uri = with_limit(&parts.uri, limit);
        let answer = client.send(Request::from_parts(parts, Body::empty())).await?;
        if limit <= 1 {
            return Ok(answer);
        }
        let (head, body) = answer.into_parts();
        match Limited::new(body, LARGEST).collect().await {
            Ok(page) => return Ok(Response::from_parts(head, Body::from(page.to_bytes()))),
            Err(error) if error.is::<LengthLimitError>() => limit = (limit / FEWER).max(1),
            Err(error) => {
                return Err(error.downcast::<kube::Error>().map_or_else(kube::Error::Service, |error| *error));
            }
        }
    }
}

/// How many objects a list is asked for; `None` for other requests.
fn limit(request: &Request<Body>) -> Option<u32> {
    let query = request.uri().query().filter(|_| request.method() == Method::GET)?;
    query.split('&').find_map(|pair| pair.strip_prefix("limit=")?.parse().ok())
}

fn with_limit(uri: &Uri, limit: u32) -> Uri {
    let pair = |pair: &str| if pair.starts_with("limit=") { format!("limit={limit}") } else { pair.to_owned() };
    let query: Vec<String> = uri.query().unwrap_or_default().split('&').map(pair).collect();
    // What was a URI still is one.
    format!("{}?{}", uri.path(), query.join("&")).parse().unwrap_or_else(|_| uri.clone())
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use k8s_openapi::api::core::v1::Node;
    use serde_json::json;

    use super::*;

    /// A server of so many nodes, each of this size, in pages as they are asked for, and what it was asked.
    fn server(nodes: usize, size: usize) -> (Client, Arc<Mutex<Vec<String>>>) {
        let asked = Arc::<Mutex<Vec<String>>>::default();
        let seen = Arc::clone(&asked);
        let answer = move |request: Request<Body>| {
            let query = request.uri().query().unwrap_or_default().to_owned();
            let value = |key: &str| query.split('&').find_map(|pair| pair.strip_prefix(key)?.parse::<usize>().ok());
            let (limit, first) = (value("limit=").unwrap(), value("continue=").unwrap_or(0));
            seen.lock().unwrap().push(format!("{limit} from {first}"));
            let last = (first + limit).min(nodes);
            let items: Vec<_> = (first..last)
                .map(|n| json!({"metadata": {"name": format!("n-{n}"), "annotations": {"a": "x".repeat(size)}}}))
                .collect();
            let token = if last < nodes { last.to_string() } else { String::new() };
            let page = json!({
                "apiVersion": "v1", "kind": "NodeList", "metadata": {"continue": token}, "items": items,
            });
            async move { Ok::<_, kube::Error>(Response::new(Body::from(page.to_string().into_bytes()))) }
        };
        (small(Client::new(service_fn(answer), "default")), asked)
    }

    async fn listed(nodes: usize, size: usize) -> (usize, Vec<String>) {
        let (client, asked) = server(nodes, size);
        let mut count = 0;
        each(&Api::<Node>::all(client), ListParams::default(), |_| count += 1).await.unwrap();
        let asked = asked.lock().unwrap().clone();
        (count, asked)
    }

    #[tokio::test]
    async fn pages_are_as_large_as_they_were_asked_for_while_their_objects_are_small() {
        assert_eq!(listed(150, 20_000).await, (150, vec!["100 from 0".to_owned(), "100 from 100".to_owned()]));
    }

    #[tokio::test]
    async fn pages_of_large_objects_are_smaller_and_none_is_left_out() {
        let asked = ["100 from 0", "10 from 0", "100 from 10", "10 from 10", "100 from 20"].map(str::to_owned);
        assert_eq!(listed(21, 400_000).await, (21, asked.to_vec()));
        // One object always comes, however large.
        let asked = ["100 from 0", "10 from 0", "1 from 0", "100 from 1"].map(str::to_owned);
        assert_eq!(listed(2, 4_000_000).await, (2, asked.to_vec()));
    }

    #[test]
    fn only_lists_have_a_limit_and_nothing_else_of_them_changes() {
        let get = |uri: &str| Request::get(uri).body(Body::empty()).unwrap();
        assert_eq!(limit(&get("/api/v1/nodes?&labelSelector=a%3Db&limit=100&continue=x")), Some(100));
        assert_eq!(limit(&get("/api/v1/nodes?watch=true")), None);
        assert_eq!(limit(&Request::delete("/api/v1/nodes?limit=1").body(Body::empty()).unwrap()), None);
        let uri = Uri::from_static("/api/v1/nodes?&labelSelector=a%3Db&limit=100&continue=x");
        assert_eq!(with_limit(&uri, 10).to_string(), "/api/v1/nodes?&labelSelector=a%3Db&limit=10&continue=x");
    }
}
