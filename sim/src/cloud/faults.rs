//! What may go wrong between a client and the cloud, under the control of a test.

use crate::apiserver::faults::Gate;
use crate::seed::Rng;
use plimsoll_actuator::ports::CloudError;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "EC2's own names")]
pub enum Action {
    CreateFleet,
    CreateLaunchTemplate,
    CreateTags,
    DeleteLaunchTemplates,
    DescribeCapacityReservations,
    DescribeImages,
    DescribeInstanceStatus,
    DescribeInstanceTypeOfferings,
    DescribeInstanceTypes,
    DescribeInstances,
    DescribeLaunchTemplates,
    DescribePlacementGroups,
    DescribeSecurityGroups,
    DescribeSpotPriceHistory,
    DescribeSubnets,
    DryRunCreateFleet,
    DryRunRunInstances,
    TerminateInstances,
    ReceiveMessage,
    DeleteMessage,
    GetParameter,
    GetInstanceProfile,
    CreateInstanceProfile,
    AddRoleToInstanceProfile,
    DeleteInstanceProfile,
    ListInstanceProfiles,
    GetProducts,
    GetManagedResource,
}

/// What happens to a call.
#[derive(Debug, Clone)]
pub enum Effect {
    /// It never reaches the cloud, which the client cannot know.
    Drop,
    /// It is carried out, and the answer is lost.
    LoseAnswer,
    /// The client gives up at once; the call is carried out after this time.
    Late(Duration),
    /// It is carried out after this time, and the client waits.
    Delay(Duration),
    /// It is carried out, and its answer takes this time: what a read says is older by then.
    DelayAnswer(Duration),
    /// The cloud refuses it.
    Refuse(CloudError),
    /// It waits before it is carried out, until the gate opens.
    HoldBefore(Gate),
    /// It is carried out, and its answer waits until the gate opens.
    HoldAfter(Gate),
}

/// How a client is cut off from the cloud.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// Its calls fail once their time is over.
    NoAnswer,
    /// It is dead: its calls never end.
    Dead,
}

/// What the client sees where no answer comes.
pub(super) fn no_answer() -> CloudError {
    CloudError::Ambiguous { message: "the connection broke".to_owned() }
}

#[derive(Debug, Clone)]
struct Rule {
    /// Name of the client; all where there is none.
    client: Option<String>,
    action: Option<Action>,
    effect: Effect,
    /// Fitting calls that still pass unharmed.
    skip: u32,
    /// Of 1000 fitting calls, how many are hit.
    per_mille: u32,
    /// Hits left; none for no limit.
    left: Option<u32>,
}

impl Rule {
    fn of(action: Option<Action>, effect: Effect) -> Self {
        Self { client: None, action, effect, skip: 0, per_mille: 1000, left: None }
    }
}

/// Faults to come; the oldest that fits a call is used first.
#[derive(Debug, Clone, Default)]
pub struct Faults {
    rules: Vec<Rule>,
    cuts: BTreeMap<String, Cut>,
    /// Images that do not boot.
    broken_images: BTreeSet<String>,
    /// Whether machines that start become Nodes under other names.
    renames_nodes: bool,
    /// Of 1000 instances in an answer, how many are missing.
    missing: u32,
    rng: Rng,
}

impl Faults {
    /// The next `times` calls of this action, or of any, go wrong like this.
    pub fn inject(&mut self, action: impl Into<Option<Action>>, effect: Effect, times: u32) {
        self.rules.push(Rule { left: Some(times), ..Rule::of(action.into(), effect) });
    }

    /// From now on `per_mille` of 1000 calls of this action, or of any, go wrong like this. Chance is fixed by the
    /// seed.
    pub fn sometimes(&mut self, per_mille: u32, action: impl Into<Option<Action>>, effect: Effect) {
        self.rules.push(Rule { per_mille, ..Rule::of(action.into(), effect) });
    }

    /// The call of this action with this number, from 1, of one client goes wrong like this.
    pub fn nth(&mut self, number: u32, client: impl Into<String>, action: Action, effect: Effect) {
        let (client, skip) = (Some(client.into()), number.saturating_sub(1));
        self.rules.push(Rule { client, skip, left: Some(1), ..Rule::of(Some(action), effect) });
    }

    /// From now on `per_mille` of 1000 instances are missing in each answer of DescribeInstances.
    pub fn miss_instances(&mut self, per_mille: u32) {
        self.missing = per_mille;
    }

    /// Whether an instance is missing in an answer.
    pub(super) fn misses_instance(&mut self) -> bool {
        self.missing > 0 && self.rng.chance(self.missing)
    }

    /// Fixes chance.
    pub fn seed(&mut self, seed: u64) {
        self.rng = Rng::new(seed);
    }

    /// Cuts a client off.
    pub fn cut(&mut self, client: impl Into<String>, cut: Cut) {
        self.cuts.insert(client.into(), cut);
    }

    /// Lets a client through again.
    pub fn heal(&mut self, client: &str) {
        self.cuts.remove(client);
    }

    /// Instances with these images run, but never become Nodes.
    pub fn break_images(&mut self, ids: impl IntoIterator<Item = String>) {
        self.broken_images.extend(ids);
    }

    /// All images boot again.
    pub fn mend_images(&mut self) {
        self.broken_images.clear();
    }

    /// Whether instances with this image become Nodes.
    pub(crate) fn boots(&self, image: &str) -> bool {
        !self.broken_images.contains(image)
    }

    /// Whether machines that start from now on become Nodes that are named after their instances, not after their
    /// private DNS names.
    pub fn rename_nodes(&mut self, renames: bool) {
        self.renames_nodes = renames;
    }

    /// Whether Nodes are named after their instances.
    pub(crate) fn renames_nodes(&self) -> bool {
        self.renames_nodes
    }

    /// How a client is cut off.
    pub(super) fn cut_of(&self, client: &str) -> Option<Cut> {
        self.cuts.get(client).copied()
    }

    /// The next `times` calls of this action, or of any, are throttled.
    pub fn throttle(&mut self, action: impl Into<Option<Action>>, times: u32) {
        self.inject(action, Effect::Refuse(CloudError::Throttled), times);
    }

    /// No more faults; who is cut off stays so.
    pub fn clear(&mut self) {
        self.rules.clear();
        self.missing = 0;
    }

    /// Takes the fault that is next for this action of a client.
    pub fn take(&mut self, client: &str, action: Action) -> Option<Effect> {
        self.rules.retain(|rule| rule.left != Some(0));
        let Self { rules, rng, .. } = self;
        let is_meant = |rule: &Rule| {
            rule.action.is_none_or(|wanted| wanted == action)
                && rule.client.as_ref().is_none_or(|wanted| wanted == client)
        };
        // A call that is let pass counts for all rules that wait for a later one.
        let is_due = |rule: &mut Rule| {
            let waits = rule.skip > 0;
            rule.skip = rule.skip.saturating_sub(1);
            !waits
        };
        let meant = rules.iter_mut().filter(|rule| is_meant(rule));
        let mut due: Vec<&mut Rule> = meant.filter_map(|rule| is_due(rule).then_some(rule)).collect();
        // Sure rules draw no number, so that adding one does not shift the chances of others.
        let rule = due.iter_mut().find(|rule| rule.per_mille >= 1000 || rng.chance(rule.per_mille))?;
        rule.left = rule.left.map(|left| left - 1);
        Some(rule.effect.clone())
    }
}
