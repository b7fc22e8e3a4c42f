//! JSON schemas for kubeconform, from the OpenAPI document of Kubernetes and from CustomResourceDefinitions.

use anyhow::{Context as _, Result};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Version of the conversion. A new version regenerates the cached schemas.
pub(super) const FORMAT: u32 = 1;
const REFERENCE: &str = "#/definitions/";
/// Definitions with type string that also accept numbers.
const NUMBER_OR_STRING: [&str; 2] =
    ["io.k8s.apimachinery.pkg.util.intstr.IntOrString", "io.k8s.apimachinery.pkg.api.resource.Quantity"];

/// Schemas of all kinds of Kubernetes by file name. Each contains all definitions that it references.
///
/// # Errors
/// If the document is not OpenAPI 2.
pub(super) fn of_swagger(swagger: &Value) -> Result<BTreeMap<String, Value>> {
    let definitions = swagger["definitions"].as_object().context("the document has no definitions")?;
    let closed: BTreeMap<&str, Value> =
        definitions.iter().map(|(name, it)| (name.as_str(), definition(name, it))).collect();
    let mut schemas = BTreeMap::new();
    for (name, definition) in definitions {
        for kind in definition["x-kubernetes-group-version-kind"].as_array().into_iter().flatten() {
            let part = |key: &str| kind[key].as_str().with_context(|| format!("{name}: a kind without {key}"));
            let needed: Map<String, Value> = closure(name, &closed)
                .into_iter()
                .filter_map(|name| Some((name.to_owned(), closed.get(name)?.clone())))
                .collect();
            let schema = json!({"$ref": format!("{REFERENCE}{name}"), "definitions": needed});
            schemas.insert(file_name(part("group")?, part("version")?, part("kind")?), schema);
        }
    }
    Ok(schemas)
}

/// Schemas of the kinds in a file of CustomResourceDefinitions by file name.
///
/// # Errors
/// If the file is not YAML, or a definition lacks a part.
pub(super) fn of_crds(text: &str) -> Result<BTreeMap<String, Value>> {
    let mut schemas = BTreeMap::new();
    for document in text.split("\n---\n") {
        let crd: Value = serde_saphyr::from_str(document).map_err(|error| anyhow::anyhow!("{error}"))?;
        if crd["kind"] != "CustomResourceDefinition" {
            continue;
        }
        let part = |value: &Value, key: &str| {
            value[key].as_str().map(str::to_owned).with_context(|| format!("the definition has no {key}"))
        };
        let (group, kind) = (part(&crd["spec"], "group")?, part(&crd["spec"]["names"], "kind")?);
        for version in crd["spec"]["versions"].as_array().into_iter().flatten() {
            let mut schema = version["schema"]["openAPIV3Schema"].clone();
            close(&mut schema);
            // Every object has metadata; the definition leaves it to the API server.
            schema["properties"]["metadata"] = json!({"type": "object"});
            schemas.insert(file_name(&group, &part(version, "name")?, &kind), schema);
        }
    }
    Ok(schemas)
}

/// File name in the scheme of kubeconform: for the core group, the version is also the group.
fn file_name(group: &str, version: &str, kind: &str) -> String {
    let group = if group.is_empty() { version } else { group };
    format!("{group}_{version}_{}.json", kind.to_lowercase())
}

fn definition(name: &str, definition: &Value) -> Value {
    if NUMBER_OR_STRING.contains(&name) {
        return json!({"type": ["string", "number"]});
    }
    let mut definition = definition.clone();
    close(&mut definition);
    definition
}

/// Rejects unknown fields, as the API server does with strict validation, and converts differences to JSON schema.
fn close(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            if fields.get("x-kubernetes-int-or-string") == Some(&Value::Bool(true)) {
                fields.retain(|name, _| name == "description");
                fields.insert("type".to_owned(), json!(["string", "number"]));
                return;
            }
            // kubeconform does not know formats; a field may also have this name.
            if fields.get("format").is_some_and(Value::is_string) {
                fields.remove("format");
            }
            let open = fields.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(true));
            // A field with the name properties is an object without a type; the properties of a schema have schemas as
            // values.
            let has_fields = fields
                .get("properties")
                .is_some_and(|it| it.as_object().is_some_and(|it| it.values().all(Value::is_object)));
            if has_fields && !open && !fields.contains_key("additionalProperties") {
                fields.insert("additionalProperties".to_owned(), Value::Bool(false));
            }
            fields.values_mut().for_each(close);
        }
        Value::Array(items) => items.iter_mut().for_each(close),
        _ => {}
    }
}

/// A definition and all definitions that it references.
fn closure<'a>(name: &'a str, definitions: &'a BTreeMap<&'a str, Value>) -> BTreeSet<&'a str> {
    let mut closure_names = BTreeSet::from([name]);
    let mut open = vec![name];
    while let Some(name) = open.pop() {
        let mut names = Vec::new();
        if let Some(definition) = definitions.get(name) {
            references(definition, &mut names);
        }
        open.extend(names.into_iter().filter(|name| closure_names.insert(name)));
    }
    closure_names
}

fn references<'a>(schema: &'a Value, names: &mut Vec<&'a str>) {
    match schema {
        Value::Object(fields) => {
            names.extend(fields.get("$ref").and_then(Value::as_str).and_then(|it| it.strip_prefix(REFERENCE)));
            fields.values().for_each(|value| references(value, names));
        }
        Value::Array(items) => items.iter().for_each(|value| references(value, names)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_has_the_definitions_that_it_refers_to_and_is_closed() {
        let swagger = json!({"definitions": {
            "a.Pod": {
                "properties": {"spec": {"$ref": "#/definitions/a.Spec"}, "labels": {"additionalProperties": {"type": "string"}}},
                "x-kubernetes-group-version-kind": [{"group": "", "version": "v1", "kind": "Pod"}],
            },
            "a.Spec": {"properties": {"port": {"$ref": "#/definitions/io.k8s.apimachinery.pkg.util.intstr.IntOrString"}}},
            "io.k8s.apimachinery.pkg.util.intstr.IntOrString": {"type": "string", "format": "int-or-string"},
            "a.Other": {},
        }});
        let schemas = of_swagger(&swagger).unwrap();
        assert_eq!(schemas.keys().collect::<Vec<_>>(), ["v1_v1_pod.json"]);
        let definitions = schemas["v1_v1_pod.json"]["definitions"].as_object().unwrap();
        assert_eq!(definitions.len(), 3);
        assert_eq!(definitions["a.Pod"]["additionalProperties"], false);
        assert_eq!(definitions["a.Pod"]["properties"]["labels"]["additionalProperties"]["type"], "string");
        assert_eq!(definitions["io.k8s.apimachinery.pkg.util.intstr.IntOrString"]["type"], json!(["string", "number"]));
    }

    #[test]
    fn a_custom_resource_is_closed_unless_it_says_otherwise() {
        let crd = "kind: CustomResourceDefinition\nspec:\n  group: a.io\n  names: {kind: Thing}\n  versions:\n  - name: v1\n    schema:\n      \
                   openAPIV3Schema:\n        properties:\n          open: {properties: {}, x-kubernetes-preserve-unknown-fields: true}\n          \
                   size: {x-kubernetes-int-or-string: true}\n";
        let schemas = of_crds(crd).unwrap();
        let schema = &schemas["a.io_v1_thing.json"];
        assert_eq!(schema["additionalProperties"], false);
        assert_eq!(schema["properties"]["open"].get("additionalProperties"), None);
        assert_eq!(schema["properties"]["size"], json!({"type": ["string", "number"]}));
    }
}
