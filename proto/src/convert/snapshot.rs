//! Snapshots: the whole and what refers to what. The objects are in the modules below.

mod nodes;
mod pods;

use super::{ConvertError, Converted, each_once, list, to_wire};
use crate::snapshot::v1 as wire;
use plimsoll_model::identity::{CatalogId, NodeName, ShapeId};
use plimsoll_model::snapshot::{LedgerPosition, PodState, Snapshot, SnapshotIndex};
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
        Self { pods: to_wire(&snapshot.pods), ..without_pods(snapshot) }
    }
}

fn without_pods(snapshot: &Snapshot) -> wire::Snapshot {
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
    }
}

impl TryFrom<wire::Snapshot> for Snapshot {
    type Error = ConvertError;
    fn try_from(wire: wire::Snapshot) -> Converted<Self> {
        let mut snapshot = partial(wire)
            .and_then(|snapshot| check(&snapshot).map(|()| snapshot))
            .map_err(|error| error.within("snapshot"))?;
        snapshot.sort();
        Ok(snapshot)
    }
}

/// Whether a receiver would accept `snapshot`. Pods are not converted, since a snapshot may hold a million of them.
///
/// # Errors
/// The error that a receiver would return for it.
pub fn check_snapshot(snapshot: &Snapshot) -> Result<(), ConvertError> {
    if !snapshot.pods.iter().all(pods::is_convertible) {
        return Snapshot::try_from(wire::Snapshot::from(snapshot)).map(|_| ());
    }
    partial(without_pods(snapshot)).and_then(|_| check(snapshot)).map_err(|error| error.within("snapshot"))
}

/// Objects as they came, each by itself: keys may be there twice, references may lead nowhere.
pub(crate) fn partial(wire: wire::Snapshot) -> Converted<Snapshot> {
    Ok(Snapshot {
        sequence: wire.sequence,
        ledger: wire.ledger.unwrap_or_default().into(),
        now: Timestamp(wire.now_unix_ms),
        shapes: list("shapes", wire.shapes)?,
        pods: list("pods", wire.pods)?,
        nodes: list("nodes", wire.nodes)?,
        node_pools: list("node_pools", wire.node_pools)?,
        daemon_sets: list("daemon_sets", wire.daemon_sets)?,
        pod_disruption_budgets: list("pod_disruption_budgets", wire.pod_disruption_budgets)?,
        unavailable_offerings: list("unavailable_offerings", wire.unavailable_offerings)?,
        ignored: list("ignored", wire.ignored)?,
    })
}

/// Each key once, and every reference leads somewhere.
pub(crate) fn check(snapshot: &Snapshot) -> Converted<()> {
    each_once(&snapshot.shapes, "shapes", ".id", |shape| &shape.id)?;
    each_once(&snapshot.pods, "pods", ".uid", |pod| &pod.uid)?;
    each_once(&snapshot.nodes, "nodes", ".name", |node| &node.name)?;
    each_once(&snapshot.node_pools, "node_pools", ".name", |pool| &pool.name)?;
    each_once(&snapshot.daemon_sets, "daemon_sets", ".uid", |daemon_set| &daemon_set.uid)?;
    each_once(&snapshot.pod_disruption_budgets, "pod_disruption_budgets", ".name", |budget| &budget.name)?;
    each_once(&snapshot.unavailable_offerings, "unavailable_offerings", "", |offering| {
        (&offering.instance_type, &offering.zone, offering.capacity_type)
    })?;
    each_once(&snapshot.ignored, "ignored", ".uid", |pod| &pod.uid)?;
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

/// As [`check`] for a snapshot with its index, in which each key is known to be there once.
pub(crate) fn check_references(snapshot: &Snapshot, index: &SnapshotIndex) -> Converted<()> {
    let has = |id: &ShapeId| snapshot.shapes.binary_search_by(|shape| shape.id.cmp(id)).is_ok();
    if index.dangling().is_none() && snapshot.daemon_sets.iter().all(|one| has(&one.shape)) {
        return Ok(());
    }
    check(snapshot)
}

/// Whether the catalog of every pool is known.
///
/// # Errors
/// At the first pool (in the snapshot's order) whose catalog is not in `known`.
pub fn check_catalogs(snapshot: &Snapshot, known: &BTreeSet<CatalogId>) -> Result<(), ConvertError> {
    for (index, pool) in snapshot.node_pools.iter().enumerate() {
        if let Some(id) = pool.catalog.as_ref().filter(|id| !known.contains(id)) {
            let message = format!("no catalog {:?}, which pool {:?} refers to", id.as_str(), pool.name.as_str());
            return Err(ConvertError::new(format!("snapshot.node_pools[{index}].catalog"), message));
        }
    }
    Ok(())
}
