//! Generates specs of pools from the schema. The same seed gives the same specs.

use serde_json::{Map, Value, json};
use winpool_analysis::crd::crd;
use winpool_e2e::machine::dice::Dice;

/// Generates specs.
pub struct Generator {
    schema: Value,
    samples: Vec<Value>,
}

/// The share of odd values in a spec.
#[derive(Clone, Copy)]
enum Taste {
    Tame,
    Wild,
}

/// Valid and invalid values for a field of this name.
fn words(field: &str) -> &'static [&'static str] {
    match field {
        "key" => &["os", "dedicated", "example.com/team", "node.kubernetes.io/os", "windows", "a"],
        "value" => &["windows", "Windows", "Win1809", "", "true"],
        "effect" => &["NoSchedule", "NoSchedule", "PreferNoSchedule"],
        "operator" => &["Equal", "Exists"],
        "build" => &["10.0.17763", "10.0.20348", "10.0.26100", "10.0.29000", "10.0.1", "10.0.999999"],
        "version" => &["2019", "2022", "2025", "Any", "23h2", "2016"],
        "name" => &["windows-2019", "windows-2022", "gpu", "a.b-c", "build-1", "windows-2025-hyperv"],
        "runtimeClassName" => &["windows-2022", "gpu", "none"],
        "handler" => &["runhcs-wcow-process", "runhcs-wcow-hypervisor", "other"],
        "architecture" => &["amd64", "arm64"],
        "runtimeClassNameFormat" => {
            &["windows-{version}", "{pool}-{version}", "win.{version}.{pool}", "{version}{version}"]
        }
        "nodeSelector" => &["a", "b", "1"],
        "podFixed" => &["512Mi", "0", "1", "250m", "1e3", "0.5Gi"],
        _ => &["windows", "a"],
    }
}

/// Keys of maps in a field of this name.
fn keys(field: &str) -> &'static [&'static str] {
    match field {
        "podFixed" => &["memory", "cpu", "example.com/gpu"],
        _ => &["team", "tier", "example.com/zone"],
    }
}

/// Strings that often cause bugs.
const ODD: [&str; 29] = [
    "",
    " ",
    "-",
    ".",
    "/",
    "a/b/c",
    "Ünïcödé",
    "🪟",
    "\u{202e}swodniw",
    "e\u{301}",
    "\u{0}",
    "a\nb",
    "windows\n",
    "\u{feff}os",
    "оs",
    "１０.0.20348",
    "10.0.20348.2655",
    "10.0.0",
    "10.0.020348",
    "NoExecute",
    "node.kubernetes.io/not-ready",
    "karpenter.sh/x",
    "winpool.dev/pool",
    "kubernetes.io/os",
    "{version}",
    "null",
    "1e300",
    "1e-30",
    "99999999999999999999",
];

impl Generator {
    pub fn new() -> Self {
        let definition = json!(crd());
        let schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"].clone();
        Self { schema, samples: samples() }
    }

    /// Returns any spec with this number.
    pub fn any(&self, number: u64) -> Value {
        let mut dice = Dice::new(number.wrapping_mul(0x1_0000_0001));
        match dice.roll(3) {
            0 => self.mutated(&mut dice),
            1 => self.object("spec", &self.schema, Taste::Tame, &mut dice),
            _ => self.value("spec", &self.schema, Taste::Wild, &mut dice),
        }
    }

    /// Returns a spec that is probably valid.
    pub fn plausible(&self, number: u64) -> Value {
        let mut dice = Dice::new(number.wrapping_mul(0x1_0000_0003));
        if dice.once_in(4) {
            self.mutated(&mut dice)
        } else {
            self.object("spec", &self.schema, Taste::Tame, &mut dice)
        }
    }

    /// Returns a valid spec with 1 to 4 changed values.
    fn mutated(&self, dice: &mut Dice) -> Value {
        let mut spec = self.samples[dice.roll(self.samples.len())].clone();
        for _ in 0..=dice.roll(4) {
            let place = dice.roll(places(&spec));
            mutate(&mut spec, &mut { place }, dice);
        }
        spec
    }

    fn value(&self, field: &str, schema: &Value, taste: Taste, dice: &mut Dice) -> Value {
        if matches!(taste, Taste::Wild) && dice.once_in(30) {
            return wrong(dice);
        }
        if let Some(choices) = schema["enum"].as_array() {
            return choices[dice.roll(choices.len())].clone();
        }
        match schema["type"].as_str() {
            Some("object") => self.object(field, schema, taste, dice),
            Some("array") => self.array(field, schema, taste, dice),
            Some("boolean") => json!(dice.once_in(2)),
            Some("integer") => json!([0, 1, 300, i64::MAX][dice.roll(4)]),
            Some("string") => json!(text(field, schema, taste, dice)),
            // An integer or a string.
            _ if dice.once_in(3) => json!(dice.roll(1000)),
            _ => json!(text(field, schema, taste, dice)),
        }
    }

