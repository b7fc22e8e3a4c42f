//! Deployments and settings in deploy/kubernetes.

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// File with the settings of a cluster, as literals of a ConfigMap.
const KUSTOMIZATION: &str = "deploy/kubernetes/kustomization.yaml";

/// The pod of the Deployment in a file below `root`.
///
/// # Errors
/// If the file has not exactly one Deployment.
pub(super) fn read(root: &Path, path: &str) -> Result<Pod> {
    let text = std::fs::read_to_string(root.join(path)).with_context(|| format!("reading {path}"))?;
    pod(&text).with_context(|| path.to_owned())
}

fn pod(text: &str) -> Result<Pod> {
    let is_deployment = |document: &&str| document.lines().any(|line| line == "kind: Deployment");
    let documents: Vec<_> = text.split("\n---\n").filter(is_deployment).collect();
    let [document] = documents.as_slice() else { bail!("{} Deployments, not one", documents.len()) };
    // As kubectl: `defaultMode: 0440`.
    let options = serde_saphyr::options! { legacy_octal_numbers: true };
    let deployment: Deployment = serde_saphyr::from_str_with_options(document, options).context("the Deployment")?;
    let template = deployment.spec.context("the Deployment has no spec")?.template;
    Ok(Pod { metadata: template.metadata.unwrap_or_default(), spec: template.spec, status: None })
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
    use crate::harness::pods::spec;
    use crate::workspace;
    use std::net::Ipv4Addr;

    const MANIFEST: &str = "kind: Deployment\nspec:\n  template:\n    spec:\n      automountServiceAccountToken: false\n      containers:\n      \
        - args: [--a=$(B)]\n        ports: [{containerPort: 7}]\n        volumeMounts: [{name: tls, mountPath: /etc/tls}]\n      \
        volumes: [{name: tls, secret: {defaultMode: 0440}}]\n";

    #[test]
    fn only_the_deployment_of_a_file_is_read() {
        let parsed = pod(&format!("kind: Service\n---\n{MANIFEST}")).unwrap();
        assert_eq!(spec::container(&parsed).unwrap().args, Some(vec!["--a=$(B)".to_owned()]));
        let parsed = parsed.spec.unwrap();
        assert_eq!(parsed.automount_service_account_token, Some(false));
        let secret = parsed.volumes.unwrap().remove(0).secret.unwrap();
        assert_eq!(secret.default_mode, Some(0o440), "octal");
        assert!(pod("kind: Service\n").is_err());
        assert!(pod(&format!("{MANIFEST}---\n{MANIFEST}")).is_err());
    }

    #[test]
    fn every_reference_of_the_manifests_is_a_setting_or_a_fact_of_the_pod() {
        let (root, _) = workspace::folders().unwrap();
        let mut env = settings(&root).unwrap();
        env.extend(["POD_NAME", "POD_NAMESPACE", "POD_IP"].map(|name| (name.to_owned(), String::new())));
        for path in super::super::program::PROGRAMS.iter().filter_map(|program| program.manifest) {
            let pod = read(&root, path).unwrap();
            let container = spec::container(&pod).unwrap();
            let mut open = spec::arguments(container, &env, Ipv4Addr::LOCALHOST);
            open.retain(|arg| arg.contains("$("));
            assert!(open.is_empty(), "{path}: {open:?}");
            assert!(container.ports.iter().flatten().count() >= 3, "{path}: {:?}", container.ports);
        }
    }
}
