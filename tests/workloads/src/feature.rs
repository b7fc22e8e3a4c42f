//! Features of a case.

/// A feature that a case has in addition to plain pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Feature {
    /// Pods with a node selector.
    NodeSelector,
    /// Pods with required node affinity.
    NodeAffinity,
    /// Pools with taints, and pods of which some tolerate the taints.
    Taints,
    /// Spread over zones.
    ZoneSpread,
    /// Spread over nodes.
    HostnameSpread,
    /// Pods with zonal affinity.
    ZoneAffinity,
    /// Pods with hostname affinity.
    HostnameAffinity,
    /// Pods with zonal anti-affinity.
    ZoneAntiAffinity,
    /// Pods with hostname anti-affinity.
    HostnameAntiAffinity,
    /// Pods with host ports.
    HostPorts,
    /// Pools with limits.
    Limits,
    /// Pools with weights.
    Weights,
    /// DaemonSets.
    DaemonSets,
    /// Existing nodes with pods.
    ExistingNodes,
    /// Pools with Spot capacity.
    CapacityTypes,
    /// Pools with both architectures.
    Architectures,
    /// Pods with preferred node affinity.
    PreferredNodeAffinity,
    /// Pods with preferred affinity or anti-affinity to pods.
    PreferredPodAffinity,
    /// Preferred topology spread (`ScheduleAnyway`).
    SoftSpread,
    /// Pools with `PreferNoSchedule` taints.
    SoftTaints,
    /// Init containers.
    InitContainers,
    /// Labels of pools that pods select.
    PoolLabels,
    /// Spread with `minDomains`.
    MinDomains,
    /// Spread and affinity with `matchLabelKeys`.
    MatchLabelKeys,
    /// Spread with `nodeAffinityPolicy` and `nodeTaintsPolicy`.
    SpreadPolicies,
    /// Workloads in several namespaces, with affinity to namespaces by name.
    Namespaces,
    /// Affinity to namespaces by label.
    NamespaceSelectors,
    /// Claims with volumes that are bound to a zone.
    BoundVolumes,
    /// Claims with `WaitForFirstConsumer`, some with allowed topologies.
    WaitingVolumes,
    /// `Gt` and `Lt`.
    Comparisons,
    /// Several node selector terms, of which one must match.
    SeveralTerms,
    /// GPUs.
    ExtendedResources,
    /// Spread over capacity types.
    CapacityTypeSpread,
    /// Spread and affinity over a custom label of the pools.
    CustomKeys,
    /// Init containers that keep running.
    Sidecars,
    /// Pod-level requests.
    PodResources,
    /// Requests of ephemeral storage.
    EphemeralStorage,
    /// Pods with priorities.
    Priorities,
    /// Gated pods, and pods of other schedulers.
    NotOurs,
    /// Label selectors with expressions.
    Expressions,
    /// Disruption budgets.
    Budgets,
    /// Two constraints over different keys on one pod.
    SeveralSpreads,
}

impl Feature {
    /// Features that Karpenter's scheduler models as kube-scheduler does.
    pub const KARPENTER: &[Self] = &[
        Self::NodeSelector,
        Self::NodeAffinity,
        Self::Taints,
        Self::ZoneSpread,
        Self::HostnameSpread,
        Self::ZoneAffinity,
        Self::HostnameAffinity,
        Self::ZoneAntiAffinity,
        Self::HostnameAntiAffinity,
        Self::HostPorts,
        Self::Limits,
        Self::Weights,
        Self::DaemonSets,
        Self::ExistingNodes,
        Self::CapacityTypes,
        Self::Architectures,
        Self::PreferredNodeAffinity,
        Self::PreferredPodAffinity,
        Self::SoftSpread,
        Self::SoftTaints,
        Self::InitContainers,
        Self::PoolLabels,
    ];

    /// Additional features for comparisons with kube-scheduler.
    pub const KUBERNETES: &[Self] = &[
        Self::MinDomains,
        Self::MatchLabelKeys,
        Self::SpreadPolicies,
        Self::Namespaces,
        Self::NamespaceSelectors,
        Self::BoundVolumes,
        Self::WaitingVolumes,
        Self::Comparisons,
        Self::SeveralTerms,
        Self::ExtendedResources,
        Self::CapacityTypeSpread,
        Self::CustomKeys,
        Self::Sidecars,
        Self::PodResources,
        Self::EphemeralStorage,
        Self::Priorities,
        Self::NotOurs,
        Self::Expressions,
        Self::Budgets,
        Self::SeveralSpreads,
    ];
}

/// Catalog of a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offer {
    /// A small random catalog, or some families of the built-in one.
    Small,
    /// The whole built-in catalog of us-east-1. Pools require on-demand c, m and r unless features change this.
    BuiltIn,
}

/// Distribution of random cases.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    /// Possible features of a case; each case has some of them.
    pub features: Vec<Feature>,
    /// Probability of each feature, in percent.
    pub percent: usize,
    /// Maximum number of pending pods.
    pub pods_max: usize,
    /// Catalogs of the cases.
    pub offer: Offer,
}

/// Enough pods for most interactions, and few enough for every planner to be fast.
const PODS_MAX: usize = 60;

impl Profile {
    /// Plain pods of mixed sizes.
    #[must_use]
    pub fn plain() -> Self {
        Self { features: Vec::new(), percent: 0, pods_max: PODS_MAX, offer: Offer::Small }
    }

    /// Features that Karpenter's scheduler also models. About three features per case.
    #[must_use]
    pub fn karpenter() -> Self {
        Self { features: Feature::KARPENTER.to_vec(), percent: 14, ..Self::plain() }
    }

    /// All features. About four features per case.
    #[must_use]
    pub fn kubernetes() -> Self {
        let features = [Feature::KARPENTER, Feature::KUBERNETES].concat();
        Self { features, percent: 10, ..Self::plain() }
    }
}
