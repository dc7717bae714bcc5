//! The admission policies in `config/`: what they repeat of the code is what the code says.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::Value;

use crate::api::taint::{FOREIGN_KEYS, FOREIGN_PREFIXES};
use crate::api::{ClassState, HYPERV_ISOLATION_HANDLER, PROCESS_ISOLATION_HANDLER, names};
use crate::windows::builds;
use crate::windows::compatibility::can_run;
use crate::windows::taint::{SPELLINGS, Spelling};

const COMPONENTS: [&str; 6] =
    ["advise", "assign-class", "born-tainted", "guard", "linux-by-default", "tolerate-windows"];

fn policies_of(component: &str) -> Vec<Value> {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config/components").join(component).join("policy.yaml");
    let text = std::fs::read_to_string(&path).unwrap();
    let objects: Vec<Value> = serde_yaml::from_multiple(&text).unwrap();
    objects.into_iter().filter(|object| object["kind"].as_str().unwrap().ends_with("Policy")).collect()
}

fn all_policies() -> impl Iterator<Item = Value> {
    COMPONENTS.into_iter().flat_map(policies_of)
}

fn variable<'p>(policy: &'p Value, name: &str) -> Option<&'p str> {
    let mut variables = policy["spec"]["variables"].as_array().into_iter().flatten();
    variables.find(|variable| variable["name"] == name)?["expression"].as_str()
}

fn quoted(text: &str) -> Vec<&str> {
    text.split('\'').skip(1).step_by(2).collect()
}

#[test]
fn every_folder_is_covered_here() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config/components");
    for component in COMPONENTS {
        assert!(folder.join(component).join("kustomization.yaml").exists(), "{component}");
    }
}

#[test]
fn the_spellings_of_the_windows_taint_are_those_of_the_code() {
    let known: Vec<String> = SPELLINGS.iter().map(|spelling| format!("{}={}", spelling.key, spelling.value)).collect();
    let mut seen = Vec::new();
    for policy in all_policies() {
        if let Some(spellings) = variable(&policy, "spellings") {
            let name = &policy["metadata"]["name"];
            assert_eq!(quoted(spellings), known, "the variable `spellings` of {name} in config/components/");
            seen.push(policy["metadata"]["name"].as_str().unwrap().to_owned());
        }
    }
    let expected = [
        "winpool-born-tainted",
        "winpool-linux-by-default-pods",
        "winpool-linux-by-default-daemonsets",
        "winpool-tolerate-windows-pods",
        "winpool-tolerate-windows-daemonsets",
    ];
    assert_eq!(seen, expected);
}

#[test]
fn the_spellings_in_the_guide_are_those_of_the_code() {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guides/clouds.md");
    let guide = std::fs::read_to_string(guide).unwrap();
    for Spelling { key, value, used_by } in SPELLINGS {
        let row = format!("| `{key}={value}` | {used_by} |");
        assert!(guide.lines().any(|line| line == row), "docs/guides/clouds.md has no row {row}");
    }
}

#[test]
fn the_guard_lists_the_keys_of_all_spellings_and_the_default_handlers() {
    let guard = policies_of("guard");
    let keys: BTreeSet<&str> = SPELLINGS.iter().map(|spelling| spelling.key).collect();
    let listed = quoted(variable(&guard[0], "taintKeys").unwrap());
    assert_eq!((listed.iter().copied().collect::<BTreeSet<_>>(), listed.len()), (keys.clone(), keys.len()));
    let handlers = quoted(variable(&guard[1], "handlers").unwrap());
    assert_eq!(handlers, [PROCESS_ISOLATION_HANDLER, HYPERV_ISOLATION_HANDLER]);
}

#[test]
fn the_keys_of_others_are_those_of_the_code() {
    let policy = &policies_of("born-tainted")[0];
    let valid = variable(policy, "valid").unwrap();
    let (_, list) = valid.split_once("t.key in [").unwrap();
    assert_eq!(quoted(list.split_once(']').unwrap().0), FOREIGN_KEYS);
    let prefixes: Vec<_> = valid.split("startsWith('").skip(1).filter_map(|rest| rest.split('\'').next()).collect();
    assert_eq!(prefixes, FOREIGN_PREFIXES);
}

