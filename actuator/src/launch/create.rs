//! Creates the claims of a group, and retries until it is known whether each exists (safety rule 2).
//!
//! A create without a response may have been performed, or may still be. If it counted as not written, the group would
//! be launched again later. So the create is repeated. This is safe since the name is derived from the action: the API
//! server either creates the claim or reports that it exists.

use super::LaunchGroup;
use super::attempt::Attempt;
use super::record::{self, annotation, primary_annotations};
use crate::fencing::NotAllowed;
use crate::io::may_have_happened;
use crate::launch::launcher::Launcher;
use crate::ledger::Ledger;
use futures::StreamExt;
use plimsoll_api::NodeClaim;
use plimsoll_model::names::annotation as key;
use std::time::Duration;
use tokio::time::Instant;

/// Concurrent writes per group, which mostly wait for the API server.
pub(super) const WRITES_AT_ONCE: usize = 16;
/// How long a create without a response may still take effect: longer than kube-apiserver processes a request (its
/// `--request-timeout` is 60 s by default).
const MAY_TAKE_EFFECT: Duration = Duration::from_secs(70);
/// How long a create without a response is retried. The pods stay reserved meanwhile. The ledger recognizes a claim
/// that appears later as late, and nothing is launched for it.
const RETRY_PERIOD: Duration = Duration::from_secs(120);
/// Attempts if each is rate limited (429): nothing was written, and the pods can be planned again.
const MAX_REFUSED: u32 = 3;
/// First pause between attempts. Doubles up to [`LAST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LAST_PAUSE: Duration = Duration::from_secs(5);

/// Why a claim was not created.
#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    /// The fence refused before any request was sent.
    #[error(transparent)]
    NotAllowed(#[from] NotAllowed),
    /// The API server rejected the claim.
    #[error("NodeClaim {name}: {message}")]
    Refused {
        /// The claim.
        name: String,
        /// The API server's message.
        message: String,
    },
    /// A different claim has this name.
    #[error("NodeClaim {0} already exists for another action")]
    Taken(String),
    /// The claim may exist: no attempt got a response, or the lease was lost meanwhile.
    #[error("NodeClaim {name}: unknown whether it was created: {message}")]
    Unknown {
        /// The claim.
        name: String,
        /// Error of the last attempt.
        message: String,
    },
}

/// Result of one attempt.
enum CreateAttempt {
    /// The claim exists.
    Written(Box<NodeClaim>),
    /// Not written by this attempt, and a retry would fail too.
    Refused(CreateError),
    /// Not written by this attempt, but a retry may succeed.
    NotNow(CreateError),
    /// No response: the claim may have been written, or may still be.
    Unanswered(String),
}

/// Writes the claims of a group, the primary claim last: if it exists, all claims exist (see [`super::record`]).
///
/// # Errors
/// A claim was not written; for [`CreateError::Unknown`], this is not known.
pub(super) async fn write_claims(
    deps: &Launcher,
    group: &mut LaunchGroup,
    attempt: &Attempt,
) -> Result<(), CreateError> {
    let Some((primary_name, mut primary)) = group.claims.pop_first() else { return Ok(()) };
    let secondary = std::mem::take(&mut group.claims);
    let writes = secondary.into_iter().map(|(name, claim)| async move {
        let result = create(deps, &claim).await;
        (name, claim, result)
    });
    let mut writes = futures::stream::iter(writes).buffer_unordered(WRITES_AT_ONCE);
    let mut failure = None;
    while let Some((name, mut claim, result)) = writes.next().await {
        match result {
            Ok(created) => {
                count_created(deps, &created);
                claim = created;
            }
            Err(error) => failure = Some(error),
        }
        group.claims.insert(name, claim);
    }
    if failure.is_none() {
        primary.metadata.annotations.get_or_insert_default().extend(primary_annotations(attempt));
        match create(deps, &primary).await {
            Ok(created) => {
                count_created(deps, &created);
                primary = created;
            }
            Err(error) => failure = Some(error),
        }
    }
    group.claims.insert(primary_name, primary);
    failure.map_or(Ok(()), Err)
}

/// Counts a created claim, with the reason of the removal that it replaces a node for.
fn count_created(deps: &Launcher, claim: &NodeClaim) {
    let replaces = |ledger: &Ledger| {
        let action = record::action(claim)?;
        let removal = ledger.removals().find(|(_, removal)| removal.replacements.contains(&action));
        removal.map(|(_, removal)| removal.reason)
    };
    deps.metrics.claims.created(claim, deps.ledger.read(replaces));
}

