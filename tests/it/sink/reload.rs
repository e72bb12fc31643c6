//! SIGHUP: sinks come and go while the service runs; nothing else does, and a wrong file changes nothing.

use std::fs;

use nix::sys::signal::Signal;

use super::receiver::{Receiver, SECRET};
use super::service::Place;
use crate::support::until;

fn journal(name: &str) -> String {
    format!("[[journal]]\nname = '{name}'\nfile = '{name}.jsonl'\nkinds = ['updated']\n")
}

#[tokio::test]
async fn sinks_follow_the_file() {
    let receiver = Receiver::start([]).await;
    let place = Place::new(&format!("{}{}", journal("kept"), journal("old")));
    fs::write(place.file("secret"), SECRET).unwrap();
    let service = place.start().await;
    service.put("demo://a", "1").await;
    let hook = format!(
        "[[webhook]]\nname = 'new'\nurl = '{}'\nsecret_file = 'secret'\nallow_private = true\nkinds = ['updated']\n",
        receiver.url()
    );
    place.configure(&format!("[session]\nmax = 5\n{}{hook}", journal("kept")));
    service.signal(Signal::SIGHUP);
    service
        .until("webhook/new", "its start", |one| one["health"] == "running")
        .await;
    service.until_logged("take effect at the next start").await;
    assert!(
        place.text("log").contains("keys=session.max"),
        "{}",
        place.text("log")
    );
    service.put("demo://a", "2").await;
    let got = receiver.until(1).await;
    assert!(got[0].body["data"]["etag"].as_str().unwrap().starts_with("v2-"));
    // Beside what the file names, only the history of `/v1/events` is attached.
    let names = |items: Vec<serde_json::Value>| -> Vec<String> {
        let names = items.iter().map(|one| one["name"].as_str().unwrap());
        names
            .filter(|name| *name != "v1-events")
            .map(str::to_owned)
            .collect()
    };
    assert_eq!(
        names(service.subscribers().await),
        ["journal/kept", "webhook/new"]
    );

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
        place.configure(wrong);
        service.signal(Signal::SIGHUP);
        service.until_logged(word).await;
        assert_eq!(
            names(service.subscribers().await),
            ["journal/kept", "webhook/new"]
        );
    }
    assert_eq!(place.text("log").matches("nothing was changed").count(), 3);
    service.put("demo://a", "3").await;
    service.end(Signal::SIGTERM).await;
    assert_eq!(
        (place.lines("kept.jsonl").len(), place.lines("old.jsonl").len()),
        (3, 1)
    );
    assert_eq!(receiver.got().len(), 2);
    assert!(!place.text("log").contains(&SECRET[8..]));
}

#[tokio::test]
async fn a_sink_that_cannot_be_used_stops_the_start() {
    let place = Place::new(
        "[[webhook]]\nname = 'a'\nurl = 'https://hooks.example/'\nsecret_variable = 'NO_SUCH_SECRET'\n",
    );
    assert!(!place.run().await);
    let log = place.text("log");
    assert!(
        log.contains(
            "webhook/a cannot be used: no webhook secret in the environment variable NO_SUCH_SECRET"
        ),
        "{log}"
    );
    place.configure(&format!(
        "{}{}",
        journal("a"),
        journal("b").replace("b.jsonl", "a.jsonl")
    ));
    assert!(!place.run().await);
    assert!(
        place.text("log").contains("two sinks write to"),
        "{}",
        place.text("log")
    );
}

#[tokio::test]
async fn what_waits_is_written_before_the_service_ends() {
    let place = Place::new(&journal("all"));
    let service = place.start().await;
    for number in 0..50 {
        service.put("demo://a", &number.to_string()).await;
    }
    service.end(Signal::SIGTERM).await;
    until("the lines", async || place.lines("all.jsonl").len() == 50).await;
}
