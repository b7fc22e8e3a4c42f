//! What exists in the cloud, and the calls that read and change it, but for the one that buys.

use super::faults::Action;
use super::fleet::Fleet;
use super::machine::Machine;
use super::messages;
use super::queue::Queue;
use super::support::Support;
use crate::seed::Rng;
use plimsoll_actuator::ports::{
    CapacityReservation, CloudError, Image, Instance, InstanceFilter, InstanceStatus, InstanceTypeFacts,
    LaunchTemplate, LaunchTemplateFilter, LaunchTemplateSpec, PlacementGroup, SecurityGroup, StateReason, Subnet, Tags,
    Termination, ZonalShift,
};
use plimsoll_model::catalog::CapacityType;
use plimsoll_model::money::MicroUsdPerHour;
use plimsoll_model::names::{annotation, tag};
use plimsoll_model::time::{Millis, Timestamp};
use std::collections::{BTreeMap, BTreeSet};

/// How long before it takes a Spot instance EC2 says so.
const SPOT_NOTICE: Millis = Millis::from_seconds(120);

/// Code and message of what a call ends.
const USER_SHUTDOWN: (&str, &str) = ("Client.UserInitiatedShutdown", "User initiated");
/// Code and message of what EC2 takes back.
const SPOT_TERMINATION: (&str, &str) = ("Server.SpotInstanceTermination", "Spot instance termination");

/// How the cloud behaves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Region.
    pub region: String,
    /// From launch until reads show an instance.
    pub settling: Millis,
    /// From launch to running; `None` for machines that never boot.
    pub boot: Option<Millis>,
    /// Maximum additional time until an instance runs.
    pub boot_jitter: Millis,
    /// From the call to terminated.
    pub shutdown: Millis,
    /// Whether changes of state are told by the queue.
    pub tells_states: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            region: "us-west-2".to_owned(),
            settling: Millis(0),
            boot: Some(Millis::from_seconds(20)),
            boot_jitter: Millis(0),
            shutdown: Millis::from_seconds(30),
            tells_states: true,
        }
    }
}

/// What has capacity of its own.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pool {
    /// Instance type.
    pub instance_type: String,
    /// Availability zone.
    pub zone: String,
    /// How it is bought.
    pub capacity_type: CapacityType,
}

impl Pool {
    /// The pool of a type in a zone.
    #[must_use]
    pub fn new(instance_type: &str, zone: &str, capacity_type: CapacityType) -> Self {
        Self { instance_type: instance_type.to_owned(), zone: zone.to_owned(), capacity_type }
    }
}

/// How many more instances a pool can give.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Capacity {
    /// As many as anyone wants.
    Unlimited,
    /// So many; instances that end give theirs back.
    Instances(u32),
    /// None, for the reason with this code and message.
    Refused(&'static str, &'static str),
    /// As many as anyone wants, which end for the reason with this code and message before they run.
    Ends(&'static str, &'static str),
}

/// What became of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It was carried out, or refused by the cloud for what it says.
    Served,
    /// It was carried out and its answer was lost, or it is to be carried out later.
    AnswerLost,
    /// It never reached the cloud.
    Dropped,
    /// A fault refused it.
    Refused,
}

/// An entry of the call log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// When the client called.
    pub at: Timestamp,
    /// Name of the client.
    pub client: String,
    /// What.
    pub action: Action,
    /// Client token, or the names that the call is about; empty where it has none.
    pub about: String,
    /// What became of it.
    pub outcome: Outcome,
}

/// The cloud. Ids follow from the seed and the order of calls.
#[derive(Debug, Clone, Default)]
pub struct Cloud {
    /// How it behaves.
    pub settings: Settings,
    /// Types on offer.
    pub types: BTreeMap<String, InstanceTypeFacts>,
    /// Spot prices by type and zone; also what is offered where.
    pub offers: BTreeMap<(String, String), MicroUsdPerHour>,
    /// On-Demand prices by type.
    pub on_demand: BTreeMap<String, MicroUsdPerHour>,
    /// Pools that have limits; all others have none.
    pub limits: BTreeMap<Pool, Capacity>,
    /// Subnets by id.
    pub subnets: BTreeMap<String, Subnet>,
    /// Security groups by id.
    pub security_groups: BTreeMap<String, SecurityGroup>,
    /// Capacity reservations by id.
    pub reservations: BTreeMap<String, CapacityReservation>,
    /// Placement groups by id.
    pub placement_groups: BTreeMap<String, PlacementGroup>,
    /// Zonal shifts that are applied to the cluster. Those that are over are not removed, as in ARC.
    pub zonal_shifts: Vec<ZonalShift>,
    /// Zones whose instances reads do not show, as while a zone is impaired.
    pub hidden_zones: BTreeSet<String>,
    /// Images by id.
    pub images: BTreeMap<String, Image>,
    /// What is wrong with instances, by id.
    pub statuses: BTreeMap<String, InstanceStatus>,
    /// The queue of interruptions.
    pub queue: Queue,
    /// SSM and IAM.
    pub support: Support,
    /// Every call, in order.
    pub log: Vec<Call>,
    pub(super) templates: BTreeMap<String, (LaunchTemplate, LaunchTemplateSpec)>,
    pub(super) machines: BTreeMap<String, Machine>,
    /// Instances that may not be terminated.
    pub(super) protected: BTreeSet<String>,
    pub(super) launched: Vec<String>,
    /// By client token: places in `fleets`.
    pub(super) tokens: BTreeMap<String, usize>,
    pub(super) fleets: Vec<Fleet>,
    pub(super) rng: Rng,
}

