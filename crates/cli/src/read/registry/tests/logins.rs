//! Credentials and how they are used.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use axum::http::header::WWW_AUTHENTICATE;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::json;

use super::{Client, Host, INDEX, PASSWORD, answer, password_of, with};
use crate::read::registry::RegistryErrorKind;
use crate::read::registry::credentials::{Credentials, Login};
use crate::read::registry::login::Challenge;

#[tokio::test]
async fn a_token_server_gets_what_docker_would_send_it() {
    let basic = format!("Basic {}", BASE64_STANDARD.encode(format!("me:{PASSWORD}")));
    let get = "GET /token?from=here&scope=repository%3Ateam%2Fapp%3Apull&service=a+b";
    let form = format!(
        "scope=repository%3Ateam%2Fapp%3Apull&service=a+b&grant_type=refresh_token&client_id=winpool&refresh_token={PASSWORD}"
    );
    for (entry, expected) in [
        (json!({}), (get, None, "")),
        (json!({"username": "me", "password": PASSWORD}), (get, Some(basic.as_str()), "")),
        (json!({"auth": "", "identitytoken": PASSWORD}), ("POST /token?from=here", None, form.as_str())),
    ] {
        let server = Host::start(|seen| match &seen.authorization {
            Some(_) => answer(200, r#"{"access_token":"t"}"#),
            None => answer(200, r#"{"token":"t","access_token":"u"}"#),
        })
        .await;
        let realm = server.url("/token?from=here");
        let host = Host::start(move |seen| match seen.authorization.as_deref() {
            Some("Bearer t") => answer(200, INDEX),
            _ => with(answer(401, ""), WWW_AUTHENTICATE, &format!(r#"Bearer realm="{realm}",service="a b""#)),
        })
        .await;
        let client = Client::new(&json!({"auths": {format!("https://{}/v2/", host.address): entry}}));
        client.registry.platforms(&host.image(":1")).await.unwrap();
        let seen: Vec<_> = server.seen();
        let seen: Vec<_> = seen.iter().map(|seen| (&*seen.line, seen.authorization.as_deref(), &*seen.body)).collect();
        assert_eq!(seen, [expected], "one token for all requests");
    }
}

#[tokio::test]
async fn a_token_of_the_registry_is_sent_to_it_and_to_no_token_server() {
    let server = Host::start(|_| answer(500, "")).await;
    let realm = server.url("/token");
    let host = Host::start(move |seen| match seen.authorization.as_deref() {
        Some("Bearer swordfish") => answer(200, INDEX),
        _ => with(answer(401, ""), WWW_AUTHENTICATE, &format!(r#"Bearer realm="{realm}""#)),
    })
    .await;
    let entry = json!({"registrytoken": PASSWORD, "identitytoken": "x"});
    let client = Client::new(&json!({"auths": {host.address.to_string(): entry}}));
    client.registry.platforms(&host.image(":1")).await.unwrap();
    assert_eq!(server.seen(), []);
}

#[tokio::test]
async fn credential_helpers_are_asked_as_docker_asks_them() {
    let basic = format!("Basic {}", BASE64_STANDARD.encode(format!("me:{PASSWORD}")));
    let host = Host::start(move |seen| match &seen.authorization {
        Some(sent) if *sent == basic => answer(200, INDEX),
        _ => with(answer(401, ""), WWW_AUTHENTICATE, "Basic"),
    })
    .await;
    let image = host.image(":1");
    let folder = tempfile::tempdir().unwrap();
    // A name such as `/../<file>` would leave the directory of helpers.
    for helper in ["winpool-test-that-is-not-installed", "../../bin/true"] {
        let client = Client::new(&json!({"credsStore": helper}));
        let problem = client.problem(&image).await;
        let RegistryErrorKind::Unauthorized(reason) = &problem else { panic!("{problem:?}") };
        assert!(reason.contains(helper), "{reason}");
        // What stands in the file is better than nothing.
        let mut both = password_of(&host);
        both["credHelpers"] = json!({host.address.to_string(): helper});
        Client::new(&both).registry.platforms(&image).await.unwrap();
    }
    drop(folder);
}

#[test]
fn helpers_answer_in_the_words_of_docker() {
    let folder = tempfile::tempdir().unwrap();
    let helper = folder.path().join("docker-credential-winpooltest");
    let script = "#!/bin/sh\nread server\ncase \"$1 $server\" in\n'get a.test') printf '{\"ServerURL\":\"x\",\"Username\":\"<token>\",\"Secret\":\"t\"}';;\n\
                  'get https://index.docker.io/v1/') printf '{\"Username\":\"me\",\"Secret\":\"p\"}';;\n\
                  'get b.test') echo credentials not found in native keychain; exit 1;;\n\
                  'get c.test') echo swordfish;;\n*) echo swordfish; echo swordfish >&2; exit 1;;\nesac\n";
    fs::write(&helper, script).unwrap();
    fs::set_permissions(&helper, fs::Permissions::from_mode(0o755)).unwrap();
    // The path of helpers is that of the process, so another process asks.
    let test = std::env::current_exe().unwrap();
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
    let mut command = std::process::Command::new(test);
    command
        .args(["--exact", "read::registry::tests::logins::asks_the_helper_in_its_path", "--ignored"])
        .env("PATH", path);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"));
}

#[tokio::test]
#[ignore = "run by helpers_answer_in_the_words_of_docker"]
async fn asks_the_helper_in_its_path() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("config.json");
    fs::write(&file, r#"{"credsStore": "winpooltest"}"#).unwrap();
    let credentials = Credentials::read(Some(&file)).unwrap();
    let of = async |host: &str| credentials.of(&format!("{host}/app").parse().unwrap()).await;
    assert!(matches!(of("a.test").await, Ok(Some(Login::Identity(token))) if token == "t"));
    assert!(matches!(of("docker.io").await, Ok(Some(Login::Password(user, _))) if user == "me"));
    assert!(matches!(of("b.test").await, Ok(None)));
    for host in ["c.test", "d.test"] {
        let Err(reason) = of(host).await else { panic!("{host}") };
        assert!(reason.contains("docker-credential-winpooltest") && !reason.contains(PASSWORD), "{reason}");
    }
}

#[tokio::test]
async fn the_longest_name_in_the_docker_configuration_counts() {
    let user = |user: &str| json!({"auth": BASE64_STANDARD.encode(format!("{user}:a:b\0"))});
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("config.json");
    let configuration = json!({"auths": {
        "https://index.docker.io/v1/": user("hub"), "a.test": user("host"), "a.test/team": user("team"),
        "http://b.test:5000/v2/": user("port"), "c.test": {}, "https://d.test/": {"username": "d", "password": "a:b"},
    }, "HttpHeaders": {}, "currentContext": "x"});
    fs::write(&file, configuration.to_string()).unwrap();
    let credentials = Credentials::read(Some(&file)).unwrap();
    for (image, expected) in [
        ("nginx", Some("hub")),
        ("a.test/app", Some("host")),
        ("a.test/team/app", Some("team")),
        ("a.test/teams/app", Some("host")),
        ("b.test:5000/app", Some("port")),
        ("b.test/app", None),
        ("c.test/app", None),
        ("d.test/app", Some("d")),
        ("aa.test/app", None),
    ] {
        let login = credentials.of(&image.parse().unwrap()).await.unwrap();
        let found = login.map(|login| match login {
            Login::Password(user, password) if password == "a:b" => user,
            _ => panic!("{image}"),
        });
        assert_eq!(found.as_deref(), expected, "{image}");
    }
}

#[test]
fn challenges_of_registries_are_read() {
    let bearer =
        |realm: &str, service: &str| Some(Challenge::Bearer { realm: realm.to_owned(), service: service.to_owned() });
    let docker = r#"Bearer realm="https://auth.test/token",service="registry.test",scope="repository:a/b:pull,push""#;
    for (headers, challenge) in [
        (&[docker][..], bearer("https://auth.test/token", "registry.test")),
        (&[r#"bearer scope="a:b:pull,push", Realm="https://a.test/?x=1,2""#], bearer("https://a.test/?x=1,2", "")),
        (&[r#"Basic realm="x""#, r#"Bearer realm="https://a.test""#], bearer("https://a.test", "")),
        (&[r#"Bearer realm="https://a.test""#, "basic"], bearer("https://a.test", "")),
        (&["Basic"], Some(Challenge::Basic)),
        (&[r#"Basic realm="Registry Realm""#], Some(Challenge::Basic)),
        (&["Bearer", r#"Bearer service="b""#, r#"Bearer realm="open"#, "Negotiate realm=x", "", "="], None),
        (&[], None),
    ] {
        let headers = headers.iter().map(|value| (WWW_AUTHENTICATE, value.parse().unwrap())).collect();
        assert_eq!(Challenge::of(&headers), challenge, "{headers:?}");
    }
}
