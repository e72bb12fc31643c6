//! The lines of `tidings watch`: changes for people and for programs, and the events of the connection.

use serde::Serialize;

use crate::client::{WatchEvent, WatchStrategy};
use crate::printable;

/// One line of standard output.
#[derive(Debug, Serialize)]
pub(super) struct ChangeLine<'a> {
    pub(super) uri: &'a str,
    pub(super) etag: Option<&'a str>,
    #[serde(rename = "road")]
    pub(super) strategy: &'static str,
    pub(super) at: &'a str,
    /// True for the version at which watching began, which is not a change.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) current: bool,
}

impl ChangeLine<'_> {
    /// Returns it for people. The URI may be one that the server lists.
    pub(super) fn text(&self) -> String {
        let mark = if self.current { " current" } else { "" };
        let line = format!("{} {} {}{mark}", self.at, self.uri, self.etag.unwrap_or("-"));
        printable::line(&line).into_owned()
    }

    /// Returns it for programs.
    pub(super) fn json(&self) -> String {
        let line = serde_json::to_string(self).expect("a line has only texts and a flag");
        printable::json(&line).into_owned()
    }
}

/// A change of a list, as one line of standard output.
#[derive(Debug, Serialize)]
pub(super) struct ListLine<'a> {
    pub(super) list: &'static str,
    pub(super) at: &'a str,
}

impl ListLine<'_> {
    /// Returns it for people.
    pub(super) fn text(&self) -> String {
        format!("{} the list of {} changed", self.at, self.list)
    }

    /// Returns it for programs.
    pub(super) fn json(&self) -> String {
        serde_json::to_string(self).expect("a line has only texts")
    }
}

pub(super) fn listening(name: &str, revision: &str, strategy: WatchStrategy) -> String {
    format!("listening to {name} on {revision} by {}", strategy.method())
}

/// Describes an event that is not a change.
pub(super) fn describe(name: &str, event: &WatchEvent) -> String {
    match event {
        WatchEvent::Lost { reason, retry_in } => {
            format!(
                "lost {name}: {reason}; trying again in {:.1} s",
                retry_in.as_secs_f64()
            )
        }
        WatchEvent::Restored { revision, strategy } => listening(name, revision, *strategy),
        WatchEvent::SteppedDown {
            uri,
            from,
            to,
            reason,
        } => {
            let subject = uri.as_deref().unwrap_or(name);
            format!(
                "{subject} goes from {} to {}: {reason}",
                from.method(),
                to.method()
            )
        }
        WatchEvent::Missing { uri, reason } => {
            format!("{uri} is missing: {reason}; waiting for it")
        }
        other => format!("{other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn line(etag: Option<&str>, current: bool) -> ChangeLine<'_> {
        ChangeLine {
            uri: "demo://a",
            etag,
            strategy: WatchStrategy::Listen.name(),
            at: "2026-11-21T10:00:00Z",
            current,
        }
    }

    #[test]
    fn lines_have_the_documented_form() {
        assert_eq!(
            line(Some("v3-1764000000"), false).text(),
            "2026-11-21T10:00:00Z demo://a v3-1764000000"
        );
        assert_eq!(line(None, false).text(), "2026-11-21T10:00:00Z demo://a -");
        assert_eq!(
            line(Some("v3-1"), true).text(),
            "2026-11-21T10:00:00Z demo://a v3-1 current"
        );
        assert_eq!(
            line(Some("v3-1"), false).json(),
            r#"{"uri":"demo://a","etag":"v3-1","road":"listen","at":"2026-11-21T10:00:00Z"}"#
        );
        assert_eq!(
            line(None, true).json(),
            r#"{"uri":"demo://a","etag":null,"road":"listen","at":"2026-11-21T10:00:00Z","current":true}"#
        );
    }

    #[test]
    fn lists_have_lines_of_their_own() {
        let line = ListLine {
            list: "resources",
            at: "2026-11-21T10:00:00Z",
        };
        assert_eq!(line.text(), "2026-11-21T10:00:00Z the list of resources changed");
        assert_eq!(line.json(), r#"{"list":"resources","at":"2026-11-21T10:00:00Z"}"#);
    }

    #[test]
    fn hostile_uri_is_cleaned() {
        let hostile = ChangeLine {
            uri: "demo://\u{202e}a\n",
            ..line(None, false)
        };
        assert_eq!(hostile.text(), "2026-11-21T10:00:00Z demo:// a  -");
        assert!(hostile.json().contains(r#""demo://\u202ea\n""#));
    }

    #[test]
    fn connection_events_name_method_and_reason() {
        let restored = WatchEvent::Restored {
            revision: "2025-11-25".to_owned(),
            strategy: WatchStrategy::Subscribe,
        };
        assert_eq!(
            describe("http://h/mcp", &restored),
            "listening to http://h/mcp on 2025-11-25 by resources/subscribe"
        );
        let lost = WatchEvent::Lost {
            reason: "the stream broke off".to_owned(),
            retry_in: Duration::from_millis(840),
        };
        assert_eq!(
            describe("h", &lost),
            "lost h: the stream broke off; trying again in 0.8 s"
        );
    }

    fn stepped(uri: Option<&str>) -> WatchEvent {
        WatchEvent::SteppedDown {
            uri: uri.map(str::to_owned),
            from: WatchStrategy::Listen,
            to: WatchStrategy::EtagTool,
            reason: "it keeps silent".to_owned(),
        }
    }

    #[test]
    fn step_down_names_both_methods_and_the_reason() {
        assert_eq!(
            describe("http://h/mcp", &stepped(None)),
            "http://h/mcp goes from subscriptions/listen to get_resource_etag: it keeps silent"
        );
        assert!(describe("h", &stepped(Some("demo://a"))).starts_with("demo://a goes from "));
    }
}
