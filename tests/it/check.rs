//! `tidings check` finds the fault of each faulty server and no other, and none in the service.
//!
//! The times are short, but no test depends on speed: the check waits for each message that must come, and
//! the servers never send a message that must not come, except as their fault.

mod faulty_server;
mod hostile;
mod program;

use std::time::Duration;

use tidings::check::{CheckError, Options, Report, Severity, ToolCall, Verdict, run};
use tidings::client::{Era, Target};

use crate::mcp::server::{Server, binary, service_folder};
use faulty_server::{Fault, FaultyServer, URI};

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

async fn check(fault: Fault, change: impl FnOnce(&mut Options)) -> Report {
    let server = FaultyServer::start(fault).await;
    let mut options = options(&server.touch());
    change(&mut options);
    let target = Target::http(&server.url).unwrap();
    let report = run(&target, &options).await.unwrap();
    assert_eq!(report.incomplete, None, "{report}");
    report
}

const OLD: &str = "2025-11-25";
const NEW: &str = "2026-07-28";

/// The quiet time of tests whose server has no fault that needs longer to show.
const SHORT: Duration = Duration::from_millis(200);

/// Every fault with the checks that it fails.
const FOUND: [(Fault, &[(&str, &str)]); 38] = [
    (
        Fault::SpuriousLists,
        &[("spurious-list-changed", OLD), ("spurious-list-changed", NEW)],
    ),
    (
        Fault::FloodsFreshSessions,
        &[("fresh-announcements", OLD), ("fresh-announcements", NEW)],
    ),
    (
        Fault::PromisesSubscribe,
        &[("capability-promises", OLD), ("capability-promises", NEW)],
    ),
    (
        Fault::AdvertisesNothing,
        &[("capability-promises", OLD), ("capability-promises", NEW)],
    ),
    (Fault::IgnoresUnsubscribe, &[("unsubscribe-obeyed", OLD)]),
    (
        Fault::AnnouncesTwice,
        &[("duplicate-notices", OLD), ("duplicate-notices", NEW)],
    ),
    (Fault::AnnouncesBeforeInitialized, &[("initialized-first", OLD)]),
    (Fault::AcknowledgesLate, &[("filter-obeyed", NEW)]),
    (Fault::Untagged, &[("filter-obeyed", NEW)]),
    (Fault::TagsAsText, &[("filter-obeyed", NEW)]),
    (Fault::AcknowledgesMore, &[("filter-obeyed", NEW)]),
    (
        Fault::ReadsStale,
        &[("stale-read-after-notice", OLD), ("stale-read-after-notice", NEW)],
    ),
    (
        Fault::AcceptsUnknownUris,
        &[("unknown-uri", OLD), ("unknown-uri", NEW)],
    ),
    (
        Fault::WrongMethodCode,
        &[("error-codes", OLD), ("error-codes", NEW)],
    ),
    (
        Fault::AcceptsCursors,
        &[("error-codes", OLD), ("error-codes", NEW)],
    ),
    (
        Fault::NeverAnnounces,
        &[("subscribe-obeyed", OLD), ("listen-obeyed", NEW)],
    ),
    (
        Fault::HidesListChanges,
        &[("list-changed-obeyed", OLD), ("list-changed-obeyed", NEW)],
    ),
    (
        Fault::FloodsUpdates,
        &[("spurious-updates", OLD), ("spurious-updates", NEW)],
    ),
    (
        Fault::AnnouncesOnSubscribe,
        &[("spurious-updates", OLD), ("spurious-updates", NEW)],
    ),
    (Fault::AnnouncesStrangers, &[("spurious-updates", OLD)]),
    (
        Fault::AnnouncesToAll,
        &[("spurious-updates", OLD), ("capability-promises", OLD)],
    ),
    (Fault::FailsOnInitialize, &[("opening-answered", OLD)]),
    (Fault::ModernAlone, &[]),
    (Fault::KeepsDeletedSessions, &[("graceful-end", OLD)]),
    (Fault::FailsOnDelete, &[("graceful-end", OLD)]),
    (Fault::EndsSessionsItself, &[]),
    (Fault::RefusesStream, &[("capability-promises", OLD)]),
    (Fault::GrantsNoLists, &[("capability-promises", NEW)]),
    (Fault::GrantsNoResources, &[("capability-promises", NEW)]),
    (Fault::SendsUnrequested, &[("filter-obeyed", NEW)]),
    (Fault::AnnouncesUnadvertised, &[("capability-promises", OLD)]),
    (Fault::RefusesUnsubscribe, &[("unsubscribe-obeyed", OLD)]),
    (Fault::ListsNothing, &[("unknown-uri", OLD), ("unknown-uri", NEW)]),
    (
        Fault::ReadsFirstContent,
        &[("stale-read-after-notice", OLD), ("stale-read-after-notice", NEW)],
    ),
    (
        Fault::WrongResourceCode,
        &[("error-codes", OLD), ("error-codes", NEW)],
    ),
    (
        Fault::ReadsUnknownUris,
        &[("error-codes", OLD), ("error-codes", NEW)],
    ),
    (Fault::WrongMethodStatus, &[("error-codes", NEW)]),
    (Fault::None, &[]),
];

