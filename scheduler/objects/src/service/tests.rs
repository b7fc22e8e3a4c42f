use super::*;
use crate::MAX_PODS;
use plimsoll_proto::objects::v1::object_planner_service_client::ObjectPlannerServiceClient;
use plimsoll_runtime::admin::Readiness;
use plimsoll_runtime::memory;
use plimsoll_runtime::metrics::Metrics;
use plimsoll_runtime::serve::Listener;
use plimsoll_runtime::workers::Bounds;
use plimsoll_scheduler::service::Settings;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use tonic::Code;
use tonic::transport::Channel;
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;
use tonic_types::StatusExt as _;

/// 2026-01-02T00:00:00Z.
const NOW: i64 = 1_767_312_000_000;

/// Channels to the closed and to the open port.
fn start(change: impl FnOnce(&mut Settings)) -> (Channel, Channel) {
    let mut settings = Settings::for_cores(NonZeroUsize::MIN);
    change(&mut settings);
    let ((closed_dialer, closed), (open_dialer, open)) = (memory::pair(), memory::pair());
    let parts = Parts {
        closed: Listener::Memory(closed),
        open: Some(Listener::Memory(open)),
        metrics: Metrics::new("scheduler"),
        readiness: Readiness::default(),
        settings,
    };
    tokio::spawn(run(parts, Clock::system(), Shutdown::default()));
    (closed_dialer.channel(), open_dialer.channel())
}

fn client(channel: Channel) -> ObjectPlannerServiceClient<Channel> {
    ObjectPlannerServiceClient::new(channel).max_encoding_message_size(2 * MAX_REQUEST_BYTES)
}

