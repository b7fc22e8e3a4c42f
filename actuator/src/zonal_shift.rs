//! Follows the zonal shifts of the cluster. During a shift, nothing is launched in its zone, and no instance there is
//! terminated, tagged or given up as gone.

use crate::clock::Timestamped;
use crate::events::{Note, Recorder, object, reason};
use crate::fencing::Fence;
use crate::io::CloudReads;
use crate::pacing::interval_passed;
use crate::ports::{CloudError, ClusterDescription};
use crate::state::zonal_shifts::ZonalShifts;
use crate::stores::Stores;
use plimsoll_model::time::Timestamp;
use plimsoll_runtime::clock::Clock;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Interval between reads, as in Karpenter.
const INTERVAL: Duration = Duration::from_secs(30);
/// Interval at which Events about shifts that last are offered again. The recorder decides whether one is written.
const REPEAT: Duration = Duration::from_secs(900);

/// Zonal shifts cannot be followed, although they are enabled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ZonalShiftError {
    /// ARC knows clusters by their ARN.
    #[error(
        "--enable-zonal-shift: the ARN of cluster {cluster} is not known: permit eks:DescribeCluster, or disable it: \
         {reason}"
    )]
    Arn {
        /// Name of the cluster.
        cluster: String,
        /// Why EKS did not tell it.
        reason: String,
    },
    /// The shifts cannot be read.
    #[error(
        "--enable-zonal-shift: zonal shifts of {arn} are not known: permit arc-zonal-shift:GetManagedResource, enable \
         zonal shift for the EKS cluster, or disable it: {reason}"
    )]
    Unreadable {
        /// ARN of the cluster.
        arn: String,
        /// ARC's answer.
        reason: CloudError,
    },
}

/// The ARN of a cluster, from the answer of EKS.
///
/// # Errors
/// EKS did not tell it.
pub fn cluster_arn(
    cluster: &str,
    described: Result<ClusterDescription, CloudError>,
) -> Result<String, ZonalShiftError> {
    let error = |reason| ZonalShiftError::Arn { cluster: cluster.to_owned(), reason };
    let described = described.map_err(|reason| error(reason.to_string()))?;
    described.arn.ok_or_else(|| error("EKS does not tell it".to_owned()))
}

/// Judges the first answer of ARC. An outage of ARC is no error: the shifts are read again, and launches go on.
///
/// # Errors
/// ARC refuses to answer.
pub fn check<T>(arn: &str, answer: Result<T, CloudError>) -> Result<(), ZonalShiftError> {
    match answer {
        Err(reason) if !reason.is_transient() => Err(ZonalShiftError::Unreadable { arn: arn.to_owned(), reason }),
        _ => Ok(()),
    }
}

/// Reads the shifts.
#[derive(Debug, Clone)]
pub struct Follower {
    /// Reads of the cloud.
    pub cloud_reads: CloudReads,
    /// The shifts.
    pub shifts: ZonalShifts,
    /// Time.
    pub clock: Clock,
}

impl Follower {
    /// Reads the shifts once. If that fails, known shifts count until they expire. `failing` is whether the last read
    /// failed: only a change is logged, since an outage can last hours.
    pub async fn read(&self, failing: &mut bool) {
        match self.cloud_reads.zonal_shifts().await {
            Ok(answer) => {
                if std::mem::take(failing) {
                    tracing::info!("zonal shifts are read again");
                }
                self.shifts.replace(&answer, self.clock.timestamp());
            }
            Err(error) => {
                if !std::mem::replace(failing, true) {
                    tracing::warn!(%error, "zonal shifts not read, known ones count until they expire; retrying");
                }
                self.shifts.expire(self.clock.timestamp());
            }
        }
    }

    /// Reads the shifts until `stop`. Standbys read too, so that a new leader knows them at once.
    pub async fn run(self, mut failing: bool, stop: CancellationToken) {
        loop {
            let end = self.shifts.next_end().map(|end| until(end, self.clock.timestamp()));
            if !interval_passed(&stop, end.unwrap_or(INTERVAL).min(INTERVAL)).await {
                return;
            }
            self.read(&mut failing).await;
        }
    }
}

fn until(end: Timestamp, now: Timestamp) -> Duration {
    Duration::from_millis(end.since(now).0).max(Duration::from_secs(1))
}

/// Reports the shifts as Events on NodePools.
#[derive(Clone)]
pub struct Report {
    /// Watch cache of the cluster.
    pub stores: Stores,
    /// The shifts.
    pub shifts: ZonalShifts,
    /// Events on objects.
    pub events: Recorder,
    /// Fence of the term.
    pub fence: Fence,
    /// Time.
    pub clock: Clock,
}

/// Reports until `stop`.
pub async fn report(deps: Report, stop: CancellationToken) {
    deps.stores.wait_ready().await;
    let mut changes = deps.shifts.subscribe();
    let mut active: BTreeSet<String> = BTreeSet::new();
    loop {
        changes.mark_unchanged();
        let shifts = deps.shifts.ids(deps.clock.timestamp());
        deps.publish(&active, &shifts);
        active = shifts.into_keys().collect();
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            result = changes.changed() => if result.is_err() { return },
            () = tokio::time::sleep(REPEAT) => {}
        }
    }
}

impl Report {
    fn publish(&self, before: &BTreeSet<String>, shifts: &BTreeMap<String, Timestamp>) {
        let cleared: Vec<&String> = before.iter().filter(|id| !shifts.contains_key(*id)).collect();
        for id in shifts.keys().filter(|id| !before.contains(*id)) {
            tracing::warn!(zone_id = id, "zonal shift is active");
        }
        for id in &cleared {
            tracing::info!(zone_id = id, "zonal shift is over");
        }
        if self.fence.check_admission().is_err() {
            return;
        }
        for pool in self.stores.pools.state() {
            for id in shifts.keys() {
                let message = format!("Zonal shift away from {id} is active: no nodes are launched or removed there");
                let note = Note::warning(object(&*pool), reason::ZONAL_SHIFT_ACTIVE, message);
                self.events.publish(note.with_long_window());
            }
            for id in &cleared {
                let message = format!("Zonal shift away from {id} is over");
                self.events.publish(Note::normal(object(&*pool), reason::ZONAL_SHIFT_CLEARED, message));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn denied() -> CloudError {
        CloudError::Denied { message: "AccessDeniedException: not yours".to_owned() }
    }

    #[test]
    fn zonal_shifts_need_the_arn_and_an_answer_but_no_answer_at_once() {
        let arn = "arn:aws:eks:us-east-1:111122223333:cluster/prod".to_owned();
        let described = ClusterDescription { arn: Some(arn.clone()), ..ClusterDescription::default() };
        assert_eq!(cluster_arn("prod", Ok(described)), Ok(arn.clone()));
        for answer in [Err(denied()), Ok(ClusterDescription::default())] {
            let error = cluster_arn("prod", answer).unwrap_err().to_string();
            assert!(error.contains("eks:DescribeCluster") && error.contains("prod"), "{error}");
        }
        assert_eq!(check(&arn, Ok(())), Ok(()));
        assert_eq!(check::<()>(&arn, Err(CloudError::Throttled)), Ok(()), "an outage is no mistake");
        let unmanaged = CloudError::NotFound { message: "no such resource".to_owned() };
        for refused in [denied(), unmanaged] {
            let error = check::<()>(&arn, Err(refused)).unwrap_err().to_string();
            assert!(error.contains("arc-zonal-shift:GetManagedResource") && error.contains(&arn), "{error}");
        }
    }
}
