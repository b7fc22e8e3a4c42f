//! Runs a program in an image's root file system, like a container runtime with the settings of the manifests.

use anyhow::{Context as _, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

/// User and group of the pods in deploy/kubernetes.
pub(crate) const USER: &str = "65532:65532";
/// Operations of a container runtime that Linux may deny to a user: see [`trouble`].
const PROBE: &str = "mount --bind /proc /proc && chroot --userspec=\"$0\" / true";

/// Arguments: root file system, mounts (`ro` or `rw`, from, to), `--`, program. The root becomes read-only last,
/// because mount points are created in it before. chroot sets the user: a program of another user than root has no
/// capabilities, and no-new-privs prevents it from getting any.
const SCRIPT: &str = r#"
set -eu
root=$1 user=$2
shift 2
mount --bind "$root" "$root"
mkdir -p "$root/proc" "$root/dev"
mount --rbind /proc "$root/proc"
for device in null zero random urandom; do
  : > "$root/dev/$device"
  mount --bind "/dev/$device" "$root/dev/$device"
done
while [ "$1" != -- ]; do
  to=$root/$3
  if [ -d "$2" ]; then mkdir -p "$to"; else mkdir -p "$(dirname "$to")"; : > "$to"; fi
  chown -R "$user" "$2"
  mount --bind "$2" "$to"
  mount -o "remount,bind,$1" "$to"
  shift 3
done
shift
mount -o remount,bind,ro "$root"
cd /
exec setpriv --no-new-privs chroot --userspec="$user" --groups= "$root" "$@"
"#;

/// A file or folder that is mounted; its owner becomes the user of the image.
#[derive(Debug)]
pub(crate) struct Mount {
    /// Path on the machine.
    pub(crate) from: PathBuf,
    /// Path in the root file system.
    pub(crate) to: String,
    /// Whether the program may write there.
    pub(crate) writable: bool,
}

/// A command that runs `program` with arguments in the root file system `root`, with an empty environment.
pub(crate) fn command(root: &Path, mounts: &[Mount], program: &str, args: &[String]) -> Command {
    let mut command = unshare();
    command.args(["sh", "-c", SCRIPT, "confine"]).arg(root).arg(USER);
    for mount in mounts {
        command.arg(if mount.writable { "rw" } else { "ro" }).arg(&mount.from).arg(&mount.to);
    }
    command.args(["--", program]).args(args);
    // The path finds the tools above, and is the only variable of an image without an environment.
    let path = std::env::var_os("PATH").unwrap_or_default();
    command.env_clear().env("PATH", path);
    command
}

/// A command in its own mount namespace, as root there.
fn unshare() -> Command {
    let mut command = Command::new("unshare");
    if !is_root() {
        // Needs a range of subordinate IDs, like Podman and Buildah without root.
        command.args(["--user", "--map-root-user", "--map-auto"]);
    }
    command.args(["--mount", "--propagation=private"]);
    command
}

/// Why programs cannot be confined on this machine. Some systems allow mount namespaces only for root, others do not
/// have them.
pub(crate) fn trouble() -> Option<String> {
    match unshare().args(["sh", "-c", PROBE, USER]).output() {
        Ok(output) if output.status.success() => None,
        Ok(output) => {
            let told = String::from_utf8_lossy(&output.stderr);
            Some(format!("unshare: {}", told.lines().next().unwrap_or("failed").trim()))
        }
        Err(error) => Some(format!("unshare: {error}")),
    }
}

fn is_root() -> bool {
    std::fs::read_to_string("/proc/self/status").is_ok_and(|status| ids(&status, "Uid:") == ["0"; 4])
}

/// Checks the privileges of a running program with the kernel.
///
/// # Errors
/// If the program has another user, has or could get a capability, or may write to its root file system.
pub(crate) fn check(process: u32) -> Result<()> {
    let read = |name: &str| {
        let path = format!("/proc/{process}/{name}");
        std::fs::read_to_string(&path).with_context(|| format!("reading {path}"))
    };
    let mut faults = status_faults(&read("status")?, is_root());
    faults.extend(mount_fault(&read("mountinfo")?));
    if !faults.is_empty() {
        bail!("{}", faults.join("; "));
    }
    Ok(())
}

fn ids<'a>(status: &'a str, field: &str) -> Vec<&'a str> {
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    line.map(|rest| rest.split_whitespace().collect()).unwrap_or_default()
}

