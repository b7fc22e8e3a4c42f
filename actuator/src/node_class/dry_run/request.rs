//! The requests of a dry run, and what EC2's answers mean. Pure functions.

use super::Verdict;
use crate::launch_template::{self, PlanError, TemplateInput};
use crate::node_class::alias::{ACCELERATOR_COUNT, GPU_COUNT};
use crate::ports::{
    CloudError, FleetRequest, InstanceRequest, LaunchTemplate, LaunchTemplateConfig, LaunchTemplateSpec, Override, Tags,
};
use crate::resolve::{Resolved, ResolvedSubnet, label_value};
use crate::settings::Settings;
use plimsoll_api::{EC2NodeClass, NodePool};
use plimsoll_model::catalog::{CapacityType, Catalog, InstanceType};
use plimsoll_model::names::label;
use plimsoll_model::requirements::{NodeSelectorRequirement, Requirement, Requirements};
use plimsoll_model::resources::Resources;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Reason if EC2 does not know the instance profile.
pub(super) const PROFILE_NOT_FOUND: &str = "InstanceProfileNotFound";
/// NodePool in the tags if no NodePool uses the class: IAM policies require the tag.
const NO_POOL: &str = "none";
/// Subnets that are asked about, so that a class with many costs few calls.
const MAX_SUBNETS: usize = 10;

/// The requests for one On-Demand instance of a class.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct DryRun {
    pub(super) template: LaunchTemplateSpec,
    instance_type: String,
    image_id: String,
    /// One of each zone that offers the type.
    subnets: Vec<ResolvedSubnet>,
    security_group_ids: Vec<String>,
    context: Option<String>,
    tags: Tags,
}

impl DryRun {
    /// `None` if no type of the catalog fits the class.
    pub(super) fn new(
        settings: &Settings,
        class: &EC2NodeClass,
        resolved: &Resolved,
        catalog: &Catalog,
        pools: &[Arc<NodePool>],
    ) -> Result<Option<Self>, PlanError> {
        let name = class.metadata.name.as_deref().unwrap_or_default();
        let mut pools: Vec<&Arc<NodePool>> = pools.iter().filter(|pool| is_of_class(pool, name)).collect();
        pools.sort_by(|left, right| left.metadata.name.cmp(&right.metadata.name));
        let of_pool = pools.iter().find_map(|pool| Some((Some(*pool), cheapest(catalog, resolved, Some(pool))?)));
        let Some((pool, instance_type)) = of_pool.or_else(|| Some((None, cheapest(catalog, resolved, None)?))) else {
            return Ok(None);
        };
        let Some(image) = resolved.image_for(instance_type) else { return Ok(None) };
        let node_pool = pool.and_then(|pool| pool.metadata.name.clone()).unwrap_or_else(|| NO_POOL.to_owned());
        let labels = [(label::NODE_POOL, node_pool.as_str()), (label::EC2_NODE_CLASS, name)];
        let input = TemplateInput {
            node_pool: node_pool.clone(),
            labels: labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
            taints: Vec::new(),
            capacity_type: CapacityType::OnDemand,
            reservation: None,
            dedicated: pools.iter().any(|pool| names_dedicated(pool)),
            partition: None,
            requests: Resources::new(),
        };
        let planned = launch_template::plan(settings, class, resolved, &input, &[instance_type])?;
        let Some(planned) = planned.into_iter().next() else { return Ok(None) };
        let mut zones = BTreeSet::new();
        let is_first =
            |subnet: &&ResolvedSubnet| offers(instance_type, &subnet.zone) && zones.insert(subnet.zone.clone());
        Ok(Some(Self {
            template: planned.spec,
            instance_type: instance_type.name.clone(),
            image_id: image.id.clone(),
            subnets: resolved.subnets.iter().filter(is_first).take(MAX_SUBNETS).cloned().collect(),
            security_group_ids: resolved.security_group_ids.clone(),
            context: class.spec.context.clone(),
            tags: launch_template::tags(settings, class, &node_pool),
        }))
    }

    pub(super) fn fleet(&self, template: &LaunchTemplate) -> FleetRequest {
        let way = |subnet: &ResolvedSubnet| Override {
            instance_type: self.instance_type.clone(),
            zone: subnet.zone.clone(),
            subnet_id: Some(subnet.id.clone()),
            image_id: self.image_id.clone(),
            priority: 0,
        };
        FleetRequest {
            // A dry run is sent without a token.
            client_token: String::new(),
            capacity_type: CapacityType::OnDemand,
            total_target_capacity: 1,
            launch_template_configs: vec![LaunchTemplateConfig {
                launch_template_name: template.name.clone(),
                version: template.version,
                overrides: self.subnets.iter().map(way).collect(),
                reservation: None,
            }],
            prioritized: false,
            context: self.context.clone(),
            tags: self.tags.clone(),
        }
    }

    /// One request for each subnet.
    pub(super) fn instances<'a>(&'a self, template: &'a LaunchTemplate) -> impl Iterator<Item = InstanceRequest> + 'a {
        self.subnets.iter().map(|subnet| InstanceRequest {
            launch_template_name: template.name.clone(),
            version: template.version,
            instance_type: self.instance_type.clone(),
            subnet_id: subnet.id.clone(),
            security_group_ids: self.security_group_ids.clone(),
            tags: self.tags.clone(),
        })
    }
}

