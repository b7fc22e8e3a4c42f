//! The real API server passes the tests that the simulated API server passes.

use super::super::{Context, Figure};
use crate::harness::process;
use crate::harness::world::World;
use crate::workspace;
use anyhow::Result;
use std::time::Instant;

pub(super) fn play(context: &Context, world: &mut World) -> Result<Vec<Figure>> {
    let (root, _) = workspace::folders()?;
    let begun = Instant::now();
    let mut command = workspace::cargo();
    // As `cargo test --locked`, which has compiled everything before.
    command.current_dir(root).args(["test", "--locked", "--quiet", "--test", "contract"]);
    command.env("PLIMSOLL_CONTRACT_KUBECONFIG", &world.cluster.kubeconfig);
    process::build("the tests of the API server", &mut command, &context.guard)?;
    Ok(vec![("all tests", format!("{} ms", begun.elapsed().as_millis()))])
}
