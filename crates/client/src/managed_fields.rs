//! Hides the parts of an object that kube's types cannot decode, and that anyone who writes the object can choose: managed fields with
//! more than 128 levels, the limit of `serde_json` for a value, and times of the last two days of the year 9999.

use http::Request;
use http_body::Frame;
use http_body_util::{BodyExt, Either};
use kube::Client;
use kube::client::Body;

use crate::client::{Bytes, through};
use crate::request_info::RequestInfo;

/// Each text with what replaces its last byte. None of them occurs inside a string, where a backslash stands before each quotation
/// mark. The second one is the end of `time`, `acquireTime` or `renewTime` and the start of its value, which is read as a time ten days
/// earlier.
const REPLACED: [(&[u8], &[u8]); 2] = [(br#""fieldsV1":{"#, br#"{},"hidden":{"#), (br#"ime":"9999-12-3"#, br"2")];

/// Returns a client whose answers have no such parts. Lists of nodes and pods stay as they are: their own types skip managed fields
/// and read times as text.
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
