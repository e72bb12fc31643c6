//! The deliveries of one attached subscriber in order, with gaps where some are missing.
//!
//! The worker thread takes them from a [`Queue`] or, for the class *latest*, from an [`OutboxReader`].

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError};

use super::queue::{Numbered, Taken};
use super::{Delivery, Gap, Queue};
use crate::model::Position;
use crate::outbox::{Drained, OutboxEntry, OutboxReader};

/// The position of a delivery that has no place in the order of the bus.
const NOWHERE: Position = Position { epoch: 0, offset: 0 };

/// The result of waiting for a delivery.
#[derive(Debug)]
pub(crate) enum Next {
    Delivery(Delivery),
    /// No delivery came in time.
    Idle,
    /// No more deliveries will come.
    Closed,
}

/// The deliveries of one subscriber.
pub(crate) struct Feed {
    source: Source,
    /// The losses that were not reported yet.
    lost: u64,
    /// The delivery that follows a gap, and the offset that it reaches.
    ahead: Option<(Delivery, u64)>,
    /// The offset up to which the subscriber has everything, once it has taken the last delivery.
    reached: u64,
    /// True once a gap was reported after all deliveries.
    reported_at_end: bool,
    /// Disconnected when the subscriber is being detached.
    closing: Receiver<Infallible>,
}

enum Source {
    Queue(QueueSource),
    Outbox(OutboxReader),
}

struct QueueSource {
    queue: Arc<Queue>,
    /// The number of the next delivery if none is missing.
    expected: u64,
}

/// Wakes a parked thread.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

impl Feed {
    /// Creates a feed of every delivery of `queue`.
    pub(crate) fn every(queue: Arc<Queue>, closing: Receiver<Infallible>) -> Feed {
        let source = QueueSource { queue, expected: 0 };
        Feed::new(Source::Queue(source), closing)
    }

    /// Creates a feed of the newest entries that `reader` returns, one at a time, so that waiting entries are
    /// conflated until the subscriber is ready for them.
    pub(crate) fn latest(reader: OutboxReader, closing: Receiver<Infallible>) -> Feed {
        Feed::new(Source::Outbox(reader), closing)
    }

    fn new(source: Source, closing: Receiver<Infallible>) -> Feed {
        Feed {
            source,
            lost: 0,
            ahead: None,
            reached: 0,
            reported_at_end: false,
            closing,
        }
    }

    /// Adds deliveries that the subscriber did not take to the next gap.
    pub(crate) fn add_lost(&mut self, lost: u64) {
        self.lost += lost;
    }

    /// Waits for `pause`. Returns false if the subscriber is being detached.
    pub(crate) fn pause(&self, pause: Duration) -> bool {
        // Nothing is ever sent on this channel, so it wakes up early only if it is disconnected.
        matches!(self.closing.recv_timeout(pause), Err(RecvTimeoutError::Timeout))
    }

    /// Waits at most `timeout` for the next delivery. Returns a gap first if deliveries are missing before
    /// it.
    pub(crate) fn next(&mut self, timeout: Duration) -> Next {
        if let Some((delivery, reached)) = self.ahead.take() {
            self.reached = reached;
            return Next::Delivery(delivery);
        }
        let (next, position) = match &mut self.source {
            Source::Queue(source) => source.next(timeout, &mut self.lost),
            Source::Outbox(reader) => next_entry(reader, timeout, &mut self.lost),
        };
        let ended = matches!(next, Next::Closed);
        // At the end a gap is reported once: a subscriber that refuses it would keep the feed open for ever.
        if self.lost == 0 || ended && self.reported_at_end {
            self.reached = position.offset;
            return next;
        }
        self.reported_at_end = ended;
        let gap = self.gap_before(&next, position);
        if let Next::Delivery(delivery) = next {
            self.ahead = Some((delivery, position.offset));
        }
        // `Idle` is dropped, since the gap is a delivery, and a closed source returns `Closed` again.
        Next::Delivery(Delivery::Gap(gap))
    }

    /// Returns the gap before `next`, which reaches `position`.
    fn gap_before(&mut self, next: &Next, mut position: Position) -> Gap {
        let lost = std::mem::take(&mut self.lost);
        let ordered = match &self.source {
            Source::Queue(_) => position.offset > 0,
            Source::Outbox(_) => false,
        };
        if !ordered {
            // The entries of an outbox are in the order of their first changes, so none of them ends a gap.
            return Gap { lost, position: None };
        }
        if let Next::Delivery(_) = next {
            position.offset -= 1;
        }
        self.reached = position.offset;
        let position = Some(position);
        Gap { lost, position }
    }

    /// Returns the offset up to which the subscriber has everything that it was handed or told of as lost;
    /// none while there are losses to tell it of.
    pub(crate) fn reached(&self) -> Option<u64> {
        (self.lost == 0).then_some(self.reached)
    }
}

impl QueueSource {
    /// Returns what is next, and the position up to which nothing is outstanding then.
    fn next(&mut self, timeout: Duration, lost: &mut u64) -> (Next, Position) {
        match self.queue.take(timeout) {
            Taken::Delivery(Numbered { number, delivery }) => {
                *lost += number.saturating_sub(self.expected);
                self.expected = number + 1;
                let position = delivery.position().unwrap_or(NOWHERE);
                (Next::Delivery(delivery), position)
            }
            Taken::Empty { next, closed, seen } => {
                // With an empty queue no later number reveals missing deliveries, so the next one to be given
                // does.
                *lost += next.saturating_sub(self.expected);
                self.expected = next;
                match closed {
                    true => (Next::Closed, seen),
                    false => (Next::Idle, seen),
                }
            }
        }
    }
}

