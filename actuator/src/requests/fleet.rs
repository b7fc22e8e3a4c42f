//! CreateFleet of type `instant`: a pure function of the stored request, so a repeated request is identical byte for
//! byte.

use super::{TagSpecification, small, tag_specification};
use crate::ports::{FleetRequest, LaunchTemplateConfig, MarketType, Override};
use plimsoll_model::catalog::CapacityType;
use serde::Serialize;

/// `CreateFleet`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct CreateFleet {
    /// Always `instant`.
    pub r#type: &'static str,
    /// Client token; EC2 answers a repeated token with the first result.
    pub client_token: String,
    /// How many instances of which capacity type.
    pub target_capacity_specification: TargetCapacity,
    /// For Spot alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spot_options: Option<AllocationOptions>,
    /// For On-Demand capacity and ordinary capacity reservations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_demand_options: Option<AllocationOptions>,
    /// For interruptible capacity reservations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reserved_capacity_options: Option<ReservedCapacityOptions>,
    /// Templates with their overrides.
    pub launch_template_configs: Vec<FleetLaunchTemplateConfig>,
    /// Tags of the fleet, its instances and their volumes.
    pub tag_specifications: Vec<TagSpecification>,
    /// Context, from the node class.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
}

/// `TargetCapacitySpecification`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct TargetCapacity {
    /// Number of instances.
    pub total_target_capacity: i32,
    /// `spot`, `on-demand`, `capacity-block` or `reserved-capacity`.
    pub default_target_capacity_type: &'static str,
}

/// `SpotOptions` and `OnDemandOptions`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct AllocationOptions {
    /// How EC2 chooses among the overrides.
    pub allocation_strategy: &'static str,
}

/// `ReservedCapacityOptions`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct ReservedCapacityOptions {
    /// Kinds of capacity reservations.
    pub reservation_types: Vec<&'static str>,
}

/// An item of `LaunchTemplateConfigs`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct FleetLaunchTemplateConfig {
    /// The template.
    pub launch_template_specification: LaunchTemplateSpecification,
    /// Ways to launch.
    pub overrides: Vec<FleetOverride>,
}

/// A launch template by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct LaunchTemplateSpecification {
    /// Name.
    pub launch_template_name: String,
    /// Version, a number.
    pub version: String,
}

/// An item of `Overrides`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct FleetOverride {
    /// Instance type.
    pub instance_type: String,
    /// Availability zone.
    pub availability_zone: String,
    /// Subnet in the zone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subnet_id: Option<String>,
    /// Image.
    pub image_id: String,
    /// Lower is preferred.
    pub priority: f64,
}

impl From<&FleetRequest> for CreateFleet {
    fn from(request: &FleetRequest) -> Self {
        let spot = request.capacity_type == CapacityType::Spot;
        let strategy = match (spot, request.prioritized) {
            (true, true) => "capacity-optimized-prioritized",
            (true, false) => "price-capacity-optimized",
            (false, true) => "prioritized",
            (false, false) => "lowest-price",
        };
        let options = AllocationOptions { allocation_strategy: strategy };
        let market = request.market_type();
        let target = match market {
            _ if spot => "spot",
            None => "on-demand",
            Some(MarketType::CapacityBlock) => "capacity-block",
            Some(MarketType::InterruptibleCapacityReservation) => "reserved-capacity",
        };
        let interruptible = market.filter(|market| *market == MarketType::InterruptibleCapacityReservation);
        Self {
            r#type: "instant",
            client_token: request.client_token.clone(),
            target_capacity_specification: TargetCapacity {
                total_target_capacity: small(request.total_target_capacity),
                default_target_capacity_type: target,
            },
            spot_options: spot.then(|| options.clone()),
            on_demand_options: (target == "on-demand").then_some(options),
            reserved_capacity_options: interruptible
                .map(|market| ReservedCapacityOptions { reservation_types: vec![market.as_str()] }),
            launch_template_configs: request.launch_template_configs.iter().map(config).collect(),
            tag_specifications: ["fleet", "instance", "volume"]
                .map(|resource| tag_specification(resource, &request.tags))
                .into(),
            context: request.context.clone(),
        }
    }
}

fn config(config: &LaunchTemplateConfig) -> FleetLaunchTemplateConfig {
    FleetLaunchTemplateConfig {
        launch_template_specification: LaunchTemplateSpecification {
            launch_template_name: config.launch_template_name.clone(),
            version: config.version.to_string(),
        },
        overrides: config.overrides.iter().map(fleet_override).collect(),
    }
}

fn fleet_override(item: &Override) -> FleetOverride {
    #[expect(clippy::cast_precision_loss, reason = "positions and micro-dollars are far below 2^53")]
    let priority = item.priority as f64;
    FleetOverride {
        instance_type: item.instance_type.clone(),
        availability_zone: item.zone.clone(),
        subnet_id: item.subnet_id.clone(),
        image_id: item.image_id.clone(),
        priority,
    }
}
