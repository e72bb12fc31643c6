//! Messages of the server that can be of no use to a client: lines that are no message, and answers to
//! requests that were never made. They are dropped and counted; a server that sends nothing else has lost its
//! way, and is connected to anew.

use std::sync::{Arc, Mutex, PoisonError};

use crate::metrics::UpstreamMetrics;

/// Strays in a row after which the connection ends.
const IN_A_ROW_MAX: usize = 100;

/// The reason that a message is of no use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stray {
    /// It is no message of the protocol.
    Malformed,
    /// It is longer than a message may be.
    TooLong,
    /// It answers a request that was never made.
    UnknownId,
}

impl Stray {
    /// Counts it.
    pub(super) fn count(self, metrics: &UpstreamMetrics) {
        match self {
            Stray::Malformed => metrics.malformed.increment(1),
            Stray::TooLong => metrics.too_long.increment(1),
            Stray::UnknownId => metrics.unknown_ids.increment(1),
        }
    }
}

/// Strays since the last message.
#[derive(Debug, Default)]
pub(super) struct StraysInARow(usize);

impl StraysInARow {
    pub(super) fn add(&mut self) {
        self.0 += 1;
        if self.0 == IN_A_ROW_MAX {
            tracing::warn!(
                "the server behind the gateway sent {IN_A_ROW_MAX} messages in a row that are of no use; it is \
                 connected to anew"
            );
        }
    }

    pub(super) fn end(&mut self) {
        self.0 = 0;
    }

    pub(super) fn are_too_many(&self) -> bool {
        self.0 >= IN_A_ROW_MAX
    }
}

/// The lines of a program that were no message.
pub(super) struct StrayLines {
    lines: Mutex<UnknownLines>,
    metrics: Arc<UpstreamMetrics>,
}

#[derive(Debug, Default)]
struct UnknownLines {
    /// The last line, for as long as no message was made of it.
    last: Option<Stray>,
    in_a_row: StraysInARow,
}

impl StrayLines {
    pub(super) fn new(metrics: Arc<UpstreamMetrics>) -> StrayLines {
        StrayLines {
            lines: Mutex::default(),
            metrics,
        }
    }

    /// Takes note of a line that was handed over, and of its kind if it is no message.
    pub(super) fn handed_over(&self, stray: Stray) {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).last = Some(stray);
    }

    /// Takes note that the last line was a message.
    pub(super) fn was_message(&self) {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.last = None;
        lines.in_a_row.end();
    }

    /// Returns true if too many lines in a row were no message. To be asked when the next one is read.
    pub(super) fn are_too_many(&self) -> bool {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(stray) = lines.last.take() {
            stray.count(&self.metrics);
            lines.in_a_row.add();
        }
        lines.in_a_row.are_too_many()
    }
}
