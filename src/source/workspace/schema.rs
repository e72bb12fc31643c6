//! JSON schemas of tools: compiled once, asked for every call.
//!
//! Owns: the only use of the validator, and the words for what is wrong with arguments. References are resolved
//! within the schema alone; nothing is fetched. The sidecar and the document of `register` bring the schemas.

use jsonschema::Validator;
use serde_json::Value;
use std::fmt;
use std::sync::Arc;

/// Violations that are told of one value.
const VIOLATIONS_MAX: usize = 10;
/// Bytes of one violation that are told; it may quote the value.
const VIOLATION_BYTES_MAX: usize = 300;

/// A schema of objects that was found to be one.
#[derive(Clone)]
pub(super) struct Schema {
    value: Value,
    validator: Arc<Validator>,
}

impl Schema {
    /// Compiles `value`.
    ///
    /// # Errors
    /// What makes it no schema, or none of objects.
    pub(super) fn compile(value: Value) -> Result<Schema, String> {
        if value.get("type").and_then(Value::as_str) != Some("object") {
            return Err("it must be a schema with \"type\": \"object\"".to_owned());
        }
        let validator = jsonschema::validator_for(&value).map_err(|error| cut(error.to_string()))?;
        Ok(Schema {
            value,
            validator: Arc::new(validator),
        })
    }

    /// As it was written.
    pub(super) fn value(&self) -> &Value {
        &self.value
    }

    /// What is wrong with `value`, one line per violation with its path; none when nothing is.
    pub(super) fn violations(&self, value: &Value) -> Option<String> {
        let mut errors = self.validator.iter_errors(value);
        let lines: Vec<String> = errors
            .by_ref()
            .take(VIOLATIONS_MAX)
            .map(|error| {
                let path = error.instance_path().to_string();
                let path = if path.is_empty() { "/" } else { &path };
                cut(format!("{path}: {error}"))
            })
            .collect();
        if lines.is_empty() {
            return None;
        }
        let more = if errors.next().is_some() { "\nand more" } else { "" };
        Some(format!("{}{more}", lines.join("\n")))
    }
}

impl PartialEq for Schema {
    fn eq(&self, other: &Schema) -> bool {
        self.value == other.value
    }
}

impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.fmt(f)
    }
}

fn cut(mut text: String) -> String {
    if text.len() > VIOLATION_BYTES_MAX {
        let fits = (0..=VIOLATION_BYTES_MAX)
            .rev()
            .find(|at| text.is_char_boundary(*at));
        text.truncate(fits.unwrap_or(0));
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_violation_is_told_with_its_path_up_to_ten() {
        let items = json!({ "type": "array", "items": { "type": "integer" } });
        let schema = json!({ "type": "object", "properties": { "n": items }, "required": ["m"] });
        let schema = Schema::compile(schema).unwrap();
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
    fn what_is_no_schema_of_objects_is_refused_and_nothing_is_fetched() {
        assert!(Schema::compile(json!({ "type": "string" })).is_err());
        assert!(Schema::compile(json!({ "type": "object", "required": 7 })).is_err());
        let remote = json!({ "type": "object", "$ref": "http://127.0.0.1:1/schema.json" });
        assert!(Schema::compile(remote).is_err());
        let local = json!({ "type": "object", "$ref": "file:///etc/hostname" });
        assert!(Schema::compile(local).is_err());
    }

    #[test]
    fn a_long_value_is_not_quoted_at_length() {
        let schema = Schema::compile(json!({ "type": "object", "maxProperties": 0 })).unwrap();
        let text = schema.violations(&json!({ "a": "é".repeat(9000) })).unwrap();
        assert!(text.len() < 400, "{}", text.len());
    }
}
