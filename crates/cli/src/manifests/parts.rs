//! The parts of a file: its documents, and the objects in them.

use std::collections::HashMap;
use std::ops::Range;

use serde::de::IgnoredAny;
use serde_json::Value;
use winpool_analysis::workload::{DEFAULT_NAMESPACE, namespace_of};
use winpool_core::api::ObjectReference;

/// A document in a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its bytes, with the separator before it.
    pub range: Range<usize>,
    /// The line on which it begins.
    pub line: u64,
    pub is_json: bool,
}

/// Returns the documents of a text. Neither a block scalar nor a quoted text can contain a separator.
pub fn parts(text: &str) -> Vec<Part> {
    let (mut parts, mut start, mut line, mut at) = (Vec::new(), (0, 1), 1, 0);
    for content in text.split_inclusive('\n') {
        if at > start.0 && is_separator(content) {
            add(&mut parts, text, start.0..at, start.1);
            start = (at, line);
        }
        at += content.len();
        line += 1;
    }
    add(&mut parts, text, start.0..at, start.1);
    parts
}

/// Returns the position of the document that has this line.
pub fn index_at(parts: &[Part], line: u64) -> usize {
    parts.partition_point(|part| part.line <= line).saturating_sub(1)
}

fn is_separator(line: &str) -> bool {
    let rest = line.trim_start_matches('\u{feff}').strip_prefix("---");
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t', '\r', '\n']))
}

/// Adds the document in this range, or the JSON objects in it: several may follow each other without a separator.
fn add(parts: &mut Vec<Part>, text: &str, range: Range<usize>, line: u64) {
    let whole = text.get(range.clone()).unwrap_or_default();
    let head = whole.strip_prefix("---").unwrap_or(whole);
    let json = head.trim_start();
    let ends = if json.starts_with('{') { ends_of_objects(json) } else { Vec::new() };
    if ends.is_empty() {
        return parts.push(Part { range, line, is_json: false });
    }
    let mut from = range.end - json.len();
    let first = from;
    for end in ends {
        let lines = text.get(range.start..from).map_or(0, |before| before.matches('\n').count());
        parts.push(Part { range: from..first + end, line: line + lines as u64, is_json: true });
        let blank = text.get(first + end..range.end).unwrap_or_default();
        from = range.end - blank.trim_start().len();
    }
}

/// Returns the positions after each object of a text in JSON; empty if it is not JSON.
fn ends_of_objects(json: &str) -> Vec<usize> {
    let mut stream = serde_json::Deserializer::from_str(json).into_iter::<IgnoredAny>();
    let mut ends = Vec::new();
    while let Some(object) = stream.next() {
        if object.is_err() {
            return Vec::new();
        }
        ends.push(stream.byte_offset());
    }
    ends
}

/// The JSON Pointers of the objects in a document, by kind, namespace and name: its own, or those of items of a List.
#[derive(Debug, Default)]
pub struct Pointers(HashMap<[String; 3], Vec<String>>);

impl Pointers {
    pub fn of(document: &Value) -> Self {
        let mut pointers = Self::default();
        pointers.add(document, String::new(), "");
        pointers
    }

    fn add(&mut self, value: &Value, pointer: String, kind_of_list: &str) {
        let kind = value["kind"].as_str().unwrap_or(kind_of_list);
        if let Some(items) = value["items"].as_array() {
            for (index, item) in items.iter().enumerate() {
                self.add(item, format!("{pointer}/items/{index}"), kind.trim_end_matches("List"));
            }
            return;
        }
        let metadata = &value["metadata"];
        let name = metadata["name"].as_str().or(metadata["generateName"].as_str()).unwrap_or_default();
        let key = [kind, namespace_of(value), name].map(str::to_owned);
        self.0.entry(key).or_default().push(pointer);
    }

    /// Returns those of this object. An object without a namespace is one of the cluster.
    pub fn get(&self, ObjectReference { kind, namespace, name }: &ObjectReference) -> &[String] {
        let namespace = namespace.as_deref().unwrap_or(DEFAULT_NAMESPACE);
        let key = [kind.as_str(), namespace, name].map(str::to_owned);
        self.0.get(&key).map_or(&[], Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn is_divided(text: &str, expected: &[(&str, u64, bool)]) {
        let found = parts(text);
        let found: Vec<_> = found.iter().map(|part| (&text[part.range.clone()], part.line, part.is_json)).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn documents_begin_at_separators_and_json_objects_at_their_braces() {
        is_divided("a: 1\n", &[("a: 1\n", 1, false)]);
        is_divided(
            "---\na: 1\n--- # b\nb: |\n  ---\n",
            &[("---\na: 1\n", 1, false), ("--- # b\nb: |\n  ---\n", 3, false)],
        );
        is_divided("a: 1\r\n---\r\nb: 2", &[("a: 1\r\n", 1, false), ("---\r\nb: 2", 2, false)]);
        is_divided("a: ---b\n---c: d\n", &[("a: ---b\n---c: d\n", 1, false)]);
        is_divided(
            "{\"a\":\n1}\n\n{}\n---\n{\"b\": 2}",
            &[("{\"a\":\n1}", 1, true), ("{}", 4, true), ("{\"b\": 2}", 6, true)],
        );
        is_divided("{a: 1}\n", &[("{a: 1}\n", 1, false)]);
        is_divided("", &[("", 1, false)]);
    }

    #[test]
    fn objects_are_found_by_their_name_in_lists_of_lists_too() {
        let pod = |name: &str, namespace: &str| json!({"metadata": {"name": name, "namespace": namespace}});
        let list = json!({"kind": "List", "items": [
            {"kind": "Pod", "metadata": {"name": "a"}},
            {"kind": "PodList", "items": [pod("a", "shop"), pod("b", "shop")]},
            {"kind": "Pod", "metadata": {"generateName": "c-"}},
        ]});
        let pointers = Pointers::of(&list);
        let at = |namespace: &str, name: &str| pointers.get(&ObjectReference::namespaced("Pod", namespace, name));
        assert_eq!(at("default", "a"), ["/items/0"]);
        assert_eq!(at("shop", "a"), ["/items/1/items/0"]);
        assert_eq!(at("default", "c-"), ["/items/2"]);
        assert!(at("shop", "c-").is_empty());
    }
}
