//! `plimsoll explain`: why a pod waits, and why a node is there or goes.

mod node;
mod pod;
mod text;

use crate::{CommandError, ask, cluster, input};
use clap::{Args, Subcommand};
use plimsoll_model::plan::Plan;
use std::path::PathBuf;

/// The namespace where nothing names one.
const DEFAULT_NAMESPACE: &str = "default";

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    subject: Subject,
}

#[derive(Debug, Subcommand)]
enum Subject {
    /// Where a pod goes, or why it has no place: reasons for each NodePool, with figures.
    #[command(visible_aliases = ["pods", "po"], after_help = POD_EXAMPLES)]
    Pod {
        /// The pod, as NAME or NAMESPACE/NAME.
        name: String,
        /// Its namespace [default: that of the context, else default]
        #[arg(short, long)]
        namespace: Option<String>,
        #[command(flatten)]
        from: From,
    },
    /// Why a node was launched, what it has room for, and whether it is to go.
    #[command(visible_aliases = ["nodes", "nodeclaim"], after_help = NODE_EXAMPLES)]
    Node {
        /// The Node or the NodeClaim.
        name: String,
        #[command(flatten)]
        from: From,
    },
}

const POD_EXAMPLES: &str = "\
Examples:
  plimsoll explain pod web-5d9c7b-x2x9k -n shop       a pod of the cluster that kubectl talks to
  plimsoll explain pod shop/web-0 -f manifests/       from manifests alone";

const NODE_EXAMPLES: &str = "\
Examples:
  plimsoll explain node ip-10-0-12-34.ec2.internal --context prod
  plimsoll explain node default-x7k2p                 a NodeClaim by its name
  kubectl get nodepools,ec2nodeclasses,nodeclaims,nodes,pods,daemonsets -A -o yaml > cluster.yaml
  plimsoll explain node ip-10-0-12-34.ec2.internal -f cluster.yaml --region eu-west-1";

/// Where the objects are from.
#[derive(Debug, Args)]
struct From {
    /// Manifests: a file, a folder or - for stdin; without them the cluster of the kubeconfig is read.
    #[arg(short, long = "filename", value_name = "PATH")]
    filename: Vec<PathBuf>,
    #[command(flatten)]
    cluster: cluster::Arguments,
    #[command(flatten)]
    catalog: input::CatalogArguments,
    #[command(flatten)]
    server: ask::ServerArguments,
    /// The time to explain things for (RFC 3339) in place of the present.
    #[arg(long, value_name = "TIME")]
    now: Option<jiff::Timestamp>,
}

impl From {
    /// The question, its answer, and the namespace that pods without one are in.
    fn read(&self) -> Result<(input::Question, Plan, String), CommandError> {
        let (question, namespace) = if self.filename.is_empty() {
            let (objects, namespace) = cluster::read(&self.cluster)?;
            (input::from_cluster(objects, &self.catalog, self.now)?, namespace)
        } else {
            (input::from_files(&self.filename, &self.catalog, self.now)?, DEFAULT_NAMESPACE.to_owned())
        };
        let plan = ask::plan(question.request(), &self.server)?;
        Ok((question, plan, namespace))
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<String, CommandError> {
    match &arguments.subject {
        Subject::Pod { name, namespace, from } => {
            let (question, plan, default) = from.read()?;
            let name = match (name.split_once('/'), namespace) {
                (Some((named, _)), Some(given)) if named != given => {
                    return Err(CommandError::BadInput(format!("pod {name}: --namespace says {given}")));
                }
                (Some(_), _) => name.clone(),
                (None, given) => format!("{}/{name}", given.as_ref().unwrap_or(&default)),
            };
            pod::explain(&question, &plan, &name)
        }
        Subject::Node { name, from } => {
            let (question, plan, _) = from.read()?;
            node::explain(&question, &plan, name)
        }
    }
}

/// There is nothing of that name.
fn unknown(kind: &str, name: &str, mut known: Vec<String>) -> CommandError {
    /// So many names are worth reading.
    const SHOWN: usize = 5;
    known.sort_by_key(|it| (distance(it, name), it.clone()));
    known.truncate(SHOWN);
    let like = if known.is_empty() { String::new() } else { format!("; nearest: {}", known.join(", ")) };
    CommandError::BadInput(format!("there is no {kind} {name}{like}"))
}

/// How many letters of both are not in their longest common beginning and end.
fn distance(left: &str, right: &str) -> usize {
    let same = |one: &mut dyn Iterator<Item = char>, other: &mut dyn Iterator<Item = char>| {
        one.zip(other).take_while(|(one, other)| one == other).count()
    };
    let begins = same(&mut left.chars(), &mut right.chars());
    let ends = same(&mut left.chars().rev(), &mut right.chars().rev());
    (left.chars().count() + right.chars().count()).saturating_sub(2 * (begins + ends))
}
