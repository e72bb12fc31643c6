//! Servers of NATS on free ports, which a test may kill, stop, cut off and start again.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use super::link::{AckLoss, Link};
use crate::support::free_port;

/// The variable with the path of the server's program.
const PROGRAM: &str = "TIDINGS_NATS_SERVER";

/// The time for which a server may take to listen.
const START: Duration = Duration::from_secs(60);

/// Ends the server with its parent, in any way that the parent ends, and then removes the folder of the
/// servers: the parent's end closes the pipe that is read here. A line on it ends the server alone.
const KEEPER: &str = r#"
"$1" -c "$2" >>"$3" 2>&1 &
echo $!
read -r line || gone=1
kill -9 $!
wait $!
[ -z "$gone" ] || rm -rf "$4"
exit 0
"#;

/// One server.
struct Broker {
    config: PathBuf,
    log: PathBuf,
    client_port: u16,
    monitor_port: u16,
    /// The shell that keeps the server, and the server's process; none while it is down.
    running: Option<(Child, Pid)>,
}

/// One end of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Party {
    /// The server with this number.
    Broker(usize),
    /// The node with this number, as the test counts them.
    Node(usize),
}

/// A link from a party to a server.
struct BrokerLink {
    from: Party,
    to: usize,
    link: Link,
}

/// The servers of one cluster.
pub(super) struct Brokers {
    program: PathBuf,
    brokers: Vec<Broker>,
    links: Vec<BrokerLink>,
    folder: TempDir,
}

/// Returns the path of the program, or says that a test is left out.
pub(super) fn program() -> Option<PathBuf> {
    let Some(program) = std::env::var_os(PROGRAM) else {
        eprintln!("left out: {PROGRAM} names no program of a NATS server");
        return None;
    };
    let program = PathBuf::from(program);
    assert!(
        program.is_file(),
        "{PROGRAM} is {}, which is no file",
        program.display()
    );
    Some(program)
}

/// The three servers that tests share which do no harm to them. Each test has a namespace of its own.
pub(super) fn shared() -> Option<&'static Brokers> {
    static SHARED: OnceLock<Option<Brokers>> = OnceLock::new();
    SHARED.get_or_init(|| Brokers::start(3)).as_ref()
}

impl Brokers {
    /// Starts `count` servers; none if there is no program for them.
    pub(super) fn start(count: usize) -> Option<Brokers> {
        Brokers::start_with(count, "")
    }

    /// Starts `count` servers with more lines in their configurations; none if there is no program for them.
    pub(super) fn start_with(count: usize, more: &str) -> Option<Brokers> {
        Brokers::with(count, more, |_, _, port| (port, None))
    }

    /// Starts `count` servers, which reach each other by links that can be cut.
    pub(super) fn linked(count: usize) -> Option<Brokers> {
        Brokers::with(count, "", |from, to, port| {
            let link = Link::to(port);
            let from = Party::Broker(from);
            (link.port, Some(BrokerLink { from, to, link }))
        })
    }

    /// Starts servers. `route` returns the port at which one server reaches another one, given that of the
    /// other, and the link there.
    fn with(
        count: usize,
        more: &str,
        mut route: impl FnMut(usize, usize, u16) -> (u16, Option<BrokerLink>),
    ) -> Option<Brokers> {
        let program = program()?;
        let folder = tempfile::tempdir().unwrap();
        let ports: Vec<u16> = (0..3 * count).map(|_| free_port()).collect();
        let mut started = Brokers {
            program,
            brokers: Vec::new(),
            links: Vec::new(),
            folder,
        };
        for number in 0..count {
            let mut routes = Vec::new();
            for other in (0..count).filter(|other| *other != number) {
                let (port, link) = route(number, other, ports[other]);
                routes.push(format!("nats://127.0.0.1:{port}"));
                started.links.extend(link);
            }
            started.configure(
                number,
                &routes,
                [ports[number], ports[count + number], ports[2 * count + number]],
                more,
            );
        }
        for number in 0..count {
            started.up(number);
        }
        Some(started)
    }

    /// Writes the configuration of a server with these ports, for servers, clients and monitoring, and with
    /// more lines.
    fn configure(&mut self, number: usize, routes: &[String], ports: [u16; 3], more: &str) {
        let [route_port, client_port, monitor_port] = ports;
        let name = format!("n{}", number + 1);
        let folder = self.folder.path();
        let mut text = format!(
            "server_name: {name}; listen: \"127.0.0.1:{client_port}\"; http: \"127.0.0.1:{monitor_port}\"\n\
             jetstream {{ store_dir: \"{}\", max_mem: 256MB, max_file: 64GB, sync_interval: always }}\n",
            self.store(number).display()
        );
        if !routes.is_empty() {
            // The servers tell each other where they are; nothing listens at the address that they tell, so
            // that links are the only way.
            text.push_str(&format!(
                "cluster {{ name: tests, listen: \"127.0.0.1:{route_port}\", advertise: \"127.0.0.1:1\", \
                 routes: [{}], no_advertise: true }}\n",
                routes.join(", ")
            ));
        }
        text.push_str(more);
        let config = folder.join(format!("{name}.conf"));
        fs::write(&config, text).unwrap();
        let log = folder.join(format!("{name}.log"));
        self.brokers.push(Broker {
            config,
            log,
            client_port,
            monitor_port,
            running: None,
        });
    }

    fn store(&self, number: usize) -> PathBuf {
        self.folder.path().join(format!("n{}", number + 1))
    }

