//! Go durations (`1h30m`, `90s`, `1.5h`), and durations that may be `Never`.
//!
//! The original text is kept, so that an object does not change when it is deserialized and serialized.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use std::{borrow::Cow, fmt, str::FromStr, time::Duration};

/// Maximum duration of Go: signed 64-bit nanoseconds, about 292 years.
const MAX_NANOSECONDS: u128 = i64::MAX as u128;

/// Reason why a string is not a duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    /// The text does not consist of numbers with units.
    #[error("{0:?} is not a duration such as 1h30m or 90s")]
    Syntax(String),
    /// The duration is negative.
    #[error("duration {0:?} is negative")]
    Negative(String),
    /// The duration exceeds about 292 years.
    #[error("duration {0:?} is too long")]
    TooLong(String),
}

/// Parses a Go duration. Zero needs no unit. A negative duration is an error, since no field of the API accepts it.
pub fn parse_go(text: &str) -> Result<Duration, DurationError> {
    let syntax = || DurationError::Syntax(text.to_owned());
    let too_long = || DurationError::TooLong(text.to_owned());
    let (negative, unsigned) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    if unsigned == "0" {
        return Ok(Duration::ZERO);
    }
    let mut rest = unsigned;
    let mut total: u128 = 0;
    if rest.is_empty() {
        return Err(syntax());
    }
    while !rest.is_empty() {
        let number_end = rest.find(|c: char| c != '.' && !c.is_ascii_digit()).ok_or_else(syntax)?;
        let (number, after) = rest.split_at(number_end);
        let unit_end = after.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(after.len());
        let (unit, after) = after.split_at(unit_end);
        let unit = unit_nanoseconds(unit).ok_or_else(syntax)?;
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
            return Err(syntax());
        }
        let whole: u128 = if whole.is_empty() { 0 } else { whole.parse().map_err(|_| too_long())? };
        let part = whole.checked_mul(unit).and_then(|whole| whole.checked_add(fraction_of(fraction, unit)));
        total = part.and_then(|part| total.checked_add(part)).ok_or_else(too_long)?;
        if total > MAX_NANOSECONDS {
            return Err(too_long());
        }
        rest = after;
    }
    if negative && total > 0 {
        return Err(DurationError::Negative(text.to_owned()));
    }
    u64::try_from(total).map(Duration::from_nanos).map_err(|_| too_long())
}

fn unit_nanoseconds(unit: &str) -> Option<u128> {
    Some(match unit {
        "ns" => 1,
        // Go accepts both the micro sign and the Greek letter.
        "us" | "\u{b5}s" | "\u{3bc}s" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return None,
    })
}

/// Converts the digits after the decimal point to whole nanoseconds, rounded down.
fn fraction_of(digits: &str, unit: u128) -> u128 {
    let mut scale = unit;
    digits.bytes().fold(0, |sum, digit| {
        let digit = u128::from(digit - b'0');
        let part = digit * scale / 10;
        scale /= 10;
        sum + part
    })
}

/// A duration with its original text. Values are equal only if their texts are equal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GoDuration {
    text: String,
    value: Duration,
}

impl GoDuration {
    /// Creates a duration from seconds, with Go's shortest text.
    #[must_use]
    pub fn from_seconds(seconds: u64) -> Self {
        let (hours, minutes, rest) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
        let text = match (hours, minutes, rest) {
            (0, 0, rest) => format!("{rest}s"),
            (0, minutes, rest) => format!("{minutes}m{rest}s"),
            (hours, minutes, rest) => format!("{hours}h{minutes}m{rest}s"),
        };
        Self { text, value: Duration::from_secs(seconds) }
    }

    /// Value of the duration.
    #[must_use]
    pub fn value(&self) -> Duration {
        self.value
    }

    /// Original text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl FromStr for GoDuration {
    type Err = DurationError;
    fn from_str(text: &str) -> Result<Self, DurationError> {
        Ok(Self { text: text.to_owned(), value: parse_go(text)? })
    }
}

/// Text for "at no time".
const NEVER: &str = "Never";

/// A duration or `Never`, with its original text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NillableDuration(Option<GoDuration>);

impl NillableDuration {
    /// Creates `Never`.
    #[must_use]
    pub fn never() -> Self {
        Self(None)
    }

    /// Creates a duration from seconds, with Go's shortest text.
    #[must_use]
    pub fn from_seconds(seconds: u64) -> Self {
        Self(Some(GoDuration::from_seconds(seconds)))
    }

    /// Value of the duration; `None` means never.
    #[must_use]
    pub fn value(&self) -> Option<Duration> {
        self.0.as_ref().map(GoDuration::value)
    }

    /// Original text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.0.as_ref().map_or(NEVER, GoDuration::as_str)
    }
}

impl FromStr for NillableDuration {
    type Err = DurationError;
    fn from_str(text: &str) -> Result<Self, DurationError> {
        if text == NEVER { Ok(Self(None)) } else { text.parse().map(|duration| Self(Some(duration))) }
    }
}

macro_rules! as_text {
    ($name:ident) => {
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text: Cow<'de, str> = Deserialize::deserialize(deserializer)?;
                text.parse().map_err(D::Error::custom)
            }
        }

        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({"type": "string"})
            }
        }
    };
}
as_text!(GoDuration);
as_text!(NillableDuration);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_parsed_like_in_go() {
        let cases: [(&str, u64); 14] = [
            ("0", 0),
            ("0s", 0),
            ("-0s", 0),
            ("30s", 30_000_000_000),
            ("+5m", 300_000_000_000),
            ("1h30m", 5_400_000_000_000),
            ("720h", 2_592_000_000_000_000),
            ("720h0m0s", 2_592_000_000_000_000),
            ("1.5h", 5_400_000_000_000),
            (".5s", 500_000_000),
            ("1.s", 1_000_000_000),
            ("300ms", 300_000_000),
            ("1\u{b5}s1us2ns", 2_002),
            ("0.0000000019s", 1),
        ];
        for (text, nanoseconds) in cases {
            assert_eq!(parse_go(text), Ok(Duration::from_nanos(nanoseconds)), "{text}");
        }
    }

    #[test]
    fn invalid_durations_are_rejected() {
        for text in ["", "+", "5", "s", ".s", "1d", "1h 30m", "1.2.3s", "never", "1hh", "\u{661}s"] {
            assert_eq!(parse_go(text), Err(DurationError::Syntax(text.to_owned())), "{text:?}");
        }
        assert_eq!(parse_go("-5m"), Err(DurationError::Negative("-5m".to_owned())));
        for text in ["9223372036.9s", "2562048h", "99999999999999999999999999999999999999999h"] {
            assert_eq!(parse_go(text), Err(DurationError::TooLong(text.to_owned())), "{text}");
        }
    }

    #[test]
    fn the_original_text_is_kept() {
        for text in ["Never", "720h", "90m", "1.5h", "0s"] {
            let read: NillableDuration = serde_json::from_value(text.into()).unwrap();
            assert_eq!(serde_json::to_value(&read).unwrap(), text);
        }
        assert_eq!("Never".parse::<NillableDuration>().unwrap().value(), None);
        assert_eq!(GoDuration::from_seconds(5400).as_str(), "1h30m0s");
        assert_eq!(GoDuration::from_seconds(30).as_str(), "30s");
    }
}
