//! Checks of every image: small, without a shell, and with an unprivileged user.

use super::oci::{Entry, Image};
use crate::harness::confine::USER;
use std::collections::BTreeSet;

/// A node downloads an image before anything else: 40 MB take less than a second within a region.
const COMPRESSED_MAX: u64 = 40_000_000;
const SET_ID: u32 = 0o6000;
const STICKY: u32 = 0o1000;
const OTHERS_WRITE: u32 = 0o002;
const EXECUTE: u32 = 0o111;
const SHELLS: [&str; 9] = ["sh", "bash", "dash", "ash", "zsh", "ksh", "busybox", "toybox", "tcsh"];
const PACKAGE_MANAGERS: [&str; 9] = ["apt", "apt-get", "dpkg", "apk", "rpm", "dnf", "yum", "pip", "cargo"];
const LABELS: [&str; 6] = ["title", "version", "revision", "source", "licenses", "created"];
/// Files for name resolution and trust in servers, and descriptions with which the SBOM names the base.
const NEEDED: [&str; 4] =
    ["etc/passwd", "etc/nsswitch.conf", "etc/ssl/certs/ca-certificates.crt", "var/lib/dpkg/status.d/libc6"];

/// Expected properties of an image.
#[derive(Debug)]
pub(super) struct Expected {
    /// The only program, without a leading slash.
    pub(super) program: String,
    pub(super) architecture: String,
    /// Ports of the manifest.
    pub(super) ports: BTreeSet<i32>,
    pub(super) version: String,
    pub(super) revision: String,
}

/// All faults of an image.
pub(super) fn faults(image: &Image, expected: &Expected) -> Vec<String> {
    let mut faults = config_faults(image, expected);
    if image.compressed > COMPRESSED_MAX {
        faults.push(format!("{} bytes compressed, at most {COMPRESSED_MAX}", image.compressed));
    }
    match image.entries.get(&expected.program) {
        Some(entry) if entry.kind.is_file() && entry.mode == 0o755 && entry.owner == (0, 0) => {}
        Some(entry) => faults.push(format!(
            "/{}: mode {:o} of {:?}, not a file of mode 755 of root",
            expected.program, entry.mode, entry.owner
        )),
        None => faults.push(format!("no file /{}", expected.program)),
    }
    let missing = NEEDED.iter().filter(|path| !image.entries.contains_key(**path));
    faults.extend(missing.map(|path| format!("no file /{path}")));
    faults.extend(image.entries.iter().filter_map(|(path, entry)| {
        let fault = file_fault(path, entry, &expected.program)?;
        Some(format!("/{path}: {fault}"))
    }));
    faults
}

fn config_faults(image: &Image, expected: &Expected) -> Vec<String> {
    let config = &image.config;
    let mut faults = Vec::new();
    if config.user != USER {
        faults.push(format!("user {:?}, not {USER}", config.user));
    }
    if image.architecture != expected.architecture {
        faults.push(format!("architecture {}, not {}", image.architecture, expected.architecture));
    }
    let entrypoint = format!("/{}", expected.program);
    if config.entrypoint != [entrypoint.clone()] {
        faults.push(format!("entrypoint {:?}, not {entrypoint}: the manifests give arguments only", config.entrypoint));
    }
    let exposed: BTreeSet<String> = config.exposed_ports.keys().cloned().collect();
    let ports: BTreeSet<String> = expected.ports.iter().map(|port| format!("{port}/tcp")).collect();
    if exposed != ports {
        faults.push(format!("exposes {exposed:?}; the manifest has {ports:?}"));
    }
    faults.extend(config.env.iter().filter(|variable| !variable.starts_with("PATH=")).map(|variable| {
        // The value may be secret.
        format!("environment variable {}", variable.split('=').next().unwrap_or_default())
    }));
    let label = |name: &str| config.labels.get(&format!("org.opencontainers.image.{name}")).map(String::as_str);
    let empty = LABELS.iter().filter(|name| label(name).unwrap_or_default().is_empty());
    faults.extend(empty.map(|name| format!("no label org.opencontainers.image.{name}")));
    for (name, value) in [("version", &expected.version), ("revision", &expected.revision)] {
        if label(name) != Some(value) {
            faults.push(format!("label org.opencontainers.image.{name} is {:?}, not {value:?}", label(name)));
        }
    }
    faults
}

