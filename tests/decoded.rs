//! Whatever the API server stores of the kinds that winpool lists, winpool decodes, in a list and in a watch.

use std::convert::Infallible;
use std::fmt::Debug;
use std::pin::pin;

use futures::{StreamExt, stream};
use http_body_util::StreamBody;
use hyper::body::Frame;
use hyper::{Request, Response};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::node::v1::RuntimeClass;
use kube::api::{ListParams, WatchEvent, WatchParams};
use kube::client::Body;
use kube::core::PartialObjectMeta;
use kube::{Api, Client, Resource, ResourceExt};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use serde::de::DeserializeOwned;
use serde_json::json;
use tower::service_fn;
use winpool_client::node::ListedNode;
use winpool_client::pods::{ListedDaemonSet, ListedEvent, ListedPod};
use winpool_client::{managed_fields, pages};
use winpool_core::plan::pools::pool::GuardedPool;

/// What writers of an object choose.
#[derive(Clone, Debug)]
struct Choice {
    /// The depth of `fieldsV1`.
    depth: usize,
    time: &'static str,
    text: String,
    number: i64,
    /// The value of an enum.
    word: String,
    /// The lengths of the pieces in which an answer arrives, in turn.
    pieces: Vec<usize>,
}

const TIMES: [&str; 4] =
    ["2026-01-01T00:00:00Z", "9999-12-30T22:00:01Z", "9999-12-31T23:59:59.999999Z", "0000-01-01T00:00:00Z"];

