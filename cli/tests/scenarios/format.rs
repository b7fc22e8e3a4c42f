//! Format of the first document of a scenario.

use plimsoll_model::snapshot::DisruptionReason;
use serde::Deserialize;
use std::collections::BTreeMap;

/// First document.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Header {
    pub(crate) api_version: String,
    pub(crate) kind: String,
    pub(crate) title: String,
    pub(crate) why: String,
    #[serde(default)]
    pub(crate) given: Given,
    pub(crate) expect: Expect,
}

/// Input of the plan in addition to the manifests.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Given {
    /// Files of the folder `common`.
    #[serde(default)]
    pub(crate) with: Vec<String>,
    /// A catalog of the folder `common`, or a region of the built-in one.
    pub(crate) catalog: Option<String>,
    pub(crate) region: Option<String>,
    pub(crate) now: Option<jiff::Timestamp>,
    /// `Respect` or `Ignore`.
    pub(crate) preference_policy: Option<String>,
    /// `Strict` or `BestEffort`.
    pub(crate) min_values_policy: Option<String>,
    /// In per cent.
    pub(crate) max_share_per_node: Option<u32>,
    /// Whether consolidation replaces Spot nodes by Spot nodes.
    #[serde(default)]
    pub(crate) spot_to_spot: bool,
}

/// Pattern for pod names: `web-*`, `shop/web-0`; without namespace they are in `default`.
pub(crate) type Pattern = String;

/// Expectations. By default, all pods are placed, none is ignored, and no node is removed.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Expect {
    /// No launch, no removal, no placed pod.
    #[serde(default)]
    pub(crate) nothing: bool,
    pub(crate) launches: Option<Count>,
    #[serde(default)]
    pub(crate) launches_of_pool: BTreeMap<String, Count>,
    pub(crate) every_launch: Option<LaunchCheck>,
    /// All launches with a pod that matches the pattern; there must be at least one.
    #[serde(default)]
    pub(crate) launch_of: BTreeMap<Pattern, LaunchCheck>,
    #[serde(default)]
    pub(crate) placed: Vec<Pattern>,
    #[serde(default)]
    pub(crate) placed_count: BTreeMap<Pattern, Count>,
    #[serde(default)]
    pub(crate) on_launch: Vec<Pattern>,
    #[serde(default)]
    pub(crate) on_node: BTreeMap<String, Vec<Pattern>>,
    #[serde(default)]
    pub(crate) not_on_node: BTreeMap<String, Vec<Pattern>>,
    pub(crate) unschedulable: Option<Vec<Unschedulable>>,
    #[serde(default)]
    pub(crate) ignored: BTreeMap<Pattern, String>,
    /// Exactly these nodes are removed.
    pub(crate) terminations: Option<BTreeMap<String, Removal>>,
    pub(crate) termination_count: Option<Count>,
    #[serde(default)]
    pub(crate) stays: Vec<String>,
    pub(crate) cost: Option<Range>,
    #[serde(default)]
    pub(crate) domains: Vec<Domains>,
    #[serde(default)]
    pub(crate) together: Vec<Together>,
    #[serde(default)]
    pub(crate) apart: Vec<Apart>,
    /// Bad input: substrings of the error.
    #[serde(default)]
    pub(crate) error: Vec<String>,
}

impl Expect {
    /// Whether there are no expectations.
    pub(crate) fn is_empty(&self) -> bool {
        let lists = [
            self.placed.len(),
            self.on_launch.len(),
            self.stays.len(),
            self.domains.len(),
            self.together.len(),
            self.apart.len(),
            self.error.len(),
        ];
        let maps = [
            self.launches_of_pool.len(),
            self.launch_of.len(),
            self.placed_count.len(),
            self.on_node.len(),
            self.not_on_node.len(),
            self.ignored.len(),
        ];
        let options = [
            self.launches.is_some(),
            self.every_launch.is_some(),
            self.unschedulable.is_some(),
            self.terminations.is_some(),
            self.termination_count.is_some(),
            self.cost.is_some(),
            self.nothing,
        ];
        lists.iter().chain(&maps).all(|length| *length == 0) && !options.contains(&true)
    }
}

