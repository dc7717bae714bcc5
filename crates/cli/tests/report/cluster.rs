//! Clusters that reports are about.

use serde_json::{Value, json};

/// The objects of a cluster.
pub struct Objects(Vec<Value>);

impl Objects {
    pub fn list(&self) -> String {
        json!({"apiVersion": "v1", "kind": "List", "items": self.0}).to_string()
    }

    fn node(&mut self, name: &str, build: u32, labels: &Value) -> &mut Self {
        let mut all = json!({
            "kubernetes.io/os": "windows", "kubernetes.io/arch": "amd64",
            "node.kubernetes.io/windows-build": format!("10.0.{build}"),
        });
        all.as_object_mut().unwrap().extend(labels.as_object().unwrap().clone());
        self.0.push(json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": all},
            "status": {"nodeInfo": {
                "operatingSystem": "windows", "kernelVersion": format!("10.0.{build}.1"),
                "containerRuntimeVersion": "containerd://1.7.20"}},
        }));
        self
    }

    fn pool(&mut self, name: &str, selector: &Value) -> &mut Self {
        let spec = json!({"nodeSelector": selector});
        self.0.push(json!({
            "apiVersion": "winpool.dev/v1alpha1", "kind": "WindowsPool", "metadata": {"name": name}, "spec": spec}));
        self
    }

    fn class(&mut self, name: &str, build: u32) -> &mut Self {
        self.0.push(json!({
            "apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "handler": "runhcs-wcow-process",
            "metadata": {"name": name, "labels": {"winpool.dev/pool": "shop"}},
            "scheduling": {
                "nodeSelector": {
                    "kubernetes.io/os": "windows", "node.kubernetes.io/windows-build": format!("10.0.{build}")},
                "tolerations": [{"key": "os", "operator": "Equal", "value": "windows", "effect": "NoSchedule"}],
            },
        }));
        self
    }

    fn deployment(&mut self, namespace: &str, name: &str, spec: &Value) -> &mut Self {
        self.workload("Deployment", namespace, name, spec)
    }

    fn daemon_set(&mut self, namespace: &str, name: &str, spec: &Value) -> &mut Self {
        self.workload("DaemonSet", namespace, name, spec)
    }

    fn workload(&mut self, kind: &str, namespace: &str, name: &str, spec: &Value) -> &mut Self {
        self.0.push(json!({
            "apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name, "namespace": namespace},
            "spec": {"selector": {"matchLabels": {"app": name}},
                "template": {"metadata": {"labels": {"app": name}}, "spec": spec}},
        }));
        self
    }

    /// A pod of the Deployment that was added last, on this node.
    fn pod_on(&mut self, node: &str, status: &Value) -> &mut Self {
        let deployment = self.0.last().unwrap().clone();
        let (namespace, name) =
            (&deployment["metadata"]["namespace"], deployment["metadata"]["name"].as_str().unwrap());
        let template = &deployment["spec"]["template"];
        let metadata = |suffix: &str, kind: &str, owner: &str| {
            json!({
                "name": format!("{name}-{suffix}"), "namespace": namespace, "labels": {"pod-template-hash": "6d5f9"},
                "ownerReferences": [
                    {"apiVersion": "apps/v1", "kind": kind, "name": owner, "uid": "u", "controller": true}],
            })
        };
        self.0.push(json!({
            "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": metadata("6d5f9", "Deployment", name),
            "spec": {"selector": {"matchLabels": {"app": name}}, "template": template},
        }));
        let mut spec = template["spec"].clone();
        spec["nodeName"] = json!(node);
        self.0.push(json!({
            "apiVersion": "v1", "kind": "Pod", "spec": spec, "status": status,
            "metadata": metadata("6d5f9-1", "ReplicaSet", &format!("{name}-6d5f9")),
        }));
        self
    }

    /// The same without the Deployment of this name and its pods.
    pub fn without(mut self, name: &str) -> Self {
        self.0.retain(|object| !object["metadata"]["name"].as_str().unwrap().starts_with(name));
        self
    }

    /// The same with the Deployment `web` of a class that does not exist any more.
    pub fn with_web_on_2022(mut self) -> Self {
        for object in &mut self.0 {
            let is_web = object["metadata"]["name"] == "web" && object["kind"] == "Deployment";
            if is_web {
                let pod = &mut object["spec"]["template"]["spec"];
                pod["runtimeClassName"] = json!("windows-2022");
                pod["containers"][0]["image"] = json!("registry.example/web:ltsc2022");
            }
        }
        self
    }
}

fn running() -> Value {
    json!({"phase": "Running", "containerStatuses": [
        {"name": "c", "image": "i", "imageID": "", "ready": true, "restartCount": 0, "state": {"running": {}}}]})
}

fn containers(image: &str) -> Value {
    json!([{"name": "c", "image": image}])
}

fn tolerations() -> Value {
    json!([{"key": "os", "operator": "Equal", "value": "windows", "effect": "NoSchedule"}])
}

