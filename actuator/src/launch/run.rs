//! Executes one launch group, from its claims to its instances, as [`super::attempt`] decides.

use super::attempt::{
    self, Attempt, Decision, Failure, LOOK_UP_PAUSE, LookUps, after_look_up, after_sending, names_missing_template,
};
use super::create::{WRITES_AT_ONCE, write_claims};
use super::matching::match_instances;
use super::purchase::Purchase;
use super::record::{self, instance};
use super::{LaunchGroup, results, write};
use crate::clock::Timestamped;
use crate::fencing::CLOUD_CALL;
use crate::launch::launcher::Launcher;
use crate::ports::{CloudError, FleetAnswer, FleetInstance, FleetRequest, InstanceFilter, OfferingError};
use crate::state::insufficient_capacity::Wanted;
use futures::StreamExt;
use plimsoll_model::time::Millis;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

/// Maximum number of steps per group, to bound the cost of a bug. Look-ups over the longest wait take a few dozen.
const MAX_STEPS: u32 = 1000;
/// Pause while the fence refuses: Karpenter is active, or the lease is about to be renewed.
const FENCE_PAUSE: Duration = Duration::from_secs(1);

/// Builds the first request of a newly admitted group; `None` if that failed, and the group with it.
pub async fn request(deps: &Launcher, group: &LaunchGroup, purchase: &Purchase) -> Option<FleetRequest> {
    match purchase.request(&deps.launch_templates, &group.key, group.only_claim()).await {
        Ok(request) => Some(request),
        Err(error) => {
            tracing::warn!(cycle_id = %group.cycle_id, group = group.id(), %error, "launch template not available");
            let failure = Failure::Refused { code: "LaunchTemplateNotReady".to_owned(), message: error.to_string() };
            results::fail_unwritten(deps, group.claims.values(), &failure);
            None
        }
    }
}

/// Launches a newly admitted group: writes its claims, sends the request and records the result.
pub async fn start(
    deps: &Launcher,
    mut group: LaunchGroup,
    purchase: Purchase,
    request: FleetRequest,
    permit: Option<OwnedSemaphorePermit>,
    received: Instant,
) {
    let attempt = Attempt::first(request, deps.clock.timestamp());
    if let Err(error) = write_claims(deps, &mut group, &attempt).await {
        if deps.fence.lost().is_cancelled() {
            // A new leader reads what was written. Nothing was sent.
            return;
        }
        tracing::warn!(cycle_id = %group.cycle_id, group = group.id(), %error, "NodeClaims not created");
        let failure = Failure::Refused { code: "ClaimNotWritten".to_owned(), message: error.to_string() };
        results::fail(deps, group.claims.into_values(), &failure, &group.cycle_id, results::RefusedBy::Cluster).await;
        return;
    }
    deps.metrics.launch_seconds.with_label_values(&["claim"]).observe(received.elapsed().as_secs_f64());
    GroupRun { purchase: Some(purchase), permit, ..GroupRun::new(deps, group, Some(attempt), received) }
        .run(Decision::Send { after: Millis(0) })
        .await;
}

/// Resumes a group that may have been sent, by a former leader or by this one before an error.
pub async fn resume(deps: &Launcher, group: LaunchGroup, attempt: Attempt, permit: Option<OwnedSemaphorePermit>) {
    let first = attempt::first_decision(&attempt, deps.clock.timestamp());
    tracing::info!(group = group.id(), attempt = attempt.number, ?first, "resuming launch group");
    GroupRun { permit, ..GroupRun::new(deps, group, Some(attempt), Instant::now()) }.run(first).await;
}

/// Resumes a group that must not be sent again: its instances are looked up by tag.
pub async fn look_up_only(deps: &Launcher, group: LaunchGroup) {
    GroupRun::new(deps, group, None, Instant::now()).run(Decision::LookUp { after: Millis(0) }).await;
}

struct GroupRun<'a> {
    deps: &'a Launcher,
    group: LaunchGroup,
    /// `None` if nothing may be sent.
    attempt: Option<Attempt>,
    /// `None` for a resumed group.
    purchase: Option<Purchase>,
    look_ups: LookUps,
    /// Held until the group waits: a group that waits keeps no other from being launched. Its later calls are paced by
    /// their rate limits.
    permit: Option<OwnedSemaphorePermit>,
    received: Instant,
}

impl<'a> GroupRun<'a> {
    fn new(deps: &'a Launcher, group: LaunchGroup, attempt: Option<Attempt>, received: Instant) -> Self {
        Self { deps, group, attempt, purchase: None, look_ups: LookUps::default(), permit: None, received }
    }

