//! Builds the launch request of a group: launch templates, overrides in order of price, tags.

use super::build::{self, LiveObjects, NarrowedLaunch};
use crate::launch_template::{self, EnsureError, LaunchTemplates, PlanError, PlannedTemplate, TemplateInput};
use crate::ports::{FleetRequest, LaunchTemplateConfig, LaunchTemplateSpec, Override, Tags};
use crate::resolve::{NotReady, Resolved};
use crate::settings::Settings;
use crate::state::insufficient_capacity::InsufficientCapacity;
use crate::state::launch_group::LaunchGroup;
use plimsoll_api::NodeClaimSpec;
use plimsoll_model::catalog::{CapacityType, Catalog, InstanceType};
use plimsoll_model::names::tag;
use plimsoll_model::plan::OfferingChoice;
use plimsoll_model::taints::Taint;
use plimsoll_model::time::Timestamp;
use std::collections::BTreeSet;

/// Why a launch request cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// The node class cannot be used.
    #[error(transparent)]
    NotReady(#[from] NotReady),
    /// A launch template cannot be specified.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// A launch template cannot be ensured.
    #[error(transparent)]
    Template(#[from] EnsureError),
    /// No subnet of the node class is in a zone of the offerings.
    #[error("EC2NodeClass {0} has no subnet with free addresses in any of the wanted zones")]
    NoSubnet(String),
}

/// Maximum number of claims in a group. EC2 accepts more, but a single answer should not decide about everything.
const MAX_GROUP: usize = 200;

/// What a purchase depends on besides its launch.
#[derive(Debug, Clone, Copy)]
pub struct Circumstances<'a> {
    /// Settings with the facts of the cluster.
    pub settings: &'a Settings,
    /// Offerings and subnets known to lack capacity.
    pub insufficient_capacity: &'a InsufficientCapacity,
    /// Now.
    pub time: Timestamp,
}

/// A request without the names that depend on its group. Launches with an equal purchase share a group.
#[derive(Debug, Clone, PartialEq)]
pub struct Purchase {
    planned: Vec<PlannedTemplate>,
    overrides: Vec<Override>,
    capacity_type: CapacityType,
    prioritized: bool,
    context: Option<String>,
    tags: Tags,
}

impl Purchase {
    /// Computes the purchase of a launch, without IO.
    ///
    /// # Errors
    /// The node class cannot be used for the launch.
    pub fn plan(
        now: &Circumstances<'_>,
        resolved: &Resolved,
        live: LiveObjects<'_>,
        narrowed: &NarrowedLaunch,
    ) -> Result<Self, RequestError> {
        let (class, catalog) = (live.class, live.catalog);
        let launch = &narrowed.launch;
        let mut unique = BTreeSet::new();
        let names = launch.offerings.iter().map(|choice| choice.instance_type.as_str());
        let types: Vec<&InstanceType> =
            names.filter(|name| unique.insert(*name)).filter_map(|name| catalog.get(name)).collect();
        let template = NodeClaimSpec::from(&live.pool.spec.template.spec);
        let taints = template.taints.iter().chain(&template.startup_taints).map(Taint::from).collect();
        let input = TemplateInput {
            node_pool: launch.node_pool.0.clone(),
            labels: build::labels(narrowed, live),
            taints,
            capacity_type: narrowed.capacity_type,
            dedicated: narrowed.tenancy() == "dedicated",
            requests: launch.requests.clone(),
        };
        let planned = launch_template::plan(now.settings, class, resolved, &input, &types)?;
        let overrides = overrides(&launch.offerings, catalog, resolved, now.insufficient_capacity, now.time);
        if overrides.is_empty() {
            return Err(RequestError::NoSubnet(resolved.node_class.clone()));
        }
        Ok(Self {
            planned,
            overrides,
            capacity_type: narrowed.capacity_type,
            prioritized: launch.prioritized,
            context: class.spec.context.clone(),
            tags: launch_template::tags(now.settings, class, launch.node_pool.as_str()),
        })
    }

