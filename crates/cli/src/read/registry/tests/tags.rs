//! Tags: their digests, and lists of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::http::HeaderName;
use axum::http::header::LINK;
use serde_json::json;

use super::{Client, Host, INDEX, answer, with};
use crate::read::registry::{DIGEST, disk};

#[tokio::test]
async fn a_tag_that_has_moved_is_read_again_and_a_registry_without_head_is_no_problem() {
    let newer = INDEX.replace("20348.1", "26100.1");
    for (head, documents) in [
        (200, [INDEX.to_owned(), newer.clone()]),
        (405, [INDEX.to_owned(), newer.clone()]),
        (405, [INDEX.to_owned(), INDEX.to_owned()]),
    ] {
        let asked = Arc::new(AtomicUsize::new(0));
        let all = documents.clone();
        let host = Host::start(move |seen| {
            let digest = disk::sha256(all[1].as_bytes());
            if seen.line.starts_with("HEAD") {
                return with(answer(head, ""), HeaderName::from_static(DIGEST), &digest);
            }
            answer(200, all[asked.fetch_add(1, Ordering::SeqCst)].clone())
        })
        .await;
        let client = Client::new(&json!({}));
        for document in &documents {
            let platforms = client.again().platforms(&host.image(":1")).await.unwrap();
            assert_eq!(platforms.digest, disk::sha256(document.as_bytes()), "HEAD is answered with {head}");
        }
        let methods: Vec<_> = host.seen().into_iter().map(|seen| seen.line[..4].to_owned()).collect();
        assert_eq!(methods, ["GET ", "HEAD", "GET "]);
    }
}

#[tokio::test]
async fn tags_are_listed_page_by_page_to_a_limit() {
    let next = |response| with(response, LINK, r#"</v2/elsewhere>; rel="next""#);
    let host = Host::start(move |seen| match seen.line.split_once("tags/list?").unwrap().1 {
        "n=1000" => next(answer(200, r#"{"name":"team/app","tags":["1","2"]}"#)),
        "n=1000&last=2" => answer(200, r#"{"tags":["3"]}"#),
        other => panic!("{other}"),
    })
    .await;
    let endless = Host::start(move |_| next(answer(200, r#"{"tags":["1"]}"#))).await;
    let empty = Host::start(|_| answer(200, r#"{"name":"team/app","tags":null}"#)).await;
    let refusing = Host::start(|_| answer(404, "{}")).await;
    let wrong = Host::start(|_| answer(200, "[]")).await;
    let hosts = [&host, &endless, &empty, &refusing, &wrong];
    let client = Client::new(&json!({}));
    let lists = client.registry.tags_of_all(hosts.map(|host| host.image(":1"))).await;
    let lists = hosts.map(|host| lists.get(&host.image(":1")).map(Vec::len));
    assert_eq!(lists, [Some(3), Some(10), Some(0), None, None]);
}