fn pool() -> [Value; 2] {
    let class = json!({"apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": {"name": "default"},
        "spec": {"role": "node", "amiSelectorTerms": [{"alias": "al2023@latest"}],
            "subnetSelectorTerms": [{"id": "subnet-1"}], "securityGroupSelectorTerms": [{"id": "sg-1"}]}});
    let pool = json!({"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "general"},
        "spec": {"template": {"spec": {"requirements": [],
            "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}}}}});
    [class, pool]
}

fn deployment(name: &str, replicas: i64, container: Value) -> Value {
    let mut container = container;
    container["name"] = json!("app");
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": "shop"},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container]}}}})
}

fn requests(cpu: &str) -> Value {
    json!({"resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}})
}

fn request(objects: impl IntoIterator<Item = Value>) -> PlanObjectsRequest {
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects.into_iter().collect::<Vec<_>>()});
    let objects = pool().iter().chain([&list]).map(Value::to_string).collect();
    PlanObjectsRequest { objects, now_unix_ms: Some(NOW), ..PlanObjectsRequest::default() }
}

#[tokio::test]
async fn objects_get_a_plan_with_readable_reasons() {
    let (_, open) = start(|_| ());
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}});
    let request = request([deployment("web", 3, requests("1")), deployment("giant", 1, requests("2000")), service]);
    let answer = client(open).plan_objects(request).await.unwrap().into_inner();
    let plan = answer.plan.unwrap();
    let mut launched: Vec<&str> =
        plan.launches.iter().flat_map(|launch| &launch.pods).map(|pod| pod.name.as_str()).collect();
    launched.sort_unstable();
    assert_eq!(launched, ["shop/web-0", "shop/web-1", "shop/web-2"]);
    assert!(
        plan.launches.iter().all(|launch| launch.like.is_some() || launch.offerings[0].zone.starts_with("us-east-1"))
    );
    let refused =
        answer.lines.iter().find(|line| line.starts_with("no place for 1 pod (shop/giant-0): general: ")).unwrap();
    assert!(refused.contains("InsufficientResources: "), "{refused}");
    assert_eq!(answer.lines.iter().filter(|line| line.starts_with("launch ")).count(), plan.launches.len());
    let ignored: Vec<_> = answer.ignored.iter().map(|ignored| (ignored.kind.as_str(), ignored.count)).collect();
    assert_eq!(ignored, [("v1 Service", 1)]);
}

#[tokio::test]
async fn reasons_are_shared_if_the_request_asks_for_it() {
    let (_, open) = start(|_| ());
    for (shared_lists, likes) in [(false, [None; 3]), (true, [None, Some(0), Some(0)])] {
        let request = PlanObjectsRequest { shared_lists, ..request([deployment("giant", 3, requests("2000"))]) };
        let plan = client(open.clone()).plan_objects(request).await.unwrap().into_inner().plan.unwrap();
        assert_eq!(plan.unschedulable.iter().map(|pod| pod.like).collect::<Vec<_>>(), likes);
    }
}

#[tokio::test]
async fn all_faults_are_reported_at_once_with_object_and_field() {
    let (_, open) = start(|_| ());
    let bad_quantity = deployment("web", 3, requests("1GB"));
    let bad_field = deployment("api", 1, json!({"imagined": true}));
    let mut bad = request([bad_quantity, deployment("less", -1, json!({})), bad_field]);
    bad.objects.push("{".to_owned());
    bad.region = "nowhere-1".to_owned();
    bad.now_unix_ms = Some(i64::MAX);
    bad.options = Some(plimsoll_proto::plan::v1::PlanOptions { work_budget: u64::MAX, ..Default::default() });
    let refused = client(open).plan_objects(bad).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument, "{refused:?}");
    let violations = refused.get_details_bad_request().unwrap().field_violations;
    let found: Vec<(&str, &str)> = violations.iter().map(|it| (it.field.as_str(), it.description.as_str())).collect();
    let fields: Vec<&str> = found.iter().map(|(field, _)| *field).collect();
    let expected = [
        "region",
        "options.work_budget",
        "now_unix_ms",
        "objects[3]",
        "objects[2].items[1].spec.replicas",
        "objects[2].items[2].spec.template.spec.containers[0].imagined",
        "objects[2].items[0].spec.template.spec.containers[0].resources.requests.cpu",
    ];
    assert_eq!(fields, expected, "{found:#?}");
    assert_eq!(found[4].1, "Deployment shop/less: must not be negative");
    assert!(found[6].1.starts_with("Deployment shop/web: "), "{found:?}");
}

#[tokio::test]
async fn a_catalog_of_the_request_stands_for_the_built_in_one() {
    let (_, open) = start(|_| ());
    let offering = json!({"zone": "here-1a", "capacityType": "on-demand", "price": 0.5, "available": true});
    let only = json!({"name": "own.large", "architecture": "amd64", "operatingSystems": ["linux"],
        "capacity": {"cpu": "4", "memory": "16Gi", "pods": "50", "ephemeral-storage": "20Gi"}, "overhead": {}, "labels": {},
        "offerings": [offering]});
    let catalog = json!({"region": "here-1", "instanceTypes": [only]});
    let asked =
        PlanObjectsRequest { catalog_json: catalog.to_string(), ..request([deployment("web", 1, requests("1"))]) };
    let plan = client(open.clone()).plan_objects(asked.clone()).await.unwrap().into_inner().plan.unwrap();
    assert_eq!(plan.launches[0].offerings[0].instance_type, "own.large");
    assert_eq!(plan.hourly_micro_usd, 500_000);
    let both = PlanObjectsRequest { region: "us-east-1".to_owned(), ..asked };
    let refused = client(open).plan_objects(both).await.unwrap_err();
    assert_eq!((refused.code(), refused.message().split(':').next()), (Code::InvalidArgument, Some("region")));
}

#[tokio::test]
async fn a_request_is_bounded_in_bytes_and_pods() {
    let (_, open) = start(|_| ());
    let mut client = client(open);
    let large = PlanObjectsRequest { objects: vec!["x".repeat(MAX_REQUEST_BYTES)], ..PlanObjectsRequest::default() };
    let refused = client.plan_objects(large).await.unwrap_err();
    assert_eq!(refused.code(), Code::OutOfRange, "{refused:?}");
    let replicas = i64::try_from(MAX_PODS).unwrap() + 1;
    let refused = client.plan_objects(request([deployment("web", replicas, json!({}))])).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert!(refused.message().contains("objects[2].items[0].spec.replicas: Deployment shop/web: "), "{refused}");
    assert!(client.plan_objects(request([deployment("web", 1, json!({}))])).await.is_ok());
}

/// Pods of a StatefulSet with claims are stored one by one.
#[tokio::test]
async fn copies_of_a_large_template_are_bounded() {
    let (_, open) = start(|_| ());
    let claims = json!([{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"]}}]);
    let with_replicas = |replicas: i64, claims: Value| {
        let mut set = deployment("db", replicas, requests("1"));
        set["kind"] = json!("StatefulSet");
        set["spec"]["volumeClaimTemplates"] = claims;
        set["spec"]["template"]["metadata"]["annotations"] = json!({"example.com/note": "x".repeat(200_000)});
        request([set])
    };
    let refused = client(open.clone()).plan_objects(with_replicas(1500, claims)).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument, "{refused:?}");
    let expected = "objects[2].items[0].spec.replicas: StatefulSet shop/db: the copies of the templates ";
    assert!(refused.message().contains(expected), "{refused}");
    assert!(client(open).plan_objects(with_replicas(1500, json!([]))).await.is_ok(), "replicas of one template");
}

#[tokio::test]
async fn callers_share_the_pool_of_the_open_port() {
    let (_, open) = start(|settings| {
        settings.workers = Bounds { running: 2, outside_running: 1, outside_waiting: 1 };
    });
    // Fewer than the port takes at once, so that the pool is what refuses.
    let calls: Vec<_> = (0..12)
        .map(|_| {
            let mut client = client(open.clone());
            tokio::spawn(async move { client.plan_objects(request([deployment("web", 500, requests("1"))])).await })
        })
        .collect();
    let mut codes = BTreeSet::new();
    for call in calls {
        codes.insert(match call.await.unwrap() {
            Ok(_) => "answered".to_owned(),
            Err(status) => {
                assert!(status.get_details_retry_info().is_some(), "{status:?}");
                format!("{:?}", status.code())
            }
        });
    }
    assert_eq!(codes.into_iter().collect::<Vec<_>>(), ["ResourceExhausted", "answered"]);
}

/// Names of the services that reflection lists.
async fn listed(channel: Channel) -> Vec<String> {
    let list = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::ListServices(String::new())),
    };
    let mut client = ServerReflectionClient::new(channel);
    let mut answers = client.server_reflection_info(tokio_stream::once(list)).await.unwrap().into_inner();
    let answer = answers.message().await.unwrap().unwrap().message_response;
    let Some(MessageResponse::ListServicesResponse(list)) = answer else { panic!("{answer:?}") };
    let mut names: Vec<String> = list.service.into_iter().map(|service| service.name).collect();
    names.sort();
    names
}

#[tokio::test]
async fn each_port_lists_the_services_that_it_answers() {
    let (closed, open) = start(|_| ());
    let scheduler = "plimsoll.scheduler.v1.SchedulerService";
    assert_eq!(listed(open).await, ["grpc.health.v1.Health", "plimsoll.objects.v1.ObjectPlannerService", scheduler]);
    assert_eq!(listed(closed.clone()).await, ["grpc.health.v1.Health", scheduler]);
    let refused = client(closed).plan_objects(request([])).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unimplemented);
}
