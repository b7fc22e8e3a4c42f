//! `cargo xtask world`: the end-to-end environment, kept running for use with kubectl.

mod capacity;
mod commands;
mod control;
mod keep;
mod state;
mod status;

use crate::harness::services::{Kind, REPLICAS};
use crate::progress::Reporter;
use crate::workspace;
use anyhow::{Result, anyhow};
pub(crate) use state::HOME;
use state::Home;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::mpsc::Sender;
use std::time::Duration;

const PROGRESS: Reporter = Reporter("world");

pub(crate) const EXAMPLES: &str = "\
Examples:
  cargo xtask world                                   start; Ctrl-C stops and removes everything
  cargo xtask world --pools my-pools.yaml --boot-delay 30s
  cargo xtask world --keep logs --replicas 1          keep the logs in ./logs

In another terminal, while it runs:
  export KUBECONFIG=...                               printed by `cargo xtask world`
  kubectl apply -f docs/examples/world/web.yaml
  kubectl get nodeclaims,nodes,pods
  cargo xtask world status
  cargo xtask world spot-notice NODE                  EC2 terminates the node's Spot instance in two minutes
  cargo xtask world capacity take spot m7i.large us-east-1a
  cargo xtask world capacity take '*' '*' us-east-1a  a zone without capacity
  cargo xtask world capacity give '*' '*' '*'         restore all capacity
  cargo xtask world terminate NODE                    the instance is lost
  cargo xtask world restart scheduler                 after a change in its code: builds and restarts it
  cargo xtask world stop

Subcommands find the world by target/world/state.json. PLIMSOLL_WORLD=DIR names another folder, for a second world beside the first.

Needs Go (once, to build the control plane: 7 to 10 minutes on 2 cores), Python 3.11 and kubectl; no account, no container, no
root. Everything listens on 127.0.0.1. CONTRIBUTING.md, \"Try a change with kubectl\", shows a whole session.";

/// Longer boots reach the registration time-out of 15 minutes.
const BOOT_MAX: Duration = Duration::from_secs(600);

/// Arguments of `cargo xtask world`.
#[derive(clap::Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    #[command(flatten)]
    start: Start,
    #[command(subcommand)]
    command: Option<Command>,
}

/// Options of the start.
#[derive(clap::Args, Debug)]
struct Start {
    /// NodePools and EC2NodeClasses to apply; `${CLUSTER_NAME}` is replaced by the name of the cluster [default:
    /// docs/examples/world/pools.yaml].
    #[arg(long, value_name = "FILE")]
    pools: Option<PathBuf>,
    /// Write logs and data to this new or empty folder, and keep them. The path must be short, because it contains a
    /// socket.
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    /// Replicas of each service.
    #[arg(long, default_value_t = REPLICAS, value_name = "1-9", value_parser = replicas)]
    replicas: usize,
    /// Time from a running instance to its Node, at most 10m.
    #[arg(long, default_value = "5s", value_name = "TIME", value_parser = boot_delay)]
    boot_delay: Duration,
    /// EC2 has slow calls, rare failures, throttling and delayed reads that depend on this seed: tests/ec2/README.md.
    #[arg(long, value_name = "SEED")]
    ec2_seed: Option<u32>,
    /// Name of the cluster. Subnets and security groups are tagged karpenter.sh/discovery=NAME, the node role is
    /// KarpenterNodeRole-NAME.
    #[arg(long, default_value = "world", value_name = "NAME", value_parser = cluster_name)]
    cluster_name: String,
    /// AWS region with built-in prices.
    #[arg(long, default_value = "us-east-1", value_name = "REGION", value_parser = region)]
    region: String,
    /// Use the programs in the target folder without building them.
    #[arg(long)]
    no_build: bool,
}

/// Commands for a running world.
#[derive(clap::Subcommand, Debug)]
enum Command {
    /// Send a Spot interruption notice: EC2 terminates the instance two minutes later.
    SpotNotice {
        /// Name of a Node, or id of an instance.
        #[arg(value_name = "NODE|INSTANCE")]
        target: String,
    },
    /// Remove capacity from EC2, or restore it. `*` means all, and must be quoted in a shell.
    Capacity {
        /// Without options, show the removed capacity.
        #[command(subcommand)]
        change: Option<capacity::Change>,
    },
    /// Terminate an instance, like a failure of its host or another user.
    Terminate {
        /// Name of a Node, or id of an instance.
        #[arg(value_name = "NODE|INSTANCE")]
        target: String,
    },
    /// Show nodes, instances, services and paths.
    Status,
    /// Build a service and restart its replicas one by one.
    Restart {
        /// Which service.
        service: Kind,
        /// Restart without building.
        #[arg(long)]
        no_build: bool,
    },
    /// Stop the world, and wait until all its processes have ended.
    Stop,
}

/// Requests to the process that runs the world.
#[derive(Debug)]
enum Event {
    Stop,
    /// The reply is sent when all replicas are ready.
    Restart {
        kind: Kind,
        reply: Sender<Result<(), String>>,
    },
}

