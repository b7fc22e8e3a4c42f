mod damaged;

use super::*;
use plimsoll_model::catalog::{CapacityType, Catalog};
use plimsoll_model::execution::{Outcome, OutcomeStatus};
use plimsoll_model::identity::CatalogId;
use plimsoll_model::money::MicroUsdPerHour;
use plimsoll_model::plan::{Launch, OfferingChoice, Plan, PlanOptions};
use plimsoll_model::snapshot::{IgnoredPod, LedgerPosition, Snapshot};
use plimsoll_model::time::Timestamp;
use plimsoll_proto::catalog::v1 as catalog_wire;
use plimsoll_proto::delta::checksum;
use std::path::Path;
use std::sync::Arc;

const START: i64 = 1_700_000_000_000;
const UNLIMITED: Limits = Limits { bytes: u64::MAX, file_bytes: 1 << 40 };

/// Snapshot number `sequence`, with `sequence` objects.
fn snapshot(sequence: u64) -> Arc<Snapshot> {
    let ignored = |number: u64| IgnoredPod {
        uid: format!("u-{number:04}").as_str().into(),
        pod: format!("shop/web-{number}"),
        reason: "it is being deleted".to_owned(),
    };
    let mut snapshot = Snapshot { sequence, ignored: (0..sequence).map(ignored).collect(), ..Snapshot::default() };
    snapshot.sort();
    Arc::new(snapshot)
}

fn plan(sequence: u64) -> Plan {
    Plan { snapshot_sequence: sequence, ignored: snapshot(sequence).ignored.clone(), ..Plan::default() }
}

fn catalog(region: &str) -> Arc<catalog_wire::Catalog> {
    Arc::new((&Catalog { region: region.to_owned(), instance_types: Vec::new() }).into())
}

fn record(writer: &mut Writer, sequence: u64, region: &str) -> std::io::Result<()> {
    record_plan(writer, &plan(sequence), &catalog(region))
}

fn record_plan(writer: &mut Writer, plan: &Plan, catalog: &Arc<catalog_wire::Catalog>) -> std::io::Result<()> {
    let sequence = plan.snapshot_sequence;
    let snapshot = snapshot(sequence);
    let options = PlanOptions { disruption: sequence.is_multiple_of(2), ..PlanOptions::default() };
    writer.planned(&PlannedEntry {
        at: Timestamp(START + i64::try_from(sequence).unwrap()),
        checksum: checksum(&snapshot),
        snapshot: &snapshot,
        delta: None,
        catalogs: std::slice::from_ref(catalog),
        cycle_id: &format!("1-{sequence}"),
        options: &options,
        plan,
    })
}

fn writer(folder: &Path, limits: Limits) -> Writer {
    Writer::new(folder.to_owned(), limits, "1.2.3", "shop")
}

/// The sequences of all plans of a file. Panics if snapshot, options, catalogs or plan are not as recorded.
fn sequences(file: &Path) -> Vec<u64> {
    let mut reader = Reader::open(file).unwrap();
    let mut found = Vec::new();
    while let Some(step) = reader.next_step().unwrap() {
        let Step::Planned(planned) = step else { continue };
        let sequence = planned.plan.snapshot_sequence;
        assert_eq!(planned.plan, plan(sequence));
        assert_eq!(planned.cycle_id, format!("1-{sequence}"));
        assert_eq!(planned.options.disruption, sequence.is_multiple_of(2));
        assert_eq!(reader.snapshot().unwrap().0, snapshot(sequence).as_ref());
        assert_eq!(reader.at(), Timestamp(START + i64::try_from(sequence).unwrap()));
        assert!(!reader.catalogs().is_empty());
        found.push(sequence);
    }
    found
}

fn names(folder: &Path) -> Vec<String> {
    let name = |file: &std::path::PathBuf| file.file_name().unwrap().to_str().unwrap().to_owned();
    files(folder).unwrap().iter().map(name).collect()
}

#[test]
fn plans_are_read_with_the_snapshots_they_were_made_for() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = writer(folder.path(), UNLIMITED);
    // Twice for the same snapshot, forwards and backwards.
    let order = [3, 4, 4, 1500, 2];
    order.iter().for_each(|sequence| record(&mut writer, *sequence, "r").unwrap());
    drop(writer);
    assert_eq!(names(folder.path()), ["plimsoll-20231114T221320.003Z.recording.gz"]);
    let file = &files(folder.path()).unwrap()[0];
    assert_eq!(sequences(file), order);
    let reader = Reader::open(file).unwrap();
    assert_eq!((reader.cluster(), reader.version()), ("shop", "1.2.3"));
}

