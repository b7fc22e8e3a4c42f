//! Capacity reservations of a node class.

use super::controller::NodeClasses;
use super::selectors;
use super::status::LookUpResult;
use crate::clock::Timestamped;
use crate::io::WriteError;
use crate::ports::CapacityReservation as Described;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use plimsoll_api::ec2_node_class::{CapacityReservation, EC2NodeClassStatus, ReservationState, ReservationType};
use plimsoll_api::{AmiFamily, EC2NodeClass, EC2NodeClassSpec};
use std::time::Duration;

/// How long before its end a Capacity Block is given up. EC2 takes the instances 30 minutes before the end; the rest is
/// for the drain.
const EXPIRING: SignedDuration = SignedDuration::from_mins(40);

/// Looks up the reservations that the class selects, and tells the ledger how many instances are free.
pub(super) async fn resolve(
    deps: &NodeClasses,
    class: &EC2NodeClass,
    reservations: &mut Vec<CapacityReservation>,
) -> Result<LookUpResult, WriteError> {
    let terms = selectors::reservations(&class.spec);
    let described = match terms.is_empty() {
        true => Vec::new(),
        false => deps.cloud_reads.capacity_reservations(&terms).await?,
    };
    let now = deps.clock.timestamp();
    deps.ledger.with(|ledger| {
        described.iter().for_each(|reservation| ledger.set_reservation(&reservation.id, reservation.free, now));
    });
    *reservations = in_status(described, &class.spec, deps.clock.now());
    Ok(LookUpResult::Yes)
}

/// Reservations that nodes of the class can use and that have not ended, sorted by id.
fn in_status(mut described: Vec<Described>, spec: &EC2NodeClassSpec, now: Timestamp) -> Vec<CapacityReservation> {
    described.retain(|reservation| {
        let (id, platform) = (&reservation.id, &reservation.platform);
        let suits = suits(platform, spec);
        if !suits {
            tracing::warn!(id, platform, "capacity reservation left out: it is for another platform than the images");
        }
        suits
    });
    let listed = |reservation: Described| {
        let ends = reservation.ends.and_then(|ends| Timestamp::from_millisecond(ends.0).ok());
        let is_block = reservation.kind == ReservationType::CapacityBlock;
        let expiring = is_block && ends.is_some_and(|ends| ends.duration_since(now) <= EXPIRING);
        ends.is_none_or(|ends| ends > now).then(|| CapacityReservation {
            id: reservation.id,
            availability_zone: reservation.zone,
            end_time: ends.map(Time),
            instance_match_criteria: reservation.match_criteria,
            instance_type: reservation.instance_type,
            owner_id: reservation.owner_id,
            reservation_type: reservation.kind,
            interruptible: reservation.interruptible.then_some(true),
            state: if expiring { ReservationState::Expiring } else { ReservationState::Active },
        })
    };
    let mut reservations: Vec<CapacityReservation> = described.into_iter().filter_map(listed).collect();
    reservations.sort_by(|left, right| left.id.cmp(&right.id));
    reservations
}

/// Whether EC2 may launch the images of the class in a reservation for this platform. The platform of the images that
/// AWS publishes is known. Others may be of a platform such as Red Hat Enterprise Linux.
fn suits(platform: &str, spec: &EC2NodeClassSpec) -> bool {
    let family = spec.effective_ami_family();
    let is_published = family == AmiFamily::Bottlerocket
        || spec.effective_ami_selector_terms().iter().all(|term| term.alias.is_some());
    let plain = if family.is_windows() { "Windows" } else { "Linux/UNIX" };
    let is_same_system = platform.starts_with("Windows") == family.is_windows();
    platform.is_empty() || platform == plain || (!is_published && is_same_system)
}

