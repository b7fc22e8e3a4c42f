//! Launches of plans, and what the actuator launched.

use super::{FakeWatcher, Wanted};
use kube::Api;
use kube::api::ListParams;
use plimsoll_api::{NodeClaim, condition};
use plimsoll_model::catalog::{CapacityType, Catalog};
use plimsoll_model::names::label;
use plimsoll_model::plan::{Launch, OfferingChoice, PodRef};
use plimsoll_model::requirements::{NodeSelectorRequirement, Operator};
use plimsoll_model::resources::Resources;
use plimsoll_model::taints::{Taint, TaintEffect};
use plimsoll_sim::apiserver::{ResourceId, object};
use plimsoll_sim::cloud::Action;
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Time limit of every wait. A launch may be resumed by the next leader, and look for its instances first.
const LIMIT: Duration = Duration::from_secs(300);

impl FakeWatcher {
    /// A launch of one instance type with the requirements of the pool.
    pub(super) fn launch(&self, catalog: &Catalog, wanted: &Wanted<'_>) -> Launch {
        let pool = self.world.get(ResourceId::NODE_POOLS, "default").unwrap();
        let taint = |taint: &Value| Taint {
            key: object::text(taint, &["key"]).to_owned(),
            value: object::text(taint, &["value"]).to_owned(),
            effect: TaintEffect::parse(object::text(taint, &["effect"])).unwrap(),
        };
        let labels = pool.pointer("/spec/template/metadata/labels").cloned().unwrap_or_default();
        Launch {
            taints: object::items(&pool, &["spec", "template", "spec", "taints"]).iter().map(taint).collect(),
            labels: serde_json::from_value(labels).unwrap_or_default(),
            ..launch(catalog, wanted.action, &[wanted.instance_type], wanted.capacity_type, wanted.pods.clone())
        }
    }

    /// All claims.
    ///
    /// # Panics
    /// If the API server does not list them.
    pub async fn claims(&self) -> Vec<NodeClaim> {
        let api: Api<NodeClaim> = Api::all(self.world.server().client("test"));
        api.list(&ListParams::default()).await.unwrap().items
    }

    /// Number of instances that were ever launched.
    #[must_use]
    pub fn bought(&self) -> usize {
        self.world.ec2.read(|cloud, _| cloud.ever_launched().len())
    }

    /// Number of fleet calls.
    #[must_use]
    pub fn fleet_calls(&self) -> usize {
        self.world.ec2.read(|cloud, _| cloud.log.iter().filter(|call| call.action == Action::CreateFleet).count())
    }

    /// Waits until EC2 was asked for fleets this often.
    pub async fn until_fleet_calls(&self, count: usize) {
        self.until("fleets are requested", LIMIT, |_| self.fleet_calls() >= count).await;
    }

    /// Waits until every claim has its own instance, and checks that no other instance was ever launched.
    ///
    /// # Panics
    /// If that is not so in time, or another instance was launched.
    pub async fn settled(&self, count: usize) -> Vec<NodeClaim> {
        let start = Instant::now();
        loop {
            let claims = self.claims().await;
            let launched = |claim: &NodeClaim| {
                let status = claim.status.clone().unwrap_or_default();
                condition::is_true(&status.conditions, condition::node_claim::LAUNCHED) && status.provider_id.is_some()
            };
            if claims.len() == count && claims.iter().all(launched) {
                let ids: BTreeSet<_> = claims.iter().map(|claim| claim.status.clone().unwrap().provider_id).collect();
                assert_eq!((ids.len(), self.bought()), (count, count), "one instance each, and no others");
                return claims;
            }
            let seen: Vec<_> = claims.iter().map(|claim| (&claim.metadata.name, &claim.status)).collect();
            assert!(start.elapsed() < LIMIT, "not settled: {seen:#?}, launched {}", self.bought());
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }
}

/// A launch by the pool `default` on any of these types, with one capacity type in every zone, cheapest first.
///
/// # Panics
/// If the catalog lacks a type.
#[must_use]
pub fn launch(
    catalog: &Catalog,
    action: &str,
    types: &[&str],
    capacity_type: CapacityType,
    pods: Vec<PodRef>,
) -> Launch {
    let mut offerings: Vec<OfferingChoice> = Vec::new();
    for name in types {
        let kind = catalog.get(name).unwrap();
        let on_offer = kind.offerings.iter().filter(|it| it.capacity_type == capacity_type && it.available);
        offerings.extend(on_offer.map(|it| OfferingChoice {
            instance_type: (*name).to_owned(),
            zone: it.zone.clone(),
            capacity_type: it.capacity_type,
            price: it.price,
            reservation: it.reservation.as_ref().map(|reservation| reservation.id.clone()),
        }));
    }
    offerings.sort_by(|a, b| (a.price, &a.instance_type, &a.zone).cmp(&(b.price, &b.instance_type, &b.zone)));
    let requirement = NodeSelectorRequirement::new(label::INSTANCE_TYPE, Operator::In, types.to_vec());
    Launch {
        action_id: action.into(),
        node_pool: "default".into(),
        node_class: "default".to_owned(),
        offerings: Arc::new(offerings),
        requirements: Arc::new(vec![requirement]),
        requests: Resources::from([("cpu", 1000), ("memory", 1 << 30), ("pods", 1)]),
        pods,
        why: "a test".to_owned(),
        ..Launch::default()
    }
}
