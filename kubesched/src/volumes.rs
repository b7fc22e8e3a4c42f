//! NodeVolumeLimits: how many volumes of each CSI driver a node takes.

use plimsoll_model::catalog::{Catalog, InstanceType};
use plimsoll_model::identity::CatalogId;
use plimsoll_model::names::ATTACHABLE_VOLUMES_PREFIX;
use plimsoll_model::snapshot::Snapshot;
use std::collections::{BTreeMap, BTreeSet};

/// Room for volumes of a driver that has no limit: more than any node could use.
const NO_LIMIT: i64 = 1_000_000;
/// The driver whose limits follow from the machine, not from its settings alone.
const EBS_DRIVER: &str = "ebs.csi.aws.com";
/// EBS volumes of a new node on the Nitro system and on older ones: Kubernetes' own figures. The exact number hangs on
/// network interfaces and disks, and is known only once the driver runs there.
const EBS_ON_NITRO: i64 = 25;
const EBS_ON_XEN: i64 = 39;
const HYPERVISOR: &str = "karpenter.k8s.aws/instance-hypervisor";

/// The resource by which volumes of a driver are counted.
#[must_use]
pub fn resource(driver: &str) -> String {
    format!("{ATTACHABLE_VOLUMES_PREFIX}{driver}")
}

/// Drivers of which pods of the snapshot use volumes and some node can take only so many.
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

/// How many volumes of the driver a node takes that does not say so itself: a new one of that type, one that comes up
/// (without a type), or one in service (`in_service`), whose driver would have said so.
#[must_use]
pub fn usual_limit(driver: &str, kind: Option<&InstanceType>, in_service: bool) -> i64 {
    if driver != EBS_DRIVER || in_service {
        return NO_LIMIT;
    }
    let xen = kind.and_then(|kind| kind.labels.get(HYPERVISOR)).is_some_and(|name| name == "xen");
    if xen { EBS_ON_XEN } else { EBS_ON_NITRO }
}
