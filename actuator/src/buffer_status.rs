//! Writes the status of CapacityBuffers (requested replicas and readiness), as the watcher reports it with each plan.

use crate::io::{ObjectPart, WriteError, Writes};
use crate::pacing::until;
use crate::state::buffer_reports::{BufferKey, BufferReports};
use plimsoll_api::CapacityBuffer;
use plimsoll_api::capacity_buffer::{CapacityBufferStatus, LocalObjectRef};
use plimsoll_api::condition::capacity_buffer::{CONDITIONS, PROVISIONING, READY_FOR_PROVISIONING};
use plimsoll_api::condition::{Moment, Status};
use plimsoll_model::execution::{BufferProvisioning, BufferReady, BufferReport};
use plimsoll_runtime::clock::Clock;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Delay before a failed status write is retried.
const RETRY_DELAY: Duration = Duration::from_secs(10);

/// Dependencies of the controller.
#[derive(Clone)]
pub struct BufferStatus {
    /// Latest reports, one per CapacityBuffer.
    pub buffers: BufferReports,
    /// Writes to the cluster.
    pub writes: Writes,
    /// Time.
    pub clock: Clock,
}

/// Writes changed statuses until `stop`.
pub(crate) async fn run(deps: BufferStatus, stop: CancellationToken) {
    let reports = deps.buffers.clone();
    let write = async {
        let mut changed = reports.changed.subscribe();
        let mut last_written: BTreeMap<BufferKey, BufferReport> = BTreeMap::new();
        loop {
            changed.mark_unchanged();
            let latest = reports.wanted.lock().clone();
            last_written.retain(|key, _| latest.contains_key(key));
            let mut failed = false;
            for (key, report) in latest {
                if last_written.get(&key) == Some(&report) {
                    continue;
                }
                match show(&deps, &report).await {
                    Ok(()) => drop(last_written.insert(key, report)),
                    Err(error) => {
                        failed = true;
                        tracing::debug!(namespace = key.0, buffer = key.1, %error, "status not written");
                    }
                }
            }
            tokio::select! {
                biased;
                () = changed.changed() => {}
                () = tokio::time::sleep(RETRY_DELAY), if failed => {}
            }
        }
    };
    until::<()>(&stop, write).await;
}

/// Writes one status. A buffer that is gone or was recreated under the same name is no error.
async fn show(deps: &BufferStatus, report: &BufferReport) -> Result<(), WriteError> {
    let buffer = deps.writes.read_buffer(&report.namespace, &report.name).await?;
    let Some(buffer) = buffer.filter(|buffer| buffer.metadata.uid.as_deref() == Some(report.uid.as_str())) else {
        return Ok(());
    };
    let now = deps.clock.now();
    let change = |buffer: &mut CapacityBuffer| {
        let moment = Moment::of(&buffer.metadata, now);
        apply(buffer.status.get_or_insert_default(), report, moment);
    };
    deps.writes.update(&buffer, ObjectPart::Status, change).await.map(|_| ())
}

fn apply(status: &mut CapacityBufferStatus, report: &BufferReport, moment: Moment) {
    let resolved = report.ready == BufferReady::Resolved;
    status.pod_template_ref = report.pod_template.clone().map(|name| LocalObjectRef { name });
    status.pod_template_generation = report.pod_template_generation;
    status.replicas = i32::try_from(report.replicas).ok().filter(|_| resolved);
    status.provisioning_strategy = Some(report.strategy.clone());
    let state = if resolved { Status::True } else { Status::False };
    let conditions = &mut status.conditions;
    CONDITIONS.set_alone(conditions, moment, READY_FOR_PROVISIONING, state, report.ready.as_str(), &report.message);
    if let Some(provisioning) = report.provisioning {
        let fits = provisioning == BufferProvisioning::FitsExistingCapacity;
        let state = if fits { Status::True } else { Status::False };
        CONDITIONS.set_alone(conditions, moment, PROVISIONING, state, provisioning.as_str(), &report.room);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::Timestamp;
    use plimsoll_api::condition;

    fn report(ready: BufferReady, provisioning: Option<BufferProvisioning>) -> BufferReport {
        BufferReport {
            namespace: "shop".to_owned(),
            name: "spare".to_owned(),
            uid: "b".to_owned(),
            strategy: "buffer.x-k8s.io/active-capacity".to_owned(),
            pod_template: Some("web".to_owned()),
            pod_template_generation: Some(2),
            replicas: 3,
            ready,
            message: "said".to_owned(),
            provisioning,
            room: "room".to_owned(),
        }
    }

    fn moment(second: i64) -> Moment {
        let time = Timestamp::from_second(second).unwrap();
        Moment { generation: 4, created: time, deleting: false, now: time }
    }

    #[test]
    fn conditions_use_karpenters_reasons_without_a_ready_condition() {
        let mut status = CapacityBufferStatus::default();
        let fits = Some(BufferProvisioning::FitsExistingCapacity);
        apply(&mut status, &report(BufferReady::Resolved, fits), moment(10));
        let condition_of = |status: &CapacityBufferStatus, name: &str| {
            let condition = condition::get(&status.conditions, name).unwrap();
            let since = condition.last_transition_time.0.as_second();
            (condition.status.clone(), condition.reason.clone(), condition.message.clone(), since)
        };
        let text = |words: [&str; 3], since| {
            let [status, reason, message] = words.map(str::to_owned);
            (status, reason, message, since)
        };
        assert_eq!(condition_of(&status, READY_FOR_PROVISIONING), text(["True", "Resolved", "said"], 10));
        assert_eq!(condition_of(&status, PROVISIONING), text(["True", "FitsExistingCapacity", "room"], 10));
        assert_eq!((status.conditions.len(), status.replicas), (2, Some(3)));
        let template = status.pod_template_ref.as_ref().map(|it| it.name.as_str());
        assert_eq!((template, status.pod_template_generation), (Some("web"), Some(2)));
        // Without a report on provisioning, the earlier condition stays.
        apply(&mut status, &report(BufferReady::PodTemplateNotFound, None), moment(20));
        assert_eq!(condition_of(&status, READY_FOR_PROVISIONING), text(["False", "PodTemplateNotFound", "said"], 20));
        assert_eq!(condition_of(&status, PROVISIONING), text(["True", "FitsExistingCapacity", "room"], 10));
        assert_eq!(status.replicas, None);
    }
}
