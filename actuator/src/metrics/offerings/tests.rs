use crate::metrics::tests::{Fixture, at, catalog, offering};
use crate::state::insufficient_capacity::Key;
use plimsoll_model::catalog::CapacityType;
use plimsoll_model::time::Timestamp;

#[test]
fn offerings_show_price_and_whether_they_can_be_requested() {
    let fixture = Fixture::new();
    fixture.change(|view| {
        view.catalogs = catalog(vec![
            offering("us-west-2a", CapacityType::Spot, 40_000, true),
            offering("us-west-2a", CapacityType::OnDemand, 96_000, true),
            offering("us-west-2b", CapacityType::Spot, 10_000, false),
        ]);
    });
    let of = |name: &str, zone: &str, capacity_type: &str| {
        let labels = [("instance_type", "m5.large"), ("capacity_type", capacity_type), ("zone", zone)];
        fixture.value(&format!("karpenter_cloudprovider_instance_type_offering_{name}"), &labels)
    };
    assert_eq!(of("available", "us-west-2a", "spot"), Some(1.0));
    assert_eq!(of("available", "us-west-2b", "spot"), Some(0.0), "no subnet there");
    assert_eq!(of("price_estimate", "us-west-2a", "on-demand"), Some(0.096));
    let size = |name: &str| {
        fixture.value(&format!("karpenter_cloudprovider_instance_type_{name}"), &[("instance_type", "m5.large")])
    };
    assert_eq!((size("cpu_cores"), size("memory_bytes")), (Some(2.0), Some(8.0 * 1024.0_f64.powi(3))));

    fixture.change(|view| {
        let (instance_type, zone) = (Some("m5.large".to_owned()), Some("us-west-2a".to_owned()));
        let key = Key { capacity_type: CapacityType::Spot, instance_type, zone, placement_group: None };
        view.unavailable.mark(key, Timestamp(view.now.as_millisecond()));
    });
    assert_eq!(of("available", "us-west-2a", "spot"), Some(0.0), "EC2 refused it just now");
    assert_eq!(of("available", "us-west-2a", "on-demand"), Some(1.0));
    assert_eq!(fixture.value("plimsoll_actuator_zonal_shift_active", &[("zone_id", "usw2-az1")]), None);
    fixture.change(|view| view.shifted_zones = ["usw2-az1".to_owned()].into());
    assert_eq!(fixture.value("plimsoll_actuator_zonal_shift_active", &[("zone_id", "usw2-az1")]), Some(1.0));
    fixture.change(|view| view.now = at("2026-01-02T12:10:00Z"));
    assert_eq!(of("available", "us-west-2a", "spot"), Some(1.0), "it may be tried again");
}
