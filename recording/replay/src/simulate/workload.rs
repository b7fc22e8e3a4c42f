//! The workload of a recorded snapshot: how many pods of each kind there are.

use plimsoll_model::identity::ShapeId;
use plimsoll_model::snapshot::Pod;
use std::collections::{BTreeMap, HashMap};

/// Pods that are alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Kind<'a> {
    namespace: &'a str,
    shape: &'a ShapeId,
    returns: bool,
    is_virtual: bool,
}

impl<'a> Kind<'a> {
    fn of(pod: &'a Pod) -> Self {
        Self { namespace: &pod.namespace, shape: &pod.shape, returns: pod.returns, is_virtual: pod.buffer.is_some() }
    }
}

/// The pods of each kind, in order.
pub(super) fn by_kind<'a>(pods: impl Iterator<Item = &'a Pod>) -> BTreeMap<Kind<'a>, Vec<&'a Pod>> {
    // There may be a hundred thousand pods of some hundred kinds. The kinds are ordered at the end.
    let mut kinds: HashMap<Kind<'_>, Vec<&Pod>> = HashMap::new();
    for pod in pods {
        kinds.entry(Kind::of(pod)).or_default().push(pod);
    }
    kinds.into_iter().collect()
}
