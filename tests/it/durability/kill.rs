//! The service is killed at random moments, and every content that it has acknowledged is asked for.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tidings::wire::connection::HttpAnswer;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::damage::find_files;
use super::home::{Connection, Home, Life};
use super::ledger::{Acknowledged, Content, State, Ticket};
use super::{assert_kept, rounds, seed};
use crate::stress::Random;

pub(super) const URIS: usize = 12;
const WRITERS: u64 = 3;
/// Bodies above this size are files of their own in the store.
const LARGE_BYTES: usize = 64 << 10;

pub(super) type Shared = Arc<Mutex<Acknowledged>>;

pub(super) fn uri(number: usize) -> String {
    format!("kill://resource/{number}")
}

/// A publisher with a connection of its own and a random course of requests.
pub(super) struct Writer {
    connection: Connection,
    random: Random,
    acknowledged: Shared,
}

impl Writer {
    pub(super) fn new(life: &Life, seed: u64, acknowledged: &Shared) -> Writer {
        Writer {
            connection: life.connect(),
            random: Random::new(seed),
            acknowledged: acknowledged.clone(),
        }
    }

    /// Makes requests until the service is gone.
    async fn run(mut self) {
        while self.step().await.is_ok() {}
    }

    /// Makes one request.
    pub(super) async fn step(&mut self) -> Result<(), String> {
        let uri = uri(self.random.below(URIS));
        match self.random.below(20) {
            0..2 => self.touch_or_remove(&uri, "POST").await,
            2..4 => self.touch_or_remove(&uri, "DELETE").await,
            4..6 => self.repeat(&uri).await,
            6..8 => self.batch().await,
            8..10 => {
                let content = self.content();
                self.put(&uri, content, &[("If-None-Match", "*".to_owned())])
                    .await
            }
            _ => {
                let content = self.content();
                self.put(&uri, content, &[]).await
            }
        }
    }

    /// Returns a content that no resource ever had.
    fn content(&mut self) -> Content {
        let bytes = match self.random.below(30) {
            0 => LARGE_BYTES + self.random.below(3 * LARGE_BYTES),
            _ => self.random.below(2_000),
        };
        // Below 2^62, so that the number is one of JSON and of every language.
        Content::new(self.random.next() >> 2, bytes)
    }