/// Creates a claim. An existing claim with the same name, action and group is the same one, written before.
///
/// # Errors
/// The claim was not written; for [`CreateError::Unknown`], this is not known.
async fn create(deps: &Launcher, claim: &NodeClaim) -> Result<NodeClaim, CreateError> {
    let name = claim.metadata.name.clone().unwrap_or_default();
    let started = Instant::now();
    let mut unanswered: Option<(Instant, String)> = None;
    let (mut refused, mut pause) = (0_u32, FIRST_PAUSE);
    loop {
        match attempt(deps, claim, &name).await {
            CreateAttempt::Written(created) => return Ok(*created),
            CreateAttempt::Unanswered(message) => unanswered = Some((Instant::now(), message)),
            CreateAttempt::Refused(error) => {
                // An earlier attempt may still take effect. Only a read after MAY_TAKE_EFFECT proves the opposite.
                let Some((last, _)) = &unanswered else { return Err(error) };
                match read(deps, claim, &name).await {
                    Ok(Some(existing)) => return Ok(existing),
                    Ok(None) if last.elapsed() >= MAY_TAKE_EFFECT => return Err(error),
                    Err(ReadFailure::Taken) => return Err(CreateError::Taken(name)),
                    Ok(None) | Err(ReadFailure::NotAnswered(_)) => {}
                }
            }
            CreateAttempt::NotNow(error) => {
                refused = refused.saturating_add(1);
                if unanswered.is_none() && refused >= MAX_REFUSED {
                    return Err(error);
                }
            }
        }
        if let Some((_, message)) = &unanswered
            && (started.elapsed() > RETRY_PERIOD || deps.fence.lost().is_cancelled())
        {
            return Err(CreateError::Unknown { name, message: message.clone() });
        }
        tokio::time::sleep(pause).await;
        pause = pause.saturating_mul(2).min(LAST_PAUSE);
    }
}

async fn attempt(deps: &Launcher, claim: &NodeClaim, name: &str) -> CreateAttempt {
    let refused = |message: String| CreateError::Refused { name: name.to_owned(), message };
    match deps.writes.create_claim(claim).await {
        Ok(Ok(created)) => CreateAttempt::Written(Box::new(created)),
        Ok(Err(error)) if may_have_happened(&error) => CreateAttempt::Unanswered(error.to_string()),
        Ok(Err(kube::Error::Api(status))) => match status.code {
            409 => match read(deps, claim, name).await {
                Ok(Some(existing)) => CreateAttempt::Written(Box::new(existing)),
                // The claim was deleted between the two calls.
                Ok(None) => CreateAttempt::NotNow(refused(status.message.clone())),
                Err(ReadFailure::Taken) => CreateAttempt::Refused(CreateError::Taken(name.to_owned())),
                Err(ReadFailure::NotAnswered(message)) => CreateAttempt::Unanswered(message),
            },
            429 => CreateAttempt::NotNow(refused(status.message.clone())),
            _ => CreateAttempt::Refused(refused(status.message.clone())),
        },
        Ok(Err(error)) => CreateAttempt::Refused(refused(error.to_string())),
        Err(error @ NotAllowed::TimedOut(_)) => CreateAttempt::Unanswered(error.to_string()),
        Err(error) => CreateAttempt::NotNow(error.into()),
    }
}

/// Why the existing claim could not be compared.
enum ReadFailure {
    Taken,
    NotAnswered(String),
}

/// The claim in the cluster, if one with its name exists.
async fn read(deps: &Launcher, claim: &NodeClaim, name: &str) -> Result<Option<NodeClaim>, ReadFailure> {
    match deps.reads.claim(name).await {
        Ok(Some(existing)) if is_same(&existing, claim) => Ok(Some(existing)),
        Ok(Some(_)) => Err(ReadFailure::Taken),
        Ok(None) => Ok(None),
        Err(error) => Err(ReadFailure::NotAnswered(error.to_string())),
    }
}

fn is_same(existing: &NodeClaim, claim: &NodeClaim) -> bool {
    let same = |key| annotation(existing, key).is_some() && annotation(existing, key) == annotation(claim, key);
    existing.metadata.deletion_timestamp.is_none() && same(key::ACTION_ID) && same(key::LAUNCH_GROUP)
}
