//! Values that the chart must reject, with the path in the error message.

use super::helm::Helm;
use anyhow::{Context as _, Result, ensure};
use std::path::Path;

/// Path of the value for `helm --set-json`, the value as JSON, and the path in the error message.
type Bad = (&'static str, &'static str, &'static str);

const BAD: [Bad; 50] = [
    ("settings.clusterName", r#""""#, "/settings/clusterName"),
    ("settings.clusterName", r#""-prod""#, "/settings/clusterName"),
    ("settings.clusterName", "null", "/settings"),
    ("settings.clusterEndpoint", r#""prod.eks.amazonaws.com""#, "/settings/clusterEndpoint"),
    ("settings.clusterEndpoint", r#""http://example.com""#, "/settings/clusterEndpoint"),
    ("settings.region", r#""us-east-1a""#, "/settings/region"),
    ("settings.interruptionQueue", r#""https://sqs.us-east-1.amazonaws.com/1/prod""#, "/settings/interruptionQueue"),
    ("settings.clusterCABundle", r#""-----BEGIN CERTIFICATE-----""#, "/settings/clusterCABundle"),
    ("settings.clusterDNS", r#""kube-dns""#, "/settings/clusterDNS"),
    ("settings.serviceCIDR", r#""10.100.0.0""#, "/settings/serviceCIDR"),
    ("settings.ipFamily", r#""ipv6""#, "/settings/ipFamily"),
    ("settings.vmMemoryOverheadPercent", "1", "/settings/vmMemoryOverheadPercent"),
    ("settings.vmMemoryOverheadPercent", "-0.1", "/settings/vmMemoryOverheadPercent"),
    ("settings.reservedENIs", r#""1""#, "/settings/reservedENIs"),
    ("settings.preferencePolicy", r#""respect""#, "/settings/preferencePolicy"),
    ("settings.minValuesPolicy", r#""Ignore""#, "/settings/minValuesPolicy"),
    ("settings.maxSharePerNode", "0", "/settings/maxSharePerNode"),
    ("settings.minSavingPerEviction", "-0.001", "/settings/minSavingPerEviction"),
    ("watcher.recording.mebibytes", "7", "/watcher/recording/mebibytes"),
    ("watcher.recording.volume", r#"{"emptyDir": {}, "hostPath": {}}"#, "/watcher/recording/volume"),
    ("settings.clustername", r#""prod""#, "additional properties 'clustername' not allowed"),
    ("controller", "{}", "additional properties 'controller' not allowed"),
    ("logLevel", r#""info debug""#, "/logLevel"),
    ("actuator.logLevel", r#""warning""#, "/actuator/logLevel"),
    ("logFormat", r#""JSON""#, "/logFormat"),
    ("image.registry", r#""registry.example.com/""#, "/image/registry"),
    ("watcher.image.digest", r#""sha256:1""#, "/watcher/image/digest"),
    ("additionalLabels", r#"{"app.kubernetes.io/name": "x"}"#, "invalid propertyName 'app.kubernetes.io/name'"),
    ("serviceAccount.name", r#""Actuator""#, "/serviceAccount/name"),
    (
        "serviceAccount.annotations",
        r#"{"eks.amazonaws.com/role-arn": "plimsoll"}"#,
        "/serviceAccount/annotations/eks.amazonaws.com~1role-arn",
    ),
    ("replicas", "-1", "/replicas"),
    ("actuator.replicas", r#""2""#, "/actuator/replicas"),
    ("podDisruptionBudget.minAvailable", r#""half""#, "/podDisruptionBudget/minAvailable"),
    ("tolerations", r#"[{"key": "a", "effect": "NoRun"}]"#, "/tolerations/0/effect"),
    ("topologySpreadConstraints", r#"[{"topologyKey": "a", "maxSkew": 1}]"#, "/topologySpreadConstraints/0"),
    ("scheduler.resources.requests", r#"{"cpu": "half"}"#, "/scheduler/resources/requests/cpu"),
    ("scheduler.workers", "0", "/scheduler/workers"),
    ("watcher.extraArgs", r#"["-v"]"#, "/watcher/extraArgs/0"),
    ("watcher.allowCallers", r#"["*"]"#, "/watcher/allowCallers/0"),
    ("certificates.mode", r#""none""#, "/certificates/mode"),
    ("certificates.certManager.duration", r#""30d""#, "/certificates/certManager/duration"),
    ("certificates.selfSigned.schedule", r#""daily""#, "/certificates/selfSigned/schedule"),
    ("certificates.selfSigned.days", "30", "certificates.selfSigned.renewBeforeDays must be less than"),
    ("networkPolicies.podIdentityCIDRs", r#"["fd00:ec2::23"]"#, "/networkPolicies/podIdentityCIDRs/0"),
    ("networkPolicies.apiPorts", "[]", "/networkPolicies/apiPorts"),
    ("serviceMonitor.interval", r#""30""#, "/serviceMonitor/interval"),
    ("serviceMonitor.relabelings", r#"[{"target": "job"}]"#, "/serviceMonitor/relabelings/0"),
    ("flowSchemas.enabled", r#""yes""#, "/flowSchemas/enabled"),
    ("admissionPolicy.enabled", "1", "/admissionPolicy/enabled"),
    ("terminationGracePeriodSeconds", "24", "/terminationGracePeriodSeconds"),
];

/// Renders the chart with each bad value and returns their number.
///
/// # Errors
/// If a value is accepted, or rejected without its path.
pub(super) fn check(chart: &Path, helm: &Helm) -> Result<usize> {
    let values = chart.join("ci/default.yaml");
    for (path, value, told) in BAD {
        let output = helm
            .render(chart, Some(&values))
            .arg("--set-json")
            .arg(format!("{path}={value}"))
            .output()
            .context("starting helm")?;
        ensure!(!output.status.success(), "the chart accepts {path}: {value}");
        let error = String::from_utf8_lossy(&output.stderr);
        ensure!(error.contains(told), "{path}: {value} is rejected without {told}: {error}");
    }
    Ok(BAD.len())
}
