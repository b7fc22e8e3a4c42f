//! One cluster's session: a mirror of its snapshot and the catalogs it refers to. Synchronous; what a message leads to is
//! all that comes back. Nothing here changes a plan: it is what the same snapshot would get without a session.

mod held;

use crate::answer::{AnswerError, invalid_argument, options_from_wire};
use crate::catalogs::CatalogCache;
use crate::fragments::{FRAGMENT_BYTES, fragments};
use crate::metrics::SchedulerMetrics;
use crate::solve::solve_indexed;
use held::Held;
use plimsoll_model::catalog::Catalog;
use plimsoll_model::identity::CatalogId;
use plimsoll_model::snapshot::Snapshot;
use plimsoll_proto::convert::ConvertError;
use plimsoll_proto::delta::{Mirror, MirrorError};
use plimsoll_proto::plan::v1 as wire_plan;
use plimsoll_proto::scheduler::v1 as wire;
use plimsoll_proto::scheduler::v1::session_request::Message as Request;
use plimsoll_proto::scheduler::v1::session_response::Message as Response;
use plimsoll_proto::snapshot::v1 as snapshot_wire;
use plimsoll_solver::{Cancel, Planner};
use prost::Message as _;
use std::collections::BTreeSet;
use std::sync::Arc;
use tokio::time::Instant;
use tonic::Status;

/// Bounds on what a session keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionLimits {
    /// Objects of the snapshot, shapes and pools and all.
    pub objects: usize,
    /// Encoded bytes of a full snapshot, and again of the changes since it.
    pub bytes: usize,
}

impl Default for SessionLimits {
    fn default() -> Self {
        // Several times the largest clusters (Kubernetes itself stops at 150,000 pods), and within a replica's memory.
        Self { objects: 1_000_000, bytes: 256 << 20 }
    }
}

/// See the module.
#[derive(Debug)]
pub struct Session {
    shared: Arc<CatalogCache>,
    metrics: SchedulerMetrics,
    limits: SessionLimits,
    /// Set by Hello.
    cluster: Option<String>,
    mirror: Mirror,
    planner: Planner,
    cancel: Cancel,
    /// Encoded size of the pieces that came so far, or of the changes since the snapshot was whole.
    bytes: usize,
    /// A full snapshot was asked for: what is still on its way belongs to the former one.
    lost: bool,
    held: Held,
    /// A plan that waits for catalogs.
    waiting: Option<wire::PlanNow>,
}

type Answer = Result<Vec<wire::SessionResponse>, Status>;

impl Session {
    /// A session that has not begun.
    #[must_use]
    pub fn new(shared: Arc<CatalogCache>, metrics: SchedulerMetrics, limits: SessionLimits) -> Self {
        let cancel = Cancel::default();
        Self {
            shared,
            metrics,
            limits,
            cluster: None,
            mirror: Mirror::new(),
            planner: Planner::cancelled_by(cancel.clone()),
            cancel,
            bytes: 0,
            lost: false,
            held: Held::default(),
            waiting: None,
        }
    }

    /// Ends the solves of this session early, for when its client is gone.
    pub(crate) fn canceller(&self) -> Cancel {
        self.cancel.clone()
    }

    /// Takes a message and gives what is to be sent back, in order.
    ///
    /// # Errors
    /// The session is over: INVALID_ARGUMENT with the path of what makes no sense, RESOURCE_EXHAUSTED if the cluster is too
    /// large, INTERNAL if a plan fails its check.
    pub fn handle(&mut self, request: wire::SessionRequest) -> Answer {
        let mut first = Vec::new();
        let rest = self.handle_early(request, &mut |response| first.push(response))?;
        first.extend(rest);
        Ok(first)
    }

    /// The same, where `early` takes what can be sent back before all is done; it comes before what is given back.
    ///
    /// # Errors
    /// As [`Session::handle`].
    pub fn handle_early(
        &mut self,
        request: wire::SessionRequest,
        early: &mut dyn FnMut(wire::SessionResponse),
    ) -> Answer {
        let message = request.message.ok_or_else(|| refused("message", "is not set"))?;
        match (message, self.cluster.is_some()) {
            (Request::Hello(hello), false) => self.hello(hello),
            (Request::Hello(_), true) => Err(refused("hello", "came twice")),
            (_, false) => Err(refused("hello", "has to come first")),
            (Request::Catalog(catalog), true) => self.catalog(catalog, early),
            (Request::SnapshotChunk(chunk), true) => self.chunk(chunk),
            (Request::Delta(delta), true) => self.delta(delta),
            (Request::PlanNow(ask), true) => self.plan_now(ask, early),
        }
    }

