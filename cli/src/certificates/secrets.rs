//! Creates and renews certificates in Secrets of a cluster.

use super::SERVICES;
use super::issue::Pair;
use super::renew::{self, Content, Policy};
use crate::cluster::invalid_kubeconfig;
use crate::{CommandError, with_cause};
use clap::Args;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::Config;
use kube::api::{Api, ObjectMeta, Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use plimsoll_runtime::cluster_access;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

/// Timeout of one response. A Job retries later.
const READ_TIMEOUT: Duration = Duration::from_secs(30);
const AUTHORITY: &str = "authority";
const TYPE: &str = "kubernetes.io/tls";
const CERT: &str = "tls.crt";
const KEY: &str = "tls.key";
const AUTHORITIES: &str = "ca.crt";

#[derive(Debug, Args)]
pub(super) struct SecretArguments {
    /// Write Secrets of this namespace, in which the services run, instead of files: those that are missing, and those
    /// that expire soon. Needs permission to get, create and patch the four Secrets, and no others.
    #[arg(long, value_name = "NAMESPACE", value_parser = super::namespace, conflicts_with_all = ["out", "namespace", "force"])]
    pub(super) secrets: Option<String>,
    /// Days before expiry at which a certificate is replaced, with the unit d; less than --days.
    #[arg(long, default_value = "30d", value_parser = days, value_name = "DAYS", requires = "secrets")]
    renew_before: u16,
    /// Name of a Secret, instead of plimsoll-SERVICE-tls and, for the authority and its key, plimsoll-ca.
    #[arg(long = "secret-name", value_parser = named, value_name = "SERVICE|authority=NAME", requires = "secrets")]
    names: Vec<(String, String)>,
    /// The kubeconfig [default: $KUBECONFIG, else ~/.kube/config, else that of the pod]
    #[arg(long, value_name = "FILE", requires = "secrets")]
    kubeconfig: Option<PathBuf>,
}

fn days(text: &str) -> Result<u16, String> {
    let days = text.strip_suffix('d').and_then(|number| number.parse().ok());
    days.filter(|days| (1..=3650).contains(days)).ok_or_else(|| "must be a number of days, such as 30d".to_owned())
}

fn named(text: &str) -> Result<(String, String), String> {
    let (service, name) = text.split_once('=').ok_or("must be SERVICE=NAME")?;
    if service != AUTHORITY && !SERVICES.contains(&service) {
        return Err(format!("{service} is none of watcher, scheduler, actuator, authority"));
    }
    let inside = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'.';
    if name.is_empty() || name.len() > 253 || !name.bytes().all(inside) {
        return Err(format!("{name:?} is no name of a Secret"));
    }
    Ok((service.to_owned(), name.to_owned()))
}

/// Writes Secrets that are missing or due. Prints their names, never their contents.
pub(super) fn run(arguments: &SecretArguments, names: &[(&str, String)], days: u16) -> Result<String, CommandError> {
    if arguments.renew_before >= days {
        let why = format!("--renew-before {}d must be less than --days {days}", arguments.renew_before);
        return Err(CommandError::BadInput(why));
    }
    let policy = Policy { days, renew_before: arguments.renew_before, now: jiff::Timestamp::now().as_second() };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| CommandError::Failed(error.to_string()))?;
    runtime.block_on(async {
        let namespace = arguments.secrets.as_deref().unwrap_or_default();
        let config = config(arguments).await?;
        let client = cluster_access::client(config).map_err(|error| CommandError::Failed(error.to_string()))?;
        let secrets = Secrets { api: Api::namespaced(client, namespace), namespace };
        secrets.renew(arguments, names, policy).await
    })
}

async fn config(arguments: &SecretArguments) -> Result<Config, CommandError> {
    let problem = |problem: String| CommandError::BadInput(format!("kubeconfig: {problem}"));
    let mut config = match &arguments.kubeconfig {
        Some(path) => {
            let invalid = |error: KubeconfigError| invalid_kubeconfig(path, &error);
            let kubeconfig = Kubeconfig::read_from(path).map_err(invalid)?;
            let options = KubeConfigOptions::default();
            Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(invalid)?
        }
        None => Config::infer().await.map_err(|error| problem(cluster_access::no_access(&error)))?,
    };
    config.default_retry = false;
    config.read_timeout = Some(READ_TIMEOUT);
    Ok(config)
}

struct Secrets<'a> {
    api: Api<Secret>,
    namespace: &'a str,
}

