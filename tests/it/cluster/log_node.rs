//! A node of the shared log as the engine sees it: proposals go in, and everything that is told is kept.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tidings::cluster::{ClusterSettings, NatsLog};
use tidings::shared_log::{
    Heard, LogEntry, LogHealth, LogHistory, LoggedResource, OperationId, Proposal, SharedLog, Verdict,
};
use tidings::{Etag, Line, LineState, Owner, Resource, ResourceUri};
use tokio::sync::mpsc;

use super::brokers::Brokers;

/// The time for which anything is waited for: longer than an election of all servers.
const DEADLINE: Duration = Duration::from_secs(120);

/// A record that was told.
#[derive(Debug, Clone)]
pub(super) struct Told {
    pub(super) sequence: u64,
    pub(super) operation: OperationId,
    pub(super) entry: LogEntry,
}

impl Told {
    /// The version of the resource.
    pub(super) fn version(&self) -> u64 {
        self.logged().line.etag.version
    }

    pub(super) fn logged(&self) -> &LoggedResource {
        match &self.entry {
            LogEntry::Resource(logged) => logged,
            other => panic!("{other:?} is no resource"),
        }
    }
}

/// A node: a log on a thread of its own, and all that it has told.
pub(super) struct LogNode {
    id: u64,
    proposed: u64,
    proposals: Option<mpsc::Sender<Proposal>>,
    heard: mpsc::Receiver<Heard>,
    thread: Option<JoinHandle<()>>,
    /// The records since the last opening.
    pub(super) records: Vec<Told>,
    /// The newest record of each URI since the last opening.
    pub(super) newest: BTreeMap<String, Told>,
    pub(super) ended: BTreeMap<OperationId, Verdict>,
    pub(super) histories: Vec<LogHistory>,
    pub(super) health: Option<LogHealth>,
    pub(super) is_caught_up: bool,
}

impl LogNode {
    /// Starts a node of the log in `namespace`.
    pub(super) fn start(brokers: &Brokers, namespace: &str) -> LogNode {
        LogNode::with(brokers, namespace, |_| {})
    }

    /// Starts a node with other settings.
    pub(super) fn with(
        brokers: &Brokers,
        namespace: &str,
        change: impl FnOnce(&mut ClusterSettings),
    ) -> LogNode {
        static NODES: AtomicU64 = AtomicU64::new(1);
        let id = NODES.fetch_add(1, Ordering::Relaxed);
        let mut settings = ClusterSettings {
            urls: brokers.urls(),
            namespace: namespace.to_owned(),
            node: format!("node{id}"),
            replicas: brokers.count(),
            max_bytes: 64 << 20,
            ..ClusterSettings::default()
        };
        change(&mut settings);
        let log = NatsLog::new(settings).unwrap();
        let (proposals, taken) = mpsc::channel(1_024);
        let (telling, heard) = mpsc::channel(1_024);
        let thread = std::thread::spawn(move || Box::new(log).run(taken, telling));
        LogNode {
            id,
            proposed: 0,
            proposals: Some(proposals),
            heard,
            thread: Some(thread),
            records: Vec::new(),
            newest: BTreeMap::new(),
            ended: BTreeMap::new(),
            histories: Vec::new(),
            health: None,
            is_caught_up: false,
        }
    }

    /// Starts a node and waits until it has heard all records.
    pub(super) async fn ready(brokers: &Brokers, namespace: &str) -> LogNode {
        let mut node = LogNode::start(brokers, namespace);
        node.until("it is ready", |node| {
            node.is_caught_up && node.health == Some(LogHealth::Connected)
        })
        .await;
        node
    }

    /// Returns the next operation of this node.
    pub(super) fn operation(&mut self) -> OperationId {
        self.proposed += 1;
        OperationId {
            node: self.id,
            number: self.proposed,
        }
    }

    /// Proposes a text as the next version of `uri`, after the newest record that was told.
    pub(super) async fn put(&mut self, uri: &str, text: &str) -> OperationId {
        let resource = Resource::text(uri, text).unwrap();
        self.put_resource(resource).await
    }

    /// Proposes a resource as the next version.
    pub(super) async fn put_resource(&mut self, resource: Resource) -> OperationId {
        let operation = self.operation();
        let uri = resource.uri().as_str().to_owned();
        let (expected, entry) = match self.newest.get(&uri) {
            Some(told) => {
                let mut former = vec![told.operation];
                former.extend_from_slice(&told.logged().former);
                former.truncate(LoggedResource::FORMER_MAX);
                (told.sequence, entry(resource, told.version() + 1, former))
            }
            None => (0, entry(resource, 1, Vec::new())),
        };
        self.propose(operation, expected, entry).await;
        operation
    }

