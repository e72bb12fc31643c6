//! The attached subscriber that writes the history of `/v1/events`. The bus calls it on a thread of its own.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::frame;
use super::history::{History, Subject};
use super::shared::{HubContents, HubState};
use crate::attach::{Delivery, NewestChanges, Subscriber, SubscriberError};
use crate::{NoticeKind, Position};

/// Begins a history at `start`, with the newest changes from before.
pub(super) fn seed(history: &mut History, start: Position, newest: &NewestChanges) {
    // The recorder runs already and may have begun the history with the first change after `start`.
    history.begin(start);
    let mut events = Vec::with_capacity(newest.changes.len());
    for delivery in &newest.changes {
        if let Some((position, subject, frame)) = event_of(delivery) {
            events.push((position.offset, subject, frame));
        }
    }
    history.seed(events, newest.after, newest.exact_after);
}

/// Returns the event of a change.
fn event_of(delivery: &Delivery) -> Option<(Position, Subject, Bytes)> {
    match delivery {
        Delivery::Notice(notice) => {
            let subject = Subject::Resource(notice.cause.into(), notice.uri.clone(), notice.etag);
            Some((notice.position, subject, frame::notice(notice)))
        }
        Delivery::List(kind, position) => {
            let subject = Subject::List(NoticeKind::List(*kind));
            Some((*position, subject, frame::list(*kind, *position)))
        }
        Delivery::Gap(_) | Delivery::Trace(_) => None,
    }
}

/// Writes each delivery into the history.
pub(super) struct Recorder {
    state: Arc<HubState>,
    drain_timeout: Duration,
}

impl Recorder {
    pub(super) fn new(state: Arc<HubState>, drain_timeout: Duration) -> Recorder {
        Recorder { state, drain_timeout }
    }

    fn record(&self, position: Position, subject: Subject, frame: Bytes) {
        self.state.change(|contents| {
            let missing = contents.history.missing_before(position);
            self.record_loss(contents, missing);
            contents.history.push(position, subject, frame);
        });
    }

    fn record_loss(&self, contents: &mut HubContents, lost: u64) {
        if lost > 0 {
            let position = contents.history.after_loss(lost);
            // A number that is no count of events would send a client looking for them.
            let counted = contents.history.countable(lost);
            contents
                .history
                .push_loss(position, frame::gap(counted, position));
            self.state.metrics.lost.increment(counted.unwrap_or(1));
        }
    }
}

impl Subscriber for Recorder {
    fn take(&mut self, delivery: &Delivery) -> Result<(), SubscriberError> {
        if let Some((position, subject, frame)) = event_of(delivery) {
            self.record(position, subject, frame);
        }
        if let Delivery::Gap(gap) = delivery {
            // Recorded at once: the next event, which would show the loss too, may be long in coming.
            self.state.change(|contents| self.record_loss(contents, gap.lost));
        }
        Ok(())
    }

    fn close(&mut self) -> Result<(), SubscriberError> {
        match self.state.end("shutdown", self.drain_timeout) {
            0 => Ok(()),
            cut => Err(SubscriberError::Refused(format!(
                "{cut} event streams did not take their end in time; they are cut"
            ))),
        }
    }
}
