//! The harness of the bus tests: a bus with its own clock, clients that check their notices, and waits.
//!
//! No wait has a fixed duration: each ends when its condition holds, and fails at a deadline.

use std::collections::HashMap;
use std::io::Write;
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use tidings::status::{SubscriberInfo, SubscriberState};
use tidings::{
    Bus, Cause, Drained, EndReason, Limits, ListKind, OutboxEntry, OutboxReader, Outcome, Position, Resource,
    ResourceUri, Session, SessionOptions, Store, SubscriberKind, Tool, ToolOutput,
};

/// The time after which a wait has failed. Long enough for a busy machine, or one that is paused for a while.
pub(crate) const DEADLINE: Duration = Duration::from_secs(120);

/// The time at which the clock of every bench starts.
pub(crate) const START: u64 = 1_000;

/// A bus with its clock. Dropping it checks that nothing is left behind.
pub(crate) struct Bench {
    pub(crate) bus: Bus,
    clock: Arc<AtomicU64>,
}

impl Bench {
    /// Starts a bus with two shards and otherwise default limits.
    pub(crate) fn start() -> Bench {
        Bench::with(|_| ())
    }

    /// Starts a bus with other limits.
    pub(crate) fn with(change: impl FnOnce(&mut Limits)) -> Bench {
        Bench::build(change, None::<NoStore>)
    }

    /// Starts a bus with a store.
    pub(crate) fn stored(change: impl FnOnce(&mut Limits), store: impl Store) -> Bench {
        Bench::build(change, Some(store))
    }

    /// Starts a bus that has these resources, each with the body `one`.
    pub(crate) async fn with_resources<const N: usize>(uris: [&str; N]) -> Bench {
        let bench = Bench::start();
        for uri in uris {
            bench.put(uri, "one").await;
        }
        bench
    }

    fn build(change: impl FnOnce(&mut Limits), store: Option<impl Store>) -> Bench {
        let mut limits = Limits::default();
        limits.shards = 2;
        change(&mut limits);
        let clock = Arc::new(AtomicU64::new(START));
        let now = clock.clone();
        let mut builder = Bus::builder()
            .limits(limits)
            .clock(move || now.load(Ordering::Relaxed));
        if let Some(store) = store {
            builder = builder.store(store);
        }
        let bus = builder.start().unwrap();
        Bench { bus, clock }
    }

    /// Advances the clock of the etags.
    pub(crate) fn pass_seconds(&self, seconds: u64) {
        self.clock.fetch_add(seconds, Ordering::Relaxed);
    }

    /// Creates or replaces a text resource. Returns its version.
    pub(crate) async fn put(&self, uri: &str, body: &str) -> u64 {
        let outcome = within(self.bus.upsert(text(uri, body))).await.unwrap();
        outcome.etag.version
    }

    /// Replaces a text resource.
    pub(crate) async fn update(&self, uri: &str, body: &str) -> Outcome {
        within(self.bus.update(text(uri, body))).await.unwrap()
    }

    /// Opens a client that is notified of no lists.
    pub(crate) async fn client(&self) -> Client {
        self.client_with(options()).await
    }

    /// Opens a client with one subscription.
    pub(crate) async fn subscriber(&self, uri: &str) -> Client {
        let client = self.client().await;
        client.subscribe(uri).await;
        client
    }

    /// Opens a client with these options.
    pub(crate) async fn client_with(&self, options: SessionOptions) -> Client {
        Client::of(within(self.bus.open(options)).await.unwrap())
    }

    /// Opens a client that is notified of every list, and at once of those that are not empty.
    pub(crate) async fn list_client(&self) -> Client {
        let client = self.client_with(list_options(&ListKind::ALL, true)).await;
        within(client.session.ready()).await.unwrap();
        client
    }

    /// Returns the description of a client, which has to be live.
    pub(crate) async fn info(&self, client: &Client) -> SubscriberInfo {
        let state = within(self.bus.subscriber_state(client.session.id())).await;
        match state.unwrap() {
            Some(SubscriberState::Live(info)) => *info,
            other => panic!("the client is not live: {other:?}"),
        }
    }

    /// Waits until the bus has this many sessions.
    pub(crate) async fn until_sessions(&self, count: usize) {
        until("the number of sessions", async || {
            let listed = self.bus.sessions().await.unwrap().len();
            listed == count && self.bus.stats().await.unwrap().sessions == count
        })
        .await;
    }

    /// Waits until the Etag actor has processed every request that was sent before.
    pub(crate) async fn until_routed(&self) {
        // Requests pass the Registry and the Etag actor in the order in which they were sent.
        run_ready_tasks().await;
        within(self.bus.etags(Vec::new())).await.unwrap();
        run_ready_tasks().await;
    }
}

