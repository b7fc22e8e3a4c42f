use crate::actuator::v1 as wire;
use crate::convert::strategies::{capacity_type, catalog, labels, resources, taint};
use crate::convert::{ConvertError, known_outcome};
use plimsoll_model::execution::*;
use plimsoll_model::identity::{ActionId, PodUid};
use plimsoll_model::plan::{Plan, PodRef};
use plimsoll_model::snapshot::{LedgerPosition, ReservationCount, UnavailableOffering};
use plimsoll_model::time::{Millis, Timestamp};
use proptest::collection::{btree_map, btree_set, vec};
use proptest::option;
use proptest::prelude::*;

fn position() -> impl Strategy<Value = LedgerPosition> {
    any::<(u64, u64)>().prop_map(|(epoch, sequence)| LedgerPosition { epoch, sequence })
}

fn outcome() -> impl Strategy<Value = Outcome> {
    use {OutcomeReason as R, OutcomeStatus as S};
    let status = prop::sample::select(vec![S::Accepted, S::Rejected, S::Launched, S::Failed, S::Removed]);
    let reason =
        prop::sample::select(vec![R::StaleSnapshot, R::PodChanged, R::NoCapacity, R::ClusterRefused, R::Invalid]);
    ("[a-z]{1,3}", status, option::of(reason), "[a-z ]{0,4}", option::of("[a-z]{1,3}"), position()).prop_map(
        |(action, status, reason, message, node_claim, ledger)| Outcome {
            action_id: ActionId(action),
            status,
            reason,
            message,
            node_claim,
            ledger,
        },
    )
}

fn claim(name: String) -> impl Strategy<Value = InFlightClaim> {
    use ClaimState as S;
    let state = prop::sample::select(vec![S::Launching, S::Launched, S::Registered, S::Terminating]);
    let pod = "[a-z]{1,3}".prop_map(|uid| PodRef { name: format!("default/{uid}"), uid: PodUid(uid) });
    let identity = ("[a-z]{0,3}", "[a-z]{1,3}", option::of("[a-z]{1,3}"), option::of(any::<i64>()), state);
    let content = (vec(pod, 0..3), resources(), resources(), labels(), vec(taint(), 0..2));
    (identity, content).prop_map(
        move |((uid, pool, action, launched, state), (pods, limit_usage, allocatable, labels, taints))| InFlightClaim {
            name: name.clone(),
            uid,
            node_pool: pool.into(),
            action_id: action.map(ActionId),
            pods,
            limit_usage,
            labels,
            taints,
            allocatable,
            state,
            launched: launched.map(Timestamp),
        },
    )
}

fn offerings() -> impl Strategy<Value = Option<Vec<UnavailableOffering>>> {
    let by_key = btree_map((option::of("[ab]"), option::of("[ab]"), capacity_type()), any::<u64>(), 0..4);
    let offering = |((instance_type, zone, capacity_type), remaining)| UnavailableOffering {
        instance_type,
        zone,
        capacity_type,
        remaining: Millis(remaining),
    };
    option::of(by_key.prop_map(move |offerings| offerings.into_iter().map(offering).collect::<Vec<_>>()))
}

fn ledger_update() -> impl Strategy<Value = LedgerUpdate> {
    let claims = (claim("a".into()), claim("b".into()), 0..3_usize)
        .prop_map(|(a, b, count)| [a, b].into_iter().take(count).collect::<Vec<_>>());
    (position(), claims, vec("[a-z]{1,3}", 0..3), offerings(), any::<bool>()).prop_map(
        |(position, upserted, removed, unavailable_offerings, complete)| LedgerUpdate {
            position,
            upserted,
            removed,
            reservations: complete.then(|| vec![ReservationCount { id: "cr-1".into(), free: 3 }]),
            unavailable_offerings,
            complete,
        },
    )
}

