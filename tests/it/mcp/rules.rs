//! The rules of streamable HTTP: statuses, headers, batches.

use serde_json::{Value, json};

use super::client::{Client, LEGACY, MODERN, initialize, modern, modern_post};
use super::http::{Reply, Request};
use super::local::Local;

fn ping() -> Value {
    json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" })
}

#[tokio::test]
async fn missing_session_is_400_and_unknown_404() {
    let local = Local::start().await;
    let without = Request::post(ping().to_string());
    for request in [without.clone(), Request::stream(), Request::new("DELETE", "/mcp")] {
        assert_eq!(request.clone().send(local.server).await.status, 400);
        let unknown = request.header("mcp-session-id", "0123456789abcdef0123456789abcdef");
        assert_eq!(unknown.send(local.server).await.status, 404);
    }
    let reply = without.send(local.server).await;
    assert_eq!(reply.error().0, -32600);
    assert_eq!(reply.json()["id"], 1);
}

#[tokio::test]
async fn foreign_host_or_origin_is_forbidden() {
    let local = Local::start().await;
    let client = Client::open(local.server, "2025-11-25").await;
    let requests = [
        client.with_headers(Request::post(ping().to_string())),
        client.with_headers(Request::stream()),
        client.with_headers(Request::new("DELETE", "/mcp")),
        Request::post(initialize("2025-11-25").to_string()),
        modern_post(&json!(1), "server/discover", json!({})),
    ];
    for request in requests {
        for (name, value) in [
            ("host", "evil.example"),
            ("origin", "http://evil.example"),
            ("origin", "null"),
        ] {
            let reply = request.clone().header(name, value).send(local.server).await;
            assert_eq!(reply.status, 403, "{name}: {value}, {request:?}");
        }
    }
    for origin in [
        "http://localhost:3000",
        "https://127.0.0.1:8443",
        "http://[::1]:9",
    ] {
        let reply = client
            .with_headers(Request::post(ping().to_string()))
            .header("origin", origin);
        assert_eq!(reply.send(local.server).await.status, 200, "{origin}");
    }
}

#[tokio::test]
async fn wrong_accept_or_content_type_is_refused() {
    let local = Local::start().await;
    let client = Client::open(local.server, "2025-11-25").await;
    let post = client.with_headers(Request::post(ping().to_string()));
    let status = async |request: Request| request.send(local.server).await.status;
    assert_eq!(status(post.clone().header("accept", "text/html")).await, 406);
    assert_eq!(status(post.header("content-type", "text/plain")).await, 415);
    let stream = client.with_headers(Request::stream());
    assert_eq!(
        status(stream.clone().header("accept", "application/json")).await,
        406
    );
    assert_eq!(status(stream.without("accept")).await, 406);
    assert_eq!(status(Request::new("PUT", "/mcp")).await, 405);
}

#[tokio::test]
async fn get_and_delete_are_405_on_2026_07_28() {
    let local = Local::start().await;
    for request in [Request::stream(), Request::new("DELETE", "/mcp")] {
        let reply = request
            .header("mcp-protocol-version", MODERN)
            .send(local.server)
            .await;
        assert_eq!((reply.status, reply.header("allow")), (405, Some("POST")));
    }
}

#[tokio::test]
async fn body_beyond_limit_is_413() {
    let local = Local::with(|options| options.body_bytes_max = 1_000).await;
    let client = Client::open(local.server, "2025-11-25").await;
    for (length, status) in [(1_000, 200), (1_001, 413)] {
        let padded = format!("{:length$}", ping().to_string());
        let request = client.with_headers(Request::post(padded));
        assert_eq!(request.send(local.server).await.status, status);
    }
}

#[tokio::test]
async fn non_json_body_is_parse_error() {
    let local = Local::start().await;
    for body in [
        "",
        "{",
        "nonsense",
        "{\"jsonrpc\":\"2.0\"",
        "\u{0}",
        "[1,",
        "\u{feff}{}",
    ] {
        let reply = Request::post(body).send(local.server).await;
        let code = if body.starts_with('[') { -32600 } else { -32700 };
        assert_eq!(
            (reply.status, reply.error().0),
            (400, code),
            "{body:?}: {}",
            reply.text()
        );
    }
    let client = Client::open(local.server, "2025-03-26").await;
    let reply = client.with_headers(Request::post("[1,")).send(local.server).await;
    assert_eq!((reply.status, reply.error().0), (400, -32700));
}

