//! Computes the resources reserved for kubelet, system and eviction thresholds.

use crate::capacity::{GIB, MIB};
use crate::settings::Threshold;
use crate::{InstanceTypeFacts, NodeClassSettings, pods};
use plimsoll_model::resources::{CPU, EPHEMERAL_STORAGE, MEMORY, Resources};

const MEMORY_PER_POD: i64 = 11 * MIB;
const MEMORY_BASE: i64 = 255 * MIB;
const KUBE_STORAGE: i64 = GIB;
const EVICTION_MEMORY: Threshold = Threshold::Amount(100 * MIB);
const EVICTION_STORAGE: Threshold = Threshold::Part(0.1);

/// Overhead of a node with this `capacity`.
pub(crate) fn overhead(facts: &InstanceTypeFacts, settings: &NodeClassSettings, capacity: &Resources) -> Resources {
    let mut overhead = Resources::from([
        (CPU, kube_cpu(facts.vcpus)),
        (MEMORY, MEMORY_PER_POD * pods::pods_for_memory(facts, settings) + MEMORY_BASE),
        (EPHEMERAL_STORAGE, KUBE_STORAGE),
    ]);
    for (name, amount) in settings.kube_reserved.iter() {
        overhead.set(name, amount);
    }
    overhead.add(&settings.system_reserved);
    let eviction_threshold = |threshold: Option<Threshold>, default: Threshold, name: &str| {
        threshold.unwrap_or(default).of(capacity.get(name))
    };
    overhead.add(&Resources::from([
        (MEMORY, eviction_threshold(settings.eviction_memory, EVICTION_MEMORY, MEMORY)),
        (EPHEMERAL_STORAGE, eviction_threshold(settings.eviction_storage, EVICTION_STORAGE, EPHEMERAL_STORAGE)),
    ]));
    overhead
}

/// CPU reserved for Kubernetes in millicores. The share per core decreases with the number of cores. Each range is
/// truncated separately.
fn kube_cpu(cores: i64) -> i64 {
    // Upper end of each range of cores, and the share per core in hundred-thousandths.
    const SHARES: [(i64, i64); 4] = [(1, 6_000), (2, 1_000), (4, 500), (i64::MAX, 250)];
    let mut counted = 0;
    let mut millicores = 0;
    for (upto, share) in SHARES {
        let cores_in_range = cores.min(upto) - counted;
        if cores_in_range <= 0 {
            break;
        }
        millicores += cores_in_range * share / 100;
        counted += cores_in_range;
    }
    millicores
}

#[cfg(test)]
mod tests {
    use super::kube_cpu;

    #[test]
    fn the_reserved_share_decreases_per_core() {
        // 60 for the first core, 10 for the second, 5 for each of the next two, 2.5 for each further core, truncated.
        let expected = [(1, 60), (2, 70), (4, 80), (5, 82), (6, 85), (8, 90), (96, 310)];
        for (cores, millicores) in expected {
            assert_eq!(kube_cpu(cores), millicores, "{cores} cores");
        }
    }
}
