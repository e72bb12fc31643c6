//! `tidings watch`: prints a line for each change of some resources of any MCP server.
//!
//! Changes go to standard output, and messages about the connection to standard error.

mod exec;

use std::ffi::OsString;
use std::io::Write;
use std::time::SystemTime;

use clap::{Args, ValueEnum};
use serde::Serialize;

use super::credentials::{CredentialsArgs, denied};
use super::{CliError, block_on, signal, usage};
use crate::client::{
    ConnectError, Era, ResourceChanged, Target, WatchError, WatchEvent, WatchOptions, WatchStrategy, Watcher,
};
use crate::config::{LogConfig, LogFormat};
use crate::{ResourceUri, telemetry};
use crate::{printable, timestamp};
use exec::Exec;

const USAGE: &str =
    "tidings watch [OPTIONS] TARGET URI...\n       tidings watch [OPTIONS] URI... -- COMMAND [ARG]...";

/// The default log filter. Without rmcp, whose errors about a lost connection repeat our own message.
const LOG_DEFAULT: &str = "warn,rmcp=off";

/// The arguments of `tidings watch`.
#[derive(Debug, Args)]
#[command(override_usage = USAGE)]
pub(super) struct Watch {
    /// Address of the server, such as http://127.0.0.1:8808/mcp, unless a COMMAND is given; then the URIs to
    /// watch
    #[arg(required = true, value_name = "TARGET|URI")]
    words: Vec<String>,
    /// Program that is an MCP server on its standard input and output, and its arguments
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
    /// Revisions of the protocol to try: all, 2026-07-28, or 2025-11-25 and older
    #[arg(long, value_enum, default_value_t = EraName::Auto)]
    era: EraName,
    /// The only strategy to take; by default the best that the server offers and keeps
    #[arg(long = "road", value_name = "ROAD", value_enum)]
    strategy: Option<StrategyName>,
    /// Command to run after each change with `sh -c`, one at a time; it finds TIDINGS_URI, TIDINGS_ETAG and
    /// TIDINGS_ROAD
    #[arg(long, value_name = "CMD")]
    exec: Option<String>,
    /// Log filter: a level, or directives such as info,tidings=debug
    #[arg(long, env = "TIDINGS_LOG", default_value = LOG_DEFAULT, value_name = "LEVEL", hide_env_values = true)]
    log: String,
    #[command(flatten)]
    credentials: CredentialsArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum EraName {
    Auto,
    Modern,
    Legacy,
}

impl From<EraName> for Era {
    fn from(name: EraName) -> Era {
        match name {
            EraName::Auto => Era::Auto,
            EraName::Modern => Era::Modern,
            EraName::Legacy => Era::Legacy,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum StrategyName {
    /// subscriptions/listen, of 2026-07-28
    Listen,
    /// resources/subscribe, of the revisions before
    Subscribe,
    /// The tools get_resource_etag(s) and wait_for_resource_change
    Etag,
    /// Read on a timer, and compare a digest
    Read,
}

impl From<StrategyName> for WatchStrategy {
    fn from(name: StrategyName) -> WatchStrategy {
        match name {
            StrategyName::Listen => WatchStrategy::Listen,
            StrategyName::Subscribe => WatchStrategy::Subscribe,
            StrategyName::Etag => WatchStrategy::EtagTool,
            StrategyName::Read => WatchStrategy::ReadAndHash,
        }
    }
}

impl Watch {
    pub(super) fn run(&self) -> Result<(), CliError> {
        let (target, uris) = self.target_and_uris()?;
        let options = self.options(&target)?;
        telemetry::install(&LogConfig {
            level: self.log.clone(),
            format: LogFormat::Text,
        })?;
        block_on(self.watch(target, uris, options))
    }

    /// Reads the server and the resources from the two forms of the command line.
    fn target_and_uris(&self) -> Result<(Target, Vec<String>), CliError> {
        let mut uris = self.words.clone();
        let target = if self.command.is_empty() {
            // clap requires one word at least.
            Target::http(&uris.remove(0))
        } else {
            Target::command(self.command.clone())
        };
        let target = target.map_err(|error| usage("watch", &error.to_string()))?;
        if uris.is_empty() {
            let message = "name the resources to watch after the server's address";
            return Err(usage("watch", message));
        }
        for uri in &uris {
            ResourceUri::new(uri).map_err(|error| usage("watch", &error.to_string()))?;
        }
        Ok((target, uris))
    }

    /// Watches until an interrupt.
    async fn watch(&self, target: Target, uris: Vec<String>, options: WatchOptions) -> Result<(), CliError> {
        let interrupted = signal::interrupted();
        tokio::pin!(interrupted);
        let name = target.to_string();
        let mut watcher = tokio::select! {
            biased;
            () = &mut interrupted => return Ok(()),
            connected = Watcher::connect_with(target, self.era.into(), options) => connected?,
        };
        let mut exec = Exec::new(self.exec.clone());
        // Biased: an interrupt ends the watch even if events never pause.
        let watched = tokio::select! {
            biased;
            () = &mut interrupted => Ok(()),
            watched = self.follow(&name, &mut watcher, &mut exec, uris) => watched,
        };
        // Together, since each may take seconds.
        tokio::join!(exec.close(), watcher.close());
        watched
    }

    fn options(&self, target: &Target) -> Result<WatchOptions, CliError> {
        Ok(WatchOptions {
            strategy: self.strategy.map(Into::into),
            credentials: self.credentials.for_target("watch", target)?,
            ..WatchOptions::default()
        })
    }

    /// Subscribes, prints the current versions, and then prints every event.
    async fn follow(
        &self,
        name: &str,
        watcher: &mut Watcher,
        exec: &mut Exec,
        uris: Vec<String>,
    ) -> Result<(), CliError> {
        let etags = watcher.subscribe_resources(uris.clone()).await?;
        print_status(&listening(name, watcher.revision(), watcher.strategy()))?;
        for (uri, etag) in std::iter::zip(&uris, &etags) {
            let strategy = watcher.strategy_of(uri).unwrap_or(watcher.strategy());
            self.print(uri, etag.as_deref(), strategy, true)?;
        }
        loop {
            tokio::select! {
                event = watcher.next_event() => match event {
                    None => return Err(CliError::failed("the watcher ended")),
                    Some(WatchEvent::Changed(changed)) => self.changed(exec, &changed)?,
                    Some(other) => print_status(&describe(name, &other))?,
                },
                ended = exec.ended() => {
                    let (uri, status) = ended?;
                    if !status.success() {
                        print_status(&format!("the command for {uri} ended with {status}"))?;
                    }
                }
            }
        }
    }

    /// Prints a change and runs the command for it.
    fn changed(&self, exec: &mut Exec, changed: &ResourceChanged) -> Result<(), CliError> {
        self.print(&changed.uri, changed.etag.as_deref(), changed.strategy, false)?;
        exec.push(changed)
            .map_err(|error| CliError::failed(format!("cannot run the command of --exec: {error}")))
    }

    fn print(
        &self,
        uri: &str,
        etag: Option<&str>,
        strategy: WatchStrategy,
        current: bool,
    ) -> Result<(), CliError> {
        let at = timestamp::utc(SystemTime::now());
        let line = ChangeLine {
            uri,
            etag,
            strategy: strategy.name(),
            at: &at,
            current,
        };
        // Flushed line by line: a program at the other end of a pipe waits for each change.
        let mut out = std::io::stdout().lock();
        writeln!(out, "{}", if self.json { line.json() } else { line.text() })?;
        Ok(out.flush()?)
    }
}

/// One line of standard output.
#[derive(Debug, Serialize)]
struct ChangeLine<'a> {
    uri: &'a str,
    etag: Option<&'a str>,
    #[serde(rename = "road")]
    strategy: &'static str,
    at: &'a str,
    /// True for the version at which watching began, which is not a change.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    current: bool,
}

impl ChangeLine<'_> {
    fn text(&self) -> String {
        let mark = if self.current { " current" } else { "" };
        format!("{} {} {}{mark}", self.at, self.uri, self.etag.unwrap_or("-"))
    }

    fn json(&self) -> String {
        serde_json::to_string(self).expect("a line has only texts and a flag")
    }
}

fn listening(name: &str, revision: &str, strategy: WatchStrategy) -> String {
    format!("listening to {name} on {revision} by {}", strategy.method())
}

/// Describes an event that is not a change.
fn describe(name: &str, event: &WatchEvent) -> String {
    match event {
        WatchEvent::Lost { reason, retry_in } => {
            format!(
                "lost {name}: {reason}; trying again in {:.1} s",
                retry_in.as_secs_f64()
            )
        }
        WatchEvent::Restored { revision, strategy } => listening(name, revision, *strategy),
        WatchEvent::SteppedDown {
            uri,
            from,
            to,
            reason,
        } => {
            let subject = uri.as_deref().unwrap_or(name);
            format!(
                "{subject} goes from {} to {}: {reason}",
                from.method(),
                to.method()
            )
        }
        WatchEvent::Missing { uri, reason } => {
            format!("{uri} is missing: {reason}; waiting for it")
        }
        other => format!("{other:?}"),
    }
}

/// Prints a line on standard error, away from the changes.
fn print_status(line: &str) -> Result<(), CliError> {
    let line = printable::without_secrets(line);
    Ok(writeln!(std::io::stderr(), "{}", printable::line(&line))?)
}

impl From<ConnectError> for CliError {
    fn from(error: ConnectError) -> CliError {
        match error {
            ConnectError::Unreachable { .. } => CliError::Unavailable(error.to_string()),
            ConnectError::Denied { .. } => denied(error),
            other => CliError::failed(other),
        }
    }
}

impl From<WatchError> for CliError {
    fn from(error: WatchError) -> CliError {
        CliError::failed(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command, Exit};
    use clap::Parser;
    use std::time::Duration;

    fn target_and_uris(line: &str) -> Result<(Target, Vec<String>), CliError> {
        let words = ["tidings", "watch"].into_iter().chain(line.split_whitespace());
        match Cli::try_parse_from(words).map_err(CliError::Usage)?.command {
            Command::Watch(watch) => watch.target_and_uris(),
            other => panic!("{other:?}"),
        }
    }

    fn http(url: &str) -> Target {
        Target::Http(url.to_owned())
    }

    fn program(words: &[&str]) -> Target {
        Target::Command(words.iter().map(OsString::from).collect())
    }

    #[test]
    fn both_command_line_forms_parse() {
        for (line, target, uris) in [
            ("http://h/mcp demo://a", http("http://h/mcp"), &["demo://a"][..]),
            (
                "--json http://h/mcp demo://a demo://b",
                http("http://h/mcp"),
                &["demo://a", "demo://b"],
            ),
            (
                "http://h/mcp demo://a --era legacy",
                http("http://h/mcp"),
                &["demo://a"],
            ),
            ("demo://a -- server", program(&["server"]), &["demo://a"]),
            (
                "demo://a demo://b -- server --json -x",
                program(&["server", "--json", "-x"]),
                &["demo://a", "demo://b"],
            ),
            (
                "http://h/page --era modern -- server",
                program(&["server"]),
                &["http://h/page"],
            ),
        ] {
            let planned = target_and_uris(line).unwrap_or_else(|error| panic!("{line}: {error}"));
            assert_eq!(planned.0, target, "{line}");
            assert_eq!(planned.1, uris, "{line}");
        }
    }

    #[test]
    fn misuse_names_the_mistake() {
        for (line, expected) in [
            ("http://h/mcp", "name the resources to watch"),
            (
                "demo://a demo://b",
                "cannot watch \"demo://a\": expected an address that starts with http://",
            ),
            ("http://h/mcp nonsense", "invalid resource URI \"nonsense\""),
            ("-- server", "TARGET|URI"),
        ] {
            let error = target_and_uris(line).expect_err(line);
            assert_eq!(error.exit(), Exit::Usage, "{line}");
            assert!(error.to_string().contains(expected), "{line}: {error}");
        }
    }

    fn line(etag: Option<&str>, current: bool) -> ChangeLine<'_> {
        ChangeLine {
            uri: "demo://a",
            etag,
            strategy: WatchStrategy::Listen.name(),
            at: "2026-11-21T10:00:00Z",
            current,
        }
    }

