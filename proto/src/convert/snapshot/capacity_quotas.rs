//! Conversion of CapacityQuotas.

use crate::convert::{ConvertError, ConvertResult, key, list, resources_from_wire, resources_to_wire, to_wire};
use crate::snapshot::v1 as wire;
use plimsoll_model::snapshot::CapacityQuota;

impl From<&CapacityQuota> for wire::CapacityQuota {
    fn from(quota: &CapacityQuota) -> Self {
        Self { name: quota.name.clone(), selector: to_wire(&quota.selector), limits: resources_to_wire(&quota.limits) }
    }
}

impl TryFrom<wire::CapacityQuota> for CapacityQuota {
    type Error = ConvertError;
    fn try_from(quota: wire::CapacityQuota) -> ConvertResult<Self> {
        Ok(Self {
            name: key("name", quota.name)?,
            selector: list("selector", quota.selector)?,
            limits: resources_from_wire("limits", quota.limits)?,
        })
    }
}
