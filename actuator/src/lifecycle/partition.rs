//! The partition that EC2 has chosen for an instance.

use super::Lifecycle;
use crate::io::{ObjectPart, WriteError};
use crate::launch::record;
use crate::ports::InstanceFilter;
use plimsoll_api::NodeClaim;
use plimsoll_model::names::label;
use std::time::Duration;

/// Delay until EC2 is asked again.
const RETRY: Duration = Duration::from_secs(5);

/// Whether the claim's label waits for EC2's choice.
pub(super) fn is_missing(claim: &NodeClaim) -> bool {
    let labels = claim.metadata.labels.as_ref();
    labels.and_then(|labels| labels.get(label::PLACEMENT_GROUP_PARTITION)).is_some_and(String::is_empty)
}

/// Asks EC2 and writes the label. Returns when to ask again; `None` if the label was written, which starts another
/// pass.
pub(super) async fn fill(deps: &Lifecycle, claim: &NodeClaim) -> Result<Option<Duration>, WriteError> {
    let Some(id) = record::instance(claim) else { return Ok(Some(RETRY)) };
    let instances = deps.cloud_reads.instances(&InstanceFilter::Ids(vec![id.to_owned()])).await?;
    let Some(partition) = instances.first().and_then(|instance| instance.partition) else { return Ok(Some(RETRY)) };
    let apply = |claim: &mut NodeClaim| {
        if is_missing(claim) {
            let labels = claim.metadata.labels.get_or_insert_default();
            labels.insert(label::PLACEMENT_GROUP_PARTITION.to_owned(), partition.to_string());
        }
    };
    deps.writes.update(claim, ObjectPart::Main, apply).await?;
    Ok(None)
}
