//! Amazon Linux 2: a shell script that calls the image's bootstrap script, after the user's parts.

use super::mime::{self, MimePart};
use super::{Bootstrap, UserDataError, flags};

pub(super) fn render(bootstrap: &Bootstrap<'_>) -> Result<String, UserDataError> {
    let mut parts = match bootstrap.user_data {
        None => Vec::new(),
        Some(text) if text.trim().is_empty() => Vec::new(),
        Some(text) if mime::is_mime(text) => mime::parse(text).map_err(UserDataError::Invalid)?,
        Some(text) => vec![MimePart::script(text)],
    };
    parts.push(MimePart::script(&script(bootstrap)));
    Ok(mime::render(&parts))
}

fn script(bootstrap: &Bootstrap<'_>) -> String {
    let mut arguments = vec![quoted(bootstrap.cluster_name)];
    let mut argument = |name: &str, value: &str| arguments.push(format!("--{name} {value}"));
    argument("apiserver-endpoint", &quoted(bootstrap.cluster_endpoint));
    if !bootstrap.cluster_ca_bundle.is_empty() {
        argument("b64-cluster-ca", &quoted(bootstrap.cluster_ca_bundle));
    }
    if bootstrap.is_ipv6() {
        argument("ip-family", "ipv6");
    }
    match (bootstrap.dns().first(), bootstrap.service_cidr) {
        (Some(dns), _) => argument("dns-cluster-ip", &quoted(dns)),
        // The script fails for IPv6 without either. It derives the DNS address.
        (None, Some(cidr)) if bootstrap.is_ipv6() => argument("service-ipv6-cidr", &quoted(cidr)),
        (None, _) => {}
    }
    argument("use-max-pods", "false");
    argument("kubelet-extra-args", &quoted(&flags::kubelet(bootstrap)));
    if bootstrap.raid0 {
        argument("local-disks", "raid0");
    }
    format!(
        "#!/bin/bash -xe\n\
         exec > >(tee /var/log/user-data.log|logger -t user-data -s 2>/dev/console) 2>&1\n\
         /etc/eks/bootstrap.sh {}\n",
        arguments.join(" \\\n  ")
    )
}

/// Quotes text as a single shell word.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}