/// `as_seen_inside`: whether IDs are those of the image. Outside of a user namespace they differ.
fn status_faults(status: &str, as_seen_inside: bool) -> Vec<String> {
    let mut faults = Vec::new();
    let (user, group) = USER.split_once(':').unwrap_or((USER, USER));
    for (field, wanted) in [("Uid:", user), ("Gid:", group)] {
        let found = ids(status, field);
        if as_seen_inside && found != [wanted; 4] {
            faults.push(format!("{field} {found:?}, not {wanted}"));
        }
    }
    if !ids(status, "Groups:").iter().all(|id| *id == group || !as_seen_inside) {
        faults.push(format!("Groups: {:?}", ids(status, "Groups:")));
    }
    for field in ["CapPrm:", "CapEff:", "CapAmb:"] {
        let found = ids(status, field);
        if !matches!(found.as_slice(), [mask] if mask.bytes().all(|digit| digit == b'0')) {
            faults.push(format!("{field} {found:?}"));
        }
    }
    if ids(status, "NoNewPrivs:") != ["1"] {
        faults.push("may get new privileges".to_owned());
    }
    faults
}

/// The mount at `/`, as the program sees it: the fifth and sixth fields are its path and its options.
fn mount_fault(mountinfo: &str) -> Option<String> {
    let fields = mountinfo.lines().map(|line| line.split(' ').collect::<Vec<_>>()).find(|all| all.get(4) == Some(&"/"));
    let Some(fields) = fields else { return Some("no mount at /".to_owned()) };
    let options = fields.get(5).copied().unwrap_or_default();
    (!options.split(',').any(|option| option == "ro")).then(|| format!("/ is mounted {options}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str = "Name:\tx\nUid:\t65532\t65532\t65532\t65532\nGid:\t65532\t65532\t65532\t65532\nGroups:\t \n\
        CapPrm:\t0000000000000000\nCapEff:\t0000000000000000\nCapAmb:\t0000000000000000\nNoNewPrivs:\t1\n";

    #[test]
    fn each_right_too_many_is_told() {
        assert_eq!(status_faults(STATUS, true), Vec::<String>::new());
        let changed = |from: &str, to: &str| status_faults(&STATUS.replace(from, to), true);
        assert!(changed("Uid:\t65532", "Uid:\t0").first().unwrap().starts_with("Uid:"));
        assert!(changed("Gid:\t65532", "Gid:\t0").first().unwrap().starts_with("Gid:"));
        assert!(changed("Groups:\t ", "Groups:\t0 ").first().unwrap().starts_with("Groups:"));
        assert!(changed("CapEff:\t00", "CapEff:\t01").first().unwrap().starts_with("CapEff:"));
        assert_eq!(changed("NoNewPrivs:\t1", "NoNewPrivs:\t0"), ["may get new privileges"]);
        assert!(status_faults("", true).len() >= 6, "missing values are faults");
    }

    #[test]
    fn the_root_is_read_only_by_its_own_options() {
        let line = |place: &str, options: &str| format!("36 35 98:0 / {place} {options} shared:1 - ext4 /dev/sda rw\n");
        assert_eq!(mount_fault(&(line("/proc", "rw") + &line("/", "ro,relatime"))), None);
        assert_eq!(mount_fault(&line("/", "rw,relatime")).unwrap(), "/ is mounted rw,relatime");
        assert!(mount_fault(&line("/proc", "ro")).is_some());
    }
}
