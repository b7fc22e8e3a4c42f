//! Recordings are replayed and simulated. The recording is that of a cluster in which two pods wait.

use crate::plimsoll;
use plimsoll_model::catalog::Catalog;
use plimsoll_model::plan::{Plan, PlanOptions};
use plimsoll_model::snapshot::Snapshot;
use plimsoll_model::time::Timestamp;
use plimsoll_proto::scheduler::v1::PlanRequest;
use plimsoll_recording::{Limits, PlannedEntry, Writer};
use plimsoll_scheduler::answer::in_process;
use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const PODS: &str = "docs/examples/plan";

/// Records two plans, ten minutes apart, for the example of `plimsoll plan`.
fn record(folder: &Path, change: impl Fn(usize, &mut Plan)) {
    record_of(folder, |_, _| (), change);
}

/// As [`record`], for snapshots that `edit` has changed.
fn record_of(folder: &Path, edit: impl Fn(usize, &mut Snapshot), change: impl Fn(usize, &mut Plan)) {
    let example = crate::repository(PODS).display().to_string();
    let run = plimsoll(&["plan", "-f", &example, "-o", "request", "--now", "2026-01-02T00:00:00Z"]);
    let request: PlanRequest = request_of(&run.stdout);
    let mut snapshot = Snapshot::try_from(request.snapshot.unwrap()).unwrap();
    let catalogs: Vec<Arc<_>> = request.catalogs.into_iter().map(Arc::new).collect();
    let known = catalogs.iter().map(|catalog| Catalog::try_from(catalog.as_ref().clone()).unwrap());
    let known = known.map(|catalog| (catalog.id(), catalog)).collect();
    let mut writer = Writer::new(folder.to_owned(), Limits::of(1 << 30), "0.0.9", "shop");
    for (position, minutes) in [0, 10].into_iter().enumerate() {
        snapshot.sequence = position as u64 + 1;
        snapshot.now = Timestamp(snapshot.now.0 + minutes * 60_000);
        edit(position, &mut snapshot);
        let mut plan = in_process::solve(&snapshot, &known, &PlanOptions::default()).unwrap().check().unwrap();
        change(position, &mut plan);
        let entry = PlannedEntry {
            at: snapshot.now,
            checksum: plimsoll_proto::delta::checksum(&snapshot),
            snapshot: &Arc::new(snapshot.clone()),
            delta: None,
            catalogs: &catalogs,
            cycle_id: &format!("1-{}", snapshot.sequence),
            options: &PlanOptions::default(),
            plan: &plan,
        };
        writer.planned(&entry).unwrap();
    }
}

fn request_of(json: &str) -> PlanRequest {
    use prost_reflect::prost::Message as _;
    let pool = prost_reflect::DescriptorPool::decode(plimsoll_proto::FILE_DESCRIPTOR_SET).unwrap();
    let descriptor = pool.get_message_by_name("plimsoll.scheduler.v1.PlanRequest").unwrap();
    let message = prost_reflect::DynamicMessage::deserialize(descriptor, &mut serde_json::Deserializer::from_str(json));
    PlanRequest::decode(message.unwrap().encode_to_vec().as_slice()).unwrap()
}

fn pools(folder: &Path, requirements: &[&str]) -> PathBuf {
    let requirements: String = requirements.iter().map(|one| format!("      - {one}\n")).collect();
    let pool = format!(
        "apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {{name: other}}\nspec:\n  template:\n    spec:\n      \
         nodeClassRef: {{group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}}\n      requirements:\n{requirements}"
    );
    let path = folder.join("pools.yaml");
    std::fs::write(&path, pool).unwrap();
    path
}

#[test]
fn the_same_plans_are_reported_with_their_number_and_period() {
    let folder = tempfile::tempdir().unwrap();
    record(folder.path(), |_, _| ());
    let run = plimsoll(&["replay", &folder.path().display().to_string()]);
    assert_eq!((run.status, run.stderr.as_str()), (0, ""));
    let expected = "Cluster shop: 2 plans in 1 file, 2026-01-02T00:00:00Z to 2026-01-02T00:10:00Z.\n\
                    All plans are the same: 2 launches, 0 removals, 0 outcomes of actions.\n";
    assert_eq!(run.stdout, expected);
}

