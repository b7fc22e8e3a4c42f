//! Flags and environment of the program. NodePools and EC2NodeClasses, not flags, decide which instances are launched.

use crate::discovery::Discovered;
use crate::fencing::LONGEST_CALL;
use crate::leadership::holder;
use crate::settings::{ObjectName, Settings};
use clap::{ArgAction, Args};
use plimsoll_api::duration::parse_go;
use plimsoll_model::names::lease;
use plimsoll_runtime::args::ServiceArgs;
use plimsoll_runtime::args::invalid_flag::InvalidFlag;
use plimsoll_runtime::clock::Clock;
use plimsoll_runtime::lease::LeaseConfig;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

/// All flags of `plimsoll-actuator`.
#[derive(Args, Debug, Clone, PartialEq)]
pub struct ActuatorArgs {
    /// Flags that all services share.
    #[command(flatten)]
    pub service: ServiceArgs,
    /// Path of a kubeconfig; by default the in-cluster configuration is used.
    #[arg(long, env = "KUBECONFIG", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Namespace of this service's Lease.
    #[arg(long, env = "PLIMSOLL_LEASE_NAMESPACE", default_value = "plimsoll-system", value_name = "NAMESPACE")]
    pub lease_namespace: String,
    /// The watcher's Lease. Only plans from its holder are executed.
    #[arg(
        long,
        env = "PLIMSOLL_WATCHER_LEASE",
        default_value = "plimsoll-system/plimsoll-watcher",
        value_name = "NAMESPACE/NAME"
    )]
    pub watcher_lease: ObjectName,
    /// Karpenter's Lease. While it is held, the actuator writes nothing.
    #[arg(
        long,
        env = "PLIMSOLL_KARPENTER_LEASE",
        default_value = "kube-system/karpenter-leader-election",
        value_name = "NAMESPACE/NAME"
    )]
    pub karpenter_lease: ObjectName,
    /// Interval of the report on what would have been done while Karpenter's Lease is held: 10m to 168h.
    #[arg(
        long,
        env = "PLIMSOLL_SHADOW_REPORT_INTERVAL",
        default_value = "24h",
        value_parser = shadow_report_interval,
        value_name = "DURATION"
    )]
    pub shadow_report_interval: Duration,
    /// A DNS name that a caller's certificate must carry; may be given several times. By default every certificate of
    /// the authority is accepted.
    #[arg(long = "allow-caller", env = "PLIMSOLL_ALLOW_CALLERS", value_delimiter = ',', value_name = "DNS_NAME")]
    pub allow_callers: Vec<String>,
    /// Name of the EKS cluster, used in tags, user data and selectors.
    #[arg(long, env = "PLIMSOLL_CLUSTER_NAME", value_name = "NAME")]
    pub cluster_name: String,
    /// URL of the API server, for nodes; by default as EKS tells it (eks:DescribeCluster).
    #[arg(long, env = "PLIMSOLL_CLUSTER_ENDPOINT", value_name = "URL")]
    pub cluster_endpoint: Option<String>,
    /// Certificate authority of the API server, PEM, for nodes; by default that of the pod's ServiceAccount, or else as
    /// EKS tells it, or else that of the client configuration.
    #[arg(long, env = "PLIMSOLL_CLUSTER_CA_FILE", value_name = "FILE")]
    pub cluster_ca_file: Option<PathBuf>,
    /// Address of the cluster's DNS server, for nodes; by default the address of the Service kube-dns.
    #[arg(long, env = "PLIMSOLL_CLUSTER_DNS", value_name = "IP")]
    pub cluster_dns: Option<String>,
    /// Service CIDR, for nodes; by default the CIDR of the ServiceCIDR named kubernetes, or as EKS tells
    /// it.
    #[arg(long, env = "PLIMSOLL_SERVICE_CIDR", value_name = "CIDR")]
    pub service_cidr: Option<String>,
    /// Region.
    #[arg(long, env = "PLIMSOLL_REGION", value_name = "REGION")]
    pub region: String,
    /// Endpoint for all AWS calls, in place of the public ones.
    #[arg(long, env = "PLIMSOLL_AWS_ENDPOINT_URL", value_name = "URL")]
    pub aws_endpoint_url: Option<String>,
    /// Name of the interruption queue; without it, interruption notices are not read.
    #[arg(long, env = "PLIMSOLL_INTERRUPTION_QUEUE", value_name = "NAME")]
    pub interruption_queue: Option<String>,
    /// Treat rebalance recommendations like interruptions. A node whose pods wait for another place counts in the
    /// disruption budgets of its NodePool.
    #[arg(long, env = "PLIMSOLL_ACT_ON_REBALANCE")]
    pub act_on_rebalance: bool,
    /// Fraction of an instance's memory that the hypervisor is expected to reserve.
    #[arg(long, env = "PLIMSOLL_VM_MEMORY_OVERHEAD_PERCENT", default_value_t = 0.075, value_name = "0..1")]
    pub vm_memory_overhead_percent: f64,
    /// Network interfaces per instance that are not used for pod addresses.
    #[arg(long, env = "PLIMSOLL_RESERVED_ENIS", default_value_t = 0, value_name = "COUNT")]
    pub reserved_enis: u32,
    /// Nominate the planned node of each pod (status.nominatedNodeName), which kube-scheduler then tries first. Without
    /// nominations, kube-scheduler may bind pods in another order than planned, and more nodes are launched.
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
    /// Bind pods to their planned nodes as soon as the nodes accept them, instead of waiting for kube-scheduler. Needs
    /// the right to create pods/binding.
    #[arg(long, env = "PLIMSOLL_BIND_PODS")]
    pub bind_pods: bool,
    /// Replace nodes that have not been Ready for 30 minutes, or whose other conditions have been bad for too long. As
    /// Karpenter's feature gate NodeRepair.
    #[arg(long, env = "PLIMSOLL_NODE_REPAIR")]
    pub node_repair: bool,
    /// Launch in the capacity reservations that node classes select, and in no others. If it is disabled, instances may
    /// use open capacity reservations of the account. As Karpenter's feature gate ReservedCapacity.
    #[arg(
        long,
        env = "PLIMSOLL_RESERVED_CAPACITY",
        default_value_t = true,
        action = ArgAction::Set,
        num_args = 0..=1,
        default_missing_value = "true",
        require_equals = true,
        value_name = "BOOL"
    )]
    pub reserved_capacity: bool,
    /// Use the prices and resources of NodeOverlays, and write their status. The watcher, which applies NodeOverlays to
    /// plans, has the same flag. As Karpenter's feature gate NodeOverlay.
    #[arg(
        long,
        env = "PLIMSOLL_NODE_OVERLAYS",
        default_value_t = true,
        action = ArgAction::Set,
        num_args = 0..=1,
        default_missing_value = "true",
        require_equals = true,
        value_name = "BOOL"
    )]
    pub node_overlays: bool,
    /// Do not ask EC2 by dry runs whether it would launch nodes of an EC2NodeClass. A missing permission then fails the
    /// first launch.
    #[arg(long, env = "PLIMSOLL_DISABLE_DRY_RUN")]
    pub disable_dry_run: bool,
    /// Follow the zonal shifts and autoshifts of the EKS cluster (AWS ARC): nothing is launched in a shifted zone.
    /// Needs the permissions eks:DescribeCluster and arc-zonal-shift:GetManagedResource.
    #[arg(long, env = "PLIMSOLL_ENABLE_ZONAL_SHIFT")]
    pub enable_zonal_shift: bool,
    /// Name of this pod.
    #[arg(long, env = "POD_NAME", default_value = "plimsoll-actuator", value_name = "NAME")]
    pub pod_name: String,
    /// Address of this pod, to which the standby replica refers callers; by default the address of --listen.
    #[arg(long, env = "POD_IP", value_name = "IP")]
    pub pod_ip: Option<IpAddr>,
}

