//! Sets of fields and their owners, for server-side apply.

use super::schema::{self, ListKind};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// One step of a path into an object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Step {
    /// Field of a map.
    Field(String),
    /// Item of a keyed list: key fields and their values as JSON.
    Key(Vec<(String, String)>),
    /// Item of a set: the value as JSON.
    Item(String),
}

impl Step {
    /// The step in the format of `managedFields`.
    fn spelled(&self) -> String {
        match self {
            Self::Field(name) => format!("f:{name}"),
            Self::Key(keys) => format!("k:{}", spelled_keys(keys)),
            Self::Item(value) => format!("v:{value}"),
        }
    }

    /// The step in the format of error messages.
    fn shown(&self) -> String {
        match self {
            Self::Field(name) => format!(".{name}"),
            Self::Key(keys) => format!("[{}]", spelled_keys(keys)),
            Self::Item(value) => format!("[={value}]"),
        }
    }
}

fn spelled_keys(keys: &[(String, String)]) -> String {
    let pairs: Vec<_> = keys.iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
    format!("{{{}}}", pairs.join(","))
}

/// A set of paths, as a tree.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Fields {
    /// Whether the path that ends at this node is in the set.
    member: bool,
    children: BTreeMap<Step, Fields>,
}

/// Metadata that the server writes and that has no owner.
const SERVER_METADATA: &[&str] = &[
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "managedFields",
    "selfLink",
    "generateName",
];

impl Fields {
    fn leaf() -> Self {
        Self { member: true, children: BTreeMap::new() }
    }

    /// Every field of an object that can have an owner.
    pub(crate) fn of_object(custom: bool, object: &Value) -> Self {
        let mut fields = Self::of(custom, "", "", object);
        fields.without_server_fields();
        fields
    }

    fn of(custom: bool, parent: &str, field: &str, value: &Value) -> Self {
        match value {
            Value::Object(map) if !map.is_empty() && !schema::is_atomic_map(custom, parent, field) => {
                Self::of_map(custom, field, map)
            }
            Value::Array(list) if !list.is_empty() => Self::of_list(custom, parent, field, list),
            _ => Self::leaf(),
        }
    }

    fn of_map(custom: bool, field: &str, map: &Map<String, Value>) -> Self {
        let children =
            map.iter().map(|(key, value)| (Step::Field(key.clone()), Self::of(custom, field, key, value))).collect();
        Self { member: false, children }
    }

    fn of_list(custom: bool, parent: &str, field: &str, list: &[Value]) -> Self {
        let kind = schema::for_apply(custom, parent, field);
        if kind == ListKind::Atomic {
            return Self::leaf();
        }
        let children = list
            .iter()
            .map(|item| {
                let mut fields = match item {
                    // An owner reference is a single value.
                    Value::Object(map) if field != "ownerReferences" => Self::of_map(custom, field, map),
                    _ => Self::leaf(),
                };
                fields.member = true;
                (step_of(kind, item), fields)
            })
            .collect();
        Self { member: false, children }
    }

    fn without_server_fields(&mut self) {
        self.children.remove(&Step::Field("apiVersion".to_owned()));
        self.children.remove(&Step::Field("kind".to_owned()));
        let metadata = Step::Field("metadata".to_owned());
        if let Some(fields) = self.children.get_mut(&metadata) {
            fields.member = false;
            for field in SERVER_METADATA {
                fields.children.remove(&Step::Field((*field).to_owned()));
            }
            if fields.is_empty() {
                self.children.remove(&metadata);
            }
        }
    }

    /// Removes a top-level field with all fields below it.
    pub(crate) fn remove_top(&mut self, field: &str) {
        self.children.remove(&Step::Field(field.to_owned()));
    }

    /// Keeps only one top-level field.
    pub(crate) fn keep_top(&mut self, field: &str) {
        self.children.retain(|step, _| *step == Step::Field(field.to_owned()));
    }

    pub(crate) fn is_empty(&self) -> bool {
        !self.member && self.children.is_empty()
    }

    /// Adds all paths of `other`.
    pub(crate) fn add(&mut self, other: &Self) {
        self.member |= other.member;
        for (step, fields) in &other.children {
            self.children.entry(step.clone()).or_default().add(fields);
        }
    }

