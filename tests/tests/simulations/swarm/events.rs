//! Single events: failures, and actions of users and administrators.

use super::workloads::Workloads;
use super::{capacity, faults, protection, watches};
use crate::random_faults::one_of;
use plimsoll_actuator::ports::CloudError;
use plimsoll_model::names::lease;
use plimsoll_sim::apiserver::faults::{Effect, Matcher, Partition, RuleId};
use plimsoll_sim::apiserver::store::{DeleteOptions, Write};
use plimsoll_sim::apiserver::{ResourceId, object};
use plimsoll_sim::cloud::{Action, Cut, Effect as CloudEffect, Faults};
use plimsoll_sim::plimsoll::Role;
use plimsoll_sim::seed::Rng;
use plimsoll_tests::TestCluster;
use serde_json::{Value, json};
use std::time::Duration;

/// Namespace of the Leases.
pub(super) const NAMESPACE: &str = "plimsoll-system";
/// Maximum number of calls that a revoked permission fails.
const REVOKED_CALLS: u32 = 30;
/// Maximum step of a clock: a machine that was paused for as long.
const STEP_MS: u64 = 120_000;
/// Messages of others in the queue.
const FLOOD: u32 = 300;

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
    IsolateScheduler,
    CutFromServer,
    CutFromCloud,
    CutFromServices,
    StepClock,
    StopKubelet,
    DeletePods,
    RollOut,
    EditClass,
    DeletePool,
    Cordon,
    ScarceCapacity,
    HideZone,
    BreakImages,
    FloodQueue,
    LateDeletions,
    ProtectPod,
    DistortWatches,
}

impl Kind {
    /// Kinds that the first generator of a seed chooses from.
    pub(super) const FIRST: [Self; 19] = [
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
    /// Kinds that the second generator of a seed chooses from.
    pub(super) const LATER: [Self; 18] = [
        Self::IsolateScheduler,
        Self::CutFromServer,
        Self::CutFromCloud,
        Self::CutFromServices,
        Self::StepClock,
        Self::StopKubelet,
        Self::DeletePods,
        Self::RollOut,
        Self::EditClass,
        Self::DeletePool,
        Self::Cordon,
        Self::ScarceCapacity,
        Self::HideZone,
        Self::BreakImages,
        Self::FloodQueue,
        Self::LateDeletions,
        Self::ProtectPod,
        Self::DistortWatches,
    ];
}

/// Events that last until they are ended, and the surplus instances that they may cause.
#[derive(Default)]
pub(super) struct Events {
    isolated: Vec<String>,
    lagging: Vec<String>,
    rules: Vec<RuleId>,
    damaged: Vec<String>,
    /// Kubelets that are stopped.
    stopped: Vec<String>,
    cordoned: Vec<String>,
    /// Pods that must not be disrupted for a while.
    protected: Vec<String>,
    /// The pool, if it was deleted.
    pool: Option<Value>,
    edits: u32,
    surplus: usize,
}

impl Events {
    /// Instances that may have been launched for a claim that was deleted before the claim recorded them.
    pub(super) fn surplus(&self) -> usize {
        self.surplus
    }

