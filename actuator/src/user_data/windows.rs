//! Windows: a single PowerShell block that starts with the user's text.

use super::{Bootstrap, flags};

pub(super) fn render(bootstrap: &Bootstrap<'_>) -> String {
    let mut text = String::from("<powershell>\n");
    if let Some(script) = bootstrap.user_data.filter(|script| !script.trim().is_empty()) {
        text.push_str(script);
        if !script.ends_with('\n') {
            text.push('\n');
        }
    }
    text.push_str("[string]$EKSBootstrapScriptFile = \"$env:ProgramFiles\\Amazon\\EKS\\Start-EKSBootstrap.ps1\"\n");
    let mut arguments = vec![
        format!("-EKSClusterName {}", quoted(bootstrap.cluster_name)),
        format!("-APIServerEndpoint {}", quoted(bootstrap.cluster_endpoint)),
    ];
    if !bootstrap.cluster_ca_bundle.is_empty() {
        arguments.push(format!("-Base64ClusterCA {}", quoted(bootstrap.cluster_ca_bundle)));
    }
    arguments.push(format!("-KubeletExtraArgs {}", quoted(&flags::kubelet(bootstrap))));
    if let Some(dns) = bootstrap.dns().first() {
        arguments.push(format!("-DNSClusterIP {}", quoted(dns)));
    }
    text.push_str(&format!("& $EKSBootstrapScriptFile {}\n</powershell>", arguments.join(" ")));
    text
}

/// Quotes text as a PowerShell string literal.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}
