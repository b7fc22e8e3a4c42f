//! Fenced cloud calls: calls that change something.

use super::{Action, RateLimiter};
use crate::fencing::{CLOUD_CALL, Fence, NotAllowed};
use crate::io::WriteError;
use crate::metrics::ActuatorMetrics;
use crate::metrics::cloud::CloudMethod;
use crate::ports::{
    Cloud, CloudError, FleetAnswer, FleetRequest, InstanceRequest, LaunchTemplate, LaunchTemplateSpec, Tags,
};
use tokio::time::Instant;

/// Deletes resources one by one, so that each call stays within its timeout, and one that cannot be deleted keeps no
/// other.
///
/// # Errors
/// A resource was not deleted. After an error that says nothing about the resource, the rest is not tried.
pub(crate) async fn delete_each<'names, Work>(
    names: &'names [String],
    delete: impl Fn(&'names String) -> Work,
) -> Result<(), WriteError>
where
    Work: Future<Output = Result<(), WriteError>>,
{
    let mut failure = None;
    for name in names {
        match delete(name).await {
            Ok(()) => {}
            Err(error) if concerns_all_calls(&error) => return Err(error),
            Err(error) => {
                failure.get_or_insert(error);
            }
        }
    }
    failure.map_or(Ok(()), Err)
}

/// Whether the next call would fail, too.
fn concerns_all_calls(error: &WriteError) -> bool {
    error.concerns_all_writes() || matches!(error, WriteError::Cloud(error) if error.is_transient())
}

/// Cloud calls of one term of leadership, fenced and rate limited. Clones share the ports.
#[derive(Clone)]
pub struct CloudCalls {
    pub(super) cloud: Cloud,
    pub(super) fence: Fence,
    pub(super) rate_limiter: RateLimiter,
    pub(super) metrics: ActuatorMetrics,
}

impl CloudCalls {
    pub(super) fn new(cloud: Cloud, fence: Fence, rate_limiter: RateLimiter, metrics: ActuatorMetrics) -> Self {
        Self { cloud, fence, rate_limiter, metrics }
    }

    /// Waits until the rate limit admits a [`Self::create_fleet`]. Requests that were sent before may take minutes.
    pub(crate) async fn fleet_turn(&self) {
        self.rate_limiter.take(Action::CreateFleet).await;
    }

    /// Launches instances, after [`Self::fleet_turn`]. A timeout is reported as [`CloudError::Ambiguous`].
    pub(crate) async fn create_fleet(
        &self,
        request: &FleetRequest,
    ) -> Result<Result<FleetAnswer, CloudError>, NotAllowed> {
        let started = Instant::now();
        let outcome = match self.fence.run(CLOUD_CALL, self.cloud.compute.create_fleet(request)).await {
            Ok(outcome) => outcome,
            Err(NotAllowed::TimedOut(after)) => {
                Err(CloudError::Ambiguous { message: format!("no answer within {after:?}") })
            }
            Err(refused) => return Err(refused),
        };
        self.metrics.cloud.call(CloudMethod::Create, "CreateFleet", started.elapsed(), &outcome);
        Ok(outcome)
    }

    /// Asks whether a fleet would be accepted. Nothing is launched.
    pub(crate) async fn dry_run_fleet(&self, request: &FleetRequest) -> Result<Result<(), CloudError>, NotAllowed> {
        // Hundreds of node classes may ask at once, and launches must not queue behind all of them.
        self.rate_limiter.take(Action::DryRunFleet).await;
        self.rate_limiter.take(Action::CreateFleet).await;
        self.fence.run(CLOUD_CALL, self.cloud.compute.dry_run_fleet(request)).await
    }

    /// Asks whether an instance would be launched. Nothing is launched.
    pub(crate) async fn dry_run_instance(
        &self,
        request: &InstanceRequest,
    ) -> Result<Result<(), CloudError>, NotAllowed> {
        self.rate_limiter.take(Action::RunInstances).await;
        self.fence.run(CLOUD_CALL, self.cloud.compute.dry_run_instance(request)).await
    }

    /// Tags instances.
    pub(crate) async fn create_tags(&self, ids: &[String], tags: &Tags) -> Result<(), WriteError> {
        self.rate_limiter.take(Action::CreateTags).await;
        Ok(self.fence.run(CLOUD_CALL, self.cloud.compute.create_tags(ids, tags)).await??)
    }

    /// Returns the launch template of that name; creates it if it is missing.
    pub(crate) async fn ensure_launch_template(
        &self,
        spec: &LaunchTemplateSpec,
    ) -> Result<Result<LaunchTemplate, CloudError>, NotAllowed> {
        self.rate_limiter.take(Action::EnsureLaunchTemplate).await;
        self.fence.run(CLOUD_CALL, self.cloud.compute.ensure_launch_template(spec)).await
    }

    /// Deletes a launch template.
    pub(crate) async fn delete_launch_template(&self, name: &String) -> Result<(), WriteError> {
        let call = self.cloud.compute.delete_launch_templates(std::slice::from_ref(name));
        Ok(self.fence.run(CLOUD_CALL, call).await??)
    }

    /// Creates an instance profile with a role.
    pub(crate) async fn create_profile(
        &self,
        name: &str,
        path: &str,
        tags: &Tags,
        role: &str,
    ) -> Result<(), WriteError> {
        self.fence.run(CLOUD_CALL, self.cloud.profiles.create(name, path, tags)).await??;
        Ok(self.fence.run(CLOUD_CALL, self.cloud.profiles.set_role(name, role)).await??)
    }

    /// Deletes an instance profile.
    pub(crate) async fn delete_profile(&self, name: &str) -> Result<(), WriteError> {
        Ok(self.fence.run(CLOUD_CALL, self.cloud.profiles.delete(name)).await??)
    }

    /// Deletes messages of the interruption queue: at most as many as one receive call returns.
    pub(crate) async fn delete_messages(&self, receipts: &[String]) -> Result<(), WriteError> {
        match &self.cloud.queue {
            Some(queue) => Ok(self.fence.run(CLOUD_CALL, queue.delete(receipts)).await??),
            None => Ok(()),
        }
    }
}
