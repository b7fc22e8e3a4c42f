//! Formats amounts for messages. Amounts are short, and rounded so that the message remains true.

use plimsoll_model::quantity::format_amount;
use plimsoll_model::resources::{CPU, EPHEMERAL_STORAGE, MEMORY};

const SUFFIXES: [(&str, i64); 4] = [("Ti", 1 << 40), ("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10)];

/// Formats a required amount, such as `12`, `0.5` or `1.6Gi`. Rounds up.
pub(super) fn at_least(resource: &str, amount: i64) -> String {
    format(resource, amount, true)
}

/// Formats an available amount. Rounds down.
pub(super) fn at_most(resource: &str, amount: i64) -> String {
    format(resource, amount, false)
}

fn format(resource: &str, amount: i64, up: bool) -> String {
    if resource == CPU {
        return decimal(amount / 1000, (amount % 1000).abs(), 3);
    }
    if resource != MEMORY && resource != EPHEMERAL_STORAGE {
        return format_amount(resource, amount);
    }
    let Some((suffix, unit)) = SUFFIXES.into_iter().find(|(_, unit)| amount >= *unit) else {
        return amount.to_string();
    };
    let tenths = i128::from(amount) * 10;
    let unit = i128::from(unit);
    let tenths = if up { (tenths + unit - 1) / unit } else { tenths / unit };
    let tenths = i64::try_from(tenths).unwrap_or(i64::MAX);
    format!("{}{suffix}", decimal(tenths / 10, tenths % 10, 1))
}

/// Formats `whole.part`, where `part` has `digits` digits. Omits trailing zeros.
fn decimal(whole: i64, part: i64, digits: usize) -> String {
    if part == 0 {
        return whole.to_string();
    }
    format!("{whole}.{part:0digits$}").trim_end_matches('0').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_short_and_never_flatter() {
        assert_eq!([at_least("cpu", 12_000), at_least("cpu", 1_500), at_most("cpu", 5)], ["12", "1.5", "0.005"]);
        assert_eq!([at_least("memory", 16 << 30), at_most("memory", 16 << 30)], ["16Gi", "16Gi"]);
        let odd = (16 << 30) + 1;
        assert_eq!([at_least("memory", odd), at_most("memory", odd)], ["16.1Gi", "16Gi"]);
        assert_eq!([at_most("memory", 1500 << 20), at_most("memory", 1023)], ["1.4Gi", "1023"]);
        assert_eq!(at_least("nvidia.com/gpu", 8), "8");
    }
}
