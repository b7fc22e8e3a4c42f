//! Instance profiles: the user's, or one created for the class's role.

use crate::io::{WriteError, delete_each};
use crate::node_class::controller::NodeClasses;
use crate::ports::{CloudError, InstanceProfile, Tags};
use crate::settings::Settings;
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
    let class_name = class.metadata.name.as_deref().unwrap_or_default();
    // A profile of the user with the same role is not of the class: the user may delete it once `role` replaces it.
    let is_right = |profile: &InstanceProfile| {
        profile.role.as_deref() == Some(role) && is_of_class(&deps.settings, class_name, profile)
    };
    if let Some(current) = class.status.as_ref().and_then(|status| status.instance_profile.clone()) {
        match deps.cloud_reads.profile(&current).await {
            Ok(profile) if is_right(&profile) => return Ok(current),
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

/// Name of the profile that Karpenter made for a class before version 1.7; `None` if IAM allows no such name.
fn legacy_name(settings: &Settings, class_name: &str) -> Option<String> {
    let suffix = hash::instance_profile_suffix(&[&settings.region, class_name]);
    let name = format!("{}_{suffix}", settings.cluster_name);
    (name.len() <= NAME_MAX).then_some(name)
}

/// Whether a profile has the tags of this cluster and of the class. The right to delete it depends on them too.
fn is_of_class(settings: &Settings, class_name: &str, profile: &InstanceProfile) -> bool {
    let cluster = format!("{}{}", tag::CLUSTER_PREFIX, settings.cluster_name);
    let expected =
        [(cluster.as_str(), "owned"), (tag::EC2_NODE_CLASS, class_name), (label::REGION, settings.region.as_str())];
    expected.into_iter().all(|(key, value)| profile.tags.get(key).is_some_and(|it| it == value))
}

/// The profile that Karpenter made for a class before version 1.7. It is outside of the path of this cluster's
/// profiles, so that garbage collection does not find it.
async fn legacy(deps: &NodeClasses, class: &EC2NodeClass) -> Result<Option<String>, CloudError> {
    let class_name = class.metadata.name.as_deref().unwrap_or_default();
    let Some(name) = legacy_name(&deps.settings, class_name) else { return Ok(None) };
    let is_users_choice = |other: &EC2NodeClass| other.spec.instance_profile.as_ref() == Some(&name);
    if deps.stores.classes.state().iter().any(|other| is_users_choice(other)) {
        return Ok(None);
    }
    match deps.cloud_reads.profile(&name).await {
        Ok(profile) => Ok(is_of_class(&deps.settings, class_name, &profile).then_some(name)),
        Err(CloudError::NotFound { .. }) => Ok(None),
        // A narrower policy must not block the deletion of classes.
        Err(CloudError::Denied { message }) => {
            tracing::warn!(node_class = class_name, message, "no right to look for the profile of an older Karpenter");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Names of all profiles created for a class.
async fn created_for(deps: &NodeClasses, class: &EC2NodeClass) -> Result<Vec<String>, CloudError> {
    let listed = deps.cloud_reads.profiles(&path(deps, class)).await?;
    let names = listed.into_iter().map(|profile| profile.name);
    Ok(names.chain(legacy(deps, class).await?).collect())
}

/// Deletes the profiles created for a class.
pub(super) async fn delete_all(deps: &NodeClasses, class: &EC2NodeClass) -> Result<(), WriteError> {
    if class.metadata.uid.as_deref().unwrap_or_default().is_empty() {
        return Ok(());
    }
    let names = match created_for(deps, class).await {
        Ok(names) => names,
        // A VPC without a way to IAM must still be able to delete its classes. If the class had a role before, garbage
        // collection deletes the profile of that role once IAM answers.
        Err(error) if class.spec.instance_profile.is_some() => {
            tracing::warn!(node_class = class.metadata.name, %error, "instance profiles not listed");
            return Ok(());
        }
        Err(error) => return Err(error.into()),
    };
    delete(deps, &names).await
}

/// Names of this cluster's profiles that are not in `used`.
pub(super) async fn unused(deps: &NodeClasses, used: &BTreeSet<String>) -> Result<Vec<String>, CloudError> {
    let listed = deps.cloud_reads.profiles(&cluster_path(deps)).await?;
    Ok(listed.into_iter().map(|profile| profile.name).filter(|name| !used.contains(name)).collect())
}

/// Deletes profiles by name.
pub(super) async fn delete(deps: &NodeClasses, names: &[String]) -> Result<(), WriteError> {
    delete_each(names, |name| async move {
        deps.cloud.delete_profile(name).await?;
        tracing::info!(%name, "deleted an instance profile");
        Ok::<_, WriteError>(())
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn role_name_omits_the_path() {
        assert_eq!(role_name("node"), "node");
        assert_eq!(role_name("arn:aws:iam::1:role/team/node"), "node");
    }

    #[test]
    fn only_this_clusters_profile_of_an_older_karpenter_is_of_the_class() {
        let settings =
            Settings { cluster_name: "demo".to_owned(), region: "us-east-1".to_owned(), ..Settings::default() };
        assert_eq!(legacy_name(&settings, "default").as_deref(), Some("demo_15843455441266977890"));
        let long = Settings { cluster_name: "x".repeat(120), ..settings.clone() };
        assert_eq!(legacy_name(&long, "default"), None);
        let tagged = |cluster: &str, class_name: &str| InstanceProfile {
            name: "demo_15843455441266977890".to_owned(),
            path: "/".to_owned(),
            role: None,
            tags: [
                (format!("kubernetes.io/cluster/{cluster}"), "owned".to_owned()),
                ("karpenter.k8s.aws/ec2nodeclass".to_owned(), class_name.to_owned()),
                ("topology.kubernetes.io/region".to_owned(), "us-east-1".to_owned()),
            ]
            .into(),
        };
        let is_ours = |profile: &InstanceProfile| is_of_class(&settings, "default", profile);
        assert!(is_ours(&tagged("demo", "default")));
        assert!(!is_ours(&tagged("other", "default")) && !is_ours(&tagged("demo", "other")));
        assert!(!is_ours(&InstanceProfile { tags: Tags::new(), ..tagged("demo", "default") }));
    }
}
