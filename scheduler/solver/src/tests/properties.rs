//! Properties of all clusters: plans are valid, do not depend on order, and reach a fixed point after they are
//! executed.

use super::builder::*;
use plimsoll_model::catalog::CapacityType;
use plimsoll_model::identity::NodeName;
use plimsoll_model::names::label;
use plimsoll_model::plan::{Plan, PlanOptions, PreferencePolicy};
use plimsoll_model::requirements::Operator;
use plimsoll_model::snapshot::{
    ConsolidationPolicy, DisruptionReason, NodeState, PodAffinityTerm, PodShape, PodState, PreferredTerm,
    TopologySpread,
};
use plimsoll_model::taints::TaintEffect;
use plimsoll_model::time::Millis;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

const TYPES: [&str; 4] = ["c5.large", "c5.2xlarge", "m5.xlarge", "r5.xlarge"];

/// Topology constraints of a pod, required or preferred.
fn any_company() -> impl Strategy<Value = (Vec<TopologySpread>, Vec<PodAffinityTerm>)> {
    let key = prop::sample::select(vec![label::ZONE, label::HOSTNAME, label::CAPACITY_TYPE, "rack"]);
    let even = (key.clone(), 1..3_i32, any::<bool>(), any::<bool>()).prop_map(|(key, skew, required, honor)| {
        TopologySpread { required, honor_node_affinity: honor, ..spread(key, skew) }
    });
    let near = (key, any::<bool>(), prop::sample::select(vec!["web", "db"]), prop::option::of(1..100_i32));
    let near = near.prop_map(|(key, anti, app, weight)| PodAffinityTerm { weight, ..affinity(key, anti, app) });
    (prop::collection::vec(even, 0..2), prop::collection::vec(near, 0..2))
}

/// Shapes like those of [`any_shape`], with topology constraints.
pub(super) fn any_social_shape() -> impl Strategy<Value = PodShape> {
    (any_shape(), any_company(), prop::sample::select(vec!["web", "db", "lone"]), 0..4_u8).prop_map(
        |(mut one, (spread, affinity), app, prefers)| {
            one.labels.insert("app".into(), app.into());
            one.topology_spread = spread;
            one.pod_affinity = affinity;
            if prefers == 0 {
                let zone = requirement(label::ZONE, Operator::In, &["zone-c"]);
                one.preferred_node_affinity = vec![PreferredTerm { weight: 1, term: term(&[zone]) }];
            }
            one
        },
    )
}

pub(super) fn any_shape() -> impl Strategy<Value = PodShape> {
    (1..30_i64, 0..12_i64, 0..8_u8).prop_map(|(cores, gib, special)| {
        let mut one = shape(cores * 250, gib);
        match special {
            0 => one.node_selector = [(label::ZONE.to_owned(), "zone-b".to_owned())].into(),
            1 => {
                let arm = requirement(label::ARCH, Operator::In, &["arm64"]);
                let dear = requirement("karpenter.k8s.aws/instance-family", Operator::In, &["r5"]);
                one.required_node_affinity = vec![term(&[arm]), term(&[dear])];
            }
            2 => one.tolerations = vec![tolerate("dedicated")],
            3 => one.node_selector = [("team".to_owned(), "blue".to_owned())].into(),
            _ => {}
        }
        one
    })
}

pub(super) fn any_cluster() -> impl Strategy<Value = Cluster> {
    cluster_of(any_shape().boxed())
}

pub(super) fn any_social_cluster() -> impl Strategy<Value = Cluster> {
    cluster_of(any_social_shape().boxed())
}

fn cluster_of(shapes: BoxedStrategy<PodShape>) -> impl Strategy<Value = Cluster> {
    let pods = prop::collection::vec((shapes, 1..6_usize), 1..6);
    let node = (0..TYPES.len(), prop::collection::vec((1..8_i64, 0..3_i64), 0..4), 0..10_u8);
    let nodes = prop::collection::vec(node, 0..5);
    let pools = (0..3_u8, prop::option::of(4..40_i64), 0..3_u8, any::<bool>());
    (pods, nodes, pools).prop_map(|(pods, nodes, (extra, limit, policy, daemon))| {
        let mut cluster = Cluster::new();
        cluster.pool().disruption.policy = [
            ConsolidationPolicy::WhenEmpty,
            ConsolidationPolicy::WhenEmptyOrUnderutilized,
            ConsolidationPolicy::Balanced,
        ][usize::from(policy)];
        if let Some(cores) = limit {
            cluster.pool().limits.set("cpu", cores * 1000);
        }
        if extra > 0 {
            let mut other = pool("other");
            other.weight = i32::from(extra) - 2;
            other.requirements[0].values.push("arm64".into());
            other.requirements.push(requirement("team", Operator::In, &["blue", "green"]));
            other.taints = vec![taint(
                "dedicated",
                if extra == 1 { TaintEffect::NoSchedule } else { TaintEffect::PreferNoSchedule },
            )];
            cluster.snapshot.node_pools.push(other);
        }
        if daemon {
            cluster.daemon_set("agent", &shape(100, 0));
        }
        for (index, (kind, there, special)) in nodes.into_iter().enumerate() {
            let name = format!("node-{index}");
            let node = cluster.node(&name, TYPES[kind]);
            match special {
                0 => node.drifted = Some("Drift".into()),
                1 => node.expires = Some(NOW),
                2 => node.deleting = true,
                3 => node.cordoned = true,
                4 => node.state = NodeState::InFlight,
                _ => {}
            }
            let mut free = node.allocatable.clone();
            for (place, (cores, gib)) in there.into_iter().enumerate() {
                let one = shape(cores * 250, gib);
                if one.requests.fits_in(&free) {
                    free.subtract(&one.requests);
                    cluster.bound(&format!("{name}-{place}"), &name, &one);
                }
            }
        }
        for (index, (one, count)) in pods.into_iter().enumerate() {
            cluster.pending(&format!("p{index}"), count, &one);
        }
        cluster
    })
}

