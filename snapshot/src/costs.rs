//! Reads the cost annotations of a NodePool: additional costs per node and performance of instance families.

use crate::annotations;
use crate::decimal::{MILLION, millionths};
use crate::problems::Fault;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use plimsoll_api::{EC2NodeClass, EC2NodeClassSpec};
use plimsoll_model::costs::NodeCosts;
use plimsoll_model::money::MicroUsdPerHour;
use plimsoll_model::names::annotation;
use plimsoll_model::quantity::Quantity;
use std::collections::BTreeMap;

/// Hours per month in AWS prices.
const HOURS_PER_MONTH: i64 = 730;

/// Allowed performance factors, in millionths. Values outside are treated as mistakes.
const PERFORMANCE_RANGE: std::ops::RangeInclusive<i64> = MILLION / 10..=MILLION * 10;

/// Reads the costs of `pool` for nodes of `class`. Without a class, volumes cost nothing.
///
/// # Errors
/// The invalid annotation.
pub(crate) fn read(pool: &ObjectMeta, class: Option<&EC2NodeClass>) -> Result<NodeCosts, Fault> {
    let fee = dollars(pool, annotation::NODE_COST)?;
    let by_gib = dollars(pool, annotation::VOLUME_COST)?;
    let gib = class.map_or(0, |class| volumes_gib(&class.spec));
    let volumes = by_gib.saturating_mul(i64::try_from(gib).unwrap_or(i64::MAX)) / HOURS_PER_MONTH;
    Ok(NodeCosts { per_node: MicroUsdPerHour(fee.saturating_add(volumes)), performance: performance(pool)? })
}

/// Total size of a node's EBS volumes. Volumes whose size comes from a snapshot or image count as zero.
fn volumes_gib(spec: &EC2NodeClassSpec) -> u64 {
    if spec.block_device_mappings.is_empty() {
        return spec.effective_ami_family().default_volumes().iter().map(|(_, gib)| gib).sum();
    }
    let sizes = spec.block_device_mappings.iter().filter_map(|mapping| mapping.ebs.as_ref()?.volume_size.as_ref());
    sizes.filter_map(|size| Quantity::parse(&size.0).ok()?.gib_ceil()).fold(0, u64::saturating_add)
}

/// Value of an annotation in millionths of a dollar; zero without the annotation.
fn dollars(pool: &ObjectMeta, key: &str) -> Result<i64, Fault> {
    let Some(text) = annotations::text(pool, key).map(str::trim) else { return Ok(0) };
    let message = || format!("{text:?} is not an amount in US dollars, such as 0.08");
    millionths(text).ok_or_else(|| annotations::fault(key, message()))
}

/// Parses factors by instance family, such as `m7i=1.15,m8g=1.3`.
fn performance(pool: &ObjectMeta) -> Result<BTreeMap<String, u32>, Fault> {
    let key = annotation::PERFORMANCE;
    let mut factors = BTreeMap::new();
    let entries = annotations::text(pool, key).unwrap_or_default().split(',').map(str::trim);
    for entry in entries.filter(|entry| !entry.is_empty()) {
        let parsed = entry.split_once('=').and_then(|(family, factor)| {
            let factor = millionths(factor.trim()).filter(|factor| PERFORMANCE_RANGE.contains(factor))?;
            Some((family.trim(), u32::try_from(factor).ok()?)).filter(|(family, _)| !family.is_empty())
        });
        let Some((family, factor)) = parsed else {
            let wanted = "an instance family and a number from 0.1 to 10, such as m7i=1.15";
            return Err(annotations::fault(key, format!("{entry:?} is not {wanted}")));
        };
        if factors.insert(family.to_owned(), factor).is_some() {
            return Err(annotations::fault(key, format!("{family:?} is named twice")));
        }
    }
    Ok(factors)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn costs(annotations: &Value, spec: &Value) -> Result<NodeCosts, Fault> {
        let pool: ObjectMeta = serde_json::from_value(json!({"annotations": annotations})).unwrap();
        let mut class = json!({"subnetSelectorTerms": [], "securityGroupSelectorTerms": []});
        class.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        let class: EC2NodeClass =
            serde_json::from_value(json!({"metadata": {"name": "default"}, "spec": class})).unwrap();
        read(&pool, Some(&class))
    }

    #[test]
    fn fees_and_volume_costs_are_added_per_hour() {
        let table = [
            (json!({}), json!({}), 0),
            (json!({"plimsoll.dev/node-cost-per-hour": "0.031"}), json!({}), 31_000),
            // 20 GiB of AL2023 at 0.073 per month: 1.46 / 730.
            (json!({"plimsoll.dev/volume-cost-per-gib-month": "0.073"}), json!({"amiFamily": "AL2023"}), 2_000),
            (json!({"plimsoll.dev/volume-cost-per-gib-month": "0.073"}), json!({"amiFamily": "Bottlerocket"}), 2_400),
            // 100 GiB, and a volume whose size comes from a snapshot.
            (
                json!({"plimsoll.dev/volume-cost-per-gib-month": "0.073", "plimsoll.dev/node-cost-per-hour": " 1 "}),
                json!({"blockDeviceMappings": [{"ebs": {"volumeSize": "100Gi"}}, {"ebs": {"snapshotID": "snap-1"}}]}),
                1_010_000,
            ),
        ];
        for (annotations, class, micro) in table {
            let result = costs(&annotations, &class).map(|costs| costs.per_node);
            assert_eq!(result, Ok(MicroUsdPerHour(micro)), "{annotations} {class}");
        }
    }

    #[test]
    fn performance_factors_are_parsed_by_family() {
        let result = costs(&json!({"plimsoll.dev/performance": "m7i=1.15, c8g = 1.3,"}), &json!({})).unwrap();
        assert_eq!(result.performance, BTreeMap::from([("c8g".to_owned(), 1_300_000), ("m7i".to_owned(), 1_150_000)]));
    }

    #[test]
    fn an_invalid_cost_names_the_annotation() {
        let table = [
            ("plimsoll.dev/node-cost-per-hour", "-1"),
            ("plimsoll.dev/node-cost-per-hour", ""),
            ("plimsoll.dev/volume-cost-per-gib-month", "8 cents"),
            ("plimsoll.dev/performance", "m7i"),
            ("plimsoll.dev/performance", "=1"),
            ("plimsoll.dev/performance", "m7i=0"),
            ("plimsoll.dev/performance", "m7i=11"),
            ("plimsoll.dev/performance", "m7i=1,m7i=2"),
        ];
        for (key, text) in table {
            let fault = costs(&json!({key: text}), &json!({})).unwrap_err();
            assert_eq!(fault.field, format!("metadata.annotations[{key}]"), "{text:?}");
        }
    }
}
