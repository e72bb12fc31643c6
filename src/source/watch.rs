//! Watching files: the system's notifications, collected until they pause.
//!
//! A notification only says which path to read again. [`FileWatcher`] receives it on a thread of its own and
//! marks a key in a [`DirtySet`]; [`PendingChanges`] is the end held by the task of a source, which waits
//! until the marks pause.

use crate::metrics::{self, Limit};
use futures_util::FutureExt;
use notify::event::{AccessKind, AccessMode};
use notify::{Config, Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Keys that are kept one by one. Beyond them one full scan is cheaper than many small ones.
const KEYS_MAX: usize = 1_024;

/// The keys that were marked since the last scan.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct DirtyBatch<K> {
    /// The marked keys.
    pub(super) keys: BTreeSet<K>,
    /// True if everything must be scanned, because events were lost or too many keys were marked.
    pub(super) all: bool,
    /// Number of times that events were lost.
    pub(super) lost: u64,
    /// True if nothing was marked for the quiet time; false if the longest wait ended a burst.
    pub(super) quiet: bool,
}

impl<K> Default for DirtyBatch<K> {
    fn default() -> DirtyBatch<K> {
        DirtyBatch {
            keys: BTreeSet::new(),
            all: false,
            lost: 0,
            quiet: false,
        }
    }
}

impl<K> DirtyBatch<K> {
    fn is_pending(&self) -> bool {
        self.all || !self.keys.is_empty()
    }
}

/// Marks on their way from the watcher's thread to the task.
#[derive(Debug)]
pub(super) struct DirtySet<K> {
    batch: Mutex<DirtyBatch<K>>,
    changed: Notify,
}

impl<K: Ord> DirtySet<K> {
    /// Returns a set without marks.
    pub(super) fn new() -> Arc<DirtySet<K>> {
        Arc::new(DirtySet {
            batch: Mutex::default(),
            changed: Notify::new(),
        })
    }

    /// Marks a key.
    pub(super) fn mark(&self, key: K) {
        let mut batch = self.lock();
        if batch.keys.len() < KEYS_MAX {
            batch.keys.insert(key);
        } else if !batch.keys.contains(&key) {
            batch.all = true;
        }
        // The task may run at once, on another thread, and would have to wait for the lock.
        drop(batch);
        self.changed.notify_one();
    }

    /// Marks everything because events were lost.
    fn lose(&self) {
        let mut batch = self.lock();
        batch.all = true;
        batch.lost += 1;
        drop(batch);
        self.changed.notify_one();
    }

