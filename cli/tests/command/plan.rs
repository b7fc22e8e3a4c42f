//! `plimsoll plan`: output and exit status for users and scripts.

use crate::{deployment, fixture, plimsoll, plimsoll_with, repository, texts};
use serde_json::Value;

pub(crate) const NOW: &str = "2026-01-02T00:00:00Z";

/// Plans the input with the small pool.
pub(crate) fn plan(stdin: &str) -> Value {
    let (pool, catalog) = (fixture("pool.yaml"), fixture("catalog.json"));
    plimsoll_with(&["plan", "-f", &pool, "-f", "-", "--catalog", &catalog, "-o", "json", "--now", NOW], stdin).json()
}

#[test]
fn the_example_of_the_readme_gives_a_plan() {
    let run = plimsoll(&["plan", "-f", repository("docs/examples/plan").to_str().unwrap()]);
    assert_eq!((run.status, run.stderr.as_str()), (0, ""));
    let lines: Vec<&str> = run.stdout.lines().collect();
    assert_eq!((lines[0], lines[4]), ("Launches", "Plan: 1 to add, 0 to remove."), "{lines:#?}");
    assert!(lines[5].contains(" USD per hour for 1 node to launch; lower bound for the same pods: "), "{lines:#?}");
    assert_eq!(lines[6], "The new nodes cost 198.56 USD per month (730 hours).", "{lines:#?}");
    assert_eq!(lines[7], "Prices: On-Demand in us-east-1 as EC2 published it in 2026-07.", "{lines:#?}");
    assert!(!run.stdout.contains('\u{1b}'), "colours belong to terminals alone");
}

#[test]
fn a_plan_as_json_has_the_fields_of_the_contract() {
    let plan = plan(&deployment("web", 2, "1500m", "1Gi"));
    let keys: Vec<&str> = plan.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(keys, ["launches", "existing", "terminations", "unschedulable", "ignored", "cost"]);
    // 3 CPUs: two small nodes cost 0.2, and one large node costs 0.36.
    assert_eq!(plan["cost"]["hourly"], 0.2);
    let launch = &plan["launches"][0];
    let keys: Vec<&str> = launch.as_object().unwrap().keys().map(String::as_str).collect();
    let expected = [
        "nodePool",
        "instanceTypes",
        "zones",
        "capacityTypes",
        "offering",
        "requirements",
        "requests",
        "taints",
        "labels",
        "pods",
    ];
    assert_eq!(keys, expected);
    assert_eq!(launch["nodePool"], "default");
    assert_eq!(texts(&launch["instanceTypes"], ""), ["small", "large"], "cheapest first");
    assert_eq!(launch["offering"]["price"], 0.1);
    assert_eq!(launch["capacityTypes"], serde_json::json!(["on-demand"]));
    assert_eq!(launch["requests"]["cpu"], "1500m");
    let keys = texts(&launch["requirements"], "key");
    let distinct: std::collections::BTreeSet<&String> = keys.iter().collect();
    assert_eq!(keys.len(), distinct.len(), "one requirement for each key: {keys:?}");
    let pods: Vec<String> = plan["launches"].as_array().unwrap().iter().flat_map(|it| texts(&it["pods"], "")).collect();
    assert_eq!(pods, ["default/web-0", "default/web-1"]);
}

#[test]
fn the_order_of_values_in_a_pool_makes_no_difference() {
    let pool = std::fs::read_to_string(fixture("pool.yaml")).unwrap();
    let with_types = |types: &str| {
        let requirement = "        - {key: kubernetes.io/arch,";
        let types = format!("        - {{key: node.kubernetes.io/instance-type, operator: In, values: [{types}]}}\n");
        let input = pool.replace(requirement, &(types + requirement)) + &deployment("web", 1, "500m", "1Gi");
        let run = plimsoll_with(
            &["plan", "-f", "-", "--catalog", &fixture("catalog.json"), "-o", "json", "--now", NOW],
            &input,
        );
        run.json()
    };
    let plan = with_types("small, large");
    assert_eq!(plan, with_types("large, small"));
    let requirements = plan["launches"][0]["requirements"].as_array().unwrap();
    let types = requirements.iter().find(|it| it["key"] == "node.kubernetes.io/instance-type").unwrap();
    assert_eq!(types["values"], serde_json::json!(["large", "small"]));
}

