//! Paths, methods, callers, health and limits.

use tidings::attach::{AttachOptions, Delivery, Health, Subscriber, SubscriberError};

use super::*;
use crate::support::until;

#[tokio::test]
async fn invalid_paths_are_refused_or_unknown() {
    let client = client();
    let long = format!("/v1/resources/demo%3A{}", "x".repeat(60_000));
    for path in [
        "/v1/resources/demo%3A%",
        "/v1/resources/%zz",
        "/v1/resources/demo%3A%ff",
        "/v1/resources/plain",
        "/v1/resources/demo%3Aa?x",
        &long,
    ] {
        for method in ["GET", "PUT", "DELETE", "POST"] {
            let answer = client.send(method, path, &[TEXT], "x").await;
            assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{method} {path}");
            assert!(answer.body.len() < 10_000);
        }
    }
    for path in [
        "/v1",
        "/v1/",
        "/v1/other",
        "/v1/resources/",
        "/v1/resources/demo://a",
        "/v1/resources/a%3Ab/other",
        "/v1/%ff",
    ] {
        for method in ["GET", "PUT", "PATCH"] {
            client.send(method, path, &[], "").await.problem(404);
        }
    }
    assert!(
        client
            .get("/v1/resources/demo://a")
            .await
            .problem(404)
            .contains("percent-encode")
    );
}

#[tokio::test]
async fn wrong_method_is_405_with_allowed_ones() {
    let client = client();
    for (method, path, allowed) in [
        ("PATCH", A.to_owned(), "GET,HEAD,PUT,POST,DELETE"),
        ("GET", format!("{A}/touch"), "POST"),
        ("DELETE", "/v1/resources".into(), "GET,HEAD,POST"),
        ("POST", "/v1/sessions".into(), "GET,HEAD"),
        ("OPTIONS", format!("{A}/subscribers"), "GET,HEAD"),
        ("POST", "/healthz".into(), "GET,HEAD"),
    ] {
        let answer = client.send(method, &path, &[], "").await;
        assert!(answer.problem(405).contains(method));
        assert_eq!(answer.header("allow"), Some(allowed), "{method} {path}");
    }
}

#[tokio::test]
async fn foreign_callers_are_refused_before_any_effect() {
    let client = client();
    for caller in [
        ("host", "evil.example"),
        ("host", "<none>"),
        ("origin", "https://evil.example"),
        ("origin", "null"),
    ] {
        for (method, path) in [
            ("PUT", A),
            ("GET", A),
            ("GET", "/v1/sessions"),
            ("PATCH", A),
            ("GET", "/v1/x"),
        ] {
            client.send(method, path, &[TEXT, caller], "x").await.problem(403);
        }
        assert_eq!(
            client.send("GET", "/healthz", &[caller], "").await.status,
            StatusCode::OK
        );
    }
    client.get(A).await.problem(404);
}

/// A subscriber whose far end is down.
struct Down;

impl Subscriber for Down {
    fn take(&mut self, _: &Delivery) -> Result<(), SubscriberError> {
        Err(SubscriberError::Again(
            "https://user:secret@far.example is down".into(),
        ))
    }
}

#[tokio::test]
async fn readiness_names_failing_sinks_without_errors() {
    let client = client();
    client.ready.store(true, Ordering::Release);
    let sink = client
        .bus
        .attach(AttachOptions::new("webhook/far"), || Ok(Down))
        .await
        .unwrap();
    client.put(A, "one").await;
    until("a failed delivery", async || {
        sink.info().health == Health::Failing
    })
    .await;
    let ready = client.get("/readyz").await;
    assert_eq!(ready.status, StatusCode::OK);
    assert_eq!(&ready.body[..], b"ok\nwarning: webhook/far is failing");
    assert_eq!(&client.get("/healthz").await.body[..], b"ok");
}

#[tokio::test]
async fn health_follows_bus_and_readiness_service() {
    let client = client();
    let alive = client.get("/healthz").await;
    assert_eq!((alive.status, &alive.body[..]), (StatusCode::OK, &b"ok"[..]));
    let starting = client.get("/readyz").await;
    starting.problem(503);
    assert_eq!(starting.header("retry-after"), Some("1"));
    client.ready.store(true, Ordering::Release);
    assert_eq!(client.get("/readyz").await.status, StatusCode::OK);

    client.bus.shutdown(Duration::ZERO).await;
    for (method, path) in [
        ("GET", "/healthz"),
        ("GET", "/readyz"),
        ("GET", A),
        ("PUT", A),
        ("DELETE", A),
        ("GET", "/v1/resources"),
        ("GET", "/v1/sessions"),
    ] {
        let answer = client.send(method, path, &[TEXT], "x").await;
        answer.problem(503);
        assert_eq!(answer.header("retry-after"), Some("1"), "{method} {path}");
    }
}

#[tokio::test]
async fn bus_limits_have_their_status() {
    let mut limits = Limits::default();
    limits.resources_max = 1;
    limits.body_bytes_max = 10;
    limits.shards = 1;
    let client = client_of(limits);
    client.put(A, "longer than ten").await.problem(413);
    client.put(A, "x").await;
    assert!(
        client
            .put("/v1/resources/demo%3Ab", "x")
            .await
            .problem(507)
            .contains("limit is 1")
    );
    let failing = Resource::lazy("demo://a", || async { Err("disk gone".into()) }).unwrap();
    client
        .bus
        .owned_by(tidings::Owner::Api)
        .update(failing)
        .await
        .unwrap();
    assert!(client.get(A).await.problem(502).contains("disk gone"));
}

#[tokio::test]
async fn router_merges_with_others() {
    let client = client();
    let other = Router::new()
        .route("/v1/events", axum::routing::get(|| async { "events" }))
        .fallback(|| async { "fallback" });
    let merged = Client {
        router: other.merge(client.router.clone()),
        ..client
    };
    assert_eq!(&merged.get("/v1/events").await.body[..], b"events");
    assert_eq!(&merged.get("/else").await.body[..], b"fallback");
    assert_eq!(merged.put(A, "x").await.status, StatusCode::CREATED);
    merged.get("/v1/else").await.problem(404);
}

#[tokio::test]
async fn unknown_method_is_refused() {
    let client = client();
    let method = Method::from_bytes(b"BREW").unwrap();
    client.send(method.as_str(), A, &[], "").await.problem(405);
}
