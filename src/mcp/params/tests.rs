//! A request that passes is read by rmcp; one that is refused names its field.

use proptest::prelude::*;
use proptest::sample::select;
use rmcp::model::{ClientJsonRpcMessage, ClientRequest};
use serde_json::{Value, json};

use super::*;

/// Parameters of each method that every server accepts.
fn samples() -> Vec<(&'static str, Value)> {
    let meta = json!({ "progressToken": 1 });
    let client = json!({ "name": "c", "version": "1", "title": "C", "icons": [{ "src": "data:," }] });
    let capabilities = json!({ "roots": { "listChanged": true }, "sampling": {}, "experimental": {} });
    let notifications = json!({
        "toolsListChanged": true, "promptsListChanged": false, "resourcesListChanged": true,
        "resourceSubscriptions": ["demo://a", "demo://b"],
    });
    let call = json!({ "name": "n", "arguments": { "a": "1" }, "requestState": "s", "inputResponses": {}, "_meta": meta });
    vec![
        (
            "initialize",
            json!({ "protocolVersion": "2025-11-25", "capabilities": capabilities, "clientInfo": client, "_meta": meta }),
        ),
        ("ping", json!({ "_meta": meta })),
        ("logging/setLevel", json!({ "level": "info", "_meta": meta })),
        ("resources/subscribe", json!({ "uri": "demo://a", "_meta": meta })),
        (
            "resources/unsubscribe",
            json!({ "uri": "demo://a", "_meta": meta }),
        ),
        ("server/discover", json!({ "_meta": meta })),
        (
            "subscriptions/listen",
            json!({ "notifications": notifications, "_meta": meta }),
        ),
        ("resources/list", json!({ "cursor": "c", "_meta": meta })),
        (
            "resources/templates/list",
            json!({ "cursor": "c", "_meta": meta }),
        ),
        (
            "resources/read",
            json!({ "uri": "demo://a", "requestState": "s", "inputResponses": {}, "_meta": meta }),
        ),
        ("tools/list", json!({ "cursor": "c", "_meta": meta })),
        ("tools/call", call.clone()),
        ("prompts/list", json!({ "cursor": "c", "_meta": meta })),
        ("prompts/get", call),
    ]
}

fn checked(method: &str, params: &Value) -> Result<(), String> {
    let raw = serde_json::value::to_raw_value(params).unwrap();
    let in_session = check(method, Some(&raw), false);
    let without = check(method, Some(&raw), true);
    let found = [in_session, without].into_iter().find(Result::is_err);
    found.unwrap_or(Ok(())).map_err(|error| {
        assert_eq!(error.code.0, -32602);
        error.message.into_owned()
    })
}

/// Returns true if rmcp reads the request as one of its method.
fn rmcp_reads(method: &str, params: &Value) -> bool {
    let message = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
    let Ok(ClientJsonRpcMessage::Request(request)) = serde_json::from_str(&message.to_string()) else {
        return false;
    };
    !matches!(request.request, ClientRequest::CustomRequest(_))
}

/// Values of every type, some of which fit somewhere.
fn odd() -> impl Strategy<Value = Value> {
    let odd = [
        json!(null),
        json!(true),
        json!(7),
        json!(-1.5),
        json!(u64::MAX),
        json!(""),
        json!("text"),
        json!("info"),
        json!([]),
        json!([7]),
        json!(["text", "text"]),
        json!([null]),
        json!([{}]),
        json!({}),
        json!({ "x": 1 }),
        json!({ "name": "n", "version": 1 }),
        json!({ "listChanged": "yes" }),
        json!({ "roots": [] }),
        json!({ "a": { "action": "accept" } }),
    ];
    select(odd.to_vec())
}

/// Every place in a value, as JSON pointers.
fn places(value: &Value, at: &str, found: &mut Vec<String>) {
    found.push(at.to_owned());
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                places(member, &format!("{at}/{name}"), found);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                places(item, &format!("{at}/{index}"), found);
            }
        }
        _ => {}
    }
}

/// A request with up to three places of a sample changed or removed.
fn requests() -> impl Strategy<Value = (&'static str, Value)> {
    let changes = prop::collection::vec((any::<prop::sample::Index>(), prop::option::of(odd())), 1..4);
    (select(samples()), changes).prop_map(|((method, mut params), changes)| {
        for (index, change) in changes {
            let mut found = Vec::new();
            places(&params, "", &mut found);
            let place = index.get(&found);
            match change {
                Some(value) => *params.pointer_mut(place).unwrap() = value,
                None => remove(&mut params, place),
            }
        }
        (method, params)
    })
}

