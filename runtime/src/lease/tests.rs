use super::*;
use fake_api::FakeApi;

mod fake_api;

const START: &str = "2026-01-01T00:00:00Z";

struct Contender {
    states: watch::Receiver<LeaseState>,
    shutdown: CancellationToken,
    task: tokio::task::JoinHandle<()>,
}

impl Contender {
    fn start(api: &FakeApi, holder: &str) -> Self {
        Self::start_when(api, holder, std::future::ready(()))
    }

    fn start_when(api: &FakeApi, holder: &str, ready: impl Future<Output = ()> + Send + 'static) -> Self {
        let clock = Clock::starting_at(START.parse().unwrap());
        let config = LeaseConfig::new("plimsoll-test", "plimsoll-actuator", holder);
        let (election, states) = Election::new(api.client(), config, clock).unwrap();
        let shutdown = CancellationToken::new();
        let task = tokio::spawn(election.run_when_ready(ready, shutdown.clone()));
        Self { states, shutdown, task }
    }

    async fn guard(&mut self) -> LeaseGuard {
        let state = self.states.wait_for(|state| state.guard().is_some()).await.unwrap();
        state.guard().unwrap().clone()
    }

    async fn following(&mut self, holder: &str) -> u64 {
        let is = |state: &LeaseState| matches!(state, LeaseState::Following { holder: Some(h), .. } if h == holder);
        match &*self.states.wait_for(is).await.unwrap() {
            LeaseState::Following { epoch, .. } => *epoch,
            LeaseState::Leading(_) => panic!("leads"),
        }
    }
}

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

#[tokio::test(start_paused = true)]
async fn one_of_two_leads_and_keeps_leading() {
    let api = FakeApi::default();
    let mut first = Contender::start(&api, "a");
    let guard = first.guard().await;
    assert_eq!((guard.holder(), guard.epoch()), ("a", 0));
    assert!(guard.quarantine_until() <= Instant::now(), "nobody led before");
    let mut second = Contender::start(&api, "b");
    assert_eq!(second.following("a").await, 0);

    tokio::time::sleep(seconds(300)).await;
    assert!(guard.outlives(seconds(10)), "renewed all along");
    assert!(!guard.outlives(seconds(15)), "never promises more than its duration");
    assert!(second.states.borrow().guard().is_none());
    assert_eq!(api.holder().as_deref(), Some("a"));
}

