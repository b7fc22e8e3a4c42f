//! Tests errors of the program's command line.

#![expect(clippy::unwrap_used, reason = "test helpers fail by panicking")]

use std::process::{Command, Output};

fn run(arguments: &[&str]) -> Output {
    let ports = ["--listen=127.0.0.1:0", "--metrics-listen=127.0.0.1:0", "--health-listen=127.0.0.1:0"];
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll-watcher"));
    command.args(ports).args(arguments).env_remove("KUBECONFIG").output().unwrap()
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_missing_kubeconfig_is_reported() {
    let output = run(&["--scheduler=127.0.0.1:1", "--actuator=127.0.0.1:1", "--kubeconfig=missing.yaml"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(errors(&output).contains("kubeconfig missing.yaml"), "{}", errors(&output));
}

#[test]
fn an_invalid_peer_address_is_reported() {
    let kubeconfig = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kubeconfig.yaml");
    let kubeconfig = format!("--kubeconfig={kubeconfig}");
    let output = run(&["--scheduler=nowhere", "--actuator=127.0.0.1:1", &kubeconfig]);
    assert_eq!(output.status.code(), Some(1));
    assert!(errors(&output).contains("--scheduler") && errors(&output).contains("nowhere"), "{}", errors(&output));
}
