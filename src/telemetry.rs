//! Logging: events go to standard error, as text or as JSON objects.
//!
//! Standard output is never used: it carries results and, under `--stdio`, MCP messages.

use std::fmt::Debug;
use std::io::{self, Write};

use anstream::{AutoStream, ColorChoice};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::filter::{LevelFilter, ParseError, Targets};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::{Layer, fmt, registry};

use crate::config::{LogConfig, LogFormat};
use crate::printable;

/// The error of [`install`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TelemetryError {
    /// The filter directives are malformed.
    #[error(
        "invalid value {level:?} for \"log.level\": {reason}; \
         expected a level such as info, or directives such as info,tidings=debug"
    )]
    Level {
        /// The directives as given.
        level: String,
        /// The reason.
        reason: String,
    },
    /// The process has a logger already.
    #[error("logging is installed already; install it once per process")]
    Installed,
}

/// Installs the logger of this process on standard error, with colours if that is a terminal and
/// `NO_COLOR` is not set.
///
/// # Errors
/// [`TelemetryError`]; nothing is installed then.
pub fn install(config: &LogConfig) -> Result<(), TelemetryError> {
    let ansi = AutoStream::choice(&std::io::stderr()) != ColorChoice::Never;
    let subscriber = subscriber(config, ansi, std::io::stderr)?;
    tracing::subscriber::set_global_default(subscriber).map_err(|_| TelemetryError::Installed)
}

/// Checks the filter directives.
///
/// # Errors
/// [`TelemetryError::Level`].
pub fn check(config: &LogConfig) -> Result<(), TelemetryError> {
    filter(&config.level).map(|_| ())
}

type Boxed = Box<dyn tracing::Subscriber + Send + Sync>;

/// Returns a subscriber that writes to `writer`.
fn subscriber<W>(config: &LogConfig, ansi: bool, writer: W) -> Result<Boxed, TelemetryError>
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    // Directives that name rmcp ask for all that it says.
    let drops_farewells = !config.level.contains("rmcp");
    let filtered = registry()
        .with(filter(&config.level)?)
        .with(drops_farewells.then_some(NoFarewells));
    let writer = CleanLines { inner: writer, ansi };
    let lines = fmt::layer().with_ansi(ansi).with_writer(writer);
    Ok(match config.format {
        LogFormat::Text => Box::new(filtered.with(lines)),
        LogFormat::Json => Box::new(filtered.with(lines.json().flatten_event(true))),
    })
}

/// Writes events as they are fit to be printed: one line each, whatever the text of a peer in it, and
/// addresses without their secrets.
struct CleanLines<W> {
    inner: W,
    /// Keeps the escape sequences of colours. Those of other origin have been escaped by then.
    ansi: bool,
}

impl<'w, W: MakeWriter<'w>> MakeWriter<'w> for CleanLines<W> {
    type Writer = CleanLines<W::Writer>;

    fn make_writer(&'w self) -> Self::Writer {
        CleanLines {
            inner: self.inner.make_writer(),
            ansi: self.ansi,
        }
    }
}

impl<W: Write> Write for CleanLines<W> {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(event);
        let text = printable::without_secrets(text.trim_end_matches('\n'));
        let text = printable::cleaned(&text, |c| self.ansi && c == '\u{1b}');
        let line = format!("{text}\n");
        self.inner.write_all(line.as_bytes())?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// Drops the error that rmcp logs when a request ends whose client waits for no answer any more, as after
/// `notifications/cancelled`. It is no mistake of the service, and a client could fill the log with it.
struct NoFarewells;

impl<S: Subscriber> Layer<S> for NoFarewells {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        if event.metadata().target() != "rmcp::service" {
            return true;
        }
        let mut farewell = Farewell::default();
        event.record(&mut farewell);
        !(farewell.is_unsent && farewell.is_closed)
    }
}

/// The parts of an event by which such an error is known.
#[derive(Default)]
struct Farewell {
    /// The answer could not be sent.
    is_unsent: bool,
    /// The receiver of the answer is gone; a transport that fails has another text.
    is_closed: bool,
}

