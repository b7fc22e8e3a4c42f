//! `plimsoll explain`: why pods are unschedulable, and why a node exists or is removed.

mod budget;
mod claim;
mod workload;

use crate::kubectl_kinds::kubectl_kinds;
use crate::output::{self, Format};
use crate::{CommandError, ask, cluster, input};
use clap::{Args, Subcommand};
use plimsoll_api::Pod as KubePod;
use plimsoll_model::plan::Reason;
use plimsoll_model::snapshot::{Node, Pod, Snapshot};
use plimsoll_proto::scheduler::v1::explain_request::Subject as Asked;
use serde_json::json;
use std::path::PathBuf;
use std::sync::Arc;
pub(crate) use workload::pods_by_workload;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    subject: Subject,
}

#[derive(Debug, Subcommand)]
enum Subject {
    /// Where a pod is placed, or why it is unschedulable: reasons for each NodePool.
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
    /// Where the pods of a Deployment are placed, or why they are unschedulable.
    #[command(visible_aliases = ["deployments", "deploy"], after_help = WORKLOAD_EXAMPLES)]
    Deployment(WorkloadArguments),
    /// The same for a StatefulSet.
    #[command(visible_aliases = ["statefulsets", "sts"], after_help = WORKLOAD_EXAMPLES)]
    Statefulset(WorkloadArguments),
    /// The same for a ReplicaSet.
    #[command(visible_aliases = ["replicasets", "rs"], after_help = WORKLOAD_EXAMPLES)]
    Replicaset(WorkloadArguments),
    /// The same for a Job.
    #[command(visible_aliases = ["jobs"], after_help = WORKLOAD_EXAMPLES)]
    Job(WorkloadArguments),
    /// The same for a DaemonSet.
    #[command(visible_aliases = ["daemonsets", "ds"], after_help = WORKLOAD_EXAMPLES)]
    Daemonset(WorkloadArguments),
    /// Why a node was launched, what capacity it has left, and whether it would be removed.
    #[command(visible_aliases = ["nodes", "nodeclaim"], after_help = NODE_EXAMPLES)]
    Node {
        /// The Node or the NodeClaim.
        name: String,
        #[command(flatten)]
        from: From,
    },
}

#[derive(Debug, Args)]
struct WorkloadArguments {
    /// The workload, as NAME or NAMESPACE/NAME.
    name: String,
    /// Its namespace [default: that of the context, else default]
    #[arg(short, long)]
    namespace: Option<String>,
    #[command(flatten)]
    from: From,
}

const POD_EXAMPLES: &str = "\
Examples:
  plimsoll explain pod web-5d9c7b-x2x9k -n shop       a pod of the cluster that kubectl talks to
  plimsoll explain pod shop/web-0 -f manifests/       from manifests alone";

const WORKLOAD_EXAMPLES: &str = "\
Examples:
  plimsoll explain deployment web -n shop
  plimsoll explain deployment/web -f manifests/
  plimsoll explain sts/db -f manifests/";

const NODE_EXAMPLES: &str = concat!(
    "\
Examples:
  plimsoll explain node ip-10-0-12-34.ec2.internal --context prod
  plimsoll explain node default-x7k2p                 a NodeClaim by its name
  kubectl get -A -o yaml \\
    ",
    kubectl_kinds!(),
    " \\
    > cluster.yaml
  plimsoll explain node ip-10-0-12-34.ec2.internal -f cluster.yaml --region eu-west-1"
);

