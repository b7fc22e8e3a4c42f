//! Logging, and the id that identifies a planning cycle in all services.

use std::{fmt, sync::Arc};

use clap::ValueEnum;
use tonic::metadata::{AsciiMetadataValue, MetadataMap};
use tracing::{Subscriber, level_filters::LevelFilter};
use tracing_subscriber::{EnvFilter, Layer, Registry, fmt::MakeWriter, layer::SubscriberExt, reload};

/// Metadata key of the id of a planning cycle.
pub const CYCLE_ID_HEADER: &str = "plimsoll-cycle-id";

/// Maximum length of a cycle id in bytes: it is copied into every log line of the cycle.
pub const MAX_CYCLE_ID_BYTES: usize = 64;

/// Format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// One JSON object per line, for a cluster.
    #[default]
    Json,
    /// Plain text, for a terminal.
    Text,
}

/// Why telemetry could not be set up or changed.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The filter is invalid.
    #[error("log level {directives:?}: {cause}")]
    Level {
        /// The invalid directives.
        directives: String,
        /// Description of the problem.
        cause: String,
    },
    /// A subscriber is installed already.
    #[error("logging is set up already")]
    Installed,
    /// The subscriber was dropped.
    #[error("logging has ended")]
    Ended,
}

type Change = dyn Fn(EnvFilter) -> Result<(), TelemetryError> + Send + Sync;
type Read = dyn Fn() -> Option<String> + Send + Sync;

/// The log level of the running process, which can be changed at runtime. Clones share it.
#[derive(Clone)]
pub struct LogLevel {
    change: Arc<Change>,
    read: Arc<Read>,
}

impl fmt::Debug for LogLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LogLevel").field(&self.current()).finish()
    }
}

impl LogLevel {
    fn new(handle: reload::Handle<EnvFilter, Registry>) -> Self {
        let reader = handle.clone();
        Self {
            change: Arc::new(move |filter| handle.reload(filter).map_err(|_gone| TelemetryError::Ended)),
            read: Arc::new(move || reader.with_current(ToString::to_string).ok()),
        }
    }

    /// The current directives, such as `info,plimsoll_solver=debug`; `None` after logging has ended.
    #[must_use]
    pub fn current(&self) -> Option<String> {
        (self.read)()
    }

    /// Replaces the directives.
    ///
    /// # Errors
    /// If they do not parse (the current ones are then kept), or logging has ended.
    pub fn set(&self, directives: &str) -> Result<(), TelemetryError> {
        (self.change)(parse(directives)?)
    }
}

/// Checks the directives of a log level.
///
/// # Errors
/// Why they do not parse.
pub fn check(directives: &str) -> Result<(), String> {
    filter(directives).map(drop)
}

fn filter(directives: &str) -> Result<EnvFilter, String> {
    if directives.trim().is_empty() {
        return Err("it is empty".to_owned());
    }
    // EnvFilter takes any other word, such as `warning`, for a target: it would show that alone and hide all else.
    let is_other_word = |part: &&str| !part.contains(['=', '[', ']']) && part.trim().parse::<LevelFilter>().is_err();
    if let Some(word) = directives.split(',').find(is_other_word) {
        return Err(format!(
            "{word:?} is neither off, error, warn, info, debug or trace, nor of the form target=level"
        ));
    }
    EnvFilter::builder().parse(directives).map_err(|cause| cause.to_string())
}

fn parse(directives: &str) -> Result<EnvFilter, TelemetryError> {
    filter(directives).map_err(|cause| TelemetryError::Level { directives: directives.to_owned(), cause })
}

/// Builds a subscriber that writes to `writer`, and the handle of its level.
///
/// # Errors
/// If the directives do not parse.
pub fn subscriber<W>(
    format: LogFormat,
    directives: &str,
    writer: W,
) -> Result<(impl Subscriber + Send + Sync, LogLevel), TelemetryError>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let (filter, handle) = reload::Layer::new(parse(directives)?);
    let lines = tracing_subscriber::fmt::layer().with_writer(writer);
    let lines = match format {
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
        LogFormat::Text => lines.with_ansi(false).boxed(),
    };
    Ok((Registry::default().with(filter).with(lines), LogLevel::new(handle)))
}

