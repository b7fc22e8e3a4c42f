//! An invalid setting ends the process with status 2 and one line. The line contains the flag, its environment variable
//! and the Helm chart value, which most users set.

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, FromArgMatches};
use std::error::Error as _;
use std::ffi::OsString;
use std::io::Write as _;

/// Exit status for invalid settings.
pub const STATUS: i32 = 2;

/// Values of the chart deploy/helm/plimsoll by flag. The chart sets all other flags itself.
const CHART_VALUES: &[(&str, &str)] = &[
    ("listen", "settings.ipFamily"),
    ("metrics-listen", "settings.ipFamily"),
    ("health-listen", "settings.ipFamily"),
    ("open-listen", "scheduler.openPort.enabled"),
    ("log-format", "logFormat"),
    ("log-level", "logLevel"),
    ("tls-cert", "certificates.mode"),
    ("tls-key", "certificates.mode"),
    ("tls-ca", "certificates.mode"),
    ("cluster-name", "settings.clusterName"),
    ("cluster-endpoint", "settings.clusterEndpoint"),
    ("cluster-ca-file", "settings.clusterCABundle"),
    ("cluster-dns", "settings.clusterDNS"),
    ("service-cidr", "settings.serviceCIDR"),
    ("region", "settings.region"),
    ("aws-endpoint-url", "settings.awsEndpointURL"),
    ("interruption-queue", "settings.interruptionQueue"),
    ("act-on-rebalance", "settings.actOnRebalance"),
    ("vm-memory-overhead-percent", "settings.vmMemoryOverheadPercent"),
    ("reserved-enis", "settings.reservedENIs"),
    ("disable-dry-run", "settings.disableDryRun"),
    ("enable-zonal-shift", "settings.enableZonalShift"),
    ("nominate-nodes", "settings.nominateNodes"),
    ("bind-pods", "settings.bindPods"),
    ("reserved-capacity", "settings.featureGates.reservedCapacity"),
    ("karpenter-lease", "settings.karpenterNamespace"),
    ("shadow-report-interval", "settings.shadowReportInterval"),
    ("preference-policy", "settings.preferencePolicy"),
    ("min-values-policy", "settings.minValuesPolicy"),
    ("max-share-per-node", "settings.maxSharePerNode"),
    ("min-saving-per-eviction", "settings.minSavingPerEviction"),
    ("spot-to-spot-consolidation", "settings.featureGates.spotToSpotConsolidation"),
    ("node-repair", "settings.featureGates.nodeRepair"),
    ("capacity-buffers", "settings.featureGates.capacityBuffer"),
    ("node-overlays", "settings.featureGates.nodeOverlay"),
    ("record-to", "watcher.recording.enabled"),
    ("record-mib", "watcher.recording.mebibytes"),
    ("workers", "scheduler.workers"),
    ("reflection", "scheduler.reflection"),
];

/// An invalid setting that clap accepts, or a contradiction between settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidFlag {
    /// Long name of the flag, without dashes.
    pub flag: &'static str,
    /// Description of the problem.
    pub problem: String,
}

impl InvalidFlag {
    /// An invalid value of the flag with this long name.
    pub fn new(flag: &'static str, problem: impl Into<String>) -> Self {
        Self { flag, problem: problem.into() }
    }
}

/// Why a service does not start with its arguments.
#[derive(Debug)]
pub enum Refused {
    /// Help or version was requested.
    HelpRequested(clap::Error),
    /// The error message, one line.
    Invalid(String),
}

impl Refused {
    /// Prints the message and ends the process: with status 0 for help and version, otherwise with [`STATUS`].
    pub fn exit(&self) -> ! {
        match self {
            Self::HelpRequested(error) => error.exit(),
            Self::Invalid(line) => {
                // If stderr is closed, only the status remains.
                let _ = writeln!(std::io::stderr().lock(), "{line}");
                std::process::exit(STATUS)
            }
        }
    }
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::HelpRequested(error) => error.fmt(f),
            Self::Invalid(line) => f.write_str(line),
        }
    }
}

/// Parses the arguments of a service and runs the checks that clap cannot do.
///
/// # Errors
/// If the arguments are invalid, or help or version was requested.
pub fn parse_args<T: FromArgMatches>(
    mut command: Command,
    args: impl IntoIterator<Item = impl Into<OsString> + Clone>,
    check: impl FnOnce(&T) -> Result<(), InvalidFlag>,
) -> Result<T, Refused> {
    let parsed = command.try_get_matches_from_mut(args).and_then(|matches| T::from_arg_matches(&matches));
    let value = match parsed {
        Ok(value) => value,
        Err(error) if !error.use_stderr() => return Err(Refused::HelpRequested(error)),
        Err(error) => return Err(Refused::Invalid(line(&command, &of_clap(&command, &error)))),
    };
    match check(&value) {
        Ok(()) => Ok(value),
        Err(InvalidFlag { flag, problem }) => {
            Err(Refused::Invalid(line(&command, &format!("{}: {problem}", described(&command, flag)))))
        }
    }
}

fn line(command: &Command, text: &str) -> String {
    format!("{}: {text}", command.get_name())
}

/// Error of clap, in one line.
fn of_clap(command: &Command, error: &clap::Error) -> String {
    let argument = error.get(ContextKind::InvalidArg);
    match (error.kind(), argument) {
        (ErrorKind::MissingRequiredArgument, Some(ContextValue::Strings(missing))) => {
            let missing: Vec<String> = missing.iter().map(|usage| described(command, flag_of(usage))).collect();
            format!("not set: {}", missing.join("; "))
        }
        (_, Some(ContextValue::String(usage))) => {
            let value = match error.get(ContextKind::InvalidValue) {
                Some(ContextValue::String(value)) => format!("{value:?} "),
                _ => String::new(),
            };
            // Without a source, as for a value outside of the possible values, the first line has the reason.
            let why = error.source().map_or_else(|| first_line(error), ToString::to_string);
            format!("{}: {value}is not valid: {why}", described(command, flag_of(usage)))
        }
        _ => first_line(error),
    }
}