/// The cluster after the plan is executed. Each launch becomes its first offering.
pub(super) fn carried_out(cluster: &Cluster, plan: &Plan) -> Cluster {
    let mut next = cluster.clone();
    let mut place = std::collections::BTreeMap::new();
    for (index, launch) in plan.launches.iter().enumerate() {
        let name = format!("new-{}-{index}", launch.action_id.0);
        let choice = &launch.offerings[0];
        let pool = launch.node_pool.as_str();
        let node = next.node_of(&name, &choice.instance_type, pool, choice.capacity_type);
        node.labels.insert(label::ZONE.into(), choice.zone.clone());
        node.taints = launch.taints.clone();
        for asked in launch.requirements.iter().filter(|one| one.operator == Operator::In && one.values.len() == 1) {
            node.labels.entry(asked.key.clone()).or_insert_with(|| asked.values[0].clone());
        }
        place.extend(launch.pods.iter().map(|pod| (pod.uid.clone(), name.clone())));
    }
    for to in plan.placements.iter().chain(plan.terminations.iter().flat_map(|one| &one.moved_to)) {
        place.extend(to.pods.iter().map(|pod| (pod.uid.clone(), to.node.0.clone())));
    }
    let gone: Vec<&NodeName> = plan.terminations.iter().map(|one| &one.node).collect();
    for pod in &mut next.snapshot.pods {
        if let Some(name) = place.get(&pod.uid) {
            pod.state = PodState::Bound(NodeName::from(name.as_str()));
        } else if matches!(&pod.state, PodState::Bound(node) if gone.contains(&node)) {
            pod.state = PodState::Pending;
        }
    }
    next.snapshot.nodes.retain(|node| !node.deleting && !gone.contains(&&node.name));
    next.snapshot.pods.retain(|pod| match &pod.state {
        PodState::Bound(node) => next.snapshot.nodes.iter().any(|one| one.name == *node),
        _ => true,
    });
    next
}

fn cost(cluster: &Cluster) -> i64 {
    let price = |node: &plimsoll_model::snapshot::Node| {
        let kind = cluster.catalog.get(&node.labels[label::INSTANCE_TYPE]).unwrap();
        let bought = &node.labels[label::CAPACITY_TYPE];
        kind.offerings.iter().find(|one| one.capacity_type.as_str() == bought).unwrap().price.0
    };
    cluster.snapshot.nodes.iter().map(price).sum()
}

fn placed(plan: &Plan) -> usize {
    plan.launches.iter().map(|one| one.pods.len()).chain(plan.placements.iter().map(|one| one.pods.len())).sum()
}

