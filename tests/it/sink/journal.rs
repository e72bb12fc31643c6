//! The JSON-lines file: every notice is one whole line, also after a kill and on a full disk.

use std::fs;
use std::io::Write;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::Value;
use tidings::sink::{FileOptions, Fsync, JsonLines};
use tidings_actors::attach::{AttachOptions, Health};

use super::service::ServiceFolder;
use crate::support::{Bench, until, within};

const DETACH_TIMEOUT: Duration = Duration::from_secs(60);

const CONFIG: &str = "[[journal]]\nname = 'all'\nfile = 'all.jsonl'\nkinds = ['updated', 'removed']\n";

/// Asserts that the lines are numbered from 1.
fn assert_numbered(lines: &[Value]) {
    for (index, line) in lines.iter().enumerate() {
        assert_eq!(line["seq"], index + 1, "{line}");
    }
}

fn texts<'a>(lines: &'a [Value], field: &str) -> Vec<&'a str> {
    lines.iter().flat_map(|line| line[field].as_str()).collect()
}

#[tokio::test]
async fn start_is_one_change_of_the_tools() {
    let folder = ServiceFolder::new("[[journal]]\nname = 'all'\nfile = 'all.jsonl'\n");
    let service = folder.start().await;
    service.put("demo://a", "1").await;
    service.end(Signal::SIGTERM).await;
    let lines = folder.lines("all.jsonl");
    let mut kinds = texts(&lines, "kind");
    kinds.retain(|kind| *kind == "tools_list_changed");
    assert_eq!(kinds.len(), 1, "{lines:?}");
}

#[tokio::test]
async fn rotation_under_load_loses_and_tears_no_line() {
    let bench = Bench::start();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("j");
    let options = FileOptions {
        bytes_max: 3_000,
        files_max: 1000,
        fsync: Fsync::Never,
        ..FileOptions::new(&path)
    };
    let attached = bench
        .bus
        .attach(AttachOptions::new("j"), move || JsonLines::open(&options))
        .await
        .unwrap();
    let put = async |name: &str| {
        for number in 0..200 {
            bench.put(name, &number.to_string()).await;
        }
    };
    tokio::join!(put("demo://a"), put("demo://b"), put("demo://c"));
    assert!(attached.detach(DETACH_TIMEOUT).await);
    let mut files: Vec<_> = fs::read_dir(dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    // FILE.2 is older than FILE.1, and that is older than FILE.
    files.sort_by_key(|path| {
        let extension = path.extension().unwrap_or_default().to_string_lossy();
        std::cmp::Reverse(extension.parse().unwrap_or(0))
    });
    assert!(files.len() > 10, "{files:?}");
    let text: String = files
        .iter()
        .map(|path| fs::read_to_string(path).unwrap())
        .collect();
    let lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_numbered(&lines);
    for name in ["demo://a", "demo://b", "demo://c"] {
        let versions = lines.iter().filter(|line| line["uri"] == name);
        let versions: Vec<_> = versions.map(|line| line["etag"].as_str().unwrap()).collect();
        let expected: Vec<_> = (1..=200).map(|version| format!("v{version}-1000")).collect();
        assert_eq!(versions, expected, "{name}");
    }
}

#[tokio::test]
async fn full_disk_is_seen_and_delays_no_other_sink() {
    let bench = Bench::start();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("j");
    let full = FileOptions::new("/dev/full");
    let good = FileOptions::new(&path);
    let full = bench
        .bus
        .attach(AttachOptions::new("full"), move || JsonLines::open(&full));
    let full = full.await.unwrap();
    let good = bench
        .bus
        .attach(AttachOptions::new("good"), move || JsonLines::open(&good));
    let good = good.await.unwrap();
    bench.put("demo://a", "1").await;
    until("the failure", async || full.info().health == Health::Failing).await;
    let error = full.info().error.unwrap();
    assert!(
        error.starts_with("/dev/full cannot be written: No space left"),
        "{error}"
    );
    assert!(full.info().pending + usize::try_from(full.info().retries).unwrap() > 0);
    assert!(good.detach(DETACH_TIMEOUT).await);
    assert_eq!(fs::read_to_string(&path).unwrap().lines().count(), 2);
    within(full.detach(Duration::ZERO)).await;
}

#[tokio::test]
async fn killed_service_leaves_no_torn_line() {
    let folder = ServiceFolder::new(CONFIG);
    let service = folder.start().await;
    let load = async {
        let mut number = 0;
        while service.try_put("demo://a", &number.to_string()).await {
            number += 1;
        }
    };
    let killing = async {
        until("some lines", async || {
            folder.text("all.jsonl").lines().count() > 20
        })
        .await;
        service.signal(Signal::SIGKILL);
    };
    tokio::join!(load, killing);
    service.end(Signal::SIGKILL).await;
    let before = folder.lines("all.jsonl").len();
    // Add a torn line, as a machine that lost its power may leave it.
    let mut file = fs::File::options()
        .append(true)
        .open(folder.file("all.jsonl"))
        .unwrap();
    file.write_all(b"{\"time\":\"2026-11-21T10:00:00.000Z\",\"seq\":")
        .unwrap();
    let service = folder.start().await;
    service.put("demo://b", "1").await;
    service.end(Signal::SIGTERM).await;
    let lines = folder.lines("all.jsonl");
    assert_eq!(lines.len(), before + 1);
    assert_eq!(lines[before]["uri"], "demo://b");
    assert_numbered(&lines);
}

/// Limits the size of the files that a process writes.
fn limit_files(pid: u32, bytes: &str) {
    let status = std::process::Command::new("prlimit")
        .args(["--pid", &pid.to_string(), &format!("--fsize={bytes}:")])
        .status();
    assert!(status.unwrap().success());
}

#[tokio::test]
async fn journal_waits_for_space_on_the_disk() {
    let folder = ServiceFolder::new(CONFIG);
    let service = folder.start().await;
    limit_files(service.pid(), "16000");
    for number in 0..200 {
        service.put("demo://a", &number.to_string()).await;
    }
    service
        .until("journal/all", "the failure", |one| {
            let error = one["error"].as_str().unwrap_or_default();
            one["health"] == "failing"
                && error.contains("File too large")
                && one["pending"].as_u64() > Some(0)
        })
        .await;
    service
        .until_logged("a subscriber fails; it is tried again")
        .await;
    // All lines are whole, though the system accepted a part of the last one.
    let written = folder.lines("all.jsonl").len();
    assert!((20..200).contains(&written), "{written}");
    limit_files(service.pid(), "unlimited");
    service
        .until("journal/all", "the recovery", |one| {
            one["health"] == "running" && one["delivered"] == 200 && one["lost"] == 0
        })
        .await;
    let lines = folder.lines("all.jsonl");
    assert_eq!(lines.len(), 200);
    assert_numbered(&lines);
    assert_eq!(texts(&lines, "uri"), ["demo://a"; 200]);
    service.end(Signal::SIGTERM).await;
}
