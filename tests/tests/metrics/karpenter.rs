//! Karpenter's metrics: names, types and labels from its documentation, and reasons why some are not exported.

/// A metric of Karpenter: name, type, labels. The label `*` means the well-known labels of nodes.
pub(crate) type KarpenterMetric = (&'static str, &'static str, &'static [&'static str]);

const NODE: &[&str] = &["resource_type", "node_name", "phase", "managed", "*"];
const DISRUPTION: &[&str] = &["reason", "nodepool", "capacity_type", "consolidation_policy", "termination_mode"];
const DECISION: &[&str] = &["decision", "reason", "consolidation_type"];
const POD: &[&str] = &["name", "namespace"];
const CONDITION: &[&str] = &["name", "type", "status", "reason"];
const OF_CLAIM: [&str; 2] = ["karpenter_sh_nodepool", "karpenter_k8s_aws_ec2nodeclass"];

/// All metrics of Karpenter's core and of its provider for AWS, except for those of each kind's conditions.
pub(crate) const METRICS: &[KarpenterMetric] = &[
    ("karpenter_build_info", "gauge", &["version", "goversion", "goarch", "commit"]),
    ("karpenter_nodeclaims_created_total", "counter", &["reason", "nodepool", "min_values_relaxed"]),
    ("karpenter_nodeclaims_terminated_total", "counter", &["nodepool", "capacity_type", "zone"]),
    ("karpenter_nodeclaims_disrupted_total", "counter", DISRUPTION),
    ("karpenter_nodeclaims_instance_termination_duration_seconds", "histogram", &["nodepool"]),
    ("karpenter_nodeclaims_termination_duration_seconds", "histogram", &["nodepool"]),
    (
        "karpenter_nodeclaims_unhealthy_disrupted_total",
        "counter",
        &["condition", "nodepool", "capacity_type", "image_id"],
    ),
    ("karpenter_nodes_created_total", "counter", &["nodepool", "zone"]),
    ("karpenter_nodes_terminated_total", "counter", &["nodepool", "zone"]),
    ("karpenter_nodes_termination_duration_seconds", "summary", &["nodepool"]),
    ("karpenter_nodes_drained_total", "counter", &["nodepool"]),
    ("karpenter_nodes_lifetime_duration_seconds", "histogram", &["nodepool"]),
    ("karpenter_nodes_allocatable", "gauge", NODE),
    ("karpenter_nodes_total_pod_requests", "gauge", NODE),
    ("karpenter_nodes_total_pod_limits", "gauge", NODE),
    ("karpenter_nodes_total_daemon_requests", "gauge", NODE),
    ("karpenter_nodes_total_daemon_limits", "gauge", NODE),
    ("karpenter_nodes_system_overhead", "gauge", NODE),
    ("karpenter_nodes_current_lifetime_seconds", "gauge", &["node_name", "phase", "managed", "*"]),
    ("karpenter_cluster_utilization_percent", "gauge", &["resource_type"]),
    ("karpenter_pods_disruption_initiated_total", "counter", DISRUPTION),
    ("karpenter_pods_eviction_requests_total", "counter", &["code"]),
    ("karpenter_pods_drained_total", "counter", &["reason"]),
    (
        "karpenter_pods_state",
        "gauge",
        &[
            "name",
            "namespace",
            "owner",
            "node",
            "nodepool",
            "zone",
            "arch",
            "capacity_type",
            "instance_type",
            "phase",
            "scheduled",
            "ready",
            "managed",
        ],
    ),
    ("karpenter_pods_startup_duration_seconds", "summary", &[]),
    ("karpenter_pods_bound_duration_seconds", "histogram", &[]),
    ("karpenter_pods_provisioning_bound_duration_seconds", "histogram", &[]),
    ("karpenter_pods_provisioning_startup_duration_seconds", "histogram", &[]),
    ("karpenter_pods_scheduling_decision_duration_seconds", "histogram", &[]),
    ("karpenter_pods_unstarted_time_seconds", "gauge", POD),
    ("karpenter_pods_unbound_time_seconds", "gauge", POD),
    ("karpenter_pods_provisioning_unbound_time_seconds", "gauge", POD),
    ("karpenter_pods_provisioning_unstarted_time_seconds", "gauge", POD),
    ("karpenter_pods_provisioning_scheduling_undecided_time_seconds", "gauge", POD),
    ("karpenter_scheduler_scheduling_duration_seconds", "histogram", &["controller"]),
    ("karpenter_scheduler_queue_depth", "gauge", &["controller", "scheduling_id"]),
    ("karpenter_scheduler_unfinished_work_seconds", "gauge", &["controller", "scheduling_id"]),
    ("karpenter_scheduler_ignored_pods_count", "gauge", &[]),
    ("karpenter_scheduler_unschedulable_pods_count", "gauge", &["controller"]),
    ("karpenter_scheduler_pending_pods_by_effective_zone_count", "gauge", &["controller", "zone"]),
    ("karpenter_cluster_state_node_count", "gauge", &[]),
    ("karpenter_cluster_state_synced", "gauge", &[]),
    ("karpenter_cluster_state_unsynced_time_seconds", "gauge", &[]),
    (
        "karpenter_voluntary_disruption_decision_evaluation_duration_seconds",
        "histogram",
        &["reason", "consolidation_type"],
    ),
    ("karpenter_voluntary_disruption_decisions_total", "counter", DECISION),
    (
        "karpenter_voluntary_disruption_decisions_by_nodepool_total",
        "counter",
        &["nodepool", "decision", "reason", "consolidation_type"],
    ),
    ("karpenter_voluntary_disruption_eligible_nodes", "gauge", &["reason"]),
    ("karpenter_voluntary_disruption_consolidation_timeouts_total", "counter", &["consolidation_type"]),
    ("karpenter_voluntary_disruption_failed_validations_total", "counter", &["consolidation_type"]),
    ("karpenter_voluntary_disruption_queue_failures_total", "counter", DECISION),
    ("karpenter_consolidation_score", "histogram", &["decision", "nodepool", "policy"]),
    ("karpenter_consolidation_moves_total", "counter", &["decision", "nodepool", "policy"]),
    ("karpenter_nodepools_allowed_disruptions", "gauge", &["nodepool", "reason"]),
    ("karpenter_nodepools_nodes_consuming_budgets", "gauge", &["nodepool", "reason"]),
    ("karpenter_nodepools_limit", "gauge", &["resource_type", "nodepool"]),
    ("karpenter_nodepools_usage", "gauge", &["resource_type", "nodepool"]),
    ("karpenter_nodepools_cost_total", "gauge", &["nodepool"]),
    ("karpenter_nodepools_cost_tracker_errors_total", "counter", &["nodepool"]),
    ("karpenter_cloudprovider_duration_seconds", "histogram", &["controller", "method", "provider"]),
    ("karpenter_cloudprovider_errors_total", "counter", &["controller", "method", "provider", "error"]),
    ("karpenter_cloudprovider_instance_type_cpu_cores", "gauge", &["instance_type"]),
    ("karpenter_cloudprovider_instance_type_memory_bytes", "gauge", &["instance_type"]),
    ("karpenter_cloudprovider_instance_type_offering_available", "gauge", &["instance_type", "capacity_type", "zone"]),
    (
        "karpenter_cloudprovider_instance_type_offering_price_estimate",
        "gauge",
        &["instance_type", "capacity_type", "zone"],
    ),
    (
        "karpenter_cloudprovider_instance_launch_failures_total",
        "counter",
        &["zone", "zone_id", "capacity_type", "reason"],
    ),
    ("karpenter_cloudprovider_instance_termination_failures_total", "counter", &["zone", "zone_id"]),
    ("karpenter_cloudprovider_batcher_batch_time_seconds", "histogram", &["batcher"]),
    ("karpenter_cloudprovider_batcher_batch_size", "histogram", &["batcher"]),
    ("karpenter_interruption_received_messages_total", "counter", &["message_type"]),
    ("karpenter_interruption_deleted_messages_total", "counter", &[]),
    ("karpenter_interruption_message_queue_duration_seconds", "histogram", &[]),
    ("karpenter_interruption_instance_status_unhealthy_total", "counter", &["category"]),
    ("karpenter_ec2nodeclasses_userdata_bytes", "gauge", &["nodeclass"]),
    ("controller_runtime_reconcile_total", "counter", &["controller", "result"]),
    ("controller_runtime_reconcile_time_seconds", "histogram", &["controller"]),
];

