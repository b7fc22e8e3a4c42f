//! The only container of a Deployment in deploy/kubernetes.

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// File with the settings of a cluster, as literals of a ConfigMap.
const KUSTOMIZATION: &str = "deploy/kubernetes/kustomization.yaml";

/// The container of a Deployment.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Container {
    /// Unexpanded arguments, with references such as `$(POD_NAME)`.
    pub(super) args: Vec<String>,
    /// Every containerPort.
    pub(super) ports: Vec<u16>,
    /// Mount paths, each with the name of its volume.
    pub(super) mounts: Vec<(String, String)>,
    /// Whether the token of the service account is mounted.
    pub(super) token: bool,
}

#[derive(Deserialize)]
struct Deployment {
    spec: Spec,
}

#[derive(Deserialize)]
struct Spec {
    template: Template,
}

#[derive(Deserialize)]
struct Template {
    spec: Pod,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Pod {
    automount_service_account_token: bool,
    containers: Vec<PodContainer>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodContainer {
    args: Vec<String>,
    ports: Vec<Port>,
    volume_mounts: Vec<Mount>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Port {
    container_port: u16,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Mount {
    name: String,
    mount_path: String,
}

/// The container of the Deployment in a file below `root`.
///
/// # Errors
/// If the file has not exactly one Deployment with one container.
pub(super) fn read(root: &Path, path: &str) -> Result<Container> {
    let text = std::fs::read_to_string(root.join(path)).with_context(|| format!("reading {path}"))?;
    container(&text).with_context(|| path.to_owned())
}

fn container(text: &str) -> Result<Container> {
    let is_deployment = |document: &&str| document.lines().any(|line| line == "kind: Deployment");
    let documents: Vec<_> = text.split("\n---\n").filter(is_deployment).collect();
    let [document] = documents.as_slice() else { bail!("{} Deployments, not one", documents.len()) };
    let deployment: Deployment = serde_saphyr::from_str(document).context("the Deployment")?;
    let pod = deployment.spec.template.spec;
    let Ok([container]) = <[PodContainer; 1]>::try_from(pod.containers) else {
        bail!("spec.template.spec.containers: not one");
    };
    Ok(Container {
        args: container.args,
        ports: container.ports.into_iter().map(|port| port.container_port).collect(),
        mounts: container.volume_mounts.into_iter().map(|mount| (mount.name, mount.mount_path)).collect(),
        token: pod.automount_service_account_token,
    })
}

/// Literals of the ConfigMap generator in kustomization.yaml.
///
/// # Errors
/// If there is no such generator.
pub(super) fn settings(root: &Path) -> Result<BTreeMap<String, String>> {
    let text = std::fs::read_to_string(root.join(KUSTOMIZATION)).with_context(|| format!("reading {KUSTOMIZATION}"))?;
    let document: Value = serde_saphyr::from_str(&text).context(KUSTOMIZATION)?;
    let literals = document["configMapGenerator"][0]["literals"].as_array();
    let literals = literals.with_context(|| format!("{KUSTOMIZATION}: no configMapGenerator[0].literals"))?;
    let pair =
        |literal: &Value| literal.as_str()?.split_once('=').map(|(key, value)| (key.to_owned(), value.to_owned()));
    Ok(literals.iter().filter_map(pair).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::pods::spec::expand;
    use crate::workspace;

    const MANIFEST: &str = "kind: Deployment\nspec:\n  template:\n    spec:\n      automountServiceAccountToken: false\n      containers:\n      \
        - args: [--a=$(B)]\n        ports: [{containerPort: 7}]\n        volumeMounts: [{name: tls, mountPath: /etc/tls}]\n";

    #[test]
    fn only_the_deployment_of_a_file_is_read() {
        let parsed = container(&format!("kind: Service\n---\n{MANIFEST}")).unwrap();
        let mounts = vec![("tls".to_owned(), "/etc/tls".to_owned())];
        assert_eq!(parsed, Container { args: vec!["--a=$(B)".to_owned()], ports: vec![7], mounts, token: false });
        assert!(container("kind: Service\n").is_err());
        assert!(container(&format!("{MANIFEST}---\n{MANIFEST}")).is_err());
    }

    #[test]
    fn every_reference_of_the_manifests_is_a_setting_or_a_fact_of_the_pod() {
        let (root, _) = workspace::folders().unwrap();
        let mut env = settings(&root).unwrap();
        env.extend(["POD_NAME", "POD_NAMESPACE", "POD_IP"].map(|name| (name.to_owned(), String::new())));
        for path in super::super::program::PROGRAMS.iter().filter_map(|program| program.manifest) {
            let container = read(&root, path).unwrap();
            let open: Vec<_> =
                container.args.iter().map(|arg| expand(arg, &env)).filter(|arg| arg.contains("$(")).collect();
            assert!(open.is_empty(), "{path}: {open:?}");
            assert!(container.ports.len() >= 3, "{path}: {:?}", container.ports);
        }
    }
}
