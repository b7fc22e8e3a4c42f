//! Requests of subcommands to the process that runs the world, over a socket in its folder, and signals.

use super::{Event, PROGRESS};
use crate::harness::process::Guard;
use crate::harness::services::Kind;
use anyhow::{Context as _, Result, anyhow};
use serde::{Deserialize, Serialize};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

/// A request has one or two words.
const MAX_REQUEST_BYTES: u64 = 4096;
/// One user enters subcommands: more at a time come from a faulty script.
const MAX_REQUESTS: usize = 16;
/// A client sends its request immediately.
const READ: Duration = Duration::from_secs(10);
/// Each replica has 30 s to stop and 90 s to be ready; a kind has at most nine.
pub(super) const ANSWER: Duration = Duration::from_secs(9 * 120);
/// Exit status of a shell for a program ended by SIGINT.
const KILLED: i32 = 130;

/// Request of a subcommand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Request {
    Stop,
    Restart(Kind),
}

/// The error message is for the user.
type Reply = Result<(), String>;

/// Sends a request to the process that runs the world, and waits for the result.
///
/// # Errors
/// If the process cannot be reached, or with the error that it returns.
pub(super) fn ask(socket: &Path, request: Request) -> Result<()> {
    let mut stream = UnixStream::connect(socket).with_context(|| format!("connecting to {}", socket.display()))?;
    stream.set_read_timeout(Some(ANSWER))?;
    writeln!(stream, "{}", serde_json::to_string(&request)?)?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).context("the world did not answer")?;
    let reply: Reply = serde_json::from_str(&line).with_context(|| format!("the world answered {line:?}"))?;
    reply.map_err(|error| anyhow!(error))
}

/// Serves requests until the process ends.
pub(super) fn listen(socket: &Path, guard: &Arc<Guard>, events: &Sender<Event>) -> Result<()> {
    let listener = UnixListener::bind(socket).with_context(|| format!("listening on {}", socket.display()))?;
    let (guard, events) = (Arc::clone(guard), events.clone());
    std::thread::spawn(move || {
        // One more reference for each active request.
        let slots = Arc::new(());
        for stream in listener.incoming().flatten() {
            if Arc::strong_count(&slots) > MAX_REQUESTS {
                continue;
            }
            let (guard, events, slot) = (Arc::clone(&guard), events.clone(), Arc::clone(&slots));
            std::thread::spawn(move || {
                // A client that disconnected needs no response.
                let _ = serve(stream, &guard, &events);
                drop(slot);
            });
        }
    });
    Ok(())
}

fn serve(mut stream: UnixStream, guard: &Guard, events: &Sender<Event>) -> Result<()> {
    stream.set_read_timeout(Some(READ))?;
    let mut line = String::new();
    BufReader::new((&stream).take(MAX_REQUEST_BYTES)).read_line(&mut line)?;
    let reply: Reply = match serde_json::from_str(&line) {
        Ok(Request::Stop) => {
            guard.interrupt();
            events.send(Event::Stop)?;
            Ok(())
        }
        Ok(Request::Restart(kind)) => {
            let (reply, answer) = channel();
            events.send(Event::Restart { kind, reply })?;
            answer.recv().unwrap_or_else(|_| Err("the world is stopping".to_owned()))
        }
        Err(error) => Err(format!("{line:?} is no request: {error}")),
    };
    writeln!(stream, "{}", serde_json::to_string(&reply)?)?;
    Ok(())
}

/// The first SIGINT, SIGTERM or SIGHUP stops the world; the second ends this process immediately, and with it all
/// others.
pub(super) fn watch_signals(guard: &Arc<Guard>, events: &Sender<Event>) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let context = runtime.enter();
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hangup = signal(SignalKind::hangup())?;
    drop(context);
    let (guard, events) = (Arc::clone(guard), events.clone());
    std::thread::spawn(move || {
        let mut next = || {
            runtime.block_on(async {
                tokio::select! {
                    _ = interrupt.recv() => (),
                    _ = terminate.recv() => (),
                    _ = hangup.recv() => (),
                }
            });
        };
        next();
        PROGRESS.say("stopping everything; Ctrl-C once more kills it");
        guard.interrupt();
        // The receiver does not exist if the world has stopped already.
        let _ = events.send(Event::Stop);
        next();
        PROGRESS.say("killed");
        std::process::exit(KILLED);
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_restart_is_answered_when_it_is_done_and_a_stop_at_once() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let socket = folder.path().join("control.sock");
        let guard = Arc::new(Guard::start()?);
        let (sender, events) = channel();
        listen(&socket, &guard, &sender)?;
        let owner = std::thread::spawn(move || {
            let mut seen = Vec::new();
            while let Ok(event) = events.recv() {
                match event {
                    Event::Stop => return seen,
                    Event::Restart { kind, reply } => {
                        seen.push(kind);
                        let failed = (kind == Kind::Actuator).then(|| "not ready".to_owned());
                        let _ = reply.send(failed.map_or(Ok(()), Err));
                    }
                }
            }
            seen
        });
        ask(&socket, Request::Restart(Kind::Watcher))?;
        let failed = ask(&socket, Request::Restart(Kind::Actuator)).map_err(|error| error.to_string());
        assert_eq!(failed, Err("not ready".to_owned()));
        ask(&socket, Request::Stop)?;
        assert_eq!(owner.join().ok(), Some(vec![Kind::Watcher, Kind::Actuator]));
        assert!(guard.check().is_err(), "what waits for a start gives up");
        let late = ask(&socket, Request::Restart(Kind::Watcher));
        assert!(late.is_err(), "no process runs the world");
        Ok(())
    }

    #[test]
    fn what_is_no_request_is_refused() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let socket = folder.path().join("control.sock");
        let guard = Arc::new(Guard::start()?);
        let (sender, _events) = channel();
        listen(&socket, &guard, &sender)?;
        let mut stream = UnixStream::connect(&socket)?;
        writeln!(stream, "{{\"restart\":\"kubelet\"}}")?;
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line)?;
        let reply: Reply = serde_json::from_str(&line)?;
        assert!(reply.is_err_and(|error| error.contains("is no request")), "{line}");
        assert!(guard.check().is_ok());
        Ok(())
    }
}
