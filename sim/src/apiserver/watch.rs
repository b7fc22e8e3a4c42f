//! Watches: a stream of lines about the changes of one kind.

use super::ApiServer;
use super::error::ApiError;
use super::events;
use super::faults::{BrokenConnection, Distortion, Partition};
use super::object;
use super::request::{Query, Target};
use super::resources::ResourceId;
use super::respond::{Form, bookmark_line, change_line, event_line, object_bytes};
use super::store::{Event, Filter, Page, Store};
use bytes::Bytes;
use futures::Stream;
use plimsoll_runtime::signal;
use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Interval of bookmarks on an idle watch that requests them.
const BOOKMARK_INTERVAL: Duration = Duration::from_secs(60);
/// Default duration of a watch. Real servers use a random value between this and twice this value.
const DEFAULT_TIMEOUT_SECONDS: u64 = 1800;

pub(super) struct Watch {
    server: ApiServer,
    client: String,
    /// Number of the watch on this server, used to cut it.
    id: u64,
    resource: ResourceId,
    filter: Filter,
    form: Form,
    /// All changes up to this revision were sent or queued.
    position: u64,
    queue: VecDeque<Bytes>,
    changed: signal::Receiver,
    faults: signal::Receiver,
    bookmarks: bool,
    next_bookmark: Instant,
    deadline: Instant,
    over: bool,
}

impl Watch {
    pub(super) fn open(
        server: &ApiServer,
        client: &str,
        target: &Target,
        query: &Query,
        form: Form,
    ) -> Result<Self, ApiError> {
        let filter = query.filter(target)?;
        let timeout = query.number("timeoutSeconds")?.filter(|seconds| *seconds > 0).unwrap_or(DEFAULT_TIMEOUT_SECONDS);
        let bookmarks = query.is_set("allowWatchBookmarks");
        let streams_list = query.is_set("sendInitialEvents");
        if streams_list && query.get("resourceVersionMatch") != "NotOlderThan" {
            return Err(ApiError::new(422, "Invalid", "sendInitialEvents: resourceVersionMatch must be NotOlderThan"));
        }
        let stored = events::storage(target.resource);
        let now = Instant::now();
        let mut watch = Self {
            server: server.clone(),
            client: client.to_owned(),
            id: server.faults().open_watch(),
            resource: target.resource,
            filter,
            form,
            position: query.number("resourceVersion")?.unwrap_or(0),
            queue: VecDeque::new(),
            changed: server.subscribe(stored),
            faults: server.faults().subscribe(),
            bookmarks,
            next_bookmark: now + BOOKMARK_INTERVAL,
            deadline: now + Duration::from_secs(timeout),
            over: false,
        };
        server.read(|store| watch.begin(store, streams_list))?;
        Ok(watch)
    }

    /// Queues the existing objects if the watcher requests them.
    fn begin(&mut self, store: &Store, streams_list: bool) -> Result<(), ApiError> {
        // A position in the future is not an error: the watch waits until the store reaches it.
        if self.position != 0 && !streams_list {
            return Ok(());
        }
        let listing = store.list(events::storage(self.resource), &self.filter, &Page::default())?;
        let lines =
            listing.items.iter().map(|object| event_line("ADDED", &object_bytes(self.resource, self.form, object)));
        self.queue.extend(lines);
        self.position = listing.revision;
        if streams_list && self.bookmarks {
            self.queue.push_back(bookmark_line(self.resource, self.form, self.position, true));
        }
        Ok(())
    }

    /// Revision of the first change up to `until` that concerns this watch.
    fn first_news(&self, until: u64) -> Option<u64> {
        self.server.read(|store| {
            let events = store.events_after(events::storage(self.resource), self.position);
            let Ok(mut events) = events else { return Some(until) };
            let is_news = |event: &&Arc<Event>| event.revision <= until && Store::seen(event, &self.filter).is_some();
            events.find(is_news).map(|event| event.revision)
        })
    }

