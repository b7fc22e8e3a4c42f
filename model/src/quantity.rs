//! Quantities of resources in the text form of the Kubernetes API: `1500m`, `2Gi`, `1e3`.

use crate::money::MicroUsdPerHour;
use crate::names::USD_PER_HOUR_RESOURCE;
use crate::resources::{CPU, EPHEMERAL_STORAGE, MEMORY, Resources};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

const NANOS_PER_UNIT: i128 = 1_000_000_000;
const NANOS_PER_MILLI: i128 = 1_000_000;
const NANOS_PER_MICRO: i128 = 1_000;
const GIB: i64 = 1 << 30;
/// Kubernetes keeps a precision of nanos.
const NANO_DIGITS: i64 = 9;
/// Kubernetes caps quantities at this magnitude.
const MAX_NANOS: i128 = (i64::MAX as i128) * NANOS_PER_UNIT;
/// Numbers with more digits before the decimal point exceed [`MAX_NANOS`], which has 19.
const MAX_WHOLE_DIGITS: i64 = 19;
/// Exponent of the largest decimal suffix, `E`, in nanos.
const MAX_SHORT_EXPONENT: u32 = 27;
/// Maximum characters of an invalid text in an error message: longer than any sensible quantity.
const MAX_QUOTED_CHARS: usize = 64;

/// An exact amount in steps of 10⁻⁹, at most 2⁶³−1 in magnitude.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Quantity {
    nanos: i128,
}

/// Reason why a string is not a quantity or not an amount of a resource.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseQuantityError {
    /// The text is empty.
    #[error("a quantity must not be empty")]
    Empty,
    /// The text is not a number with a suffix.
    #[error("{text:?} is not a quantity: expected a decimal number and a suffix such as m, k, Mi or e3")]
    Format {
        /// The text, shortened.
        text: String,
    },
    /// The suffix is unknown.
    #[error("{text:?} is not a quantity: unknown suffix {suffix:?}{}", meant(suffix))]
    Suffix {
        /// The text, shortened.
        text: String,
        /// The suffix, shortened.
        suffix: String,
    },
    /// The resource has no name. No message may have such an amount: it would fail all of the message.
    #[error("the name of a resource must not be empty")]
    NoName,
    /// The quantity does not fit into 64 bits of the resource's unit.
    #[error("{text:?} is too large for {resource}")]
    TooLarge {
        /// The text, shortened.
        text: String,
        /// The resource.
        resource: String,
    },
}

/// The suffixes that an unknown one may stand for: `; did you mean G or Gi?` for `GB`.
fn meant(suffix: &str) -> String {
    let Some(first) = suffix.chars().next().map(|letter| letter.to_ascii_uppercase()) else { return String::new() };
    if !"KMGTPE".contains(first) {
        return String::new();
    }
    let decimal = if first == 'K' { 'k' } else { first };
    format!("; did you mean {decimal} or {first}i?")
}

impl Quantity {
    /// Zero.
    pub const ZERO: Self = Self { nanos: 0 };

    /// Parses everything that Kubernetes accepts, including a lone sign, point or suffix, which is zero. As in
    /// Kubernetes, digits below a nano round away from zero, and numbers beyond 2⁶³−1 are capped.
    ///
    /// # Errors
    ///
    /// If `text` is empty, is not a number or has an unknown suffix.
    pub fn parse(text: &str) -> Result<Self, ParseQuantityError> {
        if text.is_empty() {
            return Err(ParseQuantityError::Empty);
        }
        let (negative, unsigned) = match text.strip_prefix('-') {
            Some(unsigned) => (true, unsigned),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let (whole, rest) = split_digits(unsigned);
        let (fraction, suffix) = rest.strip_prefix('.').map_or(("", rest), split_digits);
        if !suffix.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'+' || byte == b'-') {
            return Err(ParseQuantityError::Format { text: shortened(text) });
        }
        let scale = Scale::parse(suffix)
            .ok_or_else(|| ParseQuantityError::Suffix { text: shortened(text), suffix: shortened(suffix) })?;
        let nanos = magnitude(whole, fraction, scale);
        Ok(Self { nanos: if negative { -nanos } else { nanos } })
    }

    /// Creates a quantity from whole units.
    #[must_use]
    pub fn from_units(units: i64) -> Self {
        Self { nanos: (i128::from(units) * NANOS_PER_UNIT).max(-MAX_NANOS) }
    }

