//! Single events: failures, and actions of users and administrators.

use crate::random_faults::one_of;
use plimsoll_actuator::ports::CloudError;
use plimsoll_model::catalog::CapacityType;
use plimsoll_model::names::lease;
use plimsoll_sim::apiserver::faults::{Effect, Matcher, RuleId};
use plimsoll_sim::apiserver::store::{DeleteOptions, Write};
use plimsoll_sim::apiserver::{ResourceId, object};
use plimsoll_sim::cloud::{Action, Capacity, Effect as CloudEffect, Pool};
use plimsoll_sim::plimsoll::Role;
use plimsoll_sim::seed::Rng;
use plimsoll_tests::Scene;
use serde_json::json;
use std::time::Duration;

/// Namespace of the Leases.
const NAMESPACE: &str = "plimsoll-system";
/// Maximum number of calls that a revoked permission fails.
const REVOKED_CALLS: u32 = 30;

/// A kind of event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    ReplaceWatcher,
    ReplaceScheduler,
    ReplaceActuator,
    IsolateWatcher,
    IsolateActuator,
    CutWatches,
    LagWatches,
    Interrupt,
    LoseInstance,
    DeleteClaim,
    DeleteNode,
    DeleteWatcherLease,
    DeleteActuatorLease,
    EditPool,
    DamageAnnotation,
    StallClaims,
    TakeCapacity,
    RevokeLaunches,
    RevokeTerminations,
}

impl Kind {
    pub(super) const ALL: [Self; 19] = [
        Self::ReplaceWatcher,
        Self::ReplaceScheduler,
        Self::ReplaceActuator,
        Self::IsolateWatcher,
        Self::IsolateActuator,
        Self::CutWatches,
        Self::LagWatches,
        Self::Interrupt,
        Self::LoseInstance,
        Self::DeleteClaim,
        Self::DeleteNode,
        Self::DeleteWatcherLease,
        Self::DeleteActuatorLease,
        Self::EditPool,
        Self::DamageAnnotation,
        Self::StallClaims,
        Self::TakeCapacity,
        Self::RevokeLaunches,
        Self::RevokeTerminations,
    ];
}

/// Events that last until they are ended, and the surplus instances that they may cause.
#[derive(Default)]
pub(super) struct Strikes {
    isolated: Vec<String>,
    lagging: Vec<String>,
    rules: Vec<RuleId>,
    damaged: Vec<String>,
    edits: u32,
    surplus: usize,
}

impl Strikes {
    /// Instances that may have been launched for a claim that was deleted before the claim recorded them.
    pub(super) fn surplus(&self) -> usize {
        self.surplus
    }

