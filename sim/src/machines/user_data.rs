//! Parses user data as the first programs of a node do: nodeadm of Amazon Linux 2023, the bootstrap script of Amazon
//! Linux 2, and Bottlerocket.
//!
//! Written from their documentation, not from the code that generates user data.

use plimsoll_api::AmiFamily;
use plimsoll_model::quantity::Quantity;
use plimsoll_model::resources::Resources;
use regex::Regex;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Node settings from user data.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct UserData {
    pub(super) family: AmiFamily,
    pub(super) cluster: String,
    pub(super) labels: BTreeMap<String, String>,
    /// Objects with `key`, `value`, `effect`.
    pub(super) taints: Vec<Value>,
    pub(super) max_pods: Option<i64>,
    pub(super) kube_reserved: Resources,
    pub(super) system_reserved: Resources,
}

impl UserData {
    fn new(family: AmiFamily) -> Self {
        Self {
            family,
            cluster: String::new(),
            labels: BTreeMap::new(),
            taints: Vec::new(),
            max_pods: None,
            kube_reserved: Resources::new(),
            system_reserved: Resources::new(),
        }
    }

    /// Parses user data. The AMI family is detected from the content.
    pub(super) fn read(text: &str) -> Result<Self, String> {
        if text.contains("application/node.eks.aws") {
            Self::nodeadm(text)
        } else if text.contains("/etc/eks/bootstrap.sh") {
            Self::bootstrap(text)
        } else if text.contains("settings.kubernetes") {
            Self::bottlerocket(text)
        } else {
            Err("nothing in the user data makes a node of the machine".to_owned())
        }
    }

    fn nodeadm(text: &str) -> Result<Self, String> {
        let mut data = Self::new(AmiFamily::AL2023);
        for part in parts(text).filter(|(kind, _)| *kind == "application/node.eks.aws").map(|(_, body)| body) {
            let config: Value = serde_saphyr::from_str(part).map_err(|error| format!("NodeConfig: {error}"))?;
            let spec = &config["spec"];
            if let Some(name) = spec["cluster"]["name"].as_str() {
                for field in ["apiServerEndpoint", "certificateAuthority", "cidr"] {
                    if spec["cluster"][field].as_str().is_none_or(str::is_empty) {
                        return Err(format!("NodeConfig: spec.cluster.{field} is missing"));
                    }
                }
                name.clone_into(&mut data.cluster);
            }
            let kubelet = &spec["kubelet"]["config"];
            data.max_pods = kubelet["maxPods"].as_i64().or(data.max_pods);
            if let Some(taints) = kubelet["registerWithTaints"].as_array() {
                data.taints.clone_from(taints);
            }
            for (field, amounts) in
                [("kubeReserved", &mut data.kube_reserved), ("systemReserved", &mut data.system_reserved)]
            {
                if kubelet[field].is_object() {
                    *amounts = resources(&kubelet[field]);
                }
            }
            for flag in spec["kubelet"]["flags"].as_array().into_iter().flatten().filter_map(Value::as_str) {
                data.flags(flag)?;
            }
        }
        Ok(data)
    }

    fn bootstrap(text: &str) -> Result<Self, String> {
        let mut data = Self::new(AmiFamily::AL2);
        let name =
            Regex::new(r#"/etc/eks/bootstrap\.sh\s+['"]?([A-Za-z0-9_-]+)"#).map_err(|error| error.to_string())?;
        if let Some(found) = name.captures(text) {
            found[1].clone_into(&mut data.cluster);
        }
        data.flags(text)?;
        Ok(data)
    }

    fn bottlerocket(text: &str) -> Result<Self, String> {
        let mut data = Self::new(AmiFamily::Bottlerocket);
        let table: toml::Table = text.parse().map_err(|error: toml::de::Error| error.message().to_owned())?;
        let settings = serde_json::to_value(&table).map_err(|error| error.to_string())?;
        let settings = &settings["settings"]["kubernetes"];
        settings["cluster-name"].as_str().unwrap_or_default().clone_into(&mut data.cluster);
        data.max_pods = settings["max-pods"].as_i64();
        data.kube_reserved = resources(&settings["kube-reserved"]);
        data.system_reserved = resources(&settings["system-reserved"]);
        for (key, value) in settings["node-labels"].as_object().into_iter().flatten() {
            data.labels.insert(key.clone(), value.as_str().unwrap_or_default().to_owned());
        }
        for (key, values) in settings["node-taints"].as_object().into_iter().flatten() {
            for text in values.as_array().into_iter().flatten().filter_map(Value::as_str) {
                let (value, effect) = text.split_once(':').ok_or_else(|| format!("taint {text:?} has no effect"))?;
                data.taints.push(json!({"key": key, "value": value, "effect": effect}));
            }
        }
        Ok(data)
    }

    /// Parses the kubelet flags that matter in the simulation.
    fn flags(&mut self, text: &str) -> Result<(), String> {
        for pair in items_of("node-labels", text) {
            let (key, value) = pair.split_once('=').ok_or_else(|| format!("label {pair:?} has no value"))?;
            if is_reserved(key) {
                return Err(format!("a kubelet may not set the label {key} of its own Node"));
            }
            self.labels.insert(key.to_owned(), value.to_owned());
        }
        for taint in items_of("register-with-taints", text) {
            let (pair, effect) = taint.rsplit_once(':').ok_or_else(|| format!("taint {taint:?} has no effect"))?;
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            self.taints.push(json!({"key": key, "value": value, "effect": effect}));
        }
        if let Some(most) = value_of("max-pods", text) {
            self.max_pods = most.parse().ok();
        }
        Ok(())
    }
}

/// Value of a kubelet flag in a command line, if it is there. It ends at a space or a quote.
fn value_of<'t>(flag: &str, text: &'t str) -> Option<&'t str> {
    let mark = format!("--{flag}");
    let rest = text.match_indices(&mark).find_map(|(at, _)| text.get(at + mark.len()..)?.strip_prefix(['=', ' ']))?;
    let value = rest.strip_prefix('"').unwrap_or(rest);
    value.split(|letter: char| ['"', '\''].contains(&letter) || letter.is_whitespace()).next()
}