/// Sends the process's logs to stderr.
///
/// # Errors
/// If the directives do not parse, or a subscriber is installed already.
pub fn init(format: LogFormat, directives: &str) -> Result<LogLevel, TelemetryError> {
    let (subscriber, level) = subscriber(format, directives, std::io::stderr)?;
    tracing::subscriber::set_global_default(subscriber).map_err(|_already| TelemetryError::Installed)?;
    Ok(level)
}

/// Adds the id of a planning cycle to a request. An id that [`extract_cycle_id`] would not accept is omitted, because
/// the call is more important than its trace.
pub fn inject_cycle_id(metadata: &mut MetadataMap, cycle_id: &str) {
    if !is_cycle_id(cycle_id) {
        return;
    }
    if let Ok(value) = AsciiMetadataValue::try_from(cycle_id) {
        metadata.insert(CYCLE_ID_HEADER, value);
    }
}

/// The id of the planning cycle of a request; `None` if it is absent, too long, or has characters other than ASCII
/// letters, digits, `.`, `_` and `-`, because it is logged unescaped.
#[must_use]
pub fn extract_cycle_id(metadata: &MetadataMap) -> Option<&str> {
    metadata.get(CYCLE_ID_HEADER)?.to_str().ok().filter(|id| is_cycle_id(id))
}

fn is_cycle_id(id: &str) -> bool {
    (1..=MAX_CYCLE_ID_BYTES).contains(&id.len())
        && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use parking_lot::Mutex;
    use std::io;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Lines {
        fn text(&self) -> String {
            String::from_utf8(self.0.lock().clone()).unwrap()
        }
    }

    #[test]
    fn json_lines_carry_fields_and_the_level_can_change() {
        let lines = Lines::default();
        let writer = lines.clone();
        let (subscriber, level) = subscriber(LogFormat::Json, "info", move || writer.clone()).unwrap();
        tracing::subscriber::with_default(subscriber, || {
            tracing::debug!("hidden");
            tracing::info!(cycle_id = "c-7", "planned");
            level.set("debug").unwrap();
            assert!(matches!(level.set("plimsoll=loud"), Err(TelemetryError::Level { .. })));
            assert!(matches!(level.set(" "), Err(TelemetryError::Level { .. })));
            assert!(matches!(level.set("warning"), Err(TelemetryError::Level { .. })));
            tracing::debug!("shown");
            assert_eq!(level.current().as_deref(), Some("debug"));
        });
        let text = lines.text();
        let parsed: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let messages: Vec<_> = parsed.iter().map(|line| line["message"].as_str().unwrap()).collect();
        assert_eq!(messages, ["planned", "shown"]);
        assert_eq!(parsed[0]["cycle_id"], "c-7");
    }

    #[test]
    fn a_word_that_is_no_level_is_not_taken_for_a_target() {
        for good in ["info", "Info", "3", "off", "info,plimsoll_solver=debug", "tower::buffer=trace,warn"] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        for bad in ["warning", "verbose", "info,plimsoll_solver", "info debug", "a=loud", ""] {
            assert!(check(bad).is_err(), "{bad}");
        }
        assert!(check("info,warning").unwrap_err().starts_with("\"warning\" is neither"));
    }

    #[test]
    fn a_cycle_id_survives_the_wire_and_bad_ones_are_dropped() {
        let mut metadata = MetadataMap::new();
        assert_eq!(extract_cycle_id(&metadata), None);
        inject_cycle_id(&mut metadata, "watcher-1.42");
        assert_eq!(extract_cycle_id(&metadata), Some("watcher-1.42"));

        for bad in ["", "two words", "line\nbreak", &"x".repeat(MAX_CYCLE_ID_BYTES + 1)] {
            let mut metadata = MetadataMap::new();
            inject_cycle_id(&mut metadata, bad);
            assert!(metadata.is_empty(), "{bad:?} was sent");
        }
        metadata.insert(CYCLE_ID_HEADER, AsciiMetadataValue::from_static("a b"));
        assert_eq!(extract_cycle_id(&metadata), None);
    }
}
