//! The rules of the CRD, once more in Rust.
//!
//! The API server checks a pool when it is written. The operator checks it again, because an object that was stored
//! under an older or relaxed schema was never checked by today's rules. A test compares both on the same pools.

use std::{collections::BTreeMap, fmt};

use k8s_openapi::{api::core::v1::Toleration, apimachinery::pkg::api::resource::Quantity};

use crate::{
    api::{Taint, WindowsPool, names},
    windows::{Build, product},
};

use super::{
    ANY_VERSION, HostMatch, NamedBuild, RuntimeClassSpec, TaintPolicy,
    pool::ONLY_WINDOWS_TAINTS,
    quantity::{is_not_negative, is_whole},
};

/// An error in a pool, with the correction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Path of the field, such as `spec.taints[0].key`.
    pub field: String,
    /// The error and its correction.
    pub message: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

/// Returns all errors in `pool`; none if it is valid.
pub fn violations(pool: &WindowsPool) -> Vec<Violation> {
    let mut found = Violations::default();
    let name = pool.metadata.name.as_deref().unwrap_or_default();
    found.unless(
        name.len() <= 63,
        "metadata.name",
        "must be at most 63 characters, because nodes carry it as a label value",
    );

    let spec = &pool.spec;
    selector(&mut found, "spec.nodeSelector", &spec.node_selector);
    for (key, value) in &spec.node_selector {
        let field = format!("spec.nodeSelector[{key}]");
        found.unless(
            key != names::OS || value == names::WINDOWS,
            &field,
            "can only be windows; leave it out, it is always set",
        );
        found.unless(
            !key.starts_with("winpool.dev/") && !key.starts_with("runs.winpool.dev/"),
            &field,
            "labels under winpool.dev are written by winpool and cannot select its nodes; use a label of your own",
        );
    }

    let wanted = spec.taints.as_deref();
    found.unless(
        wanted.is_none_or(|taints| !taints.is_empty()),
        "spec.taints",
        "an empty list is the same as no field; leave it out for os=windows:NoSchedule, list the taints, or write taintPolicy: Never for none",
    );
    taints(&mut found, "spec.taints", wanted.unwrap_or_default());
    taints(&mut found, "spec.retiredTaints", &spec.retired_taints);
    unique(&mut found, "spec.retiredTaints", spec.retired_taints.iter().map(ToString::to_string));
    found.unless(
        spec.taint_policy != TaintPolicy::TaintAndTolerate
            || wanted.unwrap_or_default().iter().all(|taint| taint.effect != "NoSchedule" || taint.marks_windows()),
        "spec.taints",
        ONLY_WINDOWS_TAINTS,
    );
    let default = [Taint::os_windows()];
    for taint in wanted.unwrap_or(&default) {
        found.unless(
            !spec.retired_taints.contains(taint),
            "spec.retiredTaints",
            &format!("{taint} is wanted and retired at once; remove it from one of the two"),
        );
    }
    if let Some(wanted) = wanted {
        unique(&mut found, "spec.taints", wanted.iter().map(|t| format!("{}:{}", t.key, t.effect)));
    }

    at_most(&mut found, "spec.buildNames", spec.build_names.len(), 32);
    for (index, named) in spec.build_names.iter().enumerate() {
        named_build(&mut found, &format!("spec.buildNames[{index}]"), named);
    }
    unique(&mut found, "spec.buildNames", spec.build_names.iter().map(|b| b.build.clone()));
    unique(&mut found, "spec.buildNames", spec.build_names.iter().map(|b| b.version.clone()));

    at_most(&mut found, "spec.runtimeClasses", spec.runtime_classes.len(), 32);
    for (index, class) in spec.runtime_classes.iter().enumerate() {
        runtime_class(&mut found, &format!("spec.runtimeClasses[{index}]"), class, &spec.build_names);
    }
    unique(&mut found, "spec.runtimeClasses", spec.runtime_classes.iter().map(|c| c.name.clone()));

    let default_class = spec.pod_defaults.as_ref().and_then(|defaults| defaults.runtime_class_name.as_deref());
    found.unless(
        default_class.is_none_or(|name| name.len() <= 63 && is_dns_subdomain(name)),
        "spec.podDefaults.runtimeClassName",
        "must be the name of one of the pool's RuntimeClasses, such as windows-2022",
    );

    let sample = spec.runtime_class_name_format.replace("{version}", "v").replace("{pool}", "p");
    found.unless(
        spec.runtime_class_name_format.contains("{version}") && spec.runtime_class_name_format.len() <= 63 && is_dns_subdomain(&sample),
        "spec.runtimeClassNameFormat",
        "must contain {version}, may contain {pool}, and otherwise has lower-case letters, digits, '-' and '.', such as windows-{version}",
    );
    found.0
}

