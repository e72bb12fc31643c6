//! The suite's tools: their list, and the module that answers each of them.

use rmcp::model::{CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, JsonObject, Tool};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer};
use serde_json::{Value, json};

use crate::server::Everything;
use crate::subscribers::ChangingList;
use crate::{answers, dialogues, input_rounds, tasks};

/// Returns the tools as they are after this number of changes.
pub(crate) fn list(changes: u32) -> Vec<Tool> {
    let triggers = ["test_trigger_tool_change", "test_trigger_prompt_change"];
    let names = answers::NAMES
        .iter()
        .chain(&dialogues::NAMES)
        .chain(&input_rounds::NAMES)
        .chain(&tasks::NAMES)
        .chain(&triggers);
    let mut tools: Vec<Tool> = names
        .map(|name| Tool::new(*name, "A tool of the suite", input_schema(name)))
        .collect();
    if changes > 0 {
        let description = format!("Change {changes}");
        tools.push(Tool::new("test_changing_tool", description, input_schema("")));
    }
    tools
}

pub(crate) async fn call(
    server: &Everything,
    request: CallToolRequestParams,
    context: RequestContext<RoleServer>,
) -> Result<CallToolResponse, ErrorData> {
    match &*request.name {
        "test_trigger_tool_change" => {
            server.shared.change(ChangingList::Tools).await?;
            Ok(done("the tools changed"))
        }
        "test_trigger_prompt_change" => {
            server.shared.change(ChangingList::Prompts).await?;
            Ok(done("the prompts changed"))
        }
        "test_changing_tool" => Ok(done("changed")),
        name if dialogues::NAMES.contains(&name) => dialogues::call(server, &request, &context).await,
        name if input_rounds::NAMES.contains(&name) => {
            input_rounds::call(&server.shared.codec, &request, &context)
        }
        name if tasks::NAMES.contains(&name) => tasks::call(&server.shared.tasks, &request, &context).await,
        name => match answers::answer(name) {
            Some(answer) => Ok(answer.into()),
            None => Err(ErrorData::invalid_params(format!("Unknown tool: {name}"), None)),
        },
    }
}

fn done(text: &str) -> CallToolResponse {
    CallToolResult::success(vec![ContentBlock::text(text)]).into()
}

/// Returns the schemas of properties that are strings.
fn strings(names: &[&str]) -> Value {
    let mut properties = JsonObject::new();
    for name in names {
        properties.insert((*name).to_owned(), json!({ "type": "string" }));
    }
    properties.into()
}

fn input_schema(name: &str) -> JsonObject {
    let schema = match name {
        "test_sampling" => json!({ "properties": strings(&["prompt"]), "required": ["prompt"] }),
        "test_elicitation" => json!({ "properties": strings(&["message"]), "required": ["message"] }),
        "greet" => json!({ "properties": strings(&["name"]), "required": ["name"] }),
        "slow_compute" => {
            json!({ "properties": { "seconds": { "type": "integer" }, "label": { "type": "string" } } })
        }
        "confirm_delete" => json!({ "properties": strings(&["filename"]), "required": ["filename"] }),
        "test_custom_header" => json!({
            "properties": { "region": { "type": "string", "x-mcp-header": "Region" } },
        }),
        "json_schema_2020_12_tool" => json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "$defs": {
                "address": {
                    "$anchor": "addressDef",
                    "type": "object",
                    "properties": strings(&["street", "city"]),
                },
            },
            "properties": {
                "name": { "type": "string" },
                "address": { "$ref": "#/$defs/address" },
                "contactMethod": { "type": "string", "enum": ["phone", "email"] },
                "phone": { "type": "string" },
                "email": { "type": "string" },
            },
            "allOf": [{ "anyOf": [{ "required": ["phone"] }, { "required": ["email"] }] }],
            "if": {
                "properties": { "contactMethod": { "const": "phone" } },
                "required": ["contactMethod"],
            },
            "then": { "required": ["phone"] },
            "else": { "required": ["email"] },
            "additionalProperties": false,
        }),
        _ => json!({ "properties": {} }),
    };
    let mut schema = schema.as_object().cloned().unwrap_or_default();
    schema.insert("type".into(), json!("object"));
    schema
}
