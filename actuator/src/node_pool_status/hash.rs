//! The hash for drift detection. It is written to the pool, and to its claims when the hash algorithm changes.

use crate::drift_hash::DriftHash;
use crate::io::{ObjectPart, WriteError};
use crate::node_pool_status::NodePoolStatus;
use kube::ResourceExt;
use plimsoll_api::{NodePool, hash};
use plimsoll_model::names::annotation;

/// Updates the claims of the pool that another algorithm has hashed. Must be called before [`mark`].
///
/// # Errors
/// A claim was not written.
pub(super) async fn carry_over_claims(deps: &NodePoolStatus, pool: &NodePool) -> Result<(), WriteError> {
    let (name, mut claims) = (pool.name_any(), deps.stores.claims.state());
    claims.retain(|claim| claim.node_pool() == name);
    current(pool).carry_over_claims(&deps.writes, pool, claims).await
}

/// Writes the annotations of the pool.
pub(super) async fn mark(deps: &NodePoolStatus, pool: &NodePool) -> Result<(), WriteError> {
    // The update may see a newer template.
    deps.writes.update(pool, ObjectPart::Main, |pool| current(pool).mark(pool)).await?;
    Ok(())
}

fn current(pool: &NodePool) -> DriftHash {
    DriftHash {
        key: annotation::NODE_POOL_HASH,
        version_key: annotation::NODE_POOL_HASH_VERSION,
        version: hash::NODE_POOL_VERSION,
        hash: hash::node_pool(&pool.spec.template),
    }
}
