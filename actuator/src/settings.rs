//! Settings of an installation, fixed at startup.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// How often the shadow report is written unless another interval is set.
pub const SHADOW_REPORT_INTERVAL: Duration = Duration::from_secs(24 * 3600);

/// Facts discovered from the cluster; `None` if not available or not read yet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facts {
    /// Minor version, such as `1.36`.
    pub kubernetes_version: Option<String>,
    /// Address of the Service kube-dns.
    pub cluster_dns: Option<String>,
    /// Service CIDR, IPv4 preferred.
    pub service_cidr: Option<String>,
}

/// Options of the installation. Facts of the cluster may change while the process runs: see `cluster_facts::Current`.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Name of the cluster, used in tags, user data and selectors.
    pub cluster_name: String,
    /// URL of the API server, for nodes.
    pub cluster_endpoint: String,
    /// The API server's certificate authority, PEM in base64; empty if not known.
    pub cluster_ca_bundle: String,
    /// Service CIDR, such as `10.100.0.0/16`; `None` if not known.
    pub service_cidr: Option<String>,
    /// The cluster's DNS server; `None` if not known.
    pub cluster_dns: Option<String>,
    /// Minor version of the API server, such as `1.36`.
    pub kubernetes_version: String,
    /// Facts discovered at startup.
    pub discovered: Facts,
    /// Region.
    pub region: String,
    /// Fraction of an instance's memory that the hypervisor is expected to reserve, 0 to 1.
    pub vm_memory_overhead_percent: f64,
    /// Network interfaces per instance that are not used for pod addresses.
    pub reserved_enis: u32,
    /// Treat rebalance recommendations as interruptions; otherwise they only produce an Event and a metric.
    pub act_on_rebalance: bool,
    /// Nominate the planned node of each pod to kube-scheduler.
    pub nominate_nodes: bool,
    /// Bind pods to their planned nodes, in place of kube-scheduler.
    pub bind_pods: bool,
    /// Replace nodes whose conditions have been bad for too long.
    pub node_repair: bool,
    /// Launch in capacity reservations that node classes select, and in no others. Otherwise EC2 may use open ones.
    pub reserved_capacity: bool,
    /// Use NodeOverlays, and write their status.
    pub node_overlays: bool,
    /// Do not ask EC2 by dry runs whether it would launch nodes of a class.
    pub disable_dry_run: bool,
    /// The watcher's Lease. Only its holder may drive (safety rule 17).
    pub watcher_lease: ObjectName,
    /// Karpenter's Lease. While it is held, nothing is written (safety rule 20). `None`: not checked.
    pub karpenter_lease: Option<ObjectName>,
    /// Time between two shadow reports, while Karpenter's Lease is held.
    pub shadow_report_interval: Duration,
    /// DNS names, one of which a caller's certificate must carry (safety rule 19). Empty: every certificate of our
    /// authority is accepted.
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
            bind_pods: false,
            node_repair: false,
            reserved_capacity: true,
            node_overlays: true,
            disable_dry_run: false,
            watcher_lease: ObjectName::new("plimsoll-system", plimsoll_model::names::lease::WATCHER),
            karpenter_lease: Some(ObjectName::new("kube-system", plimsoll_model::names::lease::KARPENTER)),
            shadow_report_interval: SHADOW_REPORT_INTERVAL,
            callers: Vec::new(),
        }
    }
}

impl Settings {
    /// Whether the cluster uses IPv6: service addresses are of a single family, and the DNS address is one of them. If
    /// it is not known, the service CIDR decides.
    #[must_use]
    pub fn is_ipv6(&self) -> bool {
        let discovered = &self.discovered;
        let dns = self.cluster_dns.as_deref().or(discovered.cluster_dns.as_deref());
        let cidr = self.service_cidr.as_deref().or(discovered.service_cidr.as_deref());
        dns.or(cidr).is_some_and(|address| address.contains(':'))
    }
}

/// A namespaced name, `namespace/name`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectName {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl ObjectName {
    /// Creates a name from its two parts.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// The text is not `namespace/name`.
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
    fn a_dns_address_or_else_a_service_cidr_tells_whether_the_cluster_uses_ipv6() {
        // DNS address and service CIDR.
        let is_ipv6 = |configured: [Option<&str>; 2], discovered: [Option<&str>; 2]| {
            let text = |value: Option<&str>| value.map(str::to_owned);
            let [cluster_dns, service_cidr] = discovered.map(text);
            let discovered = Facts { cluster_dns, service_cidr, ..Facts::default() };
            let [cluster_dns, service_cidr] = configured.map(text);
            Settings { cluster_dns, service_cidr, discovered, ..Settings::default() }.is_ipv6()
        };
        let (ipv4, ipv6) = (Some("10.100.0.10"), Some("fd30::a"));
        assert!(!is_ipv6([None, None], [None, None]), "not known");
        assert!(is_ipv6([None, None], [ipv6, None]) && is_ipv6([None, None], [None, Some("fd30::/108")]));
        assert!(is_ipv6([ipv6, None], [None, None]) && is_ipv6([None, Some("fd30::/108")], [None, None]));
        assert!(!is_ipv6([None, None], [ipv4, Some("fd30::/108")]), "the DNS address comes first");
        assert!(!is_ipv6([ipv4, None], [ipv6, None]), "flags come first");
    }

    #[test]
    fn object_name_parses_namespace_and_name() {
        assert_eq!("a/b".parse(), Ok(ObjectName::new("a", "b")));
        for bad in ["", "a", "/b", "a/", "a/b/c"] {
            assert!(bad.parse::<ObjectName>().is_err(), "{bad}");
        }
    }
}
