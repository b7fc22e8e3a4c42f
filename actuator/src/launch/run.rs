//! Executes one launch group, from its claims to its instances, as [`super::attempt`] decides.

use super::admit::PreparedGroup;
use super::attempt::{self, Attempt, Decision, Failure, LookUps, after_look_up, after_sending};
use super::create::{CreateError, create};
use super::matching::match_instances;
use super::record::{Group, Member, primary_annotations};
use super::request::stamp;
use super::results;
use super::write;
use crate::clock::Timestamped;
use crate::fencing::NotAllowed;
use crate::launch::launcher::Launcher;
use crate::ledger::Ledger;
use crate::ports::{CloudError, FleetAnswer, FleetInstance, FleetRequest, InstanceFilter};
use crate::state::launch_group::LaunchGroup;
use futures::StreamExt;
use plimsoll_api::NodeClaim;
use plimsoll_model::identity::ActionId;
use plimsoll_model::time::Millis;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::time::Instant;

/// Concurrent writes per group, which mostly wait for the API server.
const WRITES_AT_ONCE: usize = 16;
/// Maximum number of steps per group, to bound the cost of a bug. Look-ups over the longest wait take a few dozen.
const MAX_STEPS: u32 = 1000;
/// Pause while the fence refuses: Karpenter is active, or the lease is about to be renewed.
const FENCE_PAUSE: Duration = Duration::from_secs(1);
/// Pause after a failed look-up.
const LOOK_UP_PAUSE: Duration = Duration::from_secs(10);

/// Launches a newly admitted group: writes its claims, sends the request and records the result.
pub async fn start(deps: &Launcher, prepared: PreparedGroup, received: Instant) {
    let mut group = match prepared.complete(&deps.launch_templates).await {
        Ok(group) => group,
        Err((prepared, error)) => {
            let group = prepared.group.id.as_str();
            tracing::warn!(cycle_id = %prepared.cycle_id, group, %error, "nothing is launched");
            let failure = Failure::Refused { code: "LaunchTemplateNotReady".to_owned(), message: error.to_string() };
            results::fail_unwritten(deps, prepared.members.into_values(), &failure);
            return;
        }
    };
    let attempt = Attempt::first(deps.clock.timestamp());
    if let Err(error) = write_claims(deps, &mut group, &attempt).await {
        if deps.fence.lost().is_cancelled() {
            // A new leader reads what was written. Nothing was sent.
            return;
        }
        tracing::warn!(cycle_id = %group.cycle_id, group = %group.group.id, %error, "claims not written, nothing is launched");
        let failure = Failure::Refused { code: "ClaimNotWritten".to_owned(), message: error.to_string() };
        results::fail(deps, group.members.into_values(), &failure, &group.cycle_id, results::RefusedBy::Cluster).await;
        return;
    }
    deps.metrics.launch_seconds.with_label_values(&["claim"]).observe(received.elapsed().as_secs_f64());
    GroupRun::new(deps, group, attempt, received).run(Decision::Send { after: Millis(0) }).await;
}

/// Resumes a group that may have been sent, by a former leader or by this one before an error.
pub async fn resume(deps: &Launcher, group: Group, attempt: Attempt) {
    let first = attempt::first_decision(attempt, deps.clock.timestamp());
    tracing::info!(group = %group.group.id, attempt = attempt.number, ?first, "a launch goes on");
    GroupRun::new(deps, group, attempt, Instant::now()).run(first).await;
}

/// Writes the primary claim last: if it exists, all claims exist (see [`super::record`]).
async fn write_claims(deps: &Launcher, group: &mut Group, attempt: &Attempt) -> Result<(), CreateError> {
    let Some((primary_name, mut primary)) = group.members.pop_first() else { return Ok(()) };
    let secondary = std::mem::take(&mut group.members);
    let writes = secondary.into_iter().map(|(name, member)| async move {
        let result = create(deps, &member.claim).await;
        (name, member, result)
    });
    let mut writes = futures::stream::iter(writes).buffer_unordered(WRITES_AT_ONCE);
    let mut failure = None;
    while let Some((name, mut member, result)) = writes.next().await {
        match result {
            Ok(created) => {
                count_created(deps, &created, member.action.as_ref());
                member.claim = created;
            }
            Err(error) => failure = Some(error),
        }
        group.members.insert(name, member);
    }
    if failure.is_none() {
        let annotations = primary.claim.metadata.annotations.get_or_insert_default();
        annotations.extend(primary_annotations(&group.request, attempt));
        match create(deps, &primary.claim).await {
            Ok(created) => {
                count_created(deps, &created, primary.action.as_ref());
                primary.claim = created;
            }
            Err(error) => failure = Some(error),
        }
    }
    group.members.insert(primary_name, primary);
    failure.map_or(Ok(()), Err)
}

/// Counts a created claim, with the reason of the removal that it replaces a node for.
fn count_created(deps: &Launcher, claim: &NodeClaim, action: Option<&ActionId>) {
    let replaces = |ledger: &Ledger| {
        let action = action?;
        let removal = ledger.removals().find(|(_, removal)| removal.replacements.contains(action));
        removal.map(|(_, removal)| removal.reason)
    };
    deps.metrics.claims.created(claim, deps.ledger.read(replaces));
}

