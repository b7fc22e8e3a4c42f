//! The script: actions, and the expected results.

mod facts;

use super::state::{Demo, Missing, counted};
use facts::{
    backend, claims_of, cpu_of_claims, drain_began, evictions_since, fleet_calls_since, nodes_of, pending_because,
    pods_on, reason_of_pool, types_and_zones,
};
use plimsoll_model::names::label;
use plimsoll_sim::apiserver::{ResourceId, object};
use plimsoll_sim::world::World;
use serde_json::json;
use std::time::Duration;

/// The manifests of the two seeds.
const BACKEND: &str = include_str!("seed-000.yaml");
const DEFAULT: &str = include_str!("seed-001.yaml");

/// Time limit for resources to become ready.
const SHORT: Duration = Duration::from_secs(60);
/// Time limit for launches: a boot takes 20 s and readiness 5 s.
const LAUNCH: Duration = Duration::from_secs(120);
/// Time limit for removals: `consolidateAfter` is at most one minute, and a replacement has to boot first.
const REMOVAL: Duration = Duration::from_secs(600);
/// `consolidateAfter` of the workshop's pool.
const CONSOLIDATE_AFTER: Duration = Duration::from_secs(30);
/// Notice period of a Spot interruption.
const SPOT_NOTICE: Duration = Duration::from_secs(120);
/// Time for which a limit is checked after it was reached.
const WATCHED: Duration = Duration::from_secs(45);

/// CPU limit of the workshop's pool, in millicores.
const LIMIT: i64 = 10_000;

/// Runs all steps. Stops at the first failed expectation.
pub(super) async fn play(demo: &Demo) -> Result<(), Missing> {
    install(demo).await?;
    scale_up(demo).await?;
    limit(demo).await?;
    scale_down(demo).await?;
    consolidation(demo).await?;
    interruption(demo).await?;
    to_zero(demo).await
}

fn apply(demo: &Demo, text: &str) -> Result<(), Missing> {
    demo.world.apply(text).map_err(|error| Missing { step: "Install".to_owned(), what: error.to_string() })
}

/// Sets the replicas of a Deployment of pods of 1 CPU and 1Gi for an architecture.
fn deploy(demo: &Demo, name: &str, replicas: u32, architecture: &str) -> Result<(), Missing> {
    demo.note(&format!("Deployment {name}: {} of 1 CPU, 1Gi, {architecture}", counted(replicas as usize, "replica")));
    let selector = json!({"nodeSelector": {label::ARCH: architecture}});
    let requests = json!({"cpu": "1", "memory": "1Gi"});
    let deployed = demo.world.deploy(name, replicas, &requests, &selector);
    deployed.map_err(|error| Missing { step: format!("Deployment {name}"), what: error.to_string() })
}

async fn install(demo: &Demo) -> Result<(), Missing> {
    demo.step("Install", "two NodePools with their node classes, as two users wrote them");
    demo.note("NodePool default: on-demand, amd64, c, m and r of generation 6 or later; 10 CPUs at most; consolidateAfter 30 s");
    demo.note(&format!(
        "NodePool backend: Spot if there is any, arm64, {}; 10 CPUs at most; consolidateAfter 1 min",
        backend()
    ));
    apply(demo, BACKEND)?;
    apply(demo, DEFAULT)?;
    for (kind, what) in [(ResourceId::EC2_NODE_CLASSES, "EC2NodeClasses"), (ResourceId::NODE_POOLS, "NodePools")] {
        let ready = move |world: &World| world.count(kind, |object| object::condition_is_true(object, "Ready")) == 2;
        demo.expect(&format!("both {what} are Ready"), SHORT, ready).await?;
    }
    demo.end_step();
    Ok(())
}

