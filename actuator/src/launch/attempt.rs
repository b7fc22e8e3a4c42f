//! Decides when a launch request is sent, sent again, looked up or failed (safety rule 3).
//!
//! The risk is a lost response: the instance may exist although we know nothing of it. A new client token is therefore
//! used only if no request with the old token can have launched anything.

use crate::ports::{CloudError, FleetAnswer, FleetInstance, FleetRequest, OfferingError};
use crate::state::absence::SETTLING;
use crate::state::launch_group::GroupKey;
use plimsoll_model::time::{Millis, Timestamp};
use std::collections::BTreeMap;

/// EC2 remembers a client token for a limited time. A request older than this could launch again and is not sent.
pub const MAX_RESEND_AGE: Millis = Millis::from_seconds(600);
/// Reads that must find nothing before the group counts as not launched.
pub const MIN_EMPTY_READS: u32 = 2;
/// Attempts per group after definite failures. Then the claims fail, and the pods are planned again.
pub const MAX_ATTEMPTS: u32 = 3;
/// Further attempts while EC2 throttles the instances of a group. With their pauses, these take ten minutes, as long as
/// a throttled request is sent again. Kept in memory: a new leader counts anew.
const MAX_THROTTLED: u32 = 15;
/// Internal errors of EC2 after which an attempt is not sent again. With the pauses between them, these take a minute.
const MAX_INTERNAL_ERRORS: u32 = 7;
/// EC2's codes for these errors. Unlike other responses with a code, they do not say whether EC2 has launched anything.
const INTERNAL_ERRORS: [&str; 2] = ["InternalError", "InternalFailure"];
/// First pause before a request is sent again. Doubles up to [`MAX_PAUSE`].
const FIRST_PAUSE: Millis = Millis::from_seconds(1);
/// Longest pause, such that several requests fit into [`MAX_RESEND_AGE`].
const MAX_PAUSE: Millis = Millis::from_seconds(60);
/// Pause between look-ups by tag.
pub const LOOK_UP_PAUSE: Millis = Millis::from_seconds(10);

/// Number of a group's first attempt.
pub const FIRST_ATTEMPT: u32 = 1;

/// A group's current attempt. `request`, `number` and `started` are stored on the primary claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// The exact request, with the attempt's token and tags.
    pub request: FleetRequest,
    /// Number of the attempt, starting at [`FIRST_ATTEMPT`].
    pub number: u32,
    /// When the attempt was written, before its first request.
    pub started: Timestamp,
    /// A request of this attempt got no response, or may have been sent by a former leader.
    pub maybe_bought: bool,
    /// Requests sent so far.
    pub sent: u32,
    /// Attempts of the group whose instances EC2 throttled.
    pub throttled: u32,
    /// Requests of this attempt that EC2 answered by an internal error. Kept in memory: a new leader counts anew.
    pub internal_errors: u32,
}

impl Attempt {
    /// The first attempt, which must be written before it is sent.
    #[must_use]
    pub fn first(request: FleetRequest, now: Timestamp) -> Self {
        let number = FIRST_ATTEMPT;
        Self { request, number, started: now, maybe_bought: false, sent: 0, throttled: 0, internal_errors: 0 }
    }

    /// An attempt restored from a claim. A former leader may have sent it and lost the response.
    #[must_use]
    pub fn resumed(request: FleetRequest, number: u32, started: Timestamp) -> Self {
        Self { number, maybe_bought: true, ..Self::first(request, started) }
    }

    /// The next attempt of the group, which must be written before it is sent.
    #[must_use]
    pub fn raised(&self, group: &GroupKey, now: Timestamp) -> Self {
        let number = self.number.saturating_add(1);
        let mut request = FleetRequest { client_token: group.client_token(number), ..self.request.clone() };
        request.tags.extend(group.tags(number));
        Self { number, throttled: self.throttled, ..Self::first(request, now) }
    }

    /// Whether the group gets no further attempt if EC2 refuses this one.
    #[must_use]
    pub fn is_last(&self) -> bool {
        self.refusable() >= MAX_ATTEMPTS
    }

    /// Number of the attempt without those that EC2 throttled.
    fn refusable(&self) -> u32 {
        self.number.saturating_sub(self.throttled)
    }

    /// Whether EC2 has answered this attempt by internal errors so often that it is not sent again.
    #[must_use]
    pub fn fails_in_ec2(&self) -> bool {
        self.internal_errors >= MAX_INTERNAL_ERRORS
    }
}

