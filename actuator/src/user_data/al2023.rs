//! Amazon Linux 2023: parts of a MIME document that nodeadm merges in order. Our part is the last, so it wins.

use super::mime::{self, MimePart};
use super::{Bootstrap, UserDataError};
use plimsoll_api::AmiFamily;
use serde_json::{Map, Value, json};

pub(super) fn render(bootstrap: &Bootstrap<'_>) -> Result<String, UserDataError> {
    let mut parts = match bootstrap.user_data {
        None => Vec::new(),
        Some(text) if text.trim().is_empty() => Vec::new(),
        Some(text) if mime::is_mime(text) => mime::parse(text).map_err(UserDataError::Invalid)?,
        Some(text) if is_mapping(text) => vec![MimePart::new(mime::NODE_CONFIG, text)],
        Some(text) => vec![MimePart::script(text)],
    };
    parts.push(MimePart::new(mime::NODE_CONFIG, node_config(bootstrap)?));
    Ok(mime::render(&parts))
}

/// Whether the first YAML document with content is a mapping, JSON included. Comments alone are a script: nodeadm fails
/// on a configuration without a kind.
fn is_mapping(text: &str) -> bool {
    let mut document = String::new();
    for line in text.lines() {
        let after_marker =
            line.strip_prefix("---").filter(|rest| rest.is_empty() || rest.starts_with([' ', '\t', '\r']));
        if after_marker.is_some() && has_content(&document) {
            break;
        }
        if line.starts_with('%') && !has_content(&document) {
            continue;
        }
        document.push_str(after_marker.unwrap_or(line));
        document.push('\n');
    }
    serde_saphyr::from_str::<Value>(&document).is_ok_and(|value| value.is_object())
}

/// Whether a line is neither blank nor a comment.
fn has_content(document: &str) -> bool {
    document.lines().map(str::trim_start).any(|line| !line.is_empty() && !line.starts_with('#'))
}

fn node_config(bootstrap: &Bootstrap<'_>) -> Result<String, UserDataError> {
    let cidr = bootstrap.service_cidr.ok_or(UserDataError::ServiceCidrUnknown(AmiFamily::AL2023))?;
    let mut spec = Map::new();
    spec.insert(
        "cluster".to_owned(),
        json!({
            "name": bootstrap.cluster_name,
            "apiServerEndpoint": bootstrap.cluster_endpoint,
            "certificateAuthority": bootstrap.cluster_ca_bundle,
            "cidr": cidr,
        }),
    );
    if bootstrap.raid0 {
        spec.insert("instance".to_owned(), json!({"localStorage": {"strategy": "RAID0"}}));
    }
    let labels: Vec<String> =
        bootstrap.kubelet_labels().into_iter().map(|(key, value)| format!("{key}={value}")).collect();
    let flags = [format!("--node-labels=\"{}\"", labels.join(","))];
    spec.insert("kubelet".to_owned(), json!({"config": kubelet(bootstrap), "flags": flags}));
    let document = json!({"apiVersion": "node.eks.aws/v1alpha1", "kind": "NodeConfig", "spec": spec});
    let text = serde_saphyr::to_string(&document).map_err(|error| UserDataError::Invalid(error.to_string()))?;
    Ok(format!("# Written by Plimsoll\n{text}"))
}

/// The user's settings, overridden where the actuator must know the value.
fn kubelet(bootstrap: &Bootstrap<'_>) -> Map<String, Value> {
    let mut config: Map<String, Value> =
        bootstrap.kubelet.0.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
    config.insert("maxPods".to_owned(), json!(bootstrap.pods()));
    let dns = bootstrap.dns();
    if !dns.is_empty() {
        config.insert("clusterDNS".to_owned(), json!(dns));
    }
    let taints = bootstrap.kubelet_taints().into_iter().map(|taint| {
        let mut object = Map::new();
        object.insert("key".to_owned(), taint.key.into());
        if !taint.value.is_empty() {
            object.insert("value".to_owned(), taint.value.into());
        }
        object.insert("effect".to_owned(), taint.effect.as_str().into());
        Value::Object(object)
    });
    config.insert("registerWithTaints".to_owned(), taints.collect());
    config
}
