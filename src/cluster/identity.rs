//! The identity of a log: whether the stream of a name is still the one that this node has read.
//!
//! A stream that was deleted and made anew, or restored from a copy, has the same name. A reader that goes on
//! from its place would hear nothing of it, without any error.

use tidings_actors::shared_log::LogHistory;

/// The log as this node knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct KnownLog {
    pub(super) history: LogHistory,
    /// The time at which the stream was created, in nanoseconds since 1970.
    pub(super) created: i128,
    /// The sequence number up to which this node has heard everything.
    pub(super) heard: u64,
    /// True if the stream was missing since, or has another record at a place that this node has heard.
    pub(super) is_suspect: bool,
}

/// The log as a server reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FoundLog {
    pub(super) history: LogHistory,
    /// The time at which the stream was created, in nanoseconds since 1970.
    pub(super) created: i128,
    /// The newest sequence number.
    pub(super) last: u64,
    /// The sequence number up to which this node had heard everything when it asked. Records that come while
    /// the answer is on its way may be newer than the newest one that it names.
    pub(super) heard_before: u64,
}

/// The step that follows from the comparison of both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Recognition {
    /// The log goes on.
    Same,
    /// It has another history, which another node has named.
    Changed,
    /// It has another history under the name of a former one; a new name must be written first.
    Unnamed,
}

/// Compares the log that this node knows with the one that is there.
pub(super) fn recognize(known: Option<&KnownLog>, found: &FoundLog) -> Recognition {
    let Some(known) = known else {
        return Recognition::Changed;
    };
    // Epochs grow, so this is the work of a node that has seen the change before.
    if found.history.epoch > known.history.epoch {
        return Recognition::Changed;
    }
    let is_same = found.history == known.history
        && found.created == known.created
        && found.last >= known.heard.min(found.heard_before)
        && !known.is_suspect;
    match is_same {
        true => Recognition::Same,
        // Positions of this node have this epoch, or a later one, so it cannot name another history.
        false => Recognition::Unnamed,
    }
}

/// Returns the name of a new history, after those that are known.
///
/// `now_millis` is the time since 1970.
pub(super) fn next_history(before: impl IntoIterator<Item = LogHistory>, now_millis: u64) -> LogHistory {
    let mut next = LogHistory {
        epoch: now_millis,
        began: now_millis / 1_000,
    };
    for before in before {
        next.epoch = next.epoch.max(before.epoch.saturating_add(1));
        next.began = next.began.max(before.began.saturating_add(1));
    }
    next
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: LogHistory = LogHistory { epoch: 5, began: 50 };
    const NEW: LogHistory = LogHistory { epoch: 6, began: 60 };

    fn known() -> KnownLog {
        KnownLog {
            history: OLD,
            created: 1,
            heard: 10,
            is_suspect: false,
        }
    }

    fn found(history: LogHistory, created: i128, last: u64) -> FoundLog {
        FoundLog {
            history,
            created,
            last,
            heard_before: 10,
        }
    }

    #[test]
    fn log_that_goes_on_is_the_same() {
        assert_eq!(recognize(Some(&known()), &found(OLD, 1, 10)), Recognition::Same);
        assert_eq!(recognize(Some(&known()), &found(OLD, 1, 99)), Recognition::Same);
        assert_eq!(recognize(None, &found(OLD, 1, 0)), Recognition::Changed);
    }

    #[test]
    fn records_heard_since_it_was_asked_are_no_step_back() {
        let mut later = known();
        later.heard = 12;
        assert_eq!(recognize(Some(&later), &found(OLD, 1, 10)), Recognition::Same);
        assert_eq!(recognize(Some(&later), &found(OLD, 1, 9)), Recognition::Unnamed);
    }

    #[test]
    fn history_of_another_node_is_taken() {
        assert_eq!(recognize(Some(&known()), &found(NEW, 2, 0)), Recognition::Changed);
        assert_eq!(
            recognize(Some(&known()), &found(NEW, 1, 99)),
            Recognition::Changed
        );
    }

    #[test]
    fn copy_under_an_old_name_is_named_anew() {
        let went_back = found(OLD, 1, 9);
        let made_anew = found(OLD, 2, 10);
        let older = found(LogHistory { epoch: 4, began: 70 }, 1, 99);
        let same_epoch = found(LogHistory { epoch: 5, began: 51 }, 1, 99);
        for found in [went_back, made_anew, older, same_epoch] {
            assert_eq!(
                recognize(Some(&known()), &found),
                Recognition::Unnamed,
                "{found:?}"
            );
        }
        let mut suspect = known();
        suspect.is_suspect = true;
        assert_eq!(
            recognize(Some(&suspect), &found(OLD, 1, 10)),
            Recognition::Unnamed
        );
    }

    #[test]
    fn new_history_is_after_all_others() {
        assert_eq!(
            next_history([], 9_000),
            LogHistory {
                epoch: 9_000,
                began: 9
            }
        );
        assert_eq!(next_history([OLD, NEW], 0), LogHistory { epoch: 7, began: 61 });
    }
}
