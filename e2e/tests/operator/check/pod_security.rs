//! PodSecurity, compared with the API server: generated pods in namespaces that enforce a level, in some version.

use std::collections::BTreeMap;

use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};
use winpool_analysis::pod_security::PodSecurity;
use winpool_e2e::machine::dice::Dice;
use winpool_e2e::servers::version::running_kubernetes;

use super::generated::set;
use super::{HANDS, create};

const PODS: usize = 500;

/// The namespaces: level and version.
const NAMESPACES: [(&str, &str); 5] = [
    ("baseline", "latest"),
    ("restricted", "latest"),
    ("restricted", "v1.24"),
    ("baseline", "v1.28"),
    ("restricted", "v1.31"),
];

/// The reasons, as the API server writes them before their details.
const REASONS: [&str; 17] = [
    "hostProcess",
    "host namespaces",
    "privileged",
    "hostPort",
    "probe or lifecycle host",
    "forbidden AppArmor profile",
    "seLinuxOptions",
    "procMount",
    "forbidden sysctls",
    "non-default capabilities",
    "hostPath volumes",
    "seccompProfile",
    "restricted volume types",
    "allowPrivilegeEscalation != false",
    "runAsNonRoot != true",
    "runAsUser=0",
    "unrestricted capabilities",
];

/// Fields of the pod, of its security context, and of a container, each with values.
fn fields() -> Vec<(&'static str, Vec<Value>)> {
    let volume = |source: Value| {
        let mut volume = json!({"name": "v"});
        volume.as_object_mut().unwrap().extend(source.as_object().unwrap().clone());
        json!([volume])
    };
    let sysctl = |name: &str, value: &str| json!([{"name": name, "value": value}]);
    vec![
        ("os", vec![json!({"name": "windows"}), json!({"name": "linux"})]),
        ("hostNetwork", vec![json!(true)]),
        ("hostPID", vec![json!(true), json!(false)]),
        ("hostUsers", vec![json!(false)]),
        (
            "volumes",
            vec![
                volume(json!({"hostPath": {"path": "/a"}})),
                volume(json!({"emptyDir": {}})),
                volume(json!({"nfs": {"server": "a", "path": "/a"}})),
                volume(json!({"configMap": {"name": "a"}})),
            ],
        ),
        ("securityContext.runAsNonRoot", vec![json!(true), json!(true), json!(false)]),
        ("securityContext.runAsUser", vec![json!(0), json!(1000)]),
        ("securityContext.windowsOptions.hostProcess", vec![json!(true), json!(false)]),
        ("securityContext.windowsOptions.runAsUserName", vec![json!("ContainerUser")]),
        ("securityContext.seccompProfile", vec![json!({"type": "RuntimeDefault"}), json!({"type": "Unconfined"})]),
        ("securityContext.appArmorProfile", vec![json!({"type": "RuntimeDefault"}), json!({"type": "Unconfined"})]),
        (
            "securityContext.seLinuxOptions",
            vec![json!({"type": "container_t"}), json!({"type": "container_engine_t"}), json!({"user": "u"})],
        ),
        (
            "securityContext.sysctls",
            vec![
                sysctl("net.ipv4.tcp_syncookies", "1"),
                sysctl("net.ipv4.tcp_keepalive_time", "1"),
                sysctl("net.ipv4.tcp_rmem", "1"),
                sysctl("kernel.msgmax", "1"),
            ],
        ),
        ("containers.0.ports", vec![json!([{"containerPort": 80}]), json!([{"containerPort": 80, "hostPort": 80}])]),
        (
            "containers.0.livenessProbe",
            vec![json!({"httpGet": {"port": 80}}), json!({"httpGet": {"port": 80, "host": "a"}})],
        ),
        ("containers.0.lifecycle", vec![json!({"preStop": {"tcpSocket": {"port": 80, "host": "a"}}})]),
        ("containers.0.securityContext.privileged", vec![json!(true), json!(false)]),
        ("containers.0.securityContext.runAsNonRoot", vec![json!(true), json!(false)]),
        ("containers.0.securityContext.runAsUser", vec![json!(0)]),
        ("containers.0.securityContext.allowPrivilegeEscalation", vec![json!(false), json!(false), json!(true)]),
        ("containers.0.securityContext.procMount", vec![json!("Default"), json!("Unmasked")]),
        (
            "containers.0.securityContext.seccompProfile",
            vec![json!({"type": "RuntimeDefault"}), json!({"type": "Unconfined"})],
        ),
        (
            "containers.0.securityContext.capabilities",
            vec![
                json!({"drop": ["ALL"]}),
                json!({"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}),
                json!({"add": ["CHOWN"]}),
                json!({"add": ["SYS_ADMIN"]}),
            ],
        ),
        ("containers.0.securityContext.windowsOptions.hostProcess", vec![json!(true)]),
    ]
}

/// A pod with some of the fields.
fn any_pod(dice: &mut Dice, fields: &[(&str, Vec<Value>)]) -> Value {
    let mut spec = json!({"containers": [{"name": "c", "image": "example.com/app:1.0"}]});
    for (path, values) in fields {
        if dice.once_in(5) {
            set(&mut spec, path, &values[dice.roll(values.len())]);
        }
    }
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "probe"}, "spec": spec})
}

