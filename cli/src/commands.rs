//! Command line arguments.

#[cfg(feature = "demo")]
use crate::demo;
use crate::kubectl_kinds::kubectl_kinds;
use crate::output::{Answer, Outcome};
#[cfg(feature = "requests")]
use crate::requests;
use crate::{CommandError, catalog, certificates, explain, plan, replay};
use clap::builder::styling::{AnsiColor, Styles};
use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::Shell;
use std::ffi::OsString;

const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default().bold())
    .placeholder(AnsiColor::Cyan.on_default());

/// A Kubernetes node autoscaler for AWS that speaks Karpenter's API.
#[derive(Debug, Parser)]
#[command(name = "plimsoll", version, propagate_version = true, arg_required_else_help = true)]
#[command(styles = STYLES, after_help = EXAMPLES)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    #[cfg(feature = "demo")]
    /// Run all of Plimsoll on a simulated cluster and a simulated EC2, in this process.
    #[command(after_help = DEMO_EXAMPLES)]
    Demo(demo::Arguments),
    /// Show which nodes would be launched and removed, for a cluster or for manifests. Changes nothing.
    #[command(after_help = PLAN_EXAMPLES)]
    Plan(plan::Arguments),
    #[cfg(feature = "requests")]
    /// Print the EC2 requests for the launches of a plan for manifests. Sends nothing.
    #[command(after_help = REQUESTS_EXAMPLES)]
    Requests(requests::Arguments),
    /// Explain where pods go or why they are unschedulable, and why a node stays or is removed.
    #[command(after_help = EXPLAIN_EXAMPLES)]
    Explain(explain::Arguments),
    /// Print the catalog of a region: instance types with capacity and prices.
    #[command(after_help = CATALOG_EXAMPLES)]
    Catalog(catalog::Arguments),
    /// Make the plans of a recording again, or compare what other NodePools would have cost.
    #[command(after_help = REPLAY_EXAMPLES)]
    Replay(replay::Arguments),
    /// Create the certificates of the services, and print the commands that install them in a cluster.
    #[command(after_help = CERTIFICATES_EXAMPLES)]
    Certificates(certificates::Arguments),
    /// Print a completion script for a shell.
    #[command(after_help = COMPLETION_EXAMPLES)]
    Completion {
        /// The shell.
        shell: Shell,
    },
}

const EXAMPLES: &str = "\
Examples:
  plimsoll plan -f manifests/                  what would be launched for these manifests
  plimsoll explain pod web-0 -n shop           why this pod of the cluster is pending
  plimsoll catalog --region eu-west-1          instance types of eu-west-1";

#[cfg(feature = "demo")]
const DEMO_EXAMPLES: &str = "\
Examples:
  plimsoll demo                                slow enough to follow
  plimsoll demo --speed 0                      as fast as it goes";

const PLAN_EXAMPLES: &str = concat!(
    "\
Examples:
  plimsoll plan                                for the cluster that kubectl talks to
  plimsoll plan -f manifests/                  for manifests
  plimsoll plan --without-node ip-10-0-12-34.ec2.internal --more deployment/shop/web=5
  plimsoll plan --without-zone us-east-1a      as if this zone were gone
  plimsoll plan -f nodepools.yaml -f workloads.yaml --catalog catalog.json -o json
  plimsoll plan -f manifests/ --server scheduler.example:9452
  plimsoll plan -f manifests/ -o request \\
    | grpcurl -plaintext -d @ scheduler.example:9452 plimsoll.scheduler.v1.SchedulerService/Plan
  kubectl get -A -o yaml \\
    ",
    kubectl_kinds!(),
    " \\
    | plimsoll plan -f -

Exit status: 0 a plan was made, 1 could not run, 2 bad input,
3 with --detailed-exitcode: nodes would be launched or removed,
4 with --fail-on-unschedulable: a pod is unschedulable."
);

#[cfg(feature = "requests")]
const REQUESTS_EXAMPLES: &str = "\
Examples:
  plimsoll requests -f manifests/              the requests, with sample values for the cluster
  plimsoll requests -f manifests/ --cluster facts.yaml
  plimsoll requests -f manifests/ --user-data  what nodes run at their first boot
  plimsoll requests -f manifests/ | jq '.launches[0].createFleet' > fleet.json \\
    && aws ec2 create-fleet --dry-run --cli-input-json file://fleet.json

Exit status: 0 requests were printed, 1 could not run, 2 bad input. docs/requests.md describes the format and FACTS.";

const EXPLAIN_EXAMPLES: &str = "\
Examples:
  plimsoll explain pod web-0 -n shop           a pod of the cluster that kubectl talks to
  plimsoll explain node ip-10-0-12-34.ec2.internal
  plimsoll explain deployment/web -n shop      all pods of a workload
  plimsoll explain pod web-0 -f manifests/     from manifests alone";

