//! The EC2 port.

use super::{
    CapacityReservation, CloudError, FleetAnswer, FleetRequest, Image, ImageQuery, Instance, InstanceFilter,
    InstanceRequest, InstanceStatus, InstanceTypeFacts, LaunchTemplate, LaunchTemplateFilter, LaunchTemplateSpec,
    PlacementGroup, PlacementGroupTerm, ReservationTerm, SecurityGroup, SelectorTerm, SpotPrice, Subnet, Tags,
    Termination, TypeOffering,
};
use async_trait::async_trait;
use std::fmt::Debug;

/// EC2. Lists are complete (adapters follow pages), sorted by id or name, and free of duplicates.
#[async_trait]
pub trait Compute: Debug + Send + Sync {
    /// All instance types of the region.
    async fn describe_instance_types(&self) -> Result<Vec<InstanceTypeFacts>, CloudError>;

    /// Which types are offered in which zones.
    async fn describe_type_offerings(&self) -> Result<Vec<TypeOffering>, CloudError>;

    /// The latest Spot prices of Linux instances.
    async fn spot_prices(&self) -> Result<Vec<SpotPrice>, CloudError>;

    /// Launches instances. A repeated request gets the same answer; the same token with other parameters is
    /// [`CloudError::IdempotentParameterMismatch`]. Refused offerings are part of the answer, not an error.
    async fn create_fleet(&self, request: &FleetRequest) -> Result<FleetAnswer, CloudError>;

    /// Asks whether [`Compute::create_fleet`] would be accepted, without launching anything. The token is not sent.
    async fn dry_run_fleet(&self, request: &FleetRequest) -> Result<(), CloudError>;

    /// Asks whether an instance would be launched, without launching it.
    async fn dry_run_instance(&self, request: &InstanceRequest) -> Result<(), CloudError>;

    /// Instances. Eventually consistent: an instance that was just launched may be missing.
    async fn describe_instances(&self, filter: &InstanceFilter) -> Result<Vec<Instance>, CloudError>;

    /// Terminates instances in one call; one entry per id, in the given order. If one instance is unknown or may not be
    /// terminated, EC2 refuses the whole call: nothing was done, or only in other zones.
    async fn terminate_instances(&self, ids: &[String]) -> Result<Vec<Termination>, CloudError>;

    /// Sets tags on resources. Idempotent.
    async fn create_tags(&self, ids: &[String], tags: &Tags) -> Result<(), CloudError>;

    /// Returns the template with that name; creates it if it is missing.
    async fn ensure_launch_template(&self, template: &LaunchTemplateSpec) -> Result<LaunchTemplate, CloudError>;

    /// Launch templates.
    async fn list_launch_templates(&self, filter: &LaunchTemplateFilter) -> Result<Vec<LaunchTemplate>, CloudError>;

    /// Deletes templates by name; missing templates are no error.
    async fn delete_launch_templates(&self, names: &[String]) -> Result<(), CloudError>;

    /// Subnets that match any of the terms.
    async fn describe_subnets(&self, terms: &[SelectorTerm]) -> Result<Vec<Subnet>, CloudError>;

    /// Security groups that match any of the terms.
    async fn describe_security_groups(&self, terms: &[SelectorTerm]) -> Result<Vec<SecurityGroup>, CloudError>;

    /// Capacity reservations in state `active` that match any of the terms. An id that EC2 does not know matches none.
    async fn describe_capacity_reservations(
        &self,
        terms: &[ReservationTerm],
    ) -> Result<Vec<CapacityReservation>, CloudError>;

    /// Placement groups with that id or name, in any state. What EC2 does not know is missing from the answer.
    async fn describe_placement_groups(&self, term: &PlacementGroupTerm) -> Result<Vec<PlacementGroup>, CloudError>;

    /// Images, including deprecated ones.
    async fn describe_images(&self, query: &ImageQuery) -> Result<Vec<Image>, CloudError>;

    /// Instances of the account that are impaired or have a scheduled event.
    async fn describe_instance_status(&self) -> Result<Vec<InstanceStatus>, CloudError>;
}