/// Pause after `count` requests or attempts.
fn pause(count: u32) -> Millis {
    let doubled = FIRST_PAUSE.0.saturating_mul(1_u64.checked_shl(count.saturating_sub(1).min(16)).unwrap_or(1));
    Millis(doubled.min(MAX_PAUSE.0))
}

/// Why the claims of a group fail. Each cause has its own back-off (rule 8).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// No offering of the request had capacity.
    InsufficientCapacity {
        /// EC2's codes, each with the number of refused offerings and one message.
        refusals: String,
        /// EC2 named the refused offerings. They are skipped, so other launches of the pool need not wait.
        named: bool,
    },
    /// EC2 refused for another reason.
    Refused {
        /// Error code.
        code: String,
        /// EC2's message.
        message: String,
    },
    /// EC2 launched a part of the group and throttled the rest.
    Throttled,
    /// The request may have been sent, but no instance was found.
    NothingFound,
    /// The request could not be sent in time, or EC2 throttled it all the time.
    NotAccepted,
    /// A claim of the group was deleted before EC2 had launched anything for the group.
    Deleted,
}

/// The next step of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Send the stored request, byte for byte, after this pause.
    Send {
        /// Pause.
        after: Millis,
    },
    /// Durably write the next attempt, then send under its token, after this pause.
    RaiseAttempt {
        /// Pause.
        after: Millis,
    },
    /// Do not send: look up instances by the group's tag, after this pause.
    LookUp {
        /// Pause.
        after: Millis,
    },
    /// Match these instances with the claims.
    Adopt {
        /// Living instances.
        instances: Vec<FleetInstance>,
        /// How the remaining claims fail; `None`: look up again.
        rest: Option<Failure>,
    },
    /// All claims of the group without an instance fail and are deleted.
    Fail(Failure),
}

/// The first step of an attempt, new or restored.
#[must_use]
pub fn first_decision(attempt: &Attempt, now: Timestamp) -> Decision {
    if now.since(attempt.started) > MAX_RESEND_AGE {
        return too_old(attempt);
    }
    Decision::Send { after: Millis(0) }
}

/// The end of an attempt that is not sent any more.
fn too_old(attempt: &Attempt) -> Decision {
    match attempt.maybe_bought {
        true => Decision::LookUp { after: Millis(0) },
        false => Decision::Fail(Failure::NotAccepted),
    }
}

/// The next step after a request got `outcome`. `attempt.sent` includes that request; a lost response sets
/// `maybe_bought`.
#[must_use]
pub fn after_sending(attempt: &mut Attempt, outcome: Result<FleetAnswer, CloudError>, now: Timestamp) -> Decision {
    attempt.sent = attempt.sent.saturating_add(1);
    match outcome {
        Ok(answer) => after_answer(attempt, answer),
        Err(CloudError::Ambiguous { message }) => {
            attempt.maybe_bought = true;
            if INTERNAL_ERRORS.iter().any(|code| message.starts_with(code)) {
                attempt.internal_errors = attempt.internal_errors.saturating_add(1);
            }
            if attempt.fails_in_ec2() { Decision::LookUp { after: Millis(0) } } else { send_again(attempt, now) }
        }
        Err(CloudError::Throttled | CloudError::Unavailable { .. }) => send_again(attempt, now),
        Err(CloudError::IdempotentParameterMismatch) => {
            attempt.maybe_bought = true;
            Decision::LookUp { after: Millis(0) }
        }
        // This request launched nothing, but an earlier one with the same token may have.
        Err(_) if attempt.maybe_bought => Decision::LookUp { after: Millis(0) },
        Err(CloudError::InsufficientCapacity { message }) => {
            Decision::Fail(Failure::InsufficientCapacity { refusals: message, named: false })
        }
        Err(CloudError::InvalidRequest { code, message }) if is_missing_template(&code) => {
            retry(attempt, code, message)
        }
        Err(CloudError::InvalidRequest { code, message }) => Decision::Fail(Failure::Refused { code, message }),
        Err(CloudError::Denied { message }) => retry(attempt, "Denied".to_owned(), message),
        Err(CloudError::NotFound { message }) => retry(attempt, "NotFound".to_owned(), message),
    }
}

/// Whether EC2 says that a launch template of the request does not exist, as a whole or for an offering.
pub fn names_missing_template(outcome: &Result<FleetAnswer, CloudError>) -> bool {
    match outcome {
        Ok(answer) => answer.errors.iter().any(|error| is_missing_template(&error.code)),
        Err(CloudError::InvalidRequest { code, .. }) => is_missing_template(code),
        Err(_) => false,
    }
}

