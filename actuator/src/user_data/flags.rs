//! Kubelet command-line flags, for images whose kubelet has no configuration file.

use super::Bootstrap;
use std::collections::BTreeMap;

/// All flags, separated by spaces, in Karpenter's order.
pub(super) fn kubelet(bootstrap: &Bootstrap<'_>) -> String {
    let settings = bootstrap.kubelet.settings();
    let mut flags = Vec::new();
    let labels = join(bootstrap.kubelet_labels().into_iter().map(|(key, value)| format!("{key}={value}")));
    flags.push(format!("--node-labels=\"{labels}\""));
    let taints = bootstrap.kubelet_taints().into_iter().map(|taint| match taint.value.as_str() {
        "" => format!("{}:{}", taint.key, taint.effect.as_str()),
        value => format!("{}={value}:{}", taint.key, taint.effect.as_str()),
    });
    flags.push(format!("--register-with-taints=\"{}\"", join(taints)));
    flags.push(format!("--max-pods={}", bootstrap.pods()));
    let mut number = |flag: &str, value: Option<i32>| flags.extend(value.map(|value| format!("--{flag}={value}")));
    number("pods-per-core", settings.pods_per_core);
    let mut pairs = |flag: &str, between: char, entries: &BTreeMap<String, String>| {
        if !entries.is_empty() {
            let entries = join(entries.iter().map(|(key, value)| format!("{key}{between}{value}")));
            flags.push(format!("--{flag}=\"{entries}\""));
        }
    };
    pairs("system-reserved", '=', &settings.system_reserved);
    pairs("kube-reserved", '=', &settings.kube_reserved);
    pairs("eviction-hard", '<', &settings.eviction_hard);
    pairs("eviction-soft", '<', &settings.eviction_soft);
    pairs("eviction-soft-grace-period", '=', &settings.eviction_soft_grace_period);
    let mut number = |flag: &str, value: Option<i32>| flags.extend(value.map(|value| format!("--{flag}={value}")));
    number("eviction-max-pod-grace-period", settings.eviction_max_pod_grace_period);
    number("image-gc-high-threshold", settings.image_gc_high_threshold_percent);
    number("image-gc-low-threshold", settings.image_gc_low_threshold_percent);
    flags.extend(settings.cpu_cfs_quota.map(|on| format!("--cpu-cfs-quota={on}")));
    flags.join(" ")
}

fn join(items: impl Iterator<Item = String>) -> String {
    items.collect::<Vec<_>>().join(",")
}
