//! `tidings check` finds each fault of a server that has one, that one only, and none in ours.
//!
//! The times are short, but nothing depends on being fast: what must come is waited for, and what must not come is
//! never sent.

mod bad;

use std::time::Duration;

use tidings::check::{self, CheckError, Options, Report, Severity, Verdict};
use tidings::client::{Era, Target};

use crate::mcp::server::{Server, binary, service_folder};
use bad::{Bad, Defect, URI};

fn options(touch: &str) -> Options {
    let mut options = Options::default();
    options.touch = Some(touch.to_owned());
    options.quiet_time = Duration::from_millis(700);
    options
}

fn failures(report: &Report) -> Vec<(&str, &str)> {
    report
        .failed()
        .map(|finding| (finding.id, finding.revision.as_str()))
        .collect()
}

async fn look_at(defect: Defect, change: impl FnOnce(&mut Options)) -> Report {
    let bad = Bad::start(defect).await;
    let mut options = options(&bad.touch());
    change(&mut options);
    let target = Target::http(&bad.url).unwrap();
    let report = check::run(&target, &options).await.unwrap();
    assert_eq!(report.incomplete, None, "{report}");
    report
}

const OLD: &str = "2025-11-25";
const NEW: &str = "2026-07-28";

/// The quiet time where nothing is wrong that would need longer to show.
const SHORT: Duration = Duration::from_millis(200);

/// Every defect, and which checks it fails: these and no others.
const FOUND: [(Defect, &[(&str, &str)]); 18] = [
    (
        Defect::SpuriousLists,
        &[("spurious-list-changed", OLD), ("spurious-list-changed", NEW)],
    ),
    (
        Defect::FloodsFreshSessions,
        &[("fresh-announcements", OLD), ("fresh-announcements", NEW)],
    ),
    (
        Defect::PromisesSubscribe,
        &[("capability-promises", OLD), ("capability-promises", NEW)],
    ),
    (
        Defect::AdvertisesNothing,
        &[("capability-promises", OLD), ("capability-promises", NEW)],
    ),
    (Defect::IgnoresUnsubscribe, &[("unsubscribe-obeyed", OLD)]),
    (
        Defect::TellsTwice,
        &[("duplicate-notices", OLD), ("duplicate-notices", NEW)],
    ),
    (Defect::TellsBeforeInitialized, &[("initialized-first", OLD)]),
    (Defect::AcknowledgesLate, &[("filter-obeyed", NEW)]),
    (Defect::Untagged, &[("filter-obeyed", NEW)]),
    (Defect::TagsAsText, &[("filter-obeyed", NEW)]),
    (Defect::AcknowledgesMore, &[("filter-obeyed", NEW)]),
    (
        Defect::ReadsStale,
        &[("stale-read-after-notice", OLD), ("stale-read-after-notice", NEW)],
    ),
    (
        Defect::AcceptsUnknownUris,
        &[("unknown-uri", OLD), ("unknown-uri", NEW)],
    ),
    (
        Defect::WrongMethodCode,
        &[("error-codes", OLD), ("error-codes", NEW)],
    ),
    (
        Defect::AcceptsCursors,
        &[("error-codes", OLD), ("error-codes", NEW)],
    ),
    (
        Defect::NeverTells,
        &[("subscribe-obeyed", OLD), ("listen-obeyed", NEW)],
    ),
    (Defect::KeepsDeletedSessions, &[("graceful-end", OLD)]),
    (Defect::None, &[]),
];

/// What only bothers clients, or is only recommended.
const WARNINGS: [Defect; 6] = [
    Defect::FloodsFreshSessions,
    Defect::TellsTwice,
    Defect::TellsBeforeInitialized,
    Defect::AcceptsUnknownUris,
    Defect::AcceptsCursors,
    Defect::None,
];

#[tokio::test]
async fn each_fault_fails_its_check_and_no_other() {
    // Most of a run is waiting, so the runs wait together.
    let runs = FOUND.map(|(defect, expected)| async move {
        let report = look_at(defect, |_| ()).await;
        assert_eq!(failures(&report), expected, "{defect:?}: {report}");
        let harmless = WARNINGS.contains(&defect);
        assert_eq!(
            report.worst() != Some(Severity::Error),
            harmless,
            "{defect:?}: {report}"
        );
    });
    futures_util::future::join_all(runs).await;
}

#[tokio::test]
async fn a_server_without_a_fault_passes() {
    let report = look_at(Defect::None, |options| options.quiet_time = SHORT).await;
    assert_eq!(failures(&report), [], "{report}");
    assert_eq!(report.worst(), None);
    let skipped = report
        .checks
        .iter()
        .filter(|finding| finding.verdict == Verdict::Skipped);
    let skipped: Vec<_> = skipped
        .map(|finding| (finding.id, finding.revision.as_str()))
        .collect();
    let expected = [
        ("keep-alive", OLD),
        ("unsubscribe-obeyed", NEW),
        ("keep-alive", NEW),
        ("graceful-end", NEW),
    ];
    assert_eq!(skipped, expected, "{report}");
}

#[tokio::test]
async fn a_silent_stream_is_worth_knowing() {
    let report = look_at(Defect::None, |options| {
        options.touch = None;
        options.quiet_time = SHORT;
        options.idle = Some(Duration::from_millis(200));
    })
    .await;
    assert_eq!(
        failures(&report),
        [("keep-alive", OLD), ("keep-alive", NEW)],
        "{report}"
    );
    assert_eq!(report.worst(), None);
}