#[test]
fn launches_of_a_burst_are_sorted_as_well() {
    let pool = std::fs::read_to_string(fixture("pool.yaml")).unwrap();
    let other = pool.split("---").next().unwrap().replace("name: default}\nspec", "name: another}\nspec");
    // So many pods have an early part, whose launches are sent before the rest is planned.
    let pods = deployment("web", 12_000, "1500m", "1Gi") + &deployment("api", 12_000, "2", "1Gi");
    let plan = plan(&format!("{other}{pods}"));
    let launches = plan["launches"].as_array().unwrap();
    let keys: Vec<(&str, &str)> =
        launches.iter().map(|it| (it["nodePool"].as_str().unwrap(), it["pods"][0].as_str().unwrap())).collect();
    assert!(keys.is_sorted(), "{:?}", keys.iter().zip(keys.iter().skip(1)).find(|(one, next)| one > next));
}

/// A node as one writes it by hand: without the labels, conditions and NodeClaim of a running cluster.
const PLAIN_NODE: &str = "apiVersion: v1
kind: Node
metadata:
  name: mine
  labels: {karpenter.sh/nodepool: default, node.kubernetes.io/instance-type: small, topology.kubernetes.io/zone: test-1a,
    karpenter.sh/capacity-type: on-demand, kubernetes.io/arch: amd64}