async fn scale_up(demo: &Demo) -> Result<(), Missing> {
    demo.step("Scale up", "5 pods need nodes");
    deploy(demo, "web", 5, "amd64")?;
    demo.expect("NodeClaims are written", SHORT, |world| !claims_of(world, "default").is_empty()).await?;
    demo.expect("all 5 pods run", LAUNCH, |world| pods_on(world, "web") == 5).await?;
    let nodes = nodes_of(&demo.world, "default");
    let as_asked = nodes.iter().all(|node| {
        let text = |key| object::label(node, key).unwrap_or_default();
        ["c", "m", "r"].contains(&text("karpenter.k8s.aws/instance-category"))
            && text("karpenter.k8s.aws/instance-generation").parse::<u32>().is_ok_and(|generation| generation > 5)
            && text(label::ARCH) == "amd64"
            && text(label::CAPACITY_TYPE) == "on-demand"
    });
    demo.check("every node is on-demand amd64 of c, m or r, generation 6 or later", !nodes.is_empty() && as_asked)?;
    demo.end_step();
    Ok(())
}

async fn limit(demo: &Demo) -> Result<(), Missing> {
    demo.step("Limit", "15 pods want more than the pool's 10 CPUs");
    deploy(demo, "web", 15, "amd64")?;
    let said = |world: &World| pending_because(world, "web", "limit").is_some();
    demo.expect("a pod that stays pending says that the limit is the reason", LAUNCH, said).await?;
    if let Some((pod, event)) = pending_because(&demo.world, "web", "limit") {
        demo.note(&format!("Event of {pod}, as to this NodePool: {}", reason_of_pool(&event, "default")));
    }
    let full = |world: &World| {
        let ready = nodes_of(world, "default").len() == claims_of(world, "default").len();
        ready && pods_on(world, "web") > 5 && pods_on(world, "web") + world.pending_pods() == 15
    };
    demo.expect("the nodes within the limit take what they can", LAUNCH, full).await?;
    let over = |world: &World| cpu_of_claims(world, "default") > LIMIT;
    let broken = demo.world.until("the limit is broken", WATCHED, over).await.is_ok();
    let text = format!("{} of 10 CPUs are in use, never more", cpu_of_claims(&demo.world, "default") / 1000);
    demo.check(&text, !broken)?;
    demo.end_step();
    Ok(())
}

async fn scale_down(demo: &Demo) -> Result<(), Missing> {
    demo.step("Scale down", "3 pods are left; consolidateAfter is 30 s");
    let (cost, nodes) = (demo.world.hourly_cost(), nodes_of(&demo.world, "default").len());
    deploy(demo, "web", 3, "amd64")?;
    demo.expect("3 pods are left", SHORT, |world| pods_on(world, "web") == 3 && world.pending_pods() == 0).await?;
    let gone = move |world: &World| world.hourly_cost() < cost && nodes_of(world, "default").len() < nodes.max(2);
    let took = demo.expect("what is not needed is gone, and the cost falls", REMOVAL, gone).await?;
    demo.check("not before consolidateAfter was over", took >= CONSOLIDATE_AFTER)?;
    demo.expect("3 pods run", LAUNCH, |world| pods_on(world, "web") == 3).await?;
    demo.end_step();
    Ok(())
}

async fn consolidation(demo: &Demo) -> Result<(), Missing> {
    demo.step("Consolidation", "1 pod is left on a node that is too large for it");
    let cost = demo.world.hourly_cost();
    let before: Vec<String> =
        nodes_of(&demo.world, "default").iter().map(|node| object::name(node).to_owned()).collect();
    deploy(demo, "web", 1, "amd64")?;
    let replaced = move |world: &World| {
        let nodes = nodes_of(world, "default");
        nodes.len() == 1
            && nodes.iter().all(|node| !before.contains(&object::name(node).to_owned()))
            && pods_on(world, "web") == 1
            && world.hourly_cost() < cost
            && world.living_instances().len() == 1
    };
    demo.expect("a cheaper node took its place", REMOVAL, replaced).await?;
    demo.end_step();
    Ok(())
}

