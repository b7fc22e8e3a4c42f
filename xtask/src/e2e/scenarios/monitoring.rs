//! Metrics of the services: those that the chart's dashboards and rules use exist, and Karpenter's dashboards show
//! data.

mod karpenter;
mod own;
mod prometheus;
mod scrapes;

use super::super::objects::{self, SOON};
use super::super::{Context, Figure, PROGRESS};
use super::growth::reason;
use crate::harness::kubectl::condition;
use crate::harness::services::Kind;
use crate::harness::wait::until_true;
use crate::harness::world::World;
use anyhow::{Context as _, Result, ensure};
use own::Expression;
use prometheus::Prometheus;
pub(super) use scrapes::Scrapes;
use serde_json::json;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Two pods of this size need more than a large instance has.
const MILLIS: u32 = 1500;
/// Nodes within the pool's limit.
const NODES: usize = 4;
/// One scrape of the actuator has about ten thousand series.
const SCRAPE_EVERY: Duration = Duration::from_secs(2);
/// Notice period of EC2, of which the drain needs a few seconds.
const NOTICE: Duration = Duration::from_secs(120);
/// Time from the end of the last pod to the termination of the last instance.
const EMPTIED: Duration = Duration::from_secs(120);
/// Minimum share of Karpenter's queries with data.
const SHARE_MIN: f64 = 0.9;
/// Exported by services with certificates, which this environment does not use; the scenario `chart` checks them.
pub(super) const ONLY_WITH_TLS: [&str; 3] = [
    "plimsoll_actuator_tls_certificate_expiry_timestamp_seconds",
    "plimsoll_scheduler_tls_certificate_expiry_timestamp_seconds",
    "plimsoll_watcher_tls_certificate_expiry_timestamp_seconds",
];

/// Scrapes while waiting, because some series exist only for seconds.
struct Watch<'a> {
    world: &'a World,
    scrapes: &'a mut Scrapes,
    scraped: Option<Instant>,
}

impl Watch<'_> {
    fn until(
        &mut self,
        what: &str,
        limit: Duration,
        mut look: impl FnMut(&World, &Scrapes) -> Result<(bool, String)>,
    ) -> Result<()> {
        until_true(what, limit, || {
            if self.scraped.is_none_or(|at| at.elapsed() > SCRAPE_EVERY) {
                self.scrapes.take(targets(self.world)?)?;
                self.scraped = Some(Instant::now());
            }
            look(self.world, self.scrapes)
        })
    }

    /// Waits for a metric.
    fn exported(&mut self, name: &str) -> Result<()> {
        self.until(&format!("{name} is exported"), SOON, |_, scrapes| Ok((scrapes.has(name), "it is not".to_owned())))
    }

    fn ready(&mut self, count: usize) -> Result<()> {
        self.until(&format!("{count} pods of web are ready"), SOON, |world, _| {
            let ready = world.pods("web")?.iter().filter(|pod| condition(pod, "Ready")).count();
            Ok((ready == count, format!("{ready} are")))
        })
    }
}

fn targets(world: &World) -> Result<Vec<SocketAddr>> {
    let services = world.services.as_ref().context("no services")?;
    Ok(services.replicas.iter().map(|replica| replica.metrics).collect())
}

