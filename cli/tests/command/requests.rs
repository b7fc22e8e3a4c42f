//! The requests of a plan for scripts. tests/judge validates them against AWS' own model.

use crate::{plimsoll, plimsoll_with, repository};
use serde_json::Value;
use std::io::Write as _;

const NOW: [&str; 2] = ["--now", "2026-01-02T00:00:00Z"];

fn path(name: &str) -> String {
    repository(name).display().to_string()
}

fn one() -> String {
    path("docs/examples/requests/one.yaml")
}

fn facts(text: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::Builder::new().suffix(".yaml").tempfile().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

#[test]
fn the_documented_requests_are_printed() {
    for (seed, region) in [("seed-000", "ap-northeast-2"), ("seed-001", "us-east-1")] {
        let manifests = path(&format!("api/tests/fixtures/{seed}.yaml"));
        let workload = path("docs/examples/requests/workload.yaml");
        let run = plimsoll(&["requests", "-f", &manifests, &workload, "--region", region, NOW[0], NOW[1]]);
        run.json();
        let shown = repository(&format!("docs/examples/requests/{seed}.json"));
        if std::env::var_os("PLIMSOLL_UPDATE").is_some() {
            std::fs::write(&shown, &run.stdout).unwrap();
        }
        assert_eq!(std::fs::read_to_string(&shown).unwrap(), run.stdout, "{seed}; PLIMSOLL_UPDATE=1 writes it anew");
    }
}

#[test]
fn the_type_of_the_plan_is_requested() {
    let text = std::fs::read_to_string(one()).unwrap();
    let text = text.replace("[m7g.large]", "[c6g.metal, c6g.8xlarge]").replace("cpu: \"1\"", "cpu: \"20\"");
    let prices = facts("c6g.metal * on-demand 0.6\n");
    let common = ["-f", "-", "--prices", prices.path().to_str().unwrap(), NOW[0], NOW[1]];
    let plan = plimsoll_with(&[&["plan", "-o", "json"][..], &common[..]].concat(), &text).json();
    let requests = plimsoll_with(&[&["requests"][..], &common[..]].concat(), &text).json();
    let planned = &plan["launches"][0]["offering"]["instanceType"];
    let overrides = &requests["launches"][0]["createFleet"]["LaunchTemplateConfigs"][0]["Overrides"];
    assert_eq!((planned.as_str(), &overrides[0]["InstanceType"]), (Some("c6g.8xlarge"), planned));
}

#[test]
fn pods_without_a_request_are_counted() {
    let text = std::fs::read_to_string(one()).unwrap().replace("cpu: \"1\"", "cpu: \"100\"");
    let run = plimsoll_with(&["requests", "-f", "-", NOW[0], NOW[1]], &text);
    let hint = "hint: 1 pod is unschedulable and has no request; plimsoll plan gives the reasons\n";
    assert!(run.status == 0 && run.stderr.contains(hint), "{}", run.stderr);
}

#[test]
fn a_launch_may_request_what_only_a_node_overlay_defines() {
    let text = std::fs::read_to_string(one()).unwrap();
    let device = "example.com/device: \"1\"";
    let text = text.replace("memory: 1Gi}}", &format!("memory: 1Gi, {device}}}, limits: {{{device}}}}}"));
    let overlay = "---\napiVersion: karpenter.sh/v1alpha1\nkind: NodeOverlay\nmetadata: {name: devices}\nspec:\n  \
                   requirements: [{key: kubernetes.io/arch, operator: In, values: [arm64]}]\n  \
                   capacity: {example.com/device: \"4\"}\n";
    let requests = plimsoll_with(&["requests", "-f", "-"], &(text + overlay)).json();
    assert_eq!(requests["launches"].as_array().unwrap().len(), 1, "{requests}");
}

#[test]
fn launches_that_request_the_same_share_a_group() {
    let pods: String = ["b", "c"]
        .map(|name| {
            format!(
                "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec: {{containers: [{{name: a, image: b, \
                 resources: {{requests: {{cpu: \"1\", memory: 1Gi}}}}}}]}}\n"
            )
        })
        .concat();
    let requests = plimsoll_with(&["requests", "-f", &one(), "-f", "-"], &pods).json();
    let launches = requests["launches"].as_array().unwrap();
    let sum = |member: fn(&Value) -> u64| launches.iter().map(member).sum::<u64>();
    let requested = sum(|it| it["createFleet"]["TargetCapacitySpecification"]["TotalTargetCapacity"].as_u64().unwrap());
    assert_eq!((launches.len(), requested), (1, sum(|it| it["nodes"].as_u64().unwrap())));
    assert!(requested >= 2, "a node has room for one of them: {requested}");
    assert_eq!(launches[0]["pods"].as_array().unwrap().len(), 3);
}

#[test]
fn what_facts_do_not_give_is_named() {
    let file = facts("cluster: {name: mine}\nnodeClasses: {default: {securityGroups: [{id: sg-9}]}}\n");
    let requests = plimsoll(&["requests", "-f", &one(), "--cluster", file.path().to_str().unwrap()]).json();
    let samples = requests["samples"].as_array().unwrap();
    let has = |name: &str| samples.contains(&Value::from(name));
    assert!(has("cluster.endpoint") && has("nodeClasses.default.amis"), "{samples:?}");
    assert!(!has("cluster.name") && !has("nodeClasses.default.securityGroups"), "{samples:?}");
    let data = &requests["launches"][0]["createLaunchTemplate"][0]["LaunchTemplateData"];
    assert_eq!(data["NetworkInterfaces"][0]["Groups"], serde_json::json!(["sg-9"]));
}

#[test]
fn bad_facts_are_refused_with_file_and_field() {
    for (text, field) in [
        ("nodeClasses: {default: {subnets: [{zone: a}]}}", "nodeClasses.default.subnets[0]: missing field `id`"),
        ("cluster: {version: 1.36}", "cluster.version: invalid type"),
        ("cluster: {colour: red}", "unknown field `colour`"),
        ("nodeClasses: {other: {}}", "nodeClasses.other: no EC2NodeClass"),
        ("a: [", "not YAML: unclosed bracket '[' at line 1, column 4\n"),
    ] {
        let file = facts(text);
        let path = file.path().to_str().unwrap();
        plimsoll(&["requests", "-f", &one(), "--cluster", path]).refused(&[path, field]);
    }
    plimsoll(&["requests", "-f", &one(), "--cluster", "no-such-file"]).refused(&["no-such-file"]);
}

#[test]
fn what_prevents_a_request_is_told_with_file_object_and_field() {
    let text = std::fs::read_to_string(one()).unwrap();
    let bottlerocket =
        text.replace("[{alias: al2023@latest}]", "[{alias: bottlerocket@latest}]\n  userData: \"x = [\"");
    plimsoll_with(&["requests", "-f", "-"], &bottlerocket)
        .refused(&["-: document 2: EC2NodeClass default: spec.userData: not TOML"]);
    let file = facts("nodeClasses: {default: {subnets: [{id: subnet-1, zone: us-east-1f}]}}");
    let cluster = file.path().to_str().unwrap();
    plimsoll(&["requests", "-f", &one(), "--cluster", cluster])
        .refused(&["EC2NodeClass default: spec.subnetSelectorTerms"]);
}

#[test]
fn user_data_alone_is_printed_as_it_is_and_several_have_names() {
    let single = plimsoll(&["requests", "-f", &one(), "--user-data"]);
    assert!(single.stdout.starts_with("MIME-Version: 1.0\n"), "{}", single.stdout);
    let several = std::fs::read_to_string(one()).unwrap().replace("[m7g.large]", "[m7g.large, m7g.4xlarge]");
    let several = plimsoll_with(&["requests", "-f", "-", "--user-data"], &several);
    let heads = several.stdout.lines().filter(|line| line.starts_with("==> karpenter.k8s.aws/"));
    assert_eq!(heads.count(), 2, "{}", several.stdout);
}
