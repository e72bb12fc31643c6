//! The JSON document that `register` prints: further resources, tools and prompts.
//!
//! It is accepted as a whole or not at all.

use super::fields::{invalid_name, is_name, refuse_unknown, text};
use super::problems::ProblemMap;
use super::prompts::{self, PromptHeader, PromptSpec, refuse_placeholders};
use super::template::PromptTemplate;
use super::tools::{self, Sidecar, ToolSpec};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use tidings_actors::{Body, Content, Descriptor, Resource, ResourceUri, Role};

const KINDS: [&str; 3] = ["resources", "tools", "prompts"];
const RESOURCE_FIELDS: [&str; 8] = [
    "uri",
    "name",
    "title",
    "description",
    "mediaType",
    "text",
    "blob",
    "subscribable",
];
const MESSAGE_FIELDS: [&str; 2] = ["role", "text"];

/// A prompt, and a note about a mistake that does not prevent its use.
type NotedPrompt = (Arc<PromptSpec>, Option<String>);

/// The document of one run of `register`.
#[derive(Debug, Clone, Default)]
pub(super) struct RegisterDocument {
    pub(super) resources: BTreeMap<ResourceUri, Resource>,
    pub(super) tools: BTreeMap<String, Arc<ToolSpec>>,
    pub(super) prompts: BTreeMap<String, Arc<PromptSpec>>,
    /// Mistakes that are no reason to refuse the document.
    pub(super) notes: ProblemMap,
}

impl RegisterDocument {
    /// Reads a document. Relative programs are looked for in `dir`.
    ///
    /// # Errors
    /// The place of a mistake, and the mistake.
    pub(super) fn read(value: &Value, dir: &Path) -> Result<RegisterDocument, String> {
        let object = value.as_object().ok_or("it must print a JSON object")?;
        refuse_unknown(object, &KINDS)?;
        let mut document = RegisterDocument {
            resources: items(object, "resources", read_resource)?,
            tools: items(object, "tools", |object| read_tool(object, dir))?,
            ..RegisterDocument::default()
        };
        for (name, (prompt, note)) in items(object, "prompts", read_prompt)? {
            if let Some(note) = note {
                document.notes.insert(format!("prompt {name}"), note);
            }
            document.prompts.insert(name, prompt);
        }
        Ok(document)
    }
}

/// Reads the items of one kind, by their names.
fn items<K: Ord + ToString + Clone, T>(
    object: &Map<String, Value>,
    kind: &str,
    read: impl Fn(&Map<String, Value>) -> Result<(K, T), String>,
) -> Result<BTreeMap<K, T>, String> {
    let mut found = BTreeMap::new();
    let list = match object.get(kind) {
        None => return Ok(found),
        Some(Value::Array(list)) => list,
        Some(_) => return Err(format!("{kind} must be an array")),
    };
    for (index, item) in list.iter().enumerate() {
        let Value::Object(object) = item else {
            return Err(format!("{kind}[{index}] must be an object"));
        };
        let (name, item) = read(object).map_err(|error| format!("{kind}[{index}]: {error}"))?;
        if found.insert(name.clone(), item).is_some() {
            let name = name.to_string();
            return Err(format!("{kind}[{index}]: {name} stands twice: remove one"));
        }
    }
    Ok(found)
}

fn read_resource(object: &Map<String, Value>) -> Result<(ResourceUri, Resource), String> {
    refuse_unknown(object, &RESOURCE_FIELDS)?;
    let uri = text(object, "uri")?.ok_or("uri is missing")?;
    let uri = ResourceUri::new(&uri).map_err(|error| error.to_string())?;
    let body = match (text(object, "text")?, text(object, "blob")?) {
        (Some(text), None) => Body::text(text),
        (None, Some(blob)) => match STANDARD.decode(blob) {
            Ok(bytes) => Body::blob(bytes),
            Err(error) => return Err(format!("blob is no base64: {error}")),
        },
        _ => return Err("give either text or blob".to_owned()),
    };
    let mut descriptor = Descriptor::new(uri.clone());
    if let Some(name) = text(object, "name")? {
        descriptor.name = name;
    }
    descriptor.title = text(object, "title")?;
    descriptor.description = text(object, "description")?;
    descriptor.media_type = text(object, "mediaType")?.map(Cow::Owned);
    match object.get("subscribable") {
        None => {}
        Some(Value::Bool(subscribable)) => descriptor.subscribable = *subscribable,
        Some(_) => return Err("subscribable must be true or false".to_owned()),
    }
    Ok((uri, Resource::new(descriptor, Content::Held(body))))
}

fn read_tool(object: &Map<String, Value>, dir: &Path) -> Result<(String, Arc<ToolSpec>), String> {
    let mut known = vec!["name", "command"];
    known.extend(tools::FIELDS);
    refuse_unknown(object, &known)?;
    let name = read_name(object)?;
    let Some(Value::Array(command)) = object.get("command") else {
        return Err("command must be an array of texts".to_owned());
    };
    let mut words = Vec::new();
    for word in command {
        words.push(word.as_str().ok_or("command must be an array of texts")?);
    }
    let (program, arguments) = words.split_first().ok_or("command is empty: name a program")?;
    let program = if program.contains('/') {
        dir.join(program)
    } else {
        // A bare name is found on the `PATH`.
        (*program).into()
    };
    let spec = ToolSpec {
        name: name.clone(),
        sidecar: Sidecar::read(object)?,
        program,
        arguments: arguments.iter().map(|word| (*word).to_owned()).collect(),
        home: None,
        origin: "what register prints".to_owned(),
    };
    Ok((name, Arc::new(spec)))
}

