//! Discovery endpoints: version, API groups, kinds, health.

use super::error::ApiError;
use super::resources::{Resource, ResourceId};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Minor version of a new cluster.
pub(super) const MINOR: u32 = 36;

/// Response at a path that names no object. `minor` is the minor version of the control plane.
pub(super) fn answer(path: &[String], minor: u32) -> Result<Value, ApiError> {
    let path: Vec<_> = path.iter().map(String::as_str).collect();
    match path.as_slice() {
        ["version"] => Ok(
            json!({"major": "1", "minor": minor.to_string(), "gitVersion": format!("v1.{minor}.3"), "gitCommit": "", "gitTreeState": "clean",
                                 "buildDate": "", "goVersion": "", "compiler": "", "platform": ""}),
        ),
        ["healthz" | "livez" | "readyz"] => Ok(json!("ok")),
        ["api"] => Ok(json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []})),
        ["api", "v1"] => resource_list("", "v1"),
        ["apis"] => {
            let groups: BTreeSet<_> = rows().map(|row| row.group).filter(|group| !group.is_empty()).collect();
            let groups = groups.into_iter().map(group).collect::<Result<Vec<_>, _>>()?;
            Ok(json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}))
        }
        ["apis", name] => group(name).map(|mut group| {
            group["kind"] = json!("APIGroup");
            group["apiVersion"] = json!("v1");
            group
        }),
        ["apis", group, version] => resource_list(group, version),
        _ => Err(ApiError::no_such_path()),
    }
}

fn rows() -> impl Iterator<Item = &'static Resource> {
    ResourceId::all().map(ResourceId::get)
}

fn group(name: &str) -> Result<Value, ApiError> {
    let versions: BTreeSet<_> = rows().filter(|row| row.group == name).map(|row| row.version).collect();
    let versions: Vec<_> = versions
        .iter()
        .rev()
        .map(|version| json!({"groupVersion": format!("{name}/{version}"), "version": version}))
        .collect();
    // Prefers the shortest version name, as a stable version is shorter than its alpha and beta; among equals, the
    // newest.
    let preferred = versions.iter().min_by_key(|version| version.to_string().len()).cloned();
    let preferred = preferred.ok_or_else(ApiError::no_such_path)?;
    Ok(json!({"name": name, "versions": versions, "preferredVersion": preferred}))
}

fn resource_list(group: &str, version: &str) -> Result<Value, ApiError> {
    let mut resources = Vec::new();
    for row in rows().filter(|row| row.group == group && row.version == version) {
        let entry = |name: String, verbs: &[&str]| json!({"name": name, "singularName": row.kind.to_lowercase(), "namespaced": row.namespaced, "kind": row.kind, "verbs": verbs});
        let all = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
        resources.push(entry(row.plural.to_owned(), &all));
        let parts = [("status", row.status), ("scale", row.scale.is_some())];
        for (part, _) in parts.iter().filter(|(_, served)| *served) {
            resources.push(entry(format!("{}/{part}", row.plural), &["get", "patch", "update"]));
        }
        if row.kind == "Pod" {
            resources.push(entry("pods/binding".to_owned(), &["create"]));
            resources.push(entry("pods/eviction".to_owned(), &["create"]));
        }
    }
    if resources.is_empty() {
        return Err(ApiError::no_such_path());
    }
    let group_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    Ok(json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": resources}))
}
