use super::*;
use plimsoll_model::catalog::{CapacityType, InstanceType, Offering};
use plimsoll_model::identity::NodeName;
use plimsoll_model::money::MicroUsdPerHour;
use plimsoll_model::names::annotation;
use plimsoll_model::plan::{OfferingChoice, PodRef, Termination};
use plimsoll_model::snapshot::DisruptionReason;
use proptest::prelude::*;
use std::sync::Arc;

const NOW: Timestamp = Timestamp(1_000_000);

fn driver(transitions: u64) -> Driver {
    Driver { holder: format!("watcher-{transitions}"), transitions }
}

fn plan(ledger: &Ledger, snapshot_sequence: u64) -> PlanContext {
    PlanContext {
        driver: driver(1),
        position: ledger.position(),
        snapshot_sequence,
        virtual_pods: Arc::default(),
        replaced: Arc::default(),
    }
}

/// An offering of Spot capacity.
pub(super) fn offering(zone: &str, price: i64) -> Offering {
    Offering {
        zone: zone.to_owned(),
        capacity_type: CapacityType::Spot,
        price: MicroUsdPerHour(price),
        available: true,
        ..Offering::default()
    }
}

pub(super) fn instance_type(name: &str, cpu: i64, offerings: Vec<Offering>) -> InstanceType {
    InstanceType {
        name: name.to_owned(),
        architecture: "amd64".to_owned(),
        operating_systems: vec!["linux".to_owned()],
        capacity: Resources::from([("cpu", cpu)]),
        offerings,
        ..InstanceType::default()
    }
}

fn catalog() -> Catalog {
    let of = |name: &str, cpu: i64| instance_type(name, cpu, vec![offering("a", cpu * 10)]);
    Catalog { region: "r".to_owned(), instance_types: vec![of("large", 4000), of("small", 1000)] }
}

fn launch(id: &str, types: &[&str], pods: &[&str]) -> Launch {
    let offering = |name: &&str| OfferingChoice {
        instance_type: (*name).to_owned(),
        zone: "a".to_owned(),
        capacity_type: CapacityType::Spot,
        price: MicroUsdPerHour(1),
        reservation: None,
    };
    Launch {
        action_id: id.into(),
        node_pool: "pool".into(),
        node_class: "class".to_owned(),
        offerings: Arc::new(types.iter().map(offering).collect()),
        pods: pods.iter().map(|uid| PodRef { name: format!("ns/{uid}"), uid: (*uid).into() }).collect(),
        ..Launch::default()
    }
}

fn pool(cpu: i64) -> PoolFacts {
    let allowed = [(DisruptionReason::Empty, 1)].into();
    PoolFacts { limits: Resources::from([("cpu", cpu), ("nodes", 10)]), allowed, ..PoolFacts::default() }
}

fn ledger_of(seeds: &[ClaimSeed]) -> Ledger {
    let (mut ledger, problems) = Ledger::from_claims(7, seeds);
    assert_eq!(problems, []);
    ledger.observe_driver(driver(1));
    ledger.set_pool(&"pool".into(), pool(8000));
    ledger
}

fn admit(ledger: &mut Ledger, launch: &Launch, plan: &PlanContext) -> Admission {
    ledger.admit_launch(launch, plan, &catalog(), NOW)
}

fn claim_of(admission: &Admission) -> String {
    match admission {
        Admission::Admitted { claim, .. } => claim.clone(),
        other => panic!("not admitted: {other:?}"),
    }
}

fn rejection(admission: Admission) -> Rejection {
    match admission {
        Admission::Rejected(rejection) => rejection,
        other => panic!("not rejected: {other:?}"),
    }
}

#[test]
fn repeated_plan_launches_once() {
    let mut ledger = ledger_of(&[]);
    let plan = plan(&ledger, 1);
    let first = launch("one", &["small"], &["p"]);
    claim_of(&admit(&mut ledger, &first, &plan));
    let (before, used) = (ledger.position(), ledger.used(&"pool".into()));
    assert_eq!(admit(&mut ledger, &first, &plan), Admission::Repeated(Outcome::Admitted));
    assert_eq!((before, used), (ledger.position(), ledger.used(&"pool".into())));
}