#[test]
fn another_plan_is_named_and_has_its_own_status() {
    let folder = tempfile::tempdir().unwrap();
    record(folder.path(), |position, plan| plan.launches[0].pods.truncate(5 - position));
    let run = plimsoll(&["replay", &folder.path().display().to_string()]);
    assert_eq!(run.status, 3, "{}", run.stderr);
    assert!(run.stdout.contains("\nPlan 1-2 of 2026-01-02T00:10:00Z ("), "{}", run.stdout);
    assert!(run.stdout.contains("\n  launches[0].pods[4] was nothing, is now something\n"), "{}", run.stdout);
    assert!(run.stdout.contains("Recorded by version 0.0.9, replayed by version "), "{}", run.stdout);
    assert!(run.stdout.ends_with(", which may plan differently.\n"), "{}", run.stdout);
    let json = plimsoll(&["replay", &folder.path().display().to_string(), "-o", "json"]);
    let difference = serde_json::from_str::<serde_json::Value>(&json.stdout).unwrap()["difference"].take();
    assert_eq!((json.status, difference["cycleId"].as_str()), (3, Some("1-2")));
}

#[test]
fn other_pools_are_simulated_beside_the_recorded_ones() {
    let folder = tempfile::tempdir().unwrap();
    let recording = folder.path().join("recording");
    record(&recording, |_, _| ());
    let x86 = [
        "{key: kubernetes.io/arch, operator: In, values: [amd64]}",
        "{key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}",
        "{key: karpenter.k8s.aws/instance-category, operator: In, values: [c, m, r]}",
        "{key: karpenter.k8s.aws/instance-generation, operator: Gt, values: ['5']}",
    ];
    let pools = pools(folder.path(), &x86);
    let arguments = ["replay", recording.to_str().unwrap(), "--with", pools.to_str().unwrap()];
    let run = plimsoll(&[&arguments[..], &["-o", "json"]].concat()).json();
    let (same, other) = (&run["samePools"], &run["otherPools"]);
    for figures in [same, other] {
        assert_eq!((figures["launches"].as_u64(), figures["waitingAtEnd"].as_u64()), (Some(1), Some(0)), "{run:#}");
        // Five pods wait for a minute.
        assert_eq!(figures["waitedSeconds"].as_u64(), Some(300), "{run:#}");
    }
    let usd = |figures: &serde_json::Value| figures["usdPerHourAtEnd"].as_f64().unwrap();
    assert!(usd(other) > usd(same), "ARM is cheaper: {run:#}");
    assert!((same["usd"].as_f64().unwrap() - usd(same) / 6.0).abs() < 1e-4, "ten minutes: {run:#}");
    let table = plimsoll(&arguments);
    assert_eq!((table.status, table.stderr.as_str()), (0, ""));
    for text in ["simulated, other pools", "cost, USD", "Simulated nodes boot in 60 s", "5 min"] {
        assert!(table.stdout.contains(text), "{text}: {}", table.stdout);
    }
}

#[test]
fn a_node_class_without_a_catalog_for_a_moment_keeps_its_last_one() {
    let folder = tempfile::tempdir().unwrap();
    let recording = folder.path().join("recording");
    // As after a change of the class, until the actuator has sent its new catalog.
    let edit = |position: usize, snapshot: &mut Snapshot| {
        if position == 1 {
            snapshot.node_pools[0].catalog = None;
        }
    };
    record_of(&recording, edit, |_, _| ());
    let pools = pools(folder.path(), &["{key: kubernetes.io/arch, operator: In, values: [amd64]}"]);
    let arguments = ["replay", recording.to_str().unwrap(), "--with", pools.to_str().unwrap(), "-o", "json"];
    let run = plimsoll(&arguments).json();
    let other = &run["otherPools"];
    assert_eq!((run["plans"].as_u64(), other["waitingAtEnd"].as_u64()), (Some(2), Some(0)), "{run:#}");
    assert!(other["usdPerHourAtEnd"].as_f64().unwrap() > 0.0, "{run:#}");
}

