//! Row `http`: what a delivery costs the service over real sockets, beside two twins.
//!
//! Owns: the plan of the measurement and its figures. Never: serves or reads anything itself: the servers are
//! processes of their own ([`server`]), so that the CPU of the readers ([`load`]) is not counted as theirs. The twins
//! are rmcp with its own session layer ([`rmcp_twin`]) and a loop that writes the same number of bytes to bare
//! sockets ([`bare_twin`]).

mod server;
mod wire;
mod load;
mod rmcp_twin;
mod bare_twin;

use anyhow::ensure;

pub(crate) use bare_twin::serve as serve_bare;
pub(crate) use rmcp_twin::serve as serve_rmcp;

use crate::Options;
use crate::support::{
    Column, Cpu, RUNS, Table, Threads, least, median, open_files_max, quantile, resident_kib,
};
use load::Load;
use server::{Kind, Server};
use wire::Era;

const SESSIONS: usize = 1_000;
/// Changes made one at a time.
const ROUNDS: usize = 20;
/// Changes made back to back.
const BURST: usize = 40;
/// Files that neither side of a measurement spends on sessions.
const FILES_SPARE: usize = 64;
/// Bytes of one delivery of the bare twin while the service cannot tell its own.
const FRAME_BYTES: usize = 180;

const COLUMNS: &[Column] = &[
    ("cpu_us", "CPU µs per delivery", 1),
    ("cpu_us_min", "min", 1),
    ("cpu_us_max", "max", 1),
    ("bare_x", "x bare", 2),
    ("rmcp_x", "x rmcp", 2),
    ("p50_ms", "p50 ms", 1),
    ("p99_ms", "p99 ms", 1),
    ("burst_cpu_us", "back to back: CPU µs per change and session", 2),
    ("burst_frames", "frames per change and session", 2),
    ("idle_kib", "KiB per idle session", 1),
    ("after_kib", "KiB after", 1),
    ("frame_bytes", "bytes per delivery", 0),
];

/// Measures the row.
pub(crate) fn run(options: &Options) -> anyhow::Result<Table> {
    let sessions = options.sessions.unwrap_or(SESSIONS);
    let files = open_files_max()?;
    ensure!(
        sessions + FILES_SPARE <= files,
        "{sessions} sessions do not fit: this process may open {files} files, less {FILES_SPARE} for itself; raise \
         `ulimit -n` or lower --sessions"
    );
    let mut table = Table::new("http", COLUMNS);
    let mut cases = vec![
        Case::new("tidings", Kind::Tidings, Era::Sessions),
        Case::new("tidings", Kind::Tidings, Era::Listen),
        Case::new("rmcp", Kind::Rmcp, Era::Sessions),
        Case::new("rmcp", Kind::Rmcp, Era::Listen),
        Case::new("bare sockets", Kind::Bare, Era::None),
    ];
    let mut frame_bytes = FRAME_BYTES;
    // Every server once, then again: what disturbs the machine disturbs all of them.
    for _ in 0..RUNS {
        for case in &mut cases {
            if case.failure.is_some() {
                continue;
            }
            match measure(case.kind, case.era, sessions, frame_bytes) {
                Ok(figures) => {
                    if case.kind == Kind::Tidings && case.era == Era::Listen {
                        frame_bytes = figures.frame_bytes as usize;
                    }
                    case.runs.push(figures);
                }
                Err(error) => case.failure = Some(format!("{error:#}")),
            }
        }
    }
    let cost = |kind, era| {
        let case = cases.iter().find(|case| case.kind == kind && case.era == era);
        case.filter(|case| !case.runs.is_empty()).map(Case::cpu_us)
    };
    for case in &cases {
        let bare = cost(Kind::Bare, Era::None);
        let rmcp = cost(Kind::Rmcp, case.era).filter(|_| case.kind == Kind::Tidings);
        table.line(case.label(sessions), case.figures(bare, rmcp));
        if let Some(failure) = &case.failure {
            table.note(format!("{}: not measured: {failure}", case.label(sessions)));
        }
    }
    Ok(table)
}

/// One line of the table.
struct Case {
    name: &'static str,
    kind: Kind,
    era: Era,
    runs: Vec<Figures>,
    /// Why it could not be measured.
    failure: Option<String>,
}

impl Case {
    fn new(name: &'static str, kind: Kind, era: Era) -> Case {
        Case {
            name,
            kind,
            era,
            runs: Vec::new(),
            failure: None,
        }
    }

