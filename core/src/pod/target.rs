//! The operating system that a pod is for.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::NodeSelectorRequirement;

use crate::{
    api::names,
    windows::{
        image::{Sign, sign_of_windows},
        taint::marks_windows,
    },
};

use super::{class::Class, spec::PodSpec, system::System};

/// The operating system label before Kubernetes 1.14.
pub const BETA_OS: &str = "beta.kubernetes.io/os";
pub const OS_KEYS: [&str; 2] = [names::OS, BETA_OS];

/// The evidence of a pod's operating system, the most certain first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SystemEvidence {
    /// `os.name`.
    OsName,
    /// A node selector or a required node affinity that only nodes of one system meet.
    Placement,
    /// The selector of its RuntimeClass.
    Class,
    /// A processor that no Windows node has.
    Architecture,
    /// `windowsOptions`.
    WindowsOptions,
    /// Repository or tag of an image.
    Image,
    /// A word in the name of an image.
    ImageName,
    /// The program that a container runs, or a path.
    Program,
    /// A toleration of a taint that marks Windows nodes.
    Toleration,
}

/// The operating system that a pod is for, with the first evidence of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guess {
    pub system: System,
    pub evidence: SystemEvidence,
}

impl Guess {
    /// False if the answer is "probably".
    pub fn is_certain(self) -> bool {
        self.evidence < SystemEvidence::ImageName
    }
}

/// The operating system that a pod is for, by how it says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// Windows: by `os.name`, or else a node selector, required node affinity, a class, or `windowsOptions`.
    Windows,
    /// Windows, but only by its images, programs or tolerations.
    WindowsImage,
    Linux,
    /// The pod does not specify a system.
    Unknown,
}

impl Target {
    /// Returns how a pod says this. A Linux program alone says nothing: nothing keeps the pod where it belongs.
    pub fn of(guess: Option<Guess>) -> Self {
        match guess {
            Some(Guess { system: System::Windows, evidence }) if evidence <= SystemEvidence::WindowsOptions => {
                Self::Windows
            }
            Some(Guess { system: System::Windows, .. }) => Self::WindowsImage,
            Some(guess) if guess.is_certain() => Self::Linux,
            _ => Self::Unknown,
        }
    }
}

impl PodSpec {
    /// Returns the system that the pod is for, by the first evidence that speaks. `by_nodes` returns the system of the nodes
    /// that it selects, as far as the nodes of the cluster tell more than the labels of every cluster.
    pub fn guess(&self, class: Option<&Class>, by_nodes: impl FnOnce() -> Option<System>) -> Option<Guess> {
        let by = |evidence, system: Option<System>| system.map(|system| Guess { system, evidence });
        let image = |least: Sign| {
            let is_windows = self.images().filter_map(|(_, name)| sign_of_windows(name)).any(|sign| sign <= least);
            is_windows.then_some(System::Windows)
        };
        by(SystemEvidence::OsName, self.os.as_deref().map(System::named))
            .or_else(|| by(SystemEvidence::Placement, self.placed_system().or_else(by_nodes)))
            .or_else(|| by(SystemEvidence::Class, class.and_then(|class| selected_system(&class.selector))))
            .or_else(|| by(SystemEvidence::Architecture, self.excludes_amd64(class).then_some(System::Linux)))
            .or_else(|| by(SystemEvidence::WindowsOptions, self.has_windows_options.then_some(System::Windows)))
            .or_else(|| by(SystemEvidence::Image, image(Sign::Tag)))
            .or_else(|| by(SystemEvidence::ImageName, image(Sign::Name)))
            .or_else(|| by(SystemEvidence::Program, self.system_of_programs()))
            .or_else(|| by(SystemEvidence::Toleration, self.names_a_windows_taint().then_some(System::Windows)))
    }

    /// Returns the system of the first program of a container that shows one, or else Windows if a volume is a path of Windows.
    fn system_of_programs(&self) -> Option<System> {
        let by_program = self.containers.iter().find_map(|container| container.program);
        by_program.or_else(|| self.has_windows_volume.then_some(System::Windows))
    }

