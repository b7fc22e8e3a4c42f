//! What has become of fields and values of Karpenter's APIs before v1.

use serde_json::Value;

/// Paths of former fields, and what has their place.
const FIELDS: [(&str, &str); 7] = [
    ("spec.disruption.expireAfter", "spec.template.spec.expireAfter"),
    ("spec.template.spec.kubelet", "spec.kubelet of the EC2NodeClass"),
    ("spec.template.spec.nodeClassRef.apiVersion", "spec.template.spec.nodeClassRef.group, without a version"),
    ("spec.nodeClassRef.apiVersion", "spec.nodeClassRef.group, without a version"),
    ("spec.subnetSelector", "spec.subnetSelectorTerms"),
    ("spec.securityGroupSelector", "spec.securityGroupSelectorTerms"),
    ("spec.amiSelector", "spec.amiSelectorTerms"),
];

/// Former values, and what has their place.
const VALUES: [(&str, &str); 1] = [("WhenUnderutilized", "WhenEmptyOrUnderutilized")];

/// Where a former field is now, to be appended to an error; empty for other fields.
pub(super) fn field(path: &str) -> String {
    advice(&FIELDS, path)
}

/// What a former value is now, to be appended to an error; empty for other values.
pub(super) fn value(value: &Value) -> String {
    advice(&VALUES, value.as_str().unwrap_or_default())
}

fn advice(table: &[(&str, &str)], former: &str) -> String {
    let row = table.iter().find(|(known, _)| *known == former);
    row.map(|(_, now)| format!("; it is now {now}")).unwrap_or_default()
}
