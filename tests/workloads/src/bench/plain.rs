//! Many pods of few kinds, of many kinds, and many pools.

use super::mix::sized;
use super::{Types, deployment, one_pool, pod};
use crate::manifest::{at, container, node_pool, push, selects};
use crate::{Case, Rng};
use plimsoll_model::names::label;
use serde_json::{Value, json};

/// Single pods with `pods` different requests.
#[must_use]
pub fn all_different(seed: u64, pods: usize, types: Types) -> Case {
    let mut rng = Rng::new(seed);
    let mut case = one_pool(seed, types);
    for number in 0..pods {
        let cpu = rng.range(50, 2_000);
        // A unique number of KiB makes each pod a separate shape.
        let memory = rng.range(64, 4_096) * 1024 + number % 1024;
        let spec = json!({"containers": [container("app", &format!("{cpu}m"), &format!("{memory}Ki"))]});
        case.objects.push(pod(&format!("pod-{number}"), &json!({"app": "batch"}), &spec));
    }
    case
}

/// One Deployment of `pods` replicas.
#[must_use]
pub fn one_deployment(pods: usize, types: Types) -> Case {
    let mut case = one_pool(0, types);
    let spec = json!({"containers": [container("app", "500m", "1Gi")]});
    case.objects.push(deployment("web", pods, &spec));
    case
}

/// `pods` pods in `shapes` Deployments of random sizes. One fifth each spreads over zones, spreads over nodes and
/// zones, or has hostname anti-affinity. The latter have at most 50 replicas, because one workload rarely needs a
/// thousand nodes.
#[must_use]
pub fn shapes(seed: u64, pods: usize, shapes: usize, types: Types) -> Case {
    const APART_MAX: usize = 50;
    let mut rng = Rng::new(seed);
    let mut case = one_pool(seed, types);
    let mut remaining = pods;
    let mut specs: Vec<(String, Value, usize)> = Vec::new();
    for number in 0..shapes {
        let name = format!("app-{number}");
        let mut spec = drawn(&mut rng, number);
        let mut most = usize::MAX;
        match number % 5 {
            1 => push(&mut spec, &["topologySpreadConstraints"], spread(label::ZONE, 1, &name)),
            2 => {
                push(&mut spec, &["topologySpreadConstraints"], spread(label::ZONE, 1, &name));
                push(&mut spec, &["topologySpreadConstraints"], spread(label::HOSTNAME, 10, &name));
            }
            3 => {
                let term = json!({"topologyKey": label::HOSTNAME, "labelSelector": selects("app", &name)});
                let path = ["affinity", "podAntiAffinity", "requiredDuringSchedulingIgnoredDuringExecution"];
                push(&mut spec, &path, term);
                most = APART_MAX;
            }
            _ => {}
        }
        let replicas = (pods / shapes.max(1)).min(most);
        remaining -= replicas;
        specs.push((name, spec, replicas));
    }
    // The rest goes to the Deployments without this limit.
    let others = specs.iter().enumerate().filter(|(number, _)| number % 5 != 3).count().max(1);
    let mut rest = remaining;
    for (number, (name, spec, replicas)) in specs.iter().enumerate() {
        let more = if number % 5 == 3 { 0 } else { remaining.div_ceil(others).min(rest) };
        rest -= more;
        case.objects.push(deployment(name, replicas + more, spec));
    }
    case
}

fn spread(key: &str, skew: usize, app: &str) -> Value {
    json!({
        "maxSkew": skew, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selects("app", app),
    })
}

fn drawn(rng: &mut Rng, number: usize) -> Value {
    let cpu = rng.range(1, 40) * 50;
    let memory = rng.range(1, 64) * 64 + number % 64;
    json!({"containers": [container("app", &format!("{cpu}m"), &format!("{memory}Mi"))]})
}

/// Plain pods of Karpenter's sizes in Deployments of up to a hundred: launches depend only on sizes and prices.
#[must_use]
pub fn sizes(seed: u64, pods: usize, types: Types) -> Case {
    const REPLICAS_MAX: usize = 100;
    let mut rng = Rng::new(seed);
    let mut case = one_pool(seed, types);
    let mut remaining = pods;
    for number in 0_usize.. {
        if remaining == 0 {
            break;
        }
        let most = remaining.min(REPLICAS_MAX).min(pods.div_ceil(4));
        let replicas = rng.range(1, most);
        remaining -= replicas;
        case.objects.push(deployment(&format!("app-{number}"), replicas, &sized(&mut rng)));
    }
    case
}

/// `pods` pods over `pools` teams, each with a tainted and labelled pool.
#[must_use]
pub fn many_pools(seed: u64, pods: usize, pools: usize, types: Types) -> Case {
    const TEAM: &str = "example.com/team";
    let mut rng = Rng::new(seed);
    let mut case = one_pool(seed, types);
    for number in 0..pools {
        let team = format!("team-{number}");
        let mut pool = node_pool(&team, &types.requirements());
        pool["spec"]["template"]["metadata"] = json!({"labels": {TEAM: team}});
        pool["spec"]["template"]["spec"]["taints"] = json!([{"key": TEAM, "value": team, "effect": "NoSchedule"}]);
        pool["spec"]["weight"] = rng.range(1, 100).into();
        case.objects.push(pool);
        for app in 0..5 {
            let mut spec = drawn(&mut rng, app);
            *at(&mut spec, &["nodeSelector", TEAM]) = team.clone().into();
            push(&mut spec, &["tolerations"], json!({"key": TEAM, "operator": "Equal", "value": team}));
            let replicas = (pods / pools.max(1) / 5).max(1);
            case.objects.push(deployment(&format!("{team}-app-{app}"), replicas, &spec));
        }
    }
    case
}
