//! Labels, annotations, taints, finalizers and tags of Kubernetes, Karpenter and its AWS provider, and Plimsoll's own.

/// Labels.
pub mod label {
    use std::collections::BTreeMap;

    /// The pool that a node belongs to.
    pub const NODE_POOL: &str = "karpenter.sh/nodepool";
    /// `spot`, `on-demand` or `reserved`.
    pub const CAPACITY_TYPE: &str = "karpenter.sh/capacity-type";
    /// `true` once a node has everything that its claim requires.
    pub const INITIALIZED: &str = "karpenter.sh/initialized";
    /// `true` once a node has been matched to its claim.
    pub const REGISTERED: &str = "karpenter.sh/registered";
    /// `true` on a node that sets all its taints itself.
    pub const DO_NOT_SYNC_TAINTS: &str = "karpenter.sh/do-not-sync-taints";
    /// Name of the node class.
    pub const EC2_NODE_CLASS: &str = "karpenter.k8s.aws/ec2nodeclass";
    /// Availability zone.
    pub const ZONE: &str = "topology.kubernetes.io/zone";
    /// Account-independent id of the availability zone.
    pub const ZONE_ID: &str = "topology.k8s.aws/zone-id";
    /// Region.
    pub const REGION: &str = "topology.kubernetes.io/region";
    /// Family of an EC2 instance type, such as `m7i` of `m7i.large`.
    pub const INSTANCE_FAMILY: &str = "karpenter.k8s.aws/instance-family";
    /// `default` (shared hardware) or `dedicated`. Each launch chooses one, so no instance type has this label.
    pub const INSTANCE_TENANCY: &str = "karpenter.k8s.aws/instance-tenancy";
    /// Size of an instance type, such as `large` or `metal-24xl`.
    pub const INSTANCE_SIZE: &str = "karpenter.k8s.aws/instance-size";
    /// Memory of an instance type as EC2 states it, in MiB.
    pub const INSTANCE_MEMORY: &str = "karpenter.k8s.aws/instance-memory";
    /// Values of [`INSTANCE_TENANCY`], the preferred one first.
    pub const TENANCIES: [&str; 2] = ["default", "dedicated"];
    /// EC2 instance type.
    pub const INSTANCE_TYPE: &str = "node.kubernetes.io/instance-type";
    /// `amd64` or `arm64`.
    pub const ARCH: &str = "kubernetes.io/arch";
    /// `linux` or `windows`.
    pub const OS: &str = "kubernetes.io/os";
    /// Name of the node.
    pub const HOSTNAME: &str = "kubernetes.io/hostname";
    /// Stands for the hostname of a node that is not launched yet. No requirement names it, since it is not a valid
    /// value of a label.
    pub const NEW_HOSTNAME: &str = "(new node)";
    /// Windows build, if there is one.
    pub const WINDOWS_BUILD: &str = "node.kubernetes.io/windows-build";
    /// Excludes a node from external load balancers while it drains.
    pub const EXCLUDE_FROM_LOAD_BALANCERS: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
    /// Domain of the labels that describe EC2 instance types.
    pub const AWS_DOMAIN: &str = "karpenter.k8s.aws";
    /// Id of the capacity reservation that a node is from; only reserved nodes have it.
    pub const CAPACITY_RESERVATION_ID: &str = "karpenter.k8s.aws/capacity-reservation-id";
    /// `default` or `capacity-block`.
    pub const CAPACITY_RESERVATION_TYPE: &str = "karpenter.k8s.aws/capacity-reservation-type";
    /// `true` if the owner of the capacity reservation may take the instance back, otherwise `false`.
    pub const CAPACITY_RESERVATION_INTERRUPTIBLE: &str = "karpenter.k8s.aws/capacity-reservation-interruptible";
    /// Labels that only reserved nodes have.
    pub const CAPACITY_RESERVATION: [&str; 3] =
        [CAPACITY_RESERVATION_ID, CAPACITY_RESERVATION_TYPE, CAPACITY_RESERVATION_INTERRUPTIBLE];
    /// Id of the placement group that a node is in.
    pub const PLACEMENT_GROUP_ID: &str = "karpenter.k8s.aws/placement-group-id";
    /// Number of the node's partition of its placement group, from 1; empty on a claim until EC2 has chosen one.
    pub const PLACEMENT_GROUP_PARTITION: &str = "karpenter.k8s.aws/placement-group-partition";
    /// Labels of an EC2 instance type, all in [`AWS_DOMAIN`]. Every pool knows them, even if an instance type lacks
    /// some.
    pub const AWS_WELL_KNOWN: &[&str] = &[
        CAPACITY_RESERVATION_ID,
        CAPACITY_RESERVATION_INTERRUPTIBLE,
        CAPACITY_RESERVATION_TYPE,
        "karpenter.k8s.aws/ec2nodeclass",
        "karpenter.k8s.aws/instance-accelerator-count",
        "karpenter.k8s.aws/instance-accelerator-manufacturer",
        "karpenter.k8s.aws/instance-accelerator-name",
        "karpenter.k8s.aws/instance-capability-flex",
        "karpenter.k8s.aws/instance-category",
        "karpenter.k8s.aws/instance-cpu",
        "karpenter.k8s.aws/instance-cpu-manufacturer",
        "karpenter.k8s.aws/instance-cpu-sustained-clock-speed-mhz",
        "karpenter.k8s.aws/instance-ebs-bandwidth",
        "karpenter.k8s.aws/instance-encryption-in-transit-supported",
        "karpenter.k8s.aws/instance-family",
        "karpenter.k8s.aws/instance-generation",
        "karpenter.k8s.aws/instance-gpu-count",
        "karpenter.k8s.aws/instance-gpu-manufacturer",
        "karpenter.k8s.aws/instance-gpu-memory",
        "karpenter.k8s.aws/instance-gpu-name",
        "karpenter.k8s.aws/instance-hypervisor",
        "karpenter.k8s.aws/instance-local-nvme",
        INSTANCE_MEMORY,
        "karpenter.k8s.aws/instance-network-bandwidth",
        INSTANCE_SIZE,
        INSTANCE_TENANCY,
        "karpenter.k8s.aws/nitro-sandbox",
        PLACEMENT_GROUP_ID,
        PLACEMENT_GROUP_PARTITION,
    ];
    /// Labels that a pod may require although a pool's template does not define them.
    pub const WELL_KNOWN: &[&str] =
        &[NODE_POOL, CAPACITY_TYPE, ZONE, ZONE_ID, REGION, INSTANCE_TYPE, ARCH, OS, WINDOWS_BUILD];

