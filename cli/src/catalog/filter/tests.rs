use super::*;
use plimsoll_catalog::{NodeClassSettings, builtin};

fn names(selector: &str, patterns: &[&str]) -> Vec<String> {
    let selector: Selector = selector.parse().unwrap();
    let patterns: Vec<String> = patterns.iter().map(|it| (*it).to_owned()).collect();
    let catalog = builtin::catalog("us-east-1", &NodeClassSettings::default()).unwrap();
    let catalog = Filter { names: &patterns, selector: Some(&selector) }.apply(catalog);
    catalog.instance_types.into_iter().map(|it| it.name).collect()
}

#[test]
fn patterns_match_names() {
    let table = [
        ("m5.large", "m5.large", true),
        ("m5.large", "m5.xlarge", false),
        ("m5.*", "m5.24xlarge", true),
        ("m5.*", "m5a.large", false),
        ("*large", "m5.2xlarge", true),
        ("?5.large", "c5.large", true),
        ("?5.large", "c5n.large", false),
        ("*", "", true),
        ("a*b*c", "axxbxxbxc", true),
        ("a*b*c", "axxbxx", false),
        ("", "a", false),
    ];
    for (pattern, text, expected) in table {
        assert_eq!(matches(pattern, text), expected, "{pattern} {text}");
    }
}

#[test]
fn labels_select_types() {
    let table = [
        ("karpenter.k8s.aws/instance-family=m5,karpenter.k8s.aws/instance-cpu<=4", vec!["m5.large", "m5.xlarge"]),
        (
            "karpenter.k8s.aws/instance-family in (m5, c5),karpenter.k8s.aws/instance-size==large",
            vec!["c5.large", "m5.large"],
        ),
        ("karpenter.k8s.aws/instance-cpu < 4,karpenter.k8s.aws/instance-family=m5", vec!["m5.large"]),
        ("karpenter.k8s.aws/instance-family=m5,karpenter.k8s.aws/instance-gpu-name", vec![]),
        ("node.kubernetes.io/instance-type=m5.large,!karpenter.k8s.aws/instance-gpu-name", vec!["m5.large"]),
        ("node.kubernetes.io/instance-type=m5.large,kubernetes.io/arch!=amd64", vec![]),
        ("node.kubernetes.io/instance-type=m5.large,kubernetes.io/arch notin (arm64)", vec!["m5.large"]),
    ];
    for (selector, expected) in table {
        assert_eq!(names(selector, &[]), expected, "{selector}");
    }
}

#[test]
fn labels_of_offerings_leave_out_the_others() {
    let selector: Selector = "karpenter.sh/capacity-type=spot,topology.kubernetes.io/zone=us-east-1a".parse().unwrap();
    let catalog = builtin::catalog("us-east-1", &NodeClassSettings::default()).unwrap();
    let names = ["m5.large".to_owned()];
    let catalog = Filter { names: &names, selector: Some(&selector) }.apply(catalog);
    let offerings: Vec<(&str, &str)> =
        catalog.instance_types[0].offerings.iter().map(|it| (it.zone.as_str(), it.capacity_type.as_str())).collect();
    assert_eq!(offerings, [("us-east-1a", "spot")]);
}

#[test]
fn what_is_no_selector_is_refused() {
    for text in ["", "=x", "a b", "a in b", "a among (b)", "a in (b", "a<b", "a=b,,c=d"] {
        assert!(text.parse::<Selector>().is_err(), "{text:?}");
    }
}
