//! The lines of fields. Few objects have findings, so winpool reads a file again only for those.

use std::fmt;
use std::fs::File;
use std::io::{BufReader, Read};

use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_yaml::Spanned;

use super::documents::{STDIN, decoded, options};
use super::relaxed::Relaxed;

/// The largest file, in bytes, whose fields winpool keeps in memory. Handwritten files are far smaller.
const BYTES: u64 = 16 << 20;

/// The lines of the fields of a file.
pub struct Fields(Vec<Spanned<FieldTree>>);

/// A part of a document without its values.
enum FieldTree {
    Map(Vec<(Spanned<String>, Spanned<Self>)>),
    List(Vec<Spanned<Self>>),
    Leaf,
}

impl Fields {
    /// Returns those of this file; `None` if it is too long or cannot be read a second time.
    pub fn of(file: &str) -> Option<Self> {
        // Standard input and pipes cannot be read twice.
        let is_file = |path| std::fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.len() <= BYTES);
        if file == STDIN || !is_file(file) {
            return None;
        }
        Self::read(&mut BufReader::new(File::open(file).ok()?))
    }

    fn read(stream: &mut impl Read) -> Option<Self> {
        let mut stream = Relaxed::new(decoded(stream.take(BYTES)));
        let mut options = options();
        // Merged fields have the lines on which they were written.
        options.merge_keys = serde_yaml::MergeKeyPolicy::Merge;
        let documents = serde_yaml::read_with_options::<_, Spanned<FieldTree>>(&mut stream, options);
        documents.collect::<Result<_, _>>().ok().map(Self)
    }

    /// Returns the line of a field, such as `spec.containers[0].image`, of the object that begins on `line`. For a missing
    /// field it returns the line of its parent.
    pub fn line(&self, line: u64, path: &str) -> Option<u64> {
        let document = last_before(&self.0, line)?;
        let items = || document.value.get("items").map_or(&[][..], FieldTree::list);
        let is_here = |object: &&Spanned<FieldTree>| begins(object) == line;
        let object = Some(document).filter(is_here).or_else(|| last_before(items(), line).filter(is_here))?;
        let (mut at, mut line) = (&object.value, None);
        for part in path.split('.') {
            let (key, indices) = part.split_once('[').unwrap_or((part, ""));
            let Some((name, value)) = at.field(key) else { break };
            (at, line) = (&value.value, Some(name.referenced.line()));
            for index in indices.split('[').filter_map(|index| index.strip_suffix(']')?.parse::<usize>().ok()) {
                let Some(element) = at.list().get(index) else { return line };
                (at, line) = (&element.value, Some(element.referenced.line()));
            }
        }
        line
    }
}

/// Returns the last of these objects that begins on this line or before. They are in the order of their lines.
fn last_before(objects: &[Spanned<FieldTree>], line: u64) -> Option<&Spanned<FieldTree>> {
    objects.get(objects.partition_point(|object| begins(object) <= line).checked_sub(1)?)
}

/// Returns the line on which an object begins: the line of its brace, or of its first key.
fn begins(object: &Spanned<FieldTree>) -> u64 {
    object.referenced.line()
}

impl FieldTree {
    fn field(&self, name: &str) -> Option<&(Spanned<String>, Spanned<Self>)> {
        let Self::Map(fields) = self else { return None };
        fields.iter().rfind(|(key, _)| key.value == name)
    }

    fn get(&self, name: &str) -> Option<&Self> {
        Some(&self.field(name)?.1.value)
    }

    fn list(&self) -> &[Spanned<Self>] {
        if let Self::List(list) = self { list } else { &[] }
    }
}

impl<'de> Deserialize<'de> for FieldTree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ShapeVisitor)
    }
}

struct ShapeVisitor;

impl<'de> Visitor<'de> for ShapeVisitor {
    type Value = FieldTree;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("anything")
    }

    scalars!(FieldTree::Leaf);

    fn visit_unit<E>(self) -> Result<FieldTree, E> {
        Ok(FieldTree::Leaf)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<FieldTree, A::Error> {
        let mut list = Vec::new();
        while let Some(element) = elements.next_element()? {
            list.push(element);
        }
        Ok(FieldTree::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<FieldTree, A::Error> {
        let mut map = Vec::new();
        while let Some(entry) = entries.next_entry()? {
            map.push(entry);
        }
        Ok(FieldTree::Map(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn lines(text: &str, object: u64, expected: &[(&str, Option<u64>)]) {
        let fields = Fields::read(&mut text.as_bytes()).unwrap();
        for (path, line) in expected {
            assert_eq!(fields.line(object, path), *line, "{path}");
        }
    }

    #[test]
    fn a_field_has_the_line_of_its_key_and_a_missing_field_that_of_its_parent() {
        let text = "# one\nkind: Pod\nspec:\n  os: {name: windows}\n  containers:\n  - image: a\n  -\n    image: b\n  hostPID: true\n";
        let expected = [
            ("spec", Some(3)),
            ("spec.os.name", Some(4)),
            ("spec.containers", Some(5)),
            ("spec.containers[0]", Some(6)),
            ("spec.containers[1].image", Some(8)),
            ("spec.containers[1].resources.limits", Some(8)),
            ("spec.containers[7].image", Some(5)),
            ("spec.hostPID", Some(9)),
            ("spec.nodeSelector", Some(3)),
            ("template.spec", None),
        ];
        lines(text, 2, &expected);
        lines(text, 1, &[("spec", None)]);
    }

    #[test]
    fn items_and_further_documents_and_json_are_found_by_the_line_on_which_they_begin() {
        let list = "kind: List\nitems:\n- kind: Pod\n  spec: {}\n- kind: Pod\n  spec:\n    os:\n      name: windows\n---\nkind: Pod\nspec: {}\n";
        lines(list, 3, &[("spec.os.name", Some(4))]);
        lines(list, 5, &[("spec.os.name", Some(8))]);
        lines(list, 10, &[("spec.os.name", Some(11))]);
        let json = "{\n  \"items\": [\n    {\n      \"kind\": \"Pod\",\n      \"spec\": {\n        \"hostPID\": true\n      }\n    }\n  ]\n}\n";
        lines(json, 3, &[("spec.hostPID", Some(6)), ("spec.os", Some(5))]);
    }
}
