//! Pods that plans place on existing or starting nodes. Nothing is reserved for these pods: a placement is a hint that
//! expires.

use parking_lot::Mutex;
use plimsoll_model::identity::{NodeName, PodUid};
use plimsoll_model::plan::{Plan, PodRef};
use plimsoll_model::time::{Millis, Timestamp};
use plimsoll_runtime::signal;
use std::collections::BTreeMap;
use std::sync::Arc;

/// How long a nomination to an existing node is valid. Within it, kube-scheduler binds or refuses the pod. Equals the
/// time that pods of a launch stay reserved once their node is initialized.
const NOMINATION_VALID: Millis = Millis::from_seconds(30);
/// How long a starting node is waited for. After this time the node is given up.
const NODE_ARRIVES_WITHIN: Millis = Millis::from_seconds(15 * 60);
/// Placements remembered. Pods beyond it are not nominated.
const MAX_PODS: usize = 50_000;

#[derive(Debug, Clone, PartialEq, Eq)]
struct PlacedPod {
    node: NodeName,
    received: Timestamp,
    /// Set once the node exists.
    until: Option<Timestamp>,
}

/// The latest planned placements of pods. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Placements {
    places: Arc<Mutex<BTreeMap<PodUid, PlacedPod>>>,
    changed: signal::Sender,
}

impl Placements {
    /// Records a plan's placements and returns those that are new. Placements of pods that the plan does not name stay.
    pub fn note<'a>(&self, plan: &'a Plan, now: Timestamp) -> Vec<(&'a PodRef, &'a NodeName)> {
        let (mut places, mut new) = (self.places.lock(), Vec::new());
        let launched = plan.launched_pods();
        for pod in launched.chain(plan.unschedulable.iter().map(|entry| &entry.pod)) {
            places.remove(&pod.uid);
        }
        for placement in &plan.placements {
            for pod in &placement.pods {
                if places.get(&pod.uid).is_some_and(|place| place.node == placement.node) {
                    continue;
                }
                if places.len() < MAX_PODS || places.contains_key(&pod.uid) {
                    places.insert(
                        pod.uid.clone(),
                        PlacedPod { node: placement.node.clone(), received: now, until: None },
                    );
                    new.push((pod, &placement.node));
                }
            }
        }
        drop(places);
        self.changed.notify();
        new
    }

    /// Subscribes to the signal of each plan.
    pub(crate) fn subscribe(&self) -> signal::Receiver {
        self.changed.subscribe()
    }

    /// Forgets pods that no longer wait. Recent placements stay, since the watch cache may not show their pods yet.
    pub(crate) fn retain(&self, waits: impl Fn(&PodUid) -> bool, now: Timestamp) {
        self.places.lock().retain(|uid, place| waits(uid) || place.received.plus(NOMINATION_VALID) > now);
    }

    /// The node of each pod whose node exists. `node` maps a plan's node name to the Node's name.
    pub(crate) fn resolve(&self, node: impl Fn(&str) -> Option<String>, now: Timestamp) -> BTreeMap<PodUid, String> {
        let (mut places, mut wanted) = (self.places.lock(), BTreeMap::new());
        places.retain(|uid, place| match node(place.node.as_str()) {
            Some(name) => {
                let is_valid = *place.until.get_or_insert(now.plus(NOMINATION_VALID)) > now;
                if is_valid {
                    wanted.insert(uid.clone(), name);
                }
                is_valid
            }
            None => place.received.plus(NODE_ARRIVES_WITHIN) > now,
        });
        wanted
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_model::plan::Placement;

    fn plan(node: &str, pods: &[&str]) -> Plan {
        let pod = |uid: &&str| PodRef { name: format!("shop/{uid}"), uid: (*uid).into() };
        let placement = Placement { node: node.into(), pods: pods.iter().map(pod).collect() };
        Plan { placements: vec![placement], ..Plan::default() }
    }

    #[test]
    fn of_too_many_pods_only_those_that_are_known_get_another_place() {
        let placements = Placements::default();
        let pods: Vec<String> = (0..MAX_PODS).map(|number| number.to_string()).collect();
        let all = plan("a", &pods.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(placements.note(&all, Timestamp(0)).len(), MAX_PODS);
        let new = |node: &str, pod: &str| placements.note(&plan(node, &[pod]), Timestamp(1)).len();
        assert_eq!([new("a", "0"), new("b", "0"), new("a", "one-more")], [0, 1, 0]);
    }
}
