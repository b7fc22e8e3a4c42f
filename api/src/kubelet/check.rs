//! Checks whether a kubelet would start with the settings, as far as possible without a kubelet.

use super::{
    KubeletConfiguration,
    fields::{self, FieldType},
};
use crate::{AmiFamily, FieldError, duration, validation::is_quantity};
use serde_json::Value;
use std::collections::BTreeMap;

/// Reason why settings are rejected, used in the `ValidationSucceeded` condition of the node class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum KubeletReason {
    /// An unknown field or an invalid value.
    InvalidKubeletConfiguration,
    /// An expression instead of a number or a quantity.
    KubeletExpressionsDisabled,
    /// A field that the image family does not pass on to the kubelet.
    UnsupportedKubeletConfiguration,
}

impl KubeletReason {
    /// Name in the condition.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::InvalidKubeletConfiguration => "InvalidKubeletConfiguration",
            Self::KubeletExpressionsDisabled => "KubeletExpressionsDisabled",
            Self::UnsupportedKubeletConfiguration => "UnsupportedKubeletConfiguration",
        }
    }
}

/// An invalid setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KubeletProblem {
    /// Kind of the error.
    pub reason: KubeletReason,
    /// The error; its path begins with `spec.kubelet`.
    pub error: FieldError,
}

const SIGNALS: [&str; 6] = [
    "memory.available",
    "nodefs.available",
    "nodefs.inodesFree",
    "imagefs.available",
    "imagefs.inodesFree",
    "pid.available",
];
const RESERVABLE: [&str; 4] = ["cpu", "memory", "ephemeral-storage", "pid"];

pub(super) fn check(kubelet: &KubeletConfiguration, family: AmiFamily) -> Vec<KubeletProblem> {
    let mut problems = Problems::default();
    for (name, value) in &kubelet.0 {
        problems.field(name, value);
    }
    problems.soft_evictions(kubelet);
    problems.image_thresholds(kubelet);
    if family != AmiFamily::Custom {
        problems.family(kubelet, family);
    }
    problems.0
}

#[derive(Default)]
struct Problems(Vec<KubeletProblem>);

impl Problems {
    fn add(&mut self, reason: KubeletReason, field: &str, message: impl Into<String>) {
        let path = format!("spec.kubelet.{field}");
        self.0.push(KubeletProblem { reason, error: FieldError::new(path, message) });
    }

    fn invalid(&mut self, field: &str, message: impl Into<String>) {
        self.add(KubeletReason::InvalidKubeletConfiguration, field, message);
    }

    fn field(&mut self, name: &str, value: &Value) {
        let Some(field_type) = fields::field_type(name) else {
            return self.invalid(name, "the kubelet has no such setting");
        };
        if value.is_null() {
            return;
        }
        if name == "maxPods" && value.is_string() {
            return self.expression(name);
        }
        if let Err(wanted) = fits(field_type, value) {
            return self.invalid(name, format!("must be {wanted}"));
        }
        match name {
            "registerWithTaints" => self.invalid(name, "taints of a node are set by its NodePool"),
            "evictionHard" | "evictionSoft" | "evictionMinimumReclaim" => {
                self.entries(name, value, &SIGNALS, |text| {
                    if is_threshold(text) { Ok(()) } else { Err("must be a quantity or a percentage from 0% to 100%") }
                });
            }
            "evictionSoftGracePeriod" => self.entries(name, value, &SIGNALS, |text| {
                duration::parse_go(text).map(drop).map_err(|_| "must be a duration such as 1m30s")
            }),
            "kubeReserved" | "systemReserved" => self.reservations(name, value),
            "imageGCHighThresholdPercent" | "imageGCLowThresholdPercent"
                if !value.as_i64().is_some_and(|percent| (0..=100).contains(&percent)) =>
            {
                self.invalid(name, "must be from 0 to 100");
            }
            "podsPerCore" | "maxPods" | "evictionMaxPodGracePeriod"
                if value.as_i64().is_some_and(|count| count < 0) =>
            {
                self.invalid(name, "must not be negative");
            }
            _ => {}
        }
    }

    fn expression(&mut self, name: &str) {
        self.add(KubeletReason::KubeletExpressionsDisabled, name, "expressions are not supported");
    }

    fn entries(&mut self, name: &str, value: &Value, keys: &[&str], check: impl Fn(&str) -> Result<(), &'static str>) {
        for (key, text) in texts(value) {
            let path = format!("{name}[{key}]");
            if !keys.contains(&key) {
                self.invalid(&path, format!("must be one of {}", keys.join(", ")));
            } else if let Err(message) = check(text) {
                self.invalid(&path, message);
            }
        }
    }

