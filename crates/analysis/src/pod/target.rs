//! The operating system that a pod is for.

use winpool_core::pod::{Class, System};
use winpool_core::windows::taint::marks_windows;

use crate::image::name::{has_windows_word, is_for_windows, last_part};

use super::PodSpec;

/// The evidence of a pod's operating system, the most certain first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SystemEvidence {
    /// The pod says it: by `os.name`, or by the nodes that it selects, its RuntimeClass, its processor, or `windowsOptions`.
    Said,
    /// Repository or tag of an image.
    Image,
    /// Containers of its workload have started, and only on Windows nodes.
    Started,
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Windows, and the pod says it.
    Windows,
    /// Windows, but only by its images, programs, tolerations, or the nodes on which it has started.
    WindowsImage,
    Linux,
    /// The pod does not specify a system.
    Unknown,
}

impl Target {
    /// Returns how a pod says this. A Linux program alone says nothing: nothing keeps the pod where it belongs.
    pub fn of(guess: Option<Guess>) -> Self {
        match guess {
            Some(Guess { system: System::Windows, evidence: SystemEvidence::Said }) => Self::Windows,
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
        let image = |is_sign: fn(&str) -> bool| self.images().any(|(_, name)| is_sign(name)).then_some(System::Windows);
        by(SystemEvidence::Said, self.said_system(class, by_nodes))
            .or_else(|| by(SystemEvidence::Said, self.requests_windows_resource().then_some(System::Windows)))
            .or_else(|| by(SystemEvidence::Image, image(is_for_windows)))
            .or_else(|| by(SystemEvidence::ImageName, image(|name| has_windows_word(last_part(name)))))
            .or_else(|| by(SystemEvidence::Program, self.system_of_programs()))
            .or_else(|| by(SystemEvidence::Toleration, self.names_a_windows_taint().then_some(System::Windows)))
    }

    /// True if it requests a resource that only a device plugin on Windows offers (aarnaud/k8s-directx-device-plugin,
    /// TensorWorks/DirectX-Device-Plugins).
    pub fn requests_windows_resource(&self) -> bool {
        let is_of_windows =
            |name: &String| name == "microsoft.com/directx" || name.starts_with("directx.microsoft.com/");
        self.containers.iter().any(|container| container.extended_resources.keys().any(is_of_windows))
    }

    /// Returns the system of the first program of a container that shows one, or else Windows if a volume is a path of Windows.
    fn system_of_programs(&self) -> Option<System> {
        let by_program = self.containers.iter().find_map(|container| container.program);
        by_program.or_else(|| self.has_windows_volume.then_some(System::Windows))
    }

    /// True if it tolerates a taint of Windows nodes by its key and value. A pod that tolerates every taint says nothing.
    pub(crate) fn names_a_windows_taint(&self) -> bool {
        self.tolerations.iter().any(|toleration| {
            let [key, value] = [&toleration.key, &toleration.value].map(|field| field.as_deref().unwrap_or_default());
            marks_windows(key, value)
        })
    }

    /// Returns how the pod says its system, whatever the nodes of the cluster tell.
    pub fn target(&self, class: Option<&Class>) -> Target {
        Target::of(self.guess(class, || None))
    }
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
        use SystemEvidence::{Image, ImageName, Program, Said, Toleration};
        let select = |key: &str, value: &str| Value::from_iter([("nodeSelector", Value::from_iter([(key, value)]))]);
        let image = |name: &str| json!({"containers": [{"name": "c", "image": name}]});
        let command = |words: &[&str]| json!({"containers": [{"name": "c", "image": "app", "command": words}]});
        let container = |fields: Value| json!({"containers": [fields]});
        let tolerate = |toleration: Value| json!({"tolerations": [toleration]});
        for (spec, expected) in [
            (select("kubernetes.io/os", "windows"), Some((Windows, Said))),
            (select("team", "a"), None),
            (container(json!({"resources": {"limits": {"microsoft.com/directx": "1"}}})), Some((Windows, Said))),
            (container(json!({"resources": {"limits": {"nvidia.com/gpu": "1"}}})), None),
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
        assert_eq!(guess(&both), Some(Guess { system: Linux, evidence: Said }), "the scheduler reads the selector");
    }
}
