//! What `register` prints: further resources, tools and prompts, as one JSON document.
//!
//! Pure. Owns: the shape of the document and its checks. It is taken as a whole or not at all; every refusal says
//! where and what. Never runs `register` and never publishes.

use crate::source::workspace::fields;
use crate::source::workspace::problems::Found;
use crate::source::workspace::prompts::{self, Head, PromptSpec};
use crate::source::workspace::template::Template;
use crate::source::workspace::tools::{self, Sidecar, ToolSpec, invalid_name, is_name, text};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};
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

/// An item, and what is odd about it.
type Odd<T> = (Arc<T>, Option<String>);

/// What `register` printed.
#[derive(Debug, Clone, Default)]
pub(in crate::source::workspace) struct Document {
    pub(in crate::source::workspace) resources: BTreeMap<ResourceUri, Resource>,
    pub(in crate::source::workspace) tools: BTreeMap<String, Arc<ToolSpec>>,
    pub(in crate::source::workspace) prompts: BTreeMap<String, Arc<PromptSpec>>,
    /// What is odd about it but no reason to refuse it.
    pub(in crate::source::workspace) odd: Found,
}

impl Document {
    /// Reads the document; relative programs are those of `dir`.
    ///
    /// # Errors
    /// Where it is wrong, and how.
    pub(in crate::source::workspace) fn read(value: &Value, dir: &Path) -> Result<Document, String> {
        let object = value.as_object().ok_or("it must print a JSON object")?;
        if let Some(unknown) = fields::unknown(object, &KINDS) {
            return Err(unknown);
        }
        let prompts = items(object, "prompts", prompt)?;
        let odd = prompts
            .iter()
            .filter_map(|(name, (_, odd))| Some((format!("prompt {name}"), odd.clone()?)));
        Ok(Document {
            resources: items(object, "resources", resource)?,
            tools: items(object, "tools", |object| tool(object, dir))?,
            odd: odd.collect(),
            prompts: prompts
                .into_iter()
                .map(|(name, (prompt, _))| (name, prompt))
                .collect(),
        })
    }
}

/// The items of one kind by their names.
fn items<K: Ord + ToString + Clone, T>(
    object: &Map<String, Value>,
    kind: &str,
    read: impl Fn(&Map<String, Value>) -> Result<(K, T), String>,
) -> Result<BTreeMap<K, T>, String> {
    let mut found = BTreeMap::new();
    let list = match object.get(kind) {
        None => return Ok(found),
        Some(value) => value
            .as_array()
            .ok_or_else(|| format!("{kind} must be an array"))?,
    };
    for (index, item) in list.iter().enumerate() {
        let object = item
            .as_object()
            .ok_or_else(|| format!("{kind}[{index}] must be an object"))?;
        let (name, item) = read(object).map_err(|error| format!("{kind}[{index}]: {error}"))?;
        if found.insert(name.clone(), item).is_some() {
            return Err(format!(
                "{kind}[{index}]: {} stands twice: remove one",
                name.to_string()
            ));
        }
    }
    Ok(found)
}

fn resource(object: &Map<String, Value>) -> Result<(ResourceUri, Resource), String> {
    refuse_unknown(object, &RESOURCE_FIELDS)?;
    let uri = text(object, "uri")?.ok_or("uri is missing")?;
    let uri = ResourceUri::new(&uri).map_err(|error| error.to_string())?;
    let body = match (text(object, "text")?, text(object, "blob")?) {
        (Some(text), None) => Body::text(text),
        (None, Some(blob)) => {
            let bytes = STANDARD
                .decode(blob)
                .map_err(|error| format!("blob is no base64: {error}"))?;
            Body::blob(bytes)
        }
        _ => return Err("give either text or blob".to_owned()),
    };
    let mut descriptor = Descriptor::new(uri.clone());
    if let Some(name) = text(object, "name")? {
        descriptor.name = name;
    }
    descriptor.title = text(object, "title")?;
    descriptor.description = text(object, "description")?;
    descriptor.media_type = text(object, "mediaType")?;
    match object.get("subscribable") {
        None => {}
        Some(Value::Bool(subscribable)) => descriptor.subscribable = *subscribable,
        Some(_) => return Err("subscribable must be true or false".to_owned()),
    }
    Ok((uri, Resource::new(descriptor, Content::Held(body))))
}

fn tool(object: &Map<String, Value>, dir: &Path) -> Result<(String, Arc<ToolSpec>), String> {
    let known: Vec<&str> = ["name", "command"].into_iter().chain(tools::FIELDS).collect();
    refuse_unknown(object, &known)?;
    let name = name(object)?;
    let words = object
        .get("command")
        .and_then(Value::as_array)
        .ok_or("command must be an array of texts")?;
    let words: Option<Vec<&str>> = words.iter().map(Value::as_str).collect();
    let words = words.ok_or("command must be an array of texts")?;
    let (program, arguments) = words.split_first().ok_or("command is empty: name a program")?;
    let program = if program.contains('/') {
        dir.join(program)
    } else {
        (*program).into()
    };
    let spec = ToolSpec {
        name: name.clone(),
        sidecar: Sidecar::read(object)?,
        program,
        arguments: arguments.iter().map(|word| (*word).to_owned()).collect(),
        home: None,
        written: "what register prints".to_owned(),
    };
    Ok((name, Arc::new(spec)))
}

fn prompt(object: &Map<String, Value>) -> Result<(String, Odd<PromptSpec>), String> {
    let known: Vec<&str> = ["name", "messages", "template"]
        .into_iter()
        .chain(prompts::FIELDS)
        .collect();
    refuse_unknown(object, &known)?;
    if let Some(unknown) = Head::unknown_field(object) {
        return Err(unknown);
    }
    let name = name(object)?;
    let head = Head::read(object)?;
    let texts = match (text(object, "template")?, object.get("messages")) {
        (Some(template), None) => vec![(Role::User, template)],
        (None, Some(Value::Array(messages))) => messages.iter().map(message).collect::<Result<_, _>>()?,
        _ => return Err("give either template or messages".to_owned()),
    };
    let (mut messages, mut odd) = (Vec::new(), None);
    for (role, text) in texts {
        let (template, unknown) = Template::parse(&text, &head.names());
        odd = odd.or_else(|| prompts::odd_placeholders(&unknown));
        messages.push((role, template));
    }
    let spec = PromptSpec {
        name: name.clone(),
        head,
        messages,
    };
    Ok((name, (Arc::new(spec), odd)))
}

fn message(value: &Value) -> Result<(Role, String), String> {
    let object = value.as_object().ok_or("a message must be an object")?;
    refuse_unknown(object, &MESSAGE_FIELDS)?;
    let role = match text(object, "role")?.as_deref() {
        None | Some("user") => Role::User,
        Some("assistant") => Role::Assistant,
        Some(_) => return Err("role must be \"user\" or \"assistant\"".to_owned()),
    };
    Ok((
        role,
        text(object, "text")?.ok_or("the text of a message is missing")?,
    ))
}

fn name(object: &Map<String, Value>) -> Result<String, String> {
    let name = text(object, "name")?.ok_or("name is missing")?;
    if is_name(&name) {
        Ok(name)
    } else {
        Err(invalid_name(&name))
    }
}

fn refuse_unknown(object: &Map<String, Value>, known: &[&str]) -> Result<(), String> {
    fields::unknown(object, known).map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(value: &Value) -> Result<Document, String> {
        Document::read(value, Path::new("/d"))
    }

    #[test]
    fn a_document_is_read_whole() {
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
    fn one_mistake_refuses_all_and_is_named() {
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
