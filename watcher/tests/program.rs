//! Tests errors of the program's command line, and a signal while it starts.

#![expect(clippy::unwrap_used, reason = "test helpers fail by panicking")]

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Output, Stdio};

fn command(arguments: &[&str]) -> Command {
    let ports = ["--listen=127.0.0.1:0", "--metrics-listen=127.0.0.1:0", "--health-listen=127.0.0.1:0"];
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll-watcher"));
    command.args(ports).args(arguments).env_remove("KUBECONFIG");
    command
}

fn run(arguments: &[&str]) -> Output {
    command(arguments).output().unwrap()
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

/// The kubeconfig is a named pipe into which nobody writes, so the start does not end.
#[test]
fn a_signal_ends_a_program_that_still_starts() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("kubeconfig");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let kubeconfig = format!("--kubeconfig={}", pipe.display());
    let mut command = command(&["--scheduler=127.0.0.1:1", "--actuator=127.0.0.1:1", &kubeconfig]);
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line.contains("starting")), "it ended before");
    assert!(Command::new("kill").arg(child.id().to_string()).status().unwrap().success());
    let log: Vec<String> = lines.collect();
    assert_eq!(child.wait().unwrap().code(), Some(0), "{log:?}");
}
