//! What buffers come to, for their status.

use super::{Buffer, resolve};
use crate::Objects;
use plimsoll_model::execution::{BufferReady, BufferReport};

/// Buffers whose status is written at most: a plan is sent with all of them.
const MOST: usize = 1_000;

/// What is known of all buffers before anything is planned. Of one with a strategy of others nothing is said.
#[must_use]
pub fn reports(objects: &Objects) -> Vec<BufferReport> {
    resolve(objects).iter().filter_map(report).take(MOST).collect()
}

fn report(buffer: &Buffer<'_>) -> Option<BufferReport> {
    let metadata = &buffer.object.metadata;
    let (pod_template, generation, replicas, ready, message) = match &buffer.room {
        Ok(room) => {
            let message = room.bounded.clone().unwrap_or_default();
            (room.pod_template.clone(), room.generation, room.replicas, BufferReady::Resolved, message)
        }
        Err(why) => (None, None, 0, why.reason.known()?, format!("{}: {}", why.field, why.message)),
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