/// The faults that a program alone can have, or that count differently there.
const FOUND_IN_PROGRAMS: [(Fault, &[(&str, &str)]); 4] = [
    (Fault::IgnoresCancellation, &[("unsubscribe-obeyed", NEW)]),
    (Fault::TagsAsText, &[("filter-obeyed", NEW)]),
    (Fault::IgnoresUnsubscribe, &[("unsubscribe-obeyed", OLD)]),
    (Fault::None, &[]),
];

/// The faults that are warnings.
const WARNINGS: [Fault; 11] = [
    Fault::EndsSessionsItself,
    Fault::ListsNothing,
    Fault::AnnouncesOnSubscribe,
    Fault::AnnouncesStrangers,
    Fault::ModernAlone,
    Fault::FloodsFreshSessions,
    Fault::AnnouncesTwice,
    Fault::AnnouncesBeforeInitialized,
    Fault::AcceptsUnknownUris,
    Fault::AcceptsCursors,
    Fault::None,
];

#[tokio::test]
async fn each_fault_fails_its_checks_only() {
    // Most of a run is the quiet time, so the runs share it.
    let runs = FOUND.map(|(fault, expected)| {
        // All of them would be too large for the stack of a test.
        Box::pin(async move {
            let report = check(fault, |_| ()).await;
            assert_eq!(failures(&report), expected, "{fault:?}: {report}");
            let has_errors = report.worst() == Some(Severity::Error);
            assert_eq!(has_errors, !WARNINGS.contains(&fault), "{fault:?}: {report}");
        })
    });
    futures_util::future::join_all(runs).await;
}

#[tokio::test]
async fn era_that_hangs_is_an_error() {
    for (fault, revision, spoken) in [
        (Fault::HangsOnInitialize, OLD, NEW),
        (Fault::HangsOnDiscover, NEW, OLD),
    ] {
        let report = check(fault, |options| {
            options.quiet_time = SHORT;
            options.start_timeout = Duration::from_secs(2);
        })
        .await;
        assert_eq!(failures(&report), [("opening-answered", revision)], "{report}");
        assert_eq!(report.revisions, [spoken]);
        assert_eq!(report.worst(), Some(Severity::Error));
        assert!(report.to_string().contains("--start-timeout"), "{report}");
    }
}

/// Checks the server as a program, which runs `last` when its input has ended.
async fn check_program(fault: Fault, last: &str, change: impl FnOnce(&mut Options)) -> Report {
    let server = FaultyServer::start(fault).await;
    let mut options = options(&server.touch());
    change(&mut options);
    let target = Target::command(server.program(last)).unwrap();
    let report = run(&target, &options).await.unwrap();
    assert_eq!(report.incomplete, None, "{report}");
    report
}

#[tokio::test]
async fn each_fault_of_a_program_fails_its_checks_only() {
    let runs = FOUND_IN_PROGRAMS.map(|(fault, expected)| async move {
        let report = check_program(fault, ":", |_| ()).await;
        assert_eq!(failures(&report), expected, "{fault:?}: {report}");
    });
    futures_util::future::join_all(runs).await;
}

