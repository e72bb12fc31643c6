//! How a subscriber stands: what surveys show, and what its time-outs are judged by.
//!
//! Owns: the questions about an outbox. Never: changes it. Asked by the Publisher shard that marks it.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::timeouts::SessionAges;
use super::{EndReason, Outbox, OutboxState};
use crate::model::{
    DelayReason, DeliveryStatus, ListKind, MonotonicMillis, PENDING_URIS_MAX, Pending, Progress, ResourceUri,
    SubscriberInfo,
};

impl OutboxState {
    /// Since when the newest reader has been taking nothing of what there is for it.
    fn untaken_since(&self) -> Option<MonotonicMillis> {
        let reader = self.readers.newest()?;
        let waiting = (self.set.pending() > 0).then(|| {
            let taken = reader.progress.as_ref().and_then(|progress| progress.taken_at());
            taken.map_or(self.patient, |taken| taken.max(self.patient))
        });
        // A blocked connection holds bytes that the outbox has handed out already.
        reader.blocked_since().or(waiting)
    }

    /// Since when the oldest entry has been pending.
    fn oldest_since(&self) -> Option<MonotonicMillis> {
        self.waiting.filter(|_| self.set.pending() > 0)
    }

    fn last_taken(&self) -> Option<MonotonicMillis> {
        let progresses = self
            .readers
            .iter()
            .filter_map(|reader| reader.progress.as_ref()?.taken_at());
        progresses.max().max(self.last)
    }

    fn bytes(&self) -> u64 {
        let open = self.readers.iter().map(|reader| {
            let progress = reader.progress.as_ref();
            progress.map_or(0, |progress| {
                progress.written().saturating_sub(reader.bytes_before)
            })
        });
        self.bytes + open.sum::<u64>()
    }
}

impl Outbox {
    /// Which of its subscriber's times is up at `now`, if one is; and how long its newest reader has been taking nothing
    /// of what there is for it.
    pub(crate) fn sweep(&self, now: MonotonicMillis) -> (Option<EndReason>, Option<Duration>) {
        let state = self.lock();
        if state.ended.is_some() {
            return (None, None);
        }
        let untaken = state.untaken_since().map(|since| now.since(since));
        let quiet = MonotonicMillis::from_bits(self.active.load(Ordering::Relaxed)).max(state.left);
        let idle = state.readers.is_empty();
        let overdue = self.timeouts.verdict(&SessionAges {
            age: now.since(self.opened),
            idle: quiet.filter(|_| idle).map(|quiet| now.since(quiet)),
            untaken,
        });
        (overdue, untaken)
    }

    /// How many entries are pending.
    pub(crate) fn unnotified(&self) -> usize {
        self.lock().set.pending()
    }

    /// By what the slowest come first: how long it has kept something waiting.
    pub(crate) fn slowness(&self, now: MonotonicMillis) -> Option<Duration> {
        let state = self.lock();
        let since = |clock: Option<MonotonicMillis>| clock.map(|clock| now.since(clock));
        since(state.oldest_since()).max(since(state.untaken_since()))
    }

    /// How it stands, for those who ask who is there.
    pub(crate) fn info(&self, stalled_after: Duration) -> SubscriberInfo {
        let state = self.lock();
        let now = MonotonicMillis::now();
        let since = |clock: Option<MonotonicMillis>| clock.map(|clock| now.since(clock));
        let uris: Vec<_> = state.set.pending_uris().take(PENDING_URIS_MAX).cloned().collect();
        let untaken = since(state.untaken_since());
        SubscriberInfo {
            id: self.id,
            kind: self.kind,
            label: self.label.clone(),
            protocol: self.labels.protocol,
            transport: self.labels.transport,
            pending: Pending {
                subscriptions: state.set.subscriptions(),
                entries: state.set.pending(),
                uris_more: state.set.pending_uris().count() - uris.len(),
                uris,
                oldest: since(state.oldest_since()),
                lists_notified: ListKind::ALL.map(|kind| state.set.list_notified(kind)),
                streams: state.readers.len(),
            },
            progress: Progress {
                age: now.since(self.opened),
                notified: state.notified,
                conflated: state.conflated,
                bytes: state.bytes(),
                last: since(state.last_taken()),
                untaken,
                stalled: untaken.is_some_and(|untaken| untaken >= stalled_after),
            },
        }
    }

    /// Whether its subscriber was told of the newest version of `uri`, and if not, why.
    pub(crate) fn explain(&self, uri: &ResourceUri, stalled_after: Duration) -> DeliveryStatus {
        let state = self.lock();
        let Some((version, latest, pending)) = state.set.standing(uri) else {
            return DeliveryStatus::NotSubscribed(None);
        };
        let Some(notice) = latest else {
            return DeliveryStatus::Unchanged { version };
        };
        let (etag, position, changed) = (notice.etag, notice.position, notice.at.elapsed());
        if !pending {
            return DeliveryStatus::Notified {
                etag,
                position,
                changed,
            };
        }
        let untaken = state
            .untaken_since()
            .map(|since| MonotonicMillis::now().since(since));
        let reason = if state.readers.is_empty() {
            let ever = state.left.is_some();
            if ever {
                DelayReason::NoStream
            } else {
                DelayReason::NeverRead
            }
        } else if untaken.is_some_and(|untaken| untaken >= stalled_after) {
            DelayReason::Stalled
        } else {
            DelayReason::OnItsWay
        };
        DeliveryStatus::Pending {
            etag,
            position,
            changed,
            reason,
        }
    }

    /// One line for the log: that the bus ended it, or a stream of it, and how it stood.
    pub(crate) fn report(&self, reason: EndReason) {
        let info = self.info(Duration::MAX);
        let (id, label, pending) = (info.id, &info.label, info.pending.entries);
        let (oldest, untaken) = (info.pending.oldest, info.progress.untaken);
        let reason = reason.name();
        if reason == EndReason::Idle.name() {
            return tracing::debug!(%id, %label, reason, pending, "a session was ended");
        }
        tracing::info!(%id, %label, reason, pending, ?oldest, ?untaken, "a session was ended");
    }
}