    /// The number of servers.
    pub(super) fn count(&self) -> usize {
        self.brokers.len()
    }

    /// The addresses of all servers.
    pub(super) fn urls(&self) -> Vec<String> {
        self.brokers
            .iter()
            .map(|broker| address(broker.client_port))
            .collect()
    }

    /// Makes links from a node to all servers, and returns their addresses.
    pub(super) fn link_node(&mut self, node: usize, loss: Option<&Arc<AckLoss>>) -> Vec<String> {
        let mut urls = Vec::new();
        for to in 0..self.count() {
            let port = self.brokers[to].client_port;
            let link = match loss {
                Some(loss) => Link::losing(port, loss.clone()),
                None => Link::to(port),
            };
            urls.push(address(link.port));
            let from = Party::Node(node);
            self.links.push(BrokerLink { from, to, link });
        }
        urls
    }

    /// Cuts all links of a party.
    pub(super) fn cut(&self, party: Party) {
        for link in self.links_of(party) {
            link.cut();
        }
    }

    /// Cuts the links between a server and the others, and leaves those to its clients.
    pub(super) fn cut_routes(&self, number: usize) {
        for link in &self.links {
            let is_route = matches!(link.from, Party::Broker(_));
            if is_route && (link.from == Party::Broker(number) || link.to == number) {
                link.link.cut();
            }
        }
    }

    /// Mends all links of a party.
    pub(super) fn mend(&self, party: Party) {
        for link in self.links_of(party) {
            link.mend();
        }
    }

    fn links_of(&self, party: Party) -> impl Iterator<Item = &Link> {
        let of_party = self
            .links
            .iter()
            .filter(move |link| link.from == party || Party::Broker(link.to) == party);
        of_party.map(|link| &link.link)
    }

    /// The number of the server of this name.
    pub(super) fn number_of(&self, name: &str) -> usize {
        (0..self.count())
            .find(|number| format!("n{}", number + 1) == name)
            .unwrap_or_else(|| panic!("no server has the name {name:?}"))
    }

    /// The address of a server, past all links.
    pub(super) fn url(&self, number: usize) -> String {
        address(self.brokers[number].client_port)
    }

    /// Copies the stores of all servers, which are down, to a folder beside them.
    pub(super) fn copy_stores(&self, name: &str) {
        for number in 0..self.count() {
            assert!(self.brokers[number].running.is_none(), "server {number} runs");
            copy(&self.store(number), &self.copy_of(name, number));
        }
    }

    /// Replaces all stores by a copy of them. All servers are down.
    pub(super) fn restore_stores(&self, name: &str) {
        for number in 0..self.count() {
            assert!(self.brokers[number].running.is_none(), "server {number} runs");
            fs::remove_dir_all(self.store(number)).unwrap();
            copy(&self.copy_of(name, number), &self.store(number));
        }
    }

    fn copy_of(&self, name: &str, number: usize) -> PathBuf {
        self.folder.path().join(format!("{name}-{}", number + 1))
    }

    /// The addresses of the monitoring of all servers.
    pub(super) fn monitoring_urls(&self) -> Vec<String> {
        let ports = self.brokers.iter().map(|broker| broker.monitor_port);
        ports.map(|port| format!("http://127.0.0.1:{port}")).collect()
    }

    /// The text that a server has written.
    pub(super) fn log(&self, number: usize) -> String {
        fs::read_to_string(&self.brokers[number].log).unwrap_or_default()
    }

    /// Starts a server that is down, and waits until it listens.
    pub(super) fn up(&mut self, number: usize) {
        let broker = &mut self.brokers[number];
        assert!(broker.running.is_none(), "server {number} runs");
        let mut keeper = Command::new("sh");
        keeper.args(["-c", KEEPER, "keeper"]);
        keeper.arg(&self.program).arg(&broker.config).arg(&broker.log);
        keeper.arg(self.folder.path());
        let mut keeper = keeper
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // The shell reports there that its server was killed.
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let output = keeper.stdout.take().unwrap();
        BufReader::new(output).read_line(&mut line).unwrap();
        let pid = Pid::from_raw(line.trim().parse().unwrap());
        broker.running = Some((keeper, pid));
        let until = Instant::now() + START;
        while TcpStream::connect(("127.0.0.1", broker.client_port)).is_err() {
            let log = fs::read_to_string(&broker.log).unwrap_or_default();
            assert!(Instant::now() < until, "server {number} does not listen:\n{log}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Sends a signal to a server.
    pub(super) fn signal(&self, number: usize, signal: Signal) {
        if let Some((_, pid)) = &self.brokers[number].running {
            kill(*pid, signal).unwrap();
        }
    }

    /// Kills a server.
    pub(super) fn kill(&mut self, number: usize) {
        if let Some((mut keeper, pid)) = self.brokers[number].running.take() {
            kill(pid, Signal::SIGKILL).unwrap();
            writeln!(keeper.stdin.take().unwrap(), "end").unwrap();
            keeper.wait().unwrap();
        }
    }
}

impl Drop for Brokers {
    fn drop(&mut self) {
        for number in 0..self.count() {
            self.kill(number);
        }
    }
}

fn copy(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-a").arg(from).arg(to).status().unwrap();
    assert!(copied.success(), "{} cannot be copied", from.display());
}

fn address(port: u16) -> String {
    format!("nats://127.0.0.1:{port}")
}
