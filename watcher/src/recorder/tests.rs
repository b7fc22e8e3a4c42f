use super::*;
use crate::samples::pool;
use crate::snapshots;
use plimsoll_model::execution::OutcomeStatus;
use plimsoll_model::snapshot::{LedgerPosition, Snapshot};
use plimsoll_recording::{Limits, Reader, Step, files};
use plimsoll_runtime::metrics::Metrics;

const WAITING: usize = 16;

fn published(sequence: u64) -> Arc<PublishedSnapshot> {
    let mut pools = vec![pool("a"), pool("b"), pool("c")];
    pools.iter_mut().take(2).for_each(|pool| pool.catalog = Some("c-1".into()));
    Arc::new(snapshots::tests::published(Snapshot { sequence, node_pools: pools, ..Snapshot::default() }))
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
    let (sink, waiting) = Sink::new(WAITING, Clock::system(), metrics.clone());
    (Recorder(Some(sink)), waiting)
}

/// Records a plan without catalogs, whose ids here are not those of their content.
fn record(recorder: &mut Recorder, sequence: u64) {
    let plan = Plan { snapshot_sequence: sequence, ..Plan::default() };
    let options = PlanOptions::default();
    recorder.planned((&published(sequence), Some(Vec::new())), &format!("1-{sequence}"), &options, &plan);
}

/// What the files of a recording contain, in order.
fn read(folder: &std::path::Path) -> Vec<String> {
    let mut steps = Vec::new();
    for file in files(folder).unwrap() {
        let mut reader = Reader::open(&file).unwrap();
        while let Some(step) = reader.next_step().unwrap() {
            steps.push(match step {
                Step::Restarted => "snapshot".to_owned(),
                Step::Planned(planned) => format!("plan {}", planned.plan.snapshot_sequence),
                Step::Reported { outcome, .. } => format!("outcome {}", outcome.action_id.as_str()),
            });
        }
        assert!(!reader.is_truncated());
    }
    steps
}

#[test]
fn plans_and_outcomes_can_be_read_back() {
    let (folder, metrics) = (tempfile::tempdir().unwrap(), metrics());
    let (mut recorder, waiting) = recorder(&metrics);
    for sequence in [1, 2] {
        record(&mut recorder, sequence);
        recorder.reported("1-1", &outcome());
    }
    drop(recorder);
    let writer = Writer::new(folder.path().to_owned(), Limits::of(1 << 20), "1", "shop");
    write_all(writer, &waiting, &metrics);
    let expected = ["snapshot", "plan 1", "outcome launch-1", "plan 2", "outcome launch-1"];
    assert_eq!(read(folder.path()), expected);
    assert_eq!([count(&metrics, "queued"), count(&metrics, "dropped"), count(&metrics, "failed")], [4, 0, 0]);
}

#[test]
fn catalogs_are_those_of_the_request_and_a_plan_without_one_is_left_out() {
    let metrics = metrics();
    let (mut recorder, waiting) = recorder(&metrics);
    let known = |id: &str| Some(Arc::new(Catalog { id: id.to_owned(), ..Catalog::default() }));
    for catalogs in [recorder.catalogs(&published(1), known), recorder.catalogs(&published(1), |_| None)] {
        recorder.planned((&published(1), catalogs), "1-1", &PlanOptions::default(), &Plan::default());
    }
    drop(recorder);
    let ids = |entry| match entry {
        Entry::Planned(planned) => planned.catalogs.iter().map(|catalog| catalog.id.clone()).collect(),
        _ => Vec::new(),
    };
    assert_eq!(waiting.iter().map(ids).collect::<Vec<_>>(), [["c-1"]], "each catalog once");
    assert_eq!([count(&metrics, "queued"), count(&metrics, "dropped")], [1, 1]);
}

