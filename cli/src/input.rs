//! Converts manifests to the question for a scheduler.

use crate::cluster::{self, ClusterArguments};
use crate::manifests::{Manifests, Offers};
use crate::prices::{BYTE_ORDER_MARK, PriceList, PriceOrigin};
use crate::progress::Progress;
use crate::{CommandError, hints, manifests, output};
use clap::Args;
use plimsoll_catalog::file;
use plimsoll_model::catalog::Catalog;
use plimsoll_model::identity::CatalogId;
use plimsoll_model::money::MicroUsdPerHour;
use plimsoll_model::plan::{MinValuesPolicy, PlanOptions, PreferencePolicy};
use plimsoll_model::snapshot::Snapshot;
use plimsoll_model::time::Timestamp;
use plimsoll_proto::catalog::v1 as wire;
use plimsoll_proto::scheduler::v1::explain_request::Subject;
use plimsoll_proto::scheduler::v1::{ExplainRequest, PlanRequest};
use plimsoll_snapshot::Objects;
use std::collections::BTreeMap;
use std::mem::take;
use std::path::{Path, PathBuf};

pub(crate) use manifests::DEFAULT_REGION;

/// Selects the catalog.
#[derive(Debug, Args)]
pub(crate) struct CatalogArguments {
    /// Catalog file to use instead of the built-in catalog; `plimsoll catalog -o json` prints one.
    #[arg(long, value_name = "FILE")]
    catalog: Option<PathBuf>,
    /// Region of the built-in catalog [default: us-east-1]
    #[arg(long, value_name = "REGION")]
    region: Option<String>,
    /// File with prices that replace those of the catalog: lines of instance type, zone (or *), capacity type and USD
    /// per hour.
    #[arg(long, value_name = "FILE")]
    prices: Option<PathBuf>,
}

impl CatalogArguments {
    fn price_list(&self) -> Result<Option<PriceList>, CommandError> {
        self.prices.as_deref().map(PriceList::read).transpose()
    }

    /// Origin of the prices.
    fn origin(&self, offers: &Offers) -> PriceOrigin {
        let region = match offers {
            Offers::Catalog(_) => None,
            Offers::Region(region) => Some(region.clone()),
        };
        PriceOrigin { region, file: self.catalog.clone(), list: self.prices.clone() }
    }
}

/// Objects, catalogs, and the request to the scheduler.
#[derive(Debug)]
pub(crate) struct Question {
    pub(crate) objects: Objects,
    pub(crate) snapshot: Snapshot,
    pub(crate) catalogs: BTreeMap<CatalogId, Catalog>,
    pub(crate) options: PlanOptions,
    pub(crate) prices: PriceOrigin,
    /// The manifests without their objects, which are in `objects`. They contain the location of each object, and why
    /// workloads have no pods.
    pub(crate) manifests: Manifests,
}

/// Policies for preferences and minimums.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct PolicyArguments {
    /// How preferences of pods are treated: Respect satisfies them while pods can be placed, Ignore drops them
    #[arg(long, default_value = "Respect", value_parser = preference_policy, value_name = "POLICY")]
    preference_policy: PreferencePolicy,
    /// How minValues of a NodePool that cannot be met are treated: Strict launches nothing, BestEffort uses the values
    /// available
    #[arg(long, default_value = "Strict", value_parser = min_values_policy, value_name = "POLICY")]
    min_values_policy: MinValuesPolicy,
    /// If hundreds of pods are pending, the largest share of them on one new node, in per cent; 100 means no limit
    #[arg(long, default_value_t = PlanOptions::default().max_share_per_node, value_parser = clap::value_parser!(u32).range(1..=100),
        value_name = "PERCENT")]
    max_share_per_node: u32,
    /// Minimum saving per evicted pod for consolidation, in US dollars per hour; 0 means no minimum
    #[arg(long, default_value_t = PlanOptions::default().min_saving_per_eviction, value_parser = MicroUsdPerHour::parse_usd,
        value_name = "USD")]
    min_saving_per_eviction: MicroUsdPerHour,
    /// Let consolidation replace Spot nodes by cheaper Spot nodes, one node only if 15 instance types are cheaper
    #[arg(long)]
    spot_to_spot_consolidation: bool,
}

