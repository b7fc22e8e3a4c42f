//! Reads an image from an archive: its configuration and the files of its layers.

use anyhow::{Context as _, Result, bail};
use flate2::Compression;
use flate2::read::{GzDecoder, GzEncoder};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{Read, sink};
use std::path::Path;
use tar::{Archive, EntryType};

/// Maximum size of a blob and of an unpacked layer: ten times the maximum size of an image, so that a wrong base fails
/// the size check instead of using up the memory.
const BYTES_MAX: u64 = 1 << 30;
/// Prefix that marks a file of an earlier layer as deleted.
const WHITEOUT: &str = ".wh.";
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// An image.
#[derive(Debug, Default)]
pub(super) struct Image {
    /// Processor architecture.
    pub(super) architecture: String,
    /// Runtime configuration.
    pub(super) config: Config,
    /// Every file, by path without a leading slash.
    pub(super) entries: BTreeMap<String, Entry>,
    /// Size of the compressed layers and the configuration, which a node downloads, in bytes.
    pub(super) compressed: u64,
    /// sha256 of the manifest, in hexadecimal.
    pub(super) digest: String,
    pub(super) layers: Vec<Vec<u8>>,
}

/// Runtime configuration of an image.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(super) struct Config {
    pub(super) user: String,
    pub(super) exposed_ports: BTreeMap<String, serde::de::IgnoredAny>,
    pub(super) env: Vec<String>,
    pub(super) entrypoint: Vec<String>,
    pub(super) labels: BTreeMap<String, String>,
}

/// A file of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) kind: EntryType,
    /// Permission bits.
    pub(super) mode: u32,
    pub(super) owner: (u64, u64),
    pub(super) bytes: u64,
    /// Names of extended attributes, such as file capabilities.
    pub(super) attributes: Vec<String>,
    /// Target of a link.
    pub(super) target: Option<String>,
}

#[derive(Deserialize)]
struct Index {
    manifests: Vec<Descriptor>,
}

#[derive(Deserialize)]
struct Manifest {
    config: Descriptor,
    layers: Vec<Descriptor>,
}

#[derive(Deserialize)]
struct Descriptor {
    digest: String,
}

#[derive(Deserialize)]
struct ConfigFile {
    architecture: String,
    config: Config,
}

/// Reads an OCI archive of Buildah, Podman or Docker (25 or later).
///
/// # Errors
/// If the file is not an OCI archive, contains several images, or a layer deletes files of another.
pub(super) fn read(archive: &Path) -> Result<Image> {
    let file = File::open(archive).with_context(|| format!("opening {}", archive.display()))?;
    let blobs = unpack_blobs(file).with_context(|| format!("reading {}", archive.display()))?;
    image(&blobs).with_context(|| archive.display().to_string())
}

fn unpack_blobs(file: impl Read) -> Result<BTreeMap<String, Vec<u8>>> {
    let mut blobs = BTreeMap::new();
    for entry in Archive::new(file).entries()? {
        let entry = entry?;
        if entry.header().entry_type().is_file() {
            let path = plain(&entry.path_bytes());
            blobs.insert(path, read_bounded(entry)?);
        }
    }
    Ok(blobs)
}

fn image(blobs: &BTreeMap<String, Vec<u8>>) -> Result<Image> {
    let index =
        blobs.get("index.json").context("no index.json: not an OCI archive (Docker writes one from version 25)")?;
    let index: Index = serde_json::from_slice(index).context("index.json")?;
    let [manifest] = index.manifests.as_slice() else { bail!("{} images, not one", index.manifests.len()) };
    let digest =
        manifest.digest.strip_prefix("sha256:").context("the digest of the manifest is not sha256")?.to_owned();
    let manifest: Manifest = serde_json::from_slice(blob(blobs, manifest)?).context("the manifest")?;
    let config = blob(blobs, &manifest.config)?;
    let mut compressed = u64::try_from(config.len())?;
    let mut layers = Vec::new();
    for layer in &manifest.layers {
        let bytes = blob(blobs, layer)?;
        let is_gzip = bytes.starts_with(&GZIP);
        compressed += if is_gzip { u64::try_from(bytes.len())? } else { gzip_size(bytes)? };
        layers.push(if is_gzip { read_bounded(GzDecoder::new(bytes))? } else { bytes.to_owned() });
    }
    let ConfigFile { architecture, config } = serde_json::from_slice(config).context("the configuration")?;
    let mut image = Image { architecture, config, compressed, digest, layers, entries: BTreeMap::new() };
    image.entries = entries(&image.layers)?;
    Ok(image)
}