/// `3`, or `{min: 1, max: 3}`.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(untagged)]
pub(crate) enum Count {
    Exactly(usize),
    Between(Bounds),
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Bounds {
    min: Option<usize>,
    max: Option<usize>,
}

impl Count {
    pub(crate) fn allows(self, count: usize) -> bool {
        match self {
            Self::Exactly(wanted) => count == wanted,
            Self::Between(Bounds { min, max }) => {
                min.is_none_or(|least| count >= least) && max.is_none_or(|most| count <= most)
            }
        }
    }
}

/// USD per hour.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Range {
    pub(crate) min: Option<f64>,
    pub(crate) max: Option<f64>,
}

/// One value or several.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub(crate) enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

impl OneOrMany {
    pub(crate) fn list(&self) -> Vec<&str> {
        match self {
            Self::One(one) => vec![one],
            Self::Many(many) => many.iter().map(String::as_str).collect(),
        }
    }
}

/// Expectations of a launch.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct LaunchCheck {
    pub(crate) node_pool: Option<OneOrMany>,
    /// The chosen type matches one of these (`m5.*` is allowed).
    pub(crate) instance_type: Option<OneOrMany>,
    /// The launch lists no other types.
    pub(crate) only_types: Option<OneOrMany>,
    /// The launch lists all of these types.
    pub(crate) lists_types: Option<OneOrMany>,
    pub(crate) type_count: Option<Count>,
    /// The launch lists no other zones.
    pub(crate) zones: Option<OneOrMany>,
    pub(crate) capacity_types: Option<OneOrMany>,
    /// Capacity type of the chosen offering.
    pub(crate) bought_as: Option<String>,
    pub(crate) arch: Option<String>,
    pub(crate) price: Option<Range>,
    /// Number of pods.
    pub(crate) pods: Option<Count>,
    /// Labels that every such node is certain to get.
    #[serde(default)]
    pub(crate) labels: BTreeMap<String, String>,
    /// Labels that every such node gets with one of these values.
    #[serde(default)]
    pub(crate) label_in: BTreeMap<String, Vec<String>>,
    /// Exactly these taints, as `key=value:Effect`.
    pub(crate) taints: Option<Vec<String>>,
    /// Requests, including DaemonSets.
    #[serde(default)]
    pub(crate) requests: BTreeMap<String, String>,
    /// Substrings of the reason.
    #[serde(default)]
    pub(crate) because: Vec<String>,
}

/// Unschedulable pods.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Unschedulable {
    pub(crate) pods: Pattern,
    /// Number of these pods; all by default.
    pub(crate) count: Option<Count>,
    /// By pool; `pod` for a reason of the pod itself.
    pub(crate) because: BTreeMap<String, Cause>,
}

/// A reason: a code, or a code and substrings of the message.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum Cause {
    Code(String),
    Says(Says),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Says {
    pub(crate) code: OneOrMany,
    #[serde(default)]
    pub(crate) says: Vec<String>,
}

/// A removed node: its reason, or more properties.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum Removal {
    Reason(DisruptionReason),
    Details(Details),
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Details {
    pub(crate) reason: DisruptionReason,
    /// Number of launches that the removal waits for.
    pub(crate) replaced_by: Option<Count>,
    pub(crate) saving: Option<Range>,
    /// Number of pods that must move.
    pub(crate) pods: Option<Count>,
}

/// Distribution of pods over the domains of a label.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Domains {
    pub(crate) pods: Pattern,
    pub(crate) key: String,
    /// Maximum skew, over the domains in `over` and those with pods.
    pub(crate) max_skew: Option<usize>,
    #[serde(default)]
    pub(crate) over: Vec<String>,
    /// Number of domains with pods.
    pub(crate) used: Option<Count>,
    /// Pods by domain, exactly.
    pub(crate) counts: Option<BTreeMap<String, usize>>,
    /// Maximum number of pods in one domain.
    pub(crate) most: Option<usize>,
}

/// Pods in one domain.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Together {
    pub(crate) pods: Vec<Pattern>,
    #[serde(default = "hostname")]
    pub(crate) key: String,
}

/// Pods of which no two, or no pairs from two sets, are in one domain.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Apart {
    pub(crate) pods: Pattern,
    pub(crate) from: Option<Pattern>,
    #[serde(default = "hostname")]
    pub(crate) key: String,
}

fn hostname() -> String {
    plimsoll_model::names::label::HOSTNAME.to_owned()
}