/// An existing Secret.
struct Present {
    content: Option<Content>,
    version: Option<String>,
}

impl Secrets<'_> {
    async fn renew(
        &self,
        arguments: &SecretArguments,
        names: &[(&str, String)],
        policy: Policy,
    ) -> Result<String, CommandError> {
        let authority_name = arguments.name_of(AUTHORITY);
        let authority = self.get(&authority_name).await?;
        if authority.version.is_some() && authority.content.is_none() {
            return Err(self.failed(&authority_name, "lacks tls.crt, tls.key or ca.crt; delete it for a new authority"));
        }
        let mut services = Vec::new();
        for (service, name) in names {
            services.push((arguments.name_of(service), name.clone(), self.get(&arguments.name_of(service)).await?));
        }
        let contents: Vec<_> =
            services.iter().map(|(_, name, present)| (name.clone(), present.content.clone())).collect();
        let changes = renew::plan(authority.content.as_ref(), &contents, policy)
            .map_err(|why| self.failed(&authority_name, &why))?;
        let mut told = String::new();
        // The authority's Secret comes first: nothing may be signed by an authority that is lost.
        for change in changes {
            let (name, present) = match change.service.and_then(|index| services.get(index)) {
                Some((name, _, present)) => (name, present),
                None => (&authority_name, &authority),
            };
            self.apply(name, present.version.clone(), &change.content).await?;
            let _ = writeln!(told, "Secret {}/{name} written: {}", self.namespace, change.why);
        }
        if told.is_empty() {
            told.push_str("All certificates are valid.\n");
        }
        Ok(told)
    }

    async fn get(&self, name: &str) -> Result<Present, CommandError> {
        let found = self.api.get_opt(name).await.map_err(|error| self.failed(name, &reason(&error)))?;
        let Some(secret) = found else { return Ok(Present { content: None, version: None }) };
        let data = secret.data.unwrap_or_default();
        let text = |key: &str| String::from_utf8(data.get(key)?.0.clone()).ok();
        let content =
            (|| Some(Content { pair: Pair { cert: text(CERT)?, key: text(KEY)? }, authorities: text(AUTHORITIES)? }))();
        Ok(Present { content, version: secret.metadata.resource_version })
    }

    /// Server-side apply. Of two concurrent runs one fails: for an existing Secret by its version, otherwise by the
    /// owner of its fields.
    async fn apply(&self, name: &str, version: Option<String>, content: &Content) -> Result<(), CommandError> {
        let manager = format!("plimsoll-certificates-{:x}", jiff::Timestamp::now().as_microsecond());
        let mut params = PatchParams::apply(&manager);
        params.force = version.is_some();
        let data = [(CERT, &content.pair.cert), (KEY, &content.pair.key), (AUTHORITIES, &content.authorities)];
        let secret = Secret {
            metadata: ObjectMeta { name: Some(name.to_owned()), resource_version: version, ..ObjectMeta::default() },
            type_: Some(TYPE.to_owned()),
            data: Some(data.map(|(key, text)| (key.to_owned(), ByteString(text.clone().into_bytes()))).into()),
            ..Secret::default()
        };
        let applied = self.api.patch(name, &params, &Patch::Apply(&secret)).await;
        applied.map(drop).map_err(|error| self.failed(name, &reason(&error)))
    }

    fn failed(&self, name: &str, why: &str) -> CommandError {
        CommandError::Failed(format!("Secret {}/{name}: {why}", self.namespace))
    }
}

/// Error message of the API server, which never contains the contents of a Secret.
fn reason(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => with_cause(other),
    }
}

impl SecretArguments {
    fn name_of(&self, service: &str) -> String {
        let default =
            || if service == AUTHORITY { "plimsoll-ca".to_owned() } else { format!("plimsoll-{service}-tls") };
        self.names.iter().find(|(of, _)| of == service).map_or_else(default, |(_, name)| name.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_have_their_unit() {
        assert_eq!(days("30d"), Ok(30));
        for bad in ["30", "0d", "d", "-1d", "720h", "4000d"] {
            assert!(days(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn secrets_are_named_by_service() {
        assert_eq!(named("authority=my-ca"), Ok(("authority".to_owned(), "my-ca".to_owned())));
        for bad in ["watcher", "cli=a", "watcher=", "watcher=A"] {
            assert!(named(bad).is_err(), "{bad}");
        }
    }
}
