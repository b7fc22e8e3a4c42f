//! Interprets a manifest like a kubelet: arguments, environment, mounted files. Uses loopback instead of a pod network.

use crate::harness::confine::{self, Mount};
use crate::harness::pods::spec;
use crate::harness::servers::Servers;
use crate::image::manifest;
use crate::image::program::Program;
use anyhow::{Context as _, Result, bail};
use std::collections::BTreeMap;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;

/// In the order of their dependencies.
pub(super) const SERVICES: [&str; 3] = ["scheduler", "actuator", "watcher"];
const NAMESPACE: &str = "plimsoll-system";
const TOKEN_FOLDER: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
const HEALTH: &str = "--health-listen=";

/// A service that can be started.
#[derive(Debug)]
pub(super) struct Pod {
    /// The image's name.
    pub(super) image: &'static str,
    /// Address of /livez and /readyz.
    pub(super) health: SocketAddr,
    root: PathBuf,
    program: String,
    args: Vec<String>,
    env: BTreeMap<String, String>,
    mounts: Vec<Mount>,
}

impl Pod {
    /// Reads the manifest and writes the mounted files.
    ///
    /// # Errors
    /// If the manifest cannot be parsed or the API server returns no token.
    pub(super) fn prepare(
        repository: &Path,
        program: &Program,
        root: &Path,
        certificates: &Path,
        servers: &Servers,
        work: &Path,
        cluster: &str,
    ) -> Result<Pod> {
        let path = program.manifest.with_context(|| format!("{} has no manifest", program.image))?;
        let pod = manifest::read(repository, path)?;
        let container = spec::container(&pod)?;
        let service = program.image.trim_start_matches("plimsoll-");
        let address = address(service)?;
        let files = work.join(format!("{service}-files"));
        fs::create_dir_all(&files)?;
        let mut env = manifest::settings(repository)?;
        env.extend(
            [
                ("POD_NAME", program.image.to_owned()),
                ("POD_NAMESPACE", NAMESPACE.to_owned()),
                ("POD_IP", address.to_string()),
                ("CLUSTER_NAME", cluster.to_owned()),
                ("REGION", servers.region().to_owned()),
                ("INTERRUPTION_QUEUE", cluster.to_owned()),
            ]
            .map(|(name, value)| (name.to_owned(), value)),
        );
        let args = spec::arguments(container, &env, address);
        let health =
            args.iter().find_map(|arg| arg.strip_prefix(HEALTH)).with_context(|| format!("{path}: no {HEALTH}"))?;
        let health = health.parse().with_context(|| format!("{path}: {HEALTH}{health} is not an address"))?;

        let mut mounts = vec![hosts(&files)?];
        for mount in container.volume_mounts.iter().flatten() {
            if mount.name != "tls" {
                bail!("{path}: a volume {}, which this check does not know", mount.name);
            }
            mounts.push(Mount { from: certificates.join(service), to: mount.mount_path.clone(), writable: false });
        }
        if pod.spec.as_ref().and_then(|spec| spec.automount_service_account_token) != Some(false) {
            mounts.push(token(servers, program.image, &files)?);
            let server = servers.api_server()?;
            env.insert("KUBERNETES_SERVICE_HOST".to_owned(), server.ip().to_string());
            env.insert("KUBERNETES_SERVICE_PORT".to_owned(), server.port().to_string());
        }
        if service == "actuator" {
            // In a cluster, EKS Pod Identity provides these; the stand-in accepts any values.
            for name in ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"] {
                env.insert(name.to_owned(), "test".to_owned());
            }
            env.insert("AWS_EC2_METADATA_DISABLED".to_owned(), "true".to_owned());
            env.insert("PLIMSOLL_AWS_ENDPOINT_URL".to_owned(), servers.aws_endpoint().to_owned());
        }
        let program_path = format!("/{}", program.path());
        Ok(Pod { image: program.image, health, root: root.to_owned(), program: program_path, args, env, mounts })
    }

    /// The command that starts the service.
    pub(super) fn command(&self) -> Command {
        let mut command = confine::command(&self.root, &self.mounts, &self.program, &self.args);
        command.envs(&self.env);
        command
    }
}

/// Loopback is a whole network: the addresses from 127.41.0.1 represent pods.
fn address(service: &str) -> Result<Ipv4Addr> {
    let index = SERVICES.iter().position(|one| *one == service).with_context(|| format!("no service {service}"))?;
    Ok(Ipv4Addr::new(127, 41, 0, u8::try_from(index + 1)?))
}

/// Writes a hosts file with the DNS names of a cluster.
fn hosts(folder: &Path) -> Result<Mount> {
    let mut text = String::from("127.0.0.1 localhost\n");
    for service in SERVICES {
        text.push_str(&format!("{} plimsoll-{service}.{NAMESPACE}.svc\n", address(service)?));
    }
    let from = folder.join("hosts");
    fs::write(&from, text).with_context(|| format!("writing {}", from.display()))?;
    Ok(Mount { from, to: "etc/hosts".to_owned(), writable: false })
}

fn token(servers: &Servers, account: &str, folder: &Path) -> Result<Mount> {
    let from = folder.join("serviceaccount");
    fs::create_dir_all(&from)?;
    fs::write(from.join("token"), servers.token(account)?)?;
    fs::write(from.join("namespace"), NAMESPACE)?;
    fs::copy(servers.authority(), from.join("ca.crt"))
        .context("copying the certificate of the API server's authority")?;
    Ok(Mount { from, to: TOKEN_FOLDER.to_owned(), writable: false })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_service_has_an_address_and_a_name_of_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let mount = hosts(folder.path()).unwrap();
        let text = fs::read_to_string(mount.from).unwrap();
        assert!(text.contains("127.41.0.1 plimsoll-scheduler.plimsoll-system.svc\n"), "{text}");
        assert!(text.contains("127.41.0.3 plimsoll-watcher.plimsoll-system.svc\n"), "{text}");
        assert!(address("plimsoll").is_err());
    }
}
