//! Where log events go: standard error, as lines for people or as JSON objects for programs.
//!
//! Receives the `[log]` section of the configuration and installs the one subscriber of the process. It never writes
//! to standard output, which belongs to results and to MCP messages, and decides nothing about what is logged.

use std::io::IsTerminal;

use tracing_subscriber::filter::{ParseError, Targets};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::{fmt, registry};

use crate::config::{LogConfig, LogFormat};

/// Why no log was installed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TelemetryError {
    /// The filter directives cannot be read.
    #[error(
        "invalid value {level:?} for \"log.level\": {reason}; \
         expected a level such as info, or directives such as info,tidings=debug"
    )]
    Level {
        /// The directives as given.
        level: String,
        /// What is wrong with them.
        reason: String,
    },
    /// The process has a log already.
    #[error("logging is installed already; install it once per process")]
    Installed,
}

/// Installs the log of this process on standard error; colours only where that is a terminal.
///
/// # Errors
/// [`TelemetryError`], and nothing is installed.
pub fn install(config: &LogConfig) -> Result<(), TelemetryError> {
    let ansi = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let subscriber = subscriber(config, ansi, std::io::stderr)?;
    tracing::subscriber::set_global_default(subscriber).map_err(|_| TelemetryError::Installed)
}

type Boxed = Box<dyn tracing::Subscriber + Send + Sync>;

/// A subscriber as `config` says that writes to `writer`.
fn subscriber<W>(config: &LogConfig, ansi: bool, writer: W) -> Result<Boxed, TelemetryError>
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let filtered = registry().with(filter(&config.level)?);
    let lines = fmt::layer().with_ansi(ansi).with_writer(writer);
    Ok(match config.format {
        LogFormat::Text => Box::new(filtered.with(lines)),
        LogFormat::Json => Box::new(filtered.with(lines.json().flatten_event(true))),
    })
}

/// Levels by module: the plain filter, since the one that also looks into spans brings an engine for regular
/// expressions along.
fn filter(level: &str) -> Result<Targets, TelemetryError> {
    let error = |reason: String| TelemetryError::Level {
        level: level.to_owned(),
        reason,
    };
    // A single word that is no level would be taken for the name of a module, and silence everything.
    for word in level.split(',').map(str::trim) {
        let plain = !word.contains(['=', '[', ':', '_', '-']);
        if word.is_empty() || plain && word.parse::<tracing_subscriber::filter::LevelFilter>().is_err() {
            return Err(error(format!("{word:?} is no level")));
        }
    }
    // rmcp tells of every request and of every mistake of a client; whoever wants that says rmcp=info.
    let quiet = if level.contains("rmcp") {
        level.to_owned()
    } else {
        format!("{level},rmcp=error")
    };
    quiet
        .parse()
        .map_err(|source: ParseError| error(source.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
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
        });
        let bytes = written.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn text_is_one_line_without_escapes_unless_wanted() {
        let text = logged("info", LogFormat::Text, false);
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(
            text.contains("serving") && text.contains("sessions=3") && !text.contains('\u{1b}'),
            "{text}"
        );
        assert!(logged("info", LogFormat::Text, true).contains('\u{1b}'));
    }

    #[test]
    fn json_is_one_object_per_event() {
        let text = logged("debug", LogFormat::Json, false);
        let events: Vec<serde_json::Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(events.len(), 2, "{text}");
        assert_eq!(
            (&events[0]["message"], &events[0]["sessions"]),
            (&"serving".into(), &3.into())
        );
        assert_eq!(events[1]["level"], "DEBUG");
    }

    #[test]
    fn directives_are_checked() {
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
