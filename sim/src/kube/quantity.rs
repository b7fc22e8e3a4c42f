//! Kubernetes quantities in thousandths, and amounts of resources.

use plimsoll_model::quantity::Quantity;
use serde_json::Value;
use std::collections::BTreeMap;

/// Thousandths of each resource by name: millicores of CPU, thousandths of bytes of memory.
pub type Amounts = BTreeMap<String, i64>;

/// Amounts of a resource list. Invalid quantities count as zero, because the API server accepted them.
pub(super) fn amounts(list: Option<&Value>) -> Amounts {
    let entries = list.and_then(Value::as_object).into_iter().flatten();
    entries.filter_map(|(name, value)| Some((name.clone(), quantity(value)?))).collect()
}

/// A quantity in thousandths, rounded away from zero. `None` if it does not parse or overflows.
fn quantity(value: &Value) -> Option<i64> {
    let parsed = match value {
        Value::String(text) => Quantity::parse(text),
        Value::Number(number) => Quantity::parse(&number.to_string()),
        _ => return None,
    };
    parsed.ok()?.milli_ceil()
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
