//! Updates and deletes claims: records their instance, or deletes claims without one. [`super::create`] creates them.

use super::attempt::Attempt;
use super::record::primary_annotations;
use crate::io::{ObjectPart, UpdateResult, WriteError};
use crate::launch::launcher::Launcher;
use crate::launch_template;
use crate::ports::FleetInstance;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use plimsoll_api::condition::Status;
use plimsoll_api::condition::node_claim::LAUNCHED;
use plimsoll_api::{EC2NodeClass, NodeClaim, ResourceList};
use plimsoll_model::catalog::{CapacityReservation, InstanceType};
use plimsoll_model::money::MicroUsdPerHour;
use plimsoll_model::names::{NODES_RESOURCE, USD_PER_HOUR_RESOURCE, annotation as key, label};
use plimsoll_model::quantity::format_amount;
use plimsoll_model::resources::Resources;
use std::collections::BTreeMap;

/// Durably writes the next attempt, before its request is sent (safety rule 3).
///
/// # Errors
/// The write failed.
pub async fn raise(
    deps: &Launcher,
    primary: &NodeClaim,
    attempt: &Attempt,
) -> Result<UpdateResult<NodeClaim>, WriteError> {
    let annotations = primary_annotations(attempt);
    deps.writes
        .update(primary, ObjectPart::Main, |claim| {
            claim.metadata.annotations.get_or_insert_default().extend(annotations.clone());
        })
        .await
}

/// Deletes a claim that has no instance and will get none. Its finalizer is removed at once, since there is nothing to
/// terminate. A claim whose creation was not confirmed has no UID here, so an object with its name is not deleted; the
/// scan for unfinished groups finds it if it is ours.
///
/// # Errors
/// The claim may still exist.
pub async fn abandon(deps: &Launcher, claim: &NodeClaim) -> Result<(), WriteError> {
    if claim.metadata.uid.is_none() {
        return Ok(());
    }
    deps.writes.delete(claim, None).await?;
    deps.writes.release(claim).await.map(|_| ())
}

/// Facts about a claim's instance.
#[derive(Debug, Clone)]
pub struct LaunchedInstance<'a> {
    /// The instance.
    pub instance: &'a FleetInstance,
    /// The capacity reservation that it is in.
    pub reservation: Option<CapacityReservation>,
    /// Price at which it counts against limits.
    pub price: Option<MicroUsdPerHour>,
    /// Its type in the node class's catalog, if still present.
    pub instance_type: Option<&'a InstanceType>,
    /// Its node class, if still present.
    pub class: Option<&'a EC2NodeClass>,
    /// Whether the claim requests Elastic Fabric Adapters.
    pub requests_efa: bool,
    /// Region.
    pub region: &'a str,
    /// Zone id; empty if unknown.
    pub zone_id: String,
    /// The instance profile of its node class now; empty if unknown. Used if the claim does not name one.
    pub instance_profile: String,
}

impl LaunchedInstance<'_> {
    /// The provider id of its Node: `aws:///zone/id`.
    #[must_use]
    pub fn provider_id(&self) -> String {
        format!("aws:///{}/{}", self.instance.zone, self.instance.instance_id)
    }

    /// Resources that the claim counts against limits; `None` if the type is unknown.
    #[must_use]
    pub fn counted(&self) -> Option<Resources> {
        let mut counted = self.attached(self.instance_type?.capacity.clone());
        counted.set(NODES_RESOURCE, 1);
        self.price.iter().for_each(|price| counted.set(USD_PER_HOUR_RESOURCE, price.0));
        Some(counted)
    }

    fn attached(&self, resources: Resources) -> Resources {
        launch_template::attached(resources, self.class, self.requests_efa)
    }

    /// Labels of the type and of the offering.
    fn labels(&self) -> BTreeMap<String, String> {
        let mut labels: BTreeMap<String, String> = BTreeMap::new();
        if let Some(instance_type) = self.instance_type {
            labels.extend(instance_type.labels.clone());
            labels.insert(label::ARCH.to_owned(), instance_type.architecture.clone());
            if let [os] = instance_type.operating_systems.as_slice() {
                labels.insert(label::OS.to_owned(), os.clone());
            }
        }
        for key in label::CAPACITY_RESERVATION {
            let value = self.reservation.as_ref().and_then(|reservation| reservation.label(key));
            labels.extend(value.map(|value| (key.to_owned(), value.to_owned())));
        }
        for (key, value) in [
            (label::INSTANCE_TYPE, self.instance.instance_type.as_str()),
            (label::ZONE, &self.instance.zone),
            (label::ZONE_ID, &self.zone_id),
            (label::CAPACITY_TYPE, self.instance.capacity_type.as_str()),
            (label::REGION, self.region),
        ] {
            if !value.is_empty() {
                labels.insert(key.to_owned(), value.to_owned());
            }
        }
        labels
    }
}