/// A cluster of AKS with three versions and two pools, and something for each part of a report.
pub fn mixed() -> Objects {
    let mut objects = Objects(Vec::new());
    let aks = |pool: &str, team: &str| json!({"kubernetes.azure.com/agentpool": pool, "team": team});
    objects
        .node("old-1", 17763, &aks("old", "shop"))
        .node("old-2", 17763, &aks("old", "shop"))
        .node("win-1", 20348, &aks("win", "shop"))
        .node("win-2", 20348, &aks("win", "bank"))
        .node("win-3", 20348, &aks("win", "none"))
        .node("new-1", 26100, &aks("new", "bank"))
        .pool("shop", &json!({"team": "shop"}))
        .pool("bank", &json!({"team": "bank"}))
        .class("windows-2019", 17763)
        .class("windows-2022", 20348);
    let windows = json!({"kubernetes.io/os": "windows"});
    objects
        .deployment("shop", "web", &json!({
            "os": {"name": "windows"}, "runtimeClassName": "windows-2019",
            "containers": containers("registry.example/web:ltsc2019")}))
        .pod_on("old-1", &running())
        .deployment("shop", "cart", &json!({
            "os": {"name": "windows"}, "tolerations": tolerations(),
            "nodeSelector": {"kubernetes.io/os": "windows", "node.kubernetes.io/windows-build": "10.0.17763"},
            "containers": [{"name": "c", "image": "registry.example/cart:4", "securityContext": {"runAsUser": 1000}}]}))
        .pod_on("old-2", &running())
        .deployment("shop", "erp", &json!({
            "nodeSelector": windows, "tolerations": tolerations(), "containers": containers("registry.example/erp:7")}))
        .pod_on("old-2", &running())
        .deployment("bank", "ledger", &json!({
            "os": {"name": "windows"}, "runtimeClassName": "windows-2022",
            "containers": containers("registry.example/ledger:2024")}))
        .pod_on("win-2", &running())
        .deployment("bank", "rates", &json!({
            "nodeSelector": windows, "containers": containers("registry.example/rates:1")}))
        .pod_on("win-2", &running())
        .deployment("bank", "broken", &json!({
            "os": {"name": "windows"}, "runtimeClassName": "windows-2022",
            "containers": containers("registry.example/broken:ltsc2019")}))
        .pod_on("win-2", &json!({"phase": "Pending", "containerStatuses": [{
            "name": "c", "image": "registry.example/broken:ltsc2019", "imageID": "", "ready": false, "restartCount": 0,
            "state": {"waiting": {"reason": "ErrImagePull", "message": "no match for platform in manifest: not found"}}}]}))
        .daemon_set("bank", "logs", &json!({
            "nodeSelector": windows, "containers": containers("registry.example/logs:1")}));
    objects
}

/// Names and values that are HTML, Markdown or commands of a terminal.
pub fn hostile() -> Objects {
    let name =
        "</h3><script>alert(1)</script><img src=x onerror=alert(2)>\u{202e}\u{1b}[2J\" onmouseover=\"x|y`*_[a](b)";
    let mut objects = Objects(Vec::new());
    objects
        .node("old", 17763, &json!({"team": "shop"}))
        .node("new", 20348, &json!({"team": "shop"}))
        .pool("default", &json!({}))
        .class("windows-2019", 17763)
        .class(&format!("windows{name}"), 17763)
        .deployment(
            name,
            name,
            &json!({
            "os": {"name": "windows"}, "runtimeClassName": "windows-2019",
            "nodeSelector": {"node.kubernetes.io/windows-build": "10.0.17763", name: name},
            "containers": containers(&format!("{name}:ltsc2019"))}),
        )
        .deployment(
            name,
            "runs",
            &json!({
            "nodeSelector": {"kubernetes.io/os": "windows"}, "containers": containers(name)}),
        )
        .pod_on("old", &running());
    objects
}

/// A large cluster in which every workload is pinned.
pub fn many(nodes: usize, workloads: usize) -> Objects {
    let mut objects = Objects(Vec::new());
    for number in 0..nodes {
        let build = if number % 3 == 0 { 17763 } else { 20348 };
        objects.node(&format!("node-{number}"), build, &json!({"team": format!("team-{}", number % 5)}));
    }
    for team in 0..5 {
        objects.pool(&format!("team-{team}"), &json!({"team": format!("team-{team}")}));
    }
    objects.class("windows-2019", 17763).class("windows-2022", 20348);
    for number in 0..workloads {
        let image = format!("registry.example.com/department-{}/service-{number}:1.{number}-ltsc2019", number % 40);
        let spec = json!({
            "os": {"name": "windows"}, "tolerations": tolerations(),
            "nodeSelector": {"kubernetes.io/os": "windows", "node.kubernetes.io/windows-build": "10.0.17763"},
            "containers": [
                {"name": "c", "image": image, "securityContext": {"runAsUser": 1000}},
                {"name": "d", "image": "registry.example.com/platform/sidecar-for-logs:2.3-windowsservercore-ltsc2019"},
            ],
        });
        objects.deployment(&format!("department-{}", number % 40), &format!("service-{number}"), &spec);
        objects.pod_on(&format!("node-{}", number * 3 % nodes), &running());
    }
    objects
}