#[tokio::test]
async fn unknown_method_error_names_its_request() {
    let local = Local::start().await;
    for revision in LEGACY {
        let client = Client::open(local.server, revision).await;
        let message = json!({ "jsonrpc": "2.0", "id": "a", "method": "no/such" });
        let reply = client.post(&message).await;
        assert_eq!(
            (reply.error().0, &reply.json()["id"]),
            (-32601, &json!("a")),
            "{revision}"
        );
    }
    for removed in [
        "no/such",
        "initialize",
        "ping",
        "resources/subscribe",
        "resources/unsubscribe",
        "logging/setLevel",
    ] {
        let reply = modern(local.server, removed, json!({ "uri": "demo://a" })).await;
        assert_eq!(
            (reply.status, reply.error().0),
            (404, -32601),
            "{removed}: {}",
            reply.text()
        );
        assert_eq!(reply.json()["id"], 1);
    }
}

#[tokio::test]
async fn modern_request_must_agree_with_headers() {
    let local = Local::start().await;
    let good = modern_post(&json!(1), "tools/list", json!({}));
    assert_eq!(good.send(local.server).await.status, 200);
    let wrong = [
        good.clone().header("mcp-method", "prompts/list"),
        good.clone().without("mcp-method"),
        good.clone().header("mcp-protocol-version", "2025-11-25"),
    ];
    for request in wrong {
        let reply = request.send(local.server).await;
        assert_eq!((reply.status, reply.error().0), (400, -32020), "{request:?}");
    }
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": { "_meta": {
        "io.modelcontextprotocol/protocolVersion": "2099-01-01", "io.modelcontextprotocol/clientCapabilities": {},
    } } });
    let unknown = good
        .header("mcp-protocol-version", "2099-01-01")
        .body(body.to_string());
    let reply = unknown.send(local.server).await;
    assert_eq!((reply.status, reply.error().0), (400, -32022), "{}", reply.text());
    assert_eq!(reply.json()["error"]["data"]["requested"], "2099-01-01");
}

#[tokio::test]
async fn unknown_version_header_is_refused() {
    let local = Local::start().await;
    let client = Client::open(local.server, "2025-11-25").await;
    for version in ["2099-01-01", "", "nonsense"] {
        for request in [
            Request::post(ping().to_string()),
            Request::stream(),
            Request::new("DELETE", "/mcp"),
        ] {
            let request = client
                .with_headers(request)
                .header("mcp-protocol-version", version);
            assert_eq!(request.send(local.server).await.status, 400, "{version:?}");
        }
    }
    client.call("ping", json!({})).await;
}

#[tokio::test]
async fn error_repeats_id_as_written() {
    let local = Local::start().await;
    for id in [
        "9".repeat(400),
        "1e999".to_owned(),
        "\"a\\u0062\"".to_owned(),
        "1.50".to_owned(),
    ] {
        let body = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"ping\"}}");
        let reply = Request::post(body).send(local.server).await;
        assert_eq!(reply.status, 400);
        assert!(
            reply.text().contains(&format!("\"id\":{id},")),
            "{}",
            reply.text()
        );
    }
}

#[tokio::test]
async fn unknown_version_negotiates_newest_with_sessions() {
    let local = Local::start().await;
    for asked in ["1999-01-01", "2099-01-01", MODERN] {
        let reply = Request::post(initialize(asked).to_string())
            .send(local.server)
            .await;
        assert_eq!(reply.status, 200, "{}", reply.text());
        assert_eq!(reply.json()["result"]["protocolVersion"], "2025-11-25", "{asked}");
    }
}

fn request(id: Value, method: &str, params: Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
}

#[tokio::test]
async fn batch_is_answered_message_by_message() {
    let local = Local::start().await;
    local.put("demo://a", "1").await;
    let client = Client::initialize(local.server, "2025-03-26").await;
    let batch = json!([
        { "jsonrpc": "2.0", "method": "notifications/initialized" },
        request(json!(1), "ping", json!({})),
        request(json!("two"), "resources/subscribe", json!({ "uri": "demo://a" })),
        request(json!(3), "resources/read", json!({ "uri": "demo://nowhere" })),
        request(json!(4), "no/such", json!({})),
        request(json!(5), "initialize", initialize("2025-03-26")["params"].clone()),
    ]);
    let reply = client.post(&batch).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    let answers = reply.json();
    let answers = answers.as_array().unwrap();
    let ids: Vec<&Value> = answers.iter().map(|answer| &answer["id"]).collect();
    assert_eq!(json!(ids), json!([1, "two", 3, 4, 5]));
    assert_eq!(answers[0]["result"], json!({}));
    assert_eq!(answers[1]["result"], json!({}));
    let codes: Vec<i64> = answers[2..]
        .iter()
        .map(|answer| answer["error"]["code"].as_i64().unwrap())
        .collect();
    assert_eq!(codes, [-32002, -32601, -32600]);
    assert_eq!(
        local.sessions().await.len(),
        1,
        "initialize in a batch opened nothing"
    );
    assert_eq!(local.sessions().await[0].pending.subscriptions, 1);
}

