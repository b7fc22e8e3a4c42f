//! What registered nodes say about the memory of their instance type. Pure functions.

use crate::resolve;
use crate::state::catalogs::Entries;
use crate::state::discovered_memory::{MemoryKey, Observation};
use k8s_openapi::api::core::v1::Node;
use plimsoll_api::condition::node_claim::REGISTERED;
use plimsoll_api::{EC2NodeClass, NodeClaim};
use plimsoll_model::names::label;
use plimsoll_model::quantity::Quantity;
use plimsoll_model::resources::MEMORY;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What a node class launches now.
#[derive(Debug, Clone)]
struct CurrentType {
    image: String,
    nominal_mib: i64,
}

/// The memory of each registered node whose image is the one that its node class uses for the instance type now. Other
/// images are not launched any more. Type and image are the claim's, since kubelets cannot write claims.
pub(super) fn observations(
    claims: &[Arc<NodeClaim>],
    nodes_of: impl Fn(&NodeClaim) -> Vec<Arc<Node>>,
    classes: &[Arc<EC2NodeClass>],
    catalogs: &Entries,
) -> Vec<Observation> {
    // Thousands of nodes have few types.
    let mut known: BTreeMap<(&str, &str), Option<CurrentType>> = BTreeMap::new();
    let observed = claims.iter().filter_map(|claim| {
        claim.true_condition(REGISTERED)?;
        let nodes = nodes_of(claim);
        let [node] = nodes.as_slice() else { return None };
        let class = claim.spec.node_class_ref.name.as_str();
        let instance_type = claim.metadata.labels.as_ref()?.get(label::INSTANCE_TYPE)?;
        let current = known
            .entry((class, instance_type))
            .or_insert_with(|| current_type(class, instance_type, classes, catalogs));
        let image = claim.status.as_ref()?.image_id.as_ref();
        let current = current.as_ref().filter(|current| image == Some(&current.image))?;
        Some(Observation {
            node: node.metadata.name.clone().unwrap_or_default(),
            key: MemoryKey { instance_type: instance_type.clone(), image: current.image.clone() },
            nominal_mib: current.nominal_mib,
            bytes: memory(node)?,
        })
    });
    observed.collect()
}

fn current_type(
    class: &str,
    instance_type: &str,
    classes: &[Arc<EC2NodeClass>],
    catalogs: &Entries,
) -> Option<CurrentType> {
    let instance_type = catalogs.get(class)?.any_catalog()?.get(instance_type)?;
    let nominal_mib = instance_type.labels.get(label::INSTANCE_MEMORY)?.parse().ok()?;
    let class = classes.iter().find(|one| one.metadata.name.as_deref() == Some(class))?;
    let images = resolve::images(&class.status.as_ref()?.amis).ok()?;
    let image = resolve::image_for(&images, instance_type)?.id.clone();
    Some(CurrentType { image, nominal_mib })
}

/// Memory capacity in bytes. 0 if the Node reports something that is no amount, which is implausible.
fn memory(node: &Node) -> Option<i64> {
    let reported = node.status.as_ref()?.capacity.as_ref()?.get(MEMORY)?;
    Some(Quantity::parse(&reported.0).ok().and_then(Quantity::value_ceil).unwrap_or(0))
}

#[cfg(test)]
mod tests;