fn remove(params: &mut Value, place: &str) {
    let Some((parent, name)) = place.rsplit_once('/') else {
        return;
    };
    if let Some(Value::Object(members)) = params.pointer_mut(parent) {
        members.remove(name);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn request_that_passes_is_read_by_rmcp((method, params) in requests()) {
        match checked(method, &params) {
            Ok(()) => prop_assert!(rmcp_reads(method, &params), "{method} {params}"),
            Err(text) => prop_assert!(text.starts_with("params"), "{text}"),
        }
    }

    #[test]
    fn any_text_is_judged_without_panic(method in select(samples()), text in "[\\[\\]{}\",:a-z0-9\\\\ ]{0,40}") {
        let Ok(raw) = serde_json::value::RawValue::from_string(text) else {
            return Ok(());
        };
        if let Err(error) = check(method.0, Some(&raw), false) {
            prop_assert!(error.message.starts_with("params"), "{}", error.message);
        }
    }
}

#[test]
fn usual_parameters_pass() {
    for (method, params) in samples() {
        assert_eq!(checked(method, &params), Ok(()), "{method}");
        assert!(rmcp_reads(method, &params), "{method}");
    }
    for (method, params) in [
        ("tools/call", json!({ "name": "n", "arguments": null })),
        ("resources/list", json!({ "cursor": null })),
        ("resources/list", json!(null)),
        (
            "subscriptions/listen",
            json!({ "notifications": { "other": 1, "resourceSubscriptions": null } }),
        ),
    ] {
        assert_eq!(checked(method, &params), Ok(()), "{method} {params}");
    }
    assert_eq!(check("resources/list", None, false), Ok(()));
    assert_eq!(check("unknown", None, false), Ok(()));
}

#[test]
fn refusal_names_field_and_its_form() {
    for (method, params, text) in [
        (
            "resources/read",
            json!([]),
            "params must be an object, not an array",
        ),
        (
            "resources/read",
            json!({}),
            "params.uri is missing; it must be a string",
        ),
        (
            "resources/read",
            json!(null),
            "params.uri is missing; it must be a string",
        ),
        (
            "resources/read",
            json!({ "uri": 7 }),
            "params.uri must be a string, not a number",
        ),
        (
            "resources/read",
            json!({ "uri": null }),
            "params.uri must be a string, not null",
        ),
        ("ping", json!(7), "params must be an object, not a number"),
        (
            "ping",
            json!({ "_meta": [] }),
            "params._meta must be an object, not an array",
        ),
        (
            "tools/list",
            json!({ "cursor": 7 }),
            "params.cursor must be a string, not a number",
        ),
        (
            "tools/call",
            json!({ "name": "n", "arguments": [] }),
            "params.arguments must be an object, not an array",
        ),
        (
            "initialize",
            json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "c" } }),
            "params.clientInfo.version is missing; it must be a string",
        ),
        (
            "initialize",
            json!({ "protocolVersion": "2025-11-25", "capabilities": [], "clientInfo": {} }),
            "params.capabilities must be an object, not an array",
        ),
        (
            "initialize",
            json!({ "protocolVersion": "1", "capabilities": { "roots": 7 }, "clientInfo": {} }),
            "params.capabilities cannot be read: invalid type: integer `7`, expected struct RootsCapabilities",
        ),
        (
            "subscriptions/listen",
            json!({ "notifications": [] }),
            "params.notifications must be an object, not an array",
        ),
        (
            "subscriptions/listen",
            json!({ "notifications": { "toolsListChanged": "yes" } }),
            "params.notifications.toolsListChanged must be a boolean, not a string",
        ),
        (
            "subscriptions/listen",
            json!({ "notifications": { "resourceSubscriptions": ["a", 7] } }),
            "params.notifications.resourceSubscriptions must be an array of strings",
        ),
        (
            "logging/setLevel",
            json!({ "level": "loud" }),
            "params.level must be one of debug, info, notice, warning, error, critical, alert, emergency, \
             not a string",
        ),
    ] {
        assert_eq!(checked(method, &params), Err(text.to_owned()), "{method}");
    }
}

#[test]
fn repeated_or_unreadable_fields_are_refused() {
    for (params, text) in [
        (
            r#"{"uri":7,"uri":"a"}"#,
            "params.uri is there more than once; send it once",
        ),
        (r#"{"uri":"\ud800"}"#, "params.uri must be a string"),
    ] {
        let raw = RawValue::from_string(params.to_owned()).unwrap();
        let refused = check("resources/read", Some(&raw), false).unwrap_err();
        assert_eq!(refused.message, text);
    }
}

#[test]
fn methods_of_other_revisions_are_not_judged() {
    for (method, stateless) in [
        ("initialize", true),
        ("resources/subscribe", true),
        ("subscriptions/listen", false),
    ] {
        assert_eq!(check(method, None, stateless), Ok(()));
        assert_eq!(unread(method, stateless), None);
        assert!(check(method, None, !stateless).is_err());
        assert!(unread(method, !stateless).unwrap().message.contains(method));
    }
}
