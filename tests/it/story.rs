//! The pages in `docs/`, run by their own commands: a page's blocks of shell run in order, in a folder of
//! their own, with the real binaries first on the `PATH`. A command that does not end by itself (a server, a
//! watch, a stream) runs until the page ends. The output that the page shows after a block must be printed;
//! `…` stands for the parts that differ each time.

mod pages;

use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tempfile::TempDir;

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
    dir: TempDir,
    blocks: std::vec::IntoIter<Block>,
    /// Functions that the page has defined.
    functions: String,
    /// The address on the page, and the real one.
    address: Option<(&'static str, String)>,
    running: Vec<Running>,
    /// Output of each command so far.
    outputs: Vec<PathBuf>,
}

/// A command and its child processes, ended when dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let group = Pid::from_raw(i32::try_from(self.0.id()).unwrap());
        // After the command has ended and was waited for, the group has no processes any more.
        killpg(group, Signal::SIGKILL).ok();
        self.0.wait().unwrap();
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
            dir,
            blocks: blocks(page).into_iter(),
            functions: String::new(),
            address: None,
            running: Vec::new(),
            outputs: Vec::new(),
        }
    }

    /// Follows the page to its end; it must have something to run and something to show.
    fn follow(&mut self) {
        let blocks = self.blocks.as_slice();
        assert!(blocks.iter().any(|block| matches!(block, Block::Shell(_))));
        assert!(blocks.iter().any(|block| matches!(block, Block::Shown(_))));
        while self.step() {}
    }

    /// Follows one block; false at the end of the page.
    fn step(&mut self) -> bool {
        match self.blocks.next() {
            Some(Block::Shell(script)) if script.contains("() {\n") => {
                let script = self.here(script);
                self.functions.push_str(&script);
            }
            Some(Block::Shell(script)) => drop(self.run(script)),
            Some(Block::Shown(lines)) => self.shows(lines),
            None => return false,
        }
        true
    }

    /// Returns the output of a `script` that ends by itself; it must succeed.
    fn run(&mut self, script: &str) -> String {
        let mut script = self.here(script.trim_end());
        let last = script.lines().last().unwrap().to_owned();
        let server = SERVERS.into_iter().find(|server| last.starts_with(server.0));
        if let Some((_, _, listen)) = server {
            script.push_str(listen);
        }
        let output = self.dir.path().join(format!(".output-{}", self.outputs.len()));
        let errors = output.with_extension("errors");
        let mut command = Command::new("sh");
        command
            .args(["-euc", &format!("{}\n{script}", self.functions)])
            .current_dir(self.dir.path())
            .env("PATH", self.path())
            .env("TIDINGS_REGISTER__REFRESH", "1s")
            .stdout(File::create(&output).unwrap())
            .stderr(File::create(&errors).unwrap())
            .process_group(0);
        let mut running = Running(command.spawn().unwrap());
        self.outputs.push(output.clone());
        let complaint = || format!("{script}\n{}", fs::read_to_string(&errors).unwrap());
        if let Some((_, printed, _)) = server {
            let real = wait(complaint, || {
                let seen = listening(&read(&output));
                let ended = running.0.try_wait().unwrap();
                assert!(seen.is_some() || ended.is_none(), "it ended: {}", complaint());
                seen
            });
            self.address = Some((printed, real));
        } else if ENDLESS.iter().any(|command| last.starts_with(command)) {
            // The next block may be a change, which this command must be ready for.
            wait(complaint, || read(&output).contains('\n').then_some(()));
        } else {
            let status = wait(complaint, || running.0.try_wait().unwrap());
            assert!(status.success(), "{}\n{}", complaint(), read(&output));
            return read(&output);
        }
        self.running.push(running);
        String::new()
    }

    /// Waits until one of the commands has printed `lines`, in their order.
    fn shows(&self, lines: &str) {
        let all = || -> Vec<String> { self.outputs.iter().map(|output| read(output)).collect() };
        let complaint = || format!("nobody printed\n{lines}\nbut\n{}", all().join("\n--\n"));
        wait(complaint, || {
            all().iter().any(|output| shown(output, lines)).then_some(())
        });
    }

    /// `script` with the real address in it.
    fn here(&self, script: &str) -> String {
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

/// The blocks of shell, and those that show what is printed (with `…` in their first line).
fn blocks(page: &'static str) -> Vec<Block> {
    let fenced = page.split("\n```").skip(1).step_by(2);
    fenced
        .filter_map(|block| match block.split_once('\n')? {
            ("sh", script) => Some(Block::Shell(script)),
            ("text", lines) if lines.starts_with('…') => Some(Block::Shown(lines)),
            _ => None,
        })
        .collect()
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
    let Some(mut rest) = parts.next().and_then(|first| line.strip_prefix(first)) else {
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

fn read(file: &Path) -> String {
    fs::read_to_string(file).unwrap()
}

fn wait<T>(complaint: impl Fn() -> String, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + DEADLINE;
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(Instant::now() < deadline, "waited in vain: {}", complaint());
        std::thread::sleep(Duration::from_millis(20));
    }
}
