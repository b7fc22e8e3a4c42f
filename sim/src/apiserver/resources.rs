//! Table of the kinds that the API server serves.

/// Field paths of the scale subresource, such as `spec.replicas`.
#[derive(Debug, Clone, Copy)]
pub struct Scale {
    /// Path of the desired replica count.
    pub spec: &'static [&'static str],
    /// Path of the current replica count.
    pub status: &'static [&'static str],
    /// Path of the label selector, if the kind has one.
    pub selector: Option<&'static [&'static str]>,
}

/// Properties of one kind.
#[derive(Debug)]
pub struct Resource {
    /// API group; empty for the core group.
    pub group: &'static str,
    /// API version within the group.
    pub version: &'static str,
    /// Kind, singular, in camel case.
    pub kind: &'static str,
    /// Plural name, as in URL paths.
    pub plural: &'static str,
    /// Whether objects live in namespaces.
    pub namespaced: bool,
    /// Whether the kind has a status subresource. If so, writes to the main resource do not change the status.
    pub status: bool,
    /// Paths of the scale subresource, if the kind has one.
    pub scale: Option<Scale>,
    /// Whether a CustomResourceDefinition defines the kind. Custom kinds support neither strategic merge nor
    /// unconditional updates.
    pub custom: bool,
    /// Whether the server maintains `metadata.generation`.
    pub generation: bool,
    /// Whether `spec` is immutable.
    pub immutable_spec: bool,
    /// Whether a deletion that takes effect at once returns the object instead of a `Status`.
    pub returns_deleted: bool,
    /// Supported field selectors besides `metadata.name` and `metadata.namespace`.
    pub selectable: &'static [&'static str],
}

impl Resource {
    /// `apiVersion` of objects of this kind.
    #[must_use]
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.to_owned() } else { format!("{}/{}", self.group, self.version) }
    }

    /// `plural.group`, as used in messages.
    #[must_use]
    pub fn qualified(&self) -> String {
        if self.group.is_empty() { self.plural.to_owned() } else { format!("{}.{}", self.plural, self.group) }
    }
}

/// Index of a kind in the table. Ordered by position.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceId(usize);

impl ResourceId {
    /// Properties of the kind.
    #[must_use]
    pub fn get(self) -> &'static Resource {
        // Only `resources!` and `all` create ids, each from a valid position.
        &RESOURCES[self.0]
    }

    /// Position in the table.
    #[must_use]
    pub fn index(self) -> usize {
        self.0
    }

    /// All kinds, in the order of the table.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..RESOURCES.len()).map(Self)
    }

    /// Kind with this group, version and plural name.
    #[must_use]
    pub fn find(group: &str, version: &str, plural: &str) -> Option<Self> {
        Self::all().find(|id| {
            let row = id.get();
            row.group == group && row.version == version && row.plural == plural
        })
    }

    /// Kind with this `apiVersion` and `kind`.
    #[must_use]
    pub fn of_kind(api_version: &str, kind: &str) -> Option<Self> {
        Self::all().find(|id| id.get().kind == kind && id.get().api_version() == api_version)
    }
}

const BASE: Resource = Resource {
    group: "",
    version: "v1",
    kind: "",
    plural: "",
    namespaced: true,
    status: false,
    scale: None,
    custom: false,
    generation: false,
    immutable_spec: false,
    returns_deleted: false,
    selectable: &[],
};

const CLUSTER: Resource = Resource { namespaced: false, ..BASE };
const CUSTOM: Resource = Resource { namespaced: false, status: true, custom: true, generation: true, ..BASE };
const WORKLOAD: Resource = Resource { group: "apps", status: true, generation: true, ..BASE };

const REPLICAS: Option<Scale> =
    Some(Scale { spec: &["spec", "replicas"], status: &["status", "replicas"], selector: Some(&["spec", "selector"]) });

/// Field selectors of core events. Clients use them to watch the events of one object.
const EVENT_FIELDS: &[&str] = &[
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "involvedObject.apiVersion",
    "involvedObject.resourceVersion",
    "involvedObject.fieldPath",
    "reason",
    "reportingComponent",
    "type",
];

macro_rules! resources {
    ($($id:ident = $row:expr;)*) => {
        resources!(@ids 0usize; $($id)*);
        impl ResourceId {
            /// All kinds.
            pub const EVERY: &'static [Self] = &[$(Self::$id),*];
        }
        static RESOURCES: &[Resource] = &[$($row),*];
    };
    (@ids $at:expr; $id:ident $($rest:ident)*) => {
        impl ResourceId {
            #[doc = concat!("The row ", stringify!($id), ".")]
            pub const $id: Self = Self($at);
        }
        resources!(@ids $at + 1usize; $($rest)*);
    };
    (@ids $at:expr;) => {};
}

