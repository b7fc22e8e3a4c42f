//! Reads a cluster's objects through a kubeconfig. Uses only list requests.

use crate::progress::Progress;
use crate::{CommandError, output, with_cause};
use clap::Args;
use kube::api::{Api, DynamicObject, ListParams};
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Client, Config};
use plimsoll_runtime::cluster_access;
use plimsoll_snapshot::Objects;
use serde::de::DeserializeOwned;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Objects per response, as in kubectl.
const PAGE: u32 = 500;
/// Timeout of one response.
const READ_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum number of pages of one kind: a hundred times the objects of the largest clusters.
const MAX_PAGES: usize = 40_000;

/// Selects the cluster.
#[derive(Debug, Args)]
pub(crate) struct ClusterArguments {
    /// Kubeconfig file [default: $KUBECONFIG, else ~/.kube/config]
    #[arg(long, value_name = "FILE", conflicts_with = "filename")]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig; the current one by default.
    #[arg(long, value_name = "NAME", conflicts_with = "filename")]
    context: Option<String>,
}

/// All objects that a plan depends on, and the namespace of the context.
pub(crate) fn read(arguments: &ClusterArguments) -> Result<(Objects, String), CommandError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| CommandError::Failed(error.to_string()))?;
    runtime.block_on(async {
        let config = config(arguments).await?;
        let namespace = config.default_namespace.clone();
        let address = config.cluster_url.to_string();
        let client = cluster_access::client(config).map_err(|error| CommandError::Failed(error.to_string()))?;
        let lists = Lists { client, address, progress: Progress::start("reading the cluster") };
        Ok((lists.all().await?, namespace))
    })
}

async fn config(arguments: &ClusterArguments) -> Result<Config, CommandError> {
    let options = KubeConfigOptions { context: arguments.context.clone(), ..KubeConfigOptions::default() };
    let mut config = match &arguments.kubeconfig {
        Some(path) => {
            let invalid = |error: KubeconfigError| invalid_kubeconfig(path, &error);
            let kubeconfig = Kubeconfig::read_from(path).map_err(invalid)?;
            Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(invalid)?
        }
        None => Config::from_kubeconfig(&options).await.map_err(|error| {
            let problem = describe(&error);
            CommandError::BadInput(format!("kubeconfig: {problem}; give --kubeconfig FILE, or -f PATH for manifests"))
        })?,
    };
    // Retries would take up to a quarter of an hour on an overloaded server.
    config.default_retry = false;
    config.read_timeout = Some(READ_TIMEOUT);
    Ok(config)
}

/// Why the kubeconfig that was given cannot be used.
pub(crate) fn invalid_kubeconfig(given: &Path, error: &KubeconfigError) -> CommandError {
    let problem = match error {
        KubeconfigError::ReadConfig(..) => describe(error),
        _ => format!("{}: {}", given.display(), describe(error)),
    };
    CommandError::BadInput(format!("kubeconfig: {problem}"))
}

/// The error. Its own text quotes the path of a file twice.
fn describe(error: &KubeconfigError) -> String {
    match error {
        KubeconfigError::ReadConfig(error, path) => format!("{}: {error}", path.display()),
        other => cluster_access::kubeconfig_problem(other),
    }
}

struct Lists {
    client: Client,
    address: String,
    progress: Progress,
}

