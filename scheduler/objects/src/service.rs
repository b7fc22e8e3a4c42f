//! The service on the scheduler's open port.

use crate::answer::plan_objects;
use plimsoll_model::time::Timestamp;
use plimsoll_proto::objects::v1::object_planner_service_server::{ObjectPlannerService, ObjectPlannerServiceServer};
use plimsoll_proto::objects::v1::{PlanObjectsRequest, PlanObjectsResponse};
use plimsoll_runtime::clock::Clock;
use plimsoll_runtime::serve::MAX_ENCODING_BYTES;
use plimsoll_runtime::shutdown::Shutdown;
use plimsoll_scheduler::server::OpenPort;
use plimsoll_scheduler::service::{self, MAX_REQUEST_BYTES, Parts, ServiceError};
use tonic::{Request, Response, Status};

#[derive(Debug, Clone)]
struct ObjectPlanner {
    open_port: OpenPort,
    clock: Clock,
}

#[tonic::async_trait]
impl ObjectPlannerService for ObjectPlanner {
    async fn plan_objects(
        &self,
        request: Request<PlanObjectsRequest>,
    ) -> Result<Response<PlanObjectsResponse>, Status> {
        let now = Timestamp(self.clock.now_millis());
        let answer = move |request, cancel: &_| plan_objects(request, now, cancel);
        self.open_port.handle("PlanObjects", request, answer).await
    }
}

/// Runs the scheduler with this service on its open port. `clock` stands for the time of requests that have none.
///
/// # Errors
/// As [`service::run`].
pub async fn run(parts: Parts, clock: Clock, shutdown: Shutdown) -> Result<(), ServiceError> {
    service::run_with(parts, shutdown, move |server, open_port| {
        let planner = ObjectPlannerServiceServer::new(ObjectPlanner { open_port, clock })
            .max_decoding_message_size(MAX_REQUEST_BYTES)
            .max_encoding_message_size(MAX_ENCODING_BYTES);
        server.add_service(planner)
    })
    .await
}

#[cfg(test)]
mod tests;
