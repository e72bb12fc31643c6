//! The attached subscriber that writes the history of `/v1/events`.
//!
//! Owns: the step from a delivery to an event, and the end. Never: waits for a stream, except at the end. Called by the
//! bus on a thread of its own; tells the streams by way of what they share.

use std::sync::Arc;
use std::time::Duration;

use super::frame;
use super::history::Subject;
use super::shared::{Shared, State};
use crate::attach::{Delivery, Subscriber, SubscriberError};
use crate::{NoticeKind, Position};

/// Writes what it is handed into the history.
pub(super) struct Recorder {
    shared: Arc<Shared>,
    drain_timeout: Duration,
}

impl Recorder {
    pub(super) fn new(shared: Arc<Shared>, drain_timeout: Duration) -> Recorder {
        Recorder {
            shared,
            drain_timeout,
        }
    }

    fn record(&self, position: Position, subject: Subject, frame: bytes::Bytes) {
        self.shared.change(|state| {
            let hole = state.history.hole_before(position);
            self.lose(state, hole);
            state.history.push(position, subject, frame);
        });
    }

    fn lose(&self, state: &mut State, lost: u64) {
        if lost > 0 {
            let position = state.history.after_loss(lost);
            state.history.lose(position, frame::gap(lost, position));
            self.shared.metrics.lost.increment(lost);
        }
    }
}

impl Subscriber for Recorder {
    fn take(&mut self, delivery: &Delivery) -> Result<(), SubscriberError> {
        match delivery {
            Delivery::Notice(notice) => {
                let subject = Subject::Resource(notice.cause.into(), notice.uri.clone());
                self.record(notice.position, subject, frame::notice(notice));
            }
            Delivery::List(kind, position) => {
                let subject = Subject::List(NoticeKind::List(*kind));
                self.record(*position, subject, frame::list(*kind, *position));
            }
            // Told at once, even when nothing follows for a while.
            Delivery::Gap(gap) => self.shared.change(|state| self.lose(state, gap.lost)),
            Delivery::Trace(_) => {}
        }
        Ok(())
    }

    fn close(&mut self) -> Result<(), SubscriberError> {
        match self.shared.end("shutdown", self.drain_timeout) {
            0 => Ok(()),
            cut => Err(SubscriberError::Refused(format!(
                "{cut} event streams did not take their end in time; they are cut"
            ))),
        }
    }
}
