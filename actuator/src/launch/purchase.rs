//! What a launch requests of EC2: launch templates, overrides in order of price, tags.

use super::Admitted;
use super::attempt::FIRST_ATTEMPT;
use super::build::reserved;
use crate::launch_template::{self, EnsureError, LaunchTemplates, PlanError, PlannedTemplate, TemplateInput};
use crate::ports::{
    FleetRequest, LaunchTemplateConfig, LaunchTemplateSpec, MarketType, Override, ReservationSpec, Tags,
};
use crate::resolve::{NotReady, Resolved, ResolvedSubnet};
use crate::settings::Settings;
use crate::state::launch_group::GroupKey;
use plimsoll_api::NodeClaimSpec;
use plimsoll_model::catalog::{CapacityType, Catalog, InstanceType};
use plimsoll_model::names::tag;
use plimsoll_model::plan::{Launch, OfferingChoice};
use plimsoll_model::taints::Taint;
use std::collections::BTreeSet;

/// Maximum number of launch templates in a CreateFleet request: EC2 refuses a request with more as a whole.
const MAX_CONFIGS: usize = 50;

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
    #[error("EC2NodeClass {0} has no subnet with free addresses in the zones of the launch")]
    NoSubnet(String),
}

/// A request without the names that depend on its group. Launches with an equal purchase share a group.
#[derive(Debug, Clone, PartialEq)]
pub struct Purchase {
    planned: Vec<PlannedTemplate>,
    /// Each with the capacity reservation that it is launched in.
    overrides: Vec<(Option<ReservationSpec>, Override)>,
    capacity_type: CapacityType,
    prioritized: bool,
    context: Option<String>,
    tags: Tags,
}

impl Purchase {
    /// Computes the purchase of a launch, without IO. `subnet_in` returns the subnet to use in a zone; `None` if none
    /// has free addresses.
    ///
    /// # Errors
    /// The node class cannot be used for the launch.
    pub fn plan(
        admitted: &Admitted,
        resolved: &Resolved,
        settings: &Settings,
        subnet_in: impl for<'s> Fn(&'s Resolved, &str) -> Option<&'s ResolvedSubnet>,
    ) -> Result<Self, RequestError> {
        let Admitted { launch, class, catalog, .. } = admitted;
        let no_subnet = || RequestError::NoSubnet(resolved.node_class.clone());
        let capacity_type = launch.offerings.first().ok_or_else(no_subnet)?.capacity_type;
        let template = NodeClaimSpec::from(&admitted.pool.spec.template.spec);
        let taints = template.taints.iter().chain(&template.startup_taints).map(Taint::from).collect();
        let mut input = TemplateInput {
            node_pool: launch.node_pool.0.clone(),
            labels: admitted.labels(),
            taints,
            capacity_type,
            reservation: None,
            dedicated: admitted.tenancy() == "dedicated",
            partition: admitted.partition(),
            requests: launch.requests.clone(),
        };
        let mut planned = Vec::new();
        for (id, types) in types_by_reservation(launch, catalog) {
            let of_reservation = |choice: &&OfferingChoice| choice.reservation.as_deref() == id;
            input.reservation = launch.offerings.iter().find(of_reservation).and_then(|choice| target(catalog, choice));
            planned.extend(launch_template::plan(settings, class, resolved, &input, &types)?);
        }
        let overrides = overrides(admitted, resolved, subnet_in);
        // Each capacity reservation has a template of its own.
        let template_of = |offering: &_| planned.iter().position(|planned| is_launched_by(planned, offering));
        let overrides = within_max_configs(overrides, template_of);
        if overrides.is_empty() {
            return Err(no_subnet());
        }
        Ok(Self {
            planned,
            overrides,
            capacity_type,
            prioritized: launch.prioritized,
            // As in Karpenter.
            context: class.spec.context.clone().filter(|_| !admitted.is_min_values_relaxed()),
            tags: launch_template::tags(settings, class, launch.node_pool.as_str()),
        })
    }

    /// The templates that have overrides, with them.
    fn used_templates(&self) -> impl Iterator<Item = (&PlannedTemplate, Vec<Override>)> {
        let with_overrides = self.planned.iter().map(|planned| {
            let ways = self.overrides.iter().filter(|offering| is_launched_by(planned, offering));
            (planned, ways.map(|(_, way)| way.clone()).collect::<Vec<_>>())
        });
        with_overrides.filter(|(_, overrides)| !overrides.is_empty())
    }

    /// Builds the first request of a group and ensures its launch templates. In a group of one, the claim is named in
    /// the tags.
    ///
    /// # Errors
    /// A launch template cannot be ensured.
    pub async fn request(
        &self,
        templates: &LaunchTemplates,
        group: &GroupKey,
        only_claim: Option<&str>,
    ) -> Result<FleetRequest, RequestError> {
        let mut configs = Vec::new();
        for (planned, overrides) in self.used_templates() {
            let template = launch_template::ensure(templates, &planned.spec).await?;
            configs.push(LaunchTemplateConfig {
                launch_template_name: template.name,
                version: template.version,
                overrides,
                reservation: target_of(planned).cloned(),
            });
        }
        Ok(self.fleet(configs, group, only_claim))
    }

    /// The launch templates and the request of a group, as they are if no template exists yet.
    #[must_use]
    pub fn preview(&self, group: &GroupKey, only_claim: Option<&str>) -> (Vec<LaunchTemplateSpec>, FleetRequest) {
        let (specs, configs) = self
            .used_templates()
            .map(|(planned, overrides)| {
                let launch_template_name = planned.spec.name.clone();
                let reservation = target_of(planned).cloned();
                let config = LaunchTemplateConfig { launch_template_name, version: 1, overrides, reservation };
                (planned.spec.clone(), config)
            })
            .unzip();
        (specs, self.fleet(configs, group, only_claim))
    }

    fn fleet(
        &self,
        launch_template_configs: Vec<LaunchTemplateConfig>,
        group: &GroupKey,
        only_claim: Option<&str>,
    ) -> FleetRequest {
        let mut tags = self.tags.clone();
        tags.extend(group.tags(FIRST_ATTEMPT));
        if let Some(claim) = only_claim {
            tags.insert(tag::NODE_CLAIM.to_owned(), claim.to_owned());
        }
        FleetRequest {
            client_token: group.client_token(FIRST_ATTEMPT),
            capacity_type: self.capacity_type,
            total_target_capacity: group.size,
            launch_template_configs,
            prioritized: self.prioritized,
            context: self.context.clone(),
            tags,
        }
    }
}

