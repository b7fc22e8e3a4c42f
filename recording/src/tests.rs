use super::*;
use plimsoll_model::catalog::Catalog;
use plimsoll_model::execution::{Outcome, OutcomeStatus};
use plimsoll_model::plan::{Plan, PlanOptions};
use plimsoll_model::snapshot::{IgnoredPod, LedgerPosition, Snapshot};
use plimsoll_model::time::Timestamp;
use plimsoll_proto::catalog::v1 as catalog_wire;
use plimsoll_proto::delta::checksum;
use std::path::Path;
use std::sync::Arc;

const START: i64 = 1_700_000_000_000;
const UNLIMITED: Limits = Limits { bytes: u64::MAX, file_bytes: u64::MAX };

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
    let snapshot = snapshot(sequence);
    let options = PlanOptions { disruption: sequence.is_multiple_of(2), ..PlanOptions::default() };
    writer.planned(&PlannedEntry {
        at: Timestamp(START + i64::try_from(sequence).unwrap()),
        checksum: checksum(&snapshot),
        snapshot: &snapshot,
        delta: None,
        catalogs: &[catalog(region)],
        cycle_id: &format!("1-{sequence}"),
        options: &options,
        plan: &plan(sequence),
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
    let mut writer = writer(folder.path(), Limits { bytes: u64::MAX, file_bytes: 1 });
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
fn a_file_of_a_killed_watcher_is_read_up_to_its_last_complete_entry() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = writer(folder.path(), UNLIMITED);
    [10, 20, 30].iter().for_each(|sequence| record(&mut writer, *sequence, "r").unwrap());
    std::mem::forget(writer);
    let file = files(folder.path()).unwrap().remove(0);
    assert_eq!(sequences(&file), [10, 20, 30], "each plan is flushed");
    let bytes = std::fs::read(&file).unwrap();
    let mut counts = Vec::new();
    for length in 0..=bytes.len() {
        std::fs::write(&file, &bytes[..length]).unwrap();
        match Reader::open(&file) {
            Ok(_) => counts.push(sequences(&file).len()),
            Err(error) => assert!(counts.is_empty(), "{length} bytes: {error}"),
        }
    }
    counts.dedup();
    assert_eq!(counts, [0, 1, 2, 3]);
    let mut reader = Reader::open(&file).unwrap();
    while reader.next_step().unwrap().is_some() {}
    assert!(reader.is_truncated());
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
    let mut writer = writer(&inner, Limits { bytes: u64::MAX, file_bytes: 1 });
    record(&mut writer, 1, "r").unwrap();
    std::fs::remove_dir_all(&inner).unwrap();
    std::fs::write(&inner, "a file where the folder should be").unwrap();
    record(&mut writer, 2, "r").unwrap_err();
    std::fs::remove_file(&inner).unwrap();
    record(&mut writer, 3, "r").unwrap();
    assert_eq!(sequences(&files(&inner).unwrap()[0]), [3]);
}

#[test]
fn other_files_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("plimsoll-x.recording.gz");
    let problem = |bytes: &[u8]| {
        std::fs::write(&file, bytes).unwrap();
        let Err(error) = Reader::open(&file) else { panic!("it was opened") };
        error.to_string().replace(&file.display().to_string(), "FILE")
    };
    assert!(problem(b"apiVersion: v1").starts_with("FILE: entry 1: not a recording: "));
    assert_eq!(problem(&gzip(&[])), "FILE: entry 1: the file does not begin with a header");
    assert_eq!(problem(&gzip(&[0xff; 8])), "FILE: entry 1: its length is not a number");
    assert_eq!(problem(&gzip(&[0xff, 0xff, 0xff, 0x7f])), "FILE: entry 1: it has 268435455 bytes, more than 67108864");
    let header = plimsoll_proto::recording::v1::Header { format: FORMAT + 1, ..Default::default() };
    let entry = plimsoll_proto::recording::v1::Entry {
        at_unix_ms: 0,
        entry: Some(plimsoll_proto::recording::v1::entry::Entry::Header(header)),
    };
    let bytes = prost::Message::encode_length_delimited_to_vec(&entry);
    assert_eq!(problem(&gzip(&bytes)), "FILE: entry 1: format 2 is later than 1, which this version reads");
    std::fs::remove_file(&file).unwrap();
    assert!(matches!(Reader::open(&file), Err(ReadError::Io { .. })));
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    use std::io::Write as _;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}
