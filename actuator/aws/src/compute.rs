//! The EC2 adapter.

mod dry_run;
mod facts;
mod fleet;
mod images;
mod instances;
mod network;
mod placement;
mod reservations;
mod status;
mod template_data;
mod templates;
#[cfg(test)]
mod tests;

use crate::deadline::{LIST, PAGE, change, within};
use crate::error::classify;
use async_trait::async_trait;
use aws_config::SdkConfig;
use aws_config::retry::RetryConfig;
use aws_config::timeout::TimeoutConfig;
use aws_sdk_ec2::types::{Filter, LocationType, ResourceType, Tag, TagSpecification};
use plimsoll_actuator::ports::{
    CapacityReservation, CloudError, Compute, FleetAnswer, FleetRequest, Image, ImageQuery, Instance, InstanceFilter,
    InstanceRequest, InstanceStatus, InstanceTypeFacts, LaunchTemplate, LaunchTemplateFilter, LaunchTemplateSpec,
    PlacementGroup, PlacementGroupTerm, ReservationTerm, SecurityGroup, SelectorTerm, SpotPrice, Subnet, Tags,
    Termination, TypeOffering,
};
use plimsoll_actuator::requests;
use plimsoll_model::money::MicroUsdPerHour;
use plimsoll_runtime::clock::Clock;
use std::collections::BTreeMap;

/// Spot prices of Linux have one of these descriptions, depending on the age of the account.
const SPOT_PRODUCTS: [&str; 2] = ["Linux/UNIX", "Linux/UNIX (Amazon VPC)"];
/// Maximum number of values in a filter.
const FILTER_VALUES: usize = 200;
/// Page size of instance types, the maximum.
const TYPES: i32 = 100;
/// Page size of other lists. EC2 accepts 1,000 for most.
const ITEMS: i32 = 1000;
/// Tag value in a selector that matches any value.
const ANY: &str = "*";

/// EC2 clients.
#[derive(Debug, Clone)]
pub struct Ec2 {
    /// Client for mutating calls.
    mutations: aws_sdk_ec2::Client,
    /// CreateFleet client, SDK retries off: an ambiguous answer must stay attributable to one request. Also for dry
    /// runs, which must not use up the account's request tokens.
    create_fleet_client: aws_sdk_ec2::Client,
    /// Client for lists.
    reads: aws_sdk_ec2::Client,
    clock: Clock,
}

impl Ec2 {
    /// Creates the clients from an SDK configuration.
    #[must_use]
    pub fn new(config: &SdkConfig, clock: Clock) -> Self {
        let client = |change: &dyn Fn(aws_sdk_ec2::config::Builder) -> aws_sdk_ec2::config::Builder| {
            aws_sdk_ec2::Client::from_conf(change(aws_sdk_ec2::config::Builder::from(config)).build())
        };
        let pages = TimeoutConfig::builder().operation_timeout(PAGE).operation_attempt_timeout(PAGE).build();
        // A single attempt of CreateFleet may need most of the timeout.
        let single_attempt =
            TimeoutConfig::builder().operation_timeout(change()).operation_attempt_timeout(change()).build();
        Self {
            mutations: client(&|builder| builder),
            create_fleet_client: client(&|builder| {
                builder.retry_config(RetryConfig::disabled()).timeout_config(single_attempt.clone())
            }),
            reads: client(&|builder| builder.timeout_config(pages.clone())),
            clock,
        }
    }
}

/// Filters for the tags of a selector.
fn tag_filters(tags: &Tags) -> Vec<Filter> {
    let filter = |(key, value): (&String, &String)| match value.as_str() {
        ANY => filter("tag-key", [key.as_str()]),
        value => filter(&format!("tag:{key}"), [value]),
    };
    tags.iter().map(filter).collect()
}

fn filter<'a>(name: &str, values: impl IntoIterator<Item = &'a str>) -> Filter {
    Filter::builder().name(name).set_values(Some(values.into_iter().map(str::to_owned).collect())).build()
}

fn to_tags(tags: &Tags) -> Vec<Tag> {
    tags.iter().map(|(key, value)| Tag::builder().key(key).value(value).build()).collect()
}

fn tag_specification_tags(specification: requests::TagSpecification) -> Vec<Tag> {
    specification.tags.into_iter().map(|tag| Tag::builder().key(tag.key).value(tag.value).build()).collect()
}

fn tag_specifications(all: Vec<requests::TagSpecification>) -> Vec<TagSpecification> {
    let specification = |item: requests::TagSpecification| {
        let builder = TagSpecification::builder().resource_type(ResourceType::from(item.resource_type));
        builder.set_tags(Some(tag_specification_tags(item))).build()
    };
    all.into_iter().map(specification).collect()
}

fn from_tags(tags: Option<Vec<Tag>>) -> Tags {
    let tags = tags.unwrap_or_default().into_iter();
    tags.filter_map(|tag| Some((tag.key?, tag.value.unwrap_or_default()))).collect()
}

#[async_trait]
impl Compute for Ec2 {
    async fn describe_instance_types(&self) -> Result<Vec<InstanceTypeFacts>, CloudError> {
        let list = async {
            let mut items = self.reads.describe_instance_types().max_results(TYPES).into_paginator().items().send();
            let mut instance_types = Vec::new();
            while let Some(item) = items.next().await {
                instance_types.extend(facts::facts(&item.map_err(classify)?));
            }
            instance_types.sort_by(|left: &InstanceTypeFacts, right| left.name.cmp(&right.name));
            instance_types.dedup_by(|left, right| left.name == right.name);
            Ok(instance_types)
        };
        within(LIST, list).await
    }

