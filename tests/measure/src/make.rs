//! `plimsoll-measure make`.

use crate::workload::Workload;
use anyhow::{Context as _, Result};
use clap::Args;
use plimsoll_model::plan::PlanOptions;
use plimsoll_proto::scheduler::v1::PlanRequest;
use plimsoll_workloads::Question;
use prost::Message as _;
use serde_json::json;
use std::path::PathBuf;
use std::time::Instant;

/// The file that `solve` reads.
pub(crate) const REQUEST: &str = "request.bin";

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    workload: Workload,
    /// Where to; made where it is missing.
    dir: PathBuf,
    /// Write manifests/cluster.json and catalog.json as well.
    #[arg(long)]
    manifests: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let case = arguments.workload.case();
    std::fs::create_dir_all(&arguments.dir)
        .with_context(|| format!("making the folder {}", arguments.dir.display()))?;
    if arguments.manifests {
        case.write(&arguments.dir).with_context(|| format!("writing to {}", arguments.dir.display()))?;
    }
    let question = case.question()?;
    let started = Instant::now();
    let bytes = request(&question).encode_to_vec();
    let encoded = started.elapsed();
    let path = arguments.dir.join(REQUEST);
    std::fs::write(&path, &bytes).with_context(|| format!("writing {}", path.display()))?;
    crate::tell(&json!({"bytes": bytes.len(), "encodeSeconds": encoded.as_secs_f64()}))
}

/// As a scheduler gets it.
fn request(question: &Question) -> PlanRequest {
    PlanRequest {
        snapshot: Some((&question.snapshot).into()),
        catalogs: question.catalogs.values().map(Into::into).collect(),
        options: Some((&PlanOptions::default()).into()),
    }
}