    fn label(&self, sessions: usize) -> String {
        format!("{}{}, {sessions}", self.name, self.era.suffix())
    }

    fn median(&self, figure: impl Fn(&Figures) -> f64) -> f64 {
        median(self.runs.iter().map(figure))
    }

    fn cpu_us(&self) -> f64 {
        self.median(|run| run.cpu_us)
    }

    fn figures(&self, bare: Option<f64>, rmcp: Option<f64>) -> Vec<Option<f64>> {
        if self.runs.is_empty() {
            return vec![None; COLUMNS.len()];
        }
        let cpu_us = || self.runs.iter().map(|run| run.cpu_us);
        vec![
            Some(self.cpu_us()),
            Some(least(cpu_us())),
            cpu_us().reduce(f64::max),
            bare.map(|bare| self.cpu_us() / bare),
            rmcp.map(|rmcp| self.cpu_us() / rmcp),
            Some(self.median(|run| run.p50_ms)),
            Some(self.median(|run| run.p99_ms)),
            Some(self.median(|run| run.burst_cpu_us)),
            Some(self.median(|run| run.burst_frames)),
            Some(self.median(|run| run.idle_kib)),
            Some(self.median(|run| run.after_kib)),
            Some(self.median(|run| run.frame_bytes)),
        ]
    }
}

/// What one run of one server came to.
#[derive(Debug, Clone, Copy)]
struct Figures {
    /// Server CPU per delivery, one change at a time.
    cpu_us: f64,
    /// From writing the change to reading the delivery.
    p50_ms: f64,
    p99_ms: f64,
    /// Server CPU per change and session, changes back to back; what was conflated counts as told.
    burst_cpu_us: f64,
    /// Frames written per change and session, changes back to back: below 1 where changes were conflated.
    burst_frames: f64,
    /// Growth of the server's memory per session, before the first change and after the last.
    idle_kib: f64,
    after_kib: f64,
    /// Bytes that one stream gets for one change, framing included.
    frame_bytes: f64,
}

/// Starts a server, opens the sessions, makes the changes.
fn measure(kind: Kind, era: Era, sessions: usize, frame_bytes: usize) -> anyhow::Result<Figures> {
    let server = Server::start(kind, frame_bytes)?;
    let mut publisher = wire::Client::connect(server.address)?;
    for thing in [wire::WATCHED, wire::FENCE] {
        publisher.publish(&server.publication(thing, "the first state"))?;
    }
    let empty_kib = resident_kib(server.pid())?;
    let streams = wire::open_streams(server.address, era, sessions)?;
    let per_session = |kib: f64| (kib - empty_kib) / sessions as f64;
    let idle_kib = per_session(resident_kib(server.pid())?);
    let mut load = Load::new(publisher.into_socket(), streams)?;
    // The first change warms caches on both sides and counts nowhere.
    load.change(
        &server.publication(wire::WATCHED, "the warm one"),
        &mut Vec::new(),
    )?;

    let mut latencies = Vec::with_capacity(sessions * ROUNDS);
    let (before, bytes_before) = (Cpu::read(server.pid(), Threads::All)?, load.bytes());
    for round in 0..ROUNDS {
        let publication = server.publication(wire::WATCHED, &format!("state {round}"));
        load.change(&publication, &mut latencies)?;
    }
    let used = before.since()?;
    let bytes = load.bytes() - bytes_before;

    let states = (0..BURST).map(|round| server.publication(wire::WATCHED, &format!("burst {round}")));
    let fence = server.publication(wire::FENCE, "the last one");
    let burst: Vec<u8> = states.chain([fence]).flatten().collect();
    let before = Cpu::read(server.pid(), Threads::All)?;
    let frames = load.burst(&burst, BURST + 1)?;
    let burst_used = before.since()?;
    let (told, burst_told) = ((sessions * ROUNDS) as f64, (sessions * (BURST + 1)) as f64);
    Ok(Figures {
        cpu_us: used / 1e3 / told,
        p50_ms: quantile(&mut latencies, 0.5),
        p99_ms: quantile(&mut latencies, 0.99),
        burst_cpu_us: burst_used / 1e3 / burst_told,
        burst_frames: frames as f64 / burst_told,
        idle_kib,
        after_kib: per_session(resident_kib(server.pid())?),
        frame_bytes: bytes as f64 / told,
    })
}
