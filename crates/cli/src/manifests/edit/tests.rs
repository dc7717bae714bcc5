use proptest::prelude::*;
use serde_json::json;
use winpool_analysis::remedy::{Edit, Remedy};
use winpool_core::api::Taint;

use super::*;

/// Makes these edits in the Pod of this text.
fn edited(text: &str, edits: Vec<Edit>) -> Result<String, EditError> {
    let document = values(text)?.remove(0);
    let patch = Remedy::of(edits).json_patch(&document, "");
    edit(text, &document, &[Change { object: String::new(), patch }])
}

#[track_caller]
fn becomes(text: &str, edits: Vec<Edit>, expected: &str) {
    assert_eq!(edited(text, edits).unwrap(), expected);
}

fn linux() -> Vec<Edit> {
    vec![Edit::select("kubernetes.io/os", "linux")]
}

fn tolerate() -> Vec<Edit> {
    vec![Edit::tolerate(&Taint::os_windows())]
}

#[test]
fn a_field_is_added_in_the_style_around_it() {
    becomes("spec:\n  a: 1 # one\n", linux(), "spec:\n  a: 1 # one\n  nodeSelector:\n    kubernetes.io/os: linux\n");
    becomes(
        "spec:\n  nodeSelector:\n    a: b\n  c: d",
        linux(),
        "spec:\n  nodeSelector:\n    a: b\n    kubernetes.io/os: linux\n  c: d",
    );
    becomes("spec: {a: 1}\n", linux(), "spec: {a: 1, nodeSelector: {kubernetes.io/os: linux}}\n");
    becomes("spec:\n  nodeSelector: {}\n", linux(), "spec:\n  nodeSelector: {kubernetes.io/os: linux}\n");
    becomes(
        "spec:\n  nodeSelector:\n  a: 1\n",
        linux(),
        "spec:\n  nodeSelector:\n    kubernetes.io/os: linux\n  a: 1\n",
    );
    becomes(
        "spec:\n  nodeSelector: null # none\n",
        linux(),
        "spec:\n  nodeSelector: # none\n    kubernetes.io/os: linux\n",
    );
    becomes(
        "spec:\n  nodeSelector:\n    \"kubernetes.io/os\": 'windows'\n",
        linux(),
        "spec:\n  nodeSelector:\n    \"kubernetes.io/os\": linux\n",
    );
    becomes(
        "spec:\r\n    a: |\r\n        b\r\n",
        linux(),
        "spec:\r\n    a: |\r\n        b\r\n    nodeSelector:\r\n      kubernetes.io/os: linux\r\n",
    );
    becomes(
        "\u{feff}---\n# about\nspec:\n  a: 1\n...\n",
        linux(),
        "\u{feff}---\n# about\nspec:\n  a: 1\n  nodeSelector:\n    kubernetes.io/os: linux\n...\n",
    );
}

#[test]
fn json_stays_json() {
    let before = "{\n  \"spec\": {\n    \"a\": [],\n    \"b\": 1\n  }\n}\n";
    let after = before.replace("1\n", "1,\n    \"nodeSelector\": {\"kubernetes.io/os\": \"linux\"}\n");
    becomes(before, linux(), &after);
    let toleration = "{\"effect\": \"NoSchedule\", \"key\": \"os\", \"operator\": \"Equal\", \"value\": \"windows\"}";
    becomes(
        "{\"spec\":{\"tolerations\":[{\"key\":\"a\"}]}}",
        tolerate(),
        &format!("{{\"spec\":{{\"tolerations\":[{{\"key\":\"a\"}}, {toleration}]}}}}"),
    );
}

#[test]
fn an_item_is_added_at_the_end_of_its_list() {
    let lines = "- effect: NoSchedule\n    key: os\n    operator: Equal\n    value: windows\n";
    becomes(
        "spec:\n  tolerations:\n  - key: a # why\n  # end\n  b: 1\n",
        tolerate(),
        &format!("spec:\n  tolerations:\n  - key: a # why\n  {lines}  # end\n  b: 1\n"),
    );
    let flow = "{effect: NoSchedule, key: os, operator: Equal, value: windows}";
    becomes("spec:\n  tolerations: [{key: a}]\n", tolerate(), &format!("spec:\n  tolerations: [{{key: a}}, {flow}]\n"));
    becomes("spec:\n  tolerations: []\n", tolerate(), &format!("spec:\n  tolerations: [{flow}]\n"));
}

