//! Whether to believe what the file looks like.
//!
//! Pure. A writer may be in the middle of its work whenever the source looks, so what is worse than before (nothing,
//! or nonsense) is believed only when it is still there a quiet time later. Owns: that doubt, and the episodes of
//! faults, each of which is reported once. Asked by the task after every look.

/// What a look found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Finding {
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
pub(super) enum Verdict {
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
pub(super) struct Judge {
    /// Whether anything was decided yet.
    begun: bool,
    /// Whether what is shown has items.
    has_items: bool,
    /// Whether the last look was not believed.
    doubts: bool,
    /// Whether a fault has been reported and goes on.
    failing: bool,
}

impl Judge {
    /// Whether the last look was not believed, so that the next one must not be spared.
    pub(super) fn doubts(&self) -> bool {
        self.doubts
    }

    /// Whether a fault goes on.
    pub(super) fn is_failing(&self) -> bool {
        self.failing
    }

    /// Judges a finding; `quiet` says whether nothing had happened to the file for the quiet time.
    pub(super) fn judge(&mut self, finding: Finding, quiet: bool) -> Verdict {
        let worse = match finding {
            Finding::Sound => false,
            Finding::Empty => self.has_items,
            Finding::Faulty | Finding::Unsettled => true,
        };
        let believed = !worse || !self.begun || (self.doubts && quiet);
        if !believed || (finding == Finding::Unsettled && self.begun) {
            self.doubts = true;
            return Verdict::Wait;
        }
        (self.begun, self.doubts) = (true, false);
        match finding {
            Finding::Sound | Finding::Empty => {
                self.has_items = finding == Finding::Sound;
                let recovered = std::mem::take(&mut self.failing);
                Verdict::Take { recovered }
            }
            Finding::Unsettled => Verdict::Wait,
            Finding::Faulty if std::mem::replace(&mut self.failing, true) => Verdict::Keep,
            Finding::Faulty => Verdict::Report,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Finding::{Empty, Faulty, Sound, Unsettled};
    use super::Verdict::{Keep, Report, Take, Wait};
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    const TAKE: Verdict = Take { recovered: false };

    fn verdicts(findings: &[(Finding, bool)]) -> Vec<Verdict> {
        let mut judge = Judge::default();
        findings
            .iter()
            .map(|(finding, quiet)| judge.judge(*finding, *quiet))
            .collect()
    }

    #[test]
    fn what_is_worse_is_believed_the_second_time() {
        assert_eq!(
            verdicts(&[(Sound, true), (Empty, true), (Empty, true)]),
            [TAKE, Wait, TAKE]
        );
        assert_eq!(
            verdicts(&[(Sound, true), (Empty, true), (Sound, true)]),
            [TAKE, Wait, TAKE]
        );
        assert_eq!(
            verdicts(&[(Sound, true), (Empty, false), (Empty, false)]),
            [TAKE, Wait, Wait]
        );
        assert_eq!(verdicts(&[(Empty, true), (Empty, true)]), [TAKE, TAKE]);
        assert_eq!(verdicts(&[(Unsettled, true), (Unsettled, true)]), [Wait, Wait]);
    }

    #[test]
    fn an_episode_is_reported_once_and_ends_once() {
        let recovered = Take { recovered: true };
        assert_eq!(
            verdicts(&[
                (Faulty, true),
                (Faulty, true),
                (Faulty, true),
                (Sound, true),
                (Sound, true)
            ]),
            [Report, Wait, Keep, recovered, TAKE]
        );
        assert_eq!(
            verdicts(&[
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
            findings in vec((proptest::sample::select(vec![Sound, Empty, Faulty, Unsettled]), any::<bool>()), 0..60),
        ) {
            let mut failing = false;
            for ((finding, _), verdict) in findings.iter().zip(verdicts(&findings)) {
                match verdict {
                    Report => prop_assert!(!std::mem::replace(&mut failing, true)),
                    Take { recovered } => prop_assert_eq!(recovered, std::mem::take(&mut failing)),
                    Keep => prop_assert!(failing),
                    Wait => {}
                }
                let taken = matches!(verdict, Take { .. });
                prop_assert!(*finding != Sound || taken);
            }
        }
    }
}