#[test]
fn reserved_pod_is_not_launched_for_again() {
    let mut ledger = ledger_of(&[]);
    let first = plan(&ledger, 1);
    let claim = claim_of(&admit(&mut ledger, &launch("one", &["small"], &["p", "q"]), &first));
    let again = launch("two", &["small"], &["q"]);
    let later = plan(&ledger, 2);
    let expected = Rejection::PodReserved { pod: "q".into(), claim: claim.clone() };
    assert_eq!(rejection(admit(&mut ledger, &again, &later)), expected);

    // Before the node is initialized, the verdict has no effect; afterwards, it ends the reservation.
    ledger.marked_unschedulable(&"q".into());
    assert_eq!(ledger.reserved_by(&"q".into(), NOW), Some(claim.as_str()));
    ledger.initialized(&claim, NOW);
    assert_eq!(ledger.reserved_by(&"p".into(), NOW.plus(Millis(29_999))), Some(claim.as_str()));
    assert_eq!(ledger.reserved_by(&"p".into(), NOW.plus(Millis(30_000))), None);
    ledger.marked_unschedulable(&"q".into());
    claim_of(&admit(&mut ledger, &again, &later));
}

#[test]
fn virtual_pods_may_be_launched_for_again_by_a_newer_plan() {
    let mut ledger = ledger_of(&[]);
    let virtual_pods = Arc::new([PodUid::from("v")].into());
    let first = PlanContext { virtual_pods, ..plan(&ledger, 1) };
    let claim = claim_of(&admit(&mut ledger, &launch("one", &["small"], &["p", "v"]), &first));
    let is_virtual = |pod: &str| ledger.claim(&claim).is_some_and(|view| view.is_virtual(&pod.into()));
    assert!(is_virtual("v") && !is_virtual("p"));
    let again = launch("two", &["small"], &["v"]);
    // Rejected: an earlier plan, and the same plan recomputed.
    let changed = Rejection::Changed(Subject::Pod("v".into()));
    assert_eq!(rejection(admit(&mut ledger, &again, &first)), changed);
    let stale = PlanContext { snapshot_sequence: 2, ..first.clone() };
    assert_eq!(rejection(admit(&mut ledger, &again, &stale)), changed);
    let knows = PlanContext { position: ledger.position(), ..stale };
    let real = launch("three", &["small"], &["p"]);
    let reserved = Rejection::PodReserved { pod: "p".into(), claim: claim.clone() };
    assert_eq!(rejection(admit(&mut ledger, &real, &knows)), reserved, "whoever exists is reserved as ever");
    let two = claim_of(&admit(&mut ledger, &again, &knows));
    assert_eq!(ledger.reserved_by(&"v".into(), NOW), Some(two.as_str()));
    ledger.gone(&claim);
    assert_eq!(ledger.reserved_by(&"v".into(), NOW), Some(two.as_str()));
}

#[test]
fn expired_reservation_moves_to_the_new_claim() {
    let mut ledger = ledger_of(&[]);
    let context = plan(&ledger, 1);
    let first = claim_of(&admit(&mut ledger, &launch("one", &["small"], &["p"]), &context));
    ledger.initialized(&first, NOW);
    let (later, context) = (NOW.plus(Millis(30_000)), plan(&ledger, 2));
    let second = claim_of(&ledger.admit_launch(&launch("two", &["small"], &["p"]), &context, &catalog(), later));
    ledger.gone(&first);
    assert_eq!(ledger.reserved_by(&"p".into(), later), Some(second.as_str()));
}

