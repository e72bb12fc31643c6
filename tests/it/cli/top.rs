//! `tidings top`: one look as text, and the screen of a terminal.

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};

use nix::pty::{Winsize, openpty};
use serde_json::Value;

use super::{User, slow_session};
use crate::mcp::http::within;
use crate::mcp::server::{Server, binary};

#[tokio::test]
async fn one_look_shows_sessions_and_rates() {
    let server = Server::start().await;
    let user = User::new();
    let url = server.address.to_string();
    slow_session(&server).await;
    let look = user.run(&["top", "--url", &url]).await.good();
    assert!(
        look.contains("sessions 1 ") && look.contains("changes "),
        "{look}"
    );
    assert!(look.contains("\nSESSION ") && look.contains("\ns1 "), "{look}");
    let look = user.run(&["top", "--json", "--url", &url]).await.good();
    let look: Value = serde_json::from_str(&look).unwrap();
    assert_eq!(look["sessions"][0]["id"], "s1");
    assert!(look["figures"]["rss"].as_f64().unwrap() > 1e6, "{look}");
    assert_eq!(look["store"]["state"], "ok");
}

#[tokio::test]
async fn service_without_figures_shows_sessions() {
    let server = Server::with("[metrics]\nenabled = false\n").await;
    slow_session(&server).await;
    let url = server.address.to_string();
    let look = User::new().run(&["top", "--url", &url]).await.good();
    assert!(look.contains("no figures: ") && look.contains("\ns1 "), "{look}");
}

#[tokio::test]
async fn colours_follow_the_option() {
    let server = Server::start().await;
    slow_session(&server).await;
    let url = server.address.to_string();
    let user = User::new();
    for command in ["top", "sessions"] {
        let arguments = |color| [command, "--url", &url, "--color", color];
        assert!(!user.run(&arguments("auto")).await.good().contains('\u{1b}'));
        assert!(!user.run(&arguments("never")).await.good().contains('\u{1b}'));
        let colored = user.run(&arguments("always")).await.good();
        assert!(colored.contains("\u{1b}[2maway\u{1b}[0m"), "{colored:?}");
    }
    let help = user.run(&["ls", "-h", "--color", "always"]).await.good();
    assert!(help.contains('\u{1b}'), "{help:?}");
}

#[tokio::test]
async fn quiet_and_verbose_change_standard_error() {
    let server = Server::start().await;
    for _ in 0..2 {
        slow_session(&server).await;
    }
    let url = server.address.to_string();
    let user = User::new();
    let ended = user.run(&["sessions", "-n", "1", "--url", &url]).await;
    assert!(ended.err.contains("1 of 2 are shown"), "{ended:?}");
    let ended = user.run(&["sessions", "-n", "1", "-q", "--url", &url]).await;
    assert_eq!((ended.code, ended.err.as_str()), (0, ""));
    let ended = user.run(&["-v", "sessions", "--url", &url]).await;
    assert!(
        ended.err.contains("/v1/sessions?") && ended.err.contains("status=200"),
        "{ended:?}"
    );
    let ended = user.run(&["sessions", "-q", "--url", "127.0.0.1:1"]).await;
    assert!(ended.err.starts_with("error: cannot reach"), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn q_gives_the_terminal_back() {
    let server = Server::start().await;
    let size = Winsize {
        ws_row: 10,
        ws_col: 60,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    let pty = openpty(&size, None).unwrap();
    let before = nix::sys::termios::tcgetattr(&pty.slave).unwrap();
    let terminal = |of: &OwnedFd| Stdio::from(of.try_clone().unwrap());
    let mut child = Command::new(binary())
        .args(["top", "--url", &server.address.to_string()])
        .env("XDG_CONFIG_HOME", "/nowhere")
        .stdin(terminal(&pty.slave))
        .stdout(terminal(&pty.slave))
        .stderr(terminal(&pty.slave))
        .spawn()
        .unwrap();
    let mut master = std::fs::File::from(pty.master);
    let shown = tokio::task::spawn_blocking(move || {
        let mut shown = Vec::new();
        let mut part = [0; 4096];
        while !String::from_utf8_lossy(&shown).contains("SESSION") {
            let count = master.read(&mut part).unwrap();
            shown.extend_from_slice(&part[..count]);
        }
        master.write_all(b"q").unwrap();
        (String::from_utf8_lossy(&shown).into_owned(), master)
    });
    let (shown, _master) = within("the screen", shown).await.unwrap();
    assert!(shown.contains("q quits"), "{shown:?}");
    let ended = tokio::task::spawn_blocking(move || child.wait().unwrap());
    assert_eq!(within("the end", ended).await.unwrap().code(), Some(0));
    let after = nix::sys::termios::tcgetattr(&pty.slave).unwrap();
    assert_eq!(before.local_flags, after.local_flags);
}
