//! Launches NodeClaims that a user created without a NodePool. Their own requirements, resource requests and taints
//! decide which offerings are requested.
//!
//! The launch group and the client token are derived from the claim's UID, and the launch request is written to the
//! claim before it is sent. From then on, the claim is handled like any other (see [`super::record`]).

use super::admit::{self, Admission, NotAdmitted};
use super::attempt::Attempt;
use super::build;
use super::purchase::RequestError;
use super::record::{self, annotation, primary_annotations};
use super::replacement::requests;
use super::{Admitted, LaunchGroup};
use crate::clock::Timestamped;
use crate::controller_loop::{Candidate, ControllerLoop, Requeue};
use crate::durable;
use crate::events::{Note, Recorder, object, reason};
use crate::fencing::NotAllowed;
use crate::guarded;
use crate::io::{ObjectPart, UpdateResult, WriteError, Writes, add_finalizer};
use crate::launch_template::LaunchTemplates;
use crate::ledger::reserved_text;
use crate::metrics::ActuatorMetrics;
use crate::ports::FleetRequest;
use crate::state::launch_group::{GroupKey, standalone_action};
use crate::state::subnet_addresses::HeldAddresses;
use crate::stores::WatchedKind;
use kube::ResourceExt;
use plimsoll_api::condition::Status;
use plimsoll_api::condition::node_claim::LAUNCHED;
use plimsoll_api::node_pool::{NodeClaimTemplate, NodeClaimTemplateSpec, TemplateMetadata};
use plimsoll_api::{NodeClaim, NodePool, NodePoolSpec, hash};
use plimsoll_model::identity::NodePoolName;
use plimsoll_model::names::{TERMINATION_FINALIZER, annotation as key, label};
use plimsoll_model::plan::{Launch, OfferingChoice};
use plimsoll_model::requirements::{NodeSelectorRequirement, Requirements};
use plimsoll_model::resources::Resources;
use plimsoll_model::snapshot::LedgerPosition;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Pause before a claim that cannot be launched is tried again: its node class may become ready, or capacity free. The
/// lifecycle controller deletes the claim after its launch timeout.
const RETRY: Duration = Duration::from_secs(10);
/// Maximum length of the condition's message in bytes, as in Karpenter.
const MAX_MESSAGE: usize = 300;

/// Dependencies of the controller.
#[derive(Clone)]
pub struct StandaloneClaims {
    /// Stores, catalogs, ledger and queue of launches.
    pub admission: Admission,
    /// Launch templates.
    pub launch_templates: LaunchTemplates,
    /// Writes to the cluster.
    pub writes: Writes,
    /// Events on objects.
    pub events: Recorder,
    /// Metrics.
    pub metrics: ActuatorMetrics,
}

