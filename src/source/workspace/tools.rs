//! Tools as they are written: the sidecar of an executable, or an entry of the document of `register`.

use super::fields::{refuse_unknown, text};
use crate::tool_schema::ToolSchema;
use crate::units::time;
use serde_json::{Map, Value, json};
use std::path::PathBuf;
use std::time::Duration;

/// The fields of a sidecar. An entry of `register` has `name` and `command` besides.
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

/// The description of a tool, and its own time limit.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Sidecar {
    pub(super) title: Option<String>,
    pub(super) description: Option<String>,
    pub(super) input: ToolSchema,
    pub(super) output: Option<ToolSchema>,
    pub(super) annotations: Option<Value>,
    pub(super) timeout: Option<Duration>,
}

/// A tool to register.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ToolSpec {
    pub(super) name: String,
    pub(super) sidecar: Sidecar,
    /// The program to run: a path, or a name that is found on the `PATH`.
    pub(super) program: PathBuf,
    pub(super) arguments: Vec<String>,
    /// The folder that the program must be in. It is `None` for the commands of `register`, which are
    /// trusted.
    pub(super) home: Option<PathBuf>,
    /// The file in which the tool is written, for messages.
    pub(super) origin: String,
}

impl Sidecar {
    /// Parses a sidecar file.
    ///
    /// # Errors
    /// The reason that it is not a sidecar.
    pub(super) fn parse(text: &str) -> Result<Sidecar, String> {
        let value: Value = serde_json::from_str(text).map_err(|error| format!("invalid JSON: {error}"))?;
        let Value::Object(object) = value else {
            return Err("it must be a JSON object".to_owned());
        };
        refuse_unknown(&object, &FIELDS)?;
        Sidecar::read(&object)
    }

    /// Reads the fields of a sidecar out of an object that may have others.
    pub(super) fn read(object: &Map<String, Value>) -> Result<Sidecar, String> {
        let input = match object.get("inputSchema") {
            Some(schema) => schema.clone(),
            None => json!({ "type": "object" }),
        };
        let output = match object.get("outputSchema") {
            Some(schema) => Some(
                ToolSchema::compile(schema.clone())
                    .map_err(|error| format!("invalid outputSchema: {error}"))?,
            ),
            None => None,
        };
        let annotations = match object.get("annotations") {
            Some(annotations) if !annotations.is_object() => {
                return Err("annotations must be an object".to_owned());
            }
            annotations => annotations.cloned(),
        };
        let timeout = match text(object, "timeout")? {
            Some(text) => Some(parse_timeout(&text)?),
            None => None,
        };
        Ok(Sidecar {
            title: text(object, "title")?,
            description: text(object, "description")?,
            input: ToolSchema::compile(input).map_err(|error| format!("invalid inputSchema: {error}"))?,
            output,
            annotations,
            timeout,
        })
    }
}

fn parse_timeout(text: &str) -> Result<Duration, String> {
    match time::parse(text) {
        Some(timeout) if (TIMEOUT_MIN..=TIMEOUT_MAX).contains(&timeout) => Ok(timeout),
        _ => Err(format!(
            "invalid timeout {text:?}: write a duration from \"1s\" to \"10m\""
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sidecar_has_every_field() {
        let text = r#"{"title":"T","description":"D","inputSchema":{"type":"object","required":["a"]},
            "outputSchema":{"type":"object"},"annotations":{"readOnlyHint":true},"timeout":"90s"}"#;
        let sidecar = Sidecar::parse(text).unwrap();
        assert_eq!(sidecar.timeout, Some(Duration::from_secs(90)));
        assert_eq!(sidecar.input.value()["required"][0], "a");
        let smallest = Sidecar::parse("{}").unwrap();
        assert_eq!(smallest.input.value(), &json!({ "type": "object" }));
    }

    #[test]
    fn invalid_sidecar_gives_the_reason() {
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
}
