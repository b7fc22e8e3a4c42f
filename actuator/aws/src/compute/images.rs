//! Images.

use super::{FILTER_VALUES, ITEMS, filter, from_tags, tag_filters};
use crate::error::classify;
use aws_sdk_ec2::primitives::{DateTime, DateTimeFormat};
use aws_sdk_ec2::types::Filter;
use plimsoll_actuator::ports::{CloudError, Image, ImageQuery};
use plimsoll_model::time::Timestamp;

/// `now` is in milliseconds since the epoch and decides which images are deprecated.
pub(super) async fn images(
    client: &aws_sdk_ec2::Client,
    query: &ImageQuery,
    now: i64,
) -> Result<Vec<Image>, CloudError> {
    let queries: Vec<(Vec<Filter>, Option<String>)> = match query {
        ImageQuery::Ids(ids) => ids
            .chunks(FILTER_VALUES)
            .map(|ids| (vec![filter("image-id", ids.iter().map(String::as_str))], None))
            .collect(),
        ImageQuery::Terms(terms) => {
            let mut queries = Vec::new();
            for term in terms {
                let mut filters = tag_filters(&term.tags);
                filters.extend(term.id.as_ref().map(|id| filter("image-id", [id.as_str()])));
                filters.extend(term.name.as_ref().map(|name| filter("name", [name.as_str()])));
                // A query without filters would match every public image.
                if !filters.is_empty() {
                    queries.push((filters, term.owner.clone()));
                }
            }
            queries
        }
    };
    let mut images = Vec::new();
    for (mut filters, owner) in queries {
        filters.push(filter("state", ["available"]));
        let call = client
            .describe_images()
            .set_filters(Some(filters))
            .set_owners(owner.map(|owner| vec![owner]))
            .include_deprecated(true)
            .max_results(ITEMS);
        let mut items = call.into_paginator().items().send();
        while let Some(item) = items.next().await {
            images.extend(image(item.map_err(classify)?, now));
        }
    }
    images.sort();
    images.dedup_by(|left, right| left.id == right.id);
    Ok(images)
}

fn image(item: aws_sdk_ec2::types::Image, now: i64) -> Option<Image> {
    let at = |text: Option<&String>| DateTime::from_str(text?, DateTimeFormat::DateTime).ok()?.to_millis().ok();
    Some(Image {
        id: item.image_id?,
        name: item.name.unwrap_or_default(),
        architecture: item.architecture.map(|it| it.as_str().to_owned()).unwrap_or_default(),
        created: Timestamp(at(item.creation_date.as_ref()).unwrap_or(i64::MIN)),
        deprecated: at(item.deprecation_time.as_ref()).is_some_and(|deprecated| deprecated <= now),
        tags: from_tags(item.tags),
    })
}
