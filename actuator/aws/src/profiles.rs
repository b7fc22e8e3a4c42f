//! The IAM adapter.

use crate::deadline::{LIST, change, within};
use crate::error::classify;
use async_trait::async_trait;
use aws_config::SdkConfig;
use aws_sdk_iam::error::ProvideErrorMetadata;
use aws_sdk_iam::types::Tag;
use plimsoll_actuator::ports::{CloudError, InstanceProfile, InstanceProfiles, Tags};
use std::time::Duration;

/// Error code if the profile exists, or already has a role.
const EXISTS: &str = "EntityAlreadyExists";

/// Pause before a profile that was just created is looked for again. IAM's reads lag behind its writes by seconds.
const PAUSE: Duration = Duration::from_millis(500);
/// Further attempts: 5 s in all. A role or profile that is missing after that does not exist; the controller tries
/// again in 30 s.
const MAX_ATTEMPTS: u32 = 10;

/// IAM's instance profiles.
#[derive(Debug, Clone)]
pub struct Iam {
    client: aws_sdk_iam::Client,
}

impl Iam {
    /// Creates the client from an SDK configuration.
    #[must_use]
    pub fn new(config: &SdkConfig) -> Self {
        Self { client: aws_sdk_iam::Client::new(config) }
    }

    async fn try_set_role(&self, name: &str, role: &str) -> Result<(), CloudError> {
        let before = self.get(name).await?.role;
        if before.as_deref() == Some(role) {
            return Ok(());
        }
        if let Some(before) = before {
            self.take_role(name, &before).await?;
        }
        let call = self.client.add_role_to_instance_profile().instance_profile_name(name).role_name(role);
        match call.send().await {
            Err(error) if error.code().is_some_and(|code| code.starts_with(EXISTS)) => Ok(()),
            result => result.map(|_| ()).map_err(classify),
        }
    }

    async fn take_role(&self, name: &str, role: &str) -> Result<(), CloudError> {
        let call = self.client.remove_role_from_instance_profile().instance_profile_name(name).role_name(role);
        unless_missing(call.send().await.map(|_| ()).map_err(classify))
    }
}

#[async_trait]
impl InstanceProfiles for Iam {
    async fn get(&self, name: &str) -> Result<InstanceProfile, CloudError> {
        let answer = self.client.get_instance_profile().instance_profile_name(name).send().await.map_err(classify)?;
        let missing = || CloudError::NotFound { message: format!("instance profile {name}") };
        answer.instance_profile.map(profile).ok_or_else(missing)
    }

    async fn create(&self, name: &str, path: &str, tags: &Tags) -> Result<(), CloudError> {
        let mut call = self.client.create_instance_profile().instance_profile_name(name).path(path);
        for (key, value) in tags {
            let tag = Tag::builder()
                .key(key)
                .value(value)
                .build()
                .map_err(|error| CloudError::InvalidRequest { code: "Tag".to_owned(), message: error.to_string() })?;
            call = call.tags(tag);
        }
        match call.send().await {
            Err(error) if error.code().is_some_and(|code| code.starts_with(EXISTS)) => Ok(()),
            result => result.map(|_| ()).map_err(classify),
        }
    }

    async fn set_role(&self, name: &str, role: &str) -> Result<(), CloudError> {
        let set = async {
            let mut attempts = 0;
            loop {
                match self.try_set_role(name, role).await {
                    Err(CloudError::NotFound { .. }) if attempts < MAX_ATTEMPTS => attempts += 1,
                    result => return result,
                }
                tokio::time::sleep(PAUSE).await;
            }
        };
        within(change(), set).await
    }

    async fn delete(&self, name: &str) -> Result<(), CloudError> {
        let delete = async {
            let role = match self.get(name).await {
                Ok(profile) => profile.role,
                Err(CloudError::NotFound { .. }) => return Ok(()),
                Err(error) => return Err(error),
            };
            if let Some(role) = role {
                self.take_role(name, &role).await?;
            }
            let call = self.client.delete_instance_profile().instance_profile_name(name);
            unless_missing(call.send().await.map(|_| ()).map_err(classify))
        };
        within(change(), delete).await
    }

    async fn list(&self, path: &str) -> Result<Vec<InstanceProfile>, CloudError> {
        let list = async {
            let mut pages = self.client.list_instance_profiles().path_prefix(path).into_paginator().items().send();
            let mut profiles = Vec::new();
            while let Some(item) = pages.next().await {
                profiles.push(profile(item.map_err(classify)?));
            }
            profiles.sort();
            Ok(profiles)
        };
        within(LIST, list).await
    }
}

fn profile(found: aws_sdk_iam::types::InstanceProfile) -> InstanceProfile {
    InstanceProfile {
        role: found.roles.first().map(|role| role.role_name.clone()),
        name: found.instance_profile_name,
        path: found.path,
        tags: found.tags.unwrap_or_default().into_iter().map(|tag| (tag.key, tag.value)).collect(),
    }
}

fn unless_missing(result: Result<(), CloudError>) -> Result<(), CloudError> {
    match result {
        Err(CloudError::NotFound { .. }) => Ok(()),
        result => result,
    }
}