impl Cloud {
    /// An empty cloud.
    #[must_use]
    pub fn new(seed: u64, settings: Settings) -> Self {
        Self { settings, rng: Rng::new(seed), ..Self::default() }
    }

    /// Offers a type in zones, with its On-Demand price and its Spot price by zone.
    pub fn offer(&mut self, facts: InstanceTypeFacts, price: MicroUsdPerHour, spot: &[(&str, MicroUsdPerHour)]) {
        for (zone, spot_price) in spot {
            self.offers.insert((facts.name.clone(), (*zone).to_owned()), *spot_price);
        }
        self.on_demand.insert(facts.name.clone(), price);
        self.types.insert(facts.name.clone(), facts);
    }

    /// Limits what a pool can still give.
    pub fn limit(&mut self, pool: Pool, capacity: Capacity) {
        self.limits.insert(pool, capacity);
    }

    /// An id of EC2's shape that was not given before.
    pub(super) fn id(&mut self, prefix: &str) -> String {
        format!("{prefix}-{:017x}", self.rng.bits() >> 1)
    }

    /// Every instance ever launched, in order of launch, whether or not anybody was told.
    #[must_use]
    pub fn ever_launched(&self) -> &[String] {
        &self.launched
    }

    /// Every fleet whose client token was accepted, in order, each once.
    #[must_use]
    pub fn fleets(&self) -> &[Fleet] {
        &self.fleets
    }

    /// Every instance ever launched by id, also those that reads do not show.
    #[must_use]
    pub fn machines(&self) -> &BTreeMap<String, Machine> {
        &self.machines
    }

    /// Instances that reads show, by id.
    #[must_use]
    pub fn describe_instances(&self, filter: &InstanceFilter, now: Timestamp) -> Vec<Instance> {
        let shown = self.machines.values().filter(|machine| machine.is_shown(now) && fits(machine, filter));
        let shown = shown.filter(|machine| !self.hidden_zones.contains(&machine.zone));
        shown.map(|machine| machine.describe(now)).collect()
    }

    /// Terminates instances, also those that reads do not show yet. Terminating again changes nothing.
    pub fn terminate_instances(&mut self, ids: &[String], now: Timestamp) -> Vec<Termination> {
        for id in ids.iter().collect::<BTreeSet<_>>() {
            self.end(id, now, USER_SHUTDOWN, now);
        }
        self.give_back(now);
        let state = |id: &String| self.machines.get(id).map(|machine| machine.state(now));
        ids.iter().map(|id| Termination { instance_id: id.clone(), state: state(id) }).collect()
    }

    /// Lets an instance end at a time, for a reason with code and message, unless it ends sooner anyway. Returns
    /// whether that changed anything.
    pub(super) fn end(&mut self, id: &str, at: Timestamp, (code, message): (&str, &str), now: Timestamp) -> bool {
        let shutdown = self.settings.shutdown;
        let Some(machine) = self.machines.get_mut(id) else { return false };
        if machine.ends_from.is_some_and(|ends| ends <= at) {
            return false;
        }
        machine.ends_from = Some(at);
        machine.gone_from = Some(at.plus(shutdown));
        machine.end_reason = Some(StateReason { code: code.to_owned(), message: message.to_owned() });
        let machine = machine.clone();
        self.queue.retract(id, now);
        if machine.runs_from.is_some_and(|runs| runs > now && runs < at) {
            self.tell_state(&machine, "running", machine.runs_from.unwrap_or(at));
        }
        self.tell_state(&machine, "shutting-down", at);
        self.tell_state(&machine, "terminated", at.plus(shutdown));
        true
    }

    /// Puts a change of state into the queue.
    pub(super) fn tell_state(&mut self, machine: &Machine, state: &str, at: Timestamp) {
        if self.settings.tells_states {
            let id = self.rng.uid();
            let body = messages::state_change(machine, state, &self.settings.region, &id, at);
            self.queue.send(&machine.id, &body, at);
        }
    }

