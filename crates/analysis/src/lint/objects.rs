//! Rules about Services of Windows pods, and about Windows nodes.
//!
//! Sources: "Networking on Windows" (load balancing and its limitations), "Windows containers in Kubernetes" and "Resource
//! management for Windows nodes" in kubernetes/website, the version skew policy of Kubernetes, containerd/containerd#13156.

use std::collections::BTreeMap;

use serde_json::Value;
use winpool_core::api::ObjectReference;
use winpool_core::api::quantity::amount;
use winpool_core::windows::{Build, KernelVersion};

use crate::finding::Consequence::{Fails, Ignored, Note};
use crate::finding::Finding;
use crate::finding::Severity::{Info, Warning};
use crate::kinds::WorkloadKind;
use crate::lint::Rule;
use crate::lint::facts::Facts;
use crate::lint::rule::{Hit, Judgement, Scope, Test, rules};
use crate::remedy::Remedy;
use crate::view::{PAUSE, kubernetes_version};
use crate::workload::{get, namespace_of};

pub(super) const SERVICES: &[Rule] = rules!([
    /// - Breaks: `spec: {sessionAffinityConfig: {clientIP: {timeoutSeconds: 10801}}}`
    /// - Keeps: `spec: {sessionAffinityConfig: {clientIP: {timeoutSeconds: 10800}}}`
    Rule {
        id: "service-session-affinity",
        verdict: Judgement(Warning, Ignored),
        scope: Scope::Service,
        field: "spec.sessionAffinityConfig.clientIP.timeoutSeconds",
        reason: "Windows does not support this time limit: sessions may end after the default of 10800 seconds",
        remedy: "remove it, and let clients reconnect",
        test: Test::Object(|service, _, hits| {
            let field = ["spec", "sessionAffinityConfig", "clientIP", "timeoutSeconds"];
            if get(service, &field).and_then(Value::as_i64).is_some_and(|seconds| seconds > 10_800) {
                hits.push(Hit::at(field.join(".")));
            }
        }),
        ..Rule::DEFAULT
    },
    /// - Breaks: `spec: {ipFamilies: [IPv6]}`
    /// - Keeps: `spec: {ipFamilies: [IPv6, IPv4]}`
    /// - Keeps: `spec: null`
    Rule {
        id: "service-ip-family",
        verdict: Judgement(Warning, Fails),
        scope: Scope::Service,
        field: "spec.ipFamilies",
        reason: "Windows pods have no IPv6 without IPv4, so a Service with IPv6 only does not reach them",
        remedy: "add IPv4 to ipFamilies, with ipFamilyPolicy: PreferDualStack",
        test: Test::Object(|service, _, hits| {
            let families = get(service, &["spec", "ipFamilies"]).and_then(Value::as_array);
            if families.is_some_and(|families| !families.is_empty() && families.iter().all(|family| family == "IPv6")) {
                hits.push(Hit::at("spec.ipFamilies"));
            }
        }),
        ..Rule::DEFAULT
    },
    /// - Breaks: `spec: {externalTrafficPolicy: Local}`
    /// - Keeps: `spec: {externalTrafficPolicy: Cluster}`
    Rule {
        id: "service-local-traffic",
        verdict: Judgement(Info, Note),
        scope: Scope::Service,
        field: "spec.externalTrafficPolicy",
        reason: "Local requires direct server return (DSR) of kube-proxy on Windows, which overlay networks and older \
                 versions do not have",
        remedy: "use Cluster, unless the network plugin supports it on Windows",
        test: Test::Object(|service, _, hits| {
            if get(service, &["spec", "externalTrafficPolicy"]).is_some_and(|policy| policy == "Local") {
                hits.push(Hit::at("spec.externalTrafficPolicy"));
            }
        }),
        ..Rule::DEFAULT
    },
]);

pub(super) const NODES: &[Rule] = rules!([
    /// - Breaks: `status: {nodeInfo: {kubeletVersion: v1.37.0}}`
    /// - Breaks: `status: {nodeInfo: {kubeletVersion: v1.32.9}}`
    /// - Keeps: `status: {nodeInfo: {kubeletVersion: v1.33.0}}`
    /// - Keeps: `status: {nodeInfo: {kubeletVersion: v1.36.3}}`
    /// - Keeps: `status: {nodeInfo: {kubeletVersion: odd}}`
    Rule {
        id: "node-version-skew",
        verdict: Judgement(Warning, Note),
        scope: Scope::Node,
        field: "status.nodeInfo.kubeletVersion",
        reason: "Kubernetes supports a kubelet that is not newer than the API server and at most three minor versions \
                 older",
        remedy: "install a kubelet of the API server's version",
        test: Test::Object(version_skew),
        ..Rule::DEFAULT
    },
    /// - Breaks: `status: {capacity: {memory: 32Gi}, allocatable: {memory: 31Gi}}`
    /// - Keeps: `status: {capacity: {memory: 32Gi}, allocatable: {memory: 30Gi}}`
    /// - Keeps: `status: {capacity: {memory: 32Gi}, allocatable: {memory: odd}}`
    Rule {
        id: "node-reserved-memory",
        verdict: Judgement(Info, Note),
        scope: Scope::Node,
        field: "status.allocatable.memory",
        reason: "less than 2 GiB of memory is reserved for Windows, the runtime and the kubelet, so pods can use \
                 memory that these need; the kubelet evicts pods on Windows only since Kubernetes 1.31",
        remedy: "reserve 2Gi of memory in total with the kubelet's --system-reserved and --kube-reserved",
        test: Test::Object(reserved_memory),
        ..Rule::DEFAULT
    },
    /// - Breaks: `status: {images: [{names: [registry.k8s.io/pause:3.10, registry.k8s.io/pause:3.9]}], nodeInfo:
    ///   {kernelVersion: '10.0.26100.1'}}`
    /// - Keeps: `status: {images: [{names: [registry.k8s.io/pause:3.10.2]}], nodeInfo: {kernelVersion:
    ///   '10.0.26100.1'}}`
    /// - Keeps: `status: {images: [{names: [registry.k8s.io/pause:3.9, registry.k8s.io/pause:3.10.2]}], nodeInfo:
    ///   {kernelVersion: '10.0.26100.1'}}`
    /// - Keeps: `status: {images: [{names: [registry.k8s.io/pause:3.9]}], nodeInfo: {kernelVersion: '10.0.20348.1'}}`
    /// - Keeps: `status: {images: [{names: [example.com/app:1]}], nodeInfo: {kernelVersion: '10.0.26100.1'}}`
    Rule {
        id: "node-pause-image",
        verdict: Judgement(Warning, Fails),
        scope: Scope::Node,
        field: "status.images",
        reason: "only registry.k8s.io/pause:3.10.2 and later have a variant for Windows Server 2025, and the node has \
                 only older ones",
        remedy: "configure a newer pause image in containerd on the node",
        test: Test::Object(pause_image),
        ..Rule::DEFAULT
    },
]);

