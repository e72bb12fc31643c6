//! A tool as it is written: the sidecar beside an executable, or an entry of `register`.
//!
//! Pure. Owns: the way from JSON to [`Sidecar`] and [`ToolSpec`]; schemas are compiled here, once. Never reads a
//! file and never runs anything: the definitions finds the executable, the runner runs it.

use super::fields;
use super::schema::Schema;
use crate::config::time;
use serde_json::{Map, Value, json};
use std::path::PathBuf;
use std::time::Duration;

/// The fields of a sidecar; an entry of `register` has `name` and `command` besides.
pub(super) const FIELDS: [&str; 6] = [
    "title",
    "description",
    "inputSchema",
    "outputSchema",
    "annotations",
    "timeout",
];
const TIMEOUT_MIN: Duration = Duration::from_secs(1);
const TIMEOUT_MAX: Duration = Duration::from_secs(600);
const NAME_LEN_MAX: usize = 128;

/// What is told of a tool, and its own time limit.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Sidecar {
    pub(super) title: Option<String>,
    pub(super) description: Option<String>,
    pub(super) input: Schema,
    pub(super) output: Option<Schema>,
    pub(super) annotations: Option<Value>,
    pub(super) timeout: Option<Duration>,
}

/// A tool to publish.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ToolSpec {
    pub(super) name: String,
    pub(super) sidecar: Sidecar,
    /// What to run: a path, or a name to be found on the `PATH`.
    pub(super) program: PathBuf,
    pub(super) arguments: Vec<String>,
    /// The folder that the program must be in when it is run, if it must be in one.
    pub(super) home: Option<PathBuf>,
    /// Where it is written, for messages.
    pub(super) written: String,
}

impl Sidecar {
    /// Reads a sidecar file.
    ///
    /// # Errors
    /// What makes it none.
    pub(super) fn parse(text: &str) -> Result<Sidecar, String> {
        let value: Value = serde_json::from_str(text).map_err(|error| format!("invalid JSON: {error}"))?;
        let Value::Object(object) = value else {
            return Err("it must be a JSON object".to_owned());
        };
        match fields::unknown(&object, &FIELDS) {
            Some(unknown) => Err(unknown),
            None => Sidecar::read(&object),
        }
    }

    /// Reads the fields of a sidecar out of an object that may have others.
    pub(super) fn read(object: &Map<String, Value>) -> Result<Sidecar, String> {
        let input = object
            .get("inputSchema")
            .cloned()
            .unwrap_or_else(|| json!({ "type": "object" }));
        let output = object.get("outputSchema").cloned();
        let annotations = object.get("annotations").cloned();
        if annotations.as_ref().is_some_and(|value| !value.is_object()) {
            return Err("annotations must be an object".to_owned());
        }
        Ok(Sidecar {
            title: text(object, "title")?,
            description: text(object, "description")?,
            input: Schema::compile(input).map_err(|error| format!("invalid inputSchema: {error}"))?,
            output: output
                .map(Schema::compile)
                .transpose()
                .map_err(|error| format!("invalid outputSchema: {error}"))?,
            annotations,
            timeout: text(object, "timeout")?.map(|text| timeout(&text)).transpose()?,
        })
    }
}

/// The text of a field, if it is there.
pub(super) fn text(object: &Map<String, Value>, field: &str) -> Result<Option<String>, String> {
    match object.get(field) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(_) => Err(format!("{field} must be a text")),
    }
}

fn timeout(text: &str) -> Result<Duration, String> {
    time::parse(text)
        .filter(|timeout| (TIMEOUT_MIN..=TIMEOUT_MAX).contains(timeout))
        .ok_or_else(|| format!("invalid timeout {text:?}: write a duration from \"1s\" to \"10m\""))
}

/// Whether tools and prompts can have this name.
pub(super) fn is_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
    (1..=NAME_LEN_MAX).contains(&name.len()) && name.bytes().all(allowed)
}

/// What to say about a name that they cannot have.
pub(super) fn invalid_name(name: &str) -> String {
    format!("invalid name {name:?}: write 1 to {NAME_LEN_MAX} letters, digits, \"_\", \".\" or \"-\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sidecar_is_read_whole() {
        let text = r#"{"title":"T","description":"D","inputSchema":{"type":"object","required":["a"]},
            "outputSchema":{"type":"object"},"annotations":{"readOnlyHint":true},"timeout":"90s"}"#;
        let sidecar = Sidecar::parse(text).unwrap();
        assert_eq!(sidecar.timeout, Some(Duration::from_secs(90)));
        assert_eq!(sidecar.input.value()["required"][0], "a");
        let smallest = Sidecar::parse("{}").unwrap();
        assert_eq!(smallest.input.value(), &json!({ "type": "object" }));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, reason) in [
            ("", "invalid JSON"),
            ("{\"title\":", "invalid JSON"),
            ("[]", "must be a JSON object"),
            (r#"{"inputschema":{}}"#, "did you mean \"inputSchema\"?"),
            (r#"{"title":1}"#, "title must be a text"),
            (
                r#"{"inputSchema":{"type":"object","required":1}}"#,
                "invalid inputSchema",
            ),
            (r#"{"outputSchema":{"type":"array"}}"#, "invalid outputSchema"),
            (r#"{"annotations":[]}"#, "annotations must be an object"),
            (r#"{"timeout":"11m"}"#, "from \"1s\" to \"10m\""),
        ] {
            let error = Sidecar::parse(text).unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }

    #[test]
    fn names_are_those_the_protocol_allows() {
        for name in ["a", "A-b_c.9", &"x".repeat(128)] {
            assert!(is_name(name), "{name}");
        }
        for name in ["", "a b", "é", "a/b", &"x".repeat(129)] {
            assert!(!is_name(name), "{name}");
        }
    }
}