#[tokio::test]
async fn program_that_outlives_its_input_is_found() {
    for (last, severity) in [
        ("exec sleep 60", Severity::Warning),
        ("trap '' TERM; exec sleep 60", Severity::Error),
    ] {
        let report = check_program(Fault::None, last, |options| {
            options.era = Era::Legacy;
            options.touch = None;
            options.quiet_time = SHORT;
        })
        .await;
        assert_eq!(failures(&report), [("graceful-end", OLD)], "{report}");
        assert_eq!(report.worst(), Some(severity), "{report}");
    }
}

#[tokio::test]
async fn program_may_keep_silent_on_discover() {
    let report = check_program(Fault::HangsOnDiscover, ":", |options| {
        options.quiet_time = SHORT;
        options.start_timeout = Duration::from_secs(2);
    })
    .await;
    assert_eq!(failures(&report), [("opening-answered", NEW)], "{report}");
    assert_eq!(report.worst(), Some(Severity::Warning), "{report}");
}

#[tokio::test]
async fn missing_acknowledgement_is_an_error() {
    let report = check(Fault::NeverAcknowledges, |options| {
        options.quiet_time = SHORT;
        options.answer_timeout = Duration::from_secs(2);
    })
    .await;
    assert_eq!(failures(&report), [("capability-promises", NEW)], "{report}");
    assert!(
        report.to_string().contains("no acknowledgement in time"),
        "{report}"
    );
}

#[tokio::test]
async fn slow_start_differs_from_slow_answers() {
    let report = check(Fault::StartsSlowly, |options| {
        options.quiet_time = SHORT;
        options.answer_timeout = Duration::from_secs(5);
    })
    .await;
    assert_eq!(failures(&report), [], "{report}");
    assert_eq!(report.revisions, [OLD, NEW]);
}

#[tokio::test]
async fn late_welcome_is_no_announcement() {
    let report = check(Fault::WelcomesSlowly, |options| options.quiet_time = SHORT).await;
    assert_eq!(failures(&report), [], "{report}");
    let fresh = report
        .checks
        .iter()
        .find(|finding| finding.id == "fresh-announcements");
    let seen = &fresh.expect("it is checked").seen;
    assert!(seen.contains("1 tools/list_changed"), "{seen}");
}

#[tokio::test]
async fn unimplemented_subscription_is_no_refusal() {
    let report = check(Fault::PromisesSubscribe, |options| options.quiet_time = SHORT).await;
    let unknown = report.checks.iter().filter(|finding| finding.id == "unknown-uri");
    let verdicts: Vec<Verdict> = unknown.map(|finding| finding.verdict).collect();
    assert_eq!(verdicts, [Verdict::Skipped, Verdict::Skipped], "{report}");
}

