//! Clients of the API server, and errors about kubeconfigs. The errors contain neither the content of a kubeconfig nor
//! what its exec plugin has printed, since both may be tokens.

use std::error::Error as _;

use kube::client::{AuthError, ClientBuilder};
use kube::config::{InferConfigError, KubeconfigError};
use kube::{Client, Config};
use tower::BoxError;
use tower::util::MapErrLayer;

/// A client with this configuration.
///
/// # Errors
/// If the configuration is invalid, or the exec plugin of the kubeconfig fails.
pub fn client(config: Config) -> Result<Client, kube::Error> {
    let builder = ClientBuilder::try_from(config).map_err(|error: kube::Error| match error {
        kube::Error::Auth(error) => kube::Error::Auth(without_output(error)),
        other => other,
    })?;
    Ok(builder.with_layer(&MapErrLayer::new(of_request)).build())
}

/// The error of a request. A plugin runs again before its token expires.
fn of_request(error: BoxError) -> BoxError {
    match error.downcast::<AuthError>() {
        Ok(error) => without_output(*error).into(),
        Err(other) => other,
    }
}

fn without_output(error: AuthError) -> AuthError {
    match error {
        AuthError::AuthExecRun { out, .. } => {
            AuthError::AuthExec(format!("the exec plugin of the kubeconfig ended with {}", out.status))
        }
        AuthError::AuthExecParse(_) => {
            AuthError::AuthExec("what the exec plugin of the kubeconfig printed is no ExecCredential".to_owned())
        }
        other => other,
    }
}

/// Why a kubeconfig cannot be used.
#[must_use]
pub fn kubeconfig_problem(error: &KubeconfigError) -> String {
    match error {
        KubeconfigError::Parse(error) => {
            let place = error.location().map(|at| format!(" at line {}, column {}", at.line(), at.column()));
            format!("not a kubeconfig{}", place.unwrap_or_default())
        }
        other => other.to_string(),
    }
}

/// Why neither a kubeconfig nor the pod's ServiceAccount can be used.
#[must_use]
pub fn no_access(error: &InferConfigError) -> String {
    match error.source().and_then(|source| source.downcast_ref::<KubeconfigError>()) {
        Some(invalid @ KubeconfigError::Parse(_)) => kubeconfig_problem(invalid),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program;
    use std::path::Path;

    const CREDENTIAL: &str = r#"echo '{"kind": "ExecCredential", "apiVersion": "client.authentication.k8s.io/v1",
        "status": {"token": "a", "expirationTimestamp": "2020-01-01T00:00:00Z"}}'"#;

    async fn config(folder: &Path, script: &str) -> Config {
        let exec = serde_json::json!({"apiVersion": "client.authentication.k8s.io/v1", "command": "sh",
            "args": ["-c", script], "interactiveMode": "Never"});
        let file = serde_json::json!({"apiVersion": "v1", "kind": "Config", "current-context": "a",
            "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
            "clusters": [{"name": "a", "cluster": {"server": "http://127.0.0.1:1"}}],
            "users": [{"name": "a", "user": {"exec": exec}}]});
        let path = folder.join("kubeconfig");
        std::fs::write(&path, file.to_string()).unwrap();
        program::kube_config(Some(&path)).await.unwrap()
    }

    #[tokio::test]
    async fn the_output_of_an_exec_plugin_is_not_in_errors() {
        let folder = tempfile::tempdir().unwrap();
        let later = folder.path().join("later");
        for (bad, told) in [
            ("echo SECRETTOKEN; echo SECRETTOKEN >&2; exit 3", "ended with exit status: 3"),
            ("echo token: [SECRETTOKEN", "is no ExecCredential"),
        ] {
            let at_once = client(config(folder.path(), bad).await).err().unwrap();
            // The token has expired, so the plugin runs again for the first request.
            let script = format!("if [ -e {} ]; then {bad}; else {CREDENTIAL}; fi", later.display());
            let client = client(config(folder.path(), &script).await).unwrap();
            std::fs::write(&later, "").unwrap();
            let of_request = client.apiserver_version().await.unwrap_err();
            std::fs::remove_file(&later).unwrap();
            for error in [at_once, of_request] {
                let shown = format!("{error} {error:?}");
                assert!(shown.contains(told) && !shown.contains("SECRETTOKEN"), "{shown}");
            }
        }
    }

    #[tokio::test]
    async fn the_content_of_a_kubeconfig_is_not_in_errors() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kubeconfig");
        std::fs::write(&path, "apiVersion: v1\nusers:\n- name: a\n  user:\n    token: [SECRETTOKEN]\n").unwrap();
        let error = program::kube_config(Some(&path)).await.unwrap_err();
        let shown = format!("{error} {error:?}");
        assert!(shown.contains("not a kubeconfig at line 5, ") && !shown.contains("SECRETTOKEN"), "{shown}");
    }
}