    pub(super) fn inject(&mut self, kind: Kind, cluster: &mut TestCluster, rng: &mut Rng) {
        match kind {
            Kind::ReplaceWatcher => replace(cluster, rng, Role::Watcher),
            Kind::ReplaceScheduler => replace(cluster, rng, Role::Scheduler),
            Kind::ReplaceActuator => replace(cluster, rng, Role::Actuator),
            Kind::IsolateWatcher => self.isolate(cluster, rng, Role::Watcher),
            Kind::IsolateActuator => self.isolate(cluster, rng, Role::Actuator),
            Kind::CutWatches => cluster.world.server().faults().cut_watches([]),
            Kind::LagWatches => self.lag_watches(cluster, rng),
            Kind::Interrupt => on_instance(cluster, rng, |cluster, id| {
                cluster.world.ec2.with(|cloud, now| cloud.interrupt_spot(id, now));
            }),
            Kind::LoseInstance => on_instance(cluster, rng, |cluster, id| {
                cluster.world.ec2.with(|cloud, now| drop(cloud.terminate_instances(&[id.to_owned()], now)));
            }),
            Kind::DeleteClaim => {
                self.surplus += 1;
                on_object(cluster, rng, ResourceId::NODE_CLAIMS, |cluster, name| {
                    drop(cluster.world.delete(ResourceId::NODE_CLAIMS, name));
                });
            }
            Kind::DeleteNode => on_object(cluster, rng, ResourceId::NODES, |cluster, name| {
                drop(cluster.world.delete(ResourceId::NODES, name));
            }),
            Kind::DeleteWatcherLease => delete_lease(cluster, lease::WATCHER),
            Kind::DeleteActuatorLease => delete_lease(cluster, lease::ACTUATOR),
            Kind::EditPool => self.edit_pool(cluster),
            Kind::DamageAnnotation => self.damage_annotation(cluster, rng),
            Kind::StallClaims => self.stall_claims(cluster),
            Kind::TakeCapacity => capacity::take(cluster, rng),
            Kind::RevokeLaunches => revoke(cluster, Action::CreateFleet),
            Kind::RevokeTerminations => revoke(cluster, Action::TerminateInstances),
            Kind::IsolateScheduler => self.isolate(cluster, rng, Role::Scheduler),
            Kind::CutFromServer => self.cut(cluster, rng, |cluster, process, rng| {
                let kind = if rng.chance(500) { Partition::Silent } else { Partition::Refused };
                cluster.world.server().faults().partition(process, kind);
            }),
            Kind::CutFromCloud => self.cut(cluster, rng, |cluster, process, _| {
                cluster.world.ec2.faults(|faults| faults.cut(process, Cut::NoAnswer));
            }),
            Kind::CutFromServices => {
                self.cut(cluster, rng, |cluster, process, _| cluster.plimsoll.network().silence(process));
            }
            Kind::StepClock => {
                if let Some(process) = one_of(rng, &all_processes(cluster)) {
                    cluster.plimsoll.step_clock(process, Duration::from_millis(1 + rng.below(STEP_MS)));
                }
            }
            Kind::StopKubelet => self.stop_kubelet(cluster, rng),
            Kind::DeletePods => on_object(cluster, rng, ResourceId::PODS, |cluster, name| {
                drop(cluster.world.delete(ResourceId::PODS, name));
            }),
            Kind::RollOut => {
                self.edits += 1;
                Workloads::roll_out(cluster, self.edits);
            }
            Kind::EditClass => {
                self.edits += 1;
                let patch = json!({"spec": {"tags": {"edit": self.edits.to_string()}}});
                // Another event may have deleted the class.
                drop(cluster.world.patch(ResourceId::EC2_NODE_CLASSES, "default", patch));
            }
            Kind::DeletePool => self.delete_pool(cluster),
            Kind::Cordon => self.cordon(cluster, rng),
            Kind::ScarceCapacity => capacity::make_scarce(cluster, rng),
            Kind::HideZone => cluster.world.ec2.with(|cloud, _| {
                let zones: Vec<String> = cloud.subnets.values().map(|subnet| subnet.zone.clone()).collect();
                cloud.hidden_zones.extend(one_of(rng, &zones).cloned());
            }),
            Kind::BreakImages => {
                let images = cluster.world.ec2.read(|cloud, _| cloud.images.keys().cloned().collect::<Vec<_>>());
                cluster.world.ec2.faults(|faults| faults.break_images(images));
            }
            Kind::FloodQueue => cluster.world.ec2.with(|cloud, now| {
                for number in 0..FLOOD {
                    cloud.queue.send("", &format!("{{\"foreign\": {number}}}"), now);
                }
            }),
            Kind::LateDeletions => self.make_deletions_late(cluster),
            Kind::ProtectPod => self.protected.extend(protection::protect_one(cluster, rng)),
            Kind::DistortWatches => watches::distort(cluster, rng),
        }
    }

    fn lag_watches(&mut self, cluster: &TestCluster, rng: &mut Rng) {
        let role = if rng.chance(500) { Role::Watcher } else { Role::Actuator };
        if let Some(process) = one_of(rng, &cluster.plimsoll.processes(role)) {
            cluster.world.server().faults().lag_watches(process, Duration::from_secs(1 + rng.below(20)));
            self.lagging.push(process.clone());
        }
    }

    fn edit_pool(&mut self, cluster: &TestCluster) {
        self.edits += 1;
        let labels = json!({"edit": self.edits.to_string()});
        let patch = json!({"spec": {"template": {"metadata": {"labels": labels}}}});
        // Another event may have deleted the pool.
        drop(cluster.world.patch(ResourceId::NODE_POOLS, "default", patch));
    }

    fn damage_annotation(&mut self, cluster: &TestCluster, rng: &mut Rng) {
        let damaged = &mut self.damaged;
        on_object(cluster, rng, ResourceId::NODE_CLAIMS, |cluster, name| {
            let patch = json!({"metadata": {"annotations": {"plimsoll.dev/removal": "nonsense"}}});
            drop(cluster.world.patch(ResourceId::NODE_CLAIMS, name, patch));
            damaged.push(name.to_owned());
        });
    }

    fn stall_claims(&mut self, cluster: &TestCluster) {
        let claims = Matcher { resource: Some("nodeclaims"), ..Matcher::default() };
        let stall = Effect::Delay(Duration::from_secs(30));
        self.rules.push(cluster.world.server().faults().always(claims, stall));
    }

    /// Deletions get no response, so that what comes meanwhile may revoke them, and take effect later.
    fn make_deletions_late(&mut self, cluster: &TestCluster) {
        let faults = cluster.world.server().faults();
        let rules = faults::deletions().into_iter().map(|matcher| faults.always(matcher, Effect::Late(faults::LATE)));
        self.rules.extend(rules);
    }

