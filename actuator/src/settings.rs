//! What an installation is told once, at its start.

use std::fmt;
use std::str::FromStr;

/// What the cluster tells; `None` where it does not, or was not heard yet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facts {
    /// `1.36`.
    pub kubernetes_version: Option<String>,
    /// Address of the Service kube-dns.
    pub cluster_dns: Option<String>,
    /// Addresses of services, the IPv4 ones first.
    pub service_cidr: Option<String>,
}

/// Options of the installation. What the cluster tells besides changes while the process lives: see
/// `cluster_facts::Current`.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// The cluster's name: in tags, user data and selectors.
    pub cluster_name: String,
    /// Where nodes find the API server.
    pub cluster_endpoint: String,
    /// The API server's certificate authority, PEM in base64; empty if not known.
    pub cluster_ca_bundle: String,
    /// Addresses of services, such as `10.100.0.0/16`; `None` if not known.
    pub service_cidr: Option<String>,
    /// The cluster's DNS server; `None` if not known.
    pub cluster_dns: Option<String>,
    /// Minor version of the API server, such as `1.36`.
    pub kubernetes_version: String,
    /// What the cluster told at the start.
    pub discovered: Facts,
    /// Region.
    pub region: String,
    /// Part of an instance's memory that the hypervisor is expected to take, 0 to 1.
    pub vm_memory_overhead_percent: f64,
    /// Network interfaces that pods do not get addresses of.
    pub reserved_enis: u32,
    /// Rebalance recommendations are acted on like interruptions; otherwise they are an Event and a metric.
    pub act_on_rebalance: bool,
    /// kube-scheduler is told which node the plan has for a pod.
    pub nominate_nodes: bool,
    /// The watcher's Lease: its holder may drive (safety rule 17).
    pub watcher_lease: ObjectName,
    /// Karpenter's Lease: while it is held, nothing is written (safety rule 20). `None`: not looked at.
    pub karpenter_lease: Option<ObjectName>,
    /// DNS names in the certificates of those who may call (safety rule 19). Empty: whoever has one of our authority.
    pub callers: Vec<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            cluster_name: "cluster".to_owned(),
            cluster_endpoint: String::new(),
            cluster_ca_bundle: String::new(),
            service_cidr: None,
            cluster_dns: None,
            kubernetes_version: "1.36".to_owned(),
            discovered: Facts::default(),
            region: "us-east-1".to_owned(),
            vm_memory_overhead_percent: plimsoll_catalog::settings::DEFAULT_VM_MEMORY_OVERHEAD_PERCENT,
            reserved_enis: 0,
            act_on_rebalance: false,
            nominate_nodes: true,
            watcher_lease: ObjectName::new("plimsoll-system", plimsoll_model::names::lease::WATCHER),
            karpenter_lease: Some(ObjectName::new("kube-system", plimsoll_model::names::lease::KARPENTER)),
            callers: Vec::new(),
        }
    }
}

/// Names an object in a namespace: `namespace/name`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectName {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl ObjectName {
    /// From its two parts.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// A text that is not `namespace/name`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not of the form namespace/name")]
pub struct ObjectNameError(String);

impl FromStr for ObjectName {
    type Err = ObjectNameError;
    fn from_str(text: &str) -> Result<Self, ObjectNameError> {
        match text.split_once('/') {
            Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() && !name.contains('/') => {
                Ok(Self::new(namespace, name))
            }
            _ => Err(ObjectNameError(text.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_named_with_its_namespace() {
        assert_eq!("a/b".parse(), Ok(ObjectName::new("a", "b")));
        for bad in ["", "a", "/b", "a/", "a/b/c"] {
            assert!(bad.parse::<ObjectName>().is_err(), "{bad}");
        }
    }
}