    fn array(&self, field: &str, schema: &Value, taste: Taste, dice: &mut Dice) -> Value {
        let limit = schema["maxItems"].as_u64().and_then(|limit| usize::try_from(limit).ok()).unwrap_or(16);
        let count = match (taste, dice.roll(12)) {
            (Taste::Wild, 0) => limit + dice.roll(2),
            (_, 1) => 0,
            _ => 1 + dice.roll(3),
        };
        let items: Vec<Value> = (0..count).map(|_| self.value(field, &schema["items"], taste, dice)).collect();
        if matches!(taste, Taste::Wild) {
            return Value::from(items);
        }
        distinct(items)
    }

    fn object(&self, field: &str, schema: &Value, taste: Taste, dice: &mut Dice) -> Value {
        let mut object = Map::new();
        let required = schema["required"].as_array();
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            let needed = required.is_some_and(|required| required.contains(&json!(name)));
            let leaves_out = if matches!(taste, Taste::Wild) { dice.once_in(40) } else { false };
            if (needed && !leaves_out) || dice.once_in(3) {
                object.insert(name.clone(), self.value(name, property, taste, dice));
            }
        }
        if schema["additionalProperties"].is_object() {
            for _ in 0..dice.roll(3) {
                let odd = matches!(taste, Taste::Wild) && dice.once_in(8);
                let key = if odd { ODD[dice.roll(ODD.len())] } else { dice.pick(keys(field)) };
                object.insert(key.to_owned(), self.value(field, &schema["additionalProperties"], taste, dice));
            }
        }
        match taste {
            Taste::Wild if dice.once_in(30) => drop(object.insert("unknown".to_owned(), wrong(dice))),
            Taste::Tame => make_sense(field, &mut object, dice),
            Taste::Wild => {}
        }
        Value::Object(object)
    }
}

/// Adjusts a spec to rules about several fields.
fn make_sense(field: &str, object: &mut Map<String, Value>, dice: &mut Dice) {
    match field {
        "runtimeClasses" => {
            object.remove(if dice.once_in(2) { "version" } else { "build" });
            if !object.contains_key("build") && !object.contains_key("version") {
                object.insert("version".to_owned(), json!("2022"));
            }
            if object.get("version") == Some(&json!("Any")) {
                object.remove("hostMatch");
                object.remove("isolation");
            }
        }
        "tolerations" => {
            if object.get("operator") == Some(&json!("Exists")) {
                object.remove("value");
            } else if object.get("key").is_none() {
                object.insert("key".to_owned(), json!("os"));
            }
            if object.get("effect") != Some(&json!("NoExecute")) {
                object.remove("tolerationSeconds");
            }
        }
        "podFixed" => {
            if let Some(gpus) = object.get_mut("example.com/gpu") {
                *gpus = json!(dice.roll(3));
            }
        }
        "buildNames" => drop(object.insert("version".to_owned(), json!(format!("v{}", dice.roll(50))))),
        "spec" => {
            if object.get("taints").and_then(Value::as_array).is_some_and(Vec::is_empty) {
                object.remove("taints");
            }
            if let Some(Value::Array(wanted)) = object.get("taints").cloned()
                && let Some(Value::Array(retired)) = object.get_mut("retiredTaints")
            {
                retired.retain(|taint| !wanted.contains(taint));
            }
        }
        _ => {}
    }
}

/// Removes items with equal keys.
fn distinct(items: Vec<Value>) -> Value {
    let mut kept: Vec<Value> = Vec::new();
    for item in items {
        let same = |other: &Value| {
            let equal = |part: &str| !item[part].is_null() && item[part] == other[part];
            equal("name") || equal("build") || (equal("key") && equal("effect"))
        };
        if !kept.iter().any(same) {
            kept.push(item);
        }
    }
    Value::from(kept)
}

fn text(field: &str, schema: &Value, taste: Taste, dice: &mut Dice) -> String {
    let limit = schema["maxLength"].as_u64().and_then(|limit| usize::try_from(limit).ok());
    match (taste, dice.roll(12)) {
        (Taste::Wild, 0) => ODD[dice.roll(ODD.len())].to_owned(),
        (Taste::Wild, 1) => "a".repeat(limit.unwrap_or(63) + dice.roll(3) - 1),
        (Taste::Wild, 2) => "ü".repeat(limit.unwrap_or(63) / 2 + dice.roll(2)),
        _ => dice.pick(words(field)).to_owned(),
    }
}