#[derive(Default)]
struct Violations(Vec<Violation>);

impl Violations {
    fn unless(&mut self, holds: bool, field: &str, message: &str) {
        if !holds {
            self.0.push(Violation { field: field.to_owned(), message: message.to_owned() });
        }
    }
}

fn taints(found: &mut Violations, field: &str, taints: &[Taint]) {
    at_most(found, field, taints.len(), 16);
    for (index, taint) in taints.iter().enumerate() {
        let field = |part: &str| format!("{field}[{index}].{part}");
        found.unless(
            is_qualified_name(&taint.key),
            &field("key"),
            "must be a qualified name such as os or node.kubernetes.io/os",
        );
        found.unless(
            !taint.has_foreign_key(),
            &field("key"),
            "belongs to Kubernetes or to an autoscaler; choose a key of your own such as os",
        );
        found.unless(is_label_value(&taint.value), &field("value"), "must be a label value such as windows");
        found.unless(
            matches!(taint.effect.as_str(), "NoSchedule" | "PreferNoSchedule"),
            &field("effect"),
            "must be NoSchedule or PreferNoSchedule; NoExecute is not offered because it would evict running pods",
        );
    }
}

fn selector(found: &mut Violations, field: &str, selector: &BTreeMap<String, String>) {
    at_most(found, field, selector.len(), 32);
    for (key, value) in selector {
        found.unless(
            is_qualified_name(key) && is_label_value(value),
            &format!("{field}[{key}]"),
            "keys must be label names and values label values, as in a pod's nodeSelector",
        );
    }
}

fn named_build(found: &mut Violations, field: &str, named: &NamedBuild) {
    build(found, field, &named.build);
    let field = format!("{field}.version");
    found.unless(
        is_dns_label(&named.version) && named.version.len() <= 32,
        &field,
        "must be at most 32 lower-case letters, digits and hyphens, such as preview",
    );
    found.unless(
        product::by_version(&named.version).is_none_or(|product| product.build.to_string() == named.build)
            && !named.version.starts_with("build-"),
        &field,
        "is the name of another Windows build already; choose another name",
    );
}

fn runtime_class(found: &mut Violations, field: &str, class: &RuntimeClassSpec, named: &[NamedBuild]) {
    let at = |part: &str| format!("{field}.{part}");
    found.unless(
        class.version.is_some() != class.build.is_some(),
        field,
        "write exactly one of version (such as 2019) and build (such as 10.0.17763)",
    );
    if let Some(version) = &class.version {
        found.unless(
            version == ANY_VERSION || product::by_version(version).is_some() || named.iter().any(|b| b.version == *version),
            &at("version"),
            "is not known; write the version of a Windows Server release such as 2019, name it in spec.buildNames, or write build instead",
        );
    }
    if let Some(text) = &class.build {
        build(found, field, text);
    }
    found.unless(
        class.name.len() <= 63 && is_dns_subdomain(&class.name),
        &at("name"),
        "must be a DNS subdomain of at most 63 characters, such as windows-2022",
    );
    found.unless(
        class.version.as_deref() != Some(ANY_VERSION) || class.host_match == HostMatch::Exact,
        &at("hostMatch"),
        "Compatible needs the build of the images; write a version such as 2022 instead of Any",
    );
    found.unless(
        class.handler.as_deref().is_none_or(is_dns_label),
        &at("handler"),
        "must be a DNS label, such as runhcs-wcow-process",
    );
    found.unless(
        class.architecture.len() <= 16
            && class.architecture.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
            && !class.architecture.is_empty(),
        &at("architecture"),
        "must be a value of the label kubernetes.io/arch, such as amd64",
    );
    selector(found, &at("nodeSelector"), &class.node_selector);
    for key in [names::OS, names::ARCH, names::WINDOWS_BUILD] {
        found.unless(
            !class.node_selector.contains_key(key),
            &at("nodeSelector"),
            &format!("may not set {key}; it follows from version or build, and architecture"),
        );
    }
    found.unless(
        class
            .overhead
            .iter()
            .flat_map(|overhead| overhead.pod_fixed.values())
            .all(|quantity| quantity.0.len() <= 32 && is_not_negative(quantity)),
        &at("overhead.podFixed"),
        "values must be quantities of at most 32 characters that are not negative, such as 512Mi or 500m",
    );
    at_most(found, &at("tolerations"), class.tolerations.len(), 16);
    found.unless(
        class.tolerations.iter().all(is_toleration),
        &at("tolerations"),
        "operator must be Equal or Exists, and effect NoSchedule, PreferNoSchedule or NoExecute, or left out for all",
    );
    for toleration in &class.tolerations {
        the_api_server_takes(found, &at("tolerations"), toleration);
    }
    found.unless(
        class.overhead.iter().flat_map(|overhead| &overhead.pod_fixed).all(is_resource),
        &at("overhead.podFixed"),
        "names are cpu, memory, ephemeral-storage, or that of an extended resource such as example.com/gpu, of which there are whole numbers",
    );
    at_most(found, &at("overhead.podFixed"), class.overhead.iter().map(|o| o.pod_fixed.len()).sum(), 8);
}

