//! A scheduler over gRPC returns the same bytes as this process.

use crate::plan::NOW;
use crate::{Run, deployment, fixture, plimsoll_with, repository};
use plimsoll_model::time::Timestamp;
use plimsoll_proto::objects::v1::PlanObjectsRequest;
use plimsoll_runtime::admin::Readiness;
use plimsoll_runtime::metrics::Metrics;
use plimsoll_runtime::serve::Listener;
use plimsoll_runtime::shutdown::Shutdown;
use plimsoll_scheduler::service::{self, Parts, Settings};
use serde_json::json;
use std::num::NonZeroUsize;

/// Runs with `--server` and a scheduler that lives as long as the call.
fn with_server(run: impl FnOnce(&str) -> Run) -> Run {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let shutdown = Shutdown::default();
    let address = runtime.block_on(async {
        let open = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = open.local_addr().unwrap();
        let parts = Parts {
            closed: Listener::Closed(closed, None),
            open: Some(Listener::Open(open)),
            metrics: Metrics::new("scheduler"),
            readiness: Readiness::default(),
            settings: Settings::for_cores(NonZeroUsize::MIN),
        };
        tokio::spawn(service::run(parts, shutdown.clone()));
        address
    });
    let run = run(&address.to_string());
    shutdown.start();
    run
}

#[test]
fn the_same_input_gives_the_same_bytes() {
    let (pool, cluster, catalog) = (fixture("pool.yaml"), fixture("cluster.yaml"), fixture("catalog.json"));
    let files = [
        "plan",
        "-f",
        &pool,
        "-f",
        &cluster,
        "-f",
        "-",
        "--now",
        "2026-01-02T00:00:00Z",
        "--catalog",
        &catalog,
        "-o",
        "json",
    ];
    let input = deployment("web", 40, "700m", "1Gi") + &deployment("big", 1, "64", "1Gi");
    let here = plimsoll_with(&files, &input);
    let there = with_server(|address| plimsoll_with(&[&files[..], &["--server", address]].concat(), &input));
    assert_eq!(here.status, 0, "{}", here.stderr);
    assert!(here.json()["launches"].as_array().unwrap().len() > 1);
    assert_eq!((there.status, there.stdout, there.stderr), (here.status, here.stdout, here.stderr));
}

#[test]
fn a_zone_that_is_assumed_gone_gives_the_same_tables() {
    let (pool, cluster, catalog) = (fixture("pool.yaml"), fixture("cluster.yaml"), fixture("catalog.json"));
    let files = ["plan", "-f", &pool, "-f", &cluster, "--now", NOW, "--catalog", &catalog, "--without-zone", "test-1a"];
    let here = plimsoll_with(&files, "");
    let there = with_server(|address| plimsoll_with(&[&files[..], &["--server", address]].concat(), ""));
    assert!(here.stdout.contains("\nWithout the assumptions: 0 to add, 1 to remove, "), "{}", here.stdout);
    assert_eq!((there.status, there.stdout, there.stderr), (here.status, here.stdout, here.stderr));
}

#[test]
fn a_plan_whose_lists_fill_many_responses_gives_the_same_bytes() {
    // Each launch has all offerings of the catalog: together 24 MB, which is more than a response may have.
    let alone = "affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: \
                 kubernetes.io/hostname, labelSelector: {matchLabels: {app: web}}}]}}\n      containers: [";
    let input = std::fs::read_to_string(fixture("pool.yaml"))
        .unwrap()
        .replace(", values: [on-demand]", ", values: [on-demand, spot]")
        + &deployment("web", 1200, "1", "1Gi").replace("containers: [", alone)
        + &deployment("big", 3, "2000", "1Gi");
    let files = ["plan", "-f", "-", "--now", "2026-01-02T00:00:00Z", "-o", "json"];
    let here = plimsoll_with(&files, &input);
    let there = with_server(|address| plimsoll_with(&[&files[..], &["--server", address]].concat(), &input));
    assert_eq!(here.json()["launches"].as_array().unwrap().len(), 1200);
    assert_eq!((there.status, there.stdout, there.stderr), (here.status, here.stdout, here.stderr));
}

#[test]
fn built_in_catalogs_go_over_the_wire() {
    let pool = std::fs::read_to_string(fixture("pool.yaml")).unwrap() + &deployment("web", 3, "1", "1Gi");
    let files = ["plan", "-f", "-", "--now", "2026-01-02T00:00:00Z", "-o", "json"];
    let here = plimsoll_with(&files, &pool);
    let there = with_server(|address| plimsoll_with(&[&files[..], &["--server", address]].concat(), &pool));
    assert_eq!((there.status, &there.stdout), (0, &here.stdout), "{}", there.stderr);
}

#[test]
fn a_server_that_is_not_there_is_no_bad_input() {
    // Bound and released: no process listens on this address.
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let run = plimsoll_with(&["plan", "-f", "-", "--server", &address], "");
    assert_eq!((run.status, run.stdout.as_str()), (1, ""));
    assert!(run.stderr.contains("cannot reach a scheduler at") && run.stderr.contains(&address), "{}", run.stderr);
}

#[test]
fn the_service_for_objects_plans_what_the_command_plans() {
    let files = [
        "plan",
        "-f",
        &repository("docs/examples/objects/cluster.json").display().to_string(),
        "--now",
        NOW,
        "-o",
        "json",
    ]
    .map(str::to_owned);
    let here = plimsoll_with(&files.iter().map(String::as_str).collect::<Vec<_>>(), "").json();
    let objects = std::fs::read_to_string(repository("docs/examples/objects/cluster.json")).unwrap();
    let now_unix_ms = Some(NOW.parse::<jiff::Timestamp>().unwrap().as_millisecond());
    let request = PlanObjectsRequest { objects: vec![objects], now_unix_ms, ..PlanObjectsRequest::default() };
    let answer = plimsoll_objects::plan_objects(request, Timestamp(0), &Default::default()).unwrap();
    let there = answer.plan.unwrap();
    assert_eq!(here["cost"]["hourly"].as_f64().map(|usd| (usd * 1e6).round() as i64), Some(there.hourly_micro_usd));
    let pods =
        |launch: &plimsoll_proto::plan::v1::Launch| launch.pods.iter().map(|pod| pod.name.clone()).collect::<Vec<_>>();
    let expected: Vec<_> = there
        .launches
        .iter()
        .map(|launch| json!({"type": launch.offerings[0].instance_type, "zone": launch.offerings[0].zone, "pods": pods(launch)}))
        .collect();
    let launches = here["launches"].as_array().unwrap().iter();
    let found: Vec<_> = launches
        .map(|it| json!({"type": it["offering"]["instanceType"], "zone": it["offering"]["zone"], "pods": it["pods"]}))
        .collect();
    assert!(!found.is_empty());
    assert_eq!(found, expected);
}
