//! Writes docs/metrics.md.

use crate::karpenter::NOT_EXPORTED;
use plimsoll_runtime::metrics::spec::{Meaning, MetricSpec};
use std::fmt::Write;

const INTRODUCTION: &str = "\
# Metrics

Written by `PLIMSOLL_UPDATE=1 cargo test -p plimsoll-tests --test metrics`, from the metrics that the services register.

Each service serves `/metrics` in the Prometheus text format on its metrics port (`--metrics-listen`). Metrics that \
Karpenter has too keep Karpenter's names, labels and units, so that its dashboards and alerts work. Each of them comes \
from the one service that knows the fact. All other metrics are named `plimsoll_<service>_<name>`.

- Karpenter's dashboards select `job=\"karpenter\"`: the scrape configuration must give all three services this job, \
and must keep labels of series that a target has too (`honor_labels`). The chart's ServiceMonitors keep them; for the \
job, set `serviceMonitor.relabelings`.
- While Karpenter is scraped too, as in shadow mode, give Plimsoll another job: sums over both count twice. The \
chart's dashboards select the jobs of Plimsoll.
- The leader alone exports gauges of objects. A standby exports its own counters, histograms and `*_leading 0`.
- Gauges of objects are written when they are scraped, so the series of a deleted object are gone at the next scrape. \
The gauges are computed one scrape at a time on a thread of their own, from references to the cached objects; nothing \
is computed while nobody scrapes. The actuator and the watcher's planning loop do not wait for this thread.
- Responses are compressed with gzip for callers that accept it, as Prometheus does.
- The number of series grows with nodes and pods, as in Karpenter: about 40 for each node, 1 for each pod, 3 more for \
each pending pod. `metric_relabel_configs` can drop `karpenter_pods_state` or `karpenter_nodes_total_pod_limits`.
- Quantiles of summaries are of the last ten minutes, with an error of at most 1 %; they are `NaN` without observations.
- Counters and histograms keep the label values of deleted NodePools until the process restarts.
- CPU is in cores, everything else in base units. A label without a value is left out.
";

const ALERTS: &str = "\
## For alerts

| question | expression |
|---|---|
| does a replica lead? | `max(plimsoll_actuator_leading) == 1`, `max(plimsoll_watcher_leading) == 1` |
| does the leading watcher wait for what it needs to plan? | `karpenter_cluster_state_unsynced_time_seconds > 0` |
| does another autoscaler keep Plimsoll from writing? | `max(plimsoll_actuator_paused) == 1` |
| do pods wait without an admitted plan, and for how long? | `plimsoll_watcher_pods_without_plan`, `plimsoll_watcher_pods_without_plan_oldest_age_seconds` |
| does kube-scheduler not bind pods that a plan places? | `karpenter_pods_provisioning_unbound_time_seconds > 1800` by `namespace` and `name` |
| why can pods not be placed? | `plimsoll_watcher_unschedulable_pods` by `reason` |
| were plans withheld? | `rate(plimsoll_watcher_plans_total{result=\"withheld\"}[15m])`, `rate(plimsoll_scheduler_invalid_plans_total[15m])` |
| which pods get no node because the planner fails for them? | `rate(plimsoll_scheduler_left_out_pods_total[15m])` by `cause`, and Events of these pods: `left out, because` |
| do launches fail, and why? | `rate(plimsoll_actuator_nodeclaims_failed_total[15m])` by `nodepool` and `cause` |
| is the limit of a NodePool reached? | `karpenter_nodepools_usage / karpenter_nodepools_limit >= 0.95` |
| what blocks the disruption of nodes? | `plimsoll_watcher_disruption_blocked_nodes` by `reason` |
| is the interruption queue read in time? | `plimsoll_actuator_interruption_queue_lag_seconds`, `time() - plimsoll_actuator_interruption_queue_last_receive_timestamp_seconds` where the latter is above 0 |
| when do certificates expire? | `plimsoll_<service>_tls_certificate_expiry_timestamp_seconds - time()` |
| what does a NodePool cost? | `karpenter_nodepools_cost_total`, in US dollars per hour; `plimsoll_actuator_nodepool_nodes_without_price` counts nodes that it leaves out |
| do calls to AWS fail? | `rate(karpenter_cloudprovider_errors_total[15m])` by `method` and `error` |
| does removing a node take too long? | `operator_nodeclaim_termination_current_time_seconds` |
";

/// The document.
pub(crate) fn document(specs: &[MetricSpec]) -> String {
    let mut text = INTRODUCTION.to_owned();
    write!(text, "\n{ALERTS}\n## Karpenter's metrics\n\n").unwrap();
    text.push_str(
        "| metric | type | labels | meaning | service | compared with Karpenter |\n|---|---|---|---|---|---|\n",
    );
    let (own, shared): (Vec<&MetricSpec>, Vec<&MetricSpec>) =
        specs.iter().partition(|spec| spec.meaning == Meaning::Own);
    for spec in &shared {
        let relation = match spec.meaning {
            Meaning::Differs(how) => format!("differs: {how}"),
            Meaning::Same | Meaning::Own => "same".to_owned(),
        };
        writeln!(text, "{} {} | {relation} |", start(spec), spec.service).unwrap();
    }
    text.push_str("\n### Not exported\n\n| metric | why |\n|---|---|\n");
    for (name, why) in NOT_EXPORTED {
        writeln!(text, "| `{name}` | {why} |").unwrap();
    }
    for service in ["actuator", "watcher", "scheduler"] {
        write!(text, "\n## Own metrics of the {service}\n\n| metric | type | labels | meaning |\n|---|---|---|---|\n")
            .unwrap();
        for spec in own.iter().filter(|spec| spec.service == service) {
            writeln!(text, "{}", start(spec)).unwrap();
        }
    }
    text
}

/// Name, type, labels and meaning.
fn start(spec: &MetricSpec) -> String {
    // The dozens of node labels would make the table unreadable.
    let well_known = spec.labels.iter().any(|label| label == "instance_hypervisor");
    let mut labels: Vec<&str> = spec.labels.iter().map(String::as_str).collect();
    if well_known {
        let of_nodes = ["resource_type", "node_name", "phase", "managed"];
        labels.retain(|label| of_nodes.contains(label));
        labels.push("each well-known label of nodes, such as nodepool, zone, instance_type, capacity_type, arch");
    }
    format!("| `{}` | {} | {} | {} |", spec.name, spec.kind, labels.join(", "), spec.help)
}
