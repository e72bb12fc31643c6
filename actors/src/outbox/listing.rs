//! Queries about an outbox, for listings, time-outs and logs. Nothing here changes an outbox.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::timeouts::SessionAges;
use super::{EndReason, Outbox, OutboxState};
use crate::model::{
    DelayReason, DeliveryStatus, ListKind, MonotonicMillis, PENDING_URIS_MAX, Pending, Progress, ResourceUri,
    SubscriberFilter, SubscriberInfo,
};

impl OutboxState {
    /// Returns the time since which the newest reader has taken nothing of the pending entries.
    fn untaken_since(&self) -> Option<MonotonicMillis> {
        let reader = self.readers.newest()?;
        // A blocked connection holds bytes that the outbox has already handed out.
        let blocked = reader.blocked_since();
        if blocked.is_some() || self.set.pending() == 0 {
            return blocked;
        }
        Some(match reader.taken_at() {
            Some(taken) => taken.max(self.stall_start),
            None => self.stall_start,
        })
    }

    /// Returns the time since which the oldest entry has been pending.
    fn oldest_since(&self) -> Option<MonotonicMillis> {
        self.pending_since.filter(|_| self.set.pending() > 0)
    }

    fn last_taken(&self) -> Option<MonotonicMillis> {
        let newest = self
            .readers
            .iter()
            .map(|reader| reader.taken_at())
            .max()
            .flatten();
        newest.max(self.last_taken)
    }

    fn bytes(&self) -> u64 {
        let open: u64 = self.readers.iter().map(|reader| reader.bytes()).sum();
        self.closed_bytes + open
    }

    fn is_stalled(&self, now: MonotonicMillis, stalled_after: Duration) -> bool {
        match self.untaken_since() {
            Some(since) => now.since(since) >= stalled_after,
            None => false,
        }
    }
}

impl Outbox {
    /// Returns the reason to end the subscriber if one of its time-outs is over at `now`, and the time for
    /// which its newest reader has taken nothing of the pending entries.
    pub(crate) fn sweep(&self, now: MonotonicMillis) -> (Option<EndReason>, Option<Duration>) {
        let state = self.lock();
        if state.ended.is_some() {
            return (None, None);
        }
        let untaken = state.untaken_since().map(|since| now.since(since));
        let mut ages = SessionAges {
            age: now.since(self.opened),
            idle: None,
            untaken,
        };
        // A session with an open stream is not idle, however silent its client is.
        if state.readers.is_empty() {
            let activity = MonotonicMillis::from_bits(self.last_activity.load(Ordering::Relaxed));
            let quiet_since = activity.max(state.last_reader_closed);
            ages.idle = quiet_since.map(|since| now.since(since));
        }
        (self.timeouts.exceeded_by(&ages), untaken)
    }

    /// The number of pending entries.
    pub(crate) fn pending(&self) -> usize {
        self.lock().set.pending()
    }

    /// Returns the longest time that something has waited for the subscriber, by which listings are sorted.
    pub(crate) fn slowness(&self, now: MonotonicMillis) -> Option<Duration> {
        let state = self.lock();
        let pending = state.oldest_since().map(|since| now.since(since));
        pending.max(state.untaken_since().map(|since| now.since(since)))
    }

    /// Returns true if a listing with this filter has the subscriber. The filter's text is in lower case, and
    /// its URI was looked at before.
    pub(crate) fn is_in(
        &self,
        filter: &SubscriberFilter,
        now: MonotonicMillis,
        stalled_after: Duration,
    ) -> bool {
        // The lock is taken only where the question needs it.
        if filter.stalled && !self.lock().is_stalled(now, stalled_after) {
            return false;
        }
        let has = |text: &str| text.to_lowercase().contains(&filter.text);
        filter.text.is_empty()
            || has(&self.id.to_string())
            || has(&self.label)
            || matches!(&self.client, Some(client) if has(client))
    }

    /// Describes the subscriber for a listing.
    pub(crate) fn info(&self, stalled_after: Duration) -> SubscriberInfo {
        // All fields are read under one lock, so that they belong together.
        let state = self.lock();
        let now = MonotonicMillis::now();
        let pending_uris = state.set.pending_notices().map(|notice| &notice.uri);
        let uris: Vec<_> = pending_uris.take(PENDING_URIS_MAX).cloned().collect();
        SubscriberInfo {
            id: self.id,
            kind: self.kind,
            label: self.label.clone(),
            client: self.client.clone(),
            protocol: self.labels.protocol,
            transport: self.labels.transport,
            pending: Pending {
                subscriptions: state.set.subscriptions(),
                entries: state.set.pending(),
                uris_more: state.set.pending_notices().count() - uris.len(),
                uris,
                oldest: state.oldest_since().map(|since| now.since(since)),
                lists_notified: ListKind::ALL.map(|kind| state.set.list_notified(kind)),
                streams: state.readers.len(),
            },
            progress: Progress {
                age: now.since(self.opened),
                notified: state.notified,
                conflated: state.conflated,
                bytes: state.bytes(),
                last: state.last_taken().map(|since| now.since(since)),
                untaken: state.untaken_since().map(|since| now.since(since)),
                stalled: state.is_stalled(now, stalled_after),
            },
        }
    }

    /// Explains whether the subscriber was notified of the newest version of `uri`.
    pub(crate) fn explain(&self, uri: &ResourceUri, stalled_after: Duration) -> DeliveryStatus {
        let state = self.lock();
        let Some(slot) = state.set.slot_of(uri) else {
            return DeliveryStatus::NotSubscribed(None);
        };
        let Some(notice) = &slot.latest else {
            return DeliveryStatus::Unchanged {
                version: slot.version,
            };
        };
        if !slot.is_pending() {
            return DeliveryStatus::Notified {
                etag: notice.etag,
                position: notice.position,
                changed: notice.at.elapsed(),
            };
        }
        let reason = if state.is_stalled(MonotonicMillis::now(), stalled_after) {
            DelayReason::Stalled
        } else if !state.readers.is_empty() {
            DelayReason::OnItsWay
        } else if state.last_reader_closed.is_some() {
            DelayReason::NoStream
        } else {
            DelayReason::NeverRead
        };
        DeliveryStatus::Pending {
            etag: notice.etag,
            position: notice.position,
            changed: notice.at.elapsed(),
            reason,
        }
    }

    /// Logs that the bus ended the subscriber or a stream of it.
    pub(crate) fn log_end(&self, reason: EndReason) {
        let info = self.info(Duration::MAX);
        let id = info.id;
        let label = &info.label;
        let pending = info.pending.entries;
        // Clients that went away without a word are normal, so their end is no news for an operator, nor
        // is a client that another node serves.
        if matches!(reason, EndReason::Idle | EndReason::Moved) {
            return tracing::debug!(%id, %label, reason = reason.name(), pending, "a session was ended");
        }
        let oldest = info.pending.oldest;
        let untaken = info.progress.untaken;
        tracing::info!(%id, %label, reason = reason.name(), pending, ?oldest, ?untaken, "a session was ended");
    }
}