/// Returns the findings about a Service that selects Windows pods.
pub fn check_service(service: &Value, facts: &Facts) -> Vec<Finding> {
    check_object("Service", SERVICES, service, facts)
}

/// Returns the findings about a Windows node.
pub fn check_node(node: &Value, facts: &Facts) -> Vec<Finding> {
    check_object("Node", NODES, node, facts)
}

/// Returns the findings about an object of this kind.
pub(super) fn check_object(kind: &str, rules: &[Rule], object: &Value, facts: &Facts) -> Vec<Finding> {
    let mut findings = Vec::new();
    for rule in rules {
        let Test::Object(find) = rule.test else { continue };
        let mut hits = Vec::new();
        find(object, facts, &mut hits);
        findings.extend(hits.into_iter().map(|hit| finding(rule, kind, object, hit)));
    }
    findings
}

/// Returns the finding about an object of this kind. The field of `hit` is a path in the object.
pub(super) fn finding(rule: &Rule, kind: &str, object: &Value, hit: Hit) -> Finding {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let is_namespaced = kind == "Service" || WorkloadKind::own(kind).is_some();
    Finding {
        rule: rule.id.to_owned(),
        severity: rule.verdict.0,
        consequence: rule.verdict.1,
        object: ObjectReference {
            kind: kind.to_owned(),
            namespace: is_namespaced.then(|| namespace_of(object).to_owned()),
            name: name.to_owned(),
        },
        field: hit.field,
        message: hit.message.unwrap_or_else(|| rule.reason.to_owned()),
        remedy: hit.remedy.unwrap_or_else(|| Remedy::advice(rule.remedy)),
    }
}

/// True if the Service selects pods with these labels.
pub fn selects(service: &Value, labels: &BTreeMap<String, String>) -> bool {
    let selector = get(service, &["spec", "selector"]).and_then(Value::as_object);
    let matches = |key: &String, value: &Value| labels.get(key).map(String::as_str) == value.as_str();
    selector.is_some_and(|selector| !selector.is_empty() && selector.iter().all(|(key, value)| matches(key, value)))
}

fn version_skew(node: &Value, facts: &Facts, hits: &mut Vec<Hit>) {
    let field = ["status", "nodeInfo", "kubeletVersion"];
    let Some(text) = get(node, &field).and_then(Value::as_str) else { return };
    let (Some(kubelet), Some(server)) = (kubernetes_version(text), facts.kubernetes) else { return };
    // The allowed skew is 3 minor versions since 1.28, and 2 before.
    let allowed = if server.minor >= 28 { 3 } else { 2 };
    let fits = kubelet.minor <= server.minor && kubelet.minor + allowed >= server.minor;
    if kubelet.major == server.major && !fits {
        let message = format!(
            "the kubelet is of Kubernetes {kubelet}, the API server of {server}: Kubernetes supports a kubelet that is not newer \
             than the API server and at most {allowed} minor versions older"
        );
        hits.push(Hit::at(field.join(".")).saying(message));
    }
}

fn reserved_memory(node: &Value, _: &Facts, hits: &mut Vec<Hit>) {
    const LEAST: i128 = 2 << 30;
    let memory = |kind: &str| {
        let quantity = serde_json::from_value(node["status"][kind]["memory"].clone()).ok()?;
        Some(amount(&quantity)? / 1_000_000_000)
    };
    let (Some(capacity), Some(allocatable)) = (memory("capacity"), memory("allocatable")) else { return };
    if capacity - allocatable < LEAST {
        hits.push(Hit::at("status.allocatable.memory"));
    }
}

fn pause_image(node: &Value, _: &Facts, hits: &mut Vec<Hit>) {
    let kernel = get(node, &["status", "nodeInfo", "kernelVersion"]).and_then(Value::as_str).unwrap_or_default();
    if kernel.parse::<KernelVersion>().ok().is_none_or(|version| version.build < Build::new(26100)) {
        return;
    }
    let images = get(node, &["status", "images"]).and_then(Value::as_array).into_iter().flatten();
    let names = images.flat_map(|image| image["names"].as_array().into_iter().flatten()).filter_map(Value::as_str);
    let tags = names.filter_map(|name| name.strip_prefix(PAUSE));
    let versions: Vec<Vec<u32>> =
        tags.map(|tag| tag.split('.').filter_map(|part| part.parse().ok()).collect()).collect();
    if !versions.is_empty() && versions.iter().all(|version| version.as_slice() < [3, 10, 2].as_slice()) {
        hits.push(Hit::at("status.images"));
    }
}
