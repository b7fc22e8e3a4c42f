//! From manifests to the question that a scheduler answers.

use crate::manifests::Manifests;
use crate::prices::{PriceList, PriceOrigin};
use crate::progress::Progress;
use crate::{CommandError, hints, manifests, output};
use clap::Args;
use plimsoll_catalog::{NodeClassSettings, builtin, file};
use plimsoll_model::catalog::Catalog;
use plimsoll_model::identity::CatalogId;
use plimsoll_model::money::MicroUsdPerHour;
use plimsoll_model::plan::{MinValuesPolicy, PlanOptions, PreferencePolicy};
use plimsoll_model::snapshot::Snapshot;
use plimsoll_model::time::Timestamp;
use plimsoll_proto::catalog::v1 as wire;
use plimsoll_proto::scheduler::v1::explain_request::Subject;
use plimsoll_proto::scheduler::v1::{ExplainRequest, PlanRequest};
use plimsoll_snapshot::{Extra, Objects, Source};
use std::collections::{BTreeMap, BTreeSet};
use std::mem::take;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The region whose built-in catalog is used where nothing names one.
pub(crate) const DEFAULT_REGION: &str = "us-east-1";

/// What can be bought.
#[derive(Debug, Args)]
pub(crate) struct CatalogArguments {
    /// A catalog file, in place of the built-in catalog; `plimsoll catalog -o json` prints one to start from.
    #[arg(long, value_name = "FILE")]
    catalog: Option<PathBuf>,
    /// The region of the built-in catalog [default: us-east-1]
    #[arg(long, value_name = "REGION")]
    region: Option<String>,
    /// Prices in place of the catalog's: lines of instance type, zone (or *), capacity type and USD per hour.
    #[arg(long, value_name = "FILE")]
    prices: Option<PathBuf>,
}

impl CatalogArguments {
    fn price_list(&self) -> Result<Option<PriceList>, CommandError> {
        self.prices.as_deref().map(PriceList::read).transpose()
    }

    /// Where the prices of these offers are from.
    fn origin(&self, offers: &Offers) -> PriceOrigin {
        let region = match offers {
            Offers::File(_) => None,
            Offers::Region(region) => Some(region.clone()),
        };
        PriceOrigin { region, file: self.catalog.clone(), list: self.prices.clone() }
    }
}

/// Objects, what can be bought for them, and what a scheduler is asked about both.
#[derive(Debug)]
pub(crate) struct Question {
    pub(crate) objects: Objects,
    pub(crate) snapshot: Snapshot,
    pub(crate) catalogs: BTreeMap<CatalogId, Catalog>,
    pub(crate) options: PlanOptions,
    pub(crate) prices: PriceOrigin,
    /// The manifests without their objects, which are in `objects`: they know what each came from.
    #[cfg_attr(not(feature = "requests"), expect(dead_code, reason = "only requests are refused after planning"))]
    pub(crate) manifests: Manifests,
}

/// How strictly pods and pools are taken at their word.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct PolicyArguments {
    /// What is done about what pods only prefer: Respect it as long as there is a place, or Ignore it
    #[arg(long, default_value = "Respect", value_parser = preference_policy, value_name = "POLICY")]
    preference_policy: PreferencePolicy,
    /// What is done where minValues of a NodePool cannot be met: Strict launches nothing, BestEffort what there is
    #[arg(long, default_value = "Strict", value_parser = min_values_policy, value_name = "POLICY")]
    min_values_policy: MinValuesPolicy,
    /// Where hundreds of pods wait, the most of them that one new node takes, in per cent; 100 sets no bound
    #[arg(long, default_value_t = PlanOptions::default().max_share_per_node, value_parser = clap::value_parser!(u32).range(1..=100),
        value_name = "PERCENT")]
    max_share_per_node: u32,
    /// What the eviction of one pod has to save for consolidation to move it, in US dollars per hour; 0 sets no minimum
    #[arg(long, default_value_t = PlanOptions::default().min_saving_per_eviction, value_parser = MicroUsdPerHour::parse_usd,
        value_name = "USD")]
    min_saving_per_eviction: MicroUsdPerHour,
}

