//! Lists in pages of a limited size, so that one answer stays small however many objects there are, and however large
//! other writers make them.

use std::time::{Duration, Instant};

use http::{Method, Request, Response, Uri};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use kube::api::{ListParams, ObjectList};
use kube::client::Body;
use kube::core::Request as ApiRequest;
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;

use crate::client::through;
use crate::error::{RequestError, read_in_time};

/// The number of objects in one request, unless the caller sets another limit. More are no faster, and a node with all its images is 10 KB.
pub const PAGE: u32 = 100;

/// The time after which other tasks get their turn: the caller may work on each object for a while.
const TURN: Duration = Duration::from_millis(10);

/// Decodes every object that `parameters` select as a `T`, and hands it over, page by page.
pub async fn each<K: Resource + Clone, T: Clone + DeserializeOwned>(
    api: &Api<K>,
    mut parameters: ListParams,
    mut found: impl FnMut(T),
) -> Result<(), RequestError> {
    parameters.limit.get_or_insert(PAGE);
    loop {
        let page = page(api, &parameters).await?;
        let mut turn = Instant::now();
        for object in page.items {
            found(object);
            if turn.elapsed() >= TURN {
                tokio::task::yield_now().await;
                turn = Instant::now();
            }
        }
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => parameters = parameters.continue_token(&token),
            None => return Ok(()),
        }
    }
}

/// Requests one page.
async fn page<K: Resource + Clone, T: Clone + DeserializeOwned>(
    api: &Api<K>,
    parameters: &ListParams,
) -> Result<ObjectList<T>, RequestError> {
    let objects = ApiRequest::new(api.resource_url());
    let request = if K::metadata_api() { objects.list_metadata(parameters) } else { objects.list(parameters) };
    let client = api.clone().into_client();
    read_in_time(Box::pin(async { client.request(request.map_err(kube::Error::BuildRequest)?).await })).await
}

/// The size above which a page is requested again with fewer objects. The writer of an object decides its size: up to
/// 1.5 MiB in etcd, which can be six times as much in JSON. A hundred nodes of 40 KB each still fit.
const LARGEST: usize = 4 << 20;
/// The factor by which such a page is made smaller.
const FEWER: u32 = 10;

/// Returns a client that abandons pages above 4 MiB and requests smaller ones.
pub fn small(client: &Client) -> Client {
    through(client, send)
}

async fn send(client: Client, request: Request<Body>) -> kube::Result<Response<Body>> {
    let Some(mut limit) = limit(&request) else { return client.send(request).await };
    let (asked, _) = request.into_parts();
    loop {
        let mut parts = asked.clone();
        parts.uri = with_parameter(&parts.uri, "limit", limit);
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

/// The `limit` of a list request; `None` for other requests.
fn limit(request: &Request<Body>) -> Option<u32> {
    let query = request.uri().query().filter(|_| request.method() == Method::GET)?;
    query.split('&').find_map(|pair| pair.strip_prefix("limit=")?.parse().ok())
}

/// The URI with another number for this parameter, if it has the parameter.
pub(crate) fn with_parameter(uri: &Uri, name: &str, number: u32) -> Uri {
    let is_it = |pair: &str| pair.split_once('=').is_some_and(|(key, _)| key == name);
    let pair = |pair: &str| if is_it(pair) { format!("{name}={number}") } else { pair.to_owned() };
    let query: Vec<String> = uri.query().unwrap_or_default().split('&').map(pair).collect();
    // A URI with another query is still a URI.
    format!("{}?{}", uri.path(), query.join("&")).parse().unwrap_or_else(|_| uri.clone())
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use k8s_openapi::api::core::v1::Node;
    use serde_json::json;
    use tower::service_fn;

    use super::*;

    /// Starts a server with this many nodes of this size, and records its requests.
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
        (small(&Client::new(service_fn(answer), "default")), asked)
    }

    async fn listed(nodes: usize, size: usize) -> (usize, Vec<String>) {
        let (client, asked) = server(nodes, size);
        let mut count = 0;
        each(&Api::<Node>::all(client), ListParams::default(), |_: Node| count += 1).await.unwrap();
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
        // A page with one object is accepted, however large it is.
        let asked = ["100 from 0", "10 from 0", "1 from 0", "100 from 1"].map(str::to_owned);
        assert_eq!(listed(2, 4_000_000).await, (2, asked.to_vec()));
    }

    #[tokio::test]
    async fn only_a_missing_permission_is_a_refusal_of_a_list() {
        for (code, is_refusal) in [(403, true), (400, false), (401, false), (409, false), (413, false), (422, false)] {
            let status = kube::core::Status::failure("no", "Reason").with_code(code);
            let body = serde_json::to_vec(&status).unwrap();
            let answer = move |_: Request<Body>| {
                let answer = Response::builder().status(code).body(Body::from(body.clone()));
                async move { Ok::<_, kube::Error>(answer.unwrap()) }
            };
            let nodes = Api::<Node>::all(Client::new(service_fn(answer), "default"));
            let result = each(&nodes, ListParams::default(), |_: Node| {}).await;
            let is_as_expected = match result {
                Err(RequestError::Denied(_)) => is_refusal,
                Err(RequestError::Failed { .. }) => !is_refusal,
                _ => false,
            };
            assert!(is_as_expected, "{code}: {result:?}");
        }
    }

    #[test]
    fn only_lists_have_a_limit_and_nothing_else_of_them_changes() {
        let get = |uri: &str| Request::get(uri).body(Body::empty()).unwrap();
        assert_eq!(limit(&get("/api/v1/nodes?&labelSelector=a%3Db&limit=100&continue=x")), Some(100));
        assert_eq!(limit(&get("/api/v1/nodes?watch=true")), None);
        assert_eq!(limit(&Request::delete("/api/v1/nodes?limit=1").body(Body::empty()).unwrap()), None);
        let uri = Uri::from_static("/api/v1/nodes?&labelSelector=a%3Db&limit=100&continue=x");
        assert_eq!(
            with_parameter(&uri, "limit", 10).to_string(),
            "/api/v1/nodes?&labelSelector=a%3Db&limit=10&continue=x"
        );
    }
}
