//! `plimsoll catalog`.

mod filter;

use crate::CommandError;
use crate::output::{self, Format};
use clap::Args;
use filter::{Filter, Selector};
use plimsoll_catalog::{NodeClassSettings, builtin, file};
use plimsoll_model::catalog::{CapacityType, Catalog, InstanceType};
use plimsoll_model::quantity::format_amount;
use plimsoll_model::resources::{CPU, MEMORY, PODS};
use std::collections::BTreeSet;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Names of instance types; * stands for any letters, ? for one [default: all]
    #[arg(value_name = "TYPE")]
    names: Vec<String>,
    /// Labels that types and their offerings must have: k=v, k!=v, k in (a,b), k notin (a,b), k, !k, k<8, k<=8, k>8, k>=8; with commas between
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    selector: Option<Selector>,
    /// The region.
    #[arg(long, default_value = "us-east-1")]
    region: String,
    /// How it is printed; json is what --catalog of `plimsoll plan` takes.
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    output: Format,
}

pub(crate) fn run(arguments: &Arguments) -> Result<String, CommandError> {
    let catalog = builtin::catalog(&arguments.region, &NodeClassSettings::default())
        .map_err(|error| CommandError::BadInput(error.to_string()))?;
    let filter = Filter { names: &arguments.names, selector: arguments.selector.as_ref() };
    let catalog = filter.apply(catalog);
    if catalog.instance_types.is_empty() {
        output::hint("no instance type is like that");
    }
    match arguments.output {
        Format::Json => Ok(file::render(&catalog)),
        Format::Yaml => output::yaml(&file::to_value(&catalog)),
        Format::Table => Ok(table(&catalog)),
    }
}

fn table(catalog: &Catalog) -> String {
    let headings = ["NAME", "ARCH", "CPU", "MEMORY", "PODS", "ON-DEMAND", "SPOT FROM", "ZONES"];
    let mut table = output::table(&headings);
    for it in &catalog.instance_types {
        let amount = |name| format_amount(name, it.capacity.get(name));
        let zones: BTreeSet<&str> = it.offerings.iter().map(|offer| offer.zone.as_str()).collect();
        table.add_row([
            it.name.clone(),
            it.architecture.clone(),
            amount(CPU),
            amount(MEMORY),
            amount(PODS),
            cheapest(it, CapacityType::OnDemand),
            cheapest(it, CapacityType::Spot),
            zones.len().to_string(),
        ]);
    }
    output::render(&table)
}

/// The lowest price in USD per hour, `-` where it is not offered.
fn cheapest(it: &InstanceType, capacity_type: CapacityType) -> String {
    let offers = it.offerings.iter().filter(|offer| offer.capacity_type == capacity_type);
    offers.map(|offer| offer.price).min().map_or_else(|| "-".to_owned(), |price| price.to_string())
}
