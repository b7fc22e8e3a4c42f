//! Launch templates by name. The name is derived from the content, so an existing template needs no update.

use super::template_data::data;
use super::{filter, from_tags, tag_specifications};
use crate::error::classify;
use aws_sdk_ec2::error::ProvideErrorMetadata;
use aws_sdk_ec2::types::Filter;
use plimsoll_actuator::ports::{CloudError, LaunchTemplate, LaunchTemplateSpec};
use plimsoll_actuator::requests::CreateLaunchTemplate;

/// Page size, the maximum.
const TEMPLATES: i32 = 200;
/// Error code if someone else created the template at the same time.
const EXISTS: &str = "InvalidLaunchTemplateName.AlreadyExistsException";

pub(super) async fn ensure(
    client: &aws_sdk_ec2::Client,
    spec: &LaunchTemplateSpec,
) -> Result<LaunchTemplate, CloudError> {
    if let Some(template) = named(client, &spec.name).await? {
        return Ok(template);
    }
    let request = CreateLaunchTemplate::from(spec);
    let call = client
        .create_launch_template()
        .launch_template_name(request.launch_template_name)
        .launch_template_data(data(request.launch_template_data))
        .set_tag_specifications(Some(tag_specifications(request.tag_specifications)));
    match call.send().await {
        Ok(answer) => {
            let created = answer.launch_template.and_then(template);
            created.ok_or_else(|| CloudError::Ambiguous {
                message: format!("no launch template in the answer: {}", spec.name),
            })
        }
        Err(error) if error.code() == Some(EXISTS) => {
            let missing =
                || CloudError::Unavailable { message: format!("launch template {} is being made", spec.name) };
            named(client, &spec.name).await?.ok_or_else(missing)
        }
        Err(error) => Err(classify(error)),
    }
}

async fn named(client: &aws_sdk_ec2::Client, name: &str) -> Result<Option<LaunchTemplate>, CloudError> {
    Ok(list(client, vec![filter("launch-template-name", [name])]).await?.into_iter().next())
}

pub(super) async fn list(
    client: &aws_sdk_ec2::Client,
    filters: Vec<Filter>,
) -> Result<Vec<LaunchTemplate>, CloudError> {
    let call = client.describe_launch_templates().set_filters(Some(filters)).max_results(TEMPLATES);
    let mut items = call.into_paginator().items().send();
    let mut templates = Vec::new();
    while let Some(item) = items.next().await {
        templates.extend(template(item.map_err(classify)?));
    }
    templates.sort();
    templates.dedup_by(|left, right| left.name == right.name);
    Ok(templates)
}

fn template(item: aws_sdk_ec2::types::LaunchTemplate) -> Option<LaunchTemplate> {
    Some(LaunchTemplate {
        name: item.launch_template_name?,
        id: item.launch_template_id.unwrap_or_default(),
        version: item.latest_version_number.and_then(|it| u64::try_from(it).ok()).unwrap_or(1),
        tags: from_tags(item.tags),
    })
}

pub(super) async fn delete(client: &aws_sdk_ec2::Client, names: &[String]) -> Result<(), CloudError> {
    for name in names {
        match client.delete_launch_template().launch_template_name(name).send().await.map_err(classify) {
            Ok(_) | Err(CloudError::NotFound { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