    /// Queues the changes up to `until`.
    fn read(&mut self, store: &Store, until: u64, distortion: Option<Distortion>) {
        if until <= self.position {
            return;
        }
        let events = match store.events_after(events::storage(self.resource), self.position) {
            Ok(events) => events,
            Err(error) => {
                self.queue.push_back(event_line("ERROR", error.status().to_string().as_bytes()));
                self.over = true;
                return;
            }
        };
        let seen = events.take_while(|event| event.revision <= until);
        let mut seen: Vec<_> =
            seen.filter_map(|event| Store::seen(event, &self.filter).map(|kind| (event, kind))).collect();
        match distortion {
            Some(Distortion::Dropped(_)) if !seen.is_empty() => {
                let expired = ApiError::expired(self.position, until);
                self.queue.push_back(event_line("ERROR", expired.status().to_string().as_bytes()));
                self.over = true;
                return;
            }
            Some(Distortion::Reordered(_)) => {
                let last: BTreeMap<&str, u64> =
                    seen.iter().map(|(event, _)| (object::uid(&event.object), event.revision)).collect();
                seen.sort_by_key(|(event, _)| (Reverse(last.get(object::uid(&event.object)).copied()), event.revision));
            }
            _ => {}
        }
        let times = if distortion == Some(Distortion::Duplicated) { 2 } else { 1 };
        for (event, kind) in seen {
            let line = change_line(self.resource, self.form, event, kind);
            self.queue.extend(std::iter::repeat_n(line, times));
        }
        self.position = self.position.max(until);
    }

    /// The next line; `None` when the watch ends.
    async fn next(&mut self) -> Option<Result<Bytes, BrokenConnection>> {
        loop {
            if self.server.faults().is_cut(&self.client, self.id) {
                self.over = true;
                self.queue.clear();
                return Some(Err(BrokenConnection));
            }
            if self.server.faults().partition_of(&self.client) == Some(Partition::Silent) {
                // The sender lives as long as the server, and this watch holds the server.
                self.faults.changed().await;
                continue;
            }
            if let Some(line) = self.queue.pop_front() {
                return Some(Ok(line));
            }
            if self.over {
                return None;
            }
            self.changed.mark_unchanged();
            let server = self.server.clone();
            let newest = server.read(Store::revision);
            let plural = self.resource.get().plural;
            let distortion = server.faults().distortion(&self.client, plural);
            let lag = server.faults().watch_lag(&self.client).max(distortion.map_or(Duration::ZERO, Distortion::holds));
            if newest > self.position
                && !lag.is_zero()
                && let Some(revision) = self.first_news(newest)
            {
                let since = server.faults().held_since(&self.client, plural, revision);
                tokio::time::sleep_until(since + lag).await;
            }
            let until = match distortion {
                // Events that arrived in the meantime are lost or reordered together with these.
                Some(Distortion::Dropped(_) | Distortion::Reordered(_)) => server.read(Store::revision),
                _ => newest,
            };
            server.read(|store| self.read(store, until, distortion));
            if self.queue.is_empty() {
                self.wait().await;
            }
        }
    }

    async fn wait(&mut self) {
        let wake = if self.bookmarks { self.deadline.min(self.next_bookmark) } else { self.deadline };
        tokio::select! {
            biased;
            () = self.changed.changed() => return,
            () = self.faults.changed() => return,
            () = tokio::time::sleep_until(wake) => {}
        }
        if self.bookmarks {
            self.next_bookmark = Instant::now() + BOOKMARK_INTERVAL;
            self.queue.push_back(bookmark_line(self.resource, self.form, self.position, false));
        }
        self.over = Instant::now() >= self.deadline;
    }

    pub(super) fn lines(self) -> impl Stream<Item = Result<Bytes, BrokenConnection>> + Send {
        futures::stream::unfold(self, |mut watch| async move {
            let line = watch.next().await?;
            Some((line, watch))
        })
    }
}
