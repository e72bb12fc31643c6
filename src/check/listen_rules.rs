//! The rules for the messages on a listen stream, as pure functions over messages.

use serde_json::Value;

use super::connection::KINDS;
use super::transcript::{MessageOrigin, Received};
use crate::wire::dialect::{ACKNOWLEDGED, SUBSCRIPTION_ID_META_KEY};

/// The limit on problems reported per stream: a server that breaks a rule tends to break it with every
/// message.
const PROBLEMS_MAX: usize = 4;

/// Returns the field of a filter that asks for the changes of a kind of list.
pub(super) fn list_flag(kind: &str) -> String {
    format!("{kind}ListChanged")
}

/// Returns the resources that a filter names.
pub(super) fn filter_uris(filter: &Value) -> Vec<&str> {
    let uris = filter["resourceSubscriptions"].as_array();
    uris.into_iter().flatten().flat_map(Value::as_str).collect()
}

/// Returns true if the message belongs to the stream of the listen request `id`.
///
/// All streams share standard output, where a notification without a tag may belong to any of them.
pub(super) fn belongs_to(received: &Received, id: &Value) -> bool {
    match &received.origin {
        MessageOrigin::Listen(request) => request == id,
        MessageOrigin::Response => false,
        MessageOrigin::Session if received.message.get("method").is_none() => {
            received.message.get("id") == Some(id)
        }
        MessageOrigin::Session => match tag(received) {
            Value::Null => {
                received.method() == ACKNOWLEDGED
                    || received.changed_list().is_some()
                    || received.updated_uri().is_some()
            }
            // Compared as texts: an id in the wrong JSON type is a problem of this stream, not a message of
            // another.
            tag => text_of(tag) == text_of(id),
        },
    }
}

fn tag(received: &Received) -> &Value {
    let message = &received.message;
    match message.get("result") {
        Some(result) => &result["_meta"][SUBSCRIPTION_ID_META_KEY],
        None => &message["params"]["_meta"][SUBSCRIPTION_ID_META_KEY],
    }
}

fn text_of(id: &Value) -> String {
    match id.as_str() {
        Some(text) => text.to_owned(),
        None => id.to_string(),
    }
}

/// Returns the problems of a stream that was requested with `id` and `filter` and carried `stream`.
pub(super) fn find_problems(id: &Value, filter: &Value, stream: &[Received]) -> Vec<String> {
    let mut problems = Vec::new();
    let mut has_result = false;
    for (index, received) in stream.iter().enumerate() {
        // A refused request has no stream, and the caller reports it.
        if received.message.get("error").is_some() {
            continue;
        }
        let name = name(received);
        if tag(received) != id {
            problems.push(format!("{name} is tagged {} instead of {id}", tag(received)));
        }
        if has_result {
            problems.push(format!("{name} came after the result"));
        }
        has_result |= received.message.get("result").is_some();
        match (received.method(), index) {
            (ACKNOWLEDGED, 0) => {
                let granted = &received.message["params"]["notifications"];
                problems.extend(find_excess(granted, filter));
            }
            (ACKNOWLEDGED, _) => problems.push("the acknowledgement came late or twice".to_owned()),
            (_, 0) => problems.push(format!("{name} came before the acknowledgement")),
            ("", _) => {}
            _ if is_requested(received, filter) => {}
            _ => problems.push(format!("{name} came without being requested")),
        }
    }
    problems.dedup();
    problems.truncate(PROBLEMS_MAX);
    problems
}

fn name(received: &Received) -> &str {
    match received.method() {
        "" => "the result",
        method => method,
    }
}

/// Returns a problem for each part of the granted filter that was not requested.
fn find_excess(granted: &Value, requested: &Value) -> Vec<String> {
    let mut excess = Vec::new();
    for flag in KINDS.map(list_flag) {
        if granted[&flag] == true && requested[&flag] != true {
            excess.push(flag);
        }
    }
    for uri in filter_uris(granted) {
        if !filter_uris(requested).contains(&uri) {
            excess.push(uri.to_owned());
        }
    }
    let mut problems = Vec::new();
    for part in excess {
        problems.push(format!("{part} was acknowledged without being requested"));
    }
    problems
}

