//! Flags that the three services share, flattened into their own flags.

pub mod invalid_flag;

use std::{net::SocketAddr, path::PathBuf};

use clap::Args;

use crate::telemetry::{self, LogFormat};
use invalid_flag::InvalidFlag;

/// Addresses of the admin ports, loopback by default.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct AdminArgs {
    /// Address of /metrics and /log-level.
    #[arg(long, env = "PLIMSOLL_METRICS_LISTEN", default_value = "127.0.0.1:8080", value_name = "ADDRESS")]
    pub metrics_listen: SocketAddr,
    /// Address of /livez and /readyz.
    #[arg(long, env = "PLIMSOLL_HEALTH_LISTEN", default_value = "127.0.0.1:8081", value_name = "ADDRESS")]
    pub health_listen: SocketAddr,
}

/// Log settings.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct LogArgs {
    /// Format of log lines.
    #[arg(long, env = "PLIMSOLL_LOG_FORMAT", value_enum, default_value_t)]
    pub log_format: LogFormat,
    /// What to log: a level, or directives such as info,plimsoll_solver=debug.
    #[arg(
        long,
        env = "PLIMSOLL_LOG_LEVEL",
        default_value = "info",
        value_parser = log_level,
        value_name = "DIRECTIVES"
    )]
    pub log_level: String,
}

fn log_level(text: &str) -> Result<String, String> {
    telemetry::check(text).map(|()| text.to_owned())
}

/// Files for mutual TLS: all three or none. Without them the service listens on loopback only.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsArgs {
    /// This service's certificate chain, PEM.
    #[arg(long, env = "PLIMSOLL_TLS_CERT", requires_all = ["tls_key", "tls_ca"], value_name = "FILE")]
    pub tls_cert: Option<PathBuf>,
    /// The private key of the certificate, PEM.
    #[arg(long, env = "PLIMSOLL_TLS_KEY", requires_all = ["tls_cert", "tls_ca"], value_name = "FILE")]
    pub tls_key: Option<PathBuf>,
    /// The authorities that callers' and servers' certificates must come from, PEM.
    #[arg(long, env = "PLIMSOLL_TLS_CA", requires_all = ["tls_cert", "tls_key"], value_name = "FILE")]
    pub tls_ca: Option<PathBuf>,
}

/// All shared flags.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct ServiceArgs {
    /// Address of the gRPC port; other than loopback only with certificates.
    #[arg(long, env = "PLIMSOLL_LISTEN", default_value = "127.0.0.1:9442", value_name = "ADDRESS")]
    pub listen: SocketAddr,
    /// Certificates.
    #[command(flatten)]
    pub tls: TlsArgs,
    /// Admin ports.
    #[command(flatten)]
    pub admin: AdminArgs,
    /// Logging.
    #[command(flatten)]
    pub log: LogArgs,
}

impl ServiceArgs {
    /// Checks that the settings are consistent.
    ///
    /// # Errors
    /// If the closed port would be open to the network without certificates.
    pub fn check(&self) -> Result<(), InvalidFlag> {
        let listen = self.listen;
        if self.tls.tls_cert.is_none() && !listen.ip().is_loopback() {
            let problem = format!("not set: without certificates --listen must be a loopback address, not {listen}");
            return Err(InvalidFlag::new("tls-cert", problem));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Service {
        #[command(flatten)]
        args: ServiceArgs,
    }

    #[test]
    fn defaults_are_on_loopback_and_plain() {
        let args = Service::try_parse_from(["service"]).unwrap().args;
        assert!(args.listen.ip().is_loopback());
        assert!(args.admin.metrics_listen.ip().is_loopback() && args.admin.health_listen.ip().is_loopback());
        assert_eq!(args.tls, TlsArgs::default());
        assert_eq!((args.log.log_format, args.log.log_level.as_str()), (LogFormat::Json, "info"));
    }

    #[test]
    fn certificates_come_all_or_not_at_all() {
        let error = Service::try_parse_from(["service", "--tls-cert", "a.pem"]).err().unwrap().to_string();
        assert!(error.contains("--tls-key") && error.contains("--tls-ca"), "{error}");
        let all = ["service", "--tls-cert", "a.pem", "--tls-key", "b.pem", "--tls-ca", "c.pem"];
        let args = Service::try_parse_from(all).unwrap().args;
        assert_eq!(args.tls.tls_key, Some(PathBuf::from("b.pem")));
    }
}