    /// The templates that have overrides, with them.
    fn used_templates(&self) -> impl Iterator<Item = (&PlannedTemplate, Vec<Override>)> {
        let with_overrides = self.planned.iter().map(|planned| {
            let of_template = |way: &&Override| planned.instance_types.contains(&way.instance_type);
            (planned, self.overrides.iter().filter(of_template).cloned().collect::<Vec<_>>())
        });
        with_overrides.filter(|(_, overrides)| !overrides.is_empty())
    }

    /// Builds the request of a group and ensures its launch templates. In a group of one, the claim is named in the
    /// tags.
    ///
    /// # Errors
    /// A launch template cannot be ensured.
    pub async fn request(
        &self,
        templates: &LaunchTemplates,
        group: &LaunchGroup,
        only_claim: Option<&str>,
    ) -> Result<FleetRequest, RequestError> {
        let mut configs = Vec::new();
        for (planned, overrides) in self.used_templates() {
            let template = launch_template::ensure(templates, &planned.spec).await?;
            configs.push(LaunchTemplateConfig {
                launch_template_name: template.name,
                version: template.version,
                overrides,
            });
        }
        Ok(self.fleet(configs, group, only_claim))
    }

    /// The launch templates and the request of a group, as they are if no template exists yet.
    #[must_use]
    pub fn preview(&self, group: &LaunchGroup, only_claim: Option<&str>) -> (Vec<LaunchTemplateSpec>, FleetRequest) {
        let (specs, configs) = self
            .used_templates()
            .map(|(planned, overrides)| {
                let launch_template_name = planned.spec.name.clone();
                (planned.spec.clone(), LaunchTemplateConfig { launch_template_name, version: 1, overrides })
            })
            .unzip();
        (specs, self.fleet(configs, group, only_claim))
    }

    fn fleet(
        &self,
        launch_template_configs: Vec<LaunchTemplateConfig>,
        group: &LaunchGroup,
        only_claim: Option<&str>,
    ) -> FleetRequest {
        let mut tags = self.tags.clone();
        if let Some(claim) = only_claim {
            tags.insert(tag::NODE_CLAIM.to_owned(), claim.to_owned());
        }
        let mut request = FleetRequest {
            client_token: group.client_token(1),
            capacity_type: self.capacity_type,
            total_target_capacity: group.size,
            launch_template_configs,
            prioritized: self.prioritized,
            context: self.context.clone(),
            tags,
        };
        stamp(&mut request, group, 1);
        request
    }
}

/// Puts launches that request the same together, in order, at most [`MAX_GROUP`] per group.
pub fn together<T>(launches: impl IntoIterator<Item = (Purchase, T)>) -> Vec<(Purchase, Vec<T>)> {
    let mut groups: Vec<(Purchase, Vec<T>)> = Vec::new();
    for (purchase, launch) in launches {
        match groups.iter_mut().find(|(other, members)| members.len() < MAX_GROUP && *other == purchase) {
            Some((_, members)) => members.push(launch),
            None => groups.push((purchase, vec![launch])),
        }
    }
    groups
}

/// Writes the group and the attempt into a request (safety rules 3 and 4).
pub fn stamp(request: &mut FleetRequest, group: &LaunchGroup, attempt: u32) {
    request.client_token = group.client_token(attempt);
    request.tags.insert(tag::LAUNCH_GROUP.to_owned(), group.id.clone());
    request.tags.insert(tag::LAUNCH_ATTEMPT.to_owned(), attempt.to_string());
}

/// One override per offering, in order of price. Offerings in zones without a free subnet address are skipped.
fn overrides(
    offerings: &[OfferingChoice],
    catalog: &Catalog,
    resolved: &Resolved,
    unavailable: &InsufficientCapacity,
    now: Timestamp,
) -> Vec<Override> {
    let way = |choice: &OfferingChoice| {
        let image = resolved.image_for(catalog.get(&choice.instance_type)?)?;
        let in_zone = resolved.subnets.iter().filter(|subnet| subnet.zone == choice.zone);
        let subnet = in_zone.into_iter().find(|subnet| !unavailable.subnet_is_full(&subnet.id, now))?;
        Some(Override {
            instance_type: choice.instance_type.clone(),
            zone: choice.zone.clone(),
            subnet_id: Some(subnet.id.clone()),
            image_id: image.id.clone(),
            priority: u64::try_from(choice.price.0).unwrap_or(0),
        })
    };
    offerings.iter().filter_map(way).collect()
}
