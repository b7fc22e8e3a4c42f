//! The fence before every effect (rules 16 and 20), and reads, which have timeouts.

use plimsoll_actuator::args::lease_config;
use plimsoll_actuator::fencing::{CLOUD_CALL, CLUSTER_CALL, Fence, NotAllowed};
use plimsoll_actuator::io::{Connections, ReadError};
use plimsoll_actuator::metrics::ActuatorMetrics;
use plimsoll_actuator::ports::{Cloud, CloudError, InstanceFilter};
use plimsoll_runtime::lease::Election;
use plimsoll_runtime::metrics::Metrics;
use plimsoll_sim::apiserver::ResourceId;
use plimsoll_sim::apiserver::faults::{Effect as ApiEffect, Gate, Matcher};
use plimsoll_sim::apiserver::request::Verb;
use plimsoll_sim::apiserver::store::Write;
use plimsoll_sim::cloud::{Action, Effect};
use plimsoll_sim::machines::NAMESPACE;
use plimsoll_sim::world::{World, WorldConfig};
use plimsoll_tests::HOUR;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

const SECOND: Duration = Duration::from_secs(1);
/// A lease, and the longest call under it.
const FORMER_LEADER: Duration = Duration::from_secs(15 + 8);

fn world() -> World {
    World::start(WorldConfig { types: Some(Vec::new()), ..WorldConfig::default() }).unwrap()
}

/// The fence of a process that leads, where claims have epochs up to `highest`, and the sender of its pause.
async fn fence(world: &World, highest: Option<u64>) -> (Fence, watch::Sender<Option<String>>) {
    let server = world.server();
    let config = lease_config(NAMESPACE, "leader".to_owned());
    let (election, mut states) = Election::new(server.client("leader"), config, server.clock()).unwrap();
    tokio::spawn(election.run(CancellationToken::new()));
    let guard = states.wait_for(|state| state.guard().is_some()).await.unwrap().guard().cloned().unwrap();
    let (pause, pauses) = watch::channel(None);
    (Fence::new(guard, highest, pauses), pause)
}

/// Whether an effect with this timeout is carried out now.
async fn is_carried_out(fence: &Fence, deadline: Duration) -> Result<bool, NotAllowed> {
    let mut is_done = false;
    fence.run(deadline, async { is_done = true }).await?;
    Ok(is_done)
}

/// Claims without a known Lease show that there was a leader: its last call may still take effect.
#[tokio::test(start_paused = true)]
async fn the_first_leader_admits_at_once_only_if_there_are_no_claims() {
    let world = world();
    let (fence, _pause) = fence(&world, None).await;
    assert_eq!((fence.epoch(), fence.check_admission()), (0, Ok(())));
    let world = self::world();
    let started = Instant::now();
    let (fence, _pause) = self::fence(&world, Some(7)).await;
    assert_eq!((fence.epoch(), fence.check_admission()), (8, Err(NotAllowed::Quarantine)));
    assert_eq!(fence.check(CLOUD_CALL), Ok(()), "what was admitted before goes on");
    fence.quarantine().await;
    assert!(started.elapsed() >= FORMER_LEADER && started.elapsed() < FORMER_LEADER + SECOND);
    assert_eq!(fence.check_admission(), Ok(()));
}

/// Only the status that tells of the pause is written.
#[tokio::test(start_paused = true)]
async fn nothing_is_carried_out_during_a_pause() {
    let world = world();
    let (mut fence, pause) = fence(&world, None).await;
    assert_eq!(is_carried_out(&fence, CLUSTER_CALL).await, Ok(true));
    pause.send_replace(Some("Karpenter".to_owned()));
    tokio::time::timeout(SECOND, fence.pause_changed()).await.unwrap();
    assert_eq!(fence.paused().as_deref(), Some("Karpenter"));
    let paused = NotAllowed::Paused("Karpenter".to_owned());
    assert_eq!(is_carried_out(&fence, CLUSTER_CALL).await, Err(paused.clone()));
    assert_eq!(fence.check_admission(), Err(paused));
    assert_eq!(fence.run_while_paused(async { 1 }).await, Ok(1));
    pause.send_replace(None);
    assert_eq!(is_carried_out(&fence, CLUSTER_CALL).await, Ok(true));
    fence.pause_changed().await;
    drop(pause);
    assert!(tokio::time::timeout(HOUR, fence.pause_changed()).await.is_err(), "nothing changes any more");
}

/// A call must end before the lease does, which lasts for 15 s from the last renewal.
#[tokio::test(start_paused = true)]
async fn nothing_begins_that_could_outlast_the_lease() {
    let world = world();
    let (fence, _pause) = fence(&world, None).await;
    world.server().faults().always(Matcher { resource: Some("leases"), ..Matcher::default() }, ApiEffect::Drop);
    tokio::time::sleep(6 * SECOND).await;
    assert_eq!(is_carried_out(&fence, CLOUD_CALL).await, Ok(true));
    tokio::time::sleep(3 * SECOND).await;
    assert_eq!(is_carried_out(&fence, CLOUD_CALL).await, Err(NotAllowed::NotLeader), "8 s from now are too many");
    assert_eq!(fence.check_admission(), Err(NotAllowed::NotLeader));
    assert_eq!(is_carried_out(&fence, CLUSTER_CALL).await, Ok(true), "4 s are not");
    assert_eq!(fence.run_while_paused(async { 1 }).await, Ok(1));
    tokio::time::sleep(3 * SECOND).await;
    assert_eq!(is_carried_out(&fence, CLUSTER_CALL).await, Err(NotAllowed::NotLeader));
    assert_eq!(fence.run_while_paused(async { 1 }).await, Err(NotAllowed::NotLeader));
    assert!(fence.lost().is_cancelled());
}

