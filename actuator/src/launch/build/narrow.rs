//! The checks behind [`super::narrow`].

use super::{MAX_OVERRIDES, MAX_TYPES, Refusal};
use plimsoll_api::{EC2NodeClass, NodePool};
use plimsoll_model::catalog::{CapacityType, Catalog, InstanceType, Offering};
use plimsoll_model::execution::OutcomeReason;
use plimsoll_model::names::label;
use plimsoll_model::plan::{Launch, OfferingChoice};
use plimsoll_model::requirements::{NodeSelectorRequirement, Operator, Requirement, Requirements};
use plimsoll_model::resources::Resources;
use plimsoll_model::taints::Taint;
use std::collections::BTreeSet;

/// Checks that pool, node class, labels and taints are as the plan assumed.
pub(super) fn check_template(launch: &Launch, pool: &NodePool, class: &EC2NodeClass) -> Result<(), Refusal> {
    let name = &launch.node_pool;
    let template = &pool.spec.template;
    if pool.metadata.deletion_timestamp.is_some() {
        return Err(Refusal::pool(format!("NodePool {name} is being deleted")));
    }
    let class_name = &template.spec.node_class_ref.name;
    if *class_name != launch.node_class || class.metadata.name.as_deref() != Some(class_name) {
        return Err(Refusal::pool(format!(
            "NodePool {name} refers to EC2NodeClass {class_name}, the plan to {}",
            launch.node_class
        )));
    }
    let labels = own_labels(pool, class);
    if let Some((key, value)) = launch.labels.iter().find(|(key, value)| !labels.has(key, value)) {
        return Err(Refusal::pool(format!("NodePool {name} has no label {key}={value}")));
    }
    let set = |taints: Vec<Taint>| taints.into_iter().collect::<BTreeSet<_>>();
    if set(launch.taints.clone()) != set(template.spec.taints.iter().map(Taint::from).collect()) {
        return Err(Refusal::pool(format!("taints of NodePool {name} differ from the plan's")));
    }
    Ok(())
}

struct OwnLabels<'a>(Vec<(&'a str, &'a str)>);

impl OwnLabels<'_> {
    fn has(&self, key: &str, value: &str) -> bool {
        self.0.contains(&(key, value))
    }
}

/// Labels that every claim of the pool has.
fn own_labels<'a>(pool: &'a NodePool, class: &'a EC2NodeClass) -> OwnLabels<'a> {
    let mut labels: Vec<(&str, &str)> = pool.spec.template.labels().collect();
    labels.extend(pool.metadata.name.as_deref().map(|name| (label::NODE_POOL, name)));
    labels.push((label::EC2_NODE_CLASS, class.metadata.name.as_deref().unwrap_or_default()));
    OwnLabels(labels)
}

/// The intersection of the pool's and the plan's requirements. None may be empty, and none may be new.
pub(super) fn requirements(launch: &Launch, pool: &NodePool, class: &EC2NodeClass) -> Result<Requirements, Refusal> {
    let name = &launch.node_pool;
    let pool_requirements: Vec<NodeSelectorRequirement> =
        pool.spec.template.spec.requirements.iter().map(NodeSelectorRequirement::from).collect();
    let mut combined = Requirements::from_api(&pool_requirements)
        .map_err(|error| Refusal::pool(format!("NodePool {name}: {error}")))?;
    let labels = own_labels(pool, class).0;
    combined.add_all(&Requirements::from_labels(labels.iter().copied()));
    let planned = Requirements::from_api(launch.requirements.iter())
        .map_err(|error| Refusal::new(OutcomeReason::Invalid, format!("plan: {error}")))?;
    for requirement in planned.iter() {
        let is_known = combined.contains(&requirement.key) || label::is_well_known(&requirement.key);
        if !is_known && !requirement.allows_absence() {
            return Err(Refusal::pool(format!("NodePool {name} has no label {}", requirement.key)));
        }
        if is_known {
            combined.add(requirement.clone());
        }
    }
    // A label that nothing demands may be without a value: it is missing.
    let is_demanded = |key: &str| {
        let demands = |one: &NodeSelectorRequirement| {
            label::normalized(&one.key) == key && !matches!(one.operator, Operator::NotIn | Operator::DoesNotExist)
        };
        labels.iter().any(|(own, _)| label::normalized(own) == key)
            || pool_requirements.iter().chain(launch.requirements.iter()).any(demands)
    };
    let emptied = combined.iter().find(|requirement| requirement.is_empty() && is_demanded(&requirement.key));
    match emptied {
        Some(empty) => {
            Err(Refusal::pool(format!("NodePool {name} and the plan have no common value for {}", empty.key)))
        }
        None => Ok(combined),
    }
}

