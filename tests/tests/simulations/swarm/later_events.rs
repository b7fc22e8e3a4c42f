//! Events that a third generator draws and injects in addition to the others, so that seeds without them stay as they
//! were. They end together with the others.

use super::config::pick;
use super::events::{NAMESPACE, all_processes, on_instance, on_object, revoke};
use crate::random_faults::one_of;
use plimsoll_model::names::{annotation, lease};
use plimsoll_sim::apiserver::faults::{Effect, Matcher, RuleId};
use plimsoll_sim::apiserver::request::Verb;
use plimsoll_sim::apiserver::store::{Part, Write};
use plimsoll_sim::apiserver::{Patch, ResourceId, object};
use plimsoll_sim::cloud::Action;
use plimsoll_sim::seed::Rng;
use plimsoll_tests::{TestCluster, node_class};
use serde_json::json;
use std::time::Duration;

/// What a corrupted annotation contains.
const NONSENSE: &str = "nonsense";
/// Delay of requests for one kind, as long as no response.
const STALL: Duration = Duration::from_secs(30);
/// What is delayed: without lists and watches, so that what the services know stays at most as old as without it.
const STALLED: [Verb; 5] = [Verb::Get, Verb::Create, Verb::Update, Verb::Patch, Verb::Delete];
/// Delay of the answers of lists: less than the time-out of a request.
const OLD: Duration = Duration::from_secs(3);

/// A kind of event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A user deletes the node class, and creates it again.
    DeleteClass,
    /// A user writes another holder into a Lease.
    EditLease,
    /// A user corrupts the list of pods that a node was launched for.
    DamagePods,
    /// Requests of a process do not reach the API server; its watches continue.
    LoseRequests,
    /// Responses of the API server do not reach a process.
    LoseAnswers,
    /// What a process sends does not reach the other services.
    Mute,
    /// Lists are old when they arrive.
    OldLists,
    /// Reads and writes of single objects of one kind get no response in time.
    StallResource,
    /// EC2 refuses to terminate an instance.
    ProtectInstance,
    /// EC2 refuses calls other than launches and terminations.
    RevokeOther,
    /// Nodes are named after their instances.
    RenameNodes,
    /// A kubelet restarts and registers its Node again.
    RestartKubelet,
    /// A machine becomes a second Node under another name.
    JoinTwice,
}

impl Kind {
    pub(super) const ALL: [Self; 13] = [
        Self::DeleteClass,
        Self::EditLease,
        Self::DamagePods,
        Self::LoseRequests,
        Self::LoseAnswers,
        Self::Mute,
        Self::OldLists,
        Self::StallResource,
        Self::ProtectInstance,
        Self::RevokeOther,
        Self::RenameNodes,
        Self::RestartKubelet,
        Self::JoinTwice,
    ];
}

/// Events that last until they are ended.
#[derive(Default)]
pub(super) struct LaterEvents {
    rules: Vec<RuleId>,
    mute: Vec<String>,
    /// NodeClaims with the annotation that was corrupted.
    damaged: Vec<(String, String)>,
    /// Instances.
    protected: Vec<String>,
    /// Second names of machines.
    joined: Vec<String>,
    is_class_deleted: bool,
}

