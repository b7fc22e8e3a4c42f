//! A warm session: each step adds one pod and plans. The time of the client does not count.

use crate::figures::{peak_mib, percentile};
use crate::question;
use anyhow::{Context as _, Result, bail};
use plimsoll_model::catalog::Catalog;
use plimsoll_model::identity::PodUid;
use plimsoll_model::plan::PlanOptions;
use plimsoll_model::resources::CPU;
use plimsoll_model::snapshot::{Pod, PodState, Snapshot};
use plimsoll_model::time::Millis;
use plimsoll_proto::convert::append_fragment;
use plimsoll_proto::delta;
use plimsoll_proto::plan::v1::{Plan, PodRef};
use plimsoll_proto::protocol::PROTOCOL;
use plimsoll_proto::scheduler::v1::session_request::Message as Ask;
use plimsoll_proto::scheduler::v1::session_response::Message as Answer;
use plimsoll_proto::scheduler::v1::{Hello, PlanNow, SessionRequest};
use plimsoll_runtime::metrics::Metrics;
use plimsoll_scheduler::catalogs::CatalogCache;
use plimsoll_scheduler::metrics::SchedulerMetrics;
use plimsoll_scheduler::session::{Session, SessionLimits};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

const OBJECTS_PER_CHUNK: usize = 1000;
/// Time after which no further step starts.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time between two snapshots.
const PAUSE: Millis = Millis::from_seconds(1);

/// Pod that a step adds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum More {
    /// A pod of an existing workload.
    Known,
    /// The first pod of a new workload.
    New,
}

struct Warm {
    session: Session,
    options: PlanOptions,
    current: Snapshot,
    checksum: u64,
    /// The pod of the last step, and its planned node.
    before: Option<(PodUid, Option<String>)>,
}

pub(crate) fn measure(folder: &Path, steps: usize) -> Result<Value> {
    let (snapshot, catalogs) = question(folder)?;
    let catalogs: Vec<Catalog> = catalogs.into_values().collect();
    let mut all = Vec::new();
    for disruption in [false, true] {
        for more in [More::Known, More::New] {
            all.push(series(&snapshot, &catalogs, disruption, more, steps)?);
        }
    }
    let (pods, nodes) = (snapshot.pods.len(), snapshot.nodes.len());
    Ok(json!({"pods": pods, "nodes": nodes, "series": all, "peakMib": peak_mib()?}))
}

fn series(snapshot: &Snapshot, catalogs: &[Catalog], disruption: bool, more: More, steps: usize) -> Result<Value> {
    let options = PlanOptions { disruption, ..PlanOptions::default() };
    let (mut warm, first) = Warm::new(snapshot.clone(), catalogs, options)?;
    let (mut both, mut plans) = (Vec::new(), Vec::new());
    let (mut placed, mut launched) = (0, 0);
    let began = Instant::now();
    for step in 0..steps {
        if began.elapsed() > PATIENCE {
            break;
        }
        let done = warm.step(step, more)?;
        both.push(done.delta + done.plan);
        plans.push(done.plan);
        placed += usize::from(done.placed);
        launched += usize::from(done.launched);
    }
    Ok(json!({
        "disruption": disruption,
        "more": if more == More::Known { "known" } else { "new" },
        "steps": both.len(),
        "firstPlanSeconds": first,
        "median": percentile(&both, 0.5),
        "p99": percentile(&both, 0.99),
        "planMedian": percentile(&plans, 0.5),
        "planP99": percentile(&plans, 0.99),
        "placed": placed,
        "launched": launched,
    }))
}

/// Times of a step in seconds, and the placement of its pod.
struct Done {
    delta: f64,
    plan: f64,
    placed: bool,
    launched: bool,
}

