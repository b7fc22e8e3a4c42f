//! Fields of the kubelet configuration file, kubelet.config.k8s.io/v1beta1 of Kubernetes 1.36.

/// Type of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FieldType {
    /// A boolean.
    Bool,
    /// A 32-bit integer.
    Int32,
    /// A 64-bit integer.
    Int64,
    /// A number.
    Number,
    /// A string.
    Text,
    /// A Go duration.
    Duration,
    /// A list of strings.
    Texts,
    /// A list of integers.
    Int32s,
    /// Strings by name.
    TextMap,
    /// Booleans by name.
    BoolMap,
    /// Lists of strings by name.
    TextsMap,
    /// An object whose content is not validated.
    Object,
    /// A list of objects whose content is not validated.
    Objects,
}

/// Type of the field `name`; `None` if there is no such field.
pub(super) fn field_type(name: &str) -> Option<FieldType> {
    FIELDS.iter().find(|(_, names)| names.contains(&name)).map(|(field_type, _)| *field_type)
}

const FIELDS: [(FieldType, &[&str]); 13] = [
    (
        FieldType::Bool,
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
        FieldType::Int32,
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
    (FieldType::Int64, &["maxOpenFiles", "podPidsLimit"]),
    (FieldType::Number, &["memoryThrottlingFactor"]),
    (
        FieldType::Text,
        &[
            "address",
            // Every file of a versioned kind may contain `apiVersion` and `kind`.
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
        FieldType::Duration,
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
        FieldType::Texts,
        &[
            "allowedUnsafeSysctls",
            "clusterDNS",
            "enforceNodeAllocatable",
            "preloadedImagesVerificationAllowlist",
            "tlsCipherSuites",
        ],
    ),
    (FieldType::Int32s, &["tlsCurvePreferences"]),
    (
        FieldType::TextMap,
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
    (FieldType::BoolMap, &["featureGates"]),
    (FieldType::TextsMap, &["staticPodURLHeader"]),
    (
        FieldType::Object,
        &["authentication", "authorization", "crashLoopBackOff", "logging", "memorySwap", "tracing", "userNamespaces"],
    ),
    (FieldType::Objects, &["registerWithTaints", "reservedMemory", "shutdownGracePeriodByPodPriority"]),
];

/// Fields that all families pass on to the kubelet; AL2023 passes on all fields.
pub(super) const FIELDS_OF_ALL_FAMILIES: [&str; 12] = [
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
