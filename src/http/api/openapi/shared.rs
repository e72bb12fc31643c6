//! The parameters, headers and problems that several operations have.

use serde_json::{Map, Value, json};

use super::reference;
use crate::http::api::parameters::{PAGE_LEN_MAX, SEARCH_LEN_MAX};

/// The texts that are URIs of resources: a scheme, and a rest without spaces, control characters and marks of
/// writing direction.
const URI_PATTERN: &str = "[A-Za-z][A-Za-z0-9+.\\-]*:[^\\u0000-\\u0020\\u007f-\\u00a0\\u061c\\u1680\\u180e\\u2000-\\u200f\\u2028-\\u202f\\u205f-\\u206f\\u3000\\ufeff]*";

/// The texts of headers that describe a resource: visible characters and escapes, with spaces and tabs
/// between.
const TEXT_PATTERN: &str =
    "^(([!-$&-~]|%[2-6][0-9A-Fa-f])(([\\t -$&-~]|%[2-6][0-9A-Fa-f])*([!-$&-~]|%[2-6][0-9A-Fa-f]))?)?$";

/// The problems, with the meaning of their status.
const PROBLEMS: [(u16, &str); 18] = [
    (
        400,
        "The request cannot be read: `detail` names the part and the remedy",
    ),
    (401, "Credentials are needed, or they are wrong"),
    (403, "The host, the page or the caller may not do this"),
    (404, "There is no such thing, or the caller may not know of it"),
    (406, "The answer has no form that the client takes"),
    (408, "The body did not come in time; the connection is closed"),
    (409, "The resource exists already, or belongs to another owner"),
    (412, "`If-Match` or `If-None-Match` does not hold"),
    (413, "The body is larger than a limit allows"),
    (415, "The media type, the charset or the coding is not taken"),
    (426, "The path speaks WebSocket alone"),
    (429, "The caller has reached a limit of its own"),
    (500, "A fault of the service"),
    (502, "The program that makes the content failed"),
    (
        503,
        "The service is starting, stopping or full; nothing was changed",
    ),
    (504, "The program that makes the content took too long"),
    (
        507,
        "A limit of the bus or of the caller is reached, or the store has no room",
    ),
    (405, "The path has other methods; `Allow` names them"),
];

/// Makes the problems of the components.
pub(super) fn responses() -> Value {
    let mut responses = Map::new();
    for (status, text) in PROBLEMS {
        let mut headers = Map::new();
        let mut add = |name: &str| {
            let reference = json!({ "$ref": format!("#/components/headers/{name}") });
            headers.insert(name.to_owned(), reference);
        };
        // As the answers are written: only where a wait may help, or where RFC 9110 asks for the header.
        match status {
            429 | 503 => add("Retry-After"),
            405 => add("Allow"),
            415 => add("Accept-Encoding"),
            _ => {}
        }
        let mut answer = json!({
            "description": text,
            "content": { "application/problem+json": { "schema": reference("Problem") } },
        });
        if !headers.is_empty() {
            answer["headers"] = Value::Object(headers);
        }
        responses.insert(format!("Problem{status}"), answer);
    }
    Value::Object(responses)
}

/// Makes the headers of answers.
pub(super) fn headers() -> Value {
    let etag = "The version of the resource, in quotes";
    // The service takes any text in quotes in a condition, but gives etags of this form alone.
    let quoted = "^\"v[0-9]+-[0-9]+(-[0-9a-f]+)?\"$";
    json!({
        "ETag": { "description": etag, "required": true, "schema": { "type": "string", "pattern": quoted } },
        "Tidings-Changed": {
            "description": "False if the resource was so already",
            "required": true,
            "schema": { "type": "string", "enum": ["true", "false"] },
        },
        "Tidings-Told": {
            "description": "The number of subscribers that were notified",
            "required": true,
            "schema": { "type": "integer", "minimum": 0 },
        },
        "Location": { "description": "The path of the resource", "required": true, "schema": { "type": "string" } },
        "Retry-After": {
            "description": "The seconds after which another try may help",
            "required": true,
            "schema": { "type": "integer", "minimum": 1 },
        },
        "Set-Cookie": { "description": "The cookie", "required": true, "schema": { "type": "string" } },
        "Allow": { "description": "The methods of the path", "required": true, "schema": { "type": "string" } },
        "Accept-Encoding": { "description": "The codings that are taken", "schema": { "type": "string" } },
    })
}

