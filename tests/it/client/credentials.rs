//! The credentials of our clients: sent with every request to the server that is named, renewed, and neither
//! sent elsewhere nor printed.

use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Duration;

use axum::http::StatusCode;
use tidings::client::{ConnectError, Credentials, Era, Target, WatchOptions, Watcher};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

use super::guarded::{Guarded, Seen, redirecting};
use super::{BOTH_ERAS, change, changed, quick, soon, watch};

const A: &str = "demo://a";
const SECRET: &str = "s3cr3t-t0k3n-of-the-test";
const KEY: &str = "s3cr3t-k3y-of-the-test";

fn bearer(token: &str) -> String {
    format!("Bearer {token}")
}

fn token_file(dir: &Path, token: &str) -> std::path::PathBuf {
    let path = dir.join("token");
    std::fs::write(&path, token).unwrap();
    path
}

pub(super) fn with(credentials: Credentials) -> WatchOptions {
    let mut options = quick();
    options.credentials = credentials;
    options
}

async fn connect(server: &Guarded, era: Era, credentials: Credentials) -> Result<Watcher, ConnectError> {
    let target = Target::http(&server.url("/mcp")).unwrap();
    soon(Watcher::connect_with(target, era, with(credentials))).await
}

fn assert_presented(seen: &[Seen]) {
    assert!(!seen.is_empty());
    for request in seen {
        let authorization: Vec<_> = request.headers.get_all("authorization").iter().collect();
        assert_eq!(authorization, [&bearer(SECRET)], "{}", request.line);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watcher_presents_headers_and_token() {
    for (era, strategy) in BOTH_ERAS {
        let server = Guarded::start(&[&bearer(SECRET)]).await;
        server.put(A, "one").await;
        let credentials = Credentials::default().with_token(SECRET).unwrap();
        let credentials = credentials.with_header("X-Key", KEY).unwrap();
        let mut watcher = connect(&server, era, credentials).await.unwrap();
        watch(&mut watcher, &[A]).await;
        let etag = server.put(A, "two").await;
        assert_eq!(change(&mut watcher).await, changed(A, Some(&etag), strategy));
        watcher.close().await;
        let seen = server.gate.seen();
        assert_presented(&seen);
        for request in seen {
            assert_eq!(request.headers["x-key"], KEY, "{}", request.line);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watch_goes_on_with_a_replaced_token() {
    for (era, strategy) in BOTH_ERAS {
        let dir = tempfile::tempdir().unwrap();
        let path = token_file(dir.path(), "first");
        let server = Guarded::start(&[&bearer("first")]).await;
        server.put(A, "one").await;
        let credentials = Credentials::default().with_token_file(&path);
        let mut watcher = connect(&server, era, credentials).await.unwrap();
        watch(&mut watcher, &[A]).await;
        for (index, token) in ["second", "third-token"].into_iter().enumerate() {
            // The token ends, and with it every stream; what changes meanwhile is told afterwards.
            server.gate.accept(&[&bearer(token)]);
            server.gate.end_streams();
            let missed = server.put(A, &format!("missed {index}")).await;
            token_file(dir.path(), token);
            assert_eq!(change(&mut watcher).await.1, Some(missed), "{era:?}");
            let etag = server.put(A, &format!("told {index}")).await;
            assert_eq!(change(&mut watcher).await, changed(A, Some(&etag), strategy));
        }
        watcher.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refusal_names_the_needed_scope() {
    let server = Guarded::start(&[]).await;
    for (status, challenge, credentials, expected) in [
        (
            401,
            "Bearer resource_metadata=\"http://h/x\", scope=\"read list\"",
            Credentials::default(),
            "it asks for credentials (HTTP 401; needed scope: read list)",
        ),
        (
            401,
            "",
            Credentials::default(),
            "it asks for credentials (HTTP 401)",
        ),
        (
            401,
            "Bearer error=\"invalid_token\"",
            Credentials::default().with_token(SECRET).unwrap(),
            "it refuses the credentials (HTTP 401, invalid_token)",
        ),
        (
            403,
            "Bearer error=\"insufficient_scope\", scope=\"write\"",
            Credentials::default().with_token(SECRET).unwrap(),
            "the credentials lack a scope (HTTP 403, insufficient_scope; needed scope: write)",
        ),
        (
            403,
            "",
            Credentials::default().with_token(SECRET).unwrap(),
            "the credentials have no right to this (HTTP 403)",
        ),
    ] {
        server.gate.challenge(status, challenge);
        for era in [Era::Auto, Era::Modern, Era::Legacy] {
            let error = connect(&server, era, credentials.clone()).await.unwrap_err();
            assert!(matches!(error, ConnectError::Denied { .. }), "{era:?}: {error:?}");
            let text = error.to_string();
            assert!(text.ends_with(expected), "{era:?}: {text}");
            assert!(!text.contains(SECRET), "{text}");
        }
    }
}

#[tokio::test]
async fn missing_token_file_ends_the_first_connection() {
    let server = Guarded::start(&[]).await;
    let credentials = Credentials::default().with_token_file("/nowhere/token");
    let error = connect(&server, Era::Auto, credentials).await.unwrap_err();
    assert!(matches!(error, ConnectError::Credentials(_)), "{error:?}");
    assert!(
        error.to_string().contains("/nowhere/token: No such file"),
        "{error}"
    );
    assert!(server.gate.seen().is_empty());
}

/// Returns the program with every log at its finest, and a secret in its environment.
pub(super) fn program(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidings"));
    command
        .args(arguments)
        .env("RUST_LOG", "trace")
        .env("TIDINGS_LOG", "trace")
        .env("TIDINGS_TOKEN", SECRET)
        .stdin(Stdio::null())
        .kill_on_drop(true);
    command
}

async fn run(arguments: &[&str]) -> Output {
    soon(program(arguments).output()).await.unwrap()
}

/// Runs the program until its standard error has `text`, and returns all of its output so far.
pub(super) async fn run_until(arguments: &[&str], text: &str) -> String {
    let mut child = program(arguments)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut all = String::new();
    while !all.contains(text) {
        let line = soon(lines.next_line()).await.unwrap();
        let line = line.unwrap_or_else(|| panic!("it ended without {text:?}: {all}"));
        all.push_str(&line);
        all.push('\n');
    }
    child.kill().await.unwrap();
    all
}

pub(super) fn texts(output: &Output) -> String {
    let out = String::from_utf8_lossy(&output.stdout);
    let err = String::from_utf8_lossy(&output.stderr);
    format!("{out}{err}")
}

fn assert_hidden(text: &str) {
    assert!(!text.contains(SECRET) && !text.contains(KEY), "{text}");
}

/// The subcommands that speak to a server, for the addresses of the endpoint and of the service.
pub(super) fn commands<'u>(mcp: &'u str, service: &'u str) -> Vec<Vec<&'u str>> {
    vec![
        vec!["publish", A, "--url", service],
        vec!["store", "backup", "--url", service],
        vec!["check", mcp, "--quiet-time", "0.1", "--timeout", "20"],
        vec![
            "bench",
            mcp,
            "--passive",
            "--uri-template",
            A,
            "--resources",
            "1",
            "--sessions",
            "2",
            "--duration",
            "200ms",
            "--warm-up",
            "0s",
            "--settle",
            "100ms",
        ],
        vec!["watch", mcp, A],
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_command_presents_and_hides_its_token() {
    let server = Guarded::start(&[&bearer(SECRET)]).await;
    server.put(A, "one").await;
    let mcp = server.url("/mcp");
    let service = server.url("");
    let header = format!("X-Key: {KEY}");
    for mut arguments in commands(&mcp, &service) {
        arguments.extend(["--header", &header]);
        let before = server.gate.seen().len();
        let text = match arguments[0] {
            "watch" => run_until(&arguments, "listening to").await,
            _ => {
                let output = run(&arguments).await;
                let text = texts(&output);
                let code = output.status.code();
                // A check that finds faults in this server has spoken with it all the same.
                assert!(
                    arguments[0] == "check" || code == Some(0),
                    "{arguments:?}: {text}"
                );
                text
            }
        };
        assert_hidden(&text);
        let seen = server.gate.seen().split_off(before);
        assert_presented(&seen);
        assert_eq!(seen[0].headers["x-key"], KEY, "{arguments:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_command_names_the_refusal() {
    let server = Guarded::start(&[]).await;
    server
        .gate
        .challenge(403, "Bearer error=\"insufficient_scope\", scope=\"all\"");
    let mcp = server.url("/mcp");
    let service = server.url("");
    for mut arguments in commands(&mcp, &service) {
        if arguments[0] == "bench" {
            // The first request of a passive run opens a session, whose failure is one of the load.
            arguments.retain(|argument| *argument != "--passive");
        }
        let output = run(&arguments).await;
        let text = texts(&output);
        assert_eq!(output.status.code(), Some(77), "{arguments:?}: {text}");
        assert!(
            text.contains("does not let this client in: the credentials lack a scope (HTTP 403"),
            "{text}"
        );
        assert!(
            text.contains("needed scope: all") && text.contains("--token-file"),
            "{text}"
        );
        assert_hidden(&text);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redirect_to_another_origin_gets_nothing() {
    let other = Guarded::start(&[]).await;
    for status in [
        StatusCode::FOUND,
        StatusCode::TEMPORARY_REDIRECT,
        StatusCode::PERMANENT_REDIRECT,
    ] {
        let address = redirecting(status, other.url("")).await;
        let service = format!("http://{address}");
        let mcp = format!("{service}/mcp");
        let header = format!("X-Key: {KEY}");
        for mut arguments in commands(&mcp, &service) {
            if arguments[0] == "bench" {
                arguments.extend(["--open-timeout", "500ms"]);
            }
            arguments.extend(["--header", &header]);
            let output = tokio::time::timeout(Duration::from_secs(60), program(&arguments).output());
            let output = output.await.expect("it ends by itself").unwrap();
            assert_ne!(output.status.code(), Some(0), "{arguments:?}");
            assert_hidden(&texts(&output));
            assert!(
                other.gate.seen().is_empty(),
                "{arguments:?}: {:?}",
                other.gate.seen()
            );
        }
    }
}

#[tokio::test]
async fn address_with_a_password_is_refused_unseen() {
    for arguments in commands(
        "http://user:s3cr3t-k3y-of-the-test@h/mcp",
        "http://user:s3cr3t-k3y-of-the-test@h",
    ) {
        let output = run(&arguments).await;
        let text = texts(&output);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {text}");
        assert!(text.contains("a password is not accepted"), "{text}");
        assert_hidden(&text);
    }
}
