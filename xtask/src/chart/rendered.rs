//! Parts of objects that the charts render with some values.

use super::helm::Helm;
use super::{CHART, CRD_CHART, tools};
use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;

/// Kind and name of an object, JSON pointer, and the value there as JSON: `null` if there is none.
type Part = (&'static str, &'static str, &'static str);

/// Chart, values for `helm --set-json`, and parts of what is rendered.
type Case = (&'static str, &'static str, &'static [Part]);

const CASES: [Case; 12] = [
    (
        CHART,
        "",
        &[
            ("NetworkPolicy/plimsoll-actuator", "/spec/egress/0/to/0/namespaceSelector", "{}"),
            ("Deployment/plimsoll-actuator", "/spec/strategy/rollingUpdate/maxSurge", "0"),
            ("Deployment/plimsoll-watcher", "/spec/template/spec/containers/0/args/4", r#""--cluster-name=prod""#),
            ("ValidatingAdmissionPolicy/plimsoll-reserved-metadata", "", "null"),
            ("PodDisruptionBudget/plimsoll-watcher", "/spec/unhealthyPodEvictionPolicy", r#""AlwaysAllow""#),
            ("FlowSchema/plimsoll", "/spec/priorityLevelConfiguration/name", r#""workload-high""#),
            ("FlowSchema/plimsoll-leader-election", "/spec/rules/0/resourceRules/0/resources", r#"["leases"]"#),
            (
                "Deployment/plimsoll-scheduler",
                "/spec/template/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution",
                r#"{"nodeSelectorTerms": [{"matchExpressions": [
                    {"key": "karpenter.sh/nodepool", "operator": "DoesNotExist"},
                    {"key": "karpenter.k8s.aws/ec2nodeclass", "operator": "DoesNotExist"}]}]}"#,
            ),
        ],
    ),
    // A flag that is there twice ends a service.
    (
        CHART,
        r#"watcher.extraArgs=["--name=a", "--cluster-name=other"]"#,
        &[
            (
                "Deployment/plimsoll-watcher",
                "/spec/template/spec/containers/0/args/4",
                r#""--preference-policy=Respect""#,
            ),
            ("Deployment/plimsoll-watcher", "/spec/template/spec/containers/0/args/14", r#""--cluster-name=other""#),
        ],
    ),
    // The watcher finds the other services by cluster DNS, also if the actuator uses the DNS servers of its node.
    (
        CHART,
        r#"dnsPolicy="Default""#,
        &[
            ("Deployment/plimsoll-watcher", "/spec/template/spec/dnsPolicy", "null"),
            ("Deployment/plimsoll-scheduler", "/spec/template/spec/dnsPolicy", "null"),
            ("Deployment/plimsoll-actuator", "/spec/template/spec/dnsPolicy", r#""Default""#),
            ("NetworkPolicy/plimsoll-watcher", "/spec/egress/0/to/0/namespaceSelector", "{}"),
            ("NetworkPolicy/plimsoll-actuator", "/spec/egress/0/to", "null"),
            ("NetworkPolicy/plimsoll-actuator", "/spec/egress/0/ports/0", r#"{"port": 53, "protocol": "UDP"}"#),
        ],
    ),
    (
        CHART,
        r#"strategy={"type": "Recreate"}"#,
        &[("Deployment/plimsoll-actuator", "/spec/strategy", r#"{"type": "Recreate"}"#)],
    ),
    (
        CHART,
        "affinity=null",
        &[("CronJob/plimsoll-certificates", "/spec/jobTemplate/spec/template/spec/affinity", "null")],
    ),
    (
        CHART,
        r#"serviceMonitor={"enabled": true, "relabelings": [{"targetLabel": "job", "replacement": "karpenter"}]}"#,
        &[
            ("ServiceMonitor/plimsoll-watcher", "/spec/endpoints/0/honorLabels", "true"),
            ("ServiceMonitor/plimsoll-watcher", "/spec/endpoints/0/relabelings/0/targetLabel", r#""job""#),
        ],
    ),
    (
        CHART,
        r#"settings.karpenterNamespace="karpenter",settings.karpenterLeaseName="other""#,
        &[
            (
                "Deployment/plimsoll-actuator",
                "/spec/template/spec/containers/0/args/3",
                r#""--karpenter-lease=karpenter/other""#,
            ),
            ("Role/plimsoll-actuator-karpenter", "/rules/0/resourceNames", r#"["other"]"#),
        ],
    ),
    (
        CHART,
        "scheduler.openPort.enabled=true",
        &[("Deployment/plimsoll-scheduler", "/spec/template/spec/containers/0/lifecycle/preStop/sleep/seconds", "5")],
    ),
    (CHART, "flowSchemas.enabled=false", &[("FlowSchema/plimsoll", "", "null")]),
    (
        CHART,
        r#"admissionPolicy.enabled=true,serviceAccount.name="other""#,
        &[(
            "ValidatingAdmissionPolicy/plimsoll-reserved-metadata",
            "/spec/matchConditions/0/expression",
            r#""request.userInfo.username != 'system:serviceaccount:plimsoll-system:other'""#,
        )],
    ),
    (
        CRD_CHART,
        "",
        &[("CustomResourceDefinition/capacitybuffers.autoscaling.x-k8s.io", "/spec/names/kind", r#""CapacityBuffer""#)],
    ),
    (
        CRD_CHART,
        r#"exclude=["capacitybuffers.autoscaling.x-k8s.io"]"#,
        &[
            ("CustomResourceDefinition/capacitybuffers.autoscaling.x-k8s.io", "", "null"),
            ("CustomResourceDefinition/nodepools.karpenter.sh", "/spec/names/kind", r#""NodePool""#),
        ],
    ),
];

/// Renders the charts with the values of each case and returns the number of parts.
///
/// # Errors
/// If a part differs.
pub(super) fn check(root: &Path, helm: &Helm) -> Result<usize> {
    let mut count = 0;
    for (chart, values, parts) in CASES {
        let folder = root.join(chart);
        let required = Some(folder.join("ci/default.yaml")).filter(|path| path.is_file());
        let mut command = helm.render(&folder, required.as_deref());
        if !values.is_empty() {
            command.arg("--set-json").arg(values);
        }
        let rendered = String::from_utf8(tools::output(&mut command)?.stdout).context("helm's output is not UTF-8")?;
        let objects = objects(&rendered)?;
        for (object, pointer, expected) in parts {
            let is_named = |it: &&Value| name(it).as_deref() == Some(object);
            let found = objects.iter().find(is_named).and_then(|it| it.pointer(pointer)).unwrap_or(&Value::Null);
            let expected: Value = serde_json::from_str(expected).context("an expected value is not JSON")?;
            ensure!(*found == expected, "{values}: {object}, {pointer} is {found} instead of {expected}");
            count += 1;
        }
    }
    Ok(count)
}

/// Flags that may be repeated.
const REPEATABLE: [&str; 4] = ["--allow-caller", "--scheduler", "--actuator", "--secret-name"];

/// Checks that no service has a flag twice, for which it would end at its start.
///
/// # Errors
/// If one does.
pub(super) fn check_flags(rendered: &str) -> Result<()> {
    for object in objects(rendered)? {
        let containers = object.pointer("/spec/template/spec/containers").and_then(Value::as_array);
        for container in containers.into_iter().flatten() {
            let args = container["args"].as_array().into_iter().flatten().filter_map(Value::as_str);
            let mut seen = BTreeSet::new();
            for flag in args.map(|arg| arg.split_once('=').map_or(arg, |(flag, _)| flag)) {
                let is_new = seen.insert(flag);
                let is_allowed = is_new || REPEATABLE.contains(&flag);
                ensure!(is_allowed, "{} has {flag} twice", name(&object).unwrap_or_default());
            }
        }
    }
    Ok(())
}

fn objects(rendered: &str) -> Result<Vec<Value>> {
    let documents = rendered.split("\n---\n");
    documents.map(|text| serde_saphyr::from_str(text).map_err(|error| anyhow::anyhow!("{error}"))).collect()
}

/// Kind and name of an object.
fn name(object: &Value) -> Option<String> {
    Some(format!("{}/{}", object["kind"].as_str()?, object["metadata"]["name"].as_str()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flag_may_not_be_there_twice() {
        let rendered = |args: &str| {
            format!(
                "# Source: watcher.yaml\nkind: Deployment\nmetadata: {{name: a}}\n\
                 spec: {{template: {{spec: {{containers: [{{args: [{args}]}}]}}}}}}\n"
            )
        };
        assert!(check_flags(&rendered("--name=a, --name-space=a, --allow-caller=a, --allow-caller=b")).is_ok());
        let error = check_flags(&rendered("--name=a, --listen=b, --name=c")).unwrap_err();
        assert_eq!(error.to_string(), "Deployment/a has --name twice");
    }
}
