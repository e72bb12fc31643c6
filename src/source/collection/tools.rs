//! The tools of a collection: `list_NAME` and `get_ITEM`.
//!
//! Each call reads a view from the bus, so that items and etag belong to one version.

use super::document::{CollectionSpec, ViewRule};
use super::naming;
use super::publish::ItemPositions;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use tidings_actors::{CallbackError, ResourceUri, Snapshot, Tool, ToolOutput, WeakBus};

/// Items of a page unless the caller asks for another number.
const LIMIT_DEFAULT: usize = 50;
/// Most items of a page.
const LIMIT_MAX: usize = 200;

/// The data that the tools work with.
#[derive(Debug, Clone)]
pub(super) struct Tools {
    /// Weak, since the bus holds the tools.
    pub(super) bus: WeakBus,
    pub(super) spec: Arc<CollectionSpec>,
    pub(super) positions: ItemPositions,
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

/// The place where a page begins: after the item with an id, which had a position in a view. It is sent as a
/// JSON array in base64, which clients do not look into.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct ItemCursor(String, usize, String);

impl ItemCursor {
    fn encode(&self) -> String {
        URL_SAFE_NO_PAD.encode(json!(self).to_string())
    }

    /// Decodes a cursor of the view `uri`.
    fn decode(text: &str, uri: &ResourceUri) -> Result<ItemCursor, CallbackError> {
        if let Ok(json) = URL_SAFE_NO_PAD.decode(text)
            && let Ok(cursor) = serde_json::from_slice::<ItemCursor>(&json)
            && cursor.0 == uri.as_str()
        {
            return Ok(cursor);
        }
        Err(
            "cursor was not handed out for this view: pass the next_cursor of the page before, or none"
                .into(),
        )
    }
}

impl Tools {
    /// Returns the name of the tool that lists items.
    pub(super) fn list_name(&self) -> String {
        format!("list_{}", self.spec.name)
    }

    /// Returns the name of the tool that gets one item.
    pub(super) fn get_name(&self) -> String {
        format!("get_{}", self.spec.item)
    }

    /// Returns the tool that lists items.
    pub(super) fn list(&self) -> Tool {
        let tools = self.clone();
        let label = self.spec.label();
        Tool::new(self.list_name(), move |arguments: Map<String, Value>| {
            let tools = tools.clone();
            async move { tools.list_items(arguments).await.map(ToolOutput::structured) }
        })
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
        .annotations(read_only())
    }

    /// Returns the tool that gets one item.
    pub(super) fn get(&self) -> Tool {
        let tools = self.clone();
        let label = naming::title_from_name(&self.spec.item).to_lowercase();
        Tool::new(self.get_name(), move |arguments: Map<String, Value>| {
            let tools = tools.clone();
            async move { tools.get_item(arguments).await.map(ToolOutput::structured) }
        })
        .title(format!("Get {label}"))
        .description(format!("Gets one {label} by its {}, with the etag of the whole list.", self.spec.id))
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
        .annotations(read_only())
    }

    fn list_schema(&self) -> Value {
        let mut views = vec!["all"];
        let mut grouped = Vec::new();
        for view in &self.spec.views {
            views.push(view.name.as_str());
            if let ViewRule::Group(field) = &view.rule {
                grouped.push(format!("{field} (view {})", view.name));
            }
        }
        let mut properties = json!({
            "view": { "type": "string", "enum": views, "default": "all", "description": "Which view" },
            "limit": { "type": "integer", "minimum": 1, "maximum": LIMIT_MAX, "default": LIMIT_DEFAULT,
                "description": "Items of one page" },
            "cursor": { "type": "string", "description": "The next_cursor of the page before" },
        });
        if !grouped.is_empty() {
            properties["value"] = json!({
                "type": ["string", "number", "boolean"],
                "description": format!("Which value of {}", grouped.join(" or ")),
            });
        }
        json!({ "type": "object", "properties": properties, "additionalProperties": false })
    }

    async fn list_items(&self, arguments: Map<String, Value>) -> Result<Value, CallbackError> {
        let arguments: ListArguments = parse(arguments)?;
        let uri = self.view_uri(&arguments)?;
        let limit = arguments.limit.unwrap_or(LIMIT_DEFAULT);
        if !(1..=LIMIT_MAX).contains(&limit) {
            return Err(format!("limit is {limit}: give 1 to {LIMIT_MAX}").into());
        }
        let cursor = match &arguments.cursor {
            Some(text) => Some(ItemCursor::decode(text, &uri)?),
            None => None,
        };
        let snapshot = self.bus.upgrade()?.read(&uri).await?;
        let spec = self.spec.clone();
        // Parsing a long list takes longer than a thread of the bus may be held up.
        tokio::task::spawn_blocking(move || page(&spec, &uri, &snapshot, cursor.as_ref(), limit)).await?
    }

