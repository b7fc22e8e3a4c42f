//! What nodes must know about the cluster's control plane: flags first, then EKS, then the cluster itself. The
//! certificate authority is the pod's own, if there is one: as in Karpenter, byte for byte, since it is part of the
//! drift hash of node classes.

use crate::ports::{CloudError, ClusterDescription};
use crate::settings::Facts;

/// What flags and the client configuration say; `None` where they say nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Configured {
    /// Name of the cluster.
    pub cluster_name: String,
    /// `--cluster-endpoint`.
    pub endpoint: Option<String>,
    /// `--cluster-ca-file`, PEM in base64.
    pub ca_bundle: Option<String>,
    /// `--service-cidr`.
    pub service_cidr: Option<String>,
    /// The pod's own certificate authority, which its ServiceAccount comes with, PEM in base64.
    pub pod_ca_bundle: Option<String>,
    /// Certificate authority of the client configuration, PEM in base64. Its text is not that of the source.
    pub client_ca_bundle: Option<String>,
}

/// What was discovered at startup.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Discovered {
    /// URL of the API server.
    pub endpoint: String,
    /// Certificate authority of the API server, PEM in base64; empty if not known.
    pub ca_bundle: String,
    /// Minor version of the API server, such as `1.36`.
    pub kubernetes_version: String,
    /// Facts of the cluster, completed by those of EKS.
    pub facts: Facts,
}

/// A required fact is not known. The messages name the flag and the permission that would help.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DiscoveryError {
    /// Nodes could not find the API server.
    #[error(
        "the URL of the API server is not known: give --cluster-endpoint, or permit eks:DescribeCluster on cluster \
         {cluster}: {reason}"
    )]
    Endpoint {
        /// Name of the cluster.
        cluster: String,
        /// Why EKS did not tell it.
        reason: String,
    },
    /// Images could not be selected.
    #[error(
        "the Kubernetes version is not known: {failures}; permit the read, or eks:DescribeCluster on cluster {cluster}: \
         {reason}"
    )]
    Version {
        /// Name of the cluster.
        cluster: String,
        /// Why the cluster did not tell it.
        failures: String,
        /// Why EKS did not tell it.
        reason: String,
    },
}

/// Whether EKS has to be asked: without a missing fact, the permission is not needed.
#[must_use]
pub fn needs_eks(configured: &Configured, facts: &Facts) -> bool {
    configured.endpoint.is_none()
        || (configured.ca_bundle.is_none() && configured.pod_ca_bundle.is_none())
        || facts.kubernetes_version.is_none()
        || (configured.service_cidr.is_none() && facts.service_cidr.is_none())
}