impl Lists {
    /// Lists nodes and claims before pods: if the cluster changes in the meantime, a missed pod causes no launch.
    async fn all(&self) -> Result<Objects, CommandError> {
        let mut objects = Objects {
            node_pools: self.list("karpenter.sh", "v1", "NodePool").await?,
            node_classes: self.list("karpenter.k8s.aws", "v1", "EC2NodeClass").await?,
            node_claims: self.list("karpenter.sh", "v1", "NodeClaim").await?,
            node_overlays: self.optional("karpenter.sh", "v1alpha1", "NodeOverlay").await?,
            nodes: self.list("", "v1", "Node").await?,
            ..Objects::default()
        };
        objects.daemon_sets = self.list("apps", "v1", "DaemonSet").await?;
        objects.pod_disruption_budgets = self.list("policy", "v1", "PodDisruptionBudget").await?;
        objects.priority_classes = self.list("scheduling.k8s.io", "v1", "PriorityClass").await?;
        self.buffers(&mut objects).await?;
        objects.capacity_quotas = self.optional("autoscaling.x-k8s.io", "v1beta1", "CapacityQuota").await?;
        objects.namespaces = self.list("", "v1", "Namespace").await?;
        objects.storage_classes = self.list("storage.k8s.io", "v1", "StorageClass").await?;
        objects.csi_nodes = self.list("storage.k8s.io", "v1", "CSINode").await?;
        objects.persistent_volumes = self.list("", "v1", "PersistentVolume").await?;
        objects.persistent_volume_claims = self.list("", "v1", "PersistentVolumeClaim").await?;
        objects.pods = self.list("", "v1", "Pod").await?.into_iter().map(Arc::new).collect();
        Ok(objects)
    }

    /// CapacityBuffers, and the objects that they may refer to if there are any. A cluster without the kind has none.
    async fn buffers(&self, objects: &mut Objects) -> Result<(), CommandError> {
        objects.capacity_buffers = self.optional("autoscaling.x-k8s.io", "v1beta1", "CapacityBuffer").await?;
        if !objects.capacity_buffers.is_empty() {
            objects.pod_templates = self.list("", "v1", "PodTemplate").await?;
            objects.deployments = self.list("apps", "v1", "Deployment").await?;
            objects.replica_sets = self.list("apps", "v1", "ReplicaSet").await?;
            objects.stateful_sets = self.list("apps", "v1", "StatefulSet").await?;
        }
        Ok(())
    }

    /// All objects of a kind that a cluster may not have.
    async fn optional<T: DeserializeOwned>(
        &self,
        group: &str,
        version: &str,
        kind: &'static str,
    ) -> Result<Vec<T>, CommandError> {
        match self.pages(group, version, kind).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(Vec::new()),
            found => found.map_err(|error| self.failed(kind, &error)),
        }
    }

    /// All objects of a kind. Reports and skips an object that cannot be parsed.
    async fn list<T: DeserializeOwned>(
        &self,
        group: &str,
        version: &str,
        kind: &'static str,
    ) -> Result<Vec<T>, CommandError> {
        self.pages(group, version, kind).await.map_err(|error| self.failed(kind, &error))
    }

    async fn pages<T: DeserializeOwned>(&self, group: &str, version: &str, kind: &'static str) -> kube::Result<Vec<T>> {
        self.progress.then(kind);
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource);
        let mut found = Vec::new();
        let mut params = ListParams::default().limit(PAGE);
        for _ in 0..MAX_PAGES {
            let page = api.list(&params).await?;
            found.extend(page.items.into_iter().filter_map(|object| typed(kind, object)));
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => return Ok(found),
            }
        }
        Err(kube::Error::Service(format!("more than {MAX_PAGES} pages").into()))
    }

    fn failed(&self, kind: &str, error: &kube::Error) -> CommandError {
        let why = match error {
            kube::Error::Api(status) if status.code == 404 => {
                format!("the server does not know {kind}; are the custom resources of deploy/crds installed?")
            }
            kube::Error::Api(status) => status.message.clone(),
            other => with_cause(other),
        };
        CommandError::Failed(format!("cluster {}: listing {kind}: {why}", self.address))
    }
}

fn typed<T: DeserializeOwned>(kind: &str, object: DynamicObject) -> Option<T> {
    let namespace = object.metadata.namespace.clone().map(|it| it + "/").unwrap_or_default();
    let name = object.metadata.name.clone().unwrap_or_default();
    let read = serde_json::to_value(object).and_then(serde_json::from_value);
    read.map_err(|error| output::warn(&format!("left out: {kind} {namespace}{name}: {error}"))).ok()
}
