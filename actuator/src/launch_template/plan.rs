//! Which launch templates a launch needs, and their content. Pure functions.

use super::placement::{PlacementError, check_dedicated};
use super::{EFA, devices, interfaces};
use crate::ports::{LaunchTemplateSpec, MetadataOptions, ReservationSpec, Tags};
use crate::resolve::{Resolved, ResolvedImage};
use crate::settings::Settings;
use crate::user_data::{Bootstrap, UserDataError};
use plimsoll_api::ec2_node_class::EnabledOrDisabled;
use plimsoll_api::{AmiFamily, EC2NodeClass, EC2NodeClassSpec};
use plimsoll_model::catalog::{CapacityType, InstanceType};
use plimsoll_model::names::{annotation, label, tag};
use plimsoll_model::resources::{PODS, Resources};
use plimsoll_model::taints::Taint;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};

/// Resource name by which a claim requests Nitro Enclaves.
const NITRO_SANDBOX: &str = "eks.amazonaws.com/nitro-sandbox";

/// What a claim needs of its instance, besides the node class.
#[derive(Debug, Clone, PartialEq)]
pub struct TemplateInput {
    /// The claim's NodePool.
    pub node_pool: String,
    /// The claim's labels. The capacity type label is added.
    pub labels: BTreeMap<String, String>,
    /// The claim's taints and startup taints.
    pub taints: Vec<Taint>,
    /// Capacity type.
    pub capacity_type: CapacityType,
    /// The capacity reservation to launch in.
    pub reservation: Option<ReservationSpec>,
    /// Dedicated tenancy.
    pub dedicated: bool,
    /// The partition to request of the node class's placement group.
    pub partition: Option<u32>,
    /// Resource requests of the claim.
    pub requests: Resources,
}

/// A launch template with the instance types that use it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedTemplate {
    /// The template.
    pub spec: LaunchTemplateSpec,
    /// Instance type names, in the given order.
    pub instance_types: Vec<String>,
}

/// Why no launch templates can be planned for a node class.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// No image supports any of the types.
    #[error("EC2NodeClass {0}: no image in its status supports the requested instance types")]
    NoImage(String),
    /// The class wants a public address, which EC2 gives only to instances with a single interface.
    #[error(
        "EC2NodeClass {0}: spec.associatePublicIPAddress: the wanted instance types have several EFA interfaces, and EC2 \
         gives no public address to such instances"
    )]
    PublicAddress(String),
    /// EC2 does not launch such instances in the placement group.
    #[error("EC2NodeClass {node_class}: {error}")]
    Placement {
        /// The node class.
        node_class: String,
        /// The cause.
        error: PlacementError,
    },
    /// User data cannot be rendered.
    #[error("EC2NodeClass {node_class}: {error}")]
    UserData {
        /// The node class.
        node_class: String,
        /// The cause.
        error: UserDataError,
    },
}

/// Properties that types must share to use the same template.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Variant {
    image: usize,
    efa: i64,
    pods: i64,
}

/// The templates of a launch, each with at least one type, ordered by their first type. Types that no image supports
/// are left out, and types with several interfaces if the class wants a public address.
///
/// # Errors
/// No type is left, EC2 refuses the tenancy in the placement group, or user data cannot be rendered.
pub fn plan(
    settings: &Settings,
    class: &EC2NodeClass,
    resolved: &Resolved,
    wanted: &TemplateInput,
    instance_types: &[&InstanceType],
) -> Result<Vec<PlannedTemplate>, PlanError> {
    if let Some(group) = resolved.placement_group.as_ref().filter(|_| wanted.dedicated) {
        let node_class = resolved.node_class.clone();
        check_dedicated(group).map_err(|error| PlanError::Placement { node_class, error })?;
    }
    let mut variants: Vec<(Variant, Vec<String>)> = Vec::new();
    let mut has_several_interfaces = false;
    for instance_type in instance_types {
        let Some(image) = resolved.images.iter().position(|image| image.runs_on(instance_type)) else { continue };
        let uses_efa = class.spec.network_interfaces.is_empty() && wanted.requests.get(EFA) > 0;
        let efa = if uses_efa { instance_type.capacity.get(EFA) } else { 0 };
        if efa > 1 && class.spec.associate_public_ip_address == Some(true) {
            has_several_interfaces = true;
            continue;
        }
        let variant = Variant { image, efa, pods: instance_type.capacity.get(PODS) };
        match variants.iter_mut().find(|(existing, _)| *existing == variant) {
            Some((_, names)) => names.push(instance_type.name.clone()),
            None => variants.push((variant, vec![instance_type.name.clone()])),
        }
    }
    if variants.is_empty() {
        let node_class = resolved.node_class.clone();
        let error = if has_several_interfaces { PlanError::PublicAddress } else { PlanError::NoImage };
        return Err(error(node_class));
    }
    let template = Template { settings, class, resolved, wanted };
    variants
        .into_iter()
        .filter_map(|(variant, names)| Some((resolved.images.get(variant.image)?, variant, names)))
        .map(|(image, variant, instance_types)| {
            Ok(PlannedTemplate { spec: template.spec(image, &variant)?, instance_types })
        })
        .collect()
}

