//! User-defined node costs: additional costs, and relative performance of instance families.

use crate::catalog::{Catalog, InstanceType};
use crate::money::MicroUsdPerHour;
use crate::names::label;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Millionths in one.
const MILLION: i128 = 1_000_000;

/// Adjustments that turn an offering's price into the cost that plans use.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct NodeCosts {
    /// Additional cost per node, such as licenses and volumes; not negative.
    pub per_node: MicroUsdPerHour,
    /// Relative performance of instance families in millionths; other families have 1 000 000.
    pub performance: BTreeMap<String, u32>,
}

impl NodeCosts {
    /// Whether the costs equal the prices.
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// Cost of a node with this price: total cost divided by relative performance, rounded to a millionth of a dollar.
    #[must_use]
    pub fn of(&self, instance_type: &InstanceType, price: MicroUsdPerHour) -> MicroUsdPerHour {
        let total = i128::from(price.0) + i128::from(self.per_node.0);
        let family = instance_type.labels.get(label::INSTANCE_FAMILY);
        let performance =
            family.and_then(|family| self.performance.get(family)).map_or(MILLION, |factor| i128::from(*factor).max(1));
        MicroUsdPerHour(i64::try_from((total * MILLION + performance / 2) / performance).unwrap_or(i64::MAX))
    }

    /// Replaces the prices in `catalog` by costs.
    pub fn apply(&self, catalog: &mut Catalog) {
        for instance_type in &mut catalog.instance_types {
            let prices: Vec<MicroUsdPerHour> =
                instance_type.offerings.iter().map(|offering| self.of(instance_type, offering.price)).collect();
            instance_type.offerings.iter_mut().zip(prices).for_each(|(offering, price)| offering.price = price);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(family: &str) -> InstanceType {
        InstanceType {
            name: format!("{family}.large"),
            architecture: "amd64".to_owned(),
            operating_systems: vec!["linux".to_owned()],
            labels: BTreeMap::from([(label::INSTANCE_FAMILY.to_owned(), family.to_owned())]),
            ..InstanceType::default()
        }
    }

    #[test]
    fn the_cost_of_a_node_is_its_total_cost_divided_by_its_performance() {
        let costs = |per_node: i64, performance: &[(&str, u32)]| NodeCosts {
            per_node: MicroUsdPerHour(per_node),
            performance: performance.iter().map(|(family, work)| ((*family).to_owned(), *work)).collect(),
        };
        let table = [
            (costs(0, &[]), "m5", 96_000, 96_000),
            (costs(30_000, &[]), "m5", 96_000, 126_000),
            // A quarter more performance: four fifths of the price.
            (costs(0, &[("m7i", 1_250_000)]), "m7i", 100_000, 80_000),
            (costs(0, &[("m7i", 1_250_000)]), "m7i-flex", 100_000, 100_000),
            // The additional cost is divided by the performance, too.
            (costs(25_000, &[("m7i", 1_250_000)]), "m7i", 100_000, 100_000),
            (costs(0, &[("t3", 500_000)]), "t3", 7, 14),
            (costs(i64::MAX, &[("t3", 1)]), "t3", i64::MAX, i64::MAX),
            (costs(0, &[("t3", 0)]), "t3", 1, 1_000_000),
        ];
        for (costs, family, price, counted) in table {
            assert_eq!(costs.of(&kind(family), MicroUsdPerHour(price)).0, counted, "{costs:?} {family} {price}");
        }
    }
}
