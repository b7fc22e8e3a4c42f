//! Graceful shutdown of a process: one token, one tracker, a bounded drain.

use std::{fmt::Display, future::Future, sync::Arc, time::Duration};

use futures::{Stream, StreamExt};
use parking_lot::Mutex;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// Time for tasks to end after the first signal. Kubernetes kills after 30 s by default; the rest is for releasing the
/// lease and flushing logs.
pub const DEFAULT_GRACE: Duration = Duration::from_secs(20);

/// Why a process did not stop cleanly.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ShutdownError {
    /// A critical task ended unexpectedly.
    #[error("critical task {name} ended: {cause}")]
    CriticalTask {
        /// The task's name.
        name: &'static str,
        /// Its error, or how it ended.
        cause: String,
    },
    /// Some tasks were still running after the grace period, and were aborted.
    #[error("{tasks} task(s) still running after the grace period of {grace:?}")]
    GraceExceeded {
        /// Number of aborted tasks.
        tasks: usize,
        /// The grace period.
        grace: Duration,
    },
    /// A second signal arrived during the drain; running tasks were aborted.
    #[error("aborted by a second signal")]
    Aborted,
    /// The signal handlers could not be installed.
    #[error("cannot listen for signals: {0}")]
    Signals(String),
}

/// Handle that starts tasks and tells them to stop. Clones share one state.
#[derive(Clone, Debug, Default)]
pub struct Shutdown {
    drain: CancellationToken,
    abort: CancellationToken,
    tracker: TaskTracker,
    failure: Arc<Mutex<Option<ShutdownError>>>,
}

impl Shutdown {
    /// The token that is cancelled when the drain begins. Long streams and loops must select on it.
    #[must_use]
    pub fn token(&self) -> CancellationToken {
        self.drain.clone()
    }

    /// Begins the drain.
    pub fn start(&self) {
        self.drain.cancel();
    }

    /// Runs a task that the drain waits for, and that is aborted after the grace period.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let abort = self.abort.clone();
        self.tracker.spawn(async move {
            tokio::select! {
                biased;
                () = abort.cancelled() => {}
                () = task => {}
            }
        });
    }

    /// Runs a task that must live as long as the process: if it ends, fails or panics before the drain, the drain
    /// begins and [`Shutdown::run`] returns an error. A failure during the drain is also reported.
    pub fn spawn_critical<E: Display + Send + 'static>(
        &self,
        name: &'static str,
        task: impl Future<Output = Result<(), E>> + Send + 'static,
    ) {
        let this = self.clone();
        self.tracker.spawn(async move {
            // A separate task, so that a panic becomes a result here.
            let mut running = tokio::spawn(task);
            let cause = tokio::select! {
                biased;
                () = this.abort.cancelled() => {
                    running.abort();
                    return;
                }
                ended = &mut running => match ended {
                    Ok(Ok(())) if this.drain.is_cancelled() => return,
                    Ok(Ok(())) => "it returned".to_owned(),
                    Ok(Err(error)) => error.to_string(),
                    Err(error) => error.to_string(),
                },
            };
            tracing::error!(task = name, %cause, "critical task ended");
            this.failure.lock().get_or_insert(ShutdownError::CriticalTask { name, cause });
            this.drain.cancel();
        });
    }

    /// Waits for one of `signals` or [`Shutdown::start`], then for all tasks, at most `grace`.
    ///
    /// # Errors
    /// If a critical task ended, the grace period was exceeded, or a second signal arrived.
    pub async fn run(&self, grace: Duration, signals: impl Stream<Item = ()>) -> Result<(), ShutdownError> {
        // Chained, so that the end of the stream does not count as a signal.
        let mut signals = std::pin::pin!(signals.chain(futures::stream::pending()));
        tokio::select! {
            () = self.drain.cancelled() => {}
            _ = signals.next() => tracing::info!("signal received, draining"),
        }
        self.drain.cancel();
        self.tracker.close();
        let unclean = tokio::select! {
            biased;
            () = self.tracker.wait() => None,
            _ = signals.next() => Some(ShutdownError::Aborted),
            () = tokio::time::sleep(grace) => Some(ShutdownError::GraceExceeded { tasks: self.tracker.len(), grace }),
        };
        self.abort.cancel();
        let failure = self.failure.lock().take();
        failure.or(unclean).map_or(Ok(()), Err)
    }
}

