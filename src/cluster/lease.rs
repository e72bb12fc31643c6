//! Tasks that one node of a cluster does at a time: the one that has the lease of the task's name.
//!
//! A lease ends by itself unless it is renewed. Its holder counts from before it asked for the renewal, so it
//! gives the task up before another node can have it, also when it hears nothing any more.

use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::node_state::spread;
use super::shared_state::{Expected, SharedEntry, SharedState, StateError, StateKey, StateKind};
use crate::metrics::ClusterNodeMetrics;

/// The time after which a lease ends that is not renewed.
pub const LEASE_TTL: Duration = Duration::from_secs(10);

/// The time after which it is renewed, and after which others ask whether it is free.
const RENEW_AFTER: Duration = Duration::from_secs(3);

/// The time by which a holder gives a lease up before it ends.
const MARGIN: Duration = Duration::from_secs(2);

/// The pause before a renewal without an answer is tried again.
const RETRY_AFTER: Duration = Duration::from_millis(500);

/// The content of a lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseHolder {
    /// The name of the node.
    pub node: String,
    /// The number of its start.
    pub boot: u32,
}

impl LeaseHolder {
    /// Reads the content of a lease; none for one of another version.
    pub fn read(value: &[u8]) -> Option<LeaseHolder> {
        serde_json::from_slice(value).ok()
    }
}

/// A task that this node does as long as it has the lease. Dropping it gives the task up without telling the
/// others, which then wait until the lease ends.
#[derive(Debug)]
pub struct Lease {
    name: String,
    turns: watch::Receiver<Option<std::time::Instant>>,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

impl Lease {
    /// Seeks the lease `name` for this node, again and again.
    pub fn seek(state: &SharedState, name: &str) -> Lease {
        let holder = LeaseHolder {
            node: state.node().to_owned(),
            boot: state.boot(),
        };
        Lease::seek_in(state.clone(), name, &holder)
    }

    fn seek_in(entries: impl LeaseEntries, name: &str, holder: &LeaseHolder) -> Lease {
        // A watch, not a queue: who asks late must see that the turn is over.
        let (told, turns) = watch::channel(None);
        let (stop, stopped) = oneshot::channel();
        let seeker = LeaseSeeker {
            entries,
            key: StateKey::new(StateKind::Lease, name),
            value: serde_json::to_vec(holder).unwrap_or_default().into(),
            told,
            metrics: ClusterNodeMetrics::new(),
        };
        Lease {
            name: name.to_owned(),
            turns,
            stop: Some(stop),
            task: tokio::spawn(seeker.run(stopped)),
        }
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns a receiver of the time until which this node has the lease; none while another has it. A
    /// renewal puts the time off without notifying the receivers.
    pub fn turns(&self) -> watch::Receiver<Option<std::time::Instant>> {
        self.turns.clone()
    }

    /// Gives the lease up, and tells the others.
    pub async fn release(mut self) {
        self.stop = None;
        if let Err(error) = (&mut self.task).await {
            tracing::debug!(lease = self.name, %error, "a lease was not given up in order");
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // The end of the sender ends the task, which still tells the others if it can.
        self.stop = None;
    }
}

/// The entries of leases, as the seeker of one needs them.
trait LeaseEntries: Send + Sync + 'static {
    /// Writes an entry that ends by itself after [`LEASE_TTL`].
    fn put(
        &self,
        key: &StateKey,
        value: Bytes,
        expected: Expected,
    ) -> impl Future<Output = Result<u64, StateError>> + Send;

    /// Reads the newest entry.
    fn newest(&self, key: &StateKey) -> impl Future<Output = Result<Option<SharedEntry>, StateError>> + Send;

    /// Deletes the entry of this revision.
    fn end(&self, key: &StateKey, revision: u64) -> impl Future<Output = Result<(), StateError>> + Send;

    /// Returns when the entry seems to be gone.
    fn gone(&self, key: &StateKey) -> impl Future<Output = ()> + Send;
}

impl LeaseEntries for SharedState {
    async fn put(&self, key: &StateKey, value: Bytes, expected: Expected) -> Result<u64, StateError> {
        self.write(key, value, expected, Some(LEASE_TTL)).await
    }

