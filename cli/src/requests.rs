//! `plimsoll requests`: the EC2 requests for the launches of a plan, built by the actuator's own code.

mod facts;

use crate::input::Question;
use crate::manifests::ManifestErrors;
use crate::output::{self, Answer, Outcome};
use crate::{CommandError, ask, input};
use clap::Args;
use facts::{Facts, Samples};
use plimsoll_actuator::launch::preview::{Preview, PreviewError, preview};
use plimsoll_actuator::launch::purchase::RequestError;
use plimsoll_actuator::launch_template::PlanError;
use plimsoll_actuator::requests::{CreateFleet, CreateLaunchTemplate};
use plimsoll_actuator::resolve::{self, NotReady, Resolved};
use plimsoll_api::{EC2NodeClass, NodeOverlay, NodePool};
use plimsoll_model::catalog::Catalog;
use plimsoll_model::plan::{Launch, Plan};
use plimsoll_snapshot::Problem;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Manifests: a file, a folder (read recursively) or - for stdin.
    #[arg(short, long = "filename", value_name = "PATH", num_args = 1.., required = true)]
    filename: Vec<PathBuf>,
    /// A YAML file with facts about the cluster and the resources of node classes; missing facts get sample values.
    #[arg(long, value_name = "FACTS")]
    cluster: Option<PathBuf>,
    /// Print the decoded user data of the launch templates instead of the requests.
    #[arg(long)]
    user_data: bool,
    #[command(flatten)]
    catalog: input::CatalogArguments,
    #[command(flatten)]
    policies: input::PolicyArguments,
    /// Time of the plan (RFC 3339) [default: now]
    #[arg(long, value_name = "TIME")]
    now: Option<jiff::Timestamp>,
}

/// Output. The order of the fields is that of the JSON.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Requests<'a> {
    launches: Vec<GroupView<'a>>,
    samples: &'a BTreeSet<String>,
}

/// One launch group: a CreateFleet request and its launch templates.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct GroupView<'a> {
    node_pool: &'a str,
    node_class: &'a str,
    nodes: usize,
    pods: Vec<&'a str>,
    create_launch_template: Vec<CreateLaunchTemplate>,
    create_fleet: CreateFleet,
}

pub(crate) fn run(arguments: &Arguments) -> Result<Outcome, CommandError> {
    let facts = arguments.cluster.as_deref().map(Facts::read).transpose()?.unwrap_or_default();
    let question = input::from_files(&arguments.filename, &arguments.catalog, arguments.now)?;
    let question = arguments.policies.with(question);
    let path = arguments.cluster.as_deref().map(|path| path.display().to_string()).unwrap_or_default();
    facts.check_names(&path, &question.objects.node_classes)?;
    let (plan, _) = ask::plan(&question, &ask::ServerArguments::default())?;
    if !plan.unschedulable.is_empty() {
        let pods = match plan.unschedulable.len() {
            1 => "1 pod is unschedulable and has".to_owned(),
            count => format!("{count} pods are unschedulable and have"),
        };
        output::hint(&format!("{pods} no request; plimsoll plan gives the reasons"));
    }
    let mut samples = Samples::default();
    let previews = previews(&question, &plan, &facts, &mut samples)?;
    let text = if arguments.user_data { user_data(&previews) } else { json(&plan, &previews, &samples)? };
    Ok(Answer::Text(text).into())
}

/// Objects that a launch depends on.
struct Parts<'a> {
    pool: &'a NodePool,
    class: &'a EC2NodeClass,
    catalog: &'a Catalog,
}

fn parts<'a>(question: &'a Question, launch: &Launch) -> Option<Parts<'a>> {
    let name = Some(launch.node_pool.as_str());
    let pool = question.objects.node_pools.iter().find(|pool| pool.metadata.name.as_deref() == name)?;
    let class = Some(launch.node_class.as_str());
    let class = question.objects.node_classes.iter().find(|it| it.metadata.name.as_deref() == class)?;
    let planned = question.snapshot.node_pools.iter().find(|pool| pool.name == launch.node_pool)?;
    let catalog = question.catalogs.get(planned.catalog.as_ref()?)?;
    Some(Parts { pool, class, catalog })
}

