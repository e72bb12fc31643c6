//! A webhook and a journal that syncs every line, over kills: each acknowledged change is delivered, or is in
//! a gap of exactly that size.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::home::{Connection, Home, Life};
use super::{assert_kept, rounds, seed};
use crate::sink::receiver::SECRET;
use crate::stress::Random;

const URIS: u64 = 12;
const WRITERS: u64 = 2;
/// The time within which the sinks deliver what is left.
const DELIVERED_MAX: Duration = Duration::from_secs(60);

/// The deliveries of one sink.
#[derive(Debug, Default)]
struct Delivered {
    /// URI and etag of every change, without repetitions.
    changes: BTreeSet<(String, String)>,
    offsets: BTreeSet<u64>,
    /// The last offset that is delivered, or in a gap.
    last: u64,
    /// The number of changes in gaps.
    lost: u64,
    ids: BTreeSet<String>,
    repeated: u64,
    violations: Vec<String>,
}

impl Delivered {
    /// Takes the record of a delivery; repetitions have the same id.
    fn take(&mut self, id: &str, record: &Value) {
        if !self.ids.insert(id.to_owned()) {
            self.repeated += 1;
            return;
        }
        let position = record["position"].as_str().unwrap_or_default();
        if let Some((_, offset)) = position.split_once('-') {
            let offset = offset.parse().unwrap();
            self.last = self.last.max(offset);
            // The position of a gap is that of the last change in it.
            match record["lost"].as_u64() {
                Some(lost) => self.lost += lost,
                None => {
                    self.offsets.insert(offset);
                }
            }
        }
        if let (Some(uri), Some(etag)) = (record["uri"].as_str(), record["etag"].as_str()) {
            self.changes.insert((uri.to_owned(), etag.to_owned()));
        }
    }

    /// Reads the lines of a journal; a line that is repeated has the same position.
    fn of_journal(home: &Home, file: &str) -> Delivered {
        let mut delivered = Delivered::default();
        let text = fs::read_to_string(home.file(file)).unwrap_or_default();
        for (number, line) in text.lines().enumerate() {
            match serde_json::from_str::<Value>(line) {
                Ok(record) => {
                    let id = match record["position"].as_str() {
                        Some(position) => format!("{} {position}", record["kind"]),
                        None => format!("line {number}"),
                    };
                    delivered.take(&id, &record);
                }
                Err(error) => delivered
                    .violations
                    .push(format!("line {number}: {error}: {line}")),
            }
        }
        delivered
    }

    /// Returns the acknowledged changes that it has not got.
    fn missing(&self, acknowledged: &BTreeMap<(String, String), usize>) -> Vec<String> {
        let missing = acknowledged
            .iter()
            .filter(|(change, _)| !self.changes.contains(change));
        missing
            .map(|((uri, etag), life)| format!("{uri} {etag} of life {life}"))
            .collect()
    }

    /// Returns the positions of the bus that it has not got.
    fn skipped(&self) -> u64 {
        self.last - self.offsets.len() as u64
    }
}

/// A receiver of webhooks that is down at times.
struct Receiver {
    address: SocketAddr,
    is_down: Arc<AtomicBool>,
    delivered: Arc<Mutex<Delivered>>,
}

impl Receiver {
    async fn start() -> Receiver {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let is_down = Arc::<AtomicBool>::default();
        let delivered = Arc::<Mutex<Delivered>>::default();
        let router = Router::new()
            .fallback(receive)
            .with_state((is_down.clone(), delivered.clone()));
        tokio::spawn(axum::serve(listener, router).into_future());
        Receiver {
            address,
            is_down,
            delivered,
        }
    }

    fn set_down(&self, is_down: bool) {
        self.is_down.store(is_down, Ordering::Relaxed);
    }
}

async fn receive(
    State((is_down, delivered)): State<(Arc<AtomicBool>, Arc<Mutex<Delivered>>)>,
    headers: HeaderMap,
    body: Bytes,
) -> StatusCode {
    if is_down.load(Ordering::Relaxed) {
        return StatusCode::INTERNAL_SERVER_ERROR;
    }
    let message: Value = serde_json::from_slice(&body).unwrap();
    let id = headers["webhook-id"].to_str().unwrap();
    delivered.lock().unwrap().take(id, &message["data"]);
    StatusCode::NO_CONTENT
}

type Acknowledged = Arc<Mutex<BTreeMap<(String, String), usize>>>;

/// Puts new contents, and removes some, until the service is gone; notes each answer.
async fn write(mut connection: Connection, mut random: Random, life: usize, acknowledged: Acknowledged) {
    loop {
        let uri = format!("sink://resource/{}", random.next() % URIS);
        let answer = match random.below(12) {
            0 => connection.delete(&uri).await,
            _ => connection.put(&uri, &random.next().to_string()).await,
        };
        let Ok(answer) = answer else {
            return;
        };
        if let (true, Some(etag)) = (answer.head.is_success(), answer.head.etag()) {
            acknowledged.lock().unwrap().insert((uri, etag.to_owned()), life);
        }
    }
}

