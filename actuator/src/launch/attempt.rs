//! When a launch is sent again, looked up, adopted or given up (safety rule 3).
//!
//! The danger is an answer that was lost: the instance may be there although we know nothing of it. So a new client token
//! is used only if no sending under the old one can have bought anything.

use crate::ports::{CloudError, FleetAnswer, FleetInstance};
use crate::state::absence::SETTLING;
use plimsoll_model::time::{Millis, Timestamp};

/// EC2 remembers a client token for a limited time; beyond this age a repetition could buy again.
pub const MAX_RESEND_AGE: Millis = Millis::from_seconds(600);
/// "Nothing found" takes this many reads.
pub const MIN_EMPTY_READS: u32 = 2;
/// Attempts of one group after definite failures; then its claims fail and the pods are planned again.
pub const MAX_ATTEMPTS: u32 = 3;
/// First pause before sending again; doubles up to [`MAX_PAUSE`].
const FIRST_PAUSE: Millis = Millis::from_seconds(1);
/// Longest pause: several repetitions fit into [`MAX_RESEND_AGE`].
const MAX_PAUSE: Millis = Millis::from_seconds(60);
/// Pause between look-ups by tag.
const LOOK_UP_PAUSE: Millis = Millis::from_seconds(10);

/// What is known of a group's present attempt. `number` and `started` are durable, on the claims.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attempt {
    /// 1 for the first.
    pub number: u32,
    /// When it was written, before its first sending.
    pub started: Timestamp,
    /// Some sending of this attempt was not answered, or may have been made by a former leader.
    pub maybe_bought: bool,
    /// Sendings so far.
    pub sent: u32,
}

impl Attempt {
    /// A new attempt, just written.
    #[must_use]
    pub fn first(now: Timestamp) -> Self {
        Self { number: 1, started: now, maybe_bought: false, sent: 0 }
    }

    /// An attempt read back from a claim: a former leader may have sent it and lost the answer.
    #[must_use]
    pub fn resumed(number: u32, started: Timestamp) -> Self {
        Self { number, started, maybe_bought: true, sent: 0 }
    }

    /// The attempt after this one, to be written before it is sent.
    #[must_use]
    pub fn raised(self, now: Timestamp) -> Self {
        Self { number: self.number.saturating_add(1), started: now, maybe_bought: false, sent: 0 }
    }

    fn pause(self) -> Millis {
        let doubled = FIRST_PAUSE.0.saturating_mul(1_u64.checked_shl(self.sent.saturating_sub(1).min(16)).unwrap_or(1));
        Millis(doubled.min(MAX_PAUSE.0))
    }
}

/// Why claims of a group fail. A cause backs off by itself (rule 8).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// No offering of the request had capacity.
    InsufficientCapacity,
    /// EC2 refused for another reason.
    Refused {
        /// Error code.
        code: String,
        /// EC2's words.
        message: String,
    },
    /// The request may have been sent, but nothing was bought as far as can be seen.
    NothingFound,
}

/// What to do next about a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Send the stored request, byte for byte, not before that long.
    Send {
        /// Pause.
        after: Millis,
    },
    /// Write the next attempt durably, then send under its token, not before that long.
    RaiseAttempt {
        /// Pause.
        after: Millis,
    },
    /// Do not send: look for instances by the group's tag, not before that long.
    LookUp {
        /// Pause.
        after: Millis,
    },
    /// Match these instances with the claims. `complete`: claims left over fail with the cause; otherwise look again.
    Adopt {
        /// Instances, all alive.
        instances: Vec<FleetInstance>,
        /// What becomes of claims that are left over; `None`: look up again.
        rest: Option<Failure>,
    },
    /// All claims of the group that have no instance fail and are deleted.
    Fail(Failure),
}

