//! Flags and environment of the program. Which instances it makes is in NodePools and EC2NodeClasses, not here.

use crate::fencing::LONGEST_CALL;
use crate::leadership::holder;
use crate::settings::{Facts, ObjectName, Settings};
use clap::{ArgAction, Args};
use plimsoll_model::names::lease;
use plimsoll_runtime::args::ServiceArgs;
use plimsoll_runtime::clock::Clock;
use plimsoll_runtime::lease::LeaseConfig;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

/// All flags of `plimsoll-actuator`.
#[derive(Args, Debug, Clone, PartialEq)]
pub struct ActuatorArgs {
    /// What all services have.
    #[command(flatten)]
    pub service: ServiceArgs,
    /// How to reach the cluster; without it, as a pod does.
    #[arg(long, env = "KUBECONFIG", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Namespace of this service's Lease.
    #[arg(long, env = "PLIMSOLL_LEASE_NAMESPACE", default_value = "plimsoll-system", value_name = "NAMESPACE")]
    pub lease_namespace: String,
    /// The watcher's Lease: plans of its holder are carried out.
    #[arg(
        long,
        env = "PLIMSOLL_WATCHER_LEASE",
        default_value = "plimsoll-system/plimsoll-watcher",
        value_name = "NAMESPACE/NAME"
    )]
    pub watcher_lease: ObjectName,
    /// Karpenter's Lease: while it is held, nothing is written.
    #[arg(
        long,
        env = "PLIMSOLL_KARPENTER_LEASE",
        default_value = "kube-system/karpenter-leader-election",
        value_name = "NAMESPACE/NAME"
    )]
    pub karpenter_lease: ObjectName,
    /// A name in the certificate of a caller, which is the watcher; may be given several times. Without it, whoever has a
    /// certificate of the authority may call.
    #[arg(long = "allow-caller", env = "PLIMSOLL_ALLOW_CALLERS", value_delimiter = ',', value_name = "DNS_NAME")]
    pub allow_callers: Vec<String>,
    /// The cluster's name, as EKS has it: in tags, user data and selectors.
    #[arg(long, env = "PLIMSOLL_CLUSTER_NAME", value_name = "NAME")]
    pub cluster_name: String,
    /// Where nodes find the API server.
    #[arg(long, env = "PLIMSOLL_CLUSTER_ENDPOINT", value_name = "URL")]
    pub cluster_endpoint: String,
    /// Certificate authority of the API server, PEM, for nodes.
    #[arg(long, env = "PLIMSOLL_CLUSTER_CA_FILE", value_name = "FILE")]
    pub cluster_ca_file: Option<PathBuf>,
    /// The cluster's DNS server, for nodes; without it, that of the Service kube-dns.
    #[arg(long, env = "PLIMSOLL_CLUSTER_DNS", value_name = "IP")]
    pub cluster_dns: Option<String>,
    /// Addresses of services, for nodes; without it, those of the ServiceCIDR kubernetes.
    #[arg(long, env = "PLIMSOLL_SERVICE_CIDR", value_name = "CIDR")]
    pub service_cidr: Option<String>,
    /// Region.
    #[arg(long, env = "PLIMSOLL_REGION", value_name = "REGION")]
    pub region: String,
    /// Where AWS answers, instead of its own addresses.
    #[arg(long, env = "PLIMSOLL_AWS_ENDPOINT_URL", value_name = "URL")]
    pub aws_endpoint_url: Option<String>,
    /// Queue of interruptions by name; without it, none are heard of.
    #[arg(long, env = "PLIMSOLL_INTERRUPTION_QUEUE", value_name = "NAME")]
    pub interruption_queue: Option<String>,
    /// Treat rebalance recommendations like interruptions.
    #[arg(long, env = "PLIMSOLL_ACT_ON_REBALANCE")]
    pub act_on_rebalance: bool,
    /// Part of an instance's memory that the hypervisor is expected to take.
    #[arg(long, env = "PLIMSOLL_VM_MEMORY_OVERHEAD_PERCENT", default_value_t = 0.075, value_name = "0..1")]
    pub vm_memory_overhead_percent: f64,
    /// Network interfaces of each instance that pods do not get addresses of.
    #[arg(long, env = "PLIMSOLL_RESERVED_ENIS", default_value_t = 0, value_name = "COUNT")]
    pub reserved_enis: u32,
    /// Tell kube-scheduler which node the plan has for a pod (status.nominatedNodeName), which it then tries first. Without it, pods
    /// that come in another order than the plan's may take each other's room, and more is bought.
    #[arg(
        long,
        env = "PLIMSOLL_NOMINATE_NODES",
        default_value_t = true,
        action = ArgAction::Set,
        num_args = 0..=1,
        default_missing_value = "true",
        require_equals = true,
        value_name = "BOOL"
    )]
    pub nominate_nodes: bool,
    /// Name of this pod.
    #[arg(long, env = "POD_NAME", default_value = "plimsoll-actuator", value_name = "NAME")]
    pub pod_name: String,
    /// Address of this pod, by which the other replica sends callers here; without it, that of --listen.
    #[arg(long, env = "POD_IP", value_name = "IP")]
    pub pod_ip: Option<IpAddr>,
}

