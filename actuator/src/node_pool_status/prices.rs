//! Prices of launched claims that have none recorded: claims of Karpenter or of an older version, and those whose
//! instance has left its capacity reservation. A limit of the price counts what is recorded.

use crate::fencing::CLUSTER_CALL;
use crate::io::ObjectPart;
use crate::node_pool_status::NodePoolStatus;
use crate::pacing::interval_passed;
use crate::state::catalogs::Entries;
use kube::ResourceExt;
use plimsoll_api::NodeClaim;
use plimsoll_model::money::MicroUsdPerHour;
use plimsoll_model::names::annotation;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Interval between checks. Claims without a price are rare, and launches wait for it only in pools that limit prices.
const INTERVAL: Duration = Duration::from_secs(10);

pub(super) async fn run(deps: &NodePoolStatus, stop: &CancellationToken) {
    while interval_passed(stop, INTERVAL).await {
        // In shadow mode, each claim of Karpenter would only log a warning.
        if deps.fence.check(CLUSTER_CALL).is_err() {
            continue;
        }
        let catalogs = deps.catalogs.all();
        for claim in deps.stores.claims.state() {
            let Some(price) = missing_price(&catalogs, &claim) else { continue };
            let record = |claim: &mut NodeClaim| {
                claim.annotations_mut().insert(annotation::USD_PER_HOUR.to_owned(), price.to_string());
            };
            if let Err(error) = deps.writes.update(&*claim, ObjectPart::Main, record).await {
                // The next pass tries again. The error may concern this claim only.
                tracing::warn!(node_claim = claim.name_any(), %error, "price not recorded");
                if stop.is_cancelled() || deps.fence.check(CLUSTER_CALL).is_err() {
                    break;
                }
            }
        }
    }
}

/// The current price of a launched claim that has none recorded, if the catalog knows it.
fn missing_price(catalogs: &Entries, claim: &NodeClaim) -> Option<MicroUsdPerHour> {
    if claim.price().is_some() || claim.provider_id().is_none() {
        return None;
    }
    let (_, catalog) = catalogs.get(&claim.spec.node_class_ref.name)?.catalog.as_ref()?;
    catalog.offering_of(claim.labels()).map(|offering| offering.list_price())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::tests::{catalog, claim, offering};
    use plimsoll_model::catalog::CapacityType;
    use serde_json::json;

    #[test]
    fn a_launched_claim_without_a_price_gets_that_of_its_offering() {
        let catalogs = catalog(vec![
            offering("us-west-2a", CapacityType::Spot, 40_000, true),
            offering("us-west-2a", CapacityType::OnDemand, 96_000, true),
        ]);
        let missing = |change: &dyn Fn(&mut serde_json::Value)| {
            let mut claim = claim("a", "default");
            change(&mut claim);
            missing_price(&catalogs, &serde_json::from_value(claim).unwrap()).map(|price| price.0)
        };
        assert_eq!(missing(&|_| ()), Some(40_000));
        let annotated = |price: &str| json!({ annotation::USD_PER_HOUR: price });
        assert_eq!(missing(&|claim| claim["metadata"]["annotations"] = annotated("0.05")), None, "it has one");
        let unreadable = missing(&|claim| claim["metadata"]["annotations"] = annotated("a lot"));
        assert_eq!(unreadable, Some(40_000));
        assert_eq!(missing(&|claim| claim["status"]["providerID"] = json!("")), None, "not launched");
        let elsewhere = missing(&|claim| claim["metadata"]["labels"]["topology.kubernetes.io/zone"] = json!("z"));
        assert_eq!(elsewhere, None, "the catalog does not know");
    }
}
