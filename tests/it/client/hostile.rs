//! `tidings watch` at a server whose every text tries to steer the terminal.

use std::fs;
use std::process::Stdio;

use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

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

/// True for the characters that move the cursor or turn the direction of a line.
fn steers(c: char) -> bool {
    c != '\n' && (c.is_control() || c == '\u{202e}')
}

fn assert_clean(text: &str) {
    assert!(!text.contains(steers), "{text:?}");
    assert!(!text.lines().any(|line| line.starts_with("FAKE")), "{text}");
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
    assert_clean(&told);
}