async fn interruption(demo: &Demo) -> Result<(), Missing> {
    demo.step("Spot interruption", "EC2 takes back a Spot instance in two minutes");
    // Few enough pods that a replacement fits within the pool's limits together with the replaced node.
    deploy(demo, "api", 2, "arm64")?;
    demo.expect("both pods run", LAUNCH, |world| pods_on(world, "api") == 2).await?;
    let nodes = nodes_of(&demo.world, "backend");
    let spot = nodes.iter().all(|node| object::label(node, label::CAPACITY_TYPE) == Some("spot"));
    demo.check(
        &format!("their nodes are Spot instances as the NodePool backend asks: {}", types_and_zones(&nodes)),
        !nodes.is_empty() && spot && nodes.iter().all(facts::is_backend),
    )?;
    let Some(node) = nodes.first().cloned() else { return Ok(()) };
    let name = object::name(&node).to_owned();
    let id = object::text(&node, &["spec", "providerID"]).rsplit('/').next().unwrap_or_default().to_owned();
    let notice = demo.world.server().now();
    let noticed = demo.world.ec2.with(|cloud, now| cloud.interrupt_spot(&id, now));
    demo.check(&format!("EC2 gives notice for {name}"), noticed)?;
    let launched = move |world: &World| !fleet_calls_since(world, notice).is_empty();
    demo.expect("a replacement is launched", SHORT, launched).await?;
    let drains = move |world: &World| drain_began(world, notice).is_some();
    demo.expect("the drain begins once the replacement is in service", SPOT_NOTICE, drains).await?;
    let first_drain = drain_began(&demo.world, notice);
    let boot = i64::try_from(demo.world.config.boot.as_millis()).unwrap_or(i64::MAX);
    let had_booted = |launch: &i64| first_drain.is_some_and(|drain| drain >= launch.saturating_add(boot));
    let launches = fleet_calls_since(&demo.world, notice);
    demo.check("no pod was evicted before the replacement had booted", launches.first().is_some_and(had_booted))?;
    let gone = move |world: &World| !world.living_instances().contains_key(&id);
    demo.expect("the instance is terminated", SPOT_NOTICE, gone).await?;
    let in_time = demo.world.server().now().duration_since(notice).unsigned_abs() < SPOT_NOTICE;
    demo.check("before the two minutes were over", in_time)?;
    demo.expect("both pods run, on other nodes", LAUNCH, |world| pods_on(world, "api") == 2).await?;
    let forgotten = move |world: &World| nodes_of(world, "backend").iter().all(|node| object::name(node) != name);
    demo.expect("its Node is gone, once EC2 says that the instance is", LAUNCH, forgotten).await?;
    demo.note(&format!("{} in all", counted(evictions_since(&demo.world, notice), "eviction")));
    demo.end_step();
    Ok(())
}

async fn to_zero(demo: &Demo) -> Result<(), Missing> {
    demo.step(
        "Scale to zero",
        "no pods, no nodes; of a NodePool one node goes at a time, as its disruption budget of 10 % has it",
    );
    deploy(demo, "web", 0, "amd64")?;
    deploy(demo, "api", 0, "arm64")?;
    let left = |count: usize| move |world: &World| nodes_of(world, "backend").len() <= count;
    let spot = nodes_of(&demo.world, "backend").len();
    for remaining in (0..spot).rev() {
        let text = format!("of the NodePool backend, {} left", counted(remaining, "node"));
        demo.expect(&text, REMOVAL, left(remaining)).await?;
    }
    let empty = |world: &World| {
        world.all(ResourceId::NODES).is_empty()
            && world.all(ResourceId::NODE_CLAIMS).is_empty()
            && world.living_instances().is_empty()
    };
    demo.expect("no node, no NodeClaim and no instance is left", REMOVAL, empty).await?;
    demo.check("every instance became a Node as it should", demo.world.problems.all().is_empty())?;
    demo.end_step();
    Ok(())
}
