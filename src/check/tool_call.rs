//! The call of a tool that changes the resource under test, as `--touch-tool NAME=JSON` gives it.

use serde_json::{Map, Value, json};

/// The text in arguments that stands for a number which no other change has.
const NUMBER: &str = "{n}";

/// A tool of the server under test and its arguments.
///
/// In each text of the arguments `{n}` stands for a number which is another one for every change, so that
/// each call changes something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolCall {
    name: String,
    arguments: Map<String, Value>,
}

impl ToolCall {
    /// Reads `NAME=JSON`, where the JSON is an object, or a name alone for a call without arguments.
    ///
    /// # Errors
    /// The remedy, for an empty name and for arguments that are no JSON object.
    pub fn parse(text: &str) -> Result<ToolCall, String> {
        let (name, arguments) = text.split_once('=').unwrap_or((text, "{}"));
        if name.trim().is_empty() {
            return Err(
                "the name of the tool is missing; write NAME=JSON, such as 'edit={\"text\": \"{n}\"}'".into(),
            );
        }
        match serde_json::from_str(arguments) {
            Ok(Value::Object(arguments)) => Ok(ToolCall {
                name: name.trim().to_owned(),
                arguments,
            }),
            Ok(_) => Err("the arguments are no JSON object; write them as '{\"name\": value}'".into()),
            Err(error) => Err(format!(
                "the arguments are no JSON: {error}; write them as '{{\"name\": value}}'"
            )),
        }
    }

    /// Returns the name of the tool.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the parameters of the call that is part of the change with this number.
    pub(super) fn params(&self, number: u128) -> Value {
        let mut arguments = Value::Object(self.arguments.clone());
        fill(&mut arguments, &number.to_string());
        json!({ "name": self.name, "arguments": arguments })
    }
}

/// Writes the number into every text of the value.
fn fill(value: &mut Value, number: &str) {
    match value {
        Value::String(text) => *text = text.replace(NUMBER, number),
        Value::Array(items) => items.iter_mut().for_each(|item| fill(item, number)),
        Value::Object(members) => members.values_mut().for_each(|member| fill(member, number)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_a_json_object() {
        let call = ToolCall::parse(r#"edit={"text": "v{n}", "deep": [{"a": "{n}"}], "k": 1}"#).unwrap();
        assert_eq!(
            call.params(7),
            json!({"name": "edit", "arguments": {"text": "v7", "deep": [{"a": "7"}], "k": 1}})
        );
        let bare = ToolCall::parse("bump").unwrap();
        assert_eq!(bare.params(7), json!({"name": "bump", "arguments": {}}));
        for (text, expected) in [
            ("", "name of the tool is missing"),
            ("={}", "name of the tool is missing"),
            ("a=[]", "no JSON object"),
            ("a={", "no JSON:"),
            ("a=b", "no JSON:"),
        ] {
            let error = ToolCall::parse(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
