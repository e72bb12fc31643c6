//! Servers of NATS on free ports, which a test may kill, pause and start again.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

/// The variable with the path of the server's program.
const PROGRAM: &str = "TIDINGS_NATS_SERVER";

/// The time for which a server may take to listen.
const START: Duration = Duration::from_secs(20);

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
    /// The shell that keeps the server, and the server's process; none while it is down.
    running: Option<(Child, Pid)>,
}

/// The servers of one cluster.
pub(super) struct Brokers {
    program: PathBuf,
    brokers: Vec<Broker>,
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
        let program = program()?;
        let folder = tempfile::tempdir().unwrap();
        let ports = free_ports(3 * count);
        let routes: Vec<String> = ports[..count]
            .iter()
            .map(|port| format!("nats://127.0.0.1:{port}"))
            .collect();
        let mut brokers = Vec::new();
        for number in 0..count {
            let name = format!("n{}", number + 1);
            let client_port = ports[count + number];
            let monitor_port = ports[2 * count + number];
            let mut text = format!(
                "server_name: {name}; listen: \"127.0.0.1:{client_port}\"; http: \"127.0.0.1:{monitor_port}\"\n\
                 jetstream {{ store_dir: \"{}\", max_mem: 256MB, max_file: 4GB, sync_interval: always }}\n",
                folder.path().join(&name).display()
            );
            if count > 1 {
                text.push_str(&format!(
                    "cluster {{ name: tests, listen: \"127.0.0.1:{}\", routes: [{}], no_advertise: true }}\n",
                    ports[number],
                    routes.join(", ")
                ));
            }
            let config = folder.path().join(format!("{name}.conf"));
            fs::write(&config, text).unwrap();
            brokers.push(Broker {
                config,
                log: folder.path().join(format!("{name}.log")),
                client_port,
                running: None,
            });
        }
        let mut started = Brokers {
            program,
            brokers,
            folder,
        };
        for number in 0..count {
            started.up(number);
        }
        Some(started)
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

fn address(port: u16) -> String {
    format!("nats://127.0.0.1:{port}")
}

/// Returns ports that were free a moment ago.
fn free_ports(count: usize) -> Vec<u16> {
    // All are held until all are chosen, so they differ.
    let held: Vec<TcpListener> = (0..count)
        .map(|_| TcpListener::bind("127.0.0.1:0").unwrap())
        .collect();
    held.iter()
        .map(|listener| listener.local_addr().unwrap().port())
        .collect()
}
