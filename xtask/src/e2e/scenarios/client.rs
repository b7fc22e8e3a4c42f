//! docs/examples/python asks for a plan, as any other system may.

use super::super::{Context, Figure};
use crate::harness::services::Kind;
use crate::harness::world::World;
use anyhow::{Context as _, Result, ensure};
use std::process::Command;

pub(super) fn play(context: &Context, world: &mut World) -> Result<Vec<Figure>> {
    let services = world.services()?;
    let address = services.replicas[services.first(Kind::Scheduler)?].open.to_string();
    let output = Command::new(&context.parts.python)
        .current_dir(world.root.join("docs/examples/python"))
        .args(["plan.py", "--scheduler", &address])
        .output()
        .context("starting the Python client")?;
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(
        output.status.success(),
        "the client ended with {}: {}",
        output.status,
        String::from_utf8_lossy(&output.stderr).trim()
    );
    let launches = told.lines().filter(|l| l.starts_with("launch ")).count();
    ensure!(launches > 0, "the plan launches nothing:\n{told}");
    Ok(vec![("launches in the plan", launches.to_string())])
}
