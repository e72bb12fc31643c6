//! Publishers that change resources at any node, repeat requests without an answer, and keep the account.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use serde_json::{Value, json};
use tidings::wire::connection::HttpAnswer;
use tidings::wire::http1::{HttpTarget, resource_path};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::account::Account;
use super::rig::PATIENCE;
use crate::durability::Connection;
use crate::stress::Random;

/// The time within which a node answers a change or refuses it, and some more for a busy machine.
const ANSWER_MAX: Duration = Duration::from_secs(14);

/// The publishers of a run, four on each node: each makes one change after the other.
pub(super) const LANES: usize = 12;

/// The changes of a batch.
const BATCH: usize = 4;

/// The work that all publishers of a run share.
pub(super) struct Work {
    pub(super) targets: Vec<HttpTarget>,
    pub(super) uris: Vec<String>,
    account: Mutex<Account>,
    /// The changes that publishers have begun.
    begun: AtomicU64,
    changes: u64,
    /// The time from one change to the next.
    pace: Duration,
    start: Instant,
    /// The longest time that a change took until it was answered, repetitions included.
    longest: Mutex<Duration>,
}

impl Work {
    /// Makes the work of `changes` changes that are spread over `time`.
    pub(super) fn new(
        targets: Vec<HttpTarget>,
        uris: Vec<String>,
        changes: u64,
        time: Duration,
    ) -> Arc<Work> {
        Arc::new(Work {
            targets,
            uris,
            account: Mutex::default(),
            begun: AtomicU64::new(0),
            changes,
            pace: time / u32::try_from(changes.max(1)).unwrap(),
            start: Instant::now(),
            longest: Mutex::default(),
        })
    }

    pub(super) fn account(&self) -> MutexGuard<'_, Account> {
        self.account.lock().unwrap()
    }

    /// The longest time that a change took until it was answered.
    pub(super) fn longest(&self) -> Duration {
        *self.longest.lock().unwrap()
    }

    /// Takes more changes, which are made with the one that was taken.
    fn take_more(&self, count: usize) {
        self.begun.fetch_add(count as u64, Ordering::Relaxed);
    }

    /// Takes one of the changes, once its time has come; none when all are taken.
    async fn take(&self) -> Option<u64> {
        let number = self.begun.fetch_add(1, Ordering::Relaxed);
        if number >= self.changes {
            return None;
        }
        sleep_until(self.start + self.pace * u32::try_from(number).unwrap()).await;
        Some(number)
    }
}

/// One publisher. It makes one change after the other.
pub(super) struct Publisher {
    work: Arc<Work>,
    random: Random,
    connection: Connection,
    /// The number of its node, which it leaves when it is not answered.
    node: usize,
    /// The etags that it was answered last.
    etags: BTreeMap<String, String>,
}

impl Publisher {
    pub(super) fn new(work: &Arc<Work>, number: usize, seed: u64) -> Publisher {
        let node = number % work.targets.len();
        Publisher {
            work: work.clone(),
            random: Random::new(seed.wrapping_add(number as u64)),
            connection: Connection::new(&work.targets[node]),
            node,
            etags: BTreeMap::new(),
        }
    }

    /// Makes changes of all kinds until none are left.
    pub(super) async fn run(mut self) {
        while let Some(number) = self.work.take().await {
            let began = Instant::now();
            let uri = self.work.uris[self.random.below(self.work.uris.len())].clone();
            let body = format!("change {number}");
            match self.random.below(20) {
                0 => {
                    self.work.take_more(1);
                    self.remove(&uri).await;
                    self.put(&uri, &body).await;
                }
                1 | 2 => self.put_if_match(&uri, &body).await,
                3 | 4 => self.batch(&body).await,
                5 => self.create(&uri, &body).await,
                _ => self.put(&uri, &body).await,
            }
            self.note_time(began);
        }
    }

    /// Replaces contents until no changes are left.
    pub(super) async fn run_puts(mut self) {
        while let Some(number) = self.work.take().await {
            let began = Instant::now();
            let uri = self.work.uris[self.random.below(self.work.uris.len())].clone();
            self.put(&uri, &format!("change {number}")).await;
            self.note_time(began);
        }
    }

    fn note_time(&self, began: Instant) {
        let mut longest = self.work.longest.lock().unwrap();
        *longest = longest.max(began.elapsed());
    }

    /// Gives every resource of this publisher's share a last content.
    pub(super) async fn settle(mut self, (first, step): (usize, usize), body: String) {
        for number in (first..self.work.uris.len()).step_by(step) {
            let uri = self.work.uris[number].clone();
            self.put(&uri, &body).await;
        }
    }

