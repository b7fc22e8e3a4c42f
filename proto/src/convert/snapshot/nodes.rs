//! Conversion of nodes and pools.

use crate::convert::{
    ConvertError, ConvertResult, WireEnum as _, check_unique, enum_value, key, list, not_negative, optional,
    optional_key, required, resources_from_wire, resources_to_wire, to_wire, wire_enum,
};
use crate::snapshot::v1 as wire;
use plimsoll_model::costs::NodeCosts;
use plimsoll_model::identity::{CatalogId, NodeName, NodePoolName};
use plimsoll_model::money::MicroUsdPerHour;
use plimsoll_model::overlay::{NodeOverlay, PriceChange};
use plimsoll_model::snapshot::{
    ConsolidationPolicy, Disruption, DisruptionReason, Node, NodePool, NodeState, PoolProblem,
};
use plimsoll_model::time::{Millis, Timestamp};

wire_enum!(wire::NodeState, NodeState, [InFlight, Registered, Initialized]);
wire_enum!(wire::ConsolidationPolicy, ConsolidationPolicy, [WhenEmpty, WhenEmptyOrUnderutilized, Balanced]);
wire_enum!(wire::DisruptionReason, DisruptionReason, [Empty, Underutilized, Drifted, Expired, Interrupted]);

impl From<&Node> for wire::Node {
    fn from(node: &Node) -> Self {
        Self {
            name: node.name.0.clone(),
            node_claim: node.node_claim.clone(),
            node_pool: node.node_pool.as_ref().map(|pool| pool.0.clone()),
            state: node.state.to_wire(),
            labels: node.labels.clone(),
            taints: to_wire(&node.taints),
            allocatable: resources_to_wire(&node.allocatable),
            limit_usage: resources_to_wire(&node.limit_usage),
            ready: node.ready,
            cordoned: node.cordoned,
            deleting: node.deleting,
            do_not_disrupt: node.do_not_disrupt,
            created_unix_ms: node.created.0,
            expires_unix_ms: node.expires.map(|time| time.0),
            idle_since_unix_ms: node.idle_since.map(|time| time.0),
            drifted: node.drifted.clone(),
            termination_grace_period_ms: node.termination_grace_period.map(|period| period.0),
        }
    }
}

impl TryFrom<wire::Node> for Node {
    type Error = ConvertError;
    fn try_from(node: wire::Node) -> ConvertResult<Self> {
        Ok(Self {
            name: NodeName(key("name", node.name)?),
            node_claim: optional_key("node_claim", node.node_claim)?,
            node_pool: optional_key("node_pool", node.node_pool)?.map(NodePoolName),
            state: enum_value("state", node.state)?,
            labels: node.labels,
            taints: list("taints", node.taints)?,
            allocatable: resources_from_wire("allocatable", node.allocatable)?,
            limit_usage: resources_from_wire("limit_usage", node.limit_usage)?,
            ready: node.ready,
            cordoned: node.cordoned,
            deleting: node.deleting,
            do_not_disrupt: node.do_not_disrupt,
            created: Timestamp(node.created_unix_ms),
            expires: node.expires_unix_ms.map(Timestamp),
            idle_since: node.idle_since_unix_ms.map(Timestamp),
            drifted: node.drifted,
            termination_grace_period: node.termination_grace_period_ms.map(Millis),
        })
    }
}

impl From<&NodePool> for wire::NodePool {
    fn from(pool: &NodePool) -> Self {
        Self {
            name: pool.name.0.clone(),
            weight: pool.weight,
            labels: pool.labels.clone(),
            taints: to_wire(&pool.taints),
            startup_taints: to_wire(&pool.startup_taints),
            requirements: to_wire(&pool.requirements),
            limits: resources_to_wire(&pool.limits),
            replicas: pool.replicas,
            node_class: pool.node_class.clone(),
            catalog: pool.catalog.as_ref().map(|id| id.0.clone()),
            not_ready: pool.not_ready.as_ref().map(Into::into),
            deleting: pool.deleting,
            disruption: Some((&pool.disruption).into()),
            on_demand: pool.on_demand.as_ref().map(Into::into),
            overlays: to_wire(&pool.overlays),
            costs: (!pool.costs.is_none()).then(|| (&pool.costs).into()),
        }
    }
}

impl TryFrom<wire::NodePool> for NodePool {
    type Error = ConvertError;
    fn try_from(pool: wire::NodePool) -> ConvertResult<Self> {
        Ok(Self {
            name: NodePoolName(key("name", pool.name)?),
            weight: pool.weight,
            labels: pool.labels,
            taints: list("taints", pool.taints)?,
            startup_taints: list("startup_taints", pool.startup_taints)?,
            requirements: list("requirements", pool.requirements)?,
            limits: resources_from_wire("limits", pool.limits)?,
            replicas: pool.replicas,
            node_class: pool.node_class,
            catalog: optional_key("catalog", pool.catalog)?.map(CatalogId),
            not_ready: optional("not_ready", pool.not_ready)?,
            deleting: pool.deleting,
            disruption: required("disruption", pool.disruption)?,
            on_demand: optional("on_demand", pool.on_demand)?,
            overlays: list("overlays", pool.overlays)?,
            costs: optional("costs", pool.costs)?.unwrap_or_default(),
        })
    }
}