    fn reservations(&mut self, name: &str, value: &Value) {
        for (key, text) in texts(value) {
            let path = format!("{name}[{key}]");
            if !RESERVABLE.contains(&key) {
                self.invalid(&path, format!("must be one of {}", RESERVABLE.join(", ")));
            } else if text.starts_with('-') {
                self.invalid(&path, "must not be negative");
            } else if !is_quantity(text) {
                self.expression(&path);
            }
        }
    }

    fn soft_evictions(&mut self, kubelet: &KubeletConfiguration) {
        let signals = |name| kubelet.0.get(name).map(texts).unwrap_or_default();
        let (soft, grace) = (signals("evictionSoft"), signals("evictionSoftGracePeriod"));
        for signal in soft.keys().filter(|signal| !grace.contains_key(*signal)) {
            self.invalid(&format!("evictionSoft[{signal}]"), "needs an entry in evictionSoftGracePeriod");
        }
        for signal in grace.keys().filter(|signal| !soft.contains_key(*signal)) {
            self.invalid(&format!("evictionSoftGracePeriod[{signal}]"), "needs an entry in evictionSoft");
        }
    }

    fn image_thresholds(&mut self, kubelet: &KubeletConfiguration) {
        let percent = |name| kubelet.0.get(name).and_then(Value::as_i64);
        if let (Some(high), Some(low)) = (percent("imageGCHighThresholdPercent"), percent("imageGCLowThresholdPercent"))
            && high <= low
        {
            self.invalid("imageGCHighThresholdPercent", "must be above imageGCLowThresholdPercent");
        }
    }

    fn family(&mut self, kubelet: &KubeletConfiguration, family: AmiFamily) {
        if family == AmiFamily::AL2023 {
            return;
        }
        let unsupported = |name: &str| {
            !fields::FIELDS_OF_ALL_FAMILIES.contains(&name)
                || (family == AmiFamily::Bottlerocket && name == "podsPerCore")
        };
        for name in kubelet.0.keys().filter(|name| fields::field_type(name).is_some() && unsupported(name)) {
            let message = format!("family {family} does not pass it on to the kubelet");
            self.add(KubeletReason::UnsupportedKubeletConfiguration, name, message);
        }
        if kubelet.settings().cluster_dns.len() > 1 {
            let message = format!("family {family} takes only one address");
            self.add(KubeletReason::UnsupportedKubeletConfiguration, "clusterDNS", message);
        }
    }
}

/// String entries of an object, by name.
fn texts(value: &Value) -> BTreeMap<&str, &str> {
    let entries = value.as_object().into_iter().flatten();
    entries.filter_map(|(key, value)| Some((key.as_str(), value.as_str()?))).collect()
}

fn is_threshold(text: &str) -> bool {
    match text.strip_suffix('%') {
        Some(percent) => percent.parse::<f64>().is_ok_and(|percent| (0.0..=100.0).contains(&percent)),
        None => is_quantity(text) && !text.starts_with('-'),
    }
}

/// Checks that `value` has the type; the error describes the expected type.
fn fits(field_type: FieldType, value: &Value) -> Result<(), &'static str> {
    let is_i32 = |value: &Value| value.as_i64().is_some_and(|number| i32::try_from(number).is_ok());
    let all_items = |check: &dyn Fn(&Value) -> bool| value.as_array().is_some_and(|items| items.iter().all(check));
    let all_values = |check: &dyn Fn(&Value) -> bool| value.as_object().is_some_and(|items| items.values().all(check));
    let is_texts = |value: &Value| value.as_array().is_some_and(|items| items.iter().all(Value::is_string));
    let is_duration = |value: &Value| value.as_str().is_some_and(|text| duration::parse_go(text).is_ok());
    let (fits, wanted) = match field_type {
        FieldType::Bool => (value.is_boolean(), "true or false"),
        FieldType::Int32 => (is_i32(value), "a whole number"),
        FieldType::Int64 => (value.is_i64() || value.is_u64(), "a whole number"),
        FieldType::Number => (value.is_number(), "a number"),
        FieldType::Text => (value.is_string(), "a string"),
        FieldType::Duration => (is_duration(value), "a duration such as 1m30s"),
        FieldType::Texts => (is_texts(value), "a list of strings"),
        FieldType::Int32s => (all_items(&is_i32), "a list of whole numbers"),
        FieldType::TextMap => (all_values(&Value::is_string), "an object of strings"),
        FieldType::BoolMap => (all_values(&Value::is_boolean), "an object of true and false"),
        FieldType::TextsMap => (all_values(&is_texts), "an object of lists of strings"),
        FieldType::Object => (value.is_object(), "an object"),
        FieldType::Objects => (all_items(&Value::is_object), "a list of objects"),
    };
    if fits { Ok(()) } else { Err(wanted) }
}
