//! Derives the cases of a flow from a run without faults.

use super::case::{Case, Fault, Operation, WatchFault, WriteFault};
use super::flow::Flow;
use super::play::{Mark, begin, settle};
use plimsoll_sim::apiserver::request::Verb;
use plimsoll_sim::plimsoll::Role;
use plimsoll_tests::TestCluster;
use std::collections::{BTreeMap, BTreeSet};

/// Enumerated renewals of a Lease per process. They are alike: a crash at a renewal is a crash between other writes.
const RENEWALS: u32 = 6;

/// Writes of each kind at which events are injected.
const EVENTS: u32 = 4;

/// Every write and every watch of a run, with each fault.
pub(super) async fn cases(flow: Flow) -> Vec<Case> {
    let (mut cluster, mark) = begin(flow).await;
    flow.act(&cluster);
    settle(flow, &mut cluster, None).await;
    flow.check(&cluster, mark.revision, 0);
    let mut faults = Vec::new();
    for ((client, operation), count) in writes(&cluster, &mark) {
        let is_lease = matches!(operation, Operation::Cluster { resource: "leases", .. });
        let most = if is_lease { RENEWALS } else { u32::MAX };
        for number in 1..=count.min(most) {
            let has_events = operation.is_central() && number <= EVENTS;
            let is_tried = |fault: &WriteFault| fault.concerns(operation) && (!fault.is_event() || has_events);
            for fault in WriteFault::ALL.iter().copied().filter(is_tried) {
                faults.push(Fault::Write { client: client.clone(), operation, number, fault });
            }
        }
    }
    for (service, resource) in watched(&cluster) {
        for fault in WatchFault::ALL.iter().copied() {
            faults.push(Fault::Watch { service: service.clone(), resource, fault });
        }
    }
    faults.into_iter().map(|fault| Case { flow, fault, also: Vec::new() }).collect()
}

/// Writes since the mark, by client and kind.
fn writes(cluster: &TestCluster, mark: &Mark) -> BTreeMap<(String, Operation), u32> {
    let requests = cluster.world.server().audit().into_iter().skip(mark.requests).filter_map(|entry| {
        Some((entry.client, Operation::of_request(entry.verb, entry.resource, &entry.subresource)?))
    });
    let calls = cluster.world.ec2.read(|cloud, _| cloud.log.clone());
    let calls =
        calls.into_iter().skip(mark.calls).filter_map(|call| Some((call.client, Operation::of_call(call.action)?)));
    let mut counts = BTreeMap::new();
    for write in requests.chain(calls).filter(|(client, _)| service_of(client).is_some()) {
        *counts.entry(write).or_default() += 1;
    }
    counts
}

/// Watched kinds, by service.
fn watched(cluster: &TestCluster) -> BTreeSet<(String, &'static str)> {
    let watches = cluster.world.server().audit().into_iter().filter(|entry| entry.verb == Verb::Watch);
    let named = |client: &str| service_of(client).map(|role| role.to_string());
    watches.filter_map(|entry| Some((named(&entry.client)?, entry.resource.get().plural))).collect()
}

/// Service of the process with this name.
fn service_of(client: &str) -> Option<Role> {
    let of = |role: &Role| client.starts_with(role.as_str());
    [Role::Watcher, Role::Scheduler, Role::Actuator].into_iter().find(of)
}
