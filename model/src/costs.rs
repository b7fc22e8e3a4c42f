//! What a node costs beside its price, and how much more some families do for theirs: as far as the user says so.

use crate::catalog::{Catalog, InstanceType};
use crate::money::MicroUsdPerHour;
use crate::names::label;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Millionths in one.
const MILLION: i128 = 1_000_000;

/// What plans count for the nodes of a pool in place of their mere price.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct NodeCosts {
    /// What each node costs besides: licences by host, volumes. Not negative.
    pub per_node: MicroUsdPerHour,
    /// How much work a node of an instance family does, in millionths of what is usual; families that are not named do the usual.
    pub performance: BTreeMap<String, u32>,
}

impl NodeCosts {
    /// Whether prices count as they are.
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// What a node counts that has this price: with all that it costs, per usual amount of work, to the nearest millionth of a dollar.
    #[must_use]
    pub fn of(&self, kind: &InstanceType, price: MicroUsdPerHour) -> MicroUsdPerHour {
        let whole = i128::from(price.0) + i128::from(self.per_node.0);
        let family = kind.labels.get(label::INSTANCE_FAMILY);
        let work =
            family.and_then(|family| self.performance.get(family)).map_or(MILLION, |work| i128::from(*work).max(1));
        MicroUsdPerHour(i64::try_from((whole * MILLION + work / 2) / work).unwrap_or(i64::MAX))
    }

    /// Puts into `catalog` what its offerings count.
    pub fn apply(&self, catalog: &mut Catalog) {
        for kind in &mut catalog.instance_types {
            let counted: Vec<MicroUsdPerHour> = kind.offerings.iter().map(|one| self.of(kind, one.price)).collect();
            kind.offerings.iter_mut().zip(counted).for_each(|(offering, counted)| offering.price = counted);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources::Resources;

    fn kind(family: &str) -> InstanceType {
        InstanceType {
            name: format!("{family}.large"),
            architecture: "amd64".to_owned(),
            operating_systems: vec!["linux".to_owned()],
            capacity: Resources::new(),
            overhead: Resources::new(),
            labels: BTreeMap::from([(label::INSTANCE_FAMILY.to_owned(), family.to_owned())]),
            offerings: Vec::new(),
        }
    }

    #[test]
    fn a_node_counts_all_it_costs_for_the_work_it_does() {
        let costs = |per_node: i64, performance: &[(&str, u32)]| NodeCosts {
            per_node: MicroUsdPerHour(per_node),
            performance: performance.iter().map(|(family, work)| ((*family).to_owned(), *work)).collect(),
        };
        let table = [
            (costs(0, &[]), "m5", 96_000, 96_000),
            (costs(30_000, &[]), "m5", 96_000, 126_000),
            // A quarter more work: four fifths of the price.
            (costs(0, &[("m7i", 1_250_000)]), "m7i", 100_000, 80_000),
            (costs(0, &[("m7i", 1_250_000)]), "m7i-flex", 100_000, 100_000),
            // The fee is for the same work, too.
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