/// The cluster with its pods, nodes and shapes in another order.
pub(super) fn turned(mut cluster: Cluster, turn: usize) -> Cluster {
    let snapshot = &mut cluster.snapshot;
    snapshot.pods.reverse();
    snapshot.nodes.reverse();
    let by = turn % snapshot.shapes.len().max(1);
    snapshot.shapes.rotate_left(by);
    cluster
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..steady() })]

    #[test]
    fn order_does_not_matter(cluster in any_cluster(), turn in 1..5_usize) {
        let plan = cluster.plan();
        prop_assert_eq!(&plan, &cluster.plan());
        let mut turned = turned(cluster, turn);
        turned.snapshot.node_pools.reverse();
        prop_assert_eq!(&plan, &turned.plan());
    }

    #[test]
    fn what_nobody_can_use_changes_nothing(cluster in any_cluster()) {
        let plan = cluster.plan();
        let mut more = cluster.clone();
        let mut unused = pool("unused");
        unused.weight = 100;
        unused.taints = vec![taint("nobody", TaintEffect::NoSchedule)];
        more.snapshot.node_pools.push(unused);
        let with_pool = more.plan();
        prop_assert_eq!((&with_pool.launches, &with_pool.placements, &with_pool.terminations), (&plan.launches, &plan.placements, &plan.terminations));
        let mut more = cluster.clone();
        let mut dear = instance("z9.large", 2, 4, 900_000);
        dear.offerings.retain(|one| one.capacity_type == CapacityType::OnDemand);
        more.catalog.instance_types.push(dear);
        let with_type = more.plan();
        prop_assert_eq!((placed(&with_type), with_type.hourly), (placed(&plan), plan.hourly));
    }

    #[test]
    fn an_empty_node_more_does_no_harm(mut cluster in any_cluster()) {
        cluster.pool().limits.remove("cpu");
        let plan = cluster.plan_with(false);
        cluster.node("zz-empty", "c5.2xlarge");
        let more = cluster.plan_with(false);
        prop_assert!(placed(&more) >= placed(&plan));
        prop_assert!(more.hourly <= plan.hourly, "{} instead of {}", more.hourly, plan.hourly);
    }

    #[test]
    fn a_plan_that_was_carried_out_leaves_nothing_to_do(cluster in any_cluster()) {
        let mut cluster = cluster;
        // Starting nodes become initialized.
        let plan = cluster.plan();
        let pending = plan.unschedulable.len();
        cluster = carried_out(&cluster, &plan);
        cluster.snapshot.nodes.iter_mut().for_each(|node| node.state = NodeState::Initialized);
        let mut before = cost(&cluster);
        for round in 0..6 {
            let again = cluster.plan();
            prop_assert!(again.placements.is_empty() || !again.terminations.is_empty() || round == 0 || pending > 0);
            if again.launches.is_empty() && again.terminations.is_empty() {
                return Ok(());
            }
            // A drifted node that received pods in the first round is removed in the next.
            let drift = again.terminations.iter().any(|one| one.reason == DisruptionReason::Drifted);
            cluster = carried_out(&cluster, &again);
            let now = cost(&cluster);
            prop_assert!(now < before || drift || pending > 0, "{again:#?}");
            before = now;
        }
        prop_assert!(pending > 0, "no fixed point: {:#?}", cluster.plan());
    }

    #[test]
    fn nothing_is_removed_that_must_stay(mut cluster in any_cluster()) {
        cluster.snapshot.nodes.iter_mut().for_each(|node| { node.do_not_disrupt = true; node.expires = None; });
        prop_assert!(cluster.plan().terminations.is_empty());
        cluster.snapshot.nodes.iter_mut().for_each(|node| node.do_not_disrupt = false);
        for reason in DisruptionReason::ALL {
            cluster.allow(reason, 1);
        }
        prop_assert!(cluster.plan().terminations.len() <= 1);
        cluster.pool().disruption.consolidate_after = Some(Millis(1));
        cluster.snapshot.nodes.iter_mut().for_each(|node| { node.idle_since = Some(NOW); node.drifted = None; });
        prop_assert!(cluster.plan().terminations.is_empty());
    }
}

/// Uses the same cases each time, so that a change does not fail because of an unrelated case. `PROPTEST_RNG_SEED`
/// selects other cases.
pub(super) fn steady() -> ProptestConfig {
    let config = ProptestConfig::default();
    let rng_seed = if config.rng_seed == RngSeed::Random { RngSeed::Fixed(4) } else { config.rng_seed };
    ProptestConfig { cases: 150, rng_seed, ..config }
}

proptest! {
    #![proptest_config(steady())]

    /// [`Cluster::plan`] checks each plan.
    #[test]
    fn pods_that_look_at_each_other_get_valid_plans_whatever_the_order(cluster in any_social_cluster(), turn in 1..5_usize) {
        let plan = cluster.plan();
        prop_assert_eq!(&plan, &turned(cluster, turn).plan());
    }

    #[test]
    fn preferences_never_cost_a_pod_its_place(mut cluster in any_social_cluster()) {
        // Limits, and pods that other pods depend on, may be used differently.
        cluster.snapshot.node_pools.iter_mut().for_each(|pool| pool.limits = plimsoll_model::resources::Resources::new());
        cluster.snapshot.shapes.iter_mut().for_each(|shape| shape.pod_affinity.retain(|one| one.weight.is_some()));
        cluster.snapshot.shapes.iter_mut().for_each(|shape| shape.topology_spread.retain(|one| !one.required));
        let ignore = PlanOptions { disruption: false, preference_policy: PreferencePolicy::Ignore, ..PlanOptions::default() };
        let (with, without) = (cluster.plan_with(false), cluster.plan_by(&ignore));
        prop_assert_eq!(with.unschedulable.len(), without.unschedulable.len());
    }

    #[test]
    fn pods_that_look_at_each_other_stay_where_a_plan_put_them(mut cluster in any_social_cluster()) {
        cluster.snapshot.node_pools.iter_mut().for_each(|pool| {
            pool.disruption.policy = ConsolidationPolicy::WhenEmpty;
        });
        let plan = cluster.plan();
        let refused = plan.unschedulable.len();
        let mut cluster = carried_out(&cluster, &plan);
        cluster.snapshot.nodes.iter_mut().for_each(|node| { node.state = NodeState::Initialized; node.drifted = None; });
        let again = cluster.plan();
        prop_assert!(refused > 0 || (again.launches.is_empty() && again.placements.is_empty()), "{again:#?}");
    }
}