impl ActuatorArgs {
    /// Whether the settings are usable and fit together.
    ///
    /// # Errors
    /// The first that is not.
    pub fn check(&self) -> Result<(), InvalidFlag> {
        self.service.check()?;
        if self.cluster_name.is_empty() {
            return Err(InvalidFlag::new("cluster-name", "is empty"));
        }
        if let Some(endpoint) =
            self.cluster_endpoint.as_ref().filter(|endpoint| !endpoint.is_empty() && !endpoint.starts_with("https://"))
        {
            let problem = format!("{endpoint:?} is not a URL that begins with https://");
            return Err(InvalidFlag::new("cluster-endpoint", problem));
        }
        if !(0.0..1.0).contains(&self.vm_memory_overhead_percent) {
            let problem = format!("{} is not at least 0 and below 1", self.vm_memory_overhead_percent);
            return Err(InvalidFlag::new("vm-memory-overhead-percent", problem));
        }
        Ok(())
    }

    /// The settings of the installation, with what was discovered about the cluster.
    #[must_use]
    pub fn settings(&self, cluster: Discovered) -> Settings {
        Settings {
            cluster_name: self.cluster_name.clone(),
            cluster_endpoint: cluster.endpoint,
            cluster_ca_bundle: cluster.ca_bundle,
            service_cidr: self.service_cidr.clone(),
            cluster_dns: self.cluster_dns.clone(),
            kubernetes_version: cluster.kubernetes_version,
            discovered: cluster.facts,
            region: self.region.clone(),
            vm_memory_overhead_percent: self.vm_memory_overhead_percent,
            reserved_enis: self.reserved_enis,
            act_on_rebalance: self.act_on_rebalance,
            nominate_nodes: self.nominate_nodes,
            bind_pods: self.bind_pods,
            node_repair: self.node_repair,
            reserved_capacity: self.reserved_capacity,
            node_overlays: self.node_overlays,
            disable_dry_run: self.disable_dry_run,
            watcher_lease: self.watcher_lease.clone(),
            karpenter_lease: Some(self.karpenter_lease.clone()),
            shadow_report_interval: self.shadow_report_interval,
            callers: self.allow_callers.clone(),
        }
    }

