//! The session of one cluster: a mirror of its snapshot and the catalogs it refers to. The session is synchronous:
//! handling a message returns all responses. A session does not affect plans: the plan is the same as for a
//! self-contained request.

mod session_catalogs;

use crate::answer::{AnswerError, invalid_argument, options_from_wire};
use crate::catalogs::CatalogCache;
use crate::fragments::{FRAGMENT_BYTES, fragments};
use crate::metrics::SchedulerMetrics;
use crate::solve::{PlanFailure, PlanFn, Solved, Solver, TimeLimits};
use plimsoll_model::catalog::Catalog;
use plimsoll_model::identity::CatalogId;
use plimsoll_model::snapshot::Snapshot;
use plimsoll_proto::catalog::v1 as wire_catalog;
use plimsoll_proto::convert::ConvertError;
use plimsoll_proto::delta::{Mirror, MirrorError};
use plimsoll_proto::plan::v1 as wire_plan;
use plimsoll_proto::protocol::{OLDEST_PROTOCOL, PROTOCOL, SHARED_REASONS, protocol_since};
use plimsoll_proto::scheduler::v1 as wire;
use plimsoll_proto::scheduler::v1::session_request::Message as Request;
use plimsoll_proto::scheduler::v1::session_response::Message as Response;
use plimsoll_proto::snapshot::v1 as snapshot_wire;
use plimsoll_solver::Cancel;
use prost::Message as _;
use session_catalogs::SessionCatalogs;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tonic::Status;

/// Number of objects of all kinds in a snapshot, of the model or of the wire.
macro_rules! object_count {
    ($snapshot:expr) => {
        $snapshot.shapes.len()
            + $snapshot.pods.len()
            + $snapshot.nodes.len()
            + $snapshot.node_pools.len()
            + $snapshot.daemon_sets.len()
            + $snapshot.pod_disruption_budgets.len()
            + $snapshot.unavailable_offerings.len()
            + $snapshot.reservations.len()
            + $snapshot.capacity_quotas.len()
            + $snapshot.ignored.len()
    };
}

/// Limits of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionLimits {
    /// Maximum number of objects of all kinds in the snapshot.
    pub objects: usize,
    /// Maximum encoded size of a full snapshot, and of the deltas since then.
    pub bytes: usize,
}

impl Default for SessionLimits {
    fn default() -> Self {
        // Several times the largest supported clusters (Kubernetes supports 150,000 pods), and within a replica's
        // memory.
        Self { objects: 1_000_000, bytes: 256 << 20 }
    }
}

/// State of a session.
#[derive(Debug)]
pub struct Session {
    shared: Arc<CatalogCache>,
    metrics: SchedulerMetrics,
    limits: SessionLimits,
    /// Set by Hello.
    cluster: Option<String>,
    mirror: Mirror,
    solver: Solver,
    cancel: Cancel,
    /// Ends the current plan; see [`Session::abandoner`].
    abandon: Cancel,
    /// Encoded size of the chunks of an incomplete snapshot, or of the deltas since the last full snapshot.
    bytes: usize,
    /// Number of objects in the chunks of an incomplete snapshot.
    objects: usize,
    /// A full snapshot has been requested. Messages until its first chunk belong to the previous snapshot and are
    /// ignored.
    awaiting_snapshot: bool,
    catalogs: SessionCatalogs,
    /// A plan request that waits for catalogs.
    pending_plan: Option<wire::PlanNow>,
    /// Protocol number of the client.
    protocol: u32,
    oldest_protocol: u32,
}

type HandleResult = Result<Vec<wire::SessionResponse>, Status>;

impl Session {
    /// Creates a session that waits for Hello.
    #[must_use]
    pub fn new(shared: Arc<CatalogCache>, metrics: SchedulerMetrics, limits: SessionLimits) -> Self {
        let cancel = Cancel::default();
        let solver = Solver::new(PlanFn::default(), Some(TimeLimits::default()), cancel.clone());
        Self {
            shared,
            metrics,
            limits,
            cluster: None,
            mirror: Mirror::default(),
            solver,
            abandon: cancel.child(),
            cancel,
            bytes: 0,
            objects: 0,
            awaiting_snapshot: false,
            catalogs: SessionCatalogs::default(),
            pending_plan: None,
            protocol: PROTOCOL,
            oldest_protocol: OLDEST_PROTOCOL,
        }
    }

