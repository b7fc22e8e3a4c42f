//! Client of a session over gRPC on loopback, like the watcher.

use crate::question;
use crate::server::Server;
use anyhow::{Context as _, Result, bail};
use plimsoll_model::catalog::Catalog;
use plimsoll_model::plan::PlanOptions;
use plimsoll_model::snapshot::{NodePool, Snapshot};
use plimsoll_proto::convert::append_fragment;
use plimsoll_proto::delta;
use plimsoll_proto::plan::v1::Plan;
use plimsoll_proto::protocol::PROTOCOL;
use plimsoll_proto::scheduler::v1::scheduler_service_client::SchedulerServiceClient;
use plimsoll_proto::scheduler::v1::session_request::Message as Ask;
use plimsoll_proto::scheduler::v1::session_response::Message as Answer;
use plimsoll_proto::scheduler::v1::{Hello, PlanNow, SessionRequest, SessionResponse};
use plimsoll_runtime::serve::MAX_DECODING_BYTES;
use serde_json::{Value, json};
use std::path::Path;
use std::time::Instant;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;
use tonic::transport::{Channel, Endpoint};

/// Objects per message, as in the watcher.
const OBJECTS_PER_CHUNK: usize = 1000;
/// Maximum number of messages in flight.
const IN_FLIGHT: usize = 16;

/// Times in seconds from the start of a measurement.
struct Planned {
    first_fragment: f64,
    first_launch: Option<f64>,
    last: f64,
    fragments: usize,
    plan: Plan,
}

/// Client side of a session.
struct Talk {
    asks: mpsc::Sender<SessionRequest>,
    answers: Streaming<SessionResponse>,
}

/// Measures a whole session from its first byte, and then the plan alone in another session with a new scheduler.
pub(crate) fn measure(folder: &Path, disruption: bool) -> Result<Value> {
    let (snapshot, catalogs) = question(folder)?;
    let catalogs: Vec<Catalog> = catalogs.into_values().collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let options = PlanOptions { disruption, ..PlanOptions::default() };
    let (cold, cold_peak) = runtime.block_on(cold(&snapshot, &catalogs, &options))?;
    let (apart, peak) = runtime.block_on(apart(snapshot.clone(), &catalogs, &options))?;
    if cold.plan.launches.len() != apart.plan.launches.len() {
        bail!("two sessions about the same snapshot plan differently");
    }
    Ok(json!({
        "pods": snapshot.pods.len(),
        "nodes": snapshot.nodes.len(),
        "coldSeconds": cold.last,
        "launches": cold.plan.launches.len(),
        "placements": cold.plan.placements.len(),
        "terminations": cold.plan.terminations.len(),
        "unschedulable": cold.plan.unschedulable.len(),
        "fragments": cold.fragments,
        "planFirstFragmentSeconds": apart.first_fragment,
        "planFirstLaunchSeconds": apart.first_launch,
        "planSeconds": apart.last,
        "serverPeakMib": cold_peak.max(peak),
    }))
}

/// Measures the whole session from Hello.
async fn cold(snapshot: &Snapshot, catalogs: &[Catalog], options: &PlanOptions) -> Result<(Planned, f64)> {
    let server = Server::start()?;
    let chunks = delta::chunks(snapshot, OBJECTS_PER_CHUNK);
    let mut client = connect(&server).await?;
    let began = Instant::now();
    let mut talk = Talk::begin(&mut client).await?;
    for catalog in catalogs {
        talk.say(Ask::Catalog(catalog.into())).await?;
    }
    for chunk in chunks {
        talk.say(Ask::SnapshotChunk(chunk)).await?;
    }
    talk.say(plan_now(snapshot, options)).await?;
    let planned = talk.plan(began).await?;
    let peak = server.peak_mib()?;
    Ok((planned, peak))
}

