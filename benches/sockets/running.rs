//! A server with its streams open and its readers waiting.

use std::time::{Duration, Instant};

use anyhow::ensure;

use crate::support::{Cpu, Threads, open_files_max, resident_kib};

use super::kind::{Era, Kind, WATCHED};
use super::load::Load;
use super::server::Server;

/// The files that either side of a measurement needs besides its streams.
const FILES_SPARE: usize = 64;

/// Returns how many servers with `sessions` sessions each may be open at once, within the limit on open files
/// of this process.
///
/// # Errors
/// When not even one fits.
pub(crate) fn fit(sessions: usize) -> anyhow::Result<usize> {
    let files = open_files_max()?;
    let servers = files.saturating_sub(FILES_SPARE) / (sessions + 1);
    ensure!(
        servers > 0,
        "{sessions} sessions do not fit: this process may open {files} files, less {FILES_SPARE} for itself; raise \
         `ulimit -n` or lower --sessions"
    );
    Ok(servers)
}

/// A server to start, and its streams.
pub(crate) struct Plan<'p> {
    pub(crate) kind: Kind,
    pub(crate) sessions: usize,
    /// The bytes of one delivery, where the bench chooses them.
    pub(crate) delivery_bytes: usize,
    /// The number of connections that publish.
    pub(crate) publishers: usize,
    /// All resources.
    pub(crate) resources: &'p [String],
    /// Returns the resources that the stream with this number subscribes to.
    pub(crate) names: &'p dyn Fn(usize) -> Vec<String>,
    /// Settings of the service, as variables of its environment.
    pub(crate) settings: &'p [(&'p str, &'p str)],
}

/// A server with its streams.
pub(crate) struct Running {
    server: Server,
    load: Load,
    sessions: usize,
    empty_kib: f64,
    /// The time that the streams took to open.
    opened_in: Duration,
    /// The number of states published so far.
    states: u64,
}

impl Running {
    /// Starts the server, creates the resources, and opens the streams.
    pub(crate) fn start(plan: &Plan<'_>) -> anyhow::Result<Running> {
        let server = Server::start(plan.kind, plan.delivery_bytes, plan.settings)?;
        server.create(plan.resources)?;
        let empty_kib = resident_kib(server.pid())?;
        let started = Instant::now();
        let streams = server.open_streams(plan.sessions, plan.names)?;
        let opened_in = started.elapsed();
        let mut publishers = Vec::new();
        for _ in 0..plan.publishers {
            publishers.push(server.publisher()?);
        }
        Ok(Running {
            load: Load::new(plan.kind, publishers, streams)?,
            server,
            sessions: plan.sessions,
            empty_kib,
            opened_in,
            states: 0,
        })
    }

    /// Changes `name` once; returns after how many milliseconds each of `readers` streams had the notice.
    pub(crate) fn change(&mut self, name: &str, readers: usize) -> anyhow::Result<Vec<f64>> {
        let publication = self.publication(name)?;
        self.load.change(&publication, readers)
    }

    /// Returns a request that changes `name` to a new state, since the service sends no notice of an equal
    /// one.
    pub(crate) fn publication(&mut self, name: &str) -> anyhow::Result<Vec<u8>> {
        self.states += 1;
        self.server.publication(name, &format!("state {}", self.states))
    }

    pub(crate) fn pid(&self) -> u32 {
        self.server.pid()
    }

    pub(crate) fn opened_in(&self) -> Duration {
        self.opened_in
    }

    /// Returns the server's memory before the first stream.
    pub(crate) fn empty_kib(&self) -> f64 {
        self.empty_kib
    }

    /// Returns the readers.
    pub(crate) fn load(&mut self) -> &mut Load {
        &mut self.load
    }

    /// Returns the CPU time that the server has used up to now.
    pub(crate) fn cpu(&self) -> anyhow::Result<Cpu> {
        Cpu::read(self.server.pid(), Threads::All)
    }

    /// Returns the growth of the server's memory per session since before the first one.
    pub(crate) fn kib_per_session(&self) -> anyhow::Result<f64> {
        let kib = resident_kib(self.server.pid())? - self.empty_kib;
        Ok(kib / self.sessions as f64)
    }
}

/// Returns the bytes that one stream of the service gets for one change, framing included; the twins write as
/// many.
pub(crate) fn delivery_bytes() -> anyhow::Result<usize> {
    let resources = [WATCHED.to_owned()];
    let mut running = Running::start(&Plan {
        kind: Kind::Tidings(Era::Listen),
        sessions: 1,
        delivery_bytes: 0,
        publishers: 1,
        resources: &resources,
        names: &|_| resources.to_vec(),
        settings: &[],
    })?;
    // The first notice may come in one write with the head of the stream.
    running.change(WATCHED, 1)?;
    let before = running.load.bytes();
    running.change(WATCHED, 1)?;
    Ok((running.load.bytes() - before) as usize)
}
