//! The checks: their names, how grave a failure is, what to do about it, and where the specification speaks of it.
//!
//! Owns the words that stay the same from run to run. It never looks at a server; the rounds of either era do, and
//! hand what they saw to the report together with one of these.

use serde::Serialize;

/// How grave a failed check is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Worth knowing; never decides how the run ends.
    Info,
    /// Clients suffer, or a recommendation of the specification is not followed.
    Warning,
    /// Clients miss changes, are told untruths, or a rule of the specification is broken.
    Error,
}

impl Severity {
    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Severity::Info => "info",
            Severity::Warning => "warning",
            Severity::Error => "error",
        }
    }
}

/// One thing that is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Check {
    /// A fresh session is told of each list once at most.
    FreshAnnouncements,
    /// No list is said to have changed while it stayed the same.
    SpuriousListChanged,
    /// What is advertised works, and nothing else is sent.
    CapabilityPromises,
    /// A change of a subscribed resource is told (`resources/subscribe`).
    SubscribeObeyed,
    /// A change of a subscribed resource is told (`subscriptions/listen`).
    ListenObeyed,
    /// A listen stream is acknowledged first, tagged, and carries only what was asked for.
    FilterObeyed,
    /// Nothing is told after the subscription ended.
    UnsubscribeObeyed,
    /// A subscription to what does not exist is not accepted.
    UnknownUri,
    /// One change is told once.
    DuplicateNotices,
    /// A read after the notice answers the new content.
    StaleReadAfterNotice,
    /// Nothing but pings and logs comes before the client is ready.
    InitializedFirst,
    /// Sessions and processes end when they are asked to.
    GracefulEnd,
    /// Errors carry the codes that clients decide by.
    ErrorCodes,
    /// A silent stream shows that it is alive.
    KeepAlive,
}

impl Check {
    /// Every check, in the order of reports.
    pub const ALL: [Check; 14] = [
        Check::InitializedFirst,
        Check::FreshAnnouncements,
        Check::SpuriousListChanged,
        Check::CapabilityPromises,
        Check::SubscribeObeyed,
        Check::ListenObeyed,
        Check::FilterObeyed,
        Check::UnsubscribeObeyed,
        Check::UnknownUri,
        Check::DuplicateNotices,
        Check::StaleReadAfterNotice,
        Check::ErrorCodes,
        Check::KeepAlive,
        Check::GracefulEnd,
    ];

    /// Its name, which never changes.
    pub fn id(self) -> &'static str {
        match self {
            Check::FreshAnnouncements => "fresh-announcements",
            Check::SpuriousListChanged => "spurious-list-changed",
            Check::CapabilityPromises => "capability-promises",
            Check::SubscribeObeyed => "subscribe-obeyed",
            Check::ListenObeyed => "listen-obeyed",
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

    /// How grave its failure is at worst; a single failure may be less.
    pub fn severity(self) -> Severity {
        match self {
            Check::SpuriousListChanged
            | Check::CapabilityPromises
            | Check::SubscribeObeyed
            | Check::ListenObeyed
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

    /// What to do about a failure, in one sentence.
    pub fn mend(self) -> &'static str {
        match self {
            Check::FreshAnnouncements => {
                "Tell a new session of each list once at most, and not at all when it has seen nothing older."
            }
            Check::SpuriousListChanged => {
                "Compare a digest of the list with the one last told, and send list_changed only when they differ."
            }
            Check::CapabilityPromises => {
                "Advertise listChanged and subscribe exactly where notifications are delivered."
            }
            Check::SubscribeObeyed | Check::ListenObeyed => {
                "Send notifications/resources/updated to every subscriber when the resource changes."
            }
            Check::FilterObeyed => {
                "Acknowledge first and no more than was asked, send nothing else, and tag every message with the request's id in its own JSON type."
            }
            Check::UnsubscribeObeyed => "Forget the subscription before its end is acknowledged.",
            Check::UnknownUri => {
                "Answer a subscription to an unknown URI with an error, or leave it out of the acknowledgement."
            }
            Check::DuplicateNotices => {
                "Send one notification per change: debounce the source and merge what was not sent yet."
            }
            Check::StaleReadAfterNotice => {
                "Replace the content (and drop every cache of it) before telling of the change."
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

    /// Whether it makes sense for that era of the protocol.
    pub(super) fn applies(self, modern: bool) -> bool {
        match self {
            Check::ListenObeyed | Check::FilterObeyed => modern,
            Check::SubscribeObeyed | Check::InitializedFirst => !modern,
            _ => true,
        }
    }

    /// The page of the specification that says so, for `revision`.
    pub fn link(self, revision: &str) -> String {
        let modern = revision >= super::MODERN;
        let page = match self {
            Check::FreshAnnouncements
            | Check::SpuriousListChanged
            | Check::CapabilityPromises
            | Check::DuplicateNotices
            | Check::StaleReadAfterNotice => "server/resources",
            Check::SubscribeObeyed
            | Check::ListenObeyed
            | Check::FilterObeyed
            | Check::UnsubscribeObeyed
            | Check::UnknownUri
                if modern =>
            {
                "basic/patterns/subscriptions"
            }
            Check::SubscribeObeyed
            | Check::ListenObeyed
            | Check::FilterObeyed
            | Check::UnsubscribeObeyed
            | Check::UnknownUri => "server/resources",
            Check::InitializedFirst => "basic/lifecycle",
            Check::ErrorCodes => "basic",
            Check::KeepAlive if modern => "basic/transports/streamable-http",
            Check::GracefulEnd if modern => "basic/transports/stdio",
            Check::KeepAlive | Check::GracefulEnd => "basic/transports",
        };
        format!("https://modelcontextprotocol.io/specification/{revision}/{page}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_page_about_checks_names_each_once_with_its_severity() {
        let page = include_str!("../../docs/check.md");
        let row = |line: &str| {
            let mut cells = line.strip_prefix("| `")?.split('|').map(str::trim);
            let id = cells.next()?.trim_end_matches('`').to_owned();
            Some((id, cells.next()?.to_owned()))
        };
        let written: Vec<(String, String)> = page.lines().filter_map(row).collect();
        let known = Check::ALL.map(|check| (check.id().to_owned(), check.severity().name().to_owned()));
        assert_eq!(written, known);
        let ids: BTreeSet<&str> = Check::ALL.iter().map(|check| check.id()).collect();
        assert_eq!(ids.len(), Check::ALL.len());
    }

    #[test]
    fn links_lead_to_the_page_of_the_revision() {
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
