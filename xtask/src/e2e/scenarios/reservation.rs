//! A capacity reservation that a node class selects: used first, never beyond its instances, and labelled.

use super::super::objects::{self, SOON};
use super::super::{Context, Figure};
use crate::harness::world::World;
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

const ID: &str = "cr-0123456789abcdef0";
/// Instances of the reservation. The pods need more nodes, one each.
const RESERVED: usize = 2;
const PODS: usize = 5;
/// EC2's code if a launch asks for more instances than a reservation has.
const EXCEEDED: &str = "ReservationCapacityExceeded";
const INSTANCE_TYPE: &str = "m6i.large";

pub(super) fn play(_: &Context, world: &mut World) -> Result<Vec<Figure>> {
    let zone = world.cloud.zones().into_iter().next().context("no zone has a subnet")?;
    world.cloud.reserve(&json!([
        {"id": ID, "instanceType": INSTANCE_TYPE, "zone": zone, "total": RESERVED, "tags": {"team": "shop"}},
        {"id": "cr-0123456789abcdef1", "instanceType": INSTANCE_TYPE, "zone": zone, "total": PODS, "tags": {"team": "other"}},
    ]))?;
    let reserved = "values: [reserved, on-demand]";
    let selected = "spec:\n  capacityReservationSelectorTerms: [{tags: {team: shop}}]\n  amiSelectorTerms";
    let manifest = world.pool_manifest();
    let changed = manifest.replace("values: [on-demand]", reserved).replace("spec:\n  amiSelectorTerms", selected);
    ensure!(changed.contains(reserved) && changed.contains(selected), "pool.yaml has changed");
    world.cluster.kubectl.apply(&changed)?;

    world.cluster.kubectl.apply(&objects::deployment("web", PODS, 1500))?;
    world.wait_ready("web", PODS, SOON)?;
    let instances = world.cloud.living()?;
    let in_reservation = instances.iter().filter(|i| i.capacity_type == "reserved").count();
    ensure!(in_reservation == RESERVED, "{in_reservation} instances are reserved, the reservation has {RESERVED}");
    ensure!(instances.len() == PODS, "{} instances for {PODS} pods", instances.len());
    for (id, free) in world.cloud.free_of_reservations()? {
        let expected = if id == ID { 0 } else { PODS as u64 };
        ensure!(free == expected, "{free} instances of {id} are free, not {expected}");
    }
    check_labels(&world.nodes()?, &zone)?;
    for call in world.cloud.calls("CreateFleet", 0)? {
        let is_of_seed = world.refuses_calls() && call.refused != EXCEEDED;
        ensure!(call.refused.is_empty() || is_of_seed, "a launch was refused: {}", call.refused);
    }

    // The reservation is full, so that another pod gets an On-Demand instance at once.
    world.scale("web", PODS + 1)?;
    world.wait_ready("web", PODS + 1, SOON)?;
    let later: Vec<_> = world.cloud.living()?.into_iter().filter(|i| i.capacity_type == "reserved").collect();
    ensure!(later.len() == RESERVED, "{} instances are reserved after one more pod", later.len());
    Ok(vec![("reserved", RESERVED.to_string()), ("on-demand", (PODS + 1 - RESERVED).to_string())])
}

/// Nodes of the reservation, and no others, have its labels.
fn check_labels(nodes: &[Value], zone: &str) -> Result<()> {
    let mut reserved = 0;
    for node in nodes {
        let labels = &node["metadata"]["labels"];
        let (capacity_type, id) =
            (&labels["karpenter.sh/capacity-type"], &labels["karpenter.k8s.aws/capacity-reservation-id"]);
        if capacity_type == "reserved" {
            reserved += 1;
            let kind = &labels["karpenter.k8s.aws/capacity-reservation-type"];
            let place = (&labels["node.kubernetes.io/instance-type"], &labels["topology.kubernetes.io/zone"]);
            ensure!(
                id == ID && kind == "default" && place == (&json!(INSTANCE_TYPE), &json!(zone)),
                "labels: {labels}"
            );
        } else {
            ensure!(capacity_type == "on-demand" && id.is_null(), "labels: {labels}");
        }
    }
    ensure!(reserved == RESERVED, "{reserved} nodes have the label of reserved capacity");
    Ok(())
}
