//! Records plans with what they were made for, in a thread of its own. Recording never delays planning: what the thread
//! has no time for is left out.

use crate::metrics::WatcherMetrics;
use crate::snapshots::PublishedSnapshot;
use plimsoll_model::execution::Outcome;
use plimsoll_model::plan::{Plan, PlanOptions};
use plimsoll_model::time::Timestamp;
use plimsoll_proto::catalog::v1::Catalog;
use plimsoll_recording::{PlannedEntry, Writer};
use plimsoll_runtime::clock::Clock;
use plimsoll_runtime::workers::apart;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, channel, sync_channel};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Maximum number of outcomes that wait for the disk, beside the plans: as many as come at once.
const WAITING_OUTCOMES: usize = 2048;
/// How long a shutdown waits for the disk. Each plan was flushed, so a slow disk loses only the last ones.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);

/// Something to record.
enum Entry {
    Planned(Box<PlannedNow>),
    Reported {
        at: Timestamp,
        cycle_id: String,
        outcome: Outcome,
    },
    /// This leadership has ended. Others record until the next one begins, which is another file.
    Ended,
}

/// A plan that was just made.
struct PlannedNow {
    at: Timestamp,
    published: Arc<PublishedSnapshot>,
    catalogs: Vec<Arc<Catalog>>,
    cycle_id: String,
    options: PlanOptions,
    plan: Plan,
    /// Held until the plan is written.
    _permit: OwnedSemaphorePermit,
}

/// Hands entries to the thread that writes them. Without a thread, nothing is recorded.
#[derive(Debug, Default)]
pub(crate) struct Recorder(Option<Sink>);

#[derive(Debug)]
struct Sink {
    entries: SyncSender<Entry>,
    /// How many more plans may wait, since each keeps its snapshot in memory.
    plans: Arc<Semaphore>,
    /// The end of the leadership is not in the queue yet.
    is_ending: bool,
    clock: Clock,
    metrics: WatcherMetrics,
}

impl Recorder {
    /// Starts the thread, for which at most `queue` plans may wait. It ends after the recorder is dropped.
    ///
    /// # Errors
    /// If no thread can be started.
    pub(crate) fn start(
        writer: Writer,
        queue: usize,
        clock: Clock,
        metrics: WatcherMetrics,
    ) -> io::Result<(Self, Written)> {
        let (sink, waiting) = Sink::new(queue, clock, metrics.clone());
        let (done, written) = channel();
        let thread = std::thread::Builder::new().name("recorder".to_owned());
        thread.spawn(move || {
            write_all(writer, &waiting, &metrics);
            // Nobody may wait for it.
            _ = done.send(());
        })?;
        Ok((Self(Some(sink)), Written(Some(written))))
    }

    /// Returns the catalogs that a plan for the snapshot needs, to be recorded with it. They may be replaced while the
    /// plan is made. `None` if one is missing, or if nothing is recorded.
    pub(crate) fn catalogs(
        &self,
        published: &PublishedSnapshot,
        catalog: impl Fn(&str) -> Option<Arc<Catalog>>,
    ) -> Option<Vec<Arc<Catalog>>> {
        self.0.as_ref()?;
        let mut ids: Vec<&str> =
            published.snapshot.node_pools.iter().filter_map(|pool| Some(pool.catalog.as_ref()?.as_str())).collect();
        ids.sort_unstable();
        ids.dedup();
        ids.into_iter().map(catalog).collect()
    }

    /// Records a plan. Without its catalogs it is left out, since another plan would be made from the rest.
    pub(crate) fn planned(
        &mut self,
        (published, catalogs): (&Arc<PublishedSnapshot>, Option<Vec<Arc<Catalog>>>),
        cycle_id: &str,
        options: &PlanOptions,
        plan: &Plan,
    ) {
        let Some(sink) = &mut self.0 else { return };
        let (Some(catalogs), Ok(permit)) = (catalogs, Arc::clone(&sink.plans).try_acquire_owned()) else {
            sink.count(false);
            return;
        };
        sink.send(Entry::Planned(Box::new(PlannedNow {
            at: sink.now(),
            published: Arc::clone(published),
            catalogs,
            cycle_id: cycle_id.to_owned(),
            options: options.clone(),
            plan: plan.clone(),
            _permit: permit,
        })));
    }

