//! Runs the pods of one namespace as processes, like a kubelet: arguments, environment, Secrets, tokens, probes,
//! termination. The programs under test replace the images. A hosts file from the EndpointSlices of the namespace
//! replaces DNS.
//!
//! kwok must not run the same pods: they need the annotation `plimsoll.test/run-after` with a time beyond the run.
//!
//! Not simulated: restarts, liveness probes, Secrets that change later, network policies.

mod root;
pub(crate) mod spec;
mod status;
mod volumes;

use super::confine::{self, Mount};
use super::http;
use super::kubectl::Kubectl;
use super::process::{Guard, Process};
use super::wait::until_true;
use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::core::v1::{Container, Pod};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, Permissions};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Label with the Service of an EndpointSlice.
const SERVICE: &str = "kubernetes.io/service-name";

/// A pod with a started process.
#[derive(Debug)]
struct Running {
    name: String,
    process: Process,
    address: Ipv4Addr,
    container: Container,
    /// Address and path of its readiness probe; a pod that runs to completion has none.
    probe: Option<(SocketAddr, String)>,
    ready: bool,
}

/// The pods of a namespace.
#[derive(Debug)]
pub(crate) struct Pods {
    kubectl: Kubectl,
    namespace: &'static str,
    api_server: SocketAddr,
    programs: PathBuf,
    dir: PathBuf,
    guard: Arc<Guard>,
    /// Number of assigned addresses.
    given: u8,
    hosts: String,
    running: BTreeMap<String, Running>,
    /// UIDs of pods whose process has exited.
    done: BTreeSet<String>,
    troubles: Vec<String>,
}

/// Environment of the pods.
#[derive(Debug)]
pub(crate) struct Setup<'a> {
    pub(crate) kubectl: &'a Kubectl,
    pub(crate) namespace: &'static str,
    pub(crate) api_server: SocketAddr,
    /// Folder with a program for each image.
    pub(crate) programs: &'a Path,
    /// Folder for logs and mounted files.
    pub(crate) dir: &'a Path,
    pub(crate) guard: &'a Arc<Guard>,
}

impl Pods {
    /// Creates the runner. No process runs before the first [`Self::sync`].
    ///
    /// # Errors
    /// If the folder cannot be created.
    pub(crate) fn new(setup: &Setup<'_>) -> Result<Pods> {
        let Setup { kubectl, namespace, api_server, programs, dir, guard } = *setup;
        fs::create_dir_all(dir).with_context(|| format!("making {}", dir.display()))?;
        let hosts = dir.join("hosts");
        fs::write(&hosts, "")?;
        // The file will belong to the user of the pods, and this process updates it.
        fs::set_permissions(&hosts, Permissions::from_mode(0o666))?;
        Ok(Pods {
            kubectl: kubectl.clone(),
            namespace,
            api_server,
            programs: programs.to_owned(),
            dir: dir.to_owned(),
            guard: Arc::clone(guard),
            given: 0,
            hosts: String::new(),
            running: BTreeMap::new(),
            done: BTreeSet::new(),
            troubles: Vec::new(),
        })
    }

    /// Runs pods like a kubelet until a condition holds.
    ///
    /// # Errors
    /// As [`until_true`].
    pub(crate) fn until(
        &mut self,
        what: &str,
        limit: Duration,
        mut look: impl FnMut() -> Result<(bool, String)>,
    ) -> Result<()> {
        until_true(what, limit, || {
            self.sync()?;
            look()
        })
    }

    /// Compares the pods with the processes: starts and ends processes, and reports their state.
    ///
    /// # Errors
    /// If the API server does not respond, or a pod needs a feature that is not simulated.
    pub(crate) fn sync(&mut self) -> Result<()> {
        self.guard.check()?;
        self.write_hosts()?;
        let pods: Vec<Pod> = self.list("pods")?;
        let mut seen = BTreeSet::new();
        for pod in &pods {
            let uid = pod.metadata.uid.clone().context("a pod without uid")?;
            let name = pod.metadata.name.clone().context("a pod without name")?;
            self.follow(pod, &uid, &name).with_context(|| format!("pod {name}"))?;
            seen.insert(uid);
        }
        // Deleted without a grace period, so the process is not awaited.
        let gone: Vec<String> = self.running.keys().filter(|uid| !seen.contains(*uid)).cloned().collect();
        for uid in gone {
            self.end(&uid)?;
        }
        Ok(())
    }

