//! Repository tasks: `cargo xtask <task>`.

mod agree;
mod bench;
mod chart;
mod ci;
mod e2e;
mod harness;
mod image;
mod json_process;
mod moves;
mod peer;
mod progress;
mod proto;
mod quantile;
mod scale;
mod sim;
mod workspace;
mod world;

use clap::Parser;

#[derive(Parser, Debug)]
#[command(name = "xtask", about = "Repository tasks")]
enum Task {
    /// Generate Rust code from the .proto files.
    Proto {
        /// Change nothing; fail if the committed code is not up to date.
        #[arg(long)]
        check: bool,
    },
    /// Run the checks that must pass before a merge: formatting, lints, tests, seeds, the AWS adapter, end to end.
    Ci(ci::Args),
    /// Check the Helm charts with Helm and kubeconform (needs Go), or write deploy/kubernetes from them.
    Chart(chart::Args),
    /// Run the end-to-end tests.
    E2e(e2e::Args),
    /// Start a cluster with Plimsoll and an EC2 on this machine, for use with kubectl.
    #[command(after_help = world::EXAMPLES)]
    World(world::Args),
    /// Compare plans with Karpenter's scheduler on random cases (needs Go).
    Peer(peer::Args),
    /// Measure time, memory and cost of plans, compared with Karpenter's scheduler (needs Go).
    Bench(bench::Args),
    /// Compare plans with the decisions of the real kube-scheduler.
    #[command(after_help = agree::EXAMPLES)]
    Agree(agree::Args),
    /// Build the container images and check them (needs Docker, Podman or Buildah).
    Image(image::Args),
    /// Run seeds of the simulation with faults.
    #[command(after_help = sim::EXAMPLES)]
    Sim(sim::Args),
    /// Measure the services on a large cluster with the real control plane (needs Go).
    #[command(after_help = scale::EXAMPLES)]
    Scale(scale::Args),
    /// Measure the effect of each repair of the solver.
    Moves(moves::Args),
}

fn main() -> anyhow::Result<()> {
    match Task::parse() {
        Task::Proto { check } => proto::generate(check),
        Task::Ci(args) => ci::run(&args),
        Task::Chart(args) => chart::run(&args),
        Task::E2e(args) => e2e::run(args),
        Task::World(args) => world::run(&args),
        Task::Peer(args) => peer::run(args),
        Task::Bench(args) => bench::run(args),
        Task::Agree(args) => agree::run(&args),
        Task::Image(args) => image::run(&args),
        Task::Sim(args) => sim::run(&args),
        Task::Scale(args) => scale::run(&args),
        Task::Moves(args) => moves::run(&args),
    }
}
