//! Writing a claim until it is known whether it is there (safety rule 2).
//!
//! A create whose answer is lost may have been carried out, or may still be. Whoever takes it for "not written" buys the
//! group again later. So it is repeated, which is harmless since the name derives from the action: the API server either
//! writes the claim or says that the name is taken.

use super::record::annotation;
use crate::fencing::NotAllowed;
use crate::io::may_have_happened;
use crate::launch::launcher::Launcher;
use plimsoll_api::NodeClaim;
use plimsoll_model::names::annotation as key;
use std::time::Duration;
use tokio::time::Instant;

/// How long a create that was not answered may still take effect: longer than kube-apiserver works on a request (its
/// `--request-timeout` is 60 s by default).
const MAY_LAND: Duration = Duration::from_secs(70);
/// Repetitions end after so long without an answer. Reservations hold the pods meanwhile. A claim that appears later is known
/// to be late by the ledger, and is never bought for.
const GIVE_UP: Duration = Duration::from_secs(120);
/// Tries where each is refused for a moment only (429): nothing was written, and the pods can be planned again.
const MAX_REFUSED: u32 = 3;
/// First pause between tries; doubles up to [`LAST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LAST_PAUSE: Duration = Duration::from_secs(5);

/// Why a claim was not written.
#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    /// The gate was shut before anything was sent.
    #[error(transparent)]
    NotAllowed(#[from] NotAllowed),
    /// The API server refused.
    #[error("NodeClaim {name}: {message}")]
    Refused {
        /// The claim.
        name: String,
        /// The API server's words.
        message: String,
    },
    /// Another claim has its name.
    #[error("NodeClaim {0} exists and was made for something else")]
    Taken(String),
    /// It may be there: no try was answered, or the lease was lost meanwhile.
    #[error("NodeClaim {name}: it is not known whether it was written: {message}")]
    Unknown {
        /// The claim.
        name: String,
        /// Of the last try.
        message: String,
    },
}

/// What one try came to.
enum Try {
    /// It is there.
    Written(Box<NodeClaim>),
    /// It was not written by this try, for good.
    Refused(CreateError),
    /// It was not written by this try; the next one may.
    NotNow(CreateError),
    /// It may have been written, or may still be.
    Unanswered(String),
}

/// Writes a claim. One of that name with the same action and group is this one, written before.
///
/// # Errors
/// It was not written; or, if [`CreateError::Unknown`], it is not known.
pub async fn create(deps: &Launcher, claim: &NodeClaim) -> Result<NodeClaim, CreateError> {
    let name = claim.metadata.name.clone().unwrap_or_default();
    let started = Instant::now();
    let mut unanswered: Option<(Instant, String)> = None;
    let (mut refused, mut pause) = (0_u32, FIRST_PAUSE);
    loop {
        match attempt(deps, claim, &name).await {
            Try::Written(written) => return Ok(*written),
            Try::Unanswered(message) => unanswered = Some((Instant::now(), message)),
            Try::Refused(error) => {
                // An earlier try may still take effect: only a read after its time says that it has not.
                let Some((last, _)) = &unanswered else { return Err(error) };
                match read(deps, claim, &name).await {
                    Ok(Some(there)) => return Ok(there),
                    Ok(None) if last.elapsed() >= MAY_LAND => return Err(error),
                    Err(Unread::Taken) => return Err(CreateError::Taken(name)),
                    Ok(None) | Err(Unread::NotAnswered(_)) => {}
                }
            }
            Try::NotNow(error) => {
                refused = refused.saturating_add(1);
                if unanswered.is_none() && refused >= MAX_REFUSED {
                    return Err(error);
                }
            }
        }
        if let Some((_, message)) = &unanswered
            && (started.elapsed() > GIVE_UP || deps.fence.lost().is_cancelled())
        {
            return Err(CreateError::Unknown { name, message: message.clone() });
        }
        tokio::time::sleep(pause).await;
        pause = pause.saturating_mul(2).min(LAST_PAUSE);
    }
}

async fn attempt(deps: &Launcher, claim: &NodeClaim, name: &str) -> Try {
    let refused = |message: String| CreateError::Refused { name: name.to_owned(), message };
    match deps.writes.create_claim(claim).await {
        Ok(Ok(written)) => Try::Written(Box::new(written)),
        Ok(Err(error)) if may_have_happened(&error) => Try::Unanswered(error.to_string()),
        Ok(Err(kube::Error::Api(status))) => match status.code {
            409 => match read(deps, claim, name).await {
                Ok(Some(there)) => Try::Written(Box::new(there)),
                // It went between the two calls.
                Ok(None) => Try::NotNow(refused(status.message.clone())),
                Err(Unread::Taken) => Try::Refused(CreateError::Taken(name.to_owned())),
                Err(Unread::NotAnswered(message)) => Try::Unanswered(message),
            },
            429 => Try::NotNow(refused(status.message.clone())),
            _ => Try::Refused(refused(status.message.clone())),
        },
        Ok(Err(error)) => Try::Refused(refused(error.to_string())),
        Err(error @ NotAllowed::TimedOut(_)) => Try::Unanswered(error.to_string()),
        Err(error) => Try::NotNow(error.into()),
    }
}

/// Why a claim of that name is not this one, as far as is known.
enum Unread {
    Taken,
    NotAnswered(String),
}

/// The claim as it is in the cluster; `None` if there is none of its name.
async fn read(deps: &Launcher, claim: &NodeClaim, name: &str) -> Result<Option<NodeClaim>, Unread> {
    match deps.reads.claim(name).await {
        Ok(Some(there)) if is_same(&there, claim) => Ok(Some(there)),
        Ok(Some(_)) => Err(Unread::Taken),
        Ok(None) => Ok(None),
        Err(error) => Err(Unread::NotAnswered(error.to_string())),
    }
}

fn is_same(there: &NodeClaim, claim: &NodeClaim) -> bool {
    let same = |key| annotation(there, key).is_some() && annotation(there, key) == annotation(claim, key);
    there.metadata.deletion_timestamp.is_none() && same(key::ACTION_ID) && same(key::LAUNCH_GROUP)
}
