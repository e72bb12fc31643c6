//! What may stand on a listen stream, given what was asked for.
//!
//! Owns the rules, as pure functions over messages. It never talks to a server.

use serde_json::{Value, json};

use super::log::{Heard, Via};

const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";
pub(super) const ACKNOWLEDGED: &str = "notifications/subscriptions/acknowledged";

/// More problems of one stream are not told.
const PROBLEMS_MAX: usize = 4;

/// The part of the filter that asks for a kind of list.
pub(super) fn flag(kind: &str) -> String {
    format!("{kind}ListChanged")
}

/// A filter for the changes of these resources.
pub(super) fn resources(uris: &[&str]) -> Value {
    json!({ "resourceSubscriptions": uris })
}

/// Whether it came on the stream of the request `id`. On standard output what carries no tag may belong to any.
pub(super) fn belongs(heard: &Heard, id: &Value) -> bool {
    match &heard.via {
        Via::Listen(of) => of == id,
        Via::Request => false,
        Via::Session if heard.message.get("method").is_none() => heard.message.get("id") == Some(id),
        Via::Session => match tag(heard) {
            Value::Null => {
                heard.method() == ACKNOWLEDGED || heard.list().is_some() || heard.updated().is_some()
            }
            tag => plain(tag) == plain(id),
        },
    }
}

fn tag(heard: &Heard) -> &Value {
    let message = &heard.message;
    match message.get("result") {
        Some(result) => &result["_meta"][SUBSCRIPTION_ID],
        None => &message["params"]["_meta"][SUBSCRIPTION_ID],
    }
}

/// An id without its type.
fn plain(id: &Value) -> String {
    id.as_str().map_or_else(|| id.to_string(), str::to_owned)
}

/// What is wrong with a stream that was asked for with `id` and the filter `asked`, and said `heard`.
pub(super) fn audit(id: &Value, asked: &Value, heard: &[Heard]) -> Vec<String> {
    let mut problems = Vec::new();
    let mut ended = false;
    for (index, heard) in heard.iter().enumerate() {
        let method = heard.method();
        if heard.message.get("error").is_some() {
            continue;
        }
        if tag(heard) != id {
            problems.push(format!(
                "{} is tagged {} instead of {id}",
                name(heard),
                tag(heard)
            ));
        }
        if ended {
            problems.push(format!("{} came after the result", name(heard)));
        }
        ended |= heard.message.get("result").is_some();
        if method == ACKNOWLEDGED && index == 0 {
            problems.extend(wider(&heard.message["params"]["notifications"], asked));
        } else if method == ACKNOWLEDGED {
            problems.push("the acknowledgement came late or twice".to_owned());
        } else if index == 0 {
            problems.push(format!("{} came before the acknowledgement", name(heard)));
        } else if !method.is_empty() && !was_asked(heard, asked) {
            problems.push(format!("{} came though nobody asked for it", name(heard)));
        }
    }
    problems.dedup();
    problems.truncate(PROBLEMS_MAX);
    problems
}

fn name(heard: &Heard) -> String {
    match heard.method() {
        "" => "the result".to_owned(),
        method => method.to_owned(),
    }
}

/// What of `honoured` nobody asked for.
fn wider(honoured: &Value, asked: &Value) -> Vec<String> {
    let kinds = ["tools", "prompts", "resources"].map(flag);
    let flags = kinds
        .iter()
        .filter(|kind| honoured[*kind] == true && asked[*kind] != true);
    let wanted = uris(asked);
    let more = uris(honoured).into_iter().filter(|uri| !wanted.contains(uri));
    flags
        .map(String::as_str)
        .chain(more)
        .map(|what| format!("{what} was acknowledged though nobody asked for it"))
        .collect()
}

pub(super) fn uris(filter: &Value) -> Vec<&str> {
    let uris = filter["resourceSubscriptions"].as_array();
    uris.into_iter().flatten().filter_map(Value::as_str).collect()
}

fn was_asked(heard: &Heard, asked: &Value) -> bool {
    match (heard.list(), heard.updated()) {
        (Some(kind), _) => asked[flag(kind)] == true,
        // It may be a part of what was subscribed.
        (_, Some(uri)) => uris(asked).iter().any(|wanted| uri.starts_with(wanted)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(method: &str, tag: &Value, mut params: Value) -> Heard {
        params["_meta"][SUBSCRIPTION_ID] = tag.clone();
        Heard {
            via: Via::Session,
            message: json!({ "method": method, "params": params }),
        }
    }

    fn ack(honoured: &Value) -> Heard {
        heard(ACKNOWLEDGED, &json!(7), json!({ "notifications": honoured }))
    }

    fn update(uri: &str) -> Heard {
        heard(
            "notifications/resources/updated",
            &json!(7),
            json!({ "uri": uri }),
        )
    }

    fn end() -> Heard {
        let message = json!({ "id": 7, "result": { "_meta": { SUBSCRIPTION_ID: 7 } } });
        Heard {
            via: Via::Session,
            message,
        }
    }

    #[test]
    fn each_offence_is_named() {
        let asked = resources(&["demo://a"]);
        let granted = || ack(&asked);
        let list = |tag| heard("notifications/tools/list_changed", &tag, json!({}));
        for (stream, expected) in [
            (
                vec![granted(), update("demo://a"), update("demo://a/part"), end()],
                None,
            ),
            (vec![ack(&json!({})), end()], None),
            (
                vec![update("demo://a"), granted()],
                Some("before the acknowledgement"),
            ),
            (vec![granted(), granted()], Some("late or twice")),
            (
                vec![ack(&resources(&["demo://a", "demo://b"]))],
                Some("demo://b was acknowledged"),
            ),
            (
                vec![ack(&json!({ "toolsListChanged": true }))],
                Some("toolsListChanged was acknowledged"),
            ),
            (vec![granted(), update("demo://b")], Some("nobody asked")),
            (vec![granted(), list(json!(7))], Some("nobody asked")),
            (
                vec![granted(), end(), update("demo://a")],
                Some("after the result"),
            ),
            (
                vec![
                    granted(),
                    heard(
                        "notifications/resources/updated",
                        &json!("7"),
                        json!({ "uri": "demo://a" }),
                    ),
                ],
                Some("is tagged \"7\" instead of 7"),
            ),
            (
                vec![granted(), heard("notifications/message", &json!(7), json!({}))],
                Some("notifications/message came"),
            ),
        ] {
            let problems = audit(&json!(7), &asked, &stream);
            match expected {
                None => assert_eq!(problems, Vec::<String>::new(), "{stream:?}"),
                Some(part) => assert!(
                    problems.iter().any(|found| found.contains(part)),
                    "{part}: {problems:?}"
                ),
            }
        }
    }

    #[test]
    fn messages_are_told_apart_by_stream_or_tag() {
        let on = |via: Via, tag: Value| Heard {
            via,
            ..heard("notifications/tools/list_changed", &tag, json!({}))
        };
        assert!(belongs(&on(Via::Listen(json!(7)), Value::Null), &json!(7)));
        assert!(!belongs(&on(Via::Listen(json!("7")), json!(7)), &json!(7)));
        assert!(belongs(&on(Via::Session, json!("7")), &json!(7)));
        assert!(belongs(&on(Via::Session, Value::Null), &json!(7)));
        assert!(!belongs(&on(Via::Session, json!(8)), &json!(7)));
        assert!(!belongs(&on(Via::Request, json!(7)), &json!(7)));
        assert!(belongs(&end(), &json!(7)));
    }
}
