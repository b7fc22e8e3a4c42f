//! A real API server passes the same tests as the simulated one, which runs them in plimsoll-sim.

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

/// Runs the tests on the cluster of the kubeconfig `PLIMSOLL_CONTRACT_KUBECONFIG`. `cargo xtask e2e --only api-server`
/// starts a cluster for it.
#[tokio::test]
async fn the_server_of_a_kubeconfig_keeps_the_contract() {
    let Ok(path) = std::env::var("PLIMSOLL_CONTRACT_KUBECONFIG") else { return };
    let kubeconfig = Kubeconfig::read_from(path).unwrap();
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    // Some tests provoke a 429.
    config.default_retry = false;
    let results = plimsoll_sim::contract::all(Client::try_from(config).unwrap()).await;
    let failed: Vec<_> = results.iter().filter(|(_, result)| result.is_err()).collect();
    assert!(failed.is_empty(), "{failed:#?}");
    assert!(results.len() > 30, "only {} tests ran", results.len());
}