impl PolicyArguments {
    /// The same question under these policies.
    pub(crate) fn with(self, question: Question) -> Question {
        let Self { preference_policy, min_values_policy, max_share_per_node, min_saving_per_eviction } = self;
        let options = PlanOptions {
            preference_policy,
            min_values_policy,
            max_share_per_node,
            min_saving_per_eviction,
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
    /// As it goes over the wire.
    pub(crate) fn request(&self) -> PlanRequest {
        PlanRequest {
            snapshot: Some((&self.snapshot).into()),
            catalogs: self.wire_catalogs(),
            options: Some((&self.options).into()),
        }
    }

    /// What is asked about a pod or a node.
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

/// Leaves the catalogs that pools of the snapshot buy from.
fn used(mut catalogs: BTreeMap<CatalogId, Catalog>, snapshot: &Snapshot) -> BTreeMap<CatalogId, Catalog> {
    let used: BTreeSet<&CatalogId> = snapshot.node_pools.iter().filter_map(|pool| pool.catalog.as_ref()).collect();
    catalogs.retain(|id, _| used.contains(id));
    catalogs
}

/// The question that manifests ask.
pub(crate) fn from_files(
    paths: &[PathBuf],
    arguments: &CatalogArguments,
    now: Option<jiff::Timestamp>,
) -> Result<Question, CommandError> {
    // The catalog first: where it is wrong, stdin need not be waited for.
    let offers = Offers::read(arguments, None)?;
    let prices = arguments.price_list()?;
    let progress = Progress::start("reading manifests");
    let mut manifests = manifests::read(paths, &mut std::io::stdin().lock())
        .map_err(|error| CommandError::BadInput(error.to_string()))?;
    let ignored = take(&mut manifests.ignored);
    progress.then("putting the cluster together");
    let question = from_manifests(manifests, &offers, prices.as_ref(), timestamp(now));
    drop(progress);
    let question = Question { prices: arguments.origin(&offers), ..question? };
    output::note("ignored", &ignored);
    give_hints(&question, prices.as_ref());
    Ok(question)
}

fn give_hints(question: &Question, prices: Option<&PriceList>) {
    let Question { objects, snapshot, catalogs, .. } = question;
    let mut hints = hints::hints(snapshot, catalogs);
    hints.extend(hints::of_region(&objects.nodes, catalogs));
    hints.extend(hints::misspelt(snapshot, catalogs));
    hints.extend(hints::tiny_memory(snapshot));
    hints.extend(hints::of_buffers(objects));
    let offers: Vec<&Catalog> = catalogs.values().collect();
    hints.extend(prices.into_iter().flat_map(|prices| prices.unused(&offers)));
    hints.iter().for_each(|hint| output::hint(hint));
}

/// The question that manifests ask; says nothing on the way.
pub(crate) fn from_manifests(
    mut manifests: Manifests,
    offers: &Offers,
    prices: Option<&PriceList>,
    now: Timestamp,
) -> Result<Question, CommandError> {
    let (catalogs, by_class) = offers.of(&manifests.objects, prices)?;
    let extra = Extra { source: Source::Files, now, catalogs: by_class, ..Extra::default() };
    let (snapshot, mut problems) = plimsoll_snapshot::build(&manifests.objects, &extra);
    let samples = Objects { pods: manifests.samples.iter().cloned().map(Arc::new).collect(), ..Objects::default() };
    problems.extend(plimsoll_snapshot::build(&samples, &extra).1);
    if !problems.is_empty() {
        // Pods of one workload have the same fault.
        let mut faults: Vec<_> = problems.iter().map(|problem| manifests.locate(problem)).collect();
        faults.dedup();
        return Err(CommandError::BadInput(manifests::ManifestErrors(faults).to_string()));
    }
    let catalogs = used(catalogs, &snapshot);
    let (options, prices) = (PlanOptions::default(), PriceOrigin::default());
    let objects = take(&mut manifests.objects);
    Ok(Question { objects, snapshot, catalogs, options, prices, manifests })
}

/// The question that a cluster's objects ask, and which of them cannot be read.
pub(crate) fn from_cluster(
    objects: Objects,
    arguments: &CatalogArguments,
    now: Option<jiff::Timestamp>,
) -> Result<Question, CommandError> {
    let offers = Offers::read(arguments, hints::region_of(&objects.nodes))?;
    let list = arguments.price_list()?;
    let (catalogs, by_class) = offers.of(&objects, list.as_ref())?;
    let extra = Extra { source: Source::Cluster, now: timestamp(now), catalogs: by_class, ..Extra::default() };
    let (snapshot, problems) = plimsoll_snapshot::build(&objects, &extra);
    for problem in &problems {
        let what = if problem.left_out { "left out" } else { "ignored" };
        output::warn(&format!("{what}: {problem}"));
    }
    let catalogs = used(catalogs, &snapshot);
    let (options, prices) = (PlanOptions::default(), arguments.origin(&offers));
    let question = Question { objects, snapshot, catalogs, options, prices, manifests: Manifests::default() };
    give_hints(&question, list.as_ref());
    Ok(question)
}

fn timestamp(now: Option<jiff::Timestamp>) -> Timestamp {
    Timestamp(now.unwrap_or_else(jiff::Timestamp::now).as_millisecond())
}

type Catalogs = (BTreeMap<CatalogId, Catalog>, BTreeMap<String, CatalogId>);

/// Where catalogs come from.
#[derive(Debug, Clone)]
pub enum Offers {
    /// A file stands for what every node class offers.
    File(Box<Catalog>),
    /// Each class has its own view of the built-in catalog of a region.
    Region(String),
}

impl Offers {
    /// What the catalog file at `path` offers.
    ///
    /// # Errors
    ///
    /// A file that cannot be read, or that is no catalog.
    pub fn file(path: &Path) -> Result<Self, CommandError> {
        read_catalog(path).map(|catalog| Self::File(Box::new(catalog)))
    }

    fn read(arguments: &CatalogArguments, found: Option<String>) -> Result<Self, CommandError> {
        if let Some(path) = &arguments.catalog {
            return Self::file(path);
        }
        let region = arguments.region.clone().or(found).unwrap_or_else(|| DEFAULT_REGION.to_owned());
        builtin::zones(&region).map_err(|error| CommandError::BadInput(error.to_string()))?;
        Ok(Self::Region(region))
    }

    /// The catalog of each node class, at the prices of the list where that has some.
    fn of(&self, objects: &Objects, prices: Option<&PriceList>) -> Result<Catalogs, CommandError> {
        let (mut catalogs, mut by_class) = (BTreeMap::new(), BTreeMap::new());
        let priced = |mut catalog: Catalog| {
            prices.into_iter().for_each(|prices| prices.apply(&mut catalog));
            catalog
        };
        let names = objects.node_classes.iter().map(|class| class.metadata.name.clone().unwrap_or_default());
        match self {
            Self::File(catalog) => {
                let catalog = priced(catalog.as_ref().clone());
                let id = catalog.id();
                by_class.extend(names.map(|name| (name, id.clone())));
                catalogs.insert(id, catalog);
            }
            Self::Region(region) => {
                for (class, name) in objects.node_classes.iter().zip(names) {
                    let catalog = builtin::catalog(region, &NodeClassSettings::from(&class.spec))
                        .map_err(|error| CommandError::BadInput(error.to_string()))?;
                    let catalog = priced(catalog);
                    let id = catalog.id();
                    catalogs.insert(id.clone(), catalog);
                    by_class.insert(name, id);
                }
            }
        }
        Ok((catalogs, by_class))
    }
}

fn read_catalog(path: &Path) -> Result<Catalog, CommandError> {
    let problem = |error: String| CommandError::BadInput(format!("catalog {}: {error}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| problem(error.to_string()))?;
    file::parse(&text).map_err(|error| problem(error.to_string()))
}
