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
use crate::state::postponed_removals::PostponedRemovals;
use crate::state::subnet_addresses::SubnetAddresses;
use crate::state::unexecuted::Unexecuted;
use crate::termination::{self, Termination};
use crate::zonal_shift;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

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
        let (clock, connections) = (*clock, &process.connections);
        let (reads, cloud_reads) = (connections.reads(), connections.cloud_reads());
        let (writes, cloud) = (connections.writes(fence.clone()), connections.cloud_calls(fence.clone()));
        let (outcomes, unexecuted) = (Outcomes::default(), Unexecuted::default());
        let (placements, buffers) = (Placements::default(), BufferReports::default());
        let (instances, postponed) = (ListedInstances::default(), PostponedRemovals::default());
        let subnet_addresses = SubnetAddresses::default();
        let (launches, groups) = LaunchQueue::new();
        let (queue, jobs) = terminations::queue();
        let launch_templates = LaunchTemplates {
            templates: process.templates.clone(),
            stores: stores.clone(),
            cloud: cloud.clone(),
            cloud_reads: cloud_reads.clone(),
            settings: Arc::clone(settings),
            clock,
        };
        let admission = Admission {
            stores: stores.clone(),
            catalogs: catalogs.clone(),
            ledger: ledger.clone(),
            launches: launches.clone(),
            insufficient_capacity: Arc::clone(insufficient_capacity),
            subnet_addresses: subnet_addresses.clone(),
            settings: Arc::clone(settings),
            current: process.current.clone(),
            fence: fence.clone(),
            clock,
        };
        let removals = Removals {
            stores: stores.clone(),
            ledger: ledger.clone(),
            zonal_shifts: zonal_shifts.clone(),
            writes: writes.clone(),
            outcomes: outcomes.clone(),
            events: events.clone(),
            metrics: metrics.clone(),
            fence: fence.clone(),
            clock,
        };
        let drain_delay =
            DrainDelay { stores: stores.clone(), outcomes: outcomes.clone(), admission: admission.clone(), clock };
        let drivers = DriverCheck {
            ledger: ledger.clone(),
            reads: reads.clone(),
            settings: Arc::clone(settings),
            driver_reads: Arc::default(),
        };
        let sources = Sources { stores: stores.clone(), ledger: ledger.clone(), events: events.clone(), clock };
        let view = LedgerView {
            stores: stores.clone(),
            ledger: ledger.clone(),
            insufficient_capacity: Arc::clone(insufficient_capacity),
            clock,
        };
        Self {
            leader: Leader {
                admission: admission.clone(),
                removals,
                drivers,
                sources,
                view,
                stores: stores.clone(),
                catalogs: catalogs.clone(),
                zonal_shifts: zonal_shifts.clone(),
                ledger: ledger.clone(),
                outcomes: outcomes.clone(),
                placements: placements.clone(),
                buffers: buffers.clone(),
                postponed: postponed.clone(),
                unexecuted: unexecuted.clone(),
                terminations: queue,
                events: events.clone(),
                metrics: metrics.clone(),
                fence: fence.clone(),
                clock,
            },
            buffer_status: BufferStatus { buffers: buffers.clone(), writes: writes.clone(), clock },
            postponed: PostponedTaints {
                stores: stores.clone(),
                postponed,
                writes: writes.clone(),
                metrics: metrics.clone(),
                fence: fence.clone(),
                clock,
            },
            quota_status: QuotaStatus { stores: stores.clone(), ledger: ledger.clone(), writes: writes.clone(), clock },
            overlay_status: OverlayStatus {
                stores: stores.clone(),
                catalogs: catalogs.clone(),
                writes: writes.clone(),
                clock,
            },
            collector: GarbageCollector {
                stores: stores.clone(),
                reads: reads.clone(),
                writes: writes.clone(),
                cloud: cloud.clone(),
                cloud_reads: cloud_reads.clone(),
                instances: instances.clone(),
                zonal_shifts: zonal_shifts.clone(),
                fence: fence.clone(),
                settings: Arc::clone(settings),
                metrics: metrics.clone(),
                clock,
            },
            interruptions: Interruptions {
                stores: stores.clone(),
                ledger: ledger.clone(),
                writes: writes.clone(),
                cloud: cloud.clone(),
                cloud_reads: cloud_reads.clone(),
                fence: fence.clone(),
                insufficient_capacity: Arc::clone(insufficient_capacity),
                events: events.clone(),
                settings: Arc::clone(settings),
                metrics: metrics.clone(),
                clock,
            },
            launcher: Launcher {
                stores: stores.clone(),
                catalogs: catalogs.clone(),
                ledger: ledger.clone(),
                launches: launches.clone(),
                reads: reads.clone(),
                writes: writes.clone(),
                cloud: cloud.clone(),
                cloud_reads: cloud_reads.clone(),
                launch_templates: launch_templates.clone(),
                insufficient_capacity: Arc::clone(insufficient_capacity),
                subnet_addresses: subnet_addresses.clone(),
                zonal_shifts: zonal_shifts.clone(),
                outcomes: outcomes.clone(),
                events: events.clone(),
                settings: Arc::clone(settings),
                metrics: metrics.clone(),
                fence: fence.clone(),
                clock,
            },
            lifecycle: Lifecycle {
                stores: stores.clone(),
                ledger: ledger.clone(),
                writes: writes.clone(),
                cloud_reads: cloud_reads.clone(),
                fence: fence.clone(),
                registrations: process.registrations.clone(),
                events: events.clone(),
                metrics: metrics.clone(),
                clock,
            },
            memory: MemoryLearner {
                stores: stores.clone(),
                catalogs: catalogs.clone(),
                memory: process.memory.clone(),
                config_map: process.memory_config_map.clone(),
                reads: reads.clone(),
                writes: writes.clone(),
                clock,
            },
            node_classes: NodeClasses {
                events: events.clone(),
                metrics: metrics.clone(),
                stores: stores.clone(),
                writes: writes.clone(),
                cloud: cloud.clone(),
                cloud_reads: cloud_reads.clone(),
                catalogs: catalogs.clone(),
                ledger: ledger.clone(),
                launch_templates: launch_templates.clone(),
                subnet_addresses: subnet_addresses.clone(),
                current: process.current.clone(),
                settings: Arc::clone(settings),
                fence: fence.clone(),
                clock,
            },
            node_pools: NodePoolStatus {
                metrics: metrics.clone(),
                stores: stores.clone(),
                writes: writes.clone(),
                cloud_reads: cloud_reads.clone(),
                catalogs: catalogs.clone(),
                instances: instances.clone(),
                registrations: process.registrations.clone(),
                events: events.clone(),
                fence: fence.clone(),
                clock,
            },
            nominations: Nominations {
                stores: stores.clone(),
                ledger: ledger.clone(),
                placements: placements.clone(),
                writes: writes.clone(),
                settings: Arc::clone(settings),
                metrics: metrics.clone(),
                fence: fence.clone(),
                clock,
            },
            paused: PausedStatus {
                stores: stores.clone(),
                writes: writes.clone(),
                unexecuted: unexecuted.clone(),
                fence: fence.clone(),
                clock,
            },
            standalone: StandaloneClaims {
                admission: admission.clone(),
                launch_templates: launch_templates.clone(),
                writes: writes.clone(),
                events: events.clone(),
                metrics: metrics.clone(),
            },
            tagging: Tagging {
                metrics: metrics.clone(),
                stores: stores.clone(),
                writes: writes.clone(),
                cloud: cloud.clone(),
                zonal_shifts: zonal_shifts.clone(),
                clock,
                fence: fence.clone(),
            },
            termination: Termination {
                stores: stores.clone(),
                ledger: ledger.clone(),
                writes: writes.clone(),
                cloud: cloud.clone(),
                cloud_reads: cloud_reads.clone(),
                zonal_shifts: zonal_shifts.clone(),
                drain_delay,
                events: events.clone(),
                settings: Arc::clone(settings),
                metrics: metrics.clone(),
                fence: fence.clone(),
                clock,
            },
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
        tasks.spawn(overlay_status::run(self.overlay_status.clone(), stop()));
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