#[test]
fn static_pool_does_not_exceed_its_replicas() {
    let mut ledger = ledger_of(&[]);
    ledger.set_pool(&"pool".into(), PoolFacts { replicas: Some(1), ..PoolFacts::default() });
    let context = plan(&ledger, 1);
    let first = claim_of(&admit(&mut ledger, &launch("a", &["small"], &[]), &context));
    let over = Rejection::LimitExceeded { resource: "replicas".to_owned(), limit: 1, used: 1, asked: 1 };
    assert_eq!(rejection(admit(&mut ledger, &launch("b", &["small"], &[]), &context)), over);
    ledger.gone(&first);
    claim_of(&admit(&mut ledger, &launch("c", &["small"], &[]), &context));
}

#[test]
fn nodes_of_a_static_pool_that_a_plan_replaces_do_not_count_towards_its_replicas() {
    let mut ledger = ledger_of(&[]);
    ledger.set_pool(&"pool".into(), PoolFacts { replicas: Some(1), ..PoolFacts::default() });
    let context = plan(&ledger, 1);
    let first = claim_of(&admit(&mut ledger, &launch("a", &["small"], &[]), &context));
    ledger.node_of(&first, "node-a".into());
    let context = PlanContext { replaced: Arc::new(["node-a".into()].into()), ..plan(&ledger, 2) };
    claim_of(&admit(&mut ledger, &launch("b", &["small"], &[]), &context));
    let over = Rejection::LimitExceeded { resource: "replicas".to_owned(), limit: 1, used: 1, asked: 1 };
    assert_eq!(rejection(admit(&mut ledger, &launch("c", &["small"], &[]), &context)), over, "one successor");
}

#[test]
fn limits_count_maximum_usage_until_launch_and_deleted_claims_until_gone() {
    let mut ledger = ledger_of(&[]);
    let context = plan(&ledger, 1);
    let claim = claim_of(&admit(&mut ledger, &launch("a", &["small", "large"], &[]), &context));
    claim_of(&admit(&mut ledger, &launch("b", &["large"], &[]), &context));
    let third = launch("c", &["small"], &[]);
    let over = Rejection::LimitExceeded { resource: "cpu".to_owned(), limit: 8000, used: 8000, asked: 1000 };
    assert_eq!(rejection(admit(&mut ledger, &third, &context)), over);
    // The claim became a small node: 3 of 4 cores are free again.
    ledger.launched(&claim, Resources::from([("cpu", 1000), ("nodes", 1)]));
    claim_of(&admit(&mut ledger, &third, &context));
    let used = ledger.used(&"pool".into());
    assert_eq!((used.get("cpu"), used.get("nodes")), (6000, 3));

    ledger.deleting(&claim);
    assert_eq!(ledger.used(&"pool".into()).get("cpu"), 6000);
    ledger.gone(&claim);
    assert_eq!(ledger.used(&"pool".into()).get("cpu"), 5000);
}

#[test]
fn failure_pauses_the_pool_and_outdates_plans() {
    let mut ledger = ledger_of(&[]);
    let old = plan(&ledger, 1);
    let action = launch("one", &["small"], &["p"]);
    let claim = claim_of(&admit(&mut ledger, &action, &old));
    ledger.failed(&claim, "LaunchFailed", NOW);
    assert_eq!(
        rejection(admit(&mut ledger, &launch("two", &["small"], &["q"]), &old)),
        Rejection::Changed(Subject::Pool("pool".into()))
    );
    let new = plan(&ledger, 2);
    assert_eq!(rejection(admit(&mut ledger, &action, &new)), Rejection::ClaimExists(claim.clone()));
    ledger.gone(&claim);
    let new = plan(&ledger, 3);
    let pause = Rejection::BackOff { cause: "LaunchFailed".to_owned(), remaining: Millis(1000) };
    assert_eq!(rejection(admit(&mut ledger, &action, &new)), pause);
    let later = ledger.admit_launch(&action, &new, &catalog(), NOW.plus(Millis(1000)));
    assert_eq!(claim_of(&later), claim);
}

