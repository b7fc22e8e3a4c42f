use super::*;
use crate::ledger::handle::LedgerHandle;
use crate::ledger::tests::{instance_type, offering};
use crate::ledger::{Admission, ClaimSeed, Driver, PlanContext, PoolFacts, reserved_text};
use plimsoll_model::catalog::{CapacityType, InstanceType};
use plimsoll_model::identity::NodePoolName;
use plimsoll_model::money::MicroUsdPerHour;
use plimsoll_model::names::{annotation, label};
use plimsoll_model::plan::{OfferingChoice, PodRef};
use plimsoll_model::requirements::{NodeSelectorRequirement, Operator};
use plimsoll_model::snapshot::quota_resource;
use plimsoll_model::time::Timestamp;
use std::sync::Arc;

const NOW: Timestamp = Timestamp(1_000_000);
const ZONES: [&str; 2] = ["a", "b"];

fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn quota(name: &str, selector: &[(&str, &str)], limits: &[(&str, i64)]) -> CapacityQuota {
    let equal = |(key, value): &(&str, &str)| NodeSelectorRequirement::new(*key, Operator::In, [*value]);
    CapacityQuota {
        name: name.to_owned(),
        selector: selector.iter().map(equal).collect(),
        limits: limits.iter().map(|(resource, limit)| (*resource, *limit)).collect(),
    }
}

/// `large` with 4 and `small` with 1 CPU, each in two zones.
fn catalog() -> Catalog {
    let of = |name: &str, cpu: i64| InstanceType {
        labels: labels(&[("karpenter.k8s.aws/instance-cpu", &(cpu / 1000).to_string())]),
        ..instance_type(name, cpu, ZONES.iter().map(|zone| offering(zone, 1)).collect())
    };
    Catalog { region: "r".to_owned(), instance_types: vec![of("large", 4000), of("small", 1000)] }
}

fn launch(id: &str, pool: &str, types: &[&str], zones: &[&str]) -> Launch {
    let choice = |instance_type: &str, zone: &str| OfferingChoice {
        instance_type: instance_type.to_owned(),
        zone: zone.to_owned(),
        capacity_type: CapacityType::Spot,
        price: MicroUsdPerHour(1),
        reservation: None,
    };
    let offerings = types.iter().flat_map(|kind| zones.iter().map(|zone| choice(kind, zone)));
    Launch {
        action_id: id.into(),
        node_pool: pool.into(),
        node_class: "class".to_owned(),
        offerings: Arc::new(offerings.collect()),
        labels: labels(&[("team", pool)]),
        pods: vec![PodRef { name: format!("ns/{id}"), uid: id.into() }],
        ..Launch::default()
    }
}

/// A ledger with the pools `a` and `b`, whose nodes have the label team=a and team=b.
fn ledger(quotas: Vec<CapacityQuota>) -> Ledger {
    let (mut ledger, _) = Ledger::from_claims(1, &[]);
    ledger.observe_driver(Driver { holder: "watcher".to_owned(), transitions: 1 });
    for pool in ["a", "b"].map(NodePoolName::from) {
        ledger.set_pool(&pool, PoolFacts::default());
    }
    ledger.set_quotas(quotas);
    ledger
}

fn plan(ledger: &Ledger, snapshot_sequence: u64) -> PlanContext {
    let driver = Driver { holder: "watcher".to_owned(), transitions: 1 };
    PlanContext {
        driver,
        position: ledger.position(),
        snapshot_sequence,
        virtual_pods: Arc::default(),
        replaced: Arc::default(),
    }
}

fn admit(ledger: &mut Ledger, launch: &Launch) -> Admission {
    let plan = plan(ledger, 1);
    ledger.admit_launch(launch, &plan, &catalog(), NOW)
}

fn claim(answer: Admission) -> String {
    match answer {
        Admission::Admitted { claim, .. } => claim,
        other => panic!("{other:?}"),
    }
}

/// Used amount of the quota that refused.
fn refused_by(answer: &Admission) -> (&str, i64) {
    match answer {
        Admission::Rejected(Rejection::QuotaExceeded { quota, used, .. }) => (quota, *used),
        other => panic!("{other:?}"),
    }
}

/// The labels that a claim gets when `kind` is launched in `zone`.
fn launched_labels(team: &str, kind: &str, zone: &str) -> BTreeMap<String, String> {
    labels(&[
        ("team", team),
        ("karpenter.k8s.aws/instance-cpu", "1"),
        (label::INSTANCE_TYPE, kind),
        (label::ZONE, zone),
        (label::CAPACITY_TYPE, "spot"),
    ])
}

