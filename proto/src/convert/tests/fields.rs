//! No field is lost in a conversion, and each rule for the content of messages is kept.

use super::*;
use plimsoll_model::money::MicroUsdPerHour;
use plimsoll_model::plan::{MinValuesPolicy, PlanOptions, PreferencePolicy};

/// A plan in which every field is set.
fn whole() -> plan_wire::Plan {
    let pod = |uid: &str| plan_wire::PodRef { name: format!("shop/{uid}"), uid: uid.into() };
    let on = |node: &str, uid: &str| plan_wire::Placement { node: node.into(), pods: vec![pod(uid)] };
    let reason = |code: i32| plan_wire::Reason { node_pool: "p".into(), code, message: "m".into() };
    let offering = plan_wire::OfferingChoice {
        instance_type: "c6g.large".into(),
        zone: "a".into(),
        capacity_type: 1,
        price_micro_usd_per_hour: 5,
        reservation: Some("cr-1".into()),
    };
    let requirement = wire::NodeSelectorRequirement {
        key: "team".into(),
        operator: 1,
        values: vec!["a".into()],
        min_values: Some(2),
    };
    let launch = plan_wire::Launch {
        action_id: "l".into(),
        node_pool: "p".into(),
        node_class: "c".into(),
        offerings: vec![offering],
        requirements: vec![requirement],
        requests: vec![amount("cpu", 1)],
        taints: vec![wire::Taint { key: "k".into(), value: "v".into(), effect: 1 }],
        labels: [("team".to_owned(), "a".to_owned())].into(),
        pods: vec![pod("a")],
        why: "w".into(),
        like: None,
        prioritized: true,
    };
    let termination = plan_wire::Termination {
        action_id: "t".into(),
        node: "n".into(),
        reason: 2,
        pods: vec![pod("a"), pod("b")],
        replaced_by: vec![0],
        moved_to: vec![on("n2", "b")],
        saving_micro_usd_per_hour: -3,
    };
    let ignored = wire::IgnoredPod { uid: "i".into(), pod: "shop/i".into(), reason: "gated".into() };
    plan_wire::Plan {
        snapshot_sequence: 7,
        ledger: Some(wire::LedgerPosition { epoch: 1, sequence: 2 }),
        launches: vec![launch],
        placements: vec![on("n3", "c")],
        terminations: vec![termination],
        unschedulable: vec![plan_wire::Unschedulable { pod: Some(pod("u")), reasons: vec![reason(1)], like: None }],
        ignored: vec![ignored],
        hourly_micro_usd: 5,
        lower_bound_micro_usd: 4,
        next_time_unix_ms: Some(9),
        pool_problems: vec![reason(3)],
        postponed_removals: vec!["later".into()],
    }
}

#[test]
fn each_field_of_a_plan_is_converted() -> Result<(), ConvertError> {
    let plan = Plan::try_from(whole())?;
    assert_eq!(plan_wire::Plan::from(&plan), whole());
    for shared in [with_shared_lists(&plan), with_shared_reasons(&plan)] {
        assert_eq!(shared, whole());
    }
    Ok(())
}

#[test]
fn each_field_of_a_fragment_is_appended() {
    let mut sum = plan_wire::Plan::default();
    append_fragment(&mut sum, whole());
    assert_eq!(sum, whole());
}

#[test]
fn options_of_plans_are_converted_and_what_is_not_set_is_the_default() {
    let options = PlanOptions {
        disruption: true,
        work_budget: 7,
        preference_policy: PreferencePolicy::Ignore,
        min_values_policy: MinValuesPolicy::BestEffort,
        max_share_per_node: 30,
        min_saving_per_eviction: MicroUsdPerHour(0),
        spot_to_spot: true,
        kept_nodes: ["n".into()].into(),
    };
    assert_eq!(PlanOptions::from(plan_wire::PlanOptions::from(&options)), options);
    let usual = PlanOptions { disruption: false, ..PlanOptions::default() };
    assert_eq!(PlanOptions::from(plan_wire::PlanOptions::default()), usual);
    let negative = plan_wire::PlanOptions { min_saving_per_eviction_micro_usd: Some(-1), ..Default::default() };
    assert_eq!(PlanOptions::from(negative).min_saving_per_eviction, MicroUsdPerHour(0));
}

#[test]
fn a_plan_has_no_action_twice_and_no_negative_price() {
    let cases: [(Change<plan_wire::Plan>, &str); 4] = [
        (|it| it.launches.push(it.launches[0].clone()), "launches[1].action_id: is there twice"),
        (|it| it.terminations.push(it.terminations[0].clone()), "terminations[1].action_id: is there twice"),
        (|it| it.lower_bound_micro_usd = -1, "lower_bound_micro_usd: is negative: -1"),
        (
            |it| it.launches[0].offerings[0].price_micro_usd_per_hour = -1,
            "launches[0].offerings[0].price_micro_usd_per_hour: is negative: -1",
        ),
    ];
    for (change, expected) in cases {
        let mut bad = whole();
        change(&mut bad);
        assert_eq!(Plan::try_from(bad).err().map(|error| error.to_string()), Some(format!("plan.{expected}")));
    }
}

