//! Karpenter's results for the instances. They take much longer than everything else and only their cost counts, so
//! they are cached as long as instance, seeds and Karpenter are the same.

use crate::bench::{Bench, PROGRESS};
use anyhow::{Context as _, Result};
use plimsoll_model::identity::ContentHasher;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Number of instances per request; at most this many are lost when a run is interrupted.
const AT_ONCE: usize = 10;

/// A result for each folder.
pub(super) fn kept(bench: &Bench, dir: &Path, folders: &[PathBuf], catalog: &Path) -> Result<Vec<Value>> {
    let seeds = bench.args.peer_seeds;
    let peer = std::fs::read(bench.measure.root.join("tests/peers/karpenter/go.sum"))?;
    let kept = dir.with_extension("answers");
    std::fs::create_dir_all(&kept).with_context(|| format!("making {}", kept.display()))?;
    let mut files = Vec::new();
    for folder in folders {
        let mut hasher = ContentHasher::new("answer");
        for text in [&std::fs::read(folder.join("manifests/cluster.json"))?, &std::fs::read(catalog)?, &peer] {
            hasher.text(&String::from_utf8_lossy(text));
        }
        hasher.text(&seeds.to_string());
        files.push(kept.join(format!("{}.json", hasher.hex(32))));
    }
    let missing: Vec<usize> = (0..files.len()).filter(|index| !files[*index].exists()).collect();
    for some in missing.chunks(AT_ONCE) {
        PROGRESS.say(&format!("Karpenter on instances {:?}", some.iter().map(|index| index + 1).collect::<Vec<_>>()));
        let about: Vec<_> = some.iter().map(|index| (folders[*index].join("manifests"), catalog.to_owned())).collect();
        for (index, answer) in some.iter().zip(bench.measure.ask(&about, 0..seeds, false)?) {
            std::fs::write(&files[*index], answer.to_string())?;
        }
    }
    let read = |file: &PathBuf| -> Result<Value> {
        let text = std::fs::read(file).with_context(|| format!("reading {}", file.display()))?;
        Ok(serde_json::from_slice(&text)?)
    };
    files.iter().map(read).collect()
}
