//! Authorization of callers (rule 19): methods that launch nodes, execute plans or return cluster data are closed to
//! other callers.

use plimsoll_proto::actuator::v1::actuator_service_client::ActuatorServiceClient;
use plimsoll_proto::actuator::v1::{ExecuteRequest, WatchCatalogRequest, WatchLedgerRequest};
use plimsoll_proto::scheduler::v1::SessionRequest;
use plimsoll_proto::scheduler::v1::scheduler_service_client::SchedulerServiceClient;
use plimsoll_proto::watcher::v1::WatchSnapshotRequest;
use plimsoll_proto::watcher::v1::watcher_service_client::WatcherServiceClient;
use plimsoll_sim::plimsoll::Role;
use plimsoll_tests::{MINUTE, TestCluster};
use tonic::transport::Channel;
use tonic::{Code, Status};

/// Connection of a process to the first replica of a service.
async fn channel(cluster: &TestCluster, process: &str, role: Role) -> Channel {
    let pool = cluster.plimsoll.network().pool(process, &[format!("{role}-0")]);
    pool.channel().await.unwrap().1
}

fn code<T>(answer: Result<T, Status>) -> Code {
    answer.err().map_or(Code::Ok, |status| status.code())
}

/// Response of each closed method of the three services to a process.
async fn answers(cluster: &TestCluster, process: &str) -> [(&'static str, Code); 5] {
    let mut actuator = ActuatorServiceClient::new(channel(cluster, process, Role::Actuator).await);
    let mut scheduler = SchedulerServiceClient::new(channel(cluster, process, Role::Scheduler).await);
    let mut watcher = WatcherServiceClient::new(channel(cluster, process, Role::Watcher).await);
    [
        ("Execute", code(actuator.execute(ExecuteRequest::default()).await)),
        ("WatchCatalog", code(actuator.watch_catalog(WatchCatalogRequest::default()).await)),
        ("WatchLedger", code(actuator.watch_ledger(WatchLedgerRequest {}).await)),
        ("Session", code(scheduler.session(tokio_stream::empty::<SessionRequest>()).await)),
        ("WatchSnapshot", code(watcher.watch_snapshot(WatchSnapshotRequest::default()).await)),
    ]
}

#[tokio::test(start_paused = true)]
async fn only_the_watcher_may_execute_and_open_sessions() {
    let cluster = TestCluster::usual().await;
    let network = cluster.plimsoll.network();
    network.certify("stranger", "tool.default.svc");
    network.certify("another-watcher", &Role::Watcher.dns_name());
    // The watcher itself is allowed.
    cluster.deploy("web", 1, 500);
    cluster.until_running(1, 3 * MINUTE).await;
    // A scheduler is as unauthorized as an unknown process, although its certificate has the same authority.
    for process in ["stranger".to_owned(), cluster.plimsoll.processes(Role::Scheduler).remove(0)] {
        for (method, code) in answers(&cluster, &process).await {
            assert_eq!(code, Code::PermissionDenied, "{method} for {process}");
        }
    }
    for (method, code) in answers(&cluster, "another-watcher").await {
        let refused = code == Code::PermissionDenied;
        assert_eq!(refused, method == "WatchSnapshot", "{method}: {code}");
    }
}
