//! Table of on-demand prices: one row per instance type, one column per region. A cell contains a price and the code of
//! its source.

use plimsoll_model::money::MicroUsdPerHour;
use std::fmt;

const TABLE: &str = include_str!("../../data/on-demand-prices.tsv");

/// Source of a built-in on-demand price.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PriceSource {
    /// Published by EC2, read in 2026-07.
    Published,
    /// Published by EC2, read in 2025-03.
    Recorded,
    /// The price in us-east-1 times the price ratio of the type's family between the regions.
    FamilyRatio,
    /// An estimate.
    Estimate,
}

impl PriceSource {
    /// Short name for tables.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Published => "published",
            Self::Recorded => "recorded",
            Self::FamilyRatio => "family-ratio",
            Self::Estimate => "estimate",
        }
    }

    /// Month of the price, if it was published.
    #[must_use]
    pub fn as_of(self) -> Option<&'static str> {
        match self {
            Self::Published => Some(super::PRICES_AS_OF),
            Self::Recorded => Some("2025-03"),
            Self::FamilyRatio | Self::Estimate => None,
        }
    }

    fn of_mark(mark: &str) -> Option<Self> {
        match mark {
            "p" => Some(Self::Published),
            "r" => Some(Self::Recorded),
            "f" => Some(Self::FamilyRatio),
            "e" => Some(Self::Estimate),
            _ => None,
        }
    }
}

impl fmt::Display for PriceSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Price of an instance type in a region.
pub(super) struct Row {
    pub(super) instance_type: &'static str,
    pub(super) price: MicroUsdPerHour,
    pub(super) source: PriceSource,
}

/// Prices of a region, by instance type.
pub(super) fn of_region(region: &str) -> impl Iterator<Item = Row> {
    let mut lines = TABLE.lines().skip_while(|line| line.starts_with('#'));
    let column = lines.next().and_then(|heading| heading.split('\t').position(|cell| cell == region));
    lines.filter_map(move |line| {
        let (price, source) = cell(line.split('\t').nth(column?)?)?;
        Some(Row { instance_type: line.split('\t').next()?, price, source })
    })
}

fn cell(text: &str) -> Option<(MicroUsdPerHour, PriceSource)> {
    let (price, mark) = text.split_at_checked(text.len().checked_sub(1)?)?;
    Some((MicroUsdPerHour::from_usd(price.parse().ok()?)?, PriceSource::of_mark(mark)?))
}

#[cfg(test)]
mod tests {
    use super::{TABLE, cell};

    #[test]
    fn every_cell_is_empty_or_a_price_with_a_mark() {
        let mut priced = 0;
        for line in TABLE.lines().skip_while(|line| line.starts_with('#')).skip(1) {
            let cells: Vec<&str> = line.split('\t').skip(1).collect();
            assert_eq!(cells.len(), 4, "{line}");
            for text in cells.into_iter().filter(|text| !text.is_empty()) {
                assert!(cell(text).is_some_and(|(price, _)| price.0 > 0), "{line}: {text}");
                priced += 1;
            }
        }
        assert_eq!(priced, PRICE_COUNT);
    }

    /// Number of prices in the table.
    const PRICE_COUNT: usize = 4571;
}
