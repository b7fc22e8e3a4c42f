//! User data: the configuration that makes an image join this cluster at its first boot. Pure text; the adapter encodes
//! it for EC2.

mod al2;
mod al2023;
mod bottlerocket;
mod flags;
mod mime;
mod windows;

use crate::settings::Settings;
use plimsoll_api::{AmiFamily, EC2NodeClass, KubeletConfiguration};
use plimsoll_model::names::{label, taint};
use plimsoll_model::taints::{Taint, TaintEffect};
use std::collections::BTreeMap;

/// EC2's limit for user data before encoding, in bytes.
pub const BYTES_MAX: usize = 16_384;

/// Label domains that the API server does not let a kubelet set on its own Node. These labels are copied from the
/// NodeClaim later.
const FORBIDDEN_DOMAINS: [&str; 3] = ["kubernetes.io", "k8s.io", "node-restriction.kubernetes.io"];

/// Parameters that a node needs to join.
#[derive(Debug, Clone, PartialEq)]
pub struct Bootstrap<'a> {
    /// The cluster's name.
    pub cluster_name: &'a str,
    /// URL of the API server.
    pub cluster_endpoint: &'a str,
    /// Certificate authority of the API server, PEM in base64; empty if not known.
    pub cluster_ca_bundle: &'a str,
    /// Service CIDR; Amazon Linux 2023 needs it.
    pub service_cidr: Option<&'a str>,
    /// The cluster's DNS server, unless the kubelet configuration names one.
    pub cluster_dns: Option<&'a str>,
    /// Labels of the node. Labels that a kubelet may not set are omitted.
    pub labels: BTreeMap<String, String>,
    /// Taints of the node, including startup taints.
    pub taints: Vec<Taint>,
    /// Kubelet configuration of the node class.
    pub kubelet: KubeletConfiguration,
    /// Maximum number of pods, unless the kubelet configuration sets it.
    pub max_pods: i64,
    /// The node class's own user data.
    pub user_data: Option<&'a str>,
    /// Combine the instance store disks into one RAID 0 volume.
    pub raid0: bool,
    /// Version of the Bottlerocket image, such as `1.46.0` or `latest`; `None` if not known.
    pub bottlerocket_version: Option<String>,
}

/// Rendered user data, and the user's settings that were ignored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rendered {
    /// The text.
    pub text: String,
    /// Paths in `spec.userData` of settings that have no effect.
    pub ignored: Vec<String>,
}

/// Why user data cannot be rendered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UserDataError {
    /// The user's part cannot be parsed.
    #[error("spec.userData: {0}")]
    Invalid(String),
    /// The Service CIDR is unknown, but the AMI family needs it.
    #[error("{0} nodes need the cluster's service CIDR, which is unknown: set --service-cidr")]
    ServiceCidrUnknown(AmiFamily),
    /// The user data exceeds EC2's limit.
    #[error("user data has {bytes} bytes, EC2 accepts {BYTES_MAX}; spec.userData has {own} of them")]
    TooLarge {
        /// Total size.
        bytes: usize,
        /// Size of the user's part.
        own: usize,
    },
}

impl<'a> Bootstrap<'a> {
    /// What nodes of a class need, without the labels and taints of a claim.
    #[must_use]
    pub fn new(settings: &'a Settings, class: &'a EC2NodeClass, max_pods: i64) -> Self {
        Self {
            cluster_name: &settings.cluster_name,
            cluster_endpoint: &settings.cluster_endpoint,
            cluster_ca_bundle: &settings.cluster_ca_bundle,
            service_cidr: settings.service_cidr.as_deref(),
            cluster_dns: settings.cluster_dns.as_deref(),
            labels: BTreeMap::new(),
            taints: Vec::new(),
            kubelet: class.spec.kubelet.clone().unwrap_or_default(),
            max_pods,
            user_data: class.spec.user_data.as_deref(),
            raid0: class.spec.instance_store_policy.is_some(),
            bottlerocket_version: None,
        }
    }

    /// Renders the user data for an AMI family.
    ///
    /// # Errors
    /// The user's part cannot be parsed, a required value is unknown, or the text is too large.
    pub fn render(&self, family: AmiFamily) -> Result<Rendered, UserDataError> {
        let plain = |text: String| Rendered { text, ignored: Vec::new() };
        let rendered = match family {
            AmiFamily::AL2 => plain(al2::render(self)?),
            AmiFamily::AL2023 => plain(al2023::render(self)?),
            AmiFamily::Bottlerocket => bottlerocket::render(self)?,
            AmiFamily::Windows2019 | AmiFamily::Windows2022 | AmiFamily::Windows2025 => plain(windows::render(self)),
            AmiFamily::Custom => plain(self.user_data.unwrap_or_default().to_owned()),
        };
        let bytes = rendered.text.len();
        if bytes > BYTES_MAX {
            return Err(UserDataError::TooLarge { bytes, own: self.user_data.map_or(0, str::len) });
        }
        Ok(rendered)
    }

    /// Whether the cluster uses IPv6: service addresses are of a single family, and the DNS address is one of them. In
    /// a cluster without a known DNS address, the service CIDR decides.
    #[must_use]
    pub fn is_ipv6(&self) -> bool {
        self.cluster_dns.or(self.service_cidr).is_some_and(|address| address.contains(':'))
    }

    /// Labels that the kubelet may set, by key. Includes `karpenter.sh/do-not-sync-taints`: the node registers all its
    /// taints, so none are added after registration.
    fn kubelet_labels(&self) -> BTreeMap<&str, &str> {
        let own = self.labels.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        let all = own.chain([(label::DO_NOT_SYNC_TAINTS, "true")]);
        all.filter(|(key, _)| !is_forbidden(key)).collect()
    }

    /// Taints that the node registers with, without duplicates. Includes `karpenter.sh/unregistered`.
    fn kubelet_taints(&self) -> Vec<Taint> {
        let unregistered =
            Taint { key: taint::UNREGISTERED.to_owned(), value: String::new(), effect: TaintEffect::NoExecute };
        let mut taints: Vec<Taint> = Vec::new();
        for taint in self.taints.iter().chain([&unregistered]) {
            // The API server rejects a Node with two taints of the same key and effect.
            if !taints.iter().any(|existing| existing.key == taint.key && existing.effect == taint.effect) {
                taints.push(taint.clone());
            }
        }
        taints
    }

    /// Maximum number of pods.
    fn pods(&self) -> i64 {
        self.kubelet.settings().max_pods.map_or(self.max_pods, i64::from)
    }

    /// DNS servers: the user's, or else the cluster's.
    fn dns(&self) -> Vec<String> {
        let own = self.kubelet.settings().cluster_dns;
        if own.is_empty() { self.cluster_dns.map(str::to_owned).into_iter().collect() } else { own }
    }
}

fn is_forbidden(key: &str) -> bool {
    let Some((domain, _)) = key.split_once('/') else { return false };
    FORBIDDEN_DOMAINS
        .iter()
        .any(|parent| domain == *parent || domain.strip_suffix(parent).is_some_and(|rest| rest.ends_with('.')))
}

#[cfg(test)]
mod tests;
