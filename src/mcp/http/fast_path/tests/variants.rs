//! Unusual forms of the headers and fields of a poll.

use ::http::HeaderName;
use ::http::header::{ACCEPT, CONTENT_TYPE, HOST, ORIGIN};

use super::super::super::headers::{LAST_EVENT_ID, MCP_METHOD, MCP_NAME, PROTOCOL_VERSION, SESSION_ID};
use super::super::METHOD;
use super::{HERE, META};

/// The values that a header is sent with; none: it is left out.
pub(super) type HeaderValues = &'static [&'static [u8]];

pub(super) const HOST_VALUES: &[HeaderValues] = &[
    &[],
    &[b"evil.example"],
    &[b"LOCALHOST"],
    &[b"[::1]:9"],
    &[b"no host"],
    &[HERE.as_bytes(), b"evil.example"],
];

pub(super) const ORIGIN_VALUES: &[HeaderValues] =
    &[&[b"http://evil.example"], &[b"http://localhost:3000"], &[b"null"]];

pub(super) const CONTENT_TYPE_VALUES: &[HeaderValues] = &[
    &[],
    &[b"text/plain"],
    &[b"Application/JSON"],
    &[b"application/json; charset=utf-8"],
    &[b"application/json", b"text/plain"],
    &[b"application/json\xff"],
];

pub(super) const ACCEPT_VALUES: &[HeaderValues] = &[
    &[],
    &[b"*/*"],
    &[b"application/json"],
    &[b"text/event-stream,application/json"],
    &[b"text/event-stream , application/json,*/*"],
    &[b"application/json", b"text/event-stream"],
    &[b"application/json, text/event-stream;q=0"],
    &[b"application/json;q=0.5, text/event-stream"],
    &[b"\"application/json, text/event-stream\""],
    &[b"application/json\t, text/event-stream"],
    &[b"Application/Json, text/event-stream"],
    &[b"application/json, text/event-stream\xe9"],
];

pub(super) const PROTOCOL_VERSION_VALUES: &[HeaderValues] = &[
    &[],
    &[b"2024-11-05"],
    &[b"2025-03-26"],
    &[b"2025-06-18"],
    &[b"2025-11-25"],
    &[b"2026-07-28"],
    &[b"2099-01-01"],
    &[b""],
    &[b" 2025-11-25"],
    &[b"2025-11-25", b"2026-07-28"],
    &[b"2026-07-28", b"2026-07-28"],
    &[b"\xff"],
];

pub(super) const SESSION_ID_VALUES: &[HeaderValues] = &[
    &[],
    &[b"0123456789abcdef0123456789abcdef"],
    &[b"0123456789abcdef0123456789abcdef", b"x"],
    &[b"\xff"],
];

pub(super) const MCP_METHOD_VALUES: &[HeaderValues] = &[
    &[],
    &[b"tools/list"],
    &[b"Tools/Call"],
    &[METHOD.as_bytes(), METHOD.as_bytes()],
];

pub(super) const MCP_NAME_VALUES: &[HeaderValues] = &[
    &[],
    &[b"read_resource"],
    &[b"=?base64?Z2V0X3Jlc291cmNlX2V0YWc=?="],
    &[b"get_resource_etag", b"get_resource_etag"],
];

/// Every header with each of its unusual values.
pub(super) fn all_headers() -> Vec<(HeaderName, HeaderValues)> {
    let groups = [
        (HOST, HOST_VALUES),
        (ORIGIN, ORIGIN_VALUES),
        (CONTENT_TYPE, CONTENT_TYPE_VALUES),
        (ACCEPT, ACCEPT_VALUES),
        (PROTOCOL_VERSION, PROTOCOL_VERSION_VALUES),
        (SESSION_ID, SESSION_ID_VALUES),
        (MCP_METHOD, MCP_METHOD_VALUES),
        (MCP_NAME, MCP_NAME_VALUES),
        (HeaderName::from_static("mcp-param-uri"), &[&[b"demo://b"]]),
        (LAST_EVENT_ID, &[&[b"a-1"]]),
    ];
    let mut all = Vec::new();
    for (name, variants) in groups {
        all.extend(variants.iter().map(|values| (name.clone(), *values)));
    }
    all
}

const IDS: &[&str] = &[
    "0",
    "-1",
    "-0",
    "1.0",
    "1.5",
    "1e2",
    "12345678901234567",
    "999999999999999999",
    "9223372036854775807",
    "9223372036854775808",
    "1e999",
    "\"\"",
    "\"7\"",
    "\"a b~\"",
    "\"q\\\"\"",
    "\"\\\\\"",
    "\"é\"",
    "\"\\u0061\"",
    "\"\u{7f}\"",
    "null",
    "true",
    "[1]",
    "{}",
    "\"\\ud800\"",
];

const NAMES: &[&str] = &[
    "\"get_resource_etags\"",
    "\"read_resource\"",
    "\"echo\"",
    "\"none\"",
    "\"get_resource\\u005fetag\"",
    "null",
    "{}",
];

const URIS: &[&str] = &[
    "\"demo://b\"",
    "\"demo://t/member\"",
    "\"demo://t/registered\"",
    "\"demo://ä\"",
    "\"demo:\\/\\/a\"",
    "\"demo://quo\\\"te\"",
    "\"no uri\"",
    "\"\"",
    "null",
    "7",
    "[\"demo://a\"]",
];

const ETAGS: &[&str] = &[
    "null",
    "\"\"",
    "\"v1-1\"",
    "\"v2-1700000000\"",
    "\"v1-170000000\\u0030\"",
    "7",
    "{}",
    "\"é\"",
];

