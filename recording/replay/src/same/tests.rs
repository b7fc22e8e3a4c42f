use super::*;
use crate::samples::{START, node, planned, pod, record, record_of, snapshot};
use plimsoll_model::snapshot::Snapshot;

/// Two pods wait, one of them is placed, the other one needs a node; then all are gone.
fn snapshots() -> Vec<Snapshot> {
    let waiting = vec![pod("web-0", "web", None), pod("web-1", "web", None)];
    let running = vec![pod("web-0", "web", Some("n")), pod("web-1", "web", None)];
    vec![
        snapshot(0, waiting, vec![]),
        snapshot(60, running, vec![node("n", "default", 2)]),
        snapshot(120, vec![], vec![node("n", "default", 2)]),
    ]
}

fn replayed(change: impl Fn(usize, &mut Plan)) -> Summary {
    let folder = tempfile::tempdir().unwrap();
    record(folder.path(), &snapshots(), change);
    let mut counts = Vec::new();
    let summary = replay(&crate::files(folder.path()).unwrap(), |plans| counts.push(plans)).unwrap();
    assert_eq!(counts, (1..=summary.plans).collect::<Vec<_>>());
    summary
}

#[test]
fn the_same_plans_are_made_again() {
    let plans: Vec<Plan> = snapshots().iter().map(planned).collect();
    let launches: Vec<usize> = plans.iter().map(|plan| plan.launches.len()).collect();
    assert_eq!((launches, plans[2].terminations.len()), (vec![1, 1, 0], 1), "the samples plan something");
    let expected = Summary {
        cluster: "shop".to_owned(),
        period: Some((START, Timestamp(START.0 + 120_000))),
        plans: 3,
        launches: 2,
        removals: 1,
        ..Summary::default()
    };
    assert_eq!(replayed(|_, _| ()), expected);
}

#[test]
fn the_comparison_ends_at_the_first_difference() {
    let summary = replayed(|position, plan| {
        if position == 1 {
            plan.launches[0].node_pool = "other".into();
        }
    });
    assert_eq!(summary.plans, 2);
    let difference = summary.difference.unwrap();
    assert_eq!((difference.cycle_id.as_str(), difference.at), ("1-61", Timestamp(START.0 + 60_000)));
    assert_eq!(difference.first(), r#"launches[0].node_pool was "other", is now "default""#);
    let missing = replayed(|_, plan| plan.launches.clear()).difference.unwrap();
    assert_eq!(missing.first(), "launches[0] was nothing, is now something");
    let more = replayed(|_, plan| plan.next_time = Some(Timestamp(5))).difference.unwrap();
    assert_eq!(more.first(), "next_time was 5, is now nothing");
}

#[test]
fn a_folder_without_recordings_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let error = crate::files(folder.path()).unwrap_err().to_string();
    assert_eq!(error, format!("{}: no file of a recording (plimsoll-*.recording.gz)", folder.path().display()));
    let error = crate::files(&folder.path().join("missing")).unwrap_err().to_string();
    assert!(error.contains("missing: No such file"), "{error}");
}

#[test]
fn files_without_a_header_are_passed_over() {
    let folder = tempfile::tempdir().unwrap();
    record(folder.path(), &snapshots(), |_, _| ());
    let good = crate::files(folder.path()).unwrap().remove(0);
    let early = |name: &str| folder.path().join(format!("plimsoll-{name}.recording.gz"));
    std::fs::write(early("0"), "").unwrap();
    std::fs::write(early("9"), &std::fs::read(good).unwrap()[..10]).unwrap();
    let files = crate::files(folder.path()).unwrap();
    let summary = replay(&files, |_| ()).unwrap();
    assert_eq!((summary.plans, summary.cluster.as_str(), summary.difference), (3, "shop", None));
    assert_eq!(summary.truncated, [early("0"), early("9")]);
}

#[test]
fn a_corrupt_file_tells_how_many_plans_are_the_same() {
    let folder = tempfile::tempdir().unwrap();
    record(folder.path(), &snapshots(), |_, _| ());
    let mut files = crate::files(folder.path()).unwrap();
    let mut bytes = std::fs::read(&files[0]).unwrap();
    // The checksum at the end.
    let checksum = bytes.len() - 8;
    bytes[checksum] ^= 1;
    files.push(folder.path().join("plimsoll-9.recording.gz"));
    std::fs::write(&files[1], bytes).unwrap();
    let error = replay(&files, |_| ()).unwrap_err().to_string();
    assert!(error.ends_with("matching checksum (6 plans before this are the same)"), "{error}");
    let error = plimsoll_recording::ReadError::Invalid { file: "a".into(), entry: 5, problem: "b".to_owned() };
    let shown = ReplayError::ReadAfter { plans: 1, error }.to_string();
    assert_eq!(shown, "a: entry 5: b (1 plan before this is the same)");
}

#[test]
fn files_of_another_cluster_are_refused_by_name() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    record(one.path(), &snapshots(), |_, _| ());
    record_of("other", other.path(), &snapshots(), |_, _| ());
    let files = [crate::files(one.path()).unwrap(), crate::files(other.path()).unwrap()].concat();
    let expected = format!(
        "{}: recorded from cluster \"other\", but the files before are from cluster \"shop\"; replay each cluster's \
         files alone",
        files[1].display()
    );
    assert_eq!(replay(&files, |_| ()).unwrap_err().to_string(), expected);
}