    /// True if it tolerates a taint of Windows nodes by its key and value. A pod that tolerates every taint says nothing.
    fn names_a_windows_taint(&self) -> bool {
        self.tolerations.iter().any(|toleration| {
            let [key, value] = [&toleration.key, &toleration.value].map(|field| field.as_deref().unwrap_or_default());
            marks_windows(key, value)
        })
    }

    /// Returns how the pod says its system, whatever the nodes of the cluster tell.
    pub fn target(&self, class: Option<&Class>) -> Target {
        Target::of(self.guess(class, || None))
    }

    /// Returns the only system whose nodes meet node selector and required affinity.
    pub fn placed_system(&self) -> Option<System> {
        let by_terms = |system: System| self.every_term(|e| expects(e, system)).then_some(system);
        selected_system(&self.node_selector).or_else(|| by_terms(System::Windows)).or_else(|| by_terms(System::Linux))
    }

    /// Windows nodes have the processor amd64.
    fn excludes_amd64(&self, class: Option<&Class>) -> bool {
        let is_other = |(key, value): (&String, &String)| ARCH_KEYS.contains(&key.as_str()) && value != AMD64;
        let of_class = class.into_iter().flat_map(|class| &class.selector);
        let in_term = |e: &NodeSelectorRequirement| {
            ARCH_KEYS.contains(&e.key.as_str()) && is_in(e) && e.values.iter().flatten().all(|value| value != AMD64)
        };
        self.node_selector.iter().chain(of_class).any(is_other) || self.every_term(in_term)
    }

    /// True if every term of the required node affinity that can select a node has an expression like this.
    fn every_term(&self, expects: impl Fn(&NodeSelectorRequirement) -> bool) -> bool {
        let mut terms = self.selecting_terms().peekable();
        terms.peek().is_some() && terms.all(|term| term.match_expressions.iter().flatten().any(&expects))
    }
}

/// Labels that tell the operating system of the node: it is Windows if the value begins so, and otherwise Linux. They are
/// those of clouds (Azure: learn.microsoft.com/azure/aks/use-labels; Google:
/// cloud.google.com/kubernetes-engine/docs/concepts/node-images; `OpenShift`: openshift/windows-machine-config-operator) and of
/// the control plane, which runs on Linux only (kubernetes/website `docs/concepts/windows/intro.md`).
pub const SYSTEM_LABELS: [&str; 7] = [
    "kubernetes.azure.com/os-sku",
    "kubernetes.azure.com/os-sku-effective",
    "kubernetes.azure.com/os-sku-requested",
    "cloud.google.com/gke-os-distribution",
    "node.openshift.io/os_id",
    "node-role.kubernetes.io/control-plane",
    "node-role.kubernetes.io/master",
];
pub const ARCH_KEYS: [&str; 2] = [names::ARCH, "beta.kubernetes.io/arch"];
const AMD64: &str = "amd64";

/// True if only Windows nodes have a label with this key.
pub fn is_on_windows_only(key: &str) -> bool {
    key == names::WINDOWS_BUILD || key.starts_with(names::CAPABILITY_LABEL_PREFIX)
}

/// True if only Windows nodes have these labels.
pub fn selects_windows(selector: &BTreeMap<String, String>) -> bool {
    selected_system(selector) == Some(System::Windows)
}

/// Returns the system of nodes with these labels. `kubernetes.io/os` takes precedence.
fn selected_system(selector: &BTreeMap<String, String>) -> Option<System> {
    let systems = |is_os: bool| {
        let labels = selector.iter().filter(move |(key, _)| OS_KEYS.contains(&key.as_str()) == is_os);
        let mut systems = labels.filter_map(|(key, value)| system_of_label(key, value)).peekable();
        let first = systems.peek().copied()?;
        Some(if systems.any(|system| system == System::Windows) { System::Windows } else { first })
    };
    systems(true).or_else(|| systems(false))
}