#[tokio::test(start_paused = true)]
async fn a_call_without_an_answer_ends_in_time() {
    let world = world();
    let (fence, _pause) = fence(&world, None).await;
    let started = Instant::now();
    let never = || std::future::pending::<()>();
    assert_eq!(fence.run(CLOUD_CALL, never()).await, Err(NotAllowed::TimedOut(CLOUD_CALL)));
    assert_eq!(fence.run_while_paused(never()).await, Err(NotAllowed::TimedOut(CLUSTER_CALL)));
    assert!(started.elapsed() < CLOUD_CALL + CLUSTER_CALL + SECOND, "{:?}", started.elapsed());
}

/// The actuator's connections without interruption queue and zonal shifts.
fn connections(world: &World) -> Connections {
    let ec2 = Arc::new(world.ec2.clone());
    let cloud = Cloud {
        compute: ec2.clone(),
        parameters: ec2.clone(),
        profiles: ec2.clone(),
        prices: ec2,
        queue: None,
        managed_resource: None,
    };
    Connections::new(world.server().client("reader"), cloud, ActuatorMetrics::new(&Metrics::new("actuator")).unwrap())
}

/// A new leader that knew only a part would launch nodes for the pods of the others.
#[tokio::test(start_paused = true)]
async fn all_pages_of_claims_are_listed() {
    /// More than two pages.
    const CLAIMS: usize = 1001;
    let world = world();
    let write = Write::new(world.server().now(), "test");
    for number in 0..CLAIMS {
        let claim = json!({"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
            "metadata": {"name": format!("c-{number}")}, "spec": {"requirements": [],
            "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}}});
        world.server().write(|store| store.create(ResourceId::NODE_CLAIMS, "", claim, &write)).unwrap();
    }
    let reads = connections(&world).reads();
    assert_eq!(reads.claims().await.unwrap().len(), CLAIMS);
    let audit = world.server().audit();
    assert_eq!(audit.iter().filter(|entry| entry.verb == Verb::List).count(), 3);
    assert_eq!(reads.claim("c-7").await.unwrap().unwrap().metadata.name.as_deref(), Some("c-7"));
    assert!(reads.claim("c-none").await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn reads_without_an_answer_end_in_time() {
    let world = world();
    let nodeclaims = Matcher { resource: Some("nodeclaims"), ..Matcher::default() };
    world.server().faults().always(nodeclaims, ApiEffect::HoldBefore(Gate::default()));
    let connections = connections(&world);
    let reads = connections.reads();
    let page = reads.claims().await.unwrap_err();
    assert!(matches!(page, ReadError::TimedOut(limit) if limit > CLUSTER_CALL), "{page}: the list is long");
    let one = reads.claim("c").await.unwrap_err();
    assert!(matches!(one, ReadError::TimedOut(limit) if limit == CLUSTER_CALL), "{one}");
    let slow = Effect::Delay(HOUR);
    world.ec2.faults(|faults| faults.inject(Action::DescribeInstances, slow, u32::MAX));
    let (reads, filter) = (connections.cloud_reads(), InstanceFilter::Ids(vec!["i-1".to_owned()]));
    let started = Instant::now();
    let is_unavailable = |error: &CloudError| matches!(error, CloudError::Unavailable { .. });
    assert!(reads.instances(&filter).await.is_err_and(|error| is_unavailable(&error)));
    assert!(started.elapsed() < CLOUD_CALL + SECOND);
    assert!(reads.all_instances(&filter).await.is_err_and(|error| is_unavailable(&error)));
    assert!(started.elapsed() > 10 * CLOUD_CALL && started.elapsed() < HOUR, "the list is long");
}

/// As EC2 allows them.
#[tokio::test(start_paused = true)]
async fn reads_of_instances_are_limited_to_twenty_a_second() {
    let world = world();
    let (reads, filter) = (connections(&world).cloud_reads(), InstanceFilter::Ids(Vec::new()));
    let started = Instant::now();
    for _ in 0..45 {
        reads.instances(&filter).await.unwrap();
        reads.all_instances(&filter).await.unwrap();
    }
    // Fifty at once.
    assert_eq!((started.elapsed().as_millis() + 50) / 100, 20, "{:?}", started.elapsed());
}

#[tokio::test(start_paused = true)]
async fn an_installation_may_have_no_queue_and_follow_no_zonal_shifts() {
    let reads = connections(&world()).cloud_reads();
    assert!(!reads.has_queue() && !reads.follows_zonal_shifts());
    assert_eq!(reads.receive().await.unwrap(), []);
    assert_eq!(reads.zonal_shifts().await.unwrap(), []);
}