    /// Makes the plans with another function.
    #[must_use]
    pub(crate) fn with_plan(mut self, plan: PlanFn) -> Self {
        self.solver = Solver::new(plan, Some(TimeLimits::default()), self.cancel.clone());
        self
    }

    /// Ends the solves of this session early, for when its client is gone.
    pub(crate) fn canceller(&self) -> Cancel {
        self.cancel.clone()
    }

    /// Ends the solve of the next message early, for when the client no longer waits for its plan. The session goes on.
    pub(crate) fn abandoner(&mut self) -> Cancel {
        self.abandon = self.cancel.child();
        self.solver.set_cancel(self.abandon.clone());
        self.abandon.clone()
    }

    /// Handles a message and returns the responses in order.
    ///
    /// # Errors
    /// The session must end: INVALID_ARGUMENT with the path of an invalid field, RESOURCE_EXHAUSTED if the cluster is
    /// too large, FAILED_PRECONDITION if the client is too old, INTERNAL if the planner fails for another reason than
    /// some pods.
    pub fn handle(&mut self, request: wire::SessionRequest) -> HandleResult {
        let mut first = Vec::new();
        let rest = self.handle_early(request, &mut |response| first.push(response))?;
        first.extend(rest);
        Ok(first)
    }

    /// Like [`Session::handle`], but passes responses that are ready early to `early`. They precede the returned
    /// responses.
    ///
    /// # Errors
    /// As [`Session::handle`].
    pub fn handle_early(
        &mut self,
        request: wire::SessionRequest,
        early: &mut dyn FnMut(wire::SessionResponse),
    ) -> HandleResult {
        let Some(message) = request.message else {
            // A kind of message that a later version has added.
            let is_later = self.cluster.is_some() && self.protocol > PROTOCOL;
            return if is_later { Ok(Vec::new()) } else { Err(invalid_field("message", "is not set")) };
        };
        match (message, self.cluster.is_some()) {
            (Request::Hello(hello), false) => self.hello(hello),
            (Request::Hello(_), true) => Err(invalid_field("hello", "came twice")),
            (_, false) => Err(invalid_field("hello", "has to come first")),
            (Request::Catalog(catalog), true) => self.handle_catalog(catalog, early),
            (Request::SnapshotChunk(chunk), true) => self.chunk(chunk),
            (Request::Delta(delta), true) => self.delta(delta),
            (Request::PlanNow(ask), true) => self.plan_now(ask, early),
        }
    }

    fn hello(&mut self, hello: wire::Hello) -> HandleResult {
        if hello.cluster.is_empty() {
            return Err(invalid_field("hello.cluster", "is empty"));
        }
        let protocol = protocol_since(self.oldest_protocol, "watcher", hello.protocol);
        self.protocol = protocol.map_err(|error| Status::failed_precondition(error.to_string()))?;
        tracing::info!(cluster = hello.cluster, client = hello.client, protocol = self.protocol, "session begins");
        self.cluster = Some(hello.cluster);
        let known_catalog_ids = self.shared.ids().into_iter().map(|id| id.0).collect();
        Ok(vec![response(Response::Ready(wire::Ready { known_catalog_ids, protocol: PROTOCOL }))])
    }

    fn handle_catalog(
        &mut self,
        catalog: wire_catalog::Catalog,
        early: &mut dyn FnMut(wire::SessionResponse),
    ) -> HandleResult {
        let (id, catalog) = self.read_catalog(catalog).map_err(|error| invalid_argument(&error))?;
        self.metrics.catalogs.set(i64::try_from(self.shared.ids().len()).unwrap_or(i64::MAX));
        let needed = self.mirror.snapshot().map(needed_catalogs).unwrap_or_default();
        if !self.catalogs.put(id, &catalog, &needed) {
            return Err(too_large(&format!("catalogs of more than {} bytes", session_catalogs::MAX_BYTES)));
        }
        // Other missing catalogs have been requested already and will arrive.
        match self.pending_plan.take() {
            Some(ask) if self.catalogs.missing(&needed, &self.shared).is_empty() => self.plan_now(ask, early),
            pending_plan => {
                self.pending_plan = pending_plan;
                Ok(Vec::new())
            }
        }
    }

