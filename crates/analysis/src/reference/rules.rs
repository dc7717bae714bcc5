//! The reference page of all rules.

use std::fmt::Write;

use super::api::prose;
use crate::lint::rule::{Judgement, Rule};
use crate::lint::{REFUSED, advise, rules};

const INTRODUCTION: &str = "<!-- Written by `make generate` from crates/analysis/src/lint/. -->
# Rules of `winpool check`

Each rule has a name, which `--ignore` takes. *Rejected*: the API server refuses the object or its pods. *Fails*: containers do not
start or do not work. *Pending*: no node fits, or a DaemonSet gets no pods. *Ignored*: the field has no effect.
*Note*: for your information.

If a rule has two judgements, the second is for a pod that is meant for Windows but does not have `os.name: windows`: the
API server does not refuse such a pod. Rules marked with † are also in the admission policy `advise`, and those marked with 1.23+ are
for Kubernetes 1.23 and later. An example has fields of a pod that breaks the rule; `null` means that a field is missing. If no pod
shows it, the row names the field.
";

const GROUPS: [(&str, &str); 9] = [
    (
        "Placement",
        "Pods must find a node on which their images start. Some rules need nodes, pools or RuntimeClasses, and report nothing \
         if these are not known.",
    ),
    (
        "Images in registries",
        "Only with `--resolve-images`. If a registry says which Windows versions an image supports, winpool ignores \
         its tag.",
    ),
    (
        "Whole objects",
        "The API server refuses these objects for Windows and for Linux. winpool reads them nevertheless, and also \
         checks the rest.",
    ),
    (
        "What the API server refuses",
        "Tested against a Kubernetes 1.37 API server. Unless the row says otherwise, the field cannot be set for a \
         Windows pod, not even to its default value.",
    ),
    (
        "What Windows does not do",
        "The source is the Kubernetes documentation, or the code where the documentation says nothing or contradicts \
         itself.",
    ),
    (
        "What is recommended",
        "The source is the Kubernetes documentation. [Its \
         statements](https://github.com/winpool/winpool/blob/main/docs/reference/windows-documentation.md) are mapped \
         to rules one by one.",
    ),
    ("Group managed service accounts", "winpool knows these objects if manifests have them or if it may list them."),
    ("Services", "These rules are for Services that select pods for Windows."),
    ("Nodes", "These rules are for Windows nodes."),
];

/// Returns the rules as Markdown.
pub fn reference() -> String {
    let advised: Vec<&str> = advise::expressions().map(|(rule, _)| rule.id).collect();
    let mut text = INTRODUCTION.to_owned();
    for ((title, about), rules) in GROUPS.iter().zip(rules::groups()) {
        // Writing to a String cannot fail.
        let _ = write!(
            text,
            "\n## {title}\n\n{about}\n\n| Rule | Judgement | Example | Why, and what to do |\n|---|---|---|---|\n"
        );
        for rule in rules.iter().copied().flatten() {
            let mark = if advised.contains(&rule.id) { " †" } else { "" };
            let Rule { id, field, remedy, .. } = rule;
            let since = if rule.since == 0 { String::new() } else { format!(" (1.{}+)", rule.since) };
            let (label, fields) = rule.examples().next().unwrap_or(("Breaks", field));
            let example = prose(&format!("`{fields}`{}", label.trim_start_matches("Breaks")));
            // The introduction of the group says it.
            let is_said = rule.reason == REFUSED.reason;
            let reason = if is_said { String::new() } else { format!("{}. ", capital(&rule.sentence(true))) };
            let why = prose(&format!("{reason}{}. {}", capital(remedy), rule.about()));
            let _ = writeln!(text, "| `{id}`{mark}{since} | {} | {example} | {why} |", verdicts(rule));
        }
    }
    text
}

fn verdicts(rule: &Rule) -> String {
    let text = |Judgement(severity, consequence)| format!("{severity}, {consequence}");
    match rule.without_os {
        Some((without, _)) => format!("{} / {}", text(rule.verdict), text(without)),
        None => text(rule.verdict),
    }
}

/// Names of fields and programs that look like other words.
const NAMES: [&str; 5] = ["capabilities", "privileged", "resources", "sysctls", "winpool"];

/// Capitalises the first letter, unless the text begins with the name of a field.
fn capital(text: &str) -> String {
    let word = text.split([' ', ',', ':']).next().unwrap_or_default();
    let is_name = NAMES.contains(&word)
        || word.chars().any(|letter| letter.is_ascii_uppercase() || letter == '.' || letter == '/');
    let mut letters = text.chars();
    match letters.next() {
        Some(first) if !is_name => first.to_uppercase().chain(letters).collect(),
        _ => text.to_owned(),
    }
}
