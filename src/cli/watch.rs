//! `tidings watch`: prints a line for each change of some resources of any MCP server.
//!
//! Changes go to standard output, and messages about the connection to standard error.

mod exec;
mod lines;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::time::{Duration, SystemTime};

use clap::{Args, ValueEnum};
use tokio::time::{Instant, interval_at};

use super::address;
use super::credentials::denied;
use super::server::ServerArgs;
use super::{CliError, block_on, output, signal, table, usage};
use crate::client::{
    ConnectError, Credentials, Era, ResourceChanged, Target, WatchError, WatchEvent, WatchOptions,
    WatchStrategy, Watcher,
};
use crate::config::{LogConfig, LogFormat};
use crate::{ListKind, ResourceUri, telemetry};
use crate::{printable, timestamp};
use exec::Exec;
use lines::{ChangeLine, ListLine, describe, listening};

const USAGE: &str =
    "tidings watch [OPTIONS] [TARGET] [URI]...\n       tidings watch [OPTIONS] [URI]... -- COMMAND [ARG]...";

/// The default log filter. Without rmcp, whose errors about a lost connection repeat our own message.
const LOG_DEFAULT: &str = "warn,rmcp=off";

/// The resources of a list that are watched at most.
const WATCHED_MAX: usize = 10_000;

/// The interval at which the list is read again, for servers that notify of no changes of it.
const RELIST_EVERY: Duration = Duration::from_secs(30);

/// The wait after which a status line says what is waited for.
const SILENCE: Duration = Duration::from_secs(2);

