//! Prices: the origin of a catalog's prices, and custom price lists.

use crate::CommandError;
use plimsoll_catalog::builtin::{self, PriceSource};
use plimsoll_model::catalog::{CapacityType, Catalog, InstanceType, Offering};
use plimsoll_model::money::MicroUsdPerHour;
use plimsoll_model::similar;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Maximum number of lines of a price list: ten times all types, zones and capacity types of a region.
const MAX_LINES: usize = 200_000;
/// Matches every zone.
const ANY_ZONE: &str = "*";
/// Spreadsheets and shells of Windows write it at the start of a file.
pub(crate) const BYTE_ORDER_MARK: char = '\u{feff}';
/// Maximum number of listed instance types and unmatched lines.
const SHOWN: usize = 3;

/// Custom prices.
#[derive(Debug, Clone)]
pub(crate) struct PriceList {
    path: PathBuf,
    /// By type, zone (or [`ANY_ZONE`]) and capacity type.
    rows: BTreeMap<(String, String, CapacityType), Row>,
}

#[derive(Debug, Clone, Copy)]
struct Row {
    line: usize,
    price: MicroUsdPerHour,
}

impl PriceList {
    /// Reads the price list at `path`.
    pub(crate) fn read(path: &Path) -> Result<Self, CommandError> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| CommandError::BadInput(format!("prices {}: {error}", path.display())))?;
        Self::parse(path, &text)
    }

    fn parse(path: &Path, text: &str) -> Result<Self, CommandError> {
        let mut rows = BTreeMap::new();
        let text = text.trim_start_matches(BYTE_ORDER_MARK);
        for (number, content) in text.lines().enumerate() {
            let line = number + 1;
            let problem = |field: &str, problem: String| {
                CommandError::BadInput(format!("prices {}: line {line}: {field}: {problem}", path.display()))
            };
            if line > MAX_LINES {
                return Err(problem("file", format!("has more than {MAX_LINES} lines")));
            }
            let content = content.split('#').next().unwrap_or_default();
            let fields: Vec<&str> = content.split_whitespace().collect();
            let (instance_type, zone, capacity_type, price) = match fields.as_slice() {
                [] => continue,
                [instance_type, zone, capacity_type, price] => (*instance_type, *zone, *capacity_type, *price),
                other => {
                    let text = format!(
                        "expected instance type, zone, capacity type and USD per hour, found {} fields",
                        other.len()
                    );
                    return Err(problem("fields", text));
                }
            };
            let capacity_type = CapacityType::parse(capacity_type).ok_or_else(|| {
                problem("capacity type", unknown(capacity_type, &CapacityType::ALL.map(CapacityType::as_str)))
            })?;
            let price =
                price.parse().ok().and_then(MicroUsdPerHour::from_usd).ok_or_else(|| {
                    problem("price", format!("{price:?} is not a price in USD per hour (0 to 1000000)"))
                })?;
            let key = (instance_type.to_owned(), zone.to_owned(), capacity_type);
            if let Some(first) = rows.insert(key, Row { line, price }) {
                return Err(problem(
                    "instance type",
                    format!("{instance_type} {zone} {capacity_type} is also in line {}", first.line),
                ));
            }
        }
        Ok(Self { path: path.to_owned(), rows })
    }

    /// Applies the prices to the catalog.
    pub(crate) fn apply(&self, catalog: &mut Catalog) {
        for instance_type in &mut catalog.instance_types {
            for offering in &mut instance_type.offerings {
                if let Some(price) = self.price(&instance_type.name, offering) {
                    offering.price = price;
                }
            }
        }
    }

    /// The price of a zone takes precedence over the price of all zones.
    fn price(&self, instance_type: &str, offering: &Offering) -> Option<MicroUsdPerHour> {
        let of_zone = |zone: &str| self.rows.get(&(instance_type.to_owned(), zone.to_owned(), offering.capacity_type));
        of_zone(&offering.zone).or_else(|| of_zone(ANY_ZONE)).map(|row| row.price)
    }

    /// Lines that match no offering of `catalogs`, with suggestions.
    pub(crate) fn unused(&self, catalogs: &[&Catalog]) -> Vec<String> {
        let is_of = |row: &(String, String, CapacityType), instance_type: &InstanceType| {
            let offers = |it: &Offering| it.capacity_type == row.2 && (row.1 == ANY_ZONE || row.1 == it.zone);
            instance_type.offerings.iter().any(offers)
        };
        let mut unused: Vec<(usize, String)> = Vec::new();
        for (key, row) in &self.rows {
            if catalogs.iter().filter_map(|catalog| catalog.get(&key.0)).any(|it| is_of(key, it)) {
                continue;
            }
            let types = || catalogs.iter().flat_map(|catalog| &catalog.instance_types).map(|it| it.name.as_str());
            let meant = similar::nearest(&key.0, types()).map(|it| format!("; did you mean {it}?")).unwrap_or_default();
            unused.push((row.line, format!("{} {} {} is not offered{meant}", key.0, key.1, key.2)));
        }
        unused.sort();
        let more = unused.len().saturating_sub(SHOWN);
        let line = |(line, text): (usize, String)| format!("prices {}: line {line}: {text}", self.path.display());
        let mut told: Vec<String> = unused.into_iter().take(SHOWN).map(line).collect();
        if more > 0 {
            told.push(format!("prices {}: {more} more lines are not about the catalog", self.path.display()));
        }
        told
    }
}