#[test]
fn a_field_is_removed_with_its_line() {
    let remove = |field: &str| vec![Edit::remove_field(field)];
    becomes("spec:\n  hostPID: true # no\n  a: 1\n", remove("hostPID"), "spec:\n  a: 1\n");
    becomes("spec: {hostPID: true, a: 1}\n", remove("hostPID"), "spec: {a: 1}\n");
    becomes(
        "spec:\n  securityContext:\n    fsGroup: 1\n  a: 1\n",
        remove("securityContext.fsGroup"),
        "spec:\n  a: 1\n",
    );
    becomes(
        "spec:\n  volumes:\n  - emptyDir:\n      medium: Memory\n    name: a\n",
        remove("volumes[0].emptyDir.medium"),
        "spec:\n  volumes:\n  - emptyDir: {}\n    name: a\n",
    );
    becomes(
        "spec:\n  containers:\n  - name: a\n    image: b\n  - image: c\n    x: |\n      d\n    name: e\n",
        remove("containers[1].x"),
        "spec:\n  containers:\n  - name: a\n    image: b\n  - image: c\n    name: e\n",
    );
}

#[test]
fn what_other_places_use_is_not_changed() {
    let shared = "a: &shared\n  b: 1\nspec:\n  nodeSelector: *shared\n";
    assert!(matches!(edited(shared, linux()), Err(EditError::Alias(_))));
    let anchored = "spec:\n  nodeSelector: &shared\n    b: 1\nother: *shared\n";
    assert!(matches!(edited(anchored, linux()), Err(EditError::Elsewhere(_))));
    let anchored = "spec:\n  hostPID: &yes true\nother: *yes\n";
    assert!(matches!(edited(anchored, vec![Edit::remove_field("hostPID")]), Err(EditError::Elsewhere(_))));
    becomes(
        "a: &x 1\nspec:\n  b: *x\n",
        linux(),
        "a: &x 1\nspec:\n  b: *x\n  nodeSelector:\n    kubernetes.io/os: linux\n",
    );
}

#[test]
fn only_the_objects_of_a_list_that_need_it_are_changed() {
    let text = "kind: List\nitems:\n- kind: Pod\n  spec: {a: 1}\n- kind: Pod\n  spec: {a: 2}\n";
    let document = values(text).unwrap().remove(0);
    let patch = Remedy::of(linux()).json_patch(&json!({"spec": {"a": 2}}), "");
    let changed = edit(text, &document, &[Change { object: "/items/1".to_owned(), patch }]).unwrap();
    assert_eq!(changed, text.replace("{a: 2}", "{a: 2, nodeSelector: {kubernetes.io/os: linux}}"));
}

#[test]
fn several_items_of_a_list_are_changed_in_every_style() {
    let changed = |text: &str| {
        let document = values(text).unwrap().remove(0);
        let change = |index: usize| {
            let (object, item) = (format!("/items/{index}"), &document["items"][index]);
            Change { object, patch: Remedy::of(linux()).json_patch(item, "") }
        };
        edit(text, &document, &[change(0), change(2)])
    };
    let item = |dash: &str, indent: &str| format!("{dash}kind: Pod # a\n{indent}spec:\n{indent}  a: 1\n");
    let added = |dash: &str, indent: &str| {
        item(dash, indent) + &format!("{indent}  nodeSelector:\n{indent}    kubernetes.io/os: linux\n")
    };
    for (dash, indent) in [("- ", "  "), ("  - ", "    "), ("  -   ", "      ")] {
        let list = |one: String, other: String| {
            format!("kind: List\nitems:\n# one\n{one}# two\n{}{other}after: 1\n", item(dash, indent))
        };
        let text = list(item(dash, indent), item(dash, indent));
        assert_eq!(changed(&text).unwrap(), list(added(dash, indent), added(dash, indent)), "{dash:?}");
        let crlf = text.replace('\n', "\r\n");
        let expected = list(added(dash, indent), added(dash, indent)).replace('\n', "\r\n");
        assert_eq!(changed(&crlf).unwrap(), expected, "{dash:?}");
    }
    let json = "{\"items\": [\n  {\"spec\": {\"a\": 1}},\n  {\"spec\": {}}, {\"spec\": {\"a\": 1}}\n]}\n";
    let expected = json.replace("\"a\": 1", "\"a\": 1, \"nodeSelector\": {\"kubernetes.io/os\": \"linux\"}");
    assert_eq!(changed(json).unwrap(), expected);
    // A change of one item would change another, too.
    let shared = "items:\n- spec:\n    nodeSelector: &all {a: b}\n- spec: {nodeSelector: *all}\n- spec: {a: 1}\n";
    assert!(changed(shared).is_err());
}

