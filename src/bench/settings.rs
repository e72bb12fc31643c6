//! What one run is asked to do, and its bounds.
//!
//! Owns the settings, their defaults and the check that they make sense before anything is started. It reads no command
//! line: [`crate::cli`] does.

use std::time::Duration;

use serde_json::{Value, json};

use crate::ResourceUri;
use crate::bench::BenchError;
use crate::bench::load::schedule::Pace;
use crate::wire::protocol::Revision;

/// Sessions of all kinds together.
pub const SESSIONS_MAX: usize = 60_000;
/// Resources that are changed.
pub const RESOURCES_MAX: usize = 100_000;
/// Subscriptions of all sessions together.
const SUBSCRIPTIONS_MAX: usize = 20_000_000;
/// Updates of one run; each costs 8 bytes.
const UPDATES_MAX: f64 = 50e6;
/// How long a run may be.
pub const DURATION_MAX: Duration = Duration::from_secs(3600);
/// Updates per second.
const RATE_MAX: f64 = 1e6;
const CONNECTIONS_MAX: usize = 256;

/// Which revisions the sessions speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Era {
    /// `initialize`, `resources/subscribe` and a GET stream each.
    Legacy,
    /// `subscriptions/listen` each, of 2026-07-28.
    Modern,
    /// One after the other.
    Mix,
}

/// Which resources are subscribed to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Uris {
    /// Made from a pattern in which `{n}` is a number from 0 on.
    Pattern(String),
    /// The first ones that the server lists.
    Listed,
}

/// How updates are made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Publish {
    /// Through the HTTP API of Tidings if it is there.
    Auto,
    /// By calls of a tool, whose arguments are JSON in which `{uri}` and `{n}` are replaced.
    Tool {
        /// The tool's name.
        name: String,
        /// Its arguments.
        arguments: String,
    },
    /// Not at all: somebody else does, and what comes is counted.
    Passive,
}

/// One run.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// The server's MCP endpoint; `{port}` is replaced where the server is started too.
    pub url: String,
    /// Whether the server may stand on another machine.
    pub allow_remote: bool,
    /// Sessions that read as fast as they can.
    pub sessions: usize,
    /// What they speak.
    pub era: Era,
    /// The older revision that they speak.
    pub revision: Revision,
    /// How many sessions are opened per second.
    pub connect_rate: f64,
    /// How long opening all of them may take.
    pub open_timeout: Duration,
    /// How many resources are changed.
    pub resources: usize,
    /// How many of them each session subscribes to.
    pub subscribe: usize,
    /// Which.
    pub uris: Uris,
    /// How fast they change.
    pub pace: Pace,
    /// How long it is measured.
    pub duration: Duration,
    /// How long before that they change already, uncounted.
    pub warm_up: Duration,
    /// Who changes them.
    pub publish: Publish,
    /// On how many connections.
    pub publish_connections: usize,
    /// Further sessions that read nothing until the end.
    pub stalled: usize,
    /// Further sessions that read at a slow rate.
    pub slow: usize,
    /// That rate, in bytes per second.
    pub slow_rate: u64,
    /// Further sessions that come per second, each for one second.
    pub churn: f64,
    /// Further clients that ask `get_resource_etag`.
    pub pollers: usize,
    /// How often each asks.
    pub poll_interval: Duration,
    /// How long silence is waited for at the end before what has not come counts as missing.
    pub settle: Duration,
    /// The server's process, whose CPU and memory are measured.
    pub pid: Option<u32>,
    /// The command that starts the server; `{port}` is replaced.
    pub serve_command: Option<String>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            url: "http://127.0.0.1:8808/mcp".to_owned(),
            allow_remote: false,
            sessions: 100,
            era: Era::Mix,
            revision: Revision::R2025_11_25,
            connect_rate: 2_000.0,
            open_timeout: Duration::from_secs(60),
            resources: 10,
            subscribe: 1,
            uris: Uris::Pattern("demo://bench/{n}".to_owned()),
            pace: Pace::PerSecond(10.0),
            duration: Duration::from_secs(10),
            warm_up: Duration::from_secs(1),
            publish: Publish::Auto,
            publish_connections: 4,
            stalled: 0,
            slow: 0,
            slow_rate: 1024,
            churn: 0.0,
            pollers: 0,
            poll_interval: Duration::from_secs(1),
            settle: Duration::from_secs(5),
            pid: None,
            serve_command: None,
        }
    }
}

