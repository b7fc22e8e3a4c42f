//! The cloud behind the actuator's ports, with faults between.

use super::faults::{Action, Cut, Effect, Faults, no_answer};
use super::store::{Call, Cloud, Outcome};
use async_trait::async_trait;
use parking_lot::Mutex;
use plimsoll_actuator::ports::{
    CapacityReservation, CloudError, Compute, FleetAnswer, FleetRequest, Image, ImageQuery, Instance, InstanceFilter,
    InstanceProfile, InstanceProfiles, InstanceRequest, InstanceStatus, InstanceTypeFacts, InterruptionQueue,
    LaunchTemplate, LaunchTemplateFilter, LaunchTemplateSpec, ManagedResource, OnDemandPrice, Parameters,
    PlacementGroup, PlacementGroupTerm, PriceList, QueueMessage, ReservationTerm, SecurityGroup, SelectorTerm,
    SpotPrice, Subnet, Tags, Termination, TypeOffering, ZonalShift,
};
use plimsoll_model::time::Timestamp;
use plimsoll_runtime::clock::Clock;
use plimsoll_runtime::signal;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How long a receive waits for messages, as the port says.
const LONG_POLL: Duration = Duration::from_secs(20);
/// How long a client waits for an answer that does not come.
const PATIENCE: Duration = Duration::from_secs(5);

/// A client's way to the cloud. Cheap to clone; all clones are one.
#[derive(Clone)]
pub struct Ec2 {
    cloud: Arc<Mutex<Cloud>>,
    faults: Arc<Mutex<Faults>>,
    changed: signal::Sender,
    clock: Clock,
    client: Arc<str>,
}

impl std::fmt::Debug for Ec2 {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ec2").finish_non_exhaustive()
    }
}

impl Ec2 {
    /// Puts a cloud behind the ports.
    #[must_use]
    pub fn new(cloud: Cloud, clock: Clock) -> Self {
        let (cloud, faults) = (Arc::new(Mutex::new(cloud)), Arc::default());
        Self { cloud, faults, changed: signal::Sender::default(), clock, client: "".into() }
    }

    /// The same cloud for a client that the faults know by `name`.
    #[must_use]
    pub fn as_client(&self, name: &str) -> Self {
        Self { client: name.into(), ..self.clone() }
    }

