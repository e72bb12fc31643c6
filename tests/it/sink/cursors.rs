//! Sinks with a store go on from their cursors: after kills, and when SIGHUP replaces them.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::Value;
use tidings::wire::http1::resource_path;

use super::receiver::{Receiver, Reply, SECRET};
use super::service::{Service, ServiceFolder};
use crate::mcp::http::Request;
use crate::support::until;

/// The rounds of the test of kills.
const ROUNDS: u64 = 4;

/// The most changes of one round.
const PUTS_MAX: u64 = 100;

fn config(folder: &ServiceFolder, receiver: &Receiver, queue: usize) -> String {
    let data = folder.file("data");
    let url = receiver.url();
    format!(
        "[store]\ndir = {data:?}\n\
         [[journal]]\nname = 'all'\nfile = 'all.jsonl'\nfsync = 'always'\nqueue = {queue}\n\
         [[webhook]]\nname = 'hook'\nurl = '{url}'\nsecret_file = 'secret'\nallow_private = true\n\
         queue = {queue}\nbackoff_max = '1s'\n"
    )
}

fn folder_for(receiver: &Receiver, queue: usize) -> ServiceFolder {
    let folder = ServiceFolder::new("");
    fs::write(folder.file("secret"), SECRET).unwrap();
    folder.configure(&config(&folder, receiver, queue));
    folder
}

/// Puts a text and returns the etag of the answer; none if the service is gone.
async fn put(service: &Service<'_>, uri: &str, text: &str) -> Option<String> {
    let request = Request::new("PUT", resource_path(uri)).header("content-type", "text/plain");
    let answer = request.body(text).try_open(service.address).await?;
    let etag = answer.headers.iter().find(|(name, _)| name == "etag")?;
    Some(etag.1.trim_matches('"').to_owned())
}

/// What one sink was told: the etags of each URI, and the number of notices that are missing.
#[derive(Debug, Default)]
struct Told {
    etags: BTreeMap<(String, String), usize>,
    lost: u64,
}

impl Told {
    fn of<'a>(records: impl Iterator<Item = &'a Value>) -> Told {
        let mut told = Told::default();
        for record in records {
            if record["kind"] == "gap" {
                told.lost += record["lost"].as_u64().unwrap();
            } else if let Some(uri) = record["uri"].as_str() {
                let key = (uri.to_owned(), record["etag"].as_str().unwrap().to_owned());
                *told.etags.entry(key).or_default() += 1;
            }
        }
        told
    }
}

/// Returns the records that a receiver got, each message once. A repeated one must be the same notice.
fn distinct(receiver: &Receiver) -> Vec<Value> {
    let mut messages: BTreeMap<String, Value> = BTreeMap::new();
    for got in receiver.received() {
        let data = got.body["data"].clone();
        if let Some(before) = messages.insert(got.id.clone(), data.clone()) {
            for field in ["kind", "uri", "etag", "position"] {
                assert_eq!(before[field], data[field], "{}", got.id);
            }
        }
    }
    messages.into_values().collect()
}

fn offset(record: &Value) -> u64 {
    let position = record["position"].as_str().unwrap();
    position.split_once('-').unwrap().1.parse().unwrap()
}

/// Kills the service this many times under load, and compares what was acknowledged with what the sinks got.
async fn kill_under_load(rounds: u64) {
    let receiver = Receiver::start([]).await;
    let folder = folder_for(&receiver, 10_000);
    let mut acknowledged = Vec::new();
    for round in 0..rounds {
        // Some rounds begin with a receiver that is down.
        let failures = (round % 3) * 2;
        receiver.script((0..failures).map(|_| Reply::Status(500)));
        let service = folder.start().await;
        let load = async {
            // Bounded, so that the webhook keeps up: a full queue would report gaps.
            for number in 0..PUTS_MAX {
                let uri = format!("demo://{}", number % 7);
                let Some(etag) = put(&service, &uri, &format!("{round} {number}")).await else {
                    break;
                };
                acknowledged.push((uri, etag));
            }
        };
        let kill = async {
            tokio::time::sleep(Duration::from_millis(150 + round * 37 % 300)).await;
            service.signal(Signal::SIGKILL);
        };
        tokio::join!(load, kill);
        service.end(Signal::SIGKILL).await;
    }
    receiver.script([]);
    let service = folder.start().await;
    let last = put(&service, "demo://last", "end").await.unwrap();
    until("the last notice", async || {
        receiver
            .received()
            .iter()
            .any(|got| got.body["data"]["etag"] == *last && got.body["data"]["uri"] == "demo://last")
    })
    .await;
    service.end(Signal::SIGTERM).await;

    let lines = folder.lines("all.jsonl");
    let sent = distinct(&receiver);
    for (sink, told) in [
        ("journal", Told::of(lines.iter())),
        ("webhook", Told::of(sent.iter())),
    ] {
        assert_eq!(told.lost, 0, "{sink}");
        for key in &acknowledged {
            assert_eq!(told.etags.get(key), Some(&1), "{sink}: {key:?}");
        }
    }
    // Without a repeat: the journal goes on from its last whole line.
    let offsets: Vec<u64> = lines.iter().map(offset).collect();
    assert!(
        offsets
            .iter()
            .copied()
            .eq(offsets[0]..=offsets[offsets.len() - 1])
    );
    assert!(acknowledged.len() as u64 > rounds, "{}", acknowledged.len());
}

#[tokio::test]
async fn killed_service_delivers_everything() {
    kill_under_load(ROUNDS).await;
}

#[tokio::test]
async fn sink_replaced_by_sighup_misses_nothing() {
    let receiver = Receiver::start([]).await;
    let folder = folder_for(&receiver, 10_000);
    let service = folder.start().await;
    let mut acknowledged = Vec::new();
    for round in 0..6 {
        for number in 0..15 {
            let etag = put(&service, "demo://a", &format!("{round} {number}")).await;
            acknowledged.push(("demo://a".to_owned(), etag.unwrap()));
            if number == 7 {
                folder.configure(&config(&folder, &receiver, 5_000 + round));
                service.signal(Signal::SIGHUP);
            }
        }
        until("the replacement", async || {
            folder
                .text("log")
                .matches("the configuration was read again")
                .count()
                > round
        })
        .await;
    }
    service.end(Signal::SIGTERM).await;
    let lines = folder.lines("all.jsonl");
    let sent = distinct(&receiver);
    for told in [Told::of(lines.iter()), Told::of(sent.iter())] {
        assert_eq!((told.lost, told.etags.len()), (0, acknowledged.len()));
    }
}

#[tokio::test]
async fn removed_sink_leaves_no_cursor() {
    let receiver = Receiver::start([]).await;
    let folder = folder_for(&receiver, 10_000);
    let service = folder.start().await;
    put(&service, "demo://a", "1").await.unwrap();
    let data = folder.file("data");
    folder.configure(&format!(
        "[store]\ndir = {data:?}\n[[journal]]\nname = 'all'\nfile = 'all.jsonl'\n"
    ));
    service.signal(Signal::SIGHUP);
    service
        .until_logged("the cursor of a subscriber is forgotten")
        .await;
    service.end(Signal::SIGTERM).await;
    folder.configure(&format!("[store]\ndir = {data:?}\n"));
    let service = folder.start().await;
    until("the second one", async || {
        folder
            .text("log")
            .matches("the cursor of a subscriber is forgotten")
            .count()
            == 2
    })
    .await;
    assert!(folder.text("log").contains("subscriber=journal/all"));
    service.end(Signal::SIGTERM).await;
}
