//! The attached subscriber that writes the history of `/v1/events`. The bus calls it on a thread of its own.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::frame;
use super::history::{History, Incomplete, Subject};
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
            if contents.history.begins_another(position) {
                let before = contents.history.at(position.offset - 1);
                // Without a number, which would send a client looking for so many events.
                self.record_loss(contents, None, Incomplete::AnotherHistory, before);
            }
            contents.history.push(position, subject, frame);
        });
    }

    /// Records that events up to `position` are missing: so many, or an unknown number.
    fn record_loss(
        &self,
        contents: &mut HubContents,
        lost: Option<u64>,
        reason: Incomplete,
        position: Position,
    ) {
        let frame = frame::gap(lost, reason, position);
        contents.history.push_loss(position, reason, frame);
        self.state.metrics.lost.increment(lost.unwrap_or(1));
    }
}

impl Subscriber for Recorder {
    fn take(&mut self, delivery: &Delivery) -> Result<(), SubscriberError> {
        if let Some((position, subject, frame)) = event_of(delivery) {
            self.record(position, subject, frame);
        }
        match delivery {
            Delivery::Notice(notice) if notice.replaced > 0 => {
                self.state.metrics.replaced.increment(notice.replaced);
            }
            Delivery::Gap(gap) => self.state.change(|contents| {
                // The position is known, as the hub's delivery class is *every*.
                let position = gap.position.unwrap_or(contents.history.end());
                self.record_loss(contents, Some(gap.lost), Incomplete::Forgotten, position);
            }),
            Delivery::Notice(_) | Delivery::List(..) | Delivery::Trace(_) => {}
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
