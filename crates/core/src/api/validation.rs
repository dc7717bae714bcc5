//! The rules of the CRD, once more in Rust.
//!
//! The API server checks a pool when it is written. The operator checks it again, because an object that was stored
//! under an older or relaxed schema was never checked by today's rules. A test compares both on the same pools.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

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
    let mut found = Vec::new();
    let mut metadata = Part { path: "metadata".to_owned(), found: &mut found };
    let is_short = pool.metadata.name.as_ref().is_none_or(|name| name.len() <= 63);
    metadata.unless(is_short, "name", "must be at most 63 characters, because nodes carry it as a label value");

    let spec = &pool.spec;
    let mut part = Part { path: "spec".to_owned(), found: &mut found };
    selector(&mut part, &spec.node_selector);
    for (key, value) in &spec.node_selector {
        let field = format!("nodeSelector[{key}]");
        let is_windows = key != names::OS || value == names::WINDOWS;
        part.unless(is_windows, &field, "can only be windows; leave it out, it is always set");
        let is_own = key.starts_with("winpool.dev/") || key.starts_with("runs.winpool.dev/");
        let remedy =
            "labels under winpool.dev are written by winpool and cannot select its nodes; use a label of your own";
        part.unless(!is_own, &field, remedy);
    }

    let wanted = spec.taints.as_deref();
    part.unless(
        wanted.is_none_or(|taints| !taints.is_empty()),
        "taints",
        "an empty list is the same as no field; leave it out for os=windows:NoSchedule, list the taints, or write taintPolicy: Never for none",
    );
    taints(&mut part, "taints", wanted.unwrap_or_default());
    taints(&mut part, "retiredTaints", &spec.retired_taints);
    part.unique("retiredTaints", spec.retired_taints.iter().map(ToString::to_string));
    let mark_windows =
        wanted.unwrap_or_default().iter().all(|taint| taint.effect != "NoSchedule" || taint.marks_windows());
    part.unless(mark_windows || spec.taint_policy != TaintPolicy::TaintAndTolerate, "taints", ONLY_WINDOWS_TAINTS);
    let default = [Taint::os_windows()];
    for taint in wanted.unwrap_or(&default) {
        let remedy = format!("{taint} is wanted and retired at once; remove it from one of the two");
        part.unless(!spec.retired_taints.contains(taint), "retiredTaints", &remedy);
    }
    part.unique("taints", wanted.into_iter().flatten().map(|taint| format!("{}:{}", taint.key, taint.effect)));

    part.at_most("buildNames", spec.build_names.len(), 32);
    for (index, named) in spec.build_names.iter().enumerate() {
        named_build(&mut part.part(&format!("buildNames[{index}]")), named);
    }
    part.unique("buildNames", spec.build_names.iter().map(|named| named.build.clone()));
    part.unique("buildNames", spec.build_names.iter().map(|named| named.version.clone()));

    part.at_most("runtimeClasses", spec.runtime_classes.len(), 32);
    for (index, class) in spec.runtime_classes.iter().enumerate() {
        runtime_class(&mut part.part(&format!("runtimeClasses[{index}]")), class, &spec.build_names);
    }
    part.unique("runtimeClasses", spec.runtime_classes.iter().map(|class| class.name.clone()));

    let default_class = spec.pod_defaults.as_ref().and_then(|defaults| defaults.runtime_class_name.as_deref());
    part.unless(
        default_class.is_none_or(is_class_name),
        "podDefaults.runtimeClassName",
        "must be the name of one of the pool's RuntimeClasses, such as windows-2022",
    );

    let (format, is_short) = (&spec.runtime_class_name_format, spec.runtime_class_name_format.len() <= 63);
    let sample = format.replace("{version}", "v").replace("{pool}", "p");
    part.unless(
        format.contains("{version}") && is_short && is_dns_subdomain(&sample),
        "runtimeClassNameFormat",
        "must contain {version}, may contain {pool}, and otherwise has lower-case letters, digits, '-' and '.', such as windows-{version}",
    );
    found
}

/// A part of a pool with its path, whose rules are tested.
struct Part<'a> {
    path: String,
    found: &'a mut Vec<Violation>,
}

impl Part<'_> {
    fn part(&mut self, name: &str) -> Part<'_> {
        Part { path: format!("{}.{name}", self.path), found: self.found }
    }

    /// Adds the error of this field unless its rule holds.
    fn unless(&mut self, holds: bool, field: &str, message: &str) {
        if !holds {
            let field = format!("{}.{field}", self.path);
            self.found.push(Violation { field, message: message.to_owned() });
        }
    }

    fn at_most(&mut self, field: &str, count: usize, limit: usize) {
        self.unless(count <= limit, field, &format!("has {count} entries; at most {limit} are allowed"));
    }

    fn unique(&mut self, field: &str, keys: impl Iterator<Item = String>) {
        let mut seen = BTreeSet::new();
        for key in keys {
            let remedy = format!("{key} is listed twice; remove one of the two");
            self.unless(seen.insert(key), field, &remedy);
        }
    }
}

fn taints(spec: &mut Part<'_>, field: &str, taints: &[Taint]) {
    spec.at_most(field, taints.len(), 16);
    for (index, taint) in taints.iter().enumerate() {
        let mut part = spec.part(&format!("{field}[{index}]"));
        let is_name = is_qualified_name(&taint.key);
        part.unless(is_name, "key", "must be a qualified name such as os or node.kubernetes.io/os");
        let remedy = "belongs to Kubernetes or to an autoscaler; choose a key of your own such as os";
        part.unless(!taint.has_foreign_key(), "key", remedy);
        part.unless(is_label_value(&taint.value), "value", "must be a label value such as windows");
        part.unless(
            matches!(taint.effect.as_str(), "NoSchedule" | "PreferNoSchedule"),
            "effect",
            "must be NoSchedule or PreferNoSchedule; NoExecute is not offered because it would evict running pods",
        );
    }
}