/// Whether EC2 says that a launch template of the request does not exist, as a whole or for an offering.
fn names_missing_template(outcome: &Result<FleetAnswer, CloudError>) -> bool {
    let is = |code: &str| code.starts_with("InvalidLaunchTemplate") && code.contains("NotFound");
    match outcome {
        Ok(answer) => answer.errors.iter().any(|error| is(&error.code)),
        Err(CloudError::InvalidRequest { code, .. }) => is(code),
        Err(_) => false,
    }
}

struct GroupRun<'a> {
    deps: &'a Launcher,
    group: LaunchGroup,
    /// `None` if the stored request is unreadable: then nothing is sent.
    request: Option<FleetRequest>,
    members: BTreeMap<String, Member>,
    cycle_id: String,
    attempt: Attempt,
    look_ups: LookUps,
    received: Instant,
}

impl<'a> GroupRun<'a> {
    fn new(deps: &'a Launcher, group: Group, attempt: Attempt, received: Instant) -> Self {
        let Group { group, request, members, cycle_id } = group;
        let (request, look_ups) = (Some(request), LookUps::default());
        Self { deps, group, request, members, cycle_id, attempt, look_ups, received }
    }

    async fn run(mut self, first: Decision) {
        let mut decision = first;
        for _ in 0..MAX_STEPS {
            tracing::debug!(cycle_id = %self.cycle_id, group = %self.group.id, ?decision, "launch");
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
        tracing::error!(group = %self.group.id, "a launch did not come to an end");
    }

    async fn send(&mut self, after: Millis) -> Option<Decision> {
        tokio::time::sleep(Duration::from_millis(after.0)).await;
        let deps = self.deps;
        let Some(request) = &self.request else { return Some(Decision::LookUp { after: Millis(0) }) };
        let cycle_id = &self.cycle_id;
        tracing::info!(
            %cycle_id, group = %self.group.id, token = %request.client_token, capacity = request.total_target_capacity,
            overrides = request.overrides().count(), "CreateFleet"
        );
        if self.attempt.sent == 0 {
            deps.metrics.launch_seconds.with_label_values(&["fleet"]).observe(self.received.elapsed().as_secs_f64());
        }
        let outcome = match deps.cloud.create_fleet(request).await {
            Ok(outcome) => outcome,
            Err(NotAllowed::NotLeader) if deps.fence.lost().is_cancelled() => return None,
            Err(_) => {
                tokio::time::sleep(FENCE_PAUSE).await;
                return Some(attempt::first_decision(self.attempt, deps.clock.timestamp()));
            }
        };
        if names_missing_template(&outcome) {
            let names: Vec<String> =
                request.launch_template_configs.iter().map(|config| config.launch_template_name.clone()).collect();
            tracing::warn!(%cycle_id, ?names, "a launch template was deleted, the next launch creates it again");
            deps.launch_templates.templates.forget(&names);
        }
        match &outcome {
            Ok(answer) => self.learn(answer),
            Err(error) => tracing::warn!(%cycle_id, group = %self.group.id, %error, "CreateFleet"),
        }
        Some(after_sending(&mut self.attempt, outcome, deps.clock.timestamp()))
    }

    /// Records refused offerings, even if other offerings succeeded.
    fn learn(&self, answer: &FleetAnswer) {
        let now = self.deps.clock.timestamp();
        let mut changed = false;
        let mut unavailable = self.deps.insufficient_capacity.lock();
        for error in &answer.errors {
            self.deps.metrics.cloud.refused(error, &self.zone_id(&error.zone));
            changed |= unavailable.learn(error, now);
        }
        drop(unavailable);
        if changed {
            self.deps.ledger.wake();
        }
        tracing::info!(
            cycle_id = %self.cycle_id, group = %self.group.id, bought = answer.instances.len(),
            refused = answer.errors.len(), "CreateFleet answered"
        );
    }

    /// Id of a zone, from the subnets of the group's node class; empty if unknown.
    fn zone_id(&self, zone: &str) -> String {
        let class = self.members.values().next().map(|member| &member.claim.spec.node_class_ref.name);
        let class = class.and_then(|class| self.deps.stores.classes.get(class));
        let subnets = class.as_ref().and_then(|class| class.status.as_ref()).map(|status| &status.subnets);
        let subnet = subnets.into_iter().flatten().find(|subnet| subnet.zone == zone);
        subnet.and_then(|subnet| subnet.zone_id.clone()).unwrap_or_default()
    }

    async fn raise(&mut self, after: Millis) -> Option<Decision> {
        tokio::time::sleep(Duration::from_millis(after.0)).await;
        let next = self.attempt.raised(self.deps.clock.timestamp());
        let Some(mut request) = self.request.clone() else { return Some(Decision::LookUp { after: Millis(0) }) };
        stamp(&mut request, &self.group, next.number);
        let primary = self.primary()?;
        match write::raise(self.deps, &primary.claim, &request, &next).await {
            Ok(updated) if updated.exists() => {
                self.request = Some(request);
                self.attempt = next;
                Some(Decision::Send { after: Millis(0) })
            }
            Ok(_) => Some(Decision::LookUp { after: Millis(0) }),
            Err(error) => {
                // The write may have succeeded: the scan for unfinished groups decides by what is in the cluster.
                tracing::warn!(group = %self.group.id, %error, "attempt not written");
                None
            }
        }
    }

    fn primary(&self) -> Option<&Member> {
        let is_primary = |member: &&Member| {
            super::record::annotation(&member.claim, plimsoll_model::names::annotation::LAUNCH_ATTEMPT).is_some()
        };
        self.members.values().find(is_primary)
    }

    async fn look_up(&mut self, after: Millis) -> Option<Decision> {
        tokio::time::sleep(Duration::from_millis(after.0)).await;
        let deps = self.deps;
        if deps.fence.lost().is_cancelled() {
            return None;
        }
        match living(deps, &self.group).await {
            Ok(living) => Some(after_look_up(&mut self.look_ups, living, self.group.size, deps.clock.timestamp())),
            Err(error) => {
                tracing::warn!(group = %self.group.id, %error, "look-up by tag");
                tokio::time::sleep(LOOK_UP_PAUSE).await;
                Some(Decision::LookUp { after: Millis(0) })
            }
        }
    }

    /// Writes the match. `None` ends the group.
    async fn adopt(&mut self, instances: Vec<FleetInstance>, rest: Option<Failure>) -> Option<Decision> {
        let deps = self.deps;
        let claims: BTreeMap<String, Option<String>> =
            self.members.iter().map(|(name, member)| (name.clone(), member.instance().map(str::to_owned))).collect();
        let living: BTreeSet<String> = instances.iter().map(|instance| instance.instance_id.clone()).collect();
        let matched = match_instances(&claims, &living);
        let by_id: BTreeMap<&str, &FleetInstance> =
            instances.iter().map(|instance| (instance.instance_id.as_str(), instance)).collect();
        let (members, cycle_id) = (&self.members, self.cycle_id.as_str());
        let writes = matched.assigned.iter().filter_map(|(name, id)| {
            let member = members.get(name).filter(|member| member.instance().is_none())?;
            let instance = by_id.get(id.as_str())?;
            Some(async move { (name, results::launched(deps, cycle_id, member, instance).await) })
        });
        let mut writes = futures::stream::iter(writes.collect::<Vec<_>>()).buffer_unordered(WRITES_AT_ONCE);
        let (mut done, mut retry) = (BTreeMap::new(), false);
        while let Some((name, result)) = writes.next().await {
            match result {
                Ok(claim_after) => drop(done.insert(name.clone(), claim_after)),
                Err(error) => {
                    tracing::warn!(claim = %name, %error, "the match is not written yet");
                    retry = true;
                }
            }
        }
        drop(writes);
        for (name, claim_after) in done {
            match claim_after {
                Some(claim) => drop(self.members.insert(name, Member::of(claim))),
                None => drop(self.members.remove(&name)),
            }
        }
        deps.metrics.launch_seconds.with_label_values(&["launched"]).observe(self.received.elapsed().as_secs_f64());
        if deps.fence.lost().is_cancelled() {
            return None;
        }
        if retry {
            tokio::time::sleep(FENCE_PAUSE).await;
            return Some(Decision::Adopt { instances, rest });
        }
        results::surplus(deps, &matched.surplus).await;
        match (matched.unmatched.is_empty(), rest) {
            (true, _) => None,
            (false, Some(failure)) => Some(Decision::Fail(failure)),
            (false, None) => Some(Decision::LookUp { after: Millis(LOOK_UP_PAUSE.as_secs().saturating_mul(1000)) }),
        }
    }

    async fn fail(&mut self, failure: &Failure) {
        let (failed, _): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.members).into_values().partition(|member| member.instance().is_none());
        results::fail(self.deps, failed.into_iter(), failure, &self.cycle_id, results::RefusedBy::Cloud).await;
    }
}

/// Living instances of a group, by its tag.
///
/// # Errors
/// The cloud returned an error.
pub async fn living(deps: &Launcher, group: &LaunchGroup) -> Result<Vec<FleetInstance>, CloudError> {
    let filter = InstanceFilter::LaunchGroup { cluster: deps.settings.cluster_name.clone(), group: group.id.clone() };
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

/// Resumes a group whose request is unreadable: nothing is sent, and its instances are looked up by tag.
pub async fn look_up_only(deps: &Launcher, group: LaunchGroup, members: BTreeMap<String, Member>, cycle_id: String) {
    let attempt = Attempt::resumed(1, plimsoll_model::time::Timestamp(0));
    let (look_ups, received) = (LookUps::default(), Instant::now());
    GroupRun { deps, group, request: None, members, cycle_id, attempt, look_ups, received }
        .run(Decision::LookUp { after: Millis(0) })
        .await;
}