    fn hello(&mut self, hello: wire::Hello) -> Answer {
        if hello.cluster.is_empty() {
            return Err(refused("hello.cluster", "is empty"));
        }
        tracing::info!(cluster = hello.cluster, client = hello.client, "session begins");
        self.cluster = Some(hello.cluster);
        let known_catalog_ids = self.shared.ids().into_iter().map(|id| id.0).collect();
        Ok(vec![response(Response::Ready(wire::Ready { known_catalog_ids }))])
    }

    fn catalog(
        &mut self,
        catalog: plimsoll_proto::catalog::v1::Catalog,
        early: &mut dyn FnMut(wire::SessionResponse),
    ) -> Answer {
        let catalog = Catalog::try_from(catalog).map_err(|error| invalid_argument(&error))?;
        let (id, catalog) = self.shared.put(catalog);
        self.metrics.catalogs.set(i64::try_from(self.shared.ids().len()).unwrap_or(i64::MAX));
        let needed = self.mirror.snapshot().map(needed).unwrap_or_default();
        if !self.held.put(id, &catalog, &needed) {
            let message = format!("the snapshot needs more than {} catalogs", held::MAX_HELD);
            return Err(Status::resource_exhausted(message));
        }
        // The others were asked for as well, and are on their way.
        match self.waiting.take() {
            Some(ask) if self.held.missing(&needed, &self.shared).is_empty() => self.plan_now(ask, early),
            waiting => {
                self.waiting = waiting;
                Ok(Vec::new())
            }
        }
    }

    fn chunk(&mut self, chunk: snapshot_wire::SnapshotChunk) -> Answer {
        if chunk.index == 0 {
            (self.lost, self.bytes) = (false, 0);
            // It followed another index.
            self.planner = Planner::cancelled_by(self.cancel.clone());
        } else if self.lost {
            return Ok(Vec::new());
        }
        self.waiting = None;
        self.bytes = self.bytes.saturating_add(chunk.encoded_len());
        if self.bytes > self.limits.bytes {
            return Err(too_large(&format!("more than {} bytes", self.limits.bytes)));
        }
        match self.mirror.apply_chunk(chunk) {
            Ok(false) => Ok(Vec::new()),
            Ok(true) => {
                self.bytes = 0;
                self.check_size()
            }
            Err(error) => self.broken(&error),
        }
    }

    fn delta(&mut self, delta: snapshot_wire::Delta) -> Answer {
        if self.lost {
            return Ok(Vec::new());
        }
        self.waiting = None;
        self.bytes = self.bytes.saturating_add(delta.encoded_len());
        if self.bytes > self.limits.bytes {
            // Small objects may have been replaced by large ones: only a full snapshot tells how large it is.
            return Ok(self.resync("overflow", format!("changes of more than {} bytes", self.limits.bytes)));
        }
        match self.mirror.apply_delta(delta) {
            Ok(()) => self.check_size(),
            Err(error) => self.broken(&error),
        }
    }

    fn check_size(&self) -> Answer {
        let objects = self.mirror.snapshot().map_or(0, objects);
        if objects > self.limits.objects {
            return Err(too_large(&format!("{objects} objects, more than {}", self.limits.objects)));
        }
        Ok(Vec::new())
    }

    fn broken(&mut self, error: &MirrorError) -> Answer {
        let cause = match error {
            MirrorError::Invalid(error) => return Err(invalid_argument(error)),
            MirrorError::Checksum { .. } => "checksum",
            MirrorError::Gap { .. } | MirrorError::ChunkGap { .. } | MirrorError::MixedChunks(_) => "gap",
        };
        Ok(self.resync(cause, error.to_string()))
    }