/// Source of the objects.
#[derive(Debug, Args)]
struct From {
    /// Manifests: a file, a folder (read recursively) or - for stdin. Without them, the cluster of the kubeconfig is
    /// read.
    #[arg(short, long = "filename", value_name = "PATH")]
    filename: Vec<PathBuf>,
    /// Further manifests, as a shell expands `-f *.yaml`.
    // Not further values of the option, which would take the name in `-f cluster.yaml web-0` for a file.
    #[arg(value_name = "PATH", requires = "filename")]
    more: Vec<PathBuf>,
    #[command(flatten)]
    cluster: cluster::ClusterArguments,
    #[command(flatten)]
    catalog: input::CatalogArguments,
    #[command(flatten)]
    server: ask::ServerArguments,
    #[command(flatten)]
    policies: input::PolicyArguments,
    /// How the explanation is printed.
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    output: Format,
    /// Time of the plan (RFC 3339) [default: now]
    #[arg(long, value_name = "TIME")]
    now: Option<jiff::Timestamp>,
}

impl From {
    /// The question, and the default namespace.
    fn read(&self) -> Result<(input::Question, String), CommandError> {
        let paths: Vec<PathBuf> = self.filename.iter().chain(&self.more).cloned().collect();
        let (question, namespace) = input::read(&paths, &self.cluster, &self.catalog, self.now)?;
        Ok((self.policies.with(question), namespace))
    }

    /// The explanation of the scheduler, followed by facts that only the cluster has.
    fn answer(
        &self,
        question: &input::Question,
        kind: &str,
        name: &str,
        known: Vec<String>,
        asked: Asked,
    ) -> Result<String, CommandError> {
        let answer = ask::explain(question.explain(asked), &self.server)?;
        let lines: Vec<String> = answer.lines.into_iter().chain(known).collect();
        self.print(kind, name, &lines, &answer.reasons)
    }

    fn print(&self, kind: &str, name: &str, lines: &[String], reasons: &[Reason]) -> Result<String, CommandError> {
        let value = || {
            let reasons = reasons
                .iter()
                .map(|it| json!({"nodePool": it.node_pool, "code": it.code.as_str(), "message": it.message}));
            json!({"kind": kind, "name": name, "lines": lines, "reasons": reasons.collect::<Vec<_>>()})
        };
        match self.output {
            Format::Json => output::json(&value()),
            Format::Yaml => output::yaml(&value()),
            Format::Table => {
                let style = output::HEADING;
                let text: String = lines.iter().map(|line| format!("  {line}\n")).collect();
                Ok(format!("{style}{kind} {name}{style:#}\n{text}"))
            }
        }
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<String, CommandError> {
    match &arguments.subject {
        Subject::Pod { name, namespace, from } => {
            let (question, default) = from.read()?;
            let name = full_name("pod", name, namespace.as_deref(), &default)?;
            let snapshot = &question.snapshot;
            let ignored = snapshot.ignored.iter().map(|it| it.pod.clone());
            let known: Vec<String> = snapshot.pods.iter().map(Pod::full_name).chain(ignored).collect();
            if !known.contains(&name) {
                let is_it = |pod: &&Arc<KubePod>| plimsoll_snapshot::full_name(&pod.metadata) == name;
                let ended = question.objects.pods.iter().filter(|pod| pod.is_terminal()).find(is_it);
                let Some(phase) = ended.and_then(|pod| pod.status.phase) else {
                    return Err(unknown("pod", &name, known));
                };
                let line = entry("not placed", format!("it has ended ({})", phase.as_str()));
                return from.print("Pod", &name, &[line], &[]);
            }
            from.answer(&question, "Pod", &name, Vec::new(), Asked::Pod(name.clone()))
        }
        Subject::Node { name, from } => {
            let (question, _) = from.read()?;
            let node = find_node(&question.snapshot, name)?;
            let claim = node.node_claim.as_deref();
            let mut known = claim.map(|claim| claim::lines(&question.objects.node_claims, claim)).unwrap_or_default();
            known.extend(budget::lines(&question, node));
            let name = node.name.to_string();
            from.answer(&question, "Node", &name, known, Asked::Node(name.clone()))
        }
        Subject::Deployment(workload) => explain_workload("Deployment", workload),
        Subject::Statefulset(workload) => explain_workload("StatefulSet", workload),
        Subject::Replicaset(workload) => explain_workload("ReplicaSet", workload),
        Subject::Job(workload) => explain_workload("Job", workload),
        Subject::Daemonset(workload) => explain_workload("DaemonSet", workload),
    }
}

fn explain_workload(kind: &'static str, arguments: &WorkloadArguments) -> Result<String, CommandError> {
    let WorkloadArguments { name, namespace, from } = arguments;
    let (question, default) = from.read()?;
    let what = kind.to_lowercase();
    let name = full_name(&what, name, namespace.as_deref(), &default)?;
    let members = pods_by_workload(&question.objects, kind);
    let Some(pods) = members.get(&name) else {
        if let Some(why) = workload::why_idle(&question, kind, &name) {
            return from.print(kind, &name, &[entry("has no pods", why)], &[]);
        }
        let idle = question.manifests.idle.keys().filter(|(of, _)| *of == kind).map(|(_, name)| name.clone());
        return Err(unknown(&what, &name, members.into_keys().chain(idle).collect()));
    };
    let (plan, _) = ask::plan(&question, &from.server)?;
    let (lines, reasons) = workload::lines(&question, &plan, pods);
    from.print(kind, &name, &lines, &reasons)
}

/// The node with this name, or of the NodeClaim with this name.
pub(crate) fn find_node<'s>(snapshot: &'s Snapshot, name: &str) -> Result<&'s Node, CommandError> {
    let named = |node: &&Node| node.name.as_str() == name || node.node_claim.as_deref() == Some(name);
    let names = || snapshot.nodes.iter().flat_map(|node| [Some(node.name.to_string()), node.node_claim.clone()]);
    snapshot.nodes.iter().find(named).ok_or_else(|| unknown("node", name, names().flatten().collect()))
}