impl LaterEvents {
    pub(super) fn inject(&mut self, kind: Kind, cluster: &TestCluster, rng: &mut Rng) {
        let (faults, kubelets) = (cluster.world.server().faults(), &cluster.world.cluster.kubelets);
        match kind {
            Kind::DeleteClass => {
                self.is_class_deleted = true;
                drop(cluster.world.delete(ResourceId::EC2_NODE_CLASSES, "default"));
            }
            Kind::EditLease => edit_lease(cluster, pick(rng, &[lease::WATCHER, lease::ACTUATOR])),
            Kind::DamagePods => self.damage_pods(cluster, rng),
            Kind::LoseRequests => {
                let processes = all_processes(cluster);
                let process = one_of(rng, &processes);
                self.rules.extend(process.map(|it| faults.always(Matcher::client(it), Effect::Drop)));
            }
            Kind::LoseAnswers => {
                if let Some(process) = one_of(rng, &all_processes(cluster)) {
                    faults.cut_watches([process.as_str()]);
                    self.rules.push(faults.always(Matcher::client(process), Effect::LoseAnswer));
                }
            }
            Kind::Mute => {
                if let Some(process) = one_of(rng, &all_processes(cluster)) {
                    cluster.plimsoll.network().mute(process);
                    self.mute.push(process.clone());
                }
            }
            Kind::OldLists => {
                let lists = Matcher { verb: Some(Verb::List), ..Matcher::default() };
                self.rules.push(faults.always(lists, Effect::DelayAnswer(OLD)));
            }
            Kind::StallResource => {
                let kinds = ["nodes", "pods", "events", "nodepools", "poddisruptionbudgets"];
                let kind = pick(rng, &kinds);
                let rule = |verb| faults.always(Matcher::of(verb, kind), Effect::Delay(STALL));
                self.rules.extend(STALLED.map(rule));
            }
            Kind::ProtectInstance => on_instance(cluster, rng, |cluster, id| {
                cluster.world.ec2.with(|cloud, _| cloud.protect(id, true));
                self.protected.push(id.to_owned());
            }),
            Kind::RevokeOther => {
                let actions = [
                    Action::DescribeInstances,
                    Action::DescribeSubnets,
                    Action::CreateLaunchTemplate,
                    Action::CreateTags,
                    Action::ReceiveMessage,
                ];
                revoke(cluster, pick(rng, &actions));
            }
            Kind::RenameNodes => cluster.world.ec2.faults(|faults| faults.rename_nodes(true)),
            Kind::RestartKubelet => {
                if let Some(name) = one_of(rng, &kubelets.running()) {
                    kubelets.stop(name);
                    kubelets.resume(name);
                }
            }
            Kind::JoinTwice => {
                if let Some(name) = one_of(rng, &kubelets.running()) {
                    let other = format!("{name}-again");
                    kubelets.join_as(name, &other);
                    self.joined.push(other);
                }
            }
        }
    }

    fn damage_pods(&mut self, cluster: &TestCluster, rng: &mut Rng) {
        let damaged = &mut self.damaged;
        on_object(cluster, rng, ResourceId::NODE_CLAIMS, |cluster, name| {
            let claim = cluster.world.get(ResourceId::NODE_CLAIMS, name);
            let pods = claim.as_deref().and_then(|claim| object::annotation(claim, annotation::PODS));
            // It may be corrupted already.
            if let Some(pods) = pods.filter(|pods| *pods != NONSENSE) {
                annotate(cluster, name, NONSENSE);
                damaged.push((name.to_owned(), pods.to_owned()));
            }
        });
    }

    /// Ends the lasting events.
    pub(super) fn end(&mut self, cluster: &TestCluster) {
        let (world, kubelets) = (&cluster.world, &cluster.world.cluster.kubelets);
        self.rules.drain(..).for_each(|rule| world.server().faults().remove(rule));
        self.mute.drain(..).for_each(|process| cluster.plimsoll.heal(&process));
        for (name, pods) in self.damaged.drain(..) {
            let claim = world.get(ResourceId::NODE_CLAIMS, &name);
            let current = claim.as_deref().and_then(|claim| object::annotation(claim, annotation::PODS));
            if current == Some(NONSENSE) {
                annotate(cluster, &name, &pods);
            }
        }
        for id in self.protected.drain(..) {
            world.ec2.with(|cloud, _| cloud.protect(&id, false));
        }
        world.ec2.faults(|faults| faults.rename_nodes(false));
        for name in self.joined.drain(..) {
            kubelets.remove(&name);
            drop(world.delete(ResourceId::NODES, &name));
        }
        if std::mem::take(&mut self.is_class_deleted) {
            // The class waits for its NodeClaims, and cannot be used again before it is gone.
            let patch = json!({"metadata": {"finalizers": null}});
            drop(world.patch(ResourceId::EC2_NODE_CLASSES, "default", patch));
            world.apply_object(&node_class()).unwrap();
        }
    }
}

/// Writes a holder into a Lease that is no process. The processes find out, and wait until its term is over.
fn edit_lease(cluster: &TestCluster, name: &str) {
    let server = cluster.world.server();
    let write = Write::new(server.now(), "kubectl");
    let patch = Patch::Merge(json!({"spec": {"holderIdentity": "nobody"}}));
    // Another event may have deleted it.
    drop(server.write(|store| store.patch(ResourceId::LEASES, NAMESPACE, name, Part::Main, &patch, &write)));
}

fn annotate(cluster: &TestCluster, claim: &str, pods: &str) {
    let patch = json!({"metadata": {"annotations": {annotation::PODS: pods}}});
    drop(cluster.world.patch(ResourceId::NODE_CLAIMS, claim, patch));
}
