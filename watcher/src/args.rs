//! Command line flags.

use crate::service::Recording;
use clap::{ArgAction, Args, CommandFactory, Parser};
use plimsoll_model::money::MicroUsdPerHour;
use plimsoll_model::plan::{MinValuesPolicy, PlanOptions, PreferencePolicy};
use plimsoll_runtime::args::ServiceArgs;
use plimsoll_runtime::args::invalid_flag::{Refused, parse_args};
use std::ffi::OsString;
use std::path::PathBuf;

/// Default listen address.
const DEFAULT_LISTEN: &str = "127.0.0.1:9441";

/// Plans that may wait for the disk. Each keeps its snapshot in memory, about 60 MB with 100,000 pods. A plan is made
/// every few seconds at most while the cluster changes, so a disk that is this far behind is too slow.
const RECORDING_QUEUE: usize = 4;

/// Reads a cluster, requests plans from schedulers and sends them to an actuator.
///
/// Run two replicas: one leads by a Lease, the other is a warm standby. The watcher needs read access to the cluster,
/// and write access to its Lease.
#[derive(Parser, Clone, Debug, PartialEq, Eq)]
#[command(
    name = "plimsoll-watcher",
    version,
    after_help = "Examples:\n  \
        On this machine, with a scheduler and an actuator on loopback:\n    \
        plimsoll-watcher --kubeconfig ~/.kube/config --scheduler 127.0.0.1:9442 --actuator 127.0.0.1:9443\n\n  \
        In a cluster, every replica of both services behind its name:\n    \
        plimsoll-watcher --listen 0.0.0.0:9441 \\\n      \
        --scheduler plimsoll-scheduler.plimsoll-system.svc:9442 \\\n      \
        --actuator plimsoll-actuator.plimsoll-system.svc:9443 \\\n      \
        --lease-namespace plimsoll-system \\\n      \
        --tls-cert /etc/plimsoll/tls/tls.crt --tls-key /etc/plimsoll/tls/tls.key --tls-ca /etc/plimsoll/tls/ca.crt"
)]
pub struct WatcherArgs {
    /// Flags that the three services share.
    #[command(flatten)]
    pub service: ServiceArgs,
    /// Services that the watcher calls.
    #[command(flatten)]
    pub peers: PeerArgs,
    /// Identity of the watcher.
    #[command(flatten)]
    pub identity: IdentityArgs,
    /// Policies for preferences and minimums.
    #[command(flatten)]
    pub policies: PolicyArgs,
    /// Kinds of objects that may be ignored.
    #[command(flatten)]
    pub gates: GateArgs,
    /// Recording of plans.
    #[command(flatten)]
    pub recording: RecordingArgs,
}

/// Recording of plans, for `plimsoll replay`.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct RecordingArgs {
    /// Folder in which plans are recorded, with the snapshots they were made for; by default nothing is recorded.
    #[arg(long, env = "PLIMSOLL_RECORD_TO", value_name = "FOLDER")]
    pub record_to: Option<PathBuf>,
    /// Maximum size of the recording in MiB; the oldest files are deleted.
    #[arg(long, env = "PLIMSOLL_RECORD_MIB", default_value_t = 200, value_parser = clap::value_parser!(u64).range(8..=1_048_576),
        value_name = "MIB")]
    pub record_mib: u64,
}

impl RecordingArgs {
    /// Returns where plans are recorded, if they are.
    #[must_use]
    pub fn recording(self) -> Option<Recording> {
        self.record_to.map(|folder| Recording { folder, bytes: self.record_mib << 20, queue: RECORDING_QUEUE })
    }
}

/// Kinds of objects that may be ignored, as by Karpenter's feature gates.
#[derive(Args, Clone, Copy, Debug, PartialEq, Eq)]
pub struct GateArgs {
    /// Reserve capacity for CapacityBuffers. As Karpenter's feature gate CapacityBuffer.
    #[arg(long, env = "PLIMSOLL_CAPACITY_BUFFERS", default_value_t = true, action = ArgAction::Set, num_args = 0..=1,
        default_missing_value = "true", require_equals = true, value_name = "BOOL")]
    pub capacity_buffers: bool,
    /// Apply NodeOverlays to prices and capacity. The actuator has the same flag. As Karpenter's feature gate
    /// NodeOverlay.
    #[arg(long, env = "PLIMSOLL_NODE_OVERLAYS", default_value_t = true, action = ArgAction::Set, num_args = 0..=1,
        default_missing_value = "true", require_equals = true, value_name = "BOOL")]
    pub node_overlays: bool,
}

