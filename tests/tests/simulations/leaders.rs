//! A lease alone does not fence (rule 16), and a standby names the leader (rule 26).

use plimsoll_model::names::annotation;
use plimsoll_proto::actuator::v1::WatchLedgerRequest;
use plimsoll_proto::actuator::v1::actuator_service_client::ActuatorServiceClient;
use plimsoll_runtime::client_pool::LEADER_HEADER;
use plimsoll_sim::apiserver::faults::{Effect, Matcher};
use plimsoll_sim::apiserver::request::Verb;
use plimsoll_sim::apiserver::{ResourceId, object};
use plimsoll_sim::cloud::Action;
use plimsoll_sim::plimsoll::Role;
use plimsoll_sim::world::World;
use plimsoll_tests::{MINUTE, TestCluster, instances_ever_launched};
use std::time::Duration;
use tonic::Code;

/// A claim of the former leader arrives after this delay, when the next leader is active, whose watches lag. Returns
/// the epochs of all claims at the end.
async fn a_claim_arrives_after(late: Duration, lag: Duration) -> Vec<String> {
    let mut cluster = TestCluster::usual().await;
    let old = cluster.plimsoll.leader(Role::Actuator).unwrap();
    let standby = cluster.plimsoll.processes(Role::Actuator).into_iter().find(|process| *process != old).unwrap();
    cluster.world.server().faults().lag_watches(standby, lag);
    let create = Matcher { client: Some(old.clone()), ..Matcher::of(Verb::Create, "nodeclaims") };
    cluster.world.server().faults().always(create, Effect::Late(late));
    cluster.deploy("web", 1, 3000);
    // The call is made within one second.
    cluster.pass(Duration::from_secs(1)).await;
    cluster.plimsoll.kill(&old);
    while cluster.plimsoll.leader(Role::Actuator).is_none() {
        cluster.pass(Duration::from_millis(200)).await;
    }
    // The new process leads, while the call of the old leader is still in flight.
    assert!(cluster.claims().is_empty());
    cluster.until("the late claim arrives", late, |world| !world.all(ResourceId::NODE_CLAIMS).is_empty()).await;
    assert!(instances_ever_launched(&cluster.world).is_empty());
    cluster.until_running(1, 5 * MINUTE).await;
    cluster.pass(5 * MINUTE).await;
    assert_eq!(instances_ever_launched(&cluster.world).len(), 1, "{}", cluster.summary());
    cluster
        .claims()
        .iter()
        .filter_map(|claim| object::annotation(claim, annotation::EPOCH).map(str::to_owned))
        .collect()
}

/// The two leaders do not both launch nodes for the pods: the new leader waits until such calls have ended, and
/// continues with the claim.
#[tokio::test(start_paused = true)]
async fn a_claim_that_arrives_late_is_known_before_anything_is_admitted() {
    for lag in [0, 10] {
        let epochs = a_claim_arrives_after(Duration::from_secs(20), Duration::from_secs(lag)).await;
        assert_eq!(epochs, ["0"], "none of the new leader's own, whose watches lag {lag} s");
    }
}

/// Later than any call should take effect: the new leader already admits, so the claim is not launched.
#[tokio::test(start_paused = true)]
async fn a_claim_that_arrives_too_late_is_not_bought_for() {
    assert_eq!(a_claim_arrives_after(Duration::from_secs(25), Duration::ZERO).await, ["1"], "the new leader's own");
}

/// A leader that cannot renew its lease stops by its own clock, although other requests still succeed.
#[tokio::test(start_paused = true)]
async fn a_leader_that_cannot_renew_its_lease_does_nothing_more() {
    let cluster = TestCluster::usual().await;
    let old = cluster.plimsoll.leader(Role::Actuator).unwrap();
    let leases = Matcher { client: Some(old.clone()), resource: Some("leases"), ..Matcher::default() };
    cluster.world.server().faults().always(leases, Effect::Drop);
    cluster.pass(MINUTE).await;
    assert_ne!(cluster.plimsoll.leader(Role::Actuator), Some(old.clone()), "the other leads");
    let (requests, calls) = (cluster.world.server().audit().len(), cluster.world.ec2.read(|cloud, _| cloud.log.len()));
    cluster.deploy("web", 3, 1500);
    cluster.until_running(3, 5 * MINUTE).await;
    cluster.scale("web", 0);
    cluster.until_empty(10 * MINUTE).await;
    let audit = cluster.world.server().audit().split_off(requests);
    let reads = [Verb::Get, Verb::List, Verb::Watch];
    let wrote =
        audit.iter().find(|it| it.client == old && !reads.contains(&it.verb) && it.resource != ResourceId::LEASES);
    assert!(wrote.is_none(), "{wrote:?}");
    let mutating = [Action::CreateFleet, Action::TerminateInstances, Action::CreateTags, Action::CreateLaunchTemplate];
    let called = cluster.world.ec2.read(|cloud, _| {
        let after = cloud.log.iter().skip(calls);
        after.filter(|call| call.client == old && mutating.contains(&call.action)).count()
    });
    assert_eq!(called, 0);
}

#[tokio::test(start_paused = true)]
async fn a_process_that_lost_its_lease_may_lead_again() {
    let mut cluster = TestCluster::usual().await;
    let first = cluster.plimsoll.leader(Role::Actuator).unwrap();
    let leases = Matcher { client: Some(first.clone()), resource: Some("leases"), ..Matcher::default() };
    let rule = cluster.world.server().faults().always(leases, Effect::Drop);
    cluster.pass(MINUTE).await;
    cluster.world.server().faults().remove(rule);
    let second = cluster.plimsoll.leader(Role::Actuator).unwrap();
    assert_ne!(first, second);
    cluster.plimsoll.kill(&second);
    cluster.deploy("web", 1, 500);
    cluster.until_running(1, 3 * MINUTE).await;
    assert_eq!(cluster.plimsoll.leader(Role::Actuator), Some(first));
}

/// Rule 26: a standby responds with the name of the leader. It keeps its state warm, so that it can launch as soon as
/// it leads.
#[tokio::test(start_paused = true)]
async fn a_standby_names_the_leader_and_has_all_that_it_needs_to_lead() {
    let mut cluster = TestCluster::usual().await;
    // Time to read the Lease once more after the election.
    cluster.pass(Duration::from_secs(10)).await;
    let leader = cluster.plimsoll.leader(Role::Actuator).unwrap();
    let port = leader.rsplit_once('-').map(|(port, _)| port.to_owned()).unwrap();
    let standby = if port == "actuator-0" { "actuator-1" } else { "actuator-0" };
    let (_, channel) = cluster.plimsoll.network().pool("somebody", &[standby.to_owned()]).channel().await.unwrap();
    let refused = ActuatorServiceClient::new(channel).watch_ledger(WatchLedgerRequest {}).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable);
    assert_eq!(refused.metadata().get(LEADER_HEADER).unwrap().to_str().unwrap(), port);

    let reads = |world: &World| {
        world.ec2.read(|cloud, _| cloud.log.iter().filter(|call| call.action == Action::DescribeInstanceTypes).count())
    };
    let before = reads(&cluster.world);
    assert_eq!(before, 2, "both have read the offerings");
    cluster.plimsoll.kill(&leader);
    cluster.deploy("web", 1, 500);
    let took =
        cluster.until("an instance is launched", 2 * MINUTE, |world| !instances_ever_launched(world).is_empty()).await;
    assert_eq!(reads(&cluster.world), before, "the new leader reads nothing before the launch");
    // The old lease, then the same time again plus the longest call: nothing may be launched sooner.
    assert!(took < Duration::from_secs(50), "{took:?}");
}
