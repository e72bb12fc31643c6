//! The catalog of checks: the name, severity, remedy and specification page of each.

use serde::Serialize;

use crate::wire::dialect::Revision;

/// The severity of a failed check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Worth knowing; does not affect the exit code.
    Info,
    /// Clients do needless work, or a recommendation of the specification is not followed.
    Warning,
    /// Clients miss changes or are misled, or a rule of the specification is broken.
    Error,
}

impl Severity {
    /// Returns the name used in reports.
    pub fn name(self) -> &'static str {
        match self {
            Severity::Info => "info",
            Severity::Warning => "warning",
            Severity::Error => "error",
        }
    }
}

/// A check of one rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Check {
    /// The request that opens a revision is answered, if only by a refusal.
    OpeningAnswered,
    /// A fresh session receives at most one announcement per list.
    FreshAnnouncements,
    /// No list is announced as changed while it stays the same.
    SpuriousListChanged,
    /// No resource is announced as changed while its content stays the same, or without a subscription.
    SpuriousUpdates,
    /// Every advertised capability works, and no notification comes without one.
    CapabilityPromises,
    /// A change of a subscribed resource is announced (`resources/subscribe`).
    SubscribeObeyed,
    /// A change of a subscribed resource is announced (`subscriptions/listen`).
    ListenObeyed,
    /// A list that changed is announced.
    ListChangedObeyed,
    /// A listen stream begins with its acknowledgement, is tagged, and carries only the requested
    /// notifications.
    FilterObeyed,
    /// No change is announced after the end of the subscription.
    UnsubscribeObeyed,
    /// A subscription to an unknown resource is not accepted.
    UnknownUri,
    /// One change is announced once.
    DuplicateNotices,
    /// A read after the notice returns the new content.
    StaleReadAfterNotice,
    /// Only pings and log messages come before the client is ready.
    InitializedFirst,
    /// Sessions and processes end on request.
    GracefulEnd,
    /// Errors carry the codes of the specification, by which clients decide.
    ErrorCodes,
    /// A silent stream carries keep-alives.
    KeepAlive,
}

impl Check {
    /// All checks, in the order of reports.
    pub const ALL: [Check; 17] = [
        Check::OpeningAnswered,
        Check::InitializedFirst,
        Check::FreshAnnouncements,
        Check::SpuriousListChanged,
        Check::SpuriousUpdates,
        Check::CapabilityPromises,
        Check::SubscribeObeyed,
        Check::ListenObeyed,
        Check::ListChangedObeyed,
        Check::FilterObeyed,
        Check::UnsubscribeObeyed,
        Check::UnknownUri,
        Check::DuplicateNotices,
        Check::StaleReadAfterNotice,
        Check::ErrorCodes,
        Check::KeepAlive,
        Check::GracefulEnd,
    ];

