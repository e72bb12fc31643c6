//! Sessions are listed, explained and ended.

use super::*;

async fn open(client: &Client) -> Session {
    let options = SessionOptions::new(SubscriberKind::Local, "test label");
    client.bus.open(options).await.unwrap()
}

#[tokio::test]
async fn session_explains_missing_notice() {
    let client = client();
    let mut hidden = Resource::text("demo://hidden", "x").unwrap();
    hidden = hidden.subscribable(false);
    client.bus.register(hidden).await.unwrap();
    client.put(A, "one").await;
    client.put("/v1/resources/demo%3A%2F%2Fb", "one").await;
    let session = open(&client).await;
    let path = format!("/v1/sessions/{}", session.id());
    let ask = async |uri: &str| {
        let uri = uri.replace(':', "%3A").replace('/', "%2F");
        client.get(&format!("{path}?uri={uri}")).await.json()["explanation"].clone()
    };
    assert_eq!(ask("demo://a").await["text"], "not subscribed to it");
    let denied = ask("demo://hidden").await;
    assert_eq!(denied["verdict"], "denied");
    assert!(
        denied["text"].as_str().unwrap().contains("demo://hidden"),
        "{denied}"
    );
    assert_eq!(ask("demo://nowhere").await["verdict"], "denied");

    subscribe(&session).await;
    let unchanged = ask("demo://a").await;
    assert_eq!(
        unchanged["text"],
        "subscribed at version 1; it has not changed since"
    );
    let etag = client.put(A, "two").await.etag().trim_matches('"').to_owned();
    let pending = ask("demo://a").await;
    assert_eq!(
        (&pending["verdict"], &pending["etag"]),
        (&json!("pending"), &json!(etag))
    );
    let text = pending["text"].as_str().unwrap();
    assert!(text.starts_with("version 2 is pending, changed "), "{text}");
    assert!(text.ends_with("; it never opened a stream"), "{text}");
    let mut reader = session.reader();
    let mut entries = Vec::new();
    reader.drain(&mut entries).await;
    let told = ask("demo://a").await;
    let position = told["position"].as_str().unwrap();
    assert_eq!(
        told["text"],
        format!("told version 2 ({etag}) at position {position}")
    );
    drop(reader);
    client.put(A, "three").await;
    let text = ask("demo://a").await["text"].as_str().unwrap().to_owned();
    assert!(text.ends_with("; it has no stream open"), "{text}");

    assert_eq!(
        client.send("DELETE", &path, &[], "").await.status,
        StatusCode::NO_CONTENT
    );
    let ended = loop {
        let answer = client.get(&format!("{path}?uri=demo%3A%2F%2Fa")).await.json();
        if answer.get("ended").is_some() {
            break answer;
        }
        tokio::task::yield_now().await;
    };
    assert_eq!(
        (
            &ended["ended"]["reason"],
            &ended["ended"]["pending"],
            &ended["explanation"]["verdict"]
        ),
        (&json!("evicted"), &json!(1), &json!("ended")),
    );
    let text = ended["explanation"]["text"].as_str().unwrap();
    assert!(text.ends_with("ago (evicted) with 1 entries pending"), "{text}");
    let detail = client.send("DELETE", &path, &[], "").await.problem(404);
    assert_eq!(detail, format!("{} has ended already: evicted", session.id()));
}

#[tokio::test]
async fn invalid_session_queries_are_refused() {
    let client = client();
    for (path, status, says) in [
        ("/v1/sessions/s99", 404, "no session s99"),
        ("/v1/sessions/99", 400, "such as s12"),
        ("/v1/sessions?limit=0", 400, "from 1 to 1000"),
        ("/v1/sessions?after=x", 400, "takes uri, q, stalled and limit"),
        ("/v1/sessions?uri=nothing", 400, "nothing"),
        ("/v1/sessions/s1?limit=1", 400, "takes uri"),
    ] {
        let detail = client.get(path).await.problem(status);
        assert!(detail.contains(says), "{path}: {detail}");
    }
    assert!(
        client
            .send("DELETE", "/v1/sessions/s99", &[], "")
            .await
            .problem(404)
            .contains("s99")
    );
}