    /// Addresses of ready pods with a port of this name.
    pub(crate) fn ports(&self, name: &str) -> Vec<SocketAddr> {
        let port = |running: &Running| {
            let ports = running.container.ports.iter().flatten();
            let port =
                ports.filter(|port| port.name.as_deref() == Some(name)).map(|port| port.container_port).next()?;
            Some(SocketAddr::from((running.address, u16::try_from(port).ok()?)))
        };
        self.running.values().filter(|running| running.ready).filter_map(port).collect()
    }

    /// Processes of pods that exited unexpectedly or with an error, or panicked.
    ///
    /// # Errors
    /// If a log cannot be read.
    pub(crate) fn troubles(&self) -> Result<Vec<String>> {
        let mut troubles = self.troubles.clone();
        for entry in fs::read_dir(&self.dir)? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "log" || extension == "out") {
                let text = fs::read(&path)?;
                let text = String::from_utf8_lossy(&text);
                let panic = text.lines().find(|line| line.contains("panicked at"));
                troubles.extend(panic.map(|line| format!("{}: {line}", path.display())));
            }
        }
        Ok(troubles)
    }

    fn follow(&mut self, pod: &Pod, uid: &str, name: &str) -> Result<()> {
        let deleted = pod.metadata.deletion_timestamp.is_some();
        let bound = pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
        if self.done.contains(uid) || !bound {
            return Ok(());
        }
        match (self.running.contains_key(uid), deleted) {
            (false, false) => self.start(pod, uid, name),
            (false, true) => self.remove(name),
            (true, false) => self.look(uid),
            (true, true) => {
                let running = self.running.get_mut(uid).context("it runs")?;
                running.process.terminate()?;
                if running.process.status()?.is_none() {
                    return Ok(());
                }
                self.end(uid)?;
                self.remove(name)
            }
        }
    }

    fn start(&mut self, pod: &Pod, uid: &str, name: &str) -> Result<()> {
        let folder = self.dir.join(uid);
        let source = volumes::Source { kubectl: &self.kubectl, namespace: self.namespace };
        let Some(mut mounts) = source.mounts(pod, &folder)? else { return Ok(()) };
        mounts.push(Mount { from: self.dir.join("hosts"), to: "/etc/hosts".to_owned(), writable: false });
        let address = self.address()?;
        let container = spec::container(pod)?;
        let program = spec::program(container)?;
        let root = self.root(program)?;
        let mut env = spec::environment(pod, container, address)?;
        let args = spec::arguments(container, &env, address);
        env.insert("KUBERNETES_SERVICE_HOST".to_owned(), self.api_server.ip().to_string());
        env.insert("KUBERNETES_SERVICE_PORT".to_owned(), self.api_server.port().to_string());
        let mut command = confine::command(&root, &mounts, &root::program_path(program), &args);
        let process = Process::start(name, command.envs(&env), &self.dir, &self.guard)?;
        let probe = spec::readiness(container, address)?;
        let container = container.clone();
        let by_kwok = pod.status.as_ref().is_some_and(|status| status.pod_ip.is_some());
        self.patch(name, &status::running(&container, (!by_kwok).then_some(address), false))?;
        let running = Running { name: name.to_owned(), process, address, container, probe, ready: false };
        self.running.insert(uid.to_owned(), running);
        Ok(())
    }

    /// Checks the process of a pod that should run.
    fn look(&mut self, uid: &str) -> Result<()> {
        let running = self.running.get_mut(uid).context("it runs")?;
        if let Some(status) = running.process.status()? {
            let (name, container) = (running.name.clone(), running.container.clone());
            let once = running.probe.is_none();
            self.end(uid)?;
            self.done.insert(uid.to_owned());
            if once && status.success() {
                return self.patch(&name, &status::succeeded(&container));
            }
            bail!("it ended by itself: {status}; see {}", self.dir.join(format!("{name}.log")).display());
        }
        let Some((address, path)) = running.probe.clone() else { return Ok(()) };
        // A service that does not listen yet is not ready.
        let ready = http::send(address, "GET", &path, &[], "").is_ok_and(|answer| answer.status == 200);
        if ready == running.ready {
            return Ok(());
        }
        if ready {
            confine::check(running.process.id())?;
        }
        running.ready = ready;
        let (name, status) = (running.name.clone(), status::running(&running.container, Some(running.address), ready));
        self.patch(&name, &status)
    }

    /// Ends the process of a pod that is being deleted or does not exist.
    fn end(&mut self, uid: &str) -> Result<()> {
        if let Some(mut running) = self.running.remove(uid) {
            let status = running.process.stop()?;
            if !status.success() {
                self.troubles.push(format!("{} ended with {status}", running.name));
            }
        }
        Ok(())
    }

    /// Removes the pod object, like the kubelet after a deleted pod has terminated.
    fn remove(&self, name: &str) -> Result<()> {
        let args = ["delete", "pod", name, "-n", self.namespace, "--grace-period=0", "--force", "--ignore-not-found"];
        self.kubectl.run(&args).map(drop)
    }

    fn patch(&self, name: &str, status: &Value) -> Result<()> {
        let patch = status.to_string();
        let args = ["patch", "pod", name, "-n", self.namespace, "--subresource=status", "--patch", &patch];
        self.kubectl.run(&args).map(drop)
    }

    /// A separate loopback address for each pod. Concurrent runs have different addresses, derived from the process ID.
    fn address(&mut self) -> Result<Ipv4Addr> {
        self.given = self.given.checked_add(1).context("no free address")?;
        let [.., high, low] = std::process::id().to_be_bytes();
        // Excludes 127.0 and the fixed addresses of the image check.
        Ok(Ipv4Addr::new(127, 64 | (high & 0x3f), low, self.given))
    }

    fn root(&self, program: &str) -> Result<PathBuf> {
        let root = self.dir.join("roots").join(program);
        if !root.exists() {
            root::make(&self.programs.join(program), program, &root)?;
        }
        Ok(root)
    }

    /// Writes the names of Services with the addresses of their ready pods, like DNS for headless Services.
    fn write_hosts(&mut self) -> Result<()> {
        let slices: Vec<EndpointSlice> = self.list("endpointslices")?;
        let text = hosts(&slices, self.namespace)?;
        if text != self.hosts {
            fs::write(self.dir.join("hosts"), &text).context("writing the file of hosts")?;
            self.hosts = text;
        }
        Ok(())
    }

    fn list<T: serde::de::DeserializeOwned>(&self, kind: &str) -> Result<Vec<T>> {
        let items = self.kubectl.list(&[kind, "-n", self.namespace])?;
        let item = |item| serde_json::from_value(item).with_context(|| format!("reading one of the {kind}"));
        items.into_iter().map(item).collect()
    }
}