resources! {
    NAMESPACES = Resource { kind: "Namespace", plural: "namespaces", status: true, selectable: &["status.phase"], ..CLUSTER };
    PODS = Resource {
        kind: "Pod", plural: "pods", status: true, generation: true, returns_deleted: true,
        selectable: &["spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName",
            "spec.hostNetwork", "status.phase", "status.podIP", "status.nominatedNodeName"],
        ..BASE
    };
    NODES = Resource { kind: "Node", plural: "nodes", status: true, selectable: &["spec.unschedulable"], ..CLUSTER };
    EVENTS = Resource { kind: "Event", plural: "events", selectable: EVENT_FIELDS, ..BASE };
    PERSISTENT_VOLUMES = Resource { kind: "PersistentVolume", plural: "persistentvolumes", status: true, ..CLUSTER };
    PERSISTENT_VOLUME_CLAIMS = Resource {
        kind: "PersistentVolumeClaim", plural: "persistentvolumeclaims", status: true, returns_deleted: true, ..BASE
    };
    SERVICES = Resource { kind: "Service", plural: "services", status: true, returns_deleted: true, ..BASE };
    CONFIG_MAPS = Resource { kind: "ConfigMap", plural: "configmaps", ..BASE };
    // Storage only: no controller creates pods from these kinds.
    POD_TEMPLATES = Resource { kind: "PodTemplate", plural: "podtemplates", generation: true, ..BASE };
    REPLICATION_CONTROLLERS = Resource {
        kind: "ReplicationController", plural: "replicationcontrollers", status: true, generation: true, scale: REPLICAS, ..BASE
    };
    SERVICE_ACCOUNTS = Resource { kind: "ServiceAccount", plural: "serviceaccounts", ..BASE };
    DEPLOYMENTS = Resource { kind: "Deployment", plural: "deployments", scale: REPLICAS, ..WORKLOAD };
    REPLICA_SETS = Resource { kind: "ReplicaSet", plural: "replicasets", scale: REPLICAS, ..WORKLOAD };
    STATEFUL_SETS = Resource { kind: "StatefulSet", plural: "statefulsets", scale: REPLICAS, ..WORKLOAD };
    DAEMON_SETS = Resource { kind: "DaemonSet", plural: "daemonsets", ..WORKLOAD };
    JOBS = Resource { group: "batch", kind: "Job", plural: "jobs", ..WORKLOAD };
    POD_DISRUPTION_BUDGETS = Resource {
        group: "policy", kind: "PodDisruptionBudget", plural: "poddisruptionbudgets", status: true, generation: true, ..BASE
    };
    LEASES = Resource { group: "coordination.k8s.io", kind: "Lease", plural: "leases", ..BASE };
    STORAGE_CLASSES = Resource { group: "storage.k8s.io", kind: "StorageClass", plural: "storageclasses", ..CLUSTER };
    CSI_NODES = Resource { group: "storage.k8s.io", kind: "CSINode", plural: "csinodes", ..CLUSTER };
    VOLUME_ATTACHMENTS = Resource {
        group: "storage.k8s.io", kind: "VolumeAttachment", plural: "volumeattachments", status: true, ..CLUSTER
    };
    PRIORITY_CLASSES = Resource { group: "scheduling.k8s.io", kind: "PriorityClass", plural: "priorityclasses", ..CLUSTER };
    SERVICE_CIDRS = Resource { group: "networking.k8s.io", kind: "ServiceCIDR", plural: "servicecidrs", status: true, ..CLUSTER };
    // Stored as core events and converted on access (see `events`).
    EVENTS_K8S = Resource {
        group: "events.k8s.io", kind: "Event", plural: "events",
        selectable: &["regarding.kind", "regarding.namespace", "regarding.name", "regarding.uid", "reason",
            "reportingController", "type"],
        ..BASE
    };
    NODE_POOLS = Resource {
        group: "karpenter.sh", kind: "NodePool", plural: "nodepools",
        scale: Some(Scale { spec: &["spec", "replicas"], status: &["status", "nodes"], selector: None }),
        ..CUSTOM
    };
    NODE_CLAIMS = Resource { group: "karpenter.sh", kind: "NodeClaim", plural: "nodeclaims", immutable_spec: true, ..CUSTOM };
    NODE_OVERLAYS = Resource { group: "karpenter.sh", version: "v1alpha1", kind: "NodeOverlay", plural: "nodeoverlays", ..CUSTOM };
    CAPACITY_BUFFERS = Resource {
        group: "autoscaling.x-k8s.io", version: "v1beta1", kind: "CapacityBuffer", plural: "capacitybuffers",
        namespaced: true, ..CUSTOM
    };
    CAPACITY_QUOTAS = Resource {
        group: "autoscaling.x-k8s.io", version: "v1beta1", kind: "CapacityQuota", plural: "capacityquotas", ..CUSTOM
    };
    EC2_NODE_CLASSES = Resource { group: "karpenter.k8s.aws", kind: "EC2NodeClass", plural: "ec2nodeclasses", ..CUSTOM };
}

#[cfg(test)]
mod tests {
    use super::{RESOURCES, ResourceId};
    use std::collections::BTreeSet;

    #[test]
    fn ids_name_their_rows_and_no_row_twice() {
        assert_eq!(ResourceId::PODS.get().kind, "Pod");
        assert_eq!(ResourceId::EC2_NODE_CLASSES.get().qualified(), "ec2nodeclasses.karpenter.k8s.aws");
        assert_eq!(ResourceId::find("apps", "v1", "deployments"), Some(ResourceId::DEPLOYMENTS));
        assert_eq!(ResourceId::of_kind("karpenter.sh/v1", "NodeClaim"), Some(ResourceId::NODE_CLAIMS));
        assert_eq!(ResourceId::of_kind("v1", "NodeClaim"), None);
        let paths: BTreeSet<_> = RESOURCES.iter().map(|row| (row.group, row.version, row.plural)).collect();
        assert_eq!(paths.len(), RESOURCES.len());
    }
}
