//! Pods that a plan names, as numbers of the snapshot's pods. Several checks look at each pod of a plan, and finding one among a
//! million by its UID costs more than the rest of a check.

use plimsoll_model::plan::{Plan, PodRef};
use plimsoll_model::snapshot::Pod;
use std::collections::HashMap;

/// A hash map of all pods costs less than searching for each pod of the plan if the plan has this share of them, or more.
const SHARE: usize = 16;

/// Numbers of the pods of all lists of a plan.
pub(crate) struct Resolved {
    /// All lists, one after another.
    numbers: Vec<Option<usize>>,
    /// Where a list begins in `numbers`, by its address. Lists without pods may share theirs.
    starts: HashMap<usize, usize>,
}

impl Resolved {
    /// `pods` are sorted by UID.
    pub(crate) fn new(pods: &[Pod], plan: &Plan) -> Self {
        let count: usize = lists(plan).map(<[PodRef]>::len).sum();
        let mut by_uid: HashMap<&str, usize> = HashMap::new();
        let many = count > pods.len() / SHARE;
        if many {
            by_uid.extend(pods.iter().enumerate().map(|(number, pod)| (pod.uid.as_str(), number)));
        }
        let find = |uid: &str| {
            if many { by_uid.get(uid).copied() } else { pods.binary_search_by(|pod| pod.uid.as_str().cmp(uid)).ok() }
        };
        let mut resolved = Self { numbers: Vec::with_capacity(count), starts: HashMap::new() };
        for list in lists(plan) {
            resolved.starts.insert(address(list), resolved.numbers.len());
            resolved.numbers.extend(list.iter().map(|pod| find(pod.uid.as_str())));
        }
        resolved
    }

    /// The numbers of the pods of a list; `None` for a pod that is not in the snapshot.
    pub(crate) fn of(&self, list: &[PodRef]) -> impl Iterator<Item = Option<usize>> {
        let start = self.starts.get(&address(list)).copied().unwrap_or_default();
        let numbers = self.numbers.get(start..start + list.len()).unwrap_or_default();
        numbers.iter().copied()
    }
}

/// All lists of pods for which a plan has a place.
pub(crate) fn lists(plan: &Plan) -> impl Iterator<Item = &[PodRef]> {
    let launched = plan.launches.iter().map(|launch| launch.pods.as_slice());
    let placed = plan.placements.iter().map(|placement| placement.pods.as_slice());
    let moved = plan.terminations.iter().flat_map(|one| &one.moved_to).map(|placement| placement.pods.as_slice());
    launched.chain(placed).chain(moved)
}

fn address(list: &[PodRef]) -> usize {
    list.as_ptr() as usize
}