status: {allocatable: {cpu: \"2\", memory: 4Gi, pods: \"10\"}}
";

#[test]
fn a_node_without_conditions_takes_pods() {
    let plan = plan(&format!("{PLAIN_NODE}{}", deployment("web", 1, "1", "1Gi")));
    assert_eq!(plan["existing"], serde_json::json!([{"node": "mine", "pods": ["default/web-0"]}]));
    assert_eq!((&plan["launches"], &plan["terminations"]), (&serde_json::json!([]), &serde_json::json!([])));
}

#[test]
fn an_empty_node_without_conditions_is_removed() {
    let plan = plan(PLAIN_NODE);
    assert_eq!(
        (&plan["terminations"][0]["node"], &plan["terminations"][0]["reason"]),
        (&"mine".into(), &"Empty".into())
    );
    for (what, changed) in [
        ("not ready", PLAIN_NODE.replace("status: {", "status: {conditions: [{type: Ready, status: \"False\"}], ")),
        (
            "coming up",
            PLAIN_NODE.replace(
                "status:",
                "spec: {taints: [{key: node.kubernetes.io/not-ready, effect: NoSchedule}]}\nstatus:",
            ),
        ),
    ] {
        assert_eq!(self::plan(&changed)["terminations"], serde_json::json!([]), "{what}");
    }
}

#[test]
fn yaml_says_what_json_says() {
    let arguments =
        ["plan", "-f", &fixture("pool.yaml"), "-f", "-", "--catalog", &fixture("catalog.json"), "--now", NOW, "-o"];
    let of = |format: &str| plimsoll_with(&[&arguments[..], &[format]].concat(), &deployment("web", 30, "1", "1Gi"));
    let yaml: Value = serde_saphyr::from_str(&of("yaml").stdout).unwrap();
    assert_eq!(yaml, of("json").json());
}

#[test]
fn the_order_of_the_input_does_not_matter() {
    let (one, two) = (deployment("one", 3, "1", "1Gi"), deployment("two", 5, "700m", "2Gi"));
    assert_eq!(plan(&format!("{one}{two}")).to_string(), plan(&format!("{two}{one}")).to_string());
}

#[test]
fn a_pod_without_a_place_is_a_plan_all_the_same() {
    let plan = plan(&deployment("big", 1, "64", "1Gi"));
    let it = &plan["unschedulable"][0];
    assert_eq!(it["pod"], "default/big-0");
    assert_eq!(it["reasons"][0]["nodePool"], "default");
    assert_eq!(it["reasons"][0]["code"], "InsufficientResources");
    assert_eq!((&plan["cost"]["hourly"], &plan["cost"]["gap"]), (&0.0.into(), &0.0.into()));
}

#[test]
fn a_missing_node_class_is_no_bad_input() {
    let pool = std::fs::read_to_string(fixture("pool.yaml")).unwrap();
    let pool = pool.split("---").next().unwrap().to_owned() + &deployment("web", 1, "1", "1Gi");
    for catalog in [vec![], vec!["--catalog".to_owned(), fixture("catalog.json")]] {
        let catalog: Vec<&str> = catalog.iter().map(String::as_str).collect();
        let plan = plimsoll_with(&[&["plan", "-f", "-", "-o", "json"], &catalog[..]].concat(), &pool).json();
        assert_eq!(plan["unschedulable"][0]["reasons"][0]["code"], "NodeClassNotFound");
    }
}

#[test]
fn pods_without_any_pool_are_unschedulable() {
    let plan = plimsoll_with(&["plan", "-f", "-", "-o", "json"], &deployment("web", 1, "1", "1Gi")).json();
    assert_eq!(plan["unschedulable"][0]["reasons"][0]["code"], "NoNodePool");
}

#[test]
fn bad_input_is_told_with_file_document_object_and_field() {
    let broken = deployment("web", 1, "1", "1Gi").replace("memory: 1Gi", "memory: 1Gigabyte");
    let input = format!("{}{broken}", deployment("fine", 1, "1", "1Gi"));
    plimsoll_with(&["plan", "-f", &fixture("pool.yaml"), "-f", "-"], &input).refused(&[
        "error: -: document 2: Deployment default/web: spec.template.spec.containers[0].resources.requests.memory: ",
    ]);
    // Also if the workload has no replicas, and for every node.
    let idle = input.replace("replicas: 1", "replicas: 0");
    plimsoll_with(&["plan", "-f", "-"], &idle).refused(&[
        "-: document 2: Deployment default/web: ",
        "1Gigabyte",
        "did you mean G or Gi?",
    ]);
    let node = "apiVersion: v1\nkind: Node\nmetadata: {name: one}\nstatus: {allocatable: {cpu: many}}\n";
    plimsoll_with(&["plan", "-f", "-"], node).refused(&["-: document 1: Node one: status.allocatable.cpu: "]);
    plimsoll_with(&["plan", "-f", "-"], "kind: [\n").refused(&["-: document 1: not YAML: line "]);
    for (name, fault) in [
        ("name: 123", "Pod: metadata.name: must be a string, not a number; quote it"),
        ("name: n", "Pod: metadata.name: must be a string, not a boolean; quote it"),
        ("name: a, namespace: 1e3", "Pod a: metadata.namespace: must be a string, not a number; quote it"),
    ] {
        let pod = format!("apiVersion: v1\nkind: Pod\nmetadata: {{{name}}}\n");
        plimsoll_with(&["plan", "-f", "-"], &pod).refused(&[fault]);
    }
}

#[test]
fn what_cannot_be_used_at_all_is_bad_input() {
    let pool = fixture("pool.yaml");
    plimsoll(&["plan", "-f", "no-such-file.yaml"]).refused(&["no-such-file.yaml: "]);
    plimsoll(&["plan", "-f", &pool, "--catalog", "no-such-catalog.json"]).refused(&["catalog no-such-catalog.json: "]);
    plimsoll(&["plan", "-f", &pool, "--catalog", &pool]).refused(&["pool.yaml"]);
    plimsoll(&["plan", "-f", &pool, "--region", "moon-1"]).refused(&["moon-1", "us-east-1"]);
    plimsoll(&["plan", "-f", &pool, "--server", "nonsense"]).refused(&["--server nonsense: must be host:port"]);
    plimsoll(&["plan", "-f", &pool, "--now", "yesterday"]).refused(&["--now"]);
    plimsoll(&["plan"]).refused(&["kubeconfig: ", "-f PATH"]);
}

#[test]
fn a_catalog_that_is_cut_off_is_bad_input() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cut.json");
    let whole = std::fs::read_to_string(fixture("catalog.json")).unwrap();
    std::fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    plimsoll(&["plan", "-f", &fixture("pool.yaml"), "--catalog", path.to_str().unwrap()]).refused(&["cut.json"]);
}

#[test]
fn timings_are_one_line_of_json_on_stderr() {
    let (pool, catalog) = (fixture("pool.yaml"), fixture("catalog.json"));
    let arguments = ["plan", "-f", &pool, "-f", "-", "--catalog", &catalog, "-o", "json", "--now", NOW];
    let input = deployment("web", 3, "1", "1Gi");
    let plain = plimsoll_with(&arguments, &input);
    let timed = plimsoll_with(&[&arguments[..], &["--timings"]].concat(), &input);
    assert_eq!((plain.status, plain.stderr.as_str()), (0, ""));
    assert_eq!((timed.status, &timed.stdout), (0, &plain.stdout), "the answer is the same");
    assert_eq!(timed.stderr.lines().count(), 1, "{}", timed.stderr);
    let line: Value = serde_json::from_str(&timed.stderr).unwrap();
    let timings = line["timings"].as_object().unwrap();
    assert_eq!(timings.keys().collect::<Vec<_>>(), ["read", "plan", "check"]);
    for (part, seconds) in timings {
        assert!(seconds.as_f64().is_some_and(|seconds| seconds > 0.0), "{part}: {seconds}");
    }
    // No plan was made.
    let refused = plimsoll_with(&["plan", "-f", "-", "--timings"], "kind: [\n");
    refused.refused(&["not YAML"]);
    assert!(!refused.stderr.contains("timings"), "{}", refused.stderr);
}

#[test]
fn other_kinds_are_told_once() {
    let service = |name: &str| format!("---\napiVersion: v1\nkind: Service\nmetadata: {{name: {name}}}\n");
    let run =
        plimsoll_with(&["plan", "-f", "-"], &(service("a") + &service("b") + "---\napiVersion: v1\nkind: Secret\n"));
    assert_eq!((run.status, run.stderr.as_str()), (0, "ignored: v1 Secret (1), v1 Service (2)\n"));
}

#[test]
fn zones_of_another_region_bring_a_hint() {
    let input = repository("api/tests/fixtures/seed-000.yaml");
    let run = plimsoll(&["plan", "-f", input.to_str().unwrap()]);
    assert_eq!(run.status, 0);
    assert!(
        run.stderr.contains("hint: NodePool backend: ") && run.stderr.contains("--region ap-northeast-2"),
        "{}",
        run.stderr
    );
    let right = plimsoll(&["plan", "-f", input.to_str().unwrap(), "--region", "ap-northeast-2"]);
    assert_eq!((right.status, right.stderr.as_str()), (0, ""));
}

#[test]
fn an_empty_node_goes_and_a_protected_one_stays() {
    let cluster = std::fs::read_to_string(fixture("cluster.yaml")).unwrap();
    let plan = plan(&cluster);
    assert_eq!(texts(&plan["terminations"], "node"), ["idle"]);
    assert_eq!(
        (&plan["terminations"][0]["reason"], &plan["terminations"][0]["saving"]),
        (&"Empty".into(), &0.1.into())
    );
}

#[test]
fn pending_pods_go_where_there_is_room() {
    let cluster = std::fs::read_to_string(fixture("cluster.yaml")).unwrap();
    let plan = plan(&(cluster + &deployment("web", 2, "900m", "1Gi")));
    assert_eq!(plan["launches"], serde_json::json!([]));
    let placed: Vec<String> =
        plan["existing"].as_array().unwrap().iter().flat_map(|it| texts(&it["pods"], "")).collect();
    let placed: std::collections::BTreeSet<String> = placed.into_iter().collect();
    assert_eq!(placed.into_iter().collect::<Vec<_>>(), ["default/web-0", "default/web-1"]);
}

#[test]
fn nominated_pods_are_among_those_that_a_node_takes() {
    let pod = "---\napiVersion: v1\nkind: Pod\nmetadata: {name: next}\nspec: {containers: [{name: app}]}\n\
               status: {phase: Pending, nominatedNodeName: idle}\n";
    let input = cluster() + pod;
    assert_eq!(plan(&input)["existing"], serde_json::json!([{"node": "idle", "pods": ["default/next"]}]));
    assert!(table(&input, &[]).stdout.contains("Nothing to change. 1 pending pod fits on existing nodes."));
}

#[test]
fn a_large_document_is_read() {
    // More nodes than a YAML reader allows by default.
    let values = "1,".repeat(300_000);
    let text = format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: large}}\nvalues: [{values}]\n");
    let run = plimsoll_with(&["plan", "-f", "-"], &text);
    assert_eq!((run.status, run.stderr.as_str()), (0, "ignored: v1 ConfigMap (1)\n"));
}

