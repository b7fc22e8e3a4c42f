use super::*;
use proptest::prelude::*;

fn nanos(text: &str) -> i128 {
    Quantity::parse(text).unwrap_or_else(|error| panic!("{error}")).nanos
}

#[test]
fn every_suffix_scales_the_number() {
    let units = 1_000_000_000_i128;
    let table = [
        ("0", 0),
        ("1n", 1),
        ("1u", 1_000),
        ("1m", 1_000_000),
        ("1", units),
        ("1k", 1_000 * units),
        ("1M", 1_000_000 * units),
        ("1G", 1_000_000_000 * units),
        ("1T", 1_000_000_000_000 * units),
        ("1P", 1_000_000_000_000_000 * units),
        ("1E", 1_000_000_000_000_000_000 * units),
        ("1Ki", (1 << 10) * units),
        ("1Mi", (1 << 20) * units),
        ("1Gi", (1 << 30) * units),
        ("1Ti", (1 << 40) * units),
        ("1Pi", (1 << 50) * units),
        ("1Ei", (1 << 60) * units),
        ("1e3", 1_000 * units),
        ("1E3", 1_000 * units),
        ("1e+3", 1_000 * units),
        ("1e-3", 1_000_000),
        ("1e0", units),
    ];
    for (text, expected) in table {
        assert_eq!(nanos(text), expected, "{text}");
        if expected != 0 {
            assert_eq!(nanos(&format!("-{text}")), -expected, "-{text}");
            assert_eq!(nanos(&format!("+{text}")), expected, "+{text}");
        }
    }
}

#[test]
fn fractions_are_exact() {
    let table = [
        (".5", 500_000_000),
        ("5.", 5_000_000_000),
        ("5.m", 5_000_000),
        ("0.5Ki", 512_000_000_000),
        ("1.5Gi", 1_610_612_736_000_000_000),
        ("007.50", 7_500_000_000),
        ("0.000000001", 1),
        ("0.1m", 100_000),
        ("1.000000000000000000000000000000000000000000", 1_000_000_000),
    ];
    for (text, expected) in table {
        assert_eq!(nanos(text), expected, "{text}");
    }
}

#[test]
fn a_text_without_digits_is_zero() {
    for text in ["+", "-", ".", "m", "Gi", "-.k"] {
        assert_eq!(nanos(text), 0, "{text}");
    }
}

#[test]
fn digits_below_a_nano_round_away_from_zero() {
    assert_eq!(nanos("0.1n"), 1);
    assert_eq!(nanos("-0.1n"), -1);
    assert_eq!(nanos("1.00000000000000000000000000000000000000001"), 1_000_000_001);
    assert_eq!(nanos("1e-2147483648"), 1);
    // 2^10 · 10^-12 units are 1.024 nanos.
    assert_eq!(nanos("0.000000000001Ki"), 2);
}

#[test]
fn values_beyond_the_maximum_of_kubernetes_are_capped() {
    for text in
        ["9223372036854775807", "9223372036854775808", "10E", "8Ei", "1e2147483647", "99999999999999999999999999Ei"]
    {
        assert_eq!(nanos(text), MAX_NANOS, "{text}");
        assert_eq!(nanos(&format!("-{text}")), -MAX_NANOS, "-{text}");
    }
    assert_eq!(nanos("0e2147483647"), 0);
    assert_eq!(nanos("7Ei"), (7_i128 << 60) * NANOS_PER_UNIT);
}

#[test]
fn an_invalid_quantity_is_rejected() {
    assert_eq!(Quantity::parse(""), Err(ParseQuantityError::Empty));
    for text in [" 1", "1 ", "1,5", "1.1.1", "1_000", "½", "0x10 ", "1é"] {
        assert!(matches!(Quantity::parse(text), Err(ParseQuantityError::Format { .. })), "{text}");
    }
    for text in [
        "--1",
        "+-1",
        "i",
        "e",
        "1i",
        "1ki",
        "1K",
        "1mi",
        "1e",
        "1e-",
        "1e+",
        "1ee3",
        "1kk",
        "1Gib",
        "1e3m",
        "1MiB",
        "1e99999999999",
    ] {
        assert!(matches!(Quantity::parse(text), Err(ParseQuantityError::Suffix { .. })), "{text}");
    }
    let long = Quantity::parse(&"x".repeat(10_000)).unwrap_err().to_string();
    assert!(long.len() < 200, "{long}");
}

#[test]
fn amounts_round_up_in_the_unit_of_the_resource() {
    let table = [
        ("cpu", "100m", Some(100)),
        ("cpu", "0.1001", Some(101)),
        ("cpu", "2", Some(2_000)),
        ("cpu", "-0.1001", Some(-101)),
        ("cpu", "9223372036854775807", None),
        ("memory", "1.5Gi", Some(1_610_612_736)),
        ("memory", "100m", Some(1)),
        ("memory", "1.1", Some(2)),
        ("memory", "9223372036854775807", Some(i64::MAX)),
        ("pods", "110", Some(110)),
        ("nvidia.com/gpu", "1", Some(1)),
        (USD_PER_HOUR_RESOURCE, "12.5", Some(12_500_000)),
        (USD_PER_HOUR_RESOURCE, "500m", Some(500_000)),
        (USD_PER_HOUR_RESOURCE, "0.0000019", Some(1)),
        (USD_PER_HOUR_RESOURCE, "-0.0000001", Some(-1)),
        (USD_PER_HOUR_RESOURCE, "9223372036854775807", None),
    ];
    for (resource, text, expected) in table {
        assert_eq!(Quantity::parse(text).unwrap().amount_of(resource), expected, "{resource} {text}");
    }
}

