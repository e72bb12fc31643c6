//! `/v1/upstreams`: the server behind a real gateway, its end, and its return.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use crate::mcp::http::{Request, within};
use crate::mcp::server::{Server, binary};

/// `tidings gateway` before a program, on a free port. Killed when dropped.
pub(crate) struct ServedGateway {
    pub(crate) address: SocketAddr,
    _child: Child,
    _out: Lines<BufReader<ChildStdout>>,
    _folder: TempDir,
}

impl ServedGateway {
    /// Starts it before another `tidings`, which serves on stdio.
    pub(crate) async fn start() -> ServedGateway {
        let folder = TempDir::new().unwrap();
        let mut child = Command::new(binary())
            .env_clear()
            .args(["gateway", "--port", "0", "--", binary(), "serve", "--stdio"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log_in(folder.path()))
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap()).lines();
        let line = within("the line that names the address", out.next_line()).await;
        let line = line.unwrap().unwrap_or_else(|| {
            let log = std::fs::read_to_string(folder.path().join("log")).unwrap();
            panic!("the gateway ended: {log}")
        });
        let address = line
            .trim_start_matches("tidings listening on http://")
            .trim_end_matches("/mcp");
        ServedGateway {
            address: address.parse().unwrap(),
            _child: child,
            _out: out,
            _folder: folder,
        }
    }

    /// Returns the state of the server behind it.
    async fn upstream(&self) -> Value {
        let reply = Request::new("GET", "/v1/upstreams").send(self.address).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
        let items = reply.json()["items"].clone();
        assert_eq!(items.as_array().unwrap().len(), 1, "{items}");
        items[0].clone()
    }
}

fn log_in(folder: &Path) -> Stdio {
    std::fs::File::create(folder.join("log")).unwrap().into()
}

fn kill(pid: &Value) {
    let status = std::process::Command::new("kill")
        .args(["-KILL", &pid.to_string()])
        .status();
    assert!(status.unwrap().success());
}

#[tokio::test]
async fn restarted_upstream_is_told_with_its_reason() {
    let gateway = ServedGateway::start().await;
    let first = gateway.upstream().await;
    let pid = first["pid"].clone();
    assert!(pid.as_u64().unwrap() > 1, "{first}");
    assert_eq!(
        first,
        json!({
            "name": "tidings", "kind": "stdio", "revision": "2026-07-28", "state": "up", "pid": pid,
            "restarts": 0, "last_error": null, "subscriptions": 0, "speakers": 0, "inflight": 0, "parked": 0,
            "isolation": "auto",
        })
    );
    kill(&pid);
    let again = within("the server is up again", async {
        loop {
            let now = gateway.upstream().await;
            if now["state"] == "up" && now["restarts"] == 1 {
                return now;
            }
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_ne!(again["pid"], pid);
    assert_eq!(again["last_error"], "the connection ended");
}

#[tokio::test]
async fn service_without_gateway_has_no_upstream() {
    let server = Server::start().await;
    let reply = Request::new("GET", "/v1/upstreams").send(server.address).await;
    assert_eq!((reply.status, reply.json()), (200, json!({ "items": [] })));
}