    /// Whether `key` is a well-known label.
    #[must_use]
    pub fn is_well_known(key: &str) -> bool {
        WELL_KNOWN.contains(&key) || AWS_WELL_KNOWN.contains(&key)
    }

    /// Whether a launch chooses the value of a well-known label that neither the instance type nor the offering has.
    #[must_use]
    pub fn is_of_launch(key: &str) -> bool {
        matches!(key, INSTANCE_TENANCY | PLACEMENT_GROUP_PARTITION)
    }

    /// Whether a label describes an instance type of a node class: nodes of a type that lacks it do not have it.
    #[must_use]
    pub fn is_of_type(key: &str) -> bool {
        let is_of_offering = is_of_launch(key) || CAPACITY_RESERVATION.contains(&key);
        key == WINDOWS_BUILD || (AWS_WELL_KNOWN.contains(&key) && key != EC2_NODE_CLASS && !is_of_offering)
    }

    /// The well-known label that `key` may be a misspelling of.
    #[must_use]
    pub fn similar(key: &str) -> Option<&'static str> {
        let known = || WELL_KNOWN.iter().chain(AWS_WELL_KNOWN).copied();
        let name = |key: &'static str| key.rsplit_once('/').map_or(key, |(_, name)| name);
        // The right name under another domain, or under none, is the most common mistake.
        let bare = key.rsplit_once('/').map_or(key, |(_, name)| name);
        known().find(|label| name(label) == bare && *label != key).or_else(|| crate::similar::nearest(key, known()))
    }

    /// Returns the current name of a label that Kubernetes or a driver also uses under a deprecated name.
    #[must_use]
    pub fn normalized(key: &str) -> &str {
        match key {
            "failure-domain.beta.kubernetes.io/zone" | "topology.ebs.csi.aws.com/zone" => ZONE,
            "failure-domain.beta.kubernetes.io/region" => REGION,
            "beta.kubernetes.io/arch" => ARCH,
            "beta.kubernetes.io/os" => OS,
            "beta.kubernetes.io/instance-type" => INSTANCE_TYPE,
            other => other,
        }
    }

    /// Value of a node's label under `key` or its current name. Nodes do not carry all deprecated names.
    #[must_use]
    pub fn lookup<'l>(labels: &'l BTreeMap<String, String>, key: &str) -> Option<&'l str> {
        labels.get(key).or_else(|| labels.get(normalized(key))).map(String::as_str)
    }

    /// Whether templates of pools and pods must not use `key`.
    #[must_use]
    pub fn is_restricted(key: &str) -> bool {
        if is_well_known(key) {
            return false;
        }
        let domain = key.split_once('/').map_or("", |(domain, _)| domain);
        domain == "karpenter.sh" || domain.ends_with(".karpenter.sh") || key == HOSTNAME
    }
}

