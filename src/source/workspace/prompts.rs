//! Prompts as they are written: a Markdown file with front matter, or an entry of the document of `register`.

use super::fields::refuse_unknown;
use super::template::PromptTemplate;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::sync::Arc;
use tidings_actors::{CallbackError, Prompt, PromptArgument, PromptMessage, Role};

/// The fields of front matter. An entry of `register` has others besides.
pub(super) const FIELDS: [&str; 3] = ["title", "description", "arguments"];
const ARGUMENT_FIELDS: [&str; 3] = ["name", "description", "required"];

/// A prompt to register.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct PromptSpec {
    pub(super) name: String,
    pub(super) header: PromptHeader,
    pub(super) messages: Vec<(Role, PromptTemplate)>,
}

/// The part of a prompt that clients see in a list.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(super) struct PromptHeader {
    title: Option<String>,
    description: Option<String>,
    arguments: Vec<Argument>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
struct Argument {
    name: String,
    description: Option<String>,
    #[serde(default)]
    required: bool,
}

impl PromptHeader {
    /// Reads the header out of an object that may have other fields.
    pub(super) fn read(object: &Map<String, Value>) -> Result<PromptHeader, String> {
        let header: PromptHeader = match serde_json::from_value(Value::Object(object.clone())) {
            Ok(header) => header,
            Err(error) => return Err(error.to_string()),
        };
        let mut names = BTreeSet::new();
        for Argument { name, .. } in &header.arguments {
            if name.trim() != name || name.is_empty() {
                return Err(format!(
                    "invalid argument name {name:?}: write it without spaces around it"
                ));
            }
            if !names.insert(name) {
                return Err(format!("the argument {name:?} stands twice: remove one"));
            }
        }
        Ok(header)
    }

    /// Refuses an object whose arguments have unknown fields.
    pub(super) fn refuse_unknown_fields(object: &Map<String, Value>) -> Result<(), String> {
        let Some(Value::Array(arguments)) = object.get("arguments") else {
            return Ok(());
        };
        for argument in arguments {
            if let Value::Object(argument) = argument {
                refuse_unknown(argument, &ARGUMENT_FIELDS)?;
            }
        }
        Ok(())
    }

    /// Returns the names that placeholders may have.
    pub(super) fn argument_names(&self) -> BTreeSet<&str> {
        self.arguments
            .iter()
            .map(|argument| argument.name.as_str())
            .collect()
    }
}

/// Parses the text of a prompt file. Returns the prompt, and a note about a mistake that does not prevent its
/// use.
///
/// # Errors
/// The reason that it is not a prompt.
pub(super) fn parse(name: &str, text: &str) -> Result<(PromptSpec, Option<String>), String> {
    // Some editors write a byte order mark, which would hide the front matter.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let (front_matter, body) = split(text)?;
    let object = match front_matter {
        Some(yaml) => parse_front_matter(yaml)?,
        None => Map::new(),
    };
    let header = PromptHeader::read(&object).map_err(|error| format!("invalid front matter: {error}"))?;
    let (template, unknown) = PromptTemplate::parse(body, &header.argument_names());
    let checked = refuse_unknown(&object, &FIELDS)
        .and(PromptHeader::refuse_unknown_fields(&object))
        .and(refuse_placeholders(&unknown));
    let spec = PromptSpec {
        name: name.to_owned(),
        header,
        messages: vec![(Role::User, template)],
    };
    Ok((spec, checked.err()))
}

fn parse_front_matter(yaml: &str) -> Result<Map<String, Value>, String> {
    if yaml.trim().is_empty() {
        return Ok(Map::new());
    }
    match serde_saphyr::from_str::<Value>(yaml) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(Value::Null) => Ok(Map::new()),
        Ok(_) => Err("the front matter must be fields such as \"title: …\"".to_owned()),
        Err(error) => {
            // The other lines of the message quote the text.
            let error = error.to_string();
            let first = error.lines().next().unwrap_or_default();
            Err(format!("invalid front matter: {first}"))
        }
    }
}

/// Refuses placeholders that name no argument.
pub(super) fn refuse_placeholders(unknown: &BTreeSet<String>) -> Result<(), String> {
    match unknown.first() {
        None => Ok(()),
        Some(first) => Err(format!(
            "the placeholder {{{{{first}}}}} names no argument and is left as it is: add it to \"arguments\""
        )),
    }
}

/// Splits the text of a file into the front matter, if there is any, and the body.
fn split(text: &str) -> Result<(Option<&str>, &str), String> {
    let mut lines = text.split_inclusive('\n');
    let first = lines.next().unwrap_or_default();
    if first.trim_end() != "---" {
        return Ok((None, text));
    }
    let mut at = first.len();
    for line in lines {
        if line.trim_end() == "---" {
            let body = text[at + line.len()..].trim_start_matches(['\r', '\n']);
            return Ok((Some(&text[first.len()..at]), body));
        }
        at += line.len();
    }
    Err("the front matter has no end: close it with a line of \"---\"".to_owned())
}

