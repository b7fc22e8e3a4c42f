//! Maps the pods of a plan to their numbers in the snapshot. Several checks use each pod, and a lookup by UID among a
//! million pods costs more than the rest of a check.

use plimsoll_model::plan::{Plan, PodRef};
use plimsoll_model::snapshot::PodList;
use std::collections::HashMap;

/// If the plan has more than 1/`HASH_MAP_SHARE` of all pods, building a hash map is cheaper than a binary search for
/// each pod.
const HASH_MAP_SHARE: usize = 16;

/// Snapshot numbers of the pods in all lists of a plan.
pub(crate) struct PodNumbers {
    /// Numbers of all lists, concatenated.
    numbers: Vec<Option<usize>>,
    /// Start of each list in `numbers`, by address of the list. Empty lists may share an address.
    starts: HashMap<usize, usize>,
}

impl PodNumbers {
    /// Looks up the pods of `plan`. `pods` must be sorted by UID.
    pub(crate) fn new(pods: &PodList, plan: &Plan) -> Self {
        let count: usize = lists(plan).map(<[PodRef]>::len).sum();
        let mut by_uid: HashMap<&str, usize> = HashMap::new();
        let use_hash_map = count > pods.len() / HASH_MAP_SHARE;
        if use_hash_map {
            by_uid.extend(pods.iter().enumerate().map(|(number, pod)| (pod.uid.as_str(), number)));
        }
        let find = |uid: &str| {
            if use_hash_map {
                by_uid.get(uid).copied()
            } else {
                pods.binary_search_by(|pod| pod.uid.as_str().cmp(uid)).ok()
            }
        };
        let mut pod_numbers = Self { numbers: Vec::with_capacity(count), starts: HashMap::new() };
        for list in lists(plan) {
            pod_numbers.starts.insert(address(list), pod_numbers.numbers.len());
            pod_numbers.numbers.extend(list.iter().map(|pod| find(pod.uid.as_str())));
        }
        pod_numbers
    }

    /// Numbers of the pods of a list; `None` for pods that are not in the snapshot.
    pub(crate) fn of(&self, list: &[PodRef]) -> impl Iterator<Item = Option<usize>> {
        let start = self.starts.get(&address(list)).copied().unwrap_or_default();
        let numbers = self.numbers.get(start..start + list.len()).unwrap_or_default();
        numbers.iter().copied()
    }
}

/// All lists of placed pods in a plan.
pub(crate) fn lists(plan: &Plan) -> impl Iterator<Item = &[PodRef]> {
    let launched = plan.launches.iter().map(|launch| launch.pods.as_slice());
    let placed = plan.placements.iter().map(|placement| placement.pods.as_slice());
    let moved = plan
        .terminations
        .iter()
        .flat_map(|termination| &termination.moved_to)
        .map(|placement| placement.pods.as_slice());
    launched.chain(placed).chain(moved)
}

fn address(list: &[PodRef]) -> usize {
    list.as_ptr() as usize
}