    /// The time.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        Timestamp(self.clock.now_millis())
    }

    /// Looks into the cloud, or changes it by hand; no faults and no log.
    pub fn with<T>(&self, act: impl FnOnce(&mut Cloud, Timestamp) -> T) -> T {
        let now = self.now();
        let result = act(&mut self.cloud.lock(), now);
        self.changed.notify();
        result
    }

    /// Looks into the cloud and changes nothing.
    pub fn read<T>(&self, look: impl FnOnce(&Cloud, Timestamp) -> T) -> T {
        let now = self.now();
        look(&self.cloud.lock(), now)
    }

    /// Sets what goes wrong.
    pub fn faults<T>(&self, set: impl FnOnce(&mut Faults) -> T) -> T {
        set(&mut self.faults.lock())
    }

    /// Counts up with each change, so that others can follow.
    #[must_use]
    pub fn subscribe(&self) -> signal::Receiver {
        self.changed.subscribe()
    }

    fn note(&self, action: Action, about: &str, outcome: Outcome) {
        let client = self.client.to_string();
        let call = Call { at: self.now(), client, action, about: about.to_owned(), outcome };
        self.cloud.lock().log.push(call);
    }

    /// One call: at most one fault, one entry in the log, and the cloud's work in one go.
    async fn call<T: Send + 'static>(
        &self,
        action: Action,
        about: &str,
        work: impl FnOnce(&mut Cloud, Timestamp) -> Result<T, CloudError> + Send + 'static,
    ) -> Result<T, CloudError> {
        self.connected().await?;
        let effect = self.faults(|faults| faults.take(&self.client, action));
        let outcome = match &effect {
            None | Some(Effect::Delay(_) | Effect::DelayAnswer(_) | Effect::HoldBefore(_) | Effect::HoldAfter(_)) => {
                Outcome::Served
            }
            Some(Effect::LoseAnswer | Effect::Late(_)) => Outcome::AnswerLost,
            Some(Effect::Drop) => Outcome::Dropped,
            Some(Effect::Refuse(_)) => Outcome::Refused,
        };
        self.note(action, about, outcome);
        let answer = self.carry_out(effect, work).await;
        self.connected().await?;
        answer
    }

    /// Nothing, or the end of a client that is cut off.
    async fn connected(&self) -> Result<(), CloudError> {
        match self.faults(|faults| faults.cut_of(&self.client)) {
            None => Ok(()),
            Some(Cut::NoAnswer) => {
                tokio::time::sleep(PATIENCE).await;
                Err(no_answer())
            }
            Some(Cut::Dead) => std::future::pending().await,
        }
    }

    async fn carry_out<T: Send + 'static>(
        &self,
        effect: Option<Effect>,
        work: impl FnOnce(&mut Cloud, Timestamp) -> Result<T, CloudError> + Send + 'static,
    ) -> Result<T, CloudError> {
        match effect {
            None => self.with(work),
            Some(Effect::Drop) => Err(no_answer()),
            Some(Effect::Refuse(error)) => Err(error),
            Some(Effect::LoseAnswer) => {
                drop(self.with(work));
                Err(no_answer())
            }
            Some(Effect::Delay(wait)) => {
                tokio::time::sleep(wait).await;
                self.with(work)
            }
            Some(Effect::DelayAnswer(wait)) => {
                let answer = self.with(work);
                tokio::time::sleep(wait).await;
                answer
            }
            Some(Effect::HoldBefore(gate)) => {
                gate.pass().await;
                self.connected().await?;
                self.with(work)
            }
            Some(Effect::HoldAfter(gate)) => {
                let answer = self.with(work);
                gate.pass().await;
                answer
            }
            Some(Effect::Late(wait)) => {
                let cloud = self.clone();
                tokio::spawn(async move {
                    tokio::time::sleep(wait).await;
                    drop(cloud.with(work));
                });
                Err(no_answer())
            }
        }
    }
}

#[async_trait]
impl Compute for Ec2 {
    async fn describe_instance_types(&self) -> Result<Vec<InstanceTypeFacts>, CloudError> {
        let work = |cloud: &mut Cloud, _| Ok(cloud.types.values().cloned().collect());
        self.call(Action::DescribeInstanceTypes, "", work).await
    }

    async fn describe_type_offerings(&self) -> Result<Vec<TypeOffering>, CloudError> {
        let work = |cloud: &mut Cloud, _| {
            let all = cloud.offers.keys().cloned();
            Ok(all.map(|(instance_type, zone)| TypeOffering { instance_type, zone }).collect())
        };
        self.call(Action::DescribeInstanceTypeOfferings, "", work).await
    }

    async fn spot_prices(&self) -> Result<Vec<SpotPrice>, CloudError> {
        let work = |cloud: &mut Cloud, _| {
            let all = cloud.offers.clone().into_iter();
            Ok(all.map(|((instance_type, zone), price)| SpotPrice { instance_type, zone, price }).collect())
        };
        self.call(Action::DescribeSpotPriceHistory, "", work).await
    }

    async fn create_fleet(&self, request: &FleetRequest) -> Result<FleetAnswer, CloudError> {
        let request = request.clone();
        let token = request.client_token.clone();
        self.call(Action::CreateFleet, &token, move |cloud, now| cloud.create_fleet(&request, now)).await
    }

    async fn dry_run_fleet(&self, request: &FleetRequest) -> Result<(), CloudError> {
        let request = request.clone();
        self.call(Action::DryRunCreateFleet, "", move |cloud, _| cloud.dry_run_fleet(&request)).await
    }

    async fn dry_run_instance(&self, request: &InstanceRequest) -> Result<(), CloudError> {
        let about = request.instance_type.clone();
        self.call(Action::DryRunRunInstances, &about, |_, _| Ok(())).await
    }

