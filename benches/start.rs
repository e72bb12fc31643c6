//! Row `start`: how long the service takes until it says that it is ready, and how large its program is.
//!
//! Owns: a folder of files, and the children that are started on it, one at a time, each ended before the next. Never:
//! believes a line: what a ready service lists is counted over its HTTP API. The twin walks the same folder and reads
//! every file into memory, on one thread of this process, and does nothing with what it read.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::hint::black_box;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use tempfile::TempDir;

use crate::Options;
use crate::child::{Server, program};
use crate::support::{Column, Cpu, RUNS, Table, Threads, least, median};

/// Files in the folder, spread evenly over its folders.
const FILES: usize = 10_000;
const FOLDERS: usize = 100;
/// How long the service may take until it is ready, and for each answer.
const WAIT_MAX: Duration = Duration::from_secs(60);

const COLUMNS: &[Column] = &[
    ("wall_ms", "ms until ready", 1),
    ("wall_ms_min", "least", 1),
    ("cpu_ms", "CPU ms", 1),
    ("wall_x", "x bare", 2),
    ("cpu_x", "CPU x bare", 2),
    ("files", "files listed", 0),
    ("binary_mb", "MB of program", 2),
];

/// What is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Case {
    /// `tidings --version`, until it has ended.
    Version,
    /// The service on a folder without files.
    Empty,
    /// The service on all files, with versions in memory.
    Files,
    /// The same with a store that is made at this start.
    StoreNew,
    /// The same with a store that knows all files already.
    StoreKnown,
    /// The twin.
    Bare,
}

const CASES: [Case; 6] = [
    Case::Version,
    Case::Empty,
    Case::Files,
    Case::StoreNew,
    Case::StoreKnown,
    Case::Bare,
];

/// What one start took.
#[derive(Debug, Clone, Copy)]
struct Start {
    wall: Duration,
    /// CPU of the whole process up to then, kernel included.
    cpu: Duration,
    /// Files that were listed, or read.
    files: usize,
}

/// Measures the row.
pub(crate) fn run(_: &Options) -> anyhow::Result<Table> {
    let stage = Stage::new()?;
    let mut runs: Vec<Vec<Start>> = vec![Vec::new(); CASES.len()];
    for round in 0..RUNS {
        for (case, runs) in CASES.iter().zip(&mut runs) {
            runs.push(stage.start(*case, round)?);
        }
    }
    let ms = |duration: Duration| duration.as_secs_f64() * 1e3;
    let walls = |runs: &[Start]| runs.iter().map(|run| ms(run.wall)).collect::<Vec<_>>();
    let cpu = |runs: &[Start]| median(runs.iter().map(|run| ms(run.cpu)));
    let bare = runs.last().context("the twin is the last case")?;
    let (bare_wall, bare_cpu) = (median(walls(bare)), cpu(bare));
    let mut table = Table::new("start", COLUMNS);
    for (case, runs) in CASES.iter().zip(&runs) {
        let compared = matches!(case, Case::Files | Case::StoreNew | Case::StoreKnown);
        let figures = vec![
            Some(median(walls(runs))),
            Some(least(walls(runs))),
            Some(cpu(runs)),
            compared.then(|| median(walls(runs)) / bare_wall),
            compared.then(|| cpu(runs) / bare_cpu),
            runs.first()
                .map(|run| run.files as f64)
                .filter(|_| *case != Case::Version),
            (*case == Case::Version).then_some(stage.program_bytes as f64 / 1e6),
        ];
        table.line(case.label(), figures);
    }
    Ok(table)
}

impl Case {
    fn label(self) -> &'static str {
        match self {
            Case::Version => "tidings --version",
            Case::Empty => "tidings, empty folder",
            Case::Files => "tidings, 10,000 files",
            Case::StoreNew => "tidings, 10,000 files, new store",
            Case::StoreKnown => "tidings, 10,000 files, known store",
            Case::Bare => "bare walk and read of 10,000 files",
        }
    }
}

/// The folders, and the program.
struct Stage {
    folder: TempDir,
    program: PathBuf,
    program_bytes: u64,
}

impl Stage {
    /// Makes the files, which also puts them into the kernel's cache.
    fn new() -> anyhow::Result<Stage> {
        let folder = tempfile::tempdir().context("cannot make a folder for the files")?;
        let program = program();
        let program_bytes = fs::metadata(&program)
            .with_context(|| format!("cannot find the program {}", program.display()))?
            .len();
        fs::create_dir(folder.path().join("empty"))?;
        for number in 0..FILES {
            let below = folder
                .path()
                .join(format!("full/resources/{:02}", number % FOLDERS));
            if number < FOLDERS {
                fs::create_dir_all(&below)?;
            }
            let text = format!(
                "# File {number}\n\n{}",
                "A line of text, as notes have it.\n".repeat(10)
            );
            fs::write(below.join(format!("note {number:05}.md")), text)?;
        }
        Ok(Stage {
            folder,
            program,
            program_bytes,
        })
    }