pub(super) fn play(context: &Context, world: &mut World) -> Result<Vec<Figure>> {
    let folder = world.cluster.kubeconfig.parent().context("no folder")?.to_owned();
    let prometheus = Prometheus::start(&context.guard, &folder, &targets(world)?)?;
    let mut scrapes = Scrapes::default();
    everything_happens(&mut Watch { world, scrapes: &mut scrapes, scraped: None })?;
    // A service that has just started must also export all metrics.
    world.services()?.restart(Kind::Scheduler)?;
    scrapes.take(targets(world)?)?;

    let expressions = own::expressions(&world.root)?;
    let metric_names: Vec<&str> = scrapes.names().chain(ONLY_WITH_TLS).collect();
    let used: std::collections::BTreeSet<&str> =
        expressions.iter().flat_map(|expression| expression.names(&metric_names)).collect();
    let missing: Vec<_> = used.iter().filter(|name| !metric_names.contains(name)).collect();
    ensure!(missing.is_empty(), "dashboards or rules use what no service exported: {missing:?}");
    ensure!(used.len() > 50, "the dashboards and rules use {} metrics: looked in the wrong place", used.len());

    let queries = karpenter::queries()?;
    let without: Vec<String> =
        queries.iter().filter(|query| !query.has_series(&scrapes)).map(karpenter::Query::name).collect();
    let share = 1.0 - without.len() as f64 / queries.len() as f64;
    for query in &without {
        PROGRESS.say(&format!("  without series: {query}"));
    }
    ensure!(
        share >= SHARE_MIN,
        "{:.0} % of Karpenter's queries return series, without are: {without:?}",
        share * 100.0
    );
    let evaluated = match &prometheus {
        Some(prometheus) => evaluate(prometheus, &expressions)?,
        None => {
            PROGRESS.say("  this machine has no prometheus: expressions are judged by the names in them");
            "skipped: no prometheus".to_owned()
        }
    };
    Ok(vec![
        ("series", scrapes.len().to_string()),
        ("metrics of dashboards and rules, all exported", used.len().to_string()),
        ("expressions evaluated by Prometheus", evaluated),
        (
            "queries of Karpenter's dashboards with series",
            format!("{} of {}", queries.len() - without.len(), queries.len()),
        ),
    ])
}

/// Launches, a failed launch, a limit, a Spot notice, consolidation: the events that the metrics count.
fn everything_happens(watch: &mut Watch<'_>) -> Result<()> {
    let world = watch.world;
    let pools = include_str!("../manifests/monitoring.yaml").replace("CLUSTER", &world.cloud.cluster);
    world.cloud.faults(&json!({"capacity": [{"instanceType": "c7i.large", "left": 0}]}))?;
    world.cluster.kubectl.apply(&pools)?;
    world.cluster.kubectl.apply(&objects::deployment("web", NODES, MILLIS))?;
    watch.ready(NODES)?;
    watch.exported("plimsoll_actuator_nodeclaims_failed_total")?;
    world.cluster.kubectl.run(&["delete", "pod", "scarce", "--wait=false"])?;

    world.scale("web", NODES + 1)?;
    watch.until("a pod has an Event about the limit", SOON, |world, _| {
        let pods = world.pods("web")?;
        let waiting = pods.iter().find(|pod| !condition(pod, "Ready")).context("every pod is ready")?;
        let message = reason(world, waiting)?.unwrap_or_default();
        Ok((message.contains("limit"), message))
    })?;
    world.scale("web", NODES - 1)?;
    watch.ready(NODES - 1)?;
    // The node is empty now and removed at once.
    watch.exported("karpenter_nodes_terminated_total")?;

    let victim = world.cloud.living()?.into_iter().next().context("no instance")?.id;
    world.cloud.interrupt(&victim)?;
    watch.until("the instance is terminated", NOTICE, |world, _| {
        Ok((world.cloud.living()?.iter().all(|instance| instance.id != victim), format!("{victim} lives")))
    })?;
    watch.ready(NODES - 1)?;
    world.scale("web", 0)?;
    watch.until("nodes and instances are deleted", EMPTIED, |world, _| {
        let (nodes, instances) = (world.nodes()?.len(), world.cloud.living()?.len());
        Ok((nodes + instances == 0, format!("{nodes} nodes, {instances} instances")))
    })
}

/// Evaluates each expression in Prometheus. Expressions of rules only have to be valid.
fn evaluate(prometheus: &Prometheus, expressions: &[Expression]) -> Result<String> {
    let mut empty = Vec::new();
    for expression in expressions {
        let returned = prometheus.ever_returned(&expression.filled_in()).with_context(|| expression.file.clone())?;
        let needs_tls = expression.text.contains("tls_certificate_expiry");
        if expression.shown && !returned && !needs_tls {
            empty.push(format!("{}: {}", expression.file, expression.text));
        }
    }
    ensure!(empty.is_empty(), "expressions of dashboards that returned nothing in the whole run: {empty:#?}");
    Ok(expressions.len().to_string())
}
