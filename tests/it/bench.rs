//! `tidings bench` reports our service as complete, and finds the notices that a lossy server drops.

mod lossy;
mod secure;
mod shared;

use std::path::Path;
use std::process::Output;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use serde_json::Value;
use tidings::bench::{self, Observer, Pace, Progress, Report, Settings};

use crate::mcp::server::{Server, binary};
use lossy::Lossy;

async fn run(settings: Settings) -> Report {
    let blocking = tokio::task::spawn_blocking(move || {
        let mut progress = |_: Progress<'_>| ();
        let mut outside = Observer {
            progress: &mut progress,
            stop: &AtomicBool::new(false),
        };
        bench::run(&settings, &mut outside)
    });
    blocking.await.unwrap().unwrap()
}

async fn bench(arguments: &[&str]) -> Output {
    let mut command = tokio::process::Command::new(binary());
    command
        .env_clear()
        .arg("bench")
        .args(arguments)
        .kill_on_drop(true);
    tokio::time::timeout(Duration::from_secs(120), command.output())
        .await
        .expect("a bounded run ends")
        .unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Settings with every kind of client.
fn all_kinds(server: &Server) -> Settings {
    Settings {
        url: format!("http://{}/mcp", server.address),
        sessions: 50,
        subscribe: 2,
        pace: Pace::PerSecond(100.0),
        duration: Duration::from_secs(2),
        warm_up: Duration::from_millis(200),
        stalled: 5,
        slow: 5,
        churn: 8.0,
        pollers: 3,
        poll_interval: Duration::from_millis(300),
        settle: Duration::from_secs(30),
        ..Settings::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn our_service_tells_all_and_counts_add_up() {
    let server = Server::start().await;
    let report = run(all_kinds(&server)).await;
    assert_eq!(report.problems, Vec::<String>::new());
    assert_eq!((report.matching.as_str(), report.updates.refused), ("version", 0));
    // 2.2 seconds at 100 per second: the open model sends each, however busy the machine is.
    assert_eq!(report.updates.sent, 220);
    let clients = [("reading", 50), ("slow", 5), ("stalled", 5)];
    for (name, clients) in clients {
        let group = report.group(name).unwrap();
        assert_eq!(group.clients, clients, "{name}");
        // Two subscriptions each, spread evenly over ten resources.
        assert_eq!(group.owed, 220 * clients * 2 / 10, "{name}");
        assert_eq!(
            group.deliveries + group.conflated,
            group.owed,
            "{name}: {group:?}"
        );
        assert_eq!(
            (
                group.untold,
                group.missing_finals,
                group.again,
                group.backward,
                group.foreign
            ),
            (0, 0, 0, 0, 0),
            "{name}: {group:?}"
        );
    }
    let reading = report.group("reading").unwrap();
    // Each notice stands for an update that was due in the measured time, or it is not among the latencies.
    assert!(
        reading.latency.count <= 200 * 10 && reading.latency.count > 0,
        "{reading:?}"
    );
    assert!(
        reading.latency.p50_us <= reading.latency.p99_us && reading.latency.p99_us <= reading.latency.max_us
    );
    let polling = report.group("polling").unwrap();
    assert_eq!((polling.missing_finals, polling.untold), (0, 0), "{polling:?}");
    assert_eq!(
        polling.deliveries + polling.conflated,
        polling.owed,
        "{polling:?}"
    );
    let churn = report.group("churn").unwrap();
    assert!(churn.clients > 0 && churn.deliveries > 0, "{churn:?}");
    // The test removes its resources and ends its sessions.
    assert_eq!(server.api("GET", "demo://bench/0", "").await.status, 404);
    server.until("every session has ended", <[Value]>::is_empty).await;
    server.assert_healthy().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn flat_out_updates_all_arrive() {
    let server = Server::start().await;
    let settings = Settings {
        pace: Pace::FlatOut,
        duration: Duration::from_millis(500),
        sessions: 20,
        resources: 3,
        stalled: 2,
        churn: 0.0,
        pollers: 0,
        slow: 0,
        ..all_kinds(&server)
    };
    let report = run(settings).await;
    assert_eq!(report.problems, Vec::<String>::new());
    assert!(report.updates.sent > 0);
    for group in &report.groups {
        assert_eq!(group.deliveries + group.conflated, group.owed, "{group:?}");
        assert_eq!(group.untold, 0, "{group:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn report_is_documented_and_comparable() {
    let server = Server::start().await;
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("a.json").to_str().unwrap().to_owned();
    let html = folder.path().join("a.html").to_str().unwrap().to_owned();
    let url = format!("http://{}/mcp", server.address);
    let short = [
        "--sessions",
        "6",
        "--duration",
        "1200ms",
        "--warm-up",
        "100ms",
        "--rate",
        "50",
    ];
    let arguments = [
        &[url.as_str(), "--calibrate", "--json", &json, "--html", &html],
        &short[..],
    ]
    .concat();
    let output = bench(&arguments).await;
    assert!(output.status.success(), "{}", stderr(&output));
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(
        table.contains("every live client has the newest state"),
        "{table}"
    );
    assert!(table.contains("against bare sockets"), "{table}");

    let text = std::fs::read_to_string(&json).unwrap();
    let report: Report = serde_json::from_str(&text).unwrap();
    assert_eq!(report.schema, bench::SCHEMA);
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/bench.md");
    let docs = std::fs::read_to_string(docs).unwrap();
    let mut names = Vec::new();
    keys(&serde_json::from_str(&text).unwrap(), &mut names);
    names.sort();
    names.dedup();
    for name in &names {
        assert!(
            docs.contains(&format!("`{name}`")),
            "docs/bench.md does not explain {name}"
        );
    }
    assert!(names.iter().any(|name| name == "missing_finals"));

    let page = std::fs::read_to_string(&html).unwrap();
    assert!(page.contains("<svg") && page.contains("(prefers-color-scheme: dark)"));
    for foreign in ["<script", "<link", "src=", "@import", "url("] {
        assert!(!page.contains(foreign), "the page needs {foreign}");
    }
    let p99 = report.group("reading").unwrap().latency.p99_us;
    let figure = format!("data-field=\"groups.0.latency.p99_us\" value=\"{p99}\"");
    assert!(page.contains(&figure), "{figure}");

    let output = bench(&["--compare", &json, &json, "--html", &html]).await;
    assert!(output.status.success(), "{}", stderr(&output));
    let table = String::from_utf8(output.stdout).unwrap();
    let line = table
        .lines()
        .find(|line| line.starts_with("reading: p99"))
        .unwrap();
    assert!(line.ends_with("1.00"), "{table}");
    let page = std::fs::read_to_string(&html).unwrap();
    assert!(page.contains("Both had the same load") && page.contains("line one earlier"));

    let run = [&[url.as_str(), "--baseline", &json, "--html", &html], &short[..]].concat();
    let output = bench(&run).await;
    assert!(output.status.success(), "{}", stderr(&output));
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(table.contains("a.json  this run"), "{table}");
    let page = std::fs::read_to_string(&html).unwrap();
    assert!(page.contains("a.json</bdi> of"), "{page}");
}

fn keys(value: &Value, names: &mut Vec<String>) {
    match value {
        Value::Object(object) => {
            for (name, value) in object {
                names.push(name.clone());
                keys(value, names);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| keys(item, names)),
        _ => {}
    }
}

/// Ten updates of two resources: numbers 0 to 9.
const TEN: [&str; 10] = [
    "--sessions",
    "4",
    "--resources",
    "2",
    "--rate",
    "20",
    "--duration",
    "500ms",
    "--warm-up",
    "0s",
];
/// The silence after which a notice counts as lost.
const SOON: [&str; 2] = ["--settle", "4s"];
const TOOL: [&str; 4] = [
    "--publish-tool",
    "update",
    "--publish-args",
    r#"{"uri":"{uri}","n":{n}}"#,
];

#[tokio::test(flavor = "multi_thread")]
async fn lost_last_notice_is_found_by_version() {
    let whole = Lossy::start(u64::MAX).await;
    let output = bench(&[&[whole.url.as_str(), "--era", "modern"], &TEN[..], &SOON].concat()).await;
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    // The last update, number 9, is of the second resource; two of four sessions asked for it.
    let lossy = Lossy::start(9).await;
    let output = bench(
        &[
            &[lossy.url.as_str(), "--era", "modern", "--json", "-"],
            &TEN[..],
            &SOON,
        ]
        .concat(),
    )
    .await;
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stderr(&output).contains("2 subscriptions of reading clients never got the newest state"));
    let report: Report = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report.matching, "version");
    let group = report.group("reading").unwrap();
    assert_eq!(
        (group.missing_finals, group.untold, group.owed),
        (2, 2, 20),
        "{group:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_last_notice_is_found_by_order() {
    let whole = Lossy::start(u64::MAX).await;
    let output = bench(&[&[whole.url.as_str(), "--era", "modern"], &TEN[..], &SOON, &TOOL].concat()).await;
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    // By order, each resource is changed once more at the end: numbers 10 and 11, of which the server loses
    // both.
    let lossy = Lossy::start(10).await;
    let arguments = [
        &[lossy.url.as_str(), "--era", "modern", "--json", "-"],
        &TEN[..],
        &SOON,
        &TOOL,
    ]
    .concat();
    let output = bench(&arguments).await;
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stderr(&output).contains("4 subscriptions of reading clients never got the newest state"));
    let report: Report = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((report.matching.as_str(), report.updates.sent), ("order", 12));
    let group = report.group("reading").unwrap();
    assert_eq!(
        (group.missing_finals, group.deliveries, group.owed),
        (4, 20, 24),
        "{group:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_report_has_its_exit_code() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/mcp", closed.local_addr().unwrap());
    drop(closed);
    let output = bench(&[&url]).await;
    assert_eq!(output.status.code(), Some(69), "{}", stderr(&output));
    let server = Server::with("[session]\nmax = 3\n").await;
    let url = format!("http://{}/mcp", server.address);
    let output = bench(&[&url, "--sessions", "8"]).await;
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(
        stderr(&output).contains("of 8 sessions could not be opened"),
        "{}",
        stderr(&output)
    );
    assert_eq!(
        server.api("GET", "demo://bench/0", "").await.status,
        404,
        "it cleans up all the same"
    );
    let output = bench(&["http://192.0.2.1/mcp"]).await;
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
}
