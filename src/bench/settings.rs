//! The settings of a run, their defaults, and the check of their bounds before anything is started.

use std::time::Duration;

use serde_json::{Value, json};

use crate::ResourceUri;
use crate::bench::BenchError;
use crate::bench::load::schedule::Pace;
use crate::credentials::Credentials;
use crate::wire::protocol::Revision;

/// The most sessions of all kinds together.
pub const SESSIONS_MAX: usize = 60_000;
/// The same over HTTP/2, where they are no connections.
pub const SESSIONS_HTTP2_MAX: usize = 1_000_000;
/// The sessions of one connection of HTTP/2 where none are named: as many as Tidings takes by default.
const SESSIONS_PER_CONNECTION: usize = 1_000;
/// The most resources that are changed.
pub const RESOURCES_MAX: usize = 100_000;
/// The most subscriptions of all sessions together.
const SUBSCRIPTIONS_MAX: usize = 20_000_000;
/// The most updates of one run; each costs 8 bytes.
const UPDATES_MAX: f64 = 50e6;
/// The longest run.
pub const DURATION_MAX: Duration = Duration::from_secs(3600);
/// The most updates per second.
const RATE_MAX: f64 = 1e6;
const CONNECTIONS_MAX: usize = 256;
/// The most connections of HTTP/2.
const CONNECTIONS_HTTP2_MAX: usize = 30_000;

/// The revisions that the sessions speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Era {
    /// `initialize`, `resources/subscribe` and a GET stream each.
    Legacy,
    /// `subscriptions/listen` each, of 2026-07-28.
    Modern,
    /// Legacy and modern sessions in turn.
    Mix,
}

/// The resources that are subscribed to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Uris {
    /// URIs from a pattern in which `{n}` is a number from 0 on.
    Pattern(String),
    /// The first resources of the server's list.
    Listed,
}

/// The source of the updates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Publish {
    /// The HTTP API of Tidings.
    Auto,
    /// Calls of a tool, whose arguments are JSON in which `{uri}` and `{n}` are replaced.
    Tool {
        /// The tool's name.
        name: String,
        /// Its arguments.
        arguments: String,
    },
    /// Another publisher: the test only counts notices.
    Passive,
}

/// The settings of one run.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// The MCP endpoint of the server; `{port}` is replaced where the test starts the server.
    pub url: String,
    /// True if the server may be on another machine.
    pub allow_remote: bool,
    /// Sessions that read as fast as they can.
    pub sessions: usize,
    /// The revisions that they speak.
    pub era: Era,
    /// The revision of legacy sessions.
    pub revision: Revision,
    /// True if the sessions are streams that share connections of HTTP/2.
    pub http2: bool,
    /// The number of these connections; by default one for each 1,000 sessions.
    pub http2_connections: Option<usize>,
    /// The number of sessions opened per second.
    pub connect_rate: f64,
    /// The time within which all of them must be open.
    pub open_timeout: Duration,
    /// The number of resources that are changed.
    pub resources: usize,
    /// The number of resources that each session subscribes to.
    pub subscribe: usize,
    /// The resources.
    pub uris: Uris,
    /// The pace of the updates.
    pub pace: Pace,
    /// The measured time.
    pub duration: Duration,
    /// The time of updates before the measured time.
    pub warm_up: Duration,
    /// The source of the updates.
    pub publish: Publish,
    /// The number of connections for updates.
    pub publish_connections: usize,
    /// Further sessions that read nothing until the end.
    pub stalled: usize,
    /// Further sessions that read at a slow rate.
    pub slow: usize,
    /// The rate of slow sessions, in bytes per second.
    pub slow_rate: u64,
    /// Further sessions opened per second, each for one second.
    pub churn: f64,
    /// Further clients that call `get_resource_etag`.
    pub pollers: usize,
    /// The interval of their calls.
    pub poll_interval: Duration,
    /// The silence at the end after which missing notices are counted.
    pub settle: Duration,
    /// The process of the server, for CPU and memory.
    pub pid: Option<u32>,
    /// The command that starts the server; `{port}` is replaced.
    pub serve_command: Option<String>,
    /// The credentials that every client presents; certificates are for an https address.
    pub credentials: Credentials,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            url: "http://127.0.0.1:8808/mcp".to_owned(),
            allow_remote: false,
            sessions: 100,
            era: Era::Mix,
            revision: Revision::R2025_11_25,
            http2: false,
            http2_connections: None,
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
            credentials: Credentials::default(),
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

