use super::*;
use crate::samples::pool;
use plimsoll_model::execution::OutcomeStatus;
use plimsoll_model::snapshot::{LedgerPosition, Snapshot};
use plimsoll_model::time::Timestamp;
use plimsoll_proto::delta::checksum;
use plimsoll_recording::{Limits, Reader, Step, files};
use plimsoll_runtime::metrics::Metrics;
use std::collections::BTreeSet;
use tokio::time::Instant;

const WAITING: usize = 16;

fn published(sequence: u64) -> Arc<PublishedSnapshot> {
    let mut pools = vec![pool("a"), pool("b"), pool("c")];
    pools.iter_mut().take(2).for_each(|pool| pool.catalog = Some("c-1".into()));
    let snapshot = Snapshot { sequence, node_pools: pools, ..Snapshot::default() };
    Arc::new(PublishedSnapshot {
        checksum: checksum(&snapshot),
        relevant_sequence: sequence,
        snapshot: Arc::new(snapshot),
        delta: None,
        incomplete: BTreeSet::new(),
        buffers: Vec::new(),
        started_at: Instant::now(),
        time: Timestamp(0),
    })
}

fn outcome() -> Outcome {
    Outcome {
        action_id: "launch-1".into(),
        status: OutcomeStatus::Accepted,
        reason: None,
        message: String::new(),
        node_claim: None,
        ledger: LedgerPosition { epoch: 1, sequence: 1 },
    }
}

fn metrics() -> WatcherMetrics {
    WatcherMetrics::new(&Metrics::new("watcher")).unwrap()
}

fn count(metrics: &WatcherMetrics, result: &str) -> u64 {
    metrics.recorded.with_label_values(&[result]).get()
}

/// A recorder whose entries nobody takes yet.
fn recorder(metrics: &WatcherMetrics) -> (Recorder, Receiver<Entry>) {
    let (entries, waiting) = sync_channel(WAITING);
    (
        Recorder(Some(Sink { entries: Some(entries), thread: None, clock: Clock::system(), metrics: metrics.clone() })),
        waiting,
    )
}

fn record(recorder: &Recorder, sequence: u64) {
    let catalog = |id: &str| Some(Arc::new(Catalog { id: id.to_owned(), ..Catalog::default() }));
    let plan = Plan { snapshot_sequence: sequence, ..Plan::default() };
    recorder.planned((&published(sequence), catalog), &format!("1-{sequence}"), &PlanOptions::default(), &plan);
}

#[test]
fn plans_and_outcomes_can_be_read_back() {
    let (folder, metrics) = (tempfile::tempdir().unwrap(), metrics());
    let (recorder, waiting) = recorder(&metrics);
    record(&recorder, 1);
    recorder.reported("1-1", &outcome());
    record(&recorder, 2);
    drop(recorder);
    let writer = Writer::new(folder.path().to_owned(), Limits::of(1 << 20), "1", "shop");
    let ids: Vec<Vec<String>> = waiting
        .try_iter()
        .map(|entry| match entry {
            Entry::Planned(planned) => planned.catalogs.iter().map(|catalog| catalog.id.clone()).collect(),
            Entry::Reported { .. } => Vec::new(),
        })
        .collect();
    assert_eq!(ids, [vec!["c-1".to_owned()], vec![], vec!["c-1".to_owned()]], "each catalog once");

    // The same without catalogs, whose ids here are not those of their content.
    let (recorder, waiting) = self::recorder(&metrics);
    for sequence in [1, 2] {
        let plan = Plan { snapshot_sequence: sequence, ..Plan::default() };
        recorder.planned((&published(sequence), |_: &str| None), "1-1", &PlanOptions::default(), &plan);
        recorder.reported("1-1", &outcome());
    }
    drop(recorder);
    write_all(writer, &waiting, &metrics);
    let mut reader = Reader::open(&files(folder.path()).unwrap()[0]).unwrap();
    let mut steps = Vec::new();
    while let Some(step) = reader.next_step().unwrap() {
        steps.push(match step {
            Step::Restarted => "snapshot".to_owned(),
            Step::Planned(planned) => format!("plan {}", planned.plan.snapshot_sequence),
            Step::Reported { outcome, .. } => format!("outcome {}", outcome.action_id.as_str()),
        });
    }
    assert_eq!(steps, ["snapshot", "plan 1", "outcome launch-1", "plan 2", "outcome launch-1"]);
    assert_eq!([count(&metrics, "queued"), count(&metrics, "dropped"), count(&metrics, "failed")], [7, 0, 0]);
}

#[test]
fn a_slow_disk_delays_nothing() {
    let metrics = metrics();
    let (recorder, waiting) = recorder(&metrics);
    (0..WAITING as u64 + 3).for_each(|sequence| record(&recorder, sequence));
    assert_eq!([count(&metrics, "queued"), count(&metrics, "dropped")], [WAITING as u64, 3]);
    assert_eq!(waiting.try_iter().count(), WAITING);
}

#[test]
fn a_full_disk_is_counted_and_recording_goes_on() {
    let (folder, metrics) = (tempfile::tempdir().unwrap(), metrics());
    let file = folder.path().join("file");
    std::fs::write(&file, "not a folder").unwrap();
    let (recorder, waiting) = recorder(&metrics);
    record(&recorder, 1);
    record(&recorder, 2);
    drop(recorder);
    write_all(Writer::new(file, Limits::of(1 << 20), "1", "shop"), &waiting, &metrics);
    assert_eq!(count(&metrics, "failed"), 2, "each plan tries again");
}

#[test]
fn dropping_the_recorder_waits_for_what_is_queued() {
    let (folder, metrics) = (tempfile::tempdir().unwrap(), metrics());
    let writer = Writer::new(folder.path().to_owned(), Limits::of(1 << 20), "1", "shop");
    let recorder = Recorder::start(writer, WAITING, Clock::system(), metrics.clone()).unwrap();
    let plan = |sequence| Plan { snapshot_sequence: sequence, ..Plan::default() };
    for sequence in 1..=WAITING as u64 {
        recorder.planned((&published(sequence), |_: &str| None), "1-1", &PlanOptions::default(), &plan(sequence));
    }
    drop(recorder);
    let mut reader = Reader::open(&files(folder.path()).unwrap()[0]).unwrap();
    let mut plans = 0;
    while let Some(step) = reader.next_step().unwrap() {
        plans += u64::from(matches!(step, Step::Planned(_)));
    }
    assert!(!reader.is_truncated());
    assert_eq!(plans, count(&metrics, "queued"));
}

#[test]
fn nothing_is_recorded_by_default() {
    let metrics = metrics();
    record(&Recorder::default(), 1);
    Recorder::default().reported("1-1", &outcome());
    assert_eq!(count(&metrics, "queued"), 0);
}
