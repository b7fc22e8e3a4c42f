//! Capacity that EC2 lacks: rules that a user adds and removes.

use super::print;
use super::state::Home;
use crate::harness::cloud::Cloud;
use anyhow::{Context as _, Result, bail};
use clap::ValueEnum as _;
use serde::{Deserialize, Serialize};
use serde_json::json;

const ANY: &str = "*";
/// Error code of EC2 without capacity.
const CODE: &str = "InsufficientInstanceCapacity";

/// Change of the capacity.
#[derive(clap::Subcommand, Debug)]
pub(super) enum Change {
    /// Remove the capacity of these pools.
    Take(Pools),
    /// Restore capacity: removes all rules within these pools.
    Give(Pools),
}

/// Capacity pools of EC2.
#[derive(clap::Args, Clone, Debug)]
pub(super) struct Pools {
    /// spot, on-demand or *.
    #[arg(value_name = "spot|on-demand|*", value_parser = capacity_type)]
    capacity_type: String,
    /// Instance type, such as m7i.large, or *.
    #[arg(value_name = "TYPE")]
    instance_type: String,
    /// Zone, such as us-east-1a, or *.
    zone: String,
}

#[derive(clap::ValueEnum, Clone, Copy, Debug)]
enum CapacityType {
    Spot,
    OnDemand,
}

/// A rule in the format of tests/ec2.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Rule {
    capacity_type: String,
    instance_type: String,
    zone: String,
    left: u64,
    code: String,
}

/// # Errors
/// If no world runs, if the region has no such type or zone, or if there is nothing to restore.
pub(super) fn run(home: &Home, change: Option<&Change>) -> Result<()> {
    let (_, parts) = home.find_parts()?;
    let mut rules = rules(&parts.cloud)?;
    match change {
        None => {}
        Some(Change::Take(pools)) => {
            check(pools, &parts.cloud.region, &parts.cloud.zones())?;
            take(&mut rules, pools);
        }
        Some(Change::Give(pools)) => give(&mut rules, pools)?,
    }
    if change.is_some() {
        parts.cloud.faults(&json!({ "capacity": rules }))?;
    }
    print(&describe(&rules))
}

fn rules(cloud: &Cloud) -> Result<Vec<Rule>> {
    let faults = cloud.current_faults()?;
    serde_json::from_value(faults["capacity"].clone()).context("EC2's rules of capacity")
}

/// The current rules, one per line.
pub(super) fn taken(cloud: &Cloud) -> Result<String> {
    Ok(describe(&rules(cloud)?))
}

fn describe(rules: &[Rule]) -> String {
    if rules.is_empty() {
        return "EC2 has capacity for everything.".to_owned();
    }
    let lines = rules.iter().map(Rule::describe).collect::<Vec<_>>();
    format!("EC2 has no capacity for:\n{}", lines.join("\n"))
}

/// Rejects typing errors, because such a rule would never apply.
fn check(pools: &Pools, region: &str, zones: &[String]) -> Result<()> {
    if pools.zone != ANY && !zones.contains(&pools.zone) {
        bail!("{}: the zones of {region} are {}", pools.zone, zones.join(", "));
    }
    let types = plimsoll_catalog::builtin::price_sources(region)?;
    if pools.instance_type != ANY && !types.contains_key(&pools.instance_type) {
        let family = pools.instance_type.split('.').next().unwrap_or_default();
        let near: Vec<&str> =
            types.keys().filter(|t| t.split('.').next() == Some(family)).map(String::as_str).collect();
        let near = if near.is_empty() { String::new() } else { format!("; of {family} there are {}", near.join(", ")) };
        bail!("{}: no such instance type is sold in {region}{near}", pools.instance_type);
    }
    Ok(())
}

/// Adds a rule, unless it exists.
fn take(rules: &mut Vec<Rule>, pools: &Pools) {
    let Pools { capacity_type, instance_type, zone } = pools.clone();
    let rule = Rule { capacity_type, instance_type, zone, left: 0, code: CODE.to_owned() };
    if !rules.contains(&rule) {
        rules.push(rule);
    }
}

