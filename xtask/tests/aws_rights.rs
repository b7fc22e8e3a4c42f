//! The actuator's permissions in AWS match its calls: compares deploy/aws/cloudformation.yaml with the calls of
//! actuator/aws. tests/aws compares the Terraform module with the template.

#![allow(clippy::unwrap_used, clippy::panic, reason = "test helpers fail by panicking")]

mod common;

use common::root;
use plimsoll_model::names::{label, tag};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Actions that IAM also checks for a call with another name.
const IMPLIED: &[(&str, &[&str])] = &[
    ("ec2:CreateFleet", &["ec2:CreateTags", "ec2:RunInstances", "iam:PassRole"]),
    ("ec2:CreateLaunchTemplate", &["ec2:CreateTags"]),
    ("iam:CreateInstanceProfile", &["iam:TagInstanceProfile"]),
];
/// Calls that IAM checks by the name of another action. SQS has no action for a batch:
/// https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-api-permissions-reference.html
const CHECKED_AS: &[(&str, &str)] = &[("sqs:DeleteMessageBatch", "sqs:DeleteMessage")];
/// Services whose prefix in IAM is not the name of their SDK.
const PREFIXES: &[(&str, &str)] = &[("arczonalshift", "arc-zonal-shift")];
/// Names of the SDK clients in the adapter.
const CLIENTS: &[&str] = &["client.", "mutations.", "reads."];
/// Statements that allow changes without a condition on tags, with the reason.
const WITHOUT_TAGS: &[(&str, &str)] = &[
    ("LaunchFromExistingResources", "what is launched has conditions of its own"),
    ("PassNodeRole", "names one role"),
    ("ReadInterruptionQueue", "names one queue"),
];

/// The statements of the actuator's two policies. Policies are JSON in block scalars: the lines from `{` to `}` of the
/// same depth. Trust policies have no `Resource` and are skipped.
fn statements() -> Vec<Value> {
    let template = fs::read_to_string(root().join("deploy/aws/cloudformation.yaml")).unwrap();
    let mut lines = template.lines();
    let mut statements = Vec::new();
    while let Some(first) = lines.next() {
        let Some(indent) = first.strip_suffix('{').filter(|indent| indent.trim().is_empty()) else { continue };
        let end = format!("{indent}}}");
        let body: Vec<&str> = lines.by_ref().take_while(|line| *line != end).collect();
        let document: Value = serde_json::from_str(&format!("{{{}}}", body.join("\n"))).unwrap();
        statements.extend(document["Statement"].as_array().unwrap().iter().cloned());
    }
    statements.retain(|statement| statement.get("Resource").is_some());
    statements
}

fn texts(value: &Value) -> Vec<String> {
    let text = |value: &Value| value.as_str().unwrap_or_else(|| panic!("{value} is no text")).to_owned();
    value.as_array().map_or_else(|| vec![text(value)], |values| values.iter().map(text).collect())
}

fn granted() -> BTreeSet<String> {
    let statements = statements();
    let names: Vec<String> = statements.iter().flat_map(|statement| texts(&statement["Action"])).collect();
    assert!(names.len() > 20, "looked in the wrong place: {names:?}");
    names.into_iter().collect()
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if !["tests.rs", "stub.rs"].iter().any(|name| path.ends_with(name)) {
            found.push(path);
        }
    }
}

/// `describe_instances` as `DescribeInstances`.
fn camel(name: &str) -> String {
    let upper = |part: &str| part.chars().take(1).flat_map(char::to_uppercase).chain(part.chars().skip(1)).collect();
    name.split('_').map(upper).collect::<Vec<String>>().concat()
}

/// Names of the calls in a source: methods of a client without arguments, like the SDK's builders.
fn calls(source: &str) -> Vec<String> {
    let dense: String = source.chars().filter(|letter| !letter.is_whitespace()).collect();
    let mut names = Vec::new();
    for client in CLIENTS {
        for (at, _) in dense.match_indices(client) {
            let rest = dense.get(at + client.len()..).unwrap();
            let end =
                rest.find(|letter: char| !letter.is_ascii_lowercase() && letter != '_' && !letter.is_ascii_digit());
            let (name, after) = rest.split_at(end.unwrap_or(rest.len()));
            if after.starts_with("()") {
                names.push(camel(name));
            }
        }
    }
    names
}

