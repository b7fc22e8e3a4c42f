//! The certificate authority of the API server, for nodes.

use anyhow::{Context, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::path::Path;

/// Certificate authority of the API server in pods. [`kube::Config`] has its certificates, but not its text.
const OF_POD: &str = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt";
/// Line length of PEM.
const COLUMNS: usize = 64;

/// A file of PEM as base64.
pub(crate) fn ca_of_file(path: &Path) -> Result<String> {
    let pem = std::fs::read(path).with_context(|| format!("--cluster-ca-file {}", path.display()))?;
    Ok(STANDARD.encode(pem))
}

/// The API server's CA of the pod, as base64 of the file; `None` outside of pods.
pub(crate) fn ca_of_pod() -> Option<String> {
    let pem = std::fs::read(OF_POD).ok().filter(|pem| !pem.is_empty())?;
    Some(STANDARD.encode(pem))
}

/// The API server's CA of the client configuration, as base64 of PEM; `None` if it has none.
pub(crate) fn ca_of_client(config: &kube::Config) -> Option<String> {
    let certificates = config.root_cert.as_ref().filter(|certificates| !certificates.is_empty())?;
    Some(STANDARD.encode(certificates.iter().map(|certificate| pem(certificate)).collect::<String>()))
}

fn pem(certificate: &[u8]) -> String {
    let text = STANDARD.encode(certificate);
    let mut lines = String::from("-----BEGIN CERTIFICATE-----\n");
    let mut rest = text.as_str();
    while !rest.is_empty() {
        // Base64 is ASCII, so every index is a character boundary.
        let (line, after) = rest.split_at(rest.len().min(COLUMNS));
        lines.push_str(line);
        lines.push('\n');
        rest = after;
    }
    lines + "-----END CERTIFICATE-----\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pem_lines_wrap_at_64_columns() {
        let text = pem(&[0; 50]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!((lines.len(), lines[1].len()), (4, COLUMNS));
        assert_eq!(lines[2], "AAA=");
        assert!(text.ends_with("-----END CERTIFICATE-----\n"));
    }
}
