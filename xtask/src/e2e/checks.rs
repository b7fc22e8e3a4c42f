//! Checks after every scenario: no service makes a request without permission, and each service writes only its own
//! objects.

use crate::harness::audit::Entry;
use crate::harness::world::World;
use anyhow::{Result, bail};
use std::collections::BTreeSet;

const FORBIDDEN: u64 = 403;

impl World {
    /// Checks that run after every scenario.
    pub(super) fn check_always(&mut self) -> Result<()> {
        let mut troubles = self.troubles()?;
        troubles.extend(of_audit(&self.cluster.audit()?));
        if !troubles.is_empty() {
            bail!("{}", troubles.join("; "));
        }
        Ok(())
    }
}

/// Violations in the audit log.
fn of_audit(entries: &[Entry]) -> BTreeSet<String> {
    entries.iter().filter_map(trouble).collect()
}

fn trouble(entry: &Entry) -> Option<String> {
    let service = entry.service()?;
    let what = format!("{} {} {}", entry.verb, entry.resource, entry.name);
    if entry.code == FORBIDDEN {
        return Some(format!("the {service} has no right to {what}"));
    }
    if service == "scheduler" {
        return Some(format!("the scheduler sent a request to the API server: {what}"));
    }
    let own_lease = entry.resource == "leases" && (entry.name == "plimsoll-watcher" || entry.verb == "create");
    if service == "watcher" && entry.writes() && !own_lease {
        return Some(format!("the watcher wrote: {what}"));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn entry(service: &str, verb: &str, resource: &str, name: &str, code: u64) -> Entry {
        Entry {
            time: 0.0,
            user: format!("system:serviceaccount:plimsoll-system:plimsoll-{service}"),
            verb: verb.to_owned(),
            resource: resource.to_owned(),
            name: name.to_owned(),
            code,
            request: Value::Null,
            response: Value::Null,
        }
    }

    #[test]
    fn what_each_may_do_is_no_trouble() {
        let good = [
            entry("watcher", "list", "pods", "", 200),
            entry("watcher", "create", "leases", "", 201),
            entry("watcher", "patch", "leases", "plimsoll-watcher", 200),
            entry("actuator", "create", "nodeclaims", "", 201),
            entry("actuator", "create", "pods/eviction", "p", 429),
        ];
        assert_eq!(of_audit(&good), BTreeSet::new());
    }

    #[test]
    fn what_they_may_not_do_is_named() {
        for (bad, told) in [
            (entry("watcher", "patch", "nodes", "n", 200), "the watcher wrote: patch nodes n"),
            (
                entry("watcher", "update", "leases", "plimsoll-actuator", 200),
                "the watcher wrote: update leases plimsoll-actuator",
            ),
            (entry("scheduler", "list", "pods", "", 200), "the scheduler sent a request to the API server: list pods "),
            (entry("actuator", "get", "secrets", "s", 403), "the actuator has no right to get secrets s"),
        ] {
            assert_eq!(of_audit(&[bad]).into_iter().collect::<Vec<_>>(), [told]);
        }
    }
}