const CATALOG_EXAMPLES: &str = "\
Examples:
  plimsoll catalog                             a table of the types of us-east-1
  plimsoll catalog 'm7g.*' 'c7g.*'             types whose name matches
  plimsoll catalog -l 'kubernetes.io/arch=arm64,karpenter.k8s.aws/instance-cpu<=8'
  plimsoll catalog -l 'topology.kubernetes.io/zone in (us-east-1a,us-east-1b)'
  plimsoll catalog --region eu-west-1 -o json > catalog.json
  aws ec2 describe-spot-price-history --region eu-west-1 --output json \\
    | plimsoll catalog --from-aws - -o json > catalog.json";

const REPLAY_EXAMPLES: &str = "\
Examples:
  plimsoll replay recording/                   whether this version makes the same plans
  plimsoll replay recording/ --with pools.yaml what these NodePools would have cost
  plimsoll replay recording/ --with pools.yaml -o json

The watcher records with --record-to. Exit status: 0 all plans are the same, 1 could not run, 2 bad input, 3 a plan differs.";

const CERTIFICATES_EXAMPLES: &str = "\
Examples:
  plimsoll certificates --out certificates
  plimsoll certificates --out certificates --namespace autoscaling --days 90 | sh";

const COMPLETION_EXAMPLES: &str = "\
Examples:
  source <(plimsoll completion bash)
  plimsoll completion fish > ~/.config/fish/completions/plimsoll.fish";

impl Cli {
    /// Runs the command and returns its output.
    ///
    /// # Errors
    ///
    /// If the input is invalid, or the command fails.
    pub fn run(self) -> Result<Outcome, CommandError> {
        let text = match self.command {
            Command::Plan(arguments) => return plan::run(&arguments),
            #[cfg(feature = "requests")]
            Command::Requests(arguments) => return requests::run(&arguments),
            #[cfg(feature = "demo")]
            Command::Demo(arguments) => demo::run(&arguments),
            Command::Replay(arguments) => return replay::run(&arguments),
            Command::Explain(arguments) => explain::run(&arguments),
            Command::Catalog(arguments) => catalog::run(&arguments),
            Command::Certificates(arguments) => certificates::run(&arguments),
            Command::Completion { shell } => completion(shell),
        };
        text.map(|text| Answer::Text(text).into())
    }
}

/// Splits the subject of `explain deployment/web` as kubectl does: `explain deployment web`.
#[must_use]
pub fn split_subject(arguments: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = arguments.into_iter().collect();
    let explain = arguments.get(1).is_some_and(|command| command == "explain");
    let subject = arguments.get(2).and_then(|subject| subject.to_str()).filter(|_| explain);
    if let Some((kind, name)) = subject.and_then(|subject| subject.split_once('/'))
        && !kind.starts_with('-')
    {
        let parts = [OsString::from(kind), OsString::from(name)];
        arguments.splice(2..3, parts);
    }
    arguments
}

fn completion(shell: Shell) -> Result<String, CommandError> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "plimsoll", &mut script);
    String::from_utf8(script).map_err(|error| CommandError::Failed(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subject_may_be_written_as_kind_and_name() {
        let split = |words: &[&str]| {
            let split = split_subject(words.iter().map(OsString::from));
            split.iter().map(|word| word.to_str().unwrap().to_owned()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(split(&["plimsoll", "explain", "deploy/web", "-n", "a/b"]), "plimsoll explain deploy web -n a/b");
        assert_eq!(split(&["plimsoll", "explain", "pod", "shop/web-0"]), "plimsoll explain pod shop/web-0");
        assert_eq!(split(&["plimsoll", "plan", "a/b"]), "plimsoll plan a/b");
    }

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    /// A longer line is wrapped at any width of the terminal, and a wrapped command cannot be copied.
    #[test]
    fn examples_fit_into_the_help_text() {
        const WIDTH: usize = 100;
        fn check(command: &clap::Command) {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            for line in help.lines().filter(|line| line.starts_with("  ")) {
                assert!(line.len() <= WIDTH, "{}: {line}", command.get_name());
            }
            command.get_subcommands().for_each(check);
        }
        check(&Cli::command());
    }

    #[test]
    fn every_command_has_examples() {
        fn check(command: &clap::Command) {
            for sub in command.get_subcommands().filter(|sub| sub.get_name() != "help") {
                let help = sub.get_after_help().map(ToString::to_string).unwrap_or_default();
                assert!(help.contains("Examples:\n"), "{}", sub.get_name());
                check(sub);
            }
        }
        check(&Cli::command());
    }
}
