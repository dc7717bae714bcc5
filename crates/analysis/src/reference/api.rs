//! The users' reference of the API: fields from the CRD, and names from their table.

use std::fmt::{self, Write};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use winpool_core::api::names::{self, condition, reason};

use crate::crd::crd;

const FIELDS: &str = "<!-- Written by `make generate` from crates/core/src/api/. -->
# WindowsPool

`winpool.dev/v1alpha1`, cluster-scoped, short names `winpool` and `wp`. Every field has a default; most clusters need only
`spec: {}`. `kubectl explain windowspool.spec` prints the same texts. The API server validates a pool when you write it. Commands with
`-f` do so before, except for sizes and duplicates. The operator does nothing for a pool that would be unsafe, even if it was stored
under other rules.
";

const NAMES: &str = "<!-- Written by `make generate` from crates/core/src/api/names.rs. -->
# Conditions, reasons, labels

";

const CONDITIONS: &str = "## Conditions

The conditions of a WindowsPool. Each is always present unless its meaning says otherwise. If it reports a problem, its message says
what to do. `Ready` covers everything that winpool can do: blocked nodes and failing pods do not affect it.

| Condition | True means |
|---|---|
";

const REASONS: &str = "
## Reasons

The reasons of conditions, of entries in `status.problems`, and of Events. winpool writes these Events:

| Type | Object | When |
|---|---|---|
| Warning | pool | a new problem; winpool begins to hold taints |
| Normal | pool | every node has its taints; a RuntimeClass was written (`RuntimeClassCreated`, `RuntimeClassChanged`) |
| Warning | Node | another writer keeps reverting winpool's changes; the API server refuses a change |

| Reason | Meaning |
|---|---|
";

const MARKS: &str = "
## Labels, annotations, finalizers

| Key | Meaning |
|---|---|
";

/// Renders all fields of a WindowsPool as Markdown.
pub fn fields() -> String {
    let mut text = FIELDS.to_owned();
    let versions = crd().spec.versions;
    let schemas = versions.iter().filter_map(|version| version.schema.as_ref()?.open_api_v3_schema.as_ref());
    for properties in schemas.filter_map(|root| root.properties.as_ref()) {
        for name in ["spec", "status"] {
            if let Some(schema) = properties.get(name) {
                // Writing to a String never fails.
                let _ = object(&mut text, name, schema);
            }
        }
    }
    text
}

/// Renders conditions, reasons, labels and annotations as Markdown.
pub fn meanings() -> String {
    let mut text = NAMES.to_owned();
    for (introduction, described) in
        [(CONDITIONS, condition::DESCRIBED), (REASONS, reason::DESCRIBED), (MARKS, names::DESCRIBED)]
    {
        text.push_str(introduction);
        for (name, meaning) in described {
            let _ = writeln!(text, "| `{name}` | {} |", meaning.trim());
        }
    }
    text
}

/// Writes a section for an object, and one for each object in it.
fn object(out: &mut String, path: &str, schema: &JSONSchemaProps) -> fmt::Result {
    writeln!(out, "\n## {path}\n")?;
    if let Some(description) = &schema.description {
        writeln!(out, "{}\n", prose(description))?;
    }
    writeln!(out, "| Field | Type | Default | |\n|---|---|---|---|")?;
    let properties = schema.properties.iter().flatten();
    for (name, field) in properties.clone() {
        let required = schema.required.iter().flatten().any(|required| required == name);
        let default = match &field.default {
            Some(default) => format!("`{}`", default.0),
            None if required => "required".to_owned(),
            None => String::new(),
        };
        let description = field.description.as_deref().map(prose).unwrap_or_default().replace('|', "\\|");
        writeln!(out, "| `{name}` | {} | {default} | {description} |", kind(field))?;
    }
    let messages: Vec<&str> =
        schema.x_kubernetes_validations.iter().flatten().filter_map(|rule| rule.message.as_deref()).collect();
    if !messages.is_empty() {
        writeln!(out, "\nThe API server refuses a value with one of these messages:\n")?;
        messages.iter().try_for_each(|message| writeln!(out, "- {}", prose(message)))?;
    }
    for (name, field) in properties {
        if let Some(inner) = within(field) {
            object(out, &format!("{path}.{name}"), inner)?;
        }
    }
    Ok(())
}

/// The object in a field, or in a list. Conditions are Kubernetes' own type and have no section.
fn within(field: &JSONSchemaProps) -> Option<&JSONSchemaProps> {
    let inner = match &field.items {
        Some(JSONSchemaPropsOrArray::Schema(items)) => items,
        _ => field,
    };
    let is_condition = field.x_kubernetes_list_map_keys.as_ref().is_some_and(|keys| keys == &["type"]);
    (inner.properties.is_some() && !is_condition).then_some(inner)
}

fn kind(field: &JSONSchemaProps) -> String {
    if let Some(values) = &field.enum_ {
        let values: Vec<String> = values.iter().filter_map(|value| Some(format!("`{}`", value.0.as_str()?))).collect();
        return values.join(", ");
    }
    let bounded = |text: &str, most: Option<i64>| match most {
        Some(most) => format!("{text}, at most {most}"),
        None => text.to_owned(),
    };
    match (&field.items, &field.additional_properties, field.type_.as_deref()) {
        (Some(_), ..) => bounded("list", field.max_items),
        (_, Some(JSONSchemaPropsOrBool::Schema(_)), _) => bounded("map", field.max_properties),
        (.., Some("string")) if field.max_length.is_some() => {
            format!("string, at most {} characters", field.max_length.unwrap_or_default())
        }
        (.., Some(kind)) => kind.to_owned(),
        _ => "integer or string".to_owned(),
    }
}

/// The text on one line, with the characters escaped that Markdown takes for HTML outside of code.
pub(crate) fn prose(text: &str) -> String {
    let parts = text.split('`').enumerate();
    let escaped = parts.map(|(number, part)| if number % 2 == 0 { part.replace('<', "&lt;") } else { part.to_owned() });
    escaped.collect::<Vec<_>>().join("`").split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_of_spec_and_status_is_there() {
        let text = fields();
        for line in [
            "| `mode` | `Enforce`, `DryRun` | `\"Enforce\"` |",
            "| `retiredTaints` | list, at most 16 |",
            "| `name` | string, at most 63 characters | required |",
            "## spec.runtimeClasses",
            "## status.runtimeClasses",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
    }

    #[test]
    fn conditions_reasons_and_labels_have_a_meaning() {
        let text = meanings();
        assert!(text.contains("| `Ready` | winpool has done everything that it can do for this pool. |"), "{text}");
        assert!(text.contains("| `ClassConflict` | winpool does not manage the RuntimeClass"), "{text}");
        assert!(text.contains("| `winpool.dev/ignore` | Annotation on nodes"), "{text}");
    }

    #[test]
    fn text_that_looks_like_html_is_shown() {
        assert_eq!(prose("build is 10.0.<number>, as\n in `10.0.<n>`"), "build is 10.0.&lt;number>, as in `10.0.<n>`");
    }
}
