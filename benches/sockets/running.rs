//! A server with its sessions open and its readers waiting.
//!
//! Owns: the order in which that comes about, and the figures that every row takes of it: CPU and memory. Never:
//! decides how often something is changed.

use anyhow::ensure;

use crate::support::{Cpu, Threads, open_files_max, resident_kib};

use super::kind::{Era, Kind, WATCHED};
use super::load::Load;
use super::server::Server;

/// Files that neither side of a measurement spends on sessions.
const FILES_SPARE: usize = 64;

/// How many servers with `sessions` sessions each may be open at once: the limit of open files of this process, and
/// of each server, allows no more.
///
/// # Errors
///
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

/// What to start.
pub(crate) struct Plan<'p> {
    pub(crate) kind: Kind,
    pub(crate) sessions: usize,
    /// Bytes of one delivery, where they are for the bench to choose.
    pub(crate) delivery_bytes: usize,
    /// Connections that publish.
    pub(crate) publishers: usize,
    /// Every resource there is.
    pub(crate) resources: &'p [String],
    /// What the stream with this number subscribes to.
    pub(crate) names: &'p dyn Fn(usize) -> Vec<String>,
    /// Settings of the service, as variables of its environment.
    pub(crate) settings: &'p [(&'p str, &'p str)],
}

/// A server with its sessions.
pub(crate) struct Running {
    server: Server,
    load: Load,
    sessions: usize,
    empty_kib: f64,
    /// How many states have been made up.
    states: u64,
}

impl Running {
    /// Starts the server, creates the resources, opens the sessions.
    pub(crate) fn start(plan: &Plan<'_>) -> anyhow::Result<Running> {
        let server = Server::start(plan.kind, plan.delivery_bytes, plan.settings)?;
        server.create(plan.resources)?;
        let empty_kib = resident_kib(server.pid())?;
        let streams = server.open_streams(plan.sessions, plan.names)?;
        let publishers = (0..plan.publishers).map(|_| server.publisher());
        let publishers = publishers.collect::<anyhow::Result<_>>()?;
        Ok(Running {
            load: Load::new(plan.kind, publishers, streams)?,
            server,
            sessions: plan.sessions,
            empty_kib,
            states: 0,
        })
    }

    /// Changes `name` once; answers in milliseconds when each of `readers` streams had it.
    pub(crate) fn change(&mut self, name: &str, readers: usize) -> anyhow::Result<Vec<f64>> {
        let publication = self.publication(name);
        self.load.change(&publication, readers)
    }

    /// A request that changes `name` to a state that nothing has had before, since the service tells nobody of what
    /// has not changed.
    pub(crate) fn publication(&mut self, name: &str) -> Vec<u8> {
        self.states += 1;
        self.server.publication(name, &format!("state {}", self.states))
    }

    /// The readers.
    pub(crate) fn load(&mut self) -> &mut Load {
        &mut self.load
    }

    /// What the server has used up to now.
    pub(crate) fn cpu(&self) -> anyhow::Result<Cpu> {
        Cpu::read(self.server.pid(), Threads::All)
    }

    /// By how much the server's memory has grown per session since before the first one.
    pub(crate) fn kib_per_session(&self) -> anyhow::Result<f64> {
        let kib = resident_kib(self.server.pid())? - self.empty_kib;
        Ok(kib / self.sessions as f64)
    }
}

/// Bytes that one stream of the service gets for one change, framing included: what the twins write too.
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
    running.change(WATCHED, 1)?;
    let before = running.load.bytes();
    running.change(WATCHED, 1)?;
    Ok((running.load.bytes() - before) as usize)
}