impl PolicyArguments {
    /// The question with these policies.
    pub(crate) fn with(self, question: Question) -> Question {
        let Self {
            preference_policy,
            min_values_policy,
            max_share_per_node,
            min_saving_per_eviction,
            spot_to_spot_consolidation,
        } = self;
        let options = PlanOptions {
            preference_policy,
            min_values_policy,
            max_share_per_node,
            min_saving_per_eviction,
            spot_to_spot: spot_to_spot_consolidation,
            ..question.options
        };
        Question { options, ..question }
    }
}

fn preference_policy(text: &str) -> Result<PreferencePolicy, String> {
    PreferencePolicy::parse(text).ok_or_else(|| "must be Respect or Ignore".to_owned())
}

fn min_values_policy(text: &str) -> Result<MinValuesPolicy, String> {
    MinValuesPolicy::parse(text).ok_or_else(|| "must be Strict or BestEffort".to_owned())
}

impl Question {
    /// The request in wire format.
    pub(crate) fn request(&self) -> PlanRequest {
        PlanRequest {
            snapshot: Some((&self.snapshot).into()),
            catalogs: self.wire_catalogs(),
            options: Some((&self.options).into()),
            // A program to which the request is given may not know `like`.
            shared_lists: false,
        }
    }

    /// The request to explain a pod or a node.
    pub(crate) fn explain(&self, subject: Subject) -> ExplainRequest {
        ExplainRequest {
            snapshot: Some((&self.snapshot).into()),
            catalogs: self.wire_catalogs(),
            options: Some((&self.options).into()),
            subject: Some(subject),
        }
    }

    fn wire_catalogs(&self) -> Vec<wire::Catalog> {
        self.catalogs.values().map(Into::into).collect()
    }
}

/// The question for manifests, or without any for a cluster, and the default namespace.
pub(crate) fn read(
    paths: &[PathBuf],
    cluster: &ClusterArguments,
    catalog: &CatalogArguments,
    now: Option<jiff::Timestamp>,
) -> Result<(Question, String), CommandError> {
    if paths.is_empty() {
        let (objects, namespace) = cluster::read(cluster)?;
        return Ok((from_cluster(objects, catalog, now)?, namespace));
    }
    Ok((from_files(paths, catalog, now)?, "default".to_owned()))
}

/// The question for manifest files.
pub(crate) fn from_files(
    paths: &[PathBuf],
    arguments: &CatalogArguments,
    now: Option<jiff::Timestamp>,
) -> Result<Question, CommandError> {
    // The catalog is read first: if it is invalid, the command does not wait for stdin.
    let offers = offers(arguments, None)?;
    let prices = arguments.price_list()?;
    let progress = Progress::start("reading manifests");
    let mut manifests = manifests::read(paths, &mut std::io::stdin().lock())
        .map_err(|error| CommandError::BadInput(error.to_string()))?;
    let (ignored, files) = (take(&mut manifests.ignored), take(&mut manifests.files));
    let unknown_fields = take(&mut manifests.unknown_fields);
    let missing_classes = take(&mut manifests.missing_classes);
    progress.then("putting the cluster together");
    let question = from_manifests(manifests, &offers, prices.as_ref(), timestamp(now));
    drop(progress);
    let question = Question { prices: arguments.origin(&offers), ..question? };
    output::note("ignored", &ignored);
    hints::of_unknown_fields(&unknown_fields).iter().for_each(|hint| output::hint(hint));
    hints::of_missing_classes(&missing_classes).iter().for_each(|hint| output::hint(hint));
    hints::of_ignored_kinds(&ignored).iter().for_each(|hint| output::hint(hint));
    hints::of_empty_paths(paths, &files).iter().for_each(|hint| output::hint(hint));
    give_hints(&question, arguments, prices.as_ref());
    Ok(question)
}

