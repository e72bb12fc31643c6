//! The attached subscriber that writes the history of `/v1/events`. The bus calls it on a thread of its own.

use std::sync::Arc;
use std::time::Duration;

use super::frame;
use super::history::Subject;
use super::shared::{HubContents, HubState};
use crate::attach::{Delivery, Subscriber, SubscriberError};
use crate::{NoticeKind, Position};

/// Writes each delivery into the history.
pub(super) struct Recorder {
    state: Arc<HubState>,
    drain_timeout: Duration,
}

impl Recorder {
    pub(super) fn new(state: Arc<HubState>, drain_timeout: Duration) -> Recorder {
        Recorder { state, drain_timeout }
    }

    fn record(&self, position: Position, subject: Subject, frame: bytes::Bytes) {
        self.state.change(|contents| {
            let missing = contents.history.missing_before(position);
            self.record_loss(contents, missing);
            contents.history.push(position, subject, frame);
        });
    }

    fn record_loss(&self, contents: &mut HubContents, lost: u64) {
        if lost > 0 {
            let position = contents.history.after_loss(lost);
            contents.history.push_loss(position, frame::gap(lost, position));
            self.state.metrics.lost.increment(lost);
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
            // Recorded at once: the next event, which would show the loss too, may be long in coming.
            Delivery::Gap(gap) => self.state.change(|contents| self.record_loss(contents, gap.lost)),
            Delivery::Trace(_) => {}
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
