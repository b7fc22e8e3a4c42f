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
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

/// Something to record.
enum Entry {
    Planned(Box<PlannedNow>),
    Reported { at: Timestamp, cycle_id: String, outcome: Outcome },
}

/// A plan that was just made.
struct PlannedNow {
    at: Timestamp,
    published: Arc<PublishedSnapshot>,
    catalogs: Vec<Arc<Catalog>>,
    cycle_id: String,
    options: PlanOptions,
    plan: Plan,
}

/// Hands entries to the thread that writes them. Without a thread, nothing is recorded.
#[derive(Debug, Default)]
pub(crate) struct Recorder(Option<Sink>);

#[derive(Debug)]
struct Sink {
    /// `None` only while the sink is dropped.
    entries: Option<SyncSender<Entry>>,
    thread: Option<JoinHandle<()>>,
    clock: Clock,
    metrics: WatcherMetrics,
}

impl Recorder {
    /// Starts the thread, for which at most `queue` entries may wait. Dropping the recorder waits until the thread has
    /// written them, in a shutdown that has a bound of its own.
    ///
    /// # Errors
    /// If no thread can be started.
    pub(crate) fn start(writer: Writer, queue: usize, clock: Clock, metrics: WatcherMetrics) -> io::Result<Self> {
        let (entries, waiting) = sync_channel(queue);
        let own = metrics.clone();
        let thread = std::thread::Builder::new().name("recorder".to_owned());
        let thread = thread.spawn(move || write_all(writer, &waiting, &own))?;
        Ok(Self(Some(Sink { entries: Some(entries), thread: Some(thread), clock, metrics })))
    }

    /// Records a plan. `catalog` returns a catalog by its id.
    pub(crate) fn planned(
        &self,
        (published, catalog): (&Arc<PublishedSnapshot>, impl Fn(&str) -> Option<Arc<Catalog>>),
        cycle_id: &str,
        options: &PlanOptions,
        plan: &Plan,
    ) {
        let Some(sink) = &self.0 else { return };
        let mut ids: Vec<&str> =
            published.snapshot.node_pools.iter().filter_map(|pool| Some(pool.catalog.as_ref()?.as_str())).collect();
        ids.sort_unstable();
        ids.dedup();
        sink.send(Entry::Planned(Box::new(PlannedNow {
            at: sink.now(),
            published: Arc::clone(published),
            catalogs: ids.into_iter().filter_map(catalog).collect(),
            cycle_id: cycle_id.to_owned(),
            options: options.clone(),
            plan: plan.clone(),
        })));
    }

    /// Records an outcome.
    pub(crate) fn reported(&self, cycle_id: &str, outcome: &Outcome) {
        let Some(sink) = &self.0 else { return };
        sink.send(Entry::Reported { at: sink.now(), cycle_id: cycle_id.to_owned(), outcome: outcome.clone() });
    }
}

impl Sink {
    fn now(&self) -> Timestamp {
        Timestamp(self.clock.now_millis())
    }

    fn send(&self, entry: Entry) {
        let sent = self.entries.as_ref().is_some_and(|entries| entries.try_send(entry).is_ok());
        let result = if sent { "queued" } else { "dropped" };
        self.metrics.recorded.with_label_values(&[result]).inc();
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.entries = None;
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the recorder has panicked");
        }
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
    }
}

#[cfg(test)]
mod tests;
