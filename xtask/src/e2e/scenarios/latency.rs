//! Latency from kube-scheduler's condition to CreateFleet at the endpoint, for single pods in an idle system.

use super::super::objects::{self, SOON, in_millis};
use super::super::{Context, Figure};
use crate::harness::audit;
use crate::harness::world::World;
use crate::quantile::nearest_rank;
use anyhow::{Context as _, Result, bail, ensure};

/// Target in seconds.
const MEDIAN_AIM: f64 = 0.150;
/// Time of Karpenter 1.14.1 from the pod to its NodeClaim. A slower result fails on any machine.
const MEDIAN_MAX: f64 = 1.03;
/// Pods that may find room on existing nodes in a row. Usually none does.
const ATTEMPTS: u32 = 3;

pub(super) fn play(context: &Context, world: &mut World) -> Result<Vec<Figure>> {
    world.apply_pool()?;
    // The first launch of a new pool is reported separately, because it waits for the node class and the first catalog.
    let first = launch(world, "first")?;
    let delays = (0..context.latency_pods).map(|number| launch(world, &format!("single-{number}")));
    let mut delays = delays.collect::<Result<Vec<_>>>()?;
    delays.sort_by(f64::total_cmp);
    let (median, late, most) = (nearest_rank(&delays, 0.5)?, nearest_rank(&delays, 0.99)?, nearest_rank(&delays, 1.0)?);
    ensure!(median <= MEDIAN_MAX, "the median is {}", in_millis(median));
    let aim = if median <= MEDIAN_AIM { "met" } else { "missed" };
    Ok(vec![
        ("first pod of a new pool", in_millis(first)),
        ("single pods", delays.len().to_string()),
        ("median", format!("{} (aim of {} {aim})", in_millis(median), in_millis(MEDIAN_AIM))),
        ("p99", in_millis(late)),
        ("most", in_millis(most)),
    ])
}

/// Seconds from the condition of a new pod to its CreateFleet. Returns when the system is idle again.
fn launch(world: &World, name: &str) -> Result<f64> {
    for attempt in 0..ATTEMPTS {
        let name = format!("{name}-{attempt}");
        let seen = world.cloud.last_call()?;
        world.keep_ready(&name, &objects::pod(&name, 1500), SOON)?;
        let verdict = audit::unschedulable_since(&world.cluster.audit()?, &name);
        // If the node controller deletes an earlier pod once it is ready (see `keep_ready`), its node has room for this
        // pod, but not for the next one.
        let Some(verdict) = verdict else { continue };
        let calls = world.cloud.calls("CreateFleet", seen)?;
        let call = calls.first().with_context(|| format!("no CreateFleet for {name}"))?;
        return Ok(call.time - verdict);
    }
    bail!("{ATTEMPTS} pods in a row were never Unschedulable, {name}-0 the first")
}