    /// Removes the paths of `other`.
    pub(crate) fn subtract(&mut self, other: &Self) {
        self.member &= !other.member;
        for (step, fields) in &other.children {
            if let Some(own) = self.children.get_mut(step) {
                own.subtract(fields);
                if own.is_empty() {
                    self.children.remove(step);
                }
            }
        }
    }

    /// Whether a path is in both sets.
    pub(crate) fn meets(&self, other: &Self) -> bool {
        let meets = |(step, fields): (&Step, &Self)| self.children.get(step).is_some_and(|own| own.meets(fields));
        (self.member && other.member) || other.children.iter().any(meets)
    }

    /// Whether all paths of `other` are in the set.
    pub(crate) fn contains(&self, other: &Self) -> bool {
        let contains = |(step, fields): (&Step, &Self)| self.children.get(step).is_some_and(|own| own.contains(fields));
        (self.member || !other.member) && other.children.iter().all(contains)
    }

    /// Paths in both sets.
    pub(crate) fn common(&self, other: &Self) -> Self {
        let children = self
            .children
            .iter()
            .filter_map(|(step, fields)| {
                let common = fields.common(other.children.get(step)?);
                (!common.is_empty()).then(|| (step.clone(), common))
            })
            .collect();
        Self { member: self.member && other.member, children }
    }

    /// The paths in the format of error messages.
    pub(crate) fn shown(&self) -> Vec<String> {
        let mut paths = Vec::new();
        if self.member {
            paths.push(String::new());
        }
        for (step, fields) in &self.children {
            paths.extend(fields.shown().into_iter().map(|rest| format!("{}{rest}", step.shown())));
        }
        paths
    }

    /// The set in the format of `managedFields[].fieldsV1`.
    pub(crate) fn to_v1(&self) -> Value {
        let mut map = Map::new();
        if self.member && !self.children.is_empty() {
            map.insert(".".to_owned(), json!({}));
        }
        for (step, fields) in &self.children {
            map.insert(step.spelled(), fields.to_v1());
        }
        Value::Object(map)
    }

    /// Removes the paths of the set from a value, and containers that become empty.
    pub(crate) fn remove_from(&self, custom: bool, value: &mut Value) {
        self.remove_below(custom, "", "", value);
    }

    fn remove_below(&self, custom: bool, parent: &str, field: &str, value: &mut Value) {
        match value {
            Value::Object(map) => {
                for (step, fields) in &self.children {
                    let Step::Field(key) = step else { continue };
                    let Some(inner) = map.get_mut(key) else { continue };
                    fields.remove_below(custom, field, key, inner);
                    // A map or list that was applied empty has since got fields of others.
                    let is_owned_whole = fields.is_leaf() && Self::of(custom, field, key, inner).is_leaf();
                    if is_owned_whole || is_empty_container(inner) {
                        map.shift_remove(key);
                    }
                }
            }
            Value::Array(list) => {
                let kind = schema::for_apply(custom, parent, field);
                list.retain_mut(|item| {
                    let Some(fields) = self.children.get(&step_of(kind, item)) else { return true };
                    fields.remove_below(custom, "", field, item);
                    !fields.member
                });
            }
            _ => {}
        }
    }

    fn is_leaf(&self) -> bool {
        self.member && self.children.is_empty()
    }
}

fn is_empty_container(value: &Value) -> bool {
    value.as_object().is_some_and(Map::is_empty) || value.as_array().is_some_and(Vec::is_empty)
}

fn step_of(kind: ListKind, item: &Value) -> Step {
    match kind {
        ListKind::Keyed(keys) => Step::Key(
            keys.iter()
                .filter_map(|key| {
                    let default = || schema::key_default(key).map(Value::from);
                    item.get(key).cloned().or_else(default).map(|value| ((*key).to_owned(), value.to_string()))
                })
                .collect(),
        ),
        ListKind::Set | ListKind::Atomic => Step::Item(item.to_string()),
    }
}

/// Difference between two states of an object.
#[derive(Debug, Default)]
pub(crate) struct Difference {
    /// New or changed fields.
    pub(crate) changed: Fields,
    /// Removed fields.
    pub(crate) removed: Fields,
}

