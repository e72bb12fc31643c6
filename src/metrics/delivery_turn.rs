//! The deliveries of one turn of a connection that carries many streams, which give one sample.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Instant;

use super::McpHandles;

thread_local! {
    static TURN: RefCell<TurnDelivery> = const { RefCell::new(TurnDelivery::None) };
}

/// The turn that the thread is in.
enum TurnDelivery {
    None,
    /// Nothing was delivered so far.
    Empty,
    /// The oldest change that was delivered, and the metrics of its transport.
    Oldest(Arc<McpHandles>, Instant),
}

/// A turn, until it is dropped: what is delivered meanwhile is written as one, like one frame.
///
/// A sample costs as much as a tenth of a delivery, and those of a turn differ by less than its time.
#[derive(Debug)]
pub(crate) struct DeliveryTurn(());

impl DeliveryTurn {
    #[must_use]
    pub(crate) fn begin() -> DeliveryTurn {
        TURN.set(TurnDelivery::Empty);
        DeliveryTurn(())
    }
}

impl Drop for DeliveryTurn {
    fn drop(&mut self) {
        if let TurnDelivery::Oldest(handles, at) = TURN.replace(TurnDelivery::None) {
            record(&handles, at);
        }
    }
}

/// Records the delivery of a change that was admitted at `at`, now or at the end of the turn.
pub(super) fn delivered(handles: &Arc<McpHandles>, at: Instant) {
    let is_kept = TURN.with_borrow_mut(|turn| match turn {
        TurnDelivery::Empty => {
            *turn = TurnDelivery::Oldest(handles.clone(), at);
            true
        }
        TurnDelivery::Oldest(others, oldest) if Arc::ptr_eq(others, handles) => {
            *oldest = at.min(*oldest);
            true
        }
        // That of another transport is rare.
        TurnDelivery::None | TurnDelivery::Oldest(..) => false,
    });
    if !is_kept {
        record(handles, at);
    }
}

fn record(handles: &McpHandles, at: Instant) {
    handles.delivery.record(Instant::now() - at);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::McpMetrics;
    use metrics::with_local_recorder;
    use metrics_util::debugging::{DebugValue, DebuggingRecorder};
    use std::time::Duration;

    #[test]
    fn turn_gives_one_sample_of_its_oldest_change() {
        let recorder = DebuggingRecorder::new();
        let snapshotter = recorder.snapshotter();
        let samples = || {
            let all = snapshotter.snapshot().into_vec().into_iter();
            let samples = all.filter_map(|(_, _, _, value)| match value {
                DebugValue::Histogram(samples) => Some(samples),
                _ => None,
            });
            samples.flatten().map(|sample| sample.0).collect::<Vec<f64>>()
        };
        with_local_recorder(&recorder, || {
            let metrics = McpMetrics::new("http");
            let now = Instant::now();
            delivered(&metrics.handles, now);
            assert_eq!(samples().len(), 1);
            let turn = DeliveryTurn::begin();
            for seconds in [1, 3, 2] {
                delivered(&metrics.handles, now - Duration::from_secs(seconds));
            }
            assert!(samples().is_empty());
            drop(turn);
            let told = samples();
            assert!(told.len() == 1 && (3.0..4.0).contains(&told[0]), "{told:?}");
        });
    }
}