    async fn describe_instances(&self, filter: &InstanceFilter) -> Result<Vec<Instance>, CloudError> {
        let filter = filter.clone();
        let work = move |cloud: &mut Cloud, now| Ok(cloud.describe_instances(&filter, now));
        let instances = self.call(Action::DescribeInstances, "", work).await?;
        Ok(self.faults(|faults| instances.into_iter().filter(|_| !faults.misses_instance()).collect()))
    }

    async fn terminate_instances(&self, ids: &[String]) -> Result<Vec<Termination>, CloudError> {
        let (about, ids) = (ids.join(" "), ids.to_vec());
        let work = move |cloud: &mut Cloud, now| cloud.try_terminate_instances(&ids, now);
        self.call(Action::TerminateInstances, &about, work).await
    }

    async fn create_tags(&self, ids: &[String], tags: &Tags) -> Result<(), CloudError> {
        let (about, ids, tags) = (ids.join(" "), ids.to_vec(), tags.clone());
        self.call(Action::CreateTags, &about, move |cloud, _| cloud.create_tags(&ids, &tags)).await
    }

    async fn ensure_launch_template(&self, template: &LaunchTemplateSpec) -> Result<LaunchTemplate, CloudError> {
        let (about, spec) = (template.name.clone(), template.clone());
        let work = move |cloud: &mut Cloud, _| Ok(cloud.ensure_launch_template(&spec));
        self.call(Action::CreateLaunchTemplate, &about, work).await
    }

    async fn list_launch_templates(&self, filter: &LaunchTemplateFilter) -> Result<Vec<LaunchTemplate>, CloudError> {
        let filter = filter.clone();
        let work = move |cloud: &mut Cloud, _| Ok(cloud.list_launch_templates(&filter));
        self.call(Action::DescribeLaunchTemplates, "", work).await
    }

    async fn delete_launch_templates(&self, names: &[String]) -> Result<(), CloudError> {
        let (about, names) = (names.join(" "), names.to_vec());
        let work = move |cloud: &mut Cloud, _| {
            cloud.delete_launch_templates(&names);
            Ok(())
        };
        self.call(Action::DeleteLaunchTemplates, &about, work).await
    }

    async fn describe_subnets(&self, terms: &[SelectorTerm]) -> Result<Vec<Subnet>, CloudError> {
        let terms = terms.to_vec();
        let work = move |cloud: &mut Cloud, now| Ok(cloud.describe_subnets(&terms, now));
        self.call(Action::DescribeSubnets, "", work).await
    }

    async fn describe_security_groups(&self, terms: &[SelectorTerm]) -> Result<Vec<SecurityGroup>, CloudError> {
        let terms = terms.to_vec();
        let work = move |cloud: &mut Cloud, _| Ok(cloud.describe_security_groups(&terms));
        self.call(Action::DescribeSecurityGroups, "", work).await
    }

    async fn describe_capacity_reservations(
        &self,
        terms: &[ReservationTerm],
    ) -> Result<Vec<CapacityReservation>, CloudError> {
        let terms = terms.to_vec();
        let work = move |cloud: &mut Cloud, now| Ok(cloud.describe_capacity_reservations(&terms, now));
        self.call(Action::DescribeCapacityReservations, "", work).await
    }

    async fn describe_placement_groups(&self, term: &PlacementGroupTerm) -> Result<Vec<PlacementGroup>, CloudError> {
        let term = term.clone();
        let work = move |cloud: &mut Cloud, _| Ok(cloud.describe_placement_groups(&term));
        self.call(Action::DescribePlacementGroups, "", work).await
    }

    async fn describe_images(&self, query: &ImageQuery) -> Result<Vec<Image>, CloudError> {
        let query = query.clone();
        self.call(Action::DescribeImages, "", move |cloud, _| Ok(cloud.describe_images(&query))).await
    }

    async fn describe_instance_status(&self) -> Result<Vec<InstanceStatus>, CloudError> {
        let work = |cloud: &mut Cloud, _| Ok(cloud.statuses.values().cloned().collect());
        self.call(Action::DescribeInstanceStatus, "", work).await
    }
}

