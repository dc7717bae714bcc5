use std::cell::Cell;
use std::io::{self, Read};

use proptest::prelude::*;
use serde_json::json;

use super::stream::Stream;
use super::*;

/// Keeps everything as it is, but for Secrets.
#[derive(Debug, PartialEq)]
struct Whole(Manifest);

impl Keep for Whole {
    const COPIES: Copies = Copies::EqualOnce;

    fn keep(manifest: Manifest) -> Result<Option<Self>, serde_json::Error> {
        if manifest.is("", "Node") {
            serde_json::from_value::<k8s_openapi::api::core::v1::Node>(manifest.value.clone())?;
        }
        Ok((!manifest.is("", "Secret")).then_some(Self(manifest)))
    }
}

fn read_text(text: &str) -> Result<Vec<(Position, Whole)>, InputError> {
    let mut kept = Objects::default();
    match read_stream("nodes.yaml", text.as_bytes(), true, &mut kept).into_iter().next() {
        None => Ok(kept.found),
        Some(error) => Err(error),
    }
}

fn names(text: &str) -> Vec<String> {
    let kept = read_text(text).unwrap();
    kept.iter().map(|(source, whole)| format!("{} {source}", whole.0.describe())).collect()
}

fn error(text: &str) -> String {
    read_text(text).unwrap_err().to_string()
}

#[test]
fn documents_lists_and_json_are_read_with_the_line_of_each_object() {
    let documents = "# two\n---\napiVersion: v1\nkind: Node\nmetadata: {name: a}\n---\n---\n\nkind: Node\napiVersion: v1\nmetadata:\n  name: b\n";
    assert_eq!(names(documents), ["Node a nodes.yaml:3", "Node b nodes.yaml:9"]);
    let list = "apiVersion: v1\nitems:\n- apiVersion: v1\n  kind: Node\n  metadata:\n    name: a\n- apiVersion: node.k8s.io/v1\n  handler: h\n  kind: RuntimeClass\n  metadata:\n    name: c\nkind: List\nmetadata:\n  resourceVersion: \"\"\n";
    assert_eq!(names(list), ["Node a nodes.yaml:3", "RuntimeClass c nodes.yaml:7"]);
    let json = "{\n  \"apiVersion\": \"v1\",\n  \"items\": [\n    {\"apiVersion\": \"v1\", \"kind\": \"Node\", \"metadata\": {\"name\": \"a\"}}\n  ],\n  \"kind\": \"List\"\n}";
    assert_eq!(names(json), ["Node a nodes.yaml:4"]);
    let pretty = json.replace(", \"kind\"", ",\n\"kind\"").replace("    {\"api", "    {\n  \"api");
    assert_eq!(names(&pretty), ["Node a nodes.yaml:4"]);
    let typed = r#"{"kind":"NodeList","apiVersion":"v1","metadata":{},"items":[{"metadata":{"name":"a"}}]}"#;
    assert_eq!(names(typed), ["Node a nodes.yaml:1"]);
    let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: p, namespace: shop}";
    assert_eq!(names(pod), ["Pod shop/p nodes.yaml:1"]);
}

#[test]
fn lists_in_lists_are_read_and_a_typed_list_in_any_order_of_its_fields() {
    let nested = "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: List\n  items:\n  - {apiVersion: v1, kind: Node, metadata: {name: a}}\n  - apiVersion: v1\n    kind: NodeList\n    items: [{metadata: {name: b}}]\n- {apiVersion: v1, kind: Node, metadata: {name: c}}\n";
    assert_eq!(names(nested), ["Node a nodes.yaml:4", "Node b nodes.yaml:4", "Node c nodes.yaml:11"]);
    let sorted = "apiVersion: v1\nitems:\n- metadata: {name: a}\n- metadata: {name: b}\nkind: NodeList\nmetadata: {}\n";
    assert_eq!(names(sorted), ["Node a nodes.yaml:3", "Node b nodes.yaml:4"]);
    let json = "{\"items\": [{\"metadata\": {\"name\": \"a\"}}],\n\"kind\": \"NodeList\", \"apiVersion\": \"v1\"}";
    assert_eq!(names(json), ["Node a nodes.yaml:1"]);
    let bare = "apiVersion: v1\nitems:\n- metadata: {name: a}\nkind: List\n";
    assert_eq!(error(bare), "nodes.yaml:3: an item of a List: apiVersion and kind are missing");
}

