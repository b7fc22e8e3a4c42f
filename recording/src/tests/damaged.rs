//! Files that are not complete, or not those of a recording.

use super::*;
use crate::read::SnapshotLimits;

#[test]
fn a_file_of_a_killed_watcher_is_read_up_to_its_last_complete_entry() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = writer(folder.path(), UNLIMITED);
    [10, 20, 30].iter().for_each(|sequence| record(&mut writer, *sequence, "r").unwrap());
    std::mem::forget(writer);
    let file = files(folder.path()).unwrap().remove(0);
    assert_eq!(sequences(&file), [10, 20, 30], "each plan is flushed");
    let bytes = std::fs::read(&file).unwrap();
    let mut counts = Vec::new();
    for length in 0..=bytes.len() {
        std::fs::write(&file, &bytes[..length]).unwrap();
        counts.push(sequences(&file).len());
    }
    counts.dedup();
    assert_eq!(counts, [0, 1, 2, 3]);
    let mut reader = Reader::open(&file).unwrap();
    while reader.next_step().unwrap().is_some() {}
    assert!(reader.is_truncated());
}

#[test]
fn a_file_without_a_header_is_truncated() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("plimsoll-x.recording.gz");
    for length in [0, 10] {
        std::fs::write(&file, &gzip(&[1; 100])[..length]).unwrap();
        let mut reader = Reader::open(&file).unwrap();
        assert!(reader.next_step().unwrap().is_none() && reader.is_truncated(), "{length} bytes");
    }
}

#[test]
fn a_corrupt_file_is_refused_with_the_number_of_the_entry() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = writer(folder.path(), UNLIMITED);
    [10, 20, 30].iter().for_each(|sequence| record(&mut writer, *sequence, "r").unwrap());
    drop(writer);
    let file = files(folder.path()).unwrap().remove(0);
    let bytes = std::fs::read(&file).unwrap();
    // The last eight bytes are the checksum and the length.
    let mut corrupt = bytes.clone();
    corrupt[bytes.len() - 8] ^= 1;
    std::fs::write(&file, corrupt).unwrap();
    let mut reader = Reader::open(&file).unwrap();
    let error = loop {
        match reader.next_step() {
            Ok(step) => assert!(step.is_some(), "the end was read"),
            Err(error) => break error.to_string().replace(&file.display().to_string(), "FILE"),
        }
    };
    // After the header, the catalog, the snapshot, and three plans with two changes between them.
    assert_eq!(error, "FILE: entry 9: corrupt gzip stream does not have a matching checksum");
}

#[test]
fn a_snapshot_that_is_too_large_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = writer(folder.path(), UNLIMITED);
    // Two chunks with 1,000 and 500 objects, then one object more.
    [1500, 1501].iter().for_each(|sequence| record(&mut writer, *sequence, "r").unwrap());
    let file = files(folder.path()).unwrap().remove(0);
    let read = |limits| {
        let mut reader = Reader::open_within(&file, limits).unwrap();
        loop {
            match reader.next_step() {
                Ok(Some(_)) => {}
                Ok(None) => return "read".to_owned(),
                Err(error) => return error.to_string().replace(&file.display().to_string(), "FILE"),
            }
        }
    };
    // An object has about 50 bytes, so the second chunk is too much.
    let limits = SnapshotLimits { objects: 1501, bytes: 65_000 };
    assert_eq!(read(limits), "FILE: entry 4: the snapshot has more than 65000 bytes");
    let limits = SnapshotLimits { bytes: 100_000, ..limits };
    assert_eq!(read(limits), "read");
    let limits = SnapshotLimits { objects: 1500, ..limits };
    assert_eq!(read(limits), "FILE: entry 6: the snapshot has 1501 objects, more than 1500");
}

