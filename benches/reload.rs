//! Row `reload`: deliveries while the rules are replaced, with many sessions of three principals.
//!
//! All sessions watch the lists, and at first a resource of their principal, which the first reload hides.
//! Some also watch a resource that the rules leave alone: it is changed at a steady pace, and the time of its
//! notices during a reload is compared with that of as many before it, in the same service. In the first case
//! the lists look the same by the new rules, in the second one each session is told of a change of a list
//! too.

use std::path::PathBuf;
use std::process::Command;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, anyhow, ensure};
use tidings::wire::dialect::Revision;
use tidings::wire::http1::HttpTarget;

use crate::Options;
use crate::guard::{self, Guard, OPS, OPS_RULE};
use crate::server_process::ListeningServer;
use crate::sockets::{
    Era, FENCE, Kind, Load, WATCHED, connect, connect_from, fit, open_session, open_session_stream, publish,
    subscribe,
};
use crate::support::{Column, RUNS, Spread, Table, quantile, ratios};

/// The number of sessions, unless `--sessions` has another one.
const SESSIONS: usize = 10_000;
/// The sessions that watch the resource that is changed.
const WATCHERS: usize = 100;
/// Fifty changes per second, for two seconds.
const INTERVAL: Duration = Duration::from_millis(20);
const CHANGES: usize = 100;
/// The time from the first change of a window to the reload.
const RELOAD_AFTER: Duration = Duration::from_millis(200);
/// The principals of the sessions, and the resource that each of them alone has a right to.
const READERS: [&str; 3] = ["anne", "ben", "carol"];
/// Resources in the list beside those.
const LISTED: usize = 1_000;

const COLUMNS: &[Column] = &[
    ("before_p99_ms", "before: p99 ms", 2),
    ("during_p99_ms", "during: p99 ms", 2),
    ("p99_x", "x before", 2),
    ("before_longest_ms", "before: longest ms", 1),
    ("during_longest_ms", "during: longest ms", 1),
    ("lost", "notices lost", 0),
    ("hashes", "list hashes computed per reload", 0),
];

/// The effect of the reload on the lists.
#[derive(Clone, Copy)]
enum Lists {
    Same,
    Other,
}

/// The figures of one reload and of the time before it.
struct Figures {
    before: Window,
    during: Window,
    hashes: f64,
}

/// The figures of some changes.
struct Window {
    p99_ms: f64,
    longest_ms: f64,
    lost: f64,
}

/// Measures the row.
pub(crate) fn run(options: &Options) -> anyhow::Result<Table> {
    let sessions = options.sessions.unwrap_or(SESSIONS);
    ensure!(sessions >= WATCHERS, "--sessions {sessions} is below {WATCHERS}");
    fit(sessions)?;
    let mut table = Table::new("reload", COLUMNS);
    for (lists, label) in [
        (Lists::Same, "lists look the same"),
        (Lists::Other, "every list changes"),
    ] {
        let mut rig = Rig::start(sessions, lists)?;
        // The first reload finds cold caches in every session.
        rig.measure()?;
        let mut runs = Vec::new();
        for _ in 0..RUNS {
            runs.push(rig.measure()?);
        }
        let all = |figure: fn(&Figures) -> f64| runs.iter().map(figure).collect::<Vec<f64>>();
        let during = all(|run| run.during.p99_ms);
        let before = all(|run| run.before.p99_ms);
        let figures = vec![
            Spread::of(before.clone()),
            Spread::of(during.clone()),
            ratios(&during, &before),
            Spread::of(all(|run| run.before.longest_ms)),
            Spread::of(all(|run| run.during.longest_ms)),
            Spread::of(all(|run| run.before.lost + run.during.lost)),
            Spread::of(all(|run| run.hashes)),
        ];
        table.add_spreads(format!("{label}, {sessions}"), figures);
    }
    Ok(table)
}

/// The rules of a round; in every second one the readers have a right less. Each round has rules that the
/// service has never seen, so that it knows no list hash for them.
fn rules(round: usize, lists: Lists) -> String {
    let reduced = !round.is_multiple_of(2);
    let mut rules = OPS_RULE.to_owned();
    for name in READERS {
        let mut may_watch = vec!["bench://watched".to_owned(), "bench://fence".to_owned()];
        let mut may_list = vec!["bench://list/*".to_owned(), format!("bench://round/{round}")];
        match (reduced, lists) {
            (false, _) => {
                may_watch.push(format!("bench://{name}"));
                may_list.push(format!("bench://{name}"));
            }
            // Other rules by which the same resources are listed.
            (true, Lists::Same) => {
                may_list.push(format!("bench://{name}*"));
            }
            (true, Lists::Other) => {}
        }
        rules += &format!(
            "[[auth.rule]]\nroles = ['{name}']\nmay = ['read', 'subscribe']\nmatch = {may_watch:?}\n\
             [[auth.rule]]\nroles = ['{name}']\nmay = ['list']\nmatch = {may_list:?}\n"
        );
    }
    rules
}

/// A service with its sessions.
struct Rig {
    server: ListeningServer,
    guard: Guard,
    folder: PathBuf,
    lists: Lists,
    load: Load,
    /// The number of reloads.
    round: usize,
    states: u64,
}