fn first_line(error: &clap::Error) -> String {
    let text = error.to_string();
    text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned()
}

/// The flag in a usage string such as `--region <REGION>`.
fn flag_of(usage: &str) -> &str {
    let word = usage.split([' ', '=', '[']).next().unwrap_or(usage);
    word.trim_start_matches("--")
}

/// A flag with its environment variable and its chart value.
fn described(command: &Command, flag: &str) -> String {
    let argument = command.get_arguments().find(|argument| argument.get_long() == Some(flag));
    let environment = argument.and_then(|argument| argument.get_env()).map(|name| name.to_string_lossy());
    let chart = CHART_VALUES.iter().find(|(name, _)| *name == flag).map(|(_, value)| *value);
    let other =
        [environment.map(|name| format!("environment {name}")), chart.map(|value| format!("chart value {value}"))];
    let other: Vec<String> = other.into_iter().flatten().collect();
    if other.is_empty() { format!("--{flag}") } else { format!("--{flag} ({})", other.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::ServiceArgs;
    use clap::{CommandFactory, Parser};

    #[derive(Parser, Debug)]
    #[command(name = "service")]
    struct Service {
        #[command(flatten)]
        args: ServiceArgs,
        #[arg(long, env = "PLIMSOLL_REGION", value_name = "REGION")]
        region: String,
    }

    fn error_line(args: &[&str]) -> String {
        let args = ["service"].iter().chain(args);
        match parse_args(Service::command(), args, |service: &Service| service.args.check()) {
            Err(Refused::Invalid(line)) => line,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_is_missing_is_named_in_all_three_ways() {
        let expected = "service: not set: --region (environment PLIMSOLL_REGION, chart value settings.region)";
        assert_eq!(error_line(&[]), expected);
    }

    #[test]
    fn an_invalid_flag_is_described_in_one_line() {
        let table: [(&[&str], &[&str]); 6] = [
            (
                &["--region=a", "--log-format=xml"],
                &["--log-format (environment PLIMSOLL_LOG_FORMAT, chart value logFormat)", "\"xml\""],
            ),
            (
                &["--region=a", "--log-level=warning"],
                &["--log-level (environment PLIMSOLL_LOG_LEVEL, chart value logLevel)", "\"warning\" is neither"],
            ),
            (
                &["--region=a", "--listen=here"],
                &[
                    "--listen (environment PLIMSOLL_LISTEN, chart value settings.ipFamily)",
                    "\"here\"",
                    "invalid socket address",
                ],
            ),
            (
                &["--region=a", "--tls-cert=a.pem"],
                &["not set: --tls-ca (", "; --tls-key (", "chart value certificates.mode"],
            ),
            (
                &["--region=a", "--listen=[::]:9443"],
                &["--tls-cert (environment PLIMSOLL_TLS_CERT, chart value certificates.mode)", "[::]:9443"],
            ),
            (&["--region=a", "--what"], &["--what"]),
        ];
        for (args, expected) in table {
            let line = error_line(args);
            assert!(!line.contains('\n') && line.starts_with("service: "), "{line}");
            assert!(expected.iter().all(|part| line.contains(part)), "{line}");
        }
    }

    #[test]
    fn help_is_no_error() {
        let parsed = parse_args(Service::command(), ["service", "--help"], |service: &Service| service.args.check());
        assert!(matches!(parsed, Err(Refused::HelpRequested(_))));
    }

    /// Flags that the chart sets from no value, or from the name of the release.
    const OF_THE_CHART: [&str; 6] =
        ["actuator", "allow-caller", "lease-namespace", "scheduler", "session-callers", "watcher-lease"];

    #[test]
    fn the_values_of_all_flags_that_the_chart_sets_are_known() {
        let templates = [
            include_str!("../../../deploy/helm/plimsoll/templates/_pod.tpl"),
            include_str!("../../../deploy/helm/plimsoll/templates/actuator.yaml"),
            include_str!("../../../deploy/helm/plimsoll/templates/scheduler.yaml"),
            include_str!("../../../deploy/helm/plimsoll/templates/watcher.yaml"),
        ];
        let lines = templates.iter().flat_map(|text| text.lines());
        let arguments = lines.filter_map(|line| line.trim().strip_prefix("- --"));
        let flags: Vec<&str> = arguments.map(|argument| argument.split('=').next().unwrap_or(argument)).collect();
        assert!(flags.len() > 30, "{flags:?}");
        for flag in flags {
            let is_known = CHART_VALUES.iter().any(|(known, _)| *known == flag) || OF_THE_CHART.contains(&flag);
            assert!(is_known, "--{flag}: add it to CHART_VALUES");
        }
    }

    #[test]
    fn the_chart_has_these_values() {
        let values = include_str!("../../../deploy/helm/plimsoll/values.yaml");
        for (flag, value) in CHART_VALUES {
            // Each part of the path is a key, indented by two more columns.
            let mut lines = values.lines();
            let found = value.split('.').enumerate().all(|(depth, key)| {
                let start = format!("{}{key}:", "  ".repeat(depth));
                lines.any(|line| line.starts_with(&start))
            });
            assert!(found, "--{flag}: values.yaml has no {value}");
        }
    }
}
