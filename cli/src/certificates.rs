//! `plimsoll certificates`: creates a certificate authority and a certificate for each service, for clusters without
//! another issuer.

mod files;
mod inspect;
mod issue;
mod renew;
mod secrets;

use crate::CommandError;
use clap::Args;
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// The services. All replicas of a service share one certificate.
const SERVICES: [&str; 3] = ["watcher", "scheduler", "actuator"];
/// Maximum length of a namespace name.
const MAX_NAMESPACE: usize = 63;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Folder for the files; it is created if necessary.
    #[arg(long, value_name = "DIR", required_unless_present = "secrets")]
    out: Option<PathBuf>,
    /// Namespace of the services.
    #[arg(short, long, default_value = "plimsoll-system", value_parser = namespace)]
    namespace: String,
    /// Validity of the certificates in days. In files, their authority is valid as long; in Secrets, ten times as long.
    #[arg(long, default_value_t = 365, value_parser = clap::value_parser!(u16).range(1..=3650))]
    days: u16,
    /// Overwrite existing files.
    #[arg(long)]
    force: bool,
    /// Secrets instead of files.
    #[command(flatten)]
    secrets: secrets::SecretArguments,
}

pub(crate) fn run(arguments: &Arguments) -> Result<String, CommandError> {
    if let Some(namespace) = &arguments.secrets.secrets {
        return secrets::run(&arguments.secrets, &names(namespace), arguments.days);
    }
    let Some(out) = &arguments.out else { return Err(CommandError::BadInput("--out is missing".to_owned())) };
    let names = names(&arguments.namespace);
    let from = jiff::Zoned::now().with_time_zone(jiff::tz::TimeZone::UTC).date();
    let validity = issue::Validity::new(from, arguments.days.into()).map_err(CommandError::Failed)?;
    let issued = issue::issue(&names, validity).map_err(|error| CommandError::Failed(error.to_string()))?;
    files::write(out, &issued, arguments.force)?;
    Ok(commands(arguments, out, &names))
}

/// Services with the DNS names of their certificates.
fn names(namespace: &str) -> Vec<(&'static str, String)> {
    SERVICES.iter().map(|service| (*service, format!("plimsoll-{service}.{namespace}.svc"))).collect()
}

fn namespace(text: &str) -> Result<String, String> {
    let inside = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let ends = text.bytes().next().is_some_and(inside) && text.bytes().last().is_some_and(inside);
    if ends && text.len() <= MAX_NAMESPACE && text.bytes().all(|byte| inside(byte) || byte == b'-') {
        return Ok(text.to_owned());
    }
    Err("must consist of at most 63 lower-case letters, digits and -, beginning and ending with a letter or digit"
        .to_owned())
}

/// Commands that create Secrets from the files, or replace their contents.
fn commands(arguments: &Arguments, out: &Path, names: &[(&str, String)]) -> String {
    let mut text = String::new();
    for (service, name) in names {
        let folder = out.join(service);
        let _ = write!(
            text,
            "# {name}\nkubectl create secret generic plimsoll-{service}-tls --namespace {} --type kubernetes.io/tls \\\n  \
             --from-file tls.crt={cert} --from-file tls.key={key} --from-file ca.crt={ca} \\\n  \
             --dry-run=client --output yaml | kubectl apply --server-side --force-conflicts --filename -\n",
            arguments.namespace,
            cert = quoted(&folder.join("tls.crt").display().to_string()),
            key = quoted(&folder.join("tls.key").display().to_string()),
            ca = quoted(&folder.join("ca.crt").display().to_string()),
        );
    }
    let key = out.join("ca.key").display().to_string();
    let _ = write!(
        text,
        "# {} can sign further certificates: keep it out of the cluster, or delete it.\n\
         # All end in {} days. To renew, run this again with --force, and then all of these commands.\n",
        quoted(&key),
        arguments.days,
    );
    text
}

/// Quotes a word for a shell.
fn quoted(text: &str) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "/._-+:@%".contains(letter);
    if !text.is_empty() && text.chars().all(plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_takes_a_path_for_one_word() {
        let table = [("a/b.crt", "a/b.crt"), ("a b", "'a b'"), ("it's", r"'it'\''s'"), ("", "''")];
        for (text, expected) in table {
            assert_eq!(quoted(text), expected);
        }
    }

    #[test]
    fn namespaces_are_names() {
        assert!(namespace("plimsoll-system").is_ok());
        for bad in ["", "-a", "A", "a.b", "a/b", &"a".repeat(64)] {
            assert!(namespace(bad).is_err(), "{bad}");
        }
    }
}