/// Measures the plan after the snapshot has arrived. A scheduler shows that it has the snapshot only by requesting a
/// catalog. Therefore one additional pool has an empty catalog, and the time starts when that catalog is sent.
async fn apart(mut snapshot: Snapshot, catalogs: &[Catalog], options: &PlanOptions) -> Result<(Planned, f64)> {
    let server = Server::start()?;
    let region = catalogs.first().map(|one| one.region.clone()).unwrap_or_default();
    let nothing = Catalog { region, instance_types: Vec::new() };
    let first = snapshot.node_pools.first().context("no pool")?;
    let more = NodePool { name: "nothing".into(), catalog: Some(nothing.id()), ..first.clone() };
    snapshot.node_pools.push(more);
    snapshot.sort();
    let mut client = connect(&server).await?;
    let mut talk = Talk::begin(&mut client).await?;
    for catalog in catalogs {
        talk.say(Ask::Catalog(catalog.into())).await?;
    }
    for chunk in delta::chunks(&snapshot, OBJECTS_PER_CHUNK) {
        talk.say(Ask::SnapshotChunk(chunk)).await?;
    }
    talk.say(plan_now(&snapshot, options)).await?;
    match talk.hear().await? {
        Answer::NeedCatalog(need) if need.catalog_ids == [nothing.id().0] => {}
        other => bail!("expected a catalog request: {other:?}"),
    }
    let began = Instant::now();
    talk.say(Ask::Catalog((&nothing).into())).await?;
    let planned = talk.plan(began).await?;
    let peak = server.peak_mib()?;
    Ok((planned, peak))
}

async fn connect(server: &Server) -> Result<SchedulerServiceClient<Channel>> {
    let channel = Endpoint::try_from(format!("http://{}", server.address))?.connect().await?;
    let client = SchedulerServiceClient::new(channel);
    Ok(client.max_decoding_message_size(MAX_DECODING_BYTES).max_encoding_message_size(MAX_DECODING_BYTES))
}

fn plan_now(snapshot: &Snapshot, options: &PlanOptions) -> Ask {
    Ask::PlanNow(PlanNow { sequence: snapshot.sequence, options: Some(options.into()), cycle_id: "measure".to_owned() })
}

impl Talk {
    async fn begin(client: &mut SchedulerServiceClient<Channel>) -> Result<Self> {
        let (asks, receiver) = mpsc::channel(IN_FLIGHT);
        let answers = client.session(ReceiverStream::new(receiver)).await?.into_inner();
        let mut talk = Self { asks, answers };
        talk.say(Ask::Hello(Hello {
            cluster: "measured".to_owned(),
            client: "plimsoll-measure".to_owned(),
            protocol: PROTOCOL,
        }))
        .await?;
        match talk.hear().await? {
            Answer::Ready(_) => Ok(talk),
            other => bail!("not ready: {other:?}"),
        }
    }

    async fn say(&self, message: Ask) -> Result<()> {
        let request = SessionRequest { message: Some(message) };
        self.asks.send(request).await.context("the session has ended")
    }

    async fn hear(&mut self) -> Result<Answer> {
        let answer = self.answers.message().await?.context("the session has ended")?;
        answer.message.context("an empty message")
    }

    /// All fragments and their times.
    async fn plan(&mut self, began: Instant) -> Result<Planned> {
        let mut all =
            Planned { first_fragment: 0.0, first_launch: None, last: 0.0, fragments: 0, plan: Plan::default() };
        loop {
            let Answer::PlanFragment(fragment) = self.hear().await? else { bail!("no piece of a plan") };
            let now = began.elapsed().as_secs_f64();
            let part = fragment.part.context("a fragment without a part")?;
            if all.fragments == 0 {
                all.first_fragment = now;
            }
            if all.first_launch.is_none() && !part.launches.is_empty() {
                all.first_launch = Some(now);
            }
            all.fragments += 1;
            append_fragment(&mut all.plan, part);
            if fragment.last {
                all.last = now;
                return Ok(all);
            }
        }
    }
}
