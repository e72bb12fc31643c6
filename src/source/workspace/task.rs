//! The task of the folder source: decides when to scan, and publishes the files that were read.
//!
//! It touches the disk only through the scanner, on blocking threads. The bus decides whether content
//! changed.

use super::WorkspaceStats;
use super::file_index::{KnownFile, ScanMode, ScanPlan, ScanScope, SeenFile};
use super::file_path::FilePath;
use super::file_uri::{path_of, uri_of};
use super::read::{FileContents, FileRead, ReadBatch};
use super::register::RegisterOutcome;
use super::registrations::Registrations;
use super::scanner::{Mark, RefusedFile, Scanner};
use super::skip::SkipReason;
use crate::source::watch::{DirtyBatch, PendingChanges};
use crate::source::{SourceBurst, SourceTurn, join_blocking};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tidings_actors::{Bus, Closed, Content, Descriptor, PublishError, Resource, ResourceUri};
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::Instant;

/// Every tenth rescan reads all files although their metadata are unchanged, which restores resources that
/// others changed on the bus. Doing so on every rescan would read a large folder all the time.
const THOROUGH_EVERY: u64 = 10;

/// Files to read, as they were seen.
type WantedFiles = BTreeMap<FilePath, SeenFile>;

/// The messages to the task.
pub(super) struct TaskInbox {
    /// Requests for a full scan, each answered when it is done.
    pub(super) rescans: mpsc::Receiver<oneshot::Sender<()>>,
    /// The outcomes of the runs of `register`.
    pub(super) outcomes: mpsc::Receiver<RegisterOutcome>,
}

/// The task.
pub(super) struct WorkspaceTask {
    pub(super) bus: Bus,
    pub(super) scheme: String,
    /// Shared with the blocking thread that scans; the task waits for it.
    pub(super) scanner: Arc<Mutex<Scanner>>,
    pub(super) registrations: Registrations,
    pub(super) turn: SourceTurn,
    /// Notified when the executable `register` may have changed.
    pub(super) register_changed: Arc<Notify>,
    pub(super) stats: watch::Sender<WorkspaceStats>,
    pub(super) changes: PendingChanges<Mark>,
    /// True if the next full scan reads all files.
    pub(super) thorough: bool,
    /// The interval of rescans.
    pub(super) rescan: Duration,
    /// True once the whole folder was scanned.
    pub(super) scanned_all: bool,
    /// True once everything in the folder was published, so that files of a former life that are not there
    /// any more were removed.
    pub(super) told_all: bool,
}

impl WorkspaceTask {
    /// Runs until the bus stops.
    pub(super) async fn run(mut self, mut inbox: TaskInbox) {
        let mut rescan_at = Instant::now() + self.rescan;
        loop {
            let done = tokio::select! {
                // Timers first: no flood of requests may put off the scan that is due.
                biased;
                batch = self.changes.next() => self.scan_changes(batch).await,
                () = tokio::time::sleep_until(rescan_at) => {
                    let done = self.rescan_by_interval().await;
                    // Counted from the end, so that a slow scan does not follow upon itself.
                    rescan_at = Instant::now() + self.rescan;
                    done
                }
                () = self.turn.begins() => self.take_over().await,
                Some(done) = inbox.rescans.recv() => self.rescan_on_request(done).await,
                Some(outcome) = inbox.outcomes.recv() => self.apply_register(outcome).await,
            };
            if let Err(Closed) = done {
                tracing::debug!("the bus has stopped; the folder is no longer watched");
                return;
            }
        }
    }

    async fn scan_changes(&mut self, batch: DirtyBatch<Mark>) -> Result<(), Closed> {
        self.stats.send_modify(|stats| stats.events_lost += batch.lost);
        let mut all = batch.all;
        let mut definitions = false;
        let mut paths = BTreeSet::new();
        for mark in batch.keys {
            match mark {
                Mark::Resource(path) if path.is_root() => all = true,
                Mark::Resource(path) => {
                    paths.insert(path);
                }
                Mark::Definitions => definitions = true,
                Mark::Register => self.register_changed.notify_one(),
            }
        }
        if all {
            return self.scan_all(batch.quiet).await;
        }
        self.scan(ScanScope::Below(paths), definitions, batch.quiet).await
    }

    async fn rescan_by_interval(&mut self) -> Result<(), Closed> {
        self.stats.send_modify(|stats| stats.rescans += 1);
        self.thorough |= self.stats.borrow().rescans.is_multiple_of(THOROUGH_EVERY);
        // In the middle of a change files are missing or half written; the scan after it becomes the full
        // one.
        if self.changes.widen() {
            return Ok(());
        }
        self.scan_all(false).await
    }

    async fn rescan_on_request(&mut self, done: oneshot::Sender<()>) -> Result<(), Closed> {
        self.scan_all(false).await?;
        if let Err(()) = done.send(()) {
            tracing::debug!("the caller of a rescan did not wait for its end");
        }
        Ok(())
    }