impl From<&NodeCosts> for wire::NodeCosts {
    fn from(costs: &NodeCosts) -> Self {
        Self { per_node_micro_usd_per_hour: costs.per_node.0, performance_millionths: costs.performance.clone() }
    }
}

impl TryFrom<wire::NodeCosts> for NodeCosts {
    type Error = ConvertError;
    fn try_from(costs: wire::NodeCosts) -> ConvertResult<Self> {
        if let Some((family, _)) = costs.performance_millionths.iter().find(|(_, work)| **work == 0) {
            return Err(ConvertError::new(format!("performance_millionths[{family:?}]"), "is 0"));
        }
        let field = "per_node_micro_usd_per_hour";
        Ok(Self {
            per_node: MicroUsdPerHour(not_negative(field, costs.per_node_micro_usd_per_hour)?),
            performance: costs.performance_millionths,
        })
    }
}

impl From<&NodeOverlay> for wire::NodeOverlay {
    fn from(overlay: &NodeOverlay) -> Self {
        use wire::node_overlay::Price;
        Self {
            name: overlay.name.clone(),
            weight: overlay.weight,
            requirements: to_wire(&overlay.requirements),
            price: overlay.price.map(|price| match price {
                PriceChange::To(price) => Price::PriceMicroUsdPerHour(price.0),
                PriceChange::By(amount) => Price::ChangeMicroUsdPerHour(amount.0),
                PriceChange::ByShare(share) => Price::ChangeMillionths(share),
            }),
            capacity: resources_to_wire(&overlay.capacity),
        }
    }
}

impl TryFrom<wire::NodeOverlay> for NodeOverlay {
    type Error = ConvertError;
    fn try_from(overlay: wire::NodeOverlay) -> ConvertResult<Self> {
        use wire::node_overlay::Price;
        Ok(Self {
            name: key("name", overlay.name)?,
            weight: overlay.weight,
            requirements: list("requirements", overlay.requirements)?,
            price: overlay.price.map(|price| match price {
                Price::PriceMicroUsdPerHour(price) => PriceChange::To(MicroUsdPerHour(price)),
                Price::ChangeMicroUsdPerHour(amount) => PriceChange::By(MicroUsdPerHour(amount)),
                Price::ChangeMillionths(share) => PriceChange::ByShare(share),
            }),
            capacity: resources_from_wire("capacity", overlay.capacity)?,
        })
    }
}

impl From<&PoolProblem> for wire::PoolProblem {
    fn from(problem: &PoolProblem) -> Self {
        Self { code: problem.code.clone(), message: problem.message.clone() }
    }
}

impl TryFrom<wire::PoolProblem> for PoolProblem {
    type Error = ConvertError;
    fn try_from(problem: wire::PoolProblem) -> ConvertResult<Self> {
        Ok(Self { code: key("code", problem.code)?, message: problem.message })
    }
}

impl From<&Disruption> for wire::Disruption {
    fn from(disruption: &Disruption) -> Self {
        let allowed = |(reason, nodes): (&DisruptionReason, &u32)| wire::AllowedDisruptions {
            reason: reason.to_wire(),
            nodes: *nodes,
        };
        Self {
            policy: disruption.policy.to_wire(),
            consolidate_after_ms: disruption.consolidate_after.map(|time| time.0),
            allowed: disruption.allowed.iter().map(allowed).collect(),
            rollout_limit: disruption.rollout_limit,
            next_budget_change_unix_ms: disruption.next_budget_change.map(|time| time.0),
        }
    }
}

impl TryFrom<wire::Disruption> for Disruption {
    type Error = ConvertError;
    fn try_from(disruption: wire::Disruption) -> ConvertResult<Self> {
        check_unique(&disruption.allowed, "allowed", ".reason", |allowed| allowed.reason)?;
        let allowed = disruption.allowed.into_iter().enumerate();
        let allowed = allowed.map(|(index, allowed)| {
            Ok((enum_value(&format!("allowed[{index}].reason"), allowed.reason)?, allowed.nodes))
        });
        Ok(Self {
            policy: enum_value("policy", disruption.policy)?,
            consolidate_after: disruption.consolidate_after_ms.map(Millis),
            allowed: allowed.collect::<ConvertResult<_>>()?,
            rollout_limit: disruption.rollout_limit,
            next_budget_change: disruption.next_budget_change_unix_ms.map(Timestamp),
        })
    }
}
