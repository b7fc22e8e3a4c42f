//! Kubelet settings of a node class: an open object kept as written, with a typed view of the fields that Plimsoll uses
//! and a validation of all fields.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::{borrow::Cow, collections::BTreeMap};

mod check;
mod fields;

pub use check::{KubeletProblem, KubeletReason};

/// Settings of the kubelet, as its configuration file (kubelet.config.k8s.io/v1beta1) has them. Nothing is dropped,
/// known or not.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct KubeletConfiguration(pub BTreeMap<String, Value>);

impl JsonSchema for KubeletConfiguration {
    fn schema_name() -> Cow<'static, str> {
        "KubeletConfiguration".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
    }
}

/// The fields of [`KubeletConfiguration`] that Plimsoll uses. Entries of a wrong type and expressions are omitted. The
/// status of the node class reports them, and the defaults of the image family apply.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KubeletSettings {
    /// Addresses of the cluster DNS.
    pub cluster_dns: Vec<String>,
    /// Maximum pods per node.
    pub max_pods: Option<i32>,
    /// Maximum pods per vCPU; 0 means no such limit.
    pub pods_per_core: Option<i32>,
    /// Quantities reserved for the system, by resource.
    pub system_reserved: BTreeMap<String, String>,
    /// Quantities reserved for Kubernetes, by resource.
    pub kube_reserved: BTreeMap<String, String>,
    /// Hard eviction thresholds (quantities or percentages), by signal.
    pub eviction_hard: BTreeMap<String, String>,
    /// Soft eviction thresholds (quantities or percentages), by signal.
    pub eviction_soft: BTreeMap<String, String>,
    /// Grace periods of soft evictions, by signal.
    pub eviction_soft_grace_period: BTreeMap<String, String>,
    /// Maximum termination grace period in seconds of pods in soft evictions.
    pub eviction_max_pod_grace_period: Option<i32>,
    /// Percent of disk use above which images are removed.
    pub image_gc_high_threshold_percent: Option<i32>,
    /// Percent of disk use down to which images are removed.
    pub image_gc_low_threshold_percent: Option<i32>,
    /// Whether CPU limits are enforced by quota.
    pub cpu_cfs_quota: Option<bool>,
}

impl KubeletConfiguration {
    /// Whether nothing is set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the fields that Plimsoll uses.
    #[must_use]
    pub fn settings(&self) -> KubeletSettings {
        KubeletSettings {
            cluster_dns: self.read("clusterDNS").unwrap_or_default(),
            max_pods: self.count("maxPods"),
            pods_per_core: self.count("podsPerCore"),
            system_reserved: self.reserved("systemReserved"),
            kube_reserved: self.reserved("kubeReserved"),
            eviction_hard: self.read("evictionHard").unwrap_or_default(),
            eviction_soft: self.read("evictionSoft").unwrap_or_default(),
            eviction_soft_grace_period: self.read("evictionSoftGracePeriod").unwrap_or_default(),
            eviction_max_pod_grace_period: self.count("evictionMaxPodGracePeriod"),
            image_gc_high_threshold_percent: self.count("imageGCHighThresholdPercent"),
            image_gc_low_threshold_percent: self.count("imageGCLowThresholdPercent"),
            cpu_cfs_quota: self.read("cpuCFSQuota"),
        }
    }

    fn read<T: for<'de> Deserialize<'de>>(&self, field: &str) -> Option<T> {
        T::deserialize(self.0.get(field)?).ok()
    }

    fn count(&self, field: &str) -> Option<i32> {
        self.read(field).filter(|count| *count >= 0)
    }

    /// Returns entries with non-negative quantities. Other entries are expressions or mistakes.
    fn reserved(&self, field: &str) -> BTreeMap<String, String> {
        let Some(Value::Object(entries)) = self.0.get(field) else { return BTreeMap::new() };
        let texts = entries.iter().filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())));
        texts.filter(|(_, text)| crate::validation::is_quantity(text) && !text.starts_with('-')).collect()
    }

    /// Validates the settings for a node class of this `family`; the status shows the result. Expressions are rejected,
    /// since Plimsoll does not evaluate them.
    #[must_use]
    pub fn check(&self, family: crate::AmiFamily) -> Vec<KubeletProblem> {
        check::check(self, family)
    }

    /// Returns the settings as JSON with sorted keys and Go's escapes, or `null` if there are none. Input of the drift
    /// hash.
    #[must_use]
    pub fn canonical_json(&self) -> String {
        if self.0.is_empty() {
            return "null".to_owned();
        }
        let mut text = String::new();
        write_object(self.0.iter(), &mut text);
        text
    }
}

fn write_object<'entry>(entries: impl Iterator<Item = (&'entry String, &'entry Value)>, out: &mut String) {
    out.push('{');
    for (position, (key, value)) in entries.enumerate() {
        if position > 0 {
            out.push(',');
        }
        write_text(key, out);
        out.push(':');
        write_value(value, out);
    }
    out.push('}');
}

fn write_value(value: &Value, out: &mut String) {
    match value {
        Value::Object(entries) => {
            let sorted: BTreeMap<&String, &Value> = entries.iter().collect();
            write_object(sorted.into_iter(), out);
        }
        Value::Array(items) => {
            out.push('[');
            for (position, item) in items.iter().enumerate() {
                if position > 0 {
                    out.push(',');
                }
                write_value(item, out);
            }
            out.push(']');
        }
        Value::String(text) => write_text(text, out),
        Value::Null | Value::Bool(_) | Value::Number(_) => out.push_str(&value.to_string()),
    }
}

/// In addition to JSON's escapes, Go escapes characters that could end a script in HTML.
fn write_text(text: &str, out: &mut String) {
    for character in Value::from(text).to_string().chars() {
        match character {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                out.push_str(&format!("\\u{:04x}", u32::from(character)));
            }
            other => out.push(other),
        }
    }
}

#[cfg(test)]
mod tests;
