//! The command line: the real binary against the real service, and against servers that are none.

mod commands;
mod contexts;
mod health;
mod help;
mod hostile;
mod mistakes;
mod supervisor;
mod top;
mod watch;

use std::process::{Output, Stdio};

use tempfile::TempDir;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use crate::mcp::client::Client;
use crate::mcp::http::within;
use crate::mcp::server::{Server, binary};

/// A user of the command line, with a configuration folder of his own and no variables of others.
struct User {
    home: TempDir,
}

/// Opens a session that was not told of a change yet, since it reads no stream.
async fn slow_session(server: &Server) {
    server.put("demo://a", "one").await;
    let client = Client::open(server.address, "2025-11-25").await;
    client.subscribe("demo://a").await;
    server.put("demo://a", "two").await;
}

/// The end of a command.
#[derive(Debug)]
struct Ended {
    code: i32,
    out: String,
    err: String,
}

impl Ended {
    fn of(output: Output) -> Ended {
        Ended {
            code: output.status.code().expect("no signal ended it"),
            out: String::from_utf8(output.stdout).expect("stdout is text"),
            err: String::from_utf8(output.stderr).expect("stderr is text"),
        }
    }

    /// Returns standard output of a success.
    #[track_caller]
    fn good(self) -> String {
        assert_eq!(self.code, 0, "{self:?}");
        self.out
    }

    /// Checks the exit code and returns standard error.
    #[track_caller]
    fn failed(self, code: i32) -> String {
        assert_eq!(self.code, code, "{self:?}");
        self.err
    }
}

impl User {
    fn new() -> User {
        User {
            home: TempDir::new().expect("a folder"),
        }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(binary());
        command
            .args(arguments)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("XDG_CONFIG_HOME", self.home.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command
    }

    async fn run(&self, arguments: &[&str]) -> Ended {
        let output = within("the end of a command", self.command(arguments).output()).await;
        Ended::of(output.expect("the binary starts"))
    }

    /// Runs a command with this standard input.
    async fn run_with(&self, arguments: &[&str], input: &str) -> Ended {
        let mut child = self
            .command(arguments)
            .stdin(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let mut stdin = child.stdin.take().expect("stdin is piped");
        // A command that fails early reads nothing.
        stdin.write_all(input.as_bytes()).await.ok();
        drop(stdin);
        let output = within("the end of a command", child.wait_with_output()).await;
        Ended::of(output.expect("its output is read"))
    }
}
