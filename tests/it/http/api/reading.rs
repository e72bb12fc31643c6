//! Resources are read, polled and listed.

use super::*;

#[tokio::test]
async fn head_has_headers_and_no_body() {
    let client = client();
    client.put(A, "hello").await;
    let head = client.send("HEAD", A, &[], "").await;
    assert_eq!((head.status, head.body.len()), (StatusCode::OK, 0));
    assert_eq!(head.header("content-length"), Some("5"));
    assert_eq!(head.etag(), client.get(A).await.etag());
    let missing = client.send("HEAD", "/v1/resources/demo%3Anone", &[], "").await;
    assert_eq!((missing.status, missing.body.len()), (StatusCode::NOT_FOUND, 0));
}

#[tokio::test]
async fn unknown_resource_is_404_for_every_method() {
    let client = client();
    for (method, path) in [
        ("GET", A.to_owned()),
        ("DELETE", A.to_owned()),
        ("POST", format!("{A}/touch")),
        ("GET", format!("{A}/subscribers")),
    ] {
        for headers in [&[][..], &[("if-none-match", "\"v1-1\"")]] {
            let detail = client.send(method, &path, headers, "").await.problem(404);
            assert!(detail.contains("demo://a"), "{detail}");
        }
    }
    // A missing resource is 404 before any precondition is evaluated.
    client
        .send("DELETE", A, &[("if-match", "*")], "")
        .await
        .problem(404);
    client
        .send("POST", &format!("{A}/touch"), &[("if-match", "*")], "")
        .await
        .problem(404);
}

#[tokio::test]
async fn matching_if_none_match_gets_304() {
    let client = client();
    let etag = client.put(A, "one").await.etag().to_owned();
    let opaque = etag.trim_matches('"');
    for value in [
        etag.clone(),
        format!("W/{etag}"),
        format!("\"x\", {etag}"),
        "*".into(),
    ] {
        let answer = client.send("GET", A, &[("if-none-match", &value)], "").await;
        assert_eq!(
            (answer.status, answer.body.len()),
            (StatusCode::NOT_MODIFIED, 0),
            "{value}"
        );
        assert_eq!(answer.etag(), etag);
    }
    for value in ["\"v9-9\"".to_owned(), format!("\"{opaque},\"")] {
        let answer = client.send("GET", A, &[("if-none-match", &value)], "").await;
        assert_eq!(answer.status, StatusCode::OK, "{value}");
    }
    let answer = client.send("GET", A, &[("if-match", &etag)], "").await;
    assert_eq!(answer.status, StatusCode::OK);
    client
        .send("GET", A, &[("if-match", "\"v9-9\"")], "")
        .await
        .problem(412);
    client
        .send("GET", A, &[("if-none-match", opaque)], "")
        .await
        .problem(400);
}

#[tokio::test]
async fn poll_does_not_run_lazy_reader() {
    let client = client();
    let runs = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = runs.clone();
    let lazy = Resource::lazy("demo://a", move || {
        counted.fetch_add(1, Ordering::Relaxed);
        async { Ok(Body::text("noon")) }
    });
    let outcome = client.bus.register(lazy.unwrap()).await.unwrap();
    let etag = format!("\"{}\"", outcome.etag);
    let answer = client.send("GET", A, &[("if-none-match", &etag)], "").await;
    assert_eq!(
        (answer.status, runs.load(Ordering::Relaxed)),
        (StatusCode::NOT_MODIFIED, 0)
    );
    assert_eq!(&client.get(A).await.body[..], b"noon");
    assert_eq!(
        client.get(A).await.header("content-type"),
        Some("text/plain; charset=utf-8")
    );
}

#[tokio::test]
async fn list_shows_descriptions_from_headers() {
    let client = client();
    let described = [
        TEXT,
        ("tidings-name", "alpha"),
        ("tidings-title", "Gr%C3%BC%C3%9Fe 100%25"),
        ("tidings-description", "two%0Alines"),
        ("tidings-subscribable", "false"),
    ];
    let etag = client
        .send("PUT", A, &described, "x")
        .await
        .etag()
        .trim_matches('"')
        .to_owned();
    client
        .send("PUT", "/v1/resources/demo%3A%2F%2Fb%252F", &[], "x")
        .await;
    client.put("/v1/resources/demo%3A%2F%2Fc", "x").await;
    let page = client.get("/v1/resources?limit=2").await.json();
    let first = json!({
        "uri": "demo://a", "name": "alpha", "title": "Grüße 100%", "description": "two\nlines",
        "mediaType": "text/plain", "subscribable": false, "etag": etag,
        "subscribers": 0, "changed": page["items"][0]["changed"], "bytes": 1,
    });
    assert_eq!(page["items"][0], first);
    assert_eq!(page["items"][1]["uri"], "demo://b%2F");
    assert_eq!(page["items"][1]["mediaType"], "application/octet-stream");
    assert!(page["items"][1].get("title").is_none());
    assert_eq!(page["next"], "demo://b%2F");
    let rest = client
        .get("/v1/resources?after=demo%3A%2F%2Fb%252F&limit=2")
        .await
        .json();
    assert_eq!(
        (rest["items"].as_array().unwrap().len(), &rest["items"][0]["uri"]),
        (1, &json!("demo://c"))
    );
    assert!(rest.get("next").is_none());
    for query in [
        "limit=0",
        "limit=1001",
        "limit=x",
        "limit=-1",
        "limit=99999999999999999999",
        "other=1",
        "limit=1&limit=2",
    ] {
        let detail = client.get(&format!("/v1/resources?{query}")).await.problem(400);
        assert!(detail.contains("limit"), "{detail}");
    }
    assert_eq!(
        client.get("/v1/resources?after=&limit=").await.json()["items"]
            .as_array()
            .unwrap()
            .len(),
        3
    );
}

#[tokio::test]
async fn reader_that_hangs_is_answered_504() {
    let mut client = client();
    let api = Api::new(client.bus.clone(), Access::default(), client.ready.clone());
    let api = api.handler_timeout(Some(Duration::from_millis(20)));
    client.router = Router::new()
        .route_service("/v1/resources", api.clone())
        .route_service("/v1/{*rest}", api);
    let hanging = Resource::lazy("demo://a", std::future::pending).unwrap();
    client.bus.register(hanging).await.unwrap();
    let hanging = ResourceTemplate::new("users://{id}", |_: ResourceUri, _: Variables| {
        std::future::pending()
    });
    client.bus.add_template(hanging.unwrap()).await.unwrap();
    let detail = client.get(A).await.problem(504);
    assert!(detail.contains("mcp.handler_timeout"), "{detail}");
    let member = "/v1/resources/users%3A%2F%2F1";
    client.get(member).await.problem(504);
    // Whether a guarded write may be made is the reader's to tell.
    let guard = ("if-match", "\"v1-1\"");
    client.send("PUT", member, &[TEXT, guard], "x").await.problem(504);
    let lines = ("content-type", "application/x-ndjson");
    let line = r#"{"touch":"users://1","ifMatch":"v1-1"}"#;
    client
        .send("POST", "/v1/resources", &[lines], line)
        .await
        .problem(504);
}
