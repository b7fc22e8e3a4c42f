//! Values that no EC2 API returns: documented network bandwidth and branch interfaces by instance type. Instance types
//! newer than the table have neither.

use std::collections::BTreeMap;
use std::sync::LazyLock;

struct Limits {
    bandwidth_mbps: Option<i64>,
    branch_interfaces: Option<i64>,
}

static TABLE: LazyLock<BTreeMap<&'static str, Limits>> =
    LazyLock::new(|| include_str!("../data/network-limits.tsv").lines().filter_map(row).collect());

/// Parses a row. Comments and the heading have no numbers and result in no row or an empty one.
fn row(line: &'static str) -> Option<(&'static str, Limits)> {
    let mut cells = line.split('\t');
    let name = cells.next()?;
    let mut number = || cells.next().map(|cell| cell.parse().ok());
    Some((name, Limits { bandwidth_mbps: number()?, branch_interfaces: number()? }))
}

/// Baseline network bandwidth in Mbps, if documented.
#[must_use]
pub fn baseline_bandwidth_mbps(instance_type: &str) -> Option<i64> {
    TABLE.get(instance_type)?.bandwidth_mbps
}

/// Number of pods that can have a branch network interface (resource `vpc.amazonaws.com/pod-eni`), if supported.
#[must_use]
pub fn branch_interfaces(instance_type: &str) -> Option<i64> {
    TABLE.get(instance_type)?.branch_interfaces
}

#[cfg(test)]
mod tests {
    use super::{TABLE, baseline_bandwidth_mbps, branch_interfaces};

    #[test]
    fn missing_values_are_none() {
        assert_eq!((baseline_bandwidth_mbps("m5.large"), branch_interfaces("m5.large")), (Some(750), Some(9)));
        assert_eq!((baseline_bandwidth_mbps("i3.large"), branch_interfaces("i3.large")), (Some(750), None));
        assert_eq!((baseline_bandwidth_mbps("x9.huge"), branch_interfaces("x9.huge")), (None, None));
    }

    #[test]
    fn the_table_has_a_row_for_every_priced_type() {
        assert_eq!(TABLE.keys().filter(|name| name.contains('.') && !name.starts_with('#')).count(), 1334);
    }
}
