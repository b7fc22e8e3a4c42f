//! Which pods are to be placed, by shape.

use crate::place::Groups;
use crate::world::World;
use plimsoll_model::snapshot::{Pod, PodState};
use plimsoll_model::time::Timestamp;

/// Pending pods, and those that must leave a node which is being deleted. Each list is sorted by name.
pub(crate) fn to_place<'a>(world: &World<'a>) -> Groups<'a> {
    let leaving = world.nodes.iter().filter(|view| view.node.deleting).flat_map(|view| view.pods.iter().copied());
    let pending = world.snapshot.pods.iter().filter(|pod| pod.state == PodState::Pending);
    let now = world.snapshot.now;
    group(world, pending.filter(|pod| moves(pod)).chain(leaving.filter(|pod| moves(pod) && !is_protected(pod, now))))
}

/// Pods by shape; those whose shape is not in the snapshot are left out.
pub(crate) fn group<'a>(world: &World<'a>, pods: impl Iterator<Item = &'a Pod>) -> Groups<'a> {
    let mut groups = Groups::new();
    for pod in pods {
        if let Some(shape) = world.shape_of(pod) {
            groups.entry(shape).or_default().push(pod);
        }
    }
    for pods in groups.values_mut() {
        pods.sort_by(|a, b| (&a.namespace, &a.name, &a.uid).cmp(&(&b.namespace, &b.name, &b.uid)));
    }
    groups
}

/// Whether a pod wants another place when its node goes.
pub(crate) fn moves(pod: &Pod) -> bool {
    !pod.stays_with_node && !pod.terminating
}

/// Whether `karpenter.sh/do-not-disrupt` holds for the pod at `now`.
pub(crate) fn is_protected(pod: &Pod, now: Timestamp) -> bool {
    pod.do_not_disrupt_until.is_some_and(|until| until > now)
}
