//! The flows: short runs in which the services do one thing.

use plimsoll_model::names::{annotation, label, tag};
use plimsoll_sim::apiserver::{ResourceId, object};
use plimsoll_sim::world::World;
use plimsoll_tests::{MINUTE, Scene, Setup};
use serde_json::{Value, json};
use std::time::Duration;

/// CPUs of the pools' limit: what a flow needs, with room for as much again.
const LIMIT: i64 = 64_000;

/// A flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Flow {
    /// Pods need three nodes, which are bought by one call.
    Launch,
    /// Nodes turn empty, and another is replaced by a cheaper one, one at a time.
    Removal,
    /// A user deletes NodeClaims whose pods have a PodDisruptionBudget.
    Drain,
    /// A Spot instance is interrupted.
    Interruption,
    /// An instance has no NodeClaim, and a NodeClaim has no instance any more.
    Collection,
    /// A CapacityBuffer asks for room.
    BufferStatus,
}

fn pool_of(types: &[&str], capacity_type: &str, disruption: &Value) -> Setup {
    let requirements = json!([{"key": label::INSTANCE_TYPE, "operator": "In", "values": types},
                              {"key": label::CAPACITY_TYPE, "operator": "In", "values": [capacity_type]}]);
    Setup::with_pool(json!({"template": {"spec": {"requirements": requirements}}, "limits": {"cpu": "64"},
                            "disruption": disruption}))
}

fn is_quiet(world: &World) -> bool {
    let is_leaving = |claim: &Value| object::is_deleting(claim) || object::annotation(claim, annotation::REMOVAL).is_some();
    let is_tainted = |node: &Value| !object::items(node, &["spec", "taints"]).is_empty();
    world.count(ResourceId::NODE_CLAIMS, is_leaving) == 0 && world.count(ResourceId::NODES, is_tainted) == 0
}

/// So many pods run and no other is there, on so many instances.
fn runs(world: &World, pods: usize, instances: usize) -> bool {
    is_quiet(world)
        && world.running_pods() == pods
        && world.count(ResourceId::PODS, |_| true) == pods
        && world.living_instances().len() == instances
}

impl Flow {
    pub(super) const ALL: [Self; 6] =
        [Self::Launch, Self::Removal, Self::Drain, Self::Interruption, Self::Collection, Self::BufferStatus];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Launch => "launch",
            Self::Removal => "removal",
            Self::Drain => "drain",
            Self::Interruption => "interruption",
            Self::Collection => "collection",
            Self::BufferStatus => "buffer-status",
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
        }
    }

    /// What is there before the flow.
    pub(super) async fn prepare(self, scene: &Scene) {
        match self {
            Self::Launch | Self::BufferStatus => {}
            Self::Removal => {
                scene.deploy("web", 5, 1200);
                scene.until_running(5, 3 * MINUTE).await;
                scene.deploy("side", 2, 7000);
                scene.until_running(7, 3 * MINUTE).await;
            }
            Self::Drain => {
                scene.deploy("web", 3, 3000);
                let budget = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web"},
                    "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "web"}}}});
                scene.world.apply_object(&budget).unwrap();
                scene.until_running(3, 3 * MINUTE).await;
            }
            Self::Interruption => {
                scene.deploy("web", 4, 800);
                scene.until_running(4, 3 * MINUTE).await;
            }
            Self::Collection => {
                scene.deploy("web", 2, 3000);
                scene.until_running(2, 3 * MINUTE).await;
            }
        }
        scene.pass(Duration::from_secs(20)).await;
    }

    /// What sets the flow off.
    pub(super) fn act(self, scene: &Scene) {
        let world = &scene.world;
        match self {
            Self::Launch => scene.deploy("web", 3, 3000),
            Self::Removal => {
                scene.scale("web", 1);
                scene.scale("side", 0);
            }
            Self::Drain => {
                for claim in scene.claims().iter().take(2) {
                    world.delete(ResourceId::NODE_CLAIMS, object::name(claim)).unwrap();
                }
            }
            Self::Interruption => {
                let instance = scene.instance_of(&scene.nodes_in_use()[0]);
                assert!(world.ec2.with(|cloud, now| cloud.interrupt_spot(&instance, now)));
            }
            Self::Collection => {
                let lost = scene.instance_of(&scene.nodes_in_use()[0]);
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
                let containers = json!([{"name": "main", "image": "example.com/app:1", "resources": {"requests": requests}}]);
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

    /// Whether the flow has come to its end.
    pub(super) fn is_done(self, world: &World) -> bool {
        match self {
            Self::Launch | Self::Drain => runs(world, 3, 3),
            Self::Removal => runs(world, 1, 1) && world.living_instances().values().all(|it| it.instance_type == "m6i.large"),
            Self::Interruption => runs(world, 4, 2) && world.ec2.read(|cloud, _| cloud.queue.is_empty()),
            Self::Collection => runs(world, 2, 2),
            Self::BufferStatus => {
                let is_there = |buffer: &Value| object::condition_is_true(buffer, "Provisioning");
                runs(world, 0, 2) && world.count(ResourceId::CAPACITY_BUFFERS, is_there) == 1
            }
        }
    }

    /// Nothing is wanted any more.
    pub(super) fn end(self, scene: &Scene) {
        match self {
            Self::BufferStatus => scene.world.delete(ResourceId::CAPACITY_BUFFERS, "spare").unwrap(),
            _ => scene.scale("web", 0),
        }
    }

    /// What must have held all the time.
    pub(super) fn check(self, scene: &Scene) {
        crate::oracle::limits(scene, LIMIT);
    }
}
