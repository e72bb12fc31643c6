//! The task of a collection: when to look at the file, and what becomes of it.
//!
//! Owns: the timers and the judgement. It hears the watcher's bell, has the file read and its views built on a
//! blocking thread, and hands what is believed to the publisher. However often the file is written, it looks once per
//! debounce. Never touches the disk itself, and ends with the bus.

use super::CollectionStats;
use super::document::{Built, Spec};
use super::fault::Fault;
use super::publish::ViewPublisher;
use super::reading::{self, Reading};
use super::settle::{Decision, ReadResult, SettleRule};
use super::watch::FileWatch;
use crate::config::WorkspaceConfig;
use crate::metrics::{self, Limit, Source};
use crate::source::file_identity::FileIdentity;
use crate::source::watch::{Debounce, Due};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tidings_actors::Closed;
use tokio::sync::{Notify, watch};

/// Every so many slow looks read the file whatever its metadata say, and put right what others did on the bus.
const THOROUGH_EVERY: u64 = 10;

/// What a look is made with.
pub(super) struct FileScanner {
    pub(super) path: PathBuf,
    pub(super) bytes_max: u64,
    pub(super) spec: Arc<Spec>,
    pub(super) watch: FileWatch,
}

/// What a look found, with what there is to show or to say.
enum Sight {
    /// The same as before.
    Known,
    Document(Built, Option<FileIdentity>),
    Fault(Fault),
    Unsettled,
}

impl FileScanner {
    fn look(&mut self, known: Option<FileIdentity>) -> Sight {
        // Covered before it is read, so that nothing falls between.
        self.watch.cover();
        let (bytes, state) = match reading::read(&self.path, known, self.bytes_max) {
            Reading::Bytes(bytes, state) => (bytes, state),
            Reading::Absent => (Vec::new(), None),
            Reading::Known => return Sight::Known,
            Reading::Unsettled => return Sight::Unsettled,
            Reading::Faulty(fault) => return Sight::Fault(fault),
        };
        match self.spec.build(&bytes) {
            Ok(built) => Sight::Document(built, state),
            Err(fault) => Sight::Fault(fault),
        }
    }
}

/// The task.
pub(super) struct Task {
    scanner: Arc<Mutex<FileScanner>>,
    name: String,
    file: PathBuf,
    publisher: ViewPublisher,
    settle: SettleRule,
    known: Option<FileIdentity>,
    stats: watch::Sender<CollectionStats>,
    debounce: Debounce,
    rescan: Duration,
    rescan_at: Instant,
}

impl Task {
    pub(super) fn new(
        scanner: FileScanner,
        publisher: ViewPublisher,
        timing: &WorkspaceConfig,
        stats: watch::Sender<CollectionStats>,
    ) -> Task {
        Task {
            name: scanner.spec.name.clone(),
            file: scanner.path.clone(),
            scanner: Arc::new(Mutex::new(scanner)),
            publisher,
            settle: SettleRule::default(),
            known: None,
            stats,
            debounce: Debounce::new(timing.debounce, timing.debounce_max),
            rescan: timing.rescan,
            rescan_at: Instant::now() + timing.rescan,
        }
    }

    /// Shows the file as it is, or the empty list while it cannot be taken.
    pub(super) async fn begin(&mut self, empty: Built) -> Result<(), Closed> {
        self.look(true).await?;
        if self.publisher.views() == 0 {
            self.show(empty).await?;
        }
        Ok(())
    }

    /// Works until the bus stops.
    pub(super) async fn run(mut self, bell: Arc<Notify>) {
        while self.step(&bell).await.is_ok() {}
        tracing::debug!(
            collection = self.name,
            "the bus has stopped; the file is no longer watched"
        );
    }

    async fn step(&mut self, bell: &Notify) -> Result<(), Closed> {
        let due_at = self.debounce.due_at();
        // Timers first: no flood of events may put off the look that ends it.
        tokio::select! {
            biased;
            () = sleep_until(due_at.unwrap_or(self.rescan_at)), if due_at.is_some() => {
                match self.debounce.take(Instant::now()) {
                    Some(due) => {
                        if due == Due::Limit {
                            metrics::limit_reached(Limit::Debounce);
                        }
                        self.look(due == Due::Quiet).await
                    }
                    None => Ok(()),
                }
            }
            () = sleep_until(self.rescan_at) => {
                self.after_interval();
                Ok(())
            }
            () = bell.notified() => {
                self.debounce.mark(Instant::now());
                Ok(())
            }
        }
    }

