//! Subresources with logic of their own: eviction, binding, scale.

use super::{DeleteOptions, Deleted, Key, Object, Part, Store, Write};
use crate::apiserver::error::ApiError;
use crate::apiserver::object;
use crate::apiserver::patch::Patch;
use crate::apiserver::resources::{Resource, ResourceId, Scale};
use crate::apiserver::selector::LabelSelector;
use serde_json::{Value, json};

/// Retry delay in seconds if the disruption controller lags behind the budget's spec.
const BUDGET_LAG_RETRY_SECONDS: u32 = 10;
/// Maximum length of a budget's `disruptedPods`. A longer list means that the disruption controller is not running.
const DISRUPTED_PODS_MAX: usize = 2000;

/// An eviction request.
#[derive(Debug, Clone, Default)]
pub struct Eviction {
    /// Options for the deletion of the pod, if its budget allows the eviction.
    pub options: DeleteOptions,
}

impl Store {
    /// Evicts a pod: deletes it if its disruption budget allows a disruption, and counts the disruption against the
    /// budget.
    ///
    /// # Errors
    /// 404 if the pod does not exist; 409 if a precondition fails; 429 if the budget allows no disruption or is not up
    /// to date; 403 if the status of the budget is invalid or stale; 500 if several budgets select the pod.
    pub fn evict(
        &mut self,
        namespace: &str,
        name: &str,
        eviction: &Eviction,
        write: &Write<'_>,
    ) -> Result<Deleted, ApiError> {
        let pod = self.get(ResourceId::PODS, namespace, name)?;
        if let Some(uid) = &eviction.options.uid
            && uid != object::uid(&pod)
        {
            return Err(ApiError::conflict(
                ResourceId::PODS.get(),
                name,
                "the UID in the precondition is that of another pod",
            ));
        }
        if !is_unbudgeted(&pod) {
            let budgets: Vec<Object> = self
                .all(ResourceId::POD_DISRUPTION_BUDGETS)
                .filter(|(key, budget)| key.namespace == namespace && selects(budget, &pod))
                .map(|(_, budget)| budget.clone())
                .collect();
            match budgets.as_slice() {
                [] => {}
                [budget] => self.take_room(budget, &pod, write)?,
                _ => {
                    return Err(ApiError::internal(
                        "more than one PodDisruptionBudget selects this pod, which eviction does not support",
                    ));
                }
            }
        }
        self.delete(ResourceId::PODS, namespace, name, &eviction.options, write)
    }

    fn take_room(&mut self, budget: &Value, pod: &Value, write: &Write<'_>) -> Result<(), ApiError> {
        let number = |field| object::integer(budget, &["status", field]).unwrap_or(0);
        let (healthy, desired, allowed) =
            (number("currentHealthy"), number("desiredHealthy"), number("disruptionsAllowed"));
        if !object::condition_is_true(pod, "Ready") {
            let always = object::text(budget, &["spec", "unhealthyPodEvictionPolicy"]) == "AlwaysAllow";
            if always || (desired > 0 && healthy >= desired) {
                return Ok(());
            }
        }
        let name = object::name(budget);
        if number("observedGeneration") < object::generation(budget) {
            let message = format!("The disruption budget {name} is still being processed by the server.");
            return Err(ApiError::disruption_budget(&message, Some(BUDGET_LAG_RETRY_SECONDS)));
        }
        let disrupted =
            object::at(budget, &["status", "disruptedPods"]).and_then(Value::as_object).map_or(0, serde_json::Map::len);
        if allowed < 0 || disrupted > DISRUPTED_PODS_MAX {
            let why = "the status of its disruption budget makes no sense or is not kept up";
            return Err(ApiError::forbidden(ResourceId::PODS.get(), object::name(pod), why));
        }
        if allowed == 0 {
            let message =
                format!("The disruption budget {name} needs {desired} healthy pods and has {healthy} currently");
            return Err(ApiError::disruption_budget(&message, None));
        }
        let mut new = budget.clone();
        new["status"]["disruptionsAllowed"] = json!(allowed - 1);
        object::set(&mut new, &["status", "disruptedPods", object::name(pod)], json!(object::time(write.now)));
        self.update(ResourceId::POD_DISRUPTION_BUDGETS, object::namespace(budget), name, Part::Status, new, write)?;
        Ok(())
    }