    async fn put(
        &mut self,
        uri: &str,
        content: Content,
        conditions: &[(&'static str, String)],
    ) -> Result<(), String> {
        let is_create_only = conditions.iter().any(|(name, _)| *name == "If-None-Match");
        let request = put_request(&self.connection, uri, &content, conditions);
        let ticket = self.begin(uri, State::Content(content), is_create_only);
        self.send(&request, &ticket).await
    }

    /// Writes the content again that the resource had when it was last seen.
    async fn repeat(&mut self, uri: &str) -> Result<(), String> {
        let current = self.acknowledged.lock().unwrap().current(uri);
        match current {
            Some((_, content)) => self.put(uri, content, &[]).await,
            None => Ok(()),
        }
    }

    async fn touch_or_remove(&mut self, uri: &str, method: &str) -> Result<(), String> {
        let path = tidings::wire::http1::resource_path(uri);
        let (path, state) = match method {
            "POST" => (format!("{path}/touch"), State::Touched),
            _ => (path, State::Removed),
        };
        let request = self.connection.target.request_to(method, &path);
        let ticket = self.begin(uri, state, false);
        self.send(&request.header("Content-Length", "0").finish(), &ticket)
            .await
    }

    /// Sends several changes of different resources in one request.
    async fn batch(&mut self) -> Result<(), String> {
        let first = self.random.below(URIS);
        let count = 2 + self.random.below(URIS - 2);
        let mut tickets = Vec::new();
        let mut body = String::new();
        for number in 0..count {
            let uri = uri((first + number) % URIS);
            let (line, state) = match self.random.below(10) {
                0 => (json!({ "remove": uri }), State::Removed),
                1 => (json!({ "touch": uri }), State::Touched),
                _ => {
                    let content = self.content();
                    (put_line(&uri, &content), State::Content(content))
                }
            };
            body += &format!("{line}\n");
            tickets.push(self.begin(&uri, state, false));
        }
        let request = self.connection.target.request_to("POST", "/v1/resources");
        let request = request.body("application/x-ndjson", body.as_bytes());
        let answer = self.connection.ask(&request).await?;
        self.take_lines(&answer, &tickets);
        Ok(())
    }

    fn take_lines(&self, answer: &HttpAnswer, tickets: &[Ticket]) {
        let mut acknowledged = self.acknowledged.lock().unwrap();
        let text = String::from_utf8_lossy(&answer.body);
        let lines: Vec<Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap_or_default())
            .collect();
        if answer.head.status != 200 || lines.len() != tickets.len() {
            let status = answer.head.status;
            acknowledged.add("a batch", format!("answered {status}: {text}"));
            for ticket in tickets {
                acknowledged.refuse(ticket);
            }
            return;
        }
        for (ticket, line) in std::iter::zip(tickets, &lines) {
            if line["uri"] != ticket.uri.as_str() {
                acknowledged.add(&ticket.uri, format!("a batch answered {line} in its place"));
            }
            match (line["status"].as_u64(), line["etag"].as_str()) {
                (Some(200..300), Some(etag)) => {
                    let changed = line["changed"] == true;
                    acknowledged.acknowledge(ticket, etag.trim_matches('"'), changed);
                }
                (Some(404), _) => acknowledged.refuse(ticket),
                _ => {
                    acknowledged.refuse(ticket);
                    acknowledged.add(&ticket.uri, format!("a batch answered {line}"));
                }
            }
        }
    }

    fn begin(&self, uri: &str, state: State, is_create_only: bool) -> Ticket {
        self.acknowledged
            .lock()
            .unwrap()
            .begin(uri, state, is_create_only)
    }

    /// Sends a request about one resource and notes the answer.
    async fn send(&mut self, request: &[u8], ticket: &Ticket) -> Result<(), String> {
        let answer = self.connection.ask(request).await?;
        let mut acknowledged = self.acknowledged.lock().unwrap();
        match (answer.head.is_success(), answer.head.etag()) {
            (true, Some(etag)) => {
                let changed = answer.head.header("tidings-changed") == Some("true");
                acknowledged.acknowledge(ticket, etag, changed);
            }
            _ => {
                acknowledged.refuse(ticket);
                if !matches!(answer.head.status, 404 | 412) {
                    let text = String::from_utf8_lossy(&answer.body);
                    acknowledged.add(&ticket.uri, format!("answered {}: {text}", answer.head.status));
                }
            }
        }
        Ok(())
    }
}

fn put_request(
    connection: &Connection,
    uri: &str,
    content: &Content,
    conditions: &[(&'static str, String)],
) -> Vec<u8> {
    let mut request = connection.resource("PUT", uri).headers(conditions);
    if let Some(title) = content.title() {
        request = request.header("Tidings-Title", &title);
    }
    request.body(content.media_type(), &content.body())
}

/// Writes the line of a batch that puts a content.
fn put_line(uri: &str, content: &Content) -> Value {
    let mut line = json!({ "put": uri, "mediaType": content.media_type() });
    match String::from_utf8(content.body()) {
        Ok(text) => line["text"] = text.into(),
        Err(bytes) => line["base64"] = STANDARD.encode(bytes.as_bytes()).into(),
    }
    if let Some(title) = content.title() {
        line["title"] = title.into();
    }
    line
}

/// Asks a new life for every resource, and for a change that is none, a creation that is one, a guarded
/// change.
async fn verify(life: &Life, random: &mut Random, acknowledged: &Shared) {
    let mut connection = life.connect();
    let mut shown = BTreeMap::new();
    for number in 0..URIS {
        let uri = uri(number);
        let answer = connection.get(&uri).await.unwrap();
        acknowledged.lock().unwrap().observe(&uri, &answer);
        if let Some(etag) = answer.head.etag() {
            shown.insert(uri, etag.to_owned());
        }
    }
    verify_list(&mut connection, &shown, acknowledged).await;
    let mut writer = Writer::new(life, random.next(), acknowledged);
    for number in 0..URIS {
        let uri = uri(number);
        let current = acknowledged.lock().unwrap().current(&uri);
        let Some((etag, content)) = current else {
            if shown.contains_key(&uri) {
                // It was touched, and the version before was never seen.
                continue;
            }
            // A resource that is gone is no more than gone, and can be created.
            let answer = connection.delete(&uri).await.unwrap();
            expect(acknowledged, &uri, "the removal of nothing", &answer, 404);
            if random.below(2) == 0 {
                let content = writer.content();
                let only_new = [("If-None-Match", "*".to_owned())];
                writer.put(&uri, content, &only_new).await.unwrap();
            }
            continue;
        };
        match random.below(4) {
            0 => {
                let request = put_request(&connection, &uri, &content, &[]);
                let answer = connection.ask(&request).await.unwrap();
                expect(acknowledged, &uri, "the same content again", &answer, 204);
                if answer.head.etag() != Some(&etag) {
                    let now = answer.head.etag().unwrap_or_default();
                    let mut acknowledged = acknowledged.lock().unwrap();
                    acknowledged.add(&uri, format!("the same content went from {etag} to {now}"));
                    // The later versions are judged from here.
                    let ticket = acknowledged.begin(&uri, State::Content(content), false);
                    acknowledged.acknowledge(&ticket, now, true);
                }
            }
            1 => {
                let only_new = [("If-None-Match", "*".to_owned())];
                let request = put_request(&connection, &uri, &writer.content(), &only_new);
                let answer = connection.ask(&request).await.unwrap();
                expect(acknowledged, &uri, "a second creation", &answer, 412);
            }
            2 => {
                let content = writer.content();
                let guard = [("If-Match", format!("\"{etag}\""))];
                writer.put(&uri, content, &guard).await.unwrap();
                let now = acknowledged.lock().unwrap().current(&uri);
                if let Some((now, _)) = now
                    && now == etag
                {
                    let mut acknowledged = acknowledged.lock().unwrap();
                    acknowledged.add(&uri, format!("a change guarded by {etag} was refused"));
                }
            }
            _ => {}
        }
    }
}

/// The list must have the resources that can be read, with their etags and titles, and no others.
async fn verify_list(connection: &mut Connection, shown: &BTreeMap<String, String>, acknowledged: &Shared) {
    let request = connection.target.request_to("GET", "/v1/resources?limit=1000");
    let answer = connection.ask(&request.finish()).await.unwrap();
    let listed: Value = serde_json::from_slice(&answer.body).unwrap();
    let mut acknowledged = acknowledged.lock().unwrap();
    let mut etags = BTreeMap::new();
    for item in listed["items"].as_array().unwrap() {
        let uri = item["uri"].as_str().unwrap();
        etags.insert(
            uri.to_owned(),
            item["etag"].as_str().unwrap_or_default().to_owned(),
        );
        if let Some((_, content)) = acknowledged.current(uri)
            && item["title"].as_str() != content.title().as_deref()
        {
            acknowledged.add(uri, format!("the list has {item} for {content:?}"));
        }
    }
    if etags != *shown {
        acknowledged.add("the list", format!("has {etags:?}, and not {shown:?}"));
    }
}

fn expect(acknowledged: &Shared, uri: &str, request: &str, answer: &HttpAnswer, status: u16) {
    if answer.head.status != status {
        let found = answer.head.status;
        let mut acknowledged = acknowledged.lock().unwrap();
        acknowledged.add(uri, format!("{request} was answered {found}, and not {status}"));
    }
}

/// Lives of one service, each killed while it is written to.
async fn run(rounds: usize) -> Acknowledged {
    let home = Home::new("");
    let mut random = Random::new(seed());
    let shared = Shared::default();
    for _ in 0..rounds {
        let life = home.start().await;
        verify(&life, &mut random, &shared).await;
        let mut writers = JoinSet::new();
        for _ in 0..WRITERS {
            writers.spawn(Writer::new(&life, random.next(), &shared).run());
        }
        sleep(Duration::from_millis(5 + random.below(346) as u64)).await;
        life.kill().await;
        while let Some(ended) = writers.join_next().await {
            ended.unwrap();
        }
        shared.lock().unwrap().judge_creations();
        if shared.lock().unwrap().violations.len() > 100 {
            break;
        }
    }
    let life = home.start().await;
    verify(&life, &mut random, &shared).await;
    life.end().await;
    let mut files = Vec::new();
    find_files(home.data(), &mut files);
    // The database, and at most one body of each resource: those of former contents are gone.
    if files.len() > 1 + URIS {
        shared
            .lock()
            .unwrap()
            .add("the store", format!("has {} files", files.len()));
    }
    Arc::into_inner(shared).unwrap().into_inner().unwrap()
}

#[tokio::test]
async fn kill_loses_nothing_acknowledged() {
    let acknowledged = run(12).await;
    assert_kept(&acknowledged.violations);
    assert!(
        acknowledged.figures.acknowledged > 0,
        "{:?}",
        acknowledged.figures
    );
}

#[tokio::test]
#[ignore = "2,000 rounds, or DURABILITY_ROUNDS"]
async fn long() {
    let acknowledged = run(rounds(2_000)).await;
    println!(
        "{} violations, {:?}",
        acknowledged.violations.len(),
        acknowledged.figures
    );
    assert_kept(&acknowledged.violations);
}