#[tokio::test]
async fn one_era_is_looked_at_when_one_is_asked_for() {
    for (era, revision) in [(Era::Legacy, OLD), (Era::Modern, NEW)] {
        let report = look_at(Defect::None, |options| {
            options.era = era;
            options.touch = None;
            options.quiet_time = SHORT;
            options.quiet_time = SHORT;
        })
        .await;
        assert_eq!(report.revisions, [revision]);
    }
}

#[tokio::test]
async fn what_cannot_be_finished_is_said_and_is_an_error() {
    let bad = Bad::start(Defect::None).await;
    let target = Target::http(&bad.url).unwrap();
    let report = check::run(&target, &options("exit 3")).await.unwrap();
    let reason = report.incomplete.clone().unwrap();
    assert!(reason.contains("the --touch command failed"), "{reason}");
    assert_eq!(report.worst(), Some(Severity::Error));
    let mut hasty = options(&bad.touch());
    hasty.quiet_time = Duration::from_secs(5);
    hasty.timeout = Duration::from_millis(900);
    let report = check::run(&target, &hasty).await.unwrap();
    assert!(report.incomplete.unwrap().contains("--timeout"));
}

#[tokio::test]
async fn nobody_there_and_somebody_else_there_are_told_apart() {
    let free = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", free.local_addr().unwrap());
    drop(free);
    let ended = check::run(&Target::http(&url).unwrap(), &Options::default()).await;
    assert!(matches!(ended, Err(CheckError::Unreachable { .. })), "{ended:?}");
    let ended = check::run(
        &Target::command(vec!["true".into()]).unwrap(),
        &Options::default(),
    )
    .await;
    assert!(matches!(ended, Err(CheckError::NoServer { .. })), "{ended:?}");
}

/// The check as a person runs it.
async fn tidings_check(arguments: &[&str]) -> (Option<i32>, serde_json::Value) {
    let run = tokio::process::Command::new(binary())
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .args(["check", "--json", "--quiet-time", "1"])
        .args(arguments)
        .kill_on_drop(true)
        .output();
    let ended = tokio::time::timeout(Duration::from_secs(90), run).await;
    let ended = ended.expect("it is bounded").expect("it starts");
    let words = String::from_utf8_lossy(&ended.stderr);
    let report = serde_json::from_slice(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {words}"));
    (ended.status.code(), report)
}

fn assert_clean((code, report): (Option<i32>, serde_json::Value)) {
    assert_eq!(code, Some(0), "{report:#}");
    assert_eq!(report["revisions"], serde_json::json!([OLD, NEW]));
    let passed = |id: &str, revision: &str| {
        let findings = report["checks"].as_array().expect("findings");
        let found = |finding: &&serde_json::Value| finding["id"] == id && finding["revision"] == revision;
        let finding = findings.iter().find(found).expect(id);
        assert_eq!(finding["verdict"], "pass", "{finding:#}");
    };
    for revision in [OLD, NEW] {
        for id in [
            "spurious-list-changed",
            "duplicate-notices",
            "stale-read-after-notice",
            "error-codes",
        ] {
            passed(id, revision);
        }
    }
    passed("subscribe-obeyed", OLD);
    passed("listen-obeyed", NEW);
    passed("filter-obeyed", NEW);
}

#[tokio::test]
async fn our_service_is_clean_over_http() {
    let server = Server::with("[workspace]\ndebounce = \"10ms\"\n").await;
    server.write_file("a.txt", "0");
    server.until_listed("workspace:///a.txt").await;
    let url = format!("http://{}/mcp", server.address);
    let touch = format!("printf x >> '{}'", server.file("a.txt").display());
    assert_clean(tidings_check(&["--uri", "workspace:///a.txt", "--touch", &touch, &url]).await);
}

#[tokio::test]
async fn our_service_is_clean_over_stdio() {
    let folder = service_folder("[workspace]\ndebounce = \"10ms\"\n");
    let file = folder.path().join("resources/a.txt");
    std::fs::write(&file, "0").unwrap();
    let touch = format!("printf x >> '{}'", file.display());
    let config = folder.path().join("tidings.toml");
    let [folder, config] = [folder.path(), &config].map(|path| path.to_str().expect("a plain path"));
    let (program, uri) = (binary(), "workspace:///a.txt");
    let server = [program, "serve", folder, "--config", config, "--stdio"];
    let arguments = [&["--uri", uri, "--touch", &touch, "--"][..], &server].concat();
    let clean = tidings_check(&arguments).await;
    let ends = clean.1["checks"].as_array().expect("findings").iter();
    let ends: Vec<_> = ends.filter(|finding| finding["id"] == "graceful-end").collect();
    assert!(
        ends.iter().all(|finding| finding["verdict"] == "pass"),
        "{ends:?}"
    );
    assert_clean(clean);
}

#[tokio::test]
async fn a_server_with_warnings_only_ends_the_program_with_3() {
    let bad = Bad::start(Defect::AcceptsUnknownUris).await;
    let (code, report) = tidings_check(&["--uri", URI, &bad.url]).await;
    assert_eq!(code, Some(3), "{report:#}");
}
