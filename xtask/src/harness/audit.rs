//! The audit log of the API server: requests with their users and times in microseconds.

use anyhow::{Context as _, Result};
use serde_json::Value;
use std::path::Path;

/// Audit policy: writes to claims with request and response, leaders, kube-scheduler's conditions of pods, bindings,
/// all requests of Plimsoll, and changes of pods and nodes.
pub(crate) const POLICY: &str = r#"
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: RequestResponse
  verbs: [create, update, patch, delete]
  resources:
  - {group: karpenter.sh, resources: [nodeclaims, nodeclaims/status]}
- level: Request
  namespaces: [plimsoll-system]
  verbs: [create, update, patch]
  resources:
  - {group: coordination.k8s.io, resources: [leases]}
- level: Request
  users: ["system:kube-scheduler"]
  verbs: [update, patch]
  resources:
  - {group: "", resources: [pods/status]}
- level: Request
  verbs: [create]
  resources:
  - {group: "", resources: [pods/binding]}
- level: Metadata
  userGroups: ["system:serviceaccounts:plimsoll-system"]
- level: Metadata
  verbs: [create, update, patch, delete]
  resources:
  - {group: "", resources: [pods, pods/eviction, pods/binding, nodes]}
- level: None
"#;

/// One completed request.
#[derive(Debug)]
pub(crate) struct Entry {
    /// Time of the response, in seconds since 1970.
    pub(crate) time: f64,
    pub(crate) user: String,
    pub(crate) verb: String,
    /// Such as `pods` or `pods/eviction`.
    pub(crate) resource: String,
    pub(crate) name: String,
    pub(crate) code: u64,
    pub(crate) request: Value,
    pub(crate) response: Value,
}

impl Entry {
    /// Short name of Plimsoll's service that sent the request, such as `watcher`.
    pub(crate) fn service(&self) -> Option<&str> {
        self.user.strip_prefix("system:serviceaccount:plimsoll-system:plimsoll-")
    }

    /// Whether the request changes state.
    pub(crate) fn writes(&self) -> bool {
        !matches!(self.verb.as_str(), "get" | "list" | "watch")
    }
}

/// Reads the log; a line that is still being written is skipped.
pub(crate) fn read(path: &Path) -> Result<Vec<Entry>> {
    let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().map(entry).filter(|e| e.as_ref().map_or(true, |e| e.code != 0)).collect()
}

fn entry(line: &str) -> Result<Entry> {
    let mut event: Value = serde_json::from_str(line).context("a line of the audit log is not JSON")?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let object = &event["objectRef"];
    let resource = match object["subresource"].as_str() {
        Some(sub) => format!("{}/{sub}", text(&object["resource"])),
        None => text(&object["resource"]),
    };
    let stamp = text(&event["stageTimestamp"]);
    let time: jiff::Timestamp = stamp.parse().with_context(|| format!("audit log: {stamp:?} is not a time"))?;
    Ok(Entry {
        time: time.as_duration().as_secs_f64(),
        user: text(&event["user"]["username"]),
        verb: text(&event["verb"]),
        resource,
        name: text(&event["objectRef"]["name"]),
        code: event["responseStatus"]["code"].as_u64().unwrap_or(0),
        request: event["requestObject"].take(),
        response: event["responseObject"].take(),
    })
}

/// Time at which kube-scheduler first wrote, successfully, that the pod is unschedulable.
pub(crate) fn unschedulable_since(entries: &[Entry], pod: &str) -> Option<f64> {
    entries
        .iter()
        .find(|e| e.resource == "pods/status" && e.name == pod && e.code < 300 && says_unschedulable(&e.request))
        .map(|e| e.time)
}

fn says_unschedulable(patch: &Value) -> bool {
    let conditions = patch["status"]["conditions"].as_array();
    conditions.is_some_and(|all| all.iter().any(|c| c["type"] == "PodScheduled" && c["reason"] == "Unschedulable"))
}