/// A value of an unusual type.
fn wrong(dice: &mut Dice) -> Value {
    let huge = json!(1e300);
    let all = [
        Value::Null,
        json!(true),
        json!(-1),
        json!(u64::MAX),
        huge,
        json!(0.1),
        json!(""),
        json!("a".repeat(100_000)),
        json!([]),
        json!({}),
        json!([[[[]]]]),
        json!({"a": {"b": null}}),
    ];
    all[dice.roll(all.len())].clone()
}

/// The number of values in a value, including itself.
fn places(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(places).sum(),
        Value::Object(members) => members.values().map(places).sum(),
        _ => 0,
    }
}

/// Changes the value at this place, counted as [`places`] does.
fn mutate(value: &mut Value, place: &mut usize, dice: &mut Dice) -> bool {
    if *place == 0 {
        change(value, dice);
        return true;
    }
    *place -= 1;
    match value {
        Value::Array(items) => items.iter_mut().any(|item| mutate(item, place, dice)),
        Value::Object(members) => members.values_mut().any(|member| mutate(member, place, dice)),
        _ => false,
    }
}

fn change(value: &mut Value, dice: &mut Dice) {
    match (dice.roll(6), &mut *value) {
        (0, Value::Array(items)) if !items.is_empty() => {
            let twice = items[dice.roll(items.len())].clone();
            items.push(twice);
        }
        (1, Value::Array(items)) if !items.is_empty() => drop(items.remove(dice.roll(items.len()))),
        (0, Value::Object(members)) => drop(members.insert("unknown".to_owned(), wrong(dice))),
        (1, Value::Object(members)) if !members.is_empty() => {
            let key = members.keys().nth(dice.roll(members.len())).cloned().unwrap_or_default();
            members.remove(&key);
        }
        (0 | 1, Value::String(text)) => text.push_str(ODD[dice.roll(ODD.len())]),
        (2, Value::String(text)) => *text = text.to_uppercase(),
        (3 | 4, Value::String(text)) => ODD[dice.roll(ODD.len())].clone_into(text),
        (0, Value::Bool(flag)) => *flag = !*flag,
        _ => *value = wrong(dice),
    }
}

/// Valid specs: those of `config/samples`, and one with every field.
fn samples() -> Vec<Value> {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../config/samples");
    let files = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> =
        files.filter(|path| path.file_name().is_some_and(|name| name != "kustomization.yaml")).collect();
    files.sort();
    let read =
        |path: &std::path::PathBuf| -> Value { serde_yaml::from_str(&std::fs::read_to_string(path).unwrap()).unwrap() };
    let specs = files.iter().map(|path| read(path)["spec"].clone()).filter(|spec| *spec != json!({}));
    specs.chain([everything()]).collect()
}

fn everything() -> Value {
    json!({
        "mode": "Enforce",
        "nodeSelector": {"kubernetes.io/os": "windows", "team": "a"},
        "taints": [{"key": "os", "value": "windows", "effect": "NoSchedule"}, {"key": "soft", "effect": "PreferNoSchedule"}],
        "taintPolicy": "TaintOnly",
        "retiredTaints": [{"key": "os", "value": "Win1809", "effect": "NoSchedule"}],
        "runtimeClassDiscovery": "Enabled",
        "runtimeClassNameFormat": "windows-{version}-{pool}",
        "deletionPolicy": "Retain",
        "runtimeClasses": [
            {
                "name": "windows-2019", "version": "2019", "handler": "runhcs-wcow-process", "architecture": "amd64",
                "overhead": {"podFixed": {"memory": "512Mi", "cpu": 1}}, "nodeSelector": {"example.com/disk": "ssd"},
                "tolerations": [{"key": "gpu", "operator": "Exists"}, {"key": "x", "value": "y", "effect": "NoExecute", "tolerationSeconds": 30}],
            },
            {"name": "compatible", "version": "2022", "hostMatch": "Compatible"},
            {"name": "hyperv", "build": "10.0.17763", "isolation": "HyperV"},
            {"name": "any", "version": "Any"},
            {"name": "by-new-name", "version": "preview"},
        ],
        "buildNames": [{"build": "10.0.29000", "version": "preview"}],
        "podDefaults": {"runtimeClassName": "windows-2022", "fromImageTags": true},
    })
}