    async fn newest(&self, key: &StateKey) -> Result<Option<SharedEntry>, StateError> {
        self.load(key).await
    }

    async fn end(&self, key: &StateKey, revision: u64) -> Result<(), StateError> {
        self.delete(key, Expected::Revision(revision)).await
    }

    async fn gone(&self, key: &StateKey) {
        let mut changes = self.changes();
        while self.heard(key).is_some() {
            if changes.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
        // It was gone before: another node may be about to take it.
        if changes.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// A turn of this node.
#[derive(Debug, Clone, Copy)]
struct LeaseTurn {
    /// The revision of its newest entry.
    revision: u64,
    /// The time at which it is given up unless it was renewed.
    until: Instant,
}

impl LeaseTurn {
    /// Makes a turn whose entry was written by a request that was sent at `sent`.
    fn written(revision: u64, sent: Instant) -> LeaseTurn {
        let until = sent + LEASE_TTL - MARGIN;
        LeaseTurn { revision, until }
    }
}

struct LeaseSeeker<E> {
    entries: E,
    key: StateKey,
    value: Bytes,
    told: watch::Sender<Option<std::time::Instant>>,
    metrics: ClusterNodeMetrics,
}

impl<E: LeaseEntries> LeaseSeeker<E> {
    async fn run(self, mut stopped: oneshot::Receiver<()>) {
        loop {
            let mut turn = tokio::select! {
                turn = self.acquire() => turn,
                _ = &mut stopped => return,
            };
            tracing::debug!(lease = %self.key, turn = turn.revision, "this node has the lease");
            self.begin(turn);
            tokio::select! {
                () = self.hold(&mut turn) => {}
                _ = &mut stopped => {
                    self.end();
                    if let Err(error) = self.entries.end(&self.key, turn.revision).await {
                        tracing::debug!(lease = %self.key, %error, "the lease ends by itself");
                    }
                    return;
                }
            }
            tracing::warn!(lease = %self.key, "this node has lost the lease");
            self.metrics.leases_lost.increment(1);
            self.end();
        }
    }

    fn begin(&self, turn: LeaseTurn) {
        self.metrics.leases.increment(1.0);
        self.told.send_replace(Some(turn.until.into_std()));
    }

    /// Puts the end of the turn off.
    fn put_off(&self, turn: LeaseTurn) {
        self.told.send_if_modified(|until| {
            *until = Some(turn.until.into_std());
            // The turn is the same one.
            false
        });
    }

    fn end(&self) {
        self.metrics.leases.decrement(1.0);
        self.told.send_replace(None);
    }

    /// Waits until this node has the lease.
    async fn acquire(&self) -> LeaseTurn {
        loop {
            if let Some(turn) = self.take().await {
                return turn;
            }
            // An answer that was lost leaves no sign, and so does a lease that ended by itself.
            tokio::select! {
                () = tokio::time::sleep(RENEW_AFTER) => {}
                () = self.entries.gone(&self.key) => tokio::time::sleep(spread(0, 200)).await,
            }
        }
    }

    /// Takes the lease if it is free, or this node's since an answer was lost.
    async fn take(&self) -> Option<LeaseTurn> {
        let sent = Instant::now();
        match self
            .entries
            .put(&self.key, self.value.clone(), Expected::Absent)
            .await
        {
            Ok(revision) => Some(LeaseTurn::written(revision, sent)),
            Err(StateError::Conflict) => {
                let own = self.own_revision().await?;
                self.renew(own).await.ok()
            }
            Err(error) => {
                // It is tried again, and until then no node takes this one for the holder.
                tracing::debug!(lease = %self.key, %error, "the lease was not asked for");
                None
            }
        }
    }

    /// Renews the lease until another node has it, or its time is over.
    async fn hold(&self, turn: &mut LeaseTurn) {
        let mut next = Instant::now() + RENEW_AFTER;
        loop {
            tokio::time::sleep_until(next.min(turn.until)).await;
            // A renewal that is under way at the end of the turn comes too late, whatever its answer.
            let until = turn.until;
            let renewed = match tokio::time::timeout_at(until, self.renew(turn.revision)).await {
                Ok(renewed) => renewed,
                Err(_late) => return,
            };
            next = Instant::now() + RETRY_AFTER;
            match renewed {
                Ok(renewed) => {
                    *turn = renewed;
                    self.put_off(renewed);
                    next = Instant::now() + RENEW_AFTER;
                }
                Err(StateError::Conflict) => {
                    // The answer to a renewal may have been lost, so the entry may be this node's.
                    let found = tokio::time::timeout_at(until, self.own_revision()).await;
                    let Ok(Some(own)) = found else { return };
                    turn.revision = own;
                    next = Instant::now();
                }
                Err(_unknown) if Instant::now() >= until => return,
                Err(_unknown) => {}
            }
        }
    }

    async fn renew(&self, revision: u64) -> Result<LeaseTurn, StateError> {
        // Before the request: the servers count from a later moment.
        let sent = Instant::now();
        let written = self
            .entries
            .put(&self.key, self.value.clone(), Expected::Revision(revision));
        Ok(LeaseTurn::written(written.await?, sent))
    }

    /// Returns the revision of the entry if it is this node's. While the state cannot be read it is not known
    /// to be.
    async fn own_revision(&self) -> Option<u64> {
        match self.entries.newest(&self.key).await {
            Ok(Some(entry)) if entry.value == self.value => Some(entry.revision),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};
    use tokio::sync::Notify;

    /// Entries in memory, which end by themselves. Requests of a node that is cut off wait for ever.
    #[derive(Clone, Default)]
    struct Entries {
        shared: Arc<Mutex<Shared>>,
        cut: Arc<Mutex<bool>>,
        /// Answers of this many writes are lost.
        lost: Arc<Mutex<usize>>,
        told: Arc<Notify>,
    }

    #[derive(Default)]
    struct Shared {
        revision: u64,
        entry: Option<(SharedEntry, Instant)>,
    }

    impl Entries {
        /// Another node with the same entries.
        fn other(&self) -> Entries {
            Entries {
                shared: self.shared.clone(),
                told: self.told.clone(),
                ..Entries::default()
            }
        }

        fn cut(&self, is_cut: bool) {
            *self.cut.lock().unwrap() = is_cut;
        }

        async fn reach(&self) {
            if *self.cut.lock().unwrap() {
                std::future::pending::<()>().await;
            }
        }

        fn current(&self) -> Option<SharedEntry> {
            let mut shared = self.shared.lock().unwrap();
            if let Some((_, written)) = &shared.entry
                && written.elapsed() >= LEASE_TTL
            {
                shared.entry = None;
            }
            shared.entry.as_ref().map(|(entry, _)| entry.clone())
        }
    }

    impl LeaseEntries for Entries {
        async fn put(&self, _: &StateKey, value: Bytes, expected: Expected) -> Result<u64, StateError> {
            self.reach().await;
            let found = match self.current() {
                Some(entry) => entry.revision,
                None => 0,
            };
            let wanted = match expected {
                Expected::Any => found,
                Expected::Absent => 0,
                Expected::Revision(revision) => revision,
            };
            if found != wanted {
                return Err(StateError::Conflict);
            }
            let revision = {
                let mut shared = self.shared.lock().unwrap();
                shared.revision += 1;
                let revision = shared.revision;
                shared.entry = Some((SharedEntry { value, revision }, Instant::now()));
                revision
            };
            let mut lost = self.lost.lock().unwrap();
            if *lost > 0 {
                *lost -= 1;
                return Err(StateError::Unavailable("lost".to_owned()));
            }
            Ok(revision)
        }

        async fn newest(&self, _: &StateKey) -> Result<Option<SharedEntry>, StateError> {
            self.reach().await;
            Ok(self.current())
        }

        async fn end(&self, _: &StateKey, revision: u64) -> Result<(), StateError> {
            self.reach().await;
            if self.current().map(|entry| entry.revision) == Some(revision) {
                self.shared.lock().unwrap().entry = None;
                self.told.notify_waiters();
            }
            Ok(())
        }

        async fn gone(&self, _: &StateKey) {
            self.told.notified().await;
        }
    }

    fn lease(entries: &Entries, node: &str) -> Lease {
        let node = node.to_owned();
        Lease::seek_in(entries.clone(), "t", &LeaseHolder { node, boot: 1 })
    }

    async fn turn(lease: &Lease) {
        lease.turns().wait_for(Option::is_some).await.unwrap();
    }

    async fn lost(lease: &Lease) {
        lease.turns().wait_for(Option::is_none).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn one_node_has_the_lease_and_keeps_it() {
        let entries = Entries::default();
        let first = lease(&entries, "a");
        turn(&first).await;
        let second = lease(&entries.other(), "b");
        tokio::time::sleep(Duration::from_secs(3_600)).await;
        assert!(first.turns().borrow().is_some());
        assert!(second.turns().borrow().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn released_lease_is_taken_at_once() {
        let entries = Entries::default();
        let first = lease(&entries, "a");
        turn(&first).await;
        let second = lease(&entries.other(), "b");
        tokio::time::sleep(Duration::from_secs(1)).await;
        let begin = Instant::now();
        first.release().await;
        turn(&second).await;
        assert!(begin.elapsed() < Duration::from_secs(1));
    }

    #[tokio::test(start_paused = true)]
    async fn cut_off_holder_ends_before_the_next_begins() {
        let entries = Entries::default();
        let first = lease(&entries, "a");
        turn(&first).await;
        let second = lease(&entries.other(), "b");
        tokio::time::sleep(Duration::from_secs(7)).await;
        entries.cut(true);
        lost(&first).await;
        let ended = Instant::now();
        turn(&second).await;
        assert!(
            ended.elapsed() > Duration::from_millis(1),
            "{:?}",
            ended.elapsed()
        );
        assert!(ended.elapsed() < LEASE_TTL);
        assert!(first.turns().borrow().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn holder_whose_answers_are_lost_keeps_the_lease() {
        let entries = Entries::default();
        *entries.lost.lock().unwrap() = 1;
        let first = lease(&entries, "a");
        turn(&first).await;
        let before = entries.current().unwrap().revision;
        let mut turns = first.turns();
        let until = turns.borrow_and_update().unwrap();
        *entries.lost.lock().unwrap() = 2;
        tokio::time::sleep(Duration::from_secs(30)).await;
        assert!(entries.current().unwrap().revision > before);
        // One turn, which was put off.
        assert!(!turns.has_changed().unwrap());
        assert!(turns.borrow().unwrap() >= until + Duration::from_secs(25));
    }

    #[tokio::test(start_paused = true)]
    async fn turn_is_over_before_another_node_has_the_lease() {
        let entries = Entries::default();
        let first = lease(&entries, "a");
        turn(&first).await;
        let turns = first.turns();
        let written = Instant::now();
        entries.cut(true);
        let second = lease(&entries.other(), "b");
        let until = turns.borrow().unwrap();
        turn(&second).await;
        assert!(until < Instant::now().into_std());
        assert!(until <= (written + LEASE_TTL - MARGIN).into_std());
    }

    #[tokio::test(start_paused = true)]
    async fn dropped_lease_goes_to_another_node() {
        let entries = Entries::default();
        let first = lease(&entries, "a");
        turn(&first).await;
        let second = lease(&entries.other(), "b");
        drop(first);
        turn(&second).await;
    }
}
