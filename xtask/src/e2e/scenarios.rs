//! The scenarios. Each runs in its own environment and returns figures, or an error that describes the failure.

mod api_server;
mod bind_pods;
mod by_hand;
mod capacity;
mod chart;
mod client;
mod consolidation;
mod crash;
mod drift;
mod first_pod;
mod foreign_flood;
mod growth;
mod harness;
mod interruption;
mod latency;
mod monitoring;
mod refusals;
mod regressions;
mod reservation;
mod rights;
mod token_answers;
mod views;

use super::{Context, Figure};
use crate::harness::world::World;
use anyhow::Result;

/// Region of the built-in catalog with real prices.
const REGION: &str = "us-east-1";
/// Cluster in the fixture of seed 001.
const SEED_001: &str = "eks-workshop";
/// Cluster in the fixture of seed 000, and its region.
const SEED_000: (&str, &str) = ("backend", "ap-northeast-2");

/// What a scenario needs of the services.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Plimsoll {
    /// Nothing.
    Absent,
    /// Their programs.
    Built,
    /// All services, running in the scenario's environment.
    Running,
}

/// One scenario.
#[derive(Debug)]
pub(super) struct Scenario {
    pub(super) name: &'static str,
    /// One-line description.
    pub(super) shows: &'static str,
    pub(super) region: &'static str,
    pub(super) cluster: &'static str,
    /// Whether the custom resources and permissions of deploy/ are installed at the start.
    pub(super) installed: bool,
    pub(super) plimsoll: Plimsoll,
    /// Whether it asserts times of a few seconds: nothing else runs beside it.
    pub(super) alone: bool,
    pub(super) play: fn(&Context, &mut World) -> Result<Vec<Figure>>,
}

