use super::*;
use plimsoll_model::time::Timestamp;
use serde_json::{Value, json};

fn image(id: &str, name: &str, created: i64, architecture: &str) -> Image {
    Image {
        id: id.to_owned(),
        name: name.to_owned(),
        architecture: architecture.to_owned(),
        created: Timestamp(created),
        deprecated: false,
        tags: BTreeMap::new(),
    }
}

fn with_architecture(image: Image) -> (Image, Needs) {
    let needs = vec![architecture(&image).unwrap()];
    (image, needs)
}

#[test]
fn newest_non_deprecated_image_per_requirements_is_selected() {
    let deprecated = Image { deprecated: true, ..image("ami-4", "z", 9, "x86_64") };
    let images = [
        image("ami-1", "a", 1, "x86_64"),
        image("ami-2", "b", 2, "x86_64"),
        image("ami-3", "a", 2, "x86_64"),
        deprecated,
        image("ami-5", "a", 1, "arm64"),
    ];
    let selected = best(images.into_iter().map(with_architecture));
    let ids: Vec<&str> = selected.iter().map(|(image, _)| image.id.as_str()).collect();
    assert_eq!(ids, ["ami-2", "ami-5"], "of equal age the last by name");
}

#[test]
fn status_lists_newest_images_first_and_shortest_requirement_keys_first() {
    let variant = |key: &str| vec![Requirement::new(key, Operator::Exists, [""; 0])];
    let amis = status(vec![
        with_architecture(image("ami-b", "", 5, "x86_64")),
        with_architecture(image("ami-a", "old", 1, "arm64")),
        (image("ami-c", "new", 5, "x86_64"), variant("karpenter.k8s.aws/instance-gpu-count")),
        (image("ami-d", "32 bits", 9, "i386"), Vec::new()),
    ]);
    let ids: Vec<&str> = amis.iter().map(|ami| ami.id.as_str()).collect();
    assert_eq!(ids, ["ami-b", "ami-c", "ami-a"]);
    let needs = |position: usize| serde_json::to_value(&amis[position].requirements).unwrap();
    let arch = |value: &str| json!({"key": "kubernetes.io/arch", "operator": "In", "values": [value]});
    let gpu: Value = json!({"key": "karpenter.k8s.aws/instance-gpu-count", "operator": "Exists"});
    assert_eq!(needs(1), json!([arch("amd64"), gpu]));
    assert_eq!(needs(2), json!([arch("arm64")]));
    assert_eq!((amis[0].name.as_deref(), amis[2].name.as_deref()), (None, Some("old")));
}
