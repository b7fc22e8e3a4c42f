use super::*;
use std::{env, fs, path::PathBuf};

fn deployed() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../deploy/crds")
}

/// With `PLIMSOLL_UPDATE=1`, writes the files instead.
#[test]
fn deploy_has_the_current_crds() {
    let folder = deployed();
    if env::var_os("PLIMSOLL_UPDATE").is_some() {
        fs::create_dir_all(&folder).unwrap();
        for (file_name, text) in render_all() {
            fs::write(folder.join(file_name), text).unwrap();
        }
    }
    for (file_name, text) in render_all() {
        let stored = fs::read_to_string(folder.join(&file_name)).unwrap_or_default();
        assert!(stored == text, "deploy/crds/{file_name} is stale: run this test with PLIMSOLL_UPDATE=1");
    }
    let mut stored: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.contains('_'))
        .collect();
    stored.sort();
    assert_eq!(stored, Kind::ALL.map(Kind::file_name));
}

/// Parses the rendered YAML with an independent parser.
#[test]
fn the_yaml_parses_to_the_definitions() {
    for ((file_name, text), (_, definition)) in render_all().into_iter().zip(all()) {
        let read: CustomResourceDefinition = serde_saphyr::from_str(&text).unwrap();
        assert_eq!(read, definition, "{file_name}");
    }
}

#[test]
fn kinds_are_found_by_version_and_name() {
    assert_eq!(Kind::of("karpenter.sh/v1", "NodePool"), Some(Kind::NodePool));
    assert_eq!(Kind::of("karpenter.sh/v1beta1", "NodePool"), None);
    assert_eq!(Kind::of("karpenter.k8s.aws/v1", "EC2NodeClass"), Some(Kind::EC2NodeClass));
    assert_eq!(Kind::of("v1", "Pod"), None);
}

#[test]
fn yaml_quotes_ambiguous_strings() {
    let texts = [
        "plain text",
        "",
        " ",
        "yes",
        "No",
        "null",
        "~",
        "10%",
        "0s",
        "1e3",
        "0x1f",
        "12:30",
        "-1",
        "+1",
        ".5",
        ".inf",
        "*",
        "a: b",
        "a #b",
        "a:",
        "'",
        "it's",
        "\"",
        "{a}",
        "[a]",
        "a\nb",
        "\t",
        "@daily",
        "!tag",
        "&a",
        "? a",
        "- a",
        "-",
        "=",
        "<<",
        "a ",
        "%",
        "`",
        "|",
        ">",
        "^[a-z]+(\\.[a-z]+)*$",
        "self == oldSelf",
        "!has(self.a)",
        "caf\u{e9}",
    ];
    let entries: std::collections::BTreeMap<&str, &str> = texts.iter().map(|text| (*text, *text)).collect();
    let value = json!({"list": texts.to_vec(), "map": entries});
    let read: Value = serde_saphyr::from_str(&yaml::render(&value)).unwrap();
    assert_eq!(read, value);
}

fn names(kind: Kind) -> (String, Vec<String>, Vec<String>, String) {
    let spec = kind.definition().spec;
    (spec.group, spec.names.short_names.unwrap_or_default(), spec.names.categories.unwrap_or_default(), spec.scope)
}

#[test]
fn short_names_and_categories_match_karpenter() {
    let expected = |group: &str, short: &[&str], category: &str, scope: &str| {
        let short = short.iter().map(ToString::to_string).collect();
        (group.to_owned(), short, vec![category.to_owned()], scope.to_owned())
    };
    assert_eq!(names(Kind::NodePool), expected("karpenter.sh", &[], "karpenter", "Cluster"));
    assert_eq!(names(Kind::NodeClaim), expected("karpenter.sh", &[], "karpenter", "Cluster"));
    assert_eq!(names(Kind::NodeOverlay), expected("karpenter.sh", &["overlays"], "karpenter", "Cluster"));
    assert_eq!(names(Kind::CapacityBuffer), expected("autoscaling.x-k8s.io", &["cb"], "autoscaling", "Namespaced"));
    let (group, short, categories, scope) = names(Kind::CapacityQuota);
    assert_eq!((group.as_str(), scope.as_str()), ("autoscaling.x-k8s.io", "Cluster"));
    assert_eq!((short, categories), (vec!["cq".to_owned()], Vec::new()));
    let class = expected("karpenter.k8s.aws", &["ec2nc", "ec2ncs"], "karpenter", "Cluster");
    assert_eq!(names(Kind::EC2NodeClass), class);
}

#[test]
fn printer_columns_match_karpenter() {
    let columns = |kind: Kind| -> Vec<String> {
        let columns = kind.definition().spec.versions[0].additional_printer_columns.clone().unwrap();
        let wide = |priority: Option<i32>| if priority == Some(1) { "+" } else { "" };
        columns.iter().map(|column| format!("{}{}", wide(column.priority), column.name)).collect()
    };
    assert_eq!(columns(Kind::NodePool), ["NodeClass", "Nodes", "Ready", "Age", "+Weight", "+CPU", "+Memory"]);
    assert_eq!(
        columns(Kind::NodeClaim),
        ["Type", "Capacity", "Zone", "Node", "Ready", "Age", "+ImageID", "+ID", "+NodePool", "+NodeClass", "+Drifted"]
    );
    assert_eq!(columns(Kind::NodeOverlay), ["Ready", "Age", "+Weight"]);
    assert_eq!(
        columns(Kind::CapacityBuffer),
        ["Strategy", "PodTemplate", "Replicas", "ConditionsType", "ConditionsStatus", "ConditionsReason", "Age"]
    );
    assert_eq!(columns(Kind::EC2NodeClass), ["Ready", "Age", "+Role"]);
}

/// Calls `visit` with each schema and its path.
fn walk(schema: &Value, path: &str, visit: &mut impl FnMut(&str, &Value)) {
    visit(path, schema);
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        walk(property, &format!("{path}.{name}"), visit);
    }
    for (keyword, mark) in [("items", "[]"), ("additionalProperties", "{}")] {
        if schema[keyword].is_object() {
            walk(&schema[keyword], &format!("{path}{mark}"), visit);
        }
    }
}

#[test]
fn every_field_has_a_description_and_a_type() {
    // Excludes the alternatives of int-or-string, and lists and maps that are described by their field.
    for kind in Kind::ALL {
        walk(&kind.schema(), kind.kind(), &mut |path, schema| {
            let is_part = path.ends_with("[]") || path.ends_with("{}") || path.ends_with(".metadata");
            assert!(is_part || schema["description"].is_string(), "{path} has no description");
            let is_typed = schema["type"].is_string() || schema["x-kubernetes-int-or-string"] == true;
            assert!(is_typed, "{path} has no type: {schema}");
            for keyword in ["$ref", "oneOf", "allOf", "const", "title", "nullable", "$schema"] {
                assert!(schema.get(keyword).is_none(), "{path} has {keyword}");
            }
        });
    }
}

/// The API server rejects rules that could be too expensive. Without bounds it assumes the longest list that fits into
/// a request.
#[test]
fn lists_in_cel_rules_are_bounded() {
    for kind in Kind::ALL {
        walk(&kind.schema(), kind.kind(), &mut |path, schema| {
            let walked = schema["x-kubernetes-validations"].to_string().contains("self.all(");
            let bounded = schema.get("maxItems").is_some() || schema["type"] == "object";
            assert!(!walked || bounded, "{path} is walked through by a rule and has no maxItems");
        });
    }
}