fn previews(
    question: &Question,
    plan: &Plan,
    facts: &Facts,
    samples: &mut Samples,
) -> Result<Vec<Preview>, CommandError> {
    let mut resolved: BTreeMap<&str, (Arc<EC2NodeClass>, Arc<Catalog>, Resolved)> = BTreeMap::new();
    let mut launches = Vec::new();
    let mut region = String::new();
    for launch in &plan.launches {
        let gone = || CommandError::Failed(format!("NodePool {} or its node class is not known", launch.node_pool));
        let parts = parts(question, launch).ok_or_else(gone)?;
        region.clone_from(&parts.catalog.region);
        if !resolved.contains_key(launch.node_class.as_str()) {
            let class = facts.with_status(parts.class, parts.catalog, samples);
            let of_class = resolve::from_status(&class)
                .map_err(|error| located(question, launch, &PreviewError::Request(error.into())))?;
            resolved.insert(&launch.node_class, (class.into(), parts.catalog.clone().into(), of_class));
        }
        launches.push((launch, parts.pool));
    }
    let settings = facts.settings(&region, samples);
    let mut inputs = Vec::new();
    for (launch, pool) in launches {
        if let Some((class, catalog, resolved)) = resolved.get(launch.node_class.as_str()) {
            inputs.push((launch, Arc::new(pool.clone()), Arc::clone(class), Arc::clone(catalog), resolved));
        }
    }
    let overlays: Vec<Arc<NodeOverlay>> = question.objects.node_overlays.iter().cloned().map(Arc::new).collect();
    preview(&settings, &overlays, &inputs).map_err(|(index, error)| match inputs.get(index) {
        Some((launch, ..)) => located(question, launch, &error),
        None => CommandError::Failed(error.to_string()),
    })
}

/// The error with file, object and field.
fn located(question: &Question, launch: &Launch, error: &PreviewError) -> CommandError {
    let (field, message) = match error {
        PreviewError::Request(RequestError::NotReady(NotReady::Status { field, message, .. })) => {
            (format!("status.{field}"), message.clone())
        }
        PreviewError::Request(RequestError::Plan(PlanError::UserData { error, .. })) => {
            let text = error.to_string();
            ("spec.userData".to_owned(), text.strip_prefix("spec.userData: ").unwrap_or(&text).to_owned())
        }
        PreviewError::Request(RequestError::Plan(PlanError::NoImage(_))) => {
            ("spec.amiSelectorTerms".to_owned(), "no image runs on any of the wanted instance types".to_owned())
        }
        PreviewError::Request(RequestError::Plan(PlanError::PublicAddress(_))) => {
            let message = "EC2 gives no public address to instances with several EFA interfaces".to_owned();
            ("spec.associatePublicIPAddress".to_owned(), message)
        }
        PreviewError::Request(RequestError::Plan(PlanError::Placement { error, .. })) => {
            let (field, text) = ("spec.placementGroupSelector", error.to_string());
            (field.to_owned(), text.trim_start_matches(field).trim_start_matches(": ").to_owned())
        }
        PreviewError::Request(RequestError::NoSubnet(_)) => {
            ("spec.subnetSelectorTerms".to_owned(), "no subnet is in any of the wanted zones".to_owned())
        }
        other => return CommandError::BadInput(other.to_string()),
    };
    let problem =
        Problem { kind: "EC2NodeClass".to_owned(), name: launch.node_class.clone(), field, message, left_out: true };
    CommandError::BadInput(ManifestErrors(vec![question.manifests.locate(&problem)]).to_string())
}

fn json(plan: &Plan, previews: &[Preview], samples: &Samples) -> Result<String, CommandError> {
    let launches = previews.iter().filter_map(|preview| {
        let members: Vec<&Launch> = preview.launches.iter().filter_map(|index| plan.launches.get(*index)).collect();
        let first = members.first()?;
        let pods: BTreeSet<&str> =
            members.iter().flat_map(|launch| launch.pods.iter().map(|pod| pod.name.as_str())).collect();
        Some(GroupView {
            node_pool: first.node_pool.as_str(),
            node_class: &first.node_class,
            nodes: members.len(),
            pods: pods.into_iter().collect(),
            create_launch_template: preview.templates.iter().map(CreateLaunchTemplate::from).collect(),
            create_fleet: CreateFleet::from(&preview.fleet),
        })
    });
    let requests = Requests { launches: launches.collect(), samples: samples.used() };
    let text = serde_json::to_string_pretty(&requests).map_err(|error| CommandError::Failed(error.to_string()))?;
    Ok(text + "\n")
}

/// A single user data unchanged; several with a header of the names of their launch templates, like `head` with several
/// files.
fn user_data(previews: &[Preview]) -> String {
    let mut texts: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for template in previews.iter().flat_map(|preview| &preview.templates) {
        let names = texts.entry(&template.user_data).or_default();
        if !names.contains(&template.name.as_str()) {
            names.push(&template.name);
        }
    }
    if texts.len() == 1 {
        return texts.into_keys().collect();
    }
    let part = |(text, names): (&str, Vec<&str>)| format!("==> {} <==\n{}\n", names.join(" "), text.trim_end());
    texts.into_iter().map(part).collect::<Vec<_>>().join("\n")
}