#[tokio::test]
async fn notification_batch_has_no_answer() {
    let local = Local::start().await;
    let client = Client::initialize(local.server, "2025-03-26").await;
    let initialized = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    let cancelled =
        json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 1 } });
    let response = json!({ "jsonrpc": "2.0", "id": 1, "result": {} });
    let reply = client.post(&json!([initialized, cancelled, response])).await;
    assert_eq!((reply.status, reply.text()), (202, ""));
}

fn refused(reply: &Reply) -> (u16, i64) {
    (reply.status, reply.error().0)
}

#[tokio::test]
async fn empty_huge_or_foreign_batch_is_refused() {
    let local = Local::start().await;
    let client = Client::open(local.server, "2025-03-26").await;
    assert_eq!(refused(&client.post(&json!([])).await), (400, -32600));
    let many: Vec<Value> = (0..101).map(|_| ping()).collect();
    assert_eq!(refused(&client.post(&json!(many)).await), (400, -32600));
    assert_eq!(
        client
            .post(&json!(many[..100]))
            .await
            .json()
            .as_array()
            .unwrap()
            .len(),
        100
    );
    for revision in LEGACY.into_iter().filter(|revision| *revision != "2025-03-26") {
        let client = Client::open(local.server, revision).await;
        assert_eq!(
            refused(&client.post(&json!([ping()])).await),
            (400, -32600),
            "{revision}"
        );
    }
    let opening = json!([initialize("2025-03-26")]);
    assert_eq!(
        refused(&Request::post(opening.to_string()).send(local.server).await),
        (400, -32600)
    );
    let modern = modern_post(&json!(1), "tools/list", json!({})).body("[]");
    assert_eq!(refused(&modern.send(local.server).await), (400, -32600));
}

#[tokio::test]
async fn list_pages_bring_each_item_once() {
    let local = Local::start().await;
    for number in 0..250 {
        local.put(&format!("demo://{number}"), "1").await;
    }
    let client = Client::open(local.server, "2025-11-25").await;
    let mut sizes = Vec::new();
    let mut uris = Vec::new();
    let mut cursor = Value::Null;
    loop {
        let params = if cursor.is_null() {
            json!({})
        } else {
            json!({ "cursor": cursor })
        };
        let mut page = client.call("resources/list", params).await;
        let items = page["resources"].as_array().unwrap();
        sizes.push(items.len());
        uris.extend(items.iter().map(|item| item["uri"].as_str().unwrap().to_owned()));
        cursor = page["nextCursor"].take();
        if cursor.is_null() {
            break;
        }
    }
    // Full pages first, and no item twice.
    assert_eq!(sizes, [100, 100, 50]);
    uris.sort();
    uris.dedup();
    assert_eq!(uris.len(), 250);
    // A cursor that the server never handed out is refused.
    for method in [
        "resources/list",
        "resources/templates/list",
        "tools/list",
        "prompts/list",
    ] {
        let reply = client
            .request(method, json!({ "cursor": "never handed out" }))
            .await;
        assert_eq!(reply.error().0, -32602, "{method}");
        let reply = modern(local.server, method, json!({ "cursor": "never handed out" })).await;
        assert_eq!(reply.error().0, -32602, "{method}");
    }
}

#[tokio::test]
async fn only_2026_07_28_gets_cache_hints() {
    let local = Local::with(|options| {
        options.mcp.ttl = std::time::Duration::from_secs(7);
        options.mcp.cache_scope = tidings::config::CacheScope::Public;
    })
    .await;
    local.fill_all_lists().await;
    let client = Client::open(local.server, "2025-11-25").await;
    let lists = [
        "resources/list",
        "resources/templates/list",
        "tools/list",
        "prompts/list",
    ];
    let calls = lists.map(|method| (method, json!({}))).into_iter();
    for (method, params) in calls.chain([("resources/read", json!({ "uri": "demo://a" }))]) {
        let old = client.call(method, params.clone()).await;
        for hint in ["ttlMs", "cacheScope", "resultType"] {
            assert_eq!(old.get(hint), None, "{method}: {hint}");
        }
        let new = modern(local.server, method, params).await.json();
        let hints = json!([
            new["result"]["ttlMs"],
            new["result"]["cacheScope"],
            new["result"]["resultType"]
        ]);
        assert_eq!(hints, json!([7_000, "public", "complete"]), "{method}");
    }
    let discovered = modern(local.server, "server/discover", json!({})).await.json();
    assert!(
        discovered["result"]["ttlMs"].is_u64() && discovered["result"]["cacheScope"].is_string(),
        "{discovered}"
    );
}
