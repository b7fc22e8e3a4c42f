//! The flows: short runs in which the services do one thing.

use crate::oracle::{self, most_leaving_at_admissions};
use plimsoll_model::names::{annotation, label, tag};
use plimsoll_sim::apiserver::{ResourceId, object};
use plimsoll_sim::world::World;
use plimsoll_tests::{MINUTE, Setup, TestCluster, instance_of, instances_ever_launched, limit_disruptions};
use serde_json::{Value, json};
use std::time::Duration;

/// CPU limit of the pools: twice the need of a flow.
const LIMIT: i64 = 64_000;

/// Lifetime of the nodes of [`Flow::Expiry`].
const EXPIRE_AFTER_MINUTES: i64 = 10;

/// A flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Flow {
    /// Pods need three nodes, which one call launches.
    Launch,
    /// Nodes become empty, and another node is replaced by a cheaper one, one at a time.
    Removal,
    /// A user deletes NodeClaims whose pods have a PodDisruptionBudget.
    Drain,
    /// A Spot instance is interrupted.
    Interruption,
    /// An instance has no NodeClaim, and a NodeClaim has no instance.
    Collection,
    /// A CapacityBuffer requests capacity.
    BufferStatus,
    /// A node with a terminationGracePeriod drifts. Its pods' PodDisruptionBudget allows no eviction.
    Drift,
    /// A node expires. One of its pods must not be disrupted.
    Expiry,
}

fn pool_of(types: &[&str], capacity_type: &str, disruption: &Value) -> Setup {
    let requirements = json!([{"key": label::INSTANCE_TYPE, "operator": "In", "values": types},
                              {"key": label::CAPACITY_TYPE, "operator": "In", "values": [capacity_type]}]);
    Setup::with_pool(json!({"template": {"spec": {"requirements": requirements}}, "limits": {"cpu": "64"},
                            "disruption": disruption}))
}

fn is_quiet(world: &World) -> bool {
    let is_leaving =
        |claim: &Value| object::is_deleting(claim) || object::annotation(claim, annotation::REMOVAL).is_some();
    let is_tainted = |node: &Value| !object::items(node, &["spec", "taints"]).is_empty();
    world.count(ResourceId::NODE_CLAIMS, is_leaving) == 0 && world.count(ResourceId::NODES, is_tainted) == 0
}

/// Whether this number of pods run on this number of instances, and no other pods exist.
fn runs(world: &World, pods: usize, instances: usize) -> bool {
    is_quiet(world)
        && world.running_pods() == pods
        && world.count(ResourceId::PODS, |_| true) == pods
        && world.living_instances().len() == instances
}