fn within(name: &str, value: f64, least: f64, most: f64) -> Result<(), BenchError> {
    if value >= least && value <= most {
        return Ok(());
    }
    Err(BenchError::Arguments(format!(
        "{name} {value} is out of range: use {least} to {most}"
    )))
}

impl Settings {
    /// Whether all of it makes sense.
    ///
    /// # Errors
    ///
    /// [`BenchError::Arguments`] names what does not, and its range.
    pub fn validate(&self) -> Result<(), BenchError> {
        let number = |name, value: usize, least: usize, most: usize| {
            within(name, value as f64, least as f64, most as f64)
        };
        let seconds = |name, value: Duration, least, most: Duration| {
            within(name, value.as_secs_f64(), least, most.as_secs_f64())
        };
        number(
            "--sessions and what comes with them",
            self.connections(),
            1,
            SESSIONS_MAX,
        )?;
        number("--resources", self.resources, 1, RESOURCES_MAX)?;
        number("--subscribe", self.subscribe, 1, self.resources)?;
        number(
            "--sessions times --subscribe",
            self.connections() * self.subscribe,
            1,
            SUBSCRIPTIONS_MAX,
        )?;
        number(
            "--publish-connections",
            self.publish_connections,
            1,
            CONNECTIONS_MAX,
        )?;
        within("--connect-rate", self.connect_rate, 1.0, 1e6)?;
        within("--churn", self.churn, 0.0, 1_000.0)?;
        within("--slow-rate", self.slow_rate as f64, 1.0, 1e9)?;
        seconds("--duration", self.duration, 0.1, DURATION_MAX)?;
        seconds("--warm-up", self.warm_up, 0.0, DURATION_MAX)?;
        seconds("--settle", self.settle, 0.1, DURATION_MAX)?;
        seconds("--open-timeout", self.open_timeout, 0.1, DURATION_MAX)?;
        seconds("--poll-interval", self.poll_interval, 0.01, DURATION_MAX)?;
        if let Pace::PerSecond(rate) = self.pace {
            within("--rate", rate, 0.001, RATE_MAX)?;
            within(
                "--rate times --duration",
                rate * self.active().as_secs_f64(),
                0.0,
                UPDATES_MAX,
            )?;
        }
        if self.revision.is_stateless() {
            return Err(BenchError::Arguments(format!(
                "--revision {} has no sessions: use --era modern for it",
                self.revision.as_str()
            )));
        }
        self.validate_texts()
    }

    fn validate_texts(&self) -> Result<(), BenchError> {
        let wrong = |reason: String| Err(BenchError::Arguments(reason));
        if let Uris::Pattern(pattern) = &self.uris {
            if !pattern.contains("{n}") && self.resources > 1 {
                return wrong(format!(
                    "--uri-template {pattern:?} names one resource only: write {{n}} into it"
                ));
            }
            if let Err(error) = ResourceUri::new(&pattern.replace("{n}", "0")) {
                return wrong(format!("--uri-template {pattern:?} makes no URI: {error}"));
            }
        }
        if let Publish::Tool { arguments, .. } = &self.publish
            && let Err(error) = call_arguments(arguments, "demo://a", 0)
        {
            return wrong(format!("--publish-args is no JSON object: {error}"));
        }
        if self.url.contains("{port}") && self.serve_command.is_none() {
            return wrong("{port} in the address needs a --serve-command with it".to_owned());
        }
        if self.serve_command.is_some() && self.pid.is_some() {
            return wrong("--pid and --serve-command name two servers: use one of them".to_owned());
        }
        Ok(())
    }

    /// Sessions and pollers that are open at the same time, those that come and go included.
    pub(crate) fn connections(&self) -> usize {
        self.sessions + self.stalled + self.slow + self.pollers + (self.churn * 2.0).ceil() as usize
    }

    /// How long updates are made.
    pub(crate) fn active(&self) -> Duration {
        self.warm_up + self.duration
    }