/// All available offerings that the requirements allow and that fit the requests, the cheapest first.
pub(in crate::launch) fn offerings(
    catalog: &Catalog,
    requirements: &Requirements,
    requests: &Resources,
) -> Vec<OfferingChoice> {
    let types = catalog.instance_types.iter().filter(|it| requests.fits_in(&it.allocatable()));
    let allowed = types.flat_map(|instance_type| {
        let offerings = instance_type.offerings.iter().filter(move |offering| {
            offering.available && requirements.iter().all(|it| admits(it, instance_type, offering, &catalog.region))
        });
        offerings.map(|offering| OfferingChoice {
            instance_type: instance_type.name.clone(),
            zone: offering.zone.clone(),
            capacity_type: offering.capacity_type,
            price: offering.price,
            reservation: offering.reservation_id().map(str::to_owned),
        })
    });
    let mut choices: Vec<OfferingChoice> = allowed.collect();
    choices.sort_by(|a, b| (a.price, &a.instance_type, &a.zone).cmp(&(b.price, &b.instance_type, &b.zone)));
    choices
}

/// Whether an offering can be requested: `false` if the node class cannot use it now.
pub(super) fn is_offered(
    choice: &OfferingChoice,
    launch: &Launch,
    catalog: &Catalog,
    requirements: &Requirements,
) -> Result<bool, Refusal> {
    let Some(instance_type) = catalog.get(&choice.instance_type) else {
        let message = format!(
            "instance type {} is not in the catalog of EC2NodeClass {}",
            choice.instance_type, launch.node_class
        );
        return Err(Refusal::pool(message));
    };
    let Some(offering) = instance_type.offerings.iter().find(|one| one.is(choice)) else { return Ok(false) };
    let denied = requirements.iter().find(|requirement| !admits(requirement, instance_type, offering, &catalog.region));
    if let Some(denied) = denied {
        return Err(Refusal::pool(format!("NodePool {} does not allow {choice}: {denied}", launch.node_pool)));
    }
    if let Some(resource) = launch.requests.first_excess(&instance_type.allocatable()) {
        let message =
            format!("instance type {} has insufficient {resource} for the planned pods", choice.instance_type);
        return Err(Refusal::new(OutcomeReason::Invalid, message));
    }
    Ok(offering.available)
}

/// Whether an offering satisfies a requirement. Labels that are not determined by the type are the pool's own and were
/// checked before.
fn admits(requirement: &Requirement, instance_type: &InstanceType, offering: &Offering, region: &str) -> bool {
    let value = match requirement.key.as_str() {
        label::INSTANCE_TYPE => instance_type.name.as_str(),
        label::ARCH => &instance_type.architecture,
        label::ZONE => &offering.zone,
        label::CAPACITY_TYPE => offering.capacity_type.as_str(),
        label::REGION => region,
        label::OS => {
            return instance_type.operating_systems.is_empty()
                || instance_type.operating_systems.iter().any(|os| requirement.has(os));
        }
        // Not every catalog has zone ids.
        label::ZONE_ID if offering.zone_id.is_empty() => return true,
        label::ZONE_ID => &offering.zone_id,
        label::INSTANCE_TENANCY => return tenancy(Some(requirement)).is_some(),
        // Checked against the placement group of the class before.
        label::PLACEMENT_GROUP_PARTITION => return true,
        key if label::CAPACITY_RESERVATION.contains(&key) => {
            let value = offering.reservation_label(key);
            return value.map_or_else(|| requirement.allows_absence(), |value| requirement.has(value));
        }
        key => match instance_type.labels.get(key) {
            Some(value) => value,
            None if label::is_of_type(key) => return requirement.allows_absence(),
            None => return true,
        },
    };
    requirement.has(value)
}