#[tokio::test]
async fn slowest_sessions_come_first() {
    let client = client();
    client.put(A, "one").await;
    let mut sessions = Vec::new();
    for _ in 0..5 {
        sessions.push(open(&client).await);
    }
    subscribe(&sessions[3]).await;
    client.put(A, "two").await;
    let shown = client.get("/v1/sessions?limit=2").await.json();
    assert_eq!(shown["total"], 5);
    let ids: Vec<_> = shown["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item["id"].as_str().unwrap())
        .collect();
    let expected = [&sessions[3], &sessions[0]].map(|session| session.id().to_string());
    assert_eq!(ids, expected, "who waits comes first, then the oldest");
    let of_a = client.get("/v1/sessions?uri=demo%3A%2F%2Fa").await.json();
    assert_eq!(
        (&of_a["total"], &of_a["items"][0]["id"]),
        (&json!(1), &json!(expected[0]))
    );
}

#[tokio::test]
async fn pending_uris_are_listed_up_to_a_bound() {
    let client = client();
    let uris: Vec<_> = (0..40)
        .map(|n| ResourceUri::new(&format!("demo://{n:02}")).unwrap())
        .collect();
    let session = open(&client).await;
    for uri in &uris {
        client
            .bus
            .upsert(Resource::text(uri.clone(), "one").unwrap())
            .await
            .unwrap();
    }
    session.subscribe(uris.clone()).await.unwrap();
    for uri in &uris {
        client
            .bus
            .upsert(Resource::text(uri.clone(), "two").unwrap())
            .await
            .unwrap();
    }
    let item = client.get("/v1/sessions").await.json()["items"][0].clone();
    let pending = &item["pending"];
    assert_eq!(
        (&pending["entries"], &pending["urisMore"]),
        (&json!(40), &json!(8))
    );
    assert_eq!(pending["uris"].as_array().unwrap().len(), 32);
    assert_eq!(
        (
            &item["progress"]["stalled"],
            &item["progress"]["told"],
            &item["progress"]["conflated"]
        ),
        (&json!(false), &json!(0), &json!(0))
    );
}

#[tokio::test]
async fn sessions_and_subscribers_are_listed() {
    let client = client();
    client.put(A, "one").await;
    let session = client
        .bus
        .open(SessionOptions::new(SubscriberKind::Local, "test label"))
        .await
        .unwrap();
    subscribe(&session).await;
    client.put(A, "two").await;
    for path in ["/v1/sessions", &format!("{A}/subscribers")] {
        let shown = client.get(path).await.json();
        let item = &shown["items"][0];
        assert_eq!(
            (&item["kind"], &item["label"]),
            (&json!("local"), &json!("test label")),
            "{shown}"
        );
        assert_eq!(
            (&item["revision"], &item["transport"]),
            (&json!("none"), &json!("local"))
        );
        assert_eq!((&item["subscriptions"], &item["streams"]), (&json!(1), &json!(0)));
        assert_eq!(
            (&item["pending"]["uris"], &item["pending"]["entries"]),
            (&json!(["demo://a"]), &json!(1))
        );
        assert!(item["pending"]["oldestMs"].is_u64());
    }
    client.put("/v1/resources/demo%3A%2F%2Fb", "x").await;
    let nobody = client.get("/v1/resources/demo%3A%2F%2Fb/subscribers").await;
    assert_eq!(
        (nobody.status, nobody.json()),
        (StatusCode::OK, json!({"items": [], "total": 0}))
    );
    client.send("DELETE", A, &[], "").await;
    assert_eq!(
        client.get(&format!("{A}/subscribers")).await.json()["items"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
}
