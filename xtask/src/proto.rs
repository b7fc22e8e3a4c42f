//! Generates Rust from `proto/plimsoll/**/*.proto` without protoc, so that a build needs no tool beyond cargo.

use anyhow::{Context as _, Result, bail};
use prost::Message as _;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// File name of the encoded descriptor set for gRPC reflection.
const DESCRIPTOR_SET: &str = "descriptors.bin";

/// Writes `proto/src/gen`; with `check`, only reports the changes.
///
/// # Errors
/// If a file cannot be read or written, a `.proto` file is invalid, or with `check` if the committed files are not up
/// to date.
pub(crate) fn generate(check: bool) -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("xtask has no parent directory")?.join("proto");
    let committed = root.join("src/gen");
    let fresh_dir = tempfile::tempdir()?;
    compile(&root, fresh_dir.path())?;
    let fresh = contents(fresh_dir.path())?;
    let old = contents(&committed)?;
    let names = fresh.keys().chain(old.keys()).filter(|name| fresh.get(*name) != old.get(*name));
    let mut changed: Vec<_> = names.map(String::as_str).collect();
    changed.sort_unstable();
    changed.dedup();
    if check {
        if !changed.is_empty() {
            bail!("out of date in {}: {}; run `cargo xtask proto`", committed.display(), changed.join(", "));
        }
        return Ok(());
    }
    std::fs::create_dir_all(&committed)?;
    for name in changed {
        let path = committed.join(name);
        match fresh.get(name) {
            Some(bytes) => std::fs::write(&path, bytes),
            None => std::fs::remove_file(&path),
        }
        .with_context(|| format!("cannot update {}", path.display()))?;
    }
    Ok(())
}

fn compile(root: &Path, out: &Path) -> Result<()> {
    let mut sources = Vec::new();
    find_protos(&root.join("plimsoll"), &mut sources)?;
    sources.sort();
    let mut compiler = protox::Compiler::new([root])?;
    compiler.include_imports(true).include_source_info(true).open_files(&sources)?;
    let mut descriptors = compiler.file_descriptor_set();
    tonic_prost_build::configure()
        .out_dir(out)
        .build_client(true)
        .build_server(true)
        // Services choose their own transport, including in-process transports.
        .build_transport(false)
        // Ordered, so that equal messages have equal encodings, on which checksums depend.
        .btree_map(".")
        .compile_fds(descriptors.clone())?;
    for info in descriptors.file.iter_mut().filter_map(|file| file.source_code_info.as_mut()) {
        // Reflection shows comments. Its callers do not need source positions.
        info.location.retain(|location| location.leading_comments.is_some() || location.trailing_comments.is_some());
        info.location.iter_mut().for_each(|location| location.span = vec![0, 0, 0]);
    }
    std::fs::write(out.join(DESCRIPTOR_SET), descriptors.encode_to_vec())?;
    Ok(())
}

fn find_protos(directory: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    for entry in std::fs::read_dir(directory).with_context(|| format!("cannot list {}", directory.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            find_protos(&path, found)?;
        } else if path.extension().is_some_and(|extension| extension == "proto") {
            found.push(path);
        }
    }
    Ok(())
}

/// Names and contents of the files in a directory; nothing if there is no such directory.
fn contents(directory: &Path) -> Result<BTreeMap<String, Vec<u8>>> {
    if !directory.exists() {
        return Ok(BTreeMap::new());
    }
    let mut files = BTreeMap::new();
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let bytes = std::fs::read(entry.path()).with_context(|| format!("cannot read {}", entry.path().display()))?;
        files.insert(entry.file_name().to_string_lossy().into_owned(), bytes);
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    #[test]
    fn committed_code_is_what_the_proto_files_give() -> anyhow::Result<()> {
        super::generate(true)
    }
}
