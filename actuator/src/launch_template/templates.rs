//! Launch templates in EC2: created on demand, deleted when unused for a while.

use crate::clock::Timestamped;
use crate::fencing::NotAllowed;
use crate::io::{CloudCalls, CloudReads, WriteError, delete_each};
use crate::pacing::interval_passed;
use crate::ports::{CloudError, LaunchTemplate, LaunchTemplateFilter, LaunchTemplateSpec, Tags};
use crate::settings::Settings;
use crate::stores::Stores;
use parking_lot::Mutex;
use plimsoll_model::names::{annotation, tag};
use plimsoll_model::time::{Millis, Timestamp};
use plimsoll_runtime::clock::Clock;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How long a template is assumed to exist without asking EC2 again. If someone else deletes it, a launch loses one
/// attempt.
const TRUST_PERIOD: Millis = Millis::from_seconds(60);
/// A template unused for this long is deleted. Longer than a request may be sent again.
const DELETE_UNUSED_AFTER: Millis = Millis::from_seconds(900);
/// How long a template is asked for while EC2 throttles, does not answer, or does not show it yet. The pods stay
/// reserved meanwhile; longer than EC2 takes to show a new template.
const ENSURE_WITHIN: Duration = Duration::from_secs(120);
/// First pause before a template is asked for again. Doubles up to [`LAST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LAST_PAUSE: Duration = Duration::from_secs(10);
/// Interval between clean-ups. Unused templates cost nothing, but count against the account's limit of 5,000.
const CLEANUP_PERIOD: Duration = Duration::from_secs(300);

/// Known templates and when each was last used. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct KnownTemplates {
    known: Arc<Mutex<BTreeMap<String, KnownTemplate>>>,
}

/// Dependencies of the management of launch templates.
#[derive(Clone)]
pub struct LaunchTemplates {
    /// Templates that are known to exist.
    pub templates: KnownTemplates,
    /// Watch cache of the cluster.
    pub stores: Stores,
    /// Calls to the cloud.
    pub cloud: CloudCalls,
    /// Reads of the cloud.
    pub cloud_reads: CloudReads,
    /// Settings of the installation.
    pub settings: Arc<Settings>,
    /// Time.
    pub clock: Clock,
}

#[derive(Debug, Clone, Default)]
struct KnownTemplate {
    /// The template as EC2 returned it, and when; `None` if it was only listed.
    seen: Option<(LaunchTemplate, Timestamp)>,
    used: Timestamp,
    /// Held by the launch that asks EC2 for the template; others wait for its answer.
    turn: Arc<tokio::sync::Mutex<()>>,
}

impl KnownTemplate {
    fn used_at(now: Timestamp) -> Self {
        Self { used: now, ..Self::default() }
    }
}

