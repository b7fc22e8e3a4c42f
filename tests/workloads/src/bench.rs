//! Large workloads for measuring speed, memory and cost.

mod company;
mod mix;
mod nodes;
mod plain;
mod underused;

pub use company::company;
pub use mix::karpenter_mix;
pub use nodes::{node, one_more_pod, with_controllers, with_nodes};
pub use plain::{all_different, many_pools, one_deployment, shapes, sizes};
pub use underused::{Underused, underused};

use crate::manifest::{node_class, node_pool, requirement};
use crate::{Case, CatalogChoice, catalogs};
use plimsoll_model::names::label;
use serde_json::{Value, json};

/// Instance types of a benchmark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Types {
    /// This number of types of Karpenter's own benchmark: the i-th has i vCPU, 2i GiB and capacity for 10i pods.
    Synthetic(usize),
    /// The built-in catalog of us-east-1, with pools that require on-demand and amd64 of the categories c, m and r.
    BuiltIn,
    /// This number of types of the built-in catalog, evenly selected, and pools that allow all of them.
    Thinned(usize),
}

impl Types {
    pub(crate) fn choice(self) -> CatalogChoice {
        match self {
            Self::Synthetic(count) => CatalogChoice::Given(catalogs::karpenter_benchmark(count)),
            Self::BuiltIn => CatalogChoice::BuiltIn,
            Self::Thinned(count) => CatalogChoice::Given(catalogs::thinned(count)),
        }
    }

    /// Requirements of a pool.
    fn requirements(self) -> Vec<Value> {
        let mut requirements = vec![requirement(label::OS, "In", &["linux"])];
        match self {
            // As in Karpenter's benchmark, whose pool has no requirements.
            Self::Synthetic(_) => {}
            Self::BuiltIn => {
                let category = format!("{}/instance-category", label::AWS_DOMAIN);
                requirements.push(requirement(&category, "In", &["c", "m", "r"]));
                requirements.push(requirement(label::ARCH, "In", &["amd64"]));
                requirements.push(requirement(label::CAPACITY_TYPE, "In", &["on-demand"]));
            }
            Self::Thinned(_) => {
                requirements.push(requirement(label::ARCH, "In", &["amd64", "arm64"]));
                requirements.push(requirement(label::CAPACITY_TYPE, "In", &["on-demand"]));
            }
        }
        requirements
    }
}

/// One pool that accepts everything, without pods.
pub(crate) fn one_pool(seed: u64, types: Types) -> Case {
    let mut case = Case::empty(seed, types.choice());
    case.objects = vec![node_class(), node_pool("default", &types.requirements())];
    case
}

/// A pending pod.
pub(crate) fn pod(name: &str, labels: &Value, spec: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default", "labels": labels},
        "spec": spec,
    })
}

/// A Deployment of `replicas` such pods, with the label `app: name` in addition to `labels`.
pub(crate) fn deployment(name: &str, replicas: usize, spec: &Value) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": spec},
        },
    })
}
