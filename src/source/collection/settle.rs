//! The rule that decides when a read of the file is published.
//!
//! A writer may be halfway through at any time. A result that is worse than the one before (an empty list, or
//! invalid content) is therefore accepted only if it is still there after a quiet time.

/// The result of reading the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReadResult {
    /// A document with items.
    Valid,
    /// A document without items, an empty file, or no file.
    Empty,
    /// Content that is not a document.
    Invalid,
    /// A file that changed while it was read.
    Unsettled,
}

/// The consequence of a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Decision {
    /// Publish the document. `recovered` says that it ends a series of invalid content.
    Publish { recovered: bool },
    /// Read again after a quiet time.
    Wait,
    /// Keep the last document, and report the first error of a series.
    Report,
    /// Keep the last document; the series was reported before.
    Keep,
}

/// The state of the rule.
#[derive(Debug, Default)]
pub(super) struct SettleRule {
    /// True after the first decision other than to wait.
    begun: bool,
    /// True if the published document has items.
    has_items: bool,
    /// True if the last result was not accepted.
    unsettled: bool,
    /// True during a series of invalid content that was reported.
    failing: bool,
}

impl SettleRule {
    /// Returns true if the last result was not accepted, so that the file must be read again.
    pub(super) fn is_unsettled(&self) -> bool {
        self.unsettled
    }

    /// Returns true during a series of invalid content.
    pub(super) fn is_failing(&self) -> bool {
        self.failing
    }

    /// Decides about a result. `quiet` says that nothing happened to the file for the quiet time.
    pub(super) fn decide(&mut self, result: ReadResult, quiet: bool) -> Decision {
        let worse = match result {
            ReadResult::Valid => false,
            ReadResult::Empty => self.has_items,
            ReadResult::Invalid | ReadResult::Unsettled => true,
        };
        let confirmed = self.unsettled && quiet;
        // The first result is accepted as it is: there is nothing older to protect.
        let accepted = !worse || !self.begun || confirmed;
        if !accepted || (result == ReadResult::Unsettled && self.begun) {
            self.unsettled = true;
            return Decision::Wait;
        }
        self.begun = true;
        self.unsettled = false;
        match result {
            ReadResult::Valid | ReadResult::Empty => {
                self.has_items = result == ReadResult::Valid;
                let recovered = self.failing;
                self.failing = false;
                Decision::Publish { recovered }
            }
            ReadResult::Unsettled => Decision::Wait,
            ReadResult::Invalid if self.failing => Decision::Keep,
            ReadResult::Invalid => {
                self.failing = true;
                Decision::Report
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Decision::{Keep, Publish, Report, Wait};
    use super::ReadResult::{Empty, Invalid, Unsettled, Valid};
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    const PUBLISH: Decision = Publish { recovered: false };
    const RECOVER: Decision = Publish { recovered: true };

    fn decisions(results: &[(ReadResult, bool)]) -> Vec<Decision> {
        let mut rule = SettleRule::default();
        results
            .iter()
            .map(|(result, quiet)| rule.decide(*result, *quiet))
            .collect()
    }

    #[test]
    fn worse_result_is_accepted_the_second_time() {
        assert_eq!(
            decisions(&[(Valid, true), (Empty, true), (Empty, true)]),
            [PUBLISH, Wait, PUBLISH]
        );
        assert_eq!(
            decisions(&[(Valid, true), (Empty, true), (Valid, true)]),
            [PUBLISH, Wait, PUBLISH]
        );
        assert_eq!(
            decisions(&[(Valid, true), (Empty, false), (Empty, false)]),
            [PUBLISH, Wait, Wait]
        );
        assert_eq!(decisions(&[(Empty, true), (Empty, true)]), [PUBLISH, PUBLISH]);
        assert_eq!(decisions(&[(Unsettled, true), (Unsettled, true)]), [Wait, Wait]);
    }

    #[test]
    fn invalid_series_is_reported_once_and_ends_once() {
        let quiet = |results: [ReadResult; 5]| decisions(&results.map(|result| (result, true)));
        assert_eq!(
            quiet([Invalid, Invalid, Invalid, Valid, Valid]),
            [Report, Wait, Keep, RECOVER, PUBLISH]
        );
        assert_eq!(
            quiet([Valid, Invalid, Invalid, Empty, Empty]),
            [PUBLISH, Wait, Report, Wait, RECOVER]
        );
    }

    proptest! {
        #[test]
        fn reports_and_recoveries_alternate(
            results in vec((proptest::sample::select(vec![Valid, Empty, Invalid, Unsettled]), any::<bool>()), 0..60),
        ) {
            let mut failing = false;
            let mut rule = SettleRule::default();
            for (result, quiet) in results {
                let decision = rule.decide(result, quiet);
                match decision {
                    Report => prop_assert!(!std::mem::replace(&mut failing, true)),
                    Publish { recovered } => prop_assert_eq!(recovered, std::mem::take(&mut failing)),
                    Keep => prop_assert!(failing),
                    Wait => {}
                }
                let is_published = matches!(decision, Publish { .. });
                prop_assert!(result != Valid || is_published);
            }
        }
    }
}
