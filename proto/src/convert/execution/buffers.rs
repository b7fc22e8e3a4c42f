//! Conversion of the status of CapacityBuffers.

use crate::actuator::v1 as wire;
use crate::convert::{ConvertError, ConvertResult, WireEnum as _, enum_value, key, optional_key, wire_enum};
use plimsoll_model::execution::{BufferProvisioning, BufferReady, BufferReport};

wire_enum!(wire::BufferReady, BufferReady, [Resolved, PodTemplateNotFound, ScalableRefNotFound, ResolutionFailed]);
wire_enum!(
    wire::BufferProvisioning,
    BufferProvisioning,
    [FitsExistingCapacity, RequiresNewCapacity, NotReadyForProvisioning, BufferEmpty]
);

impl From<&BufferReport> for wire::BufferReport {
    fn from(report: &BufferReport) -> Self {
        Self {
            namespace: report.namespace.clone(),
            name: report.name.clone(),
            uid: report.uid.clone(),
            strategy: report.strategy.clone(),
            pod_template: report.pod_template.clone(),
            pod_template_generation: report.pod_template_generation,
            replicas: report.replicas,
            ready: report.ready.to_wire(),
            message: report.message.clone(),
            provisioning: report.provisioning.map_or(0, BufferProvisioning::to_wire),
            room: report.room.clone(),
        }
    }
}

impl TryFrom<wire::BufferReport> for BufferReport {
    type Error = ConvertError;
    fn try_from(report: wire::BufferReport) -> ConvertResult<Self> {
        let looked = report.provisioning != 0;
        Ok(Self {
            namespace: key("namespace", report.namespace)?,
            name: key("name", report.name)?,
            uid: key("uid", report.uid)?,
            strategy: report.strategy,
            pod_template: optional_key("pod_template", report.pod_template)?,
            pod_template_generation: report.pod_template_generation,
            replicas: report.replicas,
            ready: enum_value("ready", report.ready)?,
            message: report.message,
            provisioning: if looked { Some(enum_value("provisioning", report.provisioning)?) } else { None },
            room: report.room,
        })
    }
}