#[test]
fn a_recording_may_begin_before_the_first_catalog_of_a_node_class() {
    let folder = tempfile::tempdir().unwrap();
    let recording = folder.path().join("recording");
    let hidden = RefCell::new(None);
    let edit = |position: usize, snapshot: &mut Snapshot| {
        let catalog = &mut snapshot.node_pools[0].catalog;
        *catalog = if position == 0 { hidden.replace(catalog.take()) } else { hidden.take() };
    };
    record_of(&recording, edit, |_, _| ());
    let pools = pools(folder.path(), &["{key: kubernetes.io/arch, operator: In, values: [amd64]}"]);
    let run = plimsoll(&["replay", recording.to_str().unwrap(), "--with", pools.to_str().unwrap(), "-o", "json"]);
    assert_eq!(run.json()["plans"].as_u64(), Some(2), "{run:?}");
}

#[test]
fn truncated_files_are_named_and_nothing_is_no_success() {
    let folder = tempfile::tempdir().unwrap();
    let recording = folder.path().join("recording");
    record(&recording, |_, _| ());
    let pools = pools(folder.path(), &["{key: kubernetes.io/arch, operator: In, values: [amd64]}"]);
    let same = ["replay", recording.to_str().unwrap(), "-o", "json"];
    let with = [&same[..], &["--with", pools.to_str().unwrap()]].concat();
    let file = std::fs::read_dir(&recording).unwrap().next().unwrap().unwrap().path();
    let bytes = std::fs::read(&file).unwrap();
    std::fs::write(&file, &bytes[..bytes.len() - 1]).unwrap();
    for arguments in [&same[..], &with] {
        let run = plimsoll(arguments);
        let hint = format!("hint: {} ends in the middle of an entry", file.display());
        assert!(run.stderr.starts_with(&hint), "{run:?}");
        assert_eq!(run.json()["truncated"], serde_json::json!([file]));
    }
    std::fs::write(&file, "").unwrap();
    for arguments in [&same[..], &with] {
        plimsoll(arguments).refused(&[&format!("no complete plan in {}", recording.display())]);
    }
}

#[test]
fn wrong_input_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().display().to_string();
    let run = plimsoll(&["replay", &path]);
    let expected = format!("error: {path}: no file of a recording (plimsoll-*.recording.gz)\n");
    assert_eq!((run.status, run.stderr), (2, expected));
    let recording = folder.path().join("recording");
    record(&recording, |_, _| ());
    let recording = recording.to_str().unwrap();
    let class = folder.path().join("class.yaml");
    std::fs::write(&class, "apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n").unwrap();
    let run = plimsoll(&["replay", recording, "--with", class.to_str().unwrap()]);
    assert_eq!((run.status, run.stderr.as_str()), (2, "error: --with: the manifests have no NodePool\n"));
    let pools = pools(folder.path(), &["{key: kubernetes.io/arch, operator: Exists}"]);
    let text = std::fs::read_to_string(&pools).unwrap().replace("name: default}", "name: missing}");
    std::fs::write(&pools, text).unwrap();
    let run = plimsoll(&["replay", recording, "--with", pools.to_str().unwrap()]);
    assert_eq!(run.status, 2);
    let expected = "pools.yaml: document 1: NodePool other: spec.template.spec.nodeClassRef: no instance types are \
                    known for EC2NodeClass \"missing\"";
    assert!(run.stderr.contains(expected), "{}", run.stderr);
    let text = std::fs::read_to_string(&pools).unwrap();
    std::fs::write(&pools, text.replace("karpenter.k8s.aws, kind: EC2NodeClass", "a.b, kind: C")).unwrap();
    let run = plimsoll(&["replay", recording, "--with", pools.to_str().unwrap()]);
    let problem = "error: --with: no NodePool of the manifests has an EC2NodeClass";
    run.refused(&["NodePool other belongs to another provider", problem]);
    let run = plimsoll(&["replay", recording, "--boot-seconds", "5"]);
    assert!(run.status == 2 && run.stderr.contains("--with"), "{}", run.stderr);
    let run = plimsoll(&["replay", recording, "--with", pools.to_str().unwrap(), "--boot-seconds", "0"]);
    assert!(run.status == 2 && run.stderr.contains("1..=3600"), "{}", run.stderr);
}
