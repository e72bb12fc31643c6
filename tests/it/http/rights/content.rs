//! The rights to the content of notices, and to resources that patterns match.

use serde_json::json;

use super::*;
use crate::http::events::Stream;
use crate::http::ws::Client;

#[tokio::test]
async fn content_needs_the_right_to_read() {
    let ruled = Ruled::start().await;
    let rules = "may = ['list', 'read', 'subscribe']\nmatch = ['note://*']";
    assert!(RULES.contains(rules));
    let fewer = "may = ['list', 'subscribe']\nmatch = ['note://*']";
    ruled.replace_rules(&RULES.replace(rules, fewer));
    within("the new rules", async {
        while ruled.get(&ruled.reader, &resource_path(SEEN)).await.status != 404 {}
    })
    .await;
    let mut told = Vec::new();
    for token in [&ruled.reader, &ruled.ops] {
        let bearer = format!("Bearer {token}");
        let events = Request::new("GET", "/v1/events?body=1&kind=updated&uri=note%3A%2F%2F*");
        let events = events.header("authorization", bearer.as_str());
        let (events, _) = Stream::of(events, ruled.server.address).await;
        let headers = [("authorization", bearer.as_str())];
        let mut socket = Client::open(ruled.server.address, "?body=1", &headers).await;
        let ack = socket
            .ask(json!({ "type": "subscribe", "patterns": ["*"] }))
            .await;
        assert_eq!(ack["refused"], json!({}));
        told.push((events, socket));
    }
    ruled.put(HIDDEN, "2").await;
    ruled.put(SEEN, "2").await;
    let (events, socket) = &mut told[0];
    for notice in [events.event().await.data, socket.next().await] {
        // Not of the hidden one, which no rule lets it see.
        assert_eq!(notice["uri"], SEEN);
        assert_eq!(notice["omitted"], "not_readable");
        assert!(notice.get("text").is_none(), "{notice}");
    }
    let (events, socket) = &mut told[1];
    assert_eq!(events.event().await.data["text"], "2");
    assert_eq!(socket.next().await["uri"], HIDDEN);
    let notice = socket.next().await;
    assert_eq!((&notice["uri"], &notice["text"]), (&json!(SEEN), &json!("2")));
}
