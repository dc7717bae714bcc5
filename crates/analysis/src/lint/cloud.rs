//! Rules that hold in the clusters of one cloud.
//!
//! Source: aws/amazon-vpc-resource-controller-k8s `webhooks/core/pod_webhook.go` (`WhichPod`). The webhook sees the selector of a
//! RuntimeClass too, because the admission plugin that adds it runs before webhooks (kubernetes/kubernetes
//! `pkg/kubeapiserver/options/plugins.go`).

use winpool_core::api::names;
use winpool_core::pod::OS_KEYS;

use crate::finding::Consequence::Fails;
use crate::finding::Severity::Error;
use crate::lint::rule::{Hit, Judgement, Rule, Subject, own, rules};
use crate::remedy::{Edit, Remedy};
use crate::view::EKS_ADDRESS;

pub(super) const RULES: &[Rule] = rules!([
    /// - Breaks on EKS: `nodeSelector: null, affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution:
    ///   {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/os, operator: In, values: [windows]}]}]}}}`
    Rule {
        id: "eks-address-missing",
        verdict: Judgement(Error, Fails),
        field: "nodeSelector",
        reason: "on EKS a pod gets no address unless nodeSelector, its own or that of its RuntimeClass, selects Windows; \
                 affinity does not count",
        remedy: "set nodeSelector kubernetes.io/os: windows",
        test: own(address),
        ..Rule::DEFAULT
    },
]);

fn address(subject: &Subject<'_>, hits: &mut Vec<Hit>) {
    let pod = subject.pod;
    let selects = |key: &str| {
        let of_class = || subject.class?.selector.get(key).map(String::as_str);
        pod.selected(key).or_else(of_class) == Some(names::WINDOWS)
    };
    let is_unknown = pod.runtime_class.is_some() && subject.class.is_none();
    let requests = pod.containers.iter().any(|container| container.extended_resources.contains_key(EKS_ADDRESS));
    let needs = subject.facts.is_on_eks && !pod.has_host_network && !requests && !is_unknown;
    if needs && !OS_KEYS.iter().any(|key| selects(key)) {
        hits.push(Hit::at("nodeSelector").remedied_by(Remedy::of(vec![Edit::select_windows()])));
    }
}
