//! The task of the folder source: when to look, and telling the bus.
//!
//! Owns: the marks that came since the last look, the timers, and the publishing. It hears of events from the
//! watcher's thread through a bounded channel, has the scanner look and read on blocking threads, and sends what
//! comes of it to the bus, which decides whether anything changed. Never touches the disk itself.

use super::WorkspaceStats;
use super::dirty_paths::{DirtyPaths, MARKS_MAX};
use super::file_index::{KnownFile, Plan, Scope, SeenFile, Trust};
use super::path::FilePath;
use super::read::{Contents, Portion, Reading};
use super::register::Outcome;
use super::registrations::Registrations;
use super::scanner::Scanner;
use super::skip::SkipReason;
use super::uri::{path_of, uri_of};
use super::watch::Mark;
use crate::metrics::{self, Limit};
use crate::source::watch::{Debounce, Due};
use futures_util::future::join_all;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tidings_actors::{Body, Bus, Closed, Content, Descriptor, PublishError, Resource, ResourceUri};
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::task::{JoinError, JoinHandle, spawn_blocking};

/// Every so many rescans read all files, whatever their metadata say.
const THOROUGH_EVERY: u64 = 10;
/// Removals sent to the bus at once.
const PORTION: usize = 64;

/// Files to read, as they were seen.
type Wanted = BTreeMap<FilePath, SeenFile>;

/// What the task hears.
pub(super) struct Inbox {
    /// Where something happened.
    pub(super) marks: mpsc::Receiver<Mark>,
    /// Rung when events were lost.
    pub(super) lost: Arc<Notify>,
    /// Those who ask for a full look, and wait for it.
    pub(super) asks: mpsc::Receiver<oneshot::Sender<()>>,
    /// What came of the runs of `register`.
    pub(super) outcomes: mpsc::Receiver<Outcome>,
}

/// The task.
pub(super) struct Task {
    bus: Bus,
    scheme: String,
    scanner: Arc<Mutex<Scanner>>,
    registrations: Registrations,
    /// Rung when `register` is another one.
    register: Arc<Notify>,
    stats: watch::Sender<WorkspaceStats>,
    debounce: Debounce,
    dirty: DirtyPaths,
    thorough: bool,
    rescan: Duration,
    rescan_at: Instant,
}

impl Task {
    pub(super) fn new(
        bus: Bus,
        config: &crate::config::WorkspaceConfig,
        scanner: Scanner,
        registrations: Registrations,
        stats: watch::Sender<WorkspaceStats>,
    ) -> Task {
        Task {
            bus,
            scheme: config.scheme.clone(),
            scanner: Arc::new(Mutex::new(scanner)),
            registrations,
            register: Arc::new(Notify::new()),
            stats,
            debounce: Debounce::new(config.debounce, config.debounce_max),
            dirty: DirtyPaths::default(),
            thorough: false,
            rescan: config.rescan,
            rescan_at: Instant::now() + config.rescan,
        }
    }

    /// What is rung when `register` is another one.
    pub(super) fn register_bell(&self) -> Arc<Notify> {
        self.register.clone()
    }

    /// Works until the bus stops.
    pub(super) async fn run(mut self, mut inbox: Inbox) {
        while self.step(&mut inbox).await.is_ok() {}
        tracing::debug!("the bus has stopped; the folder is no longer watched");
    }

    async fn step(&mut self, inbox: &mut Inbox) -> Result<(), Closed> {
        let due_at = self.debounce.due_at();
        let mut marks = Vec::new();
        // Timers first: no flood of events may put off the look that ends it.
        tokio::select! {
            biased;
            () = sleep_until(due_at.unwrap_or(self.rescan_at)), if due_at.is_some() => self.after_events(inbox).await,
            () = sleep_until(self.rescan_at) => self.after_interval().await,
            Some(done) = inbox.asks.recv() => {
                self.look(Scope::All, false).await?;
                // Who asked may have gone meanwhile.
                done.send(()).unwrap_or_default();
                Ok(())
            }
            () = inbox.lost.notified() => {
                self.stats.send_modify(|stats| stats.events_lost += 1);
                self.mark(FilePath::root());
                Ok(())
            }
            Some(outcome) = inbox.outcomes.recv() => self.registered(outcome).await,
            _ = inbox.marks.recv_many(&mut marks, MARKS_MAX), if !inbox.marks.is_closed() => {
                marks.drain(..).for_each(|mark| self.hear(mark));
                Ok(())
            }
        }
    }

    fn hear(&mut self, mark: Mark) {
        self.debounce.mark(Instant::now());
        self.dirty.add(mark);
    }

    fn mark(&mut self, path: FilePath) {
        self.hear(Mark::Resource(path));
    }