fn selector(part: &mut Part<'_>, selector: &BTreeMap<String, String>) {
    part.at_most("nodeSelector", selector.len(), 32);
    for (key, value) in selector {
        let remedy = "keys must be label names and values label values, as in a pod's nodeSelector";
        part.unless(is_qualified_name(key) && is_label_value(value), &format!("nodeSelector[{key}]"), remedy);
    }
}

fn named_build(part: &mut Part<'_>, named: &NamedBuild) {
    build(part, &named.build);
    let is_label = is_dns_label(&named.version) && named.version.len() <= 32;
    part.unless(is_label, "version", "must be at most 32 lower-case letters, digits and hyphens, such as preview");
    let is_free = product::by_version(&named.version).is_none_or(|product| product.build.to_string() == named.build)
        && !named.version.starts_with("build-");
    part.unless(is_free, "version", "is the name of another Windows build already; choose another name");
}

fn runtime_class(part: &mut Part<'_>, class: &RuntimeClassSpec, named: &[NamedBuild]) {
    if class.version.is_some() == class.build.is_some() {
        let message = "write exactly one of version (such as 2019) and build (such as 10.0.17763)".to_owned();
        part.found.push(Violation { field: part.path.clone(), message });
    }
    let is_known = |version: &String| {
        version == ANY_VERSION || product::by_version(version).is_some() || named.iter().any(|b| b.version == *version)
    };
    part.unless(
        class.version.as_ref().is_none_or(is_known),
        "version",
        "is not known; write the version of a Windows Server release such as 2019, name it in spec.buildNames, or write build instead",
    );
    if let Some(text) = &class.build {
        build(part, text);
    }
    part.unless(
        is_class_name(&class.name),
        "name",
        "must be a DNS subdomain of at most 63 characters, such as windows-2022",
    );
    part.unless(
        class.version.as_deref() != Some(ANY_VERSION) || class.host_match == HostMatch::Exact,
        "hostMatch",
        "Compatible needs the build of the images; write a version such as 2022 instead of Any",
    );
    let is_handler = class.handler.as_deref().is_none_or(is_dns_label);
    part.unless(is_handler, "handler", "must be a DNS label, such as runhcs-wcow-process");
    let is_architecture = (1..=16).contains(&class.architecture.len())
        && class.architecture.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    part.unless(is_architecture, "architecture", "must be a value of the label kubernetes.io/arch, such as amd64");
    selector(part, &class.node_selector);
    for key in [names::OS, names::ARCH, names::WINDOWS_BUILD] {
        let remedy = format!("may not set {key}; it follows from version or build, and architecture");
        part.unless(!class.node_selector.contains_key(key), "nodeSelector", &remedy);
    }
    let overhead = || class.overhead.iter().flat_map(|overhead| &overhead.pod_fixed);
    part.unless(
        overhead().all(|(_, quantity)| quantity.0.len() <= 32 && is_not_negative(quantity)),
        "overhead.podFixed",
        "values must be quantities of at most 32 characters that are not negative, such as 512Mi or 500m",
    );
    part.at_most("tolerations", class.tolerations.len(), 16);
    part.unless(
        class.tolerations.iter().all(is_toleration),
        "tolerations",
        "operator must be Equal or Exists, and effect NoSchedule, PreferNoSchedule or NoExecute, or left out for all",
    );
    for toleration in &class.tolerations {
        the_api_server_takes(part, toleration);
    }
    part.unless(
        overhead().all(is_resource),
        "overhead.podFixed",
        "names are cpu, memory, ephemeral-storage, or that of an extended resource such as example.com/gpu, of which there are whole numbers",
    );
    part.at_most("overhead.podFixed", overhead().count(), 8);
}

fn build(part: &mut Part<'_>, text: &str) {
    let is_build = text.parse::<Build>().is_ok();
    part.unless(
        is_build,
        "build",
        "must be 10.0.<number>, as in the label node.kubernetes.io/windows-build, such as 10.0.20348",
    );
}

fn is_toleration(toleration: &Toleration) -> bool {
    let operator = toleration.operator.as_deref().unwrap_or("Equal");
    let effect = toleration.effect.as_deref().unwrap_or_default();
    matches!(operator, "Equal" | "Exists") && matches!(effect, "" | "NoSchedule" | "PreferNoSchedule" | "NoExecute")
}

/// The API server's rules for the tolerations of a RuntimeClass.
fn the_api_server_takes(part: &mut Part<'_>, toleration: &Toleration) {
    let [key, value] = [&toleration.key, &toleration.value].map(|text| text.as_deref().unwrap_or_default());
    let exists = toleration.operator.as_deref() == Some("Exists");
    let has_key = exists || !key.is_empty();
    part.unless(has_key, "tolerations", "without a key operator must be Exists, which tolerates every taint");
    let seconds_fit = toleration.toleration_seconds.is_none() || toleration.effect.as_deref() == Some("NoExecute");
    let remedy = "operator Exists has no value, and tolerationSeconds needs effect NoExecute";
    part.unless((!exists || value.is_empty()) && seconds_fit, "tolerations", remedy);
    part.unless(
        (key.is_empty() || is_qualified_name(key)) && is_label_value(value),
        "tolerations",
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

/// True for a name that a RuntimeClass of a pool may have.
pub fn is_class_name(text: &str) -> bool {
    text.len() <= 63 && is_dns_subdomain(text)
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