    /// Proposes anything.
    pub(super) async fn propose(&mut self, operation: OperationId, expected: u64, entry: LogEntry) {
        let proposal = Proposal {
            operation,
            expected,
            entry,
            expires: Instant::now() + Duration::from_secs(20),
        };
        let proposals = self.proposals.as_ref().unwrap();
        assert!(proposals.send(proposal).await.is_ok(), "the log has ended");
    }

    /// Waits until the condition holds.
    pub(super) async fn until(&mut self, what: &str, mut condition: impl FnMut(&LogNode) -> bool) {
        let waiting = async {
            while !condition(self) {
                let heard = self.heard.recv().await;
                self.take(heard.expect("the log has ended"));
            }
        };
        let done = tokio::time::timeout(DEADLINE, waiting).await.is_ok();
        assert!(
            done,
            "waited until {what}; {:?}, {:?}, caught up: {}, {} records, ended: {:?}",
            self.health,
            self.histories,
            self.is_caught_up,
            self.records.len(),
            self.ended
        );
    }

    /// Waits until an operation has an end, and returns its verdict; none if its record was told.
    pub(super) async fn end(&mut self, operation: OperationId) -> Option<Verdict> {
        self.until("a proposal has its end", |node| node.has_ended(operation))
            .await;
        self.ended.get(&operation).cloned()
    }

    /// True if the operation was told, is named by a later record, or was ended.
    pub(super) fn has_ended(&self, operation: OperationId) -> bool {
        self.ended.contains_key(&operation)
            || self.records.iter().any(|told| {
                told.operation == operation
                    || matches!(&told.entry, LogEntry::Resource(logged) if logged.former.contains(&operation))
            })
    }

    fn take(&mut self, heard: Heard) {
        match heard {
            Heard::Opened(history) => {
                if let Some(before) = self.histories.last() {
                    // The same one again if a floor was missed.
                    let is_later = history.epoch > before.epoch && history.began > before.began;
                    assert!(is_later || history == *before, "{history:?} after {before:?}");
                }
                self.histories.push(history);
                self.records.clear();
                self.newest.clear();
                self.is_caught_up = false;
            }
            Heard::Record {
                sequence,
                operation,
                entry,
            } => self.take_record(Told {
                sequence,
                operation,
                entry,
            }),
            Heard::CaughtUp => self.is_caught_up = true,
            Heard::Ended(operation, verdict) => {
                let before = self.ended.insert(operation, verdict);
                assert_eq!(before, None, "{operation} ended twice");
            }
            Heard::Health(health) => self.health = Some(health),
        }
    }

    fn take_record(&mut self, told: Told) {
        if let Some(last) = self.records.last() {
            assert!(told.sequence > last.sequence, "{told:?} after {last:?}");
        }
        if let LogEntry::Resource(logged) = &told.entry {
            let uri = logged.uri.as_str().to_owned();
            if let Some(before) = self.newest.insert(uri, told.clone()) {
                assert!(told.version() > before.version(), "{told:?} after {before:?}");
            }
        }
        self.records.push(told);
    }

    /// The text and the version of a resource.
    pub(super) fn state(&self, uri: &str) -> Option<(String, u64)> {
        let told = self.newest.get(uri)?;
        let resource = told.logged().resource.as_ref()?;
        let tidings::Content::Held(body) = resource.content() else {
            panic!("{uri} has no body");
        };
        let text = String::from_utf8_lossy(body.as_bytes()).into_owned();
        Some((text, told.version()))
    }

    /// Ends the node, and waits until its thread is gone.
    pub(super) fn stop(mut self) {
        self.end_thread();
    }

    fn end_thread(&mut self) {
        self.proposals = None;
        self.heard.close();
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

impl Drop for LogNode {
    fn drop(&mut self) {
        // A failed test shows its own failure first.
        if !std::thread::panicking() {
            self.end_thread();
        }
    }
}

/// Returns the entry of a resource at a version.
pub(super) fn entry(resource: Resource, version: u64, former: Vec<OperationId>) -> LogEntry {
    let uri: ResourceUri = resource.uri().clone();
    LogEntry::Resource(Box::new(LoggedResource {
        uri,
        line: Line {
            etag: Etag {
                version,
                updated_at: 1,
                life: 0,
            },
            digest: resource.digest(),
            state: LineState::Live,
            offset: 0,
            owner: Some(Owner::Api),
            unclaimed_since: None,
        },
        resource: Some(Arc::new(resource)),
        former,
        announces: true,
    }))
}