/// The rows of a list of builds and patterns in the policy of `assign-class` that has this variable.
fn tag_patterns(name: &str) -> BTreeMap<String, String> {
    let policies = policies_of("assign-class");
    let rows = quoted(policies.iter().find_map(|policy| variable(policy, name)).unwrap());
    rows.chunks(2).map(|row| (row[1].to_owned(), row[0].to_owned())).collect()
}

#[test]
fn the_image_tags_are_those_of_every_long_term_release() {
    let policy = "config/components/assign-class/policy.yaml";
    let (tags, mut runs_on) = (tag_patterns("tags"), tag_patterns("runsOn"));
    let mut builds: BTreeMap<&str, &str> =
        tags.iter().map(|(pattern, build)| (build.as_str(), pattern.as_str())).collect();
    for release in builds::all().iter().filter(|product| product.is_ltsc) {
        let build = release.build.to_string();
        let pattern = builds.remove(build.as_str()).unwrap_or_default();
        let tags = release.spellings().filter(|spelling| spelling.starts_with("ltsc"));
        for tag in tags.chain([build.replace('.', "[.]")]) {
            assert!(pattern.contains(&tag), "{tag} of {} is missing in the variable `tags` of {policy}", release.name);
        }
        let hosts = builds::all().iter().filter(|host| can_run(release.build, host.build));
        let hosts = hosts.map(|host| host.build.to_string()).collect::<Vec<_>>().join(",");
        assert_eq!(runs_on.remove(pattern), Some(hosts), "{}: the variable `runsOn` of {policy}", release.name);
    }
    assert_eq!((builds, runs_on), (BTreeMap::new(), BTreeMap::new()), "builds of no long-term release");
}

#[test]
fn names_and_states_are_those_of_the_code() {
    let text = |component| Value::from(policies_of(component)).to_string();
    for name in [names::APPLIED, names::POOL, names::IGNORE, names::OS] {
        assert!(text("born-tainted").contains(name), "{name}");
    }
    let assign = text("assign-class");
    let read = [names::OS, names::ARCH, names::WINDOWS_BUILD, names::CAPABILITY_LABEL_PREFIX];
    for name in read.into_iter().chain([names::RUNTIME_CLASS, names::CLASS_FROM]) {
        assert!(assign.contains(name), "{name}");
    }
    assert!(text("linux-by-default").contains(names::DEFAULT_OS));
    let ready = [ClassState::Applied, ClassState::Adopted, ClassState::Satisfied].map(ClassState::as_str);
    assert!(assign.contains(&format!("['{}']", ready.join("', '"))));
    let own = [
        names::APPLIED,
        names::POOL,
        names::CAPABILITY_LABEL_PREFIX,
        names::WINDOWS_BUILD,
        names::MANAGED_BY,
        names::CLEANUP,
    ];
    let config = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config/rbac");
    let confined = ["nodes", "pools", "runtimeclasses"]
        .map(|kind| std::fs::read_to_string(config.join(format!("confine_{kind}.yaml"))).unwrap())
        .concat();
    for name in own {
        assert!(confined.contains(name), "{name}");
    }
}

#[test]
fn twins_for_pods_and_daemonsets_differ_only_in_where_the_pod_is() {
    for component in ["linux-by-default", "tolerate-windows"] {
        let [pods, sets]: [Value; 2] = policies_of(component).try_into().unwrap();
        let text = |policy: &Value| {
            let spec = &policy["spec"];
            let parts = [&spec["variables"], &spec["mutations"], &spec["matchConstraints"]["namespaceSelector"]];
            parts.map(ToString::to_string).join("\n")
        };
        let moved = text(&pods).replace("\"object.spec\"", "\"object.spec.template.spec\"");
        assert_eq!(moved.replace("\\\"/spec/", "\\\"/spec/template/spec/"), text(&sets));
    }
}

#[test]
fn only_the_guard_fails_closed_and_the_system_is_left_out() {
    for policy in all_policies() {
        let name = policy["metadata"]["name"].as_str().unwrap();
        let guard = name.starts_with("winpool-guard-");
        assert_eq!(policy["spec"]["failurePolicy"], if guard { "Fail" } else { "Ignore" }, "{name}");
        let namespaced = !guard && name != "winpool-born-tainted" && !name.starts_with("winpool-tolerate-windows-");
        let excluded = serde_json::json!({
            "key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system", "winpool-system"],
        });
        let selector = &policy["spec"]["matchConstraints"]["namespaceSelector"]["matchExpressions"][0];
        assert_eq!(*selector == excluded, namespaced, "{name}");
    }
}
