//! Wire format: any bytes are rejected with the field's path, or decode to a model that survives a round trip.

use plimsoll_model::catalog::{Catalog, InstanceType};
use plimsoll_model::execution::{CatalogUpdate, Execution, LedgerUpdate, Outcome};
use plimsoll_model::plan::Plan;
use plimsoll_model::snapshot::Snapshot;
use plimsoll_proto::convert::ConvertError;
use plimsoll_proto::delta::{self, Mirror};
use plimsoll_proto::{actuator, catalog, plan, snapshot};
use prost::Message;
use std::fmt::Debug;

/// Objects per chunk. The number is low, so that small snapshots have several chunks.
const PER_CHUNK: usize = 2;

/// The first byte selects the type of the message in the other bytes.
///
/// # Panics
/// If the property is violated.
pub fn holds(data: &[u8]) {
    let Some((kind, bytes)) = data.split_first() else { return };
    match kind % 8 {
        0 => drop(there_and_back::<snapshot::v1::Snapshot, Snapshot>(bytes)),
        1 => catalogs(bytes),
        2 => drop(there_and_back::<plan::v1::Plan, Plan>(bytes)),
        3 => drop(there_and_back::<actuator::v1::ExecuteRequest, Execution>(bytes)),
        4 => drop(there_and_back::<actuator::v1::ExecuteResponse, Outcome>(bytes)),
        5 => drop(there_and_back::<actuator::v1::WatchLedgerResponse, LedgerUpdate>(bytes)),
        6 => drop(there_and_back::<actuator::v1::WatchCatalogResponse, CatalogUpdate>(bytes)),
        _ => changes(bytes),
    }
}

fn has_path(error: &ConvertError) {
    assert!(!error.path.is_empty() && !error.message.is_empty(), "where is {error}?");
}

/// The model of a message, if the message is valid.
fn there_and_back<Wire, Model>(bytes: &[u8]) -> Option<Model>
where
    Wire: Message + Default + for<'model> From<&'model Model>,
    Model: TryFrom<Wire, Error = ConvertError> + PartialEq + Debug,
{
    let wire = Wire::decode(bytes).ok()?;
    let model = Model::try_from(wire).inspect_err(has_path).ok()?;
    let sent = Wire::from(&model).encode_to_vec();
    let received = Wire::decode(sent.as_slice()).map(Model::try_from);
    assert!(received.is_ok(), "what was sent is no message");
    let received = received.ok()?;
    assert_eq!(received.as_ref(), Ok(&model), "the model changed in a round trip");
    Some(model)
}

/// The id of a catalog is a hash of its content, which random bytes never match. Only the content comes from the bytes.
fn catalogs(bytes: &[u8]) {
    let Ok(wire) = catalog::v1::Catalog::decode(bytes) else { return };
    if let Err(error) = Catalog::try_from(wire.clone()) {
        has_path(&error);
    }
    let types: Result<Vec<_>, _> = wire.instance_types.into_iter().map(InstanceType::try_from).collect();
    let Ok(mut instance_types) = types.inspect_err(has_path) else { return };
    instance_types.sort_by(|a, b| a.name.cmp(&b.name));
    instance_types.dedup_by(|a, b| a.name == b.name);
    let model = Catalog { region: wire.region, instance_types };
    let sent = catalog::v1::Catalog::from(&model).encode_to_vec();
    assert_eq!(
        there_and_back::<catalog::v1::Catalog, Catalog>(&sent),
        Some(model),
        "a catalog is refused that was sent"
    );
}

/// For two snapshots, the delta applied to the first gives the second, and the chunks of each reproduce it.
fn changes(bytes: &[u8]) {
    let Some((at, bytes)) = bytes.split_first_chunk::<2>() else { return };
    let at = usize::from(u16::from_be_bytes(*at)).min(bytes.len());
    let (old, new) = bytes.split_at(at);
    let old = there_and_back::<snapshot::v1::Snapshot, Snapshot>(old);
    let new = there_and_back::<snapshot::v1::Snapshot, Snapshot>(new);
    let (Some(old), Some(new)) = (old, new) else { return };
    let mut mirror = Mirror::default();
    let mut last = Ok(false);
    for chunk in delta::chunks(&old, PER_CHUNK) {
        last = mirror.apply_chunk(chunk);
    }
    assert_eq!(last, Ok(true), "the chunks do not complete the snapshot");
    assert_eq!(mirror.snapshot(), Some(&old));
    assert_eq!(mirror.apply_delta(delta::diff(&old, &new)), Ok(()), "a difference cannot be applied");
    assert_eq!(mirror.snapshot(), Some(&new));
}
