//! SIGHUP attaches and detaches sinks while the service runs; an invalid file changes nothing.

use std::fs;

use nix::sys::signal::Signal;

use super::receiver::{Receiver, SECRET};
use super::service::{Service, ServiceFolder};
use crate::support::until;

fn journal(name: &str) -> String {
    format!("[[journal]]\nname = '{name}'\nfile = '{name}.jsonl'\nkinds = ['updated']\n")
}

/// Returns the names of the attached sinks, without the history of `/v1/events`.
async fn sink_names(service: &Service<'_>) -> Vec<String> {
    let items = service.subscribers().await;
    let mut names: Vec<String> = items
        .iter()
        .map(|one| one["name"].as_str().unwrap().to_owned())
        .collect();
    names.retain(|name| name != "v1-events");
    names
}

#[tokio::test]
async fn sighup_attaches_and_detaches_sinks() {
    let receiver = Receiver::start([]).await;
    let folder = ServiceFolder::new(&format!("{}{}", journal("kept"), journal("old")));
    fs::write(folder.file("secret"), SECRET).unwrap();
    let service = folder.start().await;
    service.put("demo://a", "1").await;
    let hook = format!(
        "[[webhook]]\nname = 'new'\nurl = '{}'\nsecret_file = 'secret'\nallow_private = true\nkinds = ['updated']\n",
        receiver.url()
    );
    folder.configure(&format!("[session]\nmax = 5\n{}{hook}", journal("kept")));
    service.signal(Signal::SIGHUP);
    service
        .until("webhook/new", "its start", |one| one["health"] == "running")
        .await;
    service.until_logged("take effect at the next start").await;
    assert!(
        folder.text("log").contains("keys=session.max"),
        "{}",
        folder.text("log")
    );
    service.put("demo://a", "2").await;
    let got = receiver.until(1).await;
    assert!(got[0].body["data"]["etag"].as_str().unwrap().starts_with("v2-"));
    assert_eq!(sink_names(&service).await, ["journal/kept", "webhook/new"]);

    for (wrong, word) in [
        ("[[journal]]\nname = 'x'\n", "journal.file"),
        (
            &*hook.replace("'secret'", "'absent'"),
            "webhook/new cannot be used: no webhook secret in the file",
        ),
        (
            &*hook.replace("allow_private = true", ""),
            "127.0.0.1 is no public address",
        ),
    ] {
        folder.configure(wrong);
        service.signal(Signal::SIGHUP);
        service.until_logged(word).await;
        assert_eq!(sink_names(&service).await, ["journal/kept", "webhook/new"]);
    }
    assert_eq!(folder.text("log").matches("nothing was changed").count(), 3);
    service.put("demo://a", "3").await;
    service.end(Signal::SIGTERM).await;
    assert_eq!(
        (folder.lines("kept.jsonl").len(), folder.lines("old.jsonl").len()),
        (3, 1)
    );
    assert_eq!(receiver.received().len(), 2);
    assert!(!folder.text("log").contains(&SECRET[8..]));
}

#[tokio::test]
async fn unusable_sink_prevents_the_start() {
    let folder = ServiceFolder::new(
        "[[webhook]]\nname = 'a'\nurl = 'https://hooks.example/'\nsecret_variable = 'NO_SUCH_SECRET'\n",
    );
    assert!(!folder.run().await);
    let log = folder.text("log");
    assert!(
        log.contains(
            "webhook/a cannot be used: no webhook secret in the environment variable NO_SUCH_SECRET"
        ),
        "{log}"
    );
    folder.configure(&format!(
        "{}{}",
        journal("a"),
        journal("b").replace("b.jsonl", "a.jsonl")
    ));
    assert!(!folder.run().await);
    assert!(
        folder.text("log").contains("two sinks write to"),
        "{}",
        folder.text("log")
    );
}

#[tokio::test]
async fn queued_notices_are_written_before_the_end() {
    let folder = ServiceFolder::new(&journal("all"));
    let service = folder.start().await;
    for number in 0..50 {
        service.put("demo://a", &number.to_string()).await;
    }
    service.end(Signal::SIGTERM).await;
    until("the lines", async || folder.lines("all.jsonl").len() == 50).await;
}
