use super::*;
use parking_lot::Mutex;
use plimsoll_runtime::metrics::Metrics;

/// A cluster in which something changes all the time.
struct Steady;

impl Changes for Steady {
    async fn next(&mut self) {}
}

/// How often each of `objects` is reconciled within a second of steady changes. A reconcile takes 5 ms, and is due
/// again after each change.
///
/// Time is paused, so that a pass takes none: there is one after each [`COALESCE`], and by then the reconciles of the
/// pass before it have ended.
async fn reconciles_in_a_second(objects: usize) -> Vec<u32> {
    let metrics = ActuatorMetrics::new(&Metrics::new("actuator")).unwrap();
    let controller = metrics.reconciles.of("test");
    let (counts, stop) = (Mutex::new(vec![0; objects]), CancellationToken::new());
    let list = || (0..objects).map(|it| Candidate { key: format!("{it:03}"), version: None, input: it }).collect();
    let work = |object: usize| {
        counts.lock()[object] += 1;
        async {
            tokio::time::sleep(Duration::from_millis(5)).await;
            Ok(None)
        }
    };
    let endless = repeat(Reconciles::new(&controller), Steady, || true, &stop, list, work);
    assert!(tokio::time::timeout(Duration::from_secs(1), endless).await.is_err(), "nothing stopped it");
    counts.into_inner()
}

#[tokio::test(start_paused = true)]
async fn ended_reconciles_are_handled_while_changes_come_all_the_time() {
    let counts = reconciles_in_a_second(1).await;
    // One in each of about a hundred passes, and not the first one alone.
    assert!(counts[0] > 50, "{counts:?}");
}

#[tokio::test(start_paused = true)]
async fn all_objects_get_their_turn_while_changes_come_all_the_time() {
    let counts = reconciles_in_a_second(300).await;
    // 128 in each of about a hundred passes are more than 40 for each of the 300.
    let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
    assert!(*least > 20, "{counts:?}");
    assert!(most - least <= 1, "one after another: {counts:?}");
}