    async fn run(mut self, first: Decision) {
        let mut decision = first;
        for _ in 0..MAX_STEPS {
            tracing::debug!(cycle_id = %self.group.cycle_id, group = self.group.id(), ?decision, "launch");
            let next = match decision {
                Decision::Send { after } => self.send(after).await,
                Decision::RaiseAttempt { after } => self.raise(after).await,
                Decision::LookUp { after } => self.look_up(after).await,
                Decision::Adopt { instances, rest } => self.adopt(instances, rest).await,
                Decision::Fail(failure) => {
                    self.fail(&failure).await;
                    None
                }
            };
            match next {
                Some(next) => decision = next,
                None => return,
            }
        }
        // The scan for unfinished groups finds its claims and resumes them.
        tracing::error!(group = self.group.id(), "launch group stopped after too many steps");
    }

    /// Waits, without the permit.
    async fn wait(&mut self, pause: Duration) {
        if !pause.is_zero() {
            self.permit = None;
        }
        tokio::time::sleep(pause).await;
    }

    async fn send(&mut self, after: Millis) -> Option<Decision> {
        self.wait(Duration::from_millis(after.0)).await;
        let deps = self.deps;
        // A request that may not be sent takes no turn from others.
        if deps.fence.check(CLOUD_CALL).is_err() {
            return self.wait_for_fence().await;
        }
        let Some(attempt) = &self.attempt else { return Some(Decision::LookUp { after: Millis(0) }) };
        deps.cloud.fleet_turn().await;
        // With many requests before this one, it may be too old by now.
        let first = attempt::first_decision(attempt, deps.clock.timestamp());
        if !matches!(first, Decision::Send { .. }) {
            return Some(first);
        }
        if !self.is_wanted(attempt) {
            return Some(match attempt.maybe_bought {
                true => Decision::LookUp { after: Millis(0) },
                false => Decision::Fail(Failure::Deleted),
            });
        }
        if let Some(failure) = self.shifted(attempt) {
            return Some(Decision::Fail(failure));
        }
        let (request, group, cycle_id) = (&attempt.request, self.group.id(), &self.group.cycle_id);
        tracing::info!(
            %cycle_id, group, token = %request.client_token, capacity = request.total_target_capacity,
            overrides = request.overrides().count(), "CreateFleet"
        );
        if attempt.sent == 0 {
            deps.metrics.launch_seconds.with_label_values(&["fleet"]).observe(self.received.elapsed().as_secs_f64());
        }
        let Ok(outcome) = deps.cloud.create_fleet(request).await else { return self.wait_for_fence().await };
        if names_missing_template(&outcome) {
            self.restore_templates(attempt).await;
        }
        match &outcome {
            Ok(answer) => self.learn(answer),
            Err(error) => tracing::warn!(%cycle_id, group, %error, "CreateFleet"),
        }
        self.attempt.as_mut().map(|attempt| after_sending(attempt, outcome, deps.clock.timestamp()))
    }

    /// Waits while the fence refuses. `None` if this term is over.
    async fn wait_for_fence(&mut self) -> Option<Decision> {
        if self.deps.fence.lost().is_cancelled() {
            return None;
        }
        self.wait(FENCE_PAUSE).await;
        let Some(attempt) = &self.attempt else { return Some(Decision::LookUp { after: Millis(0) }) };
        Some(attempt::first_decision(attempt, self.deps.clock.timestamp()))
    }

    /// Whether the request, which is for all claims of the group, may be sent. As long as nothing was bought, every
    /// claim must still wait for an instance: the pods of a deleted one are planned again, and would get another
    /// instance. Later, one claim is enough, since the same token buys nothing more.
    fn is_wanted(&self, attempt: &Attempt) -> bool {
        self.deps.ledger.read(|ledger| {
            let mut wanted = self.group.claims.keys().map(|claim| ledger.may_send_again(claim));
            if attempt.maybe_bought { wanted.any(|it| it) } else { wanted.all(|it| it) }
        })
    }

    /// Ensures the launch templates of a request again: EC2 does not show them yet, or somebody has deleted them.
    async fn restore_templates(&self, attempt: &Attempt) {
        let deps = self.deps;
        let configs = &attempt.request.launch_template_configs;
        let names: Vec<String> = configs.iter().map(|config| config.launch_template_name.clone()).collect();
        tracing::warn!(cycle_id = %self.group.cycle_id, ?names, "EC2 reports a launch template as missing");
        deps.launch_templates.templates.forget(&names);
        let Some(purchase) = &self.purchase else { return };
        if let Err(error) = purchase.request(&deps.launch_templates, &self.group.key, None).await {
            tracing::warn!(cycle_id = %self.group.cycle_id, %error, "launch template not restored");
        }
    }

