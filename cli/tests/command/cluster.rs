//! `plimsoll plan` and `plimsoll explain` from a cluster: an API server that supports only lists.

use crate::{Run, fixture, plimsoll};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;

/// Objects of the fixtures by the plural of their kind.
fn objects() -> Vec<(&'static str, Value)> {
    let mut objects = Vec::new();
    for name in ["pool.yaml", "cluster.yaml"] {
        let text = std::fs::read_to_string(fixture(name)).unwrap();
        let documents: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
        for document in documents {
            match document["items"].as_array() {
                Some(items) => objects.extend(items.iter().cloned()),
                None => objects.push(document),
            }
        }
    }
    objects.push(json!({"kind": "Pod", "metadata": {"name": "waiting", "namespace": "shop"},
        "spec": {"containers": [{"name": "app", "resources": {"requests": {"cpu": "64"}}}]},
        "status": {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}}));
    let plural = |kind: &str| match kind {
        "NodePool" => "nodepools",
        "EC2NodeClass" => "ec2nodeclasses",
        "NodeClaim" => "nodeclaims",
        "Node" => "nodes",
        "Pod" => "pods",
        other => panic!("{other}"),
    };
    let of_cluster = |mut object: Value| {
        let plural = plural(object["kind"].as_str().unwrap());
        if plural == "ec2nodeclasses" {
            object["status"] = json!({"conditions": [{"type": "Ready", "status": "True", "reason": "Ready", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
        }
        if plural == "pods" && object["metadata"]["namespace"].is_null() {
            object["metadata"]["namespace"] = json!("default");
        }
        (plural, object)
    };
    objects.into_iter().map(of_cluster).collect()
}

/// Answers one request. Each page has one pod.
fn answer(mut stream: TcpStream, objects: &[(&str, Value)], knows: fn(&str) -> bool) {
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
    let Some(first) = lines.next() else { return };
    let target = first.split(' ').nth(1).unwrap().to_owned();
    lines.take_while(|line| !line.is_empty()).for_each(drop);
    let (path, query) = target.split_once('?').unwrap();
    let plural = path.rsplit('/').next().unwrap();
    let mut items: Vec<Value> = objects.iter().filter(|it| it.0 == plural).map(|it| it.1.clone()).collect();
    let mut metadata = json!({"resourceVersion": "1"});
    if plural == "pods" {
        let page = query.split('&').find_map(|it| it.strip_prefix("continue=")).map_or(0, |it| it.parse().unwrap());
        if page + 1 < items.len() {
            metadata["continue"] = json!((page + 1).to_string());
        }
        items = vec![items[page].clone()];
    }
    let (status, body) = if knows(plural) {
        ("200 OK", json!({"kind": "List", "apiVersion": "v1", "metadata": metadata, "items": items}))
    } else {
        let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404, "message": "no"});
        ("404 Not Found", status)
    };
    let body = body.to_string();
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    let _ = stream.write_all((head + &body).as_bytes());
}

/// Runs `explain` against the fake server; `knows` tells whether the server has a kind, given as its plural.
fn explain(subject: &[&str], knows: fn(&str) -> bool) -> Run {
    run(&[&["explain"], subject].concat(), knows)
}

fn run(command: &[&str], knows: fn(&str) -> bool) -> Run {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let objects = objects();
    // The thread ends with the test process; it gets no requests after the run.
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            answer(stream, &objects, knows);
        }
    });
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("config");
    std::fs::write(&kubeconfig, kubeconfig_for(&address.to_string())).unwrap();
    let (catalog, kubeconfig) = (fixture("catalog.json"), as_text(&kubeconfig));
    plimsoll(
        &[command, &["--kubeconfig", &kubeconfig, "--catalog", &catalog, "--now", "2026-01-02T00:00:00Z"]].concat(),
    )
}

fn as_text(path: &Path) -> String {
    path.display().to_string()
}