    /// Creates a quantity from thousandths.
    #[must_use]
    pub fn from_millis(millis: i64) -> Self {
        Self { nanos: i128::from(millis) * NANOS_PER_MILLI }
    }

    /// Value in thousandths, rounded away from zero as in Kubernetes. `None` beyond 64 bits.
    #[must_use]
    pub fn milli_ceil(self) -> Option<i64> {
        divide_away_from_zero(self.nanos, NANOS_PER_MILLI)
    }

    /// Value in whole units, rounded away from zero as in Kubernetes. `None` beyond 64 bits.
    #[must_use]
    pub fn value_ceil(self) -> Option<i64> {
        divide_away_from_zero(self.nanos, NANOS_PER_UNIT)
    }

    /// Value in GiB, rounded up; `None` if it is negative or beyond 64 bits.
    #[must_use]
    pub fn gib_ceil(self) -> Option<u64> {
        let bytes = self.value_ceil()?;
        u64::try_from(bytes / GIB + i64::from(bytes % GIB > 0)).ok().filter(|_| bytes >= 0)
    }

    /// Value in the unit that [`Resources`] uses for `resource`: thousandths for `cpu`, millionths for
    /// [`USD_PER_HOUR_RESOURCE`], whole units otherwise. Money is rounded down, so that a limit is never exceeded.
    #[must_use]
    pub fn amount_of(self, resource: &str) -> Option<i64> {
        match resource {
            CPU => self.milli_ceil(),
            USD_PER_HOUR_RESOURCE => i64::try_from(self.nanos.div_euclid(NANOS_PER_MICRO)).ok(),
            _ => self.value_ceil(),
        }
    }

    /// Whether the quantity is negative.
    #[must_use]
    pub fn is_negative(self) -> bool {
        self.nanos < 0
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut amount, mut suffix) = (self.nanos, "n");
        for coarser in ["u", "m", ""] {
            if amount % 1000 != 0 {
                break;
            }
            (amount, suffix) = (amount / 1000, coarser);
        }
        write!(f, "{amount}{suffix}")
    }
}

impl FromStr for Quantity {
    type Err = ParseQuantityError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
    }
}

impl TryFrom<String> for Quantity {
    type Error = ParseQuantityError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Self::parse(&text)
    }
}

impl From<Quantity> for String {
    fn from(quantity: Quantity) -> Self {
        quantity.to_string()
    }
}

/// Factor of a suffix: 10^decimal · 2^binary.
#[derive(Clone, Copy)]
struct Scale {
    decimal: i64,
    binary: u32,
}

impl Scale {
    fn parse(suffix: &str) -> Option<Self> {
        let decimal = |decimal| Some(Self { decimal, binary: 0 });
        let binary = |binary| Some(Self { decimal: 0, binary });
        match suffix {
            "n" => decimal(-9),
            "u" => decimal(-6),
            "m" => decimal(-3),
            "" => decimal(0),
            "k" => decimal(3),
            "M" => decimal(6),
            "G" => decimal(9),
            "T" => decimal(12),
            "P" => decimal(15),
            "E" => decimal(18),
            "Ki" => binary(10),
            "Mi" => binary(20),
            "Gi" => binary(30),
            "Ti" => binary(40),
            "Pi" => binary(50),
            "Ei" => binary(60),
            other => decimal(i64::from(other.strip_prefix(['e', 'E'])?.parse::<i32>().ok()?)),
        }
    }
}

/// Splits the text after its leading digits.
fn split_digits(text: &str) -> (&str, &str) {
    text.split_at(text.bytes().take_while(u8::is_ascii_digit).count())
}

/// Returns `whole.fraction` times `scale` in nanos, rounded up and capped. Works on decimal digits to stay exact.
fn magnitude(whole: &str, fraction: &str, scale: Scale) -> i128 {
    if fraction.is_empty()
        && let Some(nanos) = short_magnitude(whole, scale)
    {
        return nanos;
    }
    let digits = times_power_of_two(whole.bytes().chain(fraction.bytes()).map(|byte| byte - b'0'), scale.binary);
    let first = digits.iter().position(|digit| *digit != 0);
    let Some(digits) = first.and_then(|first| digits.get(first..)) else {
        return 0;
    };
    let point = length(digits) - length(fraction.as_bytes()) + scale.decimal;
    if point > MAX_WHOLE_DIGITS {
        return MAX_NANOS;
    }
    let kept_digits = point + NANO_DIGITS;
    let mut nanos: i128 = 0;
    for position in 0..kept_digits {
        let digit = usize::try_from(position).ok().and_then(|position| digits.get(position)).copied().unwrap_or(0);
        nanos = nanos * 10 + i128::from(digit);
    }
    let dropped = digits.get(usize::try_from(kept_digits).unwrap_or(0)..).unwrap_or_default();
    let round_up = dropped.iter().any(|digit| *digit != 0);
    (nanos + i128::from(round_up)).min(MAX_NANOS)
}