fn build(found: &mut Violations, field: &str, text: &str) {
    found.unless(
        text.parse::<Build>().is_ok(),
        &format!("{field}.build"),
        "must be 10.0.<number>, as in the label node.kubernetes.io/windows-build, such as 10.0.20348",
    );
}

fn at_most(found: &mut Violations, field: &str, count: usize, limit: usize) {
    found.unless(count <= limit, field, &format!("has {count} entries; at most {limit} are allowed"));
}

fn unique(found: &mut Violations, field: &str, keys: impl Iterator<Item = String>) {
    let mut seen = std::collections::BTreeSet::new();
    for key in keys {
        found.unless(!seen.contains(&key), field, &format!("{key} is listed twice; remove one of the two"));
        seen.insert(key);
    }
}

fn is_toleration(toleration: &Toleration) -> bool {
    let operator = toleration.operator.as_deref().unwrap_or("Equal");
    let effect = toleration.effect.as_deref().unwrap_or_default();
    matches!(operator, "Equal" | "Exists") && matches!(effect, "" | "NoSchedule" | "PreferNoSchedule" | "NoExecute")
}

/// The API server's rules for the tolerations of a RuntimeClass.
fn the_api_server_takes(found: &mut Violations, field: &str, toleration: &Toleration) {
    let [key, value] = [&toleration.key, &toleration.value].map(|text| text.as_deref().unwrap_or_default());
    let exists = toleration.operator.as_deref() == Some("Exists");
    found.unless(
        exists || !key.is_empty(),
        field,
        "without a key operator must be Exists, which tolerates every taint",
    );
    let seconds_fit = toleration.toleration_seconds.is_none() || toleration.effect.as_deref() == Some("NoExecute");
    found.unless(
        (!exists || value.is_empty()) && seconds_fit,
        field,
        "operator Exists has no value, and tolerationSeconds needs effect NoExecute",
    );
    found.unless(
        (key.is_empty() || is_qualified_name(key)) && is_label_value(value),
        field,
        "key must be a qualified name such as os or node.kubernetes.io/os, and value a label value such as windows",
    );
}

fn is_resource((name, amount): (&String, &Quantity)) -> bool {
    matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage")
        || (name.contains('/') && is_qualified_name(name) && is_whole(amount))
}

/// True for a label or taint key: an optional DNS subdomain and a slash, then a name of at most 63 characters.
pub fn is_qualified_name(text: &str) -> bool {
    let (prefix, name) = match text.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, text),
    };
    prefix.is_none_or(|p| p.len() <= 253 && is_dns_subdomain(p)) && !name.is_empty() && is_label_value(name)
}

/// True for a label value: at most 63 letters, digits, `-`, `_` and `.`, with a letter or digit at both ends, or
/// nothing.
pub fn is_label_value(text: &str) -> bool {
    let edge = |b: Option<&u8>| b.is_none_or(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    bytes.len() <= 63
        && edge(bytes.first())
        && edge(bytes.last())
        && bytes.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

/// True for a DNS label: at most 63 lower-case letters, digits and hyphens, with a letter or digit at both ends.
pub fn is_dns_label(text: &str) -> bool {
    text.len() <= 63 && is_subdomain_part(text)
}

/// True for a DNS subdomain as Kubernetes checks it: at most 253 characters, and no limit for the parts between dots.
pub fn is_dns_subdomain(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(is_subdomain_part)
}

fn is_subdomain_part(text: &str) -> bool {
    let bytes = text.as_bytes();
    let alphanumeric = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    bytes.first().is_some_and(alphanumeric)
        && bytes.last().is_some_and(alphanumeric)
        && bytes.iter().all(|b| alphanumeric(b) || *b == b'-')
}
