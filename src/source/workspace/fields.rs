//! Names of fields that people write: the ones that exist, and what a wrong one may have meant.
//!
//! Pure. Owns: the check that an object has no field of another name. Whoever reads front matter, a sidecar or the
//! document of `register` hands in the object and the known names; it never looks at values.

use serde_json::{Map, Value};

/// Share of equal letters from which a name counts as a slip of another one.
const SIMILAR: f64 = 0.5;

/// What is wrong with the first field of `object` that is not among `known`; none when all are.
pub(super) fn unknown(object: &Map<String, Value>, known: &[&str]) -> Option<String> {
    let written = object.keys().find(|name| !known.contains(&name.as_str()))?;
    let nearest = known
        .iter()
        .map(|name| {
            (
                strsim::normalized_damerau_levenshtein(&written.to_lowercase(), &name.to_lowercase()),
                name,
            )
        })
        .filter(|(similarity, _)| *similarity >= SIMILAR)
        .max_by(|(a, _), (b, _)| a.total_cmp(b));
    let hint = match nearest {
        Some((_, name)) => format!("did you mean \"{name}\"?"),
        None => format!("the fields are {}", known.join(", ")),
    };
    Some(format!("unknown field \"{written}\": {hint}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn names_the_nearest_field_or_all_of_them() {
        let check = |object: Value| unknown(object.as_object().unwrap(), &["uri", "mediaType", "text"]);
        assert_eq!(check(json!({ "uri": 1, "text": 2 })), None);
        let slip = check(json!({ "mediatype": 1 })).unwrap();
        assert_eq!(slip, "unknown field \"mediatype\": did you mean \"mediaType\"?");
        let slip = check(json!({ "mime_type": 1 })).unwrap();
        assert_eq!(slip, "unknown field \"mime_type\": did you mean \"mediaType\"?");
        let far = check(json!({ "zzzzzzz": 1 })).unwrap();
        assert_eq!(
            far,
            "unknown field \"zzzzzzz\": the fields are uri, mediaType, text"
        );
    }
}
