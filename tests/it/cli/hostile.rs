//! Every command at a service whose every text tries to steer the terminal or to forge a line.

use axum::Router;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::User;
use crate::hostile_names::{assert_tame, names, steers};

fn item(name: &str) -> Value {
    json!({
        "uri": format!("demo://{name}"), "name": name, "title": name, "etag": name, "mediaType": name,
        "id": name, "kind": name, "label": name, "revision": name, "transport": name,
        "streams": 1, "subscriptions": 1,
        "state": name, "last_error": name,
        "pending": {"entries": 1, "uris": [name], "urisMore": 0, "oldestMs": 5},
        "progress": {"stalled": false, "ageMs": 1, "told": 1, "conflated": 0, "bytes": 1},
        "health": name, "class": name, "error": name, "queue": 1, "delivered": 1, "lost": 0, "retries": 0,
        "explanation": {"text": name, "verdict": name},
    })
}

fn node(name: &str) -> Value {
    json!({"node": name, "address": name, "version": name, "differs": [name]})
}

async fn answer(uri: axum::http::Uri) -> Response {
    let name = names().concat();
    match uri.path() {
        "/v1/sessions/s1" => axum::Json(item(&name)).into_response(),
        "/v1/stats" => {
            let mut limits = serde_json::Map::new();
            for name in names() {
                limits.insert(name, 1.into());
            }
            let store = json!({"state": name, "reason": name});
            axum::Json(json!({"series": {}, "limits": limits, "store": store})).into_response()
        }
        "/v1/cluster" => {
            let nodes: Vec<Value> = names().iter().map(|name| node(name)).collect();
            let lease = json!({"name": name, "holder": name});
            axum::Json(json!({"namespace": name, "health": name, "nodes": nodes, "leases": [lease]}))
                .into_response()
        }
        "/healthz" => name.into_response(),
        path if path.starts_with("/v1/resources/") && !path.ends_with("/subscribers") => {
            let problem = axum::Json(json!({"title": name, "detail": name}));
            (StatusCode::CONFLICT, problem).into_response()
        }
        _ => {
            let items: Vec<Value> = names().iter().map(|name| item(name)).collect();
            axum::Json(json!({"items": items, "total": 300})).into_response()
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_names_steer_nothing() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move { axum::serve(listener, Router::new().fallback(answer)).await });
    let user = User::new();
    for (arguments, lines) in [
        (&["ls"][..], 301),
        (&["ls", "--json"], 300),
        (&["sessions"], 301),
        (&["sessions", "--json"], 300),
        (&["subscribers"], 301),
        (&["subscribers", "demo://a"], 301),
        (&["subscribers", "--json"], 300),
        (&["top", "-n", "300"], 909),
        (&["cluster", "status", "--json"], 1),
        (&["top", "--json"], 1),
        (&["why", "s1", "demo://a"], 1),
        (&["why", "s1", "demo://a", "--json"], 1),
        (&["get", "demo://a"], 0),
        (&["rm", "demo://a"], 0),
        (&["touch", "demo://a"], 0),
        (&["put", "demo://a"], 0),
    ] {
        let mut all = arguments.to_vec();
        all.extend(["--url", &url]);
        let ended = user.run(&all).await;
        assert_eq!(ended.code, i32::from(lines == 0), "{arguments:?}: {ended:?}");
        assert_eq!(ended.out.lines().count(), lines, "{arguments:?}");
        assert_tame(&(ended.out + &ended.err));
    }
    // Its text has several lines.
    let healthy = user.run(&["health", "--url", &url]).await.good();
    assert!(!healthy.contains(steers), "{healthy:?}");
}
