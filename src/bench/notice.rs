//! The part of a message on a stream that the load test needs: the resource that changed, and its version.
//!
//! The version comes from the etag that Tidings writes into `_meta` (`v7-1795305721` is version 7); other
//! servers send none.

use std::borrow::Cow;

use serde::Deserialize;

/// A message.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Notice<'b> {
    /// A resource changed.
    Updated { uri: Cow<'b, str>, version: Option<u64> },
    /// A listen stream is open.
    Acknowledged {
        /// The number of granted resources; none when the server does not say.
        granted: Option<usize>,
    },
    /// The answer that ends a listen stream, or refuses it.
    Answer { error: Option<String> },
    /// Anything else.
    Other,
}

#[derive(Deserialize)]
struct Message<'b> {
    #[serde(borrow, default)]
    method: Option<Cow<'b, str>>,
    #[serde(borrow, default)]
    params: Option<Params<'b>>,
    #[serde(default)]
    error: Option<serde_json::Value>,
    #[serde(default)]
    result: Option<serde::de::IgnoredAny>,
}

#[derive(Deserialize)]
struct Params<'b> {
    #[serde(borrow, default)]
    uri: Option<Cow<'b, str>>,
    #[serde(borrow, default, rename = "_meta")]
    meta: Option<Meta<'b>>,
    #[serde(default)]
    notifications: Option<GrantedKinds>,
}

#[derive(Deserialize)]
struct Meta<'b> {
    // The key of `crate::wire::protocol::ETAG_META_KEY`; a test compares them.
    #[serde(borrow, default, rename = "io.github.tidings/etag")]
    etag: Option<Cow<'b, str>>,
}

#[derive(Deserialize)]
struct GrantedKinds {
    #[serde(default, rename = "resourceSubscriptions")]
    resources: Option<Vec<serde::de::IgnoredAny>>,
}

/// The beginning of a notice as Tidings writes it, before the URI and after it.
const BEFORE_URI: &[u8] = br#"{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":""#;
const BEFORE_VERSION: &[u8] = br#","_meta":{"io.github.tidings/etag":"v"#;

impl<'b> Notice<'b> {
    /// Reads a message like [`read`](Self::read), but takes one that begins as Tidings' own notices do as one
    /// of them, without reading its rest: a parser would be most of the cost of a stream.
    pub(crate) fn scan(data: &'b [u8]) -> Notice<'b> {
        match Notice::scan_updated(data) {
            Some(notice) => notice,
            None => Notice::read(data),
        }
    }

    fn scan_updated(data: &'b [u8]) -> Option<Notice<'b>> {
        let rest = data.strip_prefix(BEFORE_URI)?;
        let (uri, rest) = rest.split_at(memchr::memchr2(b'"', b'\\', rest)?);
        let etag = rest.strip_prefix(b"\"")?.strip_prefix(BEFORE_VERSION)?;
        let mut rest = etag;
        let mut version: u64 = 0;
        while let [digit @ b'0'..=b'9', after @ ..] = rest {
            version = version.checked_mul(10)?.checked_add(u64::from(digit - b'0'))?;
            rest = after;
        }
        let uri = std::str::from_utf8(uri).ok()?;
        // Without a digit or a dash it is no version.
        (rest.first() == Some(&b'-') && rest.len() < etag.len()).then_some(Notice::Updated {
            uri: Cow::Borrowed(uri),
            version: Some(version),
        })
    }

    /// Reads a message; other bytes are [`Notice::Other`].
    pub(crate) fn read(data: &'b [u8]) -> Notice<'b> {
        let Ok(message) = serde_json::from_slice::<Message<'b>>(data) else {
            return Notice::Other;
        };
        match (message.method.as_deref(), message.params) {
            (
                Some("notifications/resources/updated"),
                Some(Params {
                    uri: Some(uri), meta, ..
                }),
            ) => Notice::Updated {
                version: meta.and_then(|meta| version(&meta.etag?)),
                uri,
            },
            (Some("notifications/subscriptions/acknowledged"), params) => Notice::Acknowledged {
                granted: params.and_then(|params| Some(params.notifications?.resources?.len())),
            },
            (None, _) if message.result.is_some() || message.error.is_some() => Notice::Answer {
                error: message.error.map(|error| error.to_string()),
            },
            _ => Notice::Other,
        }
    }
}

/// Reads the version of an etag of Tidings: `v7-1795305721` is 7.
pub(crate) fn version(etag: &str) -> Option<u64> {
    let (version, _) = etag.strip_prefix('v')?.split_once('-')?;
    version.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::protocol::ETAG_META_KEY;
    use serde_json::json;

    #[test]
    fn notice_has_a_resource_and_maybe_a_version() {
        let told = |uri: &str, meta: serde_json::Value| {
            let message = json!({ "jsonrpc": "2.0", "method": "notifications/resources/updated",
                "params": { "uri": uri, "_meta": meta } });
            match Notice::read(message.to_string().as_bytes()) {
                Notice::Updated { uri, version } => (uri.into_owned(), version),
                other => panic!("{other:?}"),
            }
        };
        let etag = json!({ ETAG_META_KEY: "v7-1795305721", "io.modelcontextprotocol/subscriptionId": 1 });
        assert_eq!(told("demo://a", etag), ("demo://a".to_owned(), Some(7)));
        assert_eq!(
            told("demo://\"q", json!({ ETAG_META_KEY: "W/x" })),
            ("demo://\"q".to_owned(), None)
        );
        assert_eq!(told("demo://b", json!(null)).1, None);
    }

    #[test]
    fn scan_finds_what_the_parser_finds() {
        let notice = |uri: &str, meta: &str| {
            format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{{"uri":"{uri}","_meta":{{{meta}}}}}}}"#
            )
        };
        let etag =
            |etag: &str| format!(r#""{ETAG_META_KEY}":"{etag}","io.modelcontextprotocol/subscriptionId":1"#);
        for message in [
            notice("demo://a", &etag("v7-1795305721")),
            notice("demo://a", &etag("v18446744073709551615-1")),
            notice("demo://a", &etag("v18446744073709551616-1")),
            notice("demo://\\\"q", &etag("v7-1")),
            notice("demo://a", &etag("v-1")),
            notice("demo://a", &etag("W/x")),
            notice("demo://a", ""),
            "nonsense".to_owned(),
        ] {
            let message = message.as_bytes();
            assert_eq!(Notice::scan(message), Notice::read(message));
        }
        assert!(Notice::scan_updated(notice("demo://a", &etag("v7-1")).as_bytes()).is_some());
    }

    #[test]
    fn other_messages_are_told_apart() {
        let acknowledged = br#"{"method":"notifications/subscriptions/acknowledged","params":{"notifications":{"resourceSubscriptions":["a","b"]}}}"#;
        assert_eq!(
            Notice::read(acknowledged),
            Notice::Acknowledged { granted: Some(2) }
        );
        assert_eq!(
            Notice::read(br#"{"id":1,"result":{}}"#),
            Notice::Answer { error: None }
        );
        assert!(matches!(
            Notice::read(br#"{"id":1,"error":{"code":-32602}}"#),
            Notice::Answer { error: Some(text) } if text.contains("-32602")
        ));
        for other in [
            &b"nonsense"[..],
            br#"{"method":"notifications/tools/list_changed"}"#,
            br#"{"id":1,"method":"ping"}"#,
            br#"{"method":"notifications/resources/updated","params":{}}"#,
        ] {
            assert_eq!(Notice::read(other), Notice::Other);
        }
    }
}
