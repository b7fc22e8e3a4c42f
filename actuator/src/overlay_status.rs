//! Status of NodeOverlays: whether each one is valid, and whether another one of the same weight sets the same value.

use crate::clock::Timestamped;
use crate::io::{ObjectPart, WriteError, Writes};
use crate::pacing::until;
use crate::state::catalogs::Catalogs;
use crate::stores::{Stores, WatchedKind};
use plimsoll_api::NodeOverlay;
use plimsoll_api::condition::node_overlay::{CONDITIONS, VALIDATION_SUCCEEDED};
use plimsoll_api::condition::{Moment, Status};
use plimsoll_model::catalog::Catalog;
use plimsoll_model::identity::CatalogId;
use plimsoll_model::overlay;
use plimsoll_runtime::clock::Clock;
use plimsoll_snapshot::{Extra, Objects};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Minimum interval between passes. Each looks at all offerings of all pools, and the catalogs change with the prices.
const MIN_INTERVAL: Duration = Duration::from_secs(5);
/// Delay before a failed write is retried, if nothing changes.
const RETRY_DELAY: Duration = Duration::from_secs(10);

/// Dependencies of the controller.
#[derive(Clone)]
pub struct OverlayStatus {
    /// Watch cache of the cluster.
    pub stores: Stores,
    /// The catalogs.
    pub catalogs: Catalogs,
    /// Writes to the cluster.
    pub writes: Writes,
    /// Time.
    pub clock: Clock,
}

