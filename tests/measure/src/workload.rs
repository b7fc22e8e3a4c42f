//! Which workload.

use anyhow::{Context as _, Result, bail};
use clap::{Args, ValueEnum};
use plimsoll_workloads::Case;
use plimsoll_workloads::bench::{self, Types};

/// Kinds of workloads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// Karpenter's own mix of five kinds of pods.
    Mix,
    /// Single pods, no two alike.
    Different,
    /// One Deployment.
    Deployment,
    /// Deployments, some with spread and anti-affinity.
    Shapes,
    /// Plain Deployments.
    Sizes,
    /// A pool and five Deployments for each team.
    Pools,
    /// What a company runs.
    Company,
    /// A cluster with nodes and running pods.
    Nodes,
}

/// A workload, said on the command line.
#[derive(Debug, Clone, Args)]
pub(crate) struct Workload {
    /// What kind of workload.
    #[arg(value_enum)]
    kind: Kind,
    /// Waiting pods.
    #[arg(long, default_value_t = 1000)]
    pods: usize,
    /// Deployments of `shapes`.
    #[arg(long, default_value_t = 300)]
    shapes: usize,
    /// Pools of `pools`.
    #[arg(long, default_value_t = 63)]
    pools: usize,
    /// Nodes of `nodes`.
    #[arg(long, default_value_t = 5000)]
    nodes: usize,
    /// Running pods of `nodes`.
    #[arg(long, default_value_t = 100_000)]
    running: usize,
    /// What can be bought: builtin, synthetic:N (Karpenter's benchmark) or thinned:N (so many of the built-in ones).
    #[arg(long, default_value = "builtin", value_parser = types)]
    types: Types,
    /// What sizes and labels are drawn from.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn types(text: &str) -> Result<Types> {
    if text == "builtin" {
        return Ok(Types::BuiltIn);
    }
    let (kind, count) = text.split_once(':').context("builtin, synthetic:N or thinned:N")?;
    let count: usize = count.parse().with_context(|| format!("{count:?} is not a count of types"))?;
    match kind {
        "synthetic" => Ok(Types::Synthetic(count)),
        "thinned" => Ok(Types::Thinned(count)),
        _ => bail!("{kind:?} is none of builtin, synthetic:N and thinned:N"),
    }
}

impl Workload {
    pub(crate) fn case(&self) -> Case {
        let Self { seed, pods, types, .. } = *self;
        match self.kind {
            Kind::Mix => bench::karpenter_mix(seed, pods, types),
            Kind::Different => bench::all_different(seed, pods, types),
            Kind::Deployment => bench::one_deployment(pods, types),
            Kind::Shapes => bench::shapes(seed, pods, self.shapes, types),
            Kind::Sizes => bench::sizes(seed, pods, types),
            Kind::Pools => bench::many_pools(seed, pods, self.pools, types),
            Kind::Company => bench::company(seed, pods),
            Kind::Nodes => bench::with_nodes(seed, self.nodes, self.running, pods),
        }
    }
}
