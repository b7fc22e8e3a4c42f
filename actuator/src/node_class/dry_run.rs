//! Asks EC2 whether it would launch nodes of a class: a missing permission is then reported on the class, before a
//! launch fails. Nothing is launched. Only a launch template is created, as launches create them, because the requests
//! refer to it.

mod request;

use super::controller::NodeClasses;
use crate::fencing::NotAllowed;
use crate::launch_template::{self, EnsureError};
use crate::ports::CloudError;
use crate::resolve;
use plimsoll_api::EC2NodeClass;
use plimsoll_api::ec2_node_class::EC2NodeClassStatus;
use plimsoll_model::catalog::Catalog;
use plimsoll_model::identity::ContentHasher;
use request::DryRun;
pub(super) use request::{is_of_class, names_dedicated};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// How long a result is valid, as in Karpenter.
const PERIOD: Duration = Duration::from_secs(1800);
/// How long a refusal is valid. Shorter, so that a class is ready soon after an administrator grants the permission.
const REFUSED_PERIOD: Duration = Duration::from_secs(300);
/// Pause after a call that was throttled or not answered, and for instance profiles that IAM may not show yet.
const RETRY: Duration = Duration::from_secs(5);
/// How long the catalog of a new class is waited for. It is built within milliseconds after EC2 has answered.
const CATALOG_WITHIN: Duration = Duration::from_secs(2);
/// How long EC2 may take for the launch template.
const TEMPLATE_WITHIN: Duration = Duration::from_secs(10);
/// Message by which EC2 rejects a profile that does not exist or is not visible yet.
const INVALID_PROFILE: &str = "Invalid IAM Instance Profile name";

/// What EC2 says about launches of a class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The launches are permitted. EC2 may reject the request for another reason, which is only reported: the choice of
    /// the type may be the cause.
    Permitted(Option<String>),
    /// Launches would fail: reason and message.
    Refused(&'static str, String),
    /// EC2 did not answer.
    Unknown(String),
}

/// The last definite verdict. In memory: a new leader asks again.
#[derive(Debug, Clone, Default)]
pub(super) struct DryRunCache {
    /// Hash of everything that the requests depend on.
    key: String,
    verdict: Option<Verdict>,
    due: Option<Instant>,
}

impl DryRunCache {
    /// When EC2 is asked again.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// The class cannot be launched for another reason. EC2 is asked as soon as the class can be launched again.
    pub(super) fn is_not_needed(&mut self) {
        self.due = None;
    }
}

/// The verdict for a class with this status. Asks EC2 if the inputs have changed or the last verdict is old. If EC2
/// does not answer, the last verdict on the same inputs stands.
pub(super) async fn verdict(
    deps: &NodeClasses,
    class: &EC2NodeClass,
    status: &EC2NodeClassStatus,
    cache: &mut DryRunCache,
) -> Verdict {
    if deps.settings.disable_dry_run {
        return Verdict::Permitted(None);
    }
    let key = key(class, status);
    if cache.key != key {
        *cache = DryRunCache { key, ..DryRunCache::default() };
    }
    if let (Some(verdict), Some(due)) = (&cache.verdict, cache.due)
        && due > Instant::now()
    {
        return verdict.clone();
    }
    let verdict = ask(deps, class, status).await;
    let (period, name) = (period(&verdict), class.metadata.name.as_deref());
    cache.due = Some(Instant::now() + period);
    match &verdict {
        Verdict::Permitted(None) => {}
        Verdict::Permitted(Some(message)) => tracing::warn!(node_class = name, message, "EC2 rejects a dry run"),
        Verdict::Refused(reason, message) => tracing::warn!(node_class = name, reason, message, "launches would fail"),
        Verdict::Unknown(message) => {
            tracing::warn!(node_class = name, message, ?period, "no answer to a dry run, asking again");
            return cache.verdict.clone().unwrap_or(verdict);
        }
    }
    cache.verdict = Some(verdict.clone());
    verdict
}

fn period(verdict: &Verdict) -> Duration {
    match verdict {
        Verdict::Permitted(_) => PERIOD,
        Verdict::Refused(request::PROFILE_NOT_FOUND, _) | Verdict::Unknown(_) => RETRY,
        Verdict::Refused(..) => REFUSED_PERIOD,
    }
}