/// Annotations.
pub mod annotation {
    /// Protects a pod or node from voluntary disruption.
    pub const DO_NOT_DISRUPT: &str = "karpenter.sh/do-not-disrupt";
    /// Hash of a pool's template.
    pub const NODE_POOL_HASH: &str = "karpenter.sh/nodepool-hash";
    /// Whether a claim was launched with fewer values than its pool's `minValues`: `true` or `false`.
    pub const MIN_VALUES_RELAXED: &str = "karpenter.sh/nodeclaim-min-values-relaxed";
    /// Version of the algorithm behind [`NODE_POOL_HASH`].
    pub const NODE_POOL_HASH_VERSION: &str = "karpenter.sh/nodepool-hash-version";
    /// RFC 3339 time after which the termination of a claim ignores pods and budgets.
    pub const TERMINATION_TIMESTAMP: &str = "karpenter.sh/nodeclaim-termination-timestamp";
    /// Hash of a node class.
    pub const EC2_NODE_CLASS_HASH: &str = "karpenter.k8s.aws/ec2nodeclass-hash";
    /// Version of the algorithm behind [`EC2_NODE_CLASS_HASH`].
    pub const EC2_NODE_CLASS_HASH_VERSION: &str = "karpenter.k8s.aws/ec2nodeclass-hash-version";
    /// Instance profile of an instance.
    pub const INSTANCE_PROFILE_NAME: &str = "karpenter.k8s.aws/instance-profile-name";
    /// `true` on a claim whose instance has been tagged with the name of its Node.
    pub const TAGGED: &str = "karpenter.k8s.aws/tagged";
    /// Cluster Autoscaler's. The values `false` and `on-completion` protect a pod from voluntary disruption.
    pub const SAFE_TO_EVICT: &str = "cluster-autoscaler.kubernetes.io/safe-to-evict";
    /// Cluster Autoscaler's. The value `true` on a Node protects it from voluntary disruption.
    pub const SCALE_DOWN_DISABLED: &str = "cluster-autoscaler.kubernetes.io/scale-down-disabled";
    /// The annotations of Nodes that plans depend on.
    pub const OF_NODES: [&str; 2] = [DO_NOT_DISRUPT, SCALE_DOWN_DISABLED];
    /// Kubernetes' pod deletion cost.
    pub const POD_DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
    /// On mirror pods, which represent static pods of a kubelet.
    pub const MIRROR: &str = "kubernetes.io/config.mirror";
    /// The annotations of pods that are read.
    pub const OF_PODS: [&str; 6] =
        [DO_NOT_DISRUPT, SAFE_TO_EVICT, POD_DELETION_COST, MIRROR, ON_DEMAND_BASE, ON_DEMAND_PERCENTAGE];
    /// Prefix of Plimsoll's annotations.
    pub const PREFIX: &str = "plimsoll.dev/";
    /// Plimsoll's annotations of NodePools.
    pub const OF_NODE_POOLS: [&str; 10] = [
        ON_DEMAND_BASE,
        ON_DEMAND_PERCENTAGE,
        NODE_COST,
        VOLUME_COST,
        PERFORMANCE,
        EXPIRY_JITTER,
        TERMINATION_DELAY,
        ROLLOUT_PAUSED,
        ROLLOUT_CANARIES,
        ROLLOUT_HALTED,
    ];

