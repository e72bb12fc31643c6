//! What the wrapped server's answers to reads tell about a resource's version.
//!
//! Owns: the decision, without bus, clock or lock: an etag is handed out with a body only if that body cannot be older
//! than the etag. Never: asks anybody. Used by [`Wrap`](super::Wrap), under its lock.

use crate::{Digest, Etag};

/// What is known of a resource that the wrapped server holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Seen {
    /// Its content at one version. At any other version of the bus it counts as not read since.
    Body(Digest, Etag),
    /// It was read once and is gone, but somebody is still subscribed.
    Gone,
}

/// What the wrapped server answered to a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    /// This content.
    Body(Digest),
    /// There is no such resource.
    Gone,
    /// It could not say.
    Failed,
}

/// What follows from an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing; the reader may be told this etag.
    Keep(Option<Etag>),
    /// This is the content of the bus's version.
    Record(Digest, Etag),
    /// The bus does not know the resource yet.
    Register(Digest),
    /// The content is another one than at this version.
    Touch(Digest, Etag),
    /// The resource is gone.
    Remove,
}

/// Judges an answer by what is `known`, and by the bus's etag `before` the server was asked and `now`.
pub(super) fn judge(known: Option<Seen>, before: Option<Etag>, now: Option<Etag>, answer: Answer) -> Step {
    let digest = match answer {
        Answer::Body(digest) => digest,
        Answer::Gone if before == now && matches!(known, Some(Seen::Body(..))) => return Step::Remove,
        Answer::Gone | Answer::Failed => return Step::Keep(None),
    };
    match (known, now) {
        (Some(Seen::Body(held, at)), Some(etag)) if held == digest && at == etag => Step::Keep(now),
        // The resource moved while the server was asked: what it answered may be what was there before.
        _ if before != now => Step::Keep(before.filter(|_| known.is_some())),
        (_, None) => Step::Register(digest),
        (Some(Seen::Body(_, at)), Some(etag)) if at == etag => Step::Touch(digest, etag),
        (Some(Seen::Body(..)), Some(etag)) => Step::Record(digest, etag),
        // Registered at the bus by somebody else: its version is not that of what the server answers.
        (None | Some(Seen::Gone), Some(_)) => Step::Keep(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const OLD: Digest = Digest(1);
    const NEW: Digest = Digest(2);

    fn etag(version: u64) -> Etag {
        Etag {
            version,
            ..Etag::UNKNOWN
        }
    }

    fn judged(known: Option<Seen>, before: Option<u64>, now: Option<u64>, answer: Answer) -> Step {
        judge(known, before.map(etag), now.map(etag), answer)
    }

    #[test]
    fn the_first_read_registers_the_same_again_changes_nothing_and_another_body_is_a_change() {
        let known = Some(Seen::Body(OLD, etag(1)));
        assert_eq!(judged(None, None, None, Answer::Body(OLD)), Step::Register(OLD));
        assert_eq!(
            judged(known, Some(1), Some(1), Answer::Body(OLD)),
            Step::Keep(Some(etag(1)))
        );
        assert_eq!(
            judged(known, Some(1), Some(1), Answer::Body(NEW)),
            Step::Touch(NEW, etag(1))
        );
    }

    #[test]
    fn a_body_that_was_asked_for_before_a_change_gets_the_etag_from_before_it() {
        let known = Some(Seen::Body(OLD, etag(1)));
        assert_eq!(
            judged(known, Some(1), Some(2), Answer::Body(OLD)),
            Step::Keep(Some(etag(1)))
        );
        assert_eq!(
            judged(known, Some(1), Some(2), Answer::Body(NEW)),
            Step::Keep(Some(etag(1)))
        );
        // Unless somebody who asked after the change was answered the same.
        let since = Some(Seen::Body(NEW, etag(2)));
        assert_eq!(
            judged(since, Some(1), Some(2), Answer::Body(NEW)),
            Step::Keep(Some(etag(2)))
        );
    }

    #[test]
    fn after_a_touch_the_next_body_is_that_version_and_no_further_change() {
        let known = Some(Seen::Body(OLD, etag(1)));
        assert_eq!(
            judged(known, Some(2), Some(2), Answer::Body(NEW)),
            Step::Record(NEW, etag(2))
        );
    }

    #[test]
    fn only_an_answer_that_it_is_gone_removes_and_what_is_not_the_servers_is_left_alone() {
        let known = Some(Seen::Body(OLD, etag(1)));
        assert_eq!(judged(known, Some(1), Some(1), Answer::Gone), Step::Remove);
        assert_eq!(judged(known, Some(1), Some(1), Answer::Failed), Step::Keep(None));
        assert_eq!(judged(None, Some(1), Some(1), Answer::Gone), Step::Keep(None));
        assert_eq!(
            judged(None, Some(1), Some(1), Answer::Body(NEW)),
            Step::Keep(None)
        );
        assert_eq!(
            judged(Some(Seen::Gone), None, None, Answer::Body(OLD)),
            Step::Register(OLD)
        );
    }

    proptest! {
        #[test]
        fn no_answer_is_given_an_etag_newer_than_when_it_was_asked_for_unless_that_very_body_is_known_at_it(
            held in 1u128..3, at in 1u64..4, before in 1u64..4, later in 0u64..3, answered in 1u128..3,
        ) {
            let known = Some(Seen::Body(Digest(held), etag(at)));
            let now = before + later;
            let step = judged(known, Some(before), Some(now), Answer::Body(Digest(answered)));
            if let Step::Keep(Some(told)) | Step::Record(_, told) = step {
                prop_assert!(told == etag(before) || (held == answered && told == etag(at)));
            }
        }
    }
}