/// `"ondemand" is unknown; did you mean on-demand?`, or a list of the known names.
pub(crate) fn unknown(text: &str, known: &[&str]) -> String {
    match similar::nearest(text, known.iter().copied()) {
        Some(nearest) => format!("{text:?} is unknown; did you mean {nearest}?"),
        None => format!("{text:?} is unknown; there is {}", known.join(", ")),
    }
}

/// Origin of the prices.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct PriceOrigin {
    /// The region of the built-in catalog; `None` with a catalog file.
    pub(crate) region: Option<String>,
    /// The catalog file.
    pub(crate) file: Option<PathBuf>,
    /// The price list.
    pub(crate) list: Option<PathBuf>,
}

impl PriceOrigin {
    /// Source and date of the prices of `types` in one line; `spot` tells whether there are Spot prices.
    pub(crate) fn note<'t>(&self, types: impl IntoIterator<Item = &'t str>, spot: bool) -> String {
        let mut parts = Vec::new();
        parts.extend(self.list.as_ref().map(|list| format!("{} where it has the offering", list.display())));
        parts.extend(self.file.as_ref().map(|file| format!("catalog {}", file.display())));
        if let Some(region) = &self.region {
            parts.push(format!("On-Demand in {region} {}", on_demand_sources(region, types)));
            if spot {
                parts.push("Spot synthetic, 25 to 60 % of On-Demand (--prices FILE gives your own)".to_owned());
            }
        }
        if parts.is_empty() { String::new() } else { format!("Prices: {}.", parts.join("; ")) }
    }
}

/// Sources of the On-Demand prices of the types.
fn on_demand_sources<'t>(region: &str, types: impl IntoIterator<Item = &'t str>) -> String {
    let sources = builtin::price_sources(region).unwrap_or_default();
    let mut by_source: BTreeMap<PriceSource, BTreeSet<&str>> = BTreeMap::new();
    for name in types {
        by_source.entry(sources.get(name).copied().unwrap_or(PriceSource::Estimate)).or_default().insert(name);
    }
    let several = by_source.len() > 1;
    let part = |(source, names): (PriceSource, BTreeSet<&str>)| {
        let what = match (source, source.as_of()) {
            (_, Some(month)) => format!("as EC2 published it in {month}"),
            (PriceSource::FamilyRatio, None) => "derived from us-east-1 by family".to_owned(),
            (_, None) => "estimated".to_owned(),
        };
        if several { format!("{what} ({})", some_of(&names)) } else { what }
    };
    by_source.into_iter().map(part).collect::<Vec<String>>().join(", ")
}

