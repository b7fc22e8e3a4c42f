//! One term of leadership: its controllers, each built with exactly the dependencies it needs.

use super::pause::{self, PausedStatus};
use super::shadow_report::{self, ShadowReport};
use super::{Process, drivers};
use crate::buffer_status::{self, BufferStatus};
use crate::discovered_memory::{self, MemoryLearner};
use crate::fencing::Fence;
use crate::garbage_collection::run::{self as collection, GarbageCollector};
use crate::interruption::{self, DrainDelay, Interruptions};
use crate::launch::admit::Admission;
use crate::launch::launcher::{self, Launcher};
use crate::launch::standalone::{self, StandaloneClaims};
use crate::launch::tagging::{self, Tagging};
use crate::launch::{Groups, LaunchQueue};
use crate::launch_template::{self, LaunchTemplates};
use crate::ledger::feed::{self, Sources};
use crate::ledger::handle::LedgerHandle;
use crate::ledger::view::LedgerView;
use crate::lifecycle::{self, Lifecycle};
use crate::metrics;
use crate::node_class::{self, NodeClasses};
use crate::node_pool_status::{self, NodePoolStatus};
use crate::nomination::{self, Nominations};
use crate::overlay_status::{self, OverlayStatus};
use crate::quota_status::{self, QuotaStatus};
use crate::removal::postponed::PostponedTaints;
use crate::removal::{self, Removals};
use crate::server::Leader;
use crate::server::driver::DriverCheck;
use crate::server::terminations::{self, Job};
use crate::state::buffer_reports::BufferReports;
use crate::state::instances::ListedInstances;
use crate::state::nominations::Placements;
use crate::state::outcomes::Outcomes;
use crate::state::pod_events::PodEvents;
use crate::state::postponed_removals::PostponedRemovals;
use crate::state::subnet_addresses::SubnetAddresses;
use crate::state::unexecuted::Unexecuted;
use crate::termination::{self, Termination};
use crate::zonal_shift;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Builds a struct from clones of the variables that have the names of its fields.
macro_rules! from_clones {
    ($name:ident: $($field:ident),+) => {
        $name { $($field: $field.clone()),+ }
    };
}

/// A term of leadership. [`Term::start`] and [`Term::start_admitted`] start its controllers.
pub(super) struct Term {
    pub(super) leader: Leader,
    buffer_status: BufferStatus,
    quota_status: QuotaStatus,
    overlay_status: OverlayStatus,
    collector: GarbageCollector,
    interruptions: Interruptions,
    launch_templates: LaunchTemplates,
    launcher: Launcher,
    lifecycle: Lifecycle,
    memory: MemoryLearner,
    node_classes: NodeClasses,
    node_pools: NodePoolStatus,
    nominations: Nominations,
    paused: PausedStatus,
    postponed: PostponedTaints,
    standalone: StandaloneClaims,
    tagging: Tagging,
    termination: Termination,
    groups: Groups,
    jobs: mpsc::Receiver<Vec<Job>>,
}

impl Term {
    /// Builds the controllers of a term.
    pub(super) fn new(process: &Process, fence: &Fence, ledger: &LedgerHandle) -> Self {
        let Process { clock, stores, settings, insufficient_capacity, catalogs, metrics, events, zonal_shifts, .. } =
            process;
        let Process { current, memory, memory_config_map: config_map, templates, registrations, .. } = process;
        let connections = &process.connections;
        let (reads, cloud_reads) = (connections.reads(), connections.cloud_reads());
        let (writes, cloud) = (connections.writes(fence.clone()), connections.cloud_calls(fence.clone()));
        let (outcomes, unexecuted, pod_events) = (Outcomes::default(), Unexecuted::default(), PodEvents::default());
        let (placements, buffers) = (Placements::default(), BufferReports::default());
        let (instances, postponed) = (ListedInstances::default(), PostponedRemovals::default());
        let subnet_addresses = SubnetAddresses::default();
        let (launches, groups) = LaunchQueue::new();
        let (terminations, jobs) = terminations::queue();
        let launch_templates = from_clones!(LaunchTemplates: templates, stores, cloud, cloud_reads, settings, clock);
        let admission = from_clones!(Admission: stores, catalogs, ledger, launches, insufficient_capacity,
            subnet_addresses, settings, current, fence, clock);
        let removals = from_clones!(Removals: stores, ledger, zonal_shifts, writes, outcomes, pod_events, events,
            metrics, fence, clock);
        let drain_delay = from_clones!(DrainDelay: stores, outcomes, admission, clock);
        let drivers = DriverCheck {
            ledger: ledger.clone(),
            reads: reads.clone(),
            settings: Arc::clone(settings),
            driver_reads: Arc::default(),
        };
        let sources = from_clones!(Sources: stores, ledger, events, clock);
        let view = from_clones!(LedgerView: stores, ledger, insufficient_capacity, clock);
        Self {
            leader: from_clones!(Leader: admission, removals, drivers, sources, view, stores, catalogs, zonal_shifts,
                ledger, outcomes, placements, buffers, postponed, unexecuted, terminations, events, metrics, fence,
                clock),
            buffer_status: from_clones!(BufferStatus: buffers, writes, clock),
            postponed: from_clones!(PostponedTaints: stores, postponed, writes, metrics, fence, clock),
            quota_status: from_clones!(QuotaStatus: stores, ledger, writes, clock),
            overlay_status: from_clones!(OverlayStatus: stores, catalogs, writes, clock),
            collector: from_clones!(GarbageCollector: stores, reads, writes, cloud, cloud_reads, instances,
                zonal_shifts, settings, metrics, fence, clock),
            interruptions: from_clones!(Interruptions: stores, ledger, writes, cloud, cloud_reads, fence,
                insufficient_capacity, events, settings, metrics, clock),
            launcher: from_clones!(Launcher: stores, catalogs, ledger, launches, reads, writes, cloud, cloud_reads,
                launch_templates, insufficient_capacity, subnet_addresses, zonal_shifts, outcomes, events, settings,
                metrics, fence, clock),
            lifecycle: from_clones!(Lifecycle: stores, ledger, writes, cloud_reads, fence, registrations, events,
                metrics, clock),
            memory: from_clones!(MemoryLearner: stores, catalogs, memory, config_map, reads, writes, clock),
            node_classes: from_clones!(NodeClasses: events, metrics, stores, writes, cloud, cloud_reads, catalogs,
                ledger, launch_templates, subnet_addresses, current, settings, fence, clock),
            node_pools: from_clones!(NodePoolStatus: metrics, stores, writes, cloud_reads, catalogs, instances,
                pod_events, registrations, events, fence, clock),
            nominations: from_clones!(Nominations: stores, ledger, placements, writes, settings, metrics, fence,
                clock),
            paused: from_clones!(PausedStatus: stores, writes, unexecuted, fence, clock),
            standalone: from_clones!(StandaloneClaims: admission, launch_templates, writes, events, metrics),
            tagging: from_clones!(Tagging: metrics, stores, writes, cloud, zonal_shifts, clock, fence),
            termination: from_clones!(Termination: stores, ledger, writes, cloud, cloud_reads, zonal_shifts,
                drain_delay, registrations, events, settings, metrics, fence, clock),
            launch_templates,
            groups,
            jobs,
        }
    }

