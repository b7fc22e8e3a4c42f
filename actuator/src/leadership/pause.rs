//! One autoscaler at a time (safety rule 20): while Karpenter's Lease is held, nothing is written.

use crate::authority::CLUSTER_CALL;
use crate::settings::ObjectName;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::{Api, Client};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// The Lease is read so often: a few times in its length.
const EVERY: Duration = Duration::from_secs(5);
/// Length of a Lease that does not tell it.
const USUAL_LENGTH: Duration = Duration::from_secs(15);

/// Says why nothing may be written, for as long as that is so. What is not known counts as held.
pub async fn watch_karpenter(client: Client, lease: Option<ObjectName>, pause: watch::Sender<Option<String>>) {
    let Some(name) = lease else {
        pause.send_replace(None);
        return pause.closed().await;
    };
    let api: Api<Lease> = Api::namespaced(client, &name.namespace);
    let mut seen: Option<(LeaseSpec, Instant)> = None;
    loop {
        let reason = match tokio::time::timeout(CLUSTER_CALL, api.get_opt(&name.name)).await {
            Ok(Ok(lease)) => Ok(held(lease.and_then(|lease| lease.spec), &mut seen, Instant::now())),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err(format!("no answer within {CLUSTER_CALL:?}")),
        };
        match reason {
            Ok(holder) => {
                let reason = holder.map(|holder| format!("Karpenter is running: {holder} holds the lease {name}"));
                pause.send_if_modified(|current| {
                    let differs = *current != reason;
                    if differs {
                        tracing::info!(lease = %name, reason, "whether this autoscaler may write");
                        *current = reason;
                    }
                    differs
                });
            }
            // What was known before stands.
            Err(error) => tracing::warn!(lease = %name, error, "it is not known whether Karpenter is running"),
        }
        tokio::select! {
            () = tokio::time::sleep(EVERY) => {}
            () = pause.closed() => return,
        }
    }
}

/// Who holds it. It is over once it was seen unchanged for its whole length; clocks of others are not compared.
fn held(lease: Option<LeaseSpec>, seen: &mut Option<(LeaseSpec, Instant)>, now: Instant) -> Option<String> {
    let Some(spec) = lease.filter(|spec| spec.holder_identity.as_deref().is_some_and(|holder| !holder.is_empty()))
    else {
        *seen = None;
        return None;
    };
    let since = match seen {
        Some((known, since)) if *known == spec => *since,
        _ => now,
    };
    let length = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok()).map(Duration::from_secs);
    let holder = spec.holder_identity.clone();
    *seen = Some((spec, since));
    holder.filter(|_| now.duration_since(since) < length.unwrap_or(USUAL_LENGTH))
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

    fn lease(holder: &str, renewed: i64) -> Option<LeaseSpec> {
        Some(LeaseSpec {
            holder_identity: Some(holder.to_owned()),
            lease_duration_seconds: Some(15),
            renew_time: Some(MicroTime(jiff::Timestamp::from_second(renewed).unwrap())),
            ..LeaseSpec::default()
        })
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_is_held_until_it_was_seen_unchanged_for_its_length() {
        let (start, mut seen) = (Instant::now(), None);
        let after = |seconds| start + Duration::from_secs(seconds);
        let name = Some("karpenter-0".to_owned());
        assert_eq!(held(lease("karpenter-0", 1), &mut seen, after(0)), name);
        assert_eq!(held(lease("karpenter-0", 9), &mut seen, after(10)), name);
        assert_eq!(held(lease("karpenter-0", 9), &mut seen, after(24)), name);
        assert_eq!(held(lease("karpenter-0", 9), &mut seen, after(25)), None);
        assert_eq!(held(lease("karpenter-0", 30), &mut seen, after(30)), name);
        assert_eq!(held(lease("", 30), &mut seen, after(31)), None);
        assert_eq!(held(None, &mut seen, after(32)), None);
    }
}