/// Why a claim is not launched now.
#[derive(Debug, thiserror::Error)]
enum NotLaunched {
    #[error("{0}")]
    Claim(String),
    #[error(transparent)]
    Request(#[from] RequestError),
    #[error(transparent)]
    NotAllowed(#[from] NotAllowed),
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// Launches claims until `stop`. Must be started only once a former leader's calls are over.
pub async fn run(deps: StandaloneClaims, stop: CancellationToken) {
    let work = |claim: Arc<NodeClaim>| reconcile(deps.clone(), claim);
    let controller =
        ControllerLoop::new("standalone_claims", &deps.metrics, &deps.admission.stores, &deps.admission.fence);
    controller.run(&stop, &[WatchedKind::NodeClaim, WatchedKind::EC2NodeClass], || candidates(&deps), work).await;
}

fn candidates(deps: &StandaloneClaims) -> Vec<Candidate<Arc<NodeClaim>>> {
    let claims = deps.admission.stores.claims.state().into_iter().filter(|claim| awaits_launch(claim));
    claims.map(|claim| Candidate { key: claim.name_any(), version: None, input: claim }).collect()
}

/// Whether a claim belongs to no NodePool.
fn is_standalone(claim: &NodeClaim) -> bool {
    !claim.labels().contains_key(label::NODE_POOL)
}

/// Whether nobody has started to launch a standalone claim. An unreadable claim is not launched, since the node would
/// not be the one that it asks for.
fn awaits_launch(claim: &NodeClaim) -> bool {
    is_standalone(claim)
        && guarded::unreadable(claim).is_none()
        && claim.metadata.deletion_timestamp.is_none()
        && annotation(claim, key::LAUNCH_GROUP).is_none()
        && claim.provider_id().is_none()
        && claim.true_condition(LAUNCHED).is_none()
}

async fn reconcile(deps: StandaloneClaims, claim: Arc<NodeClaim>) -> Result<Requeue, WriteError> {
    match launch(&deps, &claim).await {
        Ok(()) => Ok(None),
        Err(NotLaunched::Write(error)) => Err(error),
        // A new leader waits until the calls of its predecessor are over.
        Err(NotLaunched::NotAllowed(_)) => Ok(Some(RETRY)),
        Err(error @ (NotLaunched::Claim(_) | NotLaunched::Request(_))) => {
            report(&deps, &claim, error.to_string()).await?;
            Ok(Some(RETRY))
        }
    }
}

/// Admits the launch of a claim, writes it to the claim and hands it to the launcher.
async fn launch(deps: &StandaloneClaims, claim: &NodeClaim) -> Result<(), NotLaunched> {
    let (admission, name) = (&deps.admission, record::name(claim));
    admission.fence.check_admission()?;
    let refused = |message: String| NotLaunched::Claim(message);
    let class_name = &claim.spec.node_class_ref.name;
    let (class, catalog) = admit::look_up_class(admission, class_name).map_err(|it| refused(it.message))?;
    let offerings = |requirements: &_, requests: &_| admission.offerings(&catalog, requirements, requests);
    let proposed = proposal(claim, offerings).map_err(refused)?;
    let action = &proposed.action_id;
    // A fixed position: the claim has one launch group, whichever leader launches it.
    let Some(group) = GroupKey::of(std::slice::from_ref(action), LedgerPosition::default()) else { return Ok(()) };
    // Already being launched; the watch cache does not show it yet.
    let Some(active) = admission.launches.activate(&group.id) else { return Ok(()) };
    // Otherwise an earlier attempt whose result is unknown may have been written, and what it reserves must stay.
    let is_first =
        admission.ledger.read(|ledger| ledger.claim(name).is_none_or(|it| it.action.as_ref() != Some(action)));
    let objects = (Arc::new(template(claim)), class, catalog);
    let admitted = admit::admit(admission, &proposed, objects, |ledger, _, _, reserved| {
        ledger.admit_standalone(name, action, reserved.clone())
    });
    let admitted = admitted.map_err(|error| match error {
        NotAdmitted::Refused(refusal) => refused(refusal.message),
        NotAdmitted::Rejected(rejection) => refused(rejection.to_string()),
        // Not an answer to a standalone claim.
        NotAdmitted::Repeated(_) => refused("the launch is already in progress".to_owned()),
    })?;
    let requested = request(deps, &admitted, &group, name).await;
    let (request, held) = requested.inspect_err(|_| {
        if is_first {
            admission.ledger.gone(name);
        }
    })?;
    let attempt = Attempt::first(request, admission.clock.timestamp());
    let annotations = launch_annotations(admission, &admitted, &group, &attempt);
    let written = deps.writes.update(claim, ObjectPart::Main, |claim| mark(claim, &annotations)).await;
    if is_first && written.as_ref().is_err_and(|error| !error.may_have_happened()) {
        admission.ledger.gone(name);
    }
    match written? {
        UpdateResult::Written(claim) => {
            tracing::info!(node_claim = name, group = group.id, "launching NodeClaim without NodePool");
            let cycle_id = format!("standalone-{name}");
            let claims = BTreeMap::from([(name.to_owned(), *claim)]);
            let held = BTreeMap::from([(name.to_owned(), held)]);
            active.launch(LaunchGroup { key: group, claims, held, cycle_id }, attempt);
        }
        // Its launch was written by an earlier attempt without a response, or the claim is being deleted.
        UpdateResult::Unchanged => {}
        UpdateResult::Gone => admission.ledger.gone(name),
    }
    Ok(())
}

/// The request of the claim's group, and the addresses that it holds in its subnets. Ensures the launch templates.
async fn request(
    deps: &StandaloneClaims,
    admitted: &Admitted,
    group: &GroupKey,
    name: &str,
) -> Result<(FleetRequest, HeldAddresses), RequestError> {
    let (purchase, held) = admit::purchase(&deps.admission, admitted)?;
    let request = purchase.request(&deps.launch_templates, group, Some(name)).await?;
    Ok((request, held))
}

/// The annotations that record a launch on its claim.
fn launch_annotations(
    admission: &Admission,
    admitted: &Admitted,
    group: &GroupKey,
    attempt: &Attempt,
) -> BTreeMap<String, String> {
    let mut annotations = primary_annotations(attempt);
    for (key, value) in [
        (key::OWNER, key::OWNER_VALUE.to_owned()),
        (key::ACTION_ID, admitted.launch.action_id.0.clone()),
        // Cannot fail: a struct of strings and numbers.
        (key::LAUNCH_GROUP, durable::write(group).unwrap_or_default()),
        (key::RESERVED, reserved_text(&admitted.reserved)),
        (key::EPOCH, admission.fence.epoch().to_string()),
        (key::EC2_NODE_CLASS_HASH, hash::ec2_node_class(&admitted.class.spec, &admission.settings.cluster_ca_bundle)),
        (key::EC2_NODE_CLASS_HASH_VERSION, hash::EC2_NODE_CLASS_VERSION.to_owned()),
        (key::WHY, "NodeClaim without a NodePool".to_owned()),
    ] {
        annotations.insert(key.to_owned(), value);
    }
    annotations.extend(build::instance_profile(&admitted.class));
    annotations
}

/// Writes the launch to a claim, unless that was done before.
fn mark(claim: &mut NodeClaim, annotations: &BTreeMap<String, String>) {
    if !awaits_launch(claim) {
        return;
    }
    claim.annotations_mut().extend(annotations.clone());
    let class = claim.spec.node_class_ref.name.clone();
    claim.labels_mut().entry(label::EC2_NODE_CLASS.to_owned()).or_insert(class);
    add_finalizer(claim, TERMINATION_FINALIZER);
}

/// The launch that a claim asks for, with all offerings that satisfy its requirements and requests.
fn proposal(
    claim: &NodeClaim,
    offerings: impl FnOnce(&Requirements, &Resources) -> Vec<OfferingChoice>,
) -> Result<Launch, String> {
    let uid = claim.metadata.uid.as_deref().ok_or("the NodeClaim has no UID")?;
    let planned: Vec<NodeSelectorRequirement> =
        claim.spec.requirements.iter().map(NodeSelectorRequirement::from).collect();
    let mut requirements = Requirements::from_api(&planned).map_err(|error| format!("spec.requirements: {error}"))?;
    let labels = claim.labels().iter().map(|(key, value)| (key.as_str(), value.as_str()));
    requirements.add_all(&Requirements::from_labels(labels));
    let requests = requests(claim)?;
    let offerings = offerings(&requirements, &requests);
    if offerings.is_empty() {
        let class = &claim.spec.node_class_ref.name;
        return Err(format!(
            "no available offering of EC2NodeClass {class} satisfies spec.requirements, metadata.labels and \
             spec.resources.requests"
        ));
    }
    Ok(Launch {
        action_id: standalone_action(uid),
        node_pool: NodePoolName::default(),
        node_class: claim.spec.node_class_ref.name.clone(),
        offerings: Arc::new(offerings),
        requirements: Arc::new(planned),
        requests,
        taints: claim.spec.taints.iter().map(Into::into).collect(),
        labels: BTreeMap::default(),
        pods: Vec::new(),
        prioritized: false,
        why: String::new(),
    })
}

/// The claim as the template of a pool without a name, so that it is narrowed and requested like launches of a pool.
fn template(claim: &NodeClaim) -> NodePool {
    let spec = &claim.spec;
    let labels = claim.labels().clone();
    let template = NodeClaimTemplate {
        metadata: Some(TemplateMetadata { labels, ..TemplateMetadata::default() }),
        spec: NodeClaimTemplateSpec {
            taints: spec.taints.clone(),
            startup_taints: spec.startup_taints.clone(),
            requirements: spec.requirements.clone(),
            node_class_ref: spec.node_class_ref.clone(),
            termination_grace_period: spec.termination_grace_period.clone(),
            expire_after: spec.expire_after.clone(),
        },
    };
    let mut pool = NodePool::new("", NodePoolSpec { template, ..NodePoolSpec::default() });
    pool.metadata.name = None;
    pool
}

/// Reports why a claim is not launched now.
async fn report(deps: &StandaloneClaims, claim: &NodeClaim, mut message: String) -> Result<(), WriteError> {
    message.truncate(message.floor_char_boundary(MAX_MESSAGE));
    tracing::warn!(node_claim = record::name(claim), message, "NodeClaim without NodePool cannot be launched now");
    deps.events.publish(Note::warning(object(claim), reason::LAUNCH_FAILED, message.as_str()));
    let now = deps.admission.clock.now();
    let show = |claim: &mut NodeClaim| {
        if awaits_launch(claim) {
            claim.set_condition(now, LAUNCHED, Status::Unknown, reason::LAUNCH_FAILED, &message);
        }
    };
    deps.writes.update(claim, ObjectPart::Status, show).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_model::catalog::{CapacityType, Catalog, InstanceType, Offering};
    use plimsoll_model::money::MicroUsdPerHour;
    use serde_json::json;

    fn offering(zone: &str, price: i64) -> Offering {
        Offering {
            zone: zone.to_owned(),
            capacity_type: CapacityType::OnDemand,
            price: MicroUsdPerHour(price),
            available: true,
            ..Offering::default()
        }
    }

    fn claim() -> NodeClaim {
        let class = json!({"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"});
        let claim = json!({
            "metadata": {"name": "mine", "uid": "u"}, "spec": {"nodeClassRef": class, "requirements": []},
        });
        serde_json::from_value(claim).unwrap()
    }

    #[test]
    fn a_claim_awaits_a_launch_until_somebody_starts_one_or_ends_the_claim() {
        let changed = |change: fn(&mut NodeClaim)| {
            let mut claim = claim();
            change(&mut claim);
            awaits_launch(&claim)
        };
        let launched = |claim: &mut NodeClaim, status: Status| {
            claim.set_condition(jiff::Timestamp::UNIX_EPOCH, LAUNCHED, status, "Tested", "");
        };
        assert!(changed(|_| ()));
        let mut failed = claim();
        launched(&mut failed, Status::Unknown);
        assert!(awaits_launch(&failed), "it could not be launched yet");
        launched(&mut failed, Status::True);
        assert!(!awaits_launch(&failed));
        type Change = fn(&mut NodeClaim);
        let rows: [(Change, &str); 4] = [
            (|claim| drop(claim.labels_mut().insert(label::NODE_POOL.to_owned(), "a".to_owned())), "a pool's"),
            (|claim| drop(claim.annotations_mut().insert(key::LAUNCH_GROUP.to_owned(), String::new())), "started"),
            (|claim| claim.status.get_or_insert_default().provider_id = Some("i-1".to_owned()), "has an instance"),
            (|claim| claim.metadata.deletion_timestamp = serde_json::from_value(json!(TIME)).unwrap(), "ended"),
        ];
        for (change, why) in rows {
            assert!(!changed(change), "{why}");
        }
        let mut unreadable = serde_json::to_value(claim()).unwrap();
        unreadable["spec"]["expireAfter"] = json!("2562048h");
        let read: guarded::Guarded<NodeClaim> = serde_json::from_value(unreadable).unwrap();
        assert!(!awaits_launch(&read.0.unwrap()), "the node would not be the one that it asks for");
    }

    const TIME: &str = "2026-01-05T00:00:00Z";

    #[test]
    fn a_launch_is_marked_once_and_keeps_what_the_user_wrote() {
        let annotations = BTreeMap::from([(key::LAUNCH_GROUP.to_owned(), "g".to_owned())]);
        let mut plain = claim();
        mark(&mut plain, &annotations);
        assert_eq!(plain.metadata.annotations, Some(annotations.clone()));
        assert_eq!(plain.metadata.finalizers.as_deref(), Some([TERMINATION_FINALIZER.to_owned()].as_slice()));
        assert_eq!(plain.labels()[label::EC2_NODE_CLASS], "default");
        let marked = plain.clone();
        mark(&mut plain, &BTreeMap::from([(key::LAUNCH_GROUP.to_owned(), "other".to_owned())]));
        assert_eq!(plain, marked, "another leader has started its launch");

        let mut own = claim();
        own.finalizers_mut().push(TERMINATION_FINALIZER.to_owned());
        own.labels_mut().insert(label::EC2_NODE_CLASS.to_owned(), "own".to_owned());
        mark(&mut own, &annotations);
        assert_eq!(own.finalizers().len(), 1);
        assert_eq!(own.labels()[label::EC2_NODE_CLASS], "own");
    }

    #[test]
    fn a_label_decides_like_a_requirement() {
        let kind = InstanceType {
            name: "m6i.large".to_owned(),
            architecture: "amd64".to_owned(),
            operating_systems: vec!["linux".to_owned()],
            capacity: Resources::from([("cpu", 2000)]),
            offerings: vec![offering("a", 1), offering("b", 2)],
            ..InstanceType::default()
        };
        let catalog = Catalog { region: "r".to_owned(), instance_types: vec![kind] };
        let mut claim = claim();
        let zones = |claim: &NodeClaim| -> Vec<String> {
            let offerings = |requirements: &_, requests: &_| build::offerings(&catalog, requirements, requests);
            proposal(claim, offerings).unwrap().offerings.iter().map(|it| it.zone.clone()).collect()
        };
        assert_eq!(zones(&claim), ["a", "b"]);
        claim.labels_mut().insert(label::ZONE.to_owned(), "b".to_owned());
        assert_eq!(zones(&claim), ["b"]);
    }
}