#[test]
fn an_object_with_items_is_a_list_as_for_kubectl() {
    for text in [
        "apiVersion: example.com/v1\nkind: Things\nitems:\n- {a: 1}\n- {apiVersion: v1, kind: Pod}\n",
        "apiVersion: example.com/v1\n\nitems:\n- {a: 1}\n- {apiVersion: v1, kind: Pod}\nkind: Things\n",
    ] {
        assert_eq!(names(text), ["Things nodes.yaml:4", "Pod nodes.yaml:5"]);
    }
    assert_eq!(names("apiVersion: example.com/v1\nkind: Things\nitems: []\n"), Vec::<String>::new());
}

#[test]
fn equal_copies_of_an_object_are_read_once() {
    let [a, b] = ["a", "b"].map(node);
    let copies = format!("{a}\n{b}\n{a}\n---\napiVersion: v1\nkind: Node\nmetadata: {{name: b}}\n");
    assert_eq!(names(&copies), ["Node a nodes.yaml:1", "Node b nodes.yaml:3"]);
    // Another version of the same object, and an object of which the API server makes a new one each time.
    let changed = a.replace("\"a\"", "\"a\", \"labels\": {\"x\": \"y\"}");
    assert_eq!(names(&format!("{a}\n{changed}")), ["Node a nodes.yaml:1", "Node a nodes.yaml:3"]);
    let pods = "{apiVersion: v1, kind: Pod, metadata: {generateName: p-}}\n---\n".repeat(2);
    assert_eq!(names(&pods).len(), 2);
    // What the cluster says of one object at two times.
    let at =
        |revision: &str| a.replace("\"a\"", &format!("\"a\", \"uid\": \"1\", \"resourceVersion\": \"{revision}\""));
    assert_eq!(names(&format!("{}\n{}", at("1"), at("2"))), ["Node a nodes.yaml:3"]);
}

fn node(name: &str) -> String {
    format!("{{\"apiVersion\": \"v1\", \"kind\": \"Node\",\n\"metadata\": {{\"name\": \"{name}\"}}}}")
}

#[test]
fn json_documents_follow_each_other_and_yaml_may_follow_them() {
    let [a, b, c] = ["a", "b", "c"].map(node);
    let all = ["Node a nodes.yaml:1", "Node b nodes.yaml:3", "Node c nodes.yaml:5"];
    assert_eq!(names(&format!("{a}\n{b}\n{c}\n")), all);
    assert_eq!(names(&format!("{a}\n{b}\napiVersion: v1\nkind: Node\nmetadata: {{name: c}}\n")), all);
    let separated = ["Node a nodes.yaml:2", "Node b nodes.yaml:6", "Node c nodes.yaml:9"];
    assert_eq!(names(&format!("---\n{a}\n---\n\n{b}\n---\n{c}\n---\n")), separated);
    assert_eq!(
        names(&format!("---\n{a}\n---\n\n{b}\n---\napiVersion: v1\nkind: Node\nmetadata: {{name: c}}")),
        separated
    );
}

#[test]
fn yaml_that_begins_like_json_is_read_as_yaml() {
    for text in [
        "{apiVersion: v1, kind: Node, metadata: {name: a}}",
        "{\"apiVersion\": \"v1\", \"kind\": Node, metadata: {name: a}}",
        "{\"apiVersion\": \"v1\", \"kind\": \"Node\", \"metadata\": {\"name\": \"a\",},}",
        "{\"apiVersion\": \"v1\", # why\n \"kind\": \"Node\", \"metadata\": {\"name\": \"a\"}}",
        "{'apiVersion': 'v1', 'kind': 'Node', 'metadata': {'name': 'a'}}",
    ] {
        assert_eq!(names(text), ["Node a nodes.yaml:1"], "{text}");
    }
}