#[test]
fn a_slow_disk_delays_nothing_and_keeps_few_plans_in_memory() {
    let metrics = metrics();
    let (mut recorder, waiting) = recorder(&metrics);
    (0..WAITING as u64 + 3).for_each(|sequence| record(&mut recorder, sequence));
    assert_eq!([count(&metrics, "queued"), count(&metrics, "dropped")], [WAITING as u64, 3]);
    (0..WAITING_OUTCOMES + 3).for_each(|_| recorder.reported("1-1", &outcome()));
    assert_eq!(count(&metrics, "dropped"), 6);
    assert_eq!(waiting.try_iter().count(), WAITING + WAITING_OUTCOMES);
    record(&mut recorder, 100);
    assert_eq!(waiting.try_iter().count(), 1, "there is room again");
}

#[tokio::test(start_paused = true)]
async fn each_leadership_has_a_file_of_its_own() {
    let (folder, metrics) = (tempfile::tempdir().unwrap(), metrics());
    let (mut recorder, waiting) = recorder(&metrics);
    recorder.ended();
    record(&mut recorder, 1);
    recorder.ended();
    tokio::time::advance(Duration::from_secs(1)).await;
    record(&mut recorder, 2);
    record(&mut recorder, 3);
    drop(recorder);
    write_all(Writer::new(folder.path().to_owned(), Limits::of(1 << 20), "1", "shop"), &waiting, &metrics);
    assert_eq!(read(folder.path()), ["snapshot", "plan 1", "snapshot", "plan 2", "plan 3"]);
    assert_eq!(files(folder.path()).unwrap().len(), 2);
}

#[test]
fn what_follows_the_end_of_a_leadership_waits_for_it() {
    let metrics = metrics();
    let (mut recorder, waiting) = recorder(&metrics);
    (0..WAITING + WAITING_OUTCOMES).for_each(|_| recorder.reported("1-1", &outcome()));
    // The queue is full, so the end is not in it.
    recorder.ended();
    record(&mut recorder, 1);
    assert_eq!(count(&metrics, "dropped"), 1);
    waiting.try_iter().for_each(drop);
    record(&mut recorder, 2);
    let entries: Vec<Entry> = waiting.try_iter().collect();
    assert!(
        matches!(entries.as_slice(), [Entry::Ended, Entry::Planned(planned)] if planned.plan.snapshot_sequence == 2)
    );
}

#[test]
fn a_full_disk_is_counted_and_recording_goes_on() {
    let (folder, metrics) = (tempfile::tempdir().unwrap(), metrics());
    let file = folder.path().join("file");
    std::fs::write(&file, "not a folder").unwrap();
    let (mut recorder, waiting) = recorder(&metrics);
    record(&mut recorder, 1);
    record(&mut recorder, 2);
    drop(recorder);
    write_all(Writer::new(file, Limits::of(1 << 20), "1", "shop"), &waiting, &metrics);
    assert_eq!(count(&metrics, "failed"), 2, "each plan tries again");
}

#[tokio::test]
async fn a_shutdown_waits_for_the_disk_after_the_recorder_is_gone() {
    let (folder, metrics) = (tempfile::tempdir().unwrap(), metrics());
    let writer = Writer::new(folder.path().to_owned(), Limits::of(1 << 20), "1", "shop");
    let (mut recorder, written) = Recorder::start(writer, WAITING, Clock::system(), metrics.clone()).unwrap();
    (1..=WAITING as u64).for_each(|sequence| record(&mut recorder, sequence));
    drop(recorder);
    written.wait().await;
    let plans = read(folder.path()).iter().filter(|step| step.starts_with("plan")).count() as u64;
    assert_eq!((plans, count(&metrics, "failed")), (WAITING as u64, 0));
}

#[tokio::test]
async fn a_shutdown_does_not_wait_long_for_a_disk_that_hangs() {
    let (hangs, written) = channel();
    Written(Some(written)).wait_for(Duration::from_millis(1)).await;
    drop(hangs);
    Written::default().wait().await;
}

#[test]
fn nothing_is_recorded_by_default() {
    let metrics = metrics();
    let mut recorder = Recorder::default();
    assert_eq!(recorder.catalogs(&published(1), |_| panic!("looked up")), None);
    record(&mut recorder, 1);
    recorder.reported("1-1", &outcome());
    recorder.ended();
    assert_eq!([count(&metrics, "queued"), count(&metrics, "dropped")], [0, 0]);
}
