//! The one table of the rules in which the protocol's revisions differ.
//!
//! The rest of the server asks the table instead of comparing revisions, so a new revision is one row here
//! and a folder of golden frames.

use rmcp::model::{ProtocolVersion, ServerCapabilities};
use serde_json::Map;

pub use crate::wire::protocol::{ETAG_META_KEY, Revision};

/// The `_meta` key under which a stateless result names its server (2026-07-28, basic/index).
pub(crate) const SERVER_INFO_META_KEY: &str = "io.modelcontextprotocol/serverInfo";

/// The rules in which the revisions differ.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RevisionRules {
    /// The revision of this row.
    revision: Revision,
    /// A session receives list changes without a subscription to them.
    pub(crate) sends_list_changes: bool,
    /// The body of a POST may be a JSON array of messages.
    pub(crate) allows_batches: bool,
    /// A stream begins with an event without data, whose id lets the client resume.
    pub(crate) primes_streams: bool,
    /// A progress notification may carry a text.
    pub(crate) allows_progress_text: bool,
}

/// The rules of each revision, in the order of [`Revision`].
#[rustfmt::skip]
static RULES: [RevisionRules; 5] = [
    RevisionRules { revision: Revision::R2024_11_05, sends_list_changes: true,  allows_batches: false, primes_streams: false, allows_progress_text: false },
    RevisionRules { revision: Revision::R2025_03_26, sends_list_changes: false, allows_batches: true,  primes_streams: false, allows_progress_text: true  },
    RevisionRules { revision: Revision::R2025_06_18, sends_list_changes: true,  allows_batches: false, primes_streams: false, allows_progress_text: true  },
    RevisionRules { revision: Revision::R2025_11_25, sends_list_changes: true,  allows_batches: false, primes_streams: true,  allows_progress_text: true  },
    // No sessions: a client asks for list changes in its listen request.
    RevisionRules { revision: Revision::R2026_07_28, sends_list_changes: false, allows_batches: false, primes_streams: false, allows_progress_text: true  },
];

impl Revision {
    /// The revision that listen streams and requests without a session belong to.
    pub(crate) const STATELESS: Revision = Revision::R2026_07_28;

    /// Returns the rules of this revision.
    pub(crate) fn rules(self) -> &'static RevisionRules {
        &RULES[self as usize]
    }

    /// Returns the revision that rmcp negotiated for a request or a connection.
    pub(crate) fn negotiated(version: Option<&ProtocolVersion>) -> Revision {
        match version.map(|version| Revision::parse(version.as_str())) {
            Some(Some(revision)) => revision,
            // The specification's default for a request without a version (basic/transports): the header is
            // younger than this revision.
            _ => Revision::R2025_03_26,
        }
    }

    /// Adds to `capabilities` everything that the bus does for a client of this revision. The bus may hold
    /// items of every kind, so all three lists are declared, including those that are empty now.
    pub(crate) fn declare_capabilities(self, capabilities: &mut ServerCapabilities) {
        let list_changed = (self.is_stateless() || self.rules().sends_list_changes).then_some(true);
        let resources = capabilities.resources.get_or_insert_default();
        resources.subscribe = Some(true);
        resources.list_changed = list_changed;
        capabilities.tools.get_or_insert_default().list_changed = list_changed;
        capabilities.prompts.get_or_insert_default().list_changed = list_changed;
        // Any tool may log, and tools come and go while the client stays connected.
        capabilities.logging.get_or_insert_default();
        if self.is_stateless() {
            let extensions = capabilities.extensions.get_or_insert_default();
            extensions.insert(ETAG_META_KEY.to_owned(), Map::new());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_revision_has_its_row() {
        for revision in Revision::ALL {
            assert_eq!(revision.rules().revision, revision);
            assert_eq!(Revision::parse(revision.as_str()), Some(revision));
        }
        assert_eq!(Revision::parse("2099-01-01"), None);
    }

    #[test]
    fn rules_per_revision_match_specification() {
        let rules = Revision::ALL.map(Revision::rules);
        assert_eq!(
            rules.map(|rules| rules.sends_list_changes),
            [true, false, true, true, false]
        );
        assert_eq!(
            rules.map(|rules| rules.allows_batches),
            [false, true, false, false, false]
        );
        assert_eq!(
            rules.map(|rules| rules.primes_streams),
            [false, false, false, true, false]
        );
    }
}