    /// Owner of a claim, set by Plimsoll. The value is [`OWNER_VALUE`].
    pub const OWNER: &str = "plimsoll.dev/owner";
    /// The value of [`OWNER`].
    pub const OWNER_VALUE: &str = "plimsoll";
    /// Id of the plan's action that created a claim.
    pub const ACTION_ID: &str = "plimsoll.dev/action-id";
    /// Launch group as JSON: id and size.
    pub const LAUNCH_GROUP: &str = "plimsoll.dev/launch-group";
    /// Attempt of the launch group, a decimal number. Increased only after a definite answer of the cloud.
    pub const LAUNCH_ATTEMPT: &str = "plimsoll.dev/launch-attempt";
    /// Start of the attempt, in milliseconds since the Unix epoch. An old attempt is not sent again.
    pub const LAUNCH_STARTED: &str = "plimsoll.dev/launch-started";
    /// Exact launch request of the group as JSON, or a reference to its only copy.
    pub const LAUNCH_REQUEST: &str = "plimsoll.dev/launch-request";
    /// UIDs of the pods that a claim was created for, bounded.
    pub const PODS: &str = "plimsoll.dev/pods";
    /// Usage of the pool's limits that a claim reserves until it is launched.
    pub const RESERVED: &str = "plimsoll.dev/reserved";
    /// Price at which a launched claim counts against limits, in US dollars per hour.
    pub const USD_PER_HOUR: &str = super::USD_PER_HOUR_RESOURCE;
    /// Epoch of the leader that wrote the claim.
    pub const EPOCH: &str = "plimsoll.dev/epoch";
    /// Removal command in progress as JSON: id, reason and replacements.
    pub const REMOVAL: &str = "plimsoll.dev/removal";
    /// Interruption notice as JSON: kind and time. The pods of the claim's node must move.
    pub const INTERRUPTED: &str = "plimsoll.dev/interrupted";
    /// On NodePools and pods: minimum number of pods that run On-Demand.
    pub const ON_DEMAND_BASE: &str = "plimsoll.dev/on-demand-base";
    /// On NodePools and pods: percentage of the pods beyond the base that run On-Demand, 0 to 100.
    pub const ON_DEMAND_PERCENTAGE: &str = "plimsoll.dev/on-demand-percentage";
    /// On NodePools: additional cost per node, in US dollars per hour.
    pub const NODE_COST: &str = "plimsoll.dev/node-cost-per-hour";
    /// On NodePools: cost of a GiB of EBS volumes, in US dollars per month.
    pub const VOLUME_COST: &str = "plimsoll.dev/volume-cost-per-gib-month";
    /// On NodePools: relative performance of instance families, such as `m7i=1.15,m8g=1.3`.
    pub const PERFORMANCE: &str = "plimsoll.dev/performance";
    /// On NodePools: by how much of `expireAfter` nodes may expire earlier, such as `10%`.
    pub const EXPIRY_JITTER: &str = "plimsoll.dev/expiry-jitter";
    /// On NodePools: how long an instance stays after the drain of its node, such as `5m`.
    pub const TERMINATION_DELAY: &str = "plimsoll.dev/termination-delay";
    /// On NodePools: `true` holds the replacement of drifted nodes.
    pub const ROLLOUT_PAUSED: &str = "plimsoll.dev/rollout-paused";
    /// On NodePools: how many nodes must prove themselves before the other drifted nodes are replaced. 0: none.
    pub const ROLLOUT_CANARIES: &str = "plimsoll.dev/rollout-canaries";
    /// On NodePools: the revision of template, node class and images whose canary has failed.
    pub const ROLLOUT_HALTED: &str = "plimsoll.dev/rollout-halted";
    /// Bounded text for `explain` on why a claim was launched.
    pub const WHY: &str = "plimsoll.dev/why";
}