/// The service whose SDK a file uses; the files in `compute` share EC2's.
fn service(path: &Path, source: &str) -> String {
    let named = source.split("aws_sdk_").nth(1).and_then(|rest| rest.split(':').next());
    let parent = path.parent().is_some_and(|folder| folder.ends_with("compute")).then_some("ec2");
    let sdk = named.or(parent).unwrap_or_else(|| panic!("{}: calls of which service?", path.display()));
    PREFIXES.iter().find(|(name, _)| *name == sdk).map_or(sdk, |(_, prefix)| prefix).to_owned()
}

fn called() -> BTreeSet<String> {
    let mut files = Vec::new();
    sources(&root().join("actuator/aws/src"), &mut files);
    let mut actions = BTreeSet::new();
    for path in files {
        let source = fs::read_to_string(&path).unwrap();
        let calls = calls(&source);
        let sends = source.contains(".send()");
        assert_eq!(!calls.is_empty(), sends, "{}: what it sends must be called on {CLIENTS:?}", path.display());
        actions.extend(calls.iter().map(|call| format!("{}:{call}", service(&path, &source))));
    }
    actions
}

#[test]
fn calls_are_found_over_lines() {
    assert_eq!(calls("self\n  .client\n  .receive_message()\n  .send()"), ["ReceiveMessage"]);
    assert_eq!(calls("self.reads.describe_x().max(1); client(&|b| b); client.describe_y(1)"), ["DescribeX"]);
}

#[test]
fn every_call_is_granted_and_nothing_else() {
    let mut needed = called();
    assert!(needed.len() > 20, "looked in the wrong place: {needed:?}");
    for (call, implied) in IMPLIED {
        assert!(needed.contains(*call), "{call} is not called: nothing is implied by it");
        needed.extend(implied.iter().map(|action| (*action).to_owned()));
    }
    for (call, action) in CHECKED_AS {
        assert!(needed.remove(*call), "{call} is not called");
        needed.insert((*action).to_owned());
    }
    let granted = granted();
    let missing: Vec<_> = needed.difference(&granted).collect();
    assert!(missing.is_empty(), "called, but not granted: {missing:?}");
    let idle: Vec<_> = granted.difference(&needed).collect();
    assert!(idle.is_empty(), "granted, but never called: {idle:?}");
}

#[test]
fn changes_are_limited_to_tagged_resources_of_the_cluster() {
    let reads = ["Describe", "Get", "List"];
    for statement in statements() {
        let sid = statement["Sid"].as_str().unwrap();
        let changes = texts(&statement["Action"])
            .into_iter()
            .any(|action| !reads.iter().any(|read| action.split(':').nth(1).unwrap().starts_with(read)));
        let condition = statement["Condition"]["StringEquals"].to_string();
        let tagged = condition.contains(&format!("Tag/{}${{ClusterName}}\":\"owned\"", tag::CLUSTER_PREFIX));
        let excused = WITHOUT_TAGS.iter().any(|(name, _)| *name == sid);
        assert_eq!(changes, tagged || excused, "{sid}: reads need no tags, changes do");
        assert!(
            !changes || texts(&statement["Resource"]).iter().all(|resource| resource != "*"),
            "{sid}: any resource"
        );
    }
}

#[test]
fn conditions_name_the_tags_that_the_actuator_sets() {
    let cluster = format!("{}${{ClusterName}}", tag::CLUSTER_PREFIX);
    let documented = [cluster.as_str(), tag::EKS_CLUSTER, tag::NODE_POOL, tag::EC2_NODE_CLASS, label::REGION];
    for statement in statements() {
        for (test, keys) in statement["Condition"].as_object().into_iter().flatten() {
            for (key, value) in keys.as_object().unwrap() {
                if let Some((_, name)) = key.split_once("Tag/") {
                    assert!(documented.contains(&name), "{}: {test}: {name}", statement["Sid"]);
                }
                if key == "aws:TagKeys" {
                    assert_eq!(texts(value), ["Name", tag::NODE_CLAIM, tag::NODE_CLAIM_UID]);
                }
            }
        }
    }
}
