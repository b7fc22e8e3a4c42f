//! The watcher's program.

use plimsoll_watcher::args::WatcherArgs;
use plimsoll_watcher::program;

fn main() -> anyhow::Result<()> {
    // Before anything else: a mistake in the arguments needs no runtime.
    let args = WatcherArgs::try_read(std::env::args_os()).unwrap_or_else(|error| error.exit());
    rustls::crypto::aws_lc_rs::default_provider()
        .install_default()
        .map_err(|_installed| anyhow::anyhow!("a TLS provider is installed already"))?;
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(program::run(args))
}