fn blob<'a>(blobs: &'a BTreeMap<String, Vec<u8>>, descriptor: &Descriptor) -> Result<&'a [u8]> {
    let path = format!("blobs/{}", descriptor.digest.replacen(':', "/", 1));
    blobs.get(&path).map(Vec::as_slice).with_context(|| format!("{path} is missing"))
}

fn gzip_size(bytes: &[u8]) -> Result<u64> {
    Ok(std::io::copy(&mut GzEncoder::new(bytes, Compression::default()), &mut sink())?)
}

fn read_bounded(reader: impl Read) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    reader.take(BYTES_MAX).read_to_end(&mut bytes)?;
    if u64::try_from(bytes.len())? == BYTES_MAX {
        bail!("a layer of {BYTES_MAX} bytes or more");
    }
    Ok(bytes)
}

fn plain(path: &[u8]) -> String {
    let text = String::from_utf8_lossy(path);
    text.trim_start_matches("./").trim_matches('/').to_owned()
}

/// Files of the layers; later layers replace earlier ones.
fn entries(layers: &[Vec<u8>]) -> Result<BTreeMap<String, Entry>> {
    let mut all = BTreeMap::new();
    for layer in layers {
        for entry in Archive::new(layer.as_slice()).entries()? {
            let mut entry = entry?;
            let path = plain(&entry.path_bytes());
            if path.split('/').next_back().is_some_and(|name| name.starts_with(WHITEOUT)) {
                bail!("a layer deletes /{path} of an earlier layer: the file is still downloaded");
            }
            let mut attributes = Vec::new();
            if let Some(extensions) = entry.pax_extensions()? {
                for extension in extensions {
                    attributes.extend(extension?.key()?.strip_prefix("SCHILY.xattr.").map(str::to_owned));
                }
            }
            let target = entry.link_name_bytes().map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
            let header = entry.header();
            let found = Entry {
                kind: header.entry_type(),
                mode: header.mode()? & 0o7777,
                owner: (header.uid()?, header.gid()?),
                bytes: entry.size(),
                attributes,
                target,
            };
            if !path.is_empty() {
                all.insert(path, found);
            }
        }
    }
    Ok(all)
}

impl Image {
    /// Content of a regular file, from the last layer that contains it.
    ///
    /// # Errors
    /// If a layer cannot be read.
    pub(super) fn read_file(&self, path: &str) -> Result<Option<Vec<u8>>> {
        for layer in self.layers.iter().rev() {
            for entry in Archive::new(layer.as_slice()).entries()? {
                let entry = entry?;
                if entry.header().entry_type().is_file() && plain(&entry.path_bytes()) == path {
                    return Ok(Some(read_bounded(entry)?));
                }
            }
        }
        Ok(None)
    }

