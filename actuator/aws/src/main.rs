//! The `plimsoll-actuator` program.

use clap::Parser;
use plimsoll_actuator_aws::program::{self, Program};

fn main() -> anyhow::Result<()> {
    // Parse arguments before the runtime starts, since a mistake in them needs no runtime.
    let program = Program::parse();
    rustls::crypto::aws_lc_rs::default_provider()
        .install_default()
        .map_err(|_installed| anyhow::anyhow!("a TLS provider is installed already"))?;
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(program::run(program))
}
