//! An admitted launch.

use super::build;
use crate::launch_template::{self, EFA};
use plimsoll_api::ec2_node_class::PlacementStrategy;
use plimsoll_api::{EC2NodeClass, NodePool};
use plimsoll_model::catalog::{Catalog, InstanceType};
use plimsoll_model::execution::{ClaimState, InFlightClaim};
use plimsoll_model::names::label;
use plimsoll_model::plan::Launch;
use plimsoll_model::requirements::Requirements;
use plimsoll_model::resources::{PODS, Resources};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A launch that the ledger admitted, with the objects that it was admitted with.
#[derive(Debug, Clone)]
pub struct Admitted {
    /// The plan's launch, with only the offerings that can be requested now, all of one capacity type.
    pub launch: Launch,
    /// Requirements of the claim: the intersection of the pool's and the plan's.
    pub requirements: Requirements,
    /// The pool; for a NodeClaim without one, a template without a name (see [`super::standalone`]).
    pub pool: Arc<NodePool>,
    /// The pool's node class.
    pub class: Arc<EC2NodeClass>,
    /// The node class's catalog.
    pub catalog: Arc<Catalog>,
    /// The claim's name.
    pub claim: String,
    /// Resources that count against the pool's limits until the claim is launched.
    pub reserved: Resources,
}

impl Admitted {
    /// The claim's labels: the template's, and one value for each custom label of the pool that its requirements leave
    /// open.
    #[must_use]
    pub fn labels(&self) -> BTreeMap<String, String> {
        let mut labels: BTreeMap<String, String> = BTreeMap::new();
        for requirement in self.requirements.iter() {
            let is_custom = !label::is_well_known(&requirement.key) && !label::is_restricted(&requirement.key);
            if let Some(value) = requirement.values.first().filter(|_| is_custom && !requirement.complement) {
                labels.insert(requirement.key.clone(), value.clone());
            }
        }
        let template = self.pool.spec.template.labels();
        labels.extend(template.map(|(key, value)| (key.to_owned(), value.to_owned())));
        let pool = self.pool.metadata.name.clone();
        labels.extend(pool.map(|pool| (label::NODE_POOL.to_owned(), pool)));
        labels.insert(label::EC2_NODE_CLASS.to_owned(), self.launch.node_class.clone());
        labels
    }

    /// Whether the launch has fewer values than `minValues` of the pool asks for, as the policy BestEffort allows.
    pub(super) fn is_min_values_relaxed(&self) -> bool {
        let wanted = self.pool.spec.template.spec.requirements.iter();
        wanted.filter_map(|one| Some((label::normalized(&one.key), one.min_values?))).any(|(key, wanted)| {
            let kept = self.launch.requirements.iter().filter(|one| label::normalized(&one.key) == key);
            kept.filter_map(|one| one.min_values).max().is_some_and(|kept| i64::from(kept) < wanted)
        })
    }

    /// The tenancy of the instances.
    pub(super) fn tenancy(&self) -> &'static str {
        build::tenancy(self.requirements.find(label::INSTANCE_TENANCY)).unwrap_or("default")
    }

    /// The partition that is requested of the node class's placement group.
    pub(super) fn partition(&self) -> Option<u32> {
        let requirement = self.requirements.find(label::PLACEMENT_GROUP_PARTITION);
        // A launch that requires another partition is not admitted.
        launch_template::partition(self.class.placement_group(), requirement).unwrap_or_default()
    }

    /// Labels that name the placement group and its partition. The partition is empty if EC2 chooses one.
    pub(super) fn placement_labels(&self) -> impl Iterator<Item = (String, String)> {
        let group = self.class.placement_group();
        let partition = group.filter(|group| group.strategy == PlacementStrategy::Partition).map(|_| {
            let number = self.partition().map(|number| number.to_string()).unwrap_or_default();
            (label::PLACEMENT_GROUP_PARTITION.to_owned(), number)
        });
        group.map(|group| (label::PLACEMENT_GROUP_ID.to_owned(), group.id.clone())).into_iter().chain(partition)
    }

    /// The claim as watchers of the ledger see it until it is launched.
    #[must_use]
    pub fn in_flight(&self) -> InFlightClaim {
        let mut labels = self.launch.labels.clone();
        labels.extend(self.single_values());
        InFlightClaim {
            name: self.claim.clone(),
            uid: String::new(),
            node_pool: self.launch.node_pool.clone(),
            action_id: Some(self.launch.action_id.clone()),
            pods: self.launch.pods.clone(),
            limit_usage: self.reserved.clone(),
            labels,
            taints: self.launch.taints.clone(),
            allocatable: self.min_allocatable(),
            state: ClaimState::Launching,
            launched: None,
        }
    }

    /// Labels whose value the requirements leave no choice of.
    fn single_values(&self) -> impl Iterator<Item = (String, String)> {
        let single = self.requirements.iter().filter(|it| !it.complement && it.values.len() == 1);
        single.filter_map(|it| Some((it.key.clone(), it.values.first()?.clone())))
    }

    /// By zone, the addresses to hold in a subnet: one for each pod of the smallest type there.
    pub(super) fn addresses(&self) -> BTreeMap<&str, i64> {
        let mut fewest: BTreeMap<&str, i64> = BTreeMap::new();
        for choice in self.launch.offerings.iter() {
            let Some(kind) = self.catalog.get(&choice.instance_type) else { continue };
            let pods = kind.capacity.get(PODS);
            fewest.entry(&choice.zone).and_modify(|known| *known = pods.min(*known)).or_insert(pods);
        }
        fewest
    }

    /// Minimum allocatable resources over the types of all offerings, at least what is requested.
    #[must_use]
    pub fn min_allocatable(&self) -> Resources {
        let types = self.launch.offerings.iter().filter_map(|choice| self.catalog.get(&choice.instance_type));
        let is_requested = self.launch.requests.get(EFA) > 0;
        let attached = |resources| launch_template::attached(resources, Some(&self.class), is_requested);
        let mut types = types.map(InstanceType::allocatable).map(attached);
        let Some(mut minimum) = types.next() else { return Resources::new() };
        for other in types {
            for (name, amount) in minimum.clone().iter() {
                if other.get(name) < amount {
                    minimum.set(name, other.get(name));
                }
            }
        }
        // What NodeOverlays add is not in the catalog.
        minimum.raise_to(&self.launch.requests);
        minimum
    }
}