    #[test]
    fn lines_have_the_documented_form() {
        assert_eq!(
            line(Some("v3-1764000000"), false).text(),
            "2026-11-21T10:00:00Z demo://a v3-1764000000"
        );
        assert_eq!(line(None, false).text(), "2026-11-21T10:00:00Z demo://a -");
        assert_eq!(
            line(Some("v3-1"), true).text(),
            "2026-11-21T10:00:00Z demo://a v3-1 current"
        );
        assert_eq!(
            line(Some("v3-1"), false).json(),
            r#"{"uri":"demo://a","etag":"v3-1","road":"listen","at":"2026-11-21T10:00:00Z"}"#
        );
        assert_eq!(
            line(None, true).json(),
            r#"{"uri":"demo://a","etag":null,"road":"listen","at":"2026-11-21T10:00:00Z","current":true}"#
        );
    }

    #[test]
    fn connection_events_name_method_and_reason() {
        let restored = WatchEvent::Restored {
            revision: "2025-11-25".to_owned(),
            strategy: WatchStrategy::Subscribe,
        };
        assert_eq!(
            describe("http://h/mcp", &restored),
            "listening to http://h/mcp on 2025-11-25 by resources/subscribe"
        );
        let lost = WatchEvent::Lost {
            reason: "the stream broke off".to_owned(),
            retry_in: Duration::from_millis(840),
        };
        assert_eq!(
            describe("h", &lost),
            "lost h: the stream broke off; trying again in 0.8 s"
        );
    }