/// Taints.
pub mod taint {
    /// On a node that is being removed (NoSchedule).
    pub const DISRUPTED: &str = "karpenter.sh/disrupted";
    /// On a node that consolidation is going to remove once disruption budgets allow it (PreferNoSchedule).
    pub const REMOVAL_POSTPONED: &str = "plimsoll.dev/removal-postponed";
    /// On a node that has not been matched to its claim yet (NoExecute).
    pub const UNREGISTERED: &str = "karpenter.sh/unregistered";
    /// Prefix of taints on nodes that are not ready yet.
    pub const READINESS_PREFIX: &str = "readiness.k8s.io/";
    /// The kubelet has not reported readiness.
    pub const NOT_READY: &str = "node.kubernetes.io/not-ready";
    /// The kubelet of the node is unreachable.
    pub const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
    /// A cloud controller has not initialized the node yet.
    pub const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";
}

/// Finalizer on NodeClaims and Nodes.
pub const TERMINATION_FINALIZER: &str = "karpenter.sh/termination";
/// Finalizer on EC2NodeClasses.
pub const EC2_NODE_CLASS_FINALIZER: &str = "karpenter.k8s.aws/termination";
/// Prefix of the resource that counts the attachable volumes of a CSI driver. Nodes and instance types without the
/// resource have the driver's default limit.
pub const ATTACHABLE_VOLUMES_PREFIX: &str = "attachable-volumes-csi-";
/// Resource name that counts nodes in a pool's limits.
pub const NODES_RESOURCE: &str = "nodes";
/// Resource name that counts the price of nodes in a pool's limits. [`crate::resources::Resources`] has it in
/// millionths of a US dollar per hour.
pub const USD_PER_HOUR_RESOURCE: &str = "plimsoll.dev/usd-per-hour";
/// Names of leases.
pub mod lease {
    /// Lease of the watcher.
    pub const WATCHER: &str = "plimsoll-watcher";
    /// Lease of the actuator.
    pub const ACTUATOR: &str = "plimsoll-actuator";
    /// Lease of Karpenter. While Karpenter holds it, Plimsoll writes nothing.
    pub const KARPENTER: &str = "karpenter-leader-election";
}
/// ConfigMap with the memory that nodes of each instance type were seen to have.
pub const DISCOVERED_MEMORY: &str = "plimsoll-discovered-memory";
/// Tags on EC2 resources.
pub mod tag {
    /// Prefix of the tag that names the cluster; the value is `owned`.
    pub const CLUSTER_PREFIX: &str = "kubernetes.io/cluster/";
    /// Name of the cluster.
    pub const EKS_CLUSTER: &str = "eks:eks-cluster-name";
    /// The pool.
    pub const NODE_POOL: &str = "karpenter.sh/nodepool";
    /// The node class.
    pub const EC2_NODE_CLASS: &str = "karpenter.k8s.aws/ec2nodeclass";
    /// Name of the claim.
    pub const NODE_CLAIM: &str = "karpenter.sh/nodeclaim";
    /// Owner, set by Plimsoll.
    pub const OWNER: &str = "plimsoll.dev/owner";
    /// Launch group.
    pub const LAUNCH_GROUP: &str = "plimsoll.dev/launch-group";
    /// Attempt of the launch group.
    pub const LAUNCH_ATTEMPT: &str = "plimsoll.dev/launch-attempt";
    /// UID of the claim, if the launch group has only one.
    pub const NODE_CLAIM_UID: &str = "plimsoll.dev/nodeclaim-uid";
}

#[cfg(test)]
mod tests {
    use super::annotation::{OF_NODE_POOLS, PREFIX};
    use std::collections::BTreeSet;

    #[test]
    fn the_annotations_of_node_pools_are_those_documented_as_such() {
        let documented = include_str!("names.rs").split(concat!("/// On ", "NodePools")).skip(1);
        let documented: BTreeSet<&str> = documented.filter_map(|text| text.split('"').nth(1)).collect();
        assert_eq!(documented, BTreeSet::from(OF_NODE_POOLS));
        assert!(documented.iter().all(|key| key.starts_with(PREFIX)));
    }
}
