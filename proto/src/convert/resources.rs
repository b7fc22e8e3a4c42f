//! Conversion of resource amounts, taints and tolerations.

use super::{ConvertError, ConvertResult, WireEnum as _, enum_value, key, not_negative, wire_enum};
use crate::snapshot::v1 as wire;
use plimsoll_model::catalog::CapacityType;
use plimsoll_model::resources::Resources;
use plimsoll_model::taints::{Taint, TaintEffect, Toleration, TolerationOperator};

wire_enum!(wire::CapacityType, CapacityType, [Reserved, Spot, OnDemand]);
wire_enum!(wire::TaintEffect, TaintEffect, [NoSchedule, PreferNoSchedule, NoExecute]);
wire_enum!(wire::TolerationOperator, TolerationOperator, [Equal, Exists]);

/// Converts amounts, ordered by name.
#[must_use]
pub fn resources_to_wire(resources: &Resources) -> Vec<wire::ResourceAmount> {
    resources.iter().map(|(name, amount)| wire::ResourceAmount { name: name.to_owned(), amount }).collect()
}

/// Converts amounts in any order. `field` is the path of the list in errors.
///
/// # Errors
/// If a name is empty or repeated, or an amount is negative.
pub fn resources_from_wire(field: &str, amounts: Vec<wire::ResourceAmount>) -> Result<Resources, ConvertError> {
    let mut resources = Resources::new();
    for (index, wire::ResourceAmount { name, amount }) in amounts.into_iter().enumerate() {
        let checked = key("name", name).and_then(|name| Ok((name, not_negative("amount", amount)?)));
        let (name, amount) = checked.map_err(|error| error.within(&format!("{field}[{index}]")))?;
        if resources.contains(&name) {
            return Err(ConvertError::new(format!("{field}[{index}].name"), "is there twice"));
        }
        resources.set(&name, amount);
    }
    Ok(resources)
}

impl From<&Taint> for wire::Taint {
    fn from(taint: &Taint) -> Self {
        Self { key: taint.key.clone(), value: taint.value.clone(), effect: taint.effect.to_wire() }
    }
}

impl TryFrom<wire::Taint> for Taint {
    type Error = ConvertError;
    fn try_from(taint: wire::Taint) -> ConvertResult<Self> {
        Ok(Self { key: key("key", taint.key)?, value: taint.value, effect: enum_value("effect", taint.effect)? })
    }
}

impl From<&Toleration> for wire::Toleration {
    fn from(toleration: &Toleration) -> Self {
        Self {
            key: toleration.key.clone(),
            operator: toleration.operator.to_wire(),
            value: toleration.value.clone(),
            effect: toleration.effect.map_or(0, TaintEffect::to_wire),
        }
    }
}

impl TryFrom<wire::Toleration> for Toleration {
    type Error = ConvertError;
    fn try_from(toleration: wire::Toleration) -> ConvertResult<Self> {
        Ok(Self {
            key: toleration.key,
            operator: enum_value("operator", toleration.operator)?,
            value: toleration.value,
            effect: if toleration.effect == 0 { None } else { Some(enum_value("effect", toleration.effect)?) },
        })
    }
}
