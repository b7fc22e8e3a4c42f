//! Events of the cloud's capacity.

use crate::random_faults::one_of;
use plimsoll_model::catalog::CapacityType;
use plimsoll_sim::cloud::{Capacity, Pool};
use plimsoll_sim::seed::Rng;
use plimsoll_tests::TestCluster;

/// Takes away all capacity of one instance type.
pub(super) fn take(cluster: &TestCluster, rng: &mut Rng) {
    cluster.world.ec2.with(|cloud, _| {
        let types = ["m6i.large", "m6i.xlarge", "m6i.2xlarge", "c6i.large", "c6i.xlarge"];
        let taken = one_of(rng, &types).copied().unwrap_or_default();
        let zones: Vec<String> = cloud.subnets.values().map(|subnet| subnet.zone.clone()).collect();
        for zone in zones {
            for capacity_type in [CapacityType::Spot, CapacityType::OnDemand] {
                cloud.limit(Pool::new(taken, &zone, capacity_type), Capacity::Instances(0));
            }
        }
    });
}

/// Leaves at most two instances of each pool of capacity.
pub(super) fn make_scarce(cluster: &TestCluster, rng: &mut Rng) {
    cluster.world.ec2.with(|cloud, _| {
        let pools: Vec<(String, String)> = cloud.offers.keys().cloned().collect();
        for (instance_type, zone) in pools {
            for capacity_type in [CapacityType::Spot, CapacityType::OnDemand] {
                let left = u32::try_from(rng.below(3)).unwrap_or_default();
                cloud.limit(Pool::new(&instance_type, &zone, capacity_type), Capacity::Instances(left));
            }
        }
    });
}
