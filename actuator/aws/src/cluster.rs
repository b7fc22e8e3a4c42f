//! What nodes must know of the cluster, as far as the cluster tells.

use anyhow::{Context, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::networking::v1::ServiceCIDR;
use kube::{Api, Client};
use std::path::Path;
use std::time::Duration;

/// The API server answers such questions at once, or it is not there.
const PATIENCE: Duration = Duration::from_secs(15);
/// Name of the ServiceCIDR that every cluster has.
const DEFAULT_CIDR: &str = "kubernetes";
/// Columns of a PEM file.
const COLUMNS: usize = 64;

/// What the cluster tells.
pub(crate) struct Facts {
    /// `1.36`.
    pub(crate) kubernetes_version: String,
    /// Address of the Service kube-dns; `None` where there is none.
    pub(crate) cluster_dns: Option<String>,
    /// Addresses of services, the IPv4 ones first; `None` where the cluster does not know ServiceCIDRs.
    pub(crate) service_cidr: Option<String>,
}

pub(crate) async fn facts(client: &Client) -> Result<Facts> {
    let ask = async {
        let version = client.apiserver_version().await.context("version of the API server")?;
        Ok(Facts {
            kubernetes_version: minor(&version.major, &version.minor),
            cluster_dns: tolerated("Service kube-system/kube-dns", dns(client).await),
            service_cidr: tolerated("ServiceCIDR kubernetes", cidr(client).await),
        })
    };
    tokio::time::timeout(PATIENCE, ask).await.context("no answer in time")?
}

/// Some distributions write `36+`.
fn minor(major: &str, minor: &str) -> String {
    let digits: String = minor.chars().take_while(char::is_ascii_digit).collect();
    format!("{major}.{digits}")
}

/// Without it some families have no nodes, of which their node classes tell.
fn tolerated(what: &str, result: kube::Result<Option<String>>) -> Option<String> {
    result.unwrap_or_else(|error| {
        tracing::warn!(what, %error, "cannot be read");
        None
    })
}

async fn dns(client: &Client) -> kube::Result<Option<String>> {
    let services: Api<Service> = Api::namespaced(client.clone(), "kube-system");
    let spec = services.get_opt("kube-dns").await?.and_then(|service| service.spec);
    Ok(spec.and_then(|spec| spec.cluster_ip).filter(|address| !address.is_empty() && address != "None"))
}

async fn cidr(client: &Client) -> kube::Result<Option<String>> {
    let cidrs: Api<ServiceCIDR> = Api::all(client.clone());
    let spec = cidrs.get_opt(DEFAULT_CIDR).await?.and_then(|cidr| cidr.spec);
    let mut cidrs = spec.and_then(|spec| spec.cidrs).unwrap_or_default();
    cidrs.sort_by_key(|cidr| cidr.contains(':'));
    Ok(cidrs.into_iter().next())
}

/// The API server's certificate authority, PEM in base64: that of the file, else the one by which we trust it ourselves.
pub(crate) fn ca_bundle(file: Option<&Path>, config: &kube::Config) -> Result<String> {
    if let Some(path) = file {
        let pem = std::fs::read(path).with_context(|| format!("--cluster-ca-file {}", path.display()))?;
        return Ok(STANDARD.encode(pem));
    }
    let certificates = config.root_cert.clone().unwrap_or_default();
    if certificates.is_empty() {
        tracing::warn!("no certificate authority of the API server is known: give --cluster-ca-file");
        return Ok(String::new());
    }
    Ok(STANDARD.encode(certificates.iter().map(|certificate| pem(certificate)).collect::<String>()))
}

fn pem(certificate: &[u8]) -> String {
    let text = STANDARD.encode(certificate);
    let mut lines = String::from("-----BEGIN CERTIFICATE-----\n");
    let mut rest = text.as_str();
    while !rest.is_empty() {
        // Base64 is ASCII: every position is a boundary.
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
    fn a_certificate_is_written_as_openssl_does() {
        let text = pem(&[0; 50]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!((lines.len(), lines[1].len()), (4, COLUMNS));
        assert_eq!(lines[2], "AAA=");
        assert!(text.ends_with("-----END CERTIFICATE-----\n"));
    }

    #[test]
    fn a_version_is_major_and_minor() {
        assert_eq!(minor("1", "36"), "1.36");
        assert_eq!(minor("1", "36+"), "1.36");
    }
}
