//! The command line.

use crate::{CommandError, catalog, plan};
use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::Shell;

/// The region whose built-in catalog is used where none is named.
const DEFAULT_REGION: &str = "us-east-1";

/// A Kubernetes node autoscaler for AWS that speaks Karpenter's API.
#[derive(Debug, Parser)]
#[command(name = "plimsoll", version, propagate_version = true, arg_required_else_help = true)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show what would be launched and removed for the pods and nodes in manifests. Nothing is changed.
    #[command(after_help = PLAN_EXAMPLES)]
    Plan(plan::Arguments),
    /// Print the built-in catalog of a region: instance types, what they have and what they cost.
    #[command(after_help = CATALOG_EXAMPLES)]
    Catalog(catalog::Arguments),
    /// Print a completion script for a shell.
    #[command(after_help = COMPLETION_EXAMPLES)]
    Completion {
        /// The shell.
        shell: Shell,
    },
}

const PLAN_EXAMPLES: &str = "\
Examples:
  plimsoll plan -f manifests/                  a table of nodes to launch
  plimsoll plan -f nodepools.yaml -f workloads.yaml --catalog catalog.json -o json
  kubectl get nodepools,ec2nodeclasses,nodes,pods -A -o yaml | plimsoll plan -f -

Exit status: 0 a plan was made, 1 could not run, 2 bad input.";

const CATALOG_EXAMPLES: &str = "\
Examples:
  plimsoll catalog                             a table of the types of us-east-1
  plimsoll catalog --region eu-central-1 -o json > catalog.json";

const COMPLETION_EXAMPLES: &str = "\
Examples:
  source <(plimsoll completion bash)
  plimsoll completion fish > ~/.config/fish/completions/plimsoll.fish";

impl Cli {
    /// Does what was asked and returns what goes to stdout.
    pub fn run(self) -> Result<String, CommandError> {
        match self.command {
            Command::Plan(arguments) => plan::run(&arguments),
            Command::Catalog(arguments) => catalog::run(&arguments),
            Command::Completion { shell } => completion(shell),
        }
    }
}

pub(crate) fn default_region() -> String {
    DEFAULT_REGION.to_owned()
}

fn completion(shell: Shell) -> Result<String, CommandError> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "plimsoll", &mut script);
    String::from_utf8(script).map_err(|error| CommandError::Failed(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(arguments: &[&str]) -> Result<String, CommandError> {
        Cli::try_parse_from(arguments).unwrap().run()
    }

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn an_unknown_region_is_bad_input_and_the_error_names_those_there_are() {
        let error = run(&["plimsoll", "catalog", "--region", "moon-1"]).unwrap_err();
        assert_eq!(error.status(), 2);
        assert!(error.to_string().contains("moon-1") && error.to_string().contains("us-east-1"), "{error}");
    }

    #[test]
    fn the_catalog_as_json_can_be_read_back() {
        let text = run(&["plimsoll", "catalog", "-o", "json"]).unwrap();
        let catalog = plimsoll_catalog::file::parse(&text).unwrap();
        assert_eq!(catalog.region, "us-east-1");
        assert!(catalog.instance_types.iter().any(|it| it.name == "m5.large"));
    }

    #[test]
    fn the_catalog_as_a_table_has_a_line_for_each_type() {
        let text = run(&["plimsoll", "catalog"]).unwrap();
        let line = text.lines().find(|line| line.split_whitespace().next() == Some("m5.large")).unwrap();
        let cells: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(cells[1..3], ["amd64", "2"]);
    }

    #[test]
    fn each_shell_gets_its_script() {
        for shell in ["bash", "zsh", "fish"] {
            assert!(run(&["plimsoll", "completion", shell]).unwrap().contains("catalog"), "{shell}");
        }
    }
}
