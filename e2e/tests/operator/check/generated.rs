//! Generated pod specs that set fields which the rules check, alone or combined.

use proptest::{prelude::*, sample::select, strategy::ValueTree, test_runner::TestRunner};
use serde_json::{Value, json};

/// One field with each of some values.
type Field = (&'static [&'static str], Vec<Value>);

fn flags() -> Vec<Value> {
    vec![json!(true), json!(false), Value::Null]
}

fn numbers() -> Vec<Value> {
    vec![json!(0), json!(1000)]
}

fn profiles() -> Vec<Value> {
    vec![json!({"type": "RuntimeDefault"}), json!({"type": "Unconfined"}), Value::Null]
}

fn windows_options() -> Vec<Value> {
    let gmsa = |name: &str| json!({"gmsaCredentialSpecName": name});
    vec![json!({}), json!({"runAsUserName": "ContainerUser"}), gmsa("WebApp1"), gmsa("webapp1")]
}

/// Fields of the pod that the API server refuses for Windows, and some close to them that it does not.
pub fn pod_fields() -> Vec<Field> {
    vec![
        (&["hostPID"], flags()),
        (&["hostIPC"], flags()),
        (&["hostNetwork"], flags()),
        (&["hostUsers"], flags()),
        (&["shareProcessNamespace"], flags()),
        (&["resources"], vec![json!({}), json!({"limits": {"memory": "1Gi"}}), Value::Null]),
        (&["securityContext"], vec![json!({}), Value::Null]),
        (&["securityContext", "appArmorProfile"], profiles()),
        (&["securityContext", "seLinuxOptions"], vec![json!({}), json!({"level": "s0"}), Value::Null]),
        (&["securityContext", "seLinuxChangePolicy"], vec![json!("MountOption"), json!("Recursive")]),
        (&["securityContext", "seccompProfile"], profiles()),
        (&["securityContext", "fsGroup"], numbers()),
        (&["securityContext", "fsGroupChangePolicy"], vec![json!("Always"), json!("OnRootMismatch")]),
        (&["securityContext", "sysctls"], vec![json!([]), json!([{"name": "kernel.shm_rmid_forced", "value": "1"}])]),
        (&["securityContext", "runAsUser"], numbers()),
        (&["securityContext", "runAsGroup"], numbers()),
        (&["securityContext", "runAsNonRoot"], flags()),
        (&["securityContext", "supplementalGroups"], vec![json!([]), json!([0]), json!([1, 2]), Value::Null]),
        (&["securityContext", "supplementalGroupsPolicy"], vec![json!("Merge"), json!("Strict")]),
        (&["securityContext", "windowsOptions"], windows_options()),
        (&["securityContext", "windowsOptions", "hostProcess"], flags()),
        (&["dnsPolicy"], vec![json!("Default"), json!("ClusterFirstWithHostNet")]),
        (&["terminationGracePeriodSeconds"], numbers()),
    ]
}

/// The same fields of a container.
pub fn container_fields() -> Vec<Field> {
    vec![
        (&["securityContext"], vec![json!({}), Value::Null]),
        (&["securityContext", "appArmorProfile"], profiles()),
        (&["securityContext", "seLinuxOptions"], vec![json!({}), json!({"level": "s0"})]),
        (&["securityContext", "seccompProfile"], profiles()),
        (
            &["securityContext", "capabilities"],
            vec![json!({}), json!({"drop": ["ALL"]}), json!({"add": []}), Value::Null],
        ),
        (&["securityContext", "readOnlyRootFilesystem"], flags()),
        (&["securityContext", "privileged"], flags()),
        (&["securityContext", "allowPrivilegeEscalation"], flags()),
        (&["securityContext", "procMount"], vec![json!("Default"), json!("Unmasked")]),
        (&["securityContext", "runAsUser"], numbers()),
        (&["securityContext", "runAsGroup"], numbers()),
        (&["securityContext", "runAsNonRoot"], flags()),
        (&["securityContext", "windowsOptions"], windows_options()),
        (&["securityContext", "windowsOptions", "hostProcess"], flags()),
    ]
}