fn number_within(name: &str, value: usize, least: usize, most: usize) -> Result<(), BenchError> {
    within(name, value as f64, least as f64, most as f64)
}

/// Checks a duration; its longest value is [`DURATION_MAX`].
fn seconds_within(name: &str, value: Duration, least: f64) -> Result<(), BenchError> {
    within(name, value.as_secs_f64(), least, DURATION_MAX.as_secs_f64())
}

impl Settings {
    /// Checks the bounds.
    ///
    /// # Errors
    ///
    /// [`BenchError::Arguments`] names the setting and its range.
    pub fn validate(&self) -> Result<(), BenchError> {
        number_within(
            "--sessions and what comes with them",
            self.clients(),
            1,
            self.sessions_max(),
        )?;
        self.validate_http2()?;
        number_within("--resources", self.resources, 1, RESOURCES_MAX)?;
        number_within("--subscribe", self.subscribe, 1, self.resources)?;
        number_within(
            "--sessions times --subscribe",
            self.clients() * self.subscribe,
            1,
            SUBSCRIPTIONS_MAX,
        )?;
        number_within(
            "--publish-connections",
            self.publish_connections,
            1,
            CONNECTIONS_MAX,
        )?;
        within("--connect-rate", self.connect_rate, 1.0, 1e6)?;
        within("--churn", self.churn, 0.0, 1_000.0)?;
        within("--slow-rate", self.slow_rate as f64, 1.0, 1e9)?;
        seconds_within("--duration", self.duration, 0.1)?;
        seconds_within("--warm-up", self.warm_up, 0.0)?;
        seconds_within("--settle", self.settle, 0.1)?;
        seconds_within("--open-timeout", self.open_timeout, 0.1)?;
        seconds_within("--poll-interval", self.poll_interval, 0.01)?;
        if let Pace::PerSecond(rate) = self.pace {
            within("--rate", rate, 0.001, RATE_MAX)?;
            within(
                "--rate times --duration",
                rate * self.active().as_secs_f64(),
                0.0,
                UPDATES_MAX,
            )?;
        }
        // `--era` chooses between the two kinds, `--revision` only among the older revisions.
        if self.revision.is_stateless() {
            return Err(BenchError::Arguments(format!(
                "--revision {} has no sessions: use --era modern for it",
                self.revision.as_str()
            )));
        }
        self.validate_texts()
    }

    /// Checks that the load is one that streams over HTTP/2 can be.
    fn validate_http2(&self) -> Result<(), BenchError> {
        let refused = |reason: &str| Err(BenchError::Arguments(reason.to_owned()));
        if let Some(connections) = self.http2_connections {
            if !self.http2 {
                return refused("--connections are of HTTP/2: say --http2, too");
            }
            number_within("--connections", connections, 1, CONNECTIONS_HTTP2_MAX)?;
        }
        if !self.http2 {
            return Ok(());
        }
        if self.era != Era::Modern {
            return refused(
                "--http2 is for listen streams of 2026-07-28: say --era modern, or leave --era out",
            );
        }
        if self.slow > 0 || self.churn > 0.0 || self.pollers > 0 {
            return refused(
                "--slow, --churn and --pollers have connections of their own: leave them out, or --http2",
            );
        }
        if self.shared_connections() > Some(self.clients()) {
            return refused("--connections are more than --sessions and --stalled: use fewer");
        }
        Ok(())
    }

    fn validate_texts(&self) -> Result<(), BenchError> {
        if let Uris::Pattern(pattern) = &self.uris {
            if !pattern.contains("{n}") && self.resources > 1 {
                return Err(BenchError::Arguments(format!(
                    "--uri-template {pattern:?} names one resource only: write {{n}} into it"
                )));
            }
            // Checked with the first number; the others differ in digits only.
            if let Err(error) = ResourceUri::new(&pattern.replace("{n}", "0")) {
                return Err(BenchError::Arguments(format!(
                    "--uri-template {pattern:?} makes no URI: {error}"
                )));
            }
        }
        if let Publish::Tool { arguments, .. } = &self.publish
            && let Err(error) = call_arguments(arguments, "demo://a", 0)
        {
            return Err(BenchError::Arguments(format!(
                "--publish-args is no JSON object: {error}"
            )));
        }
        if self.url.contains("{port}") && self.serve_command.is_none() {
            let reason = "{port} in the address needs a --serve-command with it";
            return Err(BenchError::Arguments(reason.to_owned()));
        }
        if self.serve_command.is_some() && self.pid.is_some() {
            let reason = "--pid and --serve-command name two servers: use one of them";
            return Err(BenchError::Arguments(reason.to_owned()));
        }
        Ok(())
    }