    fn read_catalog(&self, catalog: wire_catalog::Catalog) -> Result<(CatalogId, Arc<Catalog>), ConvertError> {
        if self.protocol == PROTOCOL || catalog.id.is_empty() {
            return Ok(self.shared.put(Catalog::try_from(catalog)?));
        }
        // The id of another version may cover other fields, so it cannot be checked, nor shared with others.
        let id = CatalogId(catalog.id.clone());
        let catalog = Catalog::try_from(wire_catalog::Catalog { id: String::new(), ..catalog })?;
        Ok((id, Arc::new(catalog)))
    }

    fn chunk(&mut self, chunk: snapshot_wire::SnapshotChunk) -> HandleResult {
        if chunk.index == 0 {
            (self.awaiting_snapshot, self.bytes, self.objects) = (false, 0, 0);
            self.solver.forget_snapshot();
        } else if self.awaiting_snapshot {
            return Ok(Vec::new());
        }
        self.pending_plan = None;
        self.bytes = self.bytes.saturating_add(chunk.encoded_len());
        if self.bytes > self.limits.bytes {
            return Err(too_large(&format!("more than {} bytes", self.limits.bytes)));
        }
        // The sender need not ever complete the snapshot, so each chunk is checked.
        self.objects = self.objects.saturating_add(chunk.part.as_ref().map_or(0, |part| object_count!(part)));
        self.check_objects(self.objects)?;
        match self.mirror.apply_chunk(chunk) {
            Ok(false) => Ok(Vec::new()),
            Ok(true) => {
                self.bytes = 0;
                Ok(Vec::new())
            }
            Err(error) => self.handle_mirror_error(&error),
        }
    }

    fn delta(&mut self, delta: snapshot_wire::Delta) -> HandleResult {
        if self.awaiting_snapshot {
            return Ok(Vec::new());
        }
        self.pending_plan = None;
        self.bytes = self.bytes.saturating_add(delta.encoded_len());
        if self.bytes > self.limits.bytes {
            // Deltas may have replaced small objects with large ones. Only a full snapshot shows the current size.
            return Ok(self.resync("overflow", format!("changes of more than {} bytes", self.limits.bytes)));
        }
        match self.mirror.apply_delta(delta) {
            Ok(()) => {
                self.check_objects(self.mirror.snapshot().map_or(0, |snapshot| object_count!(snapshot)))?;
                Ok(Vec::new())
            }
            Err(error) => self.handle_mirror_error(&error),
        }
    }

    fn check_objects(&self, objects: usize) -> Result<(), Status> {
        if objects > self.limits.objects {
            return Err(too_large(&format!("{objects} objects, more than {}", self.limits.objects)));
        }
        Ok(())
    }

    fn handle_mirror_error(&mut self, error: &MirrorError) -> HandleResult {
        let cause = match error {
            MirrorError::Invalid(error) => return Err(invalid_argument(error)),
            MirrorError::Checksum { .. } => "checksum",
            MirrorError::Gap { .. } | MirrorError::ChunkGap { .. } | MirrorError::MixedChunks(_) => "gap",
        };
        Ok(self.resync(cause, error.to_string()))
    }

    fn resync(&mut self, cause: &str, reason: String) -> Vec<wire::SessionResponse> {
        tracing::warn!(cluster = self.cluster, %reason, "requesting a full snapshot");
        self.metrics.resyncs.with_label_values(&[cause]).inc();
        self.mirror = Mirror::default();
        self.solver.forget_snapshot();
        (self.pending_plan, self.awaiting_snapshot) = (None, true);
        vec![response(Response::ResyncRequired(wire::ResyncRequired { reason }))]
    }