/// A value as it may be written after `key:`, at an indentation of 4 or more.
fn any_value() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(" plain text".to_owned()),
        Just(" 'it''s' # said".to_owned()),
        Just(" \"tab\\t and\ttab\"".to_owned()),
        Just(" |\n        line\n\n          # no comment\n        \ttab".to_owned()),
        Just(" >-\n        folded\n        more".to_owned()),
        Just(" [a, 'b', {c: \"d\"}]".to_owned()),
        Just(" {a: 1, \"b\":2, c: [d]} # flow".to_owned()),
        Just(" &anchor value".to_owned()),
        Just("\n        deep:\n            deeper: 1".to_owned()),
        Just("\n    - item # one\n    - other: 1\n      more: 2".to_owned()),
        Just("\n      - item\n\n      # between\n      - [x]".to_owned()),
        Just(" !!str 12".to_owned()),
        Just(" ~".to_owned()),
        Just(String::new()),
    ]
}

fn any_lines() -> impl Strategy<Value = String> {
    prop_oneof![Just(""), Just("\n"), Just("    # a comment\n"), Just("# at the margin\n"), Just("      # deeper\n")]
        .prop_map(str::to_owned)
}

prop_compose! {
    fn any_fields()(fields in prop::collection::vec((any_lines(), any_value()), 0..5)) -> String {
        let lines = fields.into_iter().enumerate().map(|(index, (before, value))| format!("{before}    f{index}:{value}\n"));
        lines.collect()
    }
}

fn any_selector() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "",
        "    nodeSelector: {}\n",
        "    nodeSelector: # none\n",
        "    nodeSelector:\n        disk: ssd # fast\n        # end\n",
        "    nodeSelector: {disk: ssd}\n",
        "    \"nodeSelector\":\n      'kubernetes.io/os': \"windows\"\n",
    ])
}

fn any_tolerations() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "",
        "    tolerations: []\n",
        "    tolerations:\n    - operator: Exists # all\n",
        "    tolerations:\n      - {operator: Exists}\n",
        "    hostPID: true\n    tolerations: [{operator: Exists}]\n",
    ])
}

proptest! {
    /// Whatever is around the edits stays: without the lines of the edits the text is the same.
    #[test]
    fn nothing_changes_outside_of_the_edits(
        (head, selector, middle, tolerations, tail) in (any_fields(), any_selector(), any_fields(), any_tolerations(), any_lines()),
        ends_open in any::<bool>(),
        crlf in any::<bool>(),
    ) {
        let (middle, tail) = (middle.replace("    f", "    g"), if ends_open { "" } else { tail.as_str() });
        let mut text = format!("# first\nkind: Pod\nspec:\n    first: 1\n{head}{selector}{middle}{tolerations}{tail}");
        if ends_open {
            text.truncate(text.trim_end().len());
        }
        if crlf {
            text = text.replace('\n', "\r\n");
        }
        let Ok(documents) = values(&text) else { return Ok(()) };
        let document = &documents[0];
        let edits = [linux(), tolerate(), vec![Edit::remove_field("hostPID")]].concat();
        let patch = Remedy::of(edits).json_patch(document, "");
        let mut expected = document.clone();
        json_patch::patch(&mut expected, &patch).unwrap();
        let changed = edit(&text, document, &[Change { object: String::new(), patch }]);
        let changed = changed.map_err(|error| TestCaseError::fail(format!("{error}\n{text}")))?;
        prop_assert_eq!(without_empty(values(&changed).unwrap().remove(0)), without_empty(expected));
        prop_assert_eq!(changed.contains("\r\n"), crlf, "{}", changed);
        prop_assert!(!crlf || !changed.replace("\r\n", "").contains('\n'), "{}", changed);
        // Every line of the old text that no edit concerns is there, in the same order.
        let is_own = |line: &&str| ["nodeSelector", "kubernetes.io/os", "tolerations", "hostPID"].iter().all(|name| !line.contains(name));
        let mut lines = changed.lines();
        for line in text.lines().filter(is_own) {
            prop_assert!(lines.any(|other| other == line), "{:?} is missing in\n{}", line, changed);
        }
    }

    /// No text makes the editor fail other than by an error.
    #[test]
    fn any_text_is_edited_or_refused(
        text in "(spec|a|nodeSelector|- |: |:|\n|\n  |\n    |\\{|\\}|\\[|\\]|, |\"|'|#|&x |\\*x|\\||>|!t |\t|\\? ){0,24}",
    ) {
        if let Ok(documents) = values(&text)
            && let [document] = documents.as_slice()
        {
            let patch = Remedy::of(linux()).json_patch(document, "");
            let _ = edit(&text, document, &[Change { object: String::new(), patch }]);
        }
    }
}
