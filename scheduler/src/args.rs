//! Command line flags.

use crate::service::Settings;
use clap::{CommandFactory, Parser};
use plimsoll_runtime::args::ServiceArgs;
use plimsoll_runtime::args::invalid_flag::{InvalidFlag, Refused, parse_args};
use plimsoll_runtime::workers::Bounds;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::num::NonZeroUsize;

const EXAMPLES: &str = "\
Examples:
  On this machine, for one watcher and for other programs:
    plimsoll-scheduler --listen 127.0.0.1:9442 --open-listen 127.0.0.1:9452

  In a cluster, under mutual TLS; sessions for the watcher alone:
    plimsoll-scheduler --listen 0.0.0.0:9442 --open-listen 0.0.0.0:9452 \\
      --tls-cert tls.crt --tls-key tls.key --tls-ca ca.crt \\
      --session-callers plimsoll-watcher.plimsoll-system.svc

Every flag can be given by its environment variable instead.";

/// Makes plans for Kubernetes clusters: which nodes to launch, which to remove. Holds no state and no credentials.
#[derive(Parser, Clone, Debug, PartialEq, Eq)]
#[command(name = "plimsoll-scheduler", version, after_help = EXAMPLES, max_term_width = 120)]
pub struct Args {
    /// What all services have.
    #[command(flatten)]
    pub service: ServiceArgs,
    /// Address of the port that answers Plan, PlanObjects, WhatIf and Explain to any caller, without TLS. Closed unless
    /// given.
    #[arg(long, env = "PLIMSOLL_OPEN_LISTEN", value_name = "ADDRESS")]
    pub open_listen: Option<SocketAddr>,
    /// DNS names of the certificates that may open sessions. Without them every certificate of the authority may.
    #[arg(long, env = "PLIMSOLL_SESSION_CALLERS", value_delimiter = ',', value_name = "NAME")]
    pub session_callers: Vec<String>,
    /// Plans made at once; half of them at most for other programs. The number of cores unless given.
    #[arg(long, env = "PLIMSOLL_WORKERS", value_name = "COUNT")]
    pub workers: Option<NonZeroUsize>,
    /// Whether gRPC reflection is answered.
    #[arg(long, env = "PLIMSOLL_REFLECTION", default_value_t = true, action = clap::ArgAction::Set, value_name = "BOOL")]
    pub reflection: bool,
}

impl Args {
    /// Parses the arguments of the process.
    ///
    /// # Errors
    /// The arguments are wrong, or help or the version was asked for.
    pub fn read(args: impl IntoIterator<Item = impl Into<OsString> + Clone>) -> Result<Self, Refused> {
        parse_args(Self::command(), args, Self::check)
    }

    fn check(&self) -> Result<(), InvalidFlag> {
        self.service.check()?;
        if self.open_listen.is_some_and(|open| open.port() != 0 && open.port() == self.service.listen.port()) {
            return Err(InvalidFlag::new("open-listen", "the open port must differ from that of --listen"));
        }
        Ok(())
    }

    /// Service settings of these flags on a machine with `cores` cores.
    #[must_use]
    pub fn settings(&self, cores: NonZeroUsize) -> Settings {
        Settings {
            workers: Bounds::for_cores(self.workers.unwrap_or(cores)),
            session_callers: self.session_callers.clone(),
            reflection: self.reflection,
            ..Settings::for_cores(cores)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_well_formed_and_the_open_port_is_off_by_default() {
        Args::command().debug_assert();
        let args = Args::try_parse_from(["plimsoll-scheduler"]).unwrap();
        assert_eq!((args.open_listen, args.workers, args.reflection), (None, None, true));
        assert!(args.service.listen.ip().is_loopback());
    }

    #[test]
    fn the_flags_of_the_manifest_are_valid() {
        let manifest = include_str!("../../deploy/kubernetes/scheduler.yaml");
        let flags =
            manifest.lines().filter_map(|line| line.trim().strip_prefix("- --")).map(|flag| format!("--{flag}"));
        let args = Args::try_parse_from(["plimsoll-scheduler".to_owned()].into_iter().chain(flags)).unwrap();
        assert_eq!(args.open_listen, None, "the port without TLS is opened by whoever wants it");
        assert!(args.service.tls.tls_ca.is_some());
        assert_eq!(args.check(), Ok(()));
    }

    #[test]
    fn the_open_port_is_another_one() {
        let args = ["plimsoll-scheduler", "--listen=127.0.0.1:1", "--open-listen=127.0.0.1:1"];
        let message = Args::read(args).unwrap_err().to_string();
        assert!(message.contains("--open-listen (environment PLIMSOLL_OPEN_LISTEN"), "{message}");
    }

    #[test]
    fn workers_also_limit_outside_callers() {
        let args = Args::try_parse_from(["plimsoll-scheduler", "--workers", "8"]).unwrap();
        let bounds = args.settings(NonZeroUsize::MIN).workers;
        assert_eq!((bounds.running, bounds.outside_running), (8, 4));
    }
}