/// The table for the input with the small pool.
pub(crate) fn table(stdin: &str, options: &[&str]) -> crate::Run {
    let (pool, catalog) = (fixture("pool.yaml"), fixture("catalog.json"));
    let arguments = ["plan", "-f", &pool, "-f", "-", "--catalog", &catalog, "--now", NOW];
    plimsoll_with(&[&arguments[..], options].concat(), stdin)
}

pub(crate) fn cluster() -> String {
    std::fs::read_to_string(fixture("cluster.yaml")).unwrap()
}

/// The cluster with one more annotation on each node.
fn protected_cluster() -> String {
    cluster().replace(
        "metadata: {name: idle,",
        "metadata: {name: idle, annotations: {karpenter.sh/do-not-disrupt: \"true\"},",
    )
}

#[test]
fn a_plan_ends_with_a_line_that_counts() {
    let says = |stdin: &str, text: &str| {
        let run = table(stdin, &[]);
        assert!(run.stdout.lines().any(|line| line == text), "{text:?} is no line of {}", run.stdout);
    };
    says(&(cluster() + &deployment("big", 2, "64", "1Gi")), "Plan: 0 to add, 1 to remove, 2 pods unschedulable.");
    says(&deployment("web", 1, "1", "1Gi"), "Plan: 1 to add, 0 to remove.");
    says("", "Nothing to change.");
    says(&deployment("big", 1, "64", "1Gi"), "Nothing to change. 1 pod unschedulable.");
    says(&protected_cluster(), "Nothing to change. 1 node could go but stays: do-not-disrupt (idle).");
    let budget = "---\napiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {name: web}\nspec: {maxUnavailable: 0, selector: {matchLabels: {app: web}}}\n";
    let pod = "  - apiVersion: v1\n    kind: Pod\n    metadata: {name: web, labels: {app: web}}\n    spec: {nodeName: idle, containers: \
               [{name: app, resources: {requests: {cpu: 100m}}}]}\n    status: {phase: Running}\n";
    let covered =
        cluster().replace("annotations: {karpenter.sh/do-not-disrupt: \"true\"}", "labels: {app: web}") + pod + budget;
    let run = table(&covered, &[]);
    let text = "Nothing to change. 1 node could go but stays: PodDisruptionBudget default/web (";
    assert!(run.stdout.starts_with(text), "{}", run.stdout);
}

