//! Looks up the parts of a node class's status in AWS.

use super::images::{self, ImagesError};
use super::status::{LookUpResult, StatusPart};
use super::{placement, profile, reservations, selectors};
use crate::io::WriteError;
use crate::node_class::controller::NodeClasses;
use plimsoll_api::EC2NodeClass;
use plimsoll_api::condition::{self, ec2_node_class::AMIS_READY};
use plimsoll_api::ec2_node_class::{Ami, EC2NodeClassStatus, SecurityGroup, Subnet};

/// Result of a part, with the part.
type PartResult = (StatusPart, Result<LookUpResult, WriteError>);

/// Looks up the due parts, all at once: the first launch of a new class waits for the slowest one only.
pub(super) async fn all(
    deps: &NodeClasses,
    class: &EC2NodeClass,
    is_due: impl Fn(StatusPart) -> bool,
    status: &mut EC2NodeClassStatus,
) -> Vec<PartResult> {
    let images_found = condition::get_true(&status.conditions, AMIS_READY)
        .is_some_and(|found| found.observed_generation == class.metadata.generation);
    let EC2NodeClassStatus {
        amis,
        subnets: zonal,
        security_groups: groups,
        instance_profile: current,
        capacity_reservations,
        placement_group,
        ..
    } = status;
    let results = tokio::join!(
        when(is_due(StatusPart::Images), images(deps, class, amis, images_found)),
        when(is_due(StatusPart::Subnets), subnets(deps, class, zonal)),
        when(is_due(StatusPart::SecurityGroups), security_groups(deps, class, groups)),
        when(is_due(StatusPart::Profile), instance_profile(deps, class, current)),
        when(is_due(StatusPart::Reservations), reservations::resolve(deps, class, capacity_reservations)),
        when(is_due(StatusPart::PlacementGroup), placement::resolve(deps, class, placement_group)),
    );
    let results: [_; StatusPart::ALL.len()] = results.into();
    StatusPart::ALL.into_iter().zip(results).filter_map(|(part, result)| Some((part, result?))).collect()
}

async fn when<T>(is_due: bool, look_up: impl Future<Output = T>) -> Option<T> {
    if is_due { Some(look_up.await) } else { None }
}

/// `were_found` says that `amis` were found for the current spec.
async fn images(
    deps: &NodeClasses,
    class: &EC2NodeClass,
    amis: &mut Vec<Ami>,
    were_found: bool,
) -> Result<LookUpResult, WriteError> {
    let settings = deps.current.get();
    match images::resolve(&deps.cloud_reads, &class.spec, &settings.kubernetes_version).await {
        Ok(found) => {
            let any = !found.is_empty();
            *amis = found;
            let message = || "spec.amiSelectorTerms select no image that can be a node".to_owned();
            Ok(if any { LookUpResult::Yes } else { LookUpResult::No("AMINotFound", message()) })
        }
        Err(ImagesError::UnsupportedAlias(message)) => {
            amis.clear();
            Ok(LookUpResult::No("UnsupportedAlias", format!("spec.amiSelectorTerms: {message}")))
        }
        Err(error @ ImagesError::NotPublished(_)) => {
            // After an upgrade of the control plane, nodes of the version before it can still join.
            *amis = if were_found { images::still_there(&deps.cloud_reads, amis).await? } else { Vec::new() };
            if amis.is_empty() {
                return Ok(LookUpResult::No("AMINotFound", format!("spec.amiSelectorTerms: {error}")));
            }
            let message = format!("spec.amiSelectorTerms: {error}; the images found before are still used");
            tracing::warn!(node_class = class.metadata.name, message, "images do not follow the control plane");
            Ok(LookUpResult::Outdated(message))
        }
        Err(ImagesError::Cloud(error)) => Err(error.into()),
    }
}

async fn subnets(
    deps: &NodeClasses,
    class: &EC2NodeClass,
    subnets: &mut Vec<Subnet>,
) -> Result<LookUpResult, WriteError> {
    let terms = selectors::subnets(&class.spec);
    let mut found = match terms.is_empty() {
        true => Vec::new(),
        false => deps.cloud_reads.subnets(&terms).await?,
    };
    deps.subnet_addresses.described(found.iter().map(|subnet| (subnet.id.as_str(), subnet.free_ipv4_addresses)));
    found.sort_by(|left, right| (right.free_ipv4_addresses, &left.id).cmp(&(left.free_ipv4_addresses, &right.id)));
    let zone_id = |id: String| Some(id).filter(|id| !id.is_empty());
    *subnets = found
        .into_iter()
        .map(|subnet| Subnet { id: subnet.id, zone: subnet.zone, zone_id: zone_id(subnet.zone_id) })
        .collect();
    let message = || "spec.subnetSelectorTerms select no subnet".to_owned();
    Ok(if subnets.is_empty() { LookUpResult::No("SubnetsNotFound", message()) } else { LookUpResult::Yes })
}

async fn security_groups(
    deps: &NodeClasses,
    class: &EC2NodeClass,
    groups: &mut Vec<SecurityGroup>,
) -> Result<LookUpResult, WriteError> {
    let terms = selectors::security_groups(&class.spec);
    let mut found = match terms.is_empty() {
        true => Vec::new(),
        false => deps.cloud_reads.security_groups(&terms).await?,
    };
    found.sort_by(|left, right| left.id.cmp(&right.id));
    *groups = found.into_iter().map(|group| SecurityGroup { id: group.id, name: Some(group.name) }).collect();
    let message = || "spec.securityGroupSelectorTerms select no security group".to_owned();
    Ok(if groups.is_empty() { LookUpResult::No("SecurityGroupsNotFound", message()) } else { LookUpResult::Yes })
}

async fn instance_profile(
    deps: &NodeClasses,
    class: &EC2NodeClass,
    profile: &mut Option<String>,
) -> Result<LookUpResult, WriteError> {
    if class.spec.role.is_none() && class.spec.instance_profile.is_none() {
        let message = "spec.role: one of role and instanceProfile is needed".to_owned();
        return Ok(LookUpResult::No("InstanceProfileNotFound", message));
    }
    *profile = Some(profile::resolve(deps, class).await?);
    Ok(LookUpResult::Yes)
}
