//! Threads for CPU-bound jobs in two classes: the service's own jobs always have a thread. Jobs for outside callers use
//! the rest, wait in a bounded queue, and are rejected when it is full.

use std::{
    fmt,
    num::NonZeroUsize,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore, TryAcquireError};

/// Limits of running and queued jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Maximum number of running jobs of both classes; at least two, so that own jobs never wait only for outside jobs.
    pub running: usize,
    /// Maximum number of running jobs for outside callers; at least one, and fewer than `running`.
    pub outside_running: usize,
    /// Maximum number of queued jobs for outside callers. More are rejected.
    pub outside_waiting: usize,
}

impl Bounds {
    /// For a machine with this many cores: at most half of the threads are for outside callers, with four queued jobs
    /// per thread, which a caller with a deadline of some seconds can wait for.
    #[must_use]
    pub fn for_cores(cores: NonZeroUsize) -> Self {
        let running = cores.get().max(2);
        let outside_running = running / 2;
        Self { running, outside_running, outside_waiting: outside_running * 4 }
    }
}

/// Why a job has no result.
#[derive(Debug, thiserror::Error)]
pub enum WorkError {
    /// Too many jobs for outside callers are running or queued.
    #[error("{0} requests are being worked on or wait already")]
    Overloaded(usize),
    /// The job panicked, or the process is ending.
    #[error("the work was not finished: {0}")]
    Lost(String),
}

/// Runs a CPU-bound job on a separate thread, so that other tasks continue. A single-threaded runtime, as in
/// simulations, runs it immediately instead, so that its result is available at the same time in each run.
///
/// # Errors
/// If the job panicked, which is a bug, or the process is ending.
pub async fn apart<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, WorkError> {
    match Handle::current().runtime_flavor() {
        // The job owns its input, so a panic leaves no shared state inconsistent.
        RuntimeFlavor::CurrentThread => {
            catch_unwind(AssertUnwindSafe(work)).map_err(|_| WorkError::Lost("it panicked".to_owned()))
        }
        _ => on_a_thread(work).await,
    }
}

/// Does work that may wait for a lock which another thread holds for long. In a runtime with several threads, other
/// tasks continue meanwhile.
pub fn in_place<T>(work: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|handle| handle.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        _ => work(),
    }
}

async fn on_a_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, WorkError> {
    tokio::task::spawn_blocking(work).await.map_err(|error| WorkError::Lost(error.to_string()))
}

/// The worker threads. Clones share them.
#[derive(Clone)]
pub struct Workers {
    running: Arc<Semaphore>,
    outside_running: Arc<Semaphore>,
    outside: Arc<Semaphore>,
    bounds: Bounds,
}

impl fmt::Debug for Workers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workers").field("bounds", &self.bounds).finish_non_exhaustive()
    }
}

impl Workers {
    /// Creates workers with `bounds`, which are adjusted if they are inconsistent.
    #[must_use]
    pub fn new(bounds: Bounds) -> Self {
        let running = bounds.running.max(2);
        let outside_running = bounds.outside_running.clamp(1, running - 1);
        let bounds = Bounds { running, outside_running, ..bounds };
        let places = outside_running.saturating_add(bounds.outside_waiting).min(Semaphore::MAX_PERMITS);
        Self {
            running: Arc::new(Semaphore::new(running)),
            outside_running: Arc::new(Semaphore::new(outside_running)),
            outside: Arc::new(Semaphore::new(places)),
            bounds,
        }
    }

    /// The effective limits.
    #[must_use]
    pub fn bounds(&self) -> Bounds {
        self.bounds
    }

    /// Number of running and queued jobs for outside callers.
    #[must_use]
    pub fn outside_jobs(&self) -> usize {
        (self.bounds.outside_running + self.bounds.outside_waiting).saturating_sub(self.outside.available_permits())
    }

    /// Runs a job of the service with [`apart`]. The job waits for a thread, of which outside callers can use only
    /// some. If the caller is dropped, a running job still completes.
    ///
    /// # Errors
    /// If the job panicked.
    pub async fn run<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> Result<T, WorkError> {
        let thread = self.thread().await?;
        let work = move || {
            let done = job();
            drop(thread);
            done
        };
        apart(work).await
    }

    async fn thread(&self) -> Result<OwnedSemaphorePermit, WorkError> {
        Arc::clone(&self.running).acquire_owned().await.map_err(|error| closed(&error))
    }

