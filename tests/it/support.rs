//! The harness of the bus tests: a bus with a clock of its own, clients that note what they are told, and waits.
//!
//! Owns: [`Bench`], which checks on being dropped that nothing is left behind, and [`Client`], which fails when it is
//! told of a version going backward. Never: sleeps for a fixed time; every wait ends when its condition holds, and
//! fails at a deadline.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use tidings::{
    Bus, Cause, Drained, EndReason, Limits, ListKind, OutboxEntry, OutboxReader, Position, Resource,
    ResourceUri, Session, SessionOptions, Store, SubscriberKind, Tool, ToolOutput,
};

/// After this long a wait has failed.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

/// The time at which every bench starts.
pub(crate) const START: u64 = 1_000;

/// A bus and its clock.
pub(crate) struct Bench {
    pub(crate) bus: Bus,
    clock: Arc<AtomicU64>,
}

impl Bench {
    /// A bus with two shards and else default limits.
    pub(crate) fn start() -> Bench {
        Bench::with(|_| ())
    }

    /// A bus with other limits.
    pub(crate) fn with(change: impl FnOnce(&mut Limits)) -> Bench {
        Bench::build(change, None::<NoStore>)
    }

    /// A bus with a store.
    pub(crate) fn stored(change: impl FnOnce(&mut Limits), store: impl Store) -> Bench {
        Bench::build(change, Some(store))
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

    /// Lets time pass for etags.
    pub(crate) fn pass_seconds(&self, seconds: u64) {
        self.clock.fetch_add(seconds, Ordering::Relaxed);
    }

    /// Creates or replaces a text resource; answers its version.
    pub(crate) async fn put(&self, uri: &str, body: &str) -> u64 {
        let outcome = within(self.bus.upsert(text(uri, body))).await.unwrap();
        outcome.etag.version
    }

    /// A client that is told of no lists.
    pub(crate) async fn client(&self) -> Client {
        self.client_with(options()).await
    }

    /// A client that is told of these lists, with a reader open.
    pub(crate) async fn client_with(&self, options: SessionOptions) -> Client {
        Client::of(within(self.bus.open(options)).await.unwrap())
    }

    /// A ready client that is told of every list, the filled ones at once.
    pub(crate) async fn list_client(&self) -> Client {
        let client = self.client_with(list_options(&ListKind::ALL, true)).await;
        within(client.session.ready()).await.unwrap();
        client
    }

    /// Waits until `condition` holds of the bus's sessions.
    pub(crate) async fn sessions_are(&self, count: usize) {
        until("the number of sessions", async || {
            let listed = self.bus.sessions().await.unwrap().len();
            listed == count && self.bus.stats().await.unwrap().sessions == count
        })
        .await;
    }
}

impl Drop for Bench {
    /// Nothing may be left behind: no session, no request, and no mailbox may ever have been full.
    fn drop(&mut self) {
        if std::thread::panicking() || !self.bus.is_running() {
            return;
        }
        let bus = self.bus.clone();
        let check = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                until("that no session is left behind", async || {
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

/// A subscriber that notes the newest version it was told of each URI.
pub(crate) struct Client {
    pub(crate) session: Session,
    pub(crate) reader: OutboxReader,
    newest: HashMap<ResourceUri, u64>,
    /// The position after the last drain that had entries.
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

    /// Subscribes to one URI that may be subscribed to; answers the version that it knows now.
    pub(crate) async fn subscribe(&self, name: &str) -> u64 {
        let answers = within(self.session.subscribe(vec![uri(name)])).await.unwrap();
        answers[0].clone().unwrap().version
    }

    pub(crate) async fn unsubscribe(&self, name: &str) -> bool {
        within(self.session.unsubscribe(uri(name))).await.unwrap()
    }

    /// Everything pending, without waiting: an answered publisher's notice is already there.
    pub(crate) fn told(&mut self) -> Vec<String> {
        let mut lines = Vec::new();
        let mut cx = Context::from_waker(Waker::noop());
        loop {
            let mut entries = Vec::new();
            match self.reader.poll_drain(&mut cx, |entry| entries.push(entry)) {
                Poll::Ready(Drained::Entries(position)) => {
                    self.position = Some(position);
                    lines.extend(entries.iter().map(|entry| self.note(entry)));
                }
                Poll::Ready(Drained::KeepAlive) => {}
                Poll::Ready(_) | Poll::Pending => return lines,
            }
        }
    }

    /// Waits for entries and notes them; answers the reason instead when its outbox ended.
    pub(crate) async fn next(&mut self) -> Result<Vec<String>, EndReason> {
        let mut entries = Vec::new();
        let drain = async {
            loop {
                let drained = self.reader.drain(&mut entries).await;
                if drained != Drained::KeepAlive {
                    return drained;
                }
            }
        };
        match within(drain).await {
            Drained::Entries(position) => {
                self.position = Some(position);
                Ok(entries.iter().map(|entry| self.note(entry)).collect())
            }
            Drained::Ended(reason) => Err(reason),
            Drained::KeepAlive => unreachable!("waited on"),
        }
    }

    /// Reads until it was told this version of `name`.
    pub(crate) async fn until_told(&mut self, name: &str, version: u64) {
        while self.newest(name) < version {
            self.next().await.expect("the outbox ended too early");
        }
        assert_eq!(self.newest(name), version);
    }

    /// Reads until the end; answers what came before it, and why it ended.
    pub(crate) async fn until_the_end(&mut self) -> (Vec<String>, EndReason) {
        let mut lines = Vec::new();
        loop {
            match self.next().await {
                Ok(more) => lines.extend(more),
                Err(reason) => return (lines, reason),
            }
        }
    }

    /// The newest version it was told of `name`; 0 when it was told of none.
    pub(crate) fn newest(&self, name: &str) -> u64 {
        self.newest.get(&uri(name)).copied().unwrap_or(0)
    }

    /// Forgets what it was told, as a client does that resumes from an older position.
    pub(crate) fn forget(&mut self) {
        self.newest.clear();
    }

    fn note(&mut self, entry: &OutboxEntry) -> String {
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

/// Looks again until `condition` holds; fails at the deadline.
pub(crate) async fn until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let started = Instant::now();
    while !within(condition()).await {
        assert!(started.elapsed() < DEADLINE, "waited in vain for {what}");
        // What holds soon is looked for without a pause, since thousands of runs wait for it.
        if started.elapsed() < Duration::from_millis(2) {
            tokio::task::yield_now().await;
        } else {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

/// Stands where a store could be.
pub(crate) struct NoStore;

impl Store for NoStore {
    fn load(&mut self) -> Result<tidings::Checkpoint, tidings::StoreError> {
        Ok(tidings::Checkpoint::default())
    }

    fn append(&mut self, _: &[tidings::Record]) -> Result<(), tidings::StoreError> {
        Ok(())
    }
}

/// Keeps one shard's thread busy until it is opened, so that nothing that shard has to do is done.
pub(crate) struct Gate {
    open: Option<std::sync::mpsc::SyncSender<()>>,
}

impl Gate {
    /// Returns when the shard's thread stands still.
    pub(crate) async fn close(bus: &Bus, shard: usize) -> Gate {
        let (open, opened) = std::sync::mpsc::sync_channel::<()>(1);
        let (reached, at_gate) = tokio::sync::oneshot::channel();
        let spawned = bus.shards()[shard].spawn(move || async move {
            reached.send(()).unwrap();
            assert!(opened.recv().is_err(), "a gate is opened by being dropped");
        });
        assert!(spawned, "the bus has stopped");
        within(at_gate).await.unwrap();
        Gate { open: Some(open) }
    }

    pub(crate) fn open(mut self) {
        drop(self.open.take());
    }
}

/// Runs what `start` makes on a shard's thread; answers what it answers.
pub(crate) async fn on_shard<F, R>(bus: &Bus, shard: usize, start: F) -> R::Output
where
    F: FnOnce() -> R + Send + 'static,
    R: Future + 'static,
    R::Output: Send + 'static,
{
    let (tell, told) = tokio::sync::oneshot::channel();
    let spawned = bus.shards()[shard].spawn(move || async move {
        drop(tell.send(start().await));
    });
    assert!(spawned, "the bus has stopped");
    within(told).await.expect("the shard's task panicked")
}

/// Lets every task of a current-thread runtime get as far as it can without the bus.
pub(crate) async fn let_tasks_run() {
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
}