/// Time until a reservation of the status expires or ends; `None` if none does.
pub(super) fn next_change(status: &EC2NodeClassStatus, now: Timestamp) -> Option<Duration> {
    let moments = status.capacity_reservations.iter().flat_map(|reservation| {
        let ends = reservation.end_time.as_ref().map(|time| time.0);
        let block = reservation.reservation_type == ReservationType::CapacityBlock;
        let expires = ends.filter(|_| block).and_then(|ends| ends.checked_sub(EXPIRING).ok());
        [expires, ends].into_iter().flatten()
    });
    moments.filter_map(|at| Duration::try_from(at.duration_since(now)).ok()).filter(|left| !left.is_zero()).min()
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_api::ec2_node_class::InstanceMatchCriteria;
    use serde_json::json;

    const NOW: &str = "2026-01-02T03:00:00Z";

    /// A class with images of this family, by alias or else by id.
    fn class(family: AmiFamily, alias: Option<&str>) -> EC2NodeClassSpec {
        let term = match alias {
            Some(alias) => json!({"alias": alias}),
            None => json!({"id": "ami-1"}),
        };
        EC2NodeClassSpec {
            ami_family: Some(family),
            ami_selector_terms: serde_json::from_value(json!([term])).unwrap(),
            ..EC2NodeClassSpec::default()
        }
    }

    fn at(time: &str) -> Timestamp {
        time.parse().unwrap()
    }

    fn described(id: &str, kind: ReservationType, ends: Option<&str>) -> Described {
        Described {
            id: id.to_owned(),
            owner_id: "123456789012".to_owned(),
            instance_type: "p5.48xlarge".to_owned(),
            zone: "us-east-1a".to_owned(),
            platform: "Linux/UNIX".to_owned(),
            match_criteria: InstanceMatchCriteria::Targeted,
            kind,
            interruptible: false,
            ends: ends.map(|ends| plimsoll_model::time::Timestamp(at(ends).as_millisecond())),
            free: 1,
            tags: Default::default(),
        }
    }

    #[test]
    fn reservations_are_sorted_and_capacity_blocks_expire_early() {
        use ReservationType::{CapacityBlock, Default};
        let (soon, later) = (Some("2026-01-02T03:40:00Z"), Some("2026-01-02T03:40:01Z"));
        let all = vec![
            described("cr-4", Default, soon),
            described("cr-3", CapacityBlock, later),
            described("cr-2", CapacityBlock, soon),
            described("cr-1", Default, None),
            described("cr-0", Default, Some(NOW)),
        ];
        let listed = in_status(all, &class(AmiFamily::AL2023, None), at(NOW));
        let states: Vec<_> = listed.iter().map(|one| (one.id.as_str(), one.state)).collect();
        let (active, expiring) = (ReservationState::Active, ReservationState::Expiring);
        assert_eq!(states, [("cr-1", active), ("cr-2", expiring), ("cr-3", active), ("cr-4", active)]);
        let status = EC2NodeClassStatus { capacity_reservations: listed, ..EC2NodeClassStatus::default() };
        assert_eq!(next_change(&status, at(NOW)), Some(Duration::from_secs(1)), "until cr-3 expires");
        assert_eq!(next_change(&EC2NodeClassStatus::default(), at(NOW)), None);
    }

    #[test]
    fn only_reservations_for_the_platform_of_the_class_are_listed() {
        let of = |id: &str, platform: &str| Described {
            platform: platform.to_owned(),
            ..described(id, ReservationType::Default, None)
        };
        let listed = |spec: &EC2NodeClassSpec| -> Vec<String> {
            let all = [
                of("cr-1", "Linux/UNIX"),
                of("cr-2", "Red Hat Enterprise Linux"),
                of("cr-3", "Windows"),
                of("cr-4", "Windows with SQL Server Standard"),
                of("cr-5", ""),
            ];
            in_status(all.into(), spec, at(NOW)).into_iter().map(|one| one.id).collect()
        };
        assert_eq!(listed(&class(AmiFamily::AL2023, None)), ["cr-1", "cr-2", "cr-5"]);
        assert_eq!(listed(&class(AmiFamily::Custom, None)), ["cr-1", "cr-2", "cr-5"], "its nodes run Linux");
        assert_eq!(listed(&class(AmiFamily::Windows2022, None)), ["cr-3", "cr-4", "cr-5"]);
        // The platform of the images that AWS publishes is known.
        assert_eq!(listed(&class(AmiFamily::AL2023, Some("al2023@latest"))), ["cr-1", "cr-5"]);
        assert_eq!(listed(&class(AmiFamily::Windows2022, Some("windows2022@latest"))), ["cr-3", "cr-5"]);
        assert_eq!(listed(&class(AmiFamily::Bottlerocket, None)), ["cr-1", "cr-5"]);
        let default = EC2NodeClassSpec { ami_selector_terms: None, ..class(AmiFamily::AL2023, None) };
        assert_eq!(listed(&default), ["cr-1", "cr-5"], "without terms, the images are those of an alias");
    }
}
