//! The fields of the kubelet's configuration file, kubelet.config.k8s.io/v1beta1 of Kubernetes 1.36.

/// What a field may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// True or false.
    Bool,
    /// A whole number of 32 bits.
    Int32,
    /// A whole number of 64 bits.
    Int64,
    /// A number.
    Number,
    /// A text.
    Text,
    /// Go's duration text.
    Duration,
    /// A list of texts.
    Texts,
    /// A list of whole numbers.
    Int32s,
    /// Texts by name.
    TextMap,
    /// True or false by name.
    BoolMap,
    /// Lists of texts by name.
    TextsMap,
    /// An object that is not looked into.
    Object,
    /// A list of objects that are not looked into.
    Objects,
}

/// What the field `name` may hold; `None` if there is no such field.
pub(super) fn kind_of(name: &str) -> Option<Kind> {
    FIELDS.iter().find(|(_, names)| names.contains(&name)).map(|(kind, _)| *kind)
}

const FIELDS: [(Kind, &[&str]); 13] = [
    (
        Kind::Bool,
        &[
            "cgroupsPerQOS",
            "cpuCFSQuota",
            "enableContentionProfiling",
            "enableControllerAttachDetach",
            "enableDebugFlagsHandler",
            "enableDebuggingHandlers",
            "enableProfilingHandler",
            "enableServer",
            "enableSystemLogHandler",
            "enableSystemLogQuery",
            "failCgroupV1",
            "failSwapOn",
            "kernelMemcgNotification",
            "localStorageCapacityIsolation",
            "makeIPTablesUtilChains",
            "mergeDefaultEvictionSettings",
            "protectKernelDefaults",
            "registerNode",
            "rotateCertificates",
            "runOnce",
            "seccompDefault",
            "serializeImagePulls",
            "serverTLSBootstrap",
            "singleProcessOOMKill",
        ],
    ),
    (
        Kind::Int32,
        &[
            "containerLogMaxFiles",
            "containerLogMaxWorkers",
            "eventBurst",
            "eventRecordQPS",
            "evictionMaxPodGracePeriod",
            "healthzPort",
            "imageGCHighThresholdPercent",
            "imageGCLowThresholdPercent",
            "iptablesDropBit",
            "iptablesMasqueradeBit",
            "kubeAPIBurst",
            "kubeAPIQPS",
            "maxParallelImagePulls",
            "maxPods",
            "nodeLeaseDurationSeconds",
            "nodeStatusMaxImages",
            "oomScoreAdj",
            "podsPerCore",
            "port",
            "readOnlyPort",
            "registryBurst",
            "registryPullQPS",
        ],
    ),
    (Kind::Int64, &["maxOpenFiles", "podPidsLimit"]),
    (Kind::Number, &["memoryThrottlingFactor"]),
    (
        Kind::Text,
        &[
            "address",
            // Every file of a versioned kind may say which it is.
            "apiVersion",
            "cgroupDriver",
            "cgroupRoot",
            "clusterDomain",
            "configMapAndSecretChangeDetectionStrategy",
            "containerLogMaxSize",
            "containerRuntimeEndpoint",
            "contentType",
            "cpuManagerPolicy",
            "hairpinMode",
            "healthzBindAddress",
            "imagePullCredentialsVerificationPolicy",
            "imageServiceEndpoint",
            "kind",
            "kubeReservedCgroup",
            "kubeletCgroups",
            "memoryManagerPolicy",
            "memoryReservationPolicy",
            "podCIDR",
            "podLogsDir",
            "providerID",
            "reservedSystemCPUs",
            "resolvConf",
            "showHiddenMetricsForVersion",
            "staticPodPath",
            "staticPodURL",
            "systemCgroups",
            "systemReservedCgroup",
            "tlsCertFile",
            "tlsMinVersion",
            "tlsPrivateKeyFile",
            "topologyManagerPolicy",
            "topologyManagerScope",
            "volumePluginDir",
        ],
    ),
    (
        Kind::Duration,
        &[
            "containerLogMonitorInterval",
            "cpuCFSQuotaPeriod",
            "cpuManagerReconcilePeriod",
            "evictionPressureTransitionPeriod",
            "fileCheckFrequency",
            "httpCheckFrequency",
            "imageMaximumGCAge",
            "imageMinimumGCAge",
            "nodeStatusReportFrequency",
            "nodeStatusUpdateFrequency",
            "runtimeRequestTimeout",
            "shutdownGracePeriod",
            "shutdownGracePeriodCriticalPods",
            "streamingConnectionIdleTimeout",
            "syncFrequency",
            "volumeStatsAggPeriod",
        ],
    ),
    (
        Kind::Texts,
        &[
            "allowedUnsafeSysctls",
            "clusterDNS",
            "enforceNodeAllocatable",
            "preloadedImagesVerificationAllowlist",
            "tlsCipherSuites",
        ],
    ),
    (Kind::Int32s, &["tlsCurvePreferences"]),
    (
        Kind::TextMap,
        &[
            "cpuManagerPolicyOptions",
            "evictionHard",
            "evictionMinimumReclaim",
            "evictionSoft",
            "evictionSoftGracePeriod",
            "kubeReserved",
            "qosReserved",
            "systemReserved",
            "topologyManagerPolicyOptions",
        ],
    ),
    (Kind::BoolMap, &["featureGates"]),
    (Kind::TextsMap, &["staticPodURLHeader"]),
    (
        Kind::Object,
        &["authentication", "authorization", "crashLoopBackOff", "logging", "memorySwap", "tracing", "userNamespaces"],
    ),
    (Kind::Objects, &["registerWithTaints", "reservedMemory", "shutdownGracePeriodByPodPriority"]),
];

/// The only fields that families other than AL2023 pass on to the kubelet.
pub(super) const MAPPED: [&str; 12] = [
    "clusterDNS",
    "cpuCFSQuota",
    "evictionHard",
    "evictionMaxPodGracePeriod",
    "evictionSoft",
    "evictionSoftGracePeriod",
    "imageGCHighThresholdPercent",
    "imageGCLowThresholdPercent",
    "kubeReserved",
    "maxPods",
    "podsPerCore",
    "systemReserved",
];
