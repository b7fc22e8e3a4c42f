//! The `plimsoll-watcher` binary.

use plimsoll_watcher::args::WatcherArgs;
use plimsoll_watcher::program;

/// Gives memory back after a burst, unlike glibc's allocator (decision 187).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> anyhow::Result<()> {
    // Parse arguments first: a usage error needs no runtime.
    let args = WatcherArgs::try_read(std::env::args_os()).unwrap_or_else(|refused| refused.exit());
    rustls::crypto::aws_lc_rs::default_provider()
        .install_default()
        .map_err(|_installed| anyhow::anyhow!("a TLS provider is installed already"))?;
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(program::run(args))
}
