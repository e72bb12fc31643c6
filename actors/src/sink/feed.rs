//! Where a subscriber's deliveries come from: its queue, or its outbox read by a thread.
//!
//! Owns: the order of deliveries and gaps. Never: calls the subscriber (the worker does). Receives from a
//! [`Queue`] or an [`OutboxReader`]; hands to the worker of the same thread.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, select};

use super::queue::Numbered;
use super::{Delivery, Gap, Queue};
use crate::outbox::{Drained, OutboxEntry, OutboxReader};

/// What a look at the feed brings.
#[derive(Debug)]
pub(crate) enum Next {
    Delivery(Delivery),
    /// Nothing came.
    Idle,
    /// Nothing will come.
    Closed,
}

/// The deliveries of one subscriber.
pub(crate) struct Feed {
    source: Source,
    /// Losses that the subscriber has not been told of.
    owed: u64,
    /// What comes right after a gap.
    ahead: Option<Delivery>,
    /// Whether the subscriber has been told of its losses after everything else; it may refuse to hear it.
    told_at_end: bool,
    /// Disconnected when the subscriber is being detached.
    closing: Receiver<Infallible>,
}

enum Source {
    Queue {
        queue: Arc<Queue>,
        taken: Receiver<Numbered>,
        /// The number that comes next unless something is missing.
        expected: u64,
    },
    Outbox(OutboxReader),
}

/// Wakes a thread that is parked.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

impl Feed {
    /// Every delivery of `queue`, from its beginning.
    pub(crate) fn every(queue: Arc<Queue>, closing: Receiver<Infallible>) -> Feed {
        let taken = queue.taking_end();
        let source = Source::Queue {
            queue,
            taken,
            expected: 0,
        };
        Feed::new(source, closing)
    }

    /// The newest of each key, as `reader` has it. The reader hands out one entry at a time, so that what waits is
    /// conflated until the subscriber is ready for it.
    pub(crate) fn latest(reader: OutboxReader, closing: Receiver<Infallible>) -> Feed {
        Feed::new(Source::Outbox(reader), closing)
    }

    fn new(source: Source, closing: Receiver<Infallible>) -> Feed {
        Feed {
            source,
            owed: 0,
            ahead: None,
            told_at_end: false,
            closing,
        }
    }

    /// Notes that a delivery was handed over in vain.
    pub(crate) fn owe(&mut self, lost: u64) {
        self.owed += lost;
    }

    /// Waits out a pause. False when the subscriber is being detached.
    pub(crate) fn pause(&self, pause: Duration) -> bool {
        matches!(self.closing.recv_timeout(pause), Err(RecvTimeoutError::Timeout))
    }

    /// The next delivery, waiting at most `timeout` for it; a gap first when something is missing before it.
    pub(crate) fn next(&mut self, timeout: Duration) -> Next {
        if let Some(delivery) = self.ahead.take() {
            return Next::Delivery(delivery);
        }
        let next = match &mut self.source {
            Source::Queue {
                queue,
                taken,
                expected,
            } => from_queue(queue, taken, expected, &self.closing, timeout, &mut self.owed),
            Source::Outbox(reader) => from_outbox(reader, timeout, &mut self.owed),
        };
        let ended = matches!(next, Next::Closed);
        if self.owed == 0 || ended && self.told_at_end {
            return next;
        }
        self.told_at_end = ended;
        let gap = Delivery::Gap(Gap {
            lost: std::mem::take(&mut self.owed),
        });
        if let Next::Delivery(delivery) = next {
            self.ahead = Some(delivery);
        }
        // When nothing came, the loss is told now; a feed that has ended says so when it is asked again.
        Next::Delivery(gap)
    }
}