impl PromptSpec {
    /// Returns the prompt to register.
    pub(super) fn prompt(self: &Arc<PromptSpec>) -> Prompt {
        let spec = self.clone();
        let mut prompt = Prompt::new(self.name.as_str(), move |arguments: Map<String, Value>| {
            let rendered = spec.render(&arguments);
            async move { rendered }
        });
        if let Some(title) = &self.header.title {
            prompt = prompt.title(title);
        }
        if let Some(description) = &self.header.description {
            prompt = prompt.description(description);
        }
        let arguments = self.header.arguments.iter().map(|argument| PromptArgument {
            name: argument.name.clone(),
            description: argument.description.clone(),
            required: argument.required,
        });
        prompt.arguments(arguments.collect())
    }

    fn render(&self, arguments: &Map<String, Value>) -> Result<Vec<PromptMessage>, CallbackError> {
        for argument in &self.header.arguments {
            if argument.required && !arguments.contains_key(&argument.name) {
                return Err(format!("prompt {} needs the argument {}", self.name, argument.name).into());
            }
        }
        let mut messages = Vec::new();
        for (role, template) in &self.messages {
            let text = template.fill(|name| match arguments.get(name)? {
                Value::String(text) => Some(text.clone()),
                // Some clients send `null` for an argument that was not given.
                Value::Null => None,
                other => Some(other.to_string()),
            });
            messages.push(match role {
                Role::User => PromptMessage::user(text),
                Role::Assistant => PromptMessage::assistant(text),
            });
        }
        Ok(messages)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use tidings_actors::Block;

    const REVIEW: &str = "---\ntitle: Review\ndescription: \"Reviews: a page\"\narguments:\n  - name: page\n    description: which page\n    required: true\n  - name: tone\n---\n\nReview {{page}}, {{tone}}.\n";

    async fn text(spec: PromptSpec, arguments: Value) -> Result<String, String> {
        let rendered = Arc::new(spec)
            .prompt()
            .render(arguments.as_object().unwrap().clone())
            .await;
        let messages = rendered.map_err(|error| error.to_string())?;
        let Block::Text(text) = &messages[0].block else {
            panic!("text")
        };
        Ok(text.clone())
    }

    #[tokio::test]
    async fn file_with_front_matter_is_a_prompt() {
        for source in [
            REVIEW.to_owned(),
            REVIEW.replace('\n', "\r\n"),
            format!("\u{feff}{REVIEW}"),
        ] {
            let (spec, odd) = parse("review", &source).unwrap();
            assert_eq!(odd, None);
            let item = Arc::new(spec.clone()).prompt().item();
            let arguments = json!([
                { "name": "page", "description": "which page", "required": true },
                { "name": "tone", "required": false },
            ]);
            let expected = json!({ "name": "review", "title": "Review", "description": "Reviews: a page", "arguments": arguments });
            assert_eq!(item, expected);
            let rendered = text(spec.clone(), json!({ "page": "/a", "tone": 7 }))
                .await
                .unwrap();
            assert_eq!(rendered.trim_end(), "Review /a, 7.");
            let missing = text(spec, json!({ "tone": "x" })).await.unwrap_err();
            assert_eq!(missing, "prompt review needs the argument page");
        }
    }

    #[test]
    fn prompt_with_a_mistake_has_a_note() {
        assert_eq!(parse("p", "---x\nhello").unwrap().1, None);
        assert_eq!(parse("p", "---\n---\nhello").unwrap().1, None);
        for (text, note) in [
            ("hello {{you}}", "{{you}}"),
            ("---\ntitel: x\n---\n", "did you mean \"title\"?"),
            (
                "---\narguments: [{name: a, requird: true}]\n---\n",
                "did you mean \"required\"?",
            ),
        ] {
            let (_, noted) = parse("p", text).unwrap();
            assert!(noted.unwrap().contains(note), "{text:?}");
        }
    }

    #[test]
    fn yaml_references_that_multiply_are_refused() {
        let mut yaml = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
        for n in 1..12 {
            let before = vec![format!("*a{}", n - 1); 9].join(", ");
            yaml.push_str(&format!("a{n}: &a{n} [{before}]\n"));
        }
        let error = parse("p", &format!("---\n{yaml}---\n")).unwrap_err();
        assert!(error.contains("invalid front matter"), "{error}");
    }

    proptest::proptest! {
        #[test]
        fn arbitrary_text_never_panics(text in "(---\n)?[a-z:&*!|>'\"\\[\\]{}\\-#\n ]{0,60}(\n---\n)?\\PC{0,9}") {
            if let Ok((spec, _)) = parse("p", &text) {
                proptest::prop_assert_eq!(spec.messages.len(), 1);
            }
        }
    }

    #[test]
    fn invalid_prompt_gives_the_reason_in_a_line() {
        for (text, reason) in [
            ("---\ntitle: x\n", "has no end"),
            ("---\ntitle: [\n---\n", "invalid front matter"),
            ("---\n- a\n---\n", "must be fields"),
            ("---\ntitle: [1]\n---\n", "invalid front matter"),
            ("---\narguments: [{name: a}, {name: a}]\n---\n", "stands twice"),
            ("---\narguments: [{}]\n---\n", "missing field `name`"),
        ] {
            let error = parse("p", text).unwrap_err();
            assert!(
                error.contains(reason) && error.lines().count() == 1,
                "{text:?}: {error}"
            );
        }
    }
}