impl Difference {
    /// Difference from `old` to `new`, without fields that cannot have an owner.
    pub(crate) fn between(custom: bool, old: &Value, new: &Value) -> Self {
        let mut difference = Self::of(custom, "", "", Some(old), Some(new));
        difference.changed.without_server_fields();
        difference.removed.without_server_fields();
        difference
    }

    fn of(custom: bool, parent: &str, field: &str, old: Option<&Value>, new: Option<&Value>) -> Self {
        match (old, new) {
            (old, new) if old == new => Self::default(),
            (None, Some(new)) => Self { changed: Fields::of(custom, parent, field, new), removed: Fields::default() },
            (Some(old), None) => Self { changed: Fields::default(), removed: Fields::of(custom, parent, field, old) },
            (Some(Value::Object(old)), Some(Value::Object(new)))
                if !schema::is_atomic_map(custom, parent, field) && !old.is_empty() && !new.is_empty() =>
            {
                let mut all = Self::default();
                for key in old.keys().chain(new.keys().filter(|key| !old.contains_key(*key))) {
                    all.join(Step::Field(key.clone()), Self::of(custom, field, key, old.get(key), new.get(key)));
                }
                all
            }
            (Some(Value::Array(old)), Some(Value::Array(new))) => Self::of_lists(custom, parent, field, old, new),
            (Some(old), Some(new)) => {
                let changed = Fields::of(custom, parent, field, new);
                let mut removed = Fields::of(custom, parent, field, old);
                removed.subtract(&changed);
                Self { changed, removed }
            }
            (None, None) => Self::default(),
        }
    }

    fn of_lists(custom: bool, parent: &str, field: &str, old: &[Value], new: &[Value]) -> Self {
        let kind = schema::for_apply(custom, parent, field);
        if kind == ListKind::Atomic {
            return Self { changed: Fields::leaf(), removed: Fields::default() };
        }
        let find = |list: &[Value], step: &Step| list.iter().find(|item| step_of(kind, item) == *step).cloned();
        let mut all = Self::default();
        for item in new {
            let step = step_of(kind, item);
            let before = find(old, &step);
            let mut inner = Self::of(custom, "", field, before.as_ref(), Some(item));
            inner.changed.member |= before.is_none();
            all.join(step, inner);
        }
        for item in old {
            let step = step_of(kind, item);
            if find(new, &step).is_none() {
                let mut inner = Self::of(custom, "", field, Some(item), None);
                inner.removed.member = true;
                all.join(step, inner);
            }
        }
        all
    }

    fn join(&mut self, step: Step, inner: Self) {
        if !inner.changed.is_empty() {
            self.changed.children.insert(step.clone(), inner.changed);
        }
        if !inner.removed.is_empty() {
            self.removed.children.insert(step, inner.removed);
        }
    }
}

/// Merges the applied configuration of a manager into the live object.
pub(crate) fn merge_applied(custom: bool, live: &Value, config: &Value) -> Value {
    merge_at(&Place { custom, above: "", name: "" }, live, config)
}

/// Position of a value: the name of its field and of the parent field.
struct Place<'a> {
    custom: bool,
    above: &'a str,
    name: &'a str,
}

fn merge_at(at: &Place<'_>, live: &Value, config: &Value) -> Value {
    match (live, config) {
        (Value::Object(old), Value::Object(new)) if !schema::is_atomic_map(at.custom, at.above, at.name) => {
            let mut merged = old.clone();
            for (key, value) in new {
                let below = Place { custom: at.custom, above: at.name, name: key };
                let value = old.get(key).map_or_else(|| value.clone(), |live| merge_at(&below, live, value));
                merged.insert(key.clone(), value);
            }
            Value::Object(merged)
        }
        (Value::Array(old), Value::Array(new)) => {
            let kind = schema::for_apply(at.custom, at.above, at.name);
            if kind == ListKind::Atomic {
                return config.clone();
            }
            let mut merged = old.clone();
            for item in new {
                let step = step_of(kind, item);
                match merged.iter_mut().find(|live| step_of(kind, live) == step) {
                    Some(live) if at.name == "ownerReferences" => *live = item.clone(),
                    Some(live) => {
                        let below = Place { custom: at.custom, above: "", name: at.name };
                        *live = merge_at(&below, live, item);
                    }
                    None => merged.push(item.clone()),
                }
            }
            Value::Array(merged)
        }
        _ => config.clone(),
    }
}
