//! The `plimsoll-scheduler` binary: the scheduler with the service for Kubernetes objects.

use plimsoll_runtime::clock::Clock;
use plimsoll_runtime::program::{self, ServiceProgram};
use plimsoll_runtime::serve::Listener;
use plimsoll_scheduler::args::Args;
use plimsoll_scheduler::service::Parts;
use std::num::NonZeroUsize;

/// Gives memory back after a burst, unlike glibc's allocator (decision 187).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args = Args::read(std::env::args_os()).unwrap_or_else(|refused| refused.exit());
    let (program, closed) = ServiceProgram::start("scheduler", &args.service).await?;
    let open = match args.open_listen {
        Some(address) => Some(Listener::Open(program::listen("--open-listen", address).await?)),
        None => None,
    };
    let cores = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        listen = %args.service.listen,
        open_listen = args.open_listen.map(tracing::field::display),
        mutual_tls = program.tls.is_some(),
        "scheduler starts"
    );
    let parts = Parts {
        closed,
        open,
        metrics: program.metrics.clone(),
        readiness: program.readiness.clone(),
        settings: args.settings(cores),
    };
    let service = plimsoll_objects::run(parts, Clock::system(), program.shutdown.clone());
    Ok(program.run(service).await?)
}
