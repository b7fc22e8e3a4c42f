//! Selects a part of a catalog by name and by labels, with the syntax of kubectl.

use plimsoll_model::catalog::{Catalog, InstanceType, Offering};
use plimsoll_model::names::label;
use plimsoll_model::requirements::{NodeSelectorRequirement, Operator, Requirement};
use std::str::FromStr;

/// Selection criteria.
pub(super) struct Filter<'arguments> {
    /// Patterns for names, of which one must match; empty for all names.
    pub(super) names: &'arguments [String],
    /// Label selector.
    pub(super) selector: Option<&'arguments Selector>,
}

impl Filter<'_> {
    /// Removes types that do not match, and offerings that do not match from the other types.
    pub(super) fn apply(&self, mut catalog: Catalog) -> Catalog {
        catalog.instance_types.retain_mut(|it| {
            if !self.names.is_empty() && !self.names.iter().any(|pattern| matches(pattern, &it.name)) {
                return false;
            }
            let Some(Selector(terms)) = self.selector else { return true };
            let (of_offering, of_type): (Vec<&Term>, Vec<&Term>) =
                terms.iter().partition(|term| is_of_offering(&term.key));
            it.offerings.retain(|offering| of_offering.iter().all(|term| term.holds(of_one(offering, &term.key))));
            of_type.iter().all(|term| term.holds(value(it, &term.key, &catalog.region))) && !it.offerings.is_empty()
        });
        catalog
    }
}

fn is_of_offering(key: &str) -> bool {
    [label::ZONE, label::ZONE_ID, label::CAPACITY_TYPE].contains(&key)
}

fn of_one<'offering>(offering: &'offering Offering, key: &str) -> Option<&'offering str> {
    match key {
        label::ZONE => Some(&offering.zone),
        label::ZONE_ID => Some(&offering.zone_id),
        _ => Some(offering.capacity_type.as_str()),
    }
}

fn value<'catalog>(it: &'catalog InstanceType, key: &str, region: &'catalog str) -> Option<&'catalog str> {
    match key {
        label::INSTANCE_TYPE => Some(&it.name),
        label::ARCH => Some(&it.architecture),
        label::OS => it.operating_systems.first().map(String::as_str),
        label::REGION => Some(region),
        _ => it.labels.get(key).map(String::as_str),
    }
}

/// Whether `pattern` matches all of `text`; `*` matches any characters, and `?` one character.
fn matches(pattern: &str, text: &str) -> bool {
    // Position of the last star, and the length of its match so far, for backtracking.
    let (pattern, text): (Vec<char>, Vec<char>) = (pattern.chars().collect(), text.chars().collect());
    let (mut at, mut read, mut star) = (0, 0, None);
    while read < text.len() {
        match pattern.get(at) {
            Some('*') => {
                star = Some((at, read));
                at += 1;
            }
            Some(letter) if *letter == '?' || Some(letter) == text.get(read) => {
                at += 1;
                read += 1;
            }
            _ => {
                let Some((place, taken)) = star else { return false };
                star = Some((place, taken + 1));
                at = place + 1;
                read = taken + 1;
            }
        }
    }
    pattern.iter().skip(at).all(|letter| *letter == '*')
}

/// Label requirements, of which all must hold.
#[derive(Debug, Clone)]
pub(super) struct Selector(Vec<Term>);

#[derive(Debug, Clone)]
struct Term {
    key: String,
    requirement: Requirement,
}

impl Term {
    fn holds(&self, value: Option<&str>) -> bool {
        value.map_or_else(|| self.requirement.allows_absence(), |value| self.requirement.has(value))
    }
}

impl FromStr for Selector {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        terms(text).into_iter().map(term).collect::<Result<_, _>>().map(Self)
    }
}

/// The parts between commas outside of parentheses.
fn terms(text: &str) -> Vec<&str> {
    let mut depth = 0_usize;
    let separates = |letter: char| {
        match letter {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        letter == ',' && depth == 0
    };
    text.split(separates).map(str::trim).collect()
}

fn term(text: &str) -> Result<Term, String> {
    /// Longer operators come before their prefixes.
    const SIGNS: [(&str, Operator); 7] = [
        ("!=", Operator::NotIn),
        ("==", Operator::In),
        (">=", Operator::Gte),
        ("<=", Operator::Lte),
        ("=", Operator::In),
        (">", Operator::Gt),
        ("<", Operator::Lt),
    ];
    let first = SIGNS.into_iter().filter_map(|(sign, operator)| Some((text.find(sign)?, sign, operator)));
    // The first operator in the string, and among those at the same position the longest.
    let found = first.min_by_key(|(place, sign, _)| (*place, usize::MAX - sign.len()));
    let (key, operator, values) = match found {
        Some((place, sign, operator)) => {
            let value = text.get(place + sign.len()..).unwrap_or_default();
            (text.get(..place).unwrap_or_default(), operator, vec![value.trim()])
        }
        None => set(text)?,
    };
    let key = key.trim();
    if key.is_empty() || key.contains(char::is_whitespace) {
        return Err(format!("{text:?} is not a requirement on a label"));
    }
    let requirement = Requirement::new(&NodeSelectorRequirement::new(key, operator, values));
    Ok(Term { key: key.to_owned(), requirement: requirement.map_err(|error| format!("{text:?}: {error}"))? })
}

/// Parses `k in (a,b)`, `k notin (a,b)`, `!k` and `k`.
fn set(text: &str) -> Result<(&str, Operator, Vec<&str>), String> {
    if let Some(key) = text.strip_prefix('!') {
        return Ok((key, Operator::DoesNotExist, Vec::new()));
    }
    let Some((before, values)) = text.split_once('(') else { return Ok((text, Operator::Exists, Vec::new())) };
    let wrong = || format!("{text:?} is not of the form: key in (a,b)");
    let (key, word) = before.trim().rsplit_once(char::is_whitespace).ok_or_else(wrong)?;
    let operator = match word {
        "in" => Operator::In,
        "notin" => Operator::NotIn,
        _ => return Err(wrong()),
    };
    let values = values.trim_end().strip_suffix(')').ok_or_else(wrong)?;
    Ok((key, operator, values.split(',').map(str::trim).collect()))
}

#[cfg(test)]
mod tests;
