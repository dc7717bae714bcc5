//! Rules that test one field. The test is data, from which both the check and its CEL expression are made.

use serde_json::Value;

/// Returns the value at a path. `null` counts as absent, as for the API server.
pub fn get<'a>(object: &'a Value, path: &[&str]) -> Option<&'a Value> {
    path.iter().try_fold(object, |value, key| value.get(key)).filter(|value| !value.is_null())
}

/// Returns the containers of a pod spec, each with its path.
pub(super) fn containers(pod: &Value) -> impl Iterator<Item = (String, &Value)> {
    ["containers", "initContainers", "ephemeralContainers"].into_iter().flat_map(move |list| {
        let containers = pod.get(list).and_then(Value::as_array).into_iter().flatten().enumerate();
        containers.map(move |(index, container)| (format!("{list}[{index}]"), container))
    })
}

/// Returns the volumes of a pod spec, each with its path.
pub(super) fn volumes(pod: &Value) -> impl Iterator<Item = (String, &Value)> {
    let volumes = pod.get("volumes").and_then(Value::as_array).into_iter().flatten().enumerate();
    volumes.map(|(index, volume)| (format!("volumes[{index}]"), volume))
}

/// The place of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// In the pod spec.
    Pod,
    /// In each container, including init containers and ephemeral containers.
    Container,
    /// In each of the `volumeMounts` of each container.
    Mount,
    /// In each volume.
    Volume,
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

/// The test of one field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldTest {
    /// The place where the path begins.
    pub at: At,
    /// The path from that place.
    pub path: &'static [&'static str],
    /// The value that breaks the rule.
    pub trigger: Trigger,
}

impl FieldTest {
    /// Returns the paths of the fields in the pod spec that break the rule.
    pub fn hits(self, pod: &Value) -> impl Iterator<Item = String> {
        self.places(pod).into_iter().filter(move |(_, place)| self.is_met(place)).map(move |(prefix, _)| {
            let path = self.path.join(".");
            if prefix.is_empty() { path } else { format!("{prefix}.{path}") }
        })
    }

    fn places(self, pod: &Value) -> Vec<(String, &Value)> {
        match self.at {
            At::Pod => vec![(String::new(), pod)],
            At::Container => containers(pod).collect(),
            At::Mount => containers(pod)
                .flat_map(|(path, container)| {
                    let mounts = container["volumeMounts"].as_array().into_iter().flatten().enumerate();
                    mounts.map(move |(index, mount)| (format!("{path}.volumeMounts[{index}]"), mount))
                })
                .collect(),
            At::Volume => volumes(pod).collect(),
        }
    }

    fn is_met(self, place: &Value) -> bool {
        let Some(value) = get(place, self.path) else { return false };
        let text = || value.as_str().filter(|text| !text.is_empty());
        match self.trigger {
            Trigger::Present => true,
            Trigger::True => value == &Value::Bool(true),
            Trigger::NotEmpty => value.as_array().is_some_and(|list| !list.is_empty()),
            Trigger::OneOf(texts) => text().is_some_and(|text| texts.contains(&text)),
            Trigger::OtherThan(default) => text().is_some_and(|text| text != default),
            Trigger::OtherNumberThan(default) => value.as_i64().is_some_and(|number| number != default),
        }
    }

    /// Returns a CEL expression that is true if the rule is broken.
    ///
    /// It uses `variables.pod`, and `variables.containers` for all containers that a new pod can have.
    pub fn cel(self) -> String {
        match self.at {
            At::Pod => self.cel_of("variables.pod"),
            At::Container => format!("variables.containers.exists(c, {})", self.cel_of("c")),
            At::Mount => {
                format!("variables.containers.exists(c, c.?volumeMounts.orValue([]).exists(m, {}))", self.cel_of("m"))
            }
            At::Volume => format!("variables.pod.?volumes.orValue([]).exists(v, {})", self.cel_of("v")),
        }
    }

    fn cel_of(self, root: &str) -> String {
        let field: String =
            std::iter::once(root.to_owned()).chain(self.path.iter().map(|name| format!(".?{name}"))).collect();
        match self.trigger {
            Trigger::Present => format!("{field}.hasValue()"),
            Trigger::True => format!("{field}.orValue(false)"),
            Trigger::NotEmpty => format!("size({field}.orValue([])) > 0"),
            Trigger::OneOf(texts) => format!("{field}.orValue('') in {}", cel_list(texts.iter().copied())),
            Trigger::OtherThan(default) => format!("!({field}.orValue('') in ['', '{default}'])"),
            Trigger::OtherNumberThan(default) => format!("{field}.orValue({default}) != {default}"),
        }
    }
}

/// Formats a CEL list: `['a', 'b']`. The texts are winpool's own and need no escapes.
pub(super) fn cel_list<'a>(texts: impl IntoIterator<Item = &'a str>) -> String {
    let quoted: Vec<String> = texts.into_iter().map(|text| format!("'{text}'")).collect();
    format!("[{}]", quoted.join(", "))
}
