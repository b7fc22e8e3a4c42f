//! Cluster facts that nodes need: Kubernetes version, DNS address, Service CIDR. They are read again and again, since a
//! control plane may be upgraded, and kube-dns installed, while the actuator runs.

use crate::pacing::interval_passed;
use crate::settings::{Facts, Settings};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::networking::v1::ServiceCIDR;
use kube::{Api, Client};
use parking_lot::RwLock;
use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Interval between reads. It is short because nodes that are launched with images of the old version after an upgrade
/// drift at once. Three small reads per minute are no load for the API server.
const READ_INTERVAL: Duration = Duration::from_secs(60);
/// Pause after a read that failed in part. Doubles up to [`READ_INTERVAL`].
const FIRST_PAUSE: Duration = Duration::from_secs(5);
/// Timeout of one read.
const READ_TIMEOUT: Duration = Duration::from_secs(15);
/// Name of the ServiceCIDR that every cluster has.
const DEFAULT_CIDR: &str = "kubernetes";

/// Reads all facts. Also returns an error for each fact that could not be read.
pub async fn read(client: &Client) -> (Facts, Vec<String>) {
    let mut failures = Vec::new();
    let version = within(version(client)).await;
    let kubernetes_version = ok_or_record("version of the API server", version, &mut failures);
    let cluster_dns = ok_or_record("Service kube-system/kube-dns", within(dns(client)).await, &mut failures);
    let service_cidr = ok_or_record("ServiceCIDR kubernetes", within(cidr(client)).await, &mut failures);
    (Facts { kubernetes_version, cluster_dns, service_cidr }, failures)
}

async fn within(read: impl Future<Output = kube::Result<Option<String>>>) -> Result<Option<String>, String> {
    match tokio::time::timeout(READ_TIMEOUT, read).await {
        Ok(result) => result.map_err(|error| error.to_string()),
        Err(_) => Err(format!("no answer within {READ_TIMEOUT:?}")),
    }
}

fn ok_or_record(
    what: &str,
    result: Result<Option<String>, impl Display>,
    failures: &mut Vec<String>,
) -> Option<String> {
    result.unwrap_or_else(|error| {
        failures.push(format!("{what}: {error}"));
        None
    })
}

async fn version(client: &Client) -> kube::Result<Option<String>> {
    let version = client.apiserver_version().await?;
    Ok(Some(minor(&version.major, &version.minor)))
}

/// Parses the minor version; some distributions write `36+`.
fn minor(major: &str, minor: &str) -> String {
    let digits: String = minor.chars().take_while(char::is_ascii_digit).collect();
    format!("{major}.{digits}")
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

/// The settings, updated with the cluster's facts. Clones share the same state.
#[derive(Debug, Clone)]
pub struct Current {
    /// Settings as configured at the start. Configured values take precedence over the cluster's facts.
    configured: Arc<Settings>,
    now: Arc<RwLock<Arc<Settings>>>,
}

impl Current {
    /// Starts from settings that include the facts read at startup.
    #[must_use]
    pub fn new(configured: Arc<Settings>) -> Self {
        let current = Self { now: Arc::new(RwLock::new(Arc::clone(&configured))), configured };
        current.learn(current.configured.discovered.clone());
        current
    }

    /// The current settings.
    #[must_use]
    pub fn get(&self) -> Arc<Settings> {
        Arc::clone(&self.now.read())
    }

    /// Merges newly read facts. A fact that could not be read keeps its value. The version never decreases, since some
    /// API servers still report the old version during an upgrade.
    pub fn learn(&self, facts: Facts) {
        let mut now = self.now.write();
        let mut next = Settings::clone(&now);
        let is_newer = |version: &String| version_number(version) > version_number(&next.kubernetes_version);
        if let Some(version) = facts.kubernetes_version.filter(is_newer) {
            next.kubernetes_version = version;
        }
        next.cluster_dns = self.configured.cluster_dns.clone().or(facts.cluster_dns).or(next.cluster_dns);
        next.service_cidr = self.configured.service_cidr.clone().or(facts.service_cidr).or(next.service_cidr);
        if next != **now {
            tracing::info!(
                kubernetes = next.kubernetes_version,
                cluster_dns = next.cluster_dns,
                service_cidr = next.service_cidr,
                "cluster facts changed"
            );
            *now = Arc::new(next);
        }
    }

    /// Reads the facts periodically until `stop`.
    pub async fn follow(self, client: Client, stop: CancellationToken) {
        let mut pause = FIRST_PAUSE;
        loop {
            let (facts, failures) = read(&client).await;
            self.learn(facts);
            let wait = if failures.is_empty() {
                pause = FIRST_PAUSE;
                READ_INTERVAL
            } else {
                tracing::warn!(?failures, again_in = ?pause, "cluster facts not read");
                let wait = pause;
                pause = pause.saturating_mul(2).min(READ_INTERVAL);
                wait
            };
            if !interval_passed(&stop, wait).await {
                return;
            }
        }
    }
}

/// Parses a version such as `1.36`. `None`, which sorts first, if it is not a version.
pub(crate) fn version_number(version: &str) -> Option<(u32, u32)> {
    let (major, minor) = version.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests;