/// Metrics of Karpenter that are not exported, and why. Families of libraries end in `*`.
pub(crate) const NOT_EXPORTED: &[(&str, &str)] = &[
    (
        "karpenter_scheduler_pending_pods_by_effective_zone_count",
        "A plan does not record which single zone a pod is bound to.",
    ),
    (
        "karpenter_voluntary_disruption_consolidation_timeouts_total",
        "A plan has a bounded amount of work and no timeout.",
    ),
    ("karpenter_consolidation_score", "Plans compare whole alternatives and give single moves no score."),
    ("karpenter_consolidation_moves_total", "Plans compare whole alternatives and give single moves no score."),
    (
        "karpenter_nodepools_cost_tracker_errors_total",
        "The cost is computed from the catalogs, without calls that could fail. \
         `plimsoll_actuator_nodepool_nodes_without_price` counts nodes that it leaves out.",
    ),
    (
        "karpenter_cloudprovider_batcher_batch_time_seconds",
        "Launches come in groups from the plan; nothing is batched.",
    ),
    ("karpenter_cloudprovider_batcher_batch_size", "Launches come in groups from the plan; nothing is batched."),
    ("karpenter_ec2nodeclasses_userdata_bytes", "Not measured."),
    ("operator_capacitybuffer_*", "The actuator does not watch CapacityBuffers; their status shows their conditions."),
    ("operator_status_condition_*", "Deprecated by Karpenter in favour of the metrics of each kind."),
    ("operator_termination_*", "Deprecated by Karpenter in favour of the metrics of each kind."),
    ("aws_sdk_go_request_*", "Metrics of AWS' SDK for Go. See `karpenter_cloudprovider_duration_seconds`."),
    ("controller_runtime_* (others)", "Details of a Go library."),
    ("workqueue_*, rest_client_*, leader_election_*, go_*", "Details of Go libraries and of the Go runtime."),
];

/// Metrics of the conditions of a kind: name, type, labels.
pub(crate) fn of_conditions() -> Vec<(String, &'static str, Vec<&'static str>)> {
    let kinds: [(&str, &[&str]); 4] = [
        ("nodeclaim", &OF_CLAIM),
        ("nodepool", &[]),
        ("node", &["karpenter_sh_nodepool", "karpenter_k8s_aws_ec2nodeclass", "karpenter_sh_initialized"]),
        ("ec2nodeclass", &[]),
    ];
    let mut metrics = Vec::new();
    for (kind, extra) in kinds {
        for (name, metric_type, labels) in [
            ("status_condition_count", "gauge", CONDITION),
            ("status_condition_current_status_seconds", "gauge", CONDITION),
            ("status_condition_transition_seconds", "histogram", &["type", "status"]),
            ("status_condition_transitions_total", "counter", &["type", "status", "reason"]),
            ("termination_current_time_seconds", "gauge", &["name"]),
            ("termination_duration_seconds", "histogram", &[]),
        ] {
            let labels = labels.iter().chain(extra).copied().collect();
            metrics.push((format!("operator_{kind}_{name}"), metric_type, labels));
        }
    }
    metrics
}
