//! Names that Kubernetes, Karpenter and its AWS provider gave to labels, annotations, taints, finalizers and tags
//! (spec: Karpenter core section 2, AWS provider sections 0 and 5.1), and the few that are Plimsoll's own.

/// Labels.
pub mod label {
    use std::collections::BTreeMap;

    /// The pool that a node belongs to.
    pub const NODE_POOL: &str = "karpenter.sh/nodepool";
    /// `spot`, `on-demand` or `reserved`.
    pub const CAPACITY_TYPE: &str = "karpenter.sh/capacity-type";
    /// `true` once a node has all that its claim asks for.
    pub const INITIALIZED: &str = "karpenter.sh/initialized";
    /// `true` once a node was matched to its claim.
    pub const REGISTERED: &str = "karpenter.sh/registered";
    /// `true` on a node that registers all taints by itself.
    pub const DO_NOT_SYNC_TAINTS: &str = "karpenter.sh/do-not-sync-taints";
    /// The node class of a node, by name.
    pub const EC2_NODE_CLASS: &str = "karpenter.k8s.aws/ec2nodeclass";
    /// Availability zone.
    pub const ZONE: &str = "topology.kubernetes.io/zone";
    /// Availability zone, by the account-independent id.
    pub const ZONE_ID: &str = "topology.k8s.aws/zone-id";
    /// Region.
    pub const REGION: &str = "topology.kubernetes.io/region";
    /// The family of an EC2 instance type: `m7i` of `m7i.large`.
    pub const INSTANCE_FAMILY: &str = "karpenter.k8s.aws/instance-family";
    /// EC2 instance type.
    pub const INSTANCE_TYPE: &str = "node.kubernetes.io/instance-type";
    /// `amd64` or `arm64`.
    pub const ARCH: &str = "kubernetes.io/arch";
    /// `linux` or `windows`.
    pub const OS: &str = "kubernetes.io/os";
    /// The node's own name.
    pub const HOSTNAME: &str = "kubernetes.io/hostname";
    /// Windows build, where there is one.
    pub const WINDOWS_BUILD: &str = "node.kubernetes.io/windows-build";
    /// Keeps a node out of external load balancers while it drains.
    pub const EXCLUDE_FROM_LOAD_BALANCERS: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
    /// Domain of the labels that describe EC2 instance types.
    pub const AWS_DOMAIN: &str = "karpenter.k8s.aws";
    /// Labels of an EC2 instance type, all in [`AWS_DOMAIN`]: known to every pool, whether or not a type has them.
    pub const AWS_WELL_KNOWN: &[&str] = &[
        "karpenter.k8s.aws/capacity-reservation-id",
        "karpenter.k8s.aws/capacity-reservation-interruptible",
        "karpenter.k8s.aws/capacity-reservation-type",
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
        "karpenter.k8s.aws/instance-memory",
        "karpenter.k8s.aws/instance-network-bandwidth",
        "karpenter.k8s.aws/instance-size",
        "karpenter.k8s.aws/instance-tenancy",
        "karpenter.k8s.aws/nitro-sandbox",
        "karpenter.k8s.aws/placement-group-id",
        "karpenter.k8s.aws/placement-group-partition",
    ];
    /// Labels that a pod may ask for though a pool's template does not name them.
    pub const WELL_KNOWN: &[&str] =
        &[NODE_POOL, CAPACITY_TYPE, ZONE, ZONE_ID, REGION, INSTANCE_TYPE, ARCH, OS, WINDOWS_BUILD];

    /// Whether `key` is known to every pool.
    #[must_use]
    pub fn is_well_known(key: &str) -> bool {
        WELL_KNOWN.contains(&key) || AWS_WELL_KNOWN.contains(&key)
    }

    /// The present name of a label that Kubernetes or a driver also knows under an older one.
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

