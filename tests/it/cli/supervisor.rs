//! The messages of `tidings serve` to the program that started it, on a socket such as systemd's.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::UnixDatagram;
use tokio::process::{Child, Command};

use crate::mcp::http::{Request, within};
use crate::mcp::server::{binary, service_folder};

/// A service with a supervisor that reads its messages.
struct Supervised {
    folder: TempDir,
    messages: UnixDatagram,
    service: Child,
}

impl Supervised {
    /// Starts the service with this configuration.
    fn start(config: &str) -> Supervised {
        Supervised::start_in(service_folder(config))
    }

    /// Starts the service on a folder that has its configuration.
    fn start_in(folder: TempDir) -> Supervised {
        let socket = folder.path().join("notify");
        let messages = UnixDatagram::bind(&socket).expect("a socket");
        let service = Command::new(binary())
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("NOTIFY_SOCKET", &socket)
            .args(["serve", "--listen", "127.0.0.1:0", "--config"])
            .arg(config_file(folder.path()))
            .arg(folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .expect("the binary starts");
        Supervised {
            folder,
            messages,
            service,
        }
    }

    /// Returns the address that the service prints.
    async fn address(&mut self) -> SocketAddr {
        let out = self.service.stdout.take().expect("stdout is piped");
        let line = within("the address", BufReader::new(out).lines().next_line()).await;
        let line = line.expect("stdout is text").expect("an address");
        let address = line.trim_start_matches("tidings listening on http://");
        address.trim_end_matches("/mcp").parse().expect("an address")
    }

    /// Returns the next message.
    async fn message(&self) -> String {
        let mut buffer = [0; 4096];
        let length = within("a message", self.messages.recv(&mut buffer)).await;
        let length = length.expect("the socket works");
        String::from_utf8(buffer[..length].to_vec()).expect("a message is text")
    }

    /// Checks that no message waits.
    #[track_caller]
    fn assert_silent(&self) {
        let mut buffer = [0; 4096];
        if let Ok(length) = self.messages.try_recv(&mut buffer) {
            panic!("{:?}", String::from_utf8_lossy(&buffer[..length]));
        }
    }

    fn signal(&self, signal: Signal) {
        let pid = self.service.id().expect("it runs");
        kill(Pid::from_raw(pid as i32), signal).expect("it runs");
    }
}

fn config_file(folder: &Path) -> PathBuf {
    folder.join("tidings.toml")
}

/// Returns the value of an assignment of a message.
#[track_caller]
fn value<'a>(message: &'a str, name: &str) -> &'a str {
    let mut lines = message.lines();
    let line = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    line.unwrap_or_else(|| panic!("no {name} in {message:?}"))
}

#[tokio::test]
async fn ready_is_told_when_all_is_served() {
    let folder = service_folder("[register]\ntimeout = \"1m\"\n");
    // The start waits for this program, which waits for the test.
    let begun = folder.path().join("begun");
    let go = folder.path().join("go");
    let program = "#!/bin/sh\ntouch begun\nwhile [ ! -e go ]; do sleep 0.05; done\necho '{}'\n";
    let register = folder.path().join("register");
    fs::write(&register, program).unwrap();
    fs::set_permissions(&register, fs::Permissions::from_mode(0o755)).unwrap();
    let mut supervised = Supervised::start_in(folder);
    within("the program", async {
        while !begun.exists() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    supervised.assert_silent();
    fs::write(go, "").unwrap();
    let message = supervised.message().await;
    assert_eq!(
        (value(&message, "READY"), value(&message, "STATUS")),
        ("1", "ready")
    );
    let address = supervised.address().await;
    let reply = Request::new("GET", "/readyz").send(address).await;
    assert_eq!((reply.status, reply.text()), (200, "ok"));
    supervised.assert_silent();
}

#[tokio::test]
async fn reload_is_told_with_its_time_and_its_end() {
    let supervised = Supervised::start("[session]\nmax = 7\n");
    value(&supervised.message().await, "READY");
    let mut before: u64 = 0;
    for (config, status) in [
        ("[session]\nmax = 7\n", "ready"),
        (
            "[session]\nmax = \"seven\"\n",
            "ready; the last reload changed nothing",
        ),
    ] {
        fs::write(config_file(supervised.folder.path()), config).unwrap();
        supervised.signal(Signal::SIGHUP);
        let message = supervised.message().await;
        assert_eq!(value(&message, "RELOADING"), "1");
        let time: u64 = value(&message, "MONOTONIC_USEC").parse().unwrap();
        assert!(time > before);
        before = time;
        let message = supervised.message().await;
        assert_eq!(value(&message, "READY"), "1");
        assert!(value(&message, "STATUS").starts_with(status), "{message}");
    }
    supervised.assert_silent();
}

#[tokio::test]
async fn stop_is_told_before_the_drain() {
    let mut supervised = Supervised::start("");
    value(&supervised.message().await, "READY");
    supervised.signal(Signal::SIGTERM);
    assert_eq!(value(&supervised.message().await, "STOPPING"), "1");
    let ended = within("the end", supervised.service.wait()).await;
    assert_eq!(ended.unwrap().code(), Some(0));
    supervised.assert_silent();
}