#[test]
fn other_files_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("plimsoll-x.recording.gz");
    let problem = |bytes: &[u8]| {
        std::fs::write(&file, bytes).unwrap();
        let Err(error) = Reader::open(&file) else { panic!("it was opened") };
        error.to_string().replace(&file.display().to_string(), "FILE")
    };
    assert!(problem(b"apiVersion: v1").starts_with("FILE: entry 1: not a recording: "));
    assert_eq!(problem(&gzip(&[])), "FILE: entry 1: the file does not begin with a header");
    assert_eq!(problem(&gzip(&[0xff; 8])), "FILE: entry 1: its length is not a number");
    assert_eq!(problem(&gzip(&[0xff, 0xff, 0xff, 0x7f])), "FILE: entry 1: it has 268435455 bytes, more than 67108864");
    let header = plimsoll_proto::recording::v1::Header { format: FORMAT + 1, ..Default::default() };
    let entry = plimsoll_proto::recording::v1::Entry {
        at_unix_ms: 0,
        entry: Some(plimsoll_proto::recording::v1::entry::Entry::Header(header)),
    };
    let bytes = prost::Message::encode_length_delimited_to_vec(&entry);
    assert_eq!(problem(&gzip(&bytes)), "FILE: entry 1: format 2 is later than 1, which this version reads");
    std::fs::remove_file(&file).unwrap();
    assert!(matches!(Reader::open(&file), Err(ReadError::Io { .. })));
}

#[test]
fn ids_of_catalogs_are_checked_if_the_version_computes_them_alike() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("plimsoll-x.recording.gz");
    let read = |protocol: u32| {
        use plimsoll_proto::recording::v1::{Entry, Header, entry};
        let header = entry::Entry::Header(Header { format: FORMAT, protocol, ..Default::default() });
        let other = catalog_wire::Catalog { id: "other".to_owned(), ..catalog("r").as_ref().clone() };
        let entries = [header, entry::Entry::Catalog(other)].map(|entry| Entry { at_unix_ms: 0, entry: Some(entry) });
        let bytes = entries.map(|entry| prost::Message::encode_length_delimited_to_vec(&entry)).concat();
        std::fs::write(&file, gzip(&bytes)).unwrap();
        let mut reader = Reader::open(&file).unwrap();
        let end = reader.next_step().map(|step| step.is_none()).map_err(|error| error.to_string());
        (end, reader.catalogs().keys().map(|id| id.0.clone()).collect::<Vec<_>>())
    };
    assert_eq!(read(1), (Ok(true), vec!["other".to_owned()]));
    let (error, known) = read(plimsoll_proto::protocol::PROTOCOL);
    assert!(error.unwrap_err().contains("entry 2: catalog.id: is other") && known.is_empty());
}

#[test]
fn an_error_in_a_file_of_a_later_version_names_the_version() {
    use plimsoll_proto::protocol::PROTOCOL;
    use plimsoll_proto::recording::v1::{Entry, Header, entry};
    use plimsoll_proto::snapshot::v1::{Snapshot, SnapshotChunk};
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("plimsoll-x.recording.gz");
    let problem = |protocol: u32| {
        let header = Header { format: FORMAT, protocol, version: "9.9.9".to_owned(), ..Default::default() };
        // As if the checksum covered a field that is unknown here.
        let chunk = SnapshotChunk { index: 0, last: true, part: Some(Snapshot::default()), checksum: 1 };
        let entries = [entry::Entry::Header(header), entry::Entry::SnapshotChunk(chunk)];
        let entries = entries.map(|entry| Entry { at_unix_ms: 0, entry: Some(entry) });
        let bytes = entries.map(|entry| prost::Message::encode_length_delimited_to_vec(&entry)).concat();
        std::fs::write(&file, gzip(&bytes)).unwrap();
        let error = Reader::open(&file).unwrap().next_step().unwrap_err();
        error.to_string().replace(&file.display().to_string(), "FILE")
    };
    let damaged = "FILE: entry 2: checksum is 0000000000000000, but the sender's is 0000000000000001";
    assert_eq!(problem(PROTOCOL), damaged);
    let (later, own) = (PROTOCOL + 1, PROTOCOL);
    let expected = format!("{damaged}; version 9.9.9 recorded it with protocol {later}, this one reads up to {own}");
    assert_eq!(problem(later), expected);
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    use std::io::Write as _;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}