impl Visit for Farewell {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        match field.name() {
            "message" => {
                self.is_unsent = format!("{value:?}") == "failed to send pending response during drain";
            }
            "error" => self.is_closed = format!("{value:?}") == "channel closed",
            _ => {}
        }
    }
}

/// Parses filter directives.
fn filter(level: &str) -> Result<Targets, TelemetryError> {
    for word in level.split(',').map(str::trim) {
        // `Targets` takes a single word that is no level for the name of a module, which would silence
        // everything.
        let is_module = word.contains(['=', '[', ':', '_', '-']);
        if word.is_empty() || !is_module && word.parse::<LevelFilter>().is_err() {
            return Err(invalid_level(level, format!("{word:?} is no level")));
        }
    }
    // At info, rmcp logs every request and every mistake of a client.
    let quiet = if level.contains("rmcp") {
        level.to_owned()
    } else {
        format!("{level},rmcp=error")
    };
    // Not `EnvFilter`: it also filters by span, for which it compiles a regular expression engine.
    quiet
        .parse()
        .map_err(|source: ParseError| invalid_level(level, source.to_string()))
}

fn invalid_level(level: &str, reason: String) -> TelemetryError {
    TelemetryError::Level {
        level: level.to_owned(),
        reason,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl Write for Written {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn logged(level: &str, format: LogFormat, ansi: bool) -> String {
        let written = Written::default();
        let sink = written.clone();
        let config = LogConfig {
            level: level.to_owned(),
            format,
        };
        let subscriber = subscriber(&config, ansi, move || sink.clone()).unwrap();
        tracing::subscriber::with_default(subscriber, || {
            tracing::info!(sessions = 3, "serving");
            tracing::debug!("detail");
            let peer = "\u{1b}[2J\u{9b}1m\u{202e}\nFAKE http://ann:secret@h/?token=secret";
            tracing::error!(%peer, "it said {peer}");
            for reason in ["channel closed", "broken pipe"] {
                let error = std::io::Error::other(reason);
                tracing::error!(target: "rmcp::service", %error, "failed to send pending response during drain");
            }
        });
        let bytes = written.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn text_is_one_line_with_colours_on_request() {
        let text = logged("info", LogFormat::Text, false);
        assert_eq!(text.lines().count(), 3, "{text}");
        assert!(
            text.contains("serving") && text.contains("sessions=3") && !text.contains('\u{1b}'),
            "{text}"
        );
        assert!(logged("info", LogFormat::Text, true).contains('\u{1b}'));
    }

    #[test]
    fn json_is_an_object_per_event() {
        let text = logged("debug", LogFormat::Json, false);
        let events: Vec<serde_json::Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(events.len(), 4, "{text}");
        assert_eq!(
            (&events[0]["message"], &events[0]["sessions"]),
            (&"serving".into(), &3.into())
        );
        assert_eq!(events[1]["level"], "DEBUG");
    }

    #[test]
    fn texts_of_peers_neither_steer_nor_tell_secrets() {
        for format in [LogFormat::Text, LogFormat::Json] {
            let text = logged("info", format, false);
            assert!(text.contains("FAKE http://***@h/?***"), "{text}");
            assert!(!text.replace('\n', "").contains(printable::steers), "{text:?}");
            assert!(!text.contains("secret"), "{text}");
        }
    }

    #[test]
    fn answer_that_no_client_awaits_is_no_error() {
        let text = logged("info", LogFormat::Text, false);
        assert!(
            text.contains("broken pipe") && !text.contains("channel closed"),
            "{text}"
        );
        // Directives that name rmcp ask for all that it says.
        let text = logged("info,rmcp=error", LogFormat::Text, false);
        assert!(text.contains("channel closed"), "{text}");
    }

    #[test]
    fn directives_are_validated() {
        for level in [
            "info",
            "off",
            "info,tidings=debug",
            "warn,tidings::client=trace",
            "DEBUG",
        ] {
            assert!(filter(level).is_ok(), "{level}");
        }
        for level in ["loud", "info,loud", "tidings=loud", ""] {
            let error = filter(level).expect_err(level).to_string();
            assert!(
                error.starts_with(&format!("invalid value {level:?} for \"log.level\"")),
                "{error}"
            );
        }
    }
}