fn read_prompt(object: &Map<String, Value>) -> Result<(String, NotedPrompt), String> {
    let mut known = vec!["name", "messages", "template"];
    known.extend(prompts::FIELDS);
    refuse_unknown(object, &known)?;
    PromptHeader::refuse_unknown_fields(object)?;
    let name = read_name(object)?;
    let header = PromptHeader::read(object)?;
    let texts = match (text(object, "template")?, object.get("messages")) {
        (Some(template), None) => vec![(Role::User, template)],
        (None, Some(Value::Array(messages))) => {
            messages.iter().map(read_message).collect::<Result<_, _>>()?
        }
        _ => return Err("give either template or messages".to_owned()),
    };
    let mut messages = Vec::new();
    let mut checked = Ok(());
    for (role, text) in texts {
        let (template, unknown) = PromptTemplate::parse(&text, &header.argument_names());
        checked = checked.and(refuse_placeholders(&unknown));
        messages.push((role, template));
    }
    let spec = PromptSpec {
        name: name.clone(),
        header,
        messages,
    };
    Ok((name, (Arc::new(spec), checked.err())))
}

fn read_message(value: &Value) -> Result<(Role, String), String> {
    let object = value.as_object().ok_or("a message must be an object")?;
    refuse_unknown(object, &MESSAGE_FIELDS)?;
    let role = match text(object, "role")?.as_deref() {
        None | Some("user") => Role::User,
        Some("assistant") => Role::Assistant,
        Some(_) => return Err("role must be \"user\" or \"assistant\"".to_owned()),
    };
    let text = text(object, "text")?.ok_or("the text of a message is missing")?;
    Ok((role, text))
}

fn read_name(object: &Map<String, Value>) -> Result<String, String> {
    let name = text(object, "name")?.ok_or("name is missing")?;
    if is_name(&name) {
        Ok(name)
    } else {
        Err(invalid_name(&name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(value: &Value) -> Result<RegisterDocument, String> {
        RegisterDocument::read(value, Path::new("/d"))
    }

    #[test]
    fn document_has_every_kind_of_item() {
        let document = read(&json!({
            "resources": [
                { "uri": "demo://a", "name": "A", "mediaType": "text/plain", "text": "a", "subscribable": false },
                { "uri": "demo://b", "blob": "AAE=" },
            ],
            "tools": [{ "name": "t", "description": "d", "timeout": "5s", "command": ["bin/t", "-x"] },
                { "name": "u", "command": ["true"] }],
            "prompts": [{ "name": "p", "template": "hi {{x}}", "arguments": [{ "name": "x" }] },
                { "name": "q", "messages": [{ "role": "assistant", "text": "yes" }] }],
        }))
        .unwrap();
        let descriptors: Vec<_> = document.resources.values().map(Resource::descriptor).collect();
        assert_eq!(
            (descriptors[0].name.as_str(), descriptors[0].subscribable),
            ("A", false)
        );
        assert_eq!(document.tools["t"].program, Path::new("/d/bin/t"));
        assert_eq!(document.tools["u"].program, Path::new("true"));
        assert_eq!(document.prompts["q"].messages[0].0, Role::Assistant);
        assert!(read(&json!({})).unwrap().tools.is_empty());
    }

    #[test]
    fn document_with_one_mistake_is_refused() {
        for (value, reason) in [
            (json!([]), "must print a JSON object"),
            (json!({ "resource": [] }), "did you mean \"resources\"?"),
            (json!({ "tools": {} }), "tools must be an array"),
            (
                json!({ "resources": [{ "uri": "a:b", "text": "" }, { "uri": "a:c", "mimeType": "", "text": "" }] }),
                "resources[1]: unknown field \"mimeType\": did you mean \"mediaType\"?",
            ),
            (json!({ "resources": [{ "uri": "a:b" }] }), "either text or blob"),
            (
                json!({ "resources": [{ "uri": "no uri", "text": "" }] }),
                "resources[0]: ",
            ),
            (
                json!({ "resources": [{ "uri": "a:b", "blob": "?" }] }),
                "no base64",
            ),
            (
                json!({ "resources": [{ "uri": "a:b", "text": "" }, { "uri": "a:b", "text": "" }] }),
                "stands twice",
            ),
            (json!({ "tools": [{ "name": "t" }] }), "command must be an array"),
            (
                json!({ "tools": [{ "name": "t", "command": [] }] }),
                "command is empty",
            ),
            (
                json!({ "tools": [{ "name": "t t", "command": ["x"] }] }),
                "invalid name",
            ),
            (
                json!({ "tools": [{ "name": "t", "command": ["x"], "inputSchema": 1 }] }),
                "invalid inputSchema",
            ),
            (
                json!({ "prompts": [{ "name": "p" }] }),
                "either template or messages",
            ),
            (
                json!({ "prompts": [{ "name": "p", "messages": [{ "role": "system", "text": "" }] }] }),
                "role must be",
            ),
        ] {
            let error = read(&value).unwrap_err();
            assert!(error.contains(reason), "{value}: {error}");
        }
    }
}
