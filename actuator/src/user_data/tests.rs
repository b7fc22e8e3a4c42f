use super::*;
use serde_json::{Value, json};

fn bootstrap(user_data: Option<&str>) -> Bootstrap<'_> {
    let labels = [
        ("karpenter.sh/nodepool", "general"),
        ("karpenter.sh/capacity-type", "spot"),
        // A kubelet may not set either of these on its own Node.
        ("topology.kubernetes.io/zone", "a"),
        ("team.node-restriction.kubernetes.io/x", "y"),
    ];
    let taint = |key: &str, value: &str, effect| Taint { key: key.to_owned(), value: value.to_owned(), effect };
    Bootstrap {
        cluster_name: "demo",
        cluster_endpoint: "https://api.test",
        cluster_ca_bundle: "Y2E=",
        service_cidr: Some("10.100.0.0/16"),
        cluster_dns: Some("10.100.0.10"),
        labels: labels.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
        taints: vec![
            taint("dedicated", "gpu", TaintEffect::NoSchedule),
            // A duplicate key and effect.
            taint("dedicated", "other", TaintEffect::NoSchedule),
        ],
        kubelet: KubeletConfiguration::default(),
        max_pods: 29,
        user_data,
        raid0: false,
        bottlerocket_version: None,
    }
}

fn kubelet(settings: Value) -> KubeletConfiguration {
    serde_json::from_value(settings).unwrap()
}

fn text(bootstrap: &Bootstrap<'_>, family: AmiFamily) -> String {
    bootstrap.render(family).unwrap().text
}

/// The last NodeConfig in the document.
fn node_config(text: &str) -> Value {
    let part = mime::parse(text).unwrap().pop().unwrap();
    assert_eq!(part.header, ["Content-Type: application/node.eks.aws"]);
    serde_saphyr::from_str(&part.body).unwrap()
}

const LABELS: &str =
    "karpenter.sh/capacity-type=spot,karpenter.sh/do-not-sync-taints=true,karpenter.sh/nodepool=general";