impl ActuatorArgs {
    /// What the installation says. `ca_bundle` is base64 of PEM, `kubernetes_version` such as `1.36`.
    #[must_use]
    pub fn settings(&self, ca_bundle: String, kubernetes_version: String) -> Settings {
        Settings {
            cluster_name: self.cluster_name.clone(),
            cluster_endpoint: self.cluster_endpoint.clone(),
            cluster_ca_bundle: ca_bundle,
            service_cidr: self.service_cidr.clone(),
            cluster_dns: self.cluster_dns.clone(),
            kubernetes_version,
            discovered: Facts::default(),
            region: self.region.clone(),
            vm_memory_overhead_percent: self.vm_memory_overhead_percent,
            reserved_enis: self.reserved_enis,
            act_on_rebalance: self.act_on_rebalance,
            nominate_nodes: self.nominate_nodes,
            watcher_lease: self.watcher_lease.clone(),
            karpenter_lease: Some(self.karpenter_lease.clone()),
            callers: self.allow_callers.clone(),
        }
    }

    /// Where other replicas send callers.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        let listen = self.service.listen.listen;
        SocketAddr::new(self.pod_ip.unwrap_or(listen.ip()), listen.port())
    }

    /// Its Lease. The holder tells this start from the one before in the same pod.
    #[must_use]
    pub fn lease(&self, clock: &Clock) -> LeaseConfig {
        let start = format!("{:x}-{:x}", clock.now_millis(), std::process::id());
        let holder = holder(&self.pod_name, &self.address().to_string(), &start);
        lease_config(&self.lease_namespace, holder)
    }
}

/// A Lease that outlives the longest call and one missed renewal.
#[must_use]
pub fn lease_config(namespace: &str, holder: String) -> LeaseConfig {
    LeaseConfig { max_call_deadline: LONGEST_CALL, ..LeaseConfig::new(namespace, lease::ACTUATOR, holder) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        args: ActuatorArgs,
    }

    #[test]
    fn the_flags_of_the_deployment_are_taken() {
        let args = Program::try_parse_from([
            "plimsoll-actuator",
            "--listen=0.0.0.0:9443",
            "--lease-namespace=plimsoll-system",
            "--watcher-lease=ns/plimsoll-watcher",
            "--allow-caller=plimsoll-watcher",
            "--cluster-name=prod",
            "--cluster-endpoint=https://example.test",
            "--cluster-ca-file=ca.crt",
            "--region=eu-west-1",
            "--interruption-queue=prod",
            "--pod-name=a-0",
            "--pod-ip=10.0.0.7",
        ])
        .unwrap()
        .args;
        assert_eq!(args.address().to_string(), "10.0.0.7:9443");
        let settings = args.settings(String::new(), "1.36".to_owned());
        assert_eq!(settings.watcher_lease, ObjectName::new("ns", "plimsoll-watcher"));
        assert_eq!(settings.callers, ["plimsoll-watcher"]);
        assert!(Program::try_parse_from(["plimsoll-actuator"]).is_err(), "the cluster must be named");
    }

    #[test]
    fn nodes_are_nominated_unless_it_says_otherwise() {
        let nominates = |flags: &[&str]| {
            let needed = ["plimsoll-actuator", "--cluster-name=a", "--cluster-endpoint=https://b.test", "--region=c"];
            let args = Program::try_parse_from(needed.iter().chain(flags)).unwrap().args;
            args.settings(String::new(), "1.36".to_owned()).nominate_nodes
        };
        assert!(nominates(&[]) && nominates(&["--nominate-nodes"]) && nominates(&["--nominate-nodes=true"]));
        assert!(!nominates(&["--nominate-nodes=false"]));
    }
}
