//! EC2.

use super::{
    CloudError, FleetAnswer, FleetRequest, Image, ImageQuery, Instance, InstanceFilter, InstanceStatus,
    InstanceTypeFacts, LaunchTemplate, LaunchTemplateFilter, LaunchTemplateSpec, SecurityGroup, SelectorTerm,
    SpotPrice, Subnet, Tags, Termination, TypeOffering,
};
use async_trait::async_trait;
use std::fmt::Debug;

/// EC2. Lists are whole: adapters follow pages. Lists come sorted by id or name, each once.
#[async_trait]
pub trait Compute: Debug + Send + Sync {
    /// All instance types of the region.
    async fn describe_instance_types(&self) -> Result<Vec<InstanceTypeFacts>, CloudError>;

    /// Which types are offered in which zones.
    async fn describe_type_offerings(&self) -> Result<Vec<TypeOffering>, CloudError>;

    /// The latest Spot prices of Linux instances.
    async fn spot_prices(&self) -> Result<Vec<SpotPrice>, CloudError>;

    /// Buys. A request that was sent before is answered as before; the same token with other parameters is
    /// [`CloudError::IdempotentParameterMismatch`]. What offerings were refused is in the answer, not an error.
    async fn create_fleet(&self, request: &FleetRequest) -> Result<FleetAnswer, CloudError>;

    /// Instances. Reads settle late: an instance that was just launched may be missing.
    async fn describe_instances(&self, filter: &InstanceFilter) -> Result<Vec<Instance>, CloudError>;

    /// Terminates in one call; one entry per id, in the order asked. One instance that is unknown or may not be terminated has
    /// the whole call refused: nothing was done, or in other zones only.
    async fn terminate_instances(&self, ids: &[String]) -> Result<Vec<Termination>, CloudError>;

    /// Sets tags on resources. Repeating it changes nothing.
    async fn create_tags(&self, ids: &[String], tags: &Tags) -> Result<(), CloudError>;

    /// The template of that name, made if it is missing.
    async fn ensure_launch_template(&self, template: &LaunchTemplateSpec) -> Result<LaunchTemplate, CloudError>;

    /// Templates.
    async fn list_launch_templates(&self, filter: &LaunchTemplateFilter) -> Result<Vec<LaunchTemplate>, CloudError>;

    /// Deletes templates by name; missing ones are no error.
    async fn delete_launch_templates(&self, names: &[String]) -> Result<(), CloudError>;

    /// Subnets that match any of the terms.
    async fn describe_subnets(&self, terms: &[SelectorTerm]) -> Result<Vec<Subnet>, CloudError>;

    /// Security groups that match any of the terms.
    async fn describe_security_groups(&self, terms: &[SelectorTerm]) -> Result<Vec<SecurityGroup>, CloudError>;

    /// Images, also deprecated ones.
    async fn describe_images(&self, query: &ImageQuery) -> Result<Vec<Image>, CloudError>;

    /// Instances of the account that are impaired or have a scheduled event.
    async fn describe_instance_status(&self) -> Result<Vec<InstanceStatus>, CloudError>;
}