#[test]
fn exit_statuses_tell_changes_and_pods_without_a_place_if_asked() {
    let (changes, nothing, without_place) =
        (deployment("web", 1, "1", "1Gi"), String::new(), deployment("big", 1, "64", "1Gi"));
    let both = changes.clone() + &without_place;
    let (detailed, strict) = ("--detailed-exitcode", "--fail-on-unschedulable");
    for (input, options, expected) in [
        (&both, &[][..], 0),
        (&nothing, &[detailed, strict], 0),
        (&changes, &[detailed], 3),
        (&without_place, &[detailed], 0),
        (&changes, &[strict], 0),
        (&without_place, &[strict], 4),
        (&both, &[detailed, strict], 4),
    ] {
        let run = table(input, options);
        assert_eq!(run.status, expected, "{options:?}: {}", run.stderr);
        assert!(!run.stdout.is_empty(), "the plan is printed all the same");
    }
}

#[test]
fn own_prices_take_the_place_of_the_catalog_s() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("prices.tsv");
    let run = |prices: &str| {
        std::fs::write(&path, prices).unwrap();
        table(&deployment("web", 1, "1", "1Gi"), &["--prices", path.to_str().unwrap()])
    };
    let cheap = run("large * on-demand 0.05\n");
    assert!(cheap.stdout.contains("large") && cheap.stdout.contains("0.05 USD per hour for 1 node"), "{cheap:?}");
    assert!(cheap.stdout.contains("prices.tsv where it has the offering; catalog "), "{cheap:?}");
    let odd = run("lareg * on-demand 0.05\n");
    assert_eq!(odd.status, 0);
    assert!(odd.stderr.contains("line 1: lareg * on-demand is not offered; did you mean large?"), "{odd:?}");
    run("large * on-demand cheap\n").refused(&["prices.tsv: line 1: price: \"cheap\" is not a price"]);
}

#[test]
fn the_request_is_what_the_scheduler_takes() {
    let run = table(&deployment("web", 1, "1500m", "1Gi"), &["-o", "request"]);
    let request = run.json();
    let shape = &request["snapshot"]["shapes"][0];
    let cpu = shape["requests"].as_array().unwrap().iter().find(|it| it["name"] == "cpu").unwrap();
    assert_eq!(cpu["amount"], "1500", "64-bit numbers are text, and CPU is in thousandths");
    assert_eq!(request["snapshot"]["pods"][0]["name"], "web-0");
    assert_eq!(request["catalogs"][0]["region"], "test-1");
    // The output parses to a request with the same plan.
    let pool = prost_reflect::DescriptorPool::decode(plimsoll_proto::FILE_DESCRIPTOR_SET).unwrap();
    let descriptor = pool.get_message_by_name("plimsoll.scheduler.v1.PlanRequest").unwrap();
    let message = prost_reflect::DynamicMessage::deserialize(descriptor, &request).unwrap();
    let request: plimsoll_proto::scheduler::v1::PlanRequest = message.transcode_to().unwrap();
    let plan = plimsoll_scheduler::answer::plan(&request).unwrap().plan.unwrap();
    assert_eq!(plan.launches[0].pods[0].name, "default/web-0");
}
