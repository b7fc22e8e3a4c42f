//! Bottlerocket: TOML settings. The user's settings are kept, except Kubernetes settings that the actuator must know.

use super::{Bootstrap, Rendered, UserDataError};
use plimsoll_api::kubelet::KubeletSettings;
use std::collections::BTreeMap;
use toml::{Table, Value};

/// Kubernetes settings that are taken from the user's; others are ignored.
const KUBERNETES_KEYS: &[&str] = &[
    "allowed-unsafe-sysctls",
    "api-server",
    "cloud-provider",
    "cluster-certificate",
    "cluster-dns-ip",
    "cluster-domain",
    "cluster-name",
    "container-log-max-files",
    "container-log-max-size",
    "container-log-monitor-interval",
    "cpu-cfs-quota-enforced",
    "cpu-manager-policy",
    "cpu-manager-policy-options",
    "cpu-manager-reconcile-period",
    "credential-providers",
    "device-ownership-from-security-context",
    "event-burst",
    "event-qps",
    "eviction-hard",
    "eviction-max-pod-grace-period",
    "eviction-soft",
    "eviction-soft-grace-period",
    "hostname-override-source",
    "ids-per-pod",
    "image-gc-high-threshold-percent",
    "image-gc-low-threshold-percent",
    "kube-api-burst",
    "kube-api-qps",
    "kube-reserved",
    "log-level",
    "max-pods",
    "memory-manager-policy",
    "memory-manager-reserved-memory",
    "node-labels",
    "node-taints",
    "pod-pids-limit",
    "registry-burst",
    "registry-qps",
    "seccomp-default",
    "server-tls-bootstrap",
    "shutdown-grace-period",
    "shutdown-grace-period-for-critical-pods",
    "static-pods",
    "system-reserved",
    "topology-manager-policy",
    "topology-manager-policy-options",
    "topology-manager-scope",
];

/// From this version on, `ephemeral-storage bind` determines the directories itself.
const BIND_DEFAULTS_SINCE: (u32, u32) = (1, 46);
/// Directories to bind to the instance store before that version.
const DIRECTORIES: [&str; 3] = ["/var/lib/containerd", "/var/lib/kubelet", "/var/log/pods"];
/// Name of our bootstrap command; commands run in order of name.
const MOUNT_COMMAND: &str = "000-mount-instance-storage";

pub(super) fn render(bootstrap: &Bootstrap<'_>) -> Result<Rendered, UserDataError> {
    let mut document: Table = bootstrap
        .user_data
        .unwrap_or_default()
        .parse()
        .map_err(|error: toml::de::Error| UserDataError::Invalid(format!("not TOML: {}", error.message())))?;
    let settings = table(&mut document, "settings", "settings")?;
    if bootstrap.raid0 {
        let commands = table(settings, "bootstrap-commands", "settings.bootstrap-commands")?;
        commands.insert(MOUNT_COMMAND.to_owned(), mount(bootstrap.bottlerocket_version.as_deref()));
    }
    let kubernetes = table(settings, "kubernetes", "settings.kubernetes")?;
    let (supported, unknown): (Table, Table) =
        std::mem::take(kubernetes).into_iter().partition(|(key, _)| KUBERNETES_KEYS.contains(&key.as_str()));
    *kubernetes = supported;
    put(kubernetes, bootstrap)?;
    let text = toml::to_string(&document).map_err(|error| UserDataError::Invalid(error.to_string()))?;
    Ok(Rendered { text, ignored: unknown.keys().map(|key| format!("settings.kubernetes.{key}")).collect() })
}

/// The subtable with that name, created if missing.
fn table<'a>(within: &'a mut Table, key: &str, path: &str) -> Result<&'a mut Table, UserDataError> {
    within
        .entry(key)
        .or_insert_with(|| Value::Table(Table::new()))
        .as_table_mut()
        .ok_or_else(|| UserDataError::Invalid(format!("{path} is not a table")))
}