/// Returns what is next, and the position up to which nothing is outstanding then.
fn next_entry(reader: &mut OutboxReader, timeout: Duration, lost: &mut u64) -> (Next, Position) {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut cx = Context::from_waker(&waker);
    let until = Instant::now() + timeout;
    loop {
        let mut entry = None;
        let drained = reader.poll_drain(&mut cx, |taken| entry = Some(taken));
        *lost += reader.take_lost();
        match (drained, entry) {
            (Poll::Ready(Drained::Entries(position)), Some(OutboxEntry::Updated(notice))) => {
                return (Next::Delivery(Delivery::Notice(notice)), position);
            }
            (Poll::Ready(Drained::Entries(position)), Some(OutboxEntry::ListChanged(kind))) => {
                return (Next::Delivery(Delivery::List(kind, position)), position);
            }
            (Poll::Ready(Drained::Ended(_)), _) => return (Next::Closed, reader.position()),
            // A keep-alive is for connections; there is nothing to keep alive here.
            (Poll::Ready(_), _) => {}
            (Poll::Pending, _) => match until.checked_duration_since(Instant::now()) {
                // A loss is reported at once instead of with the next entry, which may be far away.
                Some(left) if !left.is_zero() && *lost == 0 => std::thread::park_timeout(left),
                _ => return (Next::Idle, reader.position()),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ListKind;
    use crate::sink::Overflow;
    use crossbeam_channel::bounded;

    fn delivery(offset: u64) -> Delivery {
        Delivery::List(ListKind::Tools, Position { epoch: 1, offset })
    }

    /// Takes the waiting deliveries: offsets, and losses as negative numbers.
    fn taken(feed: &mut Feed) -> Vec<i64> {
        std::iter::from_fn(|| match feed.next(Duration::ZERO) {
            Next::Delivery(Delivery::List(_, position)) => Some(position.offset as i64),
            Next::Delivery(Delivery::Gap(gap)) => Some(-(gap.lost as i64)),
            _ => None,
        })
        .collect()
    }

    #[test]
    fn gap_replaces_missing_deliveries() {
        for (overflow, expected) in [
            (Overflow::DropOldest, vec![-2, 2, 3]),
            (Overflow::DropNewest, vec![0, 1, -2]),
        ] {
            let queue = Arc::new(Queue::new(2, overflow));
            let (_open, closing) = bounded(0);
            let mut feed = Feed::every(queue.clone(), closing);
            for offset in 0..4 {
                queue.offer(delivery(offset));
            }
            assert_eq!(taken(&mut feed), expected, "{overflow:?}");
            queue.offer(delivery(4));
            assert_eq!(taken(&mut feed), [4]);
        }
    }

    #[test]
    fn missed_changes_come_first_with_gaps_between() {
        let queue = Arc::new(Queue::new(2, Overflow::DropNewest));
        let (_open, closing) = bounded(0);
        let mut feed = Feed::every(queue.clone(), closing);
        // More than the capacity.
        for (lost, offset) in [(2, 3), (0, 4), (1, 6)] {
            queue.preload(lost, Some(delivery(offset)));
        }
        queue.preload(1, None);
        queue.wake(delivery(7).position().unwrap());
        let mut seen = Vec::new();
        while let Next::Delivery(delivery) = feed.next(Duration::ZERO) {
            let offset = delivery.position().unwrap().offset;
            let lost = match delivery {
                Delivery::Gap(gap) => gap.lost,
                _ => 0,
            };
            assert_eq!(feed.reached(), Some(offset));
            seen.push((offset, lost));
        }
        assert_eq!(seen, [(2, 2), (3, 0), (4, 0), (5, 1), (6, 0), (7, 1)]);
        assert_eq!(feed.reached(), Some(7));
    }

    #[test]
    fn cursor_waits_until_a_loss_is_told() {
        let queue = Arc::new(Queue::new(9, Overflow::DropOldest));
        let (_open, closing) = bounded(0);
        let mut feed = Feed::every(queue.clone(), closing);
        queue.offer(delivery(1));
        queue.offer(delivery(2));
        queue.wake(delivery(9).position().unwrap());
        assert_eq!(taken(&mut feed)[..1], [1]);
        feed.add_lost(1);
        assert_eq!(feed.reached(), None);
        assert_eq!(taken(&mut feed), [-1]);
        assert_eq!(feed.reached(), Some(9), "filtered-out notices count as taken");
    }

    #[test]
    fn refused_delivery_is_reported_as_gap() {
        let queue = Arc::new(Queue::new(2, Overflow::DropOldest));
        let (_open, closing) = bounded(0);
        let mut feed = Feed::every(queue.clone(), closing);
        feed.add_lost(1);
        queue.offer(delivery(0));
        assert_eq!(taken(&mut feed), [-1, 0]);
    }

    #[test]
    fn refused_gap_does_not_keep_a_feed_open() {
        let queue = Arc::new(Queue::new(2, Overflow::DropOldest));
        let (_open, closing) = bounded(0);
        let mut feed = Feed::every(queue.clone(), closing);
        feed.add_lost(1);
        queue.close();
        assert_eq!(taken(&mut feed), [-1]);
        feed.add_lost(1);
        assert!(matches!(feed.next(Duration::ZERO), Next::Closed));
    }

    #[test]
    fn closing_feed_returns_waiting_deliveries() {
        let queue = Arc::new(Queue::new(2, Overflow::DropOldest));
        let (open, closing) = bounded(0);
        let mut feed = Feed::every(queue.clone(), closing);
        queue.offer(delivery(0));
        queue.close();
        drop(open);
        assert_eq!(taken(&mut feed), [0]);
        assert!(matches!(feed.next(Duration::from_secs(60)), Next::Closed));
        assert!(!feed.pause(Duration::from_secs(60)));
    }
}