    fn resync(&mut self, cause: &str, reason: String) -> Vec<wire::SessionResponse> {
        tracing::warn!(cluster = self.cluster, %reason, "full snapshot asked for");
        self.metrics.resyncs.with_label_values(&[cause]).inc();
        (self.mirror, self.planner) = (Mirror::new(), Planner::cancelled_by(self.cancel.clone()));
        (self.waiting, self.lost) = (None, true);
        vec![response(Response::ResyncRequired(wire::ResyncRequired { reason }))]
    }

    fn plan_now(&mut self, ask: wire::PlanNow, early: &mut dyn FnMut(wire::SessionResponse)) -> Answer {
        if self.lost {
            return Ok(Vec::new());
        }
        let reached = self.mirror.snapshot().map(|snapshot| snapshot.sequence);
        let current = self.mirror.indexed().filter(|(snapshot, _)| snapshot.sequence == ask.sequence);
        let Some((snapshot, index)) = current else {
            let reason = format!("a plan was asked for snapshot {}, but the mirror has {reached:?}", ask.sequence);
            return Ok(self.resync("sequence", reason));
        };
        let options = options_from_wire(ask.options, "plan_now.options").map_err(Status::from)?;
        let needed = needed(snapshot);
        let missing = self.held.missing(&needed, &self.shared);
        if !missing.is_empty() {
            self.waiting = Some(ask);
            let catalog_ids = missing.into_iter().map(|id| id.0).collect();
            return Ok(vec![response(Response::NeedCatalog(wire::NeedCatalog { catalog_ids }))]);
        }
        let started = Instant::now();
        let mut sent = 0;
        let solved = solve_indexed(&mut self.planner, snapshot, index, self.held.catalogs(), &options, &mut |part| {
            sent += part.launches.len();
            let pieces = fragments(&part, 0, FRAGMENT_BYTES);
            pieces.into_iter().for_each(|piece| early(response(Response::PlanFragment(not_last(piece)))));
        });
        self.metrics.solve_seconds.observe(started.elapsed().as_secs_f64());
        let plan = solved.map_err(|error| {
            self.metrics.invalid_plans.inc();
            tracing::error!(cluster = self.cluster, cycle_id = ask.cycle_id, %error, "plan withheld");
            Status::from(AnswerError::from(error))
        })?;
        self.metrics.plans.with_label_values(&["session"]).inc();
        if !plan.launches.is_empty() {
            self.metrics.plan_gap_ratio.observe(plan.gap());
        }
        tracing::debug!(
            cluster = self.cluster,
            cycle_id = ask.cycle_id,
            sequence = plan.snapshot_sequence,
            launches = plan.launches.len(),
            placements = plan.placements.len(),
            terminations = plan.terminations.len(),
            unschedulable = plan.unschedulable.len(),
            elapsed_ms = started.elapsed().as_millis(),
            "planned"
        );
        let pieces = fragments(&plan, sent, FRAGMENT_BYTES);
        Ok(pieces.into_iter().map(|piece| response(Response::PlanFragment(piece))).collect())
    }
}

/// A piece of what comes before the rest: totals are told with the last piece of all.
fn not_last(piece: wire::PlanFragment) -> wire::PlanFragment {
    let part = piece.part.map(|part| wire_plan::Plan { hourly_micro_usd: 0, lower_bound_micro_usd: 0, ..part });
    wire::PlanFragment { last: false, part, ..piece }
}

fn response(message: Response) -> wire::SessionResponse {
    wire::SessionResponse { message: Some(message) }
}

fn refused(path: &str, message: &str) -> Status {
    invalid_argument(&ConvertError { path: path.to_owned(), message: message.to_owned() })
}

fn too_large(what: &str) -> Status {
    Status::resource_exhausted(format!("the snapshot is too large for this scheduler: {what}"))
}

fn needed(snapshot: &Snapshot) -> BTreeSet<CatalogId> {
    snapshot.node_pools.iter().filter_map(|pool| pool.catalog.clone()).collect()
}

fn objects(snapshot: &Snapshot) -> usize {
    snapshot.shapes.len()
        + snapshot.pods.len()
        + snapshot.nodes.len()
        + snapshot.node_pools.len()
        + snapshot.daemon_sets.len()
        + snapshot.pod_disruption_budgets.len()
        + snapshot.unavailable_offerings.len()
        + snapshot.ignored.len()
}

#[cfg(test)]
mod tests;
