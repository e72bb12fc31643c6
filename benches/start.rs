//! Row `start`: the time until the service is ready, and the size of its program.
//!
//! The starts come one after the other, each in a process of its own, on a folder of files. When the service
//! says that it is ready, the resources that it lists are counted over its HTTP API. The twin walks the same
//! folder and reads every file into memory, on one thread of this process.

use std::collections::BTreeSet;
use std::fs;
use std::hint::black_box;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::signal::{Signal, kill};
use nix::sys::time::TimeValLike;
use nix::unistd::Pid;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use tempfile::TempDir;
use tidings::wire::http1::HttpTarget;

use crate::Options;
use crate::server_process::{ServerProcess, program, serve_command};
use crate::sockets::connect;
use crate::support::{Column, Cpu, RUNS, Table, Threads, least, median};

/// The files, spread evenly over the folders.
const FILES: usize = 10_000;
const FOLDERS: usize = 100;
/// The limit on the time until the service is ready, and until it has ended.
const WAIT_MAX: Duration = Duration::from_secs(60);

const COLUMNS: &[Column] = &[
    ("wall_ms", "ms until ready", 1),
    ("wall_ms_min", "least", 1),
    ("cpu_ms", "CPU ms", 1),
    ("wall_x", "x bare", 2),
    ("cpu_x", "CPU x bare", 2),
    ("files", "files listed", 0),
    ("binary_mb", "MB of dist program", 2),
];

/// The program and the folder of a start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Case {
    /// `tidings --version`, until it has ended.
    Version,
    /// The service on a folder without files.
    Empty,
    /// The service on all files, with its versions in memory.
    Files,
    /// The same with a store that this start creates.
    StoreNew,
    /// The same with a store that has all files already.
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

/// The cost of one start.
#[derive(Debug, Clone, Copy)]
struct Start {
    wall: Duration,
    /// The CPU of the whole process up to then, kernel included.
    cpu: Duration,
    /// The files that were listed, or read.
    files: usize,
}

/// Measures the row.
pub(crate) fn run(_: &Options) -> anyhow::Result<Table> {
    let stage = Stage::new()?;
    let mut runs: [Vec<Start>; CASES.len()] = Default::default();
    for round in 0..RUNS {
        for (case, runs) in std::iter::zip(CASES, &mut runs) {
            runs.push(stage.start(case, round)?);
        }
    }
    let [.., bare] = &runs;
    let bare_wall = median(walls_ms(bare));
    let bare_cpu = median_cpu_ms(bare);
    let mut table = Table::new("start", COLUMNS);
    for (case, runs) in std::iter::zip(CASES, &runs) {
        let wall = median(walls_ms(runs));
        let cpu = median_cpu_ms(runs);
        let is_compared = matches!(case, Case::Files | Case::StoreNew | Case::StoreKnown);
        let is_version = case == Case::Version;
        let figures = vec![
            Some(wall),
            Some(least(walls_ms(runs))),
            Some(cpu),
            is_compared.then_some(wall / bare_wall),
            is_compared.then_some(cpu / bare_cpu),
            (!is_version).then_some(runs[0].files as f64),
            match stage.dist_bytes {
                Some(bytes) if is_version => Some(bytes as f64 / 1e6),
                _ => None,
            },
        ];
        table.add_line(case.label(), figures);
    }
    Ok(table)
}

fn walls_ms(runs: &[Start]) -> impl Iterator<Item = f64> {
    runs.iter().map(|run| run.wall.as_secs_f64() * 1e3)
}

fn median_cpu_ms(runs: &[Start]) -> f64 {
    median(runs.iter().map(|run| run.cpu.as_secs_f64() * 1e3))
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
    /// The size of the program that packages carry, where it was built.
    dist_bytes: Option<u64>,
}

impl Stage {
    /// Writes the files, which also puts them into the kernel's cache.
    fn new() -> anyhow::Result<Stage> {
        let folder = tempfile::tempdir().context("cannot make a folder for the files")?;
        let program = program();
        // Another profile than that of the benches, below the same target folder.
        let dist = program.with_file_name("../dist/tidings");
        let dist_bytes = fs::metadata(dist).ok().map(|program| program.len());
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
            dist_bytes,
        })
    }

    fn start(&self, case: Case, round: usize) -> anyhow::Result<Start> {
        let start = match case {
            Case::Version => self.version(),
            Case::Empty => self.service("empty", None, 0),
            Case::Files => self.service("full", None, FILES),
            // Both name the same store, which the first of them creates.
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
            "it ended with {} instead of printing its version",
            output.status
        );
        Ok(Start {
            wall,
            cpu: cpu_of_ended_children()? - before,
            files: 0,
        })
    }

    fn service(&self, served: &str, store: Option<usize>, expected: usize) -> anyhow::Result<Start> {
        let mut command = serve_command(&self.folder.path().join(served));
        if let Some(number) = store {
            let store = self.folder.path().join(format!("store {number}"));
            command.arg("--data").arg(store);
        }
        let begin = Instant::now();
        let mut service = ServerProcess::start(command, self.folder.path().join("log"))?;
        let cpu = Cpu::read(service.pid(), Threads::All)?;
        let address = service.wait_for_address(WAIT_MAX)?;
        let wall = begin.elapsed();
        let cpu = Duration::from_nanos(cpu.since()? as u64);
        // The line alone proves nothing: a service that lists less was not ready.
        let files = count_listed(address)?;
        ensure!(
            files == expected,
            "it listed {files} files of {expected} when it was ready"
        );
        stop(service)?;
        Ok(Start { wall, cpu, files })
    }
}

/// Stops a service with SIGTERM, so that it closes its store, and waits for its end.
fn stop(mut service: ServerProcess) -> anyhow::Result<()> {
    kill(Pid::from_raw(i32::try_from(service.pid())?), Signal::SIGTERM)?;
    let begin = Instant::now();
    while !service.has_ended()? {
        ensure!(begin.elapsed() < WAIT_MAX, "it did not end on SIGTERM");
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Counts the resources that the service lists, page by page, each once.
fn count_listed(address: SocketAddr) -> anyhow::Result<usize> {
    let target = HttpTarget::mcp(address);
    let mut connection = connect(address)?;
    let mut uris = BTreeSet::new();
    let mut after = String::new();
    loop {
        let path = format!("/v1/resources?limit=1000&after={after}");
        let answer = connection.exchange(&target.request_to("GET", &path).finish())?;
        let status = answer.head.status;
        ensure!(status == 200, "{path} was answered with HTTP status {status}");
        let page: Value = serde_json::from_slice(&answer.body)?;
        let items = page["items"].as_array();
        for item in items.context("a page of the list has no items")? {
            uris.extend(item["uri"].as_str().map(str::to_owned));
        }
        match page["next"].as_str() {
            Some(next) => after = utf8_percent_encode(next, NON_ALPHANUMERIC).to_string(),
            None => return Ok(uris.len()),
        }
    }
}

/// Walks a folder and reads all files: the twin.
fn bare(root: &Path) -> anyhow::Result<Start> {
    let cpu = Cpu::read(std::process::id(), Threads::All)?;
    let begin = Instant::now();
    let mut folders = vec![root.to_owned()];
    let mut contents = Vec::with_capacity(FILES);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            if fs::symlink_metadata(&path)?.is_dir() {
                folders.push(path);
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

/// Returns the CPU time of all children that have ended and were waited for.
fn cpu_of_ended_children() -> anyhow::Result<Duration> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let total = usage.user_time() + usage.system_time();
    Ok(Duration::from_micros(total.num_microseconds() as u64))
}