    /// Records an outcome.
    pub(crate) fn reported(&mut self, cycle_id: &str, outcome: &Outcome) {
        let Some(sink) = &mut self.0 else { return };
        sink.send(Entry::Reported { at: sink.now(), cycle_id: cycle_id.to_owned(), outcome: outcome.clone() });
    }

    /// Closes the file, since this leadership has ended.
    pub(crate) fn ended(&mut self) {
        if let Some(sink) = &mut self.0 {
            sink.is_ending = true;
            sink.end();
        }
    }
}

/// Tells when everything is written.
#[derive(Debug, Default)]
pub(crate) struct Written(Option<Receiver<()>>);

impl Written {
    /// Waits until everything is written after the recorder was dropped, but not long.
    pub(crate) async fn wait(self) {
        self.wait_for(WRITE_TIMEOUT).await;
    }

    async fn wait_for(self, timeout: Duration) {
        let Some(written) = self.0 else { return };
        match apart(move || written.recv_timeout(timeout)).await {
            Ok(Ok(())) => {}
            Ok(Err(RecvTimeoutError::Timeout)) => {
                tracing::warn!("the disk is slow, the last plans may not be recorded");
            }
            Ok(Err(RecvTimeoutError::Disconnected)) => tracing::error!("the recorder has panicked"),
            Err(error) => tracing::error!(%error, "not waiting for the recorder"),
        }
    }
}

impl Sink {
    fn new(queue: usize, clock: Clock, metrics: WatcherMetrics) -> (Self, Receiver<Entry>) {
        let (entries, waiting) = sync_channel(queue.saturating_add(WAITING_OUTCOMES));
        (Self { entries, plans: Arc::new(Semaphore::new(queue)), is_ending: false, clock, metrics }, waiting)
    }

    fn now(&self) -> Timestamp {
        Timestamp(self.clock.now_millis())
    }

    /// Sends an entry, after the end of the leadership before.
    fn send(&mut self, entry: Entry) {
        self.end();
        let sent = !self.is_ending && self.entries.try_send(entry).is_ok();
        self.count(sent);
    }

    fn end(&mut self) {
        self.is_ending = self.is_ending && self.entries.try_send(Entry::Ended).is_err();
    }

    fn count(&self, sent: bool) {
        let result = if sent { "queued" } else { "dropped" };
        self.metrics.recorded.with_label_values(&[result]).inc();
    }
}

/// Writes entries until the senders are gone.
fn write_all(mut writer: Writer, entries: &Receiver<Entry>, metrics: &WatcherMetrics) {
    let mut is_failing = false;
    for entry in entries {
        let written = write(&mut writer, &entry);
        if let Err(error) = &written {
            metrics.recorded.with_label_values(&["failed"]).inc();
            if !is_failing {
                tracing::error!(%error, "recording failed, trying again with the next plan");
            }
        }
        is_failing = written.is_err();
    }
}

fn write(writer: &mut Writer, entry: &Entry) -> io::Result<()> {
    match entry {
        Entry::Planned(planned) => writer.planned(&PlannedEntry {
            at: planned.at,
            snapshot: &planned.published.snapshot,
            checksum: planned.published.checksum,
            delta: planned.published.delta.as_ref(),
            catalogs: &planned.catalogs,
            cycle_id: &planned.cycle_id,
            options: &planned.options,
            plan: &planned.plan,
        }),
        Entry::Reported { at, cycle_id, outcome } => writer.reported(*at, cycle_id, outcome),
        Entry::Ended => writer.finish(),
    }
}

#[cfg(test)]
mod tests;
