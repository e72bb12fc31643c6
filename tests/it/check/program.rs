//! The program: its annotations, its files, the file of a host, and servers on standard input and output.

use std::path::Path;
use std::process::Output;
use std::time::Duration;

use tempfile::TempDir;
use tokio::process::Command;

use super::faulty_server::{Fault, FaultyServer};
use crate::mcp::server::{binary, service_folder};

/// Runs the program with a variable of GitHub Actions, if `github` is true.
pub(super) async fn check_in(folder: &Path, arguments: &[&str], github: bool) -> Output {
    let mut command = Command::new(binary());
    command
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .current_dir(folder)
        .args(["check", "--quiet-time", "200ms"])
        .args(arguments)
        .kill_on_drop(true);
    if github {
        command.env("GITHUB_ACTIONS", "true");
    }
    let output = tokio::time::timeout(Duration::from_secs(120), command.output()).await;
    output.expect("the run has a limit").expect("the program starts")
}

pub(super) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("it is text")
}

#[tokio::test]
async fn report_has_all_its_forms() {
    let folder = TempDir::new().unwrap();
    let server = FaultyServer::start(Fault::AcceptsUnknownUris).await;
    let output = check_in(folder.path(), &[&server.url, "--junit", "report.xml"], true).await;
    let out = text(&output.stdout);
    let err = text(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{out}{err}");
    assert!(out.contains("warnings\n  ! unknown-uri [2025-11-25]"), "{out}");
    assert!(
        err.lines()
            .any(|line| line.starts_with("::warning title=unknown-uri [2025-11-25]::a sub")),
        "{err}"
    );
    let junit = std::fs::read_to_string(folder.path().join("report.xml")).unwrap();
    assert!(
        junit.contains(r#"name="unknown-uri"><failure type="warning""#),
        "{junit}"
    );
    let output = check_in(folder.path(), &[&server.url, "-q"], false).await;
    assert_eq!(text(&output.stderr), "");
}

#[tokio::test]
async fn missing_server_is_written_too() {
    let folder = TempDir::new().unwrap();
    let free = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", free.local_addr().unwrap());
    drop(free);
    let output = check_in(folder.path(), &[&url, "--junit", "report.xml", "--github"], false).await;
    assert_eq!(output.status.code(), Some(69));
    assert!(text(&output.stderr).starts_with("::error title=tidings check::cannot reach"));
    let junit = std::fs::read_to_string(folder.path().join("report.xml")).unwrap();
    assert!(junit.contains(r#"errors="1""#), "{junit}");
}

/// Writes a server that hands its input on to the service, unless its first line has `word`; then it runs
/// `instead`.
fn write_launcher(folder: &Path, word: &str, instead: &str) {
    let script = format!(
        "read -r line\ncase $line in *{word}*) {instead};; esac\n(printf '%s\\n' \"$line\"; cat) | '{}' serve \"$FOLDER\" --stdio\n",
        binary()
    );
    std::fs::write(folder.join("launch.sh"), script).unwrap();
}

#[tokio::test]
async fn host_file_starts_a_program_that_dies() {
    let service = service_folder("");
    let folder = TempDir::new().unwrap();
    let host = serde_json::json!({"servers": {"notes": {
        "type": "stdio", "command": "sh", "args": ["${workspaceFolder}/launch.sh"],
        "env": {"FOLDER": service.path()},
    }}});
    std::fs::create_dir(folder.path().join(".vscode")).unwrap();
    std::fs::write(
        folder.path().join(".vscode/mcp.json"),
        format!("// of VS Code\n{host}"),
    )
    .unwrap();
    for (word, revision, code) in [
        ("initialize", "2025-11-25", 1),
        ("server/discover", "2026-07-28", 3),
        ("nothing", "", 0),
    ] {
        write_launcher(folder.path(), word, "exit 7");
        let arguments = ["--config", ".vscode/mcp.json", "--server", "notes"];
        let output = check_in(folder.path(), &arguments, false).await;
        let out = text(&output.stdout);
        let err = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{word}: {out}{err}");
        let failure = format!("opening-answered [{revision}]: the revision cannot be used: ");
        assert_eq!(out.contains(&failure), code != 0, "{word}: {out}");
        assert_eq!(out.contains("exit status: 7"), code != 0, "{word}: {out}");
    }
    let output = check_in(folder.path(), &["--config", "gone.json"], false).await;
    assert_eq!(output.status.code(), Some(78));
    assert!(text(&output.stderr).contains("gone.json: cannot be read"));
}