impl Flow {
    pub(super) const ALL: [Self; 8] = [
        Self::Launch,
        Self::Removal,
        Self::Drain,
        Self::Interruption,
        Self::Collection,
        Self::BufferStatus,
        Self::Drift,
        Self::Expiry,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Launch => "launch",
            Self::Removal => "removal",
            Self::Drain => "drain",
            Self::Interruption => "interruption",
            Self::Collection => "collection",
            Self::BufferStatus => "buffer-status",
            Self::Drift => "drift",
            Self::Expiry => "expiry",
        }
    }

    pub(super) fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|flow| flow.name() == name)
    }

    pub(super) fn setup(self) -> Setup {
        match self {
            Self::Launch | Self::Drain | Self::Collection | Self::BufferStatus => {
                pool_of(&["m6i.xlarge"], "on-demand", &json!({}))
            }
            Self::Removal => {
                let disruption = json!({"budgets": [{"nodes": "1"}], "consolidateAfter": "10s"});
                pool_of(&["m6i.large", "m6i.xlarge", "m6i.2xlarge"], "on-demand", &disruption)
            }
            Self::Interruption => pool_of(&["m6i.large", "c6i.large"], "spot", &json!({})),
            Self::Drift => {
                let mut setup = pool_of(&["m6i.xlarge"], "on-demand", &json!({"consolidateAfter": "0s"}));
                json_patch::merge(&mut setup.pool, &json!({"template": {"spec": {"terminationGracePeriod": "4m"}}}));
                setup
            }
            Self::Expiry => {
                let mut setup = pool_of(&["m6i.xlarge"], "on-demand", &json!({}));
                let expire_after = format!("{EXPIRE_AFTER_MINUTES}m");
                let spec = json!({"expireAfter": expire_after, "terminationGracePeriod": "1m"});
                json_patch::merge(&mut setup.pool, &json!({"template": {"spec": spec}}));
                setup
            }
        }
    }

    /// Creates the state before the flow.
    pub(super) async fn prepare(self, cluster: &TestCluster) {
        match self {
            Self::Launch | Self::BufferStatus => {}
            Self::Removal => {
                cluster.deploy("web", 5, 1400);
                cluster.until_running(5, 3 * MINUTE).await;
                cluster.deploy("side", 3, 7000);
                cluster.until_running(8, 3 * MINUTE).await;
            }
            Self::Drain => {
                cluster.deploy("web", 3, 3000);
                limit_disruptions(&cluster.world, "maxUnavailable", 1);
                cluster.until_running(3, 3 * MINUTE).await;
            }
            Self::Interruption => {
                cluster.deploy("web", 4, 800);
                cluster.until_running(4, 3 * MINUTE).await;
            }
            Self::Drift => {
                cluster.deploy("web", 1, 3000);
                limit_disruptions(&cluster.world, "minAvailable", 1);
                cluster.until_running(1, 3 * MINUTE).await;
            }
            Self::Expiry => {
                cluster.deploy("web", 2, 1500);
                cluster.until_running(2, 3 * MINUTE).await;
                let pods = cluster.world.all(ResourceId::PODS);
                let held = json!({"metadata": {"annotations": {annotation::DO_NOT_DISRUPT: "true"}}});
                cluster.world.patch(ResourceId::PODS, object::name(&pods[0]), held).unwrap();
            }
            Self::Collection => {
                cluster.deploy("web", 2, 3000);
                cluster.until_running(2, 3 * MINUTE).await;
            }
        }
        cluster.pass(Duration::from_secs(20)).await;
    }

    /// Starts the flow.
    pub(super) fn act(self, cluster: &TestCluster) {
        let world = &cluster.world;
        match self {
            Self::Launch => cluster.deploy("web", 3, 3000),
            // Nodes expire without an action.
            Self::Expiry => {}
            Self::Removal => cluster.scale("web", 1),
            Self::Drift => {
                let label = json!({"spec": {"template": {"metadata": {"labels": {"team": "a"}}}}});
                cluster.world.patch(ResourceId::NODE_POOLS, "default", label).unwrap();
            }
            Self::Drain => {
                for claim in cluster.claims().iter().take(2) {
                    world.delete(ResourceId::NODE_CLAIMS, object::name(claim)).unwrap();
                }
            }
            Self::Interruption => {
                let instance = instance_of(&cluster.world, &cluster.nodes_in_use()[0]);
                assert!(world.ec2.with(|cloud, now| cloud.interrupt_spot(&instance, now)));
            }
            Self::Collection => {
                let lost = instance_of(&cluster.world, &cluster.nodes_in_use()[0]);
                world.ec2.with(|cloud, now| {
                    let mut request = cloud.fleets()[0].request.clone();
                    request.client_token = "stray".to_owned();
                    request.total_target_capacity = 1;
                    request.tags.insert(tag::LAUNCH_GROUP.to_owned(), "lost".to_owned());
                    request.tags.insert(tag::NODE_CLAIM.to_owned(), "lost".to_owned());
                    cloud.create_fleet(&request, now).unwrap();
                    cloud.terminate_instances(&[lost], now)
                });
            }
            Self::BufferStatus => {
                let requests = json!({"cpu": "3", "memory": "1Gi"});
                let containers =
                    json!([{"name": "main", "image": "example.com/app:1", "resources": {"requests": requests}}]);
                let template = json!({"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "spare"},
                                      "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": containers}}});
                let buffer = json!({"apiVersion": "autoscaling.x-k8s.io/v1beta1", "kind": "CapacityBuffer",
                                    "metadata": {"name": "spare"},
                                    "spec": {"podTemplateRef": {"name": "spare"}, "replicas": 2}});
                world.apply_object(&template).unwrap();
                world.apply_object(&buffer).unwrap();
            }
        }
    }

    /// Delay before the second action.
    pub(super) fn second_act_after(self) -> Duration {
        // The replacement of the first node is booting at this time.
        Duration::from_secs(15)
    }

    /// Second action, during the flow.
    pub(super) fn act_again(self, cluster: &TestCluster) {
        if self == Self::Removal {
            cluster.scale("side", 0);
        }
    }

    /// Whether the flow has reached its end state.
    pub(super) fn is_done(self, world: &World) -> bool {
        match self {
            Self::Launch | Self::Drain => runs(world, 3, 3),
            Self::Removal => {
                runs(world, 1, 1) && world.living_instances().values().all(|it| it.instance_type == "m6i.large")
            }
            Self::Interruption => runs(world, 4, 2) && world.ec2.read(|cloud, _| cloud.queue.is_empty()),
            Self::Collection => runs(world, 2, 2),
            Self::Drift => {
                runs(world, 1, 1)
                    && world.all(ResourceId::NODE_CLAIMS).iter().all(|claim| object::label(claim, "team").is_some())
            }
            Self::Expiry => {
                let is_held = |pod: &Value| object::annotation(pod, annotation::DO_NOT_DISRUPT).is_some();
                runs(world, 2, 1) && world.count(ResourceId::PODS, is_held) == 0
            }
            Self::BufferStatus => {
                let is_there = |buffer: &Value| object::condition_is_true(buffer, "Provisioning");
                runs(world, 0, 2) && world.count(ResourceId::CAPACITY_BUFFERS, is_there) == 1
            }
        }
    }

    /// Deletes the workloads.
    pub(super) fn end(self, cluster: &TestCluster) {
        match self {
            Self::BufferStatus => cluster.world.delete(ResourceId::CAPACITY_BUFFERS, "spare").unwrap(),
            _ => cluster.scale("web", 0),
        }
    }

    /// Instances that the flow launches, including those of its preparation.
    pub(super) fn purchases(self) -> usize {
        match self {
            Self::Launch => 3,
            // One node for five pods and one each for three pods; a small node for the remaining pod, and one more
            // because kube-scheduler binds this pod to a node that has just become empty.
            Self::Removal => 6,
            Self::Drain => 5,
            Self::Interruption => 3,
            // Including the instance without a claim, and the replacement of the lost instance.
            Self::Collection => 4,
            Self::BufferStatus | Self::Drift | Self::Expiry => 2,
        }
    }

    /// Instances that the flow launches without a NodeClaim.
    pub(super) fn strays(self) -> usize {
        usize::from(self == Self::Collection)
    }

    /// Checks the invariants of the whole history. `more` additional instances may have been launched since the flow
    /// began at revision `since`, and one for each removal that lost its replacement: until the removal is undone, its
    /// node is tainted, and a pod that does not fit elsewhere gets a new node. Each further node that expires has a
    /// replacement, too.
    pub(super) fn check(self, cluster: &TestCluster, since: u64, more: usize) {
        oracle::limits(cluster, LIMIT);
        let bought = instances_ever_launched(&cluster.world).len();
        let expired = match self {
            Self::Expiry => oracle::removed_after(&cluster.world, EXPIRE_AFTER_MINUTES * 60).saturating_sub(1),
            _ => 0,
        };
        let more = more + expired + oracle::removals_without_replacement(&cluster.world);
        assert!(bought <= self.purchases() + more, "{bought} instances were launched\n{}", cluster.summary());
        if self == Self::Drain {
            oracle::pod_budgets(&cluster.world, since);
        }
        if self == Self::Removal {
            let most = most_leaving_at_admissions(&cluster.world);
            assert!(
                most <= 1,
                "{most} nodes were on their way out when a removal began, the budget is 1\n{}",
                cluster.summary()
            );
            oracle::no_removal_undone_by_budget(&cluster.world);
        }
    }
}