/// Items of a kubelet flag whose value is a list.
fn items_of<'t>(flag: &str, text: &'t str) -> impl Iterator<Item = &'t str> {
    value_of(flag, text).unwrap_or_default().split(',').filter(|item| !item.is_empty())
}

/// Whether the kubelet refuses to start with this label.
fn is_reserved(key: &str) -> bool {
    let domain = key.split_once('/').map_or("", |(domain, _)| domain);
    let within = |parent: &str| domain == parent || domain.ends_with(&format!(".{parent}"));
    let allowed = ["kubelet.kubernetes.io", "node.kubernetes.io"].iter().any(|parent| within(parent));
    (within("kubernetes.io") || within("k8s.io"))
        && !allowed
        && ![
            "kubernetes.io/arch",
            "kubernetes.io/os",
            "kubernetes.io/hostname",
            "topology.kubernetes.io/zone",
            "topology.kubernetes.io/region",
        ]
        .contains(&key)
}

/// Content type and body of each part of a MIME multipart text.
fn parts(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let boundary = text.split("boundary=").nth(1).and_then(|rest| rest.lines().next()).unwrap_or_default();
    let mark = format!("\n--{}", boundary.trim().trim_matches('"'));
    let pieces: Vec<&str> = if boundary.is_empty() { vec![text] } else { text.split(&*mark).skip(1).collect() };
    pieces.into_iter().filter_map(|piece| {
        let (head, body) = piece.split_once("\n\n").or_else(|| piece.split_once("\r\n\r\n"))?;
        let kind = head.lines().find_map(|line| line.strip_prefix("Content-Type:"))?;
        Some((kind.split(';').next().unwrap_or_default().trim(), body))
    })
}

fn resources(amounts: &Value) -> Resources {
    let pairs = amounts.as_object().into_iter().flatten();
    let amount = |name: &str, value: &Value| Quantity::parse(value.as_str()?).ok()?.amount_of(name);
    pairs.filter_map(|(name, value)| Some((name.as_str(), amount(name, value)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::UserData;
    use serde_json::json;

    const NODE_CONFIG: &str = "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"//\"\n\n--//\nContent-Type: application/node.eks.aws\n\n\
        apiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\nspec:\n  cluster:\n    name: demo\n    apiServerEndpoint: https://demo.test\n    \
        certificateAuthority: Y2E=\n    cidr: 10.100.0.0/16\n  kubelet:\n    config:\n      maxPods: 29\n      registerWithTaints:\n      - effect: NoExecute\n        \
        key: karpenter.sh/unregistered\n    flags:\n    - --node-labels=\"a=b,karpenter.sh/nodepool=c\"\n--//--\n";

    #[test]
    fn nodeadm() {
        let data = UserData::read(NODE_CONFIG).unwrap();
        assert_eq!((data.cluster.as_str(), data.max_pods), ("demo", Some(29)));
        assert_eq!(
            data.labels.into_iter().collect::<Vec<_>>(),
            [("a".into(), "b".into()), ("karpenter.sh/nodepool".into(), "c".into())]
        );
        assert_eq!(data.taints, [json!({"key": "karpenter.sh/unregistered", "effect": "NoExecute"})]);
    }

    #[test]
    fn a_node_config_without_an_endpoint_or_with_a_forbidden_label_makes_no_node() {
        let without = NODE_CONFIG.replace("https://demo.test", "''");
        assert!(UserData::read(&without).unwrap_err().contains("apiServerEndpoint"));
        let forbidden = NODE_CONFIG.replace("a=b", "node-role.kubernetes.io/x=y");
        assert!(UserData::read(&forbidden).unwrap_err().contains("node-role.kubernetes.io/x"));
    }

    #[test]
    fn the_bootstrap_script() {
        let text = "#!/bin/bash -xe\n/etc/eks/bootstrap.sh 'demo' --apiserver-endpoint 'x' --kubelet-extra-args '--node-labels=\"a=b\" \
                    --register-with-taints=\"karpenter.sh/unregistered:NoExecute,k=v:NoSchedule\" --max-pods=17'";
        let data = UserData::read(text).unwrap();
        assert_eq!((data.cluster.as_str(), data.max_pods, data.labels["a"].as_str()), ("demo", Some(17), "b"));
        let expected = [
            json!({"key": "karpenter.sh/unregistered", "value": "", "effect": "NoExecute"}),
            json!({"key": "k", "value": "v", "effect": "NoSchedule"}),
        ];
        assert_eq!(data.taints, expected);
    }

    #[test]
    fn bottlerocket() {
        let text = "[settings.kubernetes]\ncluster-name = 'demo'\nmax-pods = 8\n[settings.kubernetes.node-labels]\na = 'b'\n\
                    [settings.kubernetes.node-taints]\n'karpenter.sh/unregistered' = [':NoExecute']\n";
        let data = UserData::read(text).unwrap();
        assert_eq!((data.cluster.as_str(), data.max_pods, data.labels["a"].as_str()), ("demo", Some(8), "b"));
        assert_eq!(data.taints, [json!({"key": "karpenter.sh/unregistered", "value": "", "effect": "NoExecute"})]);
    }
}
