//! Runs kubectl like a user of the cluster.

use anyhow::{Context as _, Result, bail};
use serde_json::Value;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A stalled API server must not hang the run.
const REQUEST_TIMEOUT: &str = "--request-timeout=30s";

/// Runs kubectl with one kubeconfig.
#[derive(Clone, Debug)]
pub(crate) struct Kubectl {
    kubeconfig: PathBuf,
}

impl Kubectl {
    pub(crate) fn new(kubeconfig: &Path) -> Kubectl {
        Kubectl { kubeconfig: kubeconfig.to_owned() }
    }

    /// Runs kubectl and returns its stdout.
    ///
    /// # Errors
    /// If kubectl fails, with its stderr.
    pub(crate) fn run(&self, args: &[&str]) -> Result<String> {
        self.run_with("", args)
    }

    /// As `run`, with input on stdin.
    ///
    /// # Errors
    /// As `run`.
    pub(crate) fn run_with(&self, stdin: &str, args: &[&str]) -> Result<String> {
        let mut child = Command::new("kubectl")
            .arg("--kubeconfig")
            .arg(&self.kubeconfig)
            .arg(REQUEST_TIMEOUT)
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("starting kubectl")?;
        if let Some(mut pipe) = child.stdin.take() {
            pipe.write_all(stdin.as_bytes())?;
        }
        let output = child.wait_with_output()?;
        if !output.status.success() {
            bail!("kubectl {}: {}", args.join(" "), String::from_utf8_lossy(&output.stderr).trim());
        }
        String::from_utf8(output.stdout).context("kubectl did not write UTF-8")
    }

    /// Applies manifests.
    ///
    /// # Errors
    /// As `run`.
    pub(crate) fn apply(&self, manifests: &str) -> Result<()> {
        self.run_with(manifests, &["apply", "-f", "-"]).map(drop)
    }

    /// The items of a list.
    ///
    /// # Errors
    /// As `run`.
    pub(crate) fn list(&self, args: &[&str]) -> Result<Vec<Value>> {
        let mut all = vec!["get"];
        all.extend_from_slice(args);
        all.extend_from_slice(&["-o", "json"]);
        let mut found: Value = serde_json::from_str(&self.run(&all)?).context("kubectl did not write JSON")?;
        match found.get_mut("items").map(Value::take) {
            Some(Value::Array(items)) => Ok(items),
            _ => Ok(vec![found]),
        }
    }
}

/// Whether a condition of an object is true.
pub(crate) fn condition(object: &Value, kind: &str) -> bool {
    object["status"]["conditions"]
        .as_array()
        .is_some_and(|all| all.iter().any(|c| c["type"] == kind && c["status"] == "True"))
}

/// Id of the instance of a node: the last part of its provider id.
pub(crate) fn instance_of(node: &Value) -> Option<&str> {
    node["spec"]["providerID"].as_str().and_then(|id| id.rsplit('/').next())
}
