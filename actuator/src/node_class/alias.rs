//! AMI aliases: the SSM parameters in which AWS publishes the images of each family.

use crate::cluster_facts::version_number;
use plimsoll_api::ec2_node_class::AmiAlias;
use plimsoll_api::{AmiFamily, Operator, Requirement};
use plimsoll_model::names::label;

pub(super) const GPU_COUNT: &str = "karpenter.k8s.aws/instance-gpu-count";
pub(super) const ACCELERATOR_COUNT: &str = "karpenter.k8s.aws/instance-accelerator-count";
/// The first minor version without Amazon Linux 2 images.
const AL2_ENDS: (u32, u32) = (1, 33);
/// The first minor version with Windows Server 2025 images.
const WINDOWS_2025_BEGINS: (u32, u32) = (1, 35);

/// An SSM parameter that holds an image id, and the alternative requirements of the instance types it is meant for.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Parameter {
    pub(super) path: String,
    pub(super) needs: Vec<Vec<Requirement>>,
}

/// The kind of machine that an image is built for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Variant {
    Standard,
    Nvidia,
    Neuron,
}

impl Variant {
    fn needs(self) -> Vec<Requirement> {
        let none: [&str; 0] = [];
        match self {
            Self::Standard => vec![
                Requirement::new(GPU_COUNT, Operator::DoesNotExist, none),
                Requirement::new(ACCELERATOR_COUNT, Operator::DoesNotExist, none),
            ],
            Self::Nvidia => vec![Requirement::new(GPU_COUNT, Operator::Exists, none)],
            Self::Neuron => vec![Requirement::new(ACCELERATOR_COUNT, Operator::Exists, none)],
        }
    }
}

/// The parameters of an alias for a Kubernetes version such as `1.36`. The error says why the version has none.
pub(super) fn parameters(alias: &AmiAlias, kubernetes: &str) -> Result<Vec<Parameter>, String> {
    let minor = version_number(kubernetes);
    let parameters = match alias.family {
        AmiFamily::AL2 if minor.is_some_and(|minor| minor >= AL2_ENDS) => {
            return Err(format!("there are no images of AL2 for Kubernetes {kubernetes}, the last were for 1.32"));
        }
        AmiFamily::Windows2025 if minor.is_some_and(|minor| minor < WINDOWS_2025_BEGINS) => {
            return Err(format!(
                "there are no images of Windows2025 for Kubernetes {kubernetes}, the first are for 1.35"
            ));
        }
        AmiFamily::AL2 => al2(&alias.version, kubernetes),
        AmiFamily::AL2023 => al2023(&alias.version, kubernetes),
        AmiFamily::Bottlerocket => bottlerocket(&alias.version, kubernetes),
        AmiFamily::Windows2019 => windows("2019", "10.0.17763", kubernetes),
        AmiFamily::Windows2022 => windows("2022", "10.0.20348", kubernetes),
        AmiFamily::Windows2025 => windows("2025", "10.0.26100", kubernetes),
        AmiFamily::Custom => Vec::new(),
    };
    Ok(parameters)
}

fn parameter(path: String, variants: &[Variant]) -> Parameter {
    Parameter { path, needs: variants.iter().map(|variant| variant.needs()).collect() }
}

fn al2(version: &str, kubernetes: &str) -> Vec<Parameter> {
    let kinds: [(&str, &str, &[Variant]); 3] = [
        ("amazon-linux-2", "amazon-eks-node", &[Variant::Standard]),
        ("amazon-linux-2-arm64", "amazon-eks-arm64-node", &[Variant::Standard]),
        ("amazon-linux-2-gpu", "amazon-eks-gpu-node", &[Variant::Neuron, Variant::Nvidia]),
    ];
    let path = |(folder, prefix, variants): (&str, &str, &[Variant])| {
        let name = match version {
            "latest" => "recommended".to_owned(),
            version => format!("{prefix}-{kubernetes}-{version}"),
        };
        parameter(format!("/aws/service/eks/optimized-ami/{kubernetes}/{folder}/{name}/image_id"), variants)
    };
    kinds.into_iter().map(path).collect()
}