/// What to do with an attempt before anything was heard: at first, or by a new leader.
#[must_use]
pub fn first_decision(attempt: Attempt, now: Timestamp) -> Decision {
    if now.since(attempt.started) > MAX_RESEND_AGE {
        return Decision::LookUp { after: Millis(0) };
    }
    Decision::Send { after: Millis(0) }
}

/// What to do after a sending came to `outcome`. `attempt.sent` counts that sending; a lost answer sets `maybe_bought`.
#[must_use]
pub fn after_sending(attempt: &mut Attempt, outcome: Result<FleetAnswer, CloudError>, now: Timestamp) -> Decision {
    attempt.sent = attempt.sent.saturating_add(1);
    match outcome {
        Ok(answer) => after_answer(*attempt, answer),
        Err(CloudError::Ambiguous { .. }) => {
            attempt.maybe_bought = true;
            send_again(*attempt, now)
        }
        Err(CloudError::Throttled | CloudError::Unavailable { .. }) => send_again(*attempt, now),
        Err(CloudError::IdempotentParameterMismatch) => {
            attempt.maybe_bought = true;
            Decision::LookUp { after: Millis(0) }
        }
        // This sending did nothing, but an earlier one under the same token may have.
        Err(_) if attempt.maybe_bought => Decision::LookUp { after: Millis(0) },
        Err(CloudError::InsufficientCapacity { .. }) => Decision::Fail(Failure::InsufficientCapacity),
        Err(CloudError::InvalidRequest { code, message }) => Decision::Fail(Failure::Refused { code, message }),
        Err(CloudError::Denied { message }) => retry(*attempt, "Denied".to_owned(), message),
        Err(CloudError::NotFound { message }) => retry(*attempt, "NotFound".to_owned(), message),
    }
}

fn send_again(attempt: Attempt, now: Timestamp) -> Decision {
    let after = attempt.pause();
    if now.plus(after).since(attempt.started) > MAX_RESEND_AGE {
        return Decision::LookUp { after: Millis(0) };
    }
    Decision::Send { after }
}

fn retry(attempt: Attempt, code: String, message: String) -> Decision {
    if attempt.number >= MAX_ATTEMPTS {
        return Decision::Fail(Failure::Refused { code, message });
    }
    // Later attempts wait longer: each begins with no sending of its own.
    let after = Attempt { sent: attempt.number, ..attempt }.pause();
    Decision::RaiseAttempt { after }
}

/// An answer settles the attempt: EC2 gives the same one for the same token.
fn after_answer(attempt: Attempt, answer: FleetAnswer) -> Decision {
    let capacity = answer.is_capacity_only();
    let refused = answer.errors.into_iter().find(|error| !error.is_capacity() && !error.is_spot_role_missing());
    let failure = match &refused {
        Some(error) if !capacity => Failure::Refused { code: error.code.clone(), message: error.message.clone() },
        _ => Failure::InsufficientCapacity,
    };
    if !answer.instances.is_empty() {
        return Decision::Adopt { instances: answer.instances, rest: Some(failure) };
    }
    match failure {
        Failure::Refused { code, message } => retry(attempt, code, message),
        other => Decision::Fail(other),
    }
}

/// What look-ups by the group's tag have found. Kept in memory: a new leader starts over, which costs two minutes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LookUps {
    /// The first of the reads in a row that found too little.
    pub short_since: Option<Timestamp>,
    /// How many they were.
    pub reads: u32,
}

impl LookUps {
    /// Notes a read that found fewer instances than there are claims.
    pub fn note_short(&mut self, now: Timestamp) {
        self.short_since.get_or_insert(now);
        self.reads = self.reads.saturating_add(1);
    }

    /// Whether reads have settled: several of them, far enough apart.
    #[must_use]
    pub fn settled(&self, now: Timestamp) -> bool {
        self.reads >= MIN_EMPTY_READS && self.short_since.is_some_and(|since| now.since(since) >= SETTLING)
    }
}

/// What to do after a look-up found these living instances for `size` claims.
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