struct Course {
    home: Home,
    receiver: Receiver,
    acknowledged: Acknowledged,
}

impl Course {
    async fn new() -> Course {
        let receiver = Receiver::start().await;
        let home = Home::new("");
        fs::write(home.file("secret"), SECRET).unwrap();
        home.configure(&format!(
            "[[journal]]\nname = \"journal\"\nfile = \"journal.jsonl\"\nfsync = \"always\"\n\n\
             [[journal]]\nname = \"short\"\nfile = \"short.jsonl\"\nfsync = \"always\"\nqueue = 1\n\n\
             [[webhook]]\nname = \"receiver\"\nurl = \"http://{}/\"\nsecret_file = \"secret\"\n\
             allow_private = true\nbackoff_max = \"1s\"\n",
            receiver.address
        ));
        Course {
            home,
            receiver,
            acknowledged: Acknowledged::default(),
        }
    }

    async fn run(&self, kills: usize) {
        let mut random = Random::new(seed());
        for number in 0..kills {
            self.receiver.set_down(random.below(3) == 0);
            let life = self.home.start().await;
            let mut writers = JoinSet::new();
            for _ in 0..WRITERS {
                let random = Random::new(random.next());
                writers.spawn(write(life.connect(), random, number, self.acknowledged.clone()));
            }
            // Cursors are written at most once a second, so some lives are longer.
            let longest = match random.below(4) {
                0 => 2_500,
                _ => 350,
            };
            sleep(Duration::from_millis(5 + random.below(longest) as u64)).await;
            life.kill().await;
            while let Some(ended) = writers.join_next().await {
                ended.unwrap();
            }
        }
        self.receiver.set_down(false);
        let life = self.home.start().await;
        self.wait_delivered(&life).await;
        life.end().await;
    }

    /// Waits until no sink has a notice left to deliver.
    async fn wait_delivered(&self, life: &Life) {
        let mut connection = life.connect();
        connection.put_etag("sink://last", "the last change").await;
        let request = life.target.request_to("GET", "/v1/subscribers").finish();
        let began = Instant::now();
        while began.elapsed() < DELIVERED_MAX {
            let answer = connection.ask(&request).await.unwrap();
            let listed: Value = serde_json::from_slice(&answer.body).unwrap();
            let items = listed["items"].as_array().unwrap();
            if items.iter().all(|item| item["pending"] == 0)
                && self
                    .receiver
                    .delivered
                    .lock()
                    .unwrap()
                    .changes
                    .iter()
                    .any(|(uri, _)| uri == "sink://last")
            {
                return;
            }
            sleep(Duration::from_millis(10)).await;
        }
    }

    /// Lists what is neither delivered nor told as a gap; describes the work of each sink too.
    fn judge(&self) -> (Vec<String>, Vec<String>) {
        let acknowledged = self.acknowledged.lock().unwrap();
        let mut violations = Vec::new();
        let mut works = Vec::new();
        let journal = Delivered::of_journal(&self.home, "journal.jsonl");
        let short = Delivered::of_journal(&self.home, "short.jsonl");
        let webhook = self.receiver.delivered.lock().unwrap();
        for (name, delivered) in [
            ("journal", &journal),
            ("journal with a short queue", &short),
            ("webhook", &*webhook),
        ] {
            violations.extend(delivered.violations.iter().cloned());
            let missing = delivered.missing(&acknowledged);
            works.push(format!(
                "{name}: {} acknowledged, {} missing, {} told as lost, {} positions skipped, {} repeated",
                acknowledged.len(),
                missing.len(),
                delivered.lost,
                delivered.skipped(),
                delivered.repeated
            ));
            if missing.len() as u64 > delivered.lost {
                let first: Vec<&String> = missing.iter().take(5).collect();
                violations.push(format!(
                    "{name}: {} changes are missing and {} told as lost; missing are {first:?}",
                    missing.len(),
                    delivered.lost
                ));
            }
            if delivered.skipped() != delivered.lost {
                violations.push(format!(
                    "{name}: {} positions are skipped and {} told as lost",
                    delivered.skipped(),
                    delivered.lost
                ));
            }
        }
        (violations, works)
    }
}

#[tokio::test]
async fn sinks_deliver_or_tell_across_kills() {
    let course = Course::new().await;
    course.run(8).await;
    let (violations, _) = course.judge();
    assert_kept(&violations);
}

#[tokio::test]
#[ignore = "100 kills, or DURABILITY_ROUNDS"]
async fn long() {
    let course = Course::new().await;
    course.run(rounds(100)).await;
    let (violations, works) = course.judge();
    println!("{}", works.join("\n"));
    assert_kept(&violations);
}