/// The second process is ready after 3 s, the first one never.
#[tokio::test(start_paused = true)]
async fn a_process_that_is_not_ready_leads_only_if_no_other_does() {
    let (api, began) = (FakeApi::default(), Instant::now());
    let mut unready = Contender::start_when(&api, "a", std::future::pending());
    let mut ready = Contender::start_when(&api, "b", tokio::time::sleep(seconds(3)));
    let guard = ready.guard().await;
    assert!((seconds(3)..seconds(4)).contains(&began.elapsed()));
    tokio::time::sleep(seconds(60)).await;
    assert!(guard.outlives(seconds(5)) && unready.states.borrow().guard().is_none());
    ready.shutdown.cancel();
    unready.guard().await;

    let (api, began) = (FakeApi::default(), Instant::now());
    Contender::start_when(&api, "a", std::future::pending()).guard().await;
    assert!((READY_TIMEOUT..READY_TIMEOUT + seconds(1)).contains(&began.elapsed()));
    let stopped = Contender::start_when(&api, "b", std::future::pending());
    stopped.shutdown.cancel();
    // The wait ends with the process.
    stopped.task.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn takeover_waits_for_the_old_lease_and_its_calls() {
    let api = FakeApi::default();
    let mut first = Contender::start(&api, "a");
    let old = first.guard().await;
    let mut second = Contender::start(&api, "b");
    second.following("a").await;
    tokio::time::sleep(seconds(30)).await;
    first.task.abort();
    let died = Instant::now();

    let new = second.guard().await;
    let waited = died.elapsed();
    assert!(
        (seconds(13)..=seconds(19)).contains(&waited),
        "lease duration and at most one period each way: {waited:?}"
    );
    assert_eq!(new.epoch(), old.epoch() + 1);
    assert!(!old.outlives(Duration::ZERO), "the old right ended before the new one began");
    assert!(new.quarantine_until() > Instant::now());
    // Its last renewal was at most one period before its crash, and was seen at most one period later.
    tokio::time::sleep_until(new.quarantine_until()).await;
    let quarantine = died.elapsed();
    assert!((seconds(15 + 5 - 2)..=seconds(15 + 5 + 2)).contains(&quarantine), "{quarantine:?}");
}

#[tokio::test(start_paused = true)]
async fn a_leader_cut_off_stops_before_the_other_begins() {
    let api = FakeApi::default();
    let mut first = Contender::start(&api, "a");
    let guard = first.guard().await;
    let lost = guard.lost();
    let cut = Instant::now();
    api.down(true);
    // Near the end of the lease, a call of five seconds does not fit.
    tokio::time::sleep_until(cut + seconds(9)).await;
    assert!(!lost.is_cancelled());
    assert!(guard.outlives(seconds(5)));
    lost.cancelled().await;
    assert!((seconds(9)..=seconds(10)).contains(&cut.elapsed()), "the renew deadline: {:?}", cut.elapsed());
    assert!(!guard.outlives(Duration::ZERO));
    assert!(first.states.borrow().guard().is_none());

    api.down(false);
    let again = first.guard().await;
    assert_eq!(again.epoch(), guard.epoch() + 1, "coming back is a new epoch");
    assert!(!guard.outlives(Duration::ZERO), "the old guard does not come back to life");
}

#[tokio::test(start_paused = true)]
async fn the_lease_counts_from_before_the_renewal_was_sent() {
    let api = FakeApi::default();
    let mut first = Contender::start(&api, "a");
    let guard = first.guard().await;
    api.state.lock().delay = seconds(3);
    tokio::time::sleep(seconds(60)).await;
    // Others may have seen the renewal 3 s before its response arrived: at most 12 of the 15 s are left.
    for _ in 0..100 {
        assert!(!guard.outlives(Duration::from_millis(12_100)));
        assert!(guard.outlives(seconds(5)), "renewed every 5 s, 7 s are left at least");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_api_server_costs_no_leadership() {
    let api = FakeApi::default();
    let mut first = Contender::start(&api, "a");
    let guard = first.guard().await;
    let reads = {
        let mut state = api.state.lock();
        (state.delay, state.read_delay) = (seconds(3), seconds(3));
        state.reads
    };
    for _ in 0..60 {
        tokio::time::sleep(seconds(1)).await;
        assert!(guard.outlives(seconds(5)), "renewed every 5 s, 7 s are left at least");
    }
    assert_eq!(api.state.lock().reads, reads, "a renewal is one request");
}

#[tokio::test(start_paused = true)]
async fn a_renewal_without_a_response_is_not_a_loss() {
    let api = FakeApi::default();
    let mut first = Contender::start(&api, "a");
    let guard = first.guard().await;
    let reads = api.state.lock().reads;
    // The API server renews the Lease, and the response to that is too late.
    api.state.lock().delay = seconds(5);
    tokio::time::sleep(seconds(5)).await;
    api.state.lock().delay = Duration::ZERO;
    tokio::time::sleep(seconds(20)).await;
    assert!(guard.outlives(seconds(5)), "renewed again");
    let state = api.state.lock();
    assert_eq!((state.reads - reads, state.conflicts), (1, 0), "the Lease was read before the next renewal");
}

#[tokio::test(start_paused = true)]
async fn a_deleted_lease_is_lost_at_once() {
    let api = FakeApi::default();
    let mut first = Contender::start(&api, "a");
    let guard = first.guard().await;
    api.state.lock().lease = None;
    let deleted = Instant::now();
    guard.lost().cancelled().await;
    assert!(deleted.elapsed() <= seconds(2));
    let state = api.state.lock();
    assert!(state.lease.is_none() && state.conflicts == 1, "a replacement without the UID would create the Lease");
}

#[tokio::test(start_paused = true)]
async fn a_conflict_while_renewing_is_not_a_loss() {
    let api = FakeApi::default();
    let mut first = Contender::start(&api, "a");
    let guard = first.guard().await;
    api.state.lock().overtake = true;
    tokio::time::sleep(seconds(20)).await;
    assert_eq!(api.state.lock().conflicts, 1);
    assert!(guard.outlives(seconds(5)), "renewed at the next attempt");
    assert_eq!(first.guard().await.epoch(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_lease_taken_by_another_is_lost_at_once() {
    let api = FakeApi::default();
    let mut first = Contender::start(&api, "a");
    let guard = first.guard().await;
    {
        let mut state = api.state.lock();
        state.version += 1;
        let version = state.version.to_string();
        let lease = state.lease.as_mut().unwrap();
        lease.metadata.resource_version = Some(version);
        let spec = lease.spec.as_mut().unwrap();
        spec.holder_identity = Some("intruder".to_owned());
        spec.lease_transitions = Some(1);
    }
    let taken = Instant::now();
    guard.lost().cancelled().await;
    assert!(taken.elapsed() <= seconds(2));
    assert_eq!(first.following("intruder").await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_somebody_edits_is_not_taken_before_its_holder_gives_up() {
    for duration in [None, Some(1)] {
        let api = FakeApi::default();
        let mut first = Contender::start(&api, "a");
        let old = first.guard().await;
        let mut second = Contender::start(&api, "b");
        second.following("a").await;
        first.task.abort();
        let edited = Instant::now();
        {
            let mut state = api.state.lock();
            state.version += 1;
            let version = state.version.to_string();
            let lease = state.lease.as_mut().unwrap();
            lease.metadata.resource_version = Some(version);
            lease.spec.as_mut().unwrap().lease_duration_seconds = duration;
        }
        let new = second.guard().await;
        let waited = edited.elapsed();
        assert!(!old.outlives(Duration::ZERO), "{duration:?}: {waited:?}");
        assert!((seconds(15)..=seconds(19)).contains(&waited), "its usual duration: {waited:?}");
        assert!(new.quarantine_until() >= edited + seconds(15 + 5), "and the longest call");
    }
}

#[tokio::test(start_paused = true)]
async fn a_released_lease_is_taken_soon() {
    let api = FakeApi::default();
    let mut first = Contender::start(&api, "a");
    let guard = first.guard().await;
    let mut second = Contender::start(&api, "b");
    second.following("a").await;
    first.shutdown.cancel();
    let released = Instant::now();
    first.task.await.unwrap();
    assert!(guard.lost().is_cancelled());
    assert_eq!(api.holder().as_deref(), Some(""));
    let new = second.guard().await;
    assert!(released.elapsed() <= seconds(2), "{:?}", released.elapsed());
    assert_eq!(new.epoch(), 1);
    assert!(new.quarantine_until() > Instant::now(), "calls of the former leader may still be under way");
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_released_although_the_last_renewal_got_no_response() {
    let api = FakeApi::default();
    let mut first = Contender::start(&api, "a");
    first.guard().await;
    // The API server renews the Lease, and the process is shut down before the response.
    api.state.lock().delay = seconds(5);
    tokio::time::sleep(seconds(3)).await;
    api.state.lock().delay = Duration::ZERO;
    first.shutdown.cancel();
    first.task.await.unwrap();
    assert_eq!((api.holder().as_deref(), api.state.lock().conflicts), (Some(""), 0));
}

#[tokio::test(start_paused = true)]
async fn the_next_leader_continues_from_a_raised_epoch() {
    let api = FakeApi::default();
    let mut first = Contender::start(&api, "a");
    let guard = first.guard().await;
    assert!(tokio::time::timeout(seconds(3), guard.raise_epoch(7)).await.unwrap(), "a renewal writes it");
    assert_eq!(api.transitions(), Some(7));
    tokio::time::sleep(seconds(20)).await;
    assert!(guard.outlives(seconds(5)), "a raised count is no other leader");
    first.task.abort();
    let mut second = Contender::start(&api, "b");
    assert_eq!(second.guard().await.epoch(), 8);
    // A lower epoch changes nothing, and one that leaves the next leaders no higher count is not written.
    let guard = second.guard().await;
    assert!(!guard.raise_epoch(3).await);
    assert_eq!(api.transitions(), Some(8));
    for too_high in [(1 << 30) + 1, u64::MAX] {
        assert!(!guard.raise_epoch(too_high).await);
    }
    tokio::time::sleep(seconds(20)).await;
    assert_eq!(api.transitions(), Some(8));
    assert!(guard.raise_epoch(1 << 30).await);
    assert_eq!(api.transitions(), Some(1 << 30));
}

#[tokio::test(start_paused = true)]
async fn a_deleted_lease_is_created_again_with_a_higher_epoch_and_a_quarantine() {
    let api = FakeApi::default();
    let mut first = Contender::start(&api, "a");
    let old = first.guard().await;
    let mut second = Contender::start(&api, "b");
    second.following("a").await;
    first.task.abort();
    api.state.lock().lease = None;
    let deleted = Instant::now();
    let new = second.guard().await;
    assert!(deleted.elapsed() <= seconds(2), "nobody holds it: {:?}", deleted.elapsed());
    assert_eq!(new.epoch(), old.epoch() + 1);
    assert!(old.outlives(Duration::ZERO), "the former leader does not know of the deletion");
    tokio::time::sleep_until(new.quarantine_until()).await;
    assert!(!old.outlives(Duration::ZERO));
    let quarantine = deleted.elapsed();
    assert!((seconds(15 + 5)..=seconds(15 + 5 + 2)).contains(&quarantine), "{quarantine:?}");

    // A candidate that never saw a Lease does not know its epoch; the claims do.
    second.task.abort();
    api.state.lock().lease = None;
    let mut third = Contender::start(&api, "c");
    let guard = third.guard().await;
    assert!(guard.is_first_known() && !new.is_first_known());
    assert!(guard.unknown_leader_until() >= Instant::now() + seconds(15 + 5));
}

#[tokio::test]
async fn contradictory_durations_are_refused() {
    let clock = Clock::starting_at(START.parse().unwrap());
    let good = LeaseConfig::new("plimsoll-test", "lease", "a");
    let bad = [
        LeaseConfig { holder: String::new(), ..good.clone() },
        LeaseConfig { renew_deadline: seconds(15), ..good.clone() },
        LeaseConfig { retry_period: seconds(10), ..good.clone() },
        LeaseConfig { max_call_deadline: seconds(15), ..good.clone() },
        LeaseConfig { duration: Duration::from_millis(15_500), ..good.clone() },
    ];
    for config in bad {
        assert!(Election::new(FakeApi::default().client(), config.clone(), clock).is_err(), "{config:?}");
    }
    assert!(Election::new(FakeApi::default().client(), good, clock).is_ok());
}
