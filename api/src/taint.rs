//! Taints of pools and claims.

use crate::schema;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a taint does to pods that do not tolerate it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum TaintEffect {
    /// Keeps new pods away.
    #[default]
    NoSchedule,
    /// Keeps new pods away where possible.
    PreferNoSchedule,
    /// Keeps new pods away and evicts running ones.
    NoExecute,
}

impl From<TaintEffect> for plimsoll_model::taints::TaintEffect {
    fn from(effect: TaintEffect) -> Self {
        match effect {
            TaintEffect::NoSchedule => Self::NoSchedule,
            TaintEffect::PreferNoSchedule => Self::PreferNoSchedule,
            TaintEffect::NoExecute => Self::NoExecute,
        }
    }
}

impl From<plimsoll_model::taints::TaintEffect> for TaintEffect {
    fn from(effect: plimsoll_model::taints::TaintEffect) -> Self {
        use plimsoll_model::taints::TaintEffect as Model;
        match effect {
            Model::NoSchedule => Self::NoSchedule,
            Model::PreferNoSchedule => Self::PreferNoSchedule,
            Model::NoExecute => Self::NoExecute,
        }
    }
}

/// A taint of a node: pods must tolerate it to run there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Taint {
    /// Key of the taint, in the format of a label key.
    #[schemars(length(min = 1), regex(pattern = schema::pattern::LABEL_KEY))]
    pub key: String,
    /// Value of the taint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = schema::pattern::LABEL_KEY))]
    pub value: Option<String>,
    /// Effect on pods that do not tolerate the taint.
    pub effect: TaintEffect,
    /// When the taint was added to the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::date_time")]
    pub time_added: Option<Time>,
}

impl From<&Taint> for plimsoll_model::taints::Taint {
    fn from(taint: &Taint) -> Self {
        Self { key: taint.key.clone(), value: taint.value.clone().unwrap_or_default(), effect: taint.effect.into() }
    }
}

impl From<&plimsoll_model::taints::Taint> for Taint {
    fn from(taint: &plimsoll_model::taints::Taint) -> Self {
        let value = Some(taint.value.clone()).filter(|value| !value.is_empty());
        Self { key: taint.key.clone(), value, effect: taint.effect.into(), time_added: None }
    }
}