    /// Starts the controllers that run before actions are admitted.
    pub(super) fn start(&self, stop: &CancellationToken, tasks: &mut JoinSet<()>) {
        let stop = || stop.clone();
        let Leader { drivers, sources, removals, .. } = &self.leader;
        tasks.spawn(feed::run(sources.clone(), stop()));
        tasks.spawn(drivers::follow(drivers.clone(), stop()));
        tasks.spawn(pause::report_pause(self.paused.clone(), stop()));
        tasks.spawn(node_class::run(self.node_classes.clone(), stop()));
        tasks.spawn(launch_template::cleanup(self.launch_templates.clone(), stop()));
        tasks.spawn(discovered_memory::run(self.memory.clone(), stop()));
        tasks.spawn(lifecycle::run(self.lifecycle.clone(), stop()));
        tasks.spawn(termination::run(self.termination.clone(), stop()));
        tasks.spawn(removal::run(removals.clone(), stop()));
        tasks.spawn(removal::blocked_nodes::run(removals.clone(), stop()));
        tasks.spawn(removal::postponed::run(self.postponed.clone(), stop()));
        tasks.spawn(interruption::run(self.interruptions.clone(), stop()));
        tasks.spawn(tagging::run(self.tagging.clone(), stop()));
        tasks.spawn(node_pool_status::run(self.node_pools.clone(), stop()));
        tasks.spawn(nomination::run(self.nominations.clone(), stop()));
        tasks.spawn(nomination::binding::run(self.nominations.clone(), stop()));
        tasks.spawn(buffer_status::run(self.buffer_status.clone(), stop()));
        tasks.spawn(quota_status::run(self.quota_status.clone(), stop()));
        if self.launcher.settings.node_overlays {
            tasks.spawn(overlay_status::run(self.overlay_status.clone(), stop()));
        }
        let Leader { metrics, stores, catalogs, clock, .. } = &self.leader;
        let sources = metrics::view::Sources {
            stores: stores.clone(),
            catalogs: catalogs.clone(),
            insufficient_capacity: Arc::clone(&self.launcher.insufficient_capacity),
            zonal_shifts: self.launcher.zonal_shifts.clone(),
            clock: *clock,
        };
        let Leader { unexecuted, events, fence, .. } = &self.leader;
        let shadow_report = ShadowReport {
            sources: sources.clone(),
            unexecuted: unexecuted.clone(),
            events: events.clone(),
            metrics: metrics.clone(),
            fence: fence.clone(),
            interval: self.launcher.settings.shadow_report_interval,
        };
        tasks.spawn(shadow_report::run(shadow_report, stop()));
        tasks.spawn(metrics::follow::run(metrics.clone(), sources, stop()));
    }

    /// Starts the controllers that execute admitted actions or judge what a former leader left behind.
    pub(super) fn start_admitted(self, stop: &CancellationToken, tasks: &mut JoinSet<()>) {
        let Leader { stores, zonal_shifts, events, fence, clock, .. } = &self.leader;
        let shifts = zonal_shift::Report {
            stores: stores.clone(),
            shifts: zonal_shifts.clone(),
            events: events.clone(),
            fence: fence.clone(),
            clock: *clock,
        };
        tasks.spawn(launcher::run(self.launcher, self.groups, stop.clone()));
        tasks.spawn(standalone::run(self.standalone, stop.clone()));
        tasks.spawn(terminations::run(self.leader, self.jobs, stop.clone()));
        tasks.spawn(collection::run(self.collector, stop.clone()));
        tasks.spawn(zonal_shift::report(shifts, stop.clone()));
    }
}