/// Why an overlay is not in use: reason and message.
type Refusal = (&'static str, String);

/// Writes changed statuses until `stop`.
pub(crate) async fn run(deps: OverlayStatus, stop: CancellationToken) {
    let write = async {
        deps.stores.wait_ready().await;
        let kinds = [WatchedKind::NodeOverlay, WatchedKind::NodePool, WatchedKind::EC2NodeClass];
        let mut objects = deps.stores.changes(&kinds);
        let mut catalogs = deps.catalogs.subscribe();
        loop {
            catalogs.mark_unchanged();
            let failed = write_all(&deps).await;
            tokio::time::sleep(MIN_INTERVAL).await;
            tokio::select! {
                biased;
                () = objects.next() => {}
                Ok(()) = catalogs.changed() => {}
                () = tokio::time::sleep(RETRY_DELAY), if failed => {}
            }
        }
    };
    until::<()>(&stop, write).await;
}

/// Writes the statuses that differ. Returns whether a write failed.
async fn write_all(deps: &OverlayStatus) -> bool {
    let overlays = deps.stores.overlays.state();
    if overlays.is_empty() {
        return false;
    }
    let refused = refused(deps, &overlays);
    let mut failed = false;
    for overlay in overlays {
        let name = overlay.metadata.name.as_deref().unwrap_or_default();
        if let Err(error) = show(deps, &overlay, refused.get(name)).await {
            failed = true;
            tracing::debug!(node_overlay = name, %error, "status not written");
        }
    }
    failed
}

/// The overlays that are not in use, by name.
fn refused(deps: &OverlayStatus, overlays: &[Arc<NodeOverlay>]) -> BTreeMap<String, Refusal> {
    let objects = Objects {
        node_pools: deps.stores.pools.state().iter().map(|pool| (**pool).clone()).collect(),
        node_classes: deps.stores.classes.state().iter().map(|class| (**class).clone()).collect(),
        node_overlays: overlays.iter().map(|overlay| (**overlay).clone()).collect(),
        ..Objects::default()
    };
    let entries = deps.catalogs.all();
    let known = entries.iter().filter_map(|(class, entry)| Some((class, entry.catalog.as_ref()?)));
    let (mut catalogs, mut of_classes) = (BTreeMap::new(), BTreeMap::new());
    for (class, (id, catalog)) in known {
        catalogs.insert(id.clone(), Arc::clone(catalog));
        of_classes.insert(class.clone(), id.clone());
    }
    let extra = Extra { now: deps.clock.timestamp(), catalogs: of_classes, ..Extra::default() };
    judge(&objects, &extra, &catalogs)
}

fn judge(objects: &Objects, extra: &Extra, catalogs: &BTreeMap<CatalogId, Arc<Catalog>>) -> BTreeMap<String, Refusal> {
    let (snapshot, problems) = plimsoll_snapshot::build(objects, extra);
    let invalid = problems.into_iter().filter(|problem| problem.kind == "NodeOverlay");
    let mut refused: BTreeMap<String, Refusal> = invalid
        .map(|problem| (problem.name, ("RuntimeValidation", format!("{}: {}", problem.field, problem.message))))
        .collect();
    for (name, other) in overlay::conflicts(&snapshot, catalogs) {
        let message = format!("NodeOverlay {other} has the same weight and sets the same price or capacity");
        refused.insert(name.to_owned(), ("Conflict", message));
    }
    refused
}

async fn show(deps: &OverlayStatus, overlay: &NodeOverlay, refused: Option<&Refusal>) -> Result<(), WriteError> {
    let now = deps.clock.now();
    let change = |overlay: &mut NodeOverlay| {
        let moment = Moment::of(&overlay.metadata, now);
        let conditions = &mut overlay.status.get_or_insert_default().conditions;
        match refused {
            Some((reason, message)) => {
                CONDITIONS.set(conditions, moment, VALIDATION_SUCCEEDED, Status::False, reason, message);
            }
            None => {
                CONDITIONS.set_true(conditions, moment, VALIDATION_SUCCEEDED);
            }
        }
    };
    deps.writes.update(overlay, ObjectPart::Status, change).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::catalogs::fixtures::instance_type;
    use plimsoll_model::catalog::{CapacityType, InstanceType, Offering};
    use plimsoll_model::money::MicroUsdPerHour;
    use plimsoll_snapshot::Source;
    use serde::de::DeserializeOwned;
    use serde_json::{Value, json};

    fn read<T: DeserializeOwned>(object: Value) -> T {
        serde_json::from_value(object).unwrap()
    }

    fn overlay(name: &str, price: &str) -> NodeOverlay {
        let amd64 = json!([{"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]}]);
        read(json!({"metadata": {"name": name}, "spec": {"requirements": amd64, "price": price}}))
    }

    #[test]
    fn invalid_and_conflicting_overlays_are_refused_with_the_reason() {
        let offering = Offering {
            zone: "a".to_owned(),
            capacity_type: CapacityType::OnDemand,
            price: MicroUsdPerHour(100),
            available: true,
            ..Offering::default()
        };
        let instance_type = InstanceType { offerings: vec![offering], ..instance_type("m5.large") };
        let catalog = Catalog { region: "r".to_owned(), instance_types: vec![instance_type] };
        let id = CatalogId::from("c");
        let class = json!({"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"});
        let objects = Objects {
            node_pools: vec![read(json!({"metadata": {"name": "p"},
                "spec": {"template": {"spec": {"nodeClassRef": class, "requirements": []}}}}))],
            node_classes: vec![read(json!({"metadata": {"name": "default"}, "spec": {"role": "r",
                "amiSelectorTerms": [{"alias": "al2023@latest"}], "subnetSelectorTerms": [{"id": "subnet-1"}],
                "securityGroupSelectorTerms": [{"id": "sg-1"}]}}))],
            node_overlays: vec![overlay("dear", "99999999"), overlay("one", "0.1"), overlay("two", "0.2")],
            ..Objects::default()
        };
        let extra = Extra {
            source: Source::Files,
            catalogs: BTreeMap::from([("default".to_owned(), id.clone())]),
            ..Extra::default()
        };
        let refused = judge(&objects, &extra, &BTreeMap::from([(id, Arc::new(catalog))]));
        let reasons: Vec<(&str, &str)> = refused.iter().map(|(name, (reason, _))| (name.as_str(), *reason)).collect();
        assert_eq!(reasons, [("dear", "RuntimeValidation"), ("one", "Conflict")]);
        assert!(refused["dear"].1.starts_with("spec.price: "), "{}", refused["dear"].1);
        assert!(refused["one"].1.contains("NodeOverlay two "), "{}", refused["one"].1);
    }
}
