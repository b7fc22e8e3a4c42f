//! Launching: groups of claims that one CreateFleet buys (safety rules 1 to 4).

pub mod admit;
pub mod attempt;
pub mod build;
pub mod create;
pub mod group;
pub mod launcher;
pub mod matching;
pub mod record;
pub mod replacement;
pub mod request;
pub mod run;
pub mod settle;
pub mod tagging;
pub mod write;

pub use launcher::Launches;
pub use replacement::{Replaced, request_replacement};

use crate::context::Context;
use plimsoll_api::{EC2NodeClass, NodePool};
use std::sync::Arc;

/// A node class as our watch shows it.
#[must_use]
pub fn class_named(context: &Context, name: &str) -> Option<Arc<EC2NodeClass>> {
    context.stores.classes.get(name)
}

/// A pool as our watch shows it.
#[must_use]
pub fn pool_named(context: &Context, name: &str) -> Option<Arc<NodePool>> {
    context.stores.pools.get(name)
}