    /// Binds a pod to a node, as a scheduler does.
    ///
    /// # Errors
    /// 404 if the pod does not exist; 409 if the pod is already bound, is terminating, has scheduling gates, or has
    /// another UID.
    pub fn bind(
        &mut self,
        namespace: &str,
        name: &str,
        uid: Option<&str>,
        node: &str,
        write: &Write<'_>,
    ) -> Result<(), ApiError> {
        let key = Key::new(namespace, name);
        let old = self.stored(ResourceId::PODS, &key)?;
        let refuse = |why: &str| Err(ApiError::conflict(ResourceId::PODS.get(), name, why));
        if uid.is_some_and(|uid| uid != object::uid(&old.object)) {
            return refuse("the UID in the precondition is that of another pod");
        }
        if object::is_deleting(&old.object) {
            return refuse("the pod is being deleted and cannot be assigned to a node");
        }
        let assigned = object::text(&old.object, &["spec", "nodeName"]);
        if !assigned.is_empty() {
            return refuse(&format!("the pod is already assigned to node {assigned:?}"));
        }
        if !object::items(&old.object, &["spec", "schedulingGates"]).is_empty() {
            return refuse("the pod has scheduling gates");
        }
        if write.dry_run {
            return Ok(());
        }
        let mut new = (*old.object).clone();
        object::set(&mut new, &["spec", "nodeName"], json!(node));
        object::remove(&mut new, &["status", "nominatedNodeName"]);
        object::set_condition(&mut new, json!({"type": "PodScheduled", "status": "True"}), write.now);
        self.put(ResourceId::PODS, key, new, (*old.owners).clone());
        Ok(())
    }

    /// Returns the scale of an object.
    ///
    /// # Errors
    /// 404 if the object does not exist or its kind has no scale.
    pub fn scale(&self, resource: ResourceId, namespace: &str, name: &str) -> Result<Value, ApiError> {
        let (row, scale) = scale_of(resource)?;
        Ok(scale_object(row, scale, &*self.get(resource, namespace, name)?))
    }

    /// Sets the desired replica count from a `Scale` object.
    ///
    /// # Errors
    /// 400 if the replica count is missing or negative; 404 if the object does not exist or its kind has no scale; 409
    /// on a conflict.
    pub fn set_scale(
        &mut self,
        resource: ResourceId,
        namespace: &str,
        name: &str,
        body: &Value,
        write: &Write<'_>,
    ) -> Result<Value, ApiError> {
        let (row, scale) = scale_of(resource)?;
        let replicas = object::integer(body, &["spec", "replicas"]).filter(|replicas| *replicas >= 0);
        let replicas =
            replicas.ok_or_else(|| ApiError::bad_request("spec.replicas: a number of at least 0 is required"))?;
        let mut patch = json!({});
        object::set(&mut patch, scale.spec, json!(replicas));
        for field in ["uid", "resourceVersion"] {
            if let Some(value) = object::at(body, &["metadata", field]) {
                object::set(&mut patch, &["metadata", field], value.clone());
            }
        }
        let new = self.patch(resource, namespace, name, Part::Main, &Patch::Merge(patch), write)?;
        Ok(scale_object(row, scale, &new))
    }

    /// Patches the scale of an object.
    ///
    /// # Errors
    /// As [`Store::set_scale`]; 415 for an apply patch.
    pub fn patch_scale(
        &mut self,
        resource: ResourceId,
        namespace: &str,
        name: &str,
        patch: &Patch,
        write: &Write<'_>,
    ) -> Result<Value, ApiError> {
        if matches!(patch, Patch::Apply { .. }) {
            return Err(ApiError::unsupported_media_type("application/merge-patch+json, application/json-patch+json"));
        }
        let new = patch.applied(resource.get(), &self.scale(resource, namespace, name)?)?;
        self.set_scale(resource, namespace, name, &new, write)
    }
}

fn scale_of(resource: ResourceId) -> Result<(&'static Resource, Scale), ApiError> {
    let row = resource.get();
    row.scale.map(|scale| (row, scale)).ok_or_else(ApiError::no_such_path)
}

fn scale_object(row: &Resource, scale: Scale, owner: &Value) -> Value {
    let number = |path| object::integer(owner, path).unwrap_or(0);
    let metadata: serde_json::Map<String, Value> = ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"]
        .iter()
        .filter_map(|field| Some(((*field).to_owned(), object::at(owner, &["metadata", field])?.clone())))
        .collect();
    let mut object = json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata,
        "spec": {"replicas": number(scale.spec)}, "status": {"replicas": number(scale.status)},
    });
    let labels = scale.selector.and_then(|path| object::at(owner, path)?.get("matchLabels")?.as_object());
    if let Some(labels) = labels.filter(|_| !row.custom) {
        let pairs: Vec<_> =
            labels.iter().filter_map(|(key, value)| Some(format!("{key}={}", value.as_str()?))).collect();
        object["status"]["selector"] = json!(pairs.join(","));
    }
    object
}

/// Whether budgets ignore the pod: it has not started, has finished or is terminating.
fn is_unbudgeted(pod: &Value) -> bool {
    matches!(object::text(pod, &["status", "phase"]), "Pending" | "Succeeded" | "Failed") || object::is_deleting(pod)
}

fn selects(budget: &Value, pod: &Value) -> bool {
    LabelSelector::of_object(object::at(budget, &["spec", "selector"])).matches(pod)
}