/// Whether a code says that a launch template does not exist. It may only not be visible yet.
fn is_missing_template(code: &str) -> bool {
    code.starts_with("InvalidLaunchTemplate") && code.contains("NotFound")
}

fn send_again(attempt: &Attempt, now: Timestamp) -> Decision {
    let after = pause(attempt.sent);
    if now.plus(after).since(attempt.started) > MAX_RESEND_AGE {
        return too_old(attempt);
    }
    Decision::Send { after }
}

fn retry(attempt: &Attempt, code: String, message: String) -> Decision {
    if attempt.is_last() {
        return Decision::Fail(Failure::Refused { code, message });
    }
    // Later attempts wait longer, although each starts without requests of its own.
    Decision::RaiseAttempt { after: pause(attempt.refusable()) }
}

fn retry_throttled(attempt: &mut Attempt) -> Decision {
    if attempt.throttled >= MAX_THROTTLED {
        return Decision::Fail(Failure::NotAccepted);
    }
    attempt.throttled = attempt.throttled.saturating_add(1);
    Decision::RaiseAttempt { after: pause(attempt.throttled) }
}

/// A response is final for the attempt, since EC2 returns the same response for the same token.
fn after_answer(attempt: &mut Attempt, answer: FleetAnswer) -> Decision {
    let refusals = summary(&answer.errors);
    let named = answer.errors.iter().any(OfferingError::is_named);
    let is_throttled = answer.errors.iter().any(OfferingError::is_throttled);
    let is_refused =
        |error: &OfferingError| !error.is_capacity() && !error.is_spot_role_missing() && !error.is_throttled();
    let failure = match answer.errors.into_iter().find(is_refused) {
        Some(OfferingError { code, message, .. }) => Failure::Refused { code, message },
        None if is_throttled => Failure::Throttled,
        None => Failure::InsufficientCapacity { refusals, named },
    };
    if !answer.instances.is_empty() {
        return Decision::Adopt { instances: answer.instances, rest: Some(failure) };
    }
    match failure {
        Failure::Refused { code, message } => retry(attempt, code, message),
        Failure::Throttled => retry_throttled(attempt),
        other => Decision::Fail(other),
    }
}

/// EC2's codes in the order of their names, each with the number of offerings and its first message.
fn summary(errors: &[OfferingError]) -> String {
    let mut by_code: BTreeMap<&str, (usize, &str)> = BTreeMap::new();
    for error in errors {
        by_code.entry(&error.code).or_insert((0, &error.message)).0 += 1;
    }
    let texts: Vec<String> =
        by_code.into_iter().map(|(code, (count, message))| format!("{code} for {count}: {message}")).collect();
    texts.join("; ")
}

/// Look-ups by the group's tag. Kept in memory: a new leader starts over, which costs two minutes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LookUps {
    /// Time of the first of the consecutive reads that found too few instances.
    pub short_since: Option<Timestamp>,
    /// Number of these reads.
    pub reads: u32,
}

impl LookUps {
    /// Records a read that found fewer instances than the group has claims.
    pub fn note_short(&mut self, now: Timestamp) {
        self.short_since.get_or_insert(now);
        self.reads = self.reads.saturating_add(1);
    }

    /// Whether the result is final: enough reads over enough time.
    #[must_use]
    pub fn settled(&self, now: Timestamp) -> bool {
        self.reads >= MIN_EMPTY_READS && self.short_since.is_some_and(|since| now.since(since) >= SETTLING)
    }
}

/// The next step after a look-up found these living instances for `size` claims.
#[must_use]
pub fn after_look_up(look_ups: &mut LookUps, living: Vec<FleetInstance>, size: u32, now: Timestamp) -> Decision {
    if u32::try_from(living.len()).unwrap_or(u32::MAX) >= size {
        return Decision::Adopt { instances: living, rest: Some(Failure::NothingFound) };
    }
    look_ups.note_short(now);
    let rest = look_ups.settled(now).then_some(Failure::NothingFound);
    match (living.is_empty(), rest) {
        (true, Some(failure)) => Decision::Fail(failure),
        (true, None) => Decision::LookUp { after: LOOK_UP_PAUSE },
        (false, rest) => Decision::Adopt { instances: living, rest },
    }
}

#[cfg(test)]
mod tests;
