//! `tidings watch` at a server whose every text tries to steer the terminal.

use std::fs;
use std::process::Stdio;

use axum::Router;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader, Lines};
use tokio::process::{Child, Command};

use tidings::ResourceUri;

use crate::hostile_names::{assert_no_command, assert_tame, names};
use crate::mcp::http::within;
use crate::mcp::server::binary;

/// A server in shell: it has `demo://a`, whose etag is hostile, and refuses `demo://b` with a hostile text.
const SERVER: &str = r#"
hostile='\u001b[31mRED\u009b2J\u202e\nFAKE LINE'
while read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
  result='{}'
  case $line in
    *'"initialize"'*) result='{"protocolVersion":"2025-11-25","capabilities":{"resources":{"subscribe":true}},"serverInfo":{"name":"'$hostile'","version":"1"}}' ;;
    *demo://b*) printf '%s\n' '{"jsonrpc":"2.0","id":'$id',"error":{"code":-32002,"message":"'"$hostile"'"}}'; continue ;;
    *'"resources/read"'*) result='{"contents":[{"uri":"demo://a","text":"x"}],"_meta":{"io.github.tidings/etag":"v5-1'$hostile'"}}' ;;
  esac
  [ -z "$id" ] || printf '%s\n' '{"jsonrpc":"2.0","id":'$id',"result":'"$result"'}'
done
"#;

/// Starts a watch of `uri`.
fn watch(folder: &TempDir, uri: &str) -> Child {
    let server = folder.path().join("server.sh");
    fs::write(&server, SERVER).expect("a file");
    Command::new(binary())
        .args(["watch", uri, "--era", "legacy", "--log", "trace", "--", "/bin/sh"])
        .arg(&server)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("the binary starts")
}

#[tokio::test]
async fn hostile_etag_is_no_etag() {
    let folder = TempDir::new().expect("a folder");
    let mut watch = watch(&folder, "demo://a");
    let mut out = BufReader::new(watch.stdout.take().expect("stdout is piped")).lines();
    let line = within("the current version", out.next_line()).await;
    let line = line.expect("stdout is text").expect("the watch goes on");
    assert!(line.ends_with(" demo://a - current"), "{line:?}");
}

#[tokio::test]
async fn hostile_texts_are_printed_on_their_line() {
    let folder = TempDir::new().expect("a folder");
    let mut watch = watch(&folder, "demo://b");
    let mut told = String::new();
    let mut err = BufReader::new(watch.stderr.take().expect("stderr is piped")).lines();
    while !told.contains("waiting for it") {
        let line = within("a line about the refusal", err.next_line()).await;
        told.push_str(&line.expect("stderr is text").expect("the watch goes on"));
        told.push('\n');
    }
    assert!(told.contains("RED") && told.contains("FAKE LINE"), "{told}");
    assert_tame(&told);
}

/// Answers for a server that lists a resource with each hostile name, and one that it refuses with each
/// hostile text.
async fn answer(body: String) -> Response {
    let Ok(message) = serde_json::from_str::<Value>(&body) else {
        return StatusCode::METHOD_NOT_ALLOWED.into_response();
    };
    let names = names();
    let uri = message["params"]["uri"].as_str().unwrap_or_default();
    let refused = uri
        .strip_prefix("refused:")
        .map(|number| number.parse::<usize>().expect("a number"));
    let mut body = match (message["method"].as_str().unwrap_or_default(), refused) {
        _ if message["id"].is_null() => return StatusCode::ACCEPTED.into_response(),
        ("initialize", _) => json!({ "result": {
            "protocolVersion": "2025-11-25", "capabilities": { "resources": {} },
            "serverInfo": { "name": names.concat(), "title": names.concat(), "version": names.concat() },
        }}),
        ("resources/list", _) => {
            let mut items = Vec::new();
            for (number, name) in names.iter().enumerate() {
                items.push(json!({ "uri": format!("demo://{name}"), "name": name, "title": name }));
                items.push(json!({ "uri": format!("refused:{number}"), "name": name }));
            }
            json!({ "result": { "resources": items } })
        }
        (_, Some(number)) => json!({ "error": { "code": -32002, "message": names[number] } }),
        _ => json!({ "result": {
            "contents": [{ "uri": uri, "text": uri }],
            "_meta": { "io.github.tidings/etag": names.concat() },
        }}),
    };
    body["jsonrpc"] = json!("2.0");
    body["id"] = message["id"].clone();
    axum::Json(body).into_response()
}

/// Reads lines until `count` of them end as `is_wanted` asks for, and returns all.
async fn lines_until(
    lines: &mut Lines<BufReader<impl AsyncRead + Unpin>>,
    count: usize,
    is_wanted: impl Fn(&str) -> bool,
) -> String {
    let mut told = String::new();
    while told.lines().filter(|line| is_wanted(line)).count() < count {
        let line = within("a line of the watch", lines.next_line()).await;
        told.push_str(&line.expect("it is text").expect("the watch goes on"));
        told.push('\n');
    }
    told
}

#[tokio::test]
async fn every_resource_of_a_hostile_list_is_one_line() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, Router::new().fallback(answer)).await });
    let uris = names().into_iter().map(|name| format!("demo://{name}"));
    let watchable = uris.filter(|uri| ResourceUri::new(uri).is_ok()).count();
    assert!(watchable > 10, "{watchable} of the names can be watched");
    for options in [&["--lists"][..], &["--json"]] {
        let mut watch = Command::new(binary())
            .args(["watch", &url, "--all", "--era", "legacy"])
            .args(options)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("the binary starts");
        // Both stay open until the end: the watch ends when it cannot print.
        let mut out = BufReader::new(watch.stdout.take().expect("stdout is piped")).lines();
        let mut err = BufReader::new(watch.stderr.take().expect("stderr is piped")).lines();
        let (out, err) = tokio::join!(
            lines_until(&mut out, watchable + names().len(), |_| true),
            lines_until(&mut err, names().len(), |line| line.ends_with("; waiting for it")),
        );
        assert_tame(&out);
        let listed = out.lines().filter(|line| line.contains("demo://")).count();
        assert_eq!(listed, watchable, "{out}");
        assert_tame(&err);
        let missing = err.lines().filter(|line| line.starts_with("refused:")).count();
        assert_eq!(missing, names().len(), "{err}");
    }
}

#[tokio::test]
async fn error_output_of_a_server_is_marked() {
    let folder = TempDir::new().expect("a folder");
    let told = names().join("\n");
    fs::write(folder.path().join("told"), &told).expect("a file");
    let output = Command::new(binary())
        .args(["watch", "demo://a", "--", "sh", "-c", "cat told >&2"])
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = within("the end of the watch", output)
        .await
        .expect("the binary starts");
    assert_eq!(output.stdout, b"");
    let err = String::from_utf8(output.stderr).expect("stderr is text");
    assert_no_command(&err);
    let (theirs, ours): (Vec<&str>, Vec<&str>) = err.lines().partition(|line| line.starts_with("server: "));
    assert_eq!(theirs.len() % told.split('\n').count(), 0, "{err}");
    assert!(!theirs.is_empty(), "{err}");
    assert!(
        !ours.is_empty() && ours.iter().all(|line| line.starts_with("error: ")),
        "{ours:?}"
    );
}