    fn stop_kubelet(&mut self, cluster: &TestCluster, rng: &mut Rng) {
        if let Some(name) = one_of(rng, &cluster.world.cluster.kubelets.running()) {
            cluster.world.cluster.kubelets.stop(name);
            self.stopped.push(name.clone());
        }
    }

    fn delete_pool(&mut self, cluster: &TestCluster) {
        if let Some(pool) = cluster.world.get(ResourceId::NODE_POOLS, "default") {
            self.pool = Some(json!({"apiVersion": pool["apiVersion"], "kind": pool["kind"],
                                    "metadata": {"name": "default"}, "spec": pool["spec"]}));
            drop(cluster.world.delete(ResourceId::NODE_POOLS, "default"));
        }
    }

    fn cordon(&mut self, cluster: &TestCluster, rng: &mut Rng) {
        let cordoned = &mut self.cordoned;
        on_object(cluster, rng, ResourceId::NODES, |cluster, name| {
            drop(cluster.world.patch(ResourceId::NODES, name, json!({"spec": {"unschedulable": true}})));
            cordoned.push(name.to_owned());
        });
    }

    /// Cuts a process off from some of what it talks to, as `act` does; [`Events::end`] heals it.
    fn cut(&mut self, cluster: &TestCluster, rng: &mut Rng, act: impl FnOnce(&TestCluster, &str, &mut Rng)) {
        if let Some(process) = one_of(rng, &all_processes(cluster)).cloned() {
            act(cluster, &process, rng);
            self.isolated.push(process);
        }
    }

    fn isolate(&mut self, cluster: &TestCluster, rng: &mut Rng, role: Role) {
        if let Some(process) = one_of(rng, &cluster.plimsoll.processes(role)) {
            cluster.plimsoll.isolate(process);
            self.isolated.push(process.clone());
        }
    }

    /// Ends the lasting events.
    pub(super) fn end(&mut self, cluster: &TestCluster) {
        let faults = cluster.world.server().faults();
        self.rules.drain(..).for_each(|rule| faults.remove(rule));
        for process in self.isolated.drain(..) {
            cluster.plimsoll.heal(&process);
        }
        for process in self.lagging.drain(..) {
            faults.lag_watches(process, Duration::ZERO);
        }
        for claim in self.damaged.drain(..) {
            let patch = json!({"metadata": {"annotations": {"plimsoll.dev/removal": null}}});
            drop(cluster.world.patch(ResourceId::NODE_CLAIMS, &claim, patch));
        }
        for name in self.stopped.drain(..) {
            cluster.world.cluster.kubelets.resume(&name);
        }
        faults.end_distortions();
        self.protected.drain(..).for_each(|pod| protection::end(cluster, &pod));
        for name in self.cordoned.drain(..) {
            drop(cluster.world.patch(ResourceId::NODES, &name, json!({"spec": {"unschedulable": null}})));
        }
        if let Some(pool) = self.pool.take() {
            cluster.world.apply_object(&pool).unwrap();
        }
        cluster.world.ec2.with(|cloud, _| {
            cloud.limits.clear();
            cloud.hidden_zones.clear();
        });
        cluster.world.ec2.faults(Faults::mend_images);
    }
}

pub(super) fn all_processes(cluster: &TestCluster) -> Vec<String> {
    let roles = [Role::Watcher, Role::Scheduler, Role::Actuator];
    roles.into_iter().flat_map(|role| cluster.plimsoll.processes(role)).collect()
}

fn replace(cluster: &mut TestCluster, rng: &mut Rng, role: Role) {
    let processes = cluster.plimsoll.processes(role);
    if let Some(process) = one_of(rng, &processes) {
        cluster.plimsoll.replace(process).unwrap();
    }
}

pub(super) fn on_instance(cluster: &TestCluster, rng: &mut Rng, act: impl FnOnce(&TestCluster, &str)) {
    let living: Vec<String> = cluster.world.living_instances().into_keys().collect();
    if let Some(id) = one_of(rng, &living) {
        act(cluster, id);
    }
}

pub(super) fn on_object(
    cluster: &TestCluster,
    rng: &mut Rng,
    resource: ResourceId,
    act: impl FnOnce(&TestCluster, &str),
) {
    let names: Vec<String> = cluster.world.all(resource).iter().map(|it| object::name(it).to_owned()).collect();
    if let Some(name) = one_of(rng, &names) {
        act(cluster, name);
    }
}

fn delete_lease(cluster: &TestCluster, name: &str) {
    let write = Write::new(cluster.world.server().now(), "kubectl");
    let options = DeleteOptions::default();
    let server = cluster.world.server();
    drop(server.write(|store| store.delete(ResourceId::LEASES, NAMESPACE, name, &options, &write)));
}

pub(super) fn revoke(cluster: &TestCluster, action: Action) {
    let denied = CloudError::Denied { message: "UnauthorizedOperation: revoked".to_owned() };
    cluster.world.ec2.faults(|faults| faults.inject(action, CloudEffect::Refuse(denied), REVOKED_CALLS));
}
