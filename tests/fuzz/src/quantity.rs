//! Quantities: compares the parser with a simple parser that follows the grammar, and checks that printed values parse
//! to the same amount.

use plimsoll_model::quantity::{Quantity, format_amount, parse_resources};
use plimsoll_model::resources::{CPU, EPHEMERAL_STORAGE, MEMORY};

/// Maximum of Kubernetes, 2⁶³−1 units, in nanos.
const CAP: u128 = (i64::MAX as u128) * 1_000_000_000;
/// Maximum number of digits that the simple parser calculates in 128 bits.
const DIGITS: usize = 18;

/// Parses the bytes as a string, and the first eight bytes also as an amount.
///
/// # Panics
/// If the property is violated.
pub fn holds(data: &[u8]) {
    if let Some(bytes) = data.first_chunk::<8>() {
        amounts(i64::from_le_bytes(*bytes));
    }
    let Ok(text) = str::from_utf8(data) else { return };
    let read = Quantity::parse(text);
    match simply(text) {
        Simple::Nanos(negative, magnitude) => {
            let nanos = i128::try_from(magnitude).unwrap_or(i128::MAX);
            let expected = if negative { -nanos } else { nanos };
            let quantity = read.clone();
            assert_eq!(quantity.map(|it| nanos_of(&it)), Ok(expected), "{text:?}");
        }
        Simple::No => assert!(read.is_err(), "{text:?} is {read:?}"),
        Simple::TooLong => assert!(read.is_ok(), "{text:?} is {read:?}"),
    }
    let Ok(quantity) = read else { return };
    let printed = quantity.to_string();
    assert_eq!(Quantity::parse(&printed), Ok(quantity), "{text:?} is printed as {printed}");
    assert_eq!(Quantity::parse(&printed).map(|it| it.to_string()), Ok(printed), "{text:?}");
    assert_eq!(quantity.is_negative(), nanos_of(&quantity) < 0, "{text:?}");
    for (resource, unit) in [(CPU, 1_000_000_i128), (MEMORY, 1_000_000_000), ("example.com/gpu", 1_000_000_000)] {
        let nanos = nanos_of(&quantity);
        // Rounds away from zero, as Kubernetes does.
        let away = if nanos < 0 { -((-nanos + unit - 1) / unit) } else { (nanos + unit - 1) / unit };
        let expected = i64::try_from(away).ok();
        assert_eq!(quantity.amount_of(resource), expected, "{text:?} of {resource}");
        let listed = parse_resources([(resource, text)]).map(|list| list.get(resource)).map_err(|(name, _)| name);
        assert_eq!(listed, expected.ok_or_else(|| resource.to_owned()), "{text:?} of {resource}");
    }
}

/// Every amount parses to the value that was printed.
fn amounts(amount: i64) {
    for resource in [CPU, MEMORY, EPHEMERAL_STORAGE, "hugepages-2Mi", "pods", "example.com/gpu"] {
        let text = format_amount(resource, amount);
        // The lowest number is beyond the limit of Kubernetes.
        let expected = if resource == CPU { amount } else { amount.max(-i64::MAX) };
        assert_eq!(Quantity::parse(&text).map(|it| it.amount_of(resource)), Ok(Some(expected)), "{text} of {resource}");
    }
}

/// Nanos of the printed form, such as `1500m`, with the suffixes n, u, m and none.
fn nanos_of(quantity: &Quantity) -> i128 {
    let text = quantity.to_string();
    let number = text.trim_end_matches(['n', 'u', 'm']);
    let scale = match text.strip_prefix(number) {
        Some("n") => 1,
        Some("u") => 1000,
        Some("m") => 1_000_000,
        _ => 1_000_000_000,
    };
    let number = number.parse::<i128>();
    assert!(number.is_ok(), "{text} is no plain number");
    number.unwrap_or(0) * scale
}

enum Simple {
    /// Whether the value is negative, and its magnitude.
    Nanos(bool, u128),
    /// A quantity that the simple parser does not calculate.
    TooLong,
    No,
}

/// Parses `[+-] digits [. digits] suffix`, the grammar of Kubernetes.
fn simply(text: &str) -> Simple {
    if text.is_empty() {
        return Simple::No;
    }
    let negative = text.starts_with('-');
    let rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
    let (number, suffix) = rest.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if fraction.contains('.') {
        return Simple::No;
    }
    let Some((decimal, binary)) = scale(suffix) else { return Simple::No };
    let digits = format!("{whole}{fraction}");
    let significant = digits.trim_start_matches('0');
    if significant.is_empty() {
        return Simple::Nanos(negative, 0);
    }
    if significant.len() > DIGITS || fraction.len() > 40 {
        return Simple::TooLong;
    }
    let number = significant.parse::<u128>().unwrap_or(0) << binary;
    let power = decimal - i64::try_from(fraction.len()).unwrap_or(0) + 9;
    let factor = u32::try_from(power.unsigned_abs()).ok().and_then(|power| 10_u128.checked_pow(power));
    let nanos = match (power >= 0, factor) {
        (true, Some(factor)) => number.saturating_mul(factor),
        (true, None) => u128::MAX,
        (false, Some(factor)) => number.div_ceil(factor),
        // Below the smallest step, to which the value is rounded up.
        (false, None) => 1,
    };
    Simple::Nanos(negative, nanos.min(CAP))
}

/// Powers of ten and of two.
fn scale(suffix: &str) -> Option<(i64, u32)> {
    const DECIMAL: [(&str, i64); 10] =
        [("n", -9), ("u", -6), ("m", -3), ("", 0), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18)];
    const BINARY: [&str; 6] = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    if let Some((_, power)) = DECIMAL.iter().find(|(name, _)| *name == suffix) {
        return Some((*power, 0));
    }
    if let Some(index) = BINARY.iter().position(|name| *name == suffix) {
        return Some((0, 10 * (u32::try_from(index).unwrap_or(0) + 1)));
    }
    let exponent = suffix.strip_prefix(['e', 'E'])?;
    let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
    let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    // Kubernetes parses exponents as 32-bit integers.
    plain.then(|| exponent.parse::<i32>().ok())?.map(|power| (i64::from(power), 0))
}