const EXTRA_PARAMS: &[&str] = &[
    "\"task\":{}",
    "\"task\":{\"ttl\":1000}",
    "\"inputResponses\":{}",
    "\"inputResponses\":7",
    "\"requestState\":\"x\"",
    "\"requestState\":7",
    "\"name\":\"echo\"",
    "\"_meta\":{}",
    "\"x\":1",
];

const EXTRA: &[&str] = &[
    "\"result\":{}",
    "\"error\":{}",
    "\"x\":null",
    "\"id\":8",
    "\"method\":\"ping\"",
    "\"params\":{}",
    "\"jsonrpc\":\"2.0\"",
    "\"x\":1e999",
    "\"x\":\"\\ud800\"",
];

const VERSIONS: &[&str] = &["\"1.0\"", "2.0", "null", "\"2\\u002e0\""];

const METHODS: &[&str] = &[
    "\"tools/list\"",
    "\"ping\"",
    "\"tools\\/call\"",
    "\"nothing\"",
    "\"initialized\"",
    "7",
    "null",
];

const ARGUMENTS: &[&str] = &["null", "[]", "{}", "\"demo://a\"", "{\"uri\":\"demo://a\"}"];

const PARAMS: &[&str] = &["null", "[]", "{}", "{\"name\":\"get_resource_etag\"}"];

const EXTRA_ARGUMENTS: &[&str] = &["\"x\":1", "\"uri\":\"demo://b\"", "\"client_etag\":null"];

const BEFORE: &[&str] = &[" \n\t", "\u{feff}", "[", "x", "\u{0}"];

const AFTER: &[&str] = &[" \r\n", "]", "}", ",", "{}", "\u{0}"];

/// A field of the body and the JSON that it is written with; none: it is left out.
pub(super) type FieldVariant = (&'static str, Option<String>);

/// Every field with each of its unusual values.
pub(super) fn all_fields() -> Vec<FieldVariant> {
    let deep = deep_array();
    let big = format!("\"{}\"", "x".repeat(4_000));
    let deep_field = format!("\"x\":{deep}");
    let mut all = Vec::new();
    add(&mut all, "jsonrpc", VERSIONS, &[]);
    add(&mut all, "id", IDS, &[&deep, &big]);
    add(&mut all, "method", METHODS, &[]);
    add(&mut all, "name", NAMES, &[]);
    add(&mut all, "uri", URIS, &[&big]);
    add(&mut all, "client_etag", ETAGS, &[&big]);
    add(&mut all, "arguments", ARGUMENTS, &[&deep]);
    add(&mut all, "params", PARAMS, &[]);
    add(&mut all, "more arguments", EXTRA_ARGUMENTS, &[&deep_field]);
    add(&mut all, "more params", EXTRA_PARAMS, &[&deep_field]);
    add(&mut all, "more", EXTRA, &[&deep_field]);
    add(&mut all, "before", BEFORE, &[]);
    add(&mut all, "after", AFTER, &[]);
    let metas = metas(&deep);
    add(&mut all, "_meta", &metas.each_ref().map(String::as_str), &[]);
    all
}

fn add(all: &mut Vec<FieldVariant>, name: &'static str, values: &[&str], more: &[&str]) {
    all.push((name, None));
    let values = values.iter().chain(more);
    all.extend(values.map(|value| (name, Some((*value).to_owned()))));
}

/// An array that is nested deeper than parsers follow.
fn deep_array() -> String {
    format!("{}1{}", "[".repeat(200), "]".repeat(200))
}

fn metas(deep: &str) -> [String; 29] {
    let version = r#""io.modelcontextprotocol/protocolVersion":"2026-07-28""#;
    let other = version.replace("2026-07-28", "2025-11-25");
    let unknown = version.replace("2026-07-28", "2099-01-01");
    let able = r#""io.modelcontextprotocol/clientCapabilities""#;
    let info = r#""io.modelcontextprotocol/clientInfo""#;
    [
        "null".to_owned(),
        "{}".to_owned(),
        "[]".to_owned(),
        "7".to_owned(),
        META.to_owned(),
        format!("{{{version}}}"),
        format!("{{{version},{able}:{{}}}}"),
        format!("{{{able}:{{}},{version}}}"),
        format!("{{{other},{able}:{{}}}}"),
        format!("{{{unknown},{able}:{{}}}}"),
        format!("{{{version},{able}:null}}"),
        format!("{{{version},{able}:[]}}"),
        format!("{{{version},{able}:7}}"),
        format!(
            "{{{version},{able}:{{\"roots\":{{\"listChanged\":true}},\"sampling\":{{}},\"elicitation\":{{}}}}}}"
        ),
        format!("{{{version},{able}:{{\"roots\":7}}}}"),
        format!("{{{version},{able}:{{\"none\":7}}}}"),
        format!("{{{version},{able}:{{\"extensions\":{{\"io.modelcontextprotocol/tasks\":{{}}}}}}}}"),
        format!("{{{version},{able}:{{\"experimental\":{deep}}}}}"),
        format!("{{{version},{able}:{{}},{info}:null}}"),
        format!("{{{version},{able}:{{}},{info}:{{}}}}"),
        format!("{{{version},{able}:{{}},{info}:7}}"),
        format!("{{{version},{able}:{{}},{info}:{{\"x\":{deep}}}}}"),
        format!("{{{version},{able}:{{}},{info}:{{\"name\":1e999}}}}"),
        format!("{{{version},{version},{able}:{{}}}}"),
        format!("{{{version},{other},{able}:{{}}}}"),
        format!("{{{version},{able}:{{}},\"progressToken\":1}}"),
        format!("{{{version},{able}:{{}},\"io.modelcontextprotocol/logLevel\":\"debug\"}}"),
        format!("{{{version},{able}:{{}},\"traceparent\":\"00-0-0-00\"}}"),
        "{\"progressToken\":1}".to_owned(),
    ]
}
