//! Labels that the controllers of Jobs and StatefulSets add to those of the template. The UID of a Job is not known.

use super::Manifest;
use super::kinds::Kind;
use k8s_openapi::api::core::v1::PodSpec;
use plimsoll_snapshot::{Objects, selected_label_keys};
use serde_json::Value;

/// The name of the Job, as a label of its pods.
const JOB_NAMES: [&str; 2] = ["batch.kubernetes.io/job-name", "job-name"];
const COMPLETION_INDEX: &str = "batch.kubernetes.io/job-completion-index";
const POD_NAME: &str = "statefulset.kubernetes.io/pod-name";
const POD_INDEX: &str = "apps.kubernetes.io/pod-index";

/// Labels of all pods of the workload `name`.
pub(super) fn of_all(workload: &Manifest, name: &str) -> Vec<(String, String)> {
    let has_own_selector = field(workload, "manualSelector").and_then(Value::as_bool) == Some(true);
    if workload.kind != Kind::Job || has_own_selector {
        return Vec::new();
    }
    JOB_NAMES.map(|key| (key.to_owned(), name.to_owned())).into()
}

/// Labels that only the pod `name` of the workload has, which has this number.
pub(super) fn of_one(workload: &Manifest, name: &str, number: usize) -> Vec<(String, String)> {
    match workload.kind {
        Kind::StatefulSet => {
            vec![(POD_NAME.to_owned(), name.to_owned()), (POD_INDEX.to_owned(), number.to_string())]
        }
        Kind::Job if field(workload, "completionMode").and_then(Value::as_str) == Some("Indexed") => {
            vec![(COMPLETION_INDEX.to_owned(), number.to_string())]
        }
        _ => Vec::new(),
    }
}

fn field<'m>(workload: &'m Manifest, name: &str) -> Option<&'m Value> {
    workload.value.get("spec")?.get(name)
}

/// Whether a selector of the input names a label by which pods of one workload differ. `of_workloads` are the specs of
/// the pods that workloads make. This is decided for the whole input, since affinity terms may select pods of other
/// namespaces: one such selector only means that each pod is stored.
pub(super) fn tell_pods_apart<'a>(of_workloads: impl Iterator<Item = &'a PodSpec>, objects: &'a Objects) -> bool {
    let pods = objects.pods.iter().filter_map(|pod| pod.spec.as_deref());
    let daemon_sets = objects.daemon_sets.iter().filter_map(|it| it.spec.as_ref()?.template.spec.as_ref());
    let templates = objects.pod_templates.iter().filter_map(|it| it.template.as_ref()?.spec.as_ref());
    let of_pods = of_workloads.chain(pods).chain(daemon_sets).chain(templates).flat_map(selected_label_keys);
    let budgets = objects.pod_disruption_budgets.iter().filter_map(|it| it.spec.as_ref()?.selector.as_ref());
    let of_budgets = budgets.flat_map(|selector| {
        let expressions = selector.match_expressions.iter().flatten().map(|requirement| &requirement.key);
        selector.match_labels.iter().flat_map(|labels| labels.keys()).chain(expressions)
    });
    of_pods.chain(of_budgets).any(|key| [COMPLETION_INDEX, POD_NAME, POD_INDEX].contains(&key.as_str()))
}

#[cfg(test)]
mod tests {
    use crate::{MAX_PODS, Manifests, Text, read};

    const SET: &str = "---\napiVersion: apps/v1\nkind: StatefulSet\nmetadata: {name: db}\n\
        spec: {replicas: 2, selector: {matchLabels: {app: db}}, \
        template: {metadata: {labels: {app: db}}, spec: {containers: [{name: app}]}}}\n";

    fn input(content: &str) -> Manifests {
        read(&[Text { name: "-".to_owned(), content: content.to_owned() }], MAX_PODS).unwrap()
    }

    /// The labels of each pod, as `key=value`.
    fn labels(content: &str) -> Vec<Vec<String>> {
        let pods = input(content).objects.expanded().pods;
        let labels = pods.iter().map(|pod| pod.labels.iter());
        labels.map(|labels| labels.map(|(key, value)| format!("{key}={value}")).collect()).collect()
    }

    #[test]
    fn the_pods_of_a_job_have_its_name_as_labels() {
        let job = |fields: &str| {
            format!(
                "apiVersion: batch/v1\nkind: Job\nmetadata: {{name: load}}\nspec: {{{fields}, \
                 template: {{metadata: {{labels: {{app: load}}}}, \
                 spec: {{restartPolicy: Never, containers: [{{name: app}}]}}}}}}\n"
            )
        };
        let named = ["app=load", "batch.kubernetes.io/job-name=load", "job-name=load"];
        assert_eq!(labels(&job("parallelism: 2")), [named, named]);
        assert_eq!(labels(&job("parallelism: 1, manualSelector: true")), [["app=load"]]);
        let budget = "---\napiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {name: first}\n\
            spec: {minAvailable: 1, selector: {matchLabels: {batch.kubernetes.io/job-completion-index: \"0\"}}}\n";
        let indexed = labels(&(job("parallelism: 2, completions: 2, completionMode: Indexed") + budget));
        let index = |number: usize| format!("batch.kubernetes.io/job-completion-index={number}");
        assert!(indexed[0].contains(&index(0)) && indexed[1].contains(&index(1)), "{indexed:?}");
    }

    #[test]
    fn the_pods_of_a_stateful_set_have_labels_of_their_own_if_a_selector_names_them() {
        assert_eq!(labels(SET), [["app=db"], ["app=db"]]);
        let large = input(&SET.replace("replicas: 2", "replicas: 100000")).objects;
        assert_eq!((large.pods.len(), large.replicas.len()), (0, 1));
        let spread = "topologySpreadConstraints: [{topologyKey: kubernetes.io/hostname, maxSkew: 1, \
            whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {apps.kubernetes.io/pod-index: \"0\"}}}]";
        let other = format!(
            "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: a}}\nspec: {{containers: [{{name: app}}], {spread}}}\n"
        );
        let of_set = |number: usize| {
            [
                "app=db".to_owned(),
                format!("apps.kubernetes.io/pod-index={number}"),
                format!("statefulset.kubernetes.io/pod-name=db-{number}"),
            ]
        };
        assert_eq!(labels(&format!("{other}{SET}"))[1..], [of_set(0), of_set(1)]);
    }
}
