//! The real control plane, with Plimsoll's custom resources and permissions.

use super::audit;
use super::controlplane::ControlPlane;
use super::kubectl::Kubectl;
use super::parts::Parts;
use super::process::{Guard, Process};
use anyhow::{Context as _, Result, bail};
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The namespace of deploy/kubernetes.
pub(crate) const NAMESPACE: &str = "plimsoll-system";
/// Applied kinds of deploy/kubernetes: only accounts and permissions, because the services run as processes, not as
/// pods.
const KINDS: [&str; 6] = ["Namespace", "ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"];
/// Every EKS cluster has this Service: its address is part of the user data of nodes.
const KUBE_DNS: &str = r#"
apiVersion: v1
kind: Service
metadata: {name: kube-dns, namespace: kube-system, labels: {k8s-app: kube-dns}}
spec:
  clusterIP: 10.96.0.10
  selector: {k8s-app: kube-dns}
  ports: [{name: dns, port: 53, protocol: UDP}]
"#;

/// A running control plane.
#[derive(Debug)]
pub(crate) struct Cluster {
    pub(crate) server: String,
    pub(crate) kubeconfig: PathBuf,
    pub(crate) authority: PathBuf,
    pub(crate) kubectl: Kubectl,
    audit: PathBuf,
    plane: ControlPlane,
}

impl Cluster {
    /// Starts the control plane without Plimsoll's objects. `more` are flags that are added to its own.
    pub(crate) fn start(parts: &Parts, guard: &Arc<Guard>, dir: &Path, more: &[&str]) -> Result<Cluster> {
        let policy = dir.join("audit-policy.yaml");
        std::fs::write(&policy, audit::POLICY)?;
        let log = dir.join("audit.jsonl");
        let mut flags = vec![OsString::from("-kwok-stages"), parts.root.join("tests/controlplane/stages.yaml").into()];
        flags.push(format!("-apiserver-arg=--audit-policy-file={}", policy.display()).into());
        flags.push(format!("-apiserver-arg=--audit-log-path={}", log.display()).into());
        flags.extend(more.iter().map(OsString::from));
        let plane = ControlPlane::start(&parts.controlplane, &flags, guard, dir)?;
        let cluster = Cluster {
            server: plane.server.clone(),
            kubectl: Kubectl::new(&plane.kubeconfig),
            kubeconfig: plane.kubeconfig.clone(),
            authority: plane.authority.clone(),
            audit: log,
            plane,
        };
        cluster.kubectl.apply(KUBE_DNS)?;
        Ok(cluster)
    }

    /// Installs custom resources, accounts and permissions of deploy/.
    pub(crate) fn install(&self, root: &Path) -> Result<()> {
        let crds = root.join("deploy/crds");
        let crds = crds.to_str().context("the path of the repository is not UTF-8")?;
        self.kubectl.run(&["apply", "--server-side", "-f", crds])?;
        self.kubectl.run(&["wait", "--for=condition=Established", "--timeout=30s", "-f", crds])?;
        let deploy = root.join("deploy/kubernetes");
        let rendered =
            self.kubectl.run(&["kustomize", deploy.to_str().context("the path of the repository is not UTF-8")?])?;
        let rights: Vec<_> = rendered.split("\n---\n").filter(|d| KINDS.contains(&kind(d))).collect();
        if rights.is_empty() {
            bail!("{} renders no rights", deploy.display());
        }
        self.kubectl.apply(&rights.join("\n---\n"))
    }

    /// Address of the API server.
    pub(crate) fn address(&self) -> Result<SocketAddr> {
        let address = self.server.trim_start_matches("https://").parse();
        address.with_context(|| format!("{} is not an address", self.server))
    }

    /// A kubeconfig with a token of a service's account.
    pub(crate) fn kubeconfig_of(&self, service: &str, dir: &Path) -> Result<PathBuf> {
        let account = format!("plimsoll-{service}");
        let token = self.kubectl.run(&["create", "token", &account, "-n", NAMESPACE, "--duration=24h"])?;
        let path = dir.join(format!("{service}.kubeconfig"));
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: test\nclusters:\n- name: test\n  cluster: {{server: {:?}, certificate-authority: {:?}}}\n\
             contexts:\n- name: test\n  context: {{cluster: test, user: {account}}}\nusers:\n- name: {account}\n  user: {{token: {}}}\n",
            self.server,
            self.authority,
            token.trim(),
        );
        std::fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
        Ok(path)
    }

    /// The process of the control plane.
    pub(crate) fn process(&mut self) -> &mut Process {
        &mut self.plane.process
    }

    /// The audit log so far.
    pub(crate) fn audit(&self) -> Result<Vec<audit::Entry>> {
        audit::read(&self.audit)
    }
}

fn kind(document: &str) -> &str {
    document.lines().find_map(|l| l.strip_prefix("kind: ")).unwrap_or_default()
}