fn choice() -> impl Strategy<Value = Choice> {
    let number = prop_oneof![Just(i64::MIN), Just(i64::MAX), any::<i64>()];
    let text = prop_oneof!["[a-z]{0,9}", "\\PC{0,99}", Just(r#"","managedFields":[{"time":"#.to_owned())];
    (0..400_usize, select(&TIMES[..]), text, number, "[A-Z][a-z]{0,9}", vec(1..300_usize, 1..5))
        .prop_map(|(depth, time, text, number, word, pieces)| Choice { depth, time, text, number, word, pieces })
}

/// A client that gets this answer, in pieces.
fn answering(answer: &str, pieces: &[usize]) -> Client {
    let (mut rest, mut parts, mut lengths) = (answer.as_bytes(), Vec::new(), pieces.iter().cycle());
    while !rest.is_empty() {
        let (part, after) = rest.split_at(rest.len().min(*lengths.next().unwrap()));
        parts.push(part.to_vec());
        rest = after;
    }
    let answer = move |_: Request<Body>| {
        let frames = parts.clone().into_iter().map(|part| Ok::<_, Infallible>(Frame::data(part.into())));
        let body = StreamBody::new(stream::iter(frames));
        async move { Ok::<_, Infallible>(Response::new(body)) }
    };
    managed_fields::hidden(&Client::new(service_fn(answer), "default"))
}

/// Returns what is decoded of an object with these members, which stands between two others.
async fn decoded<K>(members: &str, choice: &Choice) -> K
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let Choice { depth, time, text, .. } = choice;
    let deep = format!("{}{{}}{}", r#"{"f:a":"#.repeat(*depth), "}".repeat(*depth));
    let metadata =
        json!({"namespace": "shop", "uid": "u", "resourceVersion": "7", "annotations": {"a": text, "time": "b"}});
    let metadata = metadata.to_string();
    let metadata = metadata.strip_suffix('}').unwrap();
    let object = |name: &str, managed: &str| {
        format!(r#"{{"metadata":{metadata},"name":"{name}","managedFields":{managed}}}{members}}}"#)
    };
    let entry =
        format!(r#"{{"manager":"m","time":"{time}","fieldsType":"FieldsV1","fieldsV1":{deep},"subresource":"s"}}"#);
    let hostile = object("hostile", &format!("[{entry},{entry}]"));
    let items = [object("first", "[]"), hostile.clone(), object("last", "null")].join(",");
    let list = format!(r#"{{"kind":"List","apiVersion":"v1","metadata":{{}},"items":[{items}]}}"#);
    let (client, mut found) = (answering(&list, &choice.pieces), Vec::new());
    pages::each(&Api::<K>::all(client), ListParams::default(), |object: K| found.push(object)).await.unwrap();
    assert_eq!(found.iter().map(ResourceExt::name_any).collect::<Vec<_>>(), ["first", "hostile", "last"]);

    let client = answering(&format!("{{\"type\":\"ADDED\",\"object\":{hostile}}}\n"), &choice.pieces);
    let events = Api::<K>::all(client).watch(&WatchParams::default(), "0").await.unwrap();
    let Some(Ok(WatchEvent::Added(seen))) = pin!(events).next().await else { panic!("{members:.200}") };
    assert_eq!((&*seen.name_any(), seen.resource_version().as_deref()), ("hostile", Some("7")));
    seen
}

async fn all_kinds_are_decoded(choice: &Choice) {
    let Choice { depth, time, text, number, word, .. } = choice;
    let deep = format!("{}{{}}{}", r#"{"a":"#.repeat(*depth), "}".repeat(*depth));
    let text = &json!(text).to_string();
    let short = i32::try_from(*number).unwrap_or(if *number < 0 { i32::MIN } else { i32::MAX });

    let node =
        format!(r#","spec":{{"unknown":{deep}}},"status":{{"nodeInfo":{{"kernelVersion":{text}}},"images":{deep}}}"#);
    decoded::<ListedNode>(&node, choice).await;

    let times = format!(r#""lastTransitionTime":"{time}","startedAt":"{time}","finishedAt":"{time}""#);
    let state = format!(r#"{{"terminated":{{"exitCode":{short},"message":{text},{times}}},"running":{{{times}}}}}"#);
    let container = format!(r#"{{"name":"a","state":{state},"lastState":{state},"resources":{deep}}}"#);
    let status = format!(
        r#"{{"startTime":"{time}","phase":"{word}","conditions":[{{"type":"{word}",{times}}}],"containerStatuses":[{container}]}}"#
    );
    let toleration = format!(r#"{{"operator":"{word}","effect":"{word}","tolerationSeconds":{number}}}"#);
    let spec = format!(r#"{{"unknown":{deep},"os":{{"name":"{word}"}},"tolerations":[{toleration}]}}"#);
    decoded::<ListedPod>(&format!(r#","spec":{spec},"status":{status}"#), choice).await;

    let template = format!(r#"{{"metadata":{{"annotations":{{"a":{text}}}}},"spec":{spec}}}"#);
    decoded::<ListedDaemonSet>(&format!(r#","spec":{{"template":{template}}},"status":{deep}"#), choice).await;

    let times = format!(r#""firstTimestamp":"{time}","lastTimestamp":"{time}","eventTime":"{time}""#);
    decoded::<ListedEvent>(&format!(r#","message":{text},{times},"series":{deep}"#), choice).await;

    let scheduling = format!(r#"{{"tolerations":[{toleration}]}}"#);
    let class = format!(r#","handler":"a","scheduling":{scheduling},"overhead":{{"podFixed":{{"cpu":{text}}}}}"#);
    let class: RuntimeClass = decoded(&class, choice).await;
    assert_eq!(class.managed_fields()[0].manager.as_deref(), Some("m"), "messages name it");
    decoded::<PartialObjectMeta<RuntimeClass>>("", choice).await;

    let since = if depth % 2 == 0 { time } else { "2026-01-01T00:00:00+99:99" };
    let taint = format!(r#"{{"taint":"os=windows:NoSchedule","since":"{since}","nodes":{number}}}"#);
    let conditions = format!(
        r#"[{{"type":"{word}","status":"{word}","reason":"a","message":{text},"lastTransitionTime":"{time}"}}]"#
    );
    let nodes = format!(r#"{{"selected":{number},"converged":"{word}"}}"#);
    for spec in [format!(r#"{{"mode":"{word}"}}"#), format!(r#"{{"nodeSelector":{number}}}"#), "{}".to_owned()] {
        let status = format!(r#"{{"taints":[{taint}],"conditions":{conditions},"nodes":{nodes}}}"#);
        let pool: GuardedPool = decoded(&format!(r#","spec":{spec},"status":{status}"#), choice).await;
        assert_eq!((pool.pool().is_ok(), pool.read().is_ok()), (spec == "{}", spec == "{}"), "{spec}");
        let recorded = pool.status.unwrap().taints.pop().map(|recorded| recorded.taint);
        assert_eq!(recorded.as_deref(), Some("os=windows:NoSchedule"));
    }

    let lease = format!(
        r#","spec":{{"holderIdentity":{text},"acquireTime":"{time}","renewTime":"{time}","leaseTransitions":{short}}}"#
    );
    let lease = decoded::<Lease>(&lease, choice).await.spec.unwrap();
    assert_eq!((json!(lease.holder_identity).to_string(), lease.lease_transitions), (text.clone(), Some(short)));
}

fn block_on(work: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn objects_are_decoded_whatever_their_writers_choose(choice in choice()) {
        block_on(all_kinds_are_decoded(&choice));
    }
}

#[test]
fn kube_itself_does_not_decode_them() {
    let class = |entry: &str| format!(r#"{{"metadata":{{"managedFields":[{entry}]}},"handler":"a"}}"#);
    let deep = |depth: usize| format!(r#"{{"fieldsV1":{}{{}}{}}}"#, r#"{"f:a":"#.repeat(depth), "}".repeat(depth));
    let is_read = |entry: &str| serde_json::from_str::<RuntimeClass>(&class(entry)).is_ok();
    assert!(is_read(&deep(100)) && !is_read(&deep(200)) && !is_read(r#"{"time":"9999-12-31T23:59:59Z"}"#));
}

#[test]
fn objects_with_texts_of_a_megabyte_are_decoded() {
    let (text, word, pieces) = ("<".repeat(1 << 20), "A".to_owned(), vec![1 << 16]);
    block_on(all_kinds_are_decoded(&Choice { depth: 200, time: TIMES[2], text, number: i64::MAX, word, pieces }));
}