#[test]
fn documents_that_are_too_long_are_refused() {
    let endless = |start: &'static str| start.as_bytes().chain(io::repeat(b' '));
    for start in ["{\"apiVersion\":", "apiVersion: v1\nkind:"] {
        let line = Cell::new(1);
        let mut stream = Stream::new(endless(start), 100_000, &line);
        let error = stream.json_is_next().and_then(|_| io::copy(&mut stream, &mut io::sink())).unwrap_err();
        assert_eq!(error.to_string(), "it is longer than 100000 bytes");
    }
}

thread_local! {
    static HANDED_OVER: Cell<usize> = const { Cell::new(0) };
}

/// Counts objects and keeps none.
struct Counted;

impl Keep for Counted {
    fn keep(_: Manifest) -> Result<Option<Self>, serde_json::Error> {
        HANDED_OVER.set(HANDED_OVER.get() + 1);
        Ok(None)
    }
}

/// A long List, which is written while it is read.
struct LongList {
    next: Box<dyn Iterator<Item = String>>,
    written: Vec<u8>,
    items: usize,
    /// Most items that were written and not yet handed over.
    ahead: usize,
}

impl Read for LongList {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.written.is_empty()
            && let Some(text) = self.next.next()
        {
            self.written = text.into_bytes();
            self.items += 1;
            self.ahead = self.ahead.max(self.items - HANDED_OVER.get());
        }
        let count = self.written.as_slice().read(into)?;
        self.written.drain(..count);
        Ok(count)
    }
}

