//! The story of `docs/workspace.md`, told by its own commands: each block of shell is run as it stands, against the
//! real service on a copy of the example.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const PAGE: &str = include_str!("../../docs/workspace.md");
/// The address on the page.
const ADDRESS: &str = "127.0.0.1:8808";
const DEADLINE: Duration = Duration::from_secs(10);

/// The service, ended with the test.
struct Service {
    process: Child,
    address: String,
}

impl Service {
    /// Serves `dir` on a free port.
    fn start(cwd: &Path, dir: &str) -> Service {
        let mut process = Command::new(env!("CARGO_BIN_EXE_tidings"))
            .args(["serve", dir, "--listen", "127.0.0.1:0"])
            .env("TIDINGS_REGISTER__REFRESH", "1s")
            .current_dir(cwd)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let address = line.trim().strip_prefix("tidings listening on http://").unwrap();
        let address = address.strip_suffix("/mcp").unwrap().to_owned();
        Service { process, address }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

/// The blocks of shell on the page.
fn blocks() -> Vec<&'static str> {
    PAGE.split("```sh\n")
        .skip(1)
        .map(|rest| rest.split("```").next().unwrap())
        .collect()
}

/// What `script` prints; it must succeed.
fn shell(cwd: &Path, script: &str) -> String {
    let ran = Command::new("sh")
        .args(["-euc", script])
        .current_dir(cwd)
        .output()
        .unwrap();
    let (out, err) = (
        String::from_utf8(ran.stdout).unwrap(),
        String::from_utf8(ran.stderr).unwrap(),
    );
    assert!(ran.status.success(), "{script}\n{out}\n{err}");
    out
}

#[test]
fn the_commands_of_the_page_do_what_it_says() {
    let cwd = tempfile::tempdir().unwrap();
    let cwd = cwd.path();
    symlink(
        Path::new(env!("CARGO_MANIFEST_DIR")).join("docs"),
        cwd.join("docs"),
    )
    .unwrap();
    let [start, function, calls, add, register] = blocks()[..] else {
        panic!("the page has other blocks of shell: {:?}", blocks())
    };
    let (prepare, serve) = start.split_once("tidings serve ").unwrap();
    shell(cwd, prepare);
    let service = Service::start(cwd, serve.trim());
    let function = function.replace(ADDRESS, &service.address);
    let ask = |commands: &str| shell(cwd, &format!("{function}\n{commands}"));

    let answers = ask(calls);
    assert!(
        answers.contains(r#""structuredContent":{"file":"hello.md","words":1}"#),
        "{answers}"
    );
    let filled = r#"Explain the word \"etag\" in three sentences.\nWrite for this reader: a child"#;
    assert!(answers.contains(filled), "{answers}");

    shell(cwd, add);
    wait("the new tool", || {
        ask("mcp tools/call weekday '{}'").contains("day")
    });

    shell(cwd, register);
    wait("what register prints", || {
        ask("mcp tools/call disk_free '{}'").contains("Filesystem")
    });
    assert!(ask("mcp prompts/get summary '{}'").contains("Summarise host://load."));

    let refused = ask(r#"mcp tools/call count_words '{"file":"../secret"}'"#);
    assert!(
        refused.contains(r#""isError":true"#) && refused.contains("/file: "),
        "{refused}"
    );
    fs::write(cwd.join("notes/resources/two.md"), "two words").unwrap();
    let counted = ask(r#"mcp tools/call count_words '{"file":"two.md"}'"#);
    assert!(counted.contains(r#""words":2"#), "{counted}");
}

fn wait(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !holds() {
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