#[test]
fn amazon_linux_2023_gets_a_node_config() {
    let text = text(&bootstrap(None), AmiFamily::AL2023);
    assert!(text.starts_with("MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"//\"\n\n--//\n"), "{text}");
    let expected = json!({
        "apiVersion": "node.eks.aws/v1alpha1",
        "kind": "NodeConfig",
        "spec": {
            "cluster": {
                "name": "demo", "apiServerEndpoint": "https://api.test", "certificateAuthority": "Y2E=",
                "cidr": "10.100.0.0/16",
            },
            "kubelet": {
                "config": {
                    "maxPods": 29,
                    "clusterDNS": ["10.100.0.10"],
                    "registerWithTaints": [
                        {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"},
                        {"key": "karpenter.sh/unregistered", "effect": "NoExecute"},
                    ],
                },
                "flags": [format!("--node-labels=\"{LABELS}\"")],
            },
        },
    });
    assert_eq!(node_config(&text), expected);
}

#[test]
fn user_kubelet_settings_pass_verbatim_except_taints() {
    let settings = json!({
        "maxPods": 50, "clusterDNS": ["10.0.0.9"], "evictionHard": {"memory.available": "5%"},
        "kubeReserved": {"cpu": "100m"}, "serializeImagePulls": false, "registerWithTaints": [{"key": "mine"}],
    });
    let bootstrap = Bootstrap { kubelet: kubelet(settings), raid0: true, ..bootstrap(None) };
    let spec = node_config(&text(&bootstrap, AmiFamily::AL2023))["spec"].clone();
    let config = &spec["kubelet"]["config"];
    assert_eq!(config["maxPods"], 50);
    assert_eq!(config["clusterDNS"], json!(["10.0.0.9"]));
    assert_eq!(config["evictionHard"], json!({"memory.available": "5%"}));
    assert_eq!(config["kubeReserved"], json!({"cpu": "100m"}));
    assert_eq!(config["serializeImagePulls"], false);
    assert_eq!(config["registerWithTaints"][0]["key"], "dedicated");
    assert_eq!(spec["instance"], json!({"localStorage": {"strategy": "RAID0"}}));
}

#[test]
fn user_parts_precede_ours() {
    let types = |own: &str| {
        let parts = mime::parse(&text(&bootstrap(Some(own)), AmiFamily::AL2023)).unwrap();
        parts.into_iter().map(|part| part.header[0].replace("Content-Type: ", "")).collect::<Vec<_>>()
    };
    let ours = "application/node.eks.aws";
    assert_eq!(types("#!/bin/sh\necho hi"), [mime::SHELL_SCRIPT, ours]);
    assert_eq!(types("apiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\n"), [ours, ours]);
    assert_eq!(types(r#"{"kind": "NodeConfig"}"#), [ours, ours]);
    assert_eq!(types("# ours\n---\nkind: NodeConfig\n---\nkind: NodeConfig\n"), [ours, ours]);
    assert_eq!(types("--- {kind: NodeConfig}\n"), [ours, ours]);
    assert_eq!(types("# nothing\n"), [mime::SHELL_SCRIPT, ours], "nodeadm fails on a configuration without a kind");
    let own = "Content-Type: multipart/mixed; boundary=B\n\n--B\nContent-Type: text/cloud-config\n\na: 1\n--B--\n";
    assert_eq!(types(own), ["text/cloud-config", ours]);
    assert_eq!(types("  \n"), [ours], "nothing is nothing");
}

#[test]
fn unknown_service_cidr_and_oversized_user_data_are_rejected() {
    let unknown = Bootstrap { service_cidr: None, ..bootstrap(None) };
    assert_eq!(unknown.render(AmiFamily::AL2023), Err(UserDataError::ServiceCidrUnknown(AmiFamily::AL2023)));
    assert!(unknown.render(AmiFamily::AL2).is_ok());
    let long = "x".repeat(BYTES_MAX + 1);
    let error = bootstrap(Some(&long)).render(AmiFamily::Custom).unwrap_err();
    assert_eq!(error, UserDataError::TooLarge { bytes: BYTES_MAX + 1, own: BYTES_MAX + 1 });
}

#[test]
fn amazon_linux_2_runs_the_bootstrap_script() {
    let settings = json!({"evictionHard": {"memory.available": "5%"}, "podsPerCore": 4, "cpuCFSQuota": false});
    let bootstrap = Bootstrap { kubelet: kubelet(settings), raid0: true, ..bootstrap(None) };
    let expected = format!(
        "#!/bin/bash -xe\n\
         exec > >(tee /var/log/user-data.log|logger -t user-data -s 2>/dev/console) 2>&1\n\
         /etc/eks/bootstrap.sh 'demo' \\\n  --apiserver-endpoint 'https://api.test' \\\n  --b64-cluster-ca 'Y2E=' \\\n  \
         --dns-cluster-ip '10.100.0.10' \\\n  --use-max-pods false \\\n  \
         --kubelet-extra-args '--node-labels=\"{LABELS}\" \
         --register-with-taints=\"dedicated=gpu:NoSchedule,karpenter.sh/unregistered:NoExecute\" --max-pods=29 \
         --pods-per-core=4 --eviction-hard=\"memory.available<5%\" --cpu-cfs-quota=false' \\\n  --local-disks raid0\n"
    );
    let parts = mime::parse(&text(&bootstrap, AmiFamily::AL2)).unwrap();
    assert_eq!(parts.last().unwrap().body, expected);
}

#[test]
fn without_a_dns_address_the_service_cidr_decides_the_ip_family() {
    let ipv4 = Bootstrap { cluster_dns: None, ..bootstrap(None) };
    assert!(!text(&ipv4, AmiFamily::AL2).contains("--ip-family"));
    let ipv6 = Bootstrap { service_cidr: Some("fd30::/108"), ..ipv4 };
    let script = text(&ipv6, AmiFamily::AL2);
    assert!(script.contains("--ip-family ipv6 \\\n  --service-ipv6-cidr 'fd30::/108' \\\n"), "{script}");
    // A DNS cache on the node has an IPv4 address.
    let cached = Bootstrap { kubelet: kubelet(json!({"clusterDNS": ["169.254.20.10"]})), ..ipv6 };
    let script = text(&cached, AmiFamily::AL2);
    assert!(script.contains("--ip-family ipv6 \\\n  --dns-cluster-ip '169.254.20.10' \\\n"), "{script}");
}

#[test]
fn quotes_in_values_are_escaped() {
    let bootstrap = Bootstrap { cluster_name: "it's", ..bootstrap(None) };
    assert!(text(&bootstrap, AmiFamily::AL2).contains("bootstrap.sh 'it'\\''s' "));
    assert!(text(&bootstrap, AmiFamily::Windows2022).contains("-EKSClusterName 'it''s' "));
}

#[test]
fn windows_renders_one_block_with_the_user_text_first() {
    let own = bootstrap(Some("Write-Host hi"));
    let expected = format!(
        "<powershell>\nWrite-Host hi\n\
         [string]$EKSBootstrapScriptFile = \"$env:ProgramFiles\\Amazon\\EKS\\Start-EKSBootstrap.ps1\"\n\
         & $EKSBootstrapScriptFile -EKSClusterName 'demo' -APIServerEndpoint 'https://api.test' -Base64ClusterCA 'Y2E=' \
         -KubeletExtraArgs '--node-labels=\"{LABELS}\" \
         --register-with-taints=\"dedicated=gpu:NoSchedule,karpenter.sh/unregistered:NoExecute\" --max-pods=29' \
         -DNSClusterIP '10.100.0.10'\n</powershell>"
    );
    assert_eq!(text(&own, AmiFamily::Windows2022), expected);
}

#[test]
fn custom_family_passes_user_data_unchanged() {
    assert_eq!(text(&bootstrap(Some("anything\r\n")), AmiFamily::Custom), "anything\r\n");
    assert_eq!(text(&bootstrap(None), AmiFamily::Custom), "");
}

fn bottlerocket(bootstrap: &Bootstrap<'_>) -> (toml::Table, Vec<String>) {
    let rendered = bootstrap.render(AmiFamily::Bottlerocket).unwrap();
    (rendered.text.parse().unwrap(), rendered.ignored)
}

#[test]
fn bottlerocket_keeps_user_settings_except_required_ones() {
    let own = "[settings.host-containers.admin]\nenabled = true\n\
               [settings.kubernetes]\nmax-pods = 3\nlog-level = 4\nno-such-key = 1\n\
               [settings.kubernetes.node-labels]\n\"mine\" = \"1\"\n\"karpenter.sh/nodepool\" = \"stolen\"\n\
               [settings.kubernetes.node-taints]\n\"mine\" = [\":NoSchedule\"]\n";
    let settings = json!({"imageGCHighThresholdPercent": 80, "systemReserved": {"memory": "1Gi"}});
    let (document, ignored) = bottlerocket(&Bootstrap { kubelet: kubelet(settings), ..bootstrap(Some(own)) });
    assert_eq!(ignored, ["settings.kubernetes.no-such-key"]);
    let expected: toml::Table = "[settings.host-containers.admin]\nenabled = true\n\
        [settings.kubernetes]\napi-server = \"https://api.test\"\ncluster-certificate = \"Y2E=\"\ncluster-name = \"demo\"\n\
        max-pods = 29\nlog-level = 4\ncluster-dns-ip = \"10.100.0.10\"\nimage-gc-high-threshold-percent = \"80\"\n\
        system-reserved = { memory = \"1Gi\" }\n\
        [settings.kubernetes.node-labels]\n\"mine\" = \"1\"\n\"karpenter.sh/nodepool\" = \"general\"\n\
        \"karpenter.sh/capacity-type\" = \"spot\"\n\"karpenter.sh/do-not-sync-taints\" = \"true\"\n\
        [settings.kubernetes.node-taints]\n\"dedicated\" = [\"gpu:NoSchedule\"]\n\
        \"karpenter.sh/unregistered\" = [\":NoExecute\"]\n"
        .parse()
        .unwrap();
    assert_eq!(document, expected);
}

#[test]
fn bottlerocket_mounts_instance_disks_depending_on_its_version() {
    let bind = |version: Option<&str>| {
        let bootstrap = Bootstrap { raid0: true, bottlerocket_version: version.map(str::to_owned), ..bootstrap(None) };
        let (document, _) = bottlerocket(&bootstrap);
        let command = &document["settings"]["bootstrap-commands"]["000-mount-instance-storage"];
        assert_eq!(command["mode"].as_str(), Some("always"));
        assert_eq!(command["essential"].as_bool(), Some(true));
        command["commands"][1].as_array().unwrap().len()
    };
    assert_eq!(bind(Some("latest")), 3);
    assert_eq!(bind(Some("v1.46.0")), 3);
    assert_eq!(bind(Some("2.0.0")), 3);
    assert_eq!(bind(Some("1.45.0")), 7, "with the directories");
    assert_eq!(bind(Some("1.46")), 7, "not a full version");
    assert_eq!(bind(None), 7);
}

#[test]
fn invalid_toml_is_rejected_with_its_field() {
    let error = bootstrap(Some("#!/bin/sh\necho")).render(AmiFamily::Bottlerocket).unwrap_err();
    assert!(error.to_string().starts_with("spec.userData: not TOML: "), "{error}");
    let error = bootstrap(Some("settings = 1")).render(AmiFamily::Bottlerocket).unwrap_err();
    assert_eq!(error.to_string(), "spec.userData: settings is not a table");
}
