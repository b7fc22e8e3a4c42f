//! User data: what an image is told at its first start, so that it becomes a node of this cluster (spec: AWS provider
//! section 3). Pure text; what EC2 wants encoded, the adapter encodes.

mod al2;
mod al2023;
mod bottlerocket;
mod flags;
mod mime;
mod windows;

use plimsoll_api::{AmiFamily, KubeletConfiguration};
use plimsoll_model::names::{label, taint};
use plimsoll_model::taints::{Taint, TaintEffect};
use std::collections::BTreeMap;

/// EC2's limit of user data before it is encoded.
pub const BYTES_MAX: usize = 16_384;

/// Labels below these domains are refused by the API server when a kubelet sets them on its own Node; they come later,
/// from the NodeClaim.
const FORBIDDEN_DOMAINS: [&str; 3] = ["kubernetes.io", "k8s.io", "node-restriction.kubernetes.io"];

/// What a node must know to join.
#[derive(Debug, Clone, PartialEq)]
pub struct Bootstrap<'a> {
    /// The cluster's name.
    pub cluster_name: &'a str,
    /// Where the API server is found.
    pub cluster_endpoint: &'a str,
    /// Certificate authority of the API server, PEM in base64; empty if not known.
    pub cluster_ca_bundle: &'a str,
    /// Addresses of services; Amazon Linux 2023 needs them.
    pub service_cidr: Option<&'a str>,
    /// The cluster's DNS server, where the kubelet's settings do not name one.
    pub cluster_dns: Option<&'a str>,
    /// Labels of the node; those that a kubelet may not set are left out of the text.
    pub labels: BTreeMap<String, String>,
    /// Taints of the node, start-up taints included.
    pub taints: Vec<Taint>,
    /// The kubelet's settings as the node class has them.
    pub kubelet: KubeletConfiguration,
    /// Pods that the node takes, where the kubelet's settings do not say.
    pub max_pods: i64,
    /// The node class's own user data.
    pub user_data: Option<&'a str>,
    /// Disks of the instance type are joined into one for pods.
    pub raid0: bool,
    /// Version of the Bottlerocket image, such as `1.46.0` or `latest`; `None` if not known.
    pub bottlerocket_version: Option<String>,
}

/// User data and what of the user's own was left out of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rendered {
    /// The text.
    pub text: String,
    /// Settings in `spec.userData` that have no effect, by path.
    pub ignored: Vec<String>,
}

/// Why there is no user data.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UserDataError {
    /// The user's part cannot be read.
    #[error("spec.userData: {0}")]
    Invalid(String),
    /// Amazon Linux 2023 must be told the addresses of services.
    #[error("the cluster's service CIDR is not known, which {0} nodes need")]
    ServiceCidrUnknown(AmiFamily),
    /// EC2 takes no more.
    #[error("user data has {bytes} bytes, EC2 takes {BYTES_MAX}; spec.userData is {own} of them")]
    TooLarge {
        /// Size of all of it.
        bytes: usize,
        /// Size of the user's part.
        own: usize,
    },
}

impl Bootstrap<'_> {
    /// The text for an image of this family.
    ///
    /// # Errors
    /// The user's part cannot be read, something is not known, or it is too large.
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

    /// Labels that the kubelet may set, by key; `karpenter.sh/do-not-sync-taints` says that the node registers all of its
    /// taints, start-up taints too, and that none is to be put back later.
    fn kubelet_labels(&self) -> BTreeMap<&str, &str> {
        let own = self.labels.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        let all = own.chain([(label::DO_NOT_SYNC_TAINTS, "true")]);
        all.filter(|(key, _)| !is_forbidden(key)).collect()
    }

    /// Taints that the node registers with, each once, `karpenter.sh/unregistered` among them.
    fn kubelet_taints(&self) -> Vec<Taint> {
        let unregistered =
            Taint { key: taint::UNREGISTERED.to_owned(), value: String::new(), effect: TaintEffect::NoExecute };
        let mut taints: Vec<Taint> = Vec::new();
        for taint in self.taints.iter().chain([&unregistered]) {
            // The API server refuses a Node with two taints of one key and effect.
            if !taints.iter().any(|it| it.key == taint.key && it.effect == taint.effect) {
                taints.push(taint.clone());
            }
        }
        taints
    }

    /// Pods that the node takes.
    fn pods(&self) -> i64 {
        self.kubelet.settings().max_pods.map_or(self.max_pods, i64::from)
    }

    /// DNS servers: the user's, else the cluster's.
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
