//! Pods that plans place on nodes which are there or on their way. Nothing is reserved for them: it is a hint that ages.

use parking_lot::Mutex;
use plimsoll_model::identity::{NodeName, PodUid};
use plimsoll_model::plan::Plan;
use plimsoll_model::time::{Millis, Timestamp};
use plimsoll_runtime::signal;
use std::collections::BTreeMap;
use std::sync::Arc;

/// How long a nomination to a node that is there stands: kube-scheduler binds within it, or refuses the pod. The same as pods of
/// a launch stay reserved once their node is in service.
const STANDS: Millis = Millis::from_seconds(30);
/// How long a node that is on its way is waited for: longer than that, it is given up.
const ARRIVES: Millis = Millis::from_seconds(15 * 60);
/// Pods remembered. Beyond it kube-scheduler goes by its own order.
const MOST: usize = 50_000;

#[derive(Debug, Clone, PartialEq, Eq)]
struct Place {
    node: NodeName,
    told: Timestamp,
    /// Set once the node is there.
    until: Option<Timestamp>,
}

/// Where the latest plans place pods. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Placed {
    places: Arc<Mutex<BTreeMap<PodUid, Place>>>,
    changed: signal::Sender,
}

impl Placed {
    /// Takes in what a plan says of the pods that it names; of others, what was said before stands.
    pub fn note(&self, plan: &Plan, now: Timestamp) {
        let mut places = self.places.lock();
        let launched = plan.launches.iter().flat_map(|launch| &launch.pods);
        for pod in launched.chain(plan.unschedulable.iter().map(|it| &it.pod)) {
            places.remove(&pod.uid);
        }
        for placement in &plan.placements {
            for pod in &placement.pods {
                if places.get(&pod.uid).is_some_and(|place| place.node == placement.node) {
                    continue;
                }
                if places.len() < MOST || places.contains_key(&pod.uid) {
                    places.insert(pod.uid.clone(), Place { node: placement.node.clone(), told: now, until: None });
                }
            }
        }
        drop(places);
        self.changed.tell();
    }

    /// Tells of every plan.
    pub(crate) fn subscribe(&self) -> signal::Receiver {
        self.changed.subscribe()
    }

    /// Forgets pods that do not wait any more. One that was placed just now may not be seen yet.
    pub(crate) fn retain(&self, waits: impl Fn(&PodUid) -> bool, now: Timestamp) {
        self.places.lock().retain(|uid, place| waits(uid) || place.told.plus(STANDS) > now);
    }

    /// The node of each pod whose node is there; `node` says which that is, by the name that plans have for it.
    pub(crate) fn take(&self, node: impl Fn(&str) -> Option<String>, now: Timestamp) -> BTreeMap<PodUid, String> {
        let (mut places, mut wanted) = (self.places.lock(), BTreeMap::new());
        places.retain(|uid, place| match node(place.node.as_str()) {
            Some(name) => {
                let stands = *place.until.get_or_insert(now.plus(STANDS)) > now;
                if stands {
                    wanted.insert(uid.clone(), name);
                }
                stands
            }
            None => place.told.plus(ARRIVES) > now,
        });
        wanted
    }
}