/// `namespace/name`.
pub(crate) fn full_name(
    kind: &str,
    name: &str,
    namespace: Option<&str>,
    default: &str,
) -> Result<String, CommandError> {
    match (name.split_once('/'), namespace) {
        (Some((named, _)), Some(given)) if named != given => {
            Err(CommandError::BadInput(format!("{kind} {name}: --namespace says {given}")))
        }
        (Some(_), _) => Ok(name.to_owned()),
        (None, given) => Ok(format!("{}/{name}", given.unwrap_or(default))),
    }
}

/// The error for an unknown name.
pub(crate) fn unknown(kind: &str, name: &str, mut known: Vec<String>) -> CommandError {
    /// Maximum number of suggested names.
    const SHOWN: usize = 5;
    known.sort_by_key(|it| (distance(it, name), it.clone()));
    known.dedup();
    known.truncate(SHOWN);
    let like = if known.is_empty() { String::new() } else { format!("; nearest: {}", known.join(", ")) };
    CommandError::BadInput(format!("there is no {kind} {name}{like}"))
}

/// Number of characters of both strings outside of their longest common prefix and suffix.
fn distance(left: &str, right: &str) -> usize {
    let same = |one: &mut dyn Iterator<Item = char>, other: &mut dyn Iterator<Item = char>| {
        one.zip(other).take_while(|(one, other)| one == other).count()
    };
    let begins = same(&mut left.chars(), &mut right.chars());
    let ends = same(&mut left.chars().rev(), &mut right.chars().rev());
    (left.chars().count() + right.chars().count()).saturating_sub(2 * (begins + ends))
}

/// A line of an explanation in the scheduler's format: a padded label, and the text.
fn entry(about: &str, text: impl std::fmt::Display) -> String {
    format!("{about:<14}{text}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_of_the_nearest_names_is_named_once() {
        // The node of a NodeClaim without a Node has the name of the claim.
        let known = ["busy", "default-busy", "busy"].map(str::to_owned).to_vec();
        let error = unknown("node", "busi", known);
        assert_eq!(error.to_string(), "there is no node busi; nearest: busy, default-busy");
    }
}
