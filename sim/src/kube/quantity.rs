//! Kubernetes quantities in thousandths, and amounts of resources.

use serde_json::Value;
use std::collections::BTreeMap;

/// Thousandths of each resource by name: millicores of CPU, thousandths of bytes of memory.
pub type Amounts = BTreeMap<String, i64>;

/// Parses a quantity to thousandths, rounded up. `None` if it does not parse or overflows.
#[must_use]
pub fn parse_quantity(text: &str) -> Option<i64> {
    const UNITS: &[(&str, i128)] = &[
        ("Ki", 1 << 10),
        ("Mi", 1 << 20),
        ("Gi", 1 << 30),
        ("Ti", 1 << 40),
        ("Pi", 1 << 50),
        ("k", 1_000),
        ("M", 1_000_000),
        ("G", 1_000_000_000),
        ("T", 1_000_000_000_000),
        ("P", 1_000_000_000_000_000),
    ];
    if let Some(milli) = text.strip_suffix('m') {
        return decimal(milli, 1);
    }
    if let Some((mantissa, exponent)) = text.split_once(['e', 'E']).filter(|(_, exponent)| !exponent.is_empty()) {
        let power: u32 = exponent.parse().ok()?;
        return decimal(mantissa, 1000 * 10_i128.checked_pow(power)?);
    }
    let unit = UNITS.iter().find_map(|(suffix, factor)| Some((text.strip_suffix(suffix)?, *factor)));
    let (number, factor) = unit.unwrap_or((text, 1));
    decimal(number, factor * 1000)
}

/// A decimal number times a factor, rounded up.
fn decimal(text: &str, factor: i128) -> Option<i64> {
    let (sign, digits) = text.strip_prefix('-').map_or((1, text), |rest| (-1, rest));
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if whole.is_empty() && fraction.is_empty()
        || !whole.bytes().chain(fraction.bytes()).all(|byte| byte.is_ascii_digit())
    {
        return None;
    }
    let scale = 10_i128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let number: i128 = format!("{whole}{fraction}").parse().ok()?;
    let scaled = number.checked_mul(factor)?;
    let rounded = scaled.checked_add(scale - 1)? / scale;
    i64::try_from(sign * rounded).ok()
}

/// Amounts of a resource list. Invalid quantities count as zero, because the API server accepted them.
pub(super) fn amounts(list: Option<&Value>) -> Amounts {
    let entries = list.and_then(Value::as_object).into_iter().flatten();
    entries.filter_map(|(name, value)| Some((name.clone(), quantity(value)?))).collect()
}

fn quantity(value: &Value) -> Option<i64> {
    match value {
        Value::String(text) => parse_quantity(text),
        Value::Number(number) => parse_quantity(&number.to_string()),
        _ => None,
    }
}

/// Adds amounts.
pub(super) fn add(to: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        *to.entry(name.clone()).or_default() += amount;
    }
}

/// Raises amounts to at least these values.
pub(super) fn raise(to: &mut Amounts, least: &Amounts) {
    for (name, amount) in least {
        let own = to.entry(name.clone()).or_default();
        *own = (*own).max(*amount);
    }
}

#[cfg(test)]
mod tests {
    use super::parse_quantity;

    #[test]
    fn quantities_in_thousandths() {
        for (text, expected) in [
            ("1", Some(1000)),
            ("1500m", Some(1500)),
            ("0.5", Some(500)),
            (".5", Some(500)),
            ("0.0001", Some(1)),
            ("2Ki", Some(2_048_000)),
            ("1.5Gi", Some(1_610_612_736_000)),
            ("10M", Some(10_000_000_000)),
            ("1e3", Some(1_000_000)),
            ("2E2", Some(200_000)),
            ("-3", Some(-3000)),
            ("", None),
            ("m", None),
            ("1Xi", None),
            ("1..2", None),
            ("9999P", None),
        ] {
            assert_eq!(parse_quantity(text), expected, "{text}");
        }
    }
}