/// Makes the parameters.
pub(super) fn parameters() -> Value {
    let uri = json!({ "type": "string", "pattern": format!("^{URI_PATTERN}$"), "maxLength": 2048 });
    // A parameter that is empty counts as left out.
    let of_uri = json!({ "type": "string", "pattern": format!("^({URI_PATTERN})?$"), "maxLength": 2048 });
    let text = json!({ "type": "string", "maxLength": 4096, "pattern": TEXT_PATTERN });
    let etags = json!({ "type": "string", "pattern": "^(\\*|(W/)?\"v[0-9]{1,9}-[0-9]{1,9}\")?$" });
    let header = |name: &str, description: &str, schema: &Value| json!({ "name": name, "in": "header", "description": description, "schema": schema });
    let query = |name: &str, description: &str, schema: Value| json!({ "name": name, "in": "query", "description": description, "schema": schema });
    let described = "Percent-encoded UTF-8 without control characters";
    json!({
        "Uri": {
            "name": "uri", "in": "path", "required": true, "schema": uri,
            "description": "The URI of the resource, percent-encoded as one segment",
        },
        "SessionId": {
            "name": "id", "in": "path", "required": true,
            "schema": { "type": "string", "pattern": "^s[0-9]{1,18}$" },
        },
        "IfMatch": header("If-Match", "Only if the resource is at one of these etags", &etags),
        "IfNoneMatch": header("If-None-Match", "Only if the resource is at none of these etags", &etags),
        "Name": header("Tidings-Name", described, &text),
        "Title": header("Tidings-Title", described, &text),
        "Description": header("Tidings-Description", described, &text),
        "Subscribable": header(
            "Tidings-Subscribable", "Whether clients may subscribe", &json!({ "type": "string", "enum": ["true", "false"] }),
        ),
        "OfUri": query("uri", "The resource", of_uri),
        "After": query("after", "The `next` of the page before", json!({ "type": "string" })),
        "Limit": query(
            "limit", "The most items", json!({ "anyOf": [{ "type": "integer", "minimum": 1, "maximum": PAGE_LEN_MAX }, { "const": "" }], "default": 100 }),
        ),
        "Search": query(
            "q", "A text to search for, in capitals or not", json!({ "type": "string", "maxLength": SEARCH_LEN_MAX }),
        ),
        "Sort": query("sort", "The order", json!({ "type": "string", "enum": ["", "uri", "changed", "subscribers"] })),
        "Stalled": query("stalled", "Those that read nothing", json!({ "type": "string", "enum": ["", "true", "false"] })),
        "Patterns": query(
            "uri", "A URI, a prefix that ends with `*`, or an RFC 6570 template; repeated for several",
            json!({ "type": "array", "items": { "type": "string" }, "maxItems": crate::PATTERNS_MAX }),
        ),
        "Kinds": query(
            "kind", "A kind of event; repeated for several",
            json!({ "type": "array", "items": { "type": "string", "enum": crate::NoticeKind::ALL.map(crate::NoticeKind::name) } }),
        ),
        "LastEventIdQuery": query("last_event_id", "The id of the last event that the client has", json!({ "type": "string" })),
        "McpSessionId": header("Mcp-Session-Id", "The session; none before `initialize`, and none in 2026-07-28", &json!({ "type": "string" })),
        "McpProtocolVersion": header("Mcp-Protocol-Version", "The revision", &json!({ "type": "string" })),
        "LastEventId": header("Last-Event-ID", "As `last_event_id`, which it replaces", &json!({ "type": "string" })),
        "Body": query("body", "Puts the content into notices", json!({ "type": "string", "enum": ["", "0", "1", "false", "true"], "default": "0" })),
    })
}