    pub(super) fn strike(&mut self, kind: Kind, scene: &mut Scene, rng: &mut Rng) {
        match kind {
            Kind::ReplaceWatcher => replace(scene, rng, Role::Watcher),
            Kind::ReplaceScheduler => replace(scene, rng, Role::Scheduler),
            Kind::ReplaceActuator => replace(scene, rng, Role::Actuator),
            Kind::IsolateWatcher => self.isolate(scene, rng, Role::Watcher),
            Kind::IsolateActuator => self.isolate(scene, rng, Role::Actuator),
            Kind::CutWatches => scene.world.server().faults().cut_watches([]),
            Kind::LagWatches => {
                let role = if rng.chance(500) { Role::Watcher } else { Role::Actuator };
                if let Some(process) = one_of(rng, &scene.plimsoll.processes(role)) {
                    scene.world.server().faults().lag_watches(process, Duration::from_secs(1 + rng.below(20)));
                    self.lagging.push(process.clone());
                }
            }
            Kind::Interrupt => on_instance(scene, rng, |scene, id| {
                scene.world.ec2.with(|cloud, now| cloud.interrupt_spot(id, now));
            }),
            Kind::LoseInstance => on_instance(scene, rng, |scene, id| {
                scene.world.ec2.with(|cloud, now| drop(cloud.terminate_instances(&[id.to_owned()], now)));
            }),
            Kind::DeleteClaim => {
                self.surplus += 1;
                on_object(scene, rng, ResourceId::NODE_CLAIMS, |scene, name| {
                    drop(scene.world.delete(ResourceId::NODE_CLAIMS, name));
                });
            }
            Kind::DeleteNode => on_object(scene, rng, ResourceId::NODES, |scene, name| {
                drop(scene.world.delete(ResourceId::NODES, name));
            }),
            Kind::DeleteWatcherLease => delete_lease(scene, lease::WATCHER),
            Kind::DeleteActuatorLease => delete_lease(scene, lease::ACTUATOR),
            Kind::EditPool => {
                self.edits += 1;
                let labels = json!({"edit": self.edits.to_string()});
                let patch = json!({"spec": {"template": {"metadata": {"labels": labels}}}});
                scene.world.patch(ResourceId::NODE_POOLS, "default", patch).unwrap();
            }
            Kind::DamageAnnotation => {
                let damaged = &mut self.damaged;
                on_object(scene, rng, ResourceId::NODE_CLAIMS, |scene, name| {
                    let patch = json!({"metadata": {"annotations": {"plimsoll.dev/removal": "nonsense"}}});
                    drop(scene.world.patch(ResourceId::NODE_CLAIMS, name, patch));
                    damaged.push(name.to_owned());
                });
            }
            Kind::StallClaims => {
                let claims = Matcher { resource: Some("nodeclaims"), ..Matcher::default() };
                let stall = Effect::Delay(Duration::from_secs(30));
                self.rules.push(scene.world.server().faults().always(claims, stall));
            }
            Kind::TakeCapacity => scene.world.ec2.with(|cloud, _| {
                let types = ["m6i.large", "m6i.xlarge", "m6i.2xlarge", "c6i.large", "c6i.xlarge"];
                let taken = one_of(rng, &types).copied().unwrap_or_default();
                let zones: Vec<String> = cloud.subnets.values().map(|subnet| subnet.zone.clone()).collect();
                for zone in zones {
                    for capacity_type in [CapacityType::Spot, CapacityType::OnDemand] {
                        cloud.limit(Pool::new(taken, &zone, capacity_type), Capacity::Instances(0));
                    }
                }
            }),
            Kind::RevokeLaunches => revoke(scene, Action::CreateFleet),
            Kind::RevokeTerminations => revoke(scene, Action::TerminateInstances),
        }
    }

    fn isolate(&mut self, scene: &Scene, rng: &mut Rng, role: Role) {
        if let Some(process) = one_of(rng, &scene.plimsoll.processes(role)) {
            scene.plimsoll.isolate(process);
            self.isolated.push(process.clone());
        }
    }

    /// Ends the lasting events.
    pub(super) fn end(&mut self, scene: &Scene) {
        let faults = scene.world.server().faults();
        self.rules.drain(..).for_each(|rule| faults.remove(rule));
        for process in self.isolated.drain(..) {
            scene.plimsoll.heal(&process);
        }
        for process in self.lagging.drain(..) {
            faults.lag_watches(process, Duration::ZERO);
        }
        for claim in self.damaged.drain(..) {
            let patch = json!({"metadata": {"annotations": {"plimsoll.dev/removal": null}}});
            drop(scene.world.patch(ResourceId::NODE_CLAIMS, &claim, patch));
        }
        scene.world.ec2.with(|cloud, _| cloud.limits.clear());
    }
}

fn replace(scene: &mut Scene, rng: &mut Rng, role: Role) {
    let processes = scene.plimsoll.processes(role);
    if let Some(process) = one_of(rng, &processes) {
        scene.plimsoll.replace(process).unwrap();
    }
}

fn on_instance(scene: &Scene, rng: &mut Rng, act: impl FnOnce(&Scene, &str)) {
    let living: Vec<String> = scene.world.living_instances().into_keys().collect();
    if let Some(id) = one_of(rng, &living) {
        act(scene, id);
    }
}

fn on_object(scene: &Scene, rng: &mut Rng, resource: ResourceId, act: impl FnOnce(&Scene, &str)) {
    let names: Vec<String> = scene.world.all(resource).iter().map(|it| object::name(it).to_owned()).collect();
    if let Some(name) = one_of(rng, &names) {
        act(scene, name);
    }
}

fn delete_lease(scene: &Scene, name: &str) {
    let write = Write::new(scene.world.server().now(), "kubectl");
    let options = DeleteOptions::default();
    let server = scene.world.server();
    drop(server.write(|store| store.delete(ResourceId::LEASES, NAMESPACE, name, &options, &write)));
}

fn revoke(scene: &Scene, action: Action) {
    let denied = CloudError::Denied { message: "UnauthorizedOperation: revoked".to_owned() };
    scene.world.ec2.faults(|faults| faults.inject(action, CloudEffect::Refuse(denied), REVOKED_CALLS));
}