fn from_queue(
    queue: &Queue,
    taken: &Receiver<Numbered>,
    expected: &mut u64,
    closing: &Receiver<Infallible>,
    timeout: Duration,
    owed: &mut u64,
) -> Next {
    let (item, otherwise) = select! {
        recv(taken) -> item => (item.ok(), Next::Closed),
        recv(closing) -> _ => (taken.try_recv().ok(), Next::Closed),
        default(timeout) => (None, Next::Idle),
    };
    if let Some(Numbered { number, delivery }) = item {
        *owed += number.saturating_sub(*expected);
        *expected = number + 1;
        return Next::Delivery(delivery);
    }
    if let Some(end) = queue.end_when_empty() {
        *owed += end.saturating_sub(*expected);
        *expected = end;
    }
    otherwise
}

fn from_outbox(reader: &mut OutboxReader, timeout: Duration, owed: &mut u64) -> Next {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut cx = Context::from_waker(&waker);
    let until = Instant::now() + timeout;
    loop {
        let mut entry = None;
        let drained = reader.poll_drain(&mut cx, |taken| entry = Some(taken));
        *owed += reader.take_lost();
        match (drained, entry) {
            (_, Some(OutboxEntry::Updated(notice))) => return Next::Delivery(Delivery::Notice(notice)),
            (Poll::Ready(Drained::Entries(position)), Some(OutboxEntry::ListChanged(kind))) => {
                return Next::Delivery(Delivery::List(kind, position));
            }
            (Poll::Ready(Drained::Ended(_)), _) => return Next::Closed,
            (Poll::Ready(_), _) => {}
            (Poll::Pending, _) => match until.checked_duration_since(Instant::now()) {
                Some(left) if !left.is_zero() && *owed == 0 => std::thread::park_timeout(left),
                _ => return Next::Idle,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{ListKind, Position};
    use crate::sink::Overflow;
    use crossbeam_channel::bounded;

    fn delivery(offset: u64) -> Delivery {
        Delivery::List(ListKind::Tools, Position { epoch: 1, offset })
    }

    /// What comes without waiting: offsets, and losses as negative numbers.
    fn notified(feed: &mut Feed) -> Vec<i64> {
        let next = || match feed.next(Duration::ZERO) {
            Next::Delivery(Delivery::List(_, position)) => Some(position.offset as i64),
            Next::Delivery(Delivery::Gap(gap)) => Some(-(gap.lost as i64)),
            _ => None,
        };
        std::iter::from_fn(next).collect()
    }

    #[test]
    fn a_gap_stands_where_something_is_missing() {
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
            assert_eq!(notified(&mut feed), expected, "{overflow:?}");
            queue.offer(delivery(4));
            assert_eq!(notified(&mut feed), [4]);
        }
    }

    #[test]
    fn what_was_handed_over_in_vain_is_told_as_a_gap() {
        let queue = Arc::new(Queue::new(2, Overflow::DropOldest));
        let (_open, closing) = bounded(0);
        let mut feed = Feed::every(queue.clone(), closing);
        feed.owe(1);
        queue.offer(delivery(0));
        assert_eq!(notified(&mut feed), [-1, 0]);
    }

    #[test]
    fn a_gap_that_is_refused_does_not_keep_a_closing_feed_from_ending() {
        let queue = Arc::new(Queue::new(2, Overflow::DropOldest));
        let (open, closing) = bounded(0);
        let mut feed = Feed::every(queue, closing);
        feed.owe(1);
        drop(open);
        assert_eq!(notified(&mut feed), [-1]);
        feed.owe(1);
        assert!(matches!(feed.next(Duration::ZERO), Next::Closed));
    }

    #[test]
    fn a_closing_feed_hands_out_what_is_left() {
        let queue = Arc::new(Queue::new(2, Overflow::DropOldest));
        let (open, closing) = bounded(0);
        let mut feed = Feed::every(queue.clone(), closing);
        queue.offer(delivery(0));
        drop(open);
        assert_eq!(notified(&mut feed), [0]);
        assert!(matches!(feed.next(Duration::from_secs(60)), Next::Closed));
        assert!(!feed.pause(Duration::from_secs(60)));
    }
}
