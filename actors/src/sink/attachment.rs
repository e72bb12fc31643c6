//! The attached subscribers of a bus: their names, their state, and the handle that detaches one.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crossbeam_channel::Sender;
use tokio::sync::oneshot;

use super::ending::{EndDeadlines, wait_for_end};
use super::{AttachError, AttachedInfo, AttachmentState, NewestChanges};
use crate::model::Position;

/// The session of an attached subscriber, which ends when it is dropped.
pub(crate) trait HeldSession: std::fmt::Debug + Send + Sync {
    /// Ends the session.
    fn end(&self);
}

/// The entry of one attached subscriber.
#[derive(Debug)]
struct Attached {
    state: Arc<AttachmentState>,
    /// Dropped to end the thread.
    closing: Option<Sender<Infallible>>,
    /// The session of the class *latest*.
    session: Option<Box<dyn HeldSession>>,
    /// Resolves when the thread has ended.
    done: Option<oneshot::Receiver<()>>,
}

impl Attached {
    /// Accepts no more deliveries. Those that wait are still delivered.
    fn close(&mut self) {
        // Marked first, so that nothing is offered to a queue that its thread has left.
        self.state.closed.store(true, Ordering::Relaxed);
        self.closing = None;
        if let Some(queue) = &self.state.queue {
            queue.close();
        }
        if let Some(session) = &self.session {
            session.end();
        }
    }
}

/// The attached subscribers of one bus, by name.
#[derive(Debug)]
pub(crate) struct Attachments {
    max: usize,
    attached: Mutex<BTreeMap<Arc<str>, Attached>>,
}

impl Attachments {
    pub(crate) fn new(max: usize) -> Attachments {
        Attachments {
            max,
            attached: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, Attached>> {
        self.attached.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the subscriber of `state`. Its thread runs until `closing` is dropped and then drops the sender
    /// of `done`.
    pub(crate) fn reserve(
        self: &Arc<Attachments>,
        state: &Arc<AttachmentState>,
        closing: Sender<Infallible>,
        done: oneshot::Receiver<()>,
    ) -> Result<Attachment, AttachError> {
        // The name is reserved before the subscriber is created, which may take any time.
        let mut attached = self.lock();
        let name = state.name.clone();
        if attached.contains_key(&name) {
            return Err(AttachError::NameTaken(name));
        }
        if attached.len() >= self.max {
            return Err(AttachError::TooMany(self.max));
        }
        let entry = Attached {
            state: state.clone(),
            closing: Some(closing),
            session: None,
            done: Some(done),
        };
        attached.insert(name, entry);
        Ok(Attachment {
            state: state.clone(),
            attachments: self.clone(),
        })
    }

    pub(crate) fn set_session(&self, name: &str, session: Box<dyn HeldSession>) {
        if let Some(attached) = self.lock().get_mut(name) {
            attached.session = Some(session);
        }
    }

    /// Describes all attached subscribers, in the order of their names.
    pub(crate) fn infos(&self) -> Vec<AttachedInfo> {
        self.lock()
            .values()
            .map(|attached| attached.state.info())
            .collect()
    }

    /// Sets the gauges of all subscribers and logs changes of their health. Called about once a second.
    pub(crate) fn report_health(&self) {
        for attached in self.lock().values() {
            attached.state.report_health();
        }
    }

    /// Closes all subscribers. Returns receivers that resolve when their threads have ended.
    pub(crate) fn close_all(&self) -> Vec<(Arc<AttachmentState>, oneshot::Receiver<()>)> {
        let mut closed = Vec::new();
        for attached in self.lock().values_mut() {
            attached.close();
            if let Some(done) = attached.done.take() {
                closed.push((attached.state.clone(), done));
            }
        }
        closed
    }

    fn close(&self, name: &str) -> Option<oneshot::Receiver<()>> {
        let mut attached = self.lock();
        let entry = attached.get_mut(name)?;
        entry.close();
        entry.done.take()
    }
}

/// The handle of one attached subscriber. Dropping it detaches the subscriber without waiting.
#[derive(Debug)]
pub struct Attachment {
    state: Arc<AttachmentState>,
    attachments: Arc<Attachments>,
}

impl Attachment {
    /// The name of the subscriber.
    pub fn name(&self) -> &Arc<str> {
        &self.state.name
    }

    /// The position of the bus when the subscriber was attached. It gets every notice after it that passes
    /// its filter, and none before, unless it resumes. `None` for the class *latest* and for traces.
    pub fn position(&self) -> Option<Position> {
        self.state.position.get().copied()
    }

    /// Returns, once, the newest changes from before the position at which the subscriber was attached.
    pub fn take_newest(&self) -> NewestChanges {
        std::mem::take(&mut self.state.newest.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Describes the subscriber.
    pub fn info(&self) -> AttachedInfo {
        self.state.info()
    }

    /// Detaches the subscriber: it gets the waiting deliveries and is then closed. Waits for that at most
    /// `timeout`, and at most a second while the subscriber fails or stalls. Returns false if it took longer;
    /// its thread then ends after the current call.
    pub async fn detach(self, timeout: Duration) -> bool {
        let deadlines = EndDeadlines::until(tokio::time::Instant::now() + timeout);
        match self.attachments.close(&self.state.name) {
            Some(done) => wait_for_end(&self.state, done, deadlines).await,
            None => true,
        }
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        // The name is free at once; the thread ends by itself after the waiting deliveries.
        let _done = self.attachments.close(&self.state.name);
        self.attachments.lock().remove(&self.state.name);
    }
}