fn give(rules: &mut Vec<Rule>, pools: &Pools) -> Result<()> {
    let before = rules.len();
    let current = describe(rules);
    rules.retain(|rule| !pools.contain(rule));
    if rules.len() == before {
        bail!("no such capacity was removed. {current}");
    }
    Ok(())
}

impl Pools {
    fn contain(&self, rule: &Rule) -> bool {
        let within = |all: &str, one: &str| all == ANY || all == one;
        within(&self.capacity_type, &rule.capacity_type)
            && within(&self.instance_type, &rule.instance_type)
            && within(&self.zone, &rule.zone)
    }
}

impl Rule {
    fn describe(&self) -> String {
        let Rule { capacity_type, instance_type, zone, left, .. } = self;
        let left = if *left > 0 { format!(", except {left}") } else { String::new() };
        format!("  {capacity_type} {instance_type} {zone}{left}")
    }
}

fn capacity_type(text: &str) -> Result<String> {
    if text != ANY && CapacityType::from_str(text, false).is_err() {
        bail!("spot, on-demand or * is needed");
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pools(words: &str) -> Pools {
        let mut words = words.split(' ').map(str::to_owned);
        let mut next = || words.next().unwrap_or_default();
        Pools { capacity_type: next(), instance_type: next(), zone: next() }
    }

    fn taken(all: &[&str]) -> Vec<Rule> {
        let mut rules = Vec::new();
        for words in all {
            take(&mut rules, &pools(words));
        }
        rules
    }

    #[test]
    fn a_rule_has_the_form_that_ec2_takes_and_gives() -> Result<()> {
        let rules = taken(&["spot m7i.large *", "spot m7i.large *"]);
        let form = json!([{"capacityType": "spot", "instanceType": "m7i.large", "zone": "*", "left": 0, "code": "InsufficientInstanceCapacity"}]);
        assert_eq!(serde_json::to_value(&rules)?, form);
        assert_eq!(serde_json::from_value::<Vec<Rule>>(form)?, rules);
        Ok(())
    }

    #[test]
    fn what_lies_within_is_given_back_and_nothing_else() -> Result<()> {
        let all = ["spot m7i.large us-east-1a", "spot * us-east-1a", "on-demand m7i.large us-east-1b"];
        for (give_back, left) in [
            ("* * *", vec![]),
            ("spot * *", vec![all[2]]),
            ("* m7i.large *", vec![all[1]]),
            ("spot * us-east-1a", vec![all[2]]),
            ("spot m7i.large us-east-1a", vec![all[1], all[2]]),
        ] {
            let mut rules = taken(&all);
            give(&mut rules, &pools(give_back))?;
            assert_eq!(rules, taken(&left), "{give_back}");
        }
        Ok(())
    }

    #[test]
    fn part_of_a_rule_cannot_be_given_back_and_the_rules_are_named() {
        let mut rules = taken(&["* * us-east-1a"]);
        let error = give(&mut rules, &pools("spot m7i.large us-east-1a")).map_err(|error| error.to_string());
        let expected = "no such capacity was removed. EC2 has no capacity for:\n  * * us-east-1a";
        assert_eq!(error, Err(expected.to_owned()));
        assert_eq!(rules.len(), 1);
    }

    #[test]
    fn what_the_region_does_not_have_is_refused() -> Result<()> {
        let zones = ["us-east-1a".to_owned(), "us-east-1b".to_owned()];
        let told = |words: &str| check(&pools(words), "us-east-1", &zones).map_err(|error| error.to_string());
        check(&pools("* m7i.large us-east-1b"), "us-east-1", &zones)?;
        check(&pools("spot * *"), "us-east-1", &zones)?;
        assert_eq!(
            told("spot * us-east-1z"),
            Err("us-east-1z: the zones of us-east-1 are us-east-1a, us-east-1b".to_owned())
        );
        let error = told("spot m7i.lagre *");
        assert!(error.as_ref().is_err_and(|e| e.contains("of m7i there are") && e.contains("m7i.large")), "{error:?}");
        assert!(capacity_type("reserved").is_err() && capacity_type("on-demand").is_ok() && capacity_type("*").is_ok());
        Ok(())
    }
}