/// Writes the match: labels first, then providerID, capacity and the condition Launched, which together complete the
/// launch.
///
/// # Errors
/// The claim was not written, or only in part.
pub async fn mark_launched(
    deps: &Launcher,
    claim: &NodeClaim,
    launched: &LaunchedInstance<'_>,
) -> Result<UpdateResult<NodeClaim>, WriteError> {
    let labels = launched.labels();
    let labelled = deps
        .writes
        .update(claim, ObjectPart::Main, |claim| {
            let own_labels = claim.metadata.labels.take().unwrap_or_default();
            // The claim's own labels take precedence over the type's.
            let mut merged = labels.clone();
            merged.extend(own_labels);
            claim.metadata.labels = Some(merged);
            let annotations = claim.metadata.annotations.get_or_insert_default();
            if let Some(price) = launched.price {
                annotations.insert(key::USD_PER_HOUR.to_owned(), price.to_string());
            }
            // Claims of older versions have none yet.
            if !launched.instance_profile.is_empty() {
                let profile = annotations.entry(key::INSTANCE_PROFILE_NAME.to_owned());
                profile.or_insert_with(|| launched.instance_profile.clone());
            }
        })
        .await?;
    let claim = match &labelled {
        UpdateResult::Written(updated) => updated,
        UpdateResult::Unchanged => claim,
        UpdateResult::Gone => return Ok(UpdateResult::Gone),
    };
    let now = deps.clock.now();
    deps.writes
        .update(claim, ObjectPart::Status, |claim| {
            let status = claim.status.get_or_insert_default();
            status.provider_id = Some(launched.provider_id());
            status.image_id = Some(launched.instance.image_id.clone()).filter(|image| !image.is_empty());
            if let Some(instance_type) = launched.instance_type {
                status.capacity = quantities(&launched.attached(instance_type.capacity.clone()));
                status.allocatable = quantities(&launched.attached(instance_type.allocatable()));
            }
            claim.set_condition(now, LAUNCHED, Status::True, LAUNCHED, "");
        })
        .await
}

fn quantities(amounts: &Resources) -> ResourceList {
    let positive = amounts.iter().filter(|(_, amount)| *amount > 0);
    positive.map(|(name, amount)| (name.to_owned(), Quantity(format_amount(name, amount)))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_model::catalog::CapacityType;

    fn kind(operating_systems: &[&str]) -> InstanceType {
        InstanceType {
            name: "m5.large".to_owned(),
            architecture: "amd64".to_owned(),
            operating_systems: operating_systems.iter().map(|os| (*os).to_owned()).collect(),
            capacity: Resources::from([("cpu", 2000), ("vpc.amazonaws.com/efa", 1)]),
            labels: BTreeMap::from([("of-type".to_owned(), "yes".to_owned())]),
            ..InstanceType::default()
        }
    }

    fn bought() -> FleetInstance {
        FleetInstance {
            instance_id: "i-1".to_owned(),
            instance_type: "m5.large".to_owned(),
            zone: "zone-a".to_owned(),
            capacity_type: CapacityType::Reserved,
            subnet_id: String::new(),
            image_id: String::new(),
        }
    }

    fn launched<'a>(instance: &'a FleetInstance, instance_type: Option<&'a InstanceType>) -> LaunchedInstance<'a> {
        LaunchedInstance {
            instance,
            reservation: None,
            price: Some(MicroUsdPerHour(500)),
            instance_type,
            class: None,
            requests_efa: false,
            region: "region",
            zone_id: String::new(),
            instance_profile: String::new(),
        }
    }

    #[test]
    fn an_instance_counts_its_capacity_itself_and_its_price() {
        let (bought, kind) = (bought(), kind(&["linux"]));
        let plain = launched(&bought, Some(&kind));
        assert_eq!(plain.provider_id(), "aws:///zone-a/i-1");
        let expected = Resources::from([("cpu", 2000), (NODES_RESOURCE, 1), (USD_PER_HOUR_RESOURCE, 500)]);
        assert_eq!(plain.counted(), Some(expected));
        let unpriced = LaunchedInstance { price: None, ..plain }.counted().unwrap();
        assert!(!unpriced.contains(USD_PER_HOUR_RESOURCE), "nobody knows it");
        assert_eq!(launched(&bought, None).counted(), None);
        let amounts = quantities(&Resources::from([("cpu", 1500), ("nvidia.com/gpu", 0)]));
        assert_eq!(amounts, [("cpu".to_owned(), Quantity("1500m".to_owned()))].into());
    }

    #[test]
    fn labels_of_an_instance_are_those_of_its_type_its_place_and_its_reservation() {
        let text = |labels: BTreeMap<String, String>| -> Vec<String> {
            labels.into_iter().map(|(key, value)| format!("{}={value}", key.rsplit('/').next().unwrap())).collect()
        };
        let (bought, linux, unclear) = (bought(), kind(&["linux"]), kind(&["linux", "windows"]));
        let own = ["capacity-type=reserved", "instance-type=m5.large", "region=region", "zone=zone-a"];
        let sorted = |mut all: Vec<&'static str>| {
            all.extend(own);
            all.sort_unstable();
            all
        };
        let shown = |launched: LaunchedInstance<'_>| {
            let mut all = text(launched.labels());
            all.sort_unstable();
            all
        };
        assert_eq!(shown(launched(&bought, None)), sorted(Vec::new()));
        assert_eq!(shown(launched(&bought, Some(&unclear))), sorted(vec!["of-type=yes", "arch=amd64"]));
        let reservation =
            CapacityReservation { id: "cr-1".to_owned(), capacity_block: true, interruptible: false, count: None };
        let zone_id = "id-a".to_owned();
        let all = LaunchedInstance { reservation: Some(reservation), zone_id, ..launched(&bought, Some(&linux)) };
        let of_reservation = [
            "capacity-reservation-id=cr-1",
            "capacity-reservation-type=capacity-block",
            "capacity-reservation-interruptible=false",
        ];
        let others = ["of-type=yes", "arch=amd64", "os=linux", "zone-id=id-a"];
        assert_eq!(shown(all), sorted([&of_reservation[..], &others].concat()));
    }
}
