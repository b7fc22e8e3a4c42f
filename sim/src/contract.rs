//! Tests of the Kubernetes API server behavior that the project relies on.
//!
//! Both the in-memory server and a real API server run these tests, so that their behaviour stays the same. The tests
//! use their own namespace and prefix the names of cluster-scoped objects with its name. A scheduler and controllers
//! may run at the same time.

mod objects;
mod patches;
mod pods;
mod watches;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, ServiceAccount};
use kube::api::{Api, DeleteParams, PostParams};
use kube::{Client, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::future::Future;
use std::time::Duration;

/// Time limit for background work of a server or its controllers. It is generous because a real server may be busy.
const PATIENCE: Duration = Duration::from_secs(90);
/// Polling interval.
const POLL: Duration = Duration::from_millis(200);

/// Why a test failed.
#[derive(Debug)]
struct Failure(String);

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        Self(error.to_string())
    }
}

type Check<T = ()> = Result<T, Failure>;

macro_rules! ensure {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err(crate::contract::Failure(format!($($message)+)));
        }
    };
}
use ensure;

/// Environment of the tests.
struct TestContext {
    client: Client,
    namespace: String,
}

impl TestContext {
    fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = kube::core::NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Name for a cluster-scoped object.
    fn global(&self, name: &str) -> String {
        format!("{}-{name}", self.namespace)
    }

    async fn config_map(&self, name: &str, data: Value) -> Check<ConfigMap> {
        let map = object(json!({"metadata": {"name": name}, "data": data}))?;
        Ok(self.api().create(&PostParams::default(), &map).await?)
    }
}

fn object<K: DeserializeOwned>(value: Value) -> Check<K> {
    Ok(serde_json::from_value(value)?)
}

/// HTTP status code that a call failed with.
fn code<T>(result: kube::Result<T>) -> Check<u16> {
    match result {
        Err(kube::Error::Api(status)) => Ok(status.code),
        Err(error) => Err(error.into()),
        Ok(_) => Err(Failure("the call succeeded".to_owned())),
    }
}

/// Polls until a condition holds.
async fn eventually<F: Future<Output = Check<bool>>>(what: &str, mut look: impl FnMut() -> F) -> Check {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while tokio::time::Instant::now() < deadline {
        if look().await? {
            return Ok(());
        }
        tokio::time::sleep(POLL).await;
    }
    Err(Failure(format!("not within {} s: {what}", PATIENCE.as_secs())))
}

/// Runs all tests sequentially and returns the name and result of each.
///
/// The client should not retry on its own: some tests provoke a 429.
pub async fn all(client: Client) -> Vec<(&'static str, Result<(), String>)> {
    let mut results = Vec::new();
    let context = match prepare(client).await {
        Ok(context) => context,
        Err(Failure(why)) => return vec![("prepare", Err(why))],
    };
    macro_rules! run {
        ($($module:ident :: $test:ident),* $(,)?) => {
            $(results.push((stringify!($test), $module::$test(&context).await.map_err(|Failure(why)| why)));)*
        };
    }
    run![
        objects::creates_reads_and_refuses_a_second,
        objects::completes_generated_names,
        objects::refuses_objects_of_no_namespace,
        objects::refuses_updates_from_an_older_version,
        objects::ignores_updates_that_change_nothing,
        objects::tries_without_doing,
        objects::selects_by_labels_and_fields,
        objects::lists_in_pages_of_one_moment,
        objects::keeps_an_object_until_its_finalizers_are_gone,
        objects::deletes_only_the_object_meant,
        objects::deletes_collections,
        objects::shows_metadata_alone,
        objects::shows_events_under_both_groups,
        objects::taints_new_nodes,
        objects::collects_what_lost_its_owner,
        patches::merges,
        patches::merges_keyed_lists,
        patches::patches_by_json_pointer,
        patches::applies_and_takes_back,
        patches::guards_what_others_own,
        patches::separates_status_from_the_rest,
        patches::scales,
        patches::treats_custom_resources_by_their_own_rules,
        watches::follows_from_a_list,
        watches::resumes_where_it_was_cut,
        watches::shows_what_enters_and_leaves_a_selection,
        watches::streams_a_list,
        watches::feeds_the_watcher_of_kube,
        pods::binds_once,
        pods::keeps_the_phase_if_only_a_nomination_is_applied,
        pods::gives_bound_pods_their_grace,
        pods::refuses_changes_to_what_runs,
        pods::evicts_within_the_budget,
        pods::refuses_evictions_beyond_the_budget,
        pods::evicts_what_no_budget_guards,
    ];
    if let Err(Failure(why)) = clean_up(&context).await {
        results.push(("clean_up", Err(why)));
    }
    results
}

async fn prepare(client: Client) -> Check<TestContext> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let wanted = object(json!({"metadata": {"generateName": "contract-"}}))?;
    let namespace = namespaces.create(&PostParams::default(), &wanted).await?.name_any();
    let context = TestContext { client, namespace };
    // Pods need the service account. If a controller creates it too, either may be first.
    let account: ServiceAccount = object(json!({"metadata": {"name": "default"}}))?;
    match context.api().create(&PostParams::default(), &account).await {
        Err(kube::Error::Api(status)) if status.is_already_exists() => {}
        other => drop(other?),
    }
    Ok(context)
}

async fn clean_up(context: &TestContext) -> Check {
    let namespaces: Api<Namespace> = Api::all(context.client.clone());
    namespaces.delete(&context.namespace, &DeleteParams::default()).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::apiserver::ApiServer;
    use crate::clock;
    use crate::kube::{GarbageCollector, spawn};

    #[tokio::test(start_paused = true)]
    async fn the_server_in_memory_keeps_the_contract() {
        let server = ApiServer::new(1, clock::usual());
        let _collector = spawn(&server, GarbageCollector::boxed());
        let results = super::all(server.client("contract")).await;
        let failed: Vec<_> = results.iter().filter(|(_, result)| result.is_err()).collect();
        assert!(failed.is_empty(), "{failed:#?}");
        assert!(results.len() > 30, "only {} tests ran", results.len());
    }
}
