//! The preferred offering has no capacity.

use super::super::objects::{self, SOON, in_millis};
use super::super::{Context, Figure};
use crate::harness::world::World;
use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use std::collections::BTreeSet;
use std::time::Duration;

/// Maximum time from the failed call to the instance of another type.
const NEXT_MAX: Duration = Duration::from_secs(1);

pub(super) fn play(_: &Context, world: &mut World) -> Result<Vec<Figure>> {
    world.apply_pool()?;
    // The preferred offering comes from a first launch, because it depends on the catalog.
    world.cluster.kubectl.apply(&objects::deployment("first", 1, 1500))?;
    world.wait_ready("first", 1, SOON)?;
    let choice = world.cloud.living()?.into_iter().next().context("nothing was launched")?.instance_type;
    world.cloud.faults(&json!({"capacity": [{"instanceType": choice, "left": 0}]}))?;

    let seen = world.cloud.last_call()?;
    world.cluster.kubectl.apply(&objects::deployment("second", 1, 1500))?;
    world.wait_ready("second", 1, SOON)?;
    let calls = world.cloud.calls("CreateFleet", seen)?;
    // A call that EC2 refuses before it reads the request has no pools.
    let met = calls.iter().find(|call| !call.pools.is_empty()).context("no CreateFleet for the second pod")?;
    ensure!(
        met.pools.iter().any(|p| p.0 == choice),
        "the second pod's first call did not ask for {choice} any more: nothing was met"
    );
    let took = calls.iter().find(|c| !c.instances.is_empty()).context("no CreateFleet gave an instance")?;
    let next = world
        .cloud
        .instances()?
        .into_iter()
        .find(|i| took.instances.contains(&i.id))
        .context("the instance is unknown")?;
    ensure!(next.instance_type != choice, "{choice} was launched, which has no capacity");
    let delay = took.time - met.time;
    let bound = world.with_slack(NEXT_MAX).as_secs_f64();
    ensure!(delay < bound, "the next offering was used after {delay:.3} s");

    // Only the tried pools count as known: EC2 names them, and other zones may still be requested.
    let tried_pools: BTreeSet<_> = met.pools.iter().filter(|p| p.0 == choice).cloned().collect();
    let seen = world.cloud.last_call()?;
    world.cluster.kubectl.apply(&objects::deployment("third", 1, 1500))?;
    world.wait_ready("third", 1, SOON)?;
    for call in world.cloud.calls("CreateFleet", seen)? {
        let again: Vec<_> = call.pools.iter().filter(|p| tried_pools.contains(*p)).collect();
        ensure!(again.is_empty(), "{again:?} were tried again though they are known to have no capacity");
    }
    Ok(vec![("without capacity", choice), ("used instead", next.instance_type), ("after", in_millis(delay))])
}