#[test]
fn each_file_can_be_read_alone_and_contains_its_catalogs() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = writer(folder.path(), Limits { bytes: u64::MAX, file_bytes: 0 });
    [1, 2, 3].iter().for_each(|sequence| record(&mut writer, *sequence, "r").unwrap());
    let files = files(folder.path()).unwrap();
    assert_eq!(files.iter().map(|file| sequences(file)).collect::<Vec<_>>(), [[1], [2], [3]]);
}

#[test]
fn catalogs_are_written_once_per_file() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = writer(folder.path(), UNLIMITED);
    for (sequence, region) in [(1, "a"), (2, "a"), (3, "b")] {
        record(&mut writer, sequence, region).unwrap();
    }
    let mut reader = Reader::open(&files(folder.path()).unwrap()[0]).unwrap();
    let mut known = Vec::new();
    while reader.next_step().unwrap().is_some() {
        known.push(reader.catalogs().len());
    }
    // The first step is the full snapshot.
    assert_eq!(known, [1, 1, 1, 2]);
}

#[test]
fn few_catalogs_stay_in_memory_and_one_that_returns_is_written_again() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = writer(folder.path(), UNLIMITED);
    (0..20).chain([0]).zip(1..).for_each(|(region, sequence)| {
        record(&mut writer, sequence, &format!("region-{region}")).unwrap();
    });
    let mut reader = Reader::open(&files(folder.path()).unwrap()[0]).unwrap();
    let mut most = 0;
    while reader.next_step().unwrap().is_some() {
        most = most.max(reader.catalogs().len());
    }
    assert_eq!(most, 16);
    let last = CatalogId(catalog("region-0").id.clone());
    assert!(reader.catalogs().contains_key(&last));
}

#[test]
fn outcomes_are_read_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = writer(folder.path(), UNLIMITED);
    let outcome = Outcome {
        action_id: "launch-1".into(),
        status: OutcomeStatus::Accepted,
        reason: None,
        message: String::new(),
        node_claim: Some("default-1".to_owned()),
        ledger: LedgerPosition { epoch: 1, sequence: 7 },
    };
    writer.reported(Timestamp(START), "0-1", &outcome).unwrap();
    assert_eq!(names(folder.path()), [""; 0], "it belongs to no plan of the recording");
    record(&mut writer, 1, "r").unwrap();
    writer.reported(Timestamp(START + 5), "1-1", &outcome).unwrap();
    // The next plan flushes what was written.
    record(&mut writer, 2, "r").unwrap();
    let mut reader = Reader::open(&files(folder.path()).unwrap()[0]).unwrap();
    let mut read = Vec::new();
    while let Some(step) = reader.next_step().unwrap() {
        if let Step::Reported { cycle_id, outcome } = step {
            read.push((cycle_id, outcome, reader.at()));
        }
    }
    assert_eq!(read, [("1-1".to_owned(), outcome, Timestamp(START + 5))]);
}

#[test]
fn the_oldest_files_are_deleted_and_others_are_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("notes.txt"), vec![0; 100_000]).unwrap();
    let limits = Limits { bytes: 32_000, file_bytes: 4_000 };
    let mut writer = writer(folder.path(), limits);
    (1..200).for_each(|sequence| record(&mut writer, sequence, "r").unwrap());
    let files = files(folder.path()).unwrap();
    let total: u64 = files.iter().map(|file| file.metadata().unwrap().len()).sum();
    assert!(total <= limits.bytes && total > limits.bytes / 2, "{total} bytes");
    let kept: Vec<u64> = files.iter().flat_map(|file| sequences(file)).collect();
    assert_eq!(kept.last(), Some(&199));
    assert!(kept.is_sorted_by(|one, next| one + 1 == *next), "{kept:?}");
    assert!(folder.path().join("notes.txt").exists());
}

#[test]
fn after_an_error_a_new_file_begins() {
    let folder = tempfile::tempdir().unwrap();
    let inner = folder.path().join("inner");
    let mut writer = writer(&inner, Limits { bytes: u64::MAX, file_bytes: 0 });
    record(&mut writer, 1, "r").unwrap();
    std::fs::remove_dir_all(&inner).unwrap();
    std::fs::write(&inner, "a file where the folder should be").unwrap();
    record(&mut writer, 2, "r").unwrap_err();
    std::fs::remove_file(&inner).unwrap();
    record(&mut writer, 3, "r").unwrap();
    assert_eq!(sequences(&files(&inner).unwrap()[0]), [3]);
}