    /// Writes all files to a folder. They belong to the current user.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub(super) fn unpack(&self, folder: &Path) -> Result<()> {
        for layer in &self.layers {
            let mut archive = Archive::new(layer.as_slice());
            archive.set_preserve_permissions(true);
            archive.unpack(folder).with_context(|| format!("unpacking to {}", folder.display()))?;
        }
        Ok(())
    }

    /// Number of regular files.
    pub(super) fn files(&self) -> usize {
        self.entries.values().filter(|entry| entry.kind.is_file()).count()
    }

    /// Total size of the files, in bytes.
    pub(super) fn unpacked(&self) -> u64 {
        self.entries.values().map(|entry| entry.bytes).sum()
    }

    /// Every file with mode, owner, size and target, one per line.
    pub(super) fn listing(&self) -> String {
        let mut text = String::new();
        for (path, entry) in &self.entries {
            let (user, group) = entry.owner;
            let kind = match entry.kind {
                EntryType::Directory => 'd',
                EntryType::Symlink => 'l',
                EntryType::Regular => '-',
                _ => '?',
            };
            let _ = write!(text, "{kind} {:04o} {user}:{group} {:>10} /{path}", entry.mode, entry.bytes);
            if let Some(target) = &entry.target {
                let _ = write!(text, " -> {target}");
            }
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use tar::{Builder, Header};

    fn layer(files: &[(&str, &[u8])]) -> Vec<u8> {
        let mut builder = Builder::new(Vec::new());
        for (path, content) in files {
            let mut header = Header::new_gnu();
            header.set_size(content.len() as u64);
            header.set_mode(0o644);
            header.set_uid(0);
            header.set_gid(0);
            header.set_entry_type(EntryType::Regular);
            builder.append_data(&mut header, path, *content).unwrap();
        }
        builder.into_inner().unwrap()
    }

    fn archive(layers: &[Vec<u8>]) -> Vec<u8> {
        let descriptor = |name: &str| format!(r#"{{"digest":"sha256:{name}"}}"#);
        let names: Vec<String> = (0..layers.len()).map(|index| format!("layer{index}")).collect();
        let all: Vec<String> = names.iter().map(|name| descriptor(name)).collect();
        let manifest = format!(r#"{{"config":{},"layers":[{}]}}"#, descriptor("config"), all.join(","));
        let config = r#"{"architecture":"amd64","config":{"User":"1:2","ExposedPorts":{"7/tcp":{}}}}"#;
        let index = format!(r#"{{"manifests":[{}]}}"#, descriptor("manifest"));
        let mut files: Vec<(String, &[u8])> = vec![
            ("index.json".to_owned(), index.as_bytes()),
            ("blobs/sha256/manifest".to_owned(), manifest.as_bytes()),
            ("blobs/sha256/config".to_owned(), config.as_bytes()),
        ];
        for (name, bytes) in names.iter().zip(layers) {
            files.push((format!("blobs/sha256/{name}"), bytes));
        }
        layer(&files.iter().map(|(path, content)| (path.as_str(), *content)).collect::<Vec<_>>())
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        read_bounded(GzEncoder::new(bytes, Compression::default())).unwrap()
    }

    fn read_bytes(layers: &[Vec<u8>]) -> Result<Image> {
        image(&unpack_blobs(archive(layers).as_slice())?)
    }

    #[test]
    fn later_layers_lie_over_earlier_ones_compressed_or_not() {
        let first = layer(&[("./etc/a", b"old"), ("etc/b", b"b")]);
        let image = read_bytes(&[gzip(&first), layer(&[("etc/a", b"newer")])]).unwrap();
        assert_eq!(image.entries.keys().collect::<Vec<_>>(), ["etc/a", "etc/b"]);
        assert_eq!(image.read_file("etc/a").unwrap().unwrap(), b"newer");
        assert_eq!(image.read_file("etc/c").unwrap(), None);
        assert_eq!((image.files(), image.unpacked()), (2, 6));
        assert_eq!((image.config.user.as_str(), image.architecture.as_str()), ("1:2", "amd64"));
        assert!(image.config.exposed_ports.contains_key("7/tcp"));
        assert!(image.listing().starts_with("- 0644 0:0          5 /etc/a\n"), "{}", image.listing());
    }

    #[test]
    fn a_layer_counts_as_it_is_downloaded_however_it_is_stored() {
        let bytes = layer(&[("zeros", &[0; 100_000])]);
        let (packed, plain) = (read_bytes(&[gzip(&bytes)]).unwrap(), read_bytes(std::slice::from_ref(&bytes)).unwrap());
        assert_eq!(packed.compressed, plain.compressed);
        assert!(packed.compressed < 2_000, "{}", packed.compressed);
    }

    #[test]
    fn files_that_are_taken_back_are_refused() {
        let error = read_bytes(&[layer(&[("etc/.wh.shadow", b"")])]).unwrap_err();
        assert!(error.to_string().contains("/etc/.wh.shadow"), "{error}");
    }

    #[test]
    fn an_archive_of_another_kind_is_refused() {
        let error = image(&unpack_blobs(layer(&[("manifest.json", b"[]")]).as_slice()).unwrap()).unwrap_err();
        assert!(error.to_string().contains("index.json"), "{error}");
    }
}