#[test]
fn a_hundred_plans_at_once_never_exceed_a_quota() {
    let quotas = vec![quota("all", &[], &[("cpu", 60_000)]), quota("team-a", &[("team", "a")], &[("nodes", 4)])];
    let handle = LedgerHandle::new(ledger(quotas));
    // All plans rest on the same snapshot, as those of several schedulers may.
    let plans: Vec<PlanContext> = (0..100).map(|number| handle.read(|ledger| plan(ledger, number))).collect();
    let answers: Vec<(bool, Admission)> = std::thread::scope(|scope| {
        let threads = plans.iter().enumerate().map(|(number, plan)| {
            let handle = handle.clone();
            scope.spawn(move || {
                let is_of_a = number % 2 == 0;
                let one = launch(&format!("{number}"), if is_of_a { "a" } else { "b" }, &["large"], &ZONES);
                (is_of_a, handle.with(|ledger| ledger.admit_launch(&one, plan, &catalog(), NOW)))
            })
        });
        let threads: Vec<_> = threads.collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let admitted = |of_a: bool| {
        let own = answers.iter().filter(|(is_of_a, _)| *is_of_a == of_a);
        own.filter(|(_, answer)| matches!(answer, Admission::Admitted { .. })).count()
    };
    assert!(admitted(true) <= 4, "{}", admitted(true));
    assert_eq!(admitted(true) + admitted(false), 15, "60 CPU hold 15 nodes of 4");
    let others = answers.iter().filter(|(_, answer)| !matches!(answer, Admission::Admitted { .. }));
    others.for_each(|(_, answer)| assert!(["all", "team-a"].contains(&refused_by(answer).0)));
}

#[test]
fn the_largest_type_counts_until_the_launch_and_then_what_it_became() {
    let mut ledger = ledger(vec![quota("all", &[], &[("cpu", 5000)])]);
    let first = claim(admit(&mut ledger, &launch("1", "a", &["large", "small"], &ZONES)));
    let second = launch("2", "b", &["small", "large"], &ZONES);
    assert_eq!(refused_by(&admit(&mut ledger, &second)), ("all", 4000));
    ledger.launched(&first, Resources::from([("cpu", 1000), ("nodes", 1)]));
    assert_eq!(refused_by(&admit(&mut ledger, &second)), ("all", 4000), "its labels are not known yet");
    ledger.labelled(&first, launched_labels("a", "small", "b"));
    claim(admit(&mut ledger, &second));
}

#[test]
fn a_quota_of_a_zone_does_not_count_launches_elsewhere() {
    let mut ledger = ledger(vec![quota("zone-a", &[(label::ZONE, "a")], &[("nodes", 1)])]);
    let either = claim(admit(&mut ledger, &launch("1", "a", &["small"], &ZONES)));
    assert_eq!(refused_by(&admit(&mut ledger, &launch("2", "a", &["small"], &ZONES))), ("zone-a", 1));
    let elsewhere = claim(admit(&mut ledger, &launch("3", "a", &["small"], &["b"])));
    ledger.launched(&either, Resources::from([("cpu", 1000), ("nodes", 1)]));
    ledger.labelled(&either, launched_labels("a", "small", "b"));
    let first = claim(admit(&mut ledger, &launch("2", "a", &["small"], &["a"])));
    assert_eq!(refused_by(&admit(&mut ledger, &launch("4", "a", &["small"], &["a"]))), ("zone-a", 1));
    // A claim that goes counts until its instance is gone.
    ledger.deleting(&first);
    assert_eq!(refused_by(&admit(&mut ledger, &launch("4", "a", &["small"], &["a"]))), ("zone-a", 1));
    ledger.gone(&first);
    claim(admit(&mut ledger, &launch("4", "a", &["small"], &["a"])));
    assert!(ledger.knows(&elsewhere));
}

#[test]
fn nodes_without_claim_count_by_their_labels() {
    let mut ledger = ledger(vec![quota("team-a", &[("team", "a")], &[("cpu", 8000)])]);
    let node = |team: &str| UnmanagedNode {
        labels: labels(&[("team", team)]),
        capacity: Resources::from([("cpu", 5000), ("nodes", 1)]),
    };
    ledger.set_unmanaged_nodes(BTreeMap::from([("n-1".into(), node("a")), ("n-2".into(), node("b"))]));
    let one = launch("1", "a", &["large"], &ZONES);
    assert_eq!(refused_by(&admit(&mut ledger, &one)), ("team-a", 5000));
    claim(admit(&mut ledger, &launch("2", "b", &["large"], &ZONES)));
    ledger.set_unmanaged_nodes(BTreeMap::new());
    claim(admit(&mut ledger, &one));
}

#[test]
fn a_new_leader_knows_what_launches_hold() {
    let quotas = || vec![quota("zone-a", &[(label::ZONE, "a")], &[("nodes", 1)]), quota("all", &[], &[("cpu", 5000)])];
    let first = ledger(quotas());
    let of_b = first.max_usage(&launch("1", "a", &["large"], &["b"]), &catalog()).unwrap();
    let parts = ["zone-a/nodes", "all/cpu"].map(|name| of_b.get(&format!("plimsoll.dev/capacity-quota.{name}")));
    assert_eq!(parts, [0, 4000]);
    let seed = ClaimSeed {
        name: "claim-1".to_owned(),
        pool: "a".into(),
        annotations: BTreeMap::from([(annotation::RESERVED.to_owned(), reserved_text(&of_b))]),
        labels: labels(&[("team", "a")]),
        ..ClaimSeed::default()
    };
    let (mut second, problems) = Ledger::from_claims(2, &[seed]);
    assert_eq!(problems, []);
    second.observe_driver(Driver { holder: "watcher".to_owned(), transitions: 1 });
    second.set_pool(&"a".into(), PoolFacts::default());
    second.set_quotas(quotas());
    assert_eq!(refused_by(&admit(&mut second, &launch("2", "a", &["large"], &["b"]))), ("all", 4000));
    claim(admit(&mut second, &launch("3", "a", &["small"], &["a"])));
}

#[test]
fn a_quota_that_is_created_later_counts_claims_by_what_is_known() {
    let mut ledger = ledger(Vec::new());
    let first = claim(admit(&mut ledger, &launch("1", "a", &["large"], &ZONES)));
    ledger.set_quotas(vec![
        quota("team-a", &[("team", "a")], &[("nodes", 1)]),
        quota("zone-a", &[(label::ZONE, "a")], &[("nodes", 1)]),
    ]);
    assert_eq!(refused_by(&admit(&mut ledger, &launch("2", "a", &["large"], &["b"]))), ("team-a", 1));
    assert_eq!(
        refused_by(&admit(&mut ledger, &launch("3", "b", &["large"], &["a"]))),
        ("zone-a", 1),
        "it may be there"
    );
    ledger.launched(&first, Resources::from([("cpu", 4000), ("nodes", 1)]));
    ledger.labelled(&first, launched_labels("a", "large", "b"));
    claim(admit(&mut ledger, &launch("3", "b", &["large"], &["a"])));
}

#[test]
fn launches_without_a_plan_stay_within_quotas_too() {
    let mut ledger = ledger(vec![quota("all", &[], &[("nodes", 1)])]);
    let reserve = Resources::from([(quota_resource("all", "nodes").as_str(), 1), ("nodes", 1)]);
    claim(ledger.admit_replacement(&"a".into(), &"replace".into(), reserve.clone()));
    assert_eq!(refused_by(&ledger.admit_replacement(&"b".into(), &"again".into(), reserve.clone())), ("all", 1));
    assert_eq!(refused_by(&ledger.admit_standalone("own", &"own".into(), reserve)), ("all", 1));
}

/// A user has lowered it.
#[test]
fn a_quota_that_is_exceeded_refuses_only_launches_that_it_counts() {
    let mut ledger = ledger(Vec::new());
    for id in ["1", "2"] {
        claim(admit(&mut ledger, &launch(id, "a", &["small"], &ZONES)));
    }
    ledger.set_quotas(vec![quota("team-a", &[("team", "a")], &[("nodes", 1)])]);
    assert_eq!(refused_by(&admit(&mut ledger, &launch("3", "a", &["small"], &ZONES))), ("team-a", 2));
    claim(admit(&mut ledger, &launch("3", "b", &["small"], &ZONES)));
}

/// What it counts, and whether a quota counts it, is unknown.
#[test]
fn nothing_is_launched_within_a_quota_beside_an_unreadable_claim() {
    let mut ledger = ledger(vec![quota("team-a", &[("team", "a")], &[("cpu", 8000)])]);
    let annotations = BTreeMap::from([(annotation::RESERVED.to_owned(), "nonsense".to_owned())]);
    let broken = ClaimSeed { name: "x".to_owned(), pool: "other".into(), annotations, ..ClaimSeed::default() };
    ledger.adopt(&broken).unwrap_err();
    let counted = launch("1", "a", &["small"], &ZONES);
    let refused = admit(&mut ledger, &counted);
    let is_unreadable =
        matches!(&refused, Admission::Rejected(Rejection::QuotaUnreadable { quota, .. }) if quota == "team-a");
    assert!(is_unreadable, "{refused:?}");
    claim(admit(&mut ledger, &launch("2", "b", &["small"], &ZONES)));
    ledger.gone("x");
    claim(admit(&mut ledger, &counted));
}

#[test]
fn the_message_names_the_quota_and_the_amounts() {
    let resource = "cpu".to_owned();
    let quota = "team-a".to_owned();
    let rejection = Rejection::QuotaExceeded { quota, resource, limit: 10_000, used: 9_500, asked: 2_000 };
    let expected = "CapacityQuota team-a reached: 9500m of 10 cpu in use or reserved, the launch may need 2";
    assert_eq!(rejection.to_string(), expected);
}

/// Before the launch, its labels do not say which type it becomes.
#[test]
fn labels_of_a_claim_decide_only_once_it_is_launched() {
    let of_small = [("karpenter.k8s.aws/instance-cpu", "1")];
    let mut ledger = ledger(vec![quota("small", &of_small, &[("nodes", 1)])]);
    let large = claim(admit(&mut ledger, &launch("1", "a", &["large"], &ZONES)));
    ledger.labelled(&large, labels(&[("team", "a")]));
    let small = claim(admit(&mut ledger, &launch("2", "a", &["small"], &ZONES)));
    ledger.labelled(&small, labels(&[("team", "a")]));
    assert_eq!(refused_by(&admit(&mut ledger, &launch("3", "a", &["small"], &ZONES))), ("small", 1));
}