#[test]
fn a_long_list_is_read_object_by_object() {
    const ITEMS: usize = 3000;
    let filler = "x".repeat(1000);
    let json = format!(r#"{{"apiVersion": "v1", "kind": "Pod", "metadata": {{"name": "{filler}"}}}}"#);
    let yaml = format!("- apiVersion: v1\n  kind: Pod\n  metadata:\n    name: {filler}\n");
    for (start, item, end) in [
        ("{\"kind\": \"List\", \"apiVersion\": \"v1\", \"items\": [", format!("{json},\n"), format!("{json}]}}")),
        ("kind: List\napiVersion: v1\nitems:\n", yaml.clone(), yaml),
    ] {
        HANDED_OVER.set(0);
        let items = std::iter::repeat_n(item, ITEMS - 1);
        let next = std::iter::once(start.to_owned()).chain(items).chain([end]);
        let mut list = LongList { next: Box::new(next), written: Vec::new(), items: 0, ahead: 0 };
        let unread = read_stream::<Counted>("long", &mut list, true, &mut Objects::default());
        assert!(unread.is_empty(), "{unread:?}");
        assert_eq!(HANDED_OVER.get(), ITEMS);
        assert!(list.ahead < 200, "{} objects were read before they were handed over", list.ahead);
    }
}

#[test]
fn objects_that_a_command_does_not_need_are_skipped() {
    assert_eq!(names("apiVersion: v1\nkind: Secret\ndata: {a: b}\n"), Vec::<String>::new());
    assert_eq!(names("kind: List\napiVersion: v1\nitems: null\n"), Vec::<String>::new());
    assert_eq!(names("# nothing\n"), Vec::<String>::new());
    let other = "apiVersion: example.com/v1\nkind: Thing\nmetadata: {name: t}\nitems: {a: 1}\n";
    assert_eq!(names(other), ["Thing t nodes.yaml:1"]);
}

#[test]
fn scalars_are_read_as_kubectl_reads_them() {
    let kept = read_text("apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {a: 0644, b: '0644', c: 10.0.20348, d: 2026-01-01T00:00:00Z, e: yes, f: null, g: 1e3}\n").unwrap();
    assert_eq!(
        kept[0].1.0.value["spec"],
        json!({"a": 420, "b": "0644", "c": "10.0.20348", "d": "2026-01-01T00:00:00Z", "e": true, "g": 1000.0})
    );
}

#[test]
fn keys_are_text_as_for_kubectl() {
    let kept =
        read_text("apiVersion: v1\nkind: Pod\nspec: {yes: a, 010: b, 1.5: c, \"no\": d, on: {off: e}, true: f}\n")
            .unwrap();
    assert_eq!(kept[0].1.0.value["spec"], json!({"8": "b", "1.5": "c", "no": "d", "true": "f"}));
}

#[test]
fn merge_keys_replace_the_fields_before_them_as_for_kubectl() {
    let kept = read_text("apiVersion: v1\nkind: Pod\na: &a {x: 1, y: 2}\nb: &b {x: 3, z: 4}\nspec:\n  before: {x: 0, <<: *a}\n  after: {<<: *a, x: 0}\n  both: {<<: [*a, *b]}\n  one-by-one:\n    <<: *a\n    <<: *b\n  text: {<<: c}\n").unwrap();
    assert_eq!(
        kept[0].1.0.value["spec"],
        json!({
            "before": {"x": 1, "true": 2}, "after": {"x": 0, "true": 2}, "both": {"x": 1, "true": 2, "z": 4},
            "one-by-one": {"x": 3, "true": 2, "z": 4}, "text": {"<<": "c"},
        })
    );
}

#[test]
fn an_anchor_may_have_many_aliases() {
    let aliases = "- *a\n".repeat(2000);
    let kept = read_text(&format!("apiVersion: v1\nkind: Pod\na: &a {{x: 1}}\nspec:\n{aliases}")).unwrap();
    assert_eq!(kept[0].1.0.value["spec"].as_array().unwrap().len(), 2000);
}

#[test]
fn a_number_that_is_too_large_is_text() {
    let kept = read_text("apiVersion: v1\nkind: Pod\nspec: {a: 1e999}\n").unwrap();
    assert!(kept[0].1.0.value["spec"]["a"].is_string());
}

#[test]
fn bytes_that_are_not_utf_8_are_replaced_and_utf_16_is_converted() {
    let read = |bytes: &[u8]| {
        let mut kept = Objects::<Whole>::default();
        let unread = read_stream("nodes.yaml", bytes, true, &mut kept);
        assert!(unread.is_empty(), "{unread:?}");
        kept.found.into_iter().map(|(source, whole)| format!("{} {source}", whole.0.describe())).collect::<Vec<_>>()
    };
    let latin = [b"# f\xfcr\n", node("a\u{fc}").replace('\u{fc}', "?").as_bytes()].concat();
    assert_eq!(read(&latin), ["Node a? nodes.yaml:2"]);
    let latin = b"apiVersion: v1\nkind: Pod\nmetadata: {name: f\xfcr}\n";
    assert_eq!(read(latin), ["Pod f\u{fffd}r nodes.yaml:1"]);
    let both = format!("\u{feff}{}\n{}", node("a"), node("b"));
    for order in [u16::to_le_bytes, u16::to_be_bytes] {
        let bytes: Vec<u8> = both.encode_utf16().flat_map(order).collect();
        assert_eq!(read(&bytes), ["Node a nodes.yaml:1", "Node b nodes.yaml:3"]);
    }
}

#[test]
fn errors_say_where() {
    insta::assert_snapshot!(error("apiVersion: v1\nkind: [Node\nmetadata:\n  name: a\n"), @"nodes.yaml:3:9: illegal placement of ':' indicator");
    insta::assert_snapshot!(error("apiVersion: v1\nkind: Node\n\tmetadata: {}\n"), @"nodes.yaml:2:7: while scanning a plain scalar, found a tab");
    insta::assert_snapshot!(error("just a text\n"), @"nodes.yaml:1:1: not a Kubernetes object: apiVersion and kind are missing");
    insta::assert_snapshot!(error("- a\n- b\n"), @"nodes.yaml:1:1: not a Kubernetes object: apiVersion and kind are missing");
    insta::assert_snapshot!(error("---\napiVersion: v1\n---\nreplicas: 3\n"), @"nodes.yaml:2:1: not a Kubernetes object: apiVersion and kind are missing");
    insta::assert_snapshot!(error("apiVersion: v1\nkind: List\nitems: 7\n"), @"nodes.yaml:3:1: invalid type: integer `7`, expected a list of objects");
    insta::assert_snapshot!(error("apiVersion: v1\nkind: List\nitems:\n- metadata: {name: a}\n"), @"nodes.yaml:4: an item of a List: apiVersion and kind are missing");
    insta::assert_snapshot!(error("# x\napiVersion: v1\nkind: Node\nmetadata: {name: a}\nspec: {taints: 7}\n"), @"nodes.yaml:2: Node a: invalid type: integer `7`, expected a sequence");
    insta::assert_snapshot!(error("{\"apiVersion\": \"v1\", \"kind\": \"No"), @"nodes.yaml:1:32: EOF while parsing a string");
    insta::assert_snapshot!(error("\n{\"apiVersion\": \"v1\",\n  \"kind\": \"List\", \"items\": 7}"), @"nodes.yaml:3:29: invalid type: integer `7`, expected a list of objects");
    insta::assert_snapshot!(error("{\n\"kind\": \"Node\"}"), @"nodes.yaml:1:1: not a Kubernetes object: apiVersion and kind are missing");
    insta::assert_snapshot!(error("{\"apiVersion\": \"v1\", \"kind\": \"List\", \"items\": [\n{\"metadata\": {}}]}"), @"nodes.yaml:2: an item of a List: apiVersion and kind are missing");
    insta::assert_snapshot!(error("apiVersion: v1\nkind: Node\nmetadata: *nothing\n"), @"nodes.yaml:3:11: alias references unknown anchor");
    let ten = |item| [item; 20].join(", ");
    let laughs = format!(
        "a: &a [{}]\nb: &b [{}]\nc: &c [{}]\nd: &d [{}]\ne: [{}]\n",
        ten("x"),
        ten("*a"),
        ten("*b"),
        ten("*c"),
        ten("*d"),
    );
    insta::assert_snapshot!(error(&laughs), @"nodes.yaml:5:9: alias replay limit exceeded: total_replayed_events=400001 > 400000");
    insta::assert_snapshot!(error("{{- if .Values.enabled }}\napiVersion: v1\n{{- end }}\n"), @r#"nodes.yaml:1:3: "-" is only valid inside a block"#);
}

#[test]
fn a_document_that_is_no_object_is_skipped_in_a_folder_only() {
    let mut kept = Objects::<Whole>::default();
    assert!(read_stream("values.yaml", "replicas: 3\n".as_bytes(), false, &mut kept).is_empty());
    assert!(kept.found.is_empty());
    assert!(read_text("replicas: 3\n").is_err());
}

#[test]
fn aliases_that_expand_to_billions_of_nodes_are_refused() {
    let start = "apiVersion: v1\nkind: Node\na0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
    let bomb = (1..12).fold(start, |bomb, level| {
        let before = format!("*a{}", level - 1);
        format!("{bomb}a{level}: &a{level} [{}]\n", [before.as_str(); 9].join(", "))
    });
    assert!(error(&bomb).starts_with("nodes.yaml:"), "{}", error(&bomb));
    let deep = format!("apiVersion: v1\nkind: Node\nspec: {}{}", "[".repeat(5000), "]".repeat(5000));
    let told = error(&deep);
    assert!(told.starts_with("nodes.yaml:3:") && told.ends_with("nested more than 64 levels deep"), "{told}");
    let deep = (0..5000).map(|level| " ".repeat(level) + "a:\n").collect::<String>();
    assert!(error(&deep).starts_with("nodes.yaml:"), "{}", error(&deep));
    assert!(error(&"\0".repeat(100_000)).len() < 300);
    assert!(error(&"a".repeat(1_000_000)).len() < 300);
}

#[test]
fn folders_are_read_in_order_with_those_in_them() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    std::fs::create_dir(folder.path().join("b")).unwrap();
    for name in ["c.yml", "a.yaml", "b/x.json", "notes.txt"] {
        write(
            name,
            &format!("{{\"apiVersion\": \"v1\", \"kind\": \"Node\", \"metadata\": {{\"name\": \"{}\"}}}}", &name[..1]),
        );
    }
    write("values.yaml", "replicas: 3\n");
    #[cfg(unix)]
    std::os::unix::fs::symlink(folder.path(), folder.path().join("loop")).unwrap();
    let kept = read::<Whole>(&[folder.path().to_owned()], io::empty()).unwrap().found;
    assert_eq!(kept.iter().map(|(_, whole)| whole.0.describe()).collect::<Vec<_>>(), ["Node a", "Node b", "Node c"]);
    let empty = tempfile::tempdir().unwrap();
    assert!(
        read::<Whole>(&[empty.path().to_owned()], io::empty())
            .unwrap_err()
            .to_string()
            .contains("has no file that ends in")
    );
    let missing = read::<Whole>(&["/nonexistent/nodes.yaml".into()], io::empty()).unwrap_err().to_string();
    assert!(missing.starts_with("cannot read /nonexistent/nodes.yaml: "), "{missing}");
    let url = read::<Whole>(&["https://127.0.0.1/nodes.yaml".into()], io::empty()).unwrap_err().to_string();
    assert_eq!(url, "https://127.0.0.1/nodes.yaml is a URL: download it, and pipe it to winpool with -f -");
}

#[test]
fn a_pattern_is_expanded_as_kubectl_does() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["a", "b", "[c]"] {
        std::fs::write(folder.path().join(format!("{name}.yaml")), node(name)).unwrap();
    }
    let read = |pattern: &str| read::<Whole>(&[folder.path().join(pattern)], io::empty()).map(|read| read.found.len());
    assert_eq!(read("*.yaml").unwrap(), 3);
    assert_eq!(read("[ab].yaml").unwrap(), 2);
    assert_eq!(read("[c].yaml").unwrap(), 1, "a path that exists is no pattern");
    assert!(read("*.json").unwrap_err().to_string().starts_with("cannot read "));
}