fn give_hints(question: &Question, arguments: &CatalogArguments, prices: Option<&PriceList>) {
    let Question { objects, snapshot, catalogs, .. } = question;
    let from_file = arguments.catalog.is_some();
    let mut hints = hints::hints(snapshot, catalogs, from_file);
    hints.extend(hints::of_region(&objects.nodes, catalogs, from_file));
    if let (Some(_), Some(region)) = (&arguments.catalog, &arguments.region) {
        hints.push(format!("--region {region} has no effect beside --catalog"));
    }
    hints.extend(hints::misspelt(snapshot, catalogs));
    hints.extend(hints::tiny_memory(snapshot));
    hints.extend(hints::volume_conflicts(snapshot));
    hints.extend(hints::of_buffers(objects));
    hints.extend(hints::of_other_providers(&objects.node_pools));
    hints.extend(hints::of_unknown_annotations(&objects.node_pools));
    hints.extend(hints::of_idle_protection(objects));
    hints.extend(hints::of_variables(&objects.node_classes));
    hints.extend(hints::of_refused_classes(&objects.node_classes));
    let offers: Vec<&Catalog> = catalogs.values().collect();
    hints.extend(prices.into_iter().flat_map(|prices| prices.unused(&offers)));
    hints.iter().for_each(|hint| output::hint(hint));
}

/// The question for parsed manifests, without output.
pub(crate) fn from_manifests(
    mut manifests: Manifests,
    offers: &Offers,
    prices: Option<&PriceList>,
    now: Timestamp,
) -> Result<Question, CommandError> {
    let asked = manifests.question(offers, &reprice(prices), now).map_err(|error| bad_input(&error))?;
    let manifests::Question { snapshot, catalogs } = asked;
    let (options, prices) = (PlanOptions::default(), PriceOrigin::default());
    let objects = take(&mut manifests.objects);
    Ok(Question { objects, snapshot, catalogs, options, prices, manifests })
}

/// The question for a cluster's objects, and the objects that cannot be parsed.
fn from_cluster(
    objects: Objects,
    arguments: &CatalogArguments,
    now: Option<jiff::Timestamp>,
) -> Result<Question, CommandError> {
    let offers = offers(arguments, hints::region_of(&objects.nodes))?;
    let list = arguments.price_list()?;
    let (asked, problems) = manifests::cluster_question(&objects, &offers, &reprice(list.as_ref()), timestamp(now))
        .map_err(|error| bad_input(&error))?;
    let manifests::Question { snapshot, catalogs } = asked;
    for problem in &problems {
        let what = if problem.left_out { "left out" } else { "ignored" };
        output::warn(&format!("{what}: {problem}"));
    }
    let (options, prices) = (PlanOptions::default(), arguments.origin(&offers));
    let question = Question { objects, snapshot, catalogs, options, prices, manifests: Manifests::default() };
    give_hints(&question, arguments, list.as_ref());
    Ok(question)
}

fn timestamp(now: Option<jiff::Timestamp>) -> Timestamp {
    Timestamp(now.unwrap_or_else(jiff::Timestamp::now).as_millisecond())
}

fn bad_input(error: &dyn std::fmt::Display) -> CommandError {
    CommandError::BadInput(error.to_string())
}

/// Applies the prices of the list to a catalog.
fn reprice(prices: Option<&PriceList>) -> impl Fn(&mut Catalog) {
    move |catalog| prices.into_iter().for_each(|prices| prices.apply(catalog))
}

/// Source of the catalogs: a file, the given region, or the region that was `found`.
fn offers(arguments: &CatalogArguments, found: Option<String>) -> Result<Offers, CommandError> {
    match &arguments.catalog {
        Some(path) => catalog_file(path),
        None => Offers::of_region(arguments.region.clone().or(found)).map_err(|error| bad_input(&error)),
    }
}

/// Offers of the catalog file at `path`.
///
/// # Errors
///
/// If the file cannot be read, or is not a catalog.
pub fn catalog_file(path: &Path) -> Result<Offers, CommandError> {
    read_catalog(path).map(|catalog| Offers::Catalog(Box::new(catalog)))
}

fn read_catalog(path: &Path) -> Result<Catalog, CommandError> {
    let problem = |error: String| CommandError::BadInput(format!("catalog {}: {error}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| problem(error.to_string()))?;
    file::parse(text.trim_start_matches(BYTE_ORDER_MARK)).map_err(|error| problem(error.to_string()))
}
