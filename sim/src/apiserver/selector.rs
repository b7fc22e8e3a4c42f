//! Label and field selectors, as query strings and as `LabelSelector` objects.

use super::error::ApiError;
use super::object;
use super::resources::Resource;
use serde_json::{Map, Value};
use std::collections::BTreeSet;

#[derive(Debug, Clone, PartialEq, Eq)]
enum Test {
    In(BTreeSet<String>),
    NotIn(BTreeSet<String>),
    Exists,
    Absent,
    Greater(i64),
    Less(i64),
}

impl Test {
    fn holds(&self, value: Option<&str>) -> bool {
        let number = || value.and_then(|text| text.parse::<i64>().ok());
        match self {
            Self::In(set) => value.is_some_and(|value| set.contains(value)),
            Self::NotIn(set) => value.is_none_or(|value| !set.contains(value)),
            Self::Exists => value.is_some(),
            Self::Absent => value.is_none(),
            Self::Greater(bound) => number().is_some_and(|number| number > *bound),
            Self::Less(bound) => number().is_some_and(|number| number < *bound),
        }
    }
}

/// A conjunction of tests on labels. An empty selector selects everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LabelSelector {
    tests: Vec<(String, Test)>,
    nothing: bool,
}

impl LabelSelector {
    /// Parses a `labelSelector` query parameter.
    ///
    /// # Errors
    /// 400 if the string is not a selector.
    pub fn parse(text: &str) -> Result<Self, ApiError> {
        let mut tests = Vec::new();
        for part in split_outside_brackets(text) {
            let part = part.trim();
            if !part.is_empty() {
                tests.push(requirement(part).ok_or_else(|| {
                    ApiError::bad_request(format!("unable to parse requirement {part:?} of the label selector"))
                })?);
            }
        }
        Ok(Self { tests, nothing: false })
    }

    /// Selector of a `LabelSelector` object. An absent selector selects nothing, and an empty one everything. A
    /// selector with an unknown operator selects nothing.
    #[must_use]
    pub fn of_object(selector: Option<&Value>) -> Self {
        let none = Self { tests: Vec::new(), nothing: true };
        let Some(selector) = selector.filter(|selector| selector.is_object()) else { return none };
        let equal = selector.get("matchLabels").and_then(Value::as_object).into_iter().flatten();
        let mut tests: Vec<_> = equal
            .map(|(key, value)| (key.clone(), Test::In(value.as_str().map(str::to_owned).into_iter().collect())))
            .collect();
        for expression in object::items(selector, &["matchExpressions"]) {
            let Some(test) = expression_test(expression) else { return none };
            tests.push((object::text(expression, &["key"]).to_owned(), test));
        }
        Self { tests, nothing: false }
    }

    /// Whether the selector selects everything.
    #[must_use]
    pub fn is_everything(&self) -> bool {
        self.tests.is_empty() && !self.nothing
    }

    /// Whether the selector selects an object with these labels.
    #[must_use]
    pub fn matches_labels(&self, labels: Option<&Map<String, Value>>) -> bool {
        let value = |key: &String| labels.and_then(|labels| labels.get(key)).and_then(Value::as_str);
        !self.nothing && self.tests.iter().all(|(key, test)| test.holds(value(key)))
    }

    /// Whether the selector selects an object.
    #[must_use]
    pub fn matches(&self, object: &Value) -> bool {
        self.is_everything()
            || self.matches_labels(object::at(object, &["metadata", "labels"]).and_then(Value::as_object))
    }
}

/// Test of one `matchExpressions` entry of a label selector or node selector term.
fn expression_test(expression: &Value) -> Option<Test> {
    let values = || object::items(expression, &["values"]).iter().filter_map(Value::as_str).map(str::to_owned);
    let number = || values().next().and_then(|value| value.parse().ok());
    Some(match object::text(expression, &["operator"]) {
        "In" => Test::In(values().collect()),
        "NotIn" => Test::NotIn(values().collect()),
        "Exists" => Test::Exists,
        "DoesNotExist" => Test::Absent,
        "Gt" => Test::Greater(number()?),
        "Lt" => Test::Less(number()?),
        _ => return None,
    })
}

/// Whether `value` satisfies one node selector requirement. A requirement with an unknown operator is never satisfied.
#[must_use]
pub fn expression_holds(expression: &Value, value: Option<&str>) -> bool {
    expression_test(expression).is_some_and(|test| test.holds(value))
}

