//! Random faults of requests to the API server and of calls of the cloud.

use super::config::pick;
use plimsoll_actuator::ports::CloudError;
use plimsoll_model::time::Millis;
use plimsoll_sim::apiserver::faults::{Effect, Matcher};
use plimsoll_sim::apiserver::request::Verb;
use plimsoll_sim::cloud::{Action, Disorder, Effect as CloudEffect};
use plimsoll_sim::seed::Rng;
use plimsoll_tests::TestCluster;
use std::time::Duration;

/// A kind of random fault with its rate in per mille.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rate {
    pub(super) fault: Fault,
    per_mille: u32,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Fault {
    LoseAnswer,
    Drop,
    InternalError,
    Throttle,
    Delay,
    LateWrite,
    SlowClaims,
    Conflict,
    CloudLoseAnswer,
    CloudLate,
    CloudThrottle,
    CloudDrop,
    CloudDelay,
    CloudDenied,
    CloudMissing,
    QueueTwice,
    QueueLate,
    LateDeletion,
    LateAnyWrite,
    SlowAnswer,
    CloudSlowAnswer,
}

/// Faults with their default rates in per mille.
const FAULTS: [(Fault, u32); 14] = [
    (Fault::LoseAnswer, 15),
    (Fault::Drop, 15),
    (Fault::InternalError, 15),
    (Fault::Throttle, 15),
    (Fault::Delay, 50),
    (Fault::LateWrite, 15),
    (Fault::SlowClaims, 60),
    (Fault::Conflict, 20),
    (Fault::CloudLoseAnswer, 40),
    (Fault::CloudLate, 20),
    (Fault::CloudThrottle, 40),
    (Fault::CloudDrop, 20),
    (Fault::CloudDelay, 50),
    (Fault::CloudDenied, 20),
];

/// Faults of what the cloud reports, with their default rates in per mille.
const REPORT_FAULTS: [(Fault, u32); 3] =
    [(Fault::CloudMissing, 20), (Fault::QueueTwice, 300), (Fault::QueueLate, 1000)];

/// Writes that take effect late, with their default rates in per mille. Deletions and evictions are rare.
const LATE_FAULTS: [(Fault, u32); 2] = [(Fault::LateDeletion, 200), (Fault::LateAnyWrite, 10)];

/// Answers that are old when they arrive, with their default rates in per mille.
const ANSWER_FAULTS: [(Fault, u32); 2] = [(Fault::SlowAnswer, 30), (Fault::CloudSlowAnswer, 100)];

/// Delay of late writes: longer than any time-out of a write.
pub(super) const LATE: Duration = Duration::from_secs(20);
/// Maximum delay of a message of the queue.
const MESSAGE_DELAY: Millis = Millis::from_seconds(30);

/// Half of the kinds, with rates between a fifth and twice the default.
fn some(rng: &mut Rng, all: &[(Fault, u32)]) -> Vec<Rate> {
    let mut faults = Vec::new();
    for (fault, usual) in all {
        let per_mille = usual * pick(rng, &[20, 50, 100, 200]) / 100;
        if rng.chance(500) {
            faults.push(Rate { fault: *fault, per_mille });
        }
    }
    faults
}

pub(super) fn of_calls(rng: &mut Rng) -> Vec<Rate> {
    some(rng, &FAULTS)
}

pub(super) fn of_reports(rng: &mut Rng) -> Vec<Rate> {
    some(rng, &REPORT_FAULTS)
}

pub(super) fn of_late_writes(rng: &mut Rng) -> Vec<Rate> {
    some(rng, &LATE_FAULTS)
}

pub(super) fn of_answers(rng: &mut Rng) -> Vec<Rate> {
    some(rng, &ANSWER_FAULTS)
}

/// Deletions of NodeClaims, Nodes and pods.
pub(super) fn deletions() -> [Matcher; 3] {
    ["nodeclaims", "nodes", "pods"].map(|resource| Matcher::of(Verb::Delete, resource))
}

impl Rate {
    pub(super) fn begin(self, cluster: &TestCluster) {
        let Self { fault, per_mille } = self;
        let server = cluster.world.server().faults();
        let kube = |matcher, effect| {
            server.sometimes(per_mille, matcher, effect);
        };
        let cloud = |action: Option<Action>, effect| {
            cluster.world.ec2.faults(|faults| faults.sometimes(per_mille, action, effect));
        };
        let queue = |change: fn(&mut Disorder, u32)| {
            cluster.world.ec2.with(|cloud, _| change(&mut cloud.queue.disorder, per_mille));
        };
        let claims = || Matcher { resource: Some("nodeclaims"), ..Matcher::default() };
        let second = Duration::from_secs;
        match fault {
            Fault::LoseAnswer => kube(Matcher::default(), Effect::LoseAnswer),
            Fault::Drop => kube(Matcher::default(), Effect::Drop),
            Fault::InternalError => kube(Matcher::default(), Effect::internal_error()),
            Fault::Throttle => kube(Matcher::default(), Effect::throttle(1)),
            Fault::Delay => kube(Matcher::default(), Effect::Delay(Duration::from_millis(300))),
            Fault::LateWrite => {
                kube(Matcher { verb: Some(Verb::Create), ..claims() }, Effect::Late(LATE));
                kube(Matcher { verb: Some(Verb::Patch), ..claims() }, Effect::Late(LATE));
            }
            Fault::SlowClaims => kube(claims(), Effect::Delay(second(5))),
            Fault::Conflict => kube(Matcher { verb: Some(Verb::Patch), ..claims() }, Effect::conflict()),
            Fault::CloudLoseAnswer => cloud(None, CloudEffect::LoseAnswer),
            Fault::CloudLate => cloud(None, CloudEffect::Late(second(30))),
            Fault::CloudThrottle => cloud(None, CloudEffect::Refuse(CloudError::Throttled)),
            Fault::CloudDrop => cloud(None, CloudEffect::Drop),
            Fault::CloudDelay => cloud(None, CloudEffect::Delay(second(2))),
            Fault::CloudDenied => {
                let denied = CloudError::Denied { message: "UnauthorizedOperation: not now".to_owned() };
                cloud(None, CloudEffect::Refuse(denied));
            }
            Fault::CloudMissing => cluster.world.ec2.faults(|faults| faults.miss_instances(per_mille)),
            Fault::LateDeletion => {
                let eviction = Matcher { subresource: Some("eviction"), ..Matcher::of(Verb::Create, "pods") };
                deletions().into_iter().chain([eviction]).for_each(|matcher| kube(matcher, Effect::Late(LATE)));
            }
            Fault::LateAnyWrite => {
                for verb in [Verb::Create, Verb::Update, Verb::Patch] {
                    kube(Matcher { verb: Some(verb), ..Matcher::default() }, Effect::Late(LATE));
                }
            }
            Fault::SlowAnswer => kube(Matcher::default(), Effect::DelayAnswer(second(2))),
            Fault::CloudSlowAnswer => cloud(None, CloudEffect::DelayAnswer(second(3))),
            Fault::QueueTwice => queue(|disorder, per_mille| disorder.twice = per_mille),
            Fault::QueueLate => queue(|disorder, _| disorder.delay = MESSAGE_DELAY),
        }
    }
}

/// Ends all random faults.
pub(super) fn end(cluster: &TestCluster) {
    cluster.world.server().faults().clear_rules();
    cluster.world.ec2.faults(plimsoll_sim::cloud::Faults::clear);
    cluster.world.ec2.with(|cloud, _| cloud.queue.disorder = Disorder::default());
}
