//! The rights of an event stream's client.

use std::sync::Arc;
use std::task::{Context, Poll};

use crate::auth::{Caller, EventIds, Grant};
use crate::http::problem::{Problem, ProblemKind};
use crate::rights::Viewer;
use crate::{
    Drained, EndReason, ListKind, OpenError, OutboxEntry, OutboxReader, ResourceUri, Session, SessionOptions,
    SubscriberKind, WeakBus,
};

/// The events that the client of a stream has a right to. Its session at the bus is told when a list changes
/// for its audience, and when its credential ends.
pub(super) struct Sight {
    grant: Arc<Grant>,
    reader: OutboxReader,
    _session: Arc<Session>,
}

impl Sight {
    /// Opens the session; none if the caller sees everything.
    ///
    /// # Errors
    /// 503 if the bus is full or stopping.
    pub(super) async fn open(bus: &WeakBus, caller: &Caller) -> Result<Option<Sight>, Problem> {
        let Some(grant) = Grant::of(caller) else {
            return Ok(None);
        };
        let unavailable =
            |error: OpenError| ProblemKind::Unavailable.because(format!("{error}; try again later"));
        let bus = bus.upgrade().map_err(|closed| unavailable(closed.into()))?;
        let mut options = SessionOptions::new(SubscriberKind::Stream, "events");
        options.transport = "events";
        options.lists = ListKind::ALL.to_vec();
        options.viewer = Some(grant.clone());
        let session = Arc::new(bus.open(options).await.map_err(unavailable)?);
        grant.end_streams_at_expiry(&session);
        let reader = session.reader();
        session
            .ready()
            .await
            .map_err(|closed| unavailable(closed.into()))?;
        Ok(Some(Sight {
            grant,
            reader,
            _session: session,
        }))
    }

    /// Returns true if the client may be told of changes of this resource.
    pub(super) fn sees(&self, uri: &ResourceUri) -> bool {
        self.grant.may_be_told(uri)
    }

    /// Returns the form of the ids that the client gets.
    pub(super) fn event_ids(&self) -> EventIds<'_> {
        self.grant.event_ids()
    }

    /// Returns the lists that changed for the client, and the reason of the end if there is one. Registers
    /// `cx` to be woken by the next of either.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> (Vec<ListKind>, Option<EndReason>) {
        let mut lists = Vec::new();
        loop {
            let drained = self.reader.poll_drain(cx, |entry| {
                if let OutboxEntry::ListChanged(kind) = entry {
                    lists.push(kind);
                }
            });
            match drained {
                Poll::Ready(Drained::Ended(reason)) => return (lists, Some(reason)),
                Poll::Ready(Drained::Entries(_) | Drained::KeepAlive) => {}
                Poll::Pending => return (lists, None),
            }
        }
    }
}
