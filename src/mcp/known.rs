//! The etags that a client says it holds, in the `_meta` of a request that subscribes, and the current ones
//! in the answer.

use rmcp::ErrorData;
use serde_json::{Map, Value, json};

use super::error;
use super::revision::ETAG_META_KEY;
use crate::{Etag, ResourceUri};

/// Returns the etag that a client holds of one resource, `Some(None)` if it holds none; none if it did not
/// say.
///
/// # Errors
/// A value that is neither a string nor null.
pub(super) fn known_etag(meta: &Map<String, Value>) -> Result<Option<Option<String>>, ErrorData> {
    match meta.get(ETAG_META_KEY) {
        Some(held) => etag_in(held, "").map(Some),
        None => Ok(None),
    }
}

fn etag_in(held: &Value, at: &str) -> Result<Option<String>, ErrorData> {
    match held {
        Value::Null => Ok(None),
        Value::String(etag) => Ok(Some(etag.clone())),
        _ => Err(malformed(at, "a string or null")),
    }
}

fn malformed(at: &str, expected: &str) -> ErrorData {
    error::invalid_params(format!("params._meta[{ETAG_META_KEY:?}]{at} must be {expected}"))
}

/// The etags that a client holds of the resources of a listen request.
#[derive(Debug, Default)]
pub(super) struct KnownEtags(Option<Map<String, Value>>);

impl KnownEtags {
    /// Reads the value in `_meta` of a listen request; none if the request has none.
    ///
    /// # Errors
    /// A value that is no object of strings and nulls.
    pub(super) fn parse(held: Option<Value>) -> Result<KnownEtags, ErrorData> {
        let held = match held {
            Some(Value::Object(held)) => held,
            Some(_) => return Err(malformed("", "an object from URI to etag")),
            None => return Ok(KnownEtags(None)),
        };
        for (uri, etag) in &held {
            etag_in(etag, &format!("[{uri:?}]"))?;
        }
        Ok(KnownEtags(Some(held)))
    }

    /// Returns the etag that the client holds of `uri`, `Some(None)` if it holds none; none if it did not
    /// say.
    pub(super) fn of(&self, uri: &str) -> Option<Option<String>> {
        let held = self.0.as_ref()?.get(uri)?;
        Some(held.as_str().map(str::to_owned))
    }

    /// Returns the current etags for the answer; none for a client that named none itself, since it need not
    /// know the key.
    pub(super) fn answer(&self, subscribed: &[(ResourceUri, Etag)]) -> Option<Value> {
        self.0.as_ref()?;
        let mut current = Map::new();
        for (uri, etag) in subscribed {
            current.insert(uri.as_str().to_owned(), json!(etag.to_string()));
        }
        Some(Value::Object(current))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_value_is_named() {
        let of_one = known_etag(&Map::from_iter([(ETAG_META_KEY.to_owned(), json!(7))]));
        assert_eq!(
            of_one.unwrap_err().message,
            r#"params._meta["io.github.tidings/etag"] must be a string or null"#
        );
        for (held, text) in [
            (json!(null), " must be an object from URI to etag"),
            (json!("v1-1"), " must be an object from URI to etag"),
            (
                json!({ "demo://a": 1 }),
                r#"["demo://a"] must be a string or null"#,
            ),
        ] {
            let refused = KnownEtags::parse(Some(held)).unwrap_err();
            let expected = format!(r#"params._meta["io.github.tidings/etag"]{text}"#);
            assert_eq!(refused.message, expected);
        }
    }

    #[test]
    fn unsaid_differs_from_none_held() {
        let held = KnownEtags::parse(Some(json!({ "demo://a": null, "demo://b": "v1-1" }))).unwrap();
        assert_eq!(held.of("demo://a"), Some(None));
        assert_eq!(held.of("demo://b"), Some(Some("v1-1".to_owned())));
        assert_eq!(held.of("demo://c"), None);
        let unsaid = KnownEtags::parse(None).unwrap();
        assert_eq!((unsaid.of("demo://a"), unsaid.answer(&[])), (None, None));
        assert_eq!(held.answer(&[]), Some(json!({})));
    }
}