    /// Publishes everything anew at the beginning of a turn: the node that had the turn before may not have
    /// published what this one has seen.
    async fn take_over(&mut self) -> Result<(), Closed> {
        tracing::info!("this node publishes the folder from now on");
        // Files that were found meanwhile count as published, though they were not by this node.
        self.thorough = true;
        self.told_all = false;
        self.scan_all(false).await?;
        let is_file = self.is_file();
        self.registrations.take_over(is_file).await
    }

    /// Returns a function that tells whether a resource is a file.
    fn is_file(&self) -> impl Fn(&ResourceUri) -> bool + use<> {
        let scanner = self.scanner.clone();
        let scheme = self.scheme.clone();
        move |uri| match path_of(&scheme, uri.as_str()) {
            Some(path) => lock(&scanner).file_index.is_served(&path),
            None => false,
        }
    }

    /// Removes the resources of files that are not there any more, which another node published.
    async fn remove_strangers(&mut self) -> Result<(), Closed> {
        let is_file = self.is_file();
        let mut strangers = Vec::new();
        for (resource, _) in self.bus.resources_by_change()? {
            let uri = resource.uri();
            if path_of(&self.scheme, uri.as_str()).is_some() && !is_file(uri) {
                strangers.push(uri.clone());
            }
        }
        let burst = SourceBurst::new(&self.bus, &self.turn);
        // Those of other owners are refused, and stay.
        burst.remove_all(&strangers).await?;
        burst.finish().await
    }

    /// Scans the whole folder.
    pub(super) async fn scan_all(&mut self, quiet: bool) -> Result<(), Closed> {
        self.scan(ScanScope::All, true, quiet).await
    }

    /// Scans the resources in scope, and prompts and tools if `definitions` is set, and publishes the
    /// changes.
    async fn scan(&mut self, scope: ScanScope, definitions: bool, quiet: bool) -> Result<(), Closed> {
        self.scanned_all |= scope == ScanScope::All;
        let thorough = scope == ScanScope::All && std::mem::take(&mut self.thorough);
        let mode = ScanMode { quiet, thorough };
        let plan = self
            .with_scanner(move |scanner| scanner.scan(scope, mode))
            .await?;
        let mut done = self.carry_out(plan).await;
        if definitions {
            let found = self
                .with_scanner(move |scanner| scanner.scan_definitions(mode))
                .await?;
            if found.incomplete {
                self.changes.mark(Mark::Definitions);
            }
            done = done.and(self.registrations.replace_definitions(found).await);
        }
        self.stats.send_modify(|stats| stats.scans += 1);
        self.update_stats();
        done?;
        // A file that is being written is looked at again, and not gone.
        if self.scanned_all && !self.told_all && self.changes.is_empty() && self.turn.is_held() {
            if self.turn.is_shared() {
                self.remove_strangers().await?;
            }
            let removed = self.bus.remove_unclaimed().await?;
            if removed > 0 {
                tracing::info!(removed, "files that ended while the service was down are removed");
            }
            self.told_all = true;
        }
        Ok(())
    }

    /// Publishes the outcome of a run of `register`.
    pub(super) async fn apply_register(&mut self, outcome: RegisterOutcome) -> Result<(), Closed> {
        let is_file = self.is_file();
        let done = self.registrations.apply_register(outcome, is_file).await;
        self.stats.send_modify(|stats| stats.registers += 1);
        self.update_stats();
        done
    }

    fn update_stats(&self) {
        let scanner = lock(&self.scanner);
        let registrations = &self.registrations;
        self.stats.send_modify(|stats| {
            stats.files = scanner.file_index.served();
            stats.skipped = scanner.reports.counts();
            stats.over_limit = scanner.over_limit;
            stats.tools = registrations.tools();
            stats.prompts = registrations.prompts();
            stats.registered = registrations.resources();
            stats.problems = registrations.problems().all();
            stats.problems_reported = registrations.problems().reports();
        });
    }

    async fn carry_out(&mut self, plan: ScanPlan) -> Result<(), Closed> {
        // Removed before others are registered, which makes room when the bus is at its limit.
        let mut gone = Vec::new();
        for path in plan.remove {
            if lock(&self.scanner).file_index.forget(&path) {
                gone.push(path);
            }
        }
        // However many files come and go, one scan is one change of the list.
        let turn = self.turn.clone();
        let burst = SourceBurst::new(&self.bus, &turn);
        self.remove(&burst, &gone).await?;
        let mut reading = self.read_batch(plan.read);
        loop {
            let (batch, wanted) = join_blocking(reading).await?;
            if batch.is_empty() {
                break;
            }
            // The next files are read while these are published.
            reading = self.read_batch(wanted);
            self.publish(&burst, batch).await?;
        }
        burst.finish().await?;
        for path in plan.recheck {
            self.changes.mark(Mark::Resource(path));
        }
        Ok(())
    }

    /// Begins to read a batch of the wanted files on a blocking thread; it returns those that are left, too.
    /// The scanner is not locked meanwhile, since publishing needs it.
    fn read_batch(&self, mut wanted: WantedFiles) -> JoinHandle<(ReadBatch, WantedFiles)> {
        let folder = lock(&self.scanner).folder.clone();
        spawn_blocking(move || (folder.read_batch(&mut wanted), wanted))
    }