#[tokio::test]
async fn pods_are_refused_by_the_level_of_their_namespace_exactly_when_winpool_says_so() {
    let server = winpool_e2e::servers::lending::lend().await.unwrap();
    let client = server.client();
    let minor = running_kubernetes().await.unwrap();
    let version = winpool_analysis::kubernetes::KubernetesVersion { major: 1, minor };
    let mut enforced = Vec::new();
    for (number, (level, version)) in NAMESPACES.into_iter().enumerate() {
        let labels = BTreeMap::from([
            ("pod-security.kubernetes.io/enforce".to_owned(), level.to_owned()),
            ("pod-security.kubernetes.io/enforce-version".to_owned(), version.to_owned()),
        ]);
        enforced.push(PodSecurity::of(&labels).unwrap());
        let name = format!("level-{number}");
        let namespace = serde_json::from_value(json!({"metadata": {"name": name, "labels": labels}})).unwrap();
        Api::<Namespace>::all(client.clone()).create(&PostParams::default(), &namespace).await.unwrap();
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
        let accounts: Api<k8s_openapi::api::core::v1::ServiceAccount> = Api::namespaced(client.clone(), &name);
        // A controller may have made it.
        let _ = accounts.create(&PostParams::default(), &serde_json::from_value(account).unwrap()).await;
    }
    let (fields, mut dice) = (fields(), Dice::new(138));
    let pods: Vec<(usize, Value)> =
        (0..PODS).map(|number| (number % NAMESPACES.len(), any_pod(&mut dice, &fields))).collect();
    let answers = stream::iter(pods).map(async |(namespace, pod)| {
        let answer = create(&client, &format!("level-{namespace}"), &pod).await;
        (namespace, pod, answer)
    });
    let (mut refused, mut admitted) = (0, 0);
    for (namespace, pod, answer) in answers.buffer_unordered(HANDS).collect::<Vec<_>>().await {
        let message = answer.body["message"].as_str().unwrap_or_default();
        let is_refused = message.contains("violates PodSecurity");
        if !is_refused && !answer.code.is_success() {
            // Another check comes first.
            continue;
        }
        let said = |reason: &&&str| {
            [format!("{reason} ("), format!("{reason}s (")]
                .iter()
                .any(|text| message.contains(&format!(": {text}")) || message.contains(&format!("), {text}")))
        };
        let mut said: Vec<&str> = REASONS.iter().filter(said).copied().collect();
        let mut told = enforced[namespace].violations(&pod["spec"], &pod["metadata"], Some(version));
        said.sort_unstable();
        told.sort_unstable();
        assert_eq!(told, said, "{:?}: {message}\n{pod:#}", NAMESPACES[namespace]);
        *if is_refused { &mut refused } else { &mut admitted } += 1;
    }
    println!("PodSecurity: {refused} refused and {admitted} admitted of {PODS}, the same as the API server");
    assert!(refused > 100 && admitted > 20, "{refused} refused, {admitted} admitted");
}
