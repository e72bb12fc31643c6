//! Whether to believe what the file looks like.
//!
//! Pure. A writer may be in the middle of its work whenever the source looks, so what is worse than before (nothing,
//! or nonsense) is believed only when it is still there a quiet time later. Owns: that doubt, and the episodes of
//! faults, each of which is reported once. Asked by the task after every look.

/// What a look found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReadResult {
    /// A document with items.
    Sound,
    /// A document without items, an empty file, or none.
    Empty,
    /// Nothing that can be taken.
    Faulty,
    /// A file that changed while it was read.
    Unsettled,
}

/// What to do about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Decision {
    /// Show it; and say that it is well again, if it was not.
    Take { recovered: bool },
    /// Look again soon.
    Wait,
    /// Keep what was, and say why.
    Report,
    /// Keep what was; it has been said.
    Keep,
}

/// The judgement so far.
#[derive(Debug, Default)]
pub(super) struct SettleRule {
    /// Whether anything was decided yet.
    begun: bool,
    /// Whether what is shown has items.
    has_items: bool,
    /// Whether the last look was not believed.
    is_unsettled: bool,
    /// Whether a fault has been reported and goes on.
    failing: bool,
}

impl SettleRule {
    /// Whether the last look was not believed, so that the next one must not be spared.
    pub(super) fn is_unsettled(&self) -> bool {
        self.is_unsettled
    }

    /// Whether a fault goes on.
    pub(super) fn is_failing(&self) -> bool {
        self.failing
    }

    /// Judges a result; `quiet` says whether nothing had happened to the file for the quiet time.
    pub(super) fn settle(&mut self, result: ReadResult, quiet: bool) -> Decision {
        let worse = match result {
            ReadResult::Sound => false,
            ReadResult::Empty => self.has_items,
            ReadResult::Faulty | ReadResult::Unsettled => true,
        };
        let believed = !worse || !self.begun || (self.is_unsettled && quiet);
        if !believed || (result == ReadResult::Unsettled && self.begun) {
            self.is_unsettled = true;
            return Decision::Wait;
        }
        (self.begun, self.is_unsettled) = (true, false);
        match result {
            ReadResult::Sound | ReadResult::Empty => {
                self.has_items = result == ReadResult::Sound;
                let recovered = std::mem::take(&mut self.failing);
                Decision::Take { recovered }
            }
            ReadResult::Unsettled => Decision::Wait,
            ReadResult::Faulty if std::mem::replace(&mut self.failing, true) => Decision::Keep,
            ReadResult::Faulty => Decision::Report,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Decision::{Keep, Report, Take, Wait};
    use super::ReadResult::{Empty, Faulty, Sound, Unsettled};
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    const TAKE: Decision = Take { recovered: false };

    fn decisions(results: &[(ReadResult, bool)]) -> Vec<Decision> {
        let mut settle = SettleRule::default();
        results
            .iter()
            .map(|(result, quiet)| settle.settle(*result, *quiet))
            .collect()
    }

    #[test]
    fn what_is_worse_is_believed_the_second_time() {
        assert_eq!(
            decisions(&[(Sound, true), (Empty, true), (Empty, true)]),
            [TAKE, Wait, TAKE]
        );
        assert_eq!(
            decisions(&[(Sound, true), (Empty, true), (Sound, true)]),
            [TAKE, Wait, TAKE]
        );
        assert_eq!(
            decisions(&[(Sound, true), (Empty, false), (Empty, false)]),
            [TAKE, Wait, Wait]
        );
        assert_eq!(decisions(&[(Empty, true), (Empty, true)]), [TAKE, TAKE]);
        assert_eq!(decisions(&[(Unsettled, true), (Unsettled, true)]), [Wait, Wait]);
    }

    #[test]
    fn an_episode_is_reported_once_and_ends_once() {
        let recovered = Take { recovered: true };
        assert_eq!(
            decisions(&[
                (Faulty, true),
                (Faulty, true),
                (Faulty, true),
                (Sound, true),
                (Sound, true)
            ]),
            [Report, Wait, Keep, recovered, TAKE]
        );
        assert_eq!(
            decisions(&[
                (Sound, true),
                (Faulty, true),
                (Faulty, true),
                (Empty, true),
                (Empty, true)
            ]),
            [TAKE, Wait, Report, Wait, recovered]
        );
    }

    proptest! {
        /// Reports and recoveries take turns, and what is sound is always taken.
        #[test]
        fn reports_and_recoveries_alternate(
            results in vec((proptest::sample::select(vec![Sound, Empty, Faulty, Unsettled]), any::<bool>()), 0..60),
        ) {
            let mut failing = false;
            for ((result, _), decision) in results.iter().zip(decisions(&results)) {
                match decision {
                    Report => prop_assert!(!std::mem::replace(&mut failing, true)),
                    Take { recovered } => prop_assert_eq!(recovered, std::mem::take(&mut failing)),
                    Keep => prop_assert!(failing),
                    Wait => {}
                }
                let taken = matches!(decision, Take { .. });
                prop_assert!(*result != Sound || taken);
            }
        }
    }
}