#[tokio::test]
async fn tool_changes_the_resource() {
    let report = check(Fault::None, |options| {
        options.touch = None;
        options.touch_tools = vec![ToolCall::parse(r#"append={"text": "{n}"}"#).unwrap()];
    })
    .await;
    assert_eq!(failures(&report), [], "{report}");
    for id in ["subscribe-obeyed", "listen-obeyed", "list-changed-obeyed"] {
        let mut found = report.checks.iter().filter(|finding| finding.id == id);
        assert!(found.all(|finding| finding.verdict == Verdict::Pass), "{report}");
    }
}

#[tokio::test]
async fn change_without_an_effect_is_incomplete() {
    let server = FaultyServer::start(Fault::None).await;
    let target = Target::http(&server.url).unwrap();
    let mut options = options("true");
    options.wait = SHORT;
    options.quiet_time = SHORT;
    let report = run(&target, &options).await.unwrap();
    assert_eq!(failures(&report), [], "{report}");
    let reason = report.incomplete.unwrap();
    assert!(reason.contains("left the content of the resource"), "{reason}");
    options.touch = None;
    options.touch_tools = vec![ToolCall::parse("gone").unwrap()];
    let reason = run(&target, &options).await.unwrap().incomplete.unwrap();
    assert!(
        reason.contains("the tool gone of --touch-tool failed: no such tool"),
        "{reason}"
    );
}

#[tokio::test]
async fn server_without_a_fault_passes() {
    let report = check(Fault::None, |options| options.quiet_time = SHORT).await;
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
async fn silent_stream_is_worth_knowing() {
    let report = check(Fault::None, |options| {
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
async fn era_option_limits_the_revisions() {
    for (era, revision) in [(Era::Legacy, OLD), (Era::Modern, NEW)] {
        let report = check(Fault::None, |options| {
            options.era = era;
            options.touch = None;
            options.quiet_time = SHORT;
        })
        .await;
        assert_eq!(report.revisions, [revision]);
    }
}

#[tokio::test]
async fn unfinished_run_is_incomplete_and_an_error() {
    let server = FaultyServer::start(Fault::None).await;
    let target = Target::http(&server.url).unwrap();
    let report = run(&target, &options("exit 3")).await.unwrap();
    let reason = report.incomplete.clone().unwrap();
    assert!(reason.contains("the --touch command failed"), "{reason}");
    assert_eq!(report.worst(), Some(Severity::Error));
    let mut hasty = options(&server.touch());
    hasty.quiet_time = Duration::from_secs(5);
    hasty.timeout = Duration::from_millis(900);
    let report = run(&target, &hasty).await.unwrap();
    assert!(report.incomplete.unwrap().contains("--timeout"));
}

#[tokio::test]
async fn missing_server_differs_from_other_program() {
    let free = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", free.local_addr().unwrap());
    drop(free);
    let ended = run(&Target::http(&url).unwrap(), &Options::default()).await;
    assert!(matches!(ended, Err(CheckError::Unreachable { .. })), "{ended:?}");
    let ended = run(
        &Target::command(vec!["true".into()]).unwrap(),
        &Options::default(),
    )
    .await;
    assert!(matches!(ended, Err(CheckError::NoServer { .. })), "{ended:?}");
}

/// Runs the program; returns its exit code and its report.
async fn tidings_check(arguments: &[&str]) -> (Option<i32>, serde_json::Value) {
    let output = tokio::process::Command::new(binary())
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .args(["check", "--json", "--quiet-time", "1"])
        .args(arguments)
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(Duration::from_secs(90), output).await;
    let output = output.expect("the run has a limit").expect("the program starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    let report = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {errors}"));
    (output.status.code(), report)
}

fn assert_passed(report: &serde_json::Value, id: &str, revision: &str) {
    let findings = report["checks"].as_array().expect("findings");
    let mut findings = findings
        .iter()
        .filter(|finding| finding["id"] == id && finding["revision"] == revision);
    let finding = findings.next().expect(id);
    assert_eq!(finding["verdict"], "pass", "{finding:#}");
}

fn assert_clean((code, report): (Option<i32>, serde_json::Value)) {
    assert_eq!(code, Some(0), "{report:#}");
    assert_eq!(report["revisions"], serde_json::json!([OLD, NEW]));
    for revision in [OLD, NEW] {
        for id in [
            "spurious-list-changed",
            "duplicate-notices",
            "stale-read-after-notice",
            "error-codes",
        ] {
            assert_passed(&report, id, revision);
        }
    }
    assert_passed(&report, "subscribe-obeyed", OLD);
    assert_passed(&report, "listen-obeyed", NEW);
    assert_passed(&report, "filter-obeyed", NEW);
}

#[tokio::test]
async fn service_is_clean_over_http() {
    let server = Server::with("[workspace]\ndebounce = \"10ms\"\n").await;
    server.write_file("a.txt", "0");
    server.until_listed("workspace:///a.txt").await;
    let url = format!("http://{}/mcp", server.address);
    let touch = format!("printf x >> '{}'", server.file("a.txt").display());
    assert_clean(tidings_check(&["--uri", "workspace:///a.txt", "--touch", &touch, &url]).await);
}

#[tokio::test]
async fn service_is_clean_over_stdio() {
    let folder = service_folder("[workspace]\ndebounce = \"10ms\"\n");
    let file = folder.path().join("resources/a.txt");
    std::fs::write(&file, "0").unwrap();
    let touch = format!("printf x >> '{}'", file.display());
    let config = folder.path().join("tidings.toml");
    let [folder, config] = [folder.path(), &config].map(|path| path.to_str().expect("a plain path"));
    let uri = "workspace:///a.txt";
    let server = [binary(), "serve", folder, "--config", config, "--stdio"];
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
async fn warnings_end_the_program_with_3() {
    let server = FaultyServer::start(Fault::AcceptsUnknownUris).await;
    let (code, report) = tidings_check(&["--uri", URI, &server.url]).await;
    assert_eq!(code, Some(3), "{report:#}");
}
