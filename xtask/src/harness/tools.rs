//! Programs that must be installed, and how to install them.

use anyhow::{Result, bail};
use std::ffi::OsStr;
use std::process::Command;

/// A program that the repository neither builds nor installs.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Tool {
    /// File name on PATH.
    pub(crate) program: &'static str,
    /// Name and minimum version.
    what: &'static str,
    /// Purpose.
    purpose: &'static str,
    get: &'static str,
    /// Arguments that print its version.
    version: &'static [&'static str],
}

/// Builds the control plane.
pub(crate) const GO: Tool = Tool {
    program: "go",
    what: "Go 1.26 or later",
    purpose: "builds the Kubernetes control plane, once",
    get: "https://go.dev/dl/",
    version: &["version"],
};
/// Runs EC2 and the kubelets.
pub(crate) const PYTHON: Tool = Tool {
    program: "python3",
    what: "Python 3.11 or later, with venv",
    purpose: "runs EC2 (moto) and the kubelets",
    get: "apt-get install python3 python3-venv, or https://www.python.org/downloads/",
    version: &["--version"],
};
/// Installs the custom resources and reads the cluster.
pub(crate) const KUBECTL: Tool = Tool {
    program: "kubectl",
    what: "kubectl",
    purpose: "installs Plimsoll's custom resources and reads the cluster",
    get: "https://kubernetes.io/docs/tasks/tools/",
    version: &["version", "--client"],
};
/// Evaluates the dashboards' expressions in the scenario `monitoring`. Optional.
pub(crate) const PROMETHEUS: Tool = Tool {
    program: "prometheus",
    what: "Prometheus",
    purpose: "evaluates the expressions of dashboards and rules",
    get: "apt-get install prometheus, or https://prometheus.io/download/",
    version: &["--version"],
};
/// Tests the alert rules.
pub(crate) const PROMTOOL: Tool =
    Tool { program: "promtool", what: "promtool", purpose: "tests alert rules", ..PROMETHEUS };
/// Tools that the end-to-end environment needs in addition to Rust.
pub(crate) const ALL: [&Tool; 3] = [&GO, &PYTHON, &KUBECTL];

impl Tool {
    /// Whether a folder of PATH contains it.
    pub(crate) fn is_installed(&self) -> bool {
        self.is_in(&std::env::var_os("PATH").unwrap_or_default())
    }

    fn is_in(&self, path: &OsStr) -> bool {
        std::env::split_paths(path).any(|folder| folder.join(self.program).is_file())
    }

    fn how_to_get(&self) -> String {
        format!("{} is not on PATH. {} {}. Get it: {}", self.program, self.what, self.purpose, self.get)
    }

    /// Requirements of a failed step for this tool, and the installed version.
    pub(crate) fn needed(&self) -> String {
        if !self.is_installed() {
            return self.how_to_get();
        }
        let output = Command::new(self.program).args(self.version).output();
        let version = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
        format!("needs {} and, the first time, the network; here is {}", self.what, version.unwrap_or_default())
    }
}

/// # Errors
/// Fails if a tool is missing, with the purpose of each missing tool and how to install it.
pub(crate) fn require(tools: &[&Tool]) -> Result<()> {
    let missing: Vec<String> = tools.iter().filter(|tool| !tool.is_installed()).map(|tool| tool.how_to_get()).collect();
    if !missing.is_empty() {
        bail!("{}", missing.join("\n"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_is_looked_for_in_each_folder_of_the_path() -> Result<()> {
        let (without, with) = (tempfile::tempdir()?, tempfile::tempdir()?);
        std::fs::write(with.path().join("go"), "")?;
        let both = std::env::join_paths([without.path(), with.path()])?;
        assert!(GO.is_in(&both));
        assert!(!GO.is_in(without.path().as_os_str()));
        assert!(!KUBECTL.is_in(&both));
        Ok(())
    }

    #[test]
    fn what_is_missing_is_named_with_its_purpose_and_source() {
        const NONE: Tool = Tool { program: "no-such-tool", ..GO };
        let result = require(&[&NONE]).map_err(|error| error.to_string());
        let needed = "no-such-tool is not on PATH. Go 1.26 or later builds the Kubernetes control plane, once. Get it: https://go.dev/dl/";
        assert_eq!(result, Err(needed.to_owned()));
        assert_eq!(NONE.needed(), needed);
    }
}
