//! Reads a recording.

use crate::catalogs::KnownCatalogs;
use crate::{FORMAT, MAX_ENTRY_BYTES};
use flate2::read::GzDecoder;
use plimsoll_model::catalog::Catalog;
use plimsoll_model::execution::Outcome;
use plimsoll_model::identity::CatalogId;
use plimsoll_model::plan::{Plan, PlanOptions};
use plimsoll_model::snapshot::{Snapshot, SnapshotIndex};
use plimsoll_model::time::Timestamp;
use plimsoll_proto::catalog::v1 as catalog_wire;
use plimsoll_proto::delta::Mirror;
use plimsoll_proto::protocol::{PROTOCOL, protocol_of};
use plimsoll_proto::recording::v1 as wire;
use plimsoll_proto::recording::v1::entry::Entry as Kind;
use prost::Message as _;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};

/// Bytes of a varint, with seven bits each, that hold this size.
const MAX_LENGTH_BYTES: usize = 4;

/// Limits of a snapshot in memory: a small file can contain a large one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SnapshotLimits {
    /// Maximum number of objects of all kinds.
    pub(crate) objects: usize,
    /// Maximum encoded size of a full snapshot.
    pub(crate) bytes: usize,
}

/// Those of a scheduler, which made the plans.
const LIMITS: SnapshotLimits = SnapshotLimits { objects: 1_000_000, bytes: 256 << 20 };

/// Why a recording cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// A file cannot be opened or read.
    #[error("{}: {error}", file.display())]
    Io {
        /// The file.
        file: PathBuf,
        /// The error.
        error: io::Error,
    },
    /// The content of a file is invalid.
    #[error("{}: entry {entry}: {problem}", file.display())]
    Invalid {
        /// The file.
        file: PathBuf,
        /// Number of the entry in the file, from 1.
        entry: usize,
        /// What is wrong.
        problem: String,
    },
}

/// A plan of a recording.
#[derive(Debug, Clone)]
pub struct Planned {
    /// Id of the cycle.
    pub cycle_id: String,
    /// Options of the plan.
    pub options: PlanOptions,
    /// The plan as recorded.
    pub plan: Plan,
}

/// What the next entry says. The reader has the snapshot and the catalogs.
#[derive(Debug, Clone)]
pub enum Step {
    /// A full snapshot replaces the former, of which nothing may be kept.
    Restarted,
    /// A plan for the current snapshot.
    Planned(Box<Planned>),
    /// What became of an action.
    Reported {
        /// Id of the cycle.
        cycle_id: String,
        /// The outcome.
        outcome: Outcome,
    },
}

/// Reads one file of a recording.
pub struct Reader {
    file: PathBuf,
    input: BufReader<GzDecoder<File>>,
    entry: usize,
    cluster: String,
    version: String,
    protocol: u32,
    at: Timestamp,
    mirror: Mirror,
    catalogs: BTreeMap<CatalogId, Catalog>,
    /// Ids of `catalogs`.
    known: KnownCatalogs,
    truncated: bool,
    limits: SnapshotLimits,
    /// Encoded size of the last full snapshot, so far.
    snapshot_bytes: usize,
}

impl Reader {
    /// Opens a file and reads its header. If the watcher was killed before it wrote the header, the file is truncated
    /// and has no step, and its cluster and version are empty.
    ///
    /// # Errors
    /// If the file cannot be read, is no recording, or has a later format.
    pub fn open(file: &Path) -> Result<Self, ReadError> {
        Self::open_within(file, LIMITS)
    }

    pub(crate) fn open_within(file: &Path, limits: SnapshotLimits) -> Result<Self, ReadError> {
        let opened = File::open(file).map_err(|error| ReadError::Io { file: file.to_owned(), error })?;
        let mut reader = Self {
            file: file.to_owned(),
            input: BufReader::new(GzDecoder::new(opened)),
            entry: 0,
            cluster: String::new(),
            version: String::new(),
            protocol: PROTOCOL,
            at: Timestamp(0),
            mirror: Mirror::default(),
            catalogs: BTreeMap::new(),
            known: KnownCatalogs::default(),
            truncated: false,
            limits,
            snapshot_bytes: 0,
        };
        let header = match reader.next_entry()? {
            Some(wire::Entry { entry: Some(Kind::Header(header)), .. }) => header,
            None if reader.truncated => return Ok(reader),
            _ => return Err(reader.invalid("the file does not begin with a header")),
        };
        if header.format > FORMAT {
            let problem = format!("format {} is later than {FORMAT}, which this version reads", header.format);
            return Err(reader.invalid(problem));
        }
        reader.protocol = protocol_of("recording", header.protocol).map_err(|error| reader.invalid(error))?;
        (reader.cluster, reader.version) = (header.cluster, header.version);
        Ok(reader)
    }