fn some_of(names: &BTreeSet<&str>) -> String {
    let shown: Vec<&str> = names.iter().copied().take(SHOWN).collect();
    match names.len().saturating_sub(SHOWN) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<PriceList, String> {
        PriceList::parse(Path::new("prices.tsv"), text).map_err(|error| error.to_string())
    }

    #[test]
    fn a_zone_s_own_price_comes_first_and_the_rest_is_left() {
        let list =
            parse("# type zone how price\nm5.large\t*\tspot\t0.04\n\nm5.large us-east-1b spot 0.03 # measured\n")
                .unwrap();
        let mut catalog = builtin::catalog("us-east-1", &plimsoll_catalog::NodeClassSettings::default()).unwrap();
        let before = catalog.get("m5.large").unwrap().clone();
        list.apply(&mut catalog);
        for (old, new) in before.offerings.iter().zip(&catalog.get("m5.large").unwrap().offerings) {
            let expected = match (new.capacity_type, new.zone.as_str()) {
                (CapacityType::Spot, "us-east-1b") => 30_000,
                (CapacityType::Spot, _) => 40_000,
                _ => old.price.0,
            };
            assert_eq!(new.price.0, expected, "{new:?}");
        }
        assert_eq!(list.unused(&[&catalog]), Vec::<String>::new());
    }

    #[test]
    fn files_of_spreadsheets_are_read() {
        let of = |text: &str| parse(text).unwrap().rows.into_keys().collect::<Vec<_>>();
        assert_eq!(of("\u{feff}m5.large\t*\tspot\t0.04\r\n"), of("m5.large * spot 0.04\n"));
    }

    #[test]
    fn faults_name_line_and_field() {
        let fault = |text: &str| parse(text).unwrap_err();
        assert_eq!(
            fault("m5.large * spot\n"),
            "prices prices.tsv: line 1: fields: expected instance type, zone, capacity type and USD per hour, found 3 fields"
        );
        assert_eq!(
            fault("\nm5.large * ondemand 1\n"),
            "prices prices.tsv: line 2: capacity type: \"ondemand\" is unknown; did you mean on-demand?"
        );
        assert_eq!(
            fault("m5.large * spot -1\n"),
            "prices prices.tsv: line 1: price: \"-1\" is not a price in USD per hour (0 to 1000000)"
        );
        assert_eq!(
            fault("m5.large * spot 1\nm5.large * spot 2\n"),
            "prices prices.tsv: line 2: instance type: m5.large * spot is also in line 1"
        );
    }

    #[test]
    fn lines_about_nothing_are_told() {
        let catalog = builtin::catalog("us-east-1", &plimsoll_catalog::NodeClassSettings::default()).unwrap();
        let list = parse("m5.lrage * spot 1\nm5.large moon-1a spot 1\n").unwrap();
        let expected = [
            "prices prices.tsv: line 1: m5.lrage * spot is not offered; did you mean m5.large?",
            "prices prices.tsv: line 2: m5.large moon-1a spot is not offered",
        ];
        assert_eq!(list.unused(&[&catalog]), expected);
    }

    #[test]
    fn the_note_says_source_and_date() {
        let origin = PriceOrigin { region: Some("us-east-1".to_owned()), ..PriceOrigin::default() };
        assert_eq!(origin.note(["m5.large"], false), "Prices: On-Demand in us-east-1 as EC2 published it in 2026-07.");
        let ireland = PriceOrigin { region: Some("eu-west-1".to_owned()), list: Some("own.tsv".into()), ..origin };
        let note = ireland.note(["a1.large", "a1.2xlarge"], true);
        let expected = "Prices: own.tsv where it has the offering; On-Demand in eu-west-1 as EC2 published it in 2025-03 (a1.large), \
                        derived from us-east-1 by family (a1.2xlarge); Spot synthetic, 25 to 60 % of On-Demand (--prices FILE gives your own).";
        assert_eq!(note, expected);
    }
}
