//! List types of each kind for strategic merge and server-side apply.
//!
//! A list is identified by the name of its field and of the parent field, which is unambiguous among the served kinds.
//! In custom resources, all lists are atomic except those in `metadata`, which all kinds share, and the conditions, as
//! in their schemas.

/// How items of a list are identified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ListKind {
    /// The list is a single value.
    Atomic,
    /// Unique scalars.
    Set,
    /// Objects identified by these fields.
    Keyed(&'static [&'static str]),
}

struct Row {
    parent: &'static str,
    field: &'static str,
    /// For strategic merge, with at most one key.
    merge: ListKind,
    /// For server-side apply.
    apply: ListKind,
}

const fn keyed(parent: &'static str, field: &'static str, keys: &'static [&'static str]) -> Row {
    Row { parent, field, merge: ListKind::Keyed(keys), apply: ListKind::Keyed(keys) }
}

const fn split(
    parent: &'static str,
    field: &'static str,
    merge: &'static [&'static str],
    apply: &'static [&'static str],
) -> Row {
    Row { parent, field, merge: ListKind::Keyed(merge), apply: ListKind::Keyed(apply) }
}

const SHARED: &[Row] = &[
    keyed("status", "conditions", &["type"]),
    keyed("metadata", "ownerReferences", &["uid"]),
    Row { parent: "metadata", field: "finalizers", merge: ListKind::Set, apply: ListKind::Set },
];

const PORT: &[&str] = &["containerPort", "protocol"];

const BUILT_IN: &[Row] = &[
    keyed("status", "addresses", &["type"]),
    keyed("status", "podIPs", &["ip"]),
    keyed("spec", "containers", &["name"]),
    keyed("spec", "initContainers", &["name"]),
    keyed("spec", "ephemeralContainers", &["name"]),
    keyed("spec", "volumes", &["name"]),
    keyed("spec", "imagePullSecrets", &["name"]),
    keyed("spec", "hostAliases", &["ip"]),
    keyed("spec", "schedulingGates", &["name"]),
    keyed("spec", "resourceClaims", &["name"]),
    split("spec", "topologySpreadConstraints", &["topologyKey"], &["topologyKey", "whenUnsatisfiable"]),
    split("spec", "ports", &["port"], &["port", "protocol"]),
    keyed("", "secrets", &["name"]),
    keyed("containers", "env", &["name"]),
    keyed("containers", "volumeMounts", &["mountPath"]),
    keyed("containers", "volumeDevices", &["devicePath"]),
    split("containers", "ports", &["containerPort"], PORT),
    keyed("initContainers", "env", &["name"]),
    keyed("initContainers", "volumeMounts", &["mountPath"]),
    keyed("initContainers", "volumeDevices", &["devicePath"]),
    split("initContainers", "ports", &["containerPort"], PORT),
];

/// Maps of built-in kinds that server-side apply treats as a single value.
const ATOMIC_MAPS: &[(&str, &str)] =
    &[("spec", "selector"), ("spec", "nodeSelector"), ("topologySpreadConstraints", "labelSelector")];

fn row(custom: bool, parent: &str, field: &str) -> Option<&'static Row> {
    let built_in = if custom { &[] } else { BUILT_IN };
    SHARED.iter().chain(built_in).find(|row| row.parent == parent && row.field == field)
}

/// List type for strategic merge.
pub(crate) fn for_merge(parent: &str, field: &str) -> ListKind {
    row(false, parent, field).map_or(ListKind::Atomic, |row| row.merge)
}

/// List type for server-side apply.
pub(crate) fn for_apply(custom: bool, parent: &str, field: &str) -> ListKind {
    row(custom, parent, field).map_or(ListKind::Atomic, |row| row.apply)
}

/// Whether server-side apply treats a map as a single value.
pub(crate) fn is_atomic_map(custom: bool, parent: &str, field: &str) -> bool {
    !custom && ATOMIC_MAPS.contains(&(parent, field))
}

/// Default of an absent key field of a list item.
pub(crate) fn key_default(key: &str) -> Option<&'static str> {
    (key == "protocol").then_some("TCP")
}