/// SIGINT and SIGTERM to the process.
#[derive(Debug)]
pub struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    /// Begins to listen: from now on, these signals do not end the process by themselves.
    ///
    /// # Errors
    /// If the signal handlers cannot be installed.
    pub fn listen() -> Result<Self, ShutdownError> {
        let listen = |kind| signal(kind).map_err(|error| ShutdownError::Signals(error.to_string()));
        Ok(Self { interrupt: listen(SignalKind::interrupt())?, terminate: listen(SignalKind::terminate())? })
    }

    /// Waits for a signal. It may have arrived since the last call, or since [`Signals::listen`].
    pub async fn received(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }

    /// One item for each signal.
    pub fn into_stream(self) -> impl Stream<Item = ()> {
        futures::stream::unfold(self, |mut signals| async move {
            signals.received().await;
            Some(((), signals))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::stream;
    use tokio::sync::oneshot;

    const GRACE: Duration = Duration::from_secs(5);

    #[tokio::test(start_paused = true)]
    async fn a_signal_drains_and_waits() {
        let shutdown = Shutdown::default();
        let (done, finished) = oneshot::channel();
        let token = shutdown.token();
        shutdown.spawn(async move {
            token.cancelled().await;
            tokio::time::sleep(GRACE / 2).await;
            let _ = done.send(());
        });
        assert_eq!(shutdown.run(GRACE, stream::iter([()])).await, Ok(()));
        assert_eq!(finished.await, Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn the_grace_period_is_bounded() {
        let shutdown = Shutdown::default();
        let (held, dropped) = oneshot::channel::<()>();
        shutdown.spawn(async move {
            let _held = held;
            std::future::pending::<()>().await;
        });
        let result = shutdown.run(GRACE, stream::iter([()])).await;
        assert_eq!(result, Err(ShutdownError::GraceExceeded { tasks: 1, grace: GRACE }));
        assert!(dropped.await.is_err(), "the task must have been aborted");
    }

    #[tokio::test(start_paused = true)]
    async fn a_second_signal_aborts() {
        let shutdown = Shutdown::default();
        shutdown.spawn(std::future::pending());
        let started = tokio::time::Instant::now();
        assert_eq!(shutdown.run(GRACE, stream::iter([(), ()])).await, Err(ShutdownError::Aborted));
        assert!(started.elapsed() < GRACE);
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_of_a_critical_task_stops_the_process() {
        let shutdown = Shutdown::default();
        shutdown.spawn_critical("watch", async { Err("stream closed") });
        let result = shutdown.run(GRACE, stream::empty()).await;
        assert_eq!(result, Err(ShutdownError::CriticalTask { name: "watch", cause: "stream closed".to_owned() }));

        let shutdown = Shutdown::default();
        shutdown.spawn_critical("lease", async { Ok::<(), String>(()) });
        let result = shutdown.run(GRACE, stream::empty()).await;
        assert_eq!(result, Err(ShutdownError::CriticalTask { name: "lease", cause: "it returned".to_owned() }));
    }

    #[tokio::test(start_paused = true)]
    async fn a_panic_of_a_critical_task_is_an_error() {
        let shutdown = Shutdown::default();
        shutdown.spawn_critical::<String>("solve", async { panic!("broken") });
        let result = shutdown.run(GRACE, stream::empty()).await;
        assert!(matches!(result, Err(ShutdownError::CriticalTask { name: "solve", cause }) if cause.contains("panic")));
    }

    #[tokio::test(start_paused = true)]
    async fn a_critical_task_may_end_once_draining() {
        let shutdown = Shutdown::default();
        let token = shutdown.token();
        shutdown.spawn_critical("serve", async move {
            token.cancelled().await;
            Ok::<(), String>(())
        });
        assert_eq!(shutdown.run(GRACE, stream::iter([()])).await, Ok(()));
    }
}
