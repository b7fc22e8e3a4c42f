//! The first pod of new NodePools: from the pod's creation to CreateFleet at the endpoint. Pool, class and pod are
//! created together, so that nothing is known of them yet.

use super::super::objects::{SOON, in_millis};
use super::super::{Context, Figure};
use crate::harness::wait::until_true;
use crate::harness::world::World;
use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use std::time::Duration;

/// Number of NodePools, each with a node class of its own.
const POOLS: usize = 4;
/// Lists that an actuator reads at its start.
const LISTS: [&str; 4] =
    ["DescribeInstanceTypes", "DescribeInstanceTypeOfferings", "DescribeSpotPriceHistory", "GetProducts"];
/// Maximum of the second shortest time. Batching adds nothing, since a pod without an owner is complete.
const MEDIAN_MAX: Duration = Duration::from_secs(1);
/// Maximum of the longest time: all servers of a run share the machine's cores, so that single times vary.
const LONGEST_MAX: Duration = Duration::from_secs(5);

pub(super) fn play(_: &Context, world: &mut World) -> Result<Vec<Figure>> {
    // This pod comes as soon as the services run. It is only reported: EC2's lists, which both actuators read now, keep
    // the EC2 of these tests busy for seconds, although no launch waits for the lists.
    let cold = launch(world, "new-0")?;
    until_true("the actuators have read EC2's lists", world.with_slack(SOON), || {
        let read = LISTS.iter().map(|action| world.cloud.calls(action, 0)).collect::<Result<Vec<_>>>()?;
        let open =
            read.iter().flatten().filter(|call| call.state != "answered" && !call.state.starts_with("lost")).count();
        Ok((open == 0, format!("{open} calls are not answered")))
    })?;
    let delays = (1..=POOLS).map(|number| launch(world, &format!("new-{number}"))).collect::<Result<Vec<_>>>()?;
    let mut sorted = delays.clone();
    sorted.sort_by(f64::total_cmp);
    let listed: Vec<String> = delays.into_iter().map(in_millis).collect();
    // With a seed, each of the calls that a new node class needs takes up to 300 ms and may be repeated.
    let [median_max, longest_max] = [MEDIAN_MAX, LONGEST_MAX].map(|bound| world.with_slack(bound).as_secs_f64());
    let is_fast = sorted.get(1).is_some_and(|median| *median < median_max)
        && sorted.last().is_some_and(|longest| *longest < longest_max);
    ensure!(is_fast, "the first pods of new pools were launched after {}", listed.join(", "));
    Ok(vec![("from the pod to CreateFleet", listed.join(", ")), ("at the start", in_millis(cold))])
}

/// Seconds from the creation of a pod for a new pool to its CreateFleet. Returns once the pod runs.
fn launch(world: &World, name: &str) -> Result<f64> {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default", "labels": {"app": name}},
        "spec": {
            "nodeSelector": {"karpenter.sh/nodepool": name},
            "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "main", "image": "registry.k8s.io/pause:3.10", "resources": {"requests": {"cpu": "1500m", "memory": "64Mi"}}}],
        },
    })
    .to_string();
    let pool = world.pool_manifest().replace("name: default", &format!("name: {name}"));
    let seen = world.cloud.last_call()?;
    world.cluster.kubectl.apply(&format!("{pool}\n---\n{pod}\n"))?;
    world.keep_ready(name, &pod, SOON)?;
    let calls = world.cloud.calls("CreateFleet", seen)?;
    let call = calls.first().with_context(|| format!("no CreateFleet for {name}"))?;
    let audit = world.cluster.audit()?;
    let created = audit.iter().find(|e| e.verb == "create" && e.resource == "pods" && e.name == name);
    Ok(call.time - created.with_context(|| format!("the pod {name} was not created"))?.time)
}