    async fn after_events(&mut self, inbox: &mut Inbox) -> Result<(), Closed> {
        // It is quiet only when nothing waits to be heard.
        for _ in 0..inbox.marks.max_capacity() {
            let Ok(mark) = inbox.marks.try_recv() else { break };
            self.hear(mark);
        }
        let Some(due) = self.debounce.take(Instant::now()) else {
            return Ok(());
        };
        if self.dirty.take_register() {
            self.register.notify_one();
        }
        if due == Due::Limit {
            metrics::limit_reached(Limit::Debounce);
        }
        let scope = self.dirty.take_scope();
        self.look(scope, due == Due::Quiet).await
    }

    async fn after_interval(&mut self) -> Result<(), Closed> {
        self.rescan_at = Instant::now() + self.rescan;
        self.stats.send_modify(|stats| stats.rescans += 1);
        self.thorough |= self.stats.borrow().rescans.is_multiple_of(THOROUGH_EVERY);
        if self.debounce.is_open() {
            // In the middle of a change there is nothing to see; the look after it becomes a full one.
            self.dirty.add_all();
            return Ok(());
        }
        self.look(Scope::All, false).await?;
        self.rescan_at = Instant::now() + self.rescan;
        Ok(())
    }

    /// Looks at what is in scope and tells the bus what became of it.
    pub(super) async fn look(&mut self, scope: Scope, quiet: bool) -> Result<(), Closed> {
        let all = scope == Scope::All;
        let thorough = all && std::mem::take(&mut self.thorough);
        let trust = Trust { quiet, thorough };
        let plan = self.off(move |scanner| scanner.look(scope, trust)).await?;
        let mut carried_out = self.carry_out(plan).await;
        if self.dirty.take_definitions() || all {
            let found_definitions = self.off(move |scanner| scanner.scan_definitions(trust)).await?;
            if found_definitions.doubt {
                self.hear(Mark::DefinitionFolders);
            }
            carried_out = carried_out.and(self.registrations.replace_definitions(found_definitions).await);
        }
        self.stats.send_modify(|stats| stats.looks += 1);
        self.count();
        carried_out
    }

    /// Tells the bus what became of a run of `register`.
    pub(super) async fn registered(&mut self, outcome: Outcome) -> Result<(), Closed> {
        let (scanner, scheme) = (self.scanner.clone(), self.scheme.clone());
        let is_file = move |uri: &ResourceUri| {
            let served = |path: FilePath| {
                lock(&scanner)
                    .file_index
                    .get(&path)
                    .is_some_and(|known| known.served)
            };
            path_of(&scheme, uri.as_str()).is_some_and(served)
        };
        let registered = self.registrations.registered(outcome, is_file).await;
        self.stats.send_modify(|stats| stats.registers += 1);
        self.count();
        registered
    }

    fn count(&self) {
        let scanner = lock(&self.scanner);
        let [tools, prompts, registered] = self.registrations.counts();
        let problems = self.registrations.problems();
        self.stats.send_modify(|stats| {
            stats.files = scanner.file_index.served();
            stats.skipped = scanner.reports.counts();
            stats.beyond = scanner.beyond;
            (stats.tools, stats.prompts, stats.registered) = (tools, prompts, registered);
            stats.problems = problems.all();
            stats.problems_reported = problems.reports();
        });
    }

    async fn carry_out(&mut self, plan: Plan) -> Result<(), Closed> {
        let gone = {
            let file_index = &mut lock(&self.scanner).file_index;
            let gone = plan.remove.into_iter().filter(|path| file_index.forget(path));
            gone.collect::<Vec<_>>()
        };
        self.remove(&gone).await?;
        let mut reading = self.read(plan.read);
        loop {
            let (portion, wanted) = came(reading.await)?;
            if portion.is_empty() {
                break;
            }
            // The next files are read while these are published.
            reading = self.read(wanted);
            self.publish(portion).await?;
        }
        for path in plan.doubt {
            self.mark(path);
        }
        Ok(())
    }

    async fn publish(&mut self, portion: Portion) -> Result<(), Closed> {
        let mut files = Vec::new();
        let mut gone = Vec::new();
        for (path, seen, reading) in portion {
            self.stats.send_modify(|stats| stats.reads += 1);
            match reading {
                Reading::File(contents) => match uri_of(&self.scheme, &path) {
                    Ok(uri) => files.push((path, seen, uri, *contents)),
                    Err(error) => {
                        let detail = error.to_string();
                        self.refuse(path, &seen, SkipReason::PathTooLong, &detail, &mut gone);
                    }
                },
                Reading::Skipped(reason) => self.refuse(path, &seen, reason, "", &mut gone),
                Reading::Gone => self.lose(path),
                Reading::Unsettled => lock(&self.scanner).distrust(&path),
                Reading::Failed(error) => self.fail(&path, &error),
            }
        }
        let upserts = files.iter().map(|(path, _, uri, contents)| {
            let resource = resource(path, uri.clone(), contents.media_type, contents.body.clone());
            self.bus.upsert(resource)
        });
        let outcomes = join_all(upserts).await;
        for ((path, seen, _, contents), outcome) in files.into_iter().zip(outcomes) {
            match outcome {
                Ok(_) => self.keep(path, seen, &contents),
                Err(PublishError::Closed(closed)) => return Err(closed),
                Err(error) => {
                    self.refuse(path, &seen, SkipReason::Refused, &error.to_string(), &mut gone);
                }
            }
        }
        self.remove(&gone).await
    }

