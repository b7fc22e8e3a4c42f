//! Notices that capacity is about to be taken back (safety rule 13): the claim is marked and deleted at once, so that the next
//! snapshot has its pods to place; the drain waits for the replacement, but not for long.

mod health;
mod hold;
mod mark;
pub mod messages;
mod queue;
mod room;

pub(crate) use hold::{Owed, hold};

use crate::context::Context;
use crate::lifecycle::provider_id;
use crate::termination::instance_id;
use plimsoll_api::NodeClaim;
use plimsoll_model::time::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// The value of [`plimsoll_model::names::annotation::INTERRUPTED`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interruption {
    /// What was said, as in metrics.
    pub kind: String,
    /// When it was heard.
    pub heard: Timestamp,
}

/// Listens for notices, and looks at the health of instances, until `stop`.
pub async fn run(context: Context, stop: CancellationToken) {
    context.stores.wait_ready().await;
    tokio::join!(queue::run(&context, &stop), health::run(&context, &stop));
}

/// Claims by their instance.
fn claims_by_instance(context: &Context) -> BTreeMap<String, Arc<NodeClaim>> {
    let claims = context.stores.claims.state();
    let with_instance = claims.into_iter().filter_map(|claim| {
        let id = provider_id(&claim).and_then(instance_id).map(str::to_owned)?;
        Some((id, claim))
    });
    with_instance.collect()
}
