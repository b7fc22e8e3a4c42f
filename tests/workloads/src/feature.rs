//! What a case may contain.

/// Something that a case has beside plain pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Feature {
    /// Pods with a node selector.
    NodeSelector,
    /// Pods with required node affinity.
    NodeAffinity,
    /// Pools with taints, and pods of which some tolerate them.
    Taints,
    /// Spread over zones.
    ZoneSpread,
    /// Spread over nodes.
    HostnameSpread,
    /// Pods that want to be in a zone with others.
    ZoneAffinity,
    /// Pods that want to be on a node with others.
    HostnameAffinity,
    /// Pods that want no zone with others.
    ZoneAntiAffinity,
    /// Pods that want no node with others.
    HostnameAntiAffinity,
    /// Pods with ports of their node.
    HostPorts,
    /// Pools with limits.
    Limits,
    /// Pools with weights.
    Weights,
    /// DaemonSets.
    DaemonSets,
    /// Nodes that are there already, with pods on them.
    ExistingNodes,
    /// Pools with Spot capacity.
    CapacityTypes,
    /// Pools with both architectures.
    Architectures,
    /// Pods with preferred node affinity.
    PreferredNodeAffinity,
    /// Pods with preferred affinity or anti-affinity to pods.
    PreferredPodAffinity,
    /// Spread that may be given up.
    SoftSpread,
    /// Pools with taints that are better avoided.
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
    /// Workloads in several namespaces, affinity across them by name.
    Namespaces,
    /// Affinity across namespaces by their labels.
    NamespaceSelectors,
    /// Claims whose volumes are bound to a zone.
    BoundVolumes,
    /// Claims that wait for their first consumer, some with allowed topologies.
    WaitingVolumes,
    /// `Gt` and `Lt`.
    Comparisons,
    /// Several node selector terms, of which one has to hold.
    SeveralTerms,
    /// GPUs.
    ExtendedResources,
    /// Spread over capacity types.
    CapacityTypeSpread,
    /// Spread and affinity over a label of the pools' own.
    CustomKeys,
    /// Init containers that keep running.
    Sidecars,
    /// Requests of the whole pod.
    PodResources,
    /// Requests of ephemeral storage.
    EphemeralStorage,
    /// Pods with priorities.
    Priorities,
    /// Pods that are not to be scheduled yet, and pods of other schedulers.
    NotOurs,
    /// Label selectors with expressions.
    Expressions,
    /// Disruption budgets.
    Budgets,
    /// Two constraints over different keys on one pod.
    SeveralSpreads,
}

impl Feature {
    /// What Karpenter's scheduler models as kube-scheduler does.
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

    /// What comes on top where kube-scheduler is the judge.
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

/// What can be bought in a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offer {
    /// A small catalog that is drawn from the seed, or some families of the built-in one.
    Small,
    /// The whole built-in catalog of us-east-1; pools still ask for on-demand c, m and r unless features say otherwise.
    BuiltIn,
}

/// What kinds of cases are drawn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    /// What a case may contain; each case takes some.
    pub features: Vec<Feature>,
    /// How likely each feature is, in percent.
    pub percent: usize,
    /// The most pods that are waiting.
    pub pods_max: usize,
    /// What can be bought.
    pub offer: Offer,
}

/// So many pods suffice for most interplay, and every planner answers at once.
const PODS_MAX: usize = 60;

impl Profile {
    /// Plain pods of mixed sizes.
    #[must_use]
    pub fn plain() -> Self {
        Self { features: Vec::new(), percent: 0, pods_max: PODS_MAX, offer: Offer::Small }
    }

    /// What Karpenter's scheduler models as well. Some three features a case.
    #[must_use]
    pub fn karpenter() -> Self {
        Self { features: Feature::KARPENTER.to_vec(), percent: 14, ..Self::plain() }
    }

    /// All that pods can ask for. Some four features a case.
    #[must_use]
    pub fn kubernetes() -> Self {
        let features = [Feature::KARPENTER, Feature::KUBERNETES].concat();
        Self { features, percent: 10, ..Self::plain() }
    }
}
