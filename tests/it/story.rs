//! The pages in `docs/`, run by their own commands: a page's blocks of shell run in order, in a folder of
//! their own, with the real binaries first on the `PATH`. A command that does not end by itself (a server, a
//! watch, a stream) runs until the page ends. The output that the page shows after a block must be printed;
//! `…` stands for the parts that differ each time.

mod pages;

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::task::JoinHandle;

const DEADLINE: Duration = Duration::from_secs(30);
const ENDLESS: [&str; 5] = [
    "curl -N ",
    "tidings serve ",
    "tidings watch ",
    "cargo run ",
    "mcp subscriptions/listen ",
];
/// The command that starts a server, its address on the pages, and the option that gives it another one.
const SERVERS: [(&str, &str, &str); 3] = [
    ("tidings serve ", "127.0.0.1:8808", " --listen 127.0.0.1:0"),
    (
        "cargo run --example embed",
        "127.0.0.1:8810",
        " -- --listen 127.0.0.1:0",
    ),
    (
        "cargo run --example wrap",
        "127.0.0.1:8812",
        " -- --listen 127.0.0.1:0",
    ),
];

/// A block of the page.
enum Block {
    Shell(&'static str),
    Shown(&'static str),
}

/// A page that is being followed.
struct Story {
    running: Vec<Running>,
    dir: TempDir,
    blocks: std::vec::IntoIter<Block>,
    /// Functions that the page has defined.
    functions: String,
    /// The address on the page, and the real one.
    address: Option<(&'static str, String)>,
    /// The output of each command so far.
    outputs: Arc<watch::Sender<Vec<Output>>>,
}

/// The output of a command so far.
#[derive(Debug, Default)]
struct Output {
    stdout: String,
    stderr: String,
}

/// A command and its child processes, killed when dropped.
struct Running {
    child: Child,
    group: Pid,
}

impl Drop for Running {
    fn drop(&mut self) {
        // A group without processes cannot be killed, and need not be.
        killpg(self.group, Signal::SIGKILL).ok();
    }
}

impl Story {
    fn new(page: &'static str) -> Story {
        let dir = tempfile::tempdir().unwrap();
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        symlink(root.join("docs"), dir.path().join("docs")).unwrap();
        let bin = dir.path().join(".bin");
        fs::create_dir(&bin).unwrap();
        symlink(env!("CARGO_BIN_EXE_tidings"), bin.join("tidings")).unwrap();
        let examples = std::env::current_exe().unwrap();
        let examples = examples.ancestors().nth(2).unwrap().join("examples");
        let cargo = bin.join("cargo");
        let script = format!(
            "#!/bin/sh\nname=$3\nshift 3\n[ $# -eq 0 ] || shift\nprogram='{}'/\"$name\"\n\
             [ -x \"$program\" ] || {{ echo \"build it first: cargo build --examples\" >&2; exit 1; }}\n\
             exec \"$program\" \"$@\"\n",
            examples.display()
        );
        fs::write(&cargo, script).unwrap();
        fs::set_permissions(&cargo, fs::Permissions::from_mode(0o755)).unwrap();
        Story {
            running: Vec::new(),
            dir,
            blocks: blocks(page).into_iter(),
            functions: String::new(),
            address: None,
            outputs: Arc::new(watch::Sender::new(Vec::new())),
        }
    }

    /// Follows the page to its end; it must have something to run and something to show.
    async fn follow(mut self) {
        let blocks = self.blocks.as_slice();
        assert!(blocks.iter().any(|block| matches!(block, Block::Shell(_))));
        assert!(blocks.iter().any(|block| matches!(block, Block::Shown(_))));
        while self.step().await {}
    }

    /// Follows one block; false at the end of the page.
    async fn step(&mut self) -> bool {
        match self.blocks.next() {
            Some(Block::Shell(script)) if script.contains("() {\n") => {
                let script = self.with_real_address(script);
                self.functions.push_str(&script);
            }
            Some(Block::Shell(script)) => {
                self.run(script).await;
            }
            Some(Block::Shown(lines)) => self.assert_printed(lines).await,
            None => return false,
        }
        true
    }

    /// Returns the output of a `script` that ends by itself; it must succeed.
    async fn run(&mut self, script: &str) -> String {
        let mut script = self.with_real_address(script.trim_end());
        let last = script.lines().last().unwrap().to_owned();
        let server = SERVERS.into_iter().find(|server| last.starts_with(server.0));
        if let Some((_, _, listen)) = server {
            script.push_str(listen);
        }
        let index = self.outputs.borrow().len();
        self.outputs.send_modify(|all| all.push(Output::default()));
        let mut running = self.spawn(&script);
        let stdout = self.record(running.child.stdout.take().unwrap(), index, |output| {
            &mut output.stdout
        });
        let stderr = self.record(running.child.stderr.take().unwrap(), index, |output| {
            &mut output.stderr
        });

        if let Some((_, printed, _)) = server {
            let real = tokio::select! {
                real = self.printed(&script, |all| listening(&all[index].stdout)) => real,
                ended = running.child.wait() => panic!("{script} ended: {ended:?}, {:?}", self.outputs.borrow()),
            };
            self.address = Some((printed, real));
        } else if ENDLESS.iter().any(|command| last.starts_with(command)) {
            // The next block may be a change, which this command must be ready for.
            self.printed(&script, |all| all[index].stdout.contains('\n').then_some(()))
                .await;
        } else {
            let ended = tokio::time::timeout(DEADLINE, async {
                stdout.await.unwrap();
                stderr.await.unwrap();
                running.child.wait().await.unwrap()
            });
            let status = ended.await.unwrap_or_else(|_| panic!("{script} does not end"));
            let output = &self.outputs.borrow()[index];
            assert!(status.success(), "{script}\n{output:?}");
            return output.stdout.clone();
        }
        self.running.push(running);
        String::new()
    }

    fn spawn(&self, script: &str) -> Running {
        let mut command = Command::new("sh");
        command
            .args(["-euc", &format!("{}\n{script}", self.functions)])
            .current_dir(self.dir.path())
            .env("PATH", self.path())
            .env("TIDINGS_REGISTER__REFRESH", "1s")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        let child = command.spawn().unwrap();
        let group = Pid::from_raw(child.id().unwrap().try_into().unwrap());
        Running { child, group }
    }

    /// Adds the text from a pipe to a part of a command's output until the pipe is closed.
    fn record(
        &self,
        mut pipe: impl AsyncRead + Send + Unpin + 'static,
        index: usize,
        part: fn(&mut Output) -> &mut String,
    ) -> JoinHandle<()> {
        let outputs = self.outputs.clone();
        tokio::spawn(async move {
            let mut unread = Vec::new();
            while pipe.read_buf(&mut unread).await.unwrap() > 0 {
                // A read may end inside a character; whole lines are text.
                if let Some(end) = unread.iter().rposition(|byte| *byte == b'\n') {
                    let lines = String::from_utf8(unread.drain(..=end).collect()).unwrap();
                    outputs.send_modify(|all| part(&mut all[index]).push_str(&lines));
                }
            }
            let rest = String::from_utf8(unread).unwrap();
            outputs.send_modify(|all| part(&mut all[index]).push_str(&rest));
        })
    }

    /// Waits until `look` finds something in the outputs.
    async fn printed<T>(&self, expected: &str, mut look: impl FnMut(&[Output]) -> Option<T>) -> T {
        let mut outputs = self.outputs.subscribe();
        let mut found = None;
        let seen = outputs.wait_for(|all| {
            found = look(all);
            found.is_some()
        });
        if tokio::time::timeout(DEADLINE, seen).await.is_err() {
            panic!("missing: {expected}\nprinted: {:#?}", self.outputs.borrow());
        }
        found.unwrap()
    }

    /// Waits until one of the commands has printed `lines`, in their order.
    async fn assert_printed(&self, lines: &str) {
        self.printed(lines, |all| {
            all.iter()
                .any(|output| shown(&output.stdout, lines))
                .then_some(())
        })
        .await;
    }

    /// Returns `script` with the real address in the place of the page's.
    fn with_real_address(&self, script: &str) -> String {
        match &self.address {
            Some((printed, real)) => script.replace(printed, real),
            None => script.to_owned(),
        }
    }

    fn path(&self) -> String {
        let bin = self.dir.path().join(".bin");
        format!("{}:{}", bin.display(), std::env::var("PATH").unwrap())
    }
}

/// Returns the blocks of shell, and the blocks that show its output (with `…` in their first line).
fn blocks(page: &'static str) -> Vec<Block> {
    let mut blocks = Vec::new();
    for fenced in page.split("\n```").skip(1).step_by(2) {
        match fenced.split_once('\n') {
            Some(("sh", script)) => blocks.push(Block::Shell(script)),
            Some(("text", lines)) if lines.starts_with('…') => blocks.push(Block::Shown(lines)),
            _ => {}
        }
    }
    blocks
}

/// The address in a server's first line.
fn listening(output: &str) -> Option<String> {
    let (_, rest) = output.split_once("listening on http://")?;
    Some(rest.split_once("/mcp")?.0.to_owned())
}

/// Returns true when `output` has a line for each of `expected`, in their order.
fn shown(output: &str, expected: &str) -> bool {
    let mut printed = output.lines();
    expected
        .lines()
        .all(|expected| printed.any(|line| fits(line, expected)))
}

/// Returns true when `line` is `expected` with some text in the place of each `…`.
fn fits(line: &str, expected: &str) -> bool {
    let mut parts = expected.split('…').peekable();
    let Some(mut rest) = line.strip_prefix(parts.next().unwrap_or_default()) else {
        return false;
    };
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.is_empty()
}
