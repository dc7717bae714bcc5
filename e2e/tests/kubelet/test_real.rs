//! The suite of `make test-real`, on nodes with real kubelets.

use kube::Api;
use kube::api::ListParams;
use tokio::process::Command;
use winpool_e2e::servers::lending::lend_cluster;
use winpool_e2e::wine::machine::Machine;
use winpool_e2e::wine::windows::{WINDOWS_2019, WINDOWS_2022};

/// Catches a suite that fails on a healthy cluster, or leaves something of its own.
#[tokio::test]
#[ignore = "needs Wine: make kubelet-test"]
async fn the_suite_for_real_nodes_passes_and_leaves_nothing_behind() {
    let cluster = lend_cluster().await.unwrap();
    let mut machines = Vec::new();
    for (name, windows) in [("win-2019", WINDOWS_2019), ("win-2022", WINDOWS_2022)] {
        machines.push(Machine::start(cluster.api_server(), name, windows, &[]).await.unwrap());
    }
    for machine in &machines {
        cluster.node_ready(machine.name()).await.unwrap();
    }
    let mut suite = Command::new(env!("CARGO_BIN_EXE_test-real"));
    let output = suite.arg("--yes").env("KUBECONFIG", cluster.kubeconfig()).output().await.unwrap();
    let [report, said] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
    assert!(output.status.success(), "{report}\n{said}");
    for row in [
        "| win-2019 | Windows Server 2019 Datacenter | 10.0.17763.6189 | v1.36.3 | containerd://1.7.20 |",
        "| a pod of class winpool-test-real-2022 starts | passed |",
        "| everything that it created is gone | passed |",
    ] {
        assert!(report.contains(row), "{row}\n{report}");
    }
    let namespaces = Api::<k8s_openapi::api::core::v1::Namespace>::all(cluster.client());
    assert!(namespaces.get_opt("winpool-test-real").await.unwrap().is_none());
    let definitions =
        Api::<k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition>::all(
            cluster.client(),
        );
    assert_eq!(definitions.list(&ListParams::default()).await.unwrap().items.len(), 0);
}