    /// Marks the keys of an event of the system.
    fn receive(&self, event: notify::Result<Event>, key_of: &impl Fn(&Path) -> Option<K>) {
        let event = match event {
            Ok(event) => event,
            Err(error) => {
                tracing::debug!(%error, "the file watcher failed");
                return self.lose();
            }
        };
        if event.need_rescan() {
            self.lose();
        }
        if !can_change_content(event.kind) {
            return;
        }
        // The event of a rename has both paths.
        for path in &event.paths {
            if let Some(key) = key_of(path) {
                self.mark(key);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, DirtyBatch<K>> {
        // A batch is valid after every single write, so a panic of another holder does no harm.
        self.batch.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns false for events that reading a file causes, such as those of the source's own scans.
fn can_change_content(kind: EventKind) -> bool {
    match kind {
        EventKind::Access(kind) => kind == AccessKind::Close(AccessMode::Write),
        _ => true,
    }
}

/// Returns the key to mark for a path, or `None` to ignore it.
type KeyOf<K> = dyn Fn(&Path) -> Option<K> + Send + Sync;

/// The system's file watcher, which marks the keys of paths that changed.
///
/// It is started by the first [`watch`](FileWatcher::watch). If the system has none left, the rescans of
/// the source find the changes.
pub(super) struct FileWatcher<K> {
    dirty: Arc<DirtySet<K>>,
    key_of: Arc<KeyOf<K>>,
    system: Option<RecommendedWatcher>,
    enabled: bool,
    failing: bool,
}

impl<K: Ord + Send + 'static> FileWatcher<K> {
    /// Returns a watcher that watches nothing yet. `key_of` gives the key to mark for a path, or `None` to
    /// ignore it.
    ///
    /// One that is not enabled never watches anything, so that tests see the rescans alone.
    pub(super) fn new(
        dirty: Arc<DirtySet<K>>,
        enabled: bool,
        key_of: impl Fn(&Path) -> Option<K> + Send + Sync + 'static,
    ) -> FileWatcher<K> {
        FileWatcher {
            dirty,
            key_of: Arc::new(key_of),
            system: None,
            enabled,
            failing: false,
        }
    }

    /// Watches `path` as well. Links below it are not followed.
    pub(super) fn watch(&mut self, path: &Path, mode: RecursiveMode) -> notify::Result<()> {
        if !self.enabled {
            return Ok(());
        }
        if self.system.is_none() {
            let dirty = self.dirty.clone();
            let key_of = self.key_of.clone();
            // Following them would watch folders outside of the served one.
            let config = Config::default().with_follow_symlinks(false);
            self.system = Some(RecommendedWatcher::new(
                move |event| dirty.receive(event, &|path: &Path| key_of(path)),
                config,
            )?);
        }
        match self.system.as_mut() {
            Some(system) => system.watch(path, mode),
            None => Ok(()),
        }
    }

    /// Watches nothing any more.
    pub(super) fn reset(&mut self) {
        self.system = None;
    }

    /// Marks everything, for a path that vanished while it was about to be watched.
    pub(super) fn mark_all(&self) {
        self.dirty.lose();
    }

    /// Ends a series of failures, so that the next one is logged again.
    pub(super) fn report_success(&mut self) {
        self.failing = false;
    }

    /// Logs the first of a series of failures to watch a path.
    pub(super) fn report_failure(&mut self, path: &Path, error: &notify::Error) {
        if self.failing {
            return;
        }
        self.failing = true;
        tracing::warn!(path = %path.display(), %error, "cannot watch for changes; they are found every workspace.rescan \
             (on Linux, raise fs.inotify.max_user_watches or max_user_instances)");
    }
}

/// Returns true if a path could not be watched because it does not exist.
pub(super) fn is_not_found(error: &notify::Error) -> bool {
    matches!(error.kind, notify::ErrorKind::PathNotFound)
}

/// The task's end of a [`DirtySet`]: hands out the marks when it is time for a scan.
#[derive(Debug)]
pub(super) struct PendingChanges<K> {
    dirty: Arc<DirtySet<K>>,
    debounce: Debounce,
}

impl<K: Ord> PendingChanges<K> {
    /// Waits for a pause of `quiet` between marks, but never longer than `longest` after the first one.
    pub(super) fn new(dirty: Arc<DirtySet<K>>, quiet: Duration, longest: Duration) -> PendingChanges<K> {
        PendingChanges {
            dirty,
            debounce: Debounce {
                quiet,
                longest,
                window: None,
            },
        }
    }

    /// Marks a key for another scan after the quiet time.
    pub(super) fn mark(&self, key: K) {
        self.dirty.mark(key);
    }

    /// Makes a pending scan a full one. Returns false if none is pending.
    pub(super) fn widen(&self) -> bool {
        let mut batch = self.dirty.lock();
        let is_pending = batch.is_pending();
        batch.all = is_pending;
        is_pending
    }

    /// Returns true if no scan is pending.
    pub(super) fn is_empty(&self) -> bool {
        !self.dirty.lock().is_pending()
    }

    /// Waits until it is time for a scan, and takes the marks. Cancel safe.
    pub(super) async fn next(&mut self) -> DirtyBatch<K> {
        loop {
            let due_at = self.debounce.due_at();
            tokio::select! {
                // The timer first: no flood of events may put off the scan that ends it.
                biased;
                () = tokio::time::sleep_until(due_at.unwrap_or_else(Instant::now)), if due_at.is_some() => {
                    // A mark made while the task was busy ends the quiet although it was not seen yet.
                    if self.dirty.changed.notified().now_or_never().is_some() {
                        self.debounce.mark(Instant::now());
                    }
                    if let Some(quiet) = self.debounce.take(Instant::now()) {
                        if !quiet {
                            metrics::limit_reached(Limit::Debounce);
                        }
                        let batch = std::mem::take(&mut *self.dirty.lock());
                        return DirtyBatch { quiet, ..batch };
                    }
                }
                () = self.dirty.changed.notified() => self.debounce.mark(Instant::now()),
            }
        }
    }
}

/// The window between the first mark and the scan that follows.
#[derive(Debug)]
struct Debounce {
    quiet: Duration,
    longest: Duration,
    window: Option<DebounceWindow>,
}

#[derive(Debug, Clone, Copy)]
struct DebounceWindow {
    first: Instant,
    last: Instant,
}

impl Debounce {
    /// Opens the window, or keeps it open.
    fn mark(&mut self, now: Instant) {
        match &mut self.window {
            Some(window) => window.last = now,
            None => {
                self.window = Some(DebounceWindow {
                    first: now,
                    last: now,
                });
            }
        }
    }

    /// The time of the scan, unless further marks come before.
    fn due_at(&self) -> Option<Instant> {
        let window = self.window?;
        Some((window.last + self.quiet).min(window.first + self.longest))
    }

    /// Closes the window if it is time; then returns true if the marks paused for the quiet time.
    fn take(&mut self, now: Instant) -> Option<bool> {
        let window = self.window?;
        if self.due_at()? > now {
            return None;
        }
        self.window = None;
        Some(window.last + self.quiet <= now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use notify::event::{CreateKind, Flag};
    use proptest::collection::vec;
    use proptest::prelude::*;

    const QUIET: Duration = Duration::from_millis(100);
    const LONGEST: Duration = Duration::from_millis(1_000);

    fn millis(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    fn debounce() -> Debounce {
        Debounce {
            quiet: QUIET,
            longest: LONGEST,
            window: None,
        }
    }

    fn batch(keys: &[u64], quiet: bool) -> DirtyBatch<u64> {
        DirtyBatch {
            keys: keys.iter().copied().collect(),
            quiet,
            ..DirtyBatch::default()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn changes_after_a_pause_come_as_one_batch() {
        let dirty = DirtySet::new();
        let mut changes = PendingChanges::new(dirty.clone(), QUIET, LONGEST);
        let start = Instant::now();
        dirty.mark(1);
        tokio::time::advance(millis(50)).await;
        dirty.mark(2);
        assert_eq!(changes.next().await, batch(&[1, 2], true));
        assert_eq!(start.elapsed(), millis(150));
    }

    #[tokio::test(start_paused = true)]
    async fn changes_in_a_burst_wait_no_longer_than_the_limit() {
        let dirty = DirtySet::new();
        let mut changes = PendingChanges::new(dirty.clone(), QUIET, LONGEST);
        let start = Instant::now();
        tokio::spawn(async move {
            loop {
                dirty.mark(1);
                tokio::time::sleep(millis(50)).await;
            }
        });
        assert_eq!(changes.next().await, batch(&[1], false));
        assert_eq!(start.elapsed(), LONGEST);
    }

    #[tokio::test(start_paused = true)]
    async fn widened_changes_are_a_full_scan() {
        let mut changes = PendingChanges::new(DirtySet::new(), QUIET, LONGEST);
        assert!(!changes.widen());
        changes.mark(1);
        assert!(changes.widen());
        assert!(changes.next().await.all);
        assert!(!changes.widen());
    }

    #[test]
    fn too_many_keys_become_a_full_scan() {
        let dirty = DirtySet::new();
        for key in 0..KEYS_MAX {
            dirty.mark(key);
        }
        dirty.mark(0);
        assert!(!dirty.lock().all);
        dirty.mark(KEYS_MAX);
        assert!(dirty.lock().all);
        assert_eq!(dirty.lock().keys.len(), KEYS_MAX);
    }

    #[test]
    fn lost_events_become_a_full_scan() {
        let dirty = DirtySet::<u64>::new();
        let rescan = Event::new(EventKind::Other).set_flag(Flag::Rescan);
        for event in [Ok(rescan), Err(notify::Error::generic("broken"))] {
            dirty.receive(event, &|_: &Path| None);
        }
        let lost = dirty.lock();
        assert!(lost.all);
        assert_eq!(lost.lost, 2);
    }

    #[test]
    fn events_of_reading_mark_nothing() {
        for (kind, marked) in [
            (EventKind::Access(AccessKind::Open(AccessMode::Any)), 0),
            (EventKind::Access(AccessKind::Close(AccessMode::Read)), 0),
            (EventKind::Access(AccessKind::Close(AccessMode::Write)), 1),
            (EventKind::Create(CreateKind::File), 1),
        ] {
            let dirty = DirtySet::new();
            let event = Event::new(kind).add_path("/a".into());
            dirty.receive(Ok(event), &|path: &Path| Some(path.to_owned()));
            assert_eq!(dirty.lock().keys.len(), marked, "{kind:?}");
        }
    }

    #[test]
    fn debounce_after_quiet_starts_anew() {
        let start = Instant::now();
        let mut debounce = debounce();
        assert_eq!((debounce.due_at(), debounce.take(start)), (None, None));
        debounce.mark(start);
        debounce.mark(start + millis(50));
        assert_eq!(debounce.due_at(), Some(start + millis(150)));
        assert_eq!(debounce.take(start + millis(149)), None);
        assert_eq!(debounce.take(start + millis(150)), Some(true));
        assert_eq!(debounce.due_at(), None);
    }

    proptest! {
        /// Marks at random times, with the due time computed from its definition.
        #[test]
        fn debounce_is_due_once_per_window(pauses in vec(0_u64..400, 1..60)) {
            let mut now = Instant::now();
            let mut debounce = debounce();
            let mut marks = Vec::<Instant>::new();
            for pause in pauses {
                let next = now + millis(pause);
                if let Some(due) = debounce.due_at().filter(|due| *due <= next) {
                    let last = marks[marks.len() - 1];
                    prop_assert_eq!(due, (last + QUIET).min(marks[0] + LONGEST));
                    prop_assert_eq!(debounce.take(due - millis(1)), None);
                    prop_assert_eq!(debounce.take(due), Some(due == last + QUIET));
                    marks.clear();
                }
                now = next;
                debounce.mark(now);
                marks.push(now);
            }
            prop_assert!(debounce.due_at().is_some());
        }
    }
}
