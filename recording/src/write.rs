//! Writes a recording.

use crate::catalogs::KnownCatalogs;
use crate::{FORMAT, MAX_ENTRY_BYTES, files};
use flate2::Compression;
use flate2::write::GzEncoder;
use plimsoll_model::execution::Outcome;
use plimsoll_model::identity::CatalogId;
use plimsoll_model::plan::{Plan, PlanOptions};
use plimsoll_model::snapshot::Snapshot;
use plimsoll_model::time::Timestamp;
use plimsoll_proto::catalog::v1::Catalog;
use plimsoll_proto::convert::with_shared_lists;
use plimsoll_proto::delta;
use plimsoll_proto::protocol::PROTOCOL;
use plimsoll_proto::recording::v1 as wire;
use plimsoll_proto::recording::v1::entry::Entry as Kind;
use plimsoll_proto::snapshot::v1::Delta;
use prost::Message as _;
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
    /// Size of the plans after the first one from which a new file begins, in bytes. A file may exceed it by one plan.
    /// The first plan does not count: a full snapshot that is larger than this would begin a file with each plan.
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
    /// If the plan is too large to be read, or a file cannot be written. After the latter, the next plan begins a new
    /// file.
    pub fn planned(&mut self, entry: &PlannedEntry<'_>) -> io::Result<()> {
        let planned = wire::Planned {
            cycle_id: entry.cycle_id.to_owned(),
            options: Some(entry.options.into()),
            plan: Some(with_shared_lists(entry.plan)),
        };
        let mut plan = Vec::new();
        encode(entry.at, Kind::Planned(planned), &mut plan)?;
        // After an error, the file is closed: what follows would refer to what is missing.
        let mut file = match self.open.take() {
            Some(file) if file.written_after_first()? < self.limits.file_bytes => file,
            finished => {
                finished.map(OpenFile::finish).transpose()?;
                self.begin(entry.at)?
            }
        };
        file.planned(entry, &plan)?;
        if file.first.is_none() {
            file.first = Some(file.written()?);
            self.prune()?;
        }
        self.open = Some(file);
        Ok(())
    }

    /// Closes the file. The next plan begins a new one.
    ///
    /// # Errors
    /// If the end of the file cannot be written.
    pub fn finish(&mut self) -> io::Result<()> {
        self.open.take().map_or(Ok(()), OpenFile::finish)
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
        self.prune()?;
        let path = self.folder.join(files::name(at));
        let file = OpenOptions::new().write(true).create_new(true).open(&path)?;
        let mut file = OpenFile {
            path,
            encoder: GzEncoder::new(file, Compression::default()),
            first: None,
            catalogs: KnownCatalogs::default(),
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

    /// Deletes files for one that is to grow by a file's limit, and for the plan by which it may exceed that.
    fn prune(&self) -> io::Result<()> {
        let room = self.limits.file_bytes.saturating_mul(2);
        files::prune(&self.folder, self.limits.bytes.saturating_sub(room))
    }
}

/// Encodes an entry with its length.
fn encode(at: Timestamp, kind: Kind, buffer: &mut Vec<u8>) -> io::Result<()> {
    let entry = wire::Entry { at_unix_ms: at.0, entry: Some(kind) };
    let length = entry.encoded_len();
    if length > MAX_ENTRY_BYTES {
        return Err(io::Error::other(format!("an entry has {length} bytes, more than {MAX_ENTRY_BYTES}")));
    }
    buffer.clear();
    entry.encode_length_delimited(buffer).map_err(io::Error::other)
}

/// A file that is being written. It is deleted if it is dropped before its first plan is complete: with a full disk,
/// each plan would leave a file that says nothing.
#[derive(Debug)]
struct OpenFile {
    path: PathBuf,
    encoder: GzEncoder<File>,
    /// Size with the first plan, once it is complete.
    first: Option<u64>,
    /// Catalogs that need not be written again.
    catalogs: KnownCatalogs,
    /// The last snapshot of the file, and its checksum.
    last: Option<(Arc<Snapshot>, u64)>,
    buffer: Vec<u8>,
}

impl OpenFile {
    /// Writes what the encoded `plan` was made for, and the plan.
    fn planned(&mut self, entry: &PlannedEntry<'_>, plan: &[u8]) -> io::Result<()> {
        let at = entry.at;
        for catalog in entry.catalogs {
            if self.catalogs.add(CatalogId(catalog.id.clone())) {
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
                for chunk in delta::each_chunk(entry.snapshot, OBJECTS_PER_CHUNK) {
                    self.write(at, Kind::SnapshotChunk(chunk))?;
                }
            }
        }
        self.last = Some((Arc::clone(entry.snapshot), entry.checksum));
        self.encoder.write_all(plan)?;
        self.catalogs.forget(&entry.catalogs.iter().map(|catalog| CatalogId(catalog.id.clone())).collect());
        self.encoder.flush()
    }

    fn write(&mut self, at: Timestamp, kind: Kind) -> io::Result<()> {
        encode(at, kind, &mut self.buffer)?;
        self.encoder.write_all(&self.buffer)
    }

    /// Size of what has reached the file.
    fn written(&self) -> io::Result<u64> {
        Ok(self.encoder.get_ref().metadata()?.len())
    }

    fn written_after_first(&self) -> io::Result<u64> {
        Ok(self.written()?.saturating_sub(self.first.unwrap_or_default()))
    }

    fn finish(mut self) -> io::Result<()> {
        self.encoder.try_finish()
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        if self.first.is_none() {
            // What the writer returns is why the plan is missing, not why the file cannot be deleted.
            _ = std::fs::remove_file(&self.path);
        }
    }
}
