//! A pool in the language of what makes its nodes.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

mod common;

use common::pool;
use winpool_core::{
    render::{
        Provisioner::{self, Aks, Eksctl, Gke, Karpenter},
        render,
    },
    windows::product::by_version,
};

#[test]
fn an_empty_pool_is_its_taint() {
    let pool = pool("{}");
    for provisioner in Provisioner::ALL {
        insta::assert_snapshot!(format!("empty_{provisioner:?}"), render(provisioner, &pool, None));
    }
}

#[test]
fn selectors_become_labels_and_the_windows_an_image() {
    let pool = pool(
        "{metadata: {name: gpu}, spec: {nodeSelector: {team: \"on\", topology.kubernetes.io/zone: a, kubernetes.azure.com/mode: user}, \
         taints: [{key: os, value: windows, effect: NoSchedule}, {key: gpu, effect: PreferNoSchedule}]}}",
    );
    for provisioner in Provisioner::ALL {
        insta::assert_snapshot!(format!("gpu_{provisioner:?}"), render(provisioner, &pool, by_version("2022")));
    }
}

#[test]
fn what_is_not_known_is_not_rendered() {
    let pool = pool("spec: {taintPolicy: Never}");
    for provisioner in [Karpenter, Eksctl, Aks, Gke] {
        insta::assert_snapshot!(format!("old_{provisioner:?}"), render(provisioner, &pool, by_version("20h2")));
    }
}