    /// Records refused offerings, even if other offerings succeeded.
    fn learn(&self, answer: &FleetAnswer) {
        let now = self.deps.clock.timestamp();
        let (mut changed, mut exhausted) = (false, Vec::new());
        // All claims of a group are of one node class and request the same.
        let placement_group = self.group.primary().and_then(record::placement_group);
        for error in &answer.errors {
            self.deps.metrics.cloud.refused(error, &self.zone_id(&error.zone));
        }
        let mut unavailable = self.deps.insufficient_capacity.lock();
        for error in answer.offering_errors() {
            match self.reservation_of(error) {
                // The zone's On-Demand capacity is another matter.
                Some(id) => exhausted.push(id),
                None => changed |= unavailable.learn(error, placement_group, now),
            }
        }
        let is_last = self.attempt.as_ref().is_some_and(Attempt::is_last);
        // The next plan would ask for the same offerings.
        for error in answer.errors.iter().filter(|error| is_last && error.is_internal() && error.is_named()) {
            unavailable.skip(Wanted::named_by(error, placement_group), now);
            changed = true;
        }
        drop(unavailable);
        for id in exhausted {
            tracing::warn!(reservation = id, "EC2 has no capacity in the capacity reservation");
            changed |= self.deps.ledger.with(|ledger| ledger.reservation_exhausted(id));
        }
        if changed {
            self.deps.ledger.wake();
        }
        tracing::info!(
            cycle_id = %self.group.cycle_id, group = self.group.id(), bought = answer.instances.len(),
            refused = answer.errors.len(), "CreateFleet answered"
        );
    }

    /// The capacity reservation that lacks capacity, as an error says.
    fn reservation_of(&self, error: &OfferingError) -> Option<&str> {
        if !error.is_reservation_full() {
            return None;
        }
        self.attempt.as_ref()?.request.reservation_of(&error.instance_type, &error.zone)
    }

    /// Id of a zone, from the subnets of the group's node class; empty if unknown.
    fn zone_id(&self, zone: &str) -> String {
        let class = self.group.claims.values().next().map(|claim| &claim.spec.node_class_ref.name);
        let class = class.and_then(|class| self.deps.stores.classes.get(class));
        let subnets = class.as_ref().and_then(|class| class.status.as_ref()).map(|status| &status.subnets);
        let subnet = subnets.into_iter().flatten().find(|subnet| subnet.zone == zone);
        subnet.and_then(|subnet| subnet.zone_id.clone()).unwrap_or_default()
    }

    async fn raise(&mut self, after: Millis) -> Option<Decision> {
        self.wait(Duration::from_millis(after.0)).await;
        let Some(attempt) = &self.attempt else { return Some(Decision::LookUp { after: Millis(0) }) };
        let next = attempt.raised(&self.group.key, self.deps.clock.timestamp());
        match write::raise(self.deps, self.group.primary()?, &next).await {
            Ok(updated) if updated.exists() => {
                self.attempt = Some(next);
                Some(Decision::Send { after: Millis(0) })
            }
            Ok(_) => Some(Decision::LookUp { after: Millis(0) }),
            Err(error) => {
                // The write may have succeeded: the scan for unfinished groups decides by what is in the cluster.
                tracing::warn!(group = self.group.id(), %error, "next attempt not written");
                None
            }
        }
    }

    /// The failure of an attempt if the cluster is shifted away from a zone of its request, which may have waited for
    /// minutes: its pods can be planned again, without that zone. A request that may have launched something is sent
    /// again.
    fn shifted(&self, attempt: &Attempt) -> Option<Failure> {
        if attempt.maybe_bought {
            return None;
        }
        let zones = self.deps.zonal_shifts.zones(&self.deps.stores, self.deps.clock.timestamp());
        let shifted = attempt.request.overrides().find(|way| zones.contains(&way.zone))?;
        let refusals = format!("zonal shift away from {}", shifted.zone);
        Some(Failure::InsufficientCapacity { refusals, named: true })
    }

    async fn look_up(&mut self, after: Millis) -> Option<Decision> {
        // Nothing is sent any more.
        self.permit = None;
        tokio::time::sleep(Duration::from_millis(after.0)).await;
        let deps = self.deps;
        if deps.fence.lost().is_cancelled() {
            return None;
        }
        match living(deps, &self.group).await {
            Ok(living) => Some(after_look_up(&mut self.look_ups, living, self.group.key.size, deps.clock.timestamp())),
            Err(error) => {
                tracing::warn!(group = self.group.id(), %error, "instances of the launch group not read, retrying");
                Some(Decision::LookUp { after: LOOK_UP_PAUSE })
            }
        }
    }