fn is_requested(received: &Received, filter: &Value) -> bool {
    match received.changed_list() {
        Some(kind) => filter[list_flag(kind)] == true,
        None => filter_uris(filter).iter().any(|uri| received.announces(uri)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::dialect::{RESOURCE_UPDATED, resource_filter};
    use serde_json::json;

    const TOOLS_CHANGED: &str = "notifications/tools/list_changed";

    fn received(message: Value) -> Received {
        Received {
            origin: MessageOrigin::Session,
            message,
        }
    }

    fn tagged(method: &str, tag: &Value, mut params: Value) -> Received {
        params["_meta"][SUBSCRIPTION_ID_META_KEY] = tag.clone();
        received(json!({ "method": method, "params": params }))
    }

    fn acknowledged(granted: &Value) -> Received {
        tagged(ACKNOWLEDGED, &json!(7), json!({ "notifications": granted }))
    }

    fn update(uri: &str) -> Received {
        tagged(RESOURCE_UPDATED, &json!(7), json!({ "uri": uri }))
    }

    fn result() -> Received {
        received(json!({ "id": 7, "result": { "_meta": { SUBSCRIPTION_ID_META_KEY: 7 } } }))
    }

    #[test]
    fn stream_that_follows_the_rules_has_no_problem() {
        let filter = resource_filter(&["demo://a"]);
        let whole = [
            acknowledged(&filter),
            update("demo://a"),
            update("demo://a/part"),
            result(),
        ];
        for stream in [&whole[..], &[acknowledged(&json!({})), result()]] {
            let problems = find_problems(&json!(7), &filter, stream);
            assert_eq!(problems, Vec::<String>::new(), "{stream:?}");
        }
    }

    #[test]
    fn each_broken_rule_is_named() {
        let filter = resource_filter(&["demo://a"]);
        let granted = || acknowledged(&filter);
        let as_text = tagged(RESOURCE_UPDATED, &json!("7"), json!({ "uri": "demo://a" }));
        let log = tagged("notifications/message", &json!(7), json!({}));
        let wider = resource_filter(&["demo://a", "demo://b"]);
        let tools_too = json!({ "toolsListChanged": true });
        for (stream, expected) in [
            (vec![update("demo://a"), granted()], "before the acknowledgement"),
            (vec![granted(), granted()], "late or twice"),
            (vec![acknowledged(&wider)], "demo://b was acknowledged"),
            (
                vec![acknowledged(&tools_too)],
                "toolsListChanged was acknowledged",
            ),
            (vec![granted(), update("demo://b")], "without being requested"),
            (
                vec![granted(), tagged(TOOLS_CHANGED, &json!(7), json!({}))],
                "without being requested",
            ),
            (vec![granted(), result(), update("demo://a")], "after the result"),
            (vec![granted(), as_text], "is tagged \"7\" instead of 7"),
            (vec![granted(), log], "notifications/message came"),
        ] {
            let problems = find_problems(&json!(7), &filter, &stream);
            let is_named = problems.iter().any(|problem| problem.contains(expected));
            assert!(is_named, "{expected}: {problems:?}");
        }
    }

    #[test]
    fn message_belongs_to_a_stream_by_origin_or_tag() {
        for (origin, tag, belongs) in [
            (MessageOrigin::Listen(json!(7)), Value::Null, true),
            (MessageOrigin::Listen(json!("7")), json!(7), false),
            (MessageOrigin::Session, json!("7"), true),
            (MessageOrigin::Session, Value::Null, true),
            (MessageOrigin::Session, json!(8), false),
            (MessageOrigin::Response, json!(7), false),
        ] {
            let mut message = tagged(TOOLS_CHANGED, &tag, json!({}));
            message.origin = origin;
            assert_eq!(belongs_to(&message, &json!(7)), belongs, "{message:?}");
        }
        assert!(belongs_to(&result(), &json!(7)));
    }
}
