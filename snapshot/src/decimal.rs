//! Parses decimal numbers such as prices and percentages.

/// Digits after the decimal point.
const DECIMALS: usize = 6;
/// Millionths in one.
pub(crate) const MILLION: i64 = 1_000_000;
/// Larger whole parts are treated as mistakes.
const MAX_WHOLE: i64 = 1_000_000;

/// Parses an unsigned decimal number to millionths; further digits are truncated. Returns `None` if the text is not
/// such a number or exceeds `MAX_WHOLE`.
pub(crate) fn millionths(text: &str) -> Option<i64> {
    let (whole, rest) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if (whole.is_empty() && rest.is_empty()) || !digits(whole) || !digits(rest) {
        return None;
    }
    let whole: i64 = if whole.is_empty() { 0 } else { whole.parse().ok().filter(|whole| *whole <= MAX_WHOLE)? };
    let rest: String = rest.chars().chain(std::iter::repeat('0')).take(DECIMALS).collect();
    Some(whole * MILLION + rest.parse::<i64>().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_parsed_to_the_millionth() {
        let table = [
            ("0", Some(0)),
            ("1.5", Some(1_500_000)),
            (".000001", Some(1)),
            ("2.", Some(2_000_000)),
            ("0.0000019", Some(1)),
            ("1000000", Some(1_000_000 * MILLION)),
            ("1000001", None),
            ("99999999999999999999", None),
            ("-1", None),
            ("+1", None),
            ("1e3", None),
            (".", None),
            ("", None),
            (" 1", None),
        ];
        for (text, expected) in table {
            assert_eq!(millionths(text), expected, "{text:?}");
        }
    }
}