    /// Runs a job for an outside caller, after earlier ones.
    ///
    /// # Errors
    /// If there are too many of them, or the job panicked.
    pub async fn run_outside<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, WorkError> {
        let place = match Arc::clone(&self.outside).try_acquire_owned() {
            Ok(place) => place,
            Err(TryAcquireError::NoPermits) => return Err(WorkError::Overloaded(self.outside_jobs())),
            Err(TryAcquireError::Closed) => return Err(WorkError::Lost("the pool is closed".to_owned())),
        };
        let turn = Arc::clone(&self.outside_running).acquire_owned().await.map_err(|error| closed(&error))?;
        let thread = self.thread().await?;
        let work = move || {
            let done = job();
            drop((thread, turn, place));
            done
        };
        // Never on a runtime's only thread: requests of outside callers must not block other tasks.
        on_a_thread(work).await
    }
}

fn closed(error: &AcquireError) -> WorkError {
    WorkError::Lost(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use std::sync::mpsc::{Sender, channel};

    const BOUNDS: Bounds = Bounds { running: 2, outside_running: 1, outside_waiting: 1 };

    /// A job that ends when the sender is dropped.
    fn held() -> (Sender<()>, impl FnOnce() -> &'static str + Send + 'static) {
        let (hold, released) = channel::<()>();
        (hold, move || {
            let _ended = released.recv();
            "done"
        })
    }

    #[tokio::test]
    async fn outside_work_is_bounded_and_own_work_has_room() {
        let workers = Workers::new(BOUNDS);
        let (hold, job) = held();
        let mut running = Box::pin(workers.run_outside(job));
        let mut waiting = Box::pin(workers.run_outside(|| "second"));
        assert!(running.as_mut().now_or_never().is_none() && waiting.as_mut().now_or_never().is_none());
        assert_eq!(workers.outside_jobs(), 2);
        let refused = workers.run_outside(|| "third").await;
        assert!(matches!(refused, Err(WorkError::Overloaded(2))), "{refused:?}");

        assert_eq!(workers.run(|| "own").await.unwrap(), "own");
        drop(hold);
        assert_eq!((running.await.unwrap(), waiting.await.unwrap()), ("done", "second"));
        assert_eq!(workers.outside_jobs(), 0);
    }

    #[tokio::test]
    async fn a_caller_that_goes_away_leaves_its_place() {
        let workers = Workers::new(BOUNDS);
        let (hold, job) = held();
        let mut running = Box::pin(workers.run_outside(job));
        let mut waiting = Box::pin(workers.run_outside(|| "second"));
        assert!(running.as_mut().now_or_never().is_none() && waiting.as_mut().now_or_never().is_none());
        drop(waiting);
        assert_eq!(workers.outside_jobs(), 1);
        drop(hold);
        assert_eq!(running.await.unwrap(), "done");
    }

    #[tokio::test]
    async fn a_panic_is_an_error_and_frees_the_thread() {
        let workers = Workers::new(BOUNDS);
        for _ in 0..3 {
            let lost = workers.run_outside(|| -> () { panic!("broken") }).await;
            assert!(matches!(&lost, Err(WorkError::Lost(_))), "{lost:?}");
            let lost = workers.run(|| -> () { panic!("broken") }).await;
            assert!(matches!(&lost, Err(WorkError::Lost(_))), "{lost:?}");
        }
        assert_eq!(workers.run_outside(|| 7).await.unwrap(), 7);
        assert_eq!(workers.run(|| 8).await.unwrap(), 8);
    }

    #[tokio::test]
    async fn own_work_is_done_at_once_where_there_is_one_thread() {
        let workers = Workers::new(BOUNDS);
        let here = std::thread::current().id();
        let there = workers.run(|| std::thread::current().id()).now_or_never().unwrap().unwrap();
        assert_eq!(there, here);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn own_work_has_a_thread_of_its_own_where_there_are_several() {
        let workers = Workers::new(BOUNDS);
        let (hold, job) = held();
        let other = workers.clone();
        let running = tokio::spawn(async move { other.run(job).await });
        assert_eq!(workers.run(|| "own").await.unwrap(), "own");
        drop(hold);
        assert_eq!(running.await.unwrap().unwrap(), "done");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn work_in_place_does_not_hold_up_other_tasks() {
        let (hold, job) = held();
        let working = tokio::spawn(async move { in_place(job) });
        let (sender, other) = channel();
        tokio::spawn(async move { sender.send("other") });
        let meanwhile = other.recv_timeout(std::time::Duration::from_secs(60));
        drop(hold);
        assert_eq!((meanwhile, working.await.unwrap()), (Ok("other"), "done"));
    }

    #[test]
    fn contradictory_bounds_are_corrected() {
        let corrected = Workers::new(Bounds { running: 0, outside_running: 9, outside_waiting: 0 }).bounds();
        assert_eq!(corrected, Bounds { running: 2, outside_running: 1, outside_waiting: 0 });
        let of_one = Bounds::for_cores(NonZeroUsize::MIN);
        assert_eq!(of_one, Bounds { running: 2, outside_running: 1, outside_waiting: 4 });
    }
}
