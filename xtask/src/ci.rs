//! `cargo xtask ci`: checks that must pass before a change is merged, as steps. `.ci/run` runs the default steps. The
//! steps `deny`, `doc`, `chart` and `image` run only if they are named.

use crate::harness::tools::{self, Tool};
use crate::{Task, workspace};
use anyhow::{Context as _, Result, bail};
use clap::{Parser as _, ValueEnum};
use std::io::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// A scenario that fails runs once more, because it depends on time and other processes use the machine too. Both
/// results are reported.
const END_TO_END: [&str; 4] = ["xtask", "e2e", "--again", "1"];
const CHART: [&str; 2] = ["xtask", "chart"];
/// With the program that the step `tests` has compiled. About 22 minutes of CPU time, at most ten minutes: on a machine
/// that is slow at the moment, the last seeds are left out, and the step says how many.
const SEEDS: [&str; 8] = ["xtask", "sim", "--seeds", "0..500", "--profile", "dev", "--within", "600"];
/// Without actuator/aws, because the lints would compile the EC2 SDK a second time. With the Criterion benches, which
/// nothing else compiles.
const LINTS: &str = "cargo clippy --locked --all-targets --features plimsoll-measure/parts -- -D warnings";

/// Without actuator/aws, as for the lints.
const DOC: &str = "RUSTDOCFLAGS=-Dwarnings cargo doc --locked --no-deps";
/// Advisories need a database from the network, and new advisories appear without a change here, so the workflow checks
/// them.
const DENY: &str = "cargo deny --locked check --hide-inclusion-graph licenses bans sources";
/// Permissions of the actuator: cfn-lint, comparison of the Terraform module with the template, moto's CloudFormation.
const TEMPLATES: &str = "venv=$(tests/ec2/venv.sh) && cd tests/aws && \"$venv/bin/python\" -m unittest";
const ALERT_RULES: &str = "promtool test rules tests/monitoring/plimsoll.yaml";
/// As the Dockerfile builds them.
const RELEASE: &str = "cargo build --release --locked --bins --package plimsoll-watcher --package plimsoll-objects \
                       --package plimsoll-actuator-aws --package plimsoll-cli";

/// Arguments of `cargo xtask ci`.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// The steps to run, in this order; by default all except `deny`, `doc`, `chart` and `image`.
    #[arg(value_enum)]
    steps: Vec<Step>,
}

/// A CI step.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Formatting.
    Format,
    /// Licences, sources and banned crates of the dependencies. Only on request, because it needs cargo-deny.
    Deny,
    /// Clippy without a warning.
    Lints,
    /// Documentation of the crates without a warning. Only on request, because it compiles all crates once more.
    Doc,
    /// The test command of README.md.
    Tests,
    /// Seeds of the swarm simulation.
    Seeds,
    /// Tests of the AWS adapter and of deploy/aws, and validation of requests against AWS' own model of EC2.
    Aws,
    /// The Helm charts, the manifests that are rendered from them, and the alert rules. Only on request, because the
    /// first run builds helm and kubeconform.
    Chart,
    /// The three services on real servers.
    E2e,
    /// The container images, in the release profile. Only on request, because it takes about ten minutes to compile.
    Image,
}

impl Step {
    /// The default steps.
    const DEFAULT: [Self; 6] = [Self::Format, Self::Lints, Self::Tests, Self::Seeds, Self::Aws, Self::E2e];

    fn title(self) -> &'static str {
        match self {
            Self::Format => "format",
            Self::Deny => "dependencies",
            Self::Lints => "lints",
            Self::Doc => "documentation",
            Self::Tests => "tests",
            Self::Seeds => "seeds of the simulation",
            Self::Aws => "the adapter to AWS",
            Self::Chart => "charts",
            Self::E2e => "end to end",
            Self::Image => "the container images",
        }
    }

    fn run(self, root: &Path, target: &Path) -> Result<()> {
        match self {
            Self::Format => shell(root, "cargo fmt --all --check"),
            Self::Deny => shell(root, DENY),
            Self::Lints => shell(root, LINTS),
            Self::Doc => shell(root, DOC),
            Self::Tests => {
                let readme = std::fs::read_to_string(root.join("README.md")).context("README.md")?;
                let command = test_command(&readme).context("README.md, section Start: no second sh block")?;
                shell(root, command)
            }
            Self::Seeds => seeds(),
            Self::Aws => {
                shell(root, "cargo test --locked --package plimsoll-actuator-aws")?;
                with_tools("deploy/aws", &[&tools::PYTHON], || shell(root, TEMPLATES))?;
                with_tools("requests by the model of EC2", &[&tools::PYTHON], || judge_requests(root))
            }
            Self::Chart => {
                with_tools("charts", &[&tools::GO], charts)?;
                with_tools("alert rules", &[&tools::PROMTOOL], || shell(root, ALERT_RULES))
            }
            Self::E2e => with_tools("end to end", &tools::ALL, end_to_end),
            Self::Image => images(root, target),
        }
    }
}

/// Runs the steps and stops at the first that fails.
///
/// # Errors
/// If a step fails, with its name.
pub(crate) fn run(args: &Args) -> Result<()> {
    let (root, target) = workspace::folders()?;
    let steps = if args.steps.is_empty() { &Step::DEFAULT[..] } else { &args.steps };
    let started = Instant::now();
    for step in steps {
        tell(&format!("{} ({} s)", step.title(), started.elapsed().as_secs()));
        step.run(&root, &target).with_context(|| step.title())?;
    }
    tell(&format!("done ({} s)", started.elapsed().as_secs()));
    Ok(())
}

