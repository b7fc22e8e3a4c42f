use super::*;
use crate::samples::{catalogs, waiting};

/// A planner that ends only once it is cancelled.
const ENDLESS: PlanFn = PlanFn(|planner, snapshot, index, catalogs, options, early| {
    while !planner.is_cancelled() {
        std::thread::yield_now();
    }
    planner.solve_early(snapshot, index, catalogs, options, early)
});

/// Longer than any test takes.
const LONG: Duration = Duration::from_secs(3600);

fn run(plan: PlanFn, caller: &Cancel, limit: Option<Duration>) -> Result<Plan, PlanFailure> {
    let (snapshot, options) = (waiting(1), PlanOptions::default());
    let input = (&snapshot, &SnapshotIndex::new(&snapshot));
    attempt((plan, &mut Planner::default()), input, &catalogs(), &options, (caller, limit), &mut |_| {})
}

#[test]
fn a_panic_is_a_failure_with_its_message() {
    let plain = PlanFn(|_, _, _, _, _, _| panic!("broken"));
    assert_eq!(run(plain, &Cancel::default(), None), Err(PlanFailure::Panicked("broken".to_owned())));
    let formatted = PlanFn(|_, snapshot, _, _, _, _| panic!("broken at {}", snapshot.sequence));
    assert_eq!(run(formatted, &Cancel::default(), None), Err(PlanFailure::Panicked("broken at 1".to_owned())));
    let other = PlanFn(|_, _, _, _, _, _| std::panic::panic_any(7));
    assert_eq!(run(other, &Cancel::default(), None), Err(PlanFailure::Panicked("without a message".to_owned())));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_solve_ends_when_its_time_is_over_and_its_plan_is_not_used() {
    let limit = Duration::from_millis(20);
    let result = tokio::task::spawn_blocking(move || run(ENDLESS, &Cancel::default(), Some(limit))).await.unwrap();
    assert_eq!(result, Err(PlanFailure::TimedOut(limit)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_solve_ends_when_its_client_is_gone() {
    let caller = Cancel::default();
    let job = {
        let caller = caller.clone();
        move || run(ENDLESS, &caller, Some(LONG))
    };
    let job = tokio::task::spawn_blocking(job);
    caller.cancel();
    assert_eq!(job.await.unwrap(), Err(PlanFailure::Cancelled));
    assert_eq!(run(PlanFn::default(), &caller, None), Err(PlanFailure::Cancelled));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_in_time_is_used_and_its_timer_ends() {
    let run = || run(PlanFn::default(), &Cancel::default(), Some(LONG));
    let plan = tokio::task::spawn_blocking(run).await.unwrap().unwrap();
    assert_eq!(plan.launches.len(), 1);
    let metrics = Handle::current().metrics();
    while metrics.num_alive_tasks() > 0 {
        tokio::task::yield_now().await;
    }
}

#[test]
fn nothing_is_planned_without_time() {
    let result = run(PlanFn::default(), &Cancel::default(), Some(Duration::ZERO));
    assert_eq!(result, Err(PlanFailure::NoTimeLeft));
}

#[tokio::test(start_paused = true)]
async fn attempts_share_the_time_that_is_left() {
    let limits = TimeLimits { first: Duration::from_secs(4), total: Duration::from_secs(10) };
    let budget = TimeBudget::start(Some(limits));
    assert_eq!(budget.first(), Some(limits.first));
    tokio::time::advance(Duration::from_secs(4)).await;
    assert_eq!([1, 3, 0].map(|attempts| budget.share(attempts)), [6, 2, 6].map(|it| Some(Duration::from_secs(it))));
    tokio::time::advance(Duration::from_secs(7)).await;
    assert_eq!(budget.share(1), Some(Duration::ZERO));
    let free = TimeBudget::start(None);
    assert_eq!((free.first(), free.share(1)), (None, None));
}