    /// The slow look is one like any other, a quiet time later.
    fn after_interval(&mut self) {
        self.rescan_at = Instant::now() + self.rescan;
        self.debounce.mark(Instant::now());
        let mut rescans = 0;
        self.stats.send_modify(|stats| {
            stats.rescans += 1;
            rescans = stats.rescans;
        });
        let thorough = rescans.is_multiple_of(THOROUGH_EVERY);
        if thorough {
            self.publisher.distrust();
        }
        if thorough || self.publisher.is_refused() {
            self.known = None;
        }
    }

    async fn look(&mut self, quiet: bool) -> Result<(), Closed> {
        let known = self.known.filter(|_| !self.settle.is_unsettled());
        let scanner = self.scanner.clone();
        let look = move || scanner.lock().unwrap_or_else(PoisonError::into_inner).look(known);
        let sight = tokio::task::spawn_blocking(look).await.map_err(|error| {
            if error.is_panic() {
                std::panic::resume_unwind(error.into_panic());
            }
            Closed
        })?;
        self.stats.send_modify(|stats| stats.looks += 1);
        let shown = match sight {
            Sight::Known => Ok(()),
            Sight::Unsettled => {
                self.decide(ReadResult::Unsettled, quiet);
                Ok(())
            }
            Sight::Document(built, state) => self.consider(built, state, quiet).await,
            Sight::Fault(fault) => {
                self.refuse(&fault, quiet);
                Ok(())
            }
        };
        let failing = self.settle.is_failing();
        self.stats.send_modify(|stats| stats.failing = failing);
        shown
    }

    fn decide(&mut self, result: ReadResult, quiet: bool) -> Decision {
        let decision = self.settle.settle(result, quiet);
        if decision == Decision::Wait {
            self.debounce.mark(Instant::now());
        }
        decision
    }

    async fn consider(
        &mut self,
        built: Built,
        state: Option<FileIdentity>,
        quiet: bool,
    ) -> Result<(), Closed> {
        let result = if built.index.is_empty() {
            ReadResult::Empty
        } else {
            ReadResult::Sound
        };
        let Decision::Take { recovered } = self.decide(result, quiet) else {
            return Ok(());
        };
        if recovered {
            let (collection, file) = (&self.name, self.file.display());
            tracing::info!(collection, %file, "the file of a collection can be read again");
        }
        self.known = state;
        self.show(built).await
    }

    fn refuse(&mut self, fault: &Fault, quiet: bool) {
        // What was known is not there any more; should it come back, it is worth a look.
        self.known = None;
        let decision = self.decide(ReadResult::Faulty, quiet);
        if decision == Decision::Report {
            metrics::source_failed(Source::Collection);
            match fault {
                Fault::TooLarge { .. } => metrics::limit_reached(Limit::CollectionBytes),
                Fault::TooMany { .. } => metrics::limit_reached(Limit::CollectionItems),
                Fault::ViewTooLarge { .. } => metrics::limit_reached(Limit::BodyBytes),
                _ => {}
            }
            let (collection, file) = (&self.name, self.file.display());
            tracing::warn!(collection, %file, %fault, "the file of a collection cannot be taken; what was read before stays");
            self.stats.send_modify(|stats| stats.faults += 1);
        }
    }

    async fn show(&mut self, built: Built) -> Result<(), Closed> {
        let items = built.index.len();
        let changed = self.publisher.apply(built).await?;
        let views = self.publisher.views();
        self.stats.send_modify(|stats| {
            stats.documents += 1;
            stats.changes += changed as u64;
            (stats.items, stats.views) = (items, views);
        });
        Ok(())
    }
}

async fn sleep_until(instant: Instant) {
    tokio::time::sleep_until(instant.into()).await;
}
