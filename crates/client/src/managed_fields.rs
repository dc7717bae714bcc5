//! Hides what kube's types do not decode of an object, because its writers may choose it: managed fields that are deeper than 128
//! levels, to which `serde_json` reads a value, and times of the last two days of the year 9999.

use http::Request;
use http_body::Frame;
use http_body_util::{BodyExt, Either};
use kube::Client;
use kube::client::Body;

use crate::client::{Bytes, through};
use crate::request_info::RequestInfo;

/// Each with what replaces its last byte. None occurs in the text of a string, where each quotation mark follows a backslash. The
/// second one is the begin of `time`, `acquireTime` and `renewTime`; such a time is read as one of ten days before.
const REPLACED: [(&[u8], &[u8]); 2] = [(br#""fieldsV1":{"#, br#"{},"hidden":{"#), (br#"ime":"9999-12-3"#, br"2")];

/// Returns a client whose answers have none of them. Lists of nodes and pods have types of their own, which skip these fields or
/// read times as text.
pub fn hidden(client: &Client) -> Client {
    through(client, |client, request: Request<Body>| async move {
        let RequestInfo { verb, resource } = RequestInfo::of(request.method(), request.uri());
        let has_own_type = matches!((verb, resource), ("list" | "watch", "nodes" | "pods"));
        let (answer, mut filter) = (client.send(request).await?, Filter::default());
        let pass = move |frame: Frame<Bytes>| frame.map_data(|bytes| filter.pass(&bytes).into());
        Ok(answer.map(|body| if has_own_type { Either::Left(body) } else { Either::Right(body.map_frame(pass)) }))
    })
}

/// Passes on JSON piece by piece, with the replacements. Counts the bytes of each text that it has just passed.
#[derive(Default)]
pub struct Filter([usize; REPLACED.len()]);

impl Filter {
    pub fn pass(&mut self, bytes: &[u8]) -> Vec<u8> {
        let (mut passed, mut begin) = (Vec::with_capacity(bytes.len()), 0);
        for (at, byte) in bytes.iter().enumerate() {
            for (seen, (text, replacement)) in self.0.iter_mut().zip(REPLACED) {
                *seen = if text.get(*seen) == Some(byte) { *seen + 1 } else { usize::from(text.first() == Some(byte)) };
                if *seen == text.len() {
                    passed.extend([&bytes[begin..at], replacement].concat());
                    begin = at + 1;
                }
            }
        }
        passed.extend_from_slice(&bytes[begin..]);
        passed
    }
}