/// Instance types of a launch by the capacity reservation that they are launched in, each in the given order.
fn types_by_reservation<'l>(launch: &'l Launch, catalog: &'l Catalog) -> Vec<(Option<&'l str>, Vec<&'l InstanceType>)> {
    let mut groups: Vec<(Option<&str>, Vec<&InstanceType>)> = Vec::new();
    let mut seen = BTreeSet::new();
    for choice in launch.offerings.iter() {
        let id = choice.reservation.as_deref();
        let Some(kind) = catalog.get(&choice.instance_type).filter(|kind| seen.insert((id, &kind.name))) else {
            continue;
        };
        match groups.iter_mut().find(|(known, _)| *known == id) {
            Some((_, types)) => types.push(kind),
            None => groups.push((id, vec![kind])),
        }
    }
    groups
}

/// The capacity reservation of an offering, as a launch template targets it.
fn target(catalog: &Catalog, choice: &OfferingChoice) -> Option<ReservationSpec> {
    let reservation = reserved::find(catalog, choice)?;
    let market_type = match (reservation.capacity_block, reservation.interruptible) {
        (true, _) => Some(MarketType::CapacityBlock),
        (false, true) => Some(MarketType::InterruptibleCapacityReservation),
        (false, false) => None,
    };
    Some(ReservationSpec::Target { id: reservation.id.clone(), market_type })
}

/// Whether an offering is launched by a template.
fn is_launched_by(planned: &PlannedTemplate, (reservation, way): &(Option<ReservationSpec>, Override)) -> bool {
    reservation.as_ref() == target_of(planned) && planned.instance_types.contains(&way.instance_type)
}

/// Keeps the offerings that are launched by the first [`MAX_CONFIGS`] launch templates, the cheapest ones.
/// `template_of` returns the index of an offering's template.
fn within_max_configs<T>(offerings: Vec<T>, template_of: impl Fn(&T) -> Option<usize>) -> Vec<T> {
    let mut used = BTreeSet::new();
    let mut has_config = |index| used.contains(&index) || (used.len() < MAX_CONFIGS && used.insert(index));
    offerings.into_iter().filter(|offering| template_of(offering).is_some_and(&mut has_config)).collect()
}

/// The capacity reservation that a template targets.
fn target_of(planned: &PlannedTemplate) -> Option<&ReservationSpec> {
    planned.spec.reservation.as_ref().filter(|spec| matches!(spec, ReservationSpec::Target { .. }))
}

/// One override per offering, in order of price. Offerings in zones without a free subnet address are skipped.
fn overrides(
    admitted: &Admitted,
    resolved: &Resolved,
    subnet_in: impl for<'s> Fn(&'s Resolved, &str) -> Option<&'s ResolvedSubnet>,
) -> Vec<(Option<ReservationSpec>, Override)> {
    let way = |choice: &OfferingChoice| {
        let image = resolved.image_for(admitted.catalog.get(&choice.instance_type)?)?;
        let subnet = subnet_in(resolved, &choice.zone)?;
        let way = Override {
            instance_type: choice.instance_type.clone(),
            zone: choice.zone.clone(),
            subnet_id: Some(subnet.id.clone()),
            image_id: image.id.clone(),
            priority: u64::try_from(choice.price.0).unwrap_or(0),
        };
        Some((target(&admitted.catalog, choice), way))
    };
    admitted.launch.offerings.iter().filter_map(way).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_no_more_launch_templates_than_ec2_accepts() {
        // Offerings in order of price, each with its template; template 2 has another offering after those of the 60.
        let offerings: Vec<usize> = (0..60).chain([2, 55]).collect();
        let kept = within_max_configs(offerings, |template| Some(*template));
        assert_eq!(kept, (0..50).chain([2]).collect::<Vec<_>>());
        assert_eq!(within_max_configs(vec!["no template"], |_| None), [""; 0]);
    }
}