/// Why a launch template cannot be ensured.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EnsureError {
    /// The fence refuses.
    #[error(transparent)]
    NotAllowed(#[from] NotAllowed),
    /// EC2 returned an error.
    #[error(transparent)]
    Cloud(#[from] CloudError),
}

impl KnownTemplates {
    /// Forgets templates that EC2 reported as missing, so that the next launch asks EC2.
    pub fn forget(&self, names: &[String]) {
        let mut templates = self.known.lock();
        for name in names {
            if let Some(template) = templates.get_mut(name) {
                template.seen = None;
            }
        }
    }

    /// Records a use. Returns the template if it was seen recently.
    fn used(&self, name: &str, now: Timestamp) -> Option<LaunchTemplate> {
        let mut templates = self.known.lock();
        let entry = templates.entry(name.to_owned()).or_default();
        entry.used = now;
        let (template, seen) = entry.seen.as_ref()?;
        (now.since(*seen) < TRUST_PERIOD).then(|| template.clone())
    }

    fn record_seen(&self, template: &LaunchTemplate, now: Timestamp) {
        let mut templates = self.known.lock();
        let entry = templates.entry(template.name.clone()).or_default();
        (entry.seen, entry.used) = (Some((template.clone(), now)), now);
    }

    fn turn(&self, name: &str) -> Arc<tokio::sync::Mutex<()>> {
        Arc::clone(&self.known.lock().entry(name.to_owned()).or_default().turn)
    }

    /// Templates in `listed` that can be deleted. A template that this process sees for the first time counts as used
    /// now, since a former leader may have used it.
    fn unused(&self, listed: &[LaunchTemplate], needed: &BTreeSet<String>, now: Timestamp) -> Vec<String> {
        let mut templates = self.known.lock();
        let exists: BTreeSet<&str> = listed.iter().map(|template| template.name.as_str()).collect();
        templates.retain(|name, templates| {
            exists.contains(name.as_str()) || now.since(templates.used) < DELETE_UNUSED_AFTER
        });
        let mut unused = Vec::new();
        for template in listed {
            let entry = templates.entry(template.name.clone()).or_insert_with(|| KnownTemplate::used_at(now));
            if needed.contains(&template.name) {
                entry.used = now;
            } else if now.since(entry.used) >= DELETE_UNUSED_AFTER {
                unused.push(template.name.clone());
            }
        }
        unused
    }
}

impl EnsureError {
    /// Whether the next call may succeed: EC2 is busy or has not answered, or the lease is about to be renewed.
    fn is_passing(&self) -> bool {
        match self {
            Self::Cloud(error) => {
                matches!(error, CloudError::Throttled | CloudError::Unavailable { .. } | CloudError::Ambiguous { .. })
            }
            Self::NotAllowed(error) => matches!(error, NotAllowed::TimedOut(_) | NotAllowed::NotLeader),
        }
    }
}

/// Returns the template of a launch; creates it if it is missing. Launches with the same template share one call.
///
/// # Errors
/// The fence refuses, or EC2 returns an error that does not pass within `ENSURE_WITHIN`.
pub async fn ensure(deps: &LaunchTemplates, spec: &LaunchTemplateSpec) -> Result<LaunchTemplate, EnsureError> {
    let (started, mut pause) = (Instant::now(), FIRST_PAUSE);
    let turn = deps.templates.turn(&spec.name);
    let _turn = turn.lock().await;
    loop {
        if let Some(template) = deps.templates.used(&spec.name, deps.clock.timestamp()) {
            return Ok(template);
        }
        let error = match deps.cloud.ensure_launch_template(spec).await {
            Ok(Ok(template)) => {
                deps.templates.record_seen(&template, deps.clock.timestamp());
                return Ok(template);
            }
            Ok(Err(error)) => EnsureError::from(error),
            Err(error) => EnsureError::from(error),
        };
        if !error.is_passing() || started.elapsed() >= ENSURE_WITHIN {
            return Err(error);
        }
        tracing::info!(name = spec.name, %error, "launch template not ready, asking again in {pause:?}");
        tokio::time::sleep(pause).await;
        pause = pause.saturating_mul(2).min(LAST_PAUSE);
    }
}

/// Periodically deletes templates of this cluster that no launch uses any more.
pub async fn cleanup(deps: LaunchTemplates, stop: CancellationToken) {
    while interval_passed(&stop, CLEANUP_PERIOD).await {
        if let Err(error) = clean(&deps).await {
            tracing::warn!(%error, "unused launch templates not deleted, retrying");
        }
    }
}

async fn clean(deps: &LaunchTemplates) -> Result<(), WriteError> {
    let listed = deps.cloud_reads.launch_templates(&ours(&deps.settings.cluster_name)).await?;
    let unused = deps.templates.unused(&listed, &needed(&deps.stores, &listed), deps.clock.timestamp());
    delete(deps, &unused).await
}

/// Deletes all templates created for a node class.
///
/// # Errors
/// The fence refuses, or EC2 returns an error.
pub(crate) async fn delete_of_class(deps: &LaunchTemplates, node_class: &str) -> Result<(), WriteError> {
    let mut filter = ours(&deps.settings.cluster_name);
    filter.tags.insert(tag::EC2_NODE_CLASS.to_owned(), node_class.to_owned());
    let listed = deps.cloud_reads.launch_templates(&filter).await?;
    let names: Vec<String> = listed.into_iter().map(|template| template.name).collect();
    delete(deps, &names).await
}

/// Deletes templates by name.
async fn delete(deps: &LaunchTemplates, names: &[String]) -> Result<(), WriteError> {
    delete_each(names, |name| async move {
        deps.cloud.delete_launch_template(name).await?;
        deps.templates.forget(std::slice::from_ref(name));
        tracing::info!(%name, "deleted an unused launch template");
        Ok::<_, WriteError>(())
    })
    .await
}

/// Templates that a stored request names, since the request may be sent again byte for byte (safety rule 3).
fn needed(stores: &Stores, listed: &[LaunchTemplate]) -> BTreeSet<String> {
    let claims = stores.claims.state();
    let requests: Vec<&String> = claims
        .iter()
        .filter(|claim| claim.provider_id().is_none())
        .filter_map(|claim| claim.metadata.annotations.as_ref()?.get(annotation::LAUNCH_REQUEST))
        .collect();
    let names = listed.iter().map(|template| &template.name);
    names.filter(|name| requests.iter().any(|request| request.contains(name.as_str()))).cloned().collect()
}

/// Templates of this cluster that Plimsoll created.
fn ours(cluster: &str) -> LaunchTemplateFilter {
    let tags: Tags = [
        (format!("{}{cluster}", tag::CLUSTER_PREFIX), "owned".to_owned()),
        (tag::OWNER.to_owned(), annotation::OWNER_VALUE.to_owned()),
    ]
    .into();
    LaunchTemplateFilter { tags }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_api::NodeClaim;
    use serde_json::json;

    const START: Timestamp = Timestamp(1_000_000);

    fn template(name: &str) -> LaunchTemplate {
        LaunchTemplate { name: name.to_owned(), id: "lt-1".to_owned(), version: 1, tags: Tags::new() }
    }

    #[test]
    fn template_is_trusted_for_a_minute_unless_forgotten() {
        let templates = KnownTemplates::default();
        assert_eq!(templates.used("a", START), None);
        templates.record_seen(&template("a"), START);
        assert_eq!(templates.used("a", START.plus(Millis(59_999))), Some(template("a")));
        assert_eq!(templates.used("a", START.plus(TRUST_PERIOD)), None);
        templates.forget(&["a".to_owned()]);
        assert_eq!(templates.used("a", START), None);
    }

    /// The list of EC2 may not show a new template yet.
    #[test]
    fn the_use_of_a_template_counts_before_it_is_listed() {
        let later = |millis: u64| START.plus(Millis(millis));
        for (unlisted, deletable) in [(100, DELETE_UNUSED_AFTER.0), (DELETE_UNUSED_AFTER.0, 2 * DELETE_UNUSED_AFTER.0)]
        {
            let (templates, none) = (KnownTemplates::default(), BTreeSet::new());
            let listed = [template("a")];
            templates.used("a", START);
            assert_eq!(templates.unused(&[], &none, later(unlisted)), [""; 0]);
            assert_eq!(templates.unused(&listed, &none, later(unlisted)), [""; 0], "it counts as used then, or now");
            assert_eq!(templates.unused(&listed, &none, later(deletable - 1)), [""; 0]);
            assert_eq!(templates.unused(&listed, &none, later(deletable)), ["a"], "{unlisted}");
        }
    }

    /// The request of a claim without an instance may be sent again byte for byte.
    #[test]
    fn templates_are_needed_that_a_request_without_an_instance_names() {
        let claim = |name: &str, template: &str, provider_id: Option<&str>| -> NodeClaim {
            let class = json!({"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"});
            let request = format!(r#"{{"launch_template_name":"{template}"}}"#);
            let claim = json!({
                "metadata": {"name": name, "annotations": {annotation::LAUNCH_REQUEST: request}},
                "spec": {"nodeClassRef": class, "requirements": []}, "status": {"providerID": provider_id},
            });
            serde_json::from_value(claim).unwrap()
        };
        let claims = [claim("waits", "wanted", None), claim("launched", "over", Some("aws:///a/i-1"))];
        let listed = ["over", "wanted", "other"].map(template);
        assert_eq!(needed(&Stores::of_claims(claims), &listed), ["wanted".to_owned()].into());
    }

    /// Of other clusters, and of others in this cluster, none is deleted.
    #[test]
    fn only_templates_of_this_cluster_that_plimsoll_created_are_ours() {
        let tags = [("kubernetes.io/cluster/demo", "owned"), ("plimsoll.dev/owner", "plimsoll")];
        assert_eq!(ours("demo").tags, tags.map(|(key, value)| (key.to_owned(), value.to_owned())).into());
    }

    #[test]
    fn a_launch_waits_only_for_what_passes() {
        let text = String::new;
        for (error, expected) in [
            (EnsureError::from(CloudError::Throttled), true),
            (CloudError::Unavailable { message: text() }.into(), true),
            (CloudError::Ambiguous { message: text() }.into(), true),
            (CloudError::Denied { message: text() }.into(), false),
            (CloudError::InvalidRequest { code: text(), message: text() }.into(), false),
            (NotAllowed::TimedOut(Duration::from_secs(1)).into(), true),
            (NotAllowed::NotLeader.into(), true),
            (NotAllowed::Paused(text()).into(), false),
            (NotAllowed::Quarantine.into(), false),
        ] {
            assert_eq!(error.is_passing(), expected, "{error}");
        }
    }

    #[test]
    fn unused_templates_are_deleted_unless_a_stored_request_names_them() {
        let templates = KnownTemplates::default();
        let listed = [template("former"), template("needed"), template("used")];
        let needed: BTreeSet<String> = ["needed".to_owned()].into();
        assert_eq!(templates.unused(&listed, &needed, START), Vec::<String>::new(), "all are seen for the first time");
        let later = START.plus(DELETE_UNUSED_AFTER);
        templates.used("used", later);
        assert_eq!(templates.unused(&listed, &needed, later), ["former"]);
        let much_later = later.plus(DELETE_UNUSED_AFTER);
        assert_eq!(templates.unused(&listed[1..], &BTreeSet::new(), much_later), ["needed", "used"]);
    }
}