fn file_fault(path: &str, entry: &Entry, program: &str) -> Option<String> {
    let name = path.rsplit('/').next().unwrap_or(path);
    let is_link = entry.kind.is_symlink();
    if SHELLS.contains(&name) && !entry.kind.is_dir() {
        return Some("a shell".to_owned());
    }
    if PACKAGE_MANAGERS.contains(&name) && !entry.kind.is_dir() {
        return Some("a package manager".to_owned());
    }
    if entry.mode & SET_ID != 0 && !is_link {
        return Some(format!("mode {:o}: set-user-ID or set-group-ID", entry.mode));
    }
    if entry.attributes.iter().any(|attribute| attribute == "security.capability") {
        return Some("has file capabilities".to_owned());
    }
    if entry.mode & OTHERS_WRITE != 0 && !is_link && !(entry.kind.is_dir() && entry.mode & STICKY != 0) {
        return Some(format!("mode {:o}: anybody may write", entry.mode));
    }
    if !(entry.kind.is_file() || entry.kind.is_dir() || is_link || entry.kind.is_hard_link()) {
        return Some(format!("{:?}, not a file", entry.kind));
    }
    let is_library = name.contains(".so.") || name.ends_with(".so");
    if entry.kind.is_file() && entry.mode & EXECUTE != 0 && path != program && !is_library {
        return Some("a second program".to_owned());
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::oci::Config;
    use std::collections::BTreeMap;
    use tar::EntryType;

    const PROGRAM: &str = "usr/bin/plimsoll-scheduler";

    fn file(mode: u32) -> Entry {
        Entry { kind: EntryType::Regular, mode, owner: (0, 0), bytes: 1, attributes: Vec::new(), target: None }
    }

    fn expected() -> Expected {
        Expected {
            program: PROGRAM.to_owned(),
            architecture: "amd64".to_owned(),
            ports: BTreeSet::from([9442, 8081]),
            version: "0.1.0".to_owned(),
            revision: "abc".to_owned(),
        }
    }

    fn good() -> Image {
        let mut entries: BTreeMap<String, Entry> =
            NEEDED.iter().map(|path| ((*path).to_owned(), file(0o644))).collect();
        entries.insert(PROGRAM.to_owned(), file(0o755));
        entries.insert("usr/lib/libc.so.6".to_owned(), file(0o755));
        entries.insert("bin".to_owned(), Entry { kind: EntryType::Symlink, ..file(0o777) });
        entries.insert("tmp".to_owned(), Entry { kind: EntryType::Directory, ..file(0o1777) });
        let mut labels: BTreeMap<String, String> =
            LABELS.iter().map(|name| (format!("org.opencontainers.image.{name}"), "x".to_owned())).collect();
        labels.insert("org.opencontainers.image.version".to_owned(), "0.1.0".to_owned());
        labels.insert("org.opencontainers.image.revision".to_owned(), "abc".to_owned());
        let ports = r#"{"9442/tcp": {}, "8081/tcp": {}}"#;
        let config = Config {
            user: USER.to_owned(),
            exposed_ports: serde_json::from_str(ports).unwrap(),
            env: vec!["PATH=/bin".to_owned()],
            entrypoint: vec![format!("/{PROGRAM}")],
            labels,
        };
        Image { architecture: "amd64".to_owned(), config, entries, compressed: COMPRESSED_MAX, ..Image::default() }
    }

    /// The single fault that a change causes.
    fn fault_of(change: impl FnOnce(&mut Image)) -> String {
        let mut image = good();
        change(&mut image);
        let faults = faults(&image, &expected());
        assert_eq!(faults.len(), 1, "{faults:?}");
        faults.into_iter().next().unwrap_or_default()
    }

    fn fault_with(path: &str, entry: Entry) -> String {
        fault_of(|image| drop(image.entries.insert(path.to_owned(), entry)))
    }

    #[test]
    fn a_good_image_has_no_faults() {
        assert_eq!(faults(&good(), &expected()), Vec::<String>::new());
    }

    #[test]
    fn files_that_do_not_belong_are_refused() {
        assert_eq!(fault_with("bin/sh", file(0o755)), "/bin/sh: a shell");
        let link = Entry { kind: EntryType::Symlink, target: Some("busybox".to_owned()), ..file(0o777) };
        assert_eq!(fault_with("usr/bin/sh", link), "/usr/bin/sh: a shell");
        assert_eq!(fault_with("usr/bin/apt-get", file(0o755)), "/usr/bin/apt-get: a package manager");
        assert_eq!(fault_with("usr/bin/curl", file(0o755)), "/usr/bin/curl: a second program");
        assert!(fault_with("usr/bin/su", file(0o4755)).contains("set-user-ID"));
        assert!(fault_with("etc/secret", file(0o666)).contains("anybody may write"));
        let capable = Entry { attributes: vec!["security.capability".to_owned()], ..file(0o644) };
        assert!(fault_with("usr/lib/libx.so", capable).contains("capabilities"));
        let device = Entry { kind: EntryType::Block, ..file(0o600) };
        assert!(fault_with("dev/sda", device).contains("Block"));
    }

    #[test]
    fn a_program_or_a_file_that_is_missing_is_told() {
        let gone = |path: &'static str| fault_of(move |image| drop(image.entries.remove(path)));
        assert_eq!(gone(PROGRAM), format!("no file /{PROGRAM}"));
        assert_eq!(gone("etc/ssl/certs/ca-certificates.crt"), "no file /etc/ssl/certs/ca-certificates.crt");
        assert!(fault_with(PROGRAM, Entry { owner: (65532, 65532), ..file(0o755) }).contains("not a file of mode 755"));
    }

    #[test]
    fn the_configuration_is_that_of_the_manifests() {
        assert!(fault_of(|image| image.config.user = "root".to_owned()).contains("65532:65532"));
        assert!(
            fault_of(|image| {
                image.config.exposed_ports.remove("8081/tcp");
            })
            .contains("8081/tcp")
        );
        assert!(fault_of(|image| image.config.entrypoint = vec!["/bin/x".to_owned()]).contains("entrypoint"));
        assert!(fault_of(|image| image.architecture = "arm64".to_owned()).contains("arm64"));
        assert!(fault_of(|image| image.compressed += 1).contains("40000001 bytes"));
        let label = |name: &str, value: &str| (format!("org.opencontainers.image.{name}"), value.to_owned());
        assert!(fault_of(|image| image.config.labels.extend([label("version", "0.2.0")])).contains("0.2.0"));
        assert!(fault_of(|image| image.config.labels.extend([label("licenses", "")])).contains("licenses"));
        let fault = fault_of(|image| image.config.env.push("TOKEN=secret".to_owned()));
        assert_eq!(fault, "environment variable TOKEN", "the message does not contain the value");
    }
}