/// In the order in which they start. The longest starts early, so that it does not end long after the others.
pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "harness",
        shows: "without Plimsoll: an instance becomes a node that runs pods, and leaves it NotReady",
        region: REGION,
        cluster: "harness",
        installed: true,
        plimsoll: Plimsoll::Absent,
        alone: false,
        play: harness::play,
    },
    Scenario {
        name: "api-server",
        shows: "the real API server passes the tests that the simulated one passes",
        region: REGION,
        cluster: "api-server",
        installed: true,
        plimsoll: Plimsoll::Absent,
        alone: false,
        play: api_server::play,
    },
    Scenario {
        name: "rights",
        shows: "the accounts of deploy/ have exactly the required permissions",
        region: REGION,
        cluster: "rights",
        installed: true,
        plimsoll: Plimsoll::Absent,
        alone: false,
        play: rights::play,
    },
    Scenario {
        name: "regressions",
        shows: "deleted Leases, expiry with do-not-disrupt, drift with a PDB, a restarted StatefulSet: no stalls, \
                no repeated launches",
        region: REGION,
        cluster: "regressions",
        installed: true,
        plimsoll: Plimsoll::Running,
        alone: false,
        play: regressions::play,
    },
    Scenario {
        name: "growth",
        shows: "seed 001: 5 pods run, 15 reach the limit with a reason, 0 remove all nodes",
        region: REGION,
        cluster: SEED_001,
        installed: true,
        plimsoll: Plimsoll::Running,
        alone: false,
        play: growth::play,
    },
    Scenario {
        name: "consolidation",
        shows: "five nodes become one, one by one, and no pod moves twice",
        region: REGION,
        cluster: "consolidation",
        installed: true,
        plimsoll: Plimsoll::Running,
        alone: false,
        play: consolidation::play,
    },
    Scenario {
        name: "interruption",
        shows: "seed 000 on Spot: a replacement before the drain, all within two minutes",
        region: SEED_000.1,
        cluster: SEED_000.0,
        installed: true,
        plimsoll: Plimsoll::Running,
        alone: false,
        play: interruption::play,
    },
    Scenario {
        name: "bind-pods",
        shows: "--bind-pods beside kube-scheduler: 300 pods, none bound twice or elsewhere",
        region: REGION,
        cluster: "bind-pods",
        installed: true,
        plimsoll: Plimsoll::Running,
        alone: false,
        play: bind_pods::play,
    },
    Scenario {
        name: "capacity",
        shows: "no capacity: the next offering is used within a second, and the first is not requested again",
        region: REGION,
        cluster: "capacity",
        installed: true,
        plimsoll: Plimsoll::Running,
        alone: true,
        play: capacity::play,
    },
    Scenario {
        name: "reservation",
        shows: "a capacity reservation is used first and never beyond its instances; its nodes are labelled",
        region: REGION,
        cluster: "reservation",
        installed: true,
        plimsoll: Plimsoll::Running,
        alone: false,
        play: reservation::play,
    },
    Scenario {
        name: "permission-missing",
        shows: "the node class names the permission that the actuator's role lacks, and launches once it is granted",
        region: REGION,
        cluster: "permission",
        installed: true,
        plimsoll: Plimsoll::Running,
        alone: false,
        play: refusals::permission_missing,
    },
    Scenario {
        name: "template-deleted",
        shows: "somebody deletes the launch templates: the next launch creates them again at once",
        region: REGION,
        cluster: "template",
        installed: true,
        plimsoll: Plimsoll::Running,
        alone: true,
        play: refusals::template_deleted,
    },
    Scenario {
        name: "batch-refused",
        shows: "EC2 refuses to end a batch because of one protected instance: the others end",
        region: REGION,
        cluster: "batch",
        installed: true,
        plimsoll: Plimsoll::Running,
        alone: false,
        play: refusals::batch_refused,
    },
    Scenario {
        name: "token-answers",
        shows: "each answer that EC2 may give to a repeated client token: no instance is bought twice",
        region: REGION,
        cluster: "token",
        installed: true,
        plimsoll: Plimsoll::Running,
        alone: false,
        play: token_answers::play,
    },
    Scenario {
        name: "foreign-flood",
        shows: "4,000 messages a minute about instances of others: own Spot notices within 5 s, no call of EC2",
        region: REGION,
        cluster: "flood",
        installed: true,
        plimsoll: Plimsoll::Running,
        alone: true,
        play: foreign_flood::play,
    },
    Scenario {
        name: "ami-drift",
        shows: "EKS recommends a newer image: the nodes drift with the reason AMIDrift and are replaced",
        region: REGION,
        cluster: "ami-drift",
        installed: true,
        plimsoll: Plimsoll::Running,
        alone: false,
        play: drift::ami,
    },
    Scenario {
        name: "version-upgrade",
        shows: "the control plane goes from 1.35 to 1.36: images follow without a restart, and the nodes are replaced",
        region: REGION,
        cluster: "upgrade",
        installed: true,
        plimsoll: Plimsoll::Running,
        alone: false,
        play: drift::version,
    },
    Scenario {
        name: "crash-watcher",
        shows: "kill -9 of the leading watcher in a scale-up",
        region: REGION,
        cluster: "crash",
        installed: true,
        plimsoll: Plimsoll::Running,
        alone: false,
        play: crash::watcher,
    },
    Scenario {
        name: "crash-scheduler",
        shows: "kill -9 of a scheduler in a scale-up",
        region: REGION,
        cluster: "crash",
        installed: true,
        plimsoll: Plimsoll::Running,
        alone: false,
        play: crash::scheduler,
    },
    Scenario {
        name: "crash-actuator",
        shows: "kill -9 of the leading actuator: claim written, CreateFleet sent, response lost",
        region: REGION,
        cluster: "crash",
        installed: true,
        plimsoll: Plimsoll::Running,
        alone: false,
        play: crash::actuator,
    },
    Scenario {
        name: "client",
        shows: "a Python program gets a plan",
        region: REGION,
        cluster: "client",
        installed: true,
        plimsoll: Plimsoll::Running,
        alone: false,
        play: client::play,
    },
    Scenario {
        name: "views",
        shows: "kubectl get and describe have the columns of Karpenter",
        region: REGION,
        cluster: SEED_001,
        installed: true,
        plimsoll: Plimsoll::Running,
        alone: false,
        play: views::play,
    },
    Scenario {
        name: "chart",
        shows: "the Helm chart: installed, upgraded and rolled back, its pods run as processes; no duplicate, no gap without a leader",
        region: REGION,
        cluster: "chart",
        installed: false,
        plimsoll: Plimsoll::Built,
        alone: false,
        play: chart::play,
    },
    Scenario {
        name: "monitoring",
        shows: "every metric of the chart's dashboards and rules is exported, and Karpenter's dashboards show data",
        region: REGION,
        cluster: "monitoring",
        installed: true,
        plimsoll: Plimsoll::Running,
        alone: false,
        play: monitoring::play,
    },
    Scenario {
        name: "world",
        shows: "cargo xtask world starts, executes its subcommands, and ends all processes",
        region: REGION,
        cluster: "world",
        installed: true,
        plimsoll: Plimsoll::Built,
        alone: false,
        play: by_hand::play,
    },
    Scenario {
        name: "first-pod",
        shows: "from the first pod of new NodePools to CreateFleet, less than a second",
        region: REGION,
        cluster: "first-pod",
        installed: true,
        plimsoll: Plimsoll::Running,
        alone: true,
        play: first_pod::play,
    },
    Scenario {
        name: "latency",
        shows: "from Unschedulable to CreateFleet, for single pods",
        region: REGION,
        cluster: "latency",
        installed: true,
        plimsoll: Plimsoll::Running,
        alone: true,
        play: latency::play,
    },
];
