//! Rules that test one field. The test is data, from which both the check and its CEL expression are made.

use serde_json::Value;

use crate::workload::get;

/// Returns the containers of a pod spec, each with its path.
pub(super) fn containers(pod: &Value) -> impl Iterator<Item = (String, &Value)> {
    ["containers", "initContainers", "ephemeralContainers"].into_iter().flat_map(move |list| {
        let containers = pod.get(list).and_then(Value::as_array).into_iter().flatten().enumerate();
        containers.map(move |(index, container)| (format!("{list}[{index}]"), container))
    })
}

/// Returns the entries of `volumeMounts` of all containers, each with its path.
pub(super) fn mounts(pod: &Value) -> impl Iterator<Item = (String, &Value)> {
    containers(pod).flat_map(|(path, container)| {
        let mounts = container["volumeMounts"].as_array().into_iter().flatten().enumerate();
        mounts.map(move |(index, mount)| (format!("{path}.volumeMounts[{index}]"), mount))
    })
}

/// Returns the volumes of a pod spec, each with its path.
pub(super) fn volumes(pod: &Value) -> impl Iterator<Item = (String, &Value)> {
    let volumes = pod.get("volumes").and_then(Value::as_array).into_iter().flatten().enumerate();
    volumes.map(|(index, volume)| (format!("volumes[{index}]"), volume))
}

/// The value that breaks a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// Any value, even `false` or `{}`.
    Present,
    /// The value true.
    True,
    /// A list that is not empty.
    NotEmpty,
    /// One of these texts.
    OneOf(&'static [&'static str]),
    /// Any text except this one, which is the API server's default.
    OtherThan(&'static str),
    /// Any number except this one, which is the API server's default.
    OtherNumberThan(i64),
}

/// The parts of a pod spec that occur several times, as they are written in the field of a rule.
const MOUNTS: &str = "containers[*].volumeMounts[*].";
const CONTAINERS: &str = "containers[*].";
const VOLUMES: &str = "volumes[*].";

impl Trigger {
    /// Returns the paths in the pod spec where `field`, such as `containers[*].image`, has such a value.
    pub fn hits<'a>(self, field: &'a str, pod: &'a Value) -> impl Iterator<Item = String> + 'a {
        let (path, places): (&str, Vec<(String, &Value)>) = if let Some(path) = field.strip_prefix(MOUNTS) {
            (path, mounts(pod).collect())
        } else if let Some(path) = field.strip_prefix(CONTAINERS) {
            (path, containers(pod).collect())
        } else if let Some(path) = field.strip_prefix(VOLUMES) {
            (path, volumes(pod).collect())
        } else {
            (field, vec![(String::new(), pod)])
        };
        let hits = places.into_iter().filter(move |(_, place)| self.is_met(place, path));
        hits.map(move |(prefix, _)| if prefix.is_empty() { path.to_owned() } else { format!("{prefix}.{path}") })
    }

    fn is_met(self, place: &Value, path: &str) -> bool {
        let Some(value) = get(place, &path.split('.').collect::<Vec<_>>()) else { return false };
        let text = || value.as_str().filter(|text| !text.is_empty());
        match self {
            Self::Present => true,
            Self::True => value == &Value::Bool(true),
            Self::NotEmpty => value.as_array().is_some_and(|list| !list.is_empty()),
            Self::OneOf(texts) => text().is_some_and(|text| texts.contains(&text)),
            Self::OtherThan(default) => text().is_some_and(|text| text != default),
            Self::OtherNumberThan(default) => value.as_i64().is_some_and(|number| number != default),
        }
    }

    /// Returns a CEL expression that is true if a field has such a value.
    ///
    /// It uses `variables.pod`, and `variables.containers` for all containers that a new pod can have.
    pub fn cel(self, field: &str) -> String {
        if let Some(path) = field.strip_prefix(MOUNTS) {
            let mounts = format!("c.?volumeMounts.orValue([]).exists(m, {})", self.cel_of("m", path));
            format!("variables.containers.exists(c, {mounts})")
        } else if let Some(path) = field.strip_prefix(CONTAINERS) {
            format!("variables.containers.exists(c, {})", self.cel_of("c", path))
        } else if let Some(path) = field.strip_prefix(VOLUMES) {
            format!("variables.pod.?volumes.orValue([]).exists(v, {})", self.cel_of("v", path))
        } else {
            self.cel_of("variables.pod", field)
        }
    }

    fn cel_of(self, root: &str, path: &str) -> String {
        let field = format!("{root}.?{}", path.replace('.', ".?"));
        match self {
            Self::Present => format!("{field}.hasValue()"),
            Self::True => format!("{field}.orValue(false)"),
            Self::NotEmpty => format!("size({field}.orValue([])) > 0"),
            Self::OneOf(texts) => format!("{field}.orValue('') in {}", cel_list(texts.iter().copied())),
            Self::OtherThan(default) => format!("!({field}.orValue('') in ['', '{default}'])"),
            Self::OtherNumberThan(default) => format!("{field}.orValue({default}) != {default}"),
        }
    }
}

/// Formats a CEL list: `['a', 'b']`. The texts are winpool's own and need no escapes.
pub(super) fn cel_list<'a>(texts: impl IntoIterator<Item = &'a str>) -> String {
    let quoted: Vec<String> = texts.into_iter().map(|text| format!("'{text}'")).collect();
    format!("[{}]", quoted.join(", "))
}
