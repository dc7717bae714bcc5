//! Hides those members of `metadata.managedFields` that kube's types cannot always decode: writers of an object choose
//! how deep `fieldsV1` is, and serde_json reads a value only to a depth of 128. They also choose `time`.

use http::Request;
use http_body::Frame;
use http_body_util::{BodyExt, Either};
use kube::Client;
use kube::client::Body;

use crate::client::{Bytes, through};
use crate::request_info::RequestInfo;

const LIST: &[u8] = b"managedFields";
const HIDDEN: [&[u8]; 2] = [b"time", b"fieldsV1"];

/// Returns a client whose answers have no such members. Lists of nodes and pods have types of their own, which skip `fieldsV1` and
/// read `time` as text.
pub fn hidden(client: &Client) -> Client {
    through(client, |client, request: Request<Body>| async move {
        let RequestInfo { verb, resource } = RequestInfo::of(request.method(), request.uri());
        let has_own_type = matches!((verb, resource), ("list" | "watch", "nodes" | "pods"));
        let (answer, mut filter) = (client.send(request).await?, Filter::default());
        let pass = move |frame: Frame<Bytes>| frame.map_data(|bytes| filter.pass(&bytes).into());
        Ok(answer.map(|body| if has_own_type { Either::Left(body) } else { Either::Right(body.map_frame(pass)) }))
    })
}

/// Passes on JSON piece by piece, with another name for these members and null under theirs.
#[derive(Default)]
pub struct Filter {
    /// The begin of the last string.
    text: Vec<u8>,
    is_in_text: bool,
    is_escaped: bool,
    depth: usize,
    /// The depth of the list that the filter is in.
    list: Option<usize>,
}

impl Filter {
    pub fn pass(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut passed = Vec::with_capacity(bytes.len());
        for &byte in bytes {
            passed.push(byte);
            if self.is_in_text {
                self.is_in_text = byte != b'"' || self.is_escaped;
                self.is_escaped = byte == b'\\' && !self.is_escaped;
                if self.is_in_text && self.text.len() <= LIST.len() {
                    self.text.push(byte);
                }
                continue;
            }
            match byte {
                b'"' => {
                    self.is_in_text = true;
                    self.text.clear();
                }
                b'{' | b'[' => {
                    self.depth += 1;
                    if byte == b'[' && self.text == LIST {
                        self.list.get_or_insert(self.depth);
                    }
                }
                b'}' | b']' => {
                    self.list = self.list.filter(|list| *list < self.depth);
                    self.depth = self.depth.saturating_sub(1);
                }
                b':' if self.list.is_some_and(|list| self.depth == list + 1) && HIDDEN.contains(&&*self.text) => {
                    passed.extend_from_slice(b"null,\"hidden\":");
                }
                _ => {}
            }
        }
        passed
    }
}
