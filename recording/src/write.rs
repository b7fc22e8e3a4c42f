//! Writes a recording.

use crate::{FORMAT, files};
use flate2::Compression;
use flate2::write::GzEncoder;
use plimsoll_model::execution::Outcome;
use plimsoll_model::plan::{Plan, PlanOptions};
use plimsoll_model::snapshot::Snapshot;
use plimsoll_model::time::Timestamp;
use plimsoll_proto::catalog::v1::Catalog;
use plimsoll_proto::delta;
use plimsoll_proto::protocol::PROTOCOL;
use plimsoll_proto::recording::v1 as wire;
use plimsoll_proto::recording::v1::entry::Entry as Kind;
use plimsoll_proto::snapshot::v1::Delta;
use prost::Message as _;
use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::sync::Arc;

/// Objects per chunk of a full snapshot, which bounds the size of an entry.
const OBJECTS_PER_CHUNK: usize = 1000;

/// Limits of a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Maximum size of all files together, in bytes. The oldest are deleted.
    pub bytes: u64,
    /// Size from which a new file begins, in bytes. A file may exceed it by one plan.
    pub file_bytes: u64,
}

impl Limits {
    /// Limits for `bytes` of all files together. A file has an eighth of them: each begins with a full snapshot, and
    /// whole files are deleted.
    #[must_use]
    pub fn of(bytes: u64) -> Self {
        Self { bytes, file_bytes: bytes / 8 }
    }
}

/// A plan, and what it was made for.
#[derive(Debug, Clone)]
pub struct PlannedEntry<'a> {
    /// Time of writing.
    pub at: Timestamp,
    /// The snapshot.
    pub snapshot: &'a Arc<Snapshot>,
    /// Its checksum.
    pub checksum: u64,
    /// The change from the snapshot before, if it is known.
    pub delta: Option<&'a Delta>,
    /// Catalogs of the snapshot's pools.
    pub catalogs: &'a [Arc<Catalog>],
    /// Id of the cycle.
    pub cycle_id: &'a str,
    /// Options of the plan.
    pub options: &'a PlanOptions,
    /// The plan.
    pub plan: &'a Plan,
}

/// Writes the files of a recording.
#[derive(Debug)]
pub struct Writer {
    folder: PathBuf,
    limits: Limits,
    version: String,
    cluster: String,
    open: Option<OpenFile>,
}

impl Writer {
    /// Creates a writer. The folder is created with the first plan.
    #[must_use]
    pub fn new(folder: PathBuf, limits: Limits, version: &str, cluster: &str) -> Self {
        Self { folder, limits, version: version.to_owned(), cluster: cluster.to_owned(), open: None }
    }

    /// Writes a plan, after the change of the snapshot since the plan before, or the full snapshot. What was written
    /// can be read even if the program ends without closing the file.
    ///
    /// # Errors
    /// If a file cannot be written. The next plan begins a new file.
    pub fn planned(&mut self, entry: &PlannedEntry<'_>) -> io::Result<()> {
        // After an error, the file is closed: what follows would refer to what is missing.
        let mut file = match self.open.take() {
            Some(file) if file.written()? < self.limits.file_bytes => file,
            finished => {
                finished.map(OpenFile::finish).transpose()?;
                self.begin(entry.at)?
            }
        };
        file.planned(entry)?;
        self.open = Some(file);
        Ok(())
    }

    /// Writes an outcome. Without a plan before, there is no file that it belongs to.
    ///
    /// # Errors
    /// As [`Writer::planned`].
    pub fn reported(&mut self, at: Timestamp, cycle_id: &str, outcome: &Outcome) -> io::Result<()> {
        let Some(mut file) = self.open.take() else { return Ok(()) };
        let reported = wire::Reported { cycle_id: cycle_id.to_owned(), outcome: Some(outcome.into()) };
        file.write(at, Kind::Reported(reported))?;
        self.open = Some(file);
        Ok(())
    }

    fn begin(&self, at: Timestamp) -> io::Result<OpenFile> {
        std::fs::create_dir_all(&self.folder)?;
        // Room for the new file, and for what it may exceed its limit by.
        let room = self.limits.file_bytes.saturating_mul(2);
        files::prune(&self.folder, self.limits.bytes.saturating_sub(room))?;
        let path = self.folder.join(files::name(at));
        let file = OpenOptions::new().write(true).create_new(true).open(path)?;
        let mut file = OpenFile {
            encoder: GzEncoder::new(file, Compression::default()),
            catalogs: BTreeSet::new(),
            last: None,
            buffer: Vec::new(),
        };
        let header = wire::Header {
            format: FORMAT,
            version: self.version.clone(),
            protocol: PROTOCOL,
            cluster: self.cluster.clone(),
        };
        file.write(at, Kind::Header(header))?;
        Ok(file)
    }
}

/// A file that is being written.
#[derive(Debug)]
struct OpenFile {
    encoder: GzEncoder<File>,
    /// Catalogs that the file contains.
    catalogs: BTreeSet<String>,
    /// The last snapshot of the file, and its checksum.
    last: Option<(Arc<Snapshot>, u64)>,
    buffer: Vec<u8>,
}

impl OpenFile {
    fn planned(&mut self, entry: &PlannedEntry<'_>) -> io::Result<()> {
        let at = entry.at;
        for catalog in entry.catalogs {
            if self.catalogs.insert(catalog.id.clone()) {
                self.write(at, Kind::Catalog(catalog.as_ref().clone()))?;
            }
        }
        match self.last.take() {
            // Planned again for the same snapshot.
            Some((last, _)) if last.sequence == entry.snapshot.sequence => {}
            Some((last, checksum)) => {
                let known = entry.delta.filter(|delta| delta.base_sequence == last.sequence).cloned();
                let delta = known.unwrap_or_else(|| delta::diff_from(&last, checksum, entry.snapshot));
                self.write(at, Kind::Delta(delta))?;
            }
            None => {
                for chunk in delta::chunks(entry.snapshot, OBJECTS_PER_CHUNK) {
                    self.write(at, Kind::SnapshotChunk(chunk))?;
                }
            }
        }
        self.last = Some((Arc::clone(entry.snapshot), entry.checksum));
        let planned = wire::Planned {
            cycle_id: entry.cycle_id.to_owned(),
            options: Some(entry.options.into()),
            plan: Some(entry.plan.into()),
        };
        self.write(at, Kind::Planned(planned))?;
        self.encoder.flush()
    }

    fn write(&mut self, at: Timestamp, kind: Kind) -> io::Result<()> {
        self.buffer.clear();
        let entry = wire::Entry { at_unix_ms: at.0, entry: Some(kind) };
        entry.encode_length_delimited(&mut self.buffer).map_err(io::Error::other)?;
        self.encoder.write_all(&self.buffer)
    }

    /// Size of what has reached the file.
    fn written(&self) -> io::Result<u64> {
        Ok(self.encoder.get_ref().metadata()?.len())
    }

    fn finish(self) -> io::Result<()> {
        self.encoder.finish().map(drop)
    }
}
