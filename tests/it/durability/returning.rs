//! Clients of both eras that come back after a kill, before or after the publisher, with the etags that they
//! know: each is told of every difference and of nothing else.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tidings::wire::dialect::Revision;
use tokio::time::sleep;

use super::clients::Client;
use super::home::{Home, Life};
use super::{assert_kept, rounds, seed};
use crate::stress::Random;

const URIS: usize = 12;
/// The time after which a test has seen that nothing more comes.
const QUIET: Duration = Duration::from_millis(150);
/// The time within which a client is told.
const TOLD_MAX: Duration = Duration::from_secs(1);

/// The publisher's resources: the number of the content of each, which is not there without one.
type Published = BTreeMap<String, Option<u64>>;

fn uri(number: usize) -> String {
    format!("back://resource/{number}")
}

struct Course {
    home: Home,
    random: Random,
    clients: Vec<Client>,
    published: Published,
    /// The etags of removals.
    removals: BTreeMap<String, String>,
    violations: Vec<String>,
    /// Notices that clients were told.
    differences: u64,
    slowest: Duration,
}

impl Course {
    fn new(is_kept: bool) -> Course {
        let mut random = Random::new(seed());
        let mut clients = Vec::new();
        for revision in [Revision::R2025_11_25, Revision::R2026_07_28] {
            for _ in 0..2 {
                // Each client is interested in about two thirds of the resources.
                let chosen: Vec<usize> = (0..URIS).filter(|_| random.below(3) > 0).collect();
                clients.push(Client::new(revision, chosen.into_iter().map(uri)));
            }
        }
        Course {
            home: match is_kept {
                true => Home::new(""),
                false => Home::without_store(""),
            },
            random,
            clients,
            published: Published::new(),
            removals: BTreeMap::new(),
            violations: Vec::new(),
            differences: 0,
            slowest: Duration::ZERO,
        }
    }

    /// One life of the service.
    async fn round(&mut self) {
        let life = self.home.start().await;
        // The changes that this publisher brings: most contents are as they were.
        for number in 0..URIS {
            let content = match self.random.below(8) {
                0..2 => Some(self.random.next()),
                2 => None,
                _ => continue,
            };
            self.published.insert(uri(number), content);
        }
        match self.random.below(3) {
            0 => {
                self.connect(&life).await;
                self.publish(&life).await;
            }
            1 => {
                self.publish(&life).await;
                self.connect(&life).await;
            }
            _ => {
                self.connect_half(&life, 0).await;
                self.publish(&life).await;
                self.connect_half(&life, 1).await;
            }
        }
        self.judge(&life).await;
        // Changes that the clients may or may not read before the kill.
        let mut connection = life.connect();
        for _ in 0..self.random.below(4) {
            let uri = uri(self.random.below(URIS));
            let content = self.random.next();
            connection.put_etag(&uri, &content.to_string()).await;
            self.removals.remove(&uri);
            self.published.insert(uri, Some(content));
        }
        for client in &mut self.clients {
            client.disconnect();
        }
        life.kill().await;
    }

    async fn connect(&mut self, life: &Life) {
        self.connect_half(life, 0).await;
        self.connect_half(life, 1).await;
    }

    /// Connects every second client.
    async fn connect_half(&mut self, life: &Life, first: usize) {
        for client in self.clients.iter_mut().skip(first).step_by(2) {
            if let Err(fault) = client.connect(life).await {
                self.violations.push(format!("{}: {fault}", client.name()));
            }
        }
    }

    /// Puts every content, whether or not it is new, and removes the rest.
    async fn publish(&mut self, life: &Life) {
        let mut connection = life.connect();
        for (uri, content) in &self.published {
            if let Some(content) = content {
                connection.put_etag(uri, &content.to_string()).await;
                self.removals.remove(uri);
                continue;
            }
            let answer = connection.delete(uri).await.unwrap();
            match (answer.head.status, answer.head.etag()) {
                (204, Some(etag)) => {
                    self.removals.insert(uri.clone(), etag.to_owned());
                }
                (status, _) => assert_eq!(status, 404),
            }
        }
    }

    /// Waits until every client knows what is current, and then until nothing more comes.
    async fn judge(&mut self, life: &Life) {
        let began = Instant::now();
        let mut connection = life.connect();
        let mut current = BTreeMap::new();
        for uri in self.published.keys() {
            let answer = connection.get(uri).await.unwrap();
            // The version of a removal is current too.
            let etag = match answer.head.status {
                200 => answer.head.etag(),
                _ => self.removals.get(uri).map(String::as_str),
            };
            if let Some(etag) = etag {
                current.insert(uri.clone(), etag.to_owned());
            }
        }
        while began.elapsed() < TOLD_MAX && !self.missing(&current).is_empty() {
            sleep(Duration::from_millis(2)).await;
        }
        let mut missing = self.missing(&current);
        self.slowest = self.slowest.max(began.elapsed());
        sleep(QUIET).await;
        self.violations.append(&mut missing);
        let mut needless = self.needless();
        self.violations.append(&mut needless);
    }

    /// Lists the differences that clients have not been told of.
    fn missing(&self, current: &BTreeMap<String, String>) -> Vec<String> {
        let mut missing = Vec::new();
        for client in &self.clients {
            let told = client.told();
            for (uri, known) in &client.known {
                let last = told.iter().rev().find(|told| told.uri == *uri);
                let last = match last {
                    Some(told) => Some(&told.etag),
                    None => known.as_ref(),
                };
                let is_informed = match (current.get(uri), last) {
                    (Some(current), Some(last)) => current == last,
                    // A client that never saw a resource misses nothing by its removal.
                    (Some(_), None) => self.removals.contains_key(uri),
                    // Not there yet, in a life without a store.
                    (None, _) => true,
                };
                if !is_informed {
                    let current = current.get(uri);
                    missing.push(format!(
                        "{}: {uri} is {current:?}, the client knows {last:?} and connected with {known:?}",
                        client.name()
                    ));
                }
            }
        }
        missing
    }

    /// Lists the notices that told a client nothing new.
    fn needless(&mut self) -> Vec<String> {
        let mut needless = Vec::new();
        for client in &self.clients {
            let mut known = client.known.clone();
            for told in client.told() {
                self.differences += 1;
                match known.insert(told.uri.clone(), Some(told.etag.clone())) {
                    None => needless.push(format!("{}: told of {told:?}, never asked for", client.name())),
                    Some(Some(before)) if before == told.etag => {
                        needless.push(format!("{}: told of {told:?}, which it knew", client.name()));
                    }
                    Some(_) => {}
                }
            }
        }
        needless
    }
}

async fn run(is_kept: bool, rounds: usize) -> Course {
    let mut course = Course::new(is_kept);
    for _ in 0..rounds {
        course.round().await;
        if course.violations.len() > 100 {
            break;
        }
    }
    course
}

#[tokio::test]
async fn returning_clients_learn_differences() {
    let course = run(true, 6).await;
    assert_kept(&course.violations);
    assert!(course.differences > 0);
}

#[tokio::test]
async fn clients_of_memory_learn_differences() {
    let course = run(false, 6).await;
    assert_kept(&course.violations);
    assert!(course.differences > 0);
}

#[tokio::test]
#[ignore = "500 rounds with a store and as many without, or DURABILITY_ROUNDS"]
async fn long() {
    for is_kept in [true, false] {
        let course = run(is_kept, rounds(500)).await;
        println!(
            "store {is_kept}: {} notices, slowest {:?}, {} violations",
            course.differences,
            course.slowest,
            course.violations.len()
        );
        assert_kept(&course.violations);
    }
}