#[test]
fn stale_drivers_and_foreign_positions_are_rejected() {
    let mut ledger = ledger_of(&[]);
    let action = launch("one", &["small"], &[]);
    let good = plan(&ledger, 1);
    let newer = PlanContext { driver: driver(2), ..good.clone() };
    assert_eq!(rejection(admit(&mut ledger, &action, &newer)), Rejection::StaleDriver(1));
    ledger.observe_driver(driver(2));
    assert_eq!(rejection(admit(&mut ledger, &action, &good)), Rejection::StaleDriver(2));
    // The Lease was deleted and created again: the live read counts, not the larger number.
    ledger.observe_driver(driver(0));
    assert_eq!(rejection(admit(&mut ledger, &action, &newer)), Rejection::StaleDriver(0));
    ledger.observe_driver(driver(2));
    for (epoch, sequence) in [(6, 99), (7, 99), (8, 0)] {
        let position = LedgerPosition { epoch, sequence };
        let odd = PlanContext { position, ..newer.clone() };
        assert!(
            matches!(rejection(admit(&mut ledger, &action, &odd)), Rejection::StalePosition { .. }),
            "{position:?}"
        );
    }
    claim_of(&admit(&mut ledger, &action, &newer));
}

#[test]
fn changed_subjects_and_rejected_dependencies_are_rejected() {
    let mut ledger = ledger_of(&[seed("a")]);
    let old = plan(&ledger, 1);
    ledger.changed(Subject::Pod("p".into()));
    let changed = Rejection::Changed(Subject::Pod("p".into()));
    assert_eq!(rejection(admit(&mut ledger, &launch("one", &["small"], &["p"]), &old)), changed);
    let dependent = removal("a", DisruptionReason::Empty);
    let refused = ledger.admit_removal(&dependent, &["one".into()], &old, &facts("a", "b", 0));
    assert_eq!(rejection(refused), Rejection::DependencyRejected("one".into()));
    let unknown = launch("three", &["huge"], &[]);
    assert_eq!(rejection(admit(&mut ledger, &unknown, &old)), Rejection::UnknownInstanceType("huge".to_owned()));
}

fn seed(name: &str) -> ClaimSeed {
    let capacity = Some(Resources::from([("cpu", 1000), ("nodes", 1)]));
    ClaimSeed {
        name: name.to_owned(),
        pool: "pool".into(),
        node: Some(name.into()),
        capacity,
        initialized: true,
        ..ClaimSeed::default()
    }
}

fn removal(node: &str, reason: DisruptionReason) -> Termination {
    Termination { action_id: format!("remove-{node}").into(), node: node.into(), reason, ..Termination::default() }
}

fn facts(claim: &str, to: &str, cpu: i64) -> RemovalFacts {
    RemovalFacts {
        claim: claim.to_owned(),
        evictions: [("ns/pdb".to_owned(), 2)].into(),
        disruptions_allowed: [("ns/pdb".to_owned(), 3)].into(),
        moves: [(NodeName::from(to), Resources::from([("cpu", cpu)]))].into(),
        free: [(NodeName::from(to), Resources::from([("cpu", 1000)]))].into(),
        ..RemovalFacts::default()
    }
}

#[test]
fn two_removals_cannot_use_the_same_free_capacity() {
    let mut ledger = ledger_of(&[seed("a"), seed("b"), seed("c")]);
    let context = plan(&ledger, 1);
    let reason = DisruptionReason::Underutilized;
    let first = ledger.admit_removal(&removal("a", reason), &[], &context, &facts("a", "c", 600));
    assert_eq!(claim_of(&first), "a");
    let second = removal("b", reason);
    let full = Rejection::InsufficientResources { node: "c".into(), resource: "cpu".to_owned() };
    assert_eq!(rejection(ledger.admit_removal(&second, &[], &context, &facts("b", "c", 401))), full);
    // Rejected: a destination that is being removed, and the removal of a destination.
    let leaving = Rejection::InsufficientResources { node: "a".into(), resource: "cpu".to_owned() };
    assert_eq!(rejection(ledger.admit_removal(&second, &[], &context, &facts("b", "a", 1))), leaving);
    let destination = ledger.admit_removal(&removal("c", reason), &[], &context, &facts("c", "b", 1));
    assert_eq!(rejection(destination), Rejection::NodeIsDestination("c".into()));
    assert_eq!(claim_of(&ledger.admit_removal(&second, &[], &context, &facts("b", "c", 400))), "b");
}