fn split_outside_brackets(text: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut start) = (Vec::new(), 0_usize, 0);
    for (position, character) in text.char_indices() {
        match character {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(&text[start..position]);
                start = position + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

fn requirement(part: &str) -> Option<(String, Test)> {
    let word = |text: &str| {
        let text = text.trim();
        (!text.contains([' ', '(', ')', '!', '='])).then(|| text.to_owned())
    };
    let key = |text: &str| word(text).filter(|key| !key.is_empty());
    let one = |text: &str| word(text).map(|value| BTreeSet::from([value]));
    if let Some(rest) = part.strip_prefix('!') {
        return Some((key(rest)?, Test::Absent));
    }
    if let Some(open) = part.find('(') {
        let list = part[open + 1..].strip_suffix(')')?;
        let values = list.split(',').map(word).collect::<Option<BTreeSet<_>>>()?;
        let (name, operator) = part[..open].trim().rsplit_once(' ')?;
        return match operator {
            "in" => Some((key(name)?, Test::In(values))),
            "notin" => Some((key(name)?, Test::NotIn(values))),
            _ => None,
        };
    }
    if let Some((name, value)) = part.split_once("!=") {
        return Some((key(name)?, Test::NotIn(one(value)?)));
    }
    if let Some((name, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
        return Some((key(name)?, Test::In(one(value)?)));
    }
    if let Some((name, value)) = part.split_once('>') {
        return Some((key(name)?, Test::Greater(value.trim().parse().ok()?)));
    }
    if let Some((name, value)) = part.split_once('<') {
        return Some((key(name)?, Test::Less(value.trim().parse().ok()?)));
    }
    Some((key(part)?, Test::Exists))
}

/// A conjunction of equalities and inequalities on fields.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FieldSelector {
    /// Path of the field, value, and whether equality is required.
    tests: Vec<(Vec<String>, String, bool)>,
}

impl FieldSelector {
    /// Parses a `fieldSelector` query parameter.
    ///
    /// # Errors
    /// 400 if the string is not a selector or the kind does not support the field.
    pub fn parse(text: &str, resource: &Resource) -> Result<Self, ApiError> {
        let mut tests = Vec::new();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let (field, value, wanted) = if let Some((field, value)) = part.split_once("!=") {
                (field, value, false)
            } else if let Some((field, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
                (field, value, true)
            } else {
                return Err(ApiError::bad_request(format!("invalid field selector {part:?}")));
            };
            let known = matches!(field, "metadata.name" | "metadata.namespace") || resource.selectable.contains(&field);
            if !known {
                return Err(ApiError::bad_request(format!("field label not supported: {field}")));
            }
            tests.push((field.split('.').map(str::to_owned).collect(), value.to_owned(), wanted));
        }
        Ok(Self { tests })
    }

    /// Whether the selector selects an object. An absent string counts as empty, and an absent boolean as `false`.
    #[must_use]
    pub fn matches(&self, object: &Value) -> bool {
        self.tests.iter().all(|(path, wanted, equal)| {
            let steps: Vec<_> = path.iter().map(String::as_str).collect();
            let is_flag = matches!(steps.last(), Some(&("unschedulable" | "hostNetwork")));
            let actual = match object::at(object, &steps) {
                Some(Value::String(text)) => text.clone(),
                Some(Value::Bool(flag)) => flag.to_string(),
                Some(Value::Number(number)) => number.to_string(),
                _ if is_flag => "false".to_owned(),
                _ => String::new(),
            };
            (actual == *wanted) == *equal
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{FieldSelector, LabelSelector};
    use crate::apiserver::resources::ResourceId;
    use serde_json::{Value, json};

    fn selects(selector: &str, labels: &Value) -> bool {
        LabelSelector::parse(selector).unwrap().matches(&json!({"metadata": {"labels": labels}}))
    }

    #[test]
    fn label_selectors_in_text() {
        let labels = json!({"app": "web", "tier": "7"});
        for selector in
            ["", "app=web", "app==web,tier", "app in (api, web),!gone", "tier>6,tier<8", "app!=api", "x notin (y)"]
        {
            assert!(selects(selector, &labels), "{selector}");
        }
        for selector in ["app=api", "gone", "!app", "app notin (web)", "tier>7", "app in (api)", "app=web,gone"] {
            assert!(!selects(selector, &labels), "{selector}");
        }
    }

    #[test]
    fn label_selectors_that_do_not_parse() {
        for selector in ["a in b", "a in (b", "=b", "a=b=c d", "a near (b)"] {
            assert_eq!(LabelSelector::parse(selector).unwrap_err().code, 400, "{selector}");
        }
    }

    #[test]
    fn an_absent_selector_object_selects_nothing_and_an_empty_one_everything() {
        let object = json!({"metadata": {"labels": {"a": "b"}}});
        assert!(!LabelSelector::of_object(None).matches(&object));
        assert!(LabelSelector::of_object(Some(&json!({}))).matches(&object));
        let both = json!({"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "c", "operator": "DoesNotExist"}]});
        assert!(LabelSelector::of_object(Some(&both)).matches(&object));
        let unknown = json!({"matchExpressions": [{"key": "a", "operator": "Near", "values": ["b"]}]});
        assert!(!LabelSelector::of_object(Some(&unknown)).matches(&object));
    }

    #[test]
    fn field_selectors() {
        let pods = ResourceId::PODS.get();
        let pod = json!({"metadata": {"name": "a"}, "spec": {}, "status": {"phase": "Pending"}});
        for (selector, expected) in [
            ("metadata.name=a", true),
            ("spec.nodeName=", true),
            ("spec.nodeName!=", false),
            ("status.phase!=Running,metadata.name==a", true),
            ("spec.hostNetwork=false", true),
        ] {
            assert_eq!(FieldSelector::parse(selector, pods).unwrap().matches(&pod), expected, "{selector}");
        }
        assert_eq!(FieldSelector::parse("spec.color=red", pods).unwrap_err().code, 400);
        assert_eq!(FieldSelector::parse("metadata.name", pods).unwrap_err().code, 400);
    }
}
