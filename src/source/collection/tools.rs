//! The tools of a collection: `list_NAME` and `get_ITEM`.
//!
//! Owns: their arguments, their pages and their cursors. Never: keeps items; each call reads a view from the bus, so
//! that items and etag are of one version. Handed to the bus at the start of the source.

use super::document::{Kind, Spec};
use super::name;
use super::publish::Index;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use tidings_actors::{CallbackError, ResourceUri, Snapshot, Tool, ToolOutput, WeakBus};

/// Items of a page unless the caller asks for another number.
const LIMIT_DEFAULT: usize = 50;
/// Items of a page at most.
const LIMIT_MAX: usize = 200;

/// What the tools work with. They are held by the bus, so they hold it weakly.
#[derive(Debug, Clone)]
pub(super) struct Tools {
    pub(super) bus: WeakBus,
    pub(super) spec: Arc<Spec>,
    pub(super) index: Index,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ListArguments {
    view: Option<String>,
    value: Option<Value>,
    limit: Option<usize>,
    cursor: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct GetArguments {
    id: Value,
}

/// Where a page begins: behind the item with this id, which was at this place of this view.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, Deserialize)]
struct Cursor(String, usize, String);

impl Cursor {
    fn encode(&self) -> String {
        URL_SAFE_NO_PAD.encode(json!(self).to_string())
    }

    fn decode(text: &str, uri: &ResourceUri) -> Option<Cursor> {
        let cursor: Cursor = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(text).ok()?).ok()?;
        (cursor.0 == uri.as_str()).then_some(cursor)
    }
}

impl Tools {
    /// `list_NAME`.
    pub(super) fn list_name(&self) -> String {
        format!("list_{}", self.spec.name)
    }

    /// `get_ITEM`.
    pub(super) fn get_name(&self) -> String {
        format!("get_{}", self.spec.item)
    }

    /// The tool that lists items.
    pub(super) fn list(&self) -> Tool {
        let tools = self.clone();
        let label = name::within(&self.spec.title);
        let handler = move |arguments: Map<String, Value>| {
            let tools = tools.clone();
            async move { tools.answer_list(arguments).await.map(ToolOutput::structured) }
        };
        Tool::new(self.list_name(), handler)
            .title(format!("List {label}"))
            .description(format!(
                "Lists {label}, all or those of a view, in pages, with the etag of that view."
            ))
            .input_schema(self.list_schema())
            .output_schema(json!({
                "type": "object",
                "properties": {
                    "uri": { "type": "string" },
                    "etag_encoded": { "type": "string" },
                    "total": { "type": "integer" },
                    "items": { "type": "array", "items": { "type": "object" } },
                    "next_cursor": { "type": "string" },
                },
                "required": ["uri", "etag_encoded", "total", "items"],
            }))
            .annotations(hints())
    }

    /// The tool that gets one item.
    pub(super) fn get(&self) -> Tool {
        let tools = self.clone();
        let label = name::sentence(&self.spec.item).to_lowercase();
        let handler = move |arguments: Map<String, Value>| {
            let tools = tools.clone();
            async move { tools.answer_get(arguments).await.map(ToolOutput::structured) }
        };
        Tool::new(self.get_name(), handler)
            .title(format!("Get {label}"))
            .description(format!("Gets one {label} by its {}, with the etag of the whole list.", self.spec.id.words()))
            .input_schema(json!({
                "type": "object",
                "properties": { "id": { "type": ["string", "integer"], "description": format!("Which {label}") } },
                "required": ["id"],
                "additionalProperties": false,
            }))
            .output_schema(json!({
                "type": "object",
                "properties": {
                    "uri": { "type": "string" },
                    "etag_encoded": { "type": "string" },
                    "item": { "type": "object" },
                },
                "required": ["uri", "etag_encoded", "item"],
            }))
            .annotations(hints())
    }

    fn list_schema(&self) -> Value {
        let views: Vec<&str> = std::iter::once("all")
            .chain(self.spec.views.iter().map(|view| view.name.as_str()))
            .collect();
        let mut properties = json!({
            "view": { "type": "string", "enum": views, "default": "all", "description": "Which view" },
            "limit": { "type": "integer", "minimum": 1, "maximum": LIMIT_MAX, "default": LIMIT_DEFAULT,
                "description": "Items of one page" },
            "cursor": { "type": "string", "description": "The next_cursor of the page before" },
        });
        let grouped = self.spec.views.iter().filter_map(|view| match &view.kind {
            Kind::Group(field) => Some(format!("{} (view {})", field.words(), view.name)),
            Kind::Filter(_) => None,
        });
        let grouped: Vec<String> = grouped.collect();
        if !grouped.is_empty() {
            properties["value"] = json!({
                "type": ["string", "number", "boolean"],
                "description": format!("Which value of {}", grouped.join(" or ")),
            });
        }
        json!({ "type": "object", "properties": properties, "additionalProperties": false })
    }

    async fn answer_list(&self, arguments: Map<String, Value>) -> Result<Value, CallbackError> {
        let arguments: ListArguments = parse(arguments)?;
        let uri = self.view_uri(&arguments)?;
        let limit = arguments.limit.unwrap_or(LIMIT_DEFAULT);
        if !(1..=LIMIT_MAX).contains(&limit) {
            return Err(format!("limit is {limit}: give 1 to {LIMIT_MAX}").into());
        }
        let cursor = match &arguments.cursor {
            Some(text) => Some(Cursor::decode(text, &uri).ok_or(
                "cursor was not handed out for this view: pass the next_cursor of the page before, or none",
            )?),
            None => None,
        };
        let snapshot = self.bus.upgrade()?.read(&uri).await?;
        let spec = self.spec.clone();
        off(move || page(&spec, &uri, &snapshot, cursor.as_ref(), limit)).await
    }