    /// Takes a Spot instance away: a warning now, the end in two minutes. False if there is no such instance that
    /// lives.
    pub fn interrupt_spot(&mut self, id: &str, now: Timestamp) -> bool {
        let alive = |machine: &&Machine| machine.capacity_type == CapacityType::Spot && machine.state(now).is_alive();
        let Some(machine) = self.machines.get(id).filter(alive).cloned() else { return false };
        let event = self.rng.uid();
        let body = messages::spot_warning(&machine, &self.settings.region, &event, now);
        self.end(id, now.plus(SPOT_NOTICE), SPOT_TERMINATION, now);
        self.queue.send(id, &body, now);
        true
    }

    /// Says that an instance may be taken some time. False if there is no such instance.
    pub fn recommend_rebalance(&mut self, id: &str, now: Timestamp) -> bool {
        let Some(machine) = self.machines.get(id).cloned() else { return false };
        let event = self.rng.uid();
        let body = messages::rebalance(&machine, &self.settings.region, &event, now);
        self.queue.send(id, &body, now);
        true
    }

    /// Gives back capacity and addresses of what has ended by now.
    pub(super) fn give_back(&mut self, now: Timestamp) {
        for machine in self.machines.values_mut() {
            if machine.freed || machine.state(now).is_alive() {
                continue;
            }
            machine.freed = true;
            if let Some(Capacity::Instances(left)) = self.limits.get_mut(&machine.pool()) {
                *left = left.saturating_add(1);
            }
            let reservation = machine.capacity_reservation_id.as_ref().and_then(|id| self.reservations.get_mut(id));
            reservation.into_iter().for_each(|reservation| reservation.free += 1);
            if let Some(subnet) = self.subnets.get_mut(&machine.subnet_id) {
                subnet.free_ipv4_addresses = subnet.free_ipv4_addresses.saturating_add(1);
            }
        }
    }

    /// Sets tags on instances and launch templates; nothing is set if one of the ids is unknown.
    pub fn create_tags(&mut self, ids: &[String], tags: &Tags) -> Result<(), CloudError> {
        let known = |id: &&String| {
            self.machines.contains_key(*id) || self.templates.values().any(|(template, _)| template.id == **id)
        };
        if let Some(unknown) = ids.iter().find(|id| !known(id)) {
            return Err(CloudError::NotFound { message: format!("the resource `{unknown}` does not exist") });
        }
        for id in ids {
            if let Some(machine) = self.machines.get_mut(id) {
                machine.tags.extend(tags.clone());
            }
            for (template, _) in self.templates.values_mut().filter(|(template, _)| template.id == *id) {
                template.tags.extend(tags.clone());
            }
        }
        Ok(())
    }

    /// The template of that name, made if it is missing.
    pub fn ensure_launch_template(&mut self, spec: &LaunchTemplateSpec) -> LaunchTemplate {
        if let Some((template, _)) = self.templates.get(&spec.name) {
            return template.clone();
        }
        let id = self.id("lt");
        let template = LaunchTemplate { name: spec.name.clone(), id, version: 1, tags: spec.tags.clone() };
        self.templates.insert(spec.name.clone(), (template.clone(), spec.clone()));
        template
    }

    /// Templates by name.
    #[must_use]
    pub fn list_launch_templates(&self, filter: &LaunchTemplateFilter) -> Vec<LaunchTemplate> {
        let all = self.templates.values().map(|(template, _)| template);
        all.filter(|template| has_tags(&template.tags, &filter.tags)).cloned().collect()
    }

    /// What a template holds.
    #[must_use]
    pub fn launch_template(&self, name: &str) -> Option<&LaunchTemplateSpec> {
        self.templates.get(name).map(|(_, spec)| spec)
    }

    /// Deletes templates.
    pub fn delete_launch_templates(&mut self, names: &[String]) {
        self.templates.retain(|name, _| !names.contains(name));
    }
}

fn has_tags(tags: &Tags, wanted: &Tags) -> bool {
    wanted.iter().all(|(key, value)| tags.get(key) == Some(value))
}

fn fits(machine: &Machine, filter: &InstanceFilter) -> bool {
    let ours = |cluster: &str| {
        machine.tags.get(&format!("{}{cluster}", tag::CLUSTER_PREFIX)).is_some_and(|value| value == "owned")
            && machine.tags.get(tag::OWNER).is_some_and(|value| value == annotation::OWNER_VALUE)
    };
    match filter {
        InstanceFilter::Ids(ids) => ids.contains(&machine.id),
        InstanceFilter::Cluster { cluster } => ours(cluster),
        InstanceFilter::LaunchGroup { cluster, group } => {
            ours(cluster) && machine.tags.get(tag::LAUNCH_GROUP) == Some(group)
        }
    }
}
