//! Tests of the `plimsoll` program: arguments, output, exit status.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests and their helpers fail by panicking"
)]

mod assumptions;
mod cases;
mod catalog;
mod certificates;
mod cluster;
mod docs;
mod explain;
mod hints;
mod plan;
mod removals;
mod replay;
mod requests;
mod seeds;
mod server;

use serde_json::Value;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Result of a run.
#[derive(Debug)]
struct Run {
    status: i32,
    stdout: String,
    stderr: String,
}

/// Runs the program with arguments and stdin.
fn plimsoll_with(arguments: &[&str], stdin: &str) -> Run {
    let mut child = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
        .args(arguments)
        // The environment of the machine must not matter.
        .env_remove("KUBECONFIG")
        .env("HOME", "/nonexistent")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The program may exit before it has read its whole input.
    let _ = child.stdin.take().unwrap().write_all(stdin.as_bytes());
    let output = child.wait_with_output().unwrap();
    Run {
        status: output.status.code().expect("no signal"),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

fn plimsoll(arguments: &[&str]) -> Run {
    plimsoll_with(arguments, "")
}

impl Run {
    /// Output of a successful run.
    fn json(&self) -> Value {
        assert_eq!(self.status, 0, "{}", self.stderr);
        serde_json::from_str(&self.stdout).unwrap()
    }

    /// Asserts bad input: all of `mentions` on stderr, and nothing on stdout.
    fn refused(&self, mentions: &[&str]) {
        assert_eq!((self.status, self.stdout.as_str()), (2, ""), "{}", self.stderr);
        for mention in mentions {
            assert!(self.stderr.contains(mention), "{mention:?} is not in {}", self.stderr);
        }
    }
}

fn fixture(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name).display().to_string()
}

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

/// A Deployment of `replicas` pods with these requests.
fn deployment(name: &str, replicas: usize, cpu: &str, memory: &str) -> String {
    format!(
        "---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: {name}}}\nspec:\n  replicas: {replicas}\n  \
         selector: {{matchLabels: {{app: {name}}}}}\n  template:\n    metadata: {{labels: {{app: {name}}}}}\n    spec:\n      \
         containers: [{{name: app, image: example, resources: {{requests: {{cpu: \"{cpu}\", memory: {memory}}}}}}}]\n"
    )
}

/// Strings of a list, or of one field of its objects.
fn texts(list: &Value, field: &str) -> Vec<String> {
    let text = |it: &Value| if field.is_empty() { it.clone() } else { it[field].clone() };
    list.as_array().unwrap().iter().map(|it| text(it).as_str().unwrap().to_owned()).collect()
}