fn kubeconfig_for(address: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: test\nclusters: [{{name: c, cluster: {{server: \"http://{address}\"}}}}]\n\
         users: [{{name: u, user: {{}}}}]\ncontexts: [{{name: test, context: {{cluster: c, user: u, namespace: shop}}}}]\n"
    )
}

#[test]
fn a_cluster_is_read_page_by_page() {
    let run = explain(&["node", "busy"], |_| true);
    assert_eq!((run.status, run.stderr.as_str()), (0, ""));
    assert!(run.stdout.contains("small, on-demand, test-1a, 0.1 USD per hour"), "{}", run.stdout);
    assert!(run.stdout.contains("pod default/keeper has the annotation karpenter.sh/do-not-disrupt"), "{}", run.stdout);
}

#[test]
fn a_plan_without_files_is_for_the_cluster() {
    let run = run(&["plan"], |_| true);
    assert_eq!((run.status, run.stderr.as_str()), (0, ""));
    assert!(run.stdout.contains("Plan: 0 to add, 1 to remove, 1 pod unschedulable."), "{}", run.stdout);
}

#[test]
fn the_namespace_is_that_of_the_context() {
    let run = explain(&["pod", "waiting"], |_| true);
    assert!(run.stdout.starts_with("Pod shop/waiting\n") && run.stdout.contains("InsufficientResources"), "{run:?}");
    explain(&["pod", "keeper"], |_| true).refused(&["there is no pod shop/keeper; nearest: "]);
    assert!(explain(&["pod", "keeper", "-n", "default"], |_| true).stdout.contains("busy"));
}

#[test]
fn a_cluster_without_the_custom_resources_is_told_so() {
    let run = explain(&["node", "busy"], |_| false);
    assert_eq!((run.status, run.stdout.as_str()), (1, ""));
    assert!(run.stderr.contains("does not know NodePool") && run.stderr.contains("deploy/crds"), "{}", run.stderr);
}

#[test]
fn a_cluster_may_lack_the_optional_kinds() {
    let run =
        explain(&["node", "busy"], |plural| !["capacitybuffers", "capacityquotas", "nodeoverlays"].contains(&plural));
    assert_eq!((run.status, run.stderr.as_str()), (0, ""));
}

/// It may be a token.
#[test]
fn what_an_exec_plugin_prints_and_a_kubeconfig_contains_is_not_repeated() {
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("config");
    let exec = |script: &str| {
        format!(
            "exec: {{apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never, command: sh, \
             args: [-c, \"{script}\"]}}"
        )
    };
    for (user, status, told) in [
        (exec("echo SECRETTOKEN; exit 3"), 1, "the exec plugin of the kubeconfig ended with exit status: 3"),
        (exec("echo token: [SECRETTOKEN"), 1, "what the exec plugin of the kubeconfig printed is no ExecCredential"),
        ("token: [SECRETTOKEN]".to_owned(), 2, "/config: not a kubeconfig at line 5, column "),
    ] {
        let text = kubeconfig_for("127.0.0.1:1").replace("user: {}", &format!("user: {{{user}}}"));
        std::fs::write(&kubeconfig, text).unwrap();
        for command in [&["plan"][..], &["certificates", "--secrets", "shop"]] {
            let run = plimsoll(&[command, &["--kubeconfig", &as_text(&kubeconfig)]].concat());
            assert_eq!((run.status, run.stdout.as_str()), (status, ""), "{run:?}");
            assert!(run.stderr.contains(told) && !run.stderr.contains("SECRETTOKEN"), "{run:?}");
        }
    }
}

#[test]
fn why_a_cluster_cannot_be_reached_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("config");
    // Nothing listens on port 1.
    std::fs::write(&kubeconfig, kubeconfig_for("127.0.0.1:1")).unwrap();
    let run = plimsoll(&["plan", "--kubeconfig", &as_text(&kubeconfig)]);
    assert_eq!((run.status, run.stdout.as_str()), (1, ""));
    assert!(run.stderr.contains("listing NodePool: ") && run.stderr.contains("Connection refused"), "{}", run.stderr);
}