    /// The revision of session `index`.
    pub(crate) fn revision_of(&self, index: usize) -> Revision {
        match self.era {
            Era::Legacy => self.revision,
            Era::Mix if index.is_multiple_of(2) => self.revision,
            Era::Modern | Era::Mix => Revision::R2026_07_28,
        }
    }

    /// As the report shows them.
    pub(crate) fn to_json(&self) -> Value {
        let (rate, flat_out) = match self.pace {
            Pace::PerSecond(rate) => (Some(rate), false),
            Pace::FlatOut => (None, true),
        };
        let publish = match &self.publish {
            Publish::Auto => "api".to_owned(),
            Publish::Tool { name, .. } => format!("tool {name}"),
            Publish::Passive => "passive".to_owned(),
        };
        let era = match self.era {
            Era::Legacy => "legacy",
            Era::Modern => "modern",
            Era::Mix => "mix",
        };
        json!({
            "url": self.url, "sessions": self.sessions, "era": era, "revision": self.revision.as_str(),
            "resources": self.resources, "subscribe": self.subscribe, "rate": rate, "flat_out": flat_out,
            "duration_s": self.duration.as_secs_f64(), "warm_up_s": self.warm_up.as_secs_f64(),
            "publish": publish, "publish_connections": self.publish_connections,
            "stalled": self.stalled, "slow": self.slow, "slow_rate": self.slow_rate, "churn": self.churn,
            "pollers": self.pollers, "poll_interval_s": self.poll_interval.as_secs_f64(),
        })
    }
}

/// The arguments of one call of the publishing tool.
pub(crate) fn call_arguments(pattern: &str, uri: &str, number: u64) -> Result<Value, String> {
    let uri = Value::from(uri).to_string();
    let text = pattern
        .replace("{uri}", uri.trim_matches('"'))
        .replace("{n}", &number.to_string());
    match serde_json::from_str(&text) {
        Ok(Value::Object(arguments)) => Ok(Value::Object(arguments)),
        Ok(_) => Err("it is something else".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bound_is_named_when_it_is_passed() {
        assert!(Settings::default().validate().is_ok());
        type Change = fn(&mut Settings);
        let changes: [(&str, Change); 11] = [
            ("--sessions", |all| all.sessions = SESSIONS_MAX + 1),
            ("--sessions", |all| all.sessions = 0),
            ("--subscribe", |all| all.subscribe = 11),
            ("--duration", |all| all.duration = DURATION_MAX * 2),
            ("--rate", |all| all.pace = Pace::PerSecond(0.0)),
            ("--rate times", |all| {
                (all.pace, all.duration) = (Pace::PerSecond(1e6), DURATION_MAX);
            }),
            ("--revision", |all| all.revision = Revision::R2026_07_28),
            ("--uri-template", |all| {
                all.uris = Uris::Pattern("demo://one".to_owned());
            }),
            ("--uri-template", |all| {
                all.uris = Uris::Pattern("no uri {n}".to_owned());
            }),
            ("--publish-args", |all| {
                all.publish = Publish::Tool {
                    name: "t".to_owned(),
                    arguments: "[]".to_owned(),
                };
            }),
            ("{port}", |all| all.url = "http://127.0.0.1:{port}/".to_owned()),
        ];
        for (name, change) in changes {
            let mut settings = Settings::default();
            change(&mut settings);
            let error = settings.validate().expect_err(name).to_string();
            assert!(error.contains(name), "{name}: {error}");
        }
    }

    #[test]
    fn a_tools_arguments_carry_the_uri_and_the_number() {
        let made = call_arguments(r#"{"uri":"{uri}","state":"s{n}","n":{n}}"#, "demo://\"q", 7).unwrap();
        assert_eq!(made, json!({ "uri": "demo://\"q", "state": "s7", "n": 7 }));
    }

    #[test]
    fn a_mix_speaks_both() {
        let mut settings = Settings::default();
        assert_eq!(
            [settings.revision_of(0), settings.revision_of(1)],
            [Revision::R2025_11_25, Revision::R2026_07_28]
        );
        settings.era = Era::Legacy;
        assert_eq!(settings.revision_of(1), Revision::R2025_11_25);
    }
}