/// Subnets are a set here: their order in the status follows the number of free addresses.
fn key(class: &EC2NodeClass, status: &EC2NodeClassStatus) -> String {
    let mut hasher = ContentHasher::new("dry run");
    // A user who changes an annotation wants EC2 to be asked again.
    super::hash::user_annotations(class, &mut hasher);
    // Cannot fail: plain structs.
    hasher.part(&serde_json::to_vec(&class.spec).unwrap_or_default());
    let subnets: BTreeSet<&str> = status.subnets.iter().map(|subnet| subnet.id.as_str()).collect();
    let groups: BTreeSet<&str> = status.security_groups.iter().map(|group| group.id.as_str()).collect();
    let images: BTreeSet<&str> = status.amis.iter().map(|image| image.id.as_str()).collect();
    for ids in [subnets, groups, images] {
        hasher.part(&(ids.len() as u64).to_le_bytes());
        ids.into_iter().for_each(|id| hasher.text(id));
    }
    hasher.text(status.instance_profile.as_deref().unwrap_or_default());
    hasher.text(status.placement_group.as_ref().map_or("", |group| group.id.as_str()));
    hasher.hex(32)
}

async fn ask(deps: &NodeClasses, class: &EC2NodeClass, status: &EC2NodeClassStatus) -> Verdict {
    let Some(catalog) = catalog(deps, class).await else {
        return Verdict::Unknown("instance types are not known yet".to_owned());
    };
    let class = EC2NodeClass { status: Some(status.clone()), ..class.clone() };
    let resolved = match resolve::from_status(&class) {
        Ok(resolved) => resolved,
        Err(error) => return Verdict::Unknown(error.to_string()),
    };
    let pools = deps.stores.pools.state();
    let request = match DryRun::new(&deps.current.get(), &class, &resolved, &catalog, &pools) {
        Ok(Some(request)) => request,
        Ok(None) => return Verdict::Permitted(Some("no instance type fits the node class".to_owned())),
        Err(error) => return Verdict::Permitted(Some(error.to_string())),
    };
    let ensured = timeout(TEMPLATE_WITHIN, launch_template::ensure(&deps.launch_templates, &request.template)).await;
    let template = match ensured {
        Ok(Ok(template)) => template,
        Ok(Err(EnsureError::Cloud(error))) => return request::judge("ec2:CreateLaunchTemplate", Err(error)),
        Ok(Err(EnsureError::NotAllowed(error))) => return Verdict::Unknown(error.to_string()),
        Err(_) => return Verdict::Unknown(format!("no launch template within {TEMPLATE_WITHIN:?}")),
    };
    let fleet = request.fleet(&template);
    let (fleet, instance) = tokio::join!(deps.cloud.dry_run_fleet(&fleet), ask_for_instance(deps, &request, &template));
    let verdicts = [("ec2:CreateFleet", fleet), ("ec2:RunInstances", instance)].map(|(action, answer)| match answer {
        Ok(answer) => request::judge(action, answer),
        Err(error) => Verdict::Unknown(error.to_string()),
    });
    worst(verdicts)
}

/// Asks for one subnet after another until EC2 permits an instance in one. Otherwise the answer for the first counts.
async fn ask_for_instance(
    deps: &NodeClasses,
    request: &DryRun,
    template: &crate::ports::LaunchTemplate,
) -> Result<Result<(), CloudError>, NotAllowed> {
    let mut first = None;
    for instance in request.instances(template) {
        let answer = deps.cloud.dry_run_instance(&instance).await?;
        let is_final = answer.as_ref().err().is_none_or(CloudError::is_transient);
        if is_final {
            return Ok(answer);
        }
        first.get_or_insert(answer);
    }
    Ok(first.unwrap_or(Ok(())))
}

/// A refusal, or else a missing answer, or else a permission with a message.
fn worst(verdicts: [Verdict; 2]) -> Verdict {
    let rank = |verdict: &Verdict| match verdict {
        Verdict::Refused(..) => 0,
        Verdict::Unknown(_) => 1,
        Verdict::Permitted(Some(_)) => 2,
        Verdict::Permitted(None) => 3,
    };
    verdicts.into_iter().min_by_key(rank).unwrap_or(Verdict::Permitted(None))
}

/// The catalog of the class. Its types and zones count; what is available follows from the class's written status.
async fn catalog(deps: &NodeClasses, class: &EC2NodeClass) -> Option<Arc<Catalog>> {
    let name = class.metadata.name.as_deref().unwrap_or_default();
    let mut entries = deps.catalogs.subscribe();
    let has_catalog = entries.wait_for(|entries| entries.get(name).is_some_and(|it| it.any_catalog().is_some()));
    let entries = timeout(CATALOG_WITHIN, has_catalog).await.ok()?.ok()?;
    entries.get(name)?.any_catalog().cloned()
}

#[cfg(test)]
mod tests;