/// Tags of all EC2 resources created for nodes of a pool and a class. The reserved tags are a security boundary: IAM
/// policies deny changes to resources without them.
#[must_use]
pub fn tags(settings: &Settings, class: &EC2NodeClass, node_pool: &str) -> Tags {
    let mut tags = class.spec.tags.clone();
    let cluster = &settings.cluster_name;
    let name = class.metadata.name.clone().unwrap_or_default();
    tags.insert(format!("{}{cluster}", tag::CLUSTER_PREFIX), "owned".to_owned());
    tags.insert(tag::EKS_CLUSTER.to_owned(), cluster.clone());
    tags.insert(tag::NODE_POOL.to_owned(), node_pool.to_owned());
    tags.insert(tag::EC2_NODE_CLASS.to_owned(), name);
    tags.insert(tag::OWNER.to_owned(), annotation::OWNER_VALUE.to_owned());
    tags
}

struct Template<'a> {
    settings: &'a Settings,
    class: &'a EC2NodeClass,
    resolved: &'a Resolved,
    wanted: &'a TemplateInput,
}

impl Template<'_> {
    fn spec(&self, image: &ResolvedImage, variant: &Variant) -> Result<LaunchTemplateSpec, PlanError> {
        let Self { settings, class, resolved, wanted } = self;
        let spec = &class.spec;
        let family = spec.effective_ami_family();
        let bootstrap = self.bootstrap(image, variant);
        let user_data = bootstrap.render(family);
        let node_class = resolved.node_class.clone();
        let user_data = user_data.map_err(|error| PlanError::UserData { node_class, error })?.text;
        let ipv6 = bootstrap.is_ipv6();
        let mut template = LaunchTemplateSpec {
            name: String::new(),
            image_id: image.id.clone(),
            user_data,
            instance_profile: resolved.instance_profile.clone(),
            block_devices: devices::block_devices(spec, family),
            metadata: metadata(spec, &settings.region),
            detailed_monitoring: spec.detailed_monitoring.unwrap_or(false),
            nested_virtualization: spec
                .cpu_options
                .as_ref()
                .and_then(|options| options.nested_virtualization)
                .map(|nested| nested == EnabledOrDisabled::Enabled),
            enclave: wanted.requests.get(NITRO_SANDBOX) > 0,
            tenancy: if wanted.dedicated { "dedicated" } else { "default" }.to_owned(),
            placement_group_id: resolved.placement_group.as_ref().map(|group| group.id.clone()),
            partition: wanted.partition.filter(|_| resolved.placement_group.is_some()),
            network_interfaces: interfaces::network_interfaces(spec, &resolved.security_group_ids, variant.efa, ipv6),
            capacity_type: wanted.capacity_type,
            // Instances that are not launched in a chosen reservation must not use up others.
            reservation: wanted
                .reservation
                .clone()
                .or_else(|| settings.reserved_capacity.then_some(ReservationSpec::Avoid)),
            tags: tags(settings, class, &wanted.node_pool),
        };
        template.name = name(&template);
        Ok(template)
    }

    fn bootstrap<'a>(&'a self, image: &ResolvedImage, variant: &Variant) -> Bootstrap<'a> {
        let mut labels = self.wanted.labels.clone();
        labels.insert(label::CAPACITY_TYPE.to_owned(), self.wanted.capacity_type.as_str().to_owned());
        Bootstrap {
            labels,
            taints: self.wanted.taints.clone(),
            bottlerocket_version: bottlerocket_version(&self.class.spec, image),
            ..Bootstrap::new(self.settings, self.class, variant.pods)
        }
    }
}

fn metadata(spec: &EC2NodeClassSpec, region: &str) -> MetadataOptions {
    let options = spec.metadata_options();
    let word =
        |value: Option<EnabledOrDisabled>, otherwise: EnabledOrDisabled| value.unwrap_or(otherwise).as_str().to_owned();
    // The isolated regions do not support this setting.
    let knows_ipv6 = !["us-iso-", "us-isob-", "us-isof-"].iter().any(|prefix| region.starts_with(prefix));
    MetadataOptions {
        http_endpoint: word(options.http_endpoint, EnabledOrDisabled::Enabled),
        http_protocol_ipv6: knows_ipv6.then(|| word(options.http_protocol_ipv6, EnabledOrDisabled::Disabled)),
        http_put_response_hop_limit: options
            .http_put_response_hop_limit
            .and_then(|hops| u32::try_from(hops).ok())
            .unwrap_or(1),
        http_tokens: options.http_tokens.map_or("required", |tokens| tokens.as_str()).to_owned(),
    }
}

/// The version in the alias, or else in the selectors' names, or else in the image's name.
fn bottlerocket_version(spec: &EC2NodeClassSpec, image: &ResolvedImage) -> Option<String> {
    if spec.effective_ami_family() != AmiFamily::Bottlerocket {
        return None;
    }
    let terms = spec.effective_ami_selector_terms();
    let alias = terms.iter().find_map(|term| term.alias.as_deref()?.split_once('@').map(|(_, version)| version));
    let in_name = |name: &str| {
        let is_version = |part: &&str| part.starts_with('v') && part.contains('.');
        name.split('-').find(is_version).map(str::to_owned)
    };
    let names: BTreeSet<&str> = terms.iter().filter_map(|term| term.name.as_deref()).collect();
    alias.map(str::to_owned).or_else(|| names.into_iter().find_map(in_name)).or_else(|| in_name(&image.name))
}

/// The name: `karpenter.k8s.aws/` and a hash of the template's content.
fn name(template: &LaunchTemplateSpec) -> String {
    // Cannot fail: plain structs of strings, numbers and ordered maps.
    let content = serde_json::to_vec(template).unwrap_or_default();
    let digest = Sha256::digest(content);
    let number = digest.iter().take(8).fold(0_u64, |number, byte| (number << 8) | u64::from(*byte));
    format!("{}/{number}", label::AWS_DOMAIN)
}

#[cfg(test)]
mod tests;
