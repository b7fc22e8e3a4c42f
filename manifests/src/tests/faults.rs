//! All faults at once, and the reader of JSON.

use super::{DEPLOYMENT, text};
use crate::{MAX_PODS, ManifestError, read, read_json};
use serde_json::Value;

#[test]
fn faults_of_reading_and_of_the_snapshot_are_reported_together() {
    let list = |items: &str| format!(r#"{{"apiVersion": "v1", "kind": "List", "items": [{items}]}}"#);
    let pod = |name: &str, more: &str| {
        format!(
            r#"{{"apiVersion": "v1", "kind": "Pod", "metadata": {{"name": "{name}"}}, "spec": {{"containers": [{{"name": "app"{more}}}]}}}}"#
        )
    };
    let bad_cpu = pod("one", r#", "resources": {"requests": {"cpu": "1GB"}}"#);
    let bad_field = pod("two", r#", "imagined": 1"#);
    let workload = DEPLOYMENT.replace("{name: app}", "{name: app, resources: {requests: {memory: lots}}}");
    let texts = [
        text("objects[0]", &list(&[bad_cpu, bad_field, r#"{"kind": "Pod"}"#.to_owned()].join(","))),
        text("objects[1]", "{"),
        text("objects[2]", &serde_json::to_string(&yaml(&workload)).unwrap()),
        text("objects[3]", &pod("one", "")),
    ];
    let errors = read_json(&texts, MAX_PODS).unwrap_err().0;
    let found: Vec<(String, Option<usize>)> = errors
        .iter()
        .map(|error| match error {
            ManifestError::Document { place, .. } => (place.file.to_string(), place.item),
            ManifestError::Field { place, field, .. } => (format!("{}: {field}", place.file), place.item),
            ManifestError::Duplicate { first, second, .. } => (format!("{} {}", first.file, second.file), first.item),
            ManifestError::Unreadable { path, .. } => (path.clone(), None),
        })
        .collect();
    let expected = [
        ("objects[1]", None),
        ("objects[0]", Some(2)),
        ("objects[0] objects[3]", Some(0)),
        ("objects[0]: spec.containers[0].imagined", Some(1)),
        ("objects[0]: spec.containers[0].resources.requests.cpu", Some(0)),
        ("objects[2]: spec.template.spec.containers[0].resources.requests.memory", None),
    ];
    let expected: Vec<_> = expected.iter().map(|(at, item)| ((*at).to_owned(), *item)).collect();
    assert_eq!(found, expected, "{errors:#?}");
}

#[test]
fn a_json_reader_takes_no_yaml_and_workloads_make_no_more_pods_than_allowed() {
    let yaml_text = read_json(&[text("objects[0]", DEPLOYMENT)], MAX_PODS).unwrap_err().to_string();
    assert!(yaml_text.starts_with("objects[0]: document 1: not JSON: "), "{yaml_text}");
    assert!(read(&[text("-", DEPLOYMENT)], 2).is_ok());
    let too_many = read(&[text("-", DEPLOYMENT)], 1).unwrap_err().to_string();
    assert_eq!(too_many, "-: document 1: Deployment default/web: spec.replicas: makes more than 1 pods");
}

#[test]
fn a_repeated_key_is_an_error_in_json_as_in_yaml() {
    let once = r#"{"apiVersion": "v1", "kind": "List", "items": [{"apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": "a", "labels": {"a": "1", "b": "2"}}}]}"#;
    let read_both = |content: &str| [read, read_json].map(|read| read(&[text("a.json", content)], MAX_PODS));
    for manifests in read_both(once) {
        assert_eq!(manifests.unwrap().objects.namespaces.len(), 1);
    }
    for errors in read_both(&once.replace("\"b\"", "\"a\"")) {
        let shown = errors.unwrap_err().to_string();
        assert!(shown.starts_with("a.json: document 1: not JSON: duplicate key \"a\" at line 2"), "{shown}");
    }
}

#[test]
fn a_fault_in_one_of_several_documents_in_braces_is_told_with_its_line() {
    let namespace = r#"{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a"}}"#;
    let content = format!("{namespace}\n---\n{}\n", namespace.replace("}}", "}"));
    let shown = read(&[text("a.yaml", &content)], MAX_PODS).unwrap_err().to_string();
    assert!(shown.starts_with("a.yaml: document 2: not YAML: line 3, column 1: unclosed bracket"), "{shown}");
}

#[test]
fn a_repeated_key_in_yaml_is_named_without_advice_for_programmers() {
    let errors = read(&[text("a.yaml", "kind: A\nmetadata: {}\nmetadata: {}\n")], MAX_PODS).unwrap_err();
    let expected = "a.yaml: document 1: not YAML: line 3, column 1: duplicate mapping key: metadata";
    assert_eq!(errors.to_string(), expected);
}

#[test]
fn messages_of_the_yaml_library_are_for_users() {
    let deep = (0..200).map(|level| " ".repeat(level) + "a:\n").collect::<String>();
    for (content, told) in [
        (
            "a: 1\n...\nb: 2\n",
            "line 3, column 1: the document has ended with `...`; the next one must begin with `---`",
        ),
        ("a: &a [*a]\n", "line 1, column 8: an anchor is used within its own value"),
        ("a: 1e400\n", "line 1, column 4: no finite number: `1e400`"),
        ("? [a, b]\n: c\n", "line 1, column 3: the key of a mapping must be a string"),
        (deep.as_str(), "line 129, column 129: nested too deeply"),
    ] {
        let error = read(&[text("a.yaml", content)], MAX_PODS).unwrap_err().to_string();
        assert_eq!(error, format!("a.yaml: document 1: not YAML: {told}"));
    }
}

fn yaml(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap()
}

#[test]
fn the_rule_for_names_states_the_longest_name() {
    let pod = |length: usize| {
        let name = "a".repeat(length);
        format!("apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec: {{containers: [{{name: app}}]}}\n")
    };
    assert!(read(&[text("-", &pod(253))], MAX_PODS).is_ok());
    let error = read(&[text("-", &pod(254))], MAX_PODS).unwrap_err().to_string();
    assert!(error.contains("must consist of at most 253 lower-case letters"), "{error}");
}

#[test]
fn what_an_object_lacks_is_told_apart_from_what_is_wrong() {
    let object = |kind: &str, metadata: &str| format!("apiVersion: v1\nkind: {kind}\nmetadata: {metadata}\n");
    let long = format!("{{name: a, namespace: {}}}", "a".repeat(64));
    let rule = "must consist of at most 63 lower-case letters, digits and -";
    for (content, told) in [
        (object("", "{name: a}"), "kind: is required".to_owned()),
        (object("[Pod]", "{name: a}"), "kind: must be a string".to_owned()),
        (object("Pod", "").replace("v1", "1"), "Pod: apiVersion: must be a string".to_owned()),
        (object("Pod", ""), "Pod: metadata: is required".to_owned()),
        (object("Pod", "a"), "Pod: metadata: must be an object".to_owned()),
        (object("Pod", "{name: \"\"}"), "Pod: metadata.name: is required".to_owned()),
        (object("Pod", "{name: {a: b}}"), "Pod: metadata.name: must be a string".to_owned()),
        (object("Pod", "{name: a, namespace: B}"), format!("Pod a: metadata.namespace: \"B\" {rule}")),
        (object("Pod", "{name: a, namespace: b.c}"), format!("Pod a: metadata.namespace: \"b.c\" {rule}")),
        (object("Pod", &long), format!("Pod a: metadata.namespace: \"{}\" {rule}", "a".repeat(64))),
    ] {
        let error = read(&[text("-", &content)], MAX_PODS).unwrap_err().to_string();
        assert!(error.starts_with(&format!("-: document 1: {told}")), "{error}\n{told}");
    }
}

#[test]
fn a_chart_that_is_not_rendered_is_named() {
    let error = |content: &str| read(&[text("pool.yaml", content)], MAX_PODS).unwrap_err().to_string();
    let advice = "; a Go template must be rendered first, such as a Helm chart with `helm template`, or quoted";
    for line in ["  name: {{ .Values.name }}", "{{ toYaml .Values.labels | indent 2 }}"] {
        let error = error(&format!("# A comment\n---\nkind: NodePool\nmetadata:\n{line}\n"));
        assert!(error.starts_with("pool.yaml: document 1: not YAML: line 5, "), "{error}");
        assert!(error.ends_with(advice), "{error}");
    }
    let first = error("\n{{- if .Values.pool }}\nkind: NodePool\n{{- end }}\n");
    assert!(first.starts_with("pool.yaml: document 1: not YAML: line 2, ") && first.ends_with(advice), "{first}");
    let other = error("kind: NodePool\nmetadata: {name: \"{{ .Values.name }}\"}\nspec: [\n");
    assert!(other.contains("not YAML") && !other.contains(advice), "{other}");
}

#[test]
fn each_error_is_on_one_line_whatever_the_keys_are() {
    let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {\"x\\n\\e[31m日\": 1, containers: [{name: c}]}\n";
    let error = read(&[text("-", pod)], MAX_PODS).unwrap_err().to_string();
    assert_eq!(error, "-: document 1: Pod default/a: spec.x\\n\\u{1b}[31m日: no such field");
}

#[test]
fn values_that_yaml_does_not_read_as_strings_are_to_be_quoted() {
    for (value, told) in [
        ("yes", "boolean `true`, expected a string; quote it"),
        ("1", "integer `1`, expected a string; quote it"),
        ("1.5", "floating point `1.5`, expected a string; quote it"),
        ("[b]", "sequence, expected a string"),
    ] {
        let spec = "spec: {containers: [{name: app}]}";
        let pod = format!("apiVersion: v1\nkind: Pod\nmetadata: {{name: a, labels: {{a: {value}}}}}\n{spec}\n");
        let error = read(&[text("-", &pod)], MAX_PODS).unwrap_err().to_string();
        assert_eq!(error, format!("-: document 1: Pod default/a: metadata.labels.a: invalid type: {told}"));
    }
}

#[test]
fn a_time_that_cannot_be_read_is_told() {
    for time in ["", "yesterday", "2026-01-01", "2026-13-01T00:00:00Z"] {
        let metadata = format!("metadata: {{name: a, creationTimestamp: \"{time}\"}}");
        let pod = format!("apiVersion: v1\nkind: Pod\n{metadata}\nspec: {{containers: [{{name: c}}]}}\n");
        let error = read(&[text("-", &pod)], MAX_PODS).unwrap_err().to_string();
        let told = format!("metadata.creationTimestamp: {time:?} is not a time such as 2026-01-31T12:00:00Z: ");
        assert!(error.starts_with(&format!("-: document 1: Pod default/a: {told}")), "{error}");
    }
}

#[test]
fn types_are_named_as_in_yaml_and_numbers_in_quotes_are_told() {
    for (field, told) in [
        ("priority: \"3\"", "priority: invalid type: string \"3\", expected a 32-bit integer; remove the quotes"),
        ("priority: three", "priority: invalid type: string \"three\", expected a 32-bit integer"),
        ("priority: 99999999999", "priority: invalid value: integer `99999999999`, expected a 32-bit integer"),
        ("priority: 1.5", "priority: invalid type: floating point `1.5`, expected a 32-bit integer"),
        ("hostNetwork: \"true\"", "hostNetwork: invalid type: string \"true\", expected a boolean; remove the quotes"),
        ("hostNetwork: 1", "hostNetwork: invalid type: integer `1`, expected a boolean"),
        ("tolerations: {key: a}", "tolerations: invalid type: map, expected a list"),
        ("nodeSelector: [a]", "nodeSelector: invalid type: sequence, expected a map"),
    ] {
        let spec = format!("spec: {{containers: [{{name: c}}], {field}}}");
        let pod = format!("apiVersion: v1\nkind: Pod\nmetadata: {{name: a}}\n{spec}\n");
        let error = read(&[text("-", &pod)], MAX_PODS).unwrap_err().to_string();
        assert_eq!(error, format!("-: document 1: Pod default/a: spec.{told}"));
    }
}