    async fn describe_type_offerings(&self) -> Result<Vec<TypeOffering>, CloudError> {
        let list = async {
            let call = self.reads.describe_instance_type_offerings();
            let call = call.location_type(LocationType::AvailabilityZone).max_results(ITEMS);
            let mut items = call.into_paginator().items().send();
            let mut offerings = Vec::new();
            while let Some(item) = items.next().await {
                let item = item.map_err(classify)?;
                let (Some(kind), Some(zone)) = (item.instance_type, item.location) else { continue };
                offerings.push(TypeOffering { instance_type: kind.as_str().to_owned(), zone });
            }
            offerings.sort();
            offerings.dedup();
            Ok(offerings)
        };
        within(LIST, list).await
    }

    async fn spot_prices(&self) -> Result<Vec<SpotPrice>, CloudError> {
        let list = async {
            let now = aws_sdk_ec2::primitives::DateTime::from_millis(self.clock.now_millis());
            let products = SPOT_PRODUCTS.map(str::to_owned).into();
            let call = self.reads.describe_spot_price_history();
            let call = call.set_product_descriptions(Some(products)).start_time(now).max_results(ITEMS);
            let mut items = call.into_paginator().items().send();
            // The history may list several prices per pool: keep the newest.
            let mut newest: BTreeMap<(String, String), (i64, MicroUsdPerHour)> = BTreeMap::new();
            while let Some(item) = items.next().await {
                let item = item.map_err(classify)?;
                let at = item.timestamp.map_or(0, |at| at.secs());
                let price = item.spot_price.and_then(|price| price.parse().ok()).and_then(MicroUsdPerHour::from_usd);
                let (Some(kind), Some(zone), Some(price)) = (item.instance_type, item.availability_zone, price) else {
                    continue;
                };
                let entry = newest.entry((kind.as_str().to_owned(), zone)).or_insert((at, price));
                if at > entry.0 {
                    *entry = (at, price);
                }
            }
            let prices = newest.into_iter();
            Ok(prices.map(|((instance_type, zone), (_, price))| SpotPrice { instance_type, zone, price }).collect())
        };
        within(LIST, list).await
    }

    async fn create_fleet(&self, request: &FleetRequest) -> Result<FleetAnswer, CloudError> {
        within(change(), fleet::create(&self.create_fleet_client, request)).await
    }

    async fn dry_run_fleet(&self, request: &FleetRequest) -> Result<(), CloudError> {
        within(change(), dry_run::fleet(&self.create_fleet_client, request)).await
    }

    async fn dry_run_instance(&self, request: &InstanceRequest) -> Result<(), CloudError> {
        within(change(), dry_run::instance(&self.create_fleet_client, request)).await
    }

    async fn describe_instances(&self, filter: &InstanceFilter) -> Result<Vec<Instance>, CloudError> {
        within(LIST, instances::describe(&self.reads, filter)).await
    }

    async fn terminate_instances(&self, ids: &[String]) -> Result<Vec<Termination>, CloudError> {
        within(change(), instances::terminate(&self.mutations, ids)).await
    }

    async fn create_tags(&self, ids: &[String], tags: &Tags) -> Result<(), CloudError> {
        if ids.is_empty() || tags.is_empty() {
            return Ok(());
        }
        let call = self.mutations.create_tags().set_resources(Some(ids.to_vec())).set_tags(Some(to_tags(tags)));
        call.send().await.map_err(classify)?;
        Ok(())
    }

    async fn ensure_launch_template(&self, template: &LaunchTemplateSpec) -> Result<LaunchTemplate, CloudError> {
        within(change(), templates::ensure(&self.mutations, template)).await
    }

    async fn list_launch_templates(&self, filter: &LaunchTemplateFilter) -> Result<Vec<LaunchTemplate>, CloudError> {
        within(LIST, templates::list(&self.reads, tag_filters(&filter.tags))).await
    }

    async fn delete_launch_templates(&self, names: &[String]) -> Result<(), CloudError> {
        within(change(), templates::delete(&self.mutations, names)).await
    }

    async fn describe_subnets(&self, terms: &[SelectorTerm]) -> Result<Vec<Subnet>, CloudError> {
        within(LIST, network::subnets(&self.reads, terms)).await
    }

    async fn describe_security_groups(&self, terms: &[SelectorTerm]) -> Result<Vec<SecurityGroup>, CloudError> {
        within(LIST, network::security_groups(&self.reads, terms)).await
    }

    async fn describe_capacity_reservations(
        &self,
        terms: &[ReservationTerm],
    ) -> Result<Vec<CapacityReservation>, CloudError> {
        within(LIST, reservations::describe(&self.reads, terms)).await
    }

    async fn describe_placement_groups(&self, term: &PlacementGroupTerm) -> Result<Vec<PlacementGroup>, CloudError> {
        within(LIST, placement::describe(&self.reads, term)).await
    }

    async fn describe_images(&self, query: &ImageQuery) -> Result<Vec<Image>, CloudError> {
        within(LIST, images::images(&self.reads, query, self.clock.now_millis())).await
    }

    async fn describe_instance_status(&self) -> Result<Vec<InstanceStatus>, CloudError> {
        within(LIST, status::unhealthy(&self.reads)).await
    }
}
