//! The version that follows from the wrapped server's answer to a read. Pure: no bus, clock or lock.
//!
//! An etag is handed out with a content only if that content cannot be older than the etag; a client that
//! holds both would otherwise never learn of the newer content.

use crate::{Digest, Etag};

/// The last known state of a resource that the wrapped server holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KnownContent {
    /// The content at one version. At any other version of the bus it counts as not read since.
    Body(Digest, Etag),
    /// The resource was read once and is gone, but clients are still subscribed.
    Gone,
}

/// The wrapped server's answer to a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReadAnswer {
    /// A content.
    Body(Digest),
    /// The resource does not exist.
    Gone,
    /// The server could not answer.
    Failed,
}

/// The consequence of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReadDecision {
    /// Nothing changes; the reader may be given this etag.
    Keep(Option<Etag>),
    /// The content is that of the bus's version.
    Record(Digest, Etag),
    /// The bus does not know the resource yet.
    Register(Digest),
    /// The content differs from the one at this version.
    Touch(Digest, Etag),
    /// The resource is gone.
    Remove,
}

/// Decides by the `known` content, and by the bus's etag `before` the server was asked and `now`.
pub(super) fn decide(
    known: Option<KnownContent>,
    before: Option<Etag>,
    now: Option<Etag>,
    answer: ReadAnswer,
) -> ReadDecision {
    let digest = match answer {
        ReadAnswer::Body(digest) => digest,
        ReadAnswer::Gone if before == now && matches!(known, Some(KnownContent::Body(..))) => {
            return ReadDecision::Remove;
        }
        ReadAnswer::Gone | ReadAnswer::Failed => return ReadDecision::Keep(None),
    };
    match (known, now) {
        (Some(KnownContent::Body(held, at)), Some(etag)) if held == digest && at == etag => {
            ReadDecision::Keep(now)
        }
        // The version moved while the server was asked, so the answer may be the content from before.
        _ if before != now => ReadDecision::Keep(before.filter(|_| known.is_some())),
        (_, None) => ReadDecision::Register(digest),
        (Some(KnownContent::Body(_, at)), Some(etag)) if at == etag => ReadDecision::Touch(digest, etag),
        (Some(KnownContent::Body(..)), Some(etag)) => ReadDecision::Record(digest, etag),
        // Another publisher registered the resource at the bus: its version is not that of the server's
        // answer.
        (None | Some(KnownContent::Gone), Some(_)) => ReadDecision::Keep(None),
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

    fn decided(
        known: Option<KnownContent>,
        before: Option<u64>,
        now: Option<u64>,
        answer: ReadAnswer,
    ) -> ReadDecision {
        decide(known, before.map(etag), now.map(etag), answer)
    }

    #[test]
    fn reads_register_keep_and_touch() {
        let known = Some(KnownContent::Body(OLD, etag(1)));
        assert_eq!(
            decided(None, None, None, ReadAnswer::Body(OLD)),
            ReadDecision::Register(OLD)
        );
        assert_eq!(
            decided(known, Some(1), Some(1), ReadAnswer::Body(OLD)),
            ReadDecision::Keep(Some(etag(1)))
        );
        assert_eq!(
            decided(known, Some(1), Some(1), ReadAnswer::Body(NEW)),
            ReadDecision::Touch(NEW, etag(1))
        );
    }

    #[test]
    fn body_read_across_change_gets_earlier_etag() {
        let known = Some(KnownContent::Body(OLD, etag(1)));
        assert_eq!(
            decided(known, Some(1), Some(2), ReadAnswer::Body(OLD)),
            ReadDecision::Keep(Some(etag(1)))
        );
        assert_eq!(
            decided(known, Some(1), Some(2), ReadAnswer::Body(NEW)),
            ReadDecision::Keep(Some(etag(1)))
        );
        // Unless a reader that asked after the change got the same content.
        let since = Some(KnownContent::Body(NEW, etag(2)));
        assert_eq!(
            decided(since, Some(1), Some(2), ReadAnswer::Body(NEW)),
            ReadDecision::Keep(Some(etag(2)))
        );
    }

    #[test]
    fn first_body_after_touch_is_recorded() {
        let known = Some(KnownContent::Body(OLD, etag(1)));
        assert_eq!(
            decided(known, Some(2), Some(2), ReadAnswer::Body(NEW)),
            ReadDecision::Record(NEW, etag(2))
        );
    }

    #[test]
    fn only_gone_removes_and_foreign_uris_are_kept() {
        let known = Some(KnownContent::Body(OLD, etag(1)));
        assert_eq!(
            decided(known, Some(1), Some(1), ReadAnswer::Gone),
            ReadDecision::Remove
        );
        assert_eq!(
            decided(known, Some(1), Some(1), ReadAnswer::Failed),
            ReadDecision::Keep(None)
        );
        assert_eq!(
            decided(None, Some(1), Some(1), ReadAnswer::Gone),
            ReadDecision::Keep(None)
        );
        assert_eq!(
            decided(None, Some(1), Some(1), ReadAnswer::Body(NEW)),
            ReadDecision::Keep(None)
        );
        assert_eq!(
            decided(Some(KnownContent::Gone), None, None, ReadAnswer::Body(OLD)),
            ReadDecision::Register(OLD)
        );
    }

    proptest! {
        /// The one exception is a body that is known at the newer version.
        #[test]
        fn etag_is_never_newer_than_its_body(
            held in 1u128..3, at in 1u64..4, before in 1u64..4, later in 0u64..3, answered in 1u128..3,
        ) {
            let known = Some(KnownContent::Body(Digest(held), etag(at)));
            let now = before + later;
            let step = decided(known, Some(before), Some(now), ReadAnswer::Body(Digest(answered)));
            if let ReadDecision::Keep(Some(told)) | ReadDecision::Record(_, told) = step {
                prop_assert!(told == etag(before) || (held == answered && told == etag(at)));
            }
        }
    }
}