    /// The value of a node's label under `key`, or else under its present name: nodes do not carry every older name.
    #[must_use]
    pub fn lookup<'l>(labels: &'l BTreeMap<String, String>, key: &str) -> Option<&'l str> {
        labels.get(key).or_else(|| labels.get(normalized(key))).map(String::as_str)
    }

    /// Whether a pool's template or a pod may not name `key` (spec: core section 2, restriction rule).
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
    /// Keeps a pod or a node from voluntary disruption.
    pub const DO_NOT_DISRUPT: &str = "karpenter.sh/do-not-disrupt";
    /// Hash of a pool's template.
    pub const NODE_POOL_HASH: &str = "karpenter.sh/nodepool-hash";
    /// Version of the algorithm behind [`NODE_POOL_HASH`].
    pub const NODE_POOL_HASH_VERSION: &str = "karpenter.sh/nodepool-hash-version";
    /// RFC 3339 time after which a claim's termination waits for nothing.
    pub const TERMINATION_TIMESTAMP: &str = "karpenter.sh/nodeclaim-termination-timestamp";
    /// Hash of a node class.
    pub const EC2_NODE_CLASS_HASH: &str = "karpenter.k8s.aws/ec2nodeclass-hash";
    /// Version of the algorithm behind [`EC2_NODE_CLASS_HASH`].
    pub const EC2_NODE_CLASS_HASH_VERSION: &str = "karpenter.k8s.aws/ec2nodeclass-hash-version";
    /// The instance profile that an instance was launched with.
    pub const INSTANCE_PROFILE_NAME: &str = "karpenter.k8s.aws/instance-profile-name";
    /// `true` on a claim whose instance was named after its Node.
    pub const TAGGED: &str = "karpenter.k8s.aws/tagged";
    /// Kubernetes' cost of deleting a pod.
    pub const POD_DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

    /// Plimsoll's own: who made a claim (safety rule 20). The value is [`OWNER_VALUE`].
    pub const OWNER: &str = "plimsoll.dev/owner";
    /// The value of [`OWNER`].
    pub const OWNER_VALUE: &str = "plimsoll";
    /// The plan's action that a claim carries out (rule 2).
    pub const ACTION_ID: &str = "plimsoll.dev/action-id";
    /// Launch group, JSON: id, size (rule 1 and 2).
    pub const LAUNCH_GROUP: &str = "plimsoll.dev/launch-group";
    /// Attempt of the launch group, a decimal number raised only after a definite answer (rule 3).
    pub const LAUNCH_ATTEMPT: &str = "plimsoll.dev/launch-attempt";
    /// When that attempt was written, milliseconds since the Unix epoch: an old one is not sent again (rule 3).
    pub const LAUNCH_STARTED: &str = "plimsoll.dev/launch-started";
    /// Exact launch request of the group, JSON, or the place of the one copy (rule 2).
    pub const LAUNCH_REQUEST: &str = "plimsoll.dev/launch-request";
    /// UIDs of the pods that a claim is for, bounded (rules 2 and 7).
    pub const PODS: &str = "plimsoll.dev/pods";
    /// What a claim counts against its pool's limits until it is launched (rule 7).
    pub const RESERVED: &str = "plimsoll.dev/reserved";
    /// The leader's epoch that wrote the claim (rule 16).
    pub const EPOCH: &str = "plimsoll.dev/epoch";
    /// A removal command under way: JSON of id, reason, replacements (rule 12).
    pub const REMOVAL: &str = "plimsoll.dev/removal";
    /// The capacity of a claim's node is about to be taken back: its pods must go elsewhere (rule 13). JSON of the notice's kind and time.
    pub const INTERRUPTED: &str = "plimsoll.dev/interrupted";
    /// Plimsoll's own, on NodePools and on pods: how many pods at the least run On-Demand, a number.
    pub const ON_DEMAND_BASE: &str = "plimsoll.dev/on-demand-base";
    /// Plimsoll's own, on NodePools and on pods: how many per cent of the pods beyond the base run On-Demand, 0 to 100.
    pub const ON_DEMAND_PERCENTAGE: &str = "plimsoll.dev/on-demand-percentage";
    /// Plimsoll's own, on NodePools: what each node costs beside its price, in US dollars per hour.
    pub const NODE_COST: &str = "plimsoll.dev/node-cost-per-hour";
    /// Plimsoll's own, on NodePools: what a GiB of a node's EBS volumes costs, in US dollars per month.
    pub const VOLUME_COST: &str = "plimsoll.dev/volume-cost-per-gib-month";
    /// Plimsoll's own, on NodePools: how much work instance families do beside others, `m7i=1.15,m8g=1.3`.
    pub const PERFORMANCE: &str = "plimsoll.dev/performance";
    /// Why a claim was launched, bounded text for `explain` (rule 22).
    pub const WHY: &str = "plimsoll.dev/why";
}