/// The tenancy of a launch with this requirement: the default, if allowed.
pub(in crate::launch) fn tenancy(requirement: Option<&Requirement>) -> Option<&'static str> {
    label::TENANCIES.into_iter().find(|tenancy| requirement.is_none_or(|requirement| requirement.has(tenancy)))
}

/// Drops Spot offerings that are dearer than the cheapest On-Demand offering. If none is left, the launch is On-Demand.
/// A launch that must be Spot lists no On-Demand offering and keeps all of them.
pub(super) fn drop_dear_spot(open: &mut Vec<OfferingChoice>) {
    let on_demand = open.iter().filter(|choice| choice.capacity_type == CapacityType::OnDemand);
    let Some(max_price) = on_demand.map(|choice| choice.price).min() else { return };
    open.retain(|choice| choice.capacity_type != CapacityType::Spot || choice.price <= max_price);
}

/// The preferred capacity type: reserved, then Spot, then On-Demand.
pub(super) fn capacity_type(open: &[OfferingChoice]) -> Option<CapacityType> {
    CapacityType::ALL.into_iter().find(|kind| open.iter().any(|choice| choice.capacity_type == *kind))
}

/// The cheapest offerings of a capacity type, limited in number. The types of a launch with `minValues`, which is
/// `flexible`, are all kept: the plan lists no more than it needs.
pub(super) fn cheapest_offerings(
    open: Vec<OfferingChoice>,
    capacity_type: CapacityType,
    flexible: bool,
) -> Vec<OfferingChoice> {
    let mut chosen: Vec<_> = open.into_iter().filter(|choice| choice.capacity_type == capacity_type).collect();
    chosen.sort_by(|a, b| (a.price, &a.instance_type, &a.zone).cmp(&(b.price, &b.instance_type, &b.zone)));
    chosen.dedup();
    let mut types = BTreeSet::new();
    chosen.retain(|choice| {
        flexible
            || types.contains(&choice.instance_type)
            || (types.len() < MAX_TYPES && types.insert(choice.instance_type.clone()))
    });
    if flexible && chosen.len() > MAX_OVERRIDES {
        // One offering of each type first, so that no type is lost.
        let mut seen = BTreeSet::new();
        chosen.sort_by_cached_key(|choice| !seen.insert(choice.instance_type.clone()));
        chosen.truncate(MAX_OVERRIDES);
        chosen.sort_by(|a, b| (a.price, &a.instance_type, &a.zone).cmp(&(b.price, &b.instance_type, &b.zone)));
    }
    chosen.truncate(MAX_OVERRIDES);
    chosen
}

/// Restricts requirements to exactly these offerings.
pub(super) fn restrict_to(mut all: Requirements, offerings: &[OfferingChoice]) -> Requirements {
    let of =
        |value: fn(&OfferingChoice) -> &str| offerings.iter().map(value).map(str::to_owned).collect::<BTreeSet<_>>();
    all.add(Requirement::one_of(label::INSTANCE_TYPE, of(|choice| &choice.instance_type)));
    all.add(Requirement::one_of(label::ZONE, of(|choice| &choice.zone)));
    all.add(Requirement::one_of(label::CAPACITY_TYPE, of(|choice| choice.capacity_type.as_str())));
    let reservations: BTreeSet<String> = offerings.iter().filter_map(|choice| choice.reservation.clone()).collect();
    if !reservations.is_empty() {
        all.add(Requirement::one_of(label::CAPACITY_RESERVATION_ID, reservations));
    }
    all.remove(label::HOSTNAME);
    all.iter().cloned().map(with_listed_min_values).collect()
}

/// Lowers `minValues` to the number of listed values, since the API server refuses a claim that lists fewer. The launch
/// had enough values before one capacity type was chosen, which not all types and zones may have.
fn with_listed_min_values(requirement: Requirement) -> Requirement {
    let listed = u32::try_from(requirement.values.len()).unwrap_or(u32::MAX);
    let is_list = !requirement.complement && listed > 0;
    let min_values = requirement.min_values.map(|wanted| if is_list { wanted.min(listed) } else { wanted });
    Requirement { min_values, ..requirement }
}
