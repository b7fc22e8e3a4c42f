//! Runs one case.

use super::case::{Case, Fault, Operation, WatchFault, WriteFault};
use super::flow::Flow;
use super::incident::Incident;
use crate::observer::Observer;
use crate::oracle;
use plimsoll_sim::apiserver::faults::{Distortion, Effect, Gate, Matcher, WatchMatcher};
use plimsoll_sim::apiserver::store::Store;
use plimsoll_sim::cloud::Effect as CloudEffect;
use plimsoll_tests::{MINUTE, TestCluster};
use std::time::Duration;
use tokio::time::Instant;

/// Delay of late writes and events: longer than any time-out of a call, shorter than the final wait.
const LATE: Duration = Duration::from_secs(20);
/// Time after which actuators know of a change, with one late write or late events.
const SETTLED: Duration = MINUTE;
/// Time for which events are collected to be dropped or reordered.
const COLLECTED: Duration = Duration::from_secs(3);
/// Maximum time until a flow reaches its end state with one fault: garbage collection takes several rounds, and a new
/// leader waits for its predecessor's calls.
const LIMIT: Duration = Duration::from_secs(40 * 60);
/// Time for which the end state must last: nothing is launched or removed.
const QUIET: Duration = Duration::from_secs(3 * 60);
/// Polling interval.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// State of the records before the flow began.
pub(super) struct Mark {
    pub(super) requests: usize,
    pub(super) calls: usize,
    pub(super) revision: u64,
}

/// The cluster before the flow begins.
pub(super) async fn begin(flow: Flow) -> (TestCluster, Mark) {
    let cluster = TestCluster::begin(flow.setup()).await;
    flow.prepare(&cluster).await;
    let server = cluster.world.server();
    let (requests, revision) = (server.audit().len(), server.read(Store::revision));
    let mark = Mark { requests, calls: cluster.world.ec2.read(|cloud, _| cloud.log.len()), revision };
    (cluster, mark)
}

/// Waits until a flow reaches its end state, and checks that it lasts.
pub(super) async fn settle(flow: Flow, cluster: &mut TestCluster, mut incident: Option<Incident>) {
    let started = Instant::now();
    let mut done_since: Option<Instant> = None;
    let mut second = Some(started + flow.second_act_after());
    let mut observer = Observer::new(SETTLED, None);
    loop {
        match &mut incident {
            Some(incident) => incident.pass(cluster, LOOK_EVERY).await,
            None => cluster.pass(LOOK_EVERY).await,
        }
        if second.is_some_and(|at| Instant::now() >= at) {
            second = None;
            flow.act_again(cluster);
        }
        oracle::always(cluster);
        observer.look(cluster);
        let is_over =
            second.is_none() && incident.as_ref().is_none_or(Incident::is_over) && flow.is_done(&cluster.world);
        done_since = if is_over { done_since.or(Some(Instant::now())) } else { None };
        if done_since.is_some_and(|since| since.elapsed() >= QUIET) {
            return;
        }
        assert!(started.elapsed() < LIMIT, "the flow does not end within {LIMIT:?}\n{}", cluster.summary());
    }
}

/// Runs a case and checks the invariants.
pub(super) async fn play(case: &Case) {
    let Case { flow, fault, also } = case;
    let (mut cluster, mark) = begin(*flow).await;
    let incident = arm(&cluster, fault);
    for also in also {
        drop(arm(&cluster, also));
    }
    flow.act(&cluster);
    settle(*flow, &mut cluster, incident).await;
    cluster.world.server().faults().end_distortions();
    // NodeClaims that a user deletes may have been launched, and pods whose node was removed need another.
    let deleted = match fault {
        Fault::Write { fault: WriteFault::CrashDeleted, .. } => flow.purchases(),
        _ => 0,
    };
    // A removal that is undone because of its pods may launch another replacement later.
    let undone = matches!(fault, Fault::Write { fault: WriteFault::LateProtected, .. });
    flow.check(&cluster, mark.revision, deleted + usize::from(undone));
    flow.end(&cluster);
    cluster.until_empty(45 * MINUTE).await;
    oracle::at_the_end(&cluster, deleted + flow.strays());
    oracle::fenced(&cluster.world);
}

/// Prepares the fault of a case for its write.
fn arm(cluster: &TestCluster, fault: &Fault) -> Option<Incident> {
    match fault {
        Fault::Watch { service, resource, fault } => {
            let watches = WatchMatcher { client: service.clone(), resource: Some(resource) };
            let distortion = match fault {
                WatchFault::Stale => Distortion::Stale(LATE),
                WatchFault::Dropped => Distortion::Dropped(COLLECTED),
                WatchFault::Reordered => Distortion::Reordered(COLLECTED),
                WatchFault::Duplicated => Distortion::Duplicated,
            };
            cluster.world.server().faults().distort_watches(watches, distortion);
            None
        }
        Fault::Write { client, operation, number, fault } => {
            let gate = Gate::default();
            match operation {
                Operation::Cluster { verb, resource, subresource } => {
                    let effect = match fault {
                        WriteFault::CrashBefore => Effect::HoldBefore(gate.clone()),
                        WriteFault::AnswerLost => Effect::LoseAnswer,
                        WriteFault::Late | WriteFault::LateProtected => Effect::Late(LATE),
                        _ => Effect::HoldAfter(gate.clone()),
                    };
                    let write = Matcher {
                        client: Some(client.clone()),
                        verb: Some(*verb),
                        resource: Some(resource),
                        subresource: Some(subresource),
                        name: None,
                    };
                    let faults = cluster.world.server().faults();
                    if *fault == WriteFault::LateProtected {
                        faults.nth(*number, write.clone(), Effect::HoldBefore(gate.clone()));
                    }
                    faults.nth(*number, write, effect);
                }
                Operation::Cloud(action) => {
                    let effect = match fault {
                        WriteFault::CrashBefore => CloudEffect::HoldBefore(gate.clone()),
                        WriteFault::AnswerLost => CloudEffect::LoseAnswer,
                        WriteFault::Late => CloudEffect::Late(LATE),
                        _ => CloudEffect::HoldAfter(gate.clone()),
                    };
                    cluster.world.ec2.faults(|faults| faults.nth(*number, client.clone(), *action, effect));
                }
            }
            let waits = !matches!(fault, WriteFault::AnswerLost | WriteFault::Late);
            waits.then(|| Incident::new(client, *operation, *fault, gate, cluster.world.server().now()))
        }
    }
}
