use super::{parse, render};
use crate::{NodeClassSettings, builtin};
use serde_json::{Value, json};

fn small() -> Value {
    json!({
        "region": "test-1",
        "note": "left alone",
        "instanceTypes": [{
            "name": "m5.large",
            "architecture": "amd64",
            "operatingSystems": ["linux"],
            "capacity": {"cpu": "2", "memory": "7577Mi", "pods": 29},
            "overhead": {"cpu": "70m", "memory": "674Mi"},
            "labels": {"kubernetes.io/arch": "amd64", "karpenter.k8s.aws/instance-cpu": "2"},
            "offerings": [
                {"zone": "test-1b", "capacityType": "on-demand", "price": 0.096},
                {"zone": "test-1a", "zoneId": "tst1-az1", "capacityType": "spot", "price": 0.0312, "available": false},
            ],
        }],
    })
}

#[test]
fn amounts_offerings_and_labels_are_parsed() {
    let catalog = parse(&small().to_string()).unwrap();
    let instance_type = catalog.get("m5.large").unwrap();
    assert_eq!(
        (instance_type.capacity.get("cpu"), instance_type.capacity.get("pods"), instance_type.overhead.get("cpu")),
        (2000, 29, 70)
    );
    assert_eq!(instance_type.allocatable().get("memory"), (7577 - 674) << 20);
    // The architecture is not repeated as a label.
    assert_eq!(instance_type.labels.keys().collect::<Vec<_>>(), ["karpenter.k8s.aws/instance-cpu"]);
    let offerings: Vec<_> = instance_type
        .offerings
        .iter()
        .map(|offering| (offering.zone.as_str(), offering.zone_id.as_str(), offering.price.0, offering.available))
        .collect();
    assert_eq!(offerings, [("test-1a", "tst1-az1", 31_200, false), ("test-1b", "", 96_000, true)]);
}

#[test]
fn errors_name_the_type_and_the_field() {
    let at = "instanceTypes[0] m5.large: ";
    let cases = [
        ("/region", json!(""), "region: is empty".to_owned()),
        ("/instanceTypes", json!({}), "instanceTypes: a list is needed, not an object".to_owned()),
        ("/instanceTypes/0/name", json!(3), "instanceTypes[0].name: text is needed, not a number".to_owned()),
        (
            "/instanceTypes/0/architecture",
            json!("x86"),
            format!("{at}architecture: \"x86\" is neither amd64 nor arm64"),
        ),
        ("/instanceTypes/0/capacity", json!({"cpu": "2"}), format!("{at}capacity.memory: is missing")),
        (
            "/instanceTypes/0/capacity/cpu",
            json!("two"),
            format!("{at}capacity.cpu: \"two\" is not a quantity that can be counted"),
        ),
        ("/instanceTypes/0/overhead/memory", json!("-1Mi"), format!("{at}overhead.memory: \"-1Mi\" is negative")),
        (
            "/instanceTypes/0/offerings/0/price",
            json!(-1),
            format!("{at}offerings[0].price: -1 is not a price in USD per hour (0 to 1000000)"),
        ),
        (
            "/instanceTypes/0/offerings/1/capacityType",
            json!("cheap"),
            format!("{at}offerings[1].capacityType: \"cheap\" is none of reserved, spot, on-demand"),
        ),
        ("/instanceTypes/0/offerings/1/zone", json!(null), format!("{at}offerings[1].zone: is missing")),
        (
            "/instanceTypes/0/labels/kubernetes.io~1arch",
            json!("arm64"),
            format!("{at}labels.kubernetes.io/arch: \"arm64\" contradicts \"amd64\" of the other fields"),
        ),
        (
            "/instanceTypes/0/operatingSystems/0",
            json!("beos"),
            format!("{at}operatingSystems[0]: \"beos\" is neither \"linux\" nor \"windows\""),
        ),
    ];
    for (pointer, value, expected) in cases {
        let mut file = small();
        *file.pointer_mut(pointer).unwrap() = value;
        assert_eq!(parse(&file.to_string()).unwrap_err().to_string(), expected);
    }
    assert!(parse("{").unwrap_err().to_string().starts_with("not JSON: EOF"));
}

#[test]
fn duplicate_types_and_offerings_are_rejected() {
    let mut file = small();
    let again = file["instanceTypes"][0].clone();
    file["instanceTypes"].as_array_mut().unwrap().push(again);
    assert_eq!(parse(&file.to_string()).unwrap_err().to_string(), "instanceTypes: m5.large is there twice");
    let mut file = small();
    let again = file["instanceTypes"][0]["offerings"][0].clone();
    file["instanceTypes"][0]["offerings"].as_array_mut().unwrap().push(again);
    let expected = "instanceTypes[0] m5.large: offerings: on-demand in test-1b is there twice";
    assert_eq!(parse(&file.to_string()).unwrap_err().to_string(), expected);
}

#[test]
fn a_rendered_catalog_parses_to_itself() {
    let catalog = builtin::catalog("eu-west-1", &NodeClassSettings::default()).unwrap();
    assert_eq!(parse(&render(&catalog)).unwrap(), catalog);
    // The architecture is also a label for readers that only use labels. Types are sorted by name: a1 is the first.
    let written: Value = serde_json::from_str(&render(&catalog)).unwrap();
    assert_eq!(written["instanceTypes"][0]["name"], "a1.2xlarge");
    assert_eq!(written["instanceTypes"][0]["labels"]["kubernetes.io/arch"], "arm64");
}