impl Drop for Bench {
    /// Checks that no session and no request is left, and that no mailbox was ever full.
    fn drop(&mut self) {
        if std::thread::panicking() || !self.bus.is_running() {
            return;
        }
        let bus = self.bus.clone();
        // A thread of its own, because the runtime of the test cannot be blocked here.
        let check = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                until("the end of all sessions", async || {
                    let stats = bus.stats().await.unwrap();
                    let counted = (stats.sessions, stats.subscriptions, stats.pending);
                    bus.sessions().await.unwrap().is_empty() && counted == (0, 0, 0)
                })
                .await;
                let stats = bus.stats().await.unwrap();
                assert_eq!(stats.mailbox_refused, 0, "a mailbox was full");
                assert_eq!(stats.in_flight, 0, "a permit was left behind");
            });
        });
        check.join().expect("the bus was left clean");
    }
}

/// A subscriber that records its notices. It fails if a version goes backward.
pub(crate) struct Client {
    pub(crate) session: Session,
    pub(crate) reader: OutboxReader,
    newest: HashMap<ResourceUri, u64>,
    /// The position after the last drain that returned entries.
    pub(crate) position: Option<Position>,
}

impl Client {
    pub(crate) fn of(session: Session) -> Client {
        let reader = session.reader();
        Client {
            session,
            reader,
            newest: HashMap::new(),
            position: None,
        }
    }

    /// Subscribes to one URI. Returns the version that the client knows from then on.
    pub(crate) async fn subscribe(&self, name: &str) -> u64 {
        let answers = within(self.session.subscribe(vec![uri(name)])).await.unwrap();
        answers[0].clone().unwrap().version
    }

    pub(crate) async fn unsubscribe(&self, name: &str) -> bool {
        within(self.session.unsubscribe(uri(name))).await.unwrap()
    }

    /// Replaces the reader by one opened on a shard's thread, which moves the session there.
    pub(crate) async fn read_on(mut self, bus: &Bus, shard: usize) -> Client {
        on_shard(bus, shard, move || async move {
            self.reader = self.session.reader();
            self
        })
        .await
    }

    /// Takes everything pending without waiting. A change is pending as soon as its publisher has the answer.
    pub(crate) fn received(&mut self) -> Vec<String> {
        let mut lines = Vec::new();
        let mut cx = Context::from_waker(Waker::noop());
        loop {
            let mut entries = Vec::new();
            match self.reader.poll_drain(&mut cx, |entry| entries.push(entry)) {
                Poll::Ready(Drained::Entries(position)) => {
                    self.position = Some(position);
                    lines.extend(entries.iter().map(|entry| self.record(entry)));
                }
                Poll::Ready(Drained::KeepAlive) => {}
                Poll::Ready(_) | Poll::Pending => return lines,
            }
        }
    }

    /// Waits for entries. Returns the reason if the outbox has ended.
    pub(crate) async fn next(&mut self) -> Result<Vec<String>, EndReason> {
        let mut entries = Vec::new();
        loop {
            match within(self.reader.drain(&mut entries)).await {
                Drained::KeepAlive => {}
                Drained::Ended(reason) => return Err(reason),
                Drained::Entries(position) => {
                    self.position = Some(position);
                    return Ok(entries.iter().map(|entry| self.record(entry)).collect());
                }
            }
        }
    }

    /// Waits until it has received this version of `name`, and no later one.
    pub(crate) async fn until_received(&mut self, name: &str, version: u64) {
        while self.newest(name) < version {
            self.next().await.expect("the outbox ended too early");
        }
        assert_eq!(self.newest(name), version);
    }

    /// Waits for the end of the outbox. Returns the entries before it and the reason.
    pub(crate) async fn until_end(&mut self) -> (Vec<String>, EndReason) {
        let mut lines = Vec::new();
        loop {
            match self.next().await {
                Ok(more) => lines.extend(more),
                Err(reason) => return (lines, reason),
            }
        }
    }

    /// The newest version of `name` received; 0 if there was none.
    pub(crate) fn newest(&self, name: &str) -> u64 {
        self.newest.get(&uri(name)).copied().unwrap_or(0)
    }

    /// Forgets the received versions, as a client does that resumes from an older position.
    pub(crate) fn forget(&mut self) {
        self.newest.clear();
    }

    fn record(&mut self, entry: &OutboxEntry) -> String {
        match entry {
            OutboxEntry::ListChanged(kind) => format!("{} changed", kind.name()),
            OutboxEntry::Updated(notice) => {
                let version = notice.etag.version;
                let before = self.newest.insert(notice.uri.clone(), version).unwrap_or(0);
                assert!(before < version, "{} went from {before} to {version}", notice.uri);
                match notice.cause {
                    Cause::Updated => format!("{} v{version}", notice.uri),
                    Cause::Removed => format!("{} v{version} removed", notice.uri),
                }
            }
        }
    }
}