fn put(kubernetes: &mut Table, bootstrap: &Bootstrap<'_>) -> Result<(), UserDataError> {
    let settings = bootstrap.kubelet.settings();
    let mut set = |key: &str, value: Value| drop(kubernetes.insert(key.to_owned(), value));
    set("api-server", bootstrap.cluster_endpoint.into());
    if !bootstrap.cluster_ca_bundle.is_empty() {
        set("cluster-certificate", bootstrap.cluster_ca_bundle.into());
    }
    set("cluster-name", bootstrap.cluster_name.into());
    set("max-pods", bootstrap.pods().into());
    if let Some(dns) = bootstrap.dns().into_iter().next() {
        set("cluster-dns-ip", dns.into());
    }
    put_kubelet(&mut set, settings);
    let mut taints: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for taint in bootstrap.kubelet_taints() {
        taints.entry(taint.key).or_default().push(format!("{}:{}", taint.value, taint.effect.as_str()).into());
    }
    set("node-taints", Value::Table(taints.into_iter().map(|(key, values)| (key, values.into())).collect()));
    let labels = table(kubernetes, "node-labels", "settings.kubernetes.node-labels")?;
    for (key, value) in bootstrap.kubelet_labels() {
        labels.insert(key.to_owned(), value.into());
    }
    Ok(())
}

fn put_kubelet(set: &mut impl FnMut(&str, Value), settings: KubeletSettings) {
    let maps = [
        ("system-reserved", settings.system_reserved),
        ("kube-reserved", settings.kube_reserved),
        ("eviction-hard", settings.eviction_hard),
        ("eviction-soft", settings.eviction_soft),
        ("eviction-soft-grace-period", settings.eviction_soft_grace_period),
    ];
    for (key, entries) in maps.into_iter().filter(|(_, entries)| !entries.is_empty()) {
        set(key, Value::Table(entries.into_iter().map(|(name, amount)| (name, amount.into())).collect()));
    }
    if let Some(seconds) = settings.eviction_max_pod_grace_period {
        set("eviction-max-pod-grace-period", seconds.into());
    }
    // Bottlerocket expects these two as strings.
    let percent = [
        ("image-gc-high-threshold-percent", settings.image_gc_high_threshold_percent),
        ("image-gc-low-threshold-percent", settings.image_gc_low_threshold_percent),
    ];
    for (key, value) in percent {
        if let Some(value) = value {
            set(key, value.to_string().into());
        }
    }
    if let Some(on) = settings.cpu_cfs_quota {
        set("cpu-cfs-quota-enforced", on.into());
    }
}

/// A bootstrap command that joins the instance store disks and mounts the node's directories on them, at each boot.
fn mount(version: Option<&str>) -> Value {
    let string_array =
        |string_array: &[&str]| -> Value { string_array.iter().copied().map(Value::from).collect::<Vec<_>>().into() };
    let mut bind = vec!["apiclient", "ephemeral-storage", "bind"];
    if !version.is_some_and(knows_directories) {
        bind.push("--dirs");
        bind.extend(DIRECTORIES);
    }
    let commands = vec![string_array(&["apiclient", "ephemeral-storage", "init"]), string_array(&bind)];
    let entries = [("commands", commands.into()), ("mode", "always".into()), ("essential", Value::Boolean(true))];
    Value::Table(entries.into_iter().map(|(key, value): (&str, Value)| (key.to_owned(), value)).collect())
}

/// Whether the version is a full one (`1.46.0`) that is recent enough. A name selector may hold a part of a version.
fn knows_directories(version: &str) -> bool {
    let version = version.trim_start_matches('v');
    if version == "latest" {
        return true;
    }
    let mut numbers = version.split('.');
    match (numbers.next().map(str::parse), numbers.next().map(str::parse), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor)), Some(_)) => (major, minor) >= BIND_DEFAULTS_SINCE,
        _ => false,
    }
}
