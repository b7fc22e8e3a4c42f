//! The loop over node classes.

use super::status::{self, Memory};
use super::{finalize, hash, profile};
use crate::context::Context;
use crate::drive::{self, Again, Candidate};
use crate::io::{Part, WriteError};
use crate::stores::Kind;
use parking_lot::Mutex;
use plimsoll_api::EC2NodeClass;
use plimsoll_model::identity::ContentHasher;
use plimsoll_model::names::annotation;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// While another autoscaler is at work nothing is written; its end is noticed after this time at the latest.
const PAUSED: Duration = Duration::from_secs(10);
/// Time between two looks for instance profiles that nobody uses.
const PROFILES_PERIOD: Duration = Duration::from_secs(1800);
/// A profile is left alone for so long after it was last used: an instance may be about to be launched with it.
const PROFILE_PROTECTED: Duration = Duration::from_secs(3600);

type Memories = Arc<Mutex<BTreeMap<String, Memory>>>;

/// Keeps the status of all node classes up to date, and ends those that are deleted.
pub async fn run(context: Context, stop: CancellationToken) {
    let memories = Memories::default();
    let known = Arc::clone(&memories);
    let list = move |context: &Context| {
        let classes = context.stores.classes.state();
        let uids: BTreeSet<&str> = classes.iter().filter_map(|class| class.metadata.uid.as_deref()).collect();
        known.lock().retain(|uid, _| uids.contains(uid.as_str()));
        classes.iter().map(|class| candidate(context, Arc::clone(class))).collect()
    };
    let work_context = context.clone();
    let work = move |class: Arc<EC2NodeClass>| {
        let (context, memories) = (work_context.clone(), Arc::clone(&memories));
        async move { reconcile(&context, &class, &memories).await }
    };
    let kinds = [Kind::EC2NodeClass, Kind::NodeClaim];
    tokio::join!(drive::drive("node_class", &context, &stop, &kinds, list, work), collect_profiles(&context, &stop),);
}

/// What the class is looked at by: what users write, and while it is being deleted the claims that hold it. Not its status,
/// which is our own.
fn candidate(context: &Context, class: Arc<EC2NodeClass>) -> Candidate<Arc<EC2NodeClass>> {
    let metadata = &class.metadata;
    let mut hasher = ContentHasher::new("node class");
    hasher.text(metadata.uid.as_deref().unwrap_or_default());
    hasher.part(&metadata.generation.unwrap_or(0).to_le_bytes());
    if metadata.deletion_timestamp.is_some() {
        hasher.part(&(finalize::claims_of(context, &class).len() as u64).to_le_bytes());
    }
    let version = u64::from_str_radix(&hasher.hex(16), 16).ok();
    Candidate { key: metadata.name.clone().unwrap_or_default(), version, input: class }
}

async fn reconcile(context: &Context, class: &EC2NodeClass, memories: &Memories) -> Result<Again, WriteError> {
    if context.fence.paused().is_some() {
        return Ok(Some(PAUSED));
    }
    // The store may lag behind what was written a moment ago; the next change wakes us again.
    if class.metadata.deletion_timestamp.is_some() {
        let done = finalize::finalize(context, class).await?;
        return Ok((!done).then_some(PAUSED));
    }
    hash::mark(context, class).await?;
    let uid = class.metadata.uid.clone().unwrap_or_default();
    let mut memory = memories.lock().get(&uid).cloned().unwrap_or_default();
    let refreshed = status::refresh(context, class, &mut memory).await;
    let next = memory.next();
    let written = context
        .writes
        .update(class, Part::Status, |class| {
            class.status = Some(refreshed.clone());
        })
        .await?;
    // Only what was written counts as looked up.
    if written.is_there() {
        memories.lock().insert(uid, memory);
    }
    Ok(Some(next))
}

/// Deletes, from time to time, instance profiles that no class and no claim uses any more.
async fn collect_profiles(context: &Context, stop: &CancellationToken) {
    let mut last_used: BTreeMap<String, Instant> = BTreeMap::new();
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = tokio::time::sleep(PROFILES_PERIOD) => {}
        }
        let used = used_profiles(context);
        let now = Instant::now();
        last_used.extend(used.iter().map(|name| (name.clone(), now)));
        let result = async {
            let unused = profile::unused(context, &used).await?;
            // One that was never seen in use may be a former leader's: its time begins now.
            let protected =
                |name: &String| now.duration_since(*last_used.get(name).unwrap_or(&now)) < PROFILE_PROTECTED;
            let (kept, gone): (Vec<String>, Vec<String>) = unused.into_iter().partition(protected);
            profile::delete(context, &gone).await?;
            Ok::<_, WriteError>((kept, gone))
        };
        match result.await {
            Ok((kept, gone)) => {
                for name in kept {
                    last_used.entry(name).or_insert(now);
                }
                last_used.retain(|name, _| !gone.contains(name));
            }
            Err(error) => tracing::warn!(%error, "unused instance profiles are left for now"),
        }
    }
}

/// Profiles of classes, and those that claims were launched with.
fn used_profiles(context: &Context) -> BTreeSet<String> {
    let classes = context.stores.classes.state();
    let claims = context.stores.claims.state();
    let of_classes = classes.iter().filter_map(|class| class.status.as_ref()?.instance_profile.clone());
    let of_claims = claims
        .iter()
        .filter_map(|claim| claim.metadata.annotations.as_ref()?.get(annotation::INSTANCE_PROFILE_NAME).cloned());
    of_classes.chain(of_claims).collect()
}
