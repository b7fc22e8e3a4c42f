//! Metrics of rollouts. They are derived from the cluster at each scrape, like the condition `RolloutProgressing`.

use super::view::ClusterView;
use k8s_openapi::api::core::v1::Node;
use plimsoll_api::{NodeClaim, NodePool, Pod};
use plimsoll_model::time::Timestamp;
use plimsoll_runtime::metrics::scrape::{Labels, Samples, Scraped};
use plimsoll_runtime::metrics::{Metrics, MetricsError};
use plimsoll_snapshot::rollout::{self, Rollout, RolloutObjects};
use std::collections::BTreeMap;
use std::sync::Arc;

type NodesByName<'a> = BTreeMap<&'a str, &'a Node>;
type PodsByNode<'a> = BTreeMap<&'a str, Vec<&'a Pod>>;

/// Metrics of rollouts. Clones share them.
#[derive(Debug, Clone)]
pub struct RolloutMetrics {
    nodes: Scraped,
    left: Scraped,
}

impl RolloutMetrics {
    pub(super) fn new(metrics: &Metrics) -> Result<Self, MetricsError> {
        Ok(Self {
            nodes: metrics.scraped(
                "rollout_nodes",
                "Nodes of a rollout: drifted (replacement not started), replacing, replaced. Present while a node of \
                 the NodePool has drifted.",
                &["nodepool", "state"],
            )?,
            left: metrics.scraped(
                "rollout_remaining_seconds",
                "Estimated time until a rollout ends. Absent while it does not advance or no new node is in service.",
                &["nodepool"],
            )?,
        })
    }

    /// Writes the gauges.
    pub(super) fn collect(&self, view: &ClusterView, samples: &mut Samples) {
        let claims = rollout::claims_of_drifted_pools(view.claims.iter().map(Arc::as_ref));
        if claims.is_empty() {
            return;
        }
        let (nodes, pods) = (view.nodes_by_name(), view.pods_by_node());
        for pool in &view.pools {
            let name = pool.metadata.name.as_deref().unwrap_or_default();
            let rollout = claims.get(name).and_then(|claims| of(view, (&nodes, &pods), pool, claims));
            let Some(Rollout { progress, .. }) = rollout else { continue };
            let labels = Labels::of(&[("nodepool", name)]);
            for (state, nodes) in
                [("drifted", progress.drifted), ("replacing", progress.replacing), ("replaced", progress.replaced)]
            {
                let nodes = f64::from(u32::try_from(nodes).unwrap_or(u32::MAX));
                samples.put(&self.nodes, &labels.with("state", state), nodes);
            }
            if let Some(left) = progress.left {
                let seconds = u32::try_from(left.0 / 1000).unwrap_or(u32::MAX);
                samples.put(&self.left, &labels, f64::from(seconds));
            }
        }
    }
}

fn of(
    view: &ClusterView,
    (nodes, pods): (&NodesByName<'_>, &PodsByNode<'_>),
    pool: &NodePool,
    claims: &[&NodeClaim],
) -> Option<Rollout> {
    let class = &pool.spec.template.spec.node_class_ref.name;
    let class = view.classes.iter().find(|it| it.metadata.name.as_ref() == Some(class)).map(|class| &**class);
    let objects = RolloutObjects { pool, class, claims, nodes, now: Timestamp(view.now.as_millisecond()) };
    rollout::of(&objects, |node| pods.get(node).cloned().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use crate::metrics::tests::{Fixture, claim, object, pool};
    use plimsoll_api::{NodePool, hash};
    use serde_json::{Value, json};

    fn with_condition(mut claim: Value, name: &str, since: &str) -> Value {
        claim["status"]["conditions"] =
            json!([{"type": name, "status": "True", "reason": name, "message": "", "lastTransitionTime": since}]);
        claim
    }

    #[test]
    fn nodes_by_state_and_the_time_left() {
        let fixture = Fixture::new();
        let mut default = pool("default");
        default["metadata"]["annotations"] = json!({"plimsoll.dev/rollout-canaries": "0"});
        let read: NodePool = serde_json::from_value(default.clone()).unwrap();
        let old = |name: &str| with_condition(claim(name, "default"), "Drifted", "2026-01-02T11:00:00Z");
        let new = |name: &str, created: &str| {
            let mut claim = claim(name, "default");
            claim["metadata"]["annotations"] =
                json!({"karpenter.sh/nodepool-hash": hash::node_pool(&read.spec.template)});
            claim["metadata"]["creationTimestamp"] = json!(created);
            claim["status"]["conditions"] = json!([]);
            claim
        };
        let mut leaving = old("leaving");
        leaving["metadata"]["annotations"] = json!({"plimsoll.dev/removal": "{}"});
        let in_service = with_condition(new("new", "2026-01-02T11:20:00Z"), "Initialized", "2026-01-02T11:25:00Z");
        let booting = new("booting", "2026-01-02T11:59:00Z");
        fixture.change(|view| {
            view.pools = vec![object(default), object(pool("other"))];
            view.claims = [old("a"), old("b"), leaving, in_service, booting, claim("x", "other")].map(object).into();
        });
        let of = |state: &str| {
            fixture.value("plimsoll_actuator_rollout_nodes", &[("nodepool", "default"), ("state", state)])
        };
        assert_eq!((of("drifted"), of("replacing"), of("replaced")), (Some(2.0), Some(1.0), Some(1.0)));
        let left = |pool: &str| fixture.value("plimsoll_actuator_rollout_remaining_seconds", &[("nodepool", pool)]);
        assert_eq!(left("default"), Some(840.0), "four minutes for the node that boots, five for each of two nodes");
        assert_eq!(left("other"), None);
        assert_eq!(fixture.series("plimsoll_actuator_rollout_nodes").len(), 3, "only the pool that has drifted nodes");
    }
}