fn catalog_update() -> impl Strategy<Value = CatalogUpdate> {
    let content = prop_oneof![
        (catalog(), any::<bool>()).prop_map(|(catalog, sent)| (Some(catalog.id()), sent.then_some(catalog), None)),
        "[a-z ]{1,5}".prop_map(|problem| (None, None, Some(problem))),
    ];
    let zones = option::of(btree_set("[a-z]{1,3}", 0..3));
    ("[a-z]{1,3}", 0..i64::MAX, any::<bool>(), content, offerings(), any::<bool>(), zones).prop_map(
        |(node_class, generation, removed, content, unavailable_offerings, complete, shifted_zones)| {
            let (catalog_id, catalog, problem) = content;
            CatalogUpdate {
                node_class,
                generation,
                removed,
                catalog_id,
                catalog,
                problem,
                unavailable_offerings,
                complete,
                shifted_zones,
            }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn outcomes_round_trip(model in outcome()) {
        prop_assert_eq!(Outcome::try_from(wire::ExecuteResponse::from(&model)), Ok(model));
    }

    #[test]
    fn ledger_updates_round_trip(model in ledger_update()) {
        prop_assert_eq!(LedgerUpdate::try_from(wire::WatchLedgerResponse::from(&model)), Ok(model));
    }

    #[test]
    fn catalog_updates_round_trip(model in catalog_update()) {
        prop_assert_eq!(CatalogUpdate::try_from(wire::WatchCatalogResponse::from(&model)), Ok(model));
    }
}

#[test]
fn executions_round_trip() -> Result<(), ConvertError> {
    let driver = Driver { identity: "watcher-0".into(), transitions: 3 };
    let report = BufferReport {
        namespace: "shop".into(),
        name: "spare".into(),
        uid: "b".into(),
        strategy: "buffer.x-k8s.io/active-capacity".into(),
        pod_template: Some("web".into()),
        pod_template_generation: Some(4),
        replicas: 3,
        ready: BufferReady::Resolved,
        message: "fewer".into(),
        provisioning: Some(BufferProvisioning::RequiresNewCapacity),
        room: "1 of 3".into(),
    };
    let unseen =
        BufferReport { pod_template: None, provisioning: None, ready: BufferReady::ResolutionFailed, ..report.clone() };
    let (virtual_pods, buffers) = (["v-1".into()].into(), vec![report, unseen]);
    let execution = Execution { driver, plan: Plan::default(), cycle_id: "c".into(), virtual_pods, buffers };
    assert_eq!(Execution::try_from(wire::ExecuteRequest::from(&execution))?, execution);
    Ok(())
}

fn text<T>(result: Result<T, ConvertError>) -> String {
    result.err().map(|error| error.to_string()).unwrap_or_default()
}

#[test]
fn invalid_executions_are_rejected_with_the_path() {
    let whole = wire::ExecuteRequest {
        driver: Some(wire::Driver { identity: "w".into(), transitions: 1 }),
        plan: Some(crate::plan::v1::Plan::default()),
        cycle_id: "c".into(),
        virtual_pod_uids: Vec::new(),
        buffers: Vec::new(),
    };
    let error_of = |change: fn(&mut wire::ExecuteRequest)| {
        let mut bad = whole.clone();
        change(&mut bad);
        text(Execution::try_from(bad))
    };
    assert_eq!(error_of(|_| ()), "");
    assert_eq!(error_of(|it| it.driver = None), "driver: is not set");
    assert_eq!(error_of(|it| it.driver = Some(wire::Driver::default())), "driver.identity: is empty");
    assert_eq!(error_of(|it| it.plan = None), "plan: is not set");
    assert_eq!(
        error_of(|it| it.plan.get_or_insert_default().hourly_micro_usd = -1),
        "plan.hourly_micro_usd: is negative: -1"
    );
    assert_eq!(error_of(|it| it.cycle_id.clear()), "cycle_id: is empty");
    assert_eq!(error_of(|it| it.buffers = vec![wire::BufferReport::default()]), "buffers[0].namespace: is empty");
    assert_eq!(error_of(|it| it.virtual_pod_uids = vec![String::new()]), "virtual_pod_uids: is empty");
}

#[test]
fn invalid_outcomes_and_updates_are_rejected_with_the_path() {
    let outcome = wire::Outcome { action_id: "a".into(), ledger: Some(Default::default()), ..Default::default() };
    let response = wire::ExecuteResponse { outcome: Some(outcome) };
    assert_eq!(text(Outcome::try_from(response)), "outcome.status: is not set");

    let claim = wire::InFlightClaim { name: "c".into(), node_pool: "p".into(), ..Default::default() };
    let update = wire::LedgerUpdate { position: Some(Default::default()), upserted: vec![claim], ..Default::default() };
    let response = wire::WatchLedgerResponse { update: Some(update) };
    assert_eq!(text(LedgerUpdate::try_from(response)), "update.upserted[0].state: is not set");
    let claim = wire::InFlightClaim { name: "c".into(), node_pool: "p".into(), state: 1, ..Default::default() };
    let count = crate::snapshot::v1::ReservationCount { id: "cr-1".into(), free: 1 };
    let ledger = wire::LedgerUpdate { position: Some(Default::default()), ..Default::default() };
    for (update, expected) in [
        (wire::LedgerUpdate { upserted: vec![claim; 2], ..ledger.clone() }, "upserted[1].name"),
        (
            wire::LedgerUpdate {
                reservations: Some(wire::ReservationCounts { counts: vec![count; 2] }),
                ..ledger.clone()
            },
            "reservations.counts[1].id",
        ),
        (
            wire::LedgerUpdate {
                unavailable_offerings: Some(wire::UnavailableOfferings { offerings: vec![wire_offering(2); 2] }),
                ..ledger
            },
            "unavailable_offerings.offerings[1]",
        ),
    ] {
        let response = wire::WatchLedgerResponse { update: Some(update) };
        assert_eq!(text(LedgerUpdate::try_from(response)), format!("update.{expected}: is there twice"));
    }

    let catalog = crate::catalog::v1::Catalog::default();
    let mut update = wire::CatalogUpdate { node_class: "n".into(), catalog: Some(catalog), ..Default::default() };
    assert_eq!(text(CatalogUpdate::try_from(update.clone())), "catalog_id: is not set, but the catalog is");
    update.catalog_id = Some("x".into());
    assert_eq!(text(CatalogUpdate::try_from(update.clone())), "", "a catalog without an id has that of the update");
    update.catalog.get_or_insert_default().id = "y".into();
    assert_eq!(text(CatalogUpdate::try_from(update.clone())), "catalog.id: is not the catalog_id");
    (update.catalog, update.catalog_id, update.generation) = (None, Some("x".into()), -1);
    assert_eq!(text(CatalogUpdate::try_from(update.clone())), "generation: is negative: -1");
    (update.node_class, update.generation) = (String::new(), 1);
    assert_eq!(text(CatalogUpdate::try_from(update.clone())), "node_class: is empty");
    (update.catalog_id, update.removed) = (None, true);
    assert_eq!(text(CatalogUpdate::try_from(update)), "node_class: is empty");
}

#[test]
fn values_of_a_later_version_do_not_hide_the_others() -> Result<(), ConvertError> {
    let outcome = |status, reason| {
        let ledger = Some(Default::default());
        let outcome = wire::Outcome { action_id: "a".into(), status, reason, ledger, ..Default::default() };
        wire::ExecuteResponse { outcome: Some(outcome) }
    };
    let failed = known_outcome(outcome(4, 99))?;
    assert_eq!(failed.map(|outcome| (outcome.status, outcome.reason)), Some((OutcomeStatus::Failed, None)));
    assert_eq!(known_outcome(outcome(99, 0))?, None);
    assert_eq!(text(known_outcome(outcome(0, 0))), "outcome.status: is not set");

    let claim = wire::InFlightClaim { name: "c".into(), node_pool: "p".into(), state: 99, ..Default::default() };
    let offerings = wire::UnavailableOfferings { offerings: vec![wire_offering(99), wire_offering(1)] };
    let update = wire::LedgerUpdate {
        position: Some(Default::default()),
        upserted: vec![claim],
        unavailable_offerings: Some(offerings),
        ..Default::default()
    };
    let update = LedgerUpdate::try_from(wire::WatchLedgerResponse { update: Some(update) })?;
    assert_eq!(update.upserted.first().map(|claim| claim.state), Some(ClaimState::Launched));
    assert_eq!(update.unavailable_offerings.map(|offerings| offerings.len()), Some(1));
    Ok(())
}

/// The sender's hash covers a field that this version does not know.
#[test]
fn the_id_of_a_catalog_of_a_later_version_is_accepted() -> Result<(), ConvertError> {
    let catalog = crate::catalog::v1::Catalog { id: "later".into(), region: "r".into(), ..Default::default() };
    let update = wire::CatalogUpdate {
        node_class: "n".into(),
        catalog_id: Some("later".into()),
        catalog: Some(catalog),
        ..Default::default()
    };
    let update = CatalogUpdate::try_from(update)?;
    assert_eq!(update.catalog_id, Some("later".into()));
    assert_eq!(update.catalog.map(|catalog| catalog.region), Some("r".to_owned()));
    Ok(())
}

fn wire_offering(capacity_type: i32) -> crate::snapshot::v1::UnavailableOffering {
    crate::snapshot::v1::UnavailableOffering { capacity_type, ..Default::default() }
}
