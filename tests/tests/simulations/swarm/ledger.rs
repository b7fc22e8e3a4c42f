//! Once nothing changes any more, the ledger agrees with the cluster: it knows exactly the NodeClaims that are not in
//! service or are being deleted, and no pods are reserved for others.

use plimsoll_model::execution::{InFlightClaim, LedgerUpdate};
use plimsoll_model::names::label;
use plimsoll_proto::actuator::v1::WatchLedgerRequest;
use plimsoll_proto::actuator::v1::actuator_service_client::ActuatorServiceClient;
use plimsoll_sim::apiserver::{ResourceId, object};
use plimsoll_sim::plimsoll::Role;
use plimsoll_tests::{MINUTE, TestCluster};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::time::Instant;

/// Name of the process that reads the ledger.
const READER: &str = "ledger-reader";
/// Time until they agree: a NodeClaim may just be changing, or a leader being elected.
const LIMIT: Duration = Duration::from_secs(5 * 60);
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Waits until the ledger agrees with the cluster.
pub(super) async fn check(cluster: &TestCluster) {
    cluster.plimsoll.network().certify(READER, &Role::Watcher.dns_name());
    let started = Instant::now();
    loop {
        let known = tokio::time::timeout(MINUTE, in_flight(cluster)).await.ok().flatten();
        let open = open_claims(cluster);
        if known.as_ref().is_some_and(|known| known.keys().eq(&open)) {
            return;
        }
        let elapsed = started.elapsed();
        assert!(elapsed < LIMIT, "the ledger has {known:?} in flight, the cluster {open:?}\n{}", cluster.summary());
        cluster.pass(LOOK_EVERY).await;
    }
}

/// NodeClaims of the cluster that are not in service, or are being deleted.
fn open_claims(cluster: &TestCluster) -> BTreeSet<String> {
    let is_open = |claim: &Value| object::is_deleting(claim) || !object::condition_is_true(claim, "Initialized");
    let is_ours = |claim: &Value| object::label(claim, label::NODE_POOL).is_some();
    let claims = cluster.world.all(ResourceId::NODE_CLAIMS);
    let open = claims.iter().filter(|claim| is_open(claim) && is_ours(claim));
    open.map(|claim| object::name(claim).to_owned()).collect()
}

/// NodeClaims in flight according to the leader's ledger, each with its state and the pods that are reserved for it.
/// They include those in service that pods are reserved for. `None` if nobody leads.
async fn in_flight(cluster: &TestCluster) -> Option<BTreeMap<String, String>> {
    let leader = cluster.plimsoll.leader(Role::Actuator)?;
    let (port, _) = leader.rsplit_once('-')?;
    let pool = cluster.plimsoll.network().pool(READER, &[port.to_owned()]);
    let (_, channel) = pool.channel().await.ok()?;
    let mut updates = ActuatorServiceClient::new(channel).watch_ledger(WatchLedgerRequest {}).await.ok()?.into_inner();
    let mut names = BTreeMap::new();
    while let Some(update) = updates.message().await.ok()? {
        let update = LedgerUpdate::try_from(update).ok()?;
        let described = |claim: InFlightClaim| (claim.name, format!("{:?}, pods {:?}", claim.state, claim.pods));
        names.extend(update.upserted.into_iter().map(described));
        if update.complete {
            return Some(names);
        }
    }
    None
}