    /// Returns the name, which is stable across releases.
    pub fn id(self) -> &'static str {
        match self {
            Check::OpeningAnswered => "opening-answered",
            Check::FreshAnnouncements => "fresh-announcements",
            Check::SpuriousListChanged => "spurious-list-changed",
            Check::SpuriousUpdates => "spurious-updates",
            Check::CapabilityPromises => "capability-promises",
            Check::SubscribeObeyed => "subscribe-obeyed",
            Check::ListenObeyed => "listen-obeyed",
            Check::ListChangedObeyed => "list-changed-obeyed",
            Check::FilterObeyed => "filter-obeyed",
            Check::UnsubscribeObeyed => "unsubscribe-obeyed",
            Check::UnknownUri => "unknown-uri",
            Check::DuplicateNotices => "duplicate-notices",
            Check::StaleReadAfterNotice => "stale-read-after-notice",
            Check::InitializedFirst => "initialized-first",
            Check::GracefulEnd => "graceful-end",
            Check::ErrorCodes => "error-codes",
            Check::KeepAlive => "keep-alive",
        }
    }

    /// Returns the highest severity of a failure; a single failure may be less severe.
    pub fn severity(self) -> Severity {
        match self {
            Check::OpeningAnswered
            | Check::SpuriousListChanged
            | Check::SpuriousUpdates
            | Check::CapabilityPromises
            | Check::SubscribeObeyed
            | Check::ListenObeyed
            | Check::ListChangedObeyed
            | Check::FilterObeyed
            | Check::UnsubscribeObeyed
            | Check::StaleReadAfterNotice
            | Check::GracefulEnd
            | Check::ErrorCodes => Severity::Error,
            Check::FreshAnnouncements
            | Check::UnknownUri
            | Check::DuplicateNotices
            | Check::InitializedFirst => Severity::Warning,
            Check::KeepAlive => Severity::Info,
        }
    }

    /// Returns the remedy for a failure, in one sentence.
    pub fn remedy(self) -> &'static str {
        match self {
            Check::OpeningAnswered => {
                "Answer server/discover and initialize in every state, with an error where the revision is not spoken."
            }
            Check::FreshAnnouncements => {
                "Announce each list to a new session at most once, and not at all when it has seen no older state of it."
            }
            Check::SpuriousListChanged => {
                "Compare a digest of the list with the one last announced, and send list_changed only when they differ."
            }
            Check::SpuriousUpdates => {
                "Compare a digest of the content with the one last announced, and send resources/updated to subscribers alone and only when they differ."
            }
            Check::CapabilityPromises => {
                "Advertise listChanged and subscribe exactly where notifications are delivered."
            }
            Check::SubscribeObeyed | Check::ListenObeyed => {
                "Send notifications/resources/updated to every subscriber when the resource changes."
            }
            Check::ListChangedObeyed => {
                "Send list_changed to every session, or listen stream that asked for it, when the list changes."
            }
            Check::FilterObeyed => {
                "Acknowledge first and no more than was requested, send nothing else, and tag every message with the request's id in its own JSON type."
            }
            Check::UnsubscribeObeyed => "Forget the subscription before its end is acknowledged.",
            Check::UnknownUri => {
                "Answer a subscription to an unknown URI with an error, or leave it out of the acknowledgement."
            }
            Check::DuplicateNotices => {
                "Send one notification per change: debounce the source and merge notices that are not sent yet."
            }
            Check::StaleReadAfterNotice => {
                "Replace the content (and drop every cache of it) before announcing the change."
            }
            Check::InitializedFirst => "Hold notifications back until notifications/initialized has come.",
            Check::GracefulEnd => {
                "End a session on DELETE and answer 404 from then on; end the process when its standard input ends."
            }
            Check::ErrorCodes => {
                "Answer -32601 to unknown methods, -32602 to invalid cursors, and the revision's code to unknown resources."
            }
            Check::KeepAlive => {
                "Write a comment line to every silent stream more often than proxies close them."
            }
        }
    }

    /// Returns true if the check exists in that era of the protocol.
    pub(super) fn applies_to(self, is_modern: bool) -> bool {
        match self {
            Check::ListenObeyed | Check::FilterObeyed => is_modern,
            Check::SubscribeObeyed | Check::InitializedFirst => !is_modern,
            _ => true,
        }
    }

    /// Returns the address of the page of the specification with the rule, in that revision.
    pub fn link(self, revision: &str) -> String {
        // Dates compare as texts.
        let is_modern = revision >= Revision::R2026_07_28.as_str();
        let page = match self {
            Check::FreshAnnouncements
            | Check::SpuriousListChanged
            | Check::SpuriousUpdates
            | Check::CapabilityPromises
            | Check::ListChangedObeyed
            | Check::DuplicateNotices
            | Check::StaleReadAfterNotice => "server/resources",
            Check::SubscribeObeyed
            | Check::ListenObeyed
            | Check::FilterObeyed
            | Check::UnsubscribeObeyed
            | Check::UnknownUri
                if is_modern =>
            {
                "basic/patterns/subscriptions"
            }
            Check::SubscribeObeyed
            | Check::ListenObeyed
            | Check::FilterObeyed
            | Check::UnsubscribeObeyed
            | Check::UnknownUri => "server/resources",
            Check::OpeningAnswered if is_modern => "server/discover",
            Check::OpeningAnswered | Check::InitializedFirst => "basic/lifecycle",
            Check::ErrorCodes => "basic",
            Check::KeepAlive if is_modern => "basic/transports/streamable-http",
            Check::GracefulEnd if is_modern => "basic/transports/stdio",
            Check::KeepAlive | Check::GracefulEnd => "basic/transports",
        };
        format!("https://modelcontextprotocol.io/specification/{revision}/{page}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Returns the id and the severity in a row of the table of checks.
    fn row(line: &str) -> Option<(&str, &str)> {
        let mut cells = line.strip_prefix("| `")?.split('|').map(str::trim);
        Some((cells.next()?.trim_end_matches('`'), cells.next()?))
    }

    #[test]
    fn docs_page_lists_every_check() {
        let page = include_str!("../../docs/check.md");
        let written: Vec<(&str, &str)> = page.lines().flat_map(row).collect();
        let known = Check::ALL.map(|check| (check.id(), check.severity().name()));
        assert_eq!(written, known);
        let ids: BTreeSet<&str> = Check::ALL.iter().map(|check| check.id()).collect();
        assert_eq!(ids.len(), Check::ALL.len());
    }

    #[test]
    fn link_depends_on_the_revision() {
        for (check, revision, page) in [
            (Check::FilterObeyed, "2026-07-28", "basic/patterns/subscriptions"),
            (Check::UnknownUri, "2025-06-18", "server/resources"),
            (Check::KeepAlive, "2026-07-28", "basic/transports/streamable-http"),
        ] {
            let expected = format!("https://modelcontextprotocol.io/specification/{revision}/{page}");
            assert_eq!(check.link(revision), expected);
        }
    }
}