#[test]
fn launches_share_their_lists() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = writer(folder.path(), UNLIMITED);
    // 16 kB of offerings. With a list of its own in each launch, the plan would have 80 MB, more than is read.
    let offering = |number: usize| OfferingChoice {
        instance_type: format!("family-{number:03}.{}", "x".repeat(64)),
        zone: "zone-a".to_owned(),
        capacity_type: CapacityType::OnDemand,
        price: MicroUsdPerHour(50_000),
        reservation: None,
    };
    let offerings = Arc::new((0..180).map(offering).collect::<Vec<_>>());
    let launch = |number: usize| Launch {
        action_id: format!("launch-{number}").as_str().into(),
        node_pool: "default".into(),
        node_class: "default".to_owned(),
        offerings: Arc::clone(&offerings),
        ..Launch::default()
    };
    let large = Plan { launches: (0..5_000).map(launch).collect(), ..plan(1) };
    record_plan(&mut writer, &large, &catalog("r")).unwrap();
    drop(writer);
    let mut reader = Reader::open(&files(folder.path()).unwrap()[0]).unwrap();
    let mut plans = Vec::new();
    while let Some(step) = reader.next_step().unwrap() {
        plans.extend(if let Step::Planned(planned) = step { Some(planned.plan) } else { None });
    }
    assert!(plans == [large]);
}

/// Text that no entry can hold.
fn too_much() -> String {
    "x".repeat(MAX_ENTRY_BYTES)
}

#[test]
fn a_plan_that_is_too_large_is_left_out_and_the_file_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = writer(folder.path(), UNLIMITED);
    record(&mut writer, 1, "r").unwrap();
    let mut large = plan(2);
    large.ignored[0].reason = too_much();
    let error = record_plan(&mut writer, &large, &catalog("r")).unwrap_err().to_string();
    assert!(error.starts_with("an entry has ") && error.ends_with(", more than 67108864"), "{error}");
    record(&mut writer, 3, "r").unwrap();
    assert_eq!(names(folder.path()).len(), 1);
    assert_eq!(sequences(&files(folder.path()).unwrap()[0]), [1, 3]);
}

#[test]
fn a_file_whose_first_plan_cannot_be_written_is_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = writer(folder.path(), UNLIMITED);
    let large = Arc::new(catalog_wire::Catalog { region: too_much(), ..Default::default() });
    record_plan(&mut writer, &plan(1), &large).unwrap_err();
    assert_eq!(names(folder.path()), [""; 0]);
    record(&mut writer, 2, "r").unwrap();
    record_plan(&mut writer, &plan(3), &large).unwrap_err();
    assert_eq!(sequences(&files(folder.path()).unwrap()[0]), [2], "it has a plan");
}

#[test]
fn a_large_first_snapshot_does_not_begin_a_file_with_each_plan() {
    let folder = tempfile::tempdir().unwrap();
    // The snapshot has more than 4 kB. Each plan after it changes one object.
    let limits = Limits { bytes: u64::MAX, file_bytes: 4_000 };
    let mut writer = writer(folder.path(), limits);
    for sequence in [1500, 1501, 1500, 1501] {
        let plan = Plan { snapshot_sequence: sequence, ..Plan::default() };
        record_plan(&mut writer, &plan, &catalog("r")).unwrap();
    }
    let files = files(folder.path()).unwrap();
    assert!(files[0].metadata().unwrap().len() > limits.file_bytes);
    assert_eq!(files.len(), 1);
}

#[test]
fn files_of_a_watcher_that_keeps_restarting_are_limited() {
    let folder = tempfile::tempdir().unwrap();
    for second in 0..1010 {
        let at = Timestamp(START - 2_000_000 + second * 1000);
        std::fs::write(folder.path().join(files::name(at)), "").unwrap();
    }
    record(&mut writer(folder.path(), UNLIMITED), 1, "r").unwrap();
    let files = files(folder.path()).unwrap();
    assert_eq!(files.len(), 1000);
    assert_eq!(sequences(&files[999]), [1]);
}

#[test]
fn a_finished_file_is_complete_and_the_next_plan_begins_another() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = writer(folder.path(), UNLIMITED);
    writer.finish().unwrap();
    record(&mut writer, 1, "r").unwrap();
    writer.finish().unwrap();
    record(&mut writer, 2, "r").unwrap();
    std::mem::forget(writer);
    let read = |file: &std::path::PathBuf| {
        let mut reader = Reader::open(file).unwrap();
        while reader.next_step().unwrap().is_some() {}
        (sequences(file), reader.is_truncated())
    };
    assert_eq!(files(folder.path()).unwrap().iter().map(read).collect::<Vec<_>>(), [(vec![1], false), (vec![2], true)]);
}