/// Like [`magnitude`], for a whole number below 2³² with a usual suffix, as most quantities are. It fits into 128 bits,
/// so that no list of digits is needed.
fn short_magnitude(whole: &str, scale: Scale) -> Option<i128> {
    let number: u32 = whole.parse().ok()?;
    let exponent =
        u32::try_from(scale.decimal + NANO_DIGITS).ok().filter(|exponent| *exponent <= MAX_SHORT_EXPONENT)?;
    Some(((i128::from(number) * 10_i128.pow(exponent)) << scale.binary).min(MAX_NANOS))
}

fn length(bytes: &[u8]) -> i64 {
    i64::try_from(bytes.len()).unwrap_or(i64::MAX)
}

/// Returns the decimal digits, highest first, of the number with `digits` times 2^`power`. `power` is at most 60.
fn times_power_of_two(digits: impl DoubleEndedIterator<Item = u8>, power: u32) -> Vec<u8> {
    let mut product: Vec<u8> = Vec::new();
    let mut carry: u128 = 0;
    let mut push = |value: u128| {
        product.push(u8::try_from(value % 10).unwrap_or(0));
        value / 10
    };
    for digit in digits.rev() {
        carry = push((u128::from(digit) << power) + carry);
    }
    while carry > 0 {
        carry = push(carry);
    }
    product.reverse();
    product
}

fn divide_away_from_zero(nanos: i128, unit: i128) -> Option<i64> {
    let whole = nanos / unit;
    let rest = nanos % unit;
    i64::try_from(whole + rest.signum()).ok()
}

fn shortened(text: &str) -> String {
    text.chars().take(MAX_QUOTED_CHARS).collect()
}

const BINARY_SUFFIXES: [(&str, u32); 6] = [("Ei", 60), ("Pi", 50), ("Ti", 40), ("Gi", 30), ("Mi", 20), ("Ki", 10)];

/// Whether `resource` is measured in bytes.
fn is_bytes(resource: &str) -> bool {
    matches!(resource, MEMORY | EPHEMERAL_STORAGE | "storage") || resource.starts_with("hugepages-")
}

/// Formats an amount in the unit that [`Resources`] uses for `resource` as the shortest exact text: `1500m` of `cpu`,
/// `2Gi` of `memory`, `0.0312` of [`USD_PER_HOUR_RESOURCE`], `3` of anything else.
#[must_use]
pub fn format_amount(resource: &str, amount: i64) -> String {
    if resource == USD_PER_HOUR_RESOURCE {
        return MicroUsdPerHour(amount).to_string();
    }
    if resource == CPU {
        return if amount % 1000 == 0 { (amount / 1000).to_string() } else { format!("{amount}m") };
    }
    if is_bytes(resource) && amount != 0 {
        let exact = BINARY_SUFFIXES.into_iter().find(|(_, power)| amount.trailing_zeros() >= *power);
        if let Some((suffix, power)) = exact {
            return format!("{}{suffix}", amount >> power);
        }
    }
    amount.to_string()
}

/// Parses quantities by resource name, as in a container's requests or a node's capacity.
///
/// # Errors
///
/// The first name that is empty or has an invalid or too large quantity, and the error.
pub fn parse_resources<Name, Text>(
    amounts: impl IntoIterator<Item = (Name, Text)>,
) -> Result<Resources, (String, ParseQuantityError)>
where
    Name: AsRef<str>,
    Text: AsRef<str>,
{
    let read = |(name, text): (Name, Text)| {
        let (name, text) = (name.as_ref(), text.as_ref());
        if name.is_empty() {
            return Err((String::new(), ParseQuantityError::NoName));
        }
        let quantity = Quantity::parse(text).map_err(|error| (name.to_owned(), error))?;
        let amount = quantity.amount_of(name).ok_or_else(|| {
            (name.to_owned(), ParseQuantityError::TooLarge { text: shortened(text), resource: name.to_owned() })
        })?;
        Ok((name.to_owned(), amount))
    };
    amounts.into_iter().map(read).collect()
}

#[cfg(test)]
mod tests;
