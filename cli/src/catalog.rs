//! `plimsoll catalog`.

use crate::{CommandError, commands, output};
use clap::{Args, ValueEnum};
use plimsoll_catalog::{NodeClassSettings, builtin, file};
use plimsoll_model::catalog::{CapacityType, Catalog, InstanceType};
use plimsoll_model::quantity::format_amount;
use plimsoll_model::resources::{CPU, MEMORY, PODS};

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The region.
    #[arg(long, default_value_t = commands::default_region())]
    region: String,
    /// How it is printed.
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    output: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// One line for each instance type.
    Table,
    /// The form that a catalog file has.
    Json,
}

pub(crate) fn run(arguments: &Arguments) -> Result<String, CommandError> {
    let catalog = builtin::catalog(&arguments.region, &NodeClassSettings::default())
        .map_err(|error| CommandError::BadInput(error.to_string()))?;
    Ok(match arguments.output {
        Format::Json => file::render(&catalog),
        Format::Table => table(&catalog),
    })
}

fn table(catalog: &Catalog) -> String {
    let headings = ["NAME", "ARCH", "CPU", "MEMORY", "PODS", "ON-DEMAND", "SPOT FROM", "ZONES"];
    let mut table = output::table(&headings);
    for it in &catalog.instance_types {
        let amount = |name| format_amount(name, it.capacity.get(name));
        let zones: std::collections::BTreeSet<&str> = it.offerings.iter().map(|offer| offer.zone.as_str()).collect();
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