impl Warm {
    /// A session with the snapshot, and the seconds of its first plan.
    fn new(current: Snapshot, catalogs: &[Catalog], options: PlanOptions) -> Result<(Self, f64)> {
        let metrics = SchedulerMetrics::new(&Metrics::new("scheduler"))?;
        let session = Session::new(Arc::new(CatalogCache::default()), metrics, SessionLimits::default());
        let checksum = delta::checksum(&current);
        let mut warm = Self { session, options, current, checksum, before: None };
        warm.say(Ask::Hello(Hello { cluster: "measured".to_owned(), client: String::new(), protocol: PROTOCOL }))?;
        for catalog in catalogs {
            warm.say(Ask::Catalog(catalog.into()))?;
        }
        for chunk in delta::chunks(&warm.current, OBJECTS_PER_CHUNK) {
            warm.say(Ask::SnapshotChunk(chunk))?;
        }
        let started = Instant::now();
        warm.plan()?;
        Ok((warm, started.elapsed().as_secs_f64()))
    }

    /// Adds one pod. The pod of the previous step is bound to its planned node, or deleted with its workload.
    fn step(&mut self, number: usize, more: More) -> Result<Done> {
        let mut next = self.current.clone();
        next.sequence += 1;
        next.now = next.now.plus(PAUSE);
        match self.before.take() {
            Some((uid, Some(node))) => {
                let state = PodState::Bound(node.as_str().into());
                next.pods.iter_mut().filter(|one| one.uid == uid).for_each(|one| one.state = state.clone());
            }
            Some((uid, None)) => next.pods.retain(|one| one.uid != uid),
            None => {}
        }
        let pod = waiting(&mut next, number, more)?;
        next.sort();
        let change = delta::diff_from(&self.current, self.checksum, &next);
        self.checksum = change.checksum;
        self.current = next;
        let started = Instant::now();
        self.say(Ask::Delta(change))?;
        let delta = started.elapsed().as_secs_f64();
        let started = Instant::now();
        let plan = self.plan()?;
        let took = started.elapsed().as_secs_f64();
        let has = |pods: &[PodRef]| pods.iter().any(|one| one.uid == pod.uid.0);
        let node = plan.placements.iter().find(|one| has(&one.pods)).map(|one| one.node.clone());
        let (placed, launched) = (node.is_some(), plan.launches.iter().any(|one| has(&one.pods)));
        if !placed && !launched {
            bail!("{}: no place: {:?}", pod.full_name(), plan.unschedulable.first());
        }
        self.before = Some((pod.uid, node));
        Ok(Done { delta, plan: took, placed, launched })
    }

    fn plan(&mut self) -> Result<Plan> {
        let options = Some((&self.options).into());
        let ask = PlanNow { sequence: self.current.sequence, options, cycle_id: "measure".to_owned() };
        let mut plan = Plan::default();
        for answer in self.say(Ask::PlanNow(ask))? {
            let Answer::PlanFragment(fragment) = answer else { bail!("no piece of a plan: {answer:?}") };
            append_fragment(&mut plan, fragment.part.context("a fragment without a part")?);
        }
        Ok(plan)
    }

    fn say(&mut self, message: Ask) -> Result<Vec<Answer>> {
        let answers = self.session.handle(SessionRequest { message: Some(message) });
        let answers = answers?;
        Ok(answers.into_iter().filter_map(|answer| answer.message).collect())
    }
}

/// Adds a pending pod with the shape of a running pod, or with a similar new shape.
fn waiting(snapshot: &mut Snapshot, number: usize, more: More) -> Result<Pod> {
    // A large stride selects pods of different workloads.
    const STRIDE: usize = 7_919;
    let like = snapshot.pods.get(number * STRIDE % snapshot.pods.len().max(1)).context("no pod to be like")?.clone();
    let name = format!("more-{number}");
    let mut shape = like.shape.clone();
    if more == More::New {
        let known = snapshot.shapes.iter().find(|one| one.id == like.shape).context("a pod without its shape")?;
        let mut new = known.clone();
        new.labels.insert("app".to_owned(), name.clone());
        // A size that no other pod has.
        let cpu = new.requests.get(CPU) + i64::try_from(number)? + 1;
        new.requests.set(CPU, cpu);
        new.id = new.content_id();
        shape = new.id.clone();
        snapshot.shapes.push(new);
    }
    let uid = format!("default/{name}");
    let pod = Pod { uid: uid.into(), name, shape, state: PodState::Pending, created: snapshot.now, ..like };
    snapshot.pods.push(pod.clone());
    Ok(pod)
}
