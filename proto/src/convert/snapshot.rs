//! Conversion of snapshots and validation of their references. The submodules convert the objects.

mod capacity_quotas;
mod nodes;
mod pods;

use super::{ConvertError, ConvertResult, check_unique, list, no_errors, to_wire};
use crate::snapshot::v1 as wire;
use plimsoll_model::identity::{CatalogId, NodeName, ShapeId};
use plimsoll_model::snapshot::{LedgerPosition, Pod, PodState, Snapshot, SnapshotIndex};
use plimsoll_model::time::Timestamp;
use std::collections::BTreeSet;

impl From<LedgerPosition> for wire::LedgerPosition {
    fn from(position: LedgerPosition) -> Self {
        Self { epoch: position.epoch, sequence: position.sequence }
    }
}

impl From<wire::LedgerPosition> for LedgerPosition {
    fn from(position: wire::LedgerPosition) -> Self {
        Self { epoch: position.epoch, sequence: position.sequence }
    }
}

impl From<&Snapshot> for wire::Snapshot {
    fn from(snapshot: &Snapshot) -> Self {
        Self { pods: snapshot.pods.iter().map(wire::Pod::from).collect(), ..without_pods(snapshot) }
    }
}

/// Converts all objects but the pods.
pub(crate) fn without_pods(snapshot: &Snapshot) -> wire::Snapshot {
    wire::Snapshot {
        sequence: snapshot.sequence,
        ledger: Some(snapshot.ledger.into()),
        now_unix_ms: snapshot.now.0,
        shapes: to_wire(&snapshot.shapes),
        pods: Vec::new(),
        nodes: to_wire(&snapshot.nodes),
        node_pools: to_wire(&snapshot.node_pools),
        daemon_sets: to_wire(&snapshot.daemon_sets),
        pod_disruption_budgets: to_wire(&snapshot.pod_disruption_budgets),
        unavailable_offerings: to_wire(&snapshot.unavailable_offerings),
        ignored: to_wire(&snapshot.ignored),
        reservations: to_wire(&snapshot.reservations),
        capacity_quotas: to_wire(&snapshot.capacity_quotas),
    }
}

impl TryFrom<wire::Snapshot> for Snapshot {
    type Error = ConvertError;
    fn try_from(wire: wire::Snapshot) -> ConvertResult<Self> {
        let mut snapshot = partial(wire)
            .and_then(|snapshot| check(&snapshot).map(|()| snapshot))
            .map_err(|error| error.within("snapshot"))?;
        snapshot.sort();
        Ok(snapshot)
    }
}

/// Checks whether a receiver would accept `snapshot`. Pods are not converted, since a snapshot may have a million of
/// them.
///
/// # Errors
/// The error that a receiver would return.
pub fn check_snapshot(snapshot: &Snapshot) -> Result<(), ConvertError> {
    if !snapshot.pods.iter().all(pods::is_convertible) {
        return Snapshot::try_from(wire::Snapshot::from(snapshot)).map(|_| ());
    }
    partial(without_pods(snapshot)).and_then(|_| check(snapshot)).map_err(|error| error.within("snapshot"))
}

/// Converts the objects without checking for duplicate keys and dangling references.
pub(crate) fn partial(wire: wire::Snapshot) -> ConvertResult<Snapshot> {
    let shapes = list("shapes", wire.shapes);
    let pods: ConvertResult<Vec<Pod>> = list("pods", wire.pods);
    let nodes = list("nodes", wire.nodes);
    let node_pools = list("node_pools", wire.node_pools);
    let daemon_sets = list("daemon_sets", wire.daemon_sets);
    let pod_disruption_budgets = list("pod_disruption_budgets", wire.pod_disruption_budgets);
    let unavailable_offerings = list("unavailable_offerings", wire.unavailable_offerings);
    let ignored = list("ignored", wire.ignored);
    let reservations = list("reservations", wire.reservations);
    let capacity_quotas = list("capacity_quotas", wire.capacity_quotas);
    no_errors([
        shapes.as_ref().err(),
        pods.as_ref().err(),
        nodes.as_ref().err(),
        node_pools.as_ref().err(),
        daemon_sets.as_ref().err(),
        pod_disruption_budgets.as_ref().err(),
        unavailable_offerings.as_ref().err(),
        ignored.as_ref().err(),
        reservations.as_ref().err(),
        capacity_quotas.as_ref().err(),
    ])?;
    Ok(Snapshot {
        sequence: wire.sequence,
        ledger: wire.ledger.unwrap_or_default().into(),
        now: Timestamp(wire.now_unix_ms),
        shapes: shapes?,
        pods: pods?.into(),
        nodes: nodes?,
        node_pools: node_pools?,
        daemon_sets: daemon_sets?,
        pod_disruption_budgets: pod_disruption_budgets?,
        unavailable_offerings: unavailable_offerings?,
        reservations: reservations?,
        capacity_quotas: capacity_quotas?,
        ignored: ignored?,
    })
}

