//! Parses HTTP requests: path, query and verb.

use super::error::ApiError;
use super::events;
use super::resources::ResourceId;
use super::selector::{FieldSelector, LabelSelector};
use super::store::Filter;
use http::Method;
use std::collections::BTreeMap;

/// Request verb, as in Kubernetes audit and authorization.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verb {
    /// Reads one object.
    Get,
    /// Lists objects.
    List,
    /// Watches changes.
    Watch,
    /// Creates an object, or posts to a subresource.
    Create,
    /// Replaces an object.
    Update,
    /// Patches an object.
    Patch,
    /// Deletes one object.
    Delete,
    /// Deletes a collection of objects.
    DeleteCollection,
}

impl Verb {
    /// Whether the verb can change objects.
    #[must_use]
    pub fn is_write(self) -> bool {
        !matches!(self, Self::Get | Self::List | Self::Watch)
    }
}

/// Parsed path of an object or a collection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Kind, as in the path.
    pub resource: ResourceId,
    /// Namespace. Empty for cluster-scoped kinds and for lists over all namespaces.
    pub namespace: String,
    /// Object name. Empty for collections.
    pub name: String,
    /// Subresource. Empty for the object itself.
    pub subresource: String,
}

/// A parsed path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Route {
    /// An object or a collection.
    Target(Target),
    /// Segments of any other path: version, discovery, health.
    Other(Vec<String>),
}

impl Route {
    /// Parses a path.
    ///
    /// # Errors
    /// 404 if the kind is not served.
    pub fn parse(path: &str) -> Result<Self, ApiError> {
        let parts: Vec<String> = path.split('/').filter(|part| !part.is_empty()).map(decode).collect();
        let texts: Vec<&str> = parts.iter().map(String::as_str).collect();
        let (group, version, rest) = match texts.as_slice() {
            ["api", version, rest @ ..] if !rest.is_empty() => ("", *version, rest),
            ["apis", group, version, rest @ ..] if !rest.is_empty() => (*group, *version, rest),
            _ => return Ok(Self::Other(parts)),
        };
        let find = |plural: &str| ResourceId::find(group, version, plural).ok_or_else(ApiError::no_such_path);
        let target = |plural: &str, namespace: &str, rest: &[&str]| -> Result<Self, ApiError> {
            let resource = find(plural)?;
            let [name, subresource] = match rest {
                [] => ["", ""],
                [name] => [*name, ""],
                [name, subresource] => [*name, *subresource],
                _ => return Err(ApiError::no_such_path()),
            };
            if !resource.get().namespaced && !namespace.is_empty() {
                return Err(ApiError::no_such_path());
            }
            let [namespace, name, subresource] = [namespace, name, subresource].map(str::to_owned);
            Ok(Self::Target(Target { resource, namespace, name, subresource }))
        };
        match rest {
            ["namespaces", name, subresource @ ("status" | "finalize")] => {
                target("namespaces", "", &[name, subresource])
            }
            ["namespaces", namespace, plural, rest @ ..] => target(plural, namespace, rest),
            [plural, rest @ ..] => {
                let resource = find(plural)?;
                if resource.get().namespaced && !rest.is_empty() {
                    return Err(ApiError::no_such_path());
                }
                target(plural, "", rest)
            }
            [] => Err(ApiError::no_such_path()),
        }
    }
}

/// Query parameters.
#[derive(Debug, Clone, Default)]
pub struct Query(BTreeMap<String, String>);

impl Query {
    /// Parses a query string. The last value of a repeated parameter wins.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let pairs = text.split('&').filter(|pair| !pair.is_empty());
        Self(
            pairs
                .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
                .map(|(key, value)| (decode(key), decode(value)))
                .collect(),
        )
    }

    /// Value of a parameter; empty if it is missing.
    #[must_use]
    pub fn get(&self, name: &str) -> &str {
        self.0.get(name).map(String::as_str).unwrap_or_default()
    }

    /// Whether a boolean parameter is true.
    #[must_use]
    pub fn is_set(&self, name: &str) -> bool {
        matches!(self.get(name), "true" | "1" | "True")
    }

    /// Value of a numeric parameter; `None` if it is missing.
    ///
    /// # Errors
    /// 400 if it is not a number.
    pub fn number(&self, name: &str) -> Result<Option<u64>, ApiError> {
        match self.get(name) {
            "" => Ok(None),
            text => {
                text.parse().map(Some).map_err(|_| ApiError::bad_request(format!("{name}: {text:?} is not a number")))
            }
        }
    }

    /// Filter for the objects of `target` that the request selects.
    ///
    /// # Errors
    /// 400 if a selector does not parse.
    pub fn filter(&self, target: &Target) -> Result<Filter, ApiError> {
        let mut fields = self.get("fieldSelector").to_owned();
        let stored = events::storage(target.resource);
        if stored != target.resource {
            fields =
                fields.replace("regarding.", "involvedObject.").replace("reportingController", "reportingComponent");
        }
        let mut filter = Filter {
            namespace: (!target.namespace.is_empty()).then(|| target.namespace.clone()),
            labels: LabelSelector::parse(self.get("labelSelector"))?,
            fields: FieldSelector::parse(&fields, stored.get())?,
        };
        if !target.name.is_empty() {
            filter.fields = FieldSelector::parse(&format!("metadata.name={}", target.name), stored.get())?;
        }
        Ok(filter)
    }
}

