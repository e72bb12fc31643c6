//! The JSON schemas of tools, of the library and of a folder alike: compiled once and used for every call.
//!
//! Nothing is fetched, and a violation is quoted in part, since it may repeat a value of any length.

use jsonschema::Validator;
use serde_json::Value;
use std::fmt;
use std::sync::Arc;

/// Violations that are listed for one value.
const VIOLATIONS_MAX: usize = 10;
/// Bytes that are shown of one violation, since it may quote the value.
const VIOLATION_BYTES_MAX: usize = 300;

/// A valid schema of objects.
#[derive(Clone)]
pub(crate) struct ToolSchema {
    value: Value,
    validator: Arc<Validator>,
}

impl ToolSchema {
    /// Compiles `value`. References are resolved within the schema alone; nothing is fetched.
    ///
    /// # Errors
    /// The reason that it is not a schema of objects.
    pub(crate) fn compile(value: Value) -> Result<ToolSchema, String> {
        if value["type"] != "object" {
            return Err("it must be a schema with \"type\": \"object\"".to_owned());
        }
        let validator = jsonschema::validator_for(&value).map_err(|error| shorten(error.to_string()))?;
        Ok(ToolSchema {
            value,
            validator: Arc::new(validator),
        })
    }

    /// Returns the schema as it was written.
    pub(crate) fn value(&self) -> &Value {
        &self.value
    }

    /// Returns the violations of `value`, one per line with its path, or `None` if it is valid.
    pub(crate) fn violations(&self, value: &Value) -> Option<String> {
        let mut errors = self.validator.iter_errors(value);
        let mut lines = Vec::new();
        for error in errors.by_ref().take(VIOLATIONS_MAX) {
            let path = error.instance_path().to_string();
            let path = if path.is_empty() { "/" } else { &path };
            lines.push(shorten(format!("{path}: {error}")));
        }
        if lines.is_empty() {
            return None;
        }
        if errors.next().is_some() {
            lines.push("and more".to_owned());
        }
        Some(lines.join("\n"))
    }
}

impl PartialEq for ToolSchema {
    fn eq(&self, other: &ToolSchema) -> bool {
        self.value == other.value
    }
}

impl fmt::Debug for ToolSchema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.fmt(f)
    }
}

fn shorten(mut text: String) -> String {
    if text.len() > VIOLATION_BYTES_MAX {
        let mut end = VIOLATION_BYTES_MAX;
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn violations_are_listed_up_to_ten() {
        let items = json!({ "type": "array", "items": { "type": "integer" } });
        let schema = json!({ "type": "object", "properties": { "n": items }, "required": ["m"] });
        let schema = ToolSchema::compile(schema).unwrap();
        assert_eq!(schema.violations(&json!({ "m": 1, "n": [1, 2] })), None);
        let text = schema.violations(&json!({ "n": [1, "x"] })).unwrap();
        assert!(text.contains("/n/1: \"x\" is not of type \"integer\""), "{text}");
        assert!(text.contains("/: \"m\" is a required property"), "{text}");
        let text = schema.violations(&json!({ "m": 1, "n": vec!["x"; 40] })).unwrap();
        assert_eq!(
            (text.lines().count(), text.lines().last()),
            (11, Some("and more"))
        );
    }

    #[test]
    fn schema_of_anything_but_objects_is_refused() {
        assert!(ToolSchema::compile(json!({ "type": "string" })).is_err());
        assert!(ToolSchema::compile(json!({ "type": "object", "required": 7 })).is_err());
        let remote = json!({ "type": "object", "$ref": "http://127.0.0.1:1/schema.json" });
        assert!(ToolSchema::compile(remote).is_err());
        let local = json!({ "type": "object", "$ref": "file:///etc/hostname" });
        assert!(ToolSchema::compile(local).is_err());
    }

    #[test]
    fn long_value_is_quoted_in_part() {
        let schema = ToolSchema::compile(json!({ "type": "object", "maxProperties": 0 })).unwrap();
        let text = schema.violations(&json!({ "a": "é".repeat(9000) })).unwrap();
        assert!(text.len() < 400, "{}", text.len());
    }
}