/// Policies for preferences and minimums, with Karpenter's names.
#[derive(Args, Clone, Copy, Debug, PartialEq, Eq)]
pub struct PolicyArgs {
    /// How preferences of pods are treated: Respect satisfies them while pods can be placed, Ignore drops them.
    #[arg(long, env = "PREFERENCE_POLICY", default_value = "Respect", value_parser = preference_policy, value_name = "POLICY")]
    pub preference_policy: PreferencePolicy,
    /// How minValues of a NodePool that cannot be met are treated: Strict launches nothing, BestEffort uses the values
    /// available.
    #[arg(long, env = "MIN_VALUES_POLICY", default_value = "Strict", value_parser = min_values_policy, value_name = "POLICY")]
    pub min_values_policy: MinValuesPolicy,
    /// If hundreds of pods are pending, the largest share of them on one new node, in per cent; 100 means no limit.
    #[arg(long, env = "PLIMSOLL_MAX_SHARE_PER_NODE", default_value_t = PlanOptions::default().max_share_per_node,
        value_parser = clap::value_parser!(u32).range(1..=100), value_name = "PERCENT")]
    pub max_share_per_node: u32,
    /// Minimum saving per evicted pod for consolidation, in US dollars per hour; 0 means no minimum.
    #[arg(long, env = "PLIMSOLL_MIN_SAVING_PER_EVICTION", default_value_t = PlanOptions::default().min_saving_per_eviction,
        value_parser = MicroUsdPerHour::parse_usd, value_name = "USD")]
    pub min_saving_per_eviction: MicroUsdPerHour,
    /// Let consolidation replace Spot nodes by cheaper Spot nodes. One node is replaced only if at least 15 instance
    /// types are cheaper, as in Karpenter.
    #[arg(long, env = "PLIMSOLL_SPOT_TO_SPOT_CONSOLIDATION")]
    pub spot_to_spot_consolidation: bool,
}

impl PolicyArgs {
    /// Returns the plan options of these flags.
    #[must_use]
    pub fn options(self) -> PlanOptions {
        PlanOptions {
            preference_policy: self.preference_policy,
            min_values_policy: self.min_values_policy,
            max_share_per_node: self.max_share_per_node,
            min_saving_per_eviction: self.min_saving_per_eviction,
            spot_to_spot: self.spot_to_spot_consolidation,
            ..PlanOptions::default()
        }
    }
}

fn preference_policy(text: &str) -> Result<PreferencePolicy, String> {
    PreferencePolicy::parse(text).ok_or_else(|| "must be Respect or Ignore".to_owned())
}

fn min_values_policy(text: &str) -> Result<MinValuesPolicy, String> {
    MinValuesPolicy::parse(text).ok_or_else(|| "must be Strict or BestEffort".to_owned())
}

/// Services that the watcher calls.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct PeerArgs {
    /// Address of a scheduler; may be repeated, and a name may resolve to several replicas.
    #[arg(long, env = "PLIMSOLL_SCHEDULERS", required = true, value_delimiter = ',', value_name = "HOST:PORT")]
    pub scheduler: Vec<String>,
    /// Address of an actuator; may be repeated, and a name may resolve to several replicas.
    #[arg(long, env = "PLIMSOLL_ACTUATORS", required = true, value_delimiter = ',', value_name = "HOST:PORT")]
    pub actuator: Vec<String>,
    /// DNS name in the certificate of a caller that may follow snapshots; may be repeated. By default no caller may,
    /// except on loopback without certificates.
    #[arg(long = "allow-caller", env = "PLIMSOLL_ALLOW_CALLERS", value_delimiter = ',', value_name = "DNS_NAME")]
    pub allow_callers: Vec<String>,
    /// Kubeconfig; by default the pod's ServiceAccount, or the user's kubeconfig.
    #[arg(long, env = "KUBECONFIG", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
}

/// Identity of the watcher.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct IdentityArgs {
    /// Name of this replica in the Lease and in logs; made unique by the program.
    #[arg(long, env = "POD_NAME", default_value = "plimsoll-watcher", value_name = "NAME")]
    pub name: String,
    /// Namespace of the Lease.
    #[arg(long, env = "PLIMSOLL_LEASE_NAMESPACE", default_value = "plimsoll-system", value_name = "NAMESPACE")]
    pub lease_namespace: String,
    /// Name of the cluster in requests to schedulers, which may serve several clusters.
    #[arg(long, env = "PLIMSOLL_CLUSTER_NAME", default_value = "default", value_name = "NAME")]
    pub cluster_name: String,
}