/// Determines the verb of a request.
///
/// # Errors
/// 405 if the path does not support the method.
pub fn verb(method: &Method, target: &Target, query: &Query) -> Result<Verb, ApiError> {
    let one = !target.name.is_empty();
    Ok(match *method {
        Method::GET if query.is_set("watch") => Verb::Watch,
        Method::GET if one => Verb::Get,
        Method::GET => Verb::List,
        Method::POST => Verb::Create,
        Method::PUT if one => Verb::Update,
        Method::PATCH if one => Verb::Patch,
        Method::DELETE if one => Verb::Delete,
        Method::DELETE => Verb::DeleteCollection,
        _ => return Err(ApiError::method_not_allowed()),
    })
}

/// Decodes percent encoding, and `+` as a space. Invalid sequences stay as they are.
fn decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let escaped =
            text.get(at + 1..at + 3).filter(|_| *byte == b'%').and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match escaped {
            Some(value) => {
                decoded.push(value);
                at += 3;
            }
            None => {
                decoded.push(if *byte == b'+' { b' ' } else { *byte });
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

#[cfg(test)]
mod tests {
    use super::{Query, Route, Target, Verb, verb};
    use crate::apiserver::resources::ResourceId;
    use http::Method;

    fn target(path: &str) -> Target {
        match Route::parse(path).unwrap() {
            Route::Target(target) => target,
            Route::Other(parts) => panic!("{parts:?}"),
        }
    }

    #[test]
    fn paths() {
        for (path, resource, namespace, name, subresource) in [
            ("/api/v1/pods", ResourceId::PODS, "", "", ""),
            ("/api/v1/namespaces/a/pods/b/eviction", ResourceId::PODS, "a", "b", "eviction"),
            ("/api/v1/nodes/n/status", ResourceId::NODES, "", "n", "status"),
            ("/api/v1/namespaces/a", ResourceId::NAMESPACES, "", "a", ""),
            ("/api/v1/namespaces/a/status", ResourceId::NAMESPACES, "", "a", "status"),
            ("/apis/karpenter.sh/v1/nodeclaims/c", ResourceId::NODE_CLAIMS, "", "c", ""),
            ("/apis/coordination.k8s.io/v1/namespaces/x/leases", ResourceId::LEASES, "x", "", ""),
        ] {
            let [namespace, name, subresource] = [namespace, name, subresource].map(str::to_owned);
            assert_eq!(target(path), Target { resource, namespace, name, subresource }, "{path}");
        }
        for path in [
            "/apis/karpenter.sh/v1/namespaces/x/nodeclaims",
            "/api/v1/pods/x",
            "/api/v1/wishes",
            "/apis/apps/v1/namespaces/a/deployments/b/c/d",
        ] {
            assert_eq!(Route::parse(path).unwrap_err().code, 404, "{path}");
        }
        assert!(
            matches!(Route::parse("/apis/apps/v1").unwrap(), Route::Other(parts) if parts == ["apis", "apps", "v1"])
        );
    }

    #[test]
    fn queries_are_decoded() {
        let query = Query::parse("labelSelector=a+in+%28b%2Cc%29&watch=true&limit=5");
        assert_eq!(query.get("labelSelector"), "a in (b,c)");
        assert_eq!(query.number("limit").unwrap(), Some(5));
        assert_eq!(verb(&Method::GET, &target("/api/v1/pods"), &query).unwrap(), Verb::Watch);
        assert_eq!(Query::parse("limit=x").number("limit").unwrap_err().code, 400);
    }
}