    /// The address that other replicas refer callers to.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        let listen = self.service.listen;
        SocketAddr::new(self.pod_ip.unwrap_or(listen.ip()), listen.port())
    }

    /// The Lease of this process. The holder's identity includes the start time, so that a restart in the same pod is a
    /// new holder.
    #[must_use]
    pub fn lease(&self, clock: &Clock) -> LeaseConfig {
        let start = format!("{:x}-{:x}", clock.now_millis(), std::process::id());
        let holder = holder(&self.pod_name, &self.address().to_string(), &start);
        lease_config(&self.lease_namespace, holder)
    }
}

/// A shorter interval would flood the NodePools' Events, a longer one outlives most leaders, which start anew.
const SHADOW_REPORT_INTERVALS: RangeInclusive<Duration> = Duration::from_secs(600)..=Duration::from_secs(168 * 3600);

fn shadow_report_interval(text: &str) -> Result<Duration, String> {
    let interval = parse_go(text).map_err(|error| error.to_string())?;
    if SHADOW_REPORT_INTERVALS.contains(&interval) { Ok(interval) } else { Err("must be 10m to 168h".to_owned()) }
}

/// A Lease whose duration exceeds the longest call plus one missed renewal.
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
    fn deployment_flags_are_parsed() {
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
        let settings = args.settings(Discovered::default());
        assert_eq!(settings.watcher_lease, ObjectName::new("ns", "plimsoll-watcher"));
        assert_eq!(settings.callers, ["plimsoll-watcher"]);
        assert!(Program::try_parse_from(["plimsoll-actuator"]).is_err(), "the cluster must be named");
    }

    #[test]
    fn settings_that_no_node_could_use_are_refused() {
        let check = |flags: [&str; 3]| {
            let args = ["plimsoll-actuator", "--region="].into_iter().chain(flags);
            Program::try_parse_from(args).unwrap().args.check().map_err(|invalid| invalid.flag)
        };
        let (name, endpoint, overhead) =
            ("--cluster-name=a", "--cluster-endpoint=https://b.test", "--vm-memory-overhead-percent");
        assert_eq!(check([name, endpoint, &format!("{overhead}=0")]), Ok(()));
        assert_eq!(check(["--cluster-name=", endpoint, &format!("{overhead}=0")]), Err("cluster-name"));
        assert_eq!(check([name, "--cluster-endpoint=b.test", &format!("{overhead}=0")]), Err("cluster-endpoint"));
        for wrong in ["7.5", "1", "NaN"] {
            assert_eq!(
                check([name, endpoint, &format!("{overhead}={wrong}")]),
                Err("vm-memory-overhead-percent"),
                "{wrong}"
            );
        }
    }

    #[test]
    fn the_interval_of_the_shadow_report_is_bounded() {
        let interval = |flags: &[&str]| {
            let needed = ["plimsoll-actuator", "--cluster-name=a", "--region=c"];
            Program::try_parse_from(needed.iter().chain(flags)).map(|program| program.args.shadow_report_interval).ok()
        };
        assert_eq!(interval(&[]), Some(crate::settings::SHADOW_REPORT_INTERVAL));
        assert_eq!(interval(&["--shadow-report-interval=10m"]), Some(Duration::from_secs(600)));
        for wrong in ["9m59s", "169h", "0", "daily"] {
            assert_eq!(interval(&["--shadow-report-interval", wrong]), None, "{wrong}");
        }
    }

    #[test]
    fn nominations_and_two_feature_gates_are_enabled_by_default() {
        let settings = |flags: &[&str]| {
            let needed = ["plimsoll-actuator", "--cluster-name=a", "--region=c"];
            let args = Program::try_parse_from(needed.iter().chain(flags)).unwrap().args;
            args.settings(Discovered::default())
        };
        let nominates = |flags: &[&str]| settings(flags).nominate_nodes;
        assert!(nominates(&[]) && nominates(&["--nominate-nodes"]) && nominates(&["--nominate-nodes=true"]));
        assert!(!nominates(&["--nominate-nodes=false"]));
        assert!(!settings(&[]).bind_pods && settings(&["--bind-pods"]).bind_pods);
        assert!(!settings(&[]).node_repair && settings(&["--node-repair"]).node_repair);
        assert!(settings(&[]).reserved_capacity && !settings(&["--reserved-capacity=false"]).reserved_capacity);
        assert!(settings(&[]).node_overlays && !settings(&["--node-overlays=false"]).node_overlays);
    }
}
