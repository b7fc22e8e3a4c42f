//! Holders of a Lease over time, from the writes to it.

use crate::harness::audit::Entry;
use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use std::collections::BTreeSet;

/// A successful write to a Lease.
#[derive(Debug)]
struct Term<'a> {
    time: f64,
    /// Empty after its holder released it.
    holder: &'a str,
    /// Time for which the holder may lead without another write.
    seconds: f64,
}

/// History of a Lease.
#[derive(Debug, PartialEq)]
pub(super) struct Leadership {
    /// All holders.
    pub(super) holders: BTreeSet<String>,
    /// Longest time without a holder, in seconds.
    pub(super) gap: f64,
    /// Duration of the Lease, in seconds.
    pub(super) lease: f64,
}

/// Reads the writes to one Lease.
///
/// # Errors
/// If the Lease never had a holder, or a write cannot be parsed.
pub(super) fn of(entries: &[Entry], lease: &str) -> Result<Leadership> {
    let writes = entries.iter().filter(|entry| entry.resource == "leases" && entry.writes() && entry.code < 300);
    let writes = writes.filter(|entry| entry.name == lease || entry.request["metadata"]["name"] == lease);
    let mut terms = writes.map(term).collect::<Result<Vec<_>>>()?;
    // The log is in the order of the responses.
    terms.sort_by(|a, b| a.time.total_cmp(&b.time));
    let held: Vec<_> = terms.iter().filter(|term| !term.holder.is_empty()).collect();
    ensure!(!held.is_empty(), "the Lease {lease} never had a holder");
    let gaps = terms.windows(2).map(|pair| gap(&pair[0], &pair[1]));
    Ok(Leadership {
        holders: held.iter().map(|term| term.holder.to_owned()).collect(),
        gap: gaps.fold(0.0, f64::max),
        lease: held.iter().map(|term| term.seconds).fold(0.0, f64::max),
    })
}

fn term(entry: &Entry) -> Result<Term<'_>> {
    let spec = &entry.request["spec"];
    let holder = spec.get("holderIdentity").map_or("", |holder| holder.as_str().unwrap_or_default());
    let seconds = spec["leaseDurationSeconds"].as_f64();
    let seconds = seconds.with_context(|| format!("a write to the Lease {} says no duration: {spec}", entry.name))?;
    ensure!(spec.is_object(), "a write to the Lease {} has no spec: {}", entry.name, Value::clone(&entry.request));
    Ok(Term { time: entry.time, holder, seconds })
}

/// Time from the end of one term to the start of the next.
fn gap(previous: &Term<'_>, next: &Term<'_>) -> f64 {
    let end = if previous.holder.is_empty() { previous.time } else { previous.time + previous.seconds };
    (next.time - end).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn write(time: f64, holder: &str, seconds: u32, code: u64) -> Entry {
        Entry {
            time,
            user: "system:serviceaccount:plimsoll-system:plimsoll-watcher".to_owned(),
            verb: "update".to_owned(),
            resource: "leases".to_owned(),
            name: "plimsoll-watcher".to_owned(),
            code,
            request: json!({"spec": {"holderIdentity": holder, "leaseDurationSeconds": seconds}}),
            response: Value::Null,
        }
    }

    #[test]
    fn a_gap_lasts_from_release_or_expiry_to_the_next_holder() -> Result<()> {
        let gap_is = |seen: &Leadership, gap: f64| (seen.gap - gap).abs() < 1e-6;
        let renewed = [write(0.0, "a", 15, 200), write(2.0, "a", 15, 200)];
        assert!(gap_is(&of(&renewed, "plimsoll-watcher")?, 0.0));
        let released =
            [write(0.0, "a", 15, 200), write(2.0, "", 1, 200), write(3.5, "c", 15, 409), write(4.0, "b", 15, 200)];
        let seen = of(&released, "plimsoll-watcher")?;
        assert!(gap_is(&seen, 2.0) && (seen.lease - 15.0).abs() < 1e-6, "{seen:?}");
        assert_eq!(seen.holders, ["a", "b"].map(str::to_owned).into());
        let expired = [write(0.0, "a", 15, 200), write(20.0, "b", 15, 200)];
        assert!(gap_is(&of(&expired, "plimsoll-watcher")?, 5.0));
        assert!(of(&released, "plimsoll-actuator").is_err(), "another Lease");
        Ok(())
    }
}