    fn start(&self, case: Case, round: usize) -> anyhow::Result<Start> {
        let start = match case {
            Case::Version => self.version(),
            Case::Empty => self.service("empty", None, 0),
            Case::Files => self.service("full", None, FILES),
            // Both name the same store: the second start finds what the first one left.
            Case::StoreNew | Case::StoreKnown => self.service("full", Some(round), FILES),
            Case::Bare => bare(&self.folder.path().join("full/resources")),
        };
        start.with_context(|| format!("{}, run {}", case.label(), round + 1))
    }

    fn version(&self) -> anyhow::Result<Start> {
        let before = cpu_of_ended_children()?;
        let begin = Instant::now();
        let output = Command::new(&self.program).arg("--version").output()?;
        let wall = begin.elapsed();
        ensure!(
            output.status.success(),
            "it ended with {} instead of its version",
            output.status
        );
        Ok(Start {
            wall,
            cpu: cpu_of_ended_children()? - before,
            files: 0,
        })
    }

    fn service(&self, served: &str, store: Option<usize>, expected: usize) -> anyhow::Result<Start> {
        let log = self.folder.path().join("log");
        let mut command = Command::new(&self.program);
        command.arg("serve").arg(self.folder.path().join(served));
        command.args(["--listen", "127.0.0.1:0"]);
        if let Some(number) = store {
            command
                .arg("--data")
                .arg(self.folder.path().join(format!("store {number}")));
        }
        command.stdin(Stdio::null()).stderr(File::create(&log)?);
        let begin = Instant::now();
        let mut service = Server::start(&mut command)?;
        let cpu = Cpu::read(service.pid(), Threads::All)?;
        let Some(address) = service.address(WAIT_MAX) else {
            let said = fs::read_to_string(&log).unwrap_or_default();
            anyhow::bail!(
                "it was not ready in time; it said: {}",
                said.lines().last().unwrap_or("nothing")
            );
        };
        let wall = begin.elapsed();
        let cpu = Duration::from_nanos(cpu.since()? as u64);
        let files = listed(address)?;
        ensure!(
            files == expected,
            "it listed {files} files of {expected} when it was ready"
        );
        stop(service)?;
        Ok(Start { wall, cpu, files })
    }
}

/// Asks a service to end, so that it leaves its store in order, and waits until it has.
fn stop(mut service: Server) -> anyhow::Result<()> {
    kill(Pid::from_raw(i32::try_from(service.pid())?), Signal::SIGTERM)?;
    let begin = Instant::now();
    while !service.has_ended()? {
        ensure!(begin.elapsed() < WAIT_MAX, "it did not end when it was asked to");
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// How many resources the service lists, page by page, each counted once.
fn listed(address: SocketAddr) -> anyhow::Result<usize> {
    let mut uris = BTreeSet::new();
    let mut after = String::new();
    loop {
        let page = get(address, &format!("/v1/resources?limit=1000&after={after}"))?;
        let items = page["items"]
            .as_array()
            .context("a page of the list has no items")?;
        uris.extend(
            items
                .iter()
                .filter_map(|item| item["uri"].as_str())
                .map(str::to_owned),
        );
        match page["next"].as_str() {
            Some(next) => after = utf8_percent_encode(next, NON_ALPHANUMERIC).to_string(),
            None => return Ok(uris.len()),
        }
    }
}

fn get(address: SocketAddr, path: &str) -> anyhow::Result<Value> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(WAIT_MAX))?;
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").context("the answer has no head")?;
    ensure!(
        head.starts_with("HTTP/1.1 200"),
        "{path} was answered with {head}"
    );
    Ok(serde_json::from_str(body)?)
}

/// The twin.
fn bare(root: &Path) -> anyhow::Result<Start> {
    let cpu = Cpu::read(std::process::id(), Threads::All)?;
    let begin = Instant::now();
    let (mut waiting, mut contents) = (vec![root.to_owned()], Vec::with_capacity(FILES));
    while let Some(folder) = waiting.pop() {
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            if fs::symlink_metadata(&path)?.is_dir() {
                waiting.push(path);
            } else {
                contents.push(fs::read(&path)?);
            }
        }
    }
    let wall = begin.elapsed();
    Ok(Start {
        wall,
        cpu: Duration::from_nanos(cpu.since()? as u64),
        files: black_box(contents).len(),
    })
}

/// The CPU time of all children that have ended and were waited for.
fn cpu_of_ended_children() -> anyhow::Result<Duration> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let time = |value: nix::sys::time::TimeVal| {
        Duration::from_secs(value.tv_sec() as u64) + Duration::from_micros(value.tv_usec() as u64)
    };
    Ok(time(usage.user_time()) + time(usage.system_time()))
}
