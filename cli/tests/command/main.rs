//! The `plimsoll` program as a user or a script meets it: what it is given, what it prints, how it ends.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by a panic, in its helpers too"
)]

mod cases;
mod catalog;
mod certificates;
mod cluster;
mod docs;
mod explain;
mod hints;
mod plan;
mod requests;
mod seeds;
mod server;

use serde_json::Value;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// How a run went.
#[derive(Debug)]
struct Run {
    status: i32,
    stdout: String,
    stderr: String,
}

/// Runs the program with these arguments and this on stdin.
fn plimsoll_with(arguments: &[&str], stdin: &str) -> Run {
    let mut child = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
        .args(arguments)
        // What the machine is set to must not matter.
        .env_remove("KUBECONFIG")
        .env("HOME", "/nonexistent")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The program may end before it has read all.
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
    /// What was printed, of a run that went well.
    fn json(&self) -> Value {
        assert_eq!(self.status, 0, "{}", self.stderr);
        serde_json::from_str(&self.stdout).unwrap()
    }

    /// Bad input: told on stderr with all of `mentions`, and nothing on stdout.
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

/// A Deployment of `replicas` pods that ask for `cpu` and `memory` each.
fn deployment(name: &str, replicas: usize, cpu: &str, memory: &str) -> String {
    format!(
        "---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: {name}}}\nspec:\n  replicas: {replicas}\n  \
         selector: {{matchLabels: {{app: {name}}}}}\n  template:\n    metadata: {{labels: {{app: {name}}}}}\n    spec:\n      \
         containers: [{{name: app, image: example, resources: {{requests: {{cpu: \"{cpu}\", memory: {memory}}}}}}}]\n"
    )
}

/// Texts of a list, or of one field of its objects.
fn texts(list: &Value, field: &str) -> Vec<String> {
    let text = |it: &Value| if field.is_empty() { it.clone() } else { it[field].clone() };
    list.as_array().unwrap().iter().map(|it| text(it).as_str().unwrap().to_owned()).collect()
}