/// Returns a number from the environment, by which the long form of a test is made longer or repeated.
pub(crate) fn number(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text
            .parse()
            .unwrap_or_else(|error| panic!("{name}={text}: {error}")),
        Err(_) => default,
    }
}

/// Returns a port for a process that a test starts, and maybe starts again.
///
/// It is below those from which the kernel takes one for every socket that asks for none: such a port may be
/// taken before the process has it.
pub(crate) fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    loop {
        // Runs of the tests beside each other begin at different ports.
        let begin = u64::from(std::process::id()) * 97;
        let number = begin + u64::from(NEXT.fetch_add(1, Ordering::Relaxed));
        let port = 10_000 + (number % 20_000) as u16;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// Gives a file its content in one step, by way of a hidden file beside it. A file that is written in place
/// is empty for a moment, and a source that reads it then publishes that as a version of its own.
pub(crate) fn replace_file(file: &Path, content: &str) {
    let mut new = tempfile::NamedTempFile::new_in(file.parent().unwrap()).unwrap();
    new.write_all(content.as_bytes()).unwrap();
    new.persist(file).unwrap();
}

pub(crate) fn uri(name: &str) -> ResourceUri {
    ResourceUri::new(name).unwrap()
}

pub(crate) fn text(uri: &str, body: &str) -> Resource {
    Resource::text(uri, body).unwrap()
}

pub(crate) fn tool(name: &str) -> Tool {
    Tool::new(name, |_| async { Ok(ToolOutput::text("done")) })
}

pub(crate) fn options() -> SessionOptions {
    SessionOptions::new(SubscriberKind::Session, "test")
}

pub(crate) fn list_options(lists: &[ListKind], announce: bool) -> SessionOptions {
    SessionOptions {
        lists: lists.to_vec(),
        announce,
        ..options()
    }
}

/// Awaits `future`; fails at the deadline.
pub(crate) async fn within<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(DEADLINE, future)
        .await
        .expect("waited in vain until the deadline")
}

/// Checks `condition` until it holds; fails at the deadline.
pub(crate) async fn until(name: &str, mut condition: impl AsyncFnMut() -> bool) {
    let started = Instant::now();
    while !within(condition()).await {
        assert!(started.elapsed() < DEADLINE, "waited in vain for {name}");
        // Most conditions hold within microseconds, and thousands of runs wait for them, so there is no pause
        // at first.
        if started.elapsed() < Duration::from_millis(2) {
            tokio::task::yield_now().await;
        } else {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

/// A store that keeps nothing.
pub(crate) struct NoStore;

impl Store for NoStore {
    fn load(&mut self) -> Result<tidings::Checkpoint, tidings::StoreError> {
        Ok(tidings::Checkpoint::default())
    }

    fn append(&mut self, _: &tidings::Batch) -> Result<(), tidings::StoreError> {
        Ok(())
    }
}

/// Blocks the thread of a shard until it is opened, so that the shard processes no message.
pub(crate) struct Gate {
    open: std::sync::mpsc::SyncSender<()>,
}

impl Gate {
    /// Returns once the thread of the shard is blocked.
    pub(crate) async fn close(bus: &Bus, shard: usize) -> Gate {
        let (open, opened) = std::sync::mpsc::sync_channel::<()>(1);
        let (reached, at_gate) = tokio::sync::oneshot::channel();
        let spawned = bus.shards()[shard].spawn(move || async move {
            reached.send(()).unwrap();
            assert!(opened.recv().is_err(), "a gate is opened by being dropped");
        });
        assert!(spawned, "the bus has stopped");
        within(at_gate).await.unwrap();
        Gate { open }
    }

    pub(crate) fn open(self) {
        drop(self.open);
    }
}

/// Runs the future that `start` creates on a shard's thread. Returns its output.
pub(crate) async fn on_shard<F, R>(bus: &Bus, shard: usize, start: F) -> R::Output
where
    F: FnOnce() -> R + Send + 'static,
    R: Future + 'static,
    R::Output: Send + 'static,
{
    let (sender, receiver) = tokio::sync::oneshot::channel();
    let spawned = bus.shards()[shard].spawn(move || async move {
        assert!(sender.send(start().await).is_ok(), "the test no longer waits");
    });
    assert!(spawned, "the bus has stopped");
    within(receiver).await.expect("the shard's task panicked")
}

/// Lets the tasks of a current-thread runtime run until they wait for the bus.
pub(crate) async fn run_ready_tasks() {
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
}
