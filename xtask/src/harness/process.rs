//! Processes that always end with the run.

use super::wait::until_true;
use anyhow::{Context as _, Result, bail};
use std::fs::File;
use std::io::Write as _;
use std::ops::Range;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Time for a process to end after SIGTERM: the control plane ends five others one by one.
const GRACE: Duration = Duration::from_secs(30);
/// Build from source: 10 minutes on 2 idle cores for the control plane or the EC2 SDK, times six for a busy machine.
const BUILD: Duration = Duration::from_secs(3600);

/// Reads process groups from a pipe. When the pipe closes, because the run ended or was killed, it kills the remaining
/// groups. It has its own process group, so that Ctrl-C does not reach it.
const SUPERVISOR: &str = r#"
trap '' INT TERM HUP
groups=' '
while read -r change group; do
  case $change in
    +) groups="$groups$group " ;;
    -) groups=$(printf '%s' "$groups" | sed "s/ $group / /") ;;
  esac
done
for group in $groups; do kill -KILL "-$group" 2>/dev/null; done
"#;

/// Kills every registered process group when this run ends, also after SIGKILL.
#[derive(Debug)]
pub(crate) struct Guard {
    // Dropped first: the supervisor waits for the pipe to close.
    pipe: Mutex<ChildStdin>,
    interrupted: AtomicBool,
}

impl Guard {
    pub(crate) fn start() -> Result<Guard> {
        let mut child = Command::new("sh")
            .args(["-c", SUPERVISOR])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .process_group(0)
            .spawn()
            .context("starting sh, which watches over the processes")?;
        let Some(pipe) = child.stdin.take() else { bail!("sh has no stdin") };
        Ok(Guard { pipe: Mutex::new(pipe), interrupted: AtomicBool::new(false) })
    }

    /// The user interrupts the run: every wait for a process to start fails.
    pub(crate) fn interrupt(&self) {
        self.interrupted.store(true, Ordering::SeqCst);
    }

    /// # Errors
    /// If the run was interrupted.
    pub(crate) fn check(&self) -> Result<()> {
        if self.interrupted.load(Ordering::SeqCst) {
            bail!("interrupted");
        }
        Ok(())
    }

    fn send(&self, change: char, group: u32) {
        let mut pipe = self.pipe.lock().unwrap_or_else(PoisonError::into_inner);
        // Without the supervisor, Drop still ends the processes if the run ends normally.
        let _ = writeln!(pipe, "{change} {group}");
    }
}

/// A running program. Dropping this value ends it.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) name: String,
    child: Child,
    guard: Arc<Guard>,
    out: PathBuf,
    /// Whether SIGTERM was sent. A second one would end the process immediately.
    terminated: bool,
    ended: bool,
}

impl Process {
    /// Starts the command in its own process group; its output is appended to `NAME.out` and `NAME.log` in the folder.
    pub(crate) fn start(name: &str, command: &mut Command, logs: &Path, guard: &Arc<Guard>) -> Result<Process> {
        let out = logs.join(format!("{name}.out"));
        let open = |path: &Path| {
            File::options().create(true).append(true).open(path).with_context(|| format!("opening {}", path.display()))
        };
        let child = command
            .stdin(Stdio::null())
            .stdout(open(&out)?)
            .stderr(open(&logs.join(format!("{name}.log")))?)
            .process_group(0)
            .spawn()
            .with_context(|| format!("starting {name}: {}", command.get_program().display()))?;
        guard.send('+', child.id());
        Ok(Process { name: name.to_owned(), child, guard: Arc::clone(guard), out, terminated: false, ended: false })
    }

    /// The first line on stdout, with which the program reports that it is ready.
    pub(crate) fn first_line(&mut self, limit: Duration) -> Result<String> {
        let name = self.name.clone();
        let mut line = None;
        until_true(&format!("{name} reports that it is ready"), limit, || {
            self.guard.check()?;
            let text = std::fs::read_to_string(&self.out)?;
            line = text.split_once('\n').map(|(first, _)| first.to_owned());
            if line.is_none()
                && let Some(status) = self.status()?
            {
                bail!("{name} ended while starting: {status}; see {}", self.out.with_extension("log").display());
            }
            Ok((line.is_some(), "nothing on stdout".to_owned()))
        })?;
        line.with_context(|| format!("{name} wrote nothing to stdout"))
    }