    /// The view that the arguments ask for.
    fn view_uri(&self, arguments: &ListArguments) -> Result<ResourceUri, CallbackError> {
        let wanted = arguments.view.as_deref().unwrap_or("all");
        let view = self.spec.views.iter().find(|view| view.name == wanted);
        let value = match &arguments.value {
            None => None,
            Some(Value::String(text)) => Some(text.clone()),
            Some(Value::Array(_) | Value::Object(_)) => {
                return Err("value is no text, number, true or false".into());
            }
            Some(other) => Some(other.to_string()),
        };
        match (view.map(|view| &view.kind), value) {
            (None, _) if wanted != "all" => {
                let views: Vec<_> = self.spec.views.iter().map(|view| view.name.as_str()).collect();
                Err(format!(
                    "there is no view {wanted:?}: the views are all, {}",
                    views.join(", ")
                )
                .into())
            }
            (Some(Kind::Group(_)), Some(value)) => Ok(name::value_uri(&self.spec.name, wanted, &value)?),
            (Some(Kind::Group(field)), None) => {
                Err(format!("view {wanted} needs a value: which {}?", field.words()).into())
            }
            (_, Some(_)) => Err(format!("view {wanted} takes no value").into()),
            (_, None) => Ok(name::view_uri(&self.spec.name, wanted)),
        }
    }

    async fn answer_get(&self, arguments: Map<String, Value>) -> Result<Value, CallbackError> {
        let id = match parse::<GetArguments>(arguments)?.id {
            Value::String(text) => text,
            Value::Number(number) if !number.is_f64() => number.to_string(),
            _ => return Err("id is no text or whole number".into()),
        };
        let uri = self.spec.all();
        let snapshot = self.bus.upgrade()?.read(&uri).await?;
        let (spec, place) = (self.spec.clone(), self.index.place(&id));
        off(move || item(&spec, &uri, &snapshot, &id, place)).await
    }
}

/// Runs what may take long with a long list where it may.
async fn off(
    work: impl FnOnce() -> Result<Value, CallbackError> + Send + 'static,
) -> Result<Value, CallbackError> {
    tokio::task::spawn_blocking(work).await?
}

fn parse<T: for<'a> Deserialize<'a>>(arguments: Map<String, Value>) -> Result<T, CallbackError> {
    serde_json::from_value(Value::Object(arguments))
        .map_err(|error| format!("invalid arguments: {error}").into())
}

fn hints() -> Value {
    json!({ "readOnlyHint": true, "idempotentHint": true, "openWorldHint": false })
}

/// The items of a view, unread.
fn items(snapshot: &Snapshot) -> Result<Vec<&RawValue>, CallbackError> {
    let text = snapshot.body.as_text().ok_or("the view is not text")?;
    Ok(serde_json::from_str(text)?)
}

/// Whether this is the item with this id.
fn is(spec: &Spec, item: &RawValue, id: &str) -> bool {
    let read = serde_json::from_str::<Value>(item.get());
    read.is_ok_and(|item| spec.id_of(&item).as_deref() == Some(id))
}

fn page(
    spec: &Spec,
    uri: &ResourceUri,
    snapshot: &Snapshot,
    cursor: Option<&Cursor>,
    limit: usize,
) -> Result<Value, CallbackError> {
    let items = items(snapshot)?;
    let start = cursor.map_or(0, |cursor| start(spec, &items, cursor));
    let end = items.len().min(start + limit);
    let shown = items[start..end]
        .iter()
        .map(|item| serde_json::from_str(item.get()));
    let shown: Vec<Value> = shown.collect::<Result<_, _>>()?;
    let mut answer = json!({
        "uri": uri.as_str(),
        "etag_encoded": snapshot.etag.to_string(),
        "total": items.len(),
    });
    if let Some(last) = shown.last().filter(|_| end < items.len()) {
        let id = spec.id_of(last).unwrap_or_default();
        answer["next_cursor"] = json!(Cursor(uri.to_string(), end - 1, id).encode());
    }
    answer["items"] = Value::Array(shown);
    Ok(answer)
}

/// Where to go on: behind the cursor's item, wherever it is now; where it was when it is gone.
fn start(spec: &Spec, items: &[&RawValue], Cursor(_, place, id): &Cursor) -> usize {
    if items.get(*place).is_some_and(|item| is(spec, item, id)) {
        return place + 1;
    }
    let now = items.iter().position(|item| is(spec, item, id));
    now.map_or((*place).min(items.len()), |now| now + 1)
}

fn item(
    spec: &Spec,
    uri: &ResourceUri,
    snapshot: &Snapshot,
    id: &str,
    place: Option<usize>,
) -> Result<Value, CallbackError> {
    let items = items(snapshot)?;
    let there = place
        .and_then(|place| items.get(place))
        .filter(|item| is(spec, item, id));
    // The index may be one document ahead of the view, or behind it.
    let found = there.or_else(|| items.iter().find(|item| is(spec, item, id)));
    let Some(found) = found else {
        return Err(format!("{} not found: {id}", name::sentence(&spec.item)).into());
    };
    Ok(json!({
        "uri": uri.as_str(),
        "etag_encoded": snapshot.etag.to_string(),
        "item": serde_json::from_str::<Value>(found.get())?,
    }))
}