impl WatcherArgs {
    /// Parses the arguments of the process.
    ///
    /// # Errors
    /// If the arguments are invalid, or help or version was requested.
    pub fn try_read(args: impl IntoIterator<Item = impl Into<OsString> + Clone>) -> Result<Self, Refused> {
        let command = Self::command().mut_arg("listen", |arg| arg.default_value(DEFAULT_LISTEN));
        parse_args(command, args, |args: &Self| args.service.check())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(args: &[&str]) -> Result<WatcherArgs, String> {
        let args = ["plimsoll-watcher"].iter().chain(args);
        WatcherArgs::try_read(args).map_err(|refused| refused.to_string())
    }

    #[test]
    fn peers_may_be_given_several_times() {
        let args = read(&["--scheduler=a:1", "--scheduler=b:2,c:3", "--actuator", "d:4"]).unwrap();
        assert_eq!(args.peers.scheduler, ["a:1", "b:2", "c:3"]);
        assert_eq!(args.service.listen.port(), 9441);
        assert!(args.peers.allow_callers.is_empty());
    }

    #[test]
    fn a_missing_actuator_is_an_error() {
        let error = read(&["--scheduler=a:1"]).unwrap_err();
        assert_eq!(error, "plimsoll-watcher: not set: --actuator (environment PLIMSOLL_ACTUATORS)");
    }

    #[test]
    fn policies_use_karpenter_names_and_values() {
        let peers = ["--scheduler=a:1", "--actuator=d:4"];
        let options = |more: &[&str]| read(&[&peers[..], more].concat()).map(|args| args.policies.options());
        assert_eq!(options(&[]).unwrap(), PlanOptions::default());
        let more = ["--preference-policy=Ignore", "--min-values-policy=BestEffort", "--max-share-per-node=20"];
        let other = options(&more).unwrap();
        assert_eq!(
            (other.preference_policy, other.min_values_policy, other.max_share_per_node),
            (PreferencePolicy::Ignore, MinValuesPolicy::BestEffort, 20)
        );
        assert!(!options(&[]).unwrap().spot_to_spot);
        assert!(options(&["--spot-to-spot-consolidation"]).unwrap().spot_to_spot);
        let least = options(&["--min-saving-per-eviction=0.002"]).unwrap().min_saving_per_eviction;
        assert_eq!(least, MicroUsdPerHour(2_000));
        let wrong = options(&["--min-saving-per-eviction=-1"]).unwrap_err();
        assert!(wrong.contains("must be dollars per hour"), "{wrong}");
        assert!(options(&["--max-share-per-node=0"]).unwrap_err().contains("1..=100"));
        assert_eq!(
            options(&["--preference-policy=Never"]).unwrap_err(),
            "plimsoll-watcher: --preference-policy (environment PREFERENCE_POLICY, chart value settings.preferencePolicy): \
             \"Never\" is not valid: must be Respect or Ignore"
        );
    }

    #[test]
    fn capacity_buffers_and_node_overlays_are_used_by_default() {
        let peers = ["--scheduler=a:1", "--actuator=d:4"];
        let gates = |more: &[&str]| {
            let args = read(&[&peers[..], more].concat()).unwrap();
            (args.gates.capacity_buffers, args.gates.node_overlays)
        };
        assert_eq!(gates(&[]), (true, true));
        assert_eq!(gates(&["--capacity-buffers=false"]), (false, true));
        assert_eq!(gates(&["--capacity-buffers", "--node-overlays=false"]), (true, false));
    }

    #[test]
    fn plans_are_recorded_only_to_a_folder_and_within_a_size() {
        let peers = ["--scheduler=a:1", "--actuator=d:4"];
        let recording = |more: &[&str]| read(&[&peers[..], more].concat()).unwrap().recording.recording();
        assert_eq!(recording(&[]), None);
        let folder = PathBuf::from("/plans");
        let of = |mib: u64| Some(Recording { folder: folder.clone(), bytes: mib * 1024 * 1024, queue: 4 });
        assert_eq!(recording(&["--record-to=/plans"]), of(200));
        assert_eq!(recording(&["--record-to=/plans", "--record-mib=8"]), of(8));
    }

    #[test]
    fn help_has_examples() {
        let help = read(&["--help"]).unwrap_err();
        assert!(help.contains("Examples:") && help.contains("--scheduler"), "{help}");
    }
}