#[async_trait]
impl InterruptionQueue for Ec2 {
    async fn receive(&self) -> Result<Vec<QueueMessage>, CloudError> {
        let deadline = Instant::now() + LONG_POLL;
        let mut changed = self.subscribe();
        let mut messages = self.call(Action::ReceiveMessage, "", |cloud, now| Ok(cloud.queue.receive(now))).await?;
        while messages.is_empty() && Instant::now() < deadline {
            changed.mark_unchanged();
            let (now, next) = (self.now(), self.cloud.lock().queue.next_visible());
            let wait = next.map_or(LONG_POLL, |next| Duration::from_millis(next.since(now).0));
            tokio::select! {
                biased;
                () = changed.changed() => {}
                () = tokio::time::sleep_until(deadline.min(Instant::now() + wait)) => {}
            }
            self.connected().await?;
            let now = self.now();
            messages = self.cloud.lock().queue.receive(now);
        }
        Ok(messages)
    }

    async fn delete(&self, receipts: &[String]) -> Result<(), CloudError> {
        let receipts = receipts.to_vec();
        let about = receipts.join(" ");
        let work = move |cloud: &mut Cloud, _| {
            receipts.iter().for_each(|receipt| cloud.queue.delete(receipt));
            Ok(())
        };
        self.call(Action::DeleteMessage, &about, work).await
    }
}

#[async_trait]
impl ManagedResource for Ec2 {
    async fn zonal_shifts(&self) -> Result<Vec<ZonalShift>, CloudError> {
        self.call(Action::GetManagedResource, "", |cloud, _| Ok(cloud.zonal_shifts.clone())).await
    }
}

#[async_trait]
impl Parameters for Ec2 {
    async fn get(&self, path: &str) -> Result<String, CloudError> {
        let about = path.to_owned();
        self.call(Action::GetParameter, path, move |cloud, _| cloud.support.parameter(&about)).await
    }
}

#[async_trait]
impl InstanceProfiles for Ec2 {
    async fn get(&self, name: &str) -> Result<InstanceProfile, CloudError> {
        let about = name.to_owned();
        self.call(Action::GetInstanceProfile, name, move |cloud, _| cloud.support.profile(&about)).await
    }

    async fn create(&self, name: &str, path: &str, tags: &Tags) -> Result<(), CloudError> {
        let (about, path, tags) = (name.to_owned(), path.to_owned(), tags.clone());
        let work = move |cloud: &mut Cloud, _| {
            cloud.support.create_profile(&about, &path, &tags);
            Ok(())
        };
        self.call(Action::CreateInstanceProfile, name, work).await
    }

    async fn set_role(&self, name: &str, role: &str) -> Result<(), CloudError> {
        let (about, role) = (name.to_owned(), role.to_owned());
        let work = move |cloud: &mut Cloud, _| cloud.support.set_role(&about, &role);
        self.call(Action::AddRoleToInstanceProfile, name, work).await
    }

    async fn delete(&self, name: &str) -> Result<(), CloudError> {
        let about = name.to_owned();
        let work = move |cloud: &mut Cloud, _| {
            cloud.support.profiles.remove(&about);
            Ok(())
        };
        self.call(Action::DeleteInstanceProfile, name, work).await
    }

    async fn list(&self, path: &str) -> Result<Vec<InstanceProfile>, CloudError> {
        let about = path.to_owned();
        let work = move |cloud: &mut Cloud, _| Ok(cloud.support.profiles_under(&about));
        self.call(Action::ListInstanceProfiles, path, work).await
    }
}

#[async_trait]
impl PriceList for Ec2 {
    async fn on_demand_prices(&self) -> Result<Vec<OnDemandPrice>, CloudError> {
        let work = |cloud: &mut Cloud, _| {
            let all = cloud.on_demand.clone().into_iter();
            Ok(all.map(|(instance_type, price)| OnDemandPrice { instance_type, price }).collect())
        };
        self.call(Action::GetProducts, "", work).await
    }
}