#[test]
fn amounts_are_formatted_canonically() {
    let table = [
        ("cpu", 2_000, "2"),
        ("cpu", 1_500, "1500m"),
        ("cpu", 0, "0"),
        ("cpu", -1_500, "-1500m"),
        ("memory", 2 << 30, "2Gi"),
        ("memory", 7_577 << 20, "7577Mi"),
        ("memory", -(1 << 30), "-1Gi"),
        ("memory", 0, "0"),
        ("memory", 1_025, "1025"),
        ("memory", i64::MIN, "-8Ei"),
        ("ephemeral-storage", 20 << 30, "20Gi"),
        ("ephemeral-storage", 1_000_001, "1000001"),
        ("storage", 1 << 40, "1Ti"),
        ("hugepages-2Mi", 4 << 20, "4Mi"),
        ("pods", 1_024, "1024"),
        ("nvidia.com/gpu", 8, "8"),
        (USD_PER_HOUR_RESOURCE, 12_500_000, "12.5"),
        (USD_PER_HOUR_RESOURCE, 31_200, "0.0312"),
    ];
    for (resource, amount, expected) in table {
        assert_eq!(format_amount(resource, amount), expected);
    }
}

#[test]
fn an_invalid_resource_quantity_names_the_resource() {
    let read = parse_resources([("cpu", "1500m"), ("memory", "2Gi"), ("pods", "0")]).unwrap();
    assert_eq!(read, Resources::from([("cpu", 1_500), ("memory", 2 << 30), ("pods", 0)]));
    let (name, error) = parse_resources([("cpu", "1"), ("memory", "2GB")]).unwrap_err();
    assert_eq!(name, "memory");
    assert_eq!(error, ParseQuantityError::Suffix { text: "2GB".to_owned(), suffix: "GB".to_owned() });
    let (name, error) = parse_resources([("cpu", "9E")]).unwrap_err();
    assert_eq!((name.as_str(), error.to_string().as_str()), ("cpu", "\"9E\" is too large for cpu"));
    assert_eq!(parse_resources([("cpu", "1"), ("", "1")]), Err((String::new(), ParseQuantityError::NoName)));
}

proptest! {
    #[test]
    fn parsing_never_panics(text in "\\PC{0,24}") {
        let _either = Quantity::parse(&text);
    }

    /// A fraction, even of zero, is read digit by digit.
    #[test]
    fn a_short_number_is_read_as_a_long_one(number: u32) {
        for exponent in -12..=30 {
            prop_assert_eq!(nanos(&format!("{number}e{exponent}")), nanos(&format!("{number}.0e{exponent}")));
        }
        for suffix in ["n", "u", "m", "", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"] {
            prop_assert_eq!(nanos(&format!("{number}{suffix}")), nanos(&format!("{number}.0{suffix}")), "{}", suffix);
        }
    }

    #[test]
    fn a_displayed_quantity_parses_to_itself(nanos in -MAX_NANOS..=MAX_NANOS) {
        let quantity = Quantity { nanos };
        prop_assert_eq!(Quantity::parse(&quantity.to_string()), Ok(quantity));
    }

    #[test]
    fn a_formatted_amount_parses_to_itself(amount in -i64::MAX..=i64::MAX, shift in 0_u32..60) {
        for resource in ["cpu", "memory", "hugepages-1Gi", "pods", USD_PER_HOUR_RESOURCE] {
            let amount = (amount >> shift) << shift.min(20);
            let amount = if resource == "cpu" { amount / 1_000 } else { amount };
            prop_assume!(amount != i64::MIN);
            let text = format_amount(resource, amount);
            prop_assert_eq!(Quantity::parse(&text).unwrap().amount_of(resource), Some(amount), "{}", text);
        }
    }

    #[test]
    fn quantities_are_ordered_by_value(left in -1_000_000_i64..1_000_000, right in -1_000_000_i64..1_000_000) {
        let (in_milli, in_nano) = (Quantity::parse(&format!("{left}m")).unwrap(), Quantity::parse(&format!("{right}000000n")).unwrap());
        prop_assert_eq!(in_milli.cmp(&in_nano), left.cmp(&right));
        prop_assert_eq!(in_milli, Quantity::from_millis(left));
    }
}

#[test]
fn volume_sizes_round_up_to_gib() {
    let table = [
        ("20Gi", Some(20)),
        ("20G", Some(19)),
        ("1Ti", Some(1024)),
        ("1T", Some(932)),
        ("0", Some(0)),
        ("1", Some(1)),
        ("-1Gi", None),
        ("-1", None),
    ];
    for (text, gib) in table {
        assert_eq!(Quantity::parse(text).unwrap().gib_ceil(), gib, "{text}");
    }
}
