//! Reading the JSON objects that people write: front matter, sidecars, and the document of `register`.

use serde_json::{Map, Value};

/// Similarity from which a name counts as a slip of another one.
const SIMILARITY_MIN: f64 = 0.5;
/// Longest name of a tool or prompt, in bytes.
const NAME_LEN_MAX: usize = 128;

/// Refuses an object with a field that is not `known`, and suggests the one that may be meant.
pub(super) fn refuse_unknown(object: &Map<String, Value>, known: &[&str]) -> Result<(), String> {
    let Some(written) = object.keys().find(|name| !known.contains(&name.as_str())) else {
        return Ok(());
    };
    let mut nearest = None;
    let mut best = SIMILARITY_MIN;
    // Compared without regard to case, the most frequent slip.
    for name in known {
        let similarity =
            strsim::normalized_damerau_levenshtein(&written.to_lowercase(), &name.to_lowercase());
        if similarity >= best {
            best = similarity;
            nearest = Some(name);
        }
    }
    let hint = match nearest {
        Some(name) => format!("did you mean \"{name}\"?"),
        None => format!("the fields are {}", known.join(", ")),
    };
    Err(format!("unknown field \"{written}\": {hint}"))
}

/// Returns the text of a field, or `None` if the field is missing.
pub(super) fn text(object: &Map<String, Value>, field: &str) -> Result<Option<String>, String> {
    match object.get(field) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(_) => Err(format!("{field} must be a text")),
    }
}

/// Returns true if a tool or prompt may have this name: the protocol allows these characters only.
pub(super) fn is_name(name: &str) -> bool {
    (1..=NAME_LEN_MAX).contains(&name.len())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-'))
}

/// Returns the message about a name that a tool or prompt may not have.
pub(super) fn invalid_name(name: &str) -> String {
    format!("invalid name {name:?}: write 1 to {NAME_LEN_MAX} letters, digits, \"_\", \".\" or \"-\"")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn unknown_field_suggests_the_nearest() {
        for (object, error) in [
            (json!({ "uri": 1, "text": 2 }), ""),
            (
                json!({ "mediatype": 1 }),
                "unknown field \"mediatype\": did you mean \"mediaType\"?",
            ),
            (
                json!({ "mime_type": 1 }),
                "unknown field \"mime_type\": did you mean \"mediaType\"?",
            ),
            (
                json!({ "zzzzzzz": 1 }),
                "unknown field \"zzzzzzz\": the fields are uri, mediaType, text",
            ),
        ] {
            let checked = refuse_unknown(object.as_object().unwrap(), &["uri", "mediaType", "text"]);
            assert_eq!(checked.err().unwrap_or_default(), error);
        }
    }

    #[test]
    fn name_has_the_characters_of_the_protocol() {
        for name in ["a", "A-b_c.9", &"x".repeat(128)] {
            assert!(is_name(name), "{name}");
        }
        for name in ["", "a b", "é", "a/b", &"x".repeat(129)] {
            assert!(!is_name(name), "{name}");
        }
    }
}
