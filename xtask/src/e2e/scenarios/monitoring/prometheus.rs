//! A Prometheus that scrapes the services during the scenario, if it is installed.

use super::scrapes::JOB;
use crate::harness::http::{self, percent};
use crate::harness::process::{Guard, Process, free_port};
use crate::harness::tools;
use crate::harness::wait::until_true;
use anyhow::{Context as _, Result, bail};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

const START: Duration = Duration::from_secs(30);
/// Interval of scrapes, and step of evaluations, in seconds.
const STEP_SECONDS: u32 = 2;

/// A running Prometheus.
#[derive(Debug)]
pub(super) struct Prometheus {
    address: SocketAddr,
    since: f64,
    _process: Process,
}

impl Prometheus {
    /// `None` if Prometheus is not installed.
    ///
    /// # Errors
    /// If Prometheus does not start.
    pub(super) fn start(guard: &Arc<Guard>, dir: &Path, targets: &[SocketAddr]) -> Result<Option<Prometheus>> {
        if !tools::PROMETHEUS.is_installed() {
            return Ok(None);
        }
        let (config, data) = (dir.join("prometheus.yaml"), dir.join("prometheus"));
        let targets: Vec<String> = targets.iter().map(|target| format!("\"{target}\"")).collect();
        let targets = targets.join(", ");
        std::fs::write(
            &config,
            format!(
                "global: {{scrape_interval: {STEP_SECONDS}s, scrape_timeout: {STEP_SECONDS}s}}\n\
                 scrape_configs: [{{job_name: {JOB}, static_configs: [{{targets: [{targets}]}}]}}]\n"
            ),
        )?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?));
        let mut command = Command::new(tools::PROMETHEUS.program);
        command
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", data.display()));
        command.arg(format!("--web.listen-address={address}"));
        let process = Process::start("prometheus", &mut command, dir, guard)?;
        until_true("Prometheus is ready", START, || {
            guard.check()?;
            let answer = http::send(address, "GET", "/-/ready", &[], "");
            Ok((answer.is_ok_and(|answer| answer.status == 200), "it is not".to_owned()))
        })?;
        Ok(Some(Prometheus { address, since: now()?, _process: process }))
    }

    /// Whether an expression has returned a number since the start.
    ///
    /// # Errors
    /// If Prometheus rejects the expression.
    pub(super) fn ever_returned(&self, expression: &str) -> Result<bool> {
        let (query, since, until) = (percent(expression), self.since, now()?);
        let path = format!("/api/v1/query_range?query={query}&start={since}&end={until}&step={STEP_SECONDS}");
        let answer = http::json(self.address, "GET", &path, None)?;
        if answer["status"] != "success" {
            bail!("{expression}: {answer}");
        }
        let series = answer["data"]["result"].as_array().context("no result")?;
        let values = series.iter().flat_map(|one| one["values"].as_array().into_iter().flatten());
        Ok(values.filter_map(|pair| pair[1].as_str()).any(|value| value != "NaN"))
    }
}

fn now() -> Result<f64> {
    Ok(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_secs_f64())
}