/// The type to ask about: one that the class can use and without accelerators if possible, then the cheapest, then the
/// first by name. A type that is available nowhere does not suit the class, unless all are: its subnets may be new.
fn cheapest<'a>(catalog: &'a Catalog, resolved: &Resolved, pool: Option<&NodePool>) -> Option<&'a InstanceType> {
    let requirements = match pool {
        Some(pool) => requirements(pool)?,
        None => Requirements::default(),
    };
    let fits = |instance_type: &&InstanceType| {
        // Labels of the NodePool itself and of an offering do not depend on the type.
        let allows = |requirement: &Requirement| {
            let value = match requirement.key.as_str() {
                // The catalog has the group of the written status, which a new class does not have yet.
                label::PLACEMENT_GROUP_ID => resolved.placement_group.as_ref().map(|group| group.id.as_str()),
                key => label_value(instance_type, key),
            };
            match value {
                Some(value) => requirement.has(value),
                None => !label::is_of_type(&requirement.key) || requirement.allows_absence(),
            }
        };
        resolved.image_for(instance_type).is_some()
            && resolved.subnets.iter().any(|subnet| offers(instance_type, &subnet.zone))
            && requirements.iter().all(allows)
    };
    let rank = |instance_type: &&InstanceType| {
        let accelerated = [GPU_COUNT, ACCELERATOR_COUNT].into_iter().any(|key| instance_type.labels.contains_key(key));
        let price = instance_type.offerings.iter().filter(|it| is_on_demand(it)).map(|it| it.price).min();
        let is_open = instance_type.offerings.iter().any(|it| it.available);
        (!is_open, accelerated, price, instance_type.name.clone())
    };
    catalog.instance_types.iter().filter(fits).min_by_key(rank)
}

/// The requirements and labels of a NodePool.
fn requirements(pool: &NodePool) -> Option<Requirements> {
    let template = &pool.spec.template;
    let listed: Vec<NodeSelectorRequirement> =
        template.spec.requirements.iter().map(NodeSelectorRequirement::from).collect();
    let mut requirements = Requirements::from_api(&listed).ok()?;
    requirements.add_all(&Requirements::from_labels(template.labels()));
    Some(requirements)
}

fn is_on_demand(offering: &plimsoll_model::catalog::Offering) -> bool {
    offering.capacity_type == CapacityType::OnDemand
}

fn offers(instance_type: &InstanceType, zone: &str) -> bool {
    instance_type.offerings.iter().any(|offering| is_on_demand(offering) && offering.zone == zone)
}

/// Whether a NodePool uses the node class of this name.
pub(in crate::node_class) fn is_of_class(pool: &NodePool, class: &str) -> bool {
    let reference = &pool.spec.template.spec.node_class_ref;
    reference.is_ec2() && reference.name == class
}

/// Whether a NodePool names dedicated tenancy, or excludes the default.
pub(in crate::node_class) fn names_dedicated(pool: &NodePool) -> bool {
    let requirements = requirements(pool);
    let tenancy = requirements.as_ref().and_then(|requirements| requirements.find(label::INSTANCE_TENANCY));
    tenancy.is_some_and(|tenancy| tenancy.has("dedicated") && !(tenancy.complement && tenancy.has("default")))
}

/// What an answer means. A refusal for another reason than permissions is only reported.
pub(super) fn judge(action: &str, answer: Result<(), CloudError>) -> Verdict {
    match answer {
        Ok(()) => Verdict::Permitted(None),
        Err(error) if error.is_transient() => Verdict::Unknown(format!("{action}: {error}")),
        Err(CloudError::Denied { message }) if !lacks_permission(&message) => {
            Verdict::Unknown(format!("{action}: {message}"))
        }
        Err(CloudError::Denied { message }) => {
            let missing = permission(&message).unwrap_or(action);
            Verdict::Refused(reason(action), format!("the actuator's role lacks {missing}: {message}"))
        }
        Err(CloudError::InvalidRequest { message, .. }) if message.contains(super::INVALID_PROFILE) => {
            Verdict::Refused(PROFILE_NOT_FOUND, format!("EC2 does not know the instance profile: {message}"))
        }
        Err(error) => Verdict::Permitted(Some(format!("{action}: {error}"))),
    }
}

/// Whether a call is denied for lack of a permission. Calls with expired credentials and those of an account that AWS
/// still verifies are denied as well. They say nothing about permissions, and may succeed soon.
fn lacks_permission(message: &str) -> bool {
    ["UnauthorizedOperation", "AccessDenied", "AuthFailure"].iter().any(|code| message.starts_with(code))
}

fn reason(action: &str) -> &'static str {
    match action {
        "ec2:CreateLaunchTemplate" => "CreateLaunchTemplateAuthCheckFailed",
        "ec2:CreateFleet" => "CreateFleetAuthCheckFailed",
        _ => "RunInstancesAuthCheckFailed",
    }
}

/// The permission that EC2 names: `... is not authorized to perform: iam:PassRole on resource: ...`.
fn permission(message: &str) -> Option<&str> {
    let named = message.split_once("not authorized to perform: ")?.1.split_whitespace().next()?;
    Some(named).filter(|named| named.contains(':'))
}
