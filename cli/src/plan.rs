//! `plimsoll plan`.

mod render;

use crate::{CommandError, commands, manifests};
use clap::{Args, ValueEnum};
use plimsoll_catalog::{NodeClassSettings, builtin, file};
use plimsoll_model::catalog::Catalog;
use plimsoll_model::identity::CatalogId;
use plimsoll_model::plan::PlanOptions;
use plimsoll_model::time::Timestamp;
use plimsoll_snapshot::{Extra, Objects, Source};
use std::collections::BTreeMap;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Manifests: a file, a folder or - for stdin.
    #[arg(short, long = "filename", value_name = "PATH", required = true, num_args = 1..)]
    filename: Vec<PathBuf>,
    /// A catalog file, in place of the built-in catalog.
    #[arg(long, value_name = "FILE")]
    catalog: Option<PathBuf>,
    /// The region of the built-in catalog.
    #[arg(long, default_value_t = commands::default_region())]
    region: String,
    /// How the plan is printed.
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    output: Format,
    /// The time to plan for (RFC 3339) in place of the present.
    #[arg(long)]
    now: Option<jiff::Timestamp>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people.
    Table,
    /// For programs.
    Json,
    /// The same as YAML.
    Yaml,
}

pub(crate) fn run(arguments: &Arguments) -> Result<String, CommandError> {
    let bad_input = |error: String| CommandError::BadInput(error);
    let catalog = arguments.catalog.as_ref().map(read_catalog).transpose()?;
    let manifests = manifests::read(&arguments.filename, &mut std::io::stdin().lock())
        .map_err(|error| bad_input(error.to_string()))?;
    crate::output::note_ignored(&manifests.ignored);
    let (catalogs, by_class) = catalogs(&manifests.objects, catalog, &arguments.region)?;
    let now = arguments.now.unwrap_or_else(jiff::Timestamp::now);
    let extra =
        Extra { source: Source::Files, now: Timestamp(now.as_millisecond()), catalogs: by_class, ..Extra::default() };
    let (snapshot, problems) = plimsoll_snapshot::build(&manifests.objects, &extra);
    if let Some(problem) = problems.first() {
        return Err(bad_input(problem.to_string()));
    }
    let plan = plimsoll_solver::solve(&snapshot, &catalogs, &PlanOptions::default());
    let failed = |error: String| CommandError::Failed(error);
    match arguments.output {
        Format::Table => Ok(render::table(&plan)),
        Format::Json => serde_json::to_string_pretty(&render::plan(&plan))
            .map(|text| text + "\n")
            .map_err(|error| failed(error.to_string())),
        Format::Yaml => serde_saphyr::to_string(&render::plan(&plan)).map_err(|error| failed(error.to_string())),
    }
}

fn read_catalog(path: &PathBuf) -> Result<Catalog, CommandError> {
    let problem = |error: String| CommandError::BadInput(format!("catalog {}: {error}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| problem(error.to_string()))?;
    file::parse(&text).map_err(|error| problem(error.to_string()))
}

type Catalogs = (BTreeMap<CatalogId, Catalog>, BTreeMap<String, CatalogId>);

/// A file stands for what every node class offers; else each class has its own view of the built-in catalog.
fn catalogs(objects: &Objects, file: Option<Catalog>, region: &str) -> Result<Catalogs, CommandError> {
    let (mut catalogs, mut by_class) = (BTreeMap::new(), BTreeMap::new());
    for class in &objects.node_classes {
        let catalog = match &file {
            Some(catalog) => catalog.clone(),
            None => builtin::catalog(region, &NodeClassSettings::from(&class.spec))
                .map_err(|error| CommandError::BadInput(error.to_string()))?,
        };
        let id = catalog.id();
        catalogs.insert(id.clone(), catalog);
        by_class.insert(class.metadata.name.clone().unwrap_or_default(), id);
    }
    Ok((catalogs, by_class))
}