    /// Process ID; that of the program itself if the command replaced itself with it.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Exit status, if the process has ended.
    pub(crate) fn status(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    /// Kills the process as `kill -9` does.
    pub(crate) fn kill_hard(&mut self) -> Result<()> {
        self.child.kill().with_context(|| format!("killing {}", self.name))?;
        self.child.wait()?;
        self.forget();
        Ok(())
    }

    /// Sends SIGTERM without waiting, so that several processes can end at the same time.
    pub(crate) fn terminate(&mut self) -> Result<()> {
        if !self.ended && !self.terminated && self.child.try_wait()?.is_none() {
            terminate_group(self.child.id())?;
            self.terminated = true;
        }
        Ok(())
    }

    /// Sends SIGTERM and waits for the exit status. A process that does not end in time is killed.
    pub(crate) fn stop(&mut self) -> Result<ExitStatus> {
        self.terminate()?;
        let ended = until_true(&format!("{} ends", self.name), GRACE, || {
            Ok((self.child.try_wait()?.is_some(), "it runs".to_owned()))
        });
        if ended.is_err() {
            self.child.kill()?;
        }
        let status = self.child.wait()?;
        self.forget();
        ended.map(|()| status)
    }

    fn forget(&mut self) {
        if !self.ended {
            self.ended = true;
            self.guard.send('-', self.child.id());
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if !self.ended {
            // The run continues or has failed already, so an error here is ignored.
            let _ = self.stop();
        }
    }
}

fn terminate_group(group: u32) -> Result<()> {
    Command::new("kill").args(["-TERM", "--", &format!("-{group}")]).status().context("running kill")?;
    Ok(())
}

/// Runs a build and returns its stdout. An interrupted run also ends the build with all compilers.
///
/// # Errors
/// If it cannot be started, fails, or the run is interrupted.
pub(crate) fn build(name: &str, command: &mut Command, guard: &Guard) -> Result<String> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .process_group(0)
        .spawn()
        .with_context(|| format!("starting {name}: {}", command.get_program().display()))?;
    let group = child.id();
    guard.send('+', group);
    let ended = until_true(&format!("{name} ends"), BUILD, || {
        guard.check()?;
        Ok((child.try_wait()?.is_some(), "it runs".to_owned()))
    });
    if ended.is_err() {
        terminate_group(group)?;
    }
    // Builds print a path: far less than the size of a pipe, so the process never blocks.
    let output = child.wait_with_output()?;
    guard.send('-', group);
    ended?;
    if !output.status.success() {
        bail!("{name}: {}", output.status);
    }
    String::from_utf8(output.stdout).with_context(|| format!("{name} did not write UTF-8"))
}

/// Ports for servers of the run. They are below Linux' default range of ephemeral ports (32768 to 60999), so that no
/// outgoing connection takes a port between this choice and the start of the server.
const PORTS: Range<u16> = 20_000..32_000;
/// Number of ports chosen by this run.
static CHOSEN: AtomicU16 = AtomicU16::new(0);

/// A free port, and never the same twice. The first choice depends on the process, so that two runs at a time choose
/// different ports.
pub(crate) fn free_port() -> Result<u16> {
    let count = u32::from(PORTS.end - PORTS.start);
    // 509 is prime, and more than a run needs: runs started one after the other are far apart.
    let first = std::process::id().wrapping_mul(509) % count;
    for _ in 0..count {
        let number = u32::from(CHOSEN.fetch_add(1, Ordering::SeqCst));
        let port = PORTS.start + u16::try_from((first + number) % count)?;
        if std::net::TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, port)).is_ok() {
            return Ok(port);
        }
    }
    bail!("no port of {} to {} is free", PORTS.start, PORTS.end - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt as _;

    const SIGKILL: i32 = 9;

    fn sleeper() -> Result<Child> {
        Ok(Command::new("sleep").arg("600").process_group(0).spawn()?)
    }

    #[test]
    fn ports_are_different_and_not_ephemeral() -> Result<()> {
        let ports = [free_port()?, free_port()?, free_port()?];
        assert!(ports.iter().all(|port| PORTS.contains(port)), "{ports:?}");
        assert!(ports[0] != ports[1] && ports[1] != ports[2] && ports[0] != ports[2], "{ports:?}");
        Ok(())
    }

    #[test]
    fn what_is_left_dies_with_the_run_and_what_was_taken_off_does_not() -> Result<()> {
        let (mut left, mut taken_off) = (sleeper()?, sleeper()?);
        let guard = Guard::start()?;
        guard.send('+', taken_off.id());
        guard.send('+', left.id());
        guard.send('-', taken_off.id());
        drop(guard);
        assert_eq!(left.wait()?.signal(), Some(SIGKILL));
        assert!(taken_off.try_wait()?.is_none());
        taken_off.kill()?;
        taken_off.wait()?;
        Ok(())
    }

    #[test]
    fn a_process_tells_its_first_line_and_ends_with_its_owner() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let guard = Arc::new(Guard::start()?);
        let mut command = Command::new("sh");
        command.args(["-c", "echo ready; exec sleep 600"]);
        let mut process = Process::start("it", &mut command, folder.path(), &guard)?;
        assert_eq!(process.first_line(GRACE)?, "ready");
        let id = process.child.id();
        drop(process);
        assert!(!Path::new(&format!("/proc/{id}")).exists());
        Ok(())
    }

    #[test]
    fn an_interrupted_run_waits_for_nothing() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let guard = Arc::new(Guard::start()?);
        let mut process = Process::start("it", Command::new("sleep").arg("600"), folder.path(), &guard)?;
        guard.interrupt();
        let result = process.first_line(GRACE).map_err(|error| error.to_string());
        assert_eq!(result, Err("interrupted".to_owned()));
        let built = build("it", Command::new("sleep").arg("600"), &guard).map_err(|error| error.to_string());
        assert_eq!(built, Err("interrupted".to_owned()));
        Ok(())
    }

    #[test]
    fn a_build_tells_what_it_printed_or_how_it_failed() -> Result<()> {
        let guard = Guard::start()?;
        assert_eq!(build("it", Command::new("echo").arg("path"), &guard)?, "path\n");
        let failed = build("it", Command::new("sh").args(["-c", "exit 3"]), &guard);
        assert_eq!(failed.map_err(|error| error.to_string()), Err("it: exit status: 3".to_owned()));
        Ok(())
    }

    #[test]
    fn one_that_ends_while_starting_is_an_error_at_once() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let guard = Arc::new(Guard::start()?);
        let mut process = Process::start("it", Command::new("sh").args(["-c", "exit 3"]), folder.path(), &guard)?;
        let result = process.first_line(GRACE).map_err(|error| error.to_string());
        assert!(result.as_ref().is_err_and(|t| t.contains("ended while starting: exit status: 3")), "{result:?}");
        Ok(())
    }
}
