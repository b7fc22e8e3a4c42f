//! Clients of the API server, and errors about kubeconfigs. The errors contain neither the content of a kubeconfig nor
//! what its exec plugin has printed, since both may be tokens.

use std::error::Error as _;
use std::net::IpAddr;

use http::Uri;
use hyper_util::client::proxy::matcher::Matcher;
use kube::client::{AuthError, ClientBuilder};
use kube::config::{InferConfigError, KubeconfigError};
use kube::{Client, Config};
use tower::BoxError;
use tower::util::MapErrLayer;

/// A client with this configuration. With a kubeconfig it uses the same proxy as kubectl.
///
/// # Errors
/// If the configuration is invalid, or the exec plugin of the kubeconfig fails.
pub fn client(mut config: Config) -> Result<Client, kube::Error> {
    // A pod, which has such a file, reaches its API server without a proxy.
    if config.root_cert_file.is_none() {
        let of_environment = variable(["HTTPS_PROXY", "https_proxy"]).and_then(|text| text.parse().ok());
        let no_proxy = variable(["NO_PROXY", "no_proxy"]).unwrap_or_default();
        config.proxy_url = proxy(config.proxy_url.take(), of_environment, &config.cluster_url, &no_proxy);
    }
    let builder = ClientBuilder::try_from(config).map_err(|error: kube::Error| match error {
        kube::Error::Auth(error) => kube::Error::Auth(without_output(error)),
        other => other,
    })?;
    Ok(builder.with_layer(&MapErrLayer::new(of_request)).build())
}

/// The first of these environment variables that has a value.
fn variable(names: [&str; 2]) -> Option<String> {
    names.into_iter().find_map(|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
}

/// The proxy for requests to `server`. `known` is what kube found: the `proxy-url` of the kubeconfig, or else the proxy
/// of the environment. kube compares NO_PROXY with the proxy, not with the server.
fn proxy(known: Option<Uri>, of_environment: Option<Uri>, server: &Uri, no_proxy: &str) -> Option<Uri> {
    if known.is_some() && known != of_environment {
        return known;
    }
    of_environment.filter(|_| !is_reached_directly(server, no_proxy))
}

/// Whether requests to `server` go past the proxy of the environment: this machine, and what NO_PROXY names.
fn is_reached_directly(server: &Uri, no_proxy: &str) -> bool {
    let host = server.host().unwrap_or_default().trim_matches(['[', ']']);
    if host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback()) {
        return true;
    }
    // `*.example.com` means `.example.com`. The address of the proxy does not matter here.
    let matcher = Matcher::builder().all("http://proxy").no(no_proxy.replace("*.", ".")).build();
    matcher.intercept(server).is_none()
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
    use tokio::io::AsyncReadExt as _;
    use tokio::net::TcpListener;

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
    async fn requests_go_through_the_proxy_of_a_kubeconfig() {
        let folder = tempfile::tempdir().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut config = config(folder.path(), CREDENTIAL).await;
        config.cluster_url = "http://api.test:8080".parse().unwrap();
        config.proxy_url = Some(format!("http://{}", listener.local_addr().unwrap()).parse().unwrap());
        let client = client(config).unwrap();
        let request = tokio::spawn(async move { client.apiserver_version().await });
        let (mut connection, _) = listener.accept().await.unwrap();
        let mut start = [0; 21];
        connection.read_exact(&mut start).await.unwrap();
        assert_eq!(&start, b"CONNECT api.test:8080");
        request.abort();
    }

    #[test]
    fn the_proxy_of_the_environment_is_used_as_by_kubectl() {
        let uri = |text: &str| text.parse::<Uri>().unwrap();
        let (environment, own) = (uri("http://proxy.corp.test:3128"), uri("socks5://127.0.0.1:1080"));
        let eks = "https://0000.gr7.eu-west-1.eks.amazonaws.com";
        let all = Some(&environment);
        for (known, server, no_proxy, expected) in [
            (all, eks, "", all),
            (all, eks, "10.0.0.0/8,.corp.test", all),
            (all, eks, "localhost,.amazonaws.com", None),
            (all, eks, "*.eks.amazonaws.com", None),
            (all, "https://10.0.0.7", "10.0.0.0/8", None),
            (all, "https://localhost:6443", "", None),
            (all, "https://[::1]:6443", "", None),
            // kube leaves out the proxy if NO_PROXY names the proxy.
            (None, eks, "corp.test", all),
            (Some(&own), eks, ".amazonaws.com", Some(&own)),
        ] {
            let found = proxy(known.cloned(), all.cloned(), &uri(server), no_proxy);
            assert_eq!(found.as_ref(), expected, "{server} {no_proxy}");
        }
        assert_eq!(proxy(None, None, &uri(eks), ""), None);
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