/// Combines what is configured, `facts` of the cluster with the `failures` of their reads, and the answer of EKS;
/// `None` if it was not asked.
///
/// # Errors
/// The endpoint or the version is not known.
pub fn resolve(
    configured: Configured,
    facts: Facts,
    failures: &[String],
    eks: Option<Result<ClusterDescription, CloudError>>,
) -> Result<Discovered, DiscoveryError> {
    let cluster = configured.cluster_name;
    let (described, reason) = match eks {
        Some(Ok(described)) => (described, "EKS does not tell it".to_owned()),
        Some(Err(error)) => (ClusterDescription::default(), error.to_string()),
        None => (ClusterDescription::default(), "EKS was not asked".to_owned()),
    };
    let Some(endpoint) = configured.endpoint.or(described.endpoint) else {
        return Err(DiscoveryError::Endpoint { cluster, reason });
    };
    let Some(kubernetes_version) = facts.kubernetes_version.clone().or(described.kubernetes_version) else {
        return Err(DiscoveryError::Version { cluster, failures: failures.join("; "), reason });
    };
    let own = configured.ca_bundle.or(configured.pod_ca_bundle);
    let ca_bundle = own.or(described.certificate_authority).or(configured.client_ca_bundle);
    if ca_bundle.is_none() {
        tracing::warn!(
            cluster,
            reason,
            "certificate authority of the API server is unknown: set --cluster-ca-file or allow eks:DescribeCluster"
        );
    }
    let service_cidr = facts.service_cidr.clone().or(described.service_cidr);
    if configured.service_cidr.is_none() && service_cidr.is_none() {
        tracing::warn!(cluster, reason, "service CIDR is unknown: set --service-cidr or allow eks:DescribeCluster");
    }
    let facts = Facts { kubernetes_version: Some(kubernetes_version.clone()), service_cidr, ..facts };
    Ok(Discovered { endpoint, ca_bundle: ca_bundle.unwrap_or_default(), kubernetes_version, facts })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(value: &str) -> Option<String> {
        Some(value.to_owned())
    }

    fn facts() -> Facts {
        Facts {
            kubernetes_version: text("1.36"),
            cluster_dns: text("10.100.0.10"),
            service_cidr: text("10.100.0.0/16"),
        }
    }

    fn described() -> ClusterDescription {
        ClusterDescription {
            arn: text("arn:aws:eks:us-east-1:111122223333:cluster/prod"),
            endpoint: text("https://eks.test"),
            certificate_authority: text("EKS"),
            kubernetes_version: text("1.35"),
            service_cidr: text("172.20.0.0/16"),
        }
    }

    fn denied() -> CloudError {
        CloudError::Denied { message: "AccessDeniedException: not yours".to_owned() }
    }

    #[test]
    fn flags_come_before_eks_and_eks_before_the_client_configuration() {
        let nothing = Configured { client_ca_bundle: text("client"), ..Configured::default() };
        let found = resolve(nothing.clone(), facts(), &[], Some(Ok(described()))).unwrap();
        assert_eq!((found.endpoint.as_str(), found.ca_bundle.as_str()), ("https://eks.test", "EKS"));
        let flags = Configured { endpoint: text("https://flag.test"), ca_bundle: text("flag"), ..nothing.clone() };
        let found = resolve(flags, facts(), &[], Some(Ok(described()))).unwrap();
        assert_eq!((found.endpoint.as_str(), found.ca_bundle.as_str()), ("https://flag.test", "flag"));
        let endpoint = Configured { endpoint: text("https://flag.test"), ..nothing };
        let found = resolve(endpoint, facts(), &[], Some(Err(denied()))).unwrap();
        assert_eq!(found.ca_bundle, "client");
    }

    /// Karpenter uses the setting, or else the bytes of its own.
    #[test]
    fn the_certificate_authority_of_the_pod_comes_after_the_flag_and_before_eks() {
        let pod = Configured { pod_ca_bundle: text("pod"), client_ca_bundle: text("client"), ..Configured::default() };
        let found = resolve(pod.clone(), facts(), &[], Some(Ok(described()))).unwrap();
        assert_eq!(found.ca_bundle, "pod");
        let flag = Configured { ca_bundle: text("flag"), ..pod.clone() };
        assert_eq!(resolve(flag, facts(), &[], Some(Ok(described()))).unwrap().ca_bundle, "flag");
        assert!(!needs_eks(&Configured { endpoint: text("https://flag.test"), ..pod }, &facts()));
    }

    #[test]
    fn facts_of_the_cluster_are_completed_by_eks() {
        let cluster = resolve(Configured::default(), facts(), &[], Some(Ok(described()))).unwrap();
        assert_eq!((cluster.kubernetes_version.as_str(), &cluster.facts), ("1.36", &facts()));
        let eks = resolve(Configured::default(), Facts::default(), &[], Some(Ok(described()))).unwrap();
        assert_eq!(eks.kubernetes_version, "1.35");
        assert_eq!(eks.facts.service_cidr, text("172.20.0.0/16"));
    }

    #[test]
    fn eks_is_asked_only_where_something_is_missing() {
        let flags =
            Configured { endpoint: text("https://flag.test"), ca_bundle: text("flag"), ..Configured::default() };
        assert!(!needs_eks(&flags, &facts()));
        assert!(needs_eks(&Configured::default(), &facts()));
        let old = Facts { service_cidr: None, ..facts() };
        assert!(needs_eks(&flags, &old));
        assert!(!needs_eks(&Configured { service_cidr: text("10.0.0.0/16"), ..flags.clone() }, &old));
        assert!(needs_eks(&flags, &Facts { kubernetes_version: None, ..facts() }));
    }

    #[test]
    fn errors_name_flag_permission_and_cluster() {
        let prod = Configured { cluster_name: "prod".to_owned(), ..Configured::default() };
        let error = resolve(prod.clone(), facts(), &[], Some(Err(denied()))).unwrap_err().to_string();
        for part in ["--cluster-endpoint", "eks:DescribeCluster", "prod", "not yours"] {
            assert!(error.contains(part), "{error}");
        }
        let endpoint = Configured { endpoint: text("https://flag.test"), ..prod };
        let failures = ["version of the API server: no answer".to_owned()];
        let error = resolve(endpoint, Facts::default(), &failures, None).unwrap_err().to_string();
        assert!(error.contains("no answer") && error.contains("eks:DescribeCluster"), "{error}");
    }
}