#[test]
fn admitted_removals_reduce_budgets_and_allowed_disruptions() {
    let mut ledger = ledger_of(&[seed("a"), seed("b"), seed("c")]);
    let context = plan(&ledger, 1);
    let none = |claim: &str| RemovalFacts { claim: claim.to_owned(), ..RemovalFacts::default() };
    claim_of(&ledger.admit_removal(&removal("a", DisruptionReason::Empty), &[], &context, &facts("a", "c", 0)));
    let exhausted = Rejection::BudgetExhausted { allowed: 1, removing: 1 };
    let second = ledger.admit_removal(&removal("b", DisruptionReason::Empty), &[], &context, &none("b"));
    assert_eq!(rejection(second), exhausted);
    let mut drained = ledger.clone();
    drained.terminating("a");
    claim_of(&drained.admit_removal(&removal("b", DisruptionReason::Empty), &[], &context, &none("b")));

    let drifted = removal("b", DisruptionReason::Drifted);
    let mut tight = RemovalFacts { disruptions_allowed: [("ns/pdb".to_owned(), 2)].into(), ..facts("b", "c", 0) };
    let no_room = Rejection::NoDisruptionRoom("ns/pdb".to_owned());
    assert_eq!(rejection(ledger.admit_removal(&drifted, &[], &context, &tight)), no_room);
    tight.disruptions_allowed.clear();
    assert_eq!(
        rejection(ledger.admit_removal(&drifted, &[], &context, &tight)),
        no_room,
        "a lagging budget has no room"
    );
    let bounded = RemovalFacts { bounded: true, ..tight.clone() };
    let idle = removal("b", DisruptionReason::Underutilized);
    assert_eq!(rejection(ledger.clone().admit_removal(&idle, &[], &context, &bounded)), no_room);
    claim_of(&ledger.clone().admit_removal(&drifted, &[], &context, &bounded));
    let forced = removal("b", DisruptionReason::Interrupted);
    claim_of(&ledger.admit_removal(&forced, &[], &context, &tight));
}

proptest! {
    /// For any sequence of requests, limits hold, and no pod is in two claims.
    #[test]
    fn limits_hold_and_pods_are_launched_for_once(asked in prop::collection::vec((0_u8..12, any::<bool>(), 0_u8..6, 0_u8..4), 1..60)) {
        let mut ledger = ledger_of(&[]);
        let mut claims: Vec<String> = Vec::new();
        for (id, large, pod, event) in asked {
            let types: &[&str] = if large { &["small", "large"] } else { &["small"] };
            let now_known = plan(&ledger, u64::from(id));
            let wanted = launch(&format!("{id}"), types, &[&format!("p{pod}")]);
            if let Admission::Admitted { claim, .. } = admit(&mut ledger, &wanted, &now_known) {
                claims.push(claim);
            }
            match (event, claims.last().cloned()) {
                (1, Some(claim)) => ledger.launched(&claim, Resources::from([("cpu", 1000), ("nodes", 1)])),
                (2, Some(claim)) => ledger.deleting(&claim),
                (3, Some(claim)) => { ledger.gone(&claim); claims.pop(); }
                _ => {}
            }
            prop_assert!(ledger.used(&"pool".into()).get("cpu") <= 8000);
            let pods: Vec<&PodUid> = ledger.claims.values().flat_map(|claim| &claim.pods).collect();
            let distinct: BTreeSet<&PodUid> = pods.iter().copied().collect();
            prop_assert_eq!(pods.len(), distinct.len());
        }
    }
}

mod admission;
mod claims;
mod launches;
mod price;
mod removals;
mod rollout;
