//! A pool in the language of what makes its nodes.

use std::fmt::Write;

use winpool_analysis::render::{PROVISIONERS, Provisioner, refusal, render, windows_of};
use winpool_core::windows::builds::by_version;

use crate::common::pool;

#[test]
fn an_empty_pool_is_its_taint() {
    let pool = pool("{}");
    for (provisioner, ..) in PROVISIONERS {
        insta::assert_snapshot!(format!("empty_{provisioner:?}"), render(provisioner, &pool, None));
    }
}

#[test]
fn each_provisioner_gets_labels_taints_and_image_of_each_windows() {
    let pool = pool(
        "{metadata: {name: gpu}, spec: {nodeSelector: {team: \"on\", topology.kubernetes.io/zone: a, kubernetes.azure.com/mode: user}, \
         taints: [{key: os, value: windows, effect: NoSchedule}, {key: gpu, effect: PreferNoSchedule}], \
         runtimeClasses: [{name: apps, version: 2022, hostMatch: Compatible}, {name: vms, version: 2022, isolation: HyperV}]}}",
    );
    for (provisioner, ..) in PROVISIONERS {
        let mut all = String::new();
        for version in ["20h2", "2019", "2022", "23h2", "2025"] {
            writeln!(all, "--- {version}\n{}", render(provisioner, &pool, by_version(version))).unwrap();
        }
        insta::assert_snapshot!(format!("versions_{provisioner:?}"), all);
    }
}

#[test]
fn a_pool_that_taints_nothing_renders_no_taint() {
    let pool = pool("spec: {taintPolicy: Never}");
    for (provisioner, ..) in PROVISIONERS.into_iter().filter(|(known, ..)| *known != Provisioner::NodeReadiness) {
        let text = render(provisioner, &pool, by_version("2022"));
        assert!(text.contains("# No taints: taintPolicy is Never.") && !text.contains("NoSchedule"), "{text}");
    }
}

#[test]
fn a_label_that_a_node_has_by_itself_is_rendered_once() {
    let selector =
        "kubernetes.io/arch: amd64, beta.kubernetes.io/os: windows, node.kubernetes.io/windows-build: 10.0.20348";
    let (pool, bare) = (pool(&format!("spec: {{nodeSelector: {{{selector}}}}}")), pool("{}"));
    for (provisioner, ..) in PROVISIONERS {
        let of_build = render(provisioner, &bare, by_version("2022"));
        for windows in [None, by_version("2022")] {
            assert_eq!(render(provisioner, &pool, windows), of_build, "{provisioner:?}");
        }
    }
}

#[test]
fn the_windows_version_has_to_be_the_one_that_the_pool_selects() {
    let selecting = pool("spec: {nodeSelector: {node.kubernetes.io/windows-build: 10.0.20348}}");
    let (of_2022, of_2025) = (by_version("2022"), by_version("2025"));
    assert_eq!(windows_of(&selecting, None), Ok(of_2022));
    assert_eq!(windows_of(&selecting, of_2022), Ok(of_2022));
    let refused = windows_of(&selecting, of_2025).unwrap_err();
    assert!(refused.contains("selects nodes of 10.0.20348, not of Windows 2025"), "{refused}");
    assert_eq!(windows_of(&pool("{}"), of_2025), Ok(of_2025));
    assert_eq!(windows_of(&pool("{}"), None), Ok(None));
}

#[test]
fn a_node_pool_of_a_windows_that_a_cloud_does_not_offer_is_refused() {
    let aws: &[&str] = &["2019", "2022", "2025"];
    let offers: [(Provisioner, &[&str]); 4] = [
        (Provisioner::Aks, &["2022", "2025"]),
        (Provisioner::Gke, &["2019", "2022"]),
        (Provisioner::Karpenter, aws),
        (Provisioner::Eksctl, aws),
    ];
    for (provisioner, offered) in offers {
        for version in ["2016", "20h2", "2019", "2022", "23h2", "2025"] {
            let refused = refusal(provisioner, by_version(version).unwrap());
            assert_eq!(refused.is_none(), offered.contains(&version), "{provisioner:?} {version}: {refused:?}");
        }
    }
}