    fn stepped(uri: Option<&str>) -> WatchEvent {
        WatchEvent::SteppedDown {
            uri: uri.map(str::to_owned),
            from: WatchStrategy::Listen,
            to: WatchStrategy::EtagTool,
            reason: "it keeps silent".to_owned(),
        }
    }

    #[test]
    fn step_down_names_both_methods_and_the_reason() {
        assert_eq!(
            describe("http://h/mcp", &stepped(None)),
            "http://h/mcp goes from subscriptions/listen to get_resource_etag: it keeps silent"
        );
        assert!(describe("h", &stepped(Some("demo://a"))).starts_with("demo://a goes from "));
    }

    #[test]
    fn every_strategy_has_one_name() {
        for strategy in WatchStrategy::ALL {
            let name = StrategyName::from_str(strategy.name(), false).unwrap();
            assert_eq!(WatchStrategy::from(name), strategy);
        }
    }

    #[test]
    fn only_an_absent_server_is_unavailable() {
        let unreachable = ConnectError::Unreachable {
            target: "h".to_owned(),
            reason: "refused".to_owned(),
        };
        assert_eq!(CliError::from(unreachable).exit(), Exit::Unavailable);
        let refused = WatchError::Refused {
            uri: "demo://a".to_owned(),
            reason: "unknown".to_owned(),
        };
        assert_eq!(CliError::from(refused).exit(), Exit::Failure);
    }
}
