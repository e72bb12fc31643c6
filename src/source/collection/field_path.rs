//! Paths to a field of an item: `author.name`, or a JSON pointer such as `/author/name`.

use serde_json::Value;
use std::fmt;

/// The names on the way to a field, outermost first. It is displayed with dots.
///
/// The configuration was checked, so every path is well-formed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FieldPath(Vec<String>);

impl FieldPath {
    /// Parses a configured path.
    pub(super) fn parse(text: &str) -> FieldPath {
        FieldPath(match text.strip_prefix('/') {
            Some(pointer) => pointer.split('/').map(unescape).collect(),
            None => text.split('.').map(str::to_owned).collect(),
        })
    }

    /// Returns the field of `item`, or `None` if it is missing or `null`.
    pub(super) fn get<'a>(&self, item: &'a Value) -> Option<&'a Value> {
        let mut value = item;
        for name in &self.0 {
            value = match value {
                Value::Object(fields) => fields.get(name)?,
                Value::Array(items) => items.get(array_index(name)?)?,
                _ => return None,
            };
        }
        if value.is_null() { None } else { Some(value) }
    }

    /// Returns the text of a scalar field: a string as it is, any other scalar as JSON.
    pub(super) fn scalar(&self, item: &Value) -> Option<String> {
        match self.get(item)? {
            Value::String(text) => Some(text.clone()),
            Value::Array(_) | Value::Object(_) => None,
            other => Some(other.to_string()),
        }
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("."))
    }
}

/// Undoes the escapes of a JSON pointer (RFC 6901 section 4); the order matters, since `~01` means `~1`.
fn unescape(part: &str) -> String {
    part.replace("~1", "/").replace("~0", "~")
}

/// Parses an array index, which RFC 6901 writes in digits without leading zeros.
fn array_index(name: &str) -> Option<usize> {
    let is_canonical = name == "0" || !name.starts_with('0');
    if is_canonical && name.bytes().all(|byte| byte.is_ascii_digit()) {
        name.parse().ok()
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn path_by_dots_or_pointer_finds_the_field() {
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
    fn scalar_of_a_list_or_object_is_none() {
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