    /// Sends a request to its node. Goes to the next node, after a pause, unless it is answered.
    async fn ask(&mut self, request: impl Fn(&HttpTarget) -> Vec<u8>) -> Option<HttpAnswer> {
        let request = request(&self.connection.target);
        let answer = timeout(ANSWER_MAX, self.connection.ask(&request)).await;
        match answer {
            Ok(Ok(answer)) if answer.head.status != 503 => return Some(answer),
            Ok(Ok(answer)) if !is_unknown(&answer.body) => {
                self.move_on().await;
                return Some(answer);
            }
            _ => {}
        }
        self.move_on().await;
        None
    }

    async fn move_on(&mut self) {
        self.node += 1;
        let next = self.node % self.work.targets.len();
        self.connection = Connection::new(&self.work.targets[next]);
        sleep(Duration::from_millis(50 + self.random.below(100) as u64)).await;
    }

    /// Repeats a change until a node has answered it, as publishers are told to.
    async fn put(&mut self, uri: &str, body: &str) {
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            let answer = self.ask(|target| target.put_resource(uri, body)).await;
            if self.take(uri, answer, Some(body)) {
                return;
            }
        }
        self.fault(format!("{uri}: no node took a change within {PATIENCE:?}"));
    }

    async fn remove(&mut self, uri: &str) {
        let answer = self
            .ask(|target| target.request_to("DELETE", &resource_path(uri)).finish())
            .await;
        // One that is not answered is not repeated: the content that follows replaces it.
        self.take(uri, answer, None);
    }

    async fn put_if_match(&mut self, uri: &str, body: &str) {
        let Some(etag) = self.etags.get(uri).cloned() else {
            return self.put(uri, body).await;
        };
        let answer = self
            .ask(|target| conditional(target, uri, ("If-Match", &etag), body))
            .await;
        self.take(uri, answer, Some(body));
    }

    async fn create(&mut self, uri: &str, body: &str) {
        let answer = self
            .ask(|target| conditional(target, uri, ("If-None-Match", "*"), body))
            .await;
        self.take(uri, answer, Some(body));
    }

    async fn batch(&mut self, body: &str) {
        let mut lines = String::new();
        let mut uris = Vec::new();
        for _ in 0..BATCH {
            let uri = self.work.uris[self.random.below(self.work.uris.len())].clone();
            if !uris.contains(&uri) {
                lines.push_str(&json!({ "put": uri, "text": body }).to_string());
                lines.push('\n');
                uris.push(uri);
            }
        }
        self.work.take_more(uris.len() - 1);
        let request = |target: &HttpTarget| {
            let request = target.request_to("POST", "/v1/resources");
            request.body("application/x-ndjson", lines.as_bytes())
        };
        let Some(answer) = self.ask(request).await.filter(|answer| answer.head.status == 200) else {
            let mut account = self.work.account();
            return uris.iter().for_each(|uri| account.unknown(uri));
        };
        let text = String::from_utf8_lossy(&answer.body);
        for (uri, line) in uris.iter().zip(text.lines()) {
            let line: Value = serde_json::from_str(line).unwrap();
            match (line["status"].as_u64(), line["etag"].as_str()) {
                (Some(200..300), Some(etag)) => {
                    let etag = etag.to_owned();
                    self.made(uri, &etag, Some(body));
                }
                (Some(503), _) if is_unknown(line.to_string().as_bytes()) => {
                    self.work.account().unknown(uri);
                }
                _ => self.work.account().refused += 1,
            }
        }
    }

    /// Takes the answer to a change; returns false if it must be repeated.
    fn take(&mut self, uri: &str, answer: Option<HttpAnswer>, body: Option<&str>) -> bool {
        let Some(answer) = answer else {
            self.work.account().unknown(uri);
            return false;
        };
        match (answer.head.status, answer.head.etag()) {
            (200..300, Some(etag)) => {
                let etag = etag.trim_matches('"').to_owned();
                self.made(uri, &etag, body);
                true
            }
            (503, _) => {
                self.work.account().refused += 1;
                false
            }
            (404 | 412, _) => {
                self.work.account().refused += 1;
                self.etags.remove(uri);
                true
            }
            (status, _) => {
                let text = String::from_utf8_lossy(&answer.body).into_owned();
                self.fault(format!("{uri}: status {status}: {text}"));
                true
            }
        }
    }

    fn made(&mut self, uri: &str, etag: &str, body: Option<&str>) {
        self.etags.insert(uri.to_owned(), etag.to_owned());
        self.work.account().made(uri, etag, body.map(str::to_owned));
    }

    fn fault(&self, fault: String) {
        self.work.account().faults.push(fault);
    }
}

/// True if a refusal leaves open whether the change was made.
fn is_unknown(body: &[u8]) -> bool {
    String::from_utf8_lossy(body).contains("the outcome of the change is unknown")
}

fn conditional(target: &HttpTarget, uri: &str, (name, value): (&str, &str), body: &str) -> Vec<u8> {
    let value = match value {
        "*" => value.to_owned(),
        etag => format!("\"{etag}\""),
    };
    target
        .request_to("PUT", &resource_path(uri))
        .header(name, &value)
        .body("text/plain", body.as_bytes())
}