impl Rig {
    fn start(sessions: usize, lists: Lists) -> anyhow::Result<Rig> {
        let names = [&[OPS], &READERS[..]].concat();
        let folder = tempfile::tempdir().context("cannot make a folder for the server")?;
        let guard = Guard::write(folder.path(), &names, &rules(0, lists))?;
        let path = folder.path().to_owned();
        let server = guard::start_in(folder)?;
        let publisher = Rig::target_of(&server, &guard, OPS)?;
        let mut requests = Vec::new();
        for name in [WATCHED, FENCE].iter().chain(&READERS) {
            requests.push(publisher.put_resource(&format!("bench://{name}"), "the first state"));
        }
        for number in 0..LISTED {
            requests.push(publisher.put_resource(&format!("bench://list/{number:04}"), "listed"));
        }
        publish(&mut connect(server.address)?, &requests)?;
        let mut streams = Vec::new();
        for index in 0..sessions {
            let stream = Rig::open(&server, &guard, index, sessions);
            streams.push(stream.with_context(|| format!("session {index} could not be opened"))?);
        }
        let publisher = connect(server.address)?.into_socket();
        let load = Load::new(Kind::Guarded(Era::Sessions), vec![publisher], streams)?;
        Ok(Rig {
            server,
            guard,
            folder: path,
            lists,
            load,
            round: 0,
            states: 0,
        })
    }

    fn target_of(server: &ListeningServer, guard: &Guard, name: &str) -> anyhow::Result<HttpTarget> {
        let target = HttpTarget::mcp(server.address);
        guard.authorize(&target, name)?;
        Ok(target)
    }

    /// Opens a session and its stream.
    fn open(
        server: &ListeningServer,
        guard: &Guard,
        index: usize,
        sessions: usize,
    ) -> anyhow::Result<std::net::TcpStream> {
        let name = READERS[index % READERS.len()];
        let target = Rig::target_of(server, guard, name)?;
        let mut connection = connect_from(server.address, index)?;
        let dialect = open_session(&mut connection, &target, Revision::R2025_11_25)?;
        let mut names = vec![name.to_owned(), FENCE.to_owned()];
        // Spread evenly over all sessions.
        if index.is_multiple_of(sessions / WATCHERS) && index / (sessions / WATCHERS) < WATCHERS {
            names.push(WATCHED.to_owned());
        }
        subscribe(&mut connection, &target, &dialect, &names)?;
        open_session_stream(connection, &target, &dialect)
    }

    /// Measures a window without a reload, and one with it.
    fn measure(&mut self) -> anyhow::Result<Figures> {
        let before = self.window()?;
        let computed = self.hashes_computed()?;
        self.round += 1;
        self.guard
            .write_rules(&self.folder, &rules(self.round, self.lists))?;
        let reload = hang_up_later(self.server.pid());
        let during = self.window();
        reload.join().map_err(|_| anyhow!("the reload panicked"))??;
        let hashes = self.hashes_computed()? - computed;
        Ok(Figures {
            before,
            during: during?,
            hashes,
        })
    }

    /// Makes changes at a steady pace, and waits until every session has the last one of another resource.
    fn window(&mut self) -> anyhow::Result<Window> {
        let target = Rig::target_of(&self.server, &self.guard, OPS)?;
        let mut changes = Vec::new();
        for name in std::iter::repeat_n(WATCHED, CHANGES).chain([FENCE]) {
            self.states += 1;
            let state = format!("state {}", self.states);
            changes.push(target.put_resource(&format!("bench://{name}"), &state));
        }
        let merged = self.metric("tidings_conflated_total")?;
        let mut latencies = self.load.paced(&changes, INTERVAL)?;
        let merged = self.metric("tidings_conflated_total")? - merged;
        let due = (WATCHERS * CHANGES) as f64;
        Ok(Window {
            lost: due - latencies.len() as f64 - merged,
            p99_ms: quantile(&mut latencies, 0.99),
            longest_ms: quantile(&mut latencies, 1.0),
        })
    }

    fn hashes_computed(&self) -> anyhow::Result<f64> {
        self.metric("tidings_list_hashes_computed_total")
    }

    fn metric(&self, name: &str) -> anyhow::Result<f64> {
        let target = Rig::target_of(&self.server, &self.guard, OPS)?;
        let answer = connect(target.address)?.exchange(&target.request_to("GET", "/metrics").finish())?;
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        let prefix = format!("{name} ");
        let value = text.lines().find_map(|line| line.strip_prefix(&prefix));
        let value = value.with_context(|| format!("/metrics has no {name}"))?;
        Ok(value.parse()?)
    }
}

/// Has the service read its rules again when the window has begun.
fn hang_up_later(pid: u32) -> JoinHandle<anyhow::Result<()>> {
    std::thread::spawn(move || {
        std::thread::sleep(RELOAD_AFTER);
        let status = Command::new("kill").args(["-HUP", &pid.to_string()]).status()?;
        ensure!(status.success(), "the signal could not be sent: {status}");
        Ok(())
    })
}
