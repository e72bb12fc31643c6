//! Clients of all kinds that follow some resources, and go to the next node whenever they lose one.
//!
//! A client keeps its etags over its connections, and says them when it comes back.

mod kinds;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tidings::Etag;
use tidings::wire::http1::HttpTarget;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::stress::Random;

/// The way in which a client follows resources.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum WatcherKind {
    /// A session of 2025-11-25 with a GET stream.
    Session,
    /// A listen stream of 2026-07-28.
    Listen,
    /// `/v1/events`.
    Events,
    /// `/v1/ws`.
    Socket,
    /// Calls of `get_resource_etags`.
    Poller,
}

impl WatcherKind {
    pub(super) const ALL: [WatcherKind; 5] = [
        WatcherKind::Session,
        WatcherKind::Listen,
        WatcherKind::Events,
        WatcherKind::Socket,
        WatcherKind::Poller,
    ];
}

/// The knowledge of a client, and its notices.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// The etag that it knows of each resource that it follows, as it was told or has read.
    pub(super) known: BTreeMap<String, Option<String>>,
    /// The etag of the newest notice of each resource.
    told: BTreeMap<String, String>,
    /// True while it follows its resources at a node.
    pub(super) is_connected: bool,
    /// The connections that it has opened.
    pub(super) opened: u64,
    /// Notices of newer versions than the notices before.
    pub(super) notices: u64,
    /// Notices of the etag of the notice before.
    pub(super) repeats: u64,
    /// Notices of an older version than that of a notice before.
    pub(super) older: Vec<String>,
    /// The times that it read all its resources, since it was told that notices are missing.
    pub(super) readings: u64,
    /// The notices that its session has had of each list.
    pub(super) lists: BTreeMap<String, u64>,
    /// The most notices that one session has had of one list.
    pub(super) lists_max: u64,
    /// The reason for which it lost its last connection.
    pub(super) last_problem: String,
}

impl Seen {
    /// Takes a notice of a resource that it follows.
    fn note(&mut self, uri: &str, etag: &str) {
        match self.told.get(uri) {
            Some(before) if before == etag => self.repeats += 1,
            Some(before) if version(before) > version(etag) => {
                self.older.push(format!("{uri}: {etag} after {before}"));
            }
            _ => {
                self.notices += 1;
                self.told.insert(uri.to_owned(), etag.to_owned());
            }
        }
        self.learn(uri, etag);
    }

    /// Takes the etag of a resource that it follows, which it was told or has read. A read may be ahead of
    /// the notices, and tells nothing of their order.
    fn learn(&mut self, uri: &str, etag: &str) {
        match self.known.get_mut(uri) {
            Some(Some(known)) if version(known) > version(etag) => {}
            Some(known) => *known = Some(etag.to_owned()),
            None => self.last_problem = format!("told of {uri}, which it does not follow"),
        }
    }

    fn note_list(&mut self, list: &str) {
        let count = self.lists.entry(list.to_owned()).or_default();
        *count += 1;
        self.lists_max = self.lists_max.max(*count);
    }
}

/// The version in an etag.
pub(super) fn version(etag: &str) -> u64 {
    match etag.parse::<Etag>() {
        Ok(etag) => etag.version,
        Err(_) => panic!("{etag:?} is no etag"),
    }
}

/// The handle of a client's task.
pub(super) struct Watcher {
    pub(super) kind: WatcherKind,
    seen: Arc<Mutex<Seen>>,
    task: JoinHandle<()>,
}

impl Watcher {
    /// Starts a client that follows these resources, at the node with this number first.
    pub(super) fn start(
        kind: WatcherKind,
        targets: Vec<HttpTarget>,
        first: usize,
        uris: impl IntoIterator<Item = String>,
    ) -> Watcher {
        let seen = Arc::new(Mutex::new(Seen {
            known: uris.into_iter().map(|uri| (uri, None)).collect(),
            ..Seen::default()
        }));
        let visitor = Visitor {
            kind,
            seen: seen.clone(),
            session: None,
            last_id: None,
        };
        let task = tokio::spawn(visitor.run(targets, first));
        Watcher { kind, seen, task }
    }

    /// Starts clients of all kinds, spread over all nodes, each of which follows some of the resources.
    pub(super) fn start_all(
        targets: &[HttpTarget],
        uris: &[String],
        (count, each): (usize, usize),
        seed: u64,
    ) -> Vec<Watcher> {
        let mut random = Random::new(seed);
        let kinds = WatcherKind::ALL;
        (0..count)
            .map(|number| {
                let chosen: Vec<String> = (0..each)
                    .map(|_| uris[random.below(uris.len())].clone())
                    .collect();
                // The kinds and the nodes have no common divisor, so each kind is at each node.
                let kind = kinds[number % kinds.len()];
                Watcher::start(kind, targets.to_vec(), number, chosen)
            })
            .collect()
    }

    pub(super) fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap()
    }

    /// Returns the resources of which it does not know this etag, unless it is without a connection.
    pub(super) fn missing(&self, finals: &BTreeMap<String, String>) -> Vec<String> {
        let seen = self.seen();
        let mut missing = Vec::new();
        if !seen.is_connected {
            missing.push(format!(
                "{:?} is without a node: {}",
                self.kind, seen.last_problem
            ));
        }
        for (uri, known) in &seen.known {
            if known.as_ref() != finals.get(uri) {
                missing.push(format!(
                    "{:?} {uri}: {known:?}, not {:?}",
                    self.kind,
                    finals.get(uri)
                ));
            }
        }
        missing
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The task of a client.
struct Visitor {
    kind: WatcherKind,
    seen: Arc<Mutex<Seen>>,
    /// Its session, which it tries to go on with.
    session: Option<String>,
    /// The id of the last event of its stream.
    last_id: Option<String>,
}

impl Visitor {
    async fn run(mut self, targets: Vec<HttpTarget>, first: usize) {
        let mut next = first;
        loop {
            let target = &targets[next % targets.len()];
            let Err(problem) = self.visit(target).await;
            {
                let mut seen = self.seen();
                seen.is_connected = false;
                seen.last_problem = problem;
            }
            next += 1;
            sleep(Duration::from_millis(50 + 10 * (next as u64 % 10))).await;
        }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap()
    }

    fn is_connected(&self) {
        let mut seen = self.seen();
        seen.is_connected = true;
        seen.opened += 1;
    }

    fn known(&self) -> BTreeMap<String, Option<String>> {
        self.seen().known.clone()
    }
}