    fn keep(&self, path: FilePath, seen: SeenFile, contents: &Contents) {
        let scanner = &mut *lock(&self.scanner);
        scanner.reports.end(Path::new(path.as_str()));
        let known = KnownFile {
            identity: contents.identity,
            settled: contents.settled,
            served: true,
            target: seen.target,
        };
        scanner.file_index.keep(path, known);
    }

    fn refuse(
        &self,
        path: FilePath,
        seen: &SeenFile,
        reason: SkipReason,
        detail: &str,
        gone: &mut Vec<FilePath>,
    ) {
        let known = KnownFile {
            identity: seen.identity,
            // What a limit refuses stays refused until it changes; the rest is worth another try.
            settled: matches!(reason, SkipReason::Refused | SkipReason::PathTooLong),
            served: false,
            target: seen.target.clone(),
        };
        if lock(&self.scanner).refuse(path.clone(), known, reason, detail) {
            gone.push(path);
        }
    }

    /// A file vanished between the look and the read.
    fn lose(&mut self, path: FilePath) {
        let known = {
            let file_index = &mut lock(&self.scanner).file_index;
            let known = file_index.get(&path).is_some();
            if known {
                file_index.doubt(path.clone());
            }
            known
        };
        if known {
            self.mark(path);
        }
    }

    fn fail(&self, path: &FilePath, error: &std::io::Error) {
        self.stats.send_modify(|stats| stats.errors += 1);
        let scanner = &mut *lock(&self.scanner);
        scanner.reports.skip(
            Path::new(path.as_str()),
            SkipReason::Unreadable,
            &error.to_string(),
        );
        scanner.distrust(path);
    }

    async fn remove(&mut self, paths: &[FilePath]) -> Result<(), Closed> {
        for portion in paths.chunks(PORTION) {
            let uris = portion.iter().filter_map(|path| uri_of(&self.scheme, path).ok());
            for outcome in join_all(uris.map(|uri| self.bus.remove(uri))).await {
                match outcome {
                    Err(PublishError::Closed(closed)) => return Err(closed),
                    // Somebody else removed it: it is gone, which is what was wanted.
                    Err(error) => tracing::debug!(%error, "could not remove a file's resource"),
                    Ok(_) => {}
                }
            }
        }
        if !paths.is_empty() && lock(&self.scanner).beyond > 0 {
            // There is room for files that were skipped.
            self.mark(FilePath::root());
        }
        Ok(())
    }

    /// Runs `work` where it may block. Fails when the runtime ends.
    async fn off<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Scanner) -> T + Send + 'static,
    ) -> Result<T, Closed> {
        let scanner = self.scanner.clone();
        came(spawn_blocking(move || work(&mut lock(&scanner))).await)
    }

    /// Begins to read a portion of what is wanted, where it may block; answers it, and what is left. The books are
    /// not needed for that, so others may have them meanwhile.
    fn read(&self, mut wanted: Wanted) -> JoinHandle<(Portion, Wanted)> {
        let folder = lock(&self.scanner).folder.clone();
        spawn_blocking(move || (folder.read_portion(&mut wanted), wanted))
    }
}

/// What came of work on a blocking thread. Fails when the runtime ends.
fn came<T>(done: Result<T, JoinError>) -> Result<T, Closed> {
    done.map_err(|error| {
        if error.is_panic() {
            std::panic::resume_unwind(error.into_panic());
        }
        Closed
    })
}

/// Nobody else holds it but the blocking work that the task waits for.
fn lock(scanner: &Mutex<Scanner>) -> MutexGuard<'_, Scanner> {
    scanner.lock().unwrap_or_else(PoisonError::into_inner)
}

fn resource(path: &FilePath, uri: ResourceUri, media_type: &str, body: Body) -> Resource {
    let descriptor = Descriptor {
        name: path.name().to_owned(),
        media_type: Some(media_type.to_owned()),
        ..Descriptor::new(uri)
    };
    Resource::new(descriptor, Content::Held(body))
}

async fn sleep_until(instant: Instant) {
    tokio::time::sleep_until(instant.into()).await;
}
