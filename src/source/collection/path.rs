//! The way to a field of an item: `author.name`, or a JSON pointer such as `/author/name`.
//!
//! Pure. Owns: how a path is walked, and that `null` counts as nothing. Whether a path is well-formed was checked with
//! the configuration.

use serde_json::Value;

/// The names on the way, outermost first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FieldPath(Vec<String>);

impl FieldPath {
    /// Reads a path as configured.
    pub(super) fn parse(text: &str) -> FieldPath {
        FieldPath(match text.strip_prefix('/') {
            Some(pointer) => pointer.split('/').map(unescape).collect(),
            None => text.split('.').map(str::to_owned).collect(),
        })
    }

    /// The field of `item`; none when it is missing or `null`.
    pub(super) fn get<'a>(&self, item: &'a Value) -> Option<&'a Value> {
        let found = self.0.iter().try_fold(item, |value, name| match value {
            Value::Object(fields) => fields.get(name),
            Value::Array(items) => items.get(index(name)?),
            _ => None,
        });
        found.filter(|value| !value.is_null())
    }

    /// The text of the field when it is a scalar: a string as it is, anything else as JSON.
    pub(super) fn scalar(&self, item: &Value) -> Option<String> {
        match self.get(item)? {
            Value::String(text) => Some(text.clone()),
            Value::Array(_) | Value::Object(_) => None,
            other => Some(other.to_string()),
        }
    }

    /// The field as people call it.
    pub(super) fn words(&self) -> String {
        self.0.join(".")
    }
}

fn unescape(part: &str) -> String {
    part.replace("~1", "/").replace("~0", "~")
}

/// A place in an array as RFC 6901 writes it.
fn index(name: &str) -> Option<usize> {
    let digits = name.bytes().all(|byte| byte.is_ascii_digit());
    let plain = name == "0" || !name.starts_with('0');
    name.parse().ok().filter(|_| digits && plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn walks_by_dots_and_by_pointer() {
        let item = json!({ "author": { "name": "Ada", "a/b": 1, "~": [2, 3] }, "gone": null, "": 4 });
        let get = |path: &str| FieldPath::parse(path).get(&item).cloned();
        assert_eq!(get("author.name"), Some(json!("Ada")));
        assert_eq!(get("/author/a~1b"), Some(json!(1)));
        assert_eq!(get("/author/~0/1"), Some(json!(3)));
        assert_eq!(get("/"), Some(json!(4)));
        for nothing in [
            "gone",
            "author.none",
            "author.name.x",
            "/author/~0/01",
            "/author/~0/2",
        ] {
            assert_eq!(get(nothing), None, "{nothing}");
        }
    }

    #[test]
    fn only_scalars_have_a_text() {
        let item = json!({ "s": "a", "n": 1.5, "b": true, "l": [], "o": {} });
        let text = |path: &str| FieldPath::parse(path).scalar(&item);
        assert_eq!(
            [text("s"), text("n"), text("b"), text("l"), text("o")],
            [
                Some("a".to_owned()),
                Some("1.5".to_owned()),
                Some("true".to_owned()),
                None,
                None
            ]
        );
    }
}
