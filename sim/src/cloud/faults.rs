//! What may go wrong between a client and the cloud, under the control of a test.

use plimsoll_actuator::ports::CloudError;
use std::time::Duration;

/// The calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "EC2's own names")]
pub enum Action {
    CreateFleet,
    CreateLaunchTemplate,
    CreateTags,
    DeleteLaunchTemplates,
    DescribeImages,
    DescribeInstanceStatus,
    DescribeInstanceTypeOfferings,
    DescribeInstanceTypes,
    DescribeInstances,
    DescribeLaunchTemplates,
    DescribeSecurityGroups,
    DescribeSpotPriceHistory,
    DescribeSubnets,
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
}

/// What happens to a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// It never reaches the cloud, which the client cannot know.
    Drop,
    /// It is carried out, and the answer is lost.
    LoseAnswer,
    /// The client gives up at once; the call is carried out after this time.
    Late(Duration),
    /// It is carried out after this time, and the client waits.
    Delay(Duration),
    /// The cloud refuses it.
    Refuse(CloudError),
}

/// What the client sees where no answer comes.
pub(super) fn no_answer() -> CloudError {
    CloudError::Ambiguous { message: "the connection broke".to_owned() }
}

#[derive(Debug, Clone)]
struct Rule {
    action: Option<Action>,
    effect: Effect,
    left: u32,
}

/// Faults to come; the oldest that fits a call is used first.
#[derive(Debug, Clone, Default)]
pub struct Faults {
    rules: Vec<Rule>,
}

impl Faults {
    /// The next `times` calls of this action, or of any, go wrong like this.
    pub fn inject(&mut self, action: impl Into<Option<Action>>, effect: Effect, times: u32) {
        self.rules.push(Rule { action: action.into(), effect, left: times });
    }

    /// The next `times` calls of this action, or of any, are throttled.
    pub fn throttle(&mut self, action: impl Into<Option<Action>>, times: u32) {
        self.inject(action, Effect::Refuse(CloudError::Throttled), times);
    }

    /// No more faults.
    pub fn clear(&mut self) {
        self.rules.clear();
    }

    /// Takes the fault that is next for this action.
    pub fn take(&mut self, action: Action) -> Option<Effect> {
        self.rules.retain(|rule| rule.left > 0);
        let rule = self.rules.iter_mut().find(|rule| rule.action.is_none_or(|wanted| wanted == action))?;
        rule.left -= 1;
        Some(rule.effect.clone())
    }
}
