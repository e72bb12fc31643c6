//! A prompt as it is written: front matter and a body with placeholders, or an entry of `register`.
//!
//! Pure. Owns: the only use of the YAML parser, and the way from text to [`PromptSpec`] to [`Prompt`]. Never reads a
//! file: the definitions and the document hand in what they read.

use super::fields;
use super::template::Template;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::sync::Arc;
use tidings_actors::{CallbackError, Prompt, PromptArgument, PromptMessage, Role};

/// The fields of front matter; an entry of `register` has others besides.
pub(super) const FIELDS: [&str; 3] = ["title", "description", "arguments"];
const ARGUMENT_FIELDS: [&str; 3] = ["name", "description", "required"];

/// A prompt to publish.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct PromptSpec {
    pub(super) name: String,
    pub(super) head: Head,
    pub(super) messages: Vec<(Role, Template)>,
}

/// What clients see of it in a list.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(super) struct Head {
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

impl Head {
    /// Reads the fields of the head out of an object that may have others.
    pub(super) fn read(object: &Map<String, Value>) -> Result<Head, String> {
        let head: Head = Deserialize::deserialize(Value::Object(object.clone()))
            .map_err(|error: serde_json::Error| error.to_string())?;
        let mut names = BTreeSet::new();
        for argument in &head.arguments {
            if argument.name.trim() != argument.name || argument.name.is_empty() {
                return Err(format!(
                    "invalid argument name {:?}: write it without spaces around it",
                    argument.name
                ));
            }
            if !names.insert(&argument.name) {
                return Err(format!(
                    "the argument {:?} stands twice: remove one",
                    argument.name
                ));
            }
        }
        Ok(head)
    }

    /// What is wrong with the names of the fields of its arguments.
    pub(super) fn unknown_field(object: &Map<String, Value>) -> Option<String> {
        let arguments = object.get("arguments").and_then(Value::as_array)?;
        arguments
            .iter()
            .filter_map(Value::as_object)
            .find_map(|argument| fields::unknown(argument, &ARGUMENT_FIELDS))
    }

    /// The names that placeholders may have.
    pub(super) fn names(&self) -> BTreeSet<&str> {
        self.arguments
            .iter()
            .map(|argument| argument.name.as_str())
            .collect()
    }
}

/// Reads the text of a prompt file; tells what is odd about it but no reason not to serve it.
///
/// # Errors
/// What makes it no prompt.
pub(super) fn parse(name: &str, text: &str) -> Result<(PromptSpec, Option<String>), String> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let (front, body) = split(text)?;
    let object = match front {
        None => Map::new(),
        Some(yaml) if yaml.trim().is_empty() => Map::new(),
        Some(yaml) => match serde_saphyr::from_str::<Value>(yaml) {
            Ok(Value::Object(object)) => object,
            Ok(Value::Null) => Map::new(),
            Ok(_) => return Err("the front matter must be fields such as \"title: …\"".to_owned()),
            Err(error) => {
                let text = error.to_string();
                return Err(format!(
                    "invalid front matter: {}",
                    text.lines().next().unwrap_or_default()
                ));
            }
        },
    };
    let head = Head::read(&object).map_err(|error| format!("invalid front matter: {error}"))?;
    let (template, unknown) = Template::parse(body, &head.names());
    let odd = fields::unknown(&object, &FIELDS)
        .or_else(|| Head::unknown_field(&object))
        .or_else(|| odd_placeholders(&unknown));
    let spec = PromptSpec {
        name: name.to_owned(),
        head,
        messages: vec![(Role::User, template)],
    };
    Ok((spec, odd))
}

/// What to say about placeholders that name no argument.
pub(super) fn odd_placeholders(unknown: &BTreeSet<String>) -> Option<String> {
    let first = unknown.first()?;
    Some(format!(
        "the placeholder {{{{{first}}}}} names no argument and is left as it is: add it to \"arguments\""
    ))
}

/// The front matter, if there is any, and the body.
fn split(text: &str) -> Result<(Option<&str>, &str), String> {
    let first_end = text.find('\n').map_or(text.len(), |at| at + 1);
    if text[..first_end].trim_end() != "---" {
        return Ok((None, text));
    }
    let mut at = first_end;
    for line in text[first_end..].split_inclusive('\n') {
        if line.trim_end() == "---" {
            return Ok((
                Some(&text[first_end..at]),
                text[at + line.len()..].trim_start_matches(['\r', '\n']),
            ));
        }
        at += line.len();
    }
    Err("the front matter has no end: close it with a line of \"---\"".to_owned())
}

impl PromptSpec {
    /// The prompt to publish.
    pub(super) fn prompt(self: &Arc<PromptSpec>) -> Prompt {
        let spec = self.clone();
        let render = move |arguments: Map<String, Value>| {
            let rendered = spec.render(&arguments);
            async move { rendered }
        };
        let argument = |argument: &Argument| PromptArgument {
            name: argument.name.clone(),
            description: argument.description.clone(),
            required: argument.required,
        };
        let mut prompt = Prompt::new(self.name.as_str(), render);
        if let Some(title) = &self.head.title {
            prompt = prompt.title(title);
        }
        if let Some(description) = &self.head.description {
            prompt = prompt.description(description);
        }
        prompt.arguments(self.head.arguments.iter().map(argument).collect())
    }

    fn render(&self, arguments: &Map<String, Value>) -> Result<Vec<PromptMessage>, CallbackError> {
        let missing = |argument: &&Argument| argument.required && !arguments.contains_key(&argument.name);
        if let Some(argument) = self.head.arguments.iter().find(missing) {
            return Err(format!("prompt {} needs the argument {}", self.name, argument.name).into());
        }
        let value = |name: &str| match arguments.get(name)? {
            Value::String(text) => Some(text.clone()),
            Value::Null => None,
            other => Some(other.to_string()),
        };
        let message = |(role, template): &(Role, Template)| {
            let text = template.fill(value);
            match role {
                Role::User => PromptMessage::user(text),
                Role::Assistant => PromptMessage::assistant(text),
            }
        };
        Ok(self.messages.iter().map(message).collect())
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
    async fn front_matter_and_body_become_a_prompt() {
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
    fn a_body_alone_is_a_prompt_and_odd_things_are_told() {
        assert_eq!(parse("p", "---x\nhello").unwrap().1, None);
        assert_eq!(parse("p", "---\n---\nhello").unwrap().1, None);
        let odd = |text: &str| parse("p", text).unwrap().1.unwrap();
        assert!(odd("hello {{you}}").contains("{{you}}"));
        assert!(odd("---\ntitel: x\n---\n").contains("did you mean \"title\"?"));
        assert!(
            odd("---\narguments: [{name: a, requird: true}]\n---\n").contains("did you mean \"required\"?")
        );
    }

    #[test]
    fn references_that_multiply_are_refused() {
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
        fn no_text_makes_the_reader_panic(text in "(---\n)?[a-z:&*!|>'\"\\[\\]{}\\-#\n ]{0,60}(\n---\n)?\\PC{0,9}") {
            if let Ok((spec, _)) = parse("p", &text) {
                proptest::prop_assert_eq!(spec.messages.len(), 1);
            }
        }
    }

    #[test]
    fn what_is_no_prompt_is_told_in_one_line() {
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