/// The first line of the second fenced sh block of the README's section "Start".
fn test_command(readme: &str) -> Option<&str> {
    let (_, start) = readme.split_once("\n## Start\n")?;
    let section = start.split("\n## ").next()?;
    section.split("```sh\n").nth(2)?.lines().next().filter(|line| !line.is_empty() && !line.starts_with("```"))
}

fn shell(root: &Path, command: &str) -> Result<()> {
    tell(command);
    let status = Command::new("bash").args(["-c", command]).current_dir(root).status().context("starting bash")?;
    if !status.success() {
        bail!("{command}: {status}");
    }
    Ok(())
}

/// Validates the generated requests against AWS' own model of EC2.
fn judge_requests(root: &Path) -> Result<()> {
    let venv = workspace::script(&root.join("tests/ec2/venv.sh"))?;
    let (_, target) = workspace::folders()?;
    // With the features of the tests, for which everything is compiled already.
    shell(root, "cargo build --locked --bin plimsoll")?;
    let (program, python) = (target.join("debug/plimsoll"), venv.join("bin/python"));
    let judge = "-m unittest discover -t . -s judge";
    shell(&root.join("tests"), &format!("PLIMSOLL='{}' '{}' {judge}", program.display(), python.display()))
}

/// Runs a step that needs tools other than Rust. Without these tools, skips the step with a message.
fn with_tools(what: &str, tools: &[&Tool], run: impl FnOnce() -> Result<()>) -> Result<()> {
    let missing: Vec<&str> = tools.iter().filter(|tool| !tool.is_installed()).map(|tool| tool.program).collect();
    if missing.is_empty() {
        return run();
    }
    tell(&format!("{what}: LEFT OUT, this machine has no {}", missing.join(" ")));
    Ok(())
}

fn charts() -> Result<()> {
    match Task::try_parse_from(CHART)? {
        Task::Chart(args) => crate::chart::run(&args),
        other => bail!("{CHART:?} is {other:?}"),
    }
}

fn seeds() -> Result<()> {
    match Task::try_parse_from(SEEDS)? {
        Task::Sim(args) => crate::sim::run(&args),
        other => bail!("{SEEDS:?} is {other:?}"),
    }
}

fn end_to_end() -> Result<()> {
    match Task::try_parse_from(END_TO_END)? {
        Task::E2e(args) => crate::e2e::run(args),
        other => bail!("{END_TO_END:?} is {other:?}"),
    }
}

/// Compiles once with cargo instead of again in a builder, and works without a registry of images.
fn images(root: &Path, target: &Path) -> Result<()> {
    shell(root, RELEASE)?;
    let programs = target.join("release");
    let programs = programs.to_str().context("the path of the target folder is not UTF-8")?;
    match Task::try_parse_from(["xtask", "image", "--base", "local", "--programs", programs])? {
        Task::Image(args) => crate::image::run(&args),
        other => bail!("xtask image is {other:?}"),
    }
}

/// If stderr is closed, the message is lost.
fn tell(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "\n== {text}");
}

#[cfg(test)]
mod tests {
    use super::{CHART, END_TO_END, SEEDS, Step, test_command};
    use crate::{Task, workspace};
    use clap::{Parser as _, ValueEnum as _};

    #[test]
    fn the_readme_has_a_test_command() {
        let (root, _) = workspace::folders().unwrap();
        let readme = std::fs::read_to_string(root.join("README.md")).unwrap();
        assert!(test_command(&readme).unwrap().starts_with("cargo test --locked"), "{:?}", test_command(&readme));
    }

    #[test]
    fn the_workflow_has_every_step() {
        let (root, _) = workspace::folders().unwrap();
        let workflow = std::fs::read_to_string(root.join(".github/workflows/ci.yml")).unwrap();
        let run: Vec<&str> = workflow
            .lines()
            .filter_map(|line| line.split_once("cargo xtask ci "))
            .flat_map(|(_, steps)| steps.split_whitespace())
            .collect();
        for step in Step::value_variants() {
            let name = step.to_possible_value().unwrap().get_name().to_owned();
            assert!(run.contains(&name.as_str()), "{name} is not in {run:?}");
        }
    }

    #[test]
    fn only_the_second_block_of_the_section_counts() {
        let section = |blocks: &str| format!("# X\n\n## Start\n\n{blocks}\n## More\n\n```sh\nlater\n```\n");
        let block = |line: &str| format!("```sh\n{line}\n```\n");
        assert_eq!(test_command(&section(&(block("one") + &block("two") + &block("three")))), Some("two"));
        assert_eq!(test_command(&section(&block("one"))), None);
        assert_eq!(test_command(&section(&(block("one") + "```sh\n```\n"))), None);
        assert_eq!(test_command("## Start\n"), None);
    }

    #[test]
    fn all_steps_can_be_named_and_the_end_to_end_run_is_a_task() {
        let names = Step::value_variants().iter().map(|step| step.to_possible_value().unwrap().get_name().to_owned());
        assert_eq!(
            names.collect::<Vec<_>>(),
            ["format", "deny", "lints", "doc", "tests", "seeds", "aws", "chart", "e2e", "image"]
        );
        assert!(!Step::DEFAULT.contains(&Step::Image), "a second profile is compiled only on request");
        assert!(matches!(Task::try_parse_from(END_TO_END), Ok(Task::E2e(_))));
        assert!(matches!(Task::try_parse_from(CHART), Ok(Task::Chart(_))));
        assert!(matches!(Task::try_parse_from(SEEDS), Ok(Task::Sim(_))));
        assert!(matches!(Task::try_parse_from(["xtask", "ci", "format", "lints"]), Ok(Task::Ci(_))));
    }
}
