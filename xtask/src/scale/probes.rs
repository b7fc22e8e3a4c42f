//! Single pods that need a node of their own, and the time until EC2 receives CreateFleet.

use super::SOON;
use super::client::{ApiClient, CLAIMS, PODS};
use super::population::container;
use super::usage::{EVERY, Usage};
use crate::bench::table::Table;
use crate::harness::wait::{Poll, until};
use crate::harness::world::World;
use crate::quantile::nearest_rank;
use anyhow::Result;
use serde_json::json;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::park_timeout;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

/// Pause between two probes.
const PAUSE: Duration = Duration::from_secs(2);

/// Names are unique over all phases.
static NUMBER: AtomicUsize = AtomicUsize::new(0);

/// Waits for the launch of one probe.
pub(super) fn first(world: &World, runtime: &Runtime, cluster: &ApiClient) -> Result<()> {
    probe(world, runtime, cluster).map(drop)
}

/// Probes one after the other. Returns the seconds of each from the creation of the pod to CreateFleet.
pub(super) fn steady(
    world: &World,
    runtime: &Runtime,
    cluster: &ApiClient,
    usage: &mut Usage,
    time: Duration,
) -> Result<Vec<f64>> {
    let (begun, mut delays, mut sampled) = (Instant::now(), Vec::new(), Instant::now());
    while begun.elapsed() < time {
        delays.push(probe(world, runtime, cluster)?);
        if sampled.elapsed() >= EVERY {
            usage.sample(world)?;
            sampled = Instant::now();
        }
        // Nothing unparks this thread: a pause between two probes.
        park_timeout(PAUSE);
    }
    Ok(delays)
}

/// Adds the quantiles of the delays.
pub(super) fn report(delays: &[f64], table: &mut Table) -> Result<()> {
    let mut sorted = delays.to_vec();
    sorted.sort_by(f64::total_cmp);
    for (name, share) in [("median", 0.5), ("p99", 0.99), ("most", 1.0)] {
        let value = nearest_rank(&sorted, share)?;
        let figure = format!("pod to CreateFleet, {name} of {}", sorted.len());
        table.row(vec!["steady".to_owned(), figure, format!("{:.0} ms", value * 1000.0)]);
    }
    Ok(())
}

/// Creates a pod that needs its own node, waits for its CreateFleet, and deletes the pod and the NodeClaim.
fn probe(world: &World, runtime: &Runtime, cluster: &ApiClient) -> Result<f64> {
    let value = format!("p{}", NUMBER.fetch_add(1, Ordering::SeqCst));
    let seen = world.cloud.last_call()?;
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": value, "namespace": "default"},
        "spec": {"nodeSelector": {"plimsoll.test/probe": value}, "containers": [container(500)]},
    });
    let begun = jiff::Timestamp::now().as_duration().as_secs_f64();
    runtime.block_on(cluster.create(PODS, &pod))?;
    // The NodeClaim is written first. Calls before it are for others, such as a pod of a former probe. It was written
    // after the last list without it began: on a busy machine, the call may precede the end of the next list.
    let labels = format!("plimsoll.test/probe={value}");
    let (mut claimed, mut unclaimed_at) = (false, begun);
    let launched = until(&format!("CreateFleet for {value}"), SOON, || {
        if !claimed {
            let now = jiff::Timestamp::now().as_duration().as_secs_f64();
            claimed = !runtime.block_on(cluster.list(CLAIMS, &labels))?.is_empty();
            if !claimed {
                unclaimed_at = now;
                return Ok(Poll::NotYet("no NodeClaim".to_owned()));
            }
        }
        let calls = world.cloud.calls("CreateFleet", seen)?;
        Ok(match calls.iter().find(|call| call.time >= unclaimed_at) {
            Some(call) => Poll::Yes(call.time),
            None => Poll::NotYet("no call".to_owned()),
        })
    })?;
    runtime.block_on(async {
        cluster.delete(PODS, &value).await?;
        for claim in cluster.list(CLAIMS, &labels).await? {
            cluster.delete(CLAIMS, claim["metadata"]["name"].as_str().unwrap_or_default()).await?;
        }
        Ok::<_, anyhow::Error>(())
    })?;
    Ok(launched - begun)
}
