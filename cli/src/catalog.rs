//! `plimsoll catalog`.

mod filter;

use crate::CommandError;
use crate::input::DEFAULT_REGION;
use crate::output::{self, Format};
use crate::prices::{BYTE_ORDER_MARK, PriceList, PriceOrigin};
use clap::Args;
use filter::{Filter, Selector};
use plimsoll_catalog::aws_cli::AwsCliOutput;
use plimsoll_catalog::{NodeClassSettings, builtin, file};
use plimsoll_model::catalog::{CapacityType, Catalog, InstanceType};
use plimsoll_model::quantity::format_amount;
use plimsoll_model::resources::{CPU, MEMORY, PODS};
use std::collections::BTreeSet;
use std::fmt::Display;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Names of instance types; * matches any letters, ? matches one [default: all]
    #[arg(value_name = "TYPE")]
    names: Vec<String>,
    /// Labels that types and their offerings must have: k=v, k!=v, k in (a,b), k notin (a,b), k, !k, k<8, k<=8, k>8,
    /// k>=8; with commas between
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    selector: Option<Selector>,
    /// The region [default: us-east-1, or that of --from-aws]
    #[arg(long)]
    region: Option<String>,
    /// Output of the AWS CLI (--output json) instead of the built-in data: describe-instance-types,
    /// describe-instance-type-offerings, describe-spot-price-history, describe-availability-zones of ec2, get-products
    /// of pricing; - for stdin.
    #[arg(long, value_name = "FILE", num_args = 1..)]
    from_aws: Vec<PathBuf>,
    /// Prices instead of the catalog's: lines of instance type, zone (or *), capacity type and USD per hour.
    #[arg(long, value_name = "FILE")]
    prices: Option<PathBuf>,
    /// Output format; json is the format of --catalog of `plimsoll plan`.
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    output: Format,
}

pub(crate) fn run(arguments: &Arguments) -> Result<String, CommandError> {
    let (mut catalog, mut origin) = read(arguments)?;
    if let Some(path) = &arguments.prices {
        let prices = PriceList::read(path)?;
        prices.apply(&mut catalog);
        prices.unused(&[&catalog]).iter().for_each(|hint| output::hint(hint));
        origin.list = Some(path.clone());
    }
    let filter = Filter { names: &arguments.names, selector: arguments.selector.as_ref() };
    let catalog = filter.apply(catalog);
    if catalog.instance_types.is_empty() {
        output::hint("no instance type is like that");
    }
    match arguments.output {
        Format::Json => Ok(file::render(&catalog)),
        Format::Yaml => output::yaml(&file::to_value(&catalog)),
        Format::Table => Ok(table(&catalog) + &note(&catalog, &origin)),
    }
}

/// The whole catalog, and the origin of its prices.
fn read(arguments: &Arguments) -> Result<(Catalog, PriceOrigin), CommandError> {
    let region = arguments.region.as_deref();
    let settings = NodeClassSettings::default();
    if arguments.from_aws.is_empty() {
        let region = region.unwrap_or(DEFAULT_REGION);
        let catalog = builtin::catalog(region, &settings).map_err(|error| CommandError::BadInput(error.to_string()))?;
        return Ok((catalog, PriceOrigin { region: Some(region.to_owned()), ..PriceOrigin::default() }));
    }
    let mut output = AwsCliOutput::default();
    for path in &arguments.from_aws {
        let problem = |error: &dyn Display| CommandError::BadInput(format!("{}: {error}", path.display()));
        let text = if path.as_os_str() == "-" {
            std::io::read_to_string(std::io::stdin().lock())
        } else {
            std::fs::read_to_string(path)
        };
        let text = text.map_err(|error| problem(&error))?;
        output.add(text.trim_start_matches(BYTE_ORDER_MARK)).map_err(|error| problem(&error))?;
    }
    let catalog = output.catalog(region, &settings);
    let catalog = catalog.map_err(|error| CommandError::BadInput(format!("--from-aws: {error}")))?;
    Ok((catalog, PriceOrigin::default()))
}

/// Source and date of the prices, after a blank line.
fn note(catalog: &Catalog, origin: &PriceOrigin) -> String {
    let types = catalog.instance_types.iter();
    let spot = types.clone().flat_map(|it| &it.offerings).any(|offer| offer.capacity_type == CapacityType::Spot);
    let note = origin.note(types.map(|it| it.name.as_str()), spot);
    if note.is_empty() || catalog.instance_types.is_empty() { String::new() } else { format!("\n{note}\n") }
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

/// The lowest price in USD per hour; `-` if there is no offering.
fn cheapest(it: &InstanceType, capacity_type: CapacityType) -> String {
    let offers = it.offerings.iter().filter(|offer| offer.capacity_type == capacity_type);
    offers.map(|offer| offer.price).min().map_or_else(|| "-".to_owned(), |price| price.to_string())
}