    /// Name of the cluster.
    #[must_use]
    pub fn cluster(&self) -> &str {
        &self.cluster
    }

    /// Version of the watcher that recorded.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    /// When the last entry was written.
    #[must_use]
    pub fn at(&self) -> Timestamp {
        self.at
    }

    /// Whether the file ends in the middle of an entry, since the watcher was killed.
    #[must_use]
    pub fn is_truncated(&self) -> bool {
        self.truncated
    }

    /// The current snapshot with its index.
    #[must_use]
    pub fn snapshot(&self) -> Option<(&Snapshot, &SnapshotIndex)> {
        self.mirror.indexed()
    }

    /// The catalogs of the current snapshot, and some of earlier ones.
    #[must_use]
    pub fn catalogs(&self) -> &BTreeMap<CatalogId, Catalog> {
        &self.catalogs
    }

    /// Reads until the next step. `None` at the end of the file.
    ///
    /// # Errors
    /// If the file cannot be read, or an entry is invalid.
    pub fn next_step(&mut self) -> Result<Option<Step>, ReadError> {
        while let Some(entry) = self.next_entry()? {
            self.at = Timestamp(entry.at_unix_ms);
            let step = match entry.entry {
                // A kind of entry that a later version has added.
                None => None,
                Some(Kind::Header(_)) => return Err(self.invalid("a second header")),
                Some(Kind::Catalog(catalog)) => {
                    self.catalog(catalog)?;
                    None
                }
                Some(Kind::SnapshotChunk(chunk)) => {
                    let before = if chunk.index == 0 { 0 } else { self.snapshot_bytes };
                    self.snapshot_bytes = before.saturating_add(chunk.encoded_len());
                    if self.snapshot_bytes > self.limits.bytes {
                        return Err(self.invalid(format!("the snapshot has more than {} bytes", self.limits.bytes)));
                    }
                    let is_complete = self.mirror.apply_chunk(chunk).map_err(|error| self.invalid(error))?;
                    self.check_objects()?;
                    is_complete.then_some(Step::Restarted)
                }
                Some(Kind::Delta(delta)) => {
                    self.mirror.apply_delta(delta).map_err(|error| self.invalid(error))?;
                    self.check_objects()?;
                    None
                }
                Some(Kind::Planned(planned)) => {
                    let step = self.planned(planned)?;
                    self.forget_catalogs();
                    Some(step)
                }
                Some(Kind::Reported(wire::Reported { cycle_id, outcome })) => {
                    let outcome = outcome.ok_or_else(|| self.invalid("reported.outcome is not set"))?;
                    let outcome = Outcome::try_from(outcome).map_err(|error| self.invalid(error))?;
                    Some(Step::Reported { cycle_id, outcome })
                }
            };
            if step.is_some() {
                return Ok(step);
            }
        }
        Ok(None)
    }

    fn catalog(&mut self, catalog: catalog_wire::Catalog) -> Result<(), ReadError> {
        // The id of another version may cover other fields, so it cannot be checked.
        let is_checked = self.protocol == PROTOCOL || catalog.id.is_empty();
        let other = (!is_checked).then(|| CatalogId(catalog.id.clone()));
        let id = if is_checked { catalog.id.clone() } else { String::new() };
        let catalog =
            Catalog::try_from(catalog_wire::Catalog { id, ..catalog }).map_err(|error| self.invalid(error))?;
        let id = other.unwrap_or_else(|| catalog.id());
        self.known.add(id.clone());
        self.catalogs.insert(id, catalog);
        Ok(())
    }

    fn forget_catalogs(&mut self) {
        let pools = self.mirror.snapshot().into_iter().flat_map(|snapshot| &snapshot.node_pools);
        let needed = pools.filter_map(|pool| pool.catalog.clone()).collect();
        for id in self.known.forget(&needed) {
            self.catalogs.remove(&id);
        }
    }