    fn plan_now(&mut self, ask: wire::PlanNow, early: &mut dyn FnMut(wire::SessionResponse)) -> HandleResult {
        if self.awaiting_snapshot {
            return Ok(Vec::new());
        }
        let reached = self.mirror.snapshot().map(|snapshot| snapshot.sequence);
        let current = self.mirror.indexed().filter(|(snapshot, _)| snapshot.sequence == ask.sequence);
        let Some((snapshot, index)) = current else {
            let reached = reached.map_or_else(|| "none".to_owned(), |sequence| sequence.to_string());
            let reason = format!("a plan was asked for snapshot {}, but the mirror has {reached}", ask.sequence);
            return Ok(self.resync("sequence", reason));
        };
        let options =
            options_from_wire(ask.options.clone(), "plan_now.options").map_err(|error| invalid_argument(&error))?;
        let needed = needed_catalogs(snapshot);
        let missing = self.catalogs.missing(&needed, &self.shared);
        if !missing.is_empty() {
            self.pending_plan = Some(ask);
            let catalog_ids = missing.into_iter().map(|id| id.0).collect();
            return Ok(vec![response(Response::NeedCatalog(wire::NeedCatalog { catalog_ids }))]);
        }
        let started = Instant::now();
        let mut sent = 0;
        let solved = self.solver.solve((snapshot, index), self.catalogs.catalogs(), &options, &mut |part| {
            sent += part.launches.len();
            let parts = fragments(&part, 0, FRAGMENT_BYTES, false);
            parts.into_iter().for_each(|fragment| early(response(Response::PlanFragment(early_fragment(fragment)))));
        });
        let seconds = started.elapsed().as_secs_f64();
        self.metrics.solve_seconds.observe(seconds);
        let controller = if options.disruption { "disruption" } else { "provisioner" };
        self.metrics.scheduling_seconds.with_label_values(&[controller]).observe(seconds);
        let (cluster, cycle_id) = (&self.cluster, &ask.cycle_id);
        if matches!(solved, Err(PlanFailure::Cancelled)) && !self.cancel.is_cancelled() {
            self.metrics.abandoned_plans.inc();
            tracing::debug!(cluster, cycle_id, "plan abandoned");
            return Ok(Vec::new());
        }
        let solved = solved.map_err(|error| {
            self.metrics.count_failure(&error);
            tracing::error!(cluster, cycle_id, %error, "no plan");
            Status::from(AnswerError::from(error))
        })?;
        self.report(&solved, cycle_id, started.elapsed());
        let parts = fragments(&solved.plan, sent, FRAGMENT_BYTES, self.protocol >= SHARED_REASONS);
        Ok(parts.into_iter().map(|fragment| response(Response::PlanFragment(fragment))).collect())
    }

    /// Counts and logs a plan, and what was left out to make it.
    fn report(&self, Solved { plan, replaced, left_out, kept }: &Solved, cycle_id: &str, elapsed: Duration) {
        let cluster = &self.cluster;
        if let Some(error) = replaced {
            self.metrics.count_failure(error);
            tracing::error!(
                cluster,
                cycle_id,
                %error,
                ?left_out,
                ?kept,
                "planned again without what makes the plan fail"
            );
        }
        for (cause, pods) in left_out {
            self.metrics.left_out.with_label_values(&[*cause]).inc_by(u64::try_from(*pods).unwrap_or(u64::MAX));
        }
        self.metrics.plans.with_label_values(&["session"]).inc();
        if let Some(gap) = plan.gap().filter(|_| !plan.launches.is_empty()) {
            self.metrics.plan_gap_ratio.observe(gap);
        }
        tracing::debug!(
            cluster,
            cycle_id,
            sequence = plan.snapshot_sequence,
            launches = plan.launches.len(),
            placements = plan.placements.len(),
            terminations = plan.terminations.len(),
            unschedulable = plan.unschedulable.len(),
            elapsed_ms = elapsed.as_millis(),
            "planned"
        );
    }
}

/// Marks a fragment of an early part. Totals are only in the last fragment of the plan.
fn early_fragment(fragment: wire::PlanFragment) -> wire::PlanFragment {
    let part = fragment.part.map(|part| wire_plan::Plan { hourly_micro_usd: 0, lower_bound_micro_usd: 0, ..part });
    wire::PlanFragment { last: false, part, ..fragment }
}

fn response(message: Response) -> wire::SessionResponse {
    wire::SessionResponse { message: Some(message) }
}

fn invalid_field(path: &str, message: &str) -> Status {
    invalid_argument(&ConvertError::new(path, message))
}

fn too_large(what: &str) -> Status {
    Status::resource_exhausted(format!("the snapshot is too large for this scheduler: {what}"))
}

fn needed_catalogs(snapshot: &Snapshot) -> BTreeSet<CatalogId> {
    snapshot.node_pools.iter().filter_map(|pool| pool.catalog.clone()).collect()
}

#[cfg(test)]
mod tests;
