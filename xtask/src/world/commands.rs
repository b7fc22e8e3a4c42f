//! Commands for instances and services of a running world.

use super::state::{Home, Parts};
use super::{PROGRESS, control, print};
use crate::harness::cloud::Instance;
use crate::harness::kubectl::{Kubectl, instance_of};
use crate::harness::parts::build_packages;
use crate::harness::process::Guard;
use crate::harness::services::Kind;
use crate::harness::wait::until_true;
use anyhow::{Result, bail};
use serde_json::Value;
use std::path::Path;
use std::time::Duration;

/// Each component has 30 s to end.
const STOP: Duration = Duration::from_secs(180);

/// An instance, and the name of its Node if it has one.
#[derive(Debug)]
struct Target {
    instance: Instance,
    node: Option<String>,
}

/// # Errors
/// If no world runs, or EC2 has no such Spot instance.
pub(super) fn spot_notice(home: &Home, target: &str) -> Result<()> {
    let (_, parts) = home.find_parts()?;
    let target = resolve(&parts, target)?;
    let Instance { id, capacity_type, .. } = &target.instance;
    if capacity_type != "spot" {
        bail!(
            "{} is {capacity_type}: only Spot instances get a notice. To lose it: cargo xtask world terminate {id}",
            target.describe()
        );
    }
    parts.cloud.interrupt(id)?;
    print(&format!(
        "EC2 sent the notice for {}. It terminates the instance in two minutes.\nWatch: kubectl get nodeclaims,nodes,pods -o wide",
        target.describe()
    ))
}

/// # Errors
/// If no world runs, or EC2 has no such instance.
pub(super) fn terminate(home: &Home, target: &str) -> Result<()> {
    let (_, parts) = home.find_parts()?;
    let target = resolve(&parts, target)?;
    parts.cloud.lose(&target.instance.id)?;
    print(&format!("{} is lost.\nWatch: kubectl get nodeclaims,nodes,pods -o wide", target.describe()))
}

/// # Errors
/// If no world runs, the service cannot be built, or a replica does not become ready.
pub(super) fn restart(home: &Home, root: &Path, kind: Kind, build: bool) -> Result<()> {
    let (state, _) = home.find_parts()?;
    if build {
        PROGRESS.say(&format!("building {}", kind.package()));
        build_packages(root, &[kind.package()], &Guard::start()?)?;
    }
    PROGRESS.say(&format!("restarting the {}s, one after the other", kind.name()));
    control::ask(&state.socket, control::Request::Restart(kind))?;
    print(&format!("The {}s run again and are ready.", kind.name()))
}

/// # Errors
/// If no world runs, or if it does not end in time.
pub(super) fn stop(home: &Home) -> Result<()> {
    let state = home.world()?;
    control::ask(&state.socket, control::Request::Stop)?;
    until_true(&format!("process {} ends", state.pid), STOP, || Ok((!home.is_claimed()?, "it runs".to_owned())))?;
    print("The world has ended.")
}

/// The pending or running instance with this id or Node name.
fn resolve(parts: &Parts, target: &str) -> Result<Target> {
    let nodes = Kubectl::new(&parts.kubeconfig).list(&["nodes"])?;
    choose(target, parts.cloud.living()?, &nodes)
}

fn choose(target: &str, living: Vec<Instance>, nodes: &[Value]) -> Result<Target> {
    let node_of = |instance: &Instance| {
        let node = nodes.iter().find(|node| instance_of(node) == Some(instance.id.as_str()));
        node.and_then(|node| node["metadata"]["name"].as_str()).map(str::to_owned)
    };
    let mut names = Vec::new();
    for instance in living {
        let node = node_of(&instance);
        let candidate = Target { instance, node };
        if target == candidate.instance.id || Some(target) == candidate.node.as_deref() {
            return Ok(candidate);
        }
        names.push(format!("  {}", candidate.describe()));
    }
    if names.is_empty() {
        bail!("{target} is no living instance and no Node of one. There is none at all: apply a workload first");
    }
    bail!("{target} is no living instance and no Node of one. These are:\n{}", names.join("\n"))
}

impl Target {
    fn describe(&self) -> String {
        let Instance { id, instance_type, zone, capacity_type, .. } = &self.instance;
        let node = self.node.as_deref().unwrap_or("no Node yet");
        format!("{id} ({node}, {instance_type}, {zone}, {capacity_type})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn instance(id: &str) -> Instance {
        let text = str::to_owned;
        let (instance_type, zone) = (text("m7i.large"), text("us-east-1a"));
        Instance { id: text(id), instance_type, zone, state: text("running"), capacity_type: text("spot") }
    }

    #[test]
    fn an_instance_is_named_by_its_id_or_its_node() -> Result<()> {
        let nodes = [json!({"metadata": {"name": "ip-1"}, "spec": {"providerID": "aws:///us-east-1a/i-1"}})];
        let living = || vec![instance("i-1"), instance("i-2")];
        for target in ["i-1", "ip-1"] {
            let found = choose(target, living(), &nodes)?;
            assert_eq!(found.describe(), "i-1 (ip-1, m7i.large, us-east-1a, spot)");
        }
        assert_eq!(choose("i-2", living(), &nodes)?.describe(), "i-2 (no Node yet, m7i.large, us-east-1a, spot)");
        Ok(())
    }

    #[test]
    fn one_that_is_unknown_is_an_error_with_those_that_are_known() {
        let told = |living: Vec<Instance>| choose("ip-9", living, &[]).map_or_else(|e| e.to_string(), |t| t.describe());
        assert!(told(vec![instance("i-1")]).ends_with("These are:\n  i-1 (no Node yet, m7i.large, us-east-1a, spot)"));
        assert!(told(Vec::new()).ends_with("apply a workload first"));
        let empty = choose("", vec![instance("i-1")], &[]);
        assert!(empty.is_err(), "no name is not the name of an instance without Node");
    }
}