/// Number of pods of a Deployment that the node controller deleted. It does so if a pod is bound at the moment when the
/// taint of an unregistered node is removed, because its cache still has the taint.
pub(crate) fn deleted_by_node_controller(entries: &[Entry], app: &str) -> usize {
    let deleted = |entry: &&Entry| {
        (entry.verb.as_str(), entry.resource.as_str(), entry.code) == ("delete", "pods", 200)
            && entry.user == "system:serviceaccount:kube-system:node-controller"
            && entry.name.strip_prefix(app).is_some_and(|rest| rest.starts_with('-'))
    };
    entries.iter().filter(deleted).count()
}

/// UIDs of the claims that have had the condition `Launched`.
pub(crate) fn launched_claims<'a>(entries: impl IntoIterator<Item = &'a Entry>) -> std::collections::BTreeSet<String> {
    let launched = |claim: &Value| {
        let conditions = claim["status"]["conditions"].as_array();
        conditions.is_some_and(|all| all.iter().any(|c| c["type"] == "Launched" && c["status"] == "True"))
    };
    let of_claims = entries.into_iter().filter(|e| e.resource.starts_with("nodeclaims") && launched(&e.response));
    of_claims.filter_map(|e| e.response["metadata"]["uid"].as_str().map(str::to_owned)).collect()
}

/// As `launched_claims`, for one NodePool: the number of instances launched for it.
pub(crate) fn launched_claims_of(entries: &[Entry], pool: &str) -> usize {
    let of_pool = entries.iter().filter(|e| e.response["metadata"]["labels"]["karpenter.sh/nodepool"] == pool);
    launched_claims(of_pool).len()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = r#"{"stage":"ResponseComplete","stageTimestamp":"2026-11-21T06:23:05.250000Z","verb":"patch","user":{"username":"system:serviceaccount:plimsoll-system:plimsoll-actuator"},
        "objectRef":{"resource":"nodeclaims","name":"default-abc","subresource":"status"},"responseStatus":{"code":200},
        "responseObject":{"metadata":{"uid":"u-1"},"status":{"conditions":[{"type":"Launched","status":"True"}]}}}"#;

    fn log(text: &str) -> Result<Vec<Entry>> {
        let file = tempfile::NamedTempFile::new()?;
        std::fs::write(file.path(), text)?;
        read(file.path())
    }

    #[test]
    fn an_entry_says_who_did_what_and_when() -> Result<()> {
        let entries = log(&format!("{}\n{{\"half", LINE.replace('\n', "")))?;
        assert_eq!(entries.len(), 1);
        let entry = &entries[0];
        assert_eq!(
            (entry.service(), entry.resource.as_str(), entry.writes()),
            (Some("actuator"), "nodeclaims/status", true)
        );
        assert!((entry.time.fract() - 0.25).abs() < 1e-6);
        assert_eq!(launched_claims(&entries).into_iter().collect::<Vec<_>>(), ["u-1"]);
        Ok(())
    }

    #[test]
    fn only_the_scheduler_s_verdict_counts_as_unschedulable() -> Result<()> {
        let verdict = |reason: &str| {
            format!(
                r#"{{"stageTimestamp":"1970-01-01T00:00:07Z","verb":"patch","user":{{"username":"system:kube-scheduler"}},"objectRef":{{"resource":"pods","name":"p","subresource":"status"}},"responseStatus":{{"code":200}},"requestObject":{{"status":{{"conditions":[{{"type":"PodScheduled","reason":"{reason}"}}]}}}}}}"#
            )
        };
        let entries = log(&format!("{}\n{}\n", verdict("SchedulingGated"), verdict("Unschedulable")))?;
        assert_eq!(unschedulable_since(&entries[..1], "p"), None);
        assert_eq!(unschedulable_since(&entries, "p"), Some(7.0));
        assert_eq!(unschedulable_since(&entries, "q"), None);
        Ok(())
    }
}