    /// Returns the URI of the view that the arguments name.
    fn view_uri(&self, arguments: &ListArguments) -> Result<ResourceUri, CallbackError> {
        let wanted = arguments.view.as_deref().unwrap_or("all");
        let value = match &arguments.value {
            None => None,
            Some(Value::String(text)) => Some(text.clone()),
            Some(Value::Array(_) | Value::Object(_)) => {
                return Err("value is no text, number, true or false".into());
            }
            Some(other) => Some(other.to_string()),
        };
        let rule = match self.spec.views.iter().find(|view| view.name == wanted) {
            Some(view) => Some(&view.rule),
            None if wanted == "all" => None,
            None => {
                let views: Vec<_> = self.spec.views.iter().map(|view| view.name.as_str()).collect();
                let views = views.join(", ");
                return Err(format!("there is no view {wanted:?}: the views are all, {views}").into());
            }
        };
        match (rule, value) {
            (Some(ViewRule::Group(_)), Some(value)) => {
                Ok(naming::value_uri(&self.spec.name, wanted, &value)?)
            }
            (Some(ViewRule::Group(field)), None) => {
                Err(format!("view {wanted} needs a value: which {field}?").into())
            }
            (_, Some(_)) => Err(format!("view {wanted} takes no value").into()),
            (_, None) => Ok(naming::view_uri(&self.spec.name, wanted)),
        }
    }

    async fn get_item(&self, arguments: Map<String, Value>) -> Result<Value, CallbackError> {
        let id = match parse::<GetArguments>(arguments)?.id {
            Value::String(text) => text,
            Value::Number(number) if !number.is_f64() => number.to_string(),
            _ => return Err("id is no text or whole number".into()),
        };
        let uri = self.spec.all_uri();
        let snapshot = self.bus.upgrade()?.read(&uri).await?;
        let spec = self.spec.clone();
        let position = self.positions.get(&id);
        tokio::task::spawn_blocking(move || item(&spec, &uri, &snapshot, &id, position)).await?
    }
}

fn parse<T: for<'a> Deserialize<'a>>(arguments: Map<String, Value>) -> Result<T, CallbackError> {
    serde_json::from_value(Value::Object(arguments))
        .map_err(|error| format!("invalid arguments: {error}").into())
}

fn read_only() -> Value {
    json!({ "readOnlyHint": true, "idempotentHint": true, "openWorldHint": false })
}

/// Splits a view into its items without parsing them, since an answer needs few of many.
fn items(snapshot: &Snapshot) -> Result<Vec<&RawValue>, CallbackError> {
    let text = snapshot.body.as_text().ok_or("the view is not text")?;
    Ok(serde_json::from_str(text)?)
}

fn has_id(spec: &CollectionSpec, item: &RawValue, id: &str) -> bool {
    match serde_json::from_str::<Value>(item.get()) {
        Ok(item) => spec.id_of(&item).as_deref() == Some(id),
        Err(_) => false,
    }
}

/// Returns the position of the item with this id: the expected position if it is right, else a search finds
/// it.
fn position_of(spec: &CollectionSpec, items: &[&RawValue], id: &str, expected: usize) -> Option<usize> {
    if let Some(item) = items.get(expected)
        && has_id(spec, item, id)
    {
        return Some(expected);
    }
    items.iter().position(|item| has_id(spec, item, id))
}

fn page(
    spec: &CollectionSpec,
    uri: &ResourceUri,
    snapshot: &Snapshot,
    cursor: Option<&ItemCursor>,
    limit: usize,
) -> Result<Value, CallbackError> {
    let items = items(snapshot)?;
    let start = match cursor {
        None => 0,
        // After the cursor's item, wherever it is now. If it is gone, its successor has taken its position.
        Some(ItemCursor(_, position, id)) => match position_of(spec, &items, id, *position) {
            Some(position) => position + 1,
            None => (*position).min(items.len()),
        },
    };
    let end = items.len().min(start + limit);
    let mut shown = Vec::new();
    // Only the items of the page are parsed.
    for item in &items[start..end] {
        shown.push(serde_json::from_str::<Value>(item.get())?);
    }
    let mut answer = json!({
        "uri": uri.as_str(),
        "etag_encoded": snapshot.etag.to_string(),
        "total": items.len(),
    });
    if let Some(last) = shown.last()
        && end < items.len()
    {
        let id = spec.id_of(last).unwrap_or_default();
        answer["next_cursor"] = json!(ItemCursor(uri.to_string(), end - 1, id).encode());
    }
    answer["items"] = Value::Array(shown);
    Ok(answer)
}

fn item(
    spec: &CollectionSpec,
    uri: &ResourceUri,
    snapshot: &Snapshot,
    id: &str,
    position: Option<usize>,
) -> Result<Value, CallbackError> {
    let items = items(snapshot)?;
    // The position may belong to the document before or after this version of the view.
    let Some(position) = position_of(spec, &items, id, position.unwrap_or(0)) else {
        let item = naming::title_from_name(&spec.item);
        return Err(format!("{item} not found: {id}").into());
    };
    Ok(json!({
        "uri": uri.as_str(),
        "etag_encoded": snapshot.etag.to_string(),
        "item": serde_json::from_str::<Value>(items[position].get())?,
    }))
}
