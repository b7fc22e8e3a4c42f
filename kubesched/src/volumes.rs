//! NodeVolumeLimits: how many volumes of each CSI driver a node can attach.

use plimsoll_model::catalog::Catalog;
use plimsoll_model::identity::{CatalogId, ShapeId};
use plimsoll_model::names::{ATTACHABLE_VOLUMES_PREFIX, label};
use plimsoll_model::snapshot::Snapshot;
use std::collections::{BTreeMap, BTreeSet};

/// Capacity for volumes of a driver without a limit: more than any node could use.
const NO_LIMIT: i64 = 1_000_000;
/// The driver whose limit depends on the instance type.
const EBS_DRIVER: &str = "ebs.csi.aws.com";
/// Limits of EBS volumes of a new node. The exact limit is known only once the driver runs on the node, so these are
/// lower bounds for each kind of instance type. On the Nitro system, volumes share 28 attachments with the first
/// network interface, local disks and accelerators. Two are left for the volumes of the node itself: Bottlerocket has
/// two.
const EBS_ON_NITRO: i64 = 25;
const EBS_ON_XEN: i64 = 39;
/// The same for families whose volumes share their attachments with nothing else. Their smallest types have 32.
const EBS_DEDICATED: i64 = 30;
/// Families with such a limit, besides generation 8 of the categories in [`DEDICATED_SINCE_8`].
const DEDICATED: [&str; 24] = [
    "c7a", "c7i", "c7i-flex", "f2", "g6", "g6e", "g6f", "g7e", "gr6", "gr6f", "i7i", "i7ie", "m7a", "m7i", "m7i-flex",
    "p5", "p5e", "p5en", "p6-b200", "p6-b300", "r7a", "r7i", "r7iz", "trn2",
];
const DEDICATED_SINCE_8: [char; 5] = ['c', 'i', 'm', 'r', 'x'];
/// Families whose large types have 28 attachments for volumes alone, however many accelerators and disks there are.
/// Their small types have 25.
const MANY_ACCELERATORS: [&str; 6] = ["dl1", "inf2", "p4d", "p4de", "trn1", "trn1n"];
const HYPERVISOR: &str = "karpenter.k8s.aws/instance-hypervisor";
const LOCAL_NVME: &str = "karpenter.k8s.aws/instance-local-nvme";
const GPU_COUNT: &str = "karpenter.k8s.aws/instance-gpu-count";
const ACCELERATOR_COUNT: &str = "karpenter.k8s.aws/instance-accelerator-count";

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

/// The limit of a driver for a node whose allocatable resources do not have one. `labels` are those of the node or of
/// its instance type. On an initialized node (`in_service`), a driver with a limit would have reported it.
#[must_use]
pub fn usual_limit(driver: &str, labels: &BTreeMap<String, String>, in_service: bool) -> i64 {
    if driver != EBS_DRIVER || in_service {
        return NO_LIMIT;
    }
    let xen = labels.get(HYPERVISOR).is_some_and(|name| name == "xen");
    if xen { EBS_ON_XEN } else { ebs_on_nitro(labels) }
}

fn ebs_on_nitro(labels: &BTreeMap<String, String>) -> i64 {
    let text = |key: &str| labels.get(key).map_or("", String::as_str);
    let number = |key: &str| text(key).parse::<i64>().unwrap_or(0).max(0);
    let family = text(label::INSTANCE_FAMILY);
    if DEDICATED.contains(&family) || family.strip_prefix(DEDICATED_SINCE_8).is_some_and(|it| it.starts_with('8')) {
        return EBS_DEDICATED;
    }
    // Bare metal has 31 attachments besides its devices.
    if text(label::INSTANCE_SIZE).contains("metal") {
        return EBS_ON_NITRO;
    }
    if MANY_ACCELERATORS.contains(&family) {
        return EBS_ON_NITRO - 2;
    }
    // Eight GPUs take two attachments each.
    let gpus = number(GPU_COUNT);
    let gpus = if gpus < 8 { gpus } else { gpus.saturating_mul(2) };
    let devices = most_disks(family, number(LOCAL_NVME)).saturating_add(gpus).saturating_add(number(ACCELERATOR_COUNT));
    EBS_ON_NITRO.saturating_sub(devices).max(1)
}

/// The most local disks that a type of the family has with this total size in GB.
fn most_disks(family: &str, total_gb: i64) -> i64 {
    // Families with many disks, all of one size.
    match family {
        "d3" => return total_gb.saturating_add(1979) / 1980,
        "d3en" => return total_gb.saturating_add(13_979) / 13_980,
        _ => {}
    }
    match total_gb {
        ..=0 => 0,
        1..600 => 1,
        600..2400 => 2,
        2400..20_000 => 4,
        _ => 8,
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_of_a_new_node_is_at_most_that_of_its_type() {
        let limit = |name: &str, more: &[(&str, &str)]| {
            let (family, size) = name.split_once('.').unwrap();
            let named = [(label::INSTANCE_FAMILY, family), (label::INSTANCE_SIZE, size)];
            let labels = named.iter().chain(more).map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
            usual_limit(EBS_DRIVER, &labels.collect(), false)
        };
        /// The type, its labels, the limit, and the attachments that EC2 has for volumes.
        type Row = (&'static str, &'static [(&'static str, &'static str)], i64, i64);
        let table: [Row; 17] = [
            ("m5.large", &[], 25, 27),
            ("m7g.large", &[], 25, 27),
            ("m4.large", &[(HYPERVISOR, "xen")], 39, 40),
            ("m7i.large", &[], 30, 32),
            ("r8gd.48xlarge", &[(LOCAL_NVME, "11400")], 30, 128),
            ("g6.12xlarge", &[(LOCAL_NVME, "3760"), (GPU_COUNT, "4")], 30, 32),
            ("c5d.large", &[(LOCAL_NVME, "50")], 24, 26),
            ("m5d.4xlarge", &[(LOCAL_NVME, "600")], 23, 25),
            ("m5d.16xlarge", &[(LOCAL_NVME, "2400")], 21, 23),
            ("i3en.24xlarge", &[(LOCAL_NVME, "60000")], 17, 19),
            ("d3.xlarge", &[(LOCAL_NVME, "5940")], 22, 24),
            ("d3en.12xlarge", &[(LOCAL_NVME, "335520")], 1, 3),
            ("g5.48xlarge", &[(LOCAL_NVME, "7600"), (GPU_COUNT, "8")], 5, 9),
            ("inf1.6xlarge", &[(ACCELERATOR_COUNT, "4")], 21, 23),
            ("trn1.2xlarge", &[(LOCAL_NVME, "474"), (ACCELERATOR_COUNT, "1")], 23, 25),
            ("p4d.24xlarge", &[(LOCAL_NVME, "8000"), (GPU_COUNT, "8")], 23, 28),
            ("i4i.metal", &[(LOCAL_NVME, "30000")], 25, 31),
        ];
        for (name, labels, expected, attachments) in table {
            assert_eq!(limit(name, labels), expected, "{name}");
            assert!(expected < attachments, "{name}: the root volume is attached, too");
        }
    }
}
