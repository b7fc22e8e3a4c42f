//! Resident memory and CPU time of the services, from /proc.

use crate::bench::table::Table;
use crate::harness::services::Kind;
use crate::harness::world::World;
use anyhow::{Context as _, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// Interval of the samples.
pub(super) const EVERY: Duration = Duration::from_secs(5);
/// Clock ticks per second in /proc, on all Linux systems.
const TICKS: f64 = 100.0;

#[derive(Debug, Clone, Copy)]
struct Sample {
    process: u32,
    at: Instant,
    cpu_seconds: f64,
    resident_mib: f64,
    peak_mib: f64,
}

/// Samples of the current phase, by replica.
#[derive(Debug, Default)]
pub(super) struct Usage {
    samples: BTreeMap<String, Vec<Sample>>,
}

impl Usage {
    /// Samples all replicas that are up.
    pub(super) fn sample(&mut self, world: &World) -> Result<()> {
        for replica in world.services.iter().flat_map(|services| &services.replicas) {
            if let Some(process) = replica.process_id()
                && let Some(sample) = read(process)?
            {
                self.samples.entry(replica.name()).or_default().push(sample);
            }
        }
        Ok(())
    }

    /// The table of the phase that ends now. The next phase begins.
    pub(super) fn phase(&mut self, name: &str, world: &World) -> Result<Table> {
        self.sample(world)?;
        let columns = ["replica", "role", "CPU", "MiB now", "MiB at most"];
        let mut table = Table::new(&format!("Phase: {name}"), &columns);
        let leaders = leaders(world)?;
        let (mut total, mut leading, mut planning) = (0.0, 0.0, 0.0_f64);
        for (replica, samples) in &self.samples {
            let Some(last) = samples.last() else { continue };
            let first = samples.iter().find(|sample| sample.process == last.process).unwrap_or(last);
            let time = last.at.duration_since(first.at).as_secs_f64();
            let cpu = if time > 0.0 {
                format!("{:.1} %", 100.0 * (last.cpu_seconds - first.cpu_seconds) / time)
            } else {
                "-".to_owned()
            };
            total += last.resident_mib;
            let role = if leaders.contains(replica) {
                leading += last.resident_mib;
                "leader"
            } else if replica.contains(Kind::Scheduler.name()) {
                planning = planning.max(last.resident_mib);
                ""
            } else {
                "standby"
            };
            let (now, most) = (format!("{:.0}", last.resident_mib), format!("{:.0}", last.peak_mib));
            table.row(vec![replica.clone(), role.to_owned(), cpu, now, most]);
        }
        let leading = leading + planning;
        table.note(format!(
            "CPU: share of one core. The leaders and the larger scheduler together: {leading:.0} MiB, all replicas: \
             {total:.0} MiB."
        ));
        self.samples.clear();
        self.sample(world)?;
        Ok(table)
    }
}

/// Names of the replicas that hold a Lease. Schedulers have none.
fn leaders(world: &World) -> Result<BTreeSet<String>> {
    let Some(services) = &world.services else { return Ok(BTreeSet::new()) };
    let mut leaders = BTreeSet::new();
    for kind in [Kind::Watcher, Kind::Actuator] {
        let index = services.leader(kind, &world.cluster.kubectl)?;
        leaders.extend(services.replicas.get(index).map(|replica| replica.name()));
    }
    Ok(leaders)
}

/// `None` if the process has ended.
fn read(process: u32) -> Result<Option<Sample>> {
    let read = |file: &str| std::fs::read_to_string(format!("/proc/{process}/{file}"));
    let (Ok(stat), Ok(status)) = (read("stat"), read("status")) else { return Ok(None) };
    // The name of the program, in parentheses, may contain spaces.
    let (_, fields) = stat.rsplit_once(')').context("/proc/PID/stat has no name")?;
    let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
    // Fields 14 and 15 of proc(5), of which the first two are gone.
    let ticks = |index: usize| fields.get(index).and_then(|field| field.parse::<f64>().ok());
    let (user, system) = (ticks(11).context("no user time")?, ticks(12).context("no system time")?);
    let mib = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_ascii_whitespace().next()?.parse::<f64>().ok().map(|kib| kib / 1024.0)
    };
    let (Some(resident_mib), Some(peak_mib)) = (mib("VmRSS:"), mib("VmHWM:")) else { return Ok(None) };
    Ok(Some(Sample { process, at: Instant::now(), cpu_seconds: (user + system) / TICKS, resident_mib, peak_mib }))
}