    async fn publish(&mut self, burst: &SourceBurst<'_>, batch: ReadBatch) -> Result<(), Closed> {
        self.stats.send_modify(|stats| stats.reads += batch.len() as u64);
        let mut files = Vec::new();
        let mut refused_files = Vec::new();
        for (path, seen, read) in batch {
            match read {
                FileRead::Contents(contents) => match uri_of(&self.scheme, &path) {
                    Ok(uri) => files.push((path, seen, uri, contents)),
                    Err(error) => {
                        let detail = error.to_string();
                        refused_files.push(refused(path, seen, SkipReason::PathTooLong, detail));
                    }
                },
                FileRead::Skipped(reason) => refused_files.push(refused(path, seen, reason, String::new())),
                FileRead::Gone => self.recheck_gone(path),
                FileRead::Changing => lock(&self.scanner).distrust(&path),
                FileRead::Failed(error) => self.report_failure(&path, &error),
            }
        }
        let resources = files
            .iter()
            .map(|(path, _, uri, contents)| resource(path, uri, contents))
            .collect();
        let outcomes = burst.upsert_all(resources).await?;
        for ((path, seen, _, contents), outcome) in std::iter::zip(files, outcomes) {
            match outcome {
                Ok(_) => self.keep(path, seen, &contents),
                Err(error) => {
                    let reason = match error {
                        PublishError::NotOwner { .. } => SkipReason::Owned,
                        _ => SkipReason::Refused,
                    };
                    refused_files.push(refused(path, seen, reason, error.to_string()));
                }
            }
        }
        self.refuse(burst, &refused_files).await
    }

    fn keep(&self, path: FilePath, seen: SeenFile, contents: &FileContents) {
        let mut scanner = lock(&self.scanner);
        scanner.reports.end(Path::new(path.as_str()));
        let known = KnownFile {
            identity: contents.identity,
            settled: contents.settled,
            served: true,
            target: seen.target,
        };
        scanner.file_index.keep(path, known);
    }

    /// Removes files that cannot be served.
    async fn refuse(&mut self, burst: &SourceBurst<'_>, refused_files: &[RefusedFile]) -> Result<(), Closed> {
        let mut gone = Vec::new();
        for file in refused_files {
            if lock(&self.scanner).refuse(file) {
                gone.push(file.path.clone());
            }
        }
        self.remove(burst, &gone).await
    }

    /// Looks again at a file that vanished between the scan and the read.
    fn recheck_gone(&self, path: FilePath) {
        if lock(&self.scanner).file_index.miss(&path) {
            self.changes.mark(Mark::Resource(path));
        }
    }

    fn report_failure(&self, path: &FilePath, error: &std::io::Error) {
        self.stats.send_modify(|stats| stats.errors += 1);
        let mut scanner = lock(&self.scanner);
        let detail = error.to_string();
        scanner
            .reports
            .skip(Path::new(path.as_str()), SkipReason::Unreadable, &detail);
        scanner.distrust(path);
    }

    async fn remove(&mut self, burst: &SourceBurst<'_>, paths: &[FilePath]) -> Result<(), Closed> {
        let mut uris = Vec::new();
        for path in paths {
            // A path without a URI was never registered.
            if let Ok(uri) = uri_of(&self.scheme, path) {
                uris.push(uri);
            }
        }
        burst.remove_all(&uris).await?;
        if !paths.is_empty() && lock(&self.scanner).over_limit > 0 {
            // There is room now for files that were over the limit.
            self.changes.mark(Mark::Resource(FilePath::root()));
        }
        Ok(())
    }

    /// Runs `work` with the scanner on a blocking thread.
    async fn with_scanner<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Scanner) -> T + Send + 'static,
    ) -> Result<T, Closed> {
        let scanner = self.scanner.clone();
        join_blocking(spawn_blocking(move || work(&mut lock(&scanner)))).await
    }
}

/// Locks the scanner. The task does not run while the blocking work that it waits for holds the lock.
fn lock(scanner: &Mutex<Scanner>) -> MutexGuard<'_, Scanner> {
    scanner.lock().unwrap_or_else(PoisonError::into_inner)
}

fn refused(path: FilePath, seen: SeenFile, reason: SkipReason, detail: String) -> RefusedFile {
    let known = KnownFile {
        identity: seen.identity,
        // A file refused by a limit stays refused until it changes. The other reasons may go away without a
        // change of the file, so it is read again.
        settled: matches!(reason, SkipReason::Refused | SkipReason::PathTooLong),
        served: false,
        target: seen.target,
    };
    RefusedFile {
        path,
        known,
        reason,
        detail,
    }
}

fn resource(path: &FilePath, uri: &ResourceUri, contents: &FileContents) -> Resource {
    let descriptor = Descriptor {
        name: path.name().to_owned(),
        media_type: Some(contents.media_type.into()),
        ..Descriptor::new(uri.clone())
    };
    Resource::new(descriptor, Content::Held(contents.body.clone()))
}