#[test]
fn no_key_is_twice_in_a_list_of_a_snapshot() {
    let cases: [(Change<wire::Snapshot>, &str); 9] = [
        (|it| it.shapes.push(it.shapes[0].clone()), "shapes[1].id"),
        (|it| it.nodes.push(it.nodes[0].clone()), "nodes[1].name"),
        (|it| it.node_pools.push(it.node_pools[0].clone()), "node_pools[1].name"),
        (
            |it| it.daemon_sets = vec![wire::DaemonSet { uid: "d".into(), shape: "s".into(), ..Default::default() }; 2],
            "daemon_sets[1].uid",
        ),
        (
            |it| {
                let budget = wire::PodDisruptionBudget { name: "shop/web".into(), ..Default::default() };
                it.pod_disruption_budgets = vec![budget; 2];
            },
            "pod_disruption_budgets[1].name",
        ),
        (
            |it| {
                // The remaining time is not a part of the key.
                let offering = |remaining_ms: u64| wire::UnavailableOffering {
                    capacity_type: 2,
                    remaining_ms,
                    ..Default::default()
                };
                it.unavailable_offerings = [1, 2].map(offering).into();
            },
            "unavailable_offerings[1]",
        ),
        (|it| it.ignored = vec![wire::IgnoredPod { uid: "i".into(), ..Default::default() }; 2], "ignored[1].uid"),
        (|it| it.reservations = vec![wire::ReservationCount { id: "cr-1".into(), free: 1 }; 2], "reservations[1].id"),
        (
            |it| it.capacity_quotas = vec![wire::CapacityQuota { name: "q".into(), ..Default::default() }; 2],
            "capacity_quotas[1].name",
        ),
    ];
    for (change, path) in cases {
        assert_eq!(error_of(change), format!("snapshot.{path}: is there twice"));
    }
}

#[test]
fn amounts_and_ports_have_their_ranges() {
    let port = |port: u32| wire::HostPort { port, ..Default::default() };
    for (number, accepted) in [(0, false), (1, true), (65_535, true), (65_536, false)] {
        let mut snapshot = valid();
        snapshot.shapes[0].host_ports = vec![port(number)];
        assert_eq!(Snapshot::try_from(snapshot).is_ok(), accepted, "port {number}");
    }
    for (percentage, accepted) in [(100, true), (101, false)] {
        let mut snapshot = valid();
        snapshot.node_pools[0].on_demand = Some(wire::OnDemandMix { base: 1, percentage });
        assert_eq!(Snapshot::try_from(snapshot).is_ok(), accepted, "{percentage} %");
    }
    let budget = |it: &mut wire::Snapshot| {
        let budget = wire::PodDisruptionBudget { name: "b".into(), disruptions_allowed: -1, ..Default::default() };
        it.pod_disruption_budgets = vec![budget];
    };
    assert_eq!(error_of(budget), "snapshot.pod_disruption_budgets[0].disruptions_allowed: is negative: -1");
}

#[test]
fn the_errors_of_all_lists_are_reported_up_to_a_maximum() {
    let paths = |snapshot: &wire::Snapshot| -> Vec<String> {
        let error = Snapshot::try_from(snapshot.clone()).unwrap_err();
        error.all().map(|(path, _)| path.to_owned()).collect()
    };
    let mut snapshot = valid();
    snapshot.shapes[0].id.clear();
    snapshot.nodes[0].name.clear();
    assert_eq!(paths(&snapshot), ["snapshot.shapes[0].id", "snapshot.nodes[0].name"]);
    snapshot.pods[0].uid.clear();
    snapshot.pods = vec![snapshot.pods[0].clone(); 30];
    let found = paths(&snapshot);
    assert_eq!((found.len(), found[19].as_str()), (20, "snapshot.pods[18].uid"));
}

#[test]
fn a_catalog_is_in_order_and_only_reserved_offerings_have_a_reservation() {
    let offering = |zone: &str, capacity_type: i32, reserved: bool| catalog_wire::Offering {
        zone: zone.into(),
        capacity_type,
        reservation: reserved.then(|| catalog_wire::CapacityReservation { id: "cr-1".into(), ..Default::default() }),
        ..Default::default()
    };
    let of = |names: &[&str], offerings: Vec<catalog_wire::Offering>| {
        let instance_type = |name: &&str| catalog_wire::InstanceType {
            name: (*name).to_owned(),
            offerings: offerings.clone(),
            ..Default::default()
        };
        let instance_types = names.iter().map(instance_type).collect();
        Catalog::try_from(catalog_wire::Catalog { instance_types, ..Default::default() })
    };
    let sorted = of(&["a", "b"], vec![offering("a", 2, false), offering("b", 2, false)]);
    assert!(sorted.is_ok(), "{sorted:?}");
    assert_eq!(of(&["b", "a"], vec![offering("b", 2, false), offering("a", 2, false)]), sorted);
    let error = |names: &[&str], offerings| of(names, offerings).err().map(|error| error.to_string());
    let of_first = |problem: &str| Some(format!("catalog.instance_types[0].offerings{problem}"));
    for (names, offerings, expected) in [
        (&["a"][..], vec![offering("a", 1, true)], None),
        (&["a"], vec![offering("a", 1, false)], of_first("[0].reservation: is not set, but the offering is")),
        (&["a"], vec![offering("a", 2, true)], of_first("[0].reservation: is set, but the offering is")),
        (&["a"], vec![offering("a", 2, false); 2], of_first("[1]: is there twice")),
        (&["a", "a"], vec![], Some("catalog.instance_types[1].name: is there twice".to_owned())),
    ] {
        let found = error(names, offerings);
        let is_expected = match (&found, &expected) {
            (Some(found), Some(expected)) => found.starts_with(expected),
            (found, expected) => found == expected,
        };
        assert!(is_expected, "{found:?}, not {expected:?}");
    }
}