    fn check_objects(&self) -> Result<(), ReadError> {
        let (objects, most) = (self.mirror.snapshot().map_or(0, object_count), self.limits.objects);
        let problem = || self.invalid(format!("the snapshot has {objects} objects, more than {most}"));
        if objects > most { Err(problem()) } else { Ok(()) }
    }

    fn planned(&self, planned: wire::Planned) -> Result<Step, ReadError> {
        let missing = |field| self.invalid(format!("planned.{field} is not set"));
        let options = planned.options.ok_or_else(|| missing("options"))?;
        let plan = planned.plan.ok_or_else(|| missing("plan"))?;
        let planned = Planned {
            cycle_id: planned.cycle_id,
            options: PlanOptions::from(options),
            plan: Plan::try_from(plan).map_err(|error| self.invalid(error))?,
        };
        if self.mirror.snapshot().map(|snapshot| snapshot.sequence) != Some(planned.plan.snapshot_sequence) {
            return Err(self.invalid("the plan is not for the snapshot before it"));
        }
        Ok(Step::Planned(Box::new(planned)))
    }

    fn next_entry(&mut self) -> Result<Option<wire::Entry>, ReadError> {
        if self.truncated {
            return Ok(None);
        }
        self.entry += 1;
        let bytes = match self.next_bytes() {
            Ok(Some(bytes)) => bytes,
            Ok(None) => return Ok(None),
            // The watcher was killed while it wrote. What is complete is valid.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                self.truncated = true;
                return Ok(None);
            }
            Err(error) if error.kind() == io::ErrorKind::InvalidData => return Err(self.invalid(error)),
            Err(error) if self.entry == 1 => return Err(self.invalid(format!("not a recording: {error}"))),
            // The file is not what was compressed.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => return Err(self.invalid(error)),
            Err(error) => return Err(ReadError::Io { file: self.file.clone(), error }),
        };
        wire::Entry::decode(bytes.as_slice()).map(Some).map_err(|error| self.invalid(error))
    }

    /// The bytes of the next entry. `None` at the end of the file.
    fn next_bytes(&mut self) -> io::Result<Option<Vec<u8>>> {
        let Some(length) = self.next_length()? else { return Ok(None) };
        if length > MAX_ENTRY_BYTES {
            let problem = format!("it has {length} bytes, more than {MAX_ENTRY_BYTES}");
            return Err(io::Error::new(io::ErrorKind::InvalidData, problem));
        }
        let mut bytes = vec![0; length];
        self.input.read_exact(&mut bytes)?;
        Ok(Some(bytes))
    }

    /// The length of the next entry, a varint. `None` at the end of the file.
    fn next_length(&mut self) -> io::Result<Option<usize>> {
        let mut length: usize = 0;
        for position in 0..MAX_LENGTH_BYTES {
            let mut byte = [0_u8];
            if position == 0 && self.input.fill_buf()?.is_empty() {
                return Ok(None);
            }
            self.input.read_exact(&mut byte)?;
            let [byte] = byte;
            length |= usize::from(byte & 0x7f) << (7 * position);
            if byte & 0x80 == 0 {
                return Ok(Some(length));
            }
        }
        Err(io::Error::new(io::ErrorKind::InvalidData, "its length is not a number"))
    }

    fn invalid(&self, problem: impl Display) -> ReadError {
        let mut problem = problem.to_string();
        // Fields and values that this version does not know look like damage, for example in checksums.
        if self.protocol > PROTOCOL {
            let (version, protocol) = (&self.version, self.protocol);
            let recorded = format!("; version {version} recorded it with protocol {protocol}");
            problem.push_str(&format!("{recorded}, this one reads up to {PROTOCOL}"));
        }
        ReadError::Invalid { file: self.file.clone(), entry: self.entry, problem }
    }
}

fn object_count(snapshot: &Snapshot) -> usize {
    let small = snapshot.node_pools.len() + snapshot.daemon_sets.len() + snapshot.pod_disruption_budgets.len();
    let offerings = snapshot.unavailable_offerings.len() + snapshot.reservations.len() + snapshot.capacity_quotas.len();
    snapshot.shapes.len() + snapshot.pods.len() + snapshot.nodes.len() + snapshot.ignored.len() + small + offerings
}
