//! NodeVolumeLimits: how many volumes of each CSI driver a node can attach.

use plimsoll_model::catalog::{Catalog, InstanceType};
use plimsoll_model::identity::{CatalogId, ShapeId};
use plimsoll_model::names::ATTACHABLE_VOLUMES_PREFIX;
use plimsoll_model::snapshot::Snapshot;
use std::collections::{BTreeMap, BTreeSet};

/// Capacity for volumes of a driver without a limit: more than any node could use.
const NO_LIMIT: i64 = 1_000_000;
/// The driver whose limit depends on the instance type.
const EBS_DRIVER: &str = "ebs.csi.aws.com";
/// Default limits of EBS volumes of a new node, on the Nitro system and on Xen, as in Kubernetes. The exact limit
/// depends on network interfaces and disks, and is known only once the driver runs on the node.
const EBS_ON_NITRO: i64 = 25;
const EBS_ON_XEN: i64 = 39;
const HYPERVISOR: &str = "karpenter.k8s.aws/instance-hypervisor";

/// The resource that counts volumes of a driver.
#[must_use]
pub fn resource(driver: &str) -> String {
    format!("{ATTACHABLE_VOLUMES_PREFIX}{driver}")
}

/// Drivers whose volumes pods of the snapshot use, and that have a limit on some node or instance type.
#[must_use]
pub fn limited_drivers(snapshot: &Snapshot, catalogs: &BTreeMap<CatalogId, Catalog>) -> Vec<String> {
    let volumes = snapshot.shapes.iter().flat_map(|shape| &shape.volumes);
    let used: BTreeSet<&str> = volumes.map(|one| one.driver.as_str()).filter(|name| !name.is_empty()).collect();
    let is_limited = |driver: &&str| {
        let name = resource(driver);
        let types = catalogs.values().flat_map(|catalog| &catalog.instance_types);
        *driver == EBS_DRIVER
            || snapshot.nodes.iter().any(|node| node.allocatable.contains(&name))
            || types.into_iter().any(|kind| kind.capacity.contains(&name))
    };
    used.into_iter().filter(is_limited).map(str::to_owned).collect()
}

/// The limit of a driver for a node whose allocatable resources do not have one. The node is a new one of type `kind`,
/// a node that is not initialized (without a type), or an initialized one (`in_service`), on which a driver with a
/// limit would have reported it.
#[must_use]
pub fn usual_limit(driver: &str, kind: Option<&InstanceType>, in_service: bool) -> i64 {
    if driver != EBS_DRIVER || in_service {
        return NO_LIMIT;
    }
    let xen = kind.and_then(|kind| kind.labels.get(HYPERVISOR)).is_some_and(|name| name == "xen");
    if xen { EBS_ON_XEN } else { EBS_ON_NITRO }
}

/// PersistentVolumeClaims that several pods use, by namespace and name.
pub(crate) fn shared_claims(snapshot: &Snapshot) -> BTreeSet<(&str, &str)> {
    let mut users: BTreeMap<&ShapeId, usize> = BTreeMap::new();
    snapshot.pods.iter().for_each(|pod| *users.entry(&pod.shape).or_default() += 1);
    let mut claims: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for shape in &snapshot.shapes {
        for volume in shape.volumes.iter().filter(|volume| !volume.claim.is_empty()) {
            *claims.entry((&shape.namespace, &volume.claim)).or_default() += users.get(&shape.id).copied().unwrap_or(0);
        }
    }
    claims.into_iter().filter(|(_, users)| *users > 1).map(|(claim, _)| claim).collect()
}