/// Returns the system of nodes with this label; `None` if nodes of several systems may have it.
fn system_of_label(key: &str, value: &str) -> Option<System> {
    if OS_KEYS.contains(&key) {
        // No node has `Windows`, but that is what its author means.
        Some(System::named(&value.to_ascii_lowercase()))
    } else if is_on_windows_only(key) {
        Some(System::Windows)
    } else {
        let is_windows = value.get(..7).is_some_and(|start| start.eq_ignore_ascii_case(names::WINDOWS));
        SYSTEM_LABELS.contains(&key).then_some(if is_windows { System::Windows } else { System::Linux })
    }
}

/// True if only nodes of this system meet the expression. There are only Linux and Windows nodes.
fn expects(expression: &NodeSelectorRequirement, system: System) -> bool {
    let (key, mut values) = (expression.key.as_str(), expression.values.iter().flatten());
    match expression.operator.as_str() {
        "In" => is_in(expression) && values.all(|value| system_of_label(key, value) == Some(system)),
        "Exists" => is_on_windows_only(key) && system == System::Windows,
        "NotIn" => OS_KEYS.contains(&key) && values.any(|value| value == system.other().as_str()),
        _ => false,
    }
}

fn is_in(expression: &NodeSelectorRequirement) -> bool {
    expression.operator == "In" && expression.values.as_ref().is_some_and(|values| !values.is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn guess(spec: &Value) -> Option<Guess> {
        serde_json::from_value::<PodSpec>(spec.clone()).unwrap().guess(None, || None)
    }

    #[test]
    fn the_first_evidence_that_speaks_decides() {
        use System::{Linux, Windows};
        use SystemEvidence::{Architecture, Image, ImageName, OsName, Placement, Program, Toleration, WindowsOptions};
        let select = |key: &str, value: &str| Value::from_iter([("nodeSelector", Value::from_iter([(key, value)]))]);
        let image = |name: &str| json!({"containers": [{"name": "c", "image": name}]});
        let command = |words: &[&str]| json!({"containers": [{"name": "c", "image": "app", "command": words}]});
        let container = |fields: Value| json!({"containers": [fields]});
        let tolerate = |toleration: Value| json!({"tolerations": [toleration]});
        let options = |options: Value| json!({"securityContext": {"windowsOptions": options}});
        let term = |key: &str, operator: &str, values: &[&str]| {
            let terms = json!([{"matchExpressions": [{"key": key, "operator": operator, "values": values}]}]);
            json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}})
        };
        for (spec, expected) in [
            (json!({"os": {"name": "linux"}, "nodeSelector": {"kubernetes.io/os": "windows"}}), Some((Linux, OsName))),
            (select("kubernetes.io/os", "windows"), Some((Windows, Placement))),
            (select("beta.kubernetes.io/os", "linux"), Some((Linux, Placement))),
            (select("kubernetes.azure.com/os-sku", "Windows2022"), Some((Windows, Placement))),
            (select("kubernetes.azure.com/os-sku", "AzureLinux"), Some((Linux, Placement))),
            (select("cloud.google.com/gke-os-distribution", "cos"), Some((Linux, Placement))),
            (select("node.kubernetes.io/windows-build", "10.0.20348"), Some((Windows, Placement))),
            (select("kubernetes.io/arch", "arm64"), Some((Linux, Architecture))),
            (select("kubernetes.io/arch", "amd64"), None),
            (select("team", "a"), None),
            (term("kubernetes.io/os", "NotIn", &["linux"]), Some((Windows, Placement))),
            (term("kubernetes.io/os", "NotIn", &["windows"]), Some((Linux, Placement))),
            (term("kubernetes.io/os", "In", &["linux", "windows"]), None),
            (term("kubernetes.azure.com/os-sku", "In", &["Windows2019", "Windows2022"]), Some((Windows, Placement))),
            (term("beta.kubernetes.io/arch", "In", &["s390x"]), Some((Linux, Architecture))),
            (options(json!({"hostProcess": true})), Some((Windows, WindowsOptions))),
            (options(json!({"hostProcess": false})), None),
            (options(json!({})), None),
            (image("mcr.microsoft.com/windows:1809"), Some((Windows, Image))),
            (image("app:ltsc2022"), Some((Windows, Image))),
            (image("cyclonus-windows:v1"), Some((Windows, ImageName))),
            (image("app:2022"), None),
            (command(&["app.exe", "--run"]), Some((Windows, Program))),
            (command(&["PowerShell", "-c", "sleep"]), Some((Windows, Program))),
            (command(&["run", "C:\\app"]), Some((Windows, Program))),
            (command(&["/bin/sh", "-c", "run"]), Some((Linux, Program))),
            (command(&["app"]), None),
            (command(&["start.ps1"]), Some((Windows, Program))),
            (command(&["./scripts/report.ps1"]), None),
            (command(&["pwsh", "-File", "/scripts/report.ps1"]), None),
            (command(&["wine", "C:\\app.exe"]), Some((Linux, Program))),
            (command(&["/usr/bin/run", "C:/data"]), Some((Linux, Program))),
            (command(&["/app.exe", "--run"]), Some((Windows, Program))),
            (select("kubernetes.io/os", "Windows"), Some((Windows, Placement))),
            (select("node.openshift.io/os_id", "Windows"), Some((Windows, Placement))),
            (select("node.openshift.io/os_id", "rhcos"), Some((Linux, Placement))),
            (select("node-role.kubernetes.io/control-plane", ""), Some((Linux, Placement))),
            (container(json!({"workingDir": "C:\\app"})), Some((Windows, Program))),
            (container(json!({"workingDir": "/app"})), None),
            (
                container(
                    json!({"volumeMounts": [{"name": "v", "mountPath": "/a"}, {"name": "v", "mountPath": "d:/data"}]}),
                ),
                Some((Windows, Program)),
            ),
            (
                container(json!({"volumeMounts": [{"name": "v", "mountPath": "\\\\.\\pipe\\engine"}]})),
                Some((Windows, Program)),
            ),
            (
                container(json!({"livenessProbe": {"exec": {"command": ["powershell.exe", "-c", "check"]}}})),
                Some((Windows, Program)),
            ),
            (
                container(json!({"lifecycle": {"preStop": {"exec": {"command": ["cmd", "/c", "stop"]}}}})),
                Some((Windows, Program)),
            ),
            (
                container(json!({"livenessProbe": {"exec": {"command": ["/bin/sh", "-c", "check"]}}})),
                Some((Linux, Program)),
            ),
            (container(json!({"command": ["/bin/sh"], "workingDir": "C:\\app"})), Some((Linux, Program))),
            (json!({"volumes": [{"name": "v", "hostPath": {"path": "C:\\data"}}]}), Some((Windows, Program))),
            (json!({"volumes": [{"name": "v", "hostPath": {"path": "/data"}}]}), None),
            (tolerate(json!({"key": "os", "value": "windows"})), Some((Windows, Toleration))),
            (tolerate(json!({"key": "os", "operator": "Equal", "value": "Windows"})), Some((Windows, Toleration))),
            (tolerate(json!({"key": "team", "operator": "Equal", "value": "windows"})), None),
            (tolerate(json!({"operator": "Exists"})), None),
        ] {
            let expected = expected.map(|(system, evidence)| Guess { system, evidence });
            assert_eq!(guess(&spec), expected, "{spec}");
        }
        let both = json!({"nodeSelector": {"kubernetes.io/os": "linux"}, "securityContext": {"windowsOptions": {"runAsUserName": "a"}}});
        assert_eq!(
            guess(&both),
            Some(Guess { system: Linux, evidence: Placement }),
            "the scheduler reads the selector"
        );
    }
}
