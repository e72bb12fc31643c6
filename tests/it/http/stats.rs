//! Queries of the lists, and the history of figures, over the real service.

use serde_json::Value;

use crate::mcp::client::{Client, listen, updates};
use crate::mcp::http::{Reply, Request};
use crate::mcp::server::Server;

async fn get(server: &Server, path: &str) -> Reply {
    Request::new("GET", path).send(server.address).await
}

/// Returns one field of each item of a list.
async fn items(server: &Server, path: &str, field: &str) -> Vec<Value> {
    let reply = get(server, path).await;
    assert_eq!(reply.status, 200, "{path}: {}", reply.text());
    let json = reply.json();
    let items = json["items"].as_array().unwrap();
    items.iter().map(|item| item[field].clone()).collect()
}

async fn three_resources() -> Server {
    let server = Server::start().await;
    for (uri, text) in [("demo://a/Alpha", "1"), ("demo://b", "22"), ("other://c", "333")] {
        server.put(uri, text).await;
    }
    server
}

#[tokio::test]
async fn resources_are_searched_and_sorted() {
    let server = three_resources().await;
    server.put("demo://a/Alpha", "new").await;
    let client = Client::open(server.address, "2025-11-25").await;
    client.subscribe("demo://b").await;
    for (path, expected) in [
        ("/v1/resources?q=demo", vec!["demo://a/Alpha", "demo://b"]),
        ("/v1/resources?q=ALPHA", vec!["demo://a/Alpha"]),
        ("/v1/resources?q=nothing", vec![]),
        (
            "/v1/resources?sort=changed",
            vec!["demo://a/Alpha", "other://c", "demo://b"],
        ),
        (
            "/v1/resources?sort=subscribers",
            vec!["demo://b", "demo://a/Alpha", "other://c"],
        ),
        ("/v1/resources?sort=changed&limit=1&after=1", vec!["other://c"]),
        (
            "/v1/resources?q=%3A%2F%2F&after=demo%3A%2F%2Fb",
            vec!["other://c"],
        ),
    ] {
        assert_eq!(items(&server, path, "uri").await, expected, "{path}");
    }
}

#[tokio::test]
async fn resources_tell_change_size_and_subscribers() {
    let server = three_resources().await;
    let client = Client::open(server.address, "2025-11-25").await;
    client.subscribe("demo://b").await;
    let json = get(&server, "/v1/resources?sort=changed&limit=2").await.json();
    assert_eq!((&json["total"], &json["next"]), (&3.into(), &"2".into()));
    let json = get(&server, "/v1/resources").await.json();
    assert!(json.get("total").is_none());
    let item = &json["items"][1];
    assert_eq!((&item["subscribers"], &item["bytes"]), (&1.into(), &2.into()));
    // An etag tells the second of the change, too.
    let second = (item["changed"].as_u64().unwrap() / 1_000).to_string();
    let etag = item["etag"].as_str().unwrap();
    assert!(etag.starts_with(&format!("v1-{second}")), "{item}");
}

#[tokio::test]
async fn sessions_are_searched_by_the_clients_name() {
    let server = three_resources().await;
    let _client = Client::open(server.address, "2025-11-25").await;
    let (_, _events) = listen(server.address, &1.into(), updates(&["demo://b"])).await;
    let all = items(&server, "/v1/sessions", "client").await;
    assert!(all.len() == 2 && all.contains(&"it".into()), "{all:?}");
    assert_eq!(items(&server, "/v1/sessions?q=IT", "client").await, ["it"]);
    let streams = items(&server, "/v1/sessions?q=2026-07-28", "kind").await;
    assert_eq!(streams, ["stream"]);
    assert!(items(&server, "/v1/sessions?q=nobody", "id").await.is_empty());
    assert!(items(&server, "/v1/sessions?stalled=true", "id").await.is_empty());
    assert_eq!(items(&server, "/v1/sessions?stalled=false", "id").await.len(), 2);
    let json = get(&server, "/v1/sessions?q=nobody").await.json();
    assert_eq!(json["total"], 0);
}

#[tokio::test]
async fn wrong_queries_are_refused() {
    let server = Server::start().await;
    let long = "x".repeat(257);
    for (path, expected) in [
        ("/v1/resources?sort=size", "is not uri, changed or subscribers"),
        (
            "/v1/resources?sort=changed&after=x",
            "is not the `next` of a page",
        ),
        (
            "/v1/resources?stalled=true",
            "the query takes after, limit, q and sort",
        ),
        (&format!("/v1/resources?q={long}"), "search for at most 256"),
        ("/v1/sessions?stalled=yes", "is not true or false"),
        (&format!("/v1/sessions?q={long}"), "search for at most 256"),
    ] {
        let reply = get(&server, path).await;
        assert_eq!(reply.status, 400, "{path}");
        assert!(reply.text().contains(expected), "{path}: {}", reply.text());
    }
}

#[tokio::test]
async fn stats_have_every_series() {
    let server = three_resources().await;
    let reply = get(&server, "/v1/stats").await;
    assert_eq!(reply.status, 200);
    let stats = reply.json();
    assert_eq!(stats["step_ms"], 5_000);
    assert_eq!(stats["store"]["state"], "ok");
    let series = stats["series"].as_object().unwrap();
    let names: Vec<&str> = series.keys().map(String::as_str).collect();
    assert_eq!(
        names,
        [
            "changes_per_s",
            "conflated_per_s",
            "cpu",
            "delivery_ms",
            "fan_out_ms",
            "limits_per_s",
            "rss",
            "sessions",
            "stalled",
            "streams",
            "subscriptions",
            "told_per_s"
        ]
    );
    assert!(series["rss"][0].as_f64().unwrap() > 1e6);
    assert!(series["delivery_ms"]["p99"].is_array());
    assert_eq!(
        Request::new("POST", "/v1/stats")
            .send(server.address)
            .await
            .status,
        405
    );
}

#[tokio::test]
async fn stats_need_metrics() {
    let server = Server::with("[metrics]\nenabled = false\n").await;
    let reply = get(&server, "/v1/stats").await;
    assert_eq!(reply.status, 404);
    assert!(
        reply.text().contains("metrics.enabled = true"),
        "{}",
        reply.text()
    );
}

#[tokio::test]
async fn search_finds_what_its_caller_may_see() {
    let server = Server::with(
        "[[auth.rule]]\nroles = ['anonymous']\nmay = ['publish']\nmatch = ['*']\n\
         [[auth.rule]]\nroles = ['anonymous']\nmay = ['list']\nmatch = ['seen://*']\n\
         [[auth.rule]]\nroles = ['anonymous']\nmay = ['read']\nmatch = ['seen://b']\n",
    )
    .await;
    for uri in ["seen://a", "seen://b", "hidden://a"] {
        server.put(uri, "x").await;
    }
    for query in ["sort=changed", "q=%3A%2F%2F", "q=a&sort=changed"] {
        let found = items(&server, &format!("/v1/resources?{query}"), "uri").await;
        assert!(
            !found.is_empty() && !found.contains(&"hidden://a".into()),
            "{query}: {found:?}"
        );
    }
    let json = get(&server, "/v1/resources?sort=changed").await.json();
    assert_eq!(json["total"], 2);
    let b = &json["items"][0];
    let a = &json["items"][1];
    assert!(
        b["etag"].is_string() && b["changed"].is_u64() && b["bytes"] == 1,
        "{b}"
    );
    for absent in ["etag", "changed", "bytes", "subscribers"] {
        assert!(a.get(absent).is_none(), "{absent}: {a}");
    }
}