/// Starts and runs the world, or executes a command in the running world.
///
/// # Errors
/// If the world does not start or a component exits; for a subcommand, if no world runs or the command fails.
pub(crate) fn run(args: &Args) -> Result<()> {
    let (root, target) = workspace::folders()?;
    let home = Home::find(&target)?;
    match &args.command {
        None => keep::run(&args.start, &root, &home),
        Some(Command::SpotNotice { target }) => commands::spot_notice(&home, target),
        Some(Command::Capacity { change }) => capacity::run(&home, change.as_ref()),
        Some(Command::Terminate { target }) => commands::terminate(&home, target),
        Some(Command::Status) => status::run(&home),
        Some(Command::Restart { service, no_build }) => commands::restart(&home, &root, *service, !no_build),
        Some(Command::Stop) => commands::stop(&home),
    }
}

fn replicas(text: &str) -> Result<usize> {
    match text.parse() {
        Ok(count @ 1..=9) => Ok(count),
        _ => Err(anyhow!("a number from 1 to 9 is needed")),
    }
}

fn boot_delay(text: &str) -> Result<Duration> {
    let delay: jiff::SignedDuration = text.parse().map_err(|_| anyhow!("a time such as 30s or 2m is needed"))?;
    let delay = Duration::try_from(delay).map_err(|_| anyhow!("it is negative"))?;
    if delay > BOOT_MAX { Err(anyhow!("at most 10m")) } else { Ok(delay) }
}

/// Validates the name by the rules of EKS and SQS.
fn cluster_name(text: &str) -> Result<String> {
    let good = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if text.is_empty() || text.len() > 80 || !text.chars().all(good) || !text.starts_with(|c: char| c.is_alphanumeric())
    {
        return Err(anyhow!("up to 80 letters, digits, - and _ are allowed, the first a letter or digit"));
    }
    Ok(text.to_owned())
}

fn region(text: &str) -> Result<String> {
    let known = plimsoll_catalog::builtin::regions();
    if !known.contains(&text) {
        return Err(anyhow!("the built-in catalog has {}", known.join(", ")));
    }
    Ok(text.to_owned())
}

/// Prints a result for the user.
fn print(text: &str) -> Result<()> {
    Ok(writeln!(std::io::stdout().lock(), "{text}")?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Task;
    use clap::Parser as _;

    fn parse(args: &[&str]) -> Result<Args> {
        let words = ["xtask", "world"].iter().chain(args);
        match Task::try_parse_from(words)? {
            Task::World(args) => Ok(args),
            other => Err(anyhow!("{other:?}")),
        }
    }

    fn refused(args: &[&str]) -> String {
        parse(args).map_or_else(|error| error.to_string(), |args| format!("accepted: {args:?}"))
    }

    #[test]
    fn without_arguments_a_world_as_deployed_starts() -> Result<()> {
        let Args { start, command } = parse(&[])?;
        assert!(command.is_none());
        assert_eq!((start.replicas, start.boot_delay), (REPLICAS, Duration::from_secs(5)));
        assert_eq!((start.region.as_str(), start.cluster_name.as_str()), ("us-east-1", "world"));
        assert_eq!((start.pools, start.keep, start.no_build), (None, None, false));
        Ok(())
    }

    #[test]
    fn options_have_bounds_that_the_error_names() -> Result<()> {
        let start = parse(&["--replicas", "9", "--boot-delay", "2m", "--cluster-name", "my_cluster-1"])?.start;
        assert_eq!((start.replicas, start.boot_delay), (9, Duration::from_secs(120)));
        for (args, told) in [
            (["--replicas", "0"], "from 1 to 9"),
            (["--replicas", "10"], "from 1 to 9"),
            (["--boot-delay", "11m"], "at most 10m"),
            (["--boot-delay", "-5s"], "negative"),
            (["--boot-delay", "fast"], "such as 30s"),
            (["--cluster-name", "a/b"], "letters, digits"),
            (["--region", "mars-north-1"], "us-east-1"),
        ] {
            let [option, value] = args;
            let error = refused(&[&format!("{option}={value}")]);
            assert!(error.contains(told), "{args:?}: {error}");
        }
        Ok(())
    }

    #[test]
    fn a_subcommand_takes_no_option_of_starting() {
        assert!(
            refused(&["--replicas", "1", "status"]).contains("cannot be used with"),
            "{}",
            refused(&["--replicas", "1", "status"])
        );
        assert!(refused(&["restart", "kubelet"]).contains("watcher, scheduler, actuator"));
        assert!(refused(&["spot-notice"]).contains("<NODE|INSTANCE>"));
    }

    #[test]
    fn every_example_of_the_help_is_a_command() -> Result<()> {
        let commands = EXAMPLES.lines().filter_map(|line| line.trim_start().strip_prefix("cargo xtask world"));
        let mut seen = 0;
        for line in commands {
            // The description follows two spaces.
            let words = line.trim_start().split("  ").next().unwrap_or_default();
            let explained = line.starts_with("  ");
            let words: Vec<&str> = if explained { Vec::new() } else { words.split_ascii_whitespace().collect() };
            let words: Vec<String> = words.iter().map(|word| word.trim_matches('\'').to_owned()).collect();
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            parse(&words).map_err(|error| anyhow!("{line}: {error}"))?;
            seen += 1;
        }
        assert!(seen > 8, "looked in the wrong place");
        Ok(())
    }
}
