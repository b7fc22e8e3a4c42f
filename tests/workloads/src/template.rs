//! Workloads.

use crate::Rng;
use crate::manifest::{Labels, container};
use serde_json::{Value, json};

const CPUS: [&str; 9] = ["50m", "100m", "250m", "500m", "750m", "1", "1500m", "2", "4"];
const MEMORY: [&str; 9] = ["64Mi", "128Mi", "256Mi", "512Mi", "1Gi", "1500Mi", "2Gi", "4Gi", "8Gi"];

/// Pods of one kind.
pub(crate) struct Workload {
    /// Name, and value of the label `app` of the pods.
    pub(crate) name: String,
    pub(crate) namespace: String,
    pub(crate) replicas: usize,
    pub(crate) labels: Labels,
    /// Spec of the pods.
    pub(crate) pod: Value,
    /// Claims that a StatefulSet creates for each pod. Without claims, the workload is a Deployment or single pods.
    pub(crate) claims: Vec<Value>,
}

impl Workload {
    /// A workload without constraints.
    pub(crate) fn plain(rng: &mut Rng, number: usize, replicas: usize) -> Self {
        let name = format!("app-{number}");
        let labels = Labels::from([
            ("app".to_owned(), name.clone()),
            ("tier".to_owned(), rng.text(&["front", "back"]).to_owned()),
        ]);
        let (cpu, memory) = match rng.range(1, 100) {
            1..=3 => ("", ""),
            4..=6 => ("100m", ""),
            // More than a node of a small catalog has.
            7 => ("100", "1Gi"),
            _ => (rng.text(&CPUS), rng.text(&MEMORY)),
        };
        let mut containers = vec![container("app", cpu, memory)];
        if rng.chance(15) {
            containers.push(container("helper", "50m", "64Mi"));
        }
        Self {
            name,
            namespace: "default".to_owned(),
            replicas,
            labels,
            pod: json!({"containers": containers}),
            claims: Vec::new(),
        }
    }

    /// Keeps only the last of several spreads over one key with the same `whenUnsatisfiable`: an API server rejects
    /// duplicates.
    pub(crate) fn drop_double_spreads(&mut self) {
        let Some(spreads) = self.pod.get_mut("topologySpreadConstraints").and_then(Value::as_array_mut) else { return };
        let id = |it: &Value| (it["topologyKey"].clone(), it["whenUnsatisfiable"].clone());
        let ids: Vec<_> = spreads.iter().map(id).collect();
        let mut index = 0;
        spreads.retain(|_| {
            index += 1;
            !ids[index..].contains(&ids[index - 1])
        });
    }

    /// Manifests that create the pods.
    pub(crate) fn manifests(&self, rng: &mut Rng) -> Vec<Value> {
        let single = self.claims.is_empty() && self.replicas <= 3 && rng.chance(30);
        if single {
            return (0..self.replicas).map(|number| self.single(number)).collect();
        }
        let selector = json!({"matchLabels": {"app": self.name}});
        let template = json!({"metadata": {"labels": self.labels}, "spec": self.pod});
        let metadata = json!({"name": self.name, "namespace": self.namespace});
        if self.claims.is_empty() {
            return vec![json!({
                "apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata,
                "spec": {"replicas": self.replicas, "selector": selector, "template": template},
            })];
        }
        vec![json!({
            "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": metadata,
            "spec": {
                "replicas": self.replicas, "serviceName": self.name, "selector": selector, "template": template,
                "volumeClaimTemplates": self.claims,
            },
        })]
    }

    /// One of the pods without a controller.
    pub(crate) fn single(&self, number: usize) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": format!("{}-{number}", self.name), "namespace": self.namespace, "labels": self.labels,
            },
            "spec": self.pod,
        })
    }
}
