//! The task of a collection: decides when the file is scanned, and passes valid documents to the publisher.
//!
//! It touches the disk only through the scanner, on blocking threads, and ends with the bus.

use super::CollectionStats;
use super::document::{DocumentError, Views};
use super::publish::ViewPublisher;
use super::scanner::{FileScan, FileScanner};
use super::settle::{Decision, ReadResult, SettleRule};
use crate::metrics::{self, Source};
use crate::source::file::FileIdentity;
use crate::source::watch::PendingChanges;
use crate::source::{SourceTurn, join_blocking};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tidings_actors::Closed;
use tokio::sync::watch;
use tokio::time::Instant;

/// Every tenth rescan reads the file although its metadata are unchanged, and restores views that others
/// changed on the bus. Reading on every rescan would cost more than the rare cases are worth.
const THOROUGH_EVERY: u64 = 10;

/// The task.
pub(super) struct CollectionTask {
    pub(super) scanner: Arc<Mutex<FileScanner>>,
    /// The name of the collection and the path of its file, for the log.
    pub(super) name: String,
    pub(super) file: PathBuf,
    pub(super) publisher: ViewPublisher,
    pub(super) turn: SourceTurn,
    pub(super) settle: SettleRule,
    /// The state of the file that is on the bus, if an equal identity proves equal content.
    pub(super) known: Option<FileIdentity>,
    pub(super) stats: watch::Sender<CollectionStats>,
    pub(super) changes: PendingChanges<()>,
    /// The interval of rescans.
    pub(super) rescan: Duration,
    /// True once a valid document was published, so that views of a former life that it does not have are
    /// removed.
    pub(super) told_all: bool,
}

impl CollectionTask {
    /// Publishes the file as it is, or `empty` while it is not valid.
    pub(super) async fn begin(&mut self, empty: Views) -> Result<(), Closed> {
        self.scan(true).await?;
        // Clients can subscribe to the list before the file has valid content.
        if self.publisher.views() == 0 {
            self.publish(empty).await?;
        }
        Ok(())
    }

    /// Runs until the bus stops.
    pub(super) async fn run(mut self) {
        let mut rescan_at = Instant::now() + self.rescan;
        loop {
            let done = tokio::select! {
                // PendingChanges first: their scan is due now, and a rescan only marks another one.
                biased;
                batch = self.changes.next() => self.scan(batch.quiet).await,
                () = tokio::time::sleep_until(rescan_at) => {
                    rescan_at = Instant::now() + self.rescan;
                    self.begin_rescan();
                    Ok(())
                }
                () = self.turn.begins() => {
                    self.take_over();
                    Ok(())
                }
            };
            if let Err(Closed) = done {
                tracing::debug!(
                    collection = self.name,
                    "the bus has stopped; the file is no longer watched"
                );
                return;
            }
        }
    }

    /// Has everything published anew at the beginning of a turn: the node that had the turn before may not
    /// have published what this one has seen.
    fn take_over(&mut self) {
        tracing::info!(
            collection = self.name,
            "this node publishes the collection from now on"
        );
        // What was found meanwhile counts as published, though it was not by this node.
        self.publisher.distrust();
        self.known = None;
        self.told_all = false;
        self.changes.mark(());
    }

    /// Marks the file for a scan, which thus also waits for a pause in its changes.
    fn begin_rescan(&mut self) {
        self.changes.mark(());
        self.stats.send_modify(|stats| stats.rescans += 1);
        let thorough = self.stats.borrow().rescans.is_multiple_of(THOROUGH_EVERY);
        if thorough {
            self.publisher.distrust();
        }
        if thorough || self.publisher.is_refused() {
            self.known = None;
        }
    }

    /// Scans the file. `quiet` says that nothing happened to it for the quiet time.
    async fn scan(&mut self, quiet: bool) -> Result<(), Closed> {
        // A result that was not accepted must be read again even if the file is as before.
        let known = if self.settle.is_unsettled() {
            None
        } else {
            self.known
        };
        let scanner = self.scanner.clone();
        let scan = join_blocking(tokio::task::spawn_blocking(move || {
            // The scanner keeps no invariant across a panic: every scan starts from the file.
            scanner.lock().unwrap_or_else(PoisonError::into_inner).scan(known)
        }))
        .await?;
        self.stats.send_modify(|stats| stats.scans += 1);
        let published = match scan {
            FileScan::Unchanged => Ok(()),
            FileScan::Changing => {
                self.decide(ReadResult::Unsettled, quiet);
                Ok(())
            }
            FileScan::Document(views, identity) => self.accept(views, identity, quiet).await,
            FileScan::Invalid(error) => {
                self.reject(&error, quiet);
                Ok(())
            }
        };
        let failing = self.settle.is_failing();
        self.stats.send_modify(|stats| stats.failing = failing);
        published
    }

    fn decide(&mut self, result: ReadResult, quiet: bool) -> Decision {
        let decision = self.settle.decide(result, quiet);
        if decision == Decision::Wait {
            self.changes.mark(());
        }
        decision
    }

    /// Publishes a valid document, unless the settle rule wants to see it twice.
    async fn accept(
        &mut self,
        views: Views,
        identity: Option<FileIdentity>,
        quiet: bool,
    ) -> Result<(), Closed> {
        let result = if views.positions.is_empty() {
            ReadResult::Empty
        } else {
            ReadResult::Valid
        };
        let Decision::Publish { recovered } = self.decide(result, quiet) else {
            return Ok(());
        };
        if recovered {
            tracing::info!(
                collection = self.name,
                file = %self.file.display(),
                "the file of a collection is valid again"
            );
        }
        self.known = identity;
        self.publish(views).await?;
        if !self.told_all && !self.publisher.is_refused() && self.turn.is_held() {
            self.publisher.remove_unclaimed().await?;
            self.told_all = true;
        }
        Ok(())
    }

    /// Keeps the last valid document, and reports the error if it is the first of its series.
    fn reject(&mut self, error: &DocumentError, quiet: bool) {
        // If the old file is moved back into place, it must be read again to end the series.
        self.known = None;
        if self.decide(ReadResult::Invalid, quiet) != Decision::Report {
            return;
        }
        metrics::source_failed(Source::Collection);
        if let Some(limit) = error.limit() {
            metrics::limit_reached(limit);
        }
        tracing::warn!(
            collection = self.name,
            file = %self.file.display(),
            %error,
            "the file of a collection is not valid; the last valid items stay"
        );
        self.stats.send_modify(|stats| stats.faults += 1);
    }

    async fn publish(&mut self, views: Views) -> Result<(), Closed> {
        let items = views.positions.len();
        let changed = self.publisher.publish(views).await?;
        let views = self.publisher.views();
        self.stats.send_modify(|stats| {
            stats.documents += 1;
            stats.changes += changed as u64;
            stats.items = items;
            stats.views = views;
        });
        Ok(())
    }
}