fn al2023(version: &str, kubernetes: &str) -> Vec<Parameter> {
    let kinds = [
        ("x86_64", "standard", Variant::Standard),
        ("x86_64", "nvidia", Variant::Nvidia),
        ("x86_64", "neuron", Variant::Neuron),
        ("arm64", "standard", Variant::Standard),
        ("arm64", "nvidia", Variant::Nvidia),
    ];
    let path = |(architecture, word, variant): (&str, &str, Variant)| {
        let name = match version {
            "latest" => "recommended".to_owned(),
            version => format!("amazon-eks-node-al2023-{architecture}-{word}-{kubernetes}-{version}"),
        };
        let folder = format!("/aws/service/eks/optimized-ami/{kubernetes}/amazon-linux-2023/{architecture}/{word}");
        parameter(format!("{folder}/{name}/image_id"), &[variant])
    };
    kinds.into_iter().map(path).collect()
}

fn bottlerocket(version: &str, kubernetes: &str) -> Vec<Parameter> {
    let version = version.strip_prefix('v').unwrap_or(version);
    let kinds: [(&str, &str, &[Variant]); 4] = [
        ("", "x86_64", &[Variant::Standard, Variant::Neuron]),
        ("", "arm64", &[Variant::Standard]),
        ("-nvidia", "x86_64", &[Variant::Nvidia]),
        ("-nvidia", "arm64", &[Variant::Nvidia]),
    ];
    let path = |(suffix, architecture, variants): (&str, &str, &[Variant])| {
        let folder = format!("/aws/service/bottlerocket/aws-k8s-{kubernetes}{suffix}");
        parameter(format!("{folder}/{architecture}/{version}/image_id"), variants)
    };
    kinds.into_iter().map(path).collect()
}

fn windows(year: &str, build: &str, kubernetes: &str) -> Vec<Parameter> {
    let path = format!(
        "/aws/service/ami-windows-latest/Windows_Server-{year}-English-Core-EKS_Optimized-{kubernetes}/image_id"
    );
    let needs = vec![
        Requirement::new(label::OS, Operator::In, ["windows"]),
        Requirement::new(label::WINDOWS_BUILD, Operator::In, [build]),
    ];
    vec![Parameter { path, needs: vec![needs] }]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(alias: &str, kubernetes: &str) -> Vec<String> {
        let parameters = parameters(&AmiAlias::parse(alias).unwrap(), kubernetes).unwrap();
        parameters.into_iter().map(|parameter| parameter.path).collect()
    }

    #[test]
    fn parameter_paths_match_aws() {
        assert_eq!(
            paths("al2023@latest", "1.36")[0],
            "/aws/service/eks/optimized-ami/1.36/amazon-linux-2023/x86_64/standard/recommended/image_id"
        );
        assert_eq!(
            paths("al2023@v20260901", "1.36")[4],
            "/aws/service/eks/optimized-ami/1.36/amazon-linux-2023/arm64/nvidia/\
             amazon-eks-node-al2023-arm64-nvidia-1.36-v20260901/image_id"
        );
        assert_eq!(
            paths("bottlerocket@v1.50.0", "1.36")[2],
            "/aws/service/bottlerocket/aws-k8s-1.36-nvidia/x86_64/1.50.0/image_id"
        );
        assert_eq!(
            paths("al2@latest", "1.32")[1],
            "/aws/service/eks/optimized-ami/1.32/amazon-linux-2-arm64/recommended/image_id"
        );
        assert_eq!(
            paths("windows2022@latest", "1.36"),
            ["/aws/service/ami-windows-latest/Windows_Server-2022-English-Core-EKS_Optimized-1.36/image_id"]
        );
    }

    #[test]
    fn alias_without_images_for_the_version_is_rejected() {
        let refused = |alias: &str, kubernetes: &str| parameters(&AmiAlias::parse(alias).unwrap(), kubernetes).is_err();
        assert!(refused("al2@latest", "1.33") && !refused("al2@latest", "1.32"));
        assert!(refused("windows2025@latest", "1.34") && !refused("windows2025@latest", "1.35"));
    }

    #[test]
    fn al2_gpu_image_is_listed_for_nvidia_and_neuron() {
        let all = parameters(&AmiAlias::parse("al2@latest").unwrap(), "1.30").unwrap();
        let keys: Vec<&str> = all[2].needs.iter().map(|needs| needs[0].key.as_str()).collect();
        assert_eq!(keys, [ACCELERATOR_COUNT, GPU_COUNT]);
    }
}
