//! Subnets and security groups: one query per term with tags, one for all ids, one for all names.

use super::{FILTER_VALUES, ITEMS, filter, from_tags, tag_filters};
use crate::error::classify;
use aws_sdk_ec2::types::Filter;
use plimsoll_actuator::ports::{CloudError, SecurityGroup, SelectorTerm, Subnet};

/// Filters of the queries for `terms`. An empty term is skipped: a query without filters would match everything.
fn queries(terms: &[SelectorTerm], id: &str, name: &str) -> Vec<Vec<Filter>> {
    let of = |pick: fn(&SelectorTerm) -> Option<&String>, key: &str| {
        let values: Vec<&str> = terms.iter().filter_map(|term| pick(term).map(String::as_str)).collect();
        values.chunks(FILTER_VALUES).map(|values| vec![filter(key, values.iter().copied())]).collect::<Vec<_>>()
    };
    let mut queries = of(|term| term.id.as_ref(), id);
    queries.extend(of(|term| term.name.as_ref().filter(|_| term.id.is_none()), name));
    let by_tags = terms.iter().filter(|term| term.id.is_none() && term.name.is_none() && !term.tags.is_empty());
    queries.extend(by_tags.map(|term| tag_filters(&term.tags)));
    queries
}

pub(super) async fn subnets(client: &aws_sdk_ec2::Client, terms: &[SelectorTerm]) -> Result<Vec<Subnet>, CloudError> {
    let mut subnets = Vec::new();
    for filters in queries(terms, "subnet-id", "tag:Name") {
        let call = client.describe_subnets().set_filters(Some(filters)).max_results(ITEMS);
        let mut items = call.into_paginator().items().send();
        while let Some(item) = items.next().await {
            let item = item.map_err(classify)?;
            let (Some(id), Some(zone)) = (item.subnet_id, item.availability_zone) else { continue };
            subnets.push(Subnet {
                id,
                zone,
                zone_id: item.availability_zone_id.unwrap_or_default(),
                free_ipv4_addresses: item.available_ip_address_count.and_then(|it| u32::try_from(it).ok()).unwrap_or(0),
                tags: from_tags(item.tags),
            });
        }
    }
    subnets.sort();
    subnets.dedup_by(|left, right| left.id == right.id);
    Ok(subnets)
}

pub(super) async fn security_groups(
    client: &aws_sdk_ec2::Client,
    terms: &[SelectorTerm],
) -> Result<Vec<SecurityGroup>, CloudError> {
    let mut groups = Vec::new();
    for filters in queries(terms, "group-id", "group-name") {
        let call = client.describe_security_groups().set_filters(Some(filters)).max_results(ITEMS);
        let mut items = call.into_paginator().items().send();
        while let Some(item) = items.next().await {
            let item = item.map_err(classify)?;
            let Some(id) = item.group_id else { continue };
            let name = item.group_name.unwrap_or_default();
            groups.push(SecurityGroup { id, name, tags: from_tags(item.tags) });
        }
    }
    groups.sort();
    groups.dedup_by(|left, right| left.id == right.id);
    Ok(groups)
}