/// The arguments of `tidings watch`.
#[derive(Debug, Args)]
#[command(override_usage = USAGE)]
pub(super) struct Watch {
    /// Address of the server, such as http://127.0.0.1:8808/mcp or localhost:8808, then the URIs to watch;
    /// without an address or a COMMAND, the service of the context or of TIDINGS_URL
    #[arg(value_name = "TARGET|URI")]
    words: Vec<String>,
    /// Program that is an MCP server on its standard input and output, and its arguments
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
    /// Watch every resource that the server lists, and those that it lists later
    #[arg(short, long, conflicts_with = "prefix")]
    all: bool,
    /// Watch the listed resources whose URI begins with this, and those that are listed later; may be given
    /// several times
    #[arg(short, long, value_name = "PREFIX")]
    prefix: Vec<String>,
    /// Print a line, too, when the list of resources, tools or prompts changed
    #[arg(short, long)]
    lists: bool,
    /// Print one JSON object per line
    #[arg(short, long)]
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
    server: ServerArgs,
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
        let (target, credentials, uris) = self.plan()?;
        let options = WatchOptions {
            strategy: self.strategy.map(Into::into),
            wait_for_missing: true,
            lists: self.lists || self.follows_list(),
            credentials,
            ..WatchOptions::default()
        };
        telemetry::install(&LogConfig {
            level: output::log_level().unwrap_or(&self.log).to_owned(),
            format: LogFormat::Text,
        })?;
        block_on(self.watch(target, uris, options))
    }

    /// Reads the server, its credentials and the resources from the forms of the command line.
    fn plan(&self) -> Result<(Target, Credentials, Vec<String>), CliError> {
        let mut uris = self.words.clone();
        let (target, credentials) = match self.command.as_slice() {
            [] => {
                let first = uris.first().filter(|word| self.is_target(word)).cloned();
                if first.is_some() {
                    uris.remove(0);
                }
                self.server.target("watch", first.as_deref())?
            }
            command => {
                self.server.refuse_for_program("watch")?;
                let target = Target::command(command.to_vec());
                let target = target.map_err(|error| usage("watch", &error.to_string()))?;
                (target, Credentials::default())
            }
        };
        if uris.is_empty() && !self.follows_list() && !self.lists {
            let message =
                "name the resources to watch after the server's address, or use --all, --prefix or --lists";
            return Err(usage("watch", message));
        }
        for uri in &uris {
            ResourceUri::new(uri).map_err(|error| usage("watch", &error.to_string()))?;
        }
        Ok((target, credentials, uris))
    }

    /// Returns true if resources are chosen from the server's list.
    fn follows_list(&self) -> bool {
        self.all || !self.prefix.is_empty()
    }

    /// Returns true for a listed resource that is to be watched.
    fn wants(&self, uri: &str) -> bool {
        self.all || self.prefix.iter().any(|prefix| uri.starts_with(prefix))
    }

    /// Returns true for a first word that is the server's address: resources may have http addresses, too.
    fn is_target(&self, word: &str) -> bool {
        !self.server.has_context() && address::is_address(word)
    }

    /// Watches until an interrupt.
    async fn watch(&self, target: Target, uris: Vec<String>, options: WatchOptions) -> Result<(), CliError> {
        let interrupted = signal::interrupted();
        tokio::pin!(interrupted);
        let (name, mut watcher) = tokio::select! {
            biased;
            () = &mut interrupted => return Ok(()),
            connected = connect(target, self.era.into(), options) => connected?,
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

    /// Subscribes, prints the current versions, and then prints every event.
    async fn follow(
        &self,
        name: &str,
        watcher: &mut Watcher,
        exec: &mut Exec,
        uris: Vec<String>,
    ) -> Result<(), CliError> {
        let mut seen = BTreeSet::new();
        unless_silent(name, self.begin(watcher, &mut seen, uris)).await??;
        print_status(&listening(name, watcher.revision(), watcher.strategy()))?;
        self.begin_listed(watcher, &mut seen, name).await?;
        // The first tick of an interval is at once.
        let mut relist = interval_at(Instant::now() + RELIST_EVERY, RELIST_EVERY);
        loop {
            tokio::select! {
                event = watcher.next_event() => match event {
                    None => return Err(CliError::failed("the watcher ended")),
                    Some(WatchEvent::Changed(changed)) => self.changed(exec, &changed)?,
                    Some(WatchEvent::ListChanged(kind)) => {
                        self.print_list(kind)?;
                        if kind == ListKind::Resources {
                            self.begin_listed(watcher, &mut seen, name).await?;
                        }
                    }
                    Some(other) => print_status(&describe(name, &other))?,
                },
                _ = relist.tick(), if self.follows_list() => {
                    // Not every server notifies of its lists.
                    self.begin_listed(watcher, &mut seen, name).await?;
                }
                ended = exec.ended() => {
                    let (uri, status) = ended?;
                    if !status.success() {
                        print_status(&format!("the command for {uri} ended with {status}"))?;
                    }
                }
            }
        }
    }

    /// Subscribes to resources and prints their current versions.
    async fn begin(
        &self,
        watcher: &mut Watcher,
        seen: &mut BTreeSet<String>,
        uris: Vec<String>,
    ) -> Result<(), CliError> {
        if uris.is_empty() {
            return Ok(());
        }
        let etags = watcher.subscribe_resources(uris.clone()).await?;
        for (uri, etag) in std::iter::zip(uris, &etags) {
            let strategy = watcher.strategy_of(&uri).unwrap_or(watcher.strategy());
            self.print(&uri, etag.as_deref(), strategy, true)?;
            seen.insert(uri);
        }
        Ok(())
    }

    /// Subscribes to the listed resources that are wanted and not watched yet.
    async fn begin_listed(
        &self,
        watcher: &mut Watcher,
        seen: &mut BTreeSet<String>,
        name: &str,
    ) -> Result<(), CliError> {
        if !self.follows_list() {
            return Ok(());
        }
        let listed = match watcher.list_resources().await {
            Ok(listed) => listed,
            // The watcher connects again by itself, and the next look finds the rest.
            Err(WatchError::Disconnected(_)) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let mut new: Vec<String> = Vec::new();
        for uri in listed {
            // A listed text that is no URI could not be subscribed to, and would fail all others.
            if self.wants(&uri) && !seen.contains(&uri) && ResourceUri::new(&uri).is_ok() {
                new.push(uri);
            }
        }
        // Each watched resource costs memory here and a subscription there.
        let room = WATCHED_MAX.saturating_sub(seen.len());
        if new.len() > room {
            let left = new.len() - room;
            let hint = "choose fewer with --prefix";
            print_status(&format!(
                "{name} lists {left} resources more than the {WATCHED_MAX} that are watched; {hint}"
            ))?;
            new.truncate(room);
        }
        match self.begin(watcher, seen, new).await {
            // The connection was lost after the list was read.
            Err(CliError::Failed(reason)) => print_status(&reason),
            other => other,
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
        print_line(if self.json { line.json() } else { line.text() })
    }

    fn print_list(&self, kind: ListKind) -> Result<(), CliError> {
        if !self.lists {
            return Ok(());
        }
        let at = timestamp::utc(SystemTime::now());
        let list = kind.name();
        let line = ListLine { list, at: &at };
        print_line(if self.json { line.json() } else { line.text() })
    }
}

/// Prints a line and flushes it: a program at the other end of a pipe waits for each change.
fn print_line(line: String) -> Result<(), CliError> {
    table::print(&(line + "\n"))
}

/// Connects, and tries the usual path if nothing speaks MCP at an address without one.
async fn connect(target: Target, era: Era, options: WatchOptions) -> Result<(String, Watcher), CliError> {
    let name = target.to_string();
    let first = Watcher::connect_with(target.clone(), era, options.clone());
    let error = match unless_silent(&name, first).await? {
        Ok(watcher) => return Ok((name, watcher)),
        Err(error) => error,
    };
    let (ConnectError::NotServed { .. }, Target::Http(url)) = (&error, &target) else {
        return Err(error.into());
    };
    let Some(usual) = address::usual_endpoint(url) else {
        return Err(error.into());
    };
    let other = Target::Http(usual);
    let name = other.to_string();
    match unless_silent(&name, Watcher::connect_with(other, era, options)).await? {
        Ok(watcher) => Ok((name, watcher)),
        Err(_) => Err(error.into()),
    }
}

/// Awaits an answer of the server, and says so when it takes long.
async fn unless_silent<T>(name: &str, answer: impl Future<Output = T>) -> Result<T, CliError> {
    tokio::pin!(answer);
    tokio::select! {
        biased;
        answer = &mut answer => return Ok(answer),
        () = tokio::time::sleep(SILENCE) => {}
    }
    let seconds = SILENCE.as_secs();
    print_status(&format!(
        "{name} has not answered for {seconds} s; waiting for it, up to 30 s for each try"
    ))?;
    Ok(answer.await)
}

/// Prints a line on standard error, away from the changes.
fn print_status(line: &str) -> Result<(), CliError> {
    output::status(&printable::without_secrets(line))
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

    fn plan(line: &str) -> Result<(Target, Vec<String>), CliError> {
        let words = ["tidings", "watch"].into_iter().chain(line.split_whitespace());
        match Cli::try_parse_from(words).map_err(CliError::Usage)?.command {
            Command::Watch(watch) => watch.plan().map(|(target, _, uris)| (target, uris)),
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
            ("9 demo://a", http("http://127.0.0.1:9/mcp"), &["demo://a"]),
            (
                "localhost:9 demo://a",
                http("http://localhost:9/mcp"),
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
            let planned = plan(line).unwrap_or_else(|error| panic!("{line}: {error}"));
            assert_eq!(planned.0, target, "{line}");
            assert_eq!(planned.1, uris, "{line}");
        }
    }

    #[test]
    fn misuse_names_the_mistake() {
        for (line, expected) in [
            ("http://h/mcp", "name the resources to watch"),
            ("http://a:b@h/mcp demo://a", "a password is not accepted"),
            ("http://h/mcp nonsense", "invalid resource URI \"nonsense\""),
            ("-- server", "name the resources to watch"),
            ("http://h/mcp --all --prefix demo://", "cannot be used with"),
        ] {
            let error = plan(line).expect_err(line);
            assert_eq!(error.exit(), Exit::Usage, "{line}");
            assert!(error.to_string().contains(expected), "{line}: {error}");
        }
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