#[cfg(unix)]
#[test]
fn a_link_that_leads_nowhere_hides_nothing() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("b.yaml"), node("b")).unwrap();
    std::os::unix::fs::symlink("/nonexistent", folder.path().join("a.yaml")).unwrap();
    let read = read::<Whole>(&[folder.path().to_owned()], io::empty()).unwrap();
    assert_eq!((read.found.len(), read.are_complete), (1, false));
}

const LIST: &str = "apiVersion: v1\nitems:\n- apiVersion: v1\n  kind: Node\n  metadata: &m {name: a, labels: {x: \"y\"}}\n  spec: {taints: [{key: os, effect: NoSchedule}]}\n- apiVersion: v1\n  kind: Node\n  metadata: *m\nkind: List\n";

const JSON_LIST: &str = "{\n  \"apiVersion\": \"v1\",\n  \"items\": [\n    {\n      \"apiVersion\": \"v1\",\n      \"kind\": \"Node\",\n      \"metadata\": {\"name\": \"a\", \"labels\": {\"x\": \"\\u00e4\"}},\n      \"spec\": {\"taints\": [{\"key\": \"os\", \"effect\": \"NoSchedule\"}]}\n    }\n  ],\n  \"kind\": \"List\"\n}\n";

proptest! {
    #[test]
    fn no_input_panics(bytes: Vec<u8>, text in "[ \\na-d:{}\\[\\],&*!|>'\"#-]{0,80}") {
        let _ = read_stream::<Whole>("x", bytes.as_slice(), true, &mut Objects::default());
        let _ = read_stream::<Whole>("x", text.as_bytes(), true, &mut Objects::default());
        let _ = read_stream::<Whole>("x", format!("{{{text}").as_bytes(), true, &mut Objects::default());
    }

    #[test]
    fn no_damaged_list_panics(json: bool, at in 0..LIST.len(), with: u8, cut: bool) {
        let mut bytes = if json { JSON_LIST } else { LIST }.as_bytes().to_vec();
        let at = at.min(bytes.len() - 1);
        if cut { bytes.truncate(at) } else { bytes[at] = with }
        let _ = read_stream::<Whole>("x", bytes.as_slice(), true, &mut Objects::default());
    }
}
