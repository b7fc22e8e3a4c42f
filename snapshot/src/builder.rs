//! Builds the snapshots of a changing cluster, one after the other.

use crate::pod_cache::PodCache;
use crate::problems::Problem;
use crate::{Extra, Objects, build_with};
use plimsoll_model::snapshot::Snapshot;
use plimsoll_model::time::Timestamp;

/// How often a builder checks itself, in milliseconds. The check costs one full build, which takes some seconds for
/// 100,000 pods.
const AUDIT_INTERVAL_MS: i64 = 30 * 60 * 1000;

/// Builds snapshots and remembers what it has read of each pod. The result is the same as that of [`build`].
///
/// ```
/// use plimsoll_snapshot::{Builder, Extra, Objects, build};
///
/// let (objects, extra) = (Objects::default(), Extra::default());
/// let mut builder = Builder::default();
/// assert_eq!(builder.build(&objects, &extra), build(&objects, &extra));
/// ```
///
/// [`build`]: crate::build
#[derive(Debug, Default)]
pub struct Builder {
    pods: PodCache,
    last_audit: Option<Timestamp>,
    failed_audits: u64,
}

impl Builder {
    /// Builds the snapshot of `objects`. Also returns the objects that were left out and the fields that were ignored.
    /// Only pods whose object has changed since the previous call are read.
    #[must_use]
    pub fn build(&mut self, objects: &Objects, extra: &Extra) -> (Snapshot, Vec<Problem>) {
        let built = build_with(objects, extra, &mut self.pods);
        let last_audit = *self.last_audit.get_or_insert(extra.now);
        if extra.now.0.saturating_sub(last_audit.0) < AUDIT_INTERVAL_MS {
            return built;
        }
        self.last_audit = Some(extra.now);
        let full = crate::build(objects, extra);
        if full != built {
            self.failed_audits = self.failed_audits.saturating_add(1);
            self.pods = PodCache::default();
        }
        full
    }

    /// How often an audit has found a snapshot that differs from a full build. Anything but 0 is a bug.
    #[must_use]
    pub fn failed_audits(&self) -> u64 {
        self.failed_audits
    }
}

#[cfg(test)]
mod tests;
