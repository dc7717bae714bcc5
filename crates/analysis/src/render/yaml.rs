//! Labels and taints in YAML.

use std::fmt::{self, Write};

use serde_json::json;
use winpool_core::api::Taint;

pub(super) fn taint_list(out: &mut String, indent: &str, taints: &[Taint]) -> fmt::Result {
    for Taint { key, value, effect } in taints {
        writeln!(out, "{indent}- key: {}", json!(key))?;
        if !value.is_empty() {
            writeln!(out, "{indent}  value: {}", json!(value))?;
        }
        writeln!(out, "{indent}  effect: {}", effect.as_str())?;
    }
    Ok(())
}

pub(super) fn label_map(out: &mut String, indent: &str, labels: &[(&str, &str)]) -> fmt::Result {
    labels.iter().try_for_each(|(key, value)| writeln!(out, "{indent}{}: {}", json!(key), json!(value)))
}