/// Taints.
pub mod taint {
    /// On a node that is being removed (NoSchedule).
    pub const DISRUPTED: &str = "karpenter.sh/disrupted";
    /// On a node that was not yet matched to its claim (NoExecute).
    pub const UNREGISTERED: &str = "karpenter.sh/unregistered";
    /// Prefix of taints that say a node is not ready yet.
    pub const READINESS_PREFIX: &str = "readiness.k8s.io/";
    /// The node's kubelet has not reported readiness.
    pub const NOT_READY: &str = "node.kubernetes.io/not-ready";
    /// The node's kubelet has not been heard of.
    pub const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
    /// A cloud controller has not looked at the node yet.
    pub const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";
}

/// Finalizer on NodeClaims and Nodes.
pub const TERMINATION_FINALIZER: &str = "karpenter.sh/termination";
/// Finalizer on EC2NodeClasses.
pub const EC2_NODE_CLASS_FINALIZER: &str = "karpenter.k8s.aws/termination";
/// What comes before a CSI driver's name in the resource that counts how many of its volumes can be attached to a node. A node or type
/// that does not name it has room for as many as the driver's usual limit says.
pub const ATTACHABLE_VOLUMES_PREFIX: &str = "attachable-volumes-csi-";
/// Resource name that counts nodes in a pool's limits.
pub const NODES_RESOURCE: &str = "nodes";
/// Leases, by name.
pub mod lease {
    /// The watcher's.
    pub const WATCHER: &str = "plimsoll-watcher";
    /// The actuator's.
    pub const ACTUATOR: &str = "plimsoll-actuator";
    /// Karpenter's own; while it is held, nothing is written (rule 20).
    pub const KARPENTER: &str = "karpenter-leader-election";
}
/// Tags on EC2 resources.
pub mod tag {
    /// Prefix of the tag that names the cluster; the value is `owned`.
    pub const CLUSTER_PREFIX: &str = "kubernetes.io/cluster/";
    /// The cluster's name.
    pub const EKS_CLUSTER: &str = "eks:eks-cluster-name";
    /// The pool.
    pub const NODE_POOL: &str = "karpenter.sh/nodepool";
    /// The node class.
    pub const EC2_NODE_CLASS: &str = "karpenter.k8s.aws/ec2nodeclass";
    /// The claim, by name.
    pub const NODE_CLAIM: &str = "karpenter.sh/nodeclaim";
    /// Plimsoll's own: the owner (rule 4).
    pub const OWNER: &str = "plimsoll.dev/owner";
    /// Plimsoll's own: the launch group.
    pub const LAUNCH_GROUP: &str = "plimsoll.dev/launch-group";
    /// Plimsoll's own: the attempt.
    pub const LAUNCH_ATTEMPT: &str = "plimsoll.dev/launch-attempt";
    /// Plimsoll's own: the claim's UID, where the group is one.
    pub const NODE_CLAIM_UID: &str = "plimsoll.dev/nodeclaim-uid";
}
