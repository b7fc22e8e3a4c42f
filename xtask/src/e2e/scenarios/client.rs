//! The clients in docs/examples request plans, like any other program.

use super::super::{Context, Figure};
use crate::harness::services::Kind;
use crate::harness::world::World;
use anyhow::{Context as _, Result, ensure};
use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};

/// Kubernetes objects as JSON.
const OBJECTS: &str = "docs/examples/objects/cluster.json";

pub(super) fn play(context: &Context, world: &mut World) -> Result<Vec<Figure>> {
    let services = world.services()?;
    let address = services.replicas[services.first(Kind::Scheduler)?].open.to_string();
    let objects = world.root.join(OBJECTS);
    let (python, go) = (world.root.join("docs/examples/python"), world.root.join("docs/examples/go"));
    let of_python = |script: &str| {
        let mut command = Command::new(&context.parts.python);
        command.args([script, "--scheduler", &address]);
        command
    };
    let mut of_go = Command::new("go");
    of_go.args(["run", "./objects", "-scheduler", &address, "-proto", "../../../proto"]);
    let snapshot = launches(&mut of_python("plan.py"), &python, None)?;
    let from_python = launches(&mut of_python("plan_objects.py"), &python, Some(&objects))?;
    let from_go = launches(&mut of_go, &go, Some(&objects))?;
    ensure!(from_python == from_go, "the plan in Python:\n{from_python:#?}\nin Go:\n{from_go:#?}");
    Ok(vec![
        ("launches in the plan", snapshot.len().to_string()),
        ("launches in the plan for objects", from_go.len().to_string()),
    ])
}

/// Lines about launches in the output of the client, at least one.
fn launches(client: &mut Command, folder: &Path, stdin: Option<&Path>) -> Result<Vec<String>> {
    let stdin = match stdin {
        Some(path) => File::open(path).with_context(|| path.display().to_string())?.into(),
        None => Stdio::null(),
    };
    let output = client.current_dir(folder).stdin(stdin).output().with_context(|| format!("starting {client:?}"))?;
    let printed = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{client:?} ended with {}: {}", output.status, errors.trim());
    let launches: Vec<String> = printed.lines().filter(|line| line.starts_with("launch ")).map(str::to_owned).collect();
    ensure!(!launches.is_empty(), "{client:?}: the plan launches nothing:\n{printed}");
    Ok(launches)
}
