//! `tidings store`: a backup of a running service, restored into another folder.

use std::path::Path;
use std::process::{Command, Output};

use super::home::Home;
use crate::mcp::server::binary;

/// Runs `tidings store` with these arguments.
fn store(arguments: &[&str]) -> Output {
    Command::new(binary())
        .arg("store")
        .args(arguments)
        .output()
        .unwrap()
}

/// Runs a command that must succeed, and returns its output.
fn succeed(arguments: &[&str]) -> String {
    let output = store(arguments);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[tokio::test]
async fn backup_of_a_running_service_is_restored() {
    let mut home = Home::new("");
    let life = home.start().await;
    let mut connection = life.connect();
    let long = "x".repeat(100_000);
    let short_etag = connection.put_etag("demo://short", "one").await;
    let long_etag = connection.put_etag("demo://long", &long).await;

    // The folder is in use, and the refusal names the way that works.
    let refused = store(&["backup", "--data", text(home.data())]);
    let error = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(1), "{error}");
    assert!(error.contains("tidings store backup --url"), "{error}");

    let url = format!("http://{}", life.target.address);
    let file = home.file("backup.ndjson");
    succeed(&["backup", "--url", &url, text(&file)]);
    connection.put_etag("demo://short", "two").await;
    life.end().await;

    // The copy has the state of the backup.
    let restored = home.file("restored");
    let said = succeed(&["restore", "--data", text(&restored), text(&file)]);
    assert!(
        said.contains("restored 2 URIs") && said.contains("a new epoch"),
        "{said}"
    );
    let counts = succeed(&["check", "--data", text(&restored)]);
    assert!(counts.contains("bodies             2\n"), "{counts}");
    succeed(&["compact", "--data", text(&restored)]);
    home.set_data(restored);
    let life = home.start().await;
    let mut connection = life.connect();
    for (uri, body, etag) in [
        ("demo://short", "one", short_etag),
        ("demo://long", &long, long_etag),
    ] {
        let answer = connection.get(uri).await.unwrap();
        assert_eq!(answer.head.etag(), Some(etag.as_str()), "{uri}");
        assert_eq!(answer.body, body.as_bytes(), "{uri}");
    }
    life.end().await;
}

#[tokio::test]
async fn service_without_a_store_has_no_backup() {
    let home = Home::without_store("");
    let life = home.start().await;
    let url = format!("http://{}", life.target.address);
    let refused = store(&["backup", "--url", &url]);
    let error = String::from_utf8(refused.stderr).unwrap();
    assert!(
        error.contains("has no store to back up (HTTP 404)") && error.contains("serve --data DIR"),
        "{error}"
    );
    life.end().await;
}
