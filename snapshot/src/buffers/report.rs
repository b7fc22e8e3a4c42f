//! Reports for the status of CapacityBuffers.

use super::{Buffer, resolve};
use crate::Objects;
use plimsoll_model::execution::{BufferReady, BufferReport};

/// Maximum number of reports, since every plan carries all of them.
const MAX_REPORTS: usize = 1_000;

/// Returns the reports of all buffers before planning. Buffers with an unknown strategy are skipped.
#[must_use]
pub fn reports(objects: &Objects) -> Vec<BufferReport> {
    reports_of(&resolve(objects))
}

pub(crate) fn reports_of(buffers: &[Buffer<'_>]) -> Vec<BufferReport> {
    buffers.iter().filter_map(report).take(MAX_REPORTS).collect()
}

fn report(buffer: &Buffer<'_>) -> Option<BufferReport> {
    let metadata = &buffer.object.metadata;
    let (pod_template, generation, replicas, ready, message) = match &buffer.room {
        Ok(room) => {
            let message = room.bounded.clone().unwrap_or_default();
            (room.pod_template.clone(), room.generation, room.replicas, BufferReady::Resolved, message)
        }
        Err(why) => (None, None, 0, why.reason?, format!("{}: {}", why.field, why.message)),
    };
    Some(BufferReport {
        namespace: metadata.namespace.clone()?,
        name: metadata.name.clone()?,
        uid: metadata.uid.clone()?,
        strategy: buffer.object.spec.strategy().to_owned(),
        pod_template,
        pod_template_generation: generation,
        replicas: u32::try_from(replicas).unwrap_or(u32::MAX),
        ready,
        message,
        provisioning: None,
        room: String::new(),
    })
}