fn hosts(slices: &[EndpointSlice], namespace: &str) -> Result<String> {
    let mut text = String::from("127.0.0.1 localhost\n");
    for slice in slices {
        let service = slice.metadata.labels.as_ref().and_then(|labels| labels.get(SERVICE));
        let service = service.context("an EndpointSlice without Service")?;
        for endpoint in slice.endpoints.iter().flatten() {
            let ready = endpoint.conditions.as_ref().is_none_or(|conditions| conditions.ready != Some(false));
            for address in endpoint.addresses.iter().filter(|_| ready) {
                let api_address: Ipv4Addr =
                    address.parse().with_context(|| format!("{address} is not an IPv4 address"))?;
                text.push_str(&format!("{} {service}.{namespace}.svc\n", status::loopback_address(api_address)));
            }
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::hosts;
    use anyhow::Result;
    use serde_json::json;

    #[test]
    fn names_lead_to_ready_pods() -> Result<()> {
        let slice = serde_json::from_value(json!({
            "metadata": {"labels": {"kubernetes.io/service-name": "plimsoll-actuator"}}, "addressType": "IPv4",
            "endpoints": [
                {"addresses": ["10.70.1.1"], "conditions": {"ready": true}},
                {"addresses": ["10.70.1.2"], "conditions": {"ready": false}},
            ],
        }))?;
        let text = hosts(&[slice], "ns")?;
        assert_eq!(text, "127.0.0.1 localhost\n127.70.1.1 plimsoll-actuator.ns.svc\n");
        Ok(())
    }
}