/// Checks that keys are unique and references are valid.
pub(crate) fn check(snapshot: &Snapshot) -> ConvertResult<()> {
    check_unique(&snapshot.shapes, "shapes", ".id", |shape| &shape.id)?;
    check_unique(&snapshot.pods, "pods", ".uid", |pod| &pod.uid)?;
    check_unique(&snapshot.nodes, "nodes", ".name", |node| &node.name)?;
    check_unique(&snapshot.node_pools, "node_pools", ".name", |pool| &pool.name)?;
    check_unique(&snapshot.daemon_sets, "daemon_sets", ".uid", |daemon_set| &daemon_set.uid)?;
    check_unique(&snapshot.pod_disruption_budgets, "pod_disruption_budgets", ".name", |budget| &budget.name)?;
    check_unique(&snapshot.unavailable_offerings, "unavailable_offerings", "", |offering| {
        (&offering.instance_type, &offering.zone, offering.capacity_type)
    })?;
    check_unique(&snapshot.ignored, "ignored", ".uid", |pod| &pod.uid)?;
    check_unique(&snapshot.capacity_quotas, "capacity_quotas", ".name", |quota| &quota.name)?;
    check_unique(&snapshot.reservations, "reservations", ".id", |count| &count.id)?;
    let shapes: BTreeSet<&ShapeId> = snapshot.shapes.iter().map(|shape| &shape.id).collect();
    let nodes: BTreeSet<&NodeName> = snapshot.nodes.iter().map(|node| &node.name).collect();
    let no_shape = |field: String, id: &ShapeId| ConvertError::new(field, format!("no shape {id:?}", id = id.as_str()));
    for (index, pod) in snapshot.pods.iter().enumerate() {
        if !shapes.contains(&pod.shape) {
            return Err(no_shape(format!("pods[{index}].shape"), &pod.shape));
        }
        let (field, node) = match &pod.state {
            PodState::Pending => continue,
            PodState::Reserved(node) => ("reserved_on", node),
            PodState::Bound(node) => ("bound_to", node),
        };
        if !nodes.contains(node) {
            return Err(ConvertError::new(format!("pods[{index}].{field}"), format!("no node {:?}", node.as_str())));
        }
    }
    for (index, daemon_set) in snapshot.daemon_sets.iter().enumerate() {
        if !shapes.contains(&daemon_set.shape) {
            return Err(no_shape(format!("daemon_sets[{index}].shape"), &daemon_set.shape));
        }
    }
    Ok(())
}

/// Like [`check`], for a snapshot with its index in which keys are known to be unique.
pub(crate) fn check_references(snapshot: &Snapshot, index: &SnapshotIndex) -> ConvertResult<()> {
    let has = |id: &ShapeId| snapshot.shapes.binary_search_by(|shape| shape.id.cmp(id)).is_ok();
    if index.dangling().is_none() && snapshot.daemon_sets.iter().all(|daemon_set| has(&daemon_set.shape)) {
        return Ok(());
    }
    check(snapshot)
}

/// Checks that the catalogs of all pools are known.
///
/// # Errors
/// The first pool, in snapshot order, whose catalog is not in `known`.
pub fn check_catalogs(snapshot: &Snapshot, known: &BTreeSet<CatalogId>) -> Result<(), ConvertError> {
    for (index, pool) in snapshot.node_pools.iter().enumerate() {
        if let Some(id) = pool.catalog.as_ref().filter(|id| !known.contains(id)) {
            let message = format!("no catalog {:?}, which pool {:?} refers to", id.as_str(), pool.name.as_str());
            return Err(ConvertError::new(format!("snapshot.node_pools[{index}].catalog"), message));
        }
    }
    Ok(())
}
