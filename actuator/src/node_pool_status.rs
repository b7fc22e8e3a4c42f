//! What pools show of themselves: hash, conditions, what they have (spec: core sections 1.1 and 6.2), and what claims show of
//! their drift and their last pod.

mod claims;
mod health;
mod pools;

pub use health::Registrations;

use crate::context::Context;
use tokio_util::sync::CancellationToken;

/// Keeps it up to date until `stop`.
pub async fn run(context: Context, stop: CancellationToken) {
    context.stores.wait_ready().await;
    tokio::join!(pools::run(&context, &stop), claims::run(&context, &stop));
}
