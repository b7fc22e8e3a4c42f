//! Instance profiles: the user's, or one created for the class's role (spec: AWS provider section 6.3).

use crate::io::WriteError;
use crate::node_class::controller::NodeClasses;
use crate::ports::{CloudError, Tags};
use plimsoll_api::{EC2NodeClass, hash};
use plimsoll_model::names::{label, tag};
use std::collections::BTreeSet;

/// Maximum length of a profile's name in IAM.
const NAME_MAX: usize = 128;

/// The instance profile of the class; creates it if necessary.
pub(super) async fn resolve(deps: &NodeClasses, class: &EC2NodeClass) -> Result<String, WriteError> {
    if let Some(profile) = &class.spec.instance_profile {
        return Ok(profile.clone());
    }
    let role = role_name(class.spec.role.as_deref().unwrap_or_default());
    if let Some(current) = class.status.as_ref().and_then(|status| status.instance_profile.clone()) {
        match deps.cloud_reads.profile(&current).await {
            Ok(profile) if profile.role.as_deref() == Some(role) => return Ok(current),
            // A changed role needs another profile, since running instances keep theirs.
            Ok(_) | Err(CloudError::NotFound { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let name = name(deps, class, role);
    deps.cloud.create_profile(&name, &path(deps, class), &tags(deps, class), role).await?;
    Ok(name)
}

/// The role's name without its path, which profiles do not include.
fn role_name(role: &str) -> &str {
    role.rsplit('/').next().unwrap_or(role)
}

/// A name derived from the profile's inputs, so that a repeated create uses the same name.
fn name(deps: &NodeClasses, class: &EC2NodeClass, role: &str) -> String {
    let metadata = &class.metadata;
    let (class_name, uid) = (metadata.name.as_deref().unwrap_or_default(), metadata.uid.as_deref().unwrap_or_default());
    let suffix = hash::instance_profile_suffix(&[&deps.settings.region, class_name, uid, role]).to_string();
    let cluster: String = deps.settings.cluster_name.chars().take(NAME_MAX - suffix.len() - 1).collect();
    format!("{cluster}_{suffix}")
}

/// Path of this cluster's profiles.
fn cluster_path(deps: &NodeClasses) -> String {
    format!("/karpenter/{}/{}/", deps.settings.region, deps.settings.cluster_name)
}

/// Path of a class's profiles.
fn path(deps: &NodeClasses, class: &EC2NodeClass) -> String {
    format!("{}{}/", cluster_path(deps), class.metadata.uid.as_deref().unwrap_or_default())
}

fn tags(deps: &NodeClasses, class: &EC2NodeClass) -> Tags {
    let (settings, mut tags) = (&deps.settings, class.spec.tags.clone());
    tags.insert(format!("{}{}", tag::CLUSTER_PREFIX, settings.cluster_name), "owned".to_owned());
    tags.insert(tag::EKS_CLUSTER.to_owned(), settings.cluster_name.clone());
    tags.insert(tag::EC2_NODE_CLASS.to_owned(), class.metadata.name.clone().unwrap_or_default());
    tags.insert(label::REGION.to_owned(), settings.region.clone());
    tags
}

/// Deletes the profiles created for a class.
pub(super) async fn delete_all(deps: &NodeClasses, class: &EC2NodeClass) -> Result<(), WriteError> {
    if class.metadata.uid.as_deref().unwrap_or_default().is_empty() {
        return Ok(());
    }
    let listed = match deps.cloud_reads.profiles(&path(deps, class)).await {
        Ok(listed) => listed,
        // A VPC without a way to IAM must still be able to delete its classes. If the class had a role before, garbage
        // collection deletes the profile of that role once IAM answers.
        Err(error) if class.spec.instance_profile.is_some() => {
            tracing::warn!(node_class = class.metadata.name, %error, "instance profiles not listed");
            return Ok(());
        }
        Err(error) => return Err(error.into()),
    };
    let names: Vec<String> = listed.into_iter().map(|profile| profile.name).collect();
    delete(deps, &names).await
}

/// Names of this cluster's profiles that are not in `used`.
pub(super) async fn unused(deps: &NodeClasses, used: &BTreeSet<String>) -> Result<Vec<String>, CloudError> {
    let listed = deps.cloud_reads.profiles(&cluster_path(deps)).await?;
    Ok(listed.into_iter().map(|profile| profile.name).filter(|name| !used.contains(name)).collect())
}

/// Deletes profiles by name.
pub(super) async fn delete(deps: &NodeClasses, names: &[String]) -> Result<(), WriteError> {
    for name in names {
        deps.cloud.delete_profile(name).await?;
        tracing::info!(%name, "deleted an instance profile");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::role_name;

    #[test]
    fn role_name_omits_the_path() {
        assert_eq!(role_name("node"), "node");
        assert_eq!(role_name("arn:aws:iam::1:role/team/node"), "node");
    }
}
