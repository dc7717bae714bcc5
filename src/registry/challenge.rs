//! How a registry wants to be logged in to: the header `WWW-Authenticate` (RFC 9110 section 11.6.1, and distribution
//! `docs/content/spec/auth/token.md`).

use axum::http::{HeaderMap, header::WWW_AUTHENTICATE};

/// The way to log in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Challenge {
    /// With user and password.
    Basic,
    /// With a token of another server.
    Bearer {
        /// The URL of that server.
        realm: String,
        /// What the registry calls itself there.
        service: Option<String>,
    },
}

impl Challenge {
    /// The challenge of a response: tokens if there is a choice.
    pub(super) fn of(headers: &HeaderMap) -> Option<Self> {
        let values = headers.get_all(WWW_AUTHENTICATE).iter().filter_map(|value| value.to_str().ok());
        let challenges: Vec<_> = values.filter_map(read).collect();
        let bearer = challenges.iter().find(|challenge| **challenge != Self::Basic);
        bearer.or(challenges.first()).cloned()
    }
}

fn read(value: &str) -> Option<Challenge> {
    let (scheme, mut rest) = value.trim().split_once(' ').unwrap_or((value.trim(), ""));
    if scheme.eq_ignore_ascii_case("basic") {
        return Some(Challenge::Basic);
    }
    let (mut realm, mut service) = (None, None);
    while let Some((name, after)) = rest.split_once('=') {
        let (value, after) = match after.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"')?,
            None => after.split_once(',').unwrap_or((after, "")),
        };
        match name.trim_start_matches([',', ' ']) {
            name if name.eq_ignore_ascii_case("realm") => realm = Some(value.to_owned()),
            name if name.eq_ignore_ascii_case("service") => service = Some(value.to_owned()),
            _ => {}
        }
        rest = after;
    }
    scheme.eq_ignore_ascii_case("bearer").then_some(Challenge::Bearer { realm: realm?, service })
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn challenges_of_registries_are_read() {
        let bearer = |realm: &str, service: Option<&str>| {
            Some(Challenge::Bearer { realm: realm.to_owned(), service: service.map(str::to_owned) })
        };
        for (headers, challenge) in [
            (
                &[
                    r#"Bearer realm="https://auth.docker.io/token",service="registry.docker.io",scope="repository:a/b:pull,push""#,
                ][..],
                bearer("https://auth.docker.io/token", Some("registry.docker.io")),
            ),
            (
                &[r#"bearer scope="a:b:pull,push", Realm="https://a.test/?x=1,2""#],
                bearer("https://a.test/?x=1,2", None),
            ),
            (&["Bearer realm=https://a.test,service=b"], bearer("https://a.test", Some("b"))),
            (&[r#"Basic realm="x""#, r#"Bearer realm="https://a.test""#], bearer("https://a.test", None)),
            (&["Basic"], Some(Challenge::Basic)),
            (&[r#"Basic realm="Registry Realm""#], Some(Challenge::Basic)),
            (&["Bearer", r#"Bearer service="b""#, r#"Bearer realm="open"#, "Negotiate realm=x", "", "="], None),
            (&[], None),
        ] {
            let headers = headers.iter().map(|value| (WWW_AUTHENTICATE, HeaderValue::from_static(value))).collect();
            assert_eq!(Challenge::of(&headers), challenge, "{headers:?}");
        }
    }
}
