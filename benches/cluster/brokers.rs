//! Three servers of NATS with JetStream, each synced to its disk before it answers.

use std::fmt::Write as _;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use tempfile::TempDir;

use crate::server_process::{START_MAX, ServerProcess};
use crate::support::{Cpu, Table, Threads};

/// The variable with the path of the servers' program, which no package of Debian has in a version that
/// syncs many records at once.
pub(super) const PROGRAM: &str = "TIDINGS_NATS_SERVER";

/// The servers.
const COUNT: usize = 3;

/// The pause between attempts to connect.
const TRY_EVERY: Duration = Duration::from_millis(20);

/// The running servers.
pub(super) struct Brokers {
    servers: Vec<ServerProcess>,
    addresses: Vec<SocketAddr>,
    // Last, since it is removed when the servers have ended.
    _folder: TempDir,
}

impl Brokers {
    /// Starts the servers; none if no program is named, which a note of the table says.
    pub(super) fn start(table: &mut Table) -> anyhow::Result<Option<Brokers>> {
        let Some(program) = std::env::var_os(PROGRAM) else {
            table.add_note(format!(
                "Left out: {PROGRAM} does not name the program of nats-server 2.15 or later."
            ));
            return Ok(None);
        };
        let program = PathBuf::from(program);
        ensure!(
            program.is_file(),
            "{PROGRAM} is {}, which is no file",
            program.display()
        );
        let folder = tempfile::tempdir().context("cannot make a folder for the servers")?;
        let clients = free_addresses()?;
        let routes = free_addresses()?;
        let mut servers = Vec::new();
        for number in 0..COUNT {
            let config = folder.path().join(format!("{number}.conf"));
            let store = folder.path().join(format!("store-{number}"));
            std::fs::write(
                &config,
                configuration(number, &clients, &routes, &store.display())?,
            )?;
            let mut command = Command::new(&program);
            command.arg("-c").arg(&config);
            servers.push(ServerProcess::start(
                command,
                folder.path().join(format!("{number}.log")),
            )?);
        }
        let brokers = Brokers {
            servers,
            addresses: clients,
            _folder: folder,
        };
        brokers.wait()?;
        Ok(Some(brokers))
    }

    fn wait(&self) -> anyhow::Result<()> {
        let until = Instant::now() + START_MAX;
        for (server, address) in std::iter::zip(&self.servers, &self.addresses) {
            while TcpStream::connect(address).is_err() {
                if Instant::now() > until {
                    return Err(server.not_listening());
                }
                std::thread::sleep(TRY_EVERY);
            }
        }
        Ok(())
    }

    /// The addresses for clients.
    pub(super) fn urls(&self) -> Vec<String> {
        self.addresses
            .iter()
            .map(|address| format!("nats://{address}"))
            .collect()
    }

    /// The CPU time of the servers up to now.
    pub(super) fn cpu(&self) -> anyhow::Result<BrokersCpu> {
        let read = |server: &ServerProcess| Cpu::read(server.pid(), Threads::All);
        Ok(BrokersCpu(
            self.servers.iter().map(read).collect::<Result<_, _>>()?,
        ))
    }
}

/// The CPU time of the servers at one moment.
pub(super) struct BrokersCpu(Vec<Cpu>);

impl BrokersCpu {
    /// The nanoseconds that they have used since then.
    pub(super) fn since(&self) -> anyhow::Result<f64> {
        let mut sum = 0.0;
        for cpu in &self.0 {
            sum += cpu.since()?;
        }
        Ok(sum)
    }
}

fn configuration(
    number: usize,
    clients: &[SocketAddr],
    routes: &[SocketAddr],
    store: &dyn std::fmt::Display,
) -> anyhow::Result<String> {
    let mut text = String::new();
    writeln!(text, "server_name: n{number}; listen: \"{}\"", clients[number])?;
    // Room on paper for several streams, each of which reserves its limit.
    writeln!(
        text,
        "jetstream {{ store_dir: \"{store}\", max_mem: 256MB, max_file: 64GB, sync_interval: always }}"
    )?;
    let all: Vec<String> = routes
        .iter()
        .map(|address| format!("\"nats://{address}\""))
        .collect();
    let listen = routes[number];
    let all = all.join(", ");
    writeln!(
        text,
        "cluster {{ name: benches, listen: \"{listen}\", routes: [{all}], no_advertise: true }}"
    )?;
    Ok(text)
}

/// Returns addresses that were free a moment ago.
fn free_addresses() -> anyhow::Result<Vec<SocketAddr>> {
    // All are held until all are chosen, so they differ.
    let mut held = Vec::new();
    for _ in 0..COUNT {
        held.push(TcpListener::bind("127.0.0.1:0")?);
    }
    let addresses = held.iter().map(TcpListener::local_addr);
    Ok(addresses.collect::<Result<_, _>>()?)
}