    /// Writes the match. `None` ends the group.
    async fn adopt(&mut self, instances: Vec<FleetInstance>, rest: Option<Failure>) -> Option<Decision> {
        let deps = self.deps;
        let claims: BTreeMap<String, Option<String>> =
            self.group.claims.iter().map(|(name, claim)| (name.clone(), instance(claim).map(str::to_owned))).collect();
        let living: BTreeSet<String> = instances.iter().map(|instance| instance.instance_id.clone()).collect();
        let matched = match_instances(&claims, &living);
        let by_id: BTreeMap<&str, &FleetInstance> =
            instances.iter().map(|instance| (instance.instance_id.as_str(), instance)).collect();
        let (members, cycle_id) = (&self.group.claims, self.group.cycle_id.as_str());
        let writes = matched.assigned.iter().filter_map(|(name, id)| {
            let claim = members.get(name).filter(|claim| instance(claim).is_none())?;
            let launched = by_id.get(id.as_str())?;
            Some(async move { (name, results::launched(deps, cycle_id, claim, launched).await) })
        });
        let mut writes = futures::stream::iter(writes.collect::<Vec<_>>()).buffer_unordered(WRITES_AT_ONCE);
        let (mut done, mut retry) = (BTreeMap::new(), false);
        while let Some((name, result)) = writes.next().await {
            match result {
                Ok(claim_after) => {
                    // What the instance uses is subtracted now; the other requested subnets were not used.
                    self.group.held.remove(name);
                    done.insert(name.clone(), claim_after);
                }
                Err(error) => {
                    tracing::warn!(claim = %name, %error, "NodeClaim not updated with its instance, retrying");
                    retry = true;
                }
            }
        }
        drop(writes);
        for (name, claim_after) in done {
            match claim_after {
                Some(claim) => drop(self.group.claims.insert(name, claim)),
                None => drop(self.group.claims.remove(&name)),
            }
        }
        deps.metrics.launch_seconds.with_label_values(&["launched"]).observe(self.received.elapsed().as_secs_f64());
        if deps.fence.lost().is_cancelled() {
            return None;
        }
        if retry {
            self.wait(FENCE_PAUSE).await;
            return Some(Decision::Adopt { instances, rest });
        }
        // Garbage collection finds surplus instances of a shifted zone after the shift.
        let shifted = deps.zonal_shifts.zones(&deps.stores, deps.clock.timestamp());
        let is_shifted = |id: &String| by_id.get(id.as_str()).is_some_and(|it| shifted.contains(&it.zone));
        let surplus: Vec<String> = matched.surplus.iter().filter(|id| !is_shifted(id)).cloned().collect();
        results::surplus(deps, &surplus).await;
        match (matched.unmatched.is_empty(), rest) {
            (true, _) => None,
            (false, Some(failure)) => Some(Decision::Fail(failure)),
            (false, None) => Some(Decision::LookUp { after: LOOK_UP_PAUSE }),
        }
    }

    async fn fail(&mut self, failure: &Failure) {
        let is_skipped = |attempt: &&Attempt| *failure == Failure::NothingFound && attempt.fails_in_ec2();
        if let Some(attempt) = self.attempt.as_ref().filter(is_skipped) {
            results::skip_offerings(self.deps, &self.group, &attempt.request);
        }
        self.group.held.clear();
        let claims = std::mem::take(&mut self.group.claims).into_values();
        let failed = claims.filter(|claim| instance(claim).is_none());
        results::fail(self.deps, failed, failure, &self.group.cycle_id, results::RefusedBy::Cloud).await;
    }
}

/// Living instances of a group, by its tag.
///
/// # Errors
/// The cloud returned an error.
async fn living(deps: &Launcher, group: &LaunchGroup) -> Result<Vec<FleetInstance>, CloudError> {
    let filter =
        InstanceFilter::LaunchGroup { cluster: deps.settings.cluster_name.clone(), group: group.id().to_owned() };
    let instances = deps.cloud_reads.instances(&filter).await?;
    let alive = instances.into_iter().filter(|instance| instance.state.is_alive());
    Ok(alive
        .map(|instance| FleetInstance {
            instance_id: instance.id,
            instance_type: instance.instance_type,
            zone: instance.zone,
            capacity_type: instance.capacity_type,
            subnet_id: instance.subnet_id,
            image_id: instance.image_id,
        })
        .collect())
}