/// Features that Windows does not support, and similar ones.
fn lint_fields() -> Vec<Field> {
    let medium = |medium: &str| json!([{"name": "v", "emptyDir": {"medium": medium}}]);
    let secret = |mode: Value| json!([{"name": "v", "secret": {"secretName": "s", "defaultMode": mode}}]);
    let map = |mode: Value| json!([{"name": "v", "configMap": {"name": "m", "items": [{"key": "k", "path": "p", "mode": mode}]}}]);
    let projected = |mode: u32| json!([{"name": "v", "projected": {"defaultMode": mode, "sources": []}}]);
    let pages = |name: &str| json!({"limits": {name: "4Mi", "memory": "1Gi", "cpu": "1"}, "requests": {name: "4Mi", "memory": "1Gi"}});
    let mount = |propagation: Value| json!([{"name": "v", "mountPath": "/v", "mountPropagation": propagation}]);
    vec![
        (
            &["volumes"],
            vec![
                medium("Memory"),
                medium(""),
                secret(json!(256)),
                secret(json!(420)),
                secret(Value::Null),
                map(json!(256)),
                map(Value::Null),
                projected(420),
                projected(256),
                json!([{"name": "v", "configMap": {"name": "m", "defaultMode": 256}}]),
                json!([{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]),
                json!([{"name": "v", "nfs": {"server": "s", "path": "/p"}}]),
            ],
        ),
        (&["containers", "0", "resources"], vec![pages("hugepages-2Mi"), pages("ephemeral-storage")]),
        (
            &["containers", "0", "volumeMounts"],
            vec![mount(json!("HostToContainer")), mount(json!("None")), mount(Value::Null)],
        ),
        (&["containers", "0", "volumeDevices"], vec![json!([])]),
    ]
}

/// Fields that name the operating system of the pod.
fn system_fields() -> Vec<Field> {
    let term = |key: &str, operator: &str, values: Value| json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]});
    let terms = |terms: Value| json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}});
    let os = "kubernetes.io/os";
    let build = || term("node.kubernetes.io/windows-build", "Exists", Value::Null);
    vec![
        (&["os"], vec![json!({"name": "windows"}), json!({"name": "linux"})]),
        (
            &["nodeSelector"],
            vec![
                json!({os: "windows"}),
                json!({os: "windows"}),
                json!({os: "linux"}),
                json!({"beta.kubernetes.io/os": "windows"}),
                json!({"node.kubernetes.io/windows-build": "10.0.20348"}),
                json!({"runtimeclass.winpool.dev/w": "true"}),
                json!({"disk": "windows"}),
                json!({}),
            ],
        ),
        (
            &["affinity", "nodeAffinity"],
            vec![
                terms(json!([term(os, "In", json!(["windows"]))])),
                terms(json!([term(os, "In", json!(["windows"])), build()])),
                terms(json!([term(os, "In", json!(["windows", "linux"]))])),
                terms(json!([term(os, "NotIn", json!(["linux"]))])),
                terms(json!([term(os, "In", json!(["windows"])), term(os, "In", json!(["linux"]))])),
                terms(json!([build()])),
                json!({}),
            ],
        ),
        (&["nodeName"], vec![json!("win-1")]),
    ]
}

/// A pod spec with two containers and an init container.
pub fn pod() -> Value {
    let container = |name: &str| json!({"name": name, "image": "example.com/app:1.0"});
    json!({"containers": [container("a"), container("b")], "initContainers": [container("i")]})
}

/// Sets a value deep in an object; what is missing on the way, or null, becomes an object.
pub fn set(object: &mut Value, path: &[&str], value: &Value) {
    let mut place = object;
    for key in path {
        if place.is_null() {
            *place = json!({});
        }
        place = if let Ok(index) = key.parse::<usize>() { &mut place[index] } else { &mut place[*key] };
    }
    *place = value.clone();
}

fn set_all(pod: &mut Value, prefix: &[&str], fields: &[Field], chance: f64, runner: &mut TestRunner) {
    for (path, values) in fields {
        if draw(runner, &prop::bool::weighted(chance)) {
            let value = draw(runner, &select(values.clone()));
            let path: Vec<&str> = prefix.iter().chain(*path).copied().collect();
            set(pod, &path, &value);
        }
    }
}

pub fn draw<T>(runner: &mut TestRunner, strategy: &impl Strategy<Value = T>) -> T {
    strategy.new_tree(runner).unwrap().current()
}

/// A pod for Windows with some of the fields that the API server looks at.
pub fn refused(runner: &mut TestRunner, os: &str) -> Value {
    let mut pod = pod();
    pod["os"] = json!({"name": os});
    set_all(&mut pod, &[], &pod_fields(), 0.12, runner);
    for prefix in [&["containers", "0"], &["containers", "1"], &["initContainers", "0"]] {
        set_all(&mut pod, prefix, &container_fields(), 0.08, runner);
    }
    pod
}

/// A pod that may or may not be for Windows, with some of everything.
pub fn any(runner: &mut TestRunner) -> Value {
    let mut pod = pod();
    set_all(&mut pod, &[], &pod_fields(), 0.06, runner);
    set_all(&mut pod, &["containers", "0"], &container_fields(), 0.06, runner);
    set_all(&mut pod, &[], &lint_fields(), 0.3, runner);
    set_all(&mut pod, &[], &system_fields(), 0.4, runner);
    if pod["volumes"][0]["persistentVolumeClaim"].is_object() {
        pod["containers"][0]["volumeMounts"] = Value::Null;
        pod["containers"][0]["volumeDevices"] = json!([{"name": "v", "devicePath": "/dev/v"}]);
    }
    if pod["containers"][0]["volumeMounts"].is_array() && !pod["volumes"].is_array() {
        pod["volumes"] = json!([{"name": "v", "emptyDir": {}}]);
    }
    pod
}
