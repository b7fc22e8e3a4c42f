//! State of the running world.

use super::state::{Home, Parts, Service};
use super::{capacity, print};
use crate::harness::cloud::Instance;
use crate::harness::http;
use crate::harness::kubectl::{Kubectl, condition, instance_of};
use anyhow::Result;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

const HEALTHY: u16 = 200;

/// # Errors
/// If no world runs, or if its API server or EC2 does not respond.
pub(super) fn run(home: &Home) -> Result<()> {
    let (state, parts) = home.find_parts()?;
    let kubectl = Kubectl::new(&parts.kubeconfig);
    let nodes = kubectl.list(&["nodes"])?;
    let pods = kubectl.list(&["pods", "-A"])?;
    let living = parts.cloud.living()?;
    print(&format!(
        "{}\n\n{}\n\n{}",
        of_nodes(&nodes, &living, &pods),
        of_services(&parts, &kubectl),
        capacity::taken(&parts.cloud)?
    ))?;
    for trouble in troubles(&state.folder) {
        print(&trouble)?;
    }
    print(&format!("\nexport KUBECONFIG={}\nlogs are in {}", parts.kubeconfig.display(), state.folder.display()))
}

/// A table with columns as wide as their widest cell.
fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let line = |row: &Vec<String>| {
        let cells: Vec<String> =
            row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}", width = *width)).collect();
        cells.join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn row<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(str::to_owned).to_vec()
}

/// Every pending or running instance with its node, and every node without an instance.
fn of_nodes(nodes: &[Value], living: &[Instance], pods: &[Value]) -> String {
    let mut by_node: BTreeMap<&str, usize> = BTreeMap::new();
    for pod in pods {
        *by_node.entry(pod["spec"]["nodeName"].as_str().unwrap_or_default()).or_default() += 1;
    }
    let mut rows = vec![row(["INSTANCE", "TYPE", "ZONE", "CAPACITY", "STATE", "NODE", "READY", "PODS"])];
    let cells_of = |node: Option<&Value>| {
        let name = node.and_then(|node| node["metadata"]["name"].as_str()).unwrap_or("-").to_owned();
        let ready = node.map_or("-", |node| if condition(node, "Ready") { "yes" } else { "no" });
        let pods =
            node.map_or_else(|| "-".to_owned(), |_| by_node.get(name.as_str()).copied().unwrap_or(0).to_string());
        [name, ready.to_owned(), pods]
    };
    for instance in living {
        let node = nodes.iter().find(|node| instance_of(node) == Some(instance.id.as_str()));
        let Instance { id, instance_type, zone, capacity_type, state } = instance;
        let mut cells = row([id.as_str(), instance_type, zone, capacity_type, state]);
        cells.extend(cells_of(node));
        rows.push(cells);
    }
    let lives = |node: &Value| living.iter().any(|instance| instance_of(node) == Some(instance.id.as_str()));
    for node in nodes.iter().filter(|node| !lives(node)) {
        let mut cells = row(["gone", "-", "-", "-", "-"]);
        cells.extend(cells_of(Some(node)));
        rows.push(cells);
    }
    let pending = by_node.get("").copied().unwrap_or(0);
    let table = if rows.len() == 1 { "no instance and no node".to_owned() } else { table(&rows) };
    format!("{table}\n{} pods, {pending} of them without node", pods.len())
}

fn of_services(parts: &Parts, kubectl: &Kubectl) -> String {
    let leases = kubectl.list(&["leases", "-n", crate::harness::cluster::NAMESPACE]).unwrap_or_default();
    let leads = |service: &Service| {
        leases
            .iter()
            .filter_map(|lease| lease["spec"]["holderIdentity"].as_str())
            .any(|holder| holder.contains(&service.name))
    };
    let mut rows = vec![row(["SERVICE", "STATE", "LEADS"])];
    for service in &parts.services {
        let state = match http::send(service.health, "GET", "/readyz", &[], "") {
            Ok(answer) if answer.status == HEALTHY => "ready".to_owned(),
            Ok(answer) => format!("not ready: {}", answer.body.trim()),
            Err(_) => "down".to_owned(),
        };
        rows.push(row([service.name.as_str(), state.as_str(), if leads(service) { "yes" } else { "" }]));
    }
    format!("{}\n\n{}", table(&rows), addresses(&parts.services))
}

/// Addresses of the services.
pub(super) fn addresses(services: &[Service]) -> String {
    let mut rows = vec![row(["SERVICE", "METRICS", "HEALTH", "GRPC"])];
    for Service { name, metrics, health, open, .. } in services {
        let open = open.map(|address| address.to_string()).unwrap_or_default();
        rows.push(vec![name.clone(), format!("http://{metrics}/metrics"), format!("http://{health}/readyz"), open]);
    }
    table(&rows)
}

/// Instances that cannot become nodes, from the report of the kubelets.
fn troubles(folder: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(folder.join("kubelets.json")).unwrap_or_default();
    let report: Value = serde_json::from_str(&text).unwrap_or_default();
    let errors = report["errors"].as_object();
    let line = |(instance, error): (&String, &Value)| {
        format!("{instance} cannot become a node: {}", error.as_str().unwrap_or_default())
    };
    errors.into_iter().flatten().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn words(line: &str) -> Vec<&str> {
        line.split_ascii_whitespace().collect()
    }

    #[test]
    fn instances_stand_beside_their_nodes_and_nodes_may_have_lost_theirs() {
        let ready = json!([{"type": "Ready", "status": "True"}]);
        let nodes = [
            json!({"metadata": {"name": "ip-1"}, "spec": {"providerID": "aws:///z/i-1"}, "status": {"conditions": ready}}),
            json!({"metadata": {"name": "ip-3"}, "spec": {"providerID": "aws:///z/i-3"}}),
        ];
        let instance = |id: &str| Instance {
            id: id.to_owned(),
            instance_type: "m7i.large".to_owned(),
            zone: "us-east-1a".to_owned(),
            state: "running".to_owned(),
            capacity_type: "spot".to_owned(),
        };
        let pods = [json!({"spec": {"nodeName": "ip-1"}}), json!({"spec": {"nodeName": "ip-1"}}), json!({"spec": {}})];
        let text = of_nodes(&nodes, &[instance("i-1"), instance("i-2")], &pods);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(words(lines[1]), ["i-1", "m7i.large", "us-east-1a", "spot", "running", "ip-1", "yes", "2"]);
        assert_eq!(words(lines[2]), ["i-2", "m7i.large", "us-east-1a", "spot", "running", "-", "-", "-"]);
        assert_eq!(words(lines[3]), ["gone", "-", "-", "-", "-", "ip-3", "no", "0"]);
        assert_eq!(lines[4], "3 pods, 1 of them without node");
        assert_eq!(lines[0].find("NODE"), lines[1].find("ip-1"), "columns are aligned with their headings");
        assert_eq!(of_nodes(&[], &[], &[]), "no instance and no node\n0 pods, 0 of them without node");
    }

    #[test]
    fn instances_that_cannot_join_are_named() -> Result<()> {
        let folder = tempfile::tempdir()?;
        assert!(troubles(folder.path()).is_empty());
        std::fs::write(
            folder.path().join("kubelets.json"),
            r#"{"nodes": {}, "gone": [], "errors": {"i-1": "no taint"}}"#,
        )?;
        assert_eq!(troubles(folder.path()), ["i-1 cannot become a node: no taint"]);
        Ok(())
    }
}