    /// Returns the number of sessions and pollers that are open at the same time, the churn included.
    pub(crate) fn clients(&self) -> usize {
        self.sessions + self.stalled + self.slow + self.pollers + (self.churn * 2.0).ceil() as usize
    }

    /// Returns the number of connections that the clients share; none where each has its own.
    pub(crate) fn shared_connections(&self) -> Option<usize> {
        // By the number of clients, so that a search may double it.
        let least = self.clients().div_ceil(SESSIONS_PER_CONNECTION);
        self.http2.then_some(self.http2_connections.unwrap_or(least))
    }

    /// Returns the number of connections of all clients.
    pub(crate) fn connections(&self) -> usize {
        self.shared_connections().unwrap_or_else(|| self.clients())
    }

    /// Returns the bound on the number of clients.
    pub(crate) fn sessions_max(&self) -> usize {
        match self.http2 {
            true => SESSIONS_HTTP2_MAX,
            false => SESSIONS_MAX,
        }
    }

    /// Returns the time during which updates are sent.
    pub(crate) fn active(&self) -> Duration {
        self.warm_up + self.duration
    }

    /// Returns the revision of session `index`.
    pub(crate) fn revision_of(&self, index: usize) -> Revision {
        match self.era {
            Era::Legacy => self.revision,
            Era::Mix if index.is_multiple_of(2) => self.revision,
            Era::Modern | Era::Mix => Revision::R2026_07_28,
        }
    }

    /// Returns the settings as the report shows them.
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
            "url": self.url, "sessions": self.sessions, "http2_connections": self.shared_connections(), "era": era, "revision": self.revision.as_str(),
            "resources": self.resources, "subscribe": self.subscribe, "rate": rate, "flat_out": flat_out,
            "duration_s": self.duration.as_secs_f64(), "warm_up_s": self.warm_up.as_secs_f64(),
            "publish": publish, "publish_connections": self.publish_connections,
            "stalled": self.stalled, "slow": self.slow, "slow_rate": self.slow_rate, "churn": self.churn,
            "pollers": self.pollers, "poll_interval_s": self.poll_interval.as_secs_f64(),
        })
    }
}

/// Fills in the arguments of one call of the publishing tool.
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
    fn exceeded_bound_is_named() {
        assert!(Settings::default().validate().is_ok());
        type Change = fn(&mut Settings);
        let changes: [(&str, Change); 16] = [
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
            ("--http2", |all| all.http2 = true),
            ("--slow", |all| {
                (all.http2, all.era, all.slow) = (true, Era::Modern, 1);
            }),
            ("--connections", |all| all.http2_connections = Some(1)),
            ("--connections", |all| {
                (all.http2, all.era, all.http2_connections) = (true, Era::Modern, Some(101));
            }),
            ("--sessions", |all| {
                (all.http2, all.era, all.sessions) = (true, Era::Modern, SESSIONS_HTTP2_MAX + 1);
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
    fn streams_share_connections() {
        let mut settings = Settings {
            http2: true,
            era: Era::Modern,
            sessions: SESSIONS_HTTP2_MAX,
            ..Settings::default()
        };
        assert_eq!(settings.validate(), Ok(()));
        assert_eq!(
            (settings.connections(), settings.shared_connections()),
            (1_000, Some(1_000))
        );
        settings.http2_connections = Some(7);
        assert_eq!(settings.connections(), 7);
        assert_eq!(Settings::default().shared_connections(), None);
    }

    #[test]
    fn tool_arguments_carry_uri_and_number() {
        let made = call_arguments(r#"{"uri":"{uri}","state":"s{n}","n":{n}}"#, "demo://\"q", 7).unwrap();
        assert_eq!(made, json!({ "uri": "demo://\"q", "state": "s7", "n": 7 }));
    }

    #[test]
    fn mix_has_both_eras() {
        let mut settings = Settings::default();
        assert_eq!(
            [settings.revision_of(0), settings.revision_of(1)],
            [Revision::R2025_11_25, Revision::R2026_07_28]
        );
        settings.era = Era::Legacy;
        assert_eq!(settings.revision_of(1), Revision::R2025_11_25);
    }
}
