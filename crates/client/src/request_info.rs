//! The verb and the resource of a request, for metrics.

use http::{Method, Uri};

pub const VERBS: [&str; 8] = ["get", "list", "watch", "create", "update", "patch", "delete", "other"];

/// The kinds of object. No label holds the name of an object.
pub const RESOURCES: [&str; 9] = [
    "nodes",
    "pods",
    "daemonsets",
    "runtimeclasses",
    "windowspools",
    "windowspools/status",
    "events",
    "leases",
    "other",
];

/// The verb and the resource of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestInfo {
    /// One of [`VERBS`].
    pub verb: &'static str,
    /// One of [`RESOURCES`].
    pub resource: &'static str,
}

impl RequestInfo {
    /// Reads them from the path: `/api/v1/nodes/a`,
    /// `/apis/<group>/<version>/namespaces/<namespace>/<resource>/<name>`.
    pub fn of(method: &Method, uri: &Uri) -> Self {
        let path: Vec<&str> = uri.path().split('/').filter(|part| !part.is_empty()).collect();
        let rest = match path.as_slice() {
            ["api", _, rest @ ..] | ["apis", _, _, rest @ ..] => rest,
            other => other,
        };
        let (resource, name, subresource) = match rest {
            ["namespaces", _, resource, name @ ..] | [resource, name @ ..] => {
                (*resource, name.first(), name.get(1).copied())
            }
            [] => ("", None, None),
        };
        let full = subresource.map_or_else(|| resource.to_owned(), |sub| format!("{resource}/{sub}"));
        let watch =
            || uri.query().is_some_and(|query| query.split('&').any(|pair| matches!(pair, "watch=true" | "watch=1")));
        let verb = match method.as_str() {
            "GET" if name.is_some() => "get",
            "GET" if watch() => "watch",
            "GET" => "list",
            "POST" => "create",
            "PUT" => "update",
            "PATCH" => "patch",
            "DELETE" => "delete",
            _ => "other",
        };
        Self { verb, resource: RESOURCES.into_iter().find(|known| *known == full).unwrap_or("other") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(method: &Method, uri: &'static str) -> (&'static str, &'static str) {
        let RequestInfo { verb, resource } = RequestInfo::of(method, &Uri::from_static(uri));
        (verb, resource)
    }

    #[test]
    fn requests_are_distinguished_by_verb_and_kind_and_never_by_name() {
        for (method, uri, expected) in [
            (Method::GET, "/api/v1/nodes?&labelSelector=kubernetes.io%2Fos%3Dwindows", ("list", "nodes")),
            (Method::GET, "/api/v1/nodes?&watch=true&timeoutSeconds=290", ("watch", "nodes")),
            (Method::GET, "/api/v1/nodes/watch=true", ("get", "nodes")),
            (Method::PATCH, "/api/v1/nodes/nodes?", ("patch", "nodes")),
            (Method::GET, "/api/v1/pods?&limit=500", ("list", "pods")),
            (Method::POST, "/apis/node.k8s.io/v1/runtimeclasses?", ("create", "runtimeclasses")),
            (Method::DELETE, "/apis/node.k8s.io/v1/runtimeclasses/windows-2019?", ("delete", "runtimeclasses")),
            (Method::PATCH, "/apis/winpool.dev/v1alpha1/windowspools/default?", ("patch", "windowspools")),
            (Method::PATCH, "/apis/winpool.dev/v1alpha1/windowspools/a/status?", ("patch", "windowspools/status")),
            (Method::POST, "/apis/events.k8s.io/v1/namespaces/default/events?", ("create", "events")),
            (
                Method::PUT,
                "/apis/coordination.k8s.io/v1/namespaces/winpool-system/leases/winpool",
                ("update", "leases"),
            ),
            (Method::GET, "/api/v1/nodes/a/proxy", ("get", "other")),
            (Method::GET, "/apis", ("list", "other")),
            (Method::GET, "/", ("list", "other")),
        ] {
            assert_eq!(asked(&method, uri), expected, "{method} {uri}");
        }
    }
}
