//! Batches: many changes in one request, each with an answer of its own.

use super::*;

const LINES: (&str, &str) = ("content-type", "application/x-ndjson");

impl Client {
    /// Sends a batch and returns the answers.
    async fn batch(&self, lines: &[Value]) -> Vec<Value> {
        let lines: Vec<String> = lines.iter().map(Value::to_string).collect();
        self.batch_text(lines.join("\n")).await
    }

    async fn batch_text(&self, text: String) -> Vec<Value> {
        let answer = self.send("POST", "/v1/resources", &[LINES], text).await;
        assert_eq!(answer.status, StatusCode::OK, "{:?}", answer.body);
        assert_eq!(answer.header("content-type"), Some(LINES.1));
        let lines = answer.body.split(|byte| *byte == b'\n');
        lines
            .filter(|line| !line.is_empty())
            .map(|line| serde_json::from_slice(line).unwrap())
            .collect()
    }
}

fn put(uri: &str, text: &str) -> Value {
    json!({ "put": uri, "text": text })
}

/// The status of each answer.
fn statuses(answers: &[Value]) -> Vec<u64> {
    answers
        .iter()
        .map(|answer| answer["status"].as_u64().unwrap())
        .collect()
}

#[tokio::test]
async fn lines_are_answered_in_order() {
    let client = client();
    client.put(A, "old").await;
    let answers = client
        .batch(&[
            put("demo://b", "1"),
            put("demo://a", "new"),
            put("demo://a", "new"),
            json!({ "touch": "demo://b" }),
            json!({ "remove": "demo://b" }),
            json!({ "remove": "demo://b" }),
            json!({ "touch": "demo://c" }),
        ])
        .await;
    assert_eq!(statuses(&answers), [201, 204, 204, 204, 204, 404, 404]);
    let uris: Vec<&str> = answers
        .iter()
        .map(|answer| answer["uri"].as_str().unwrap())
        .collect();
    let expected = ["b", "a", "a", "b", "b", "b", "c"].map(|name| format!("demo://{name}"));
    assert_eq!(uris, expected);
    let changed: Vec<_> = answers[..5]
        .iter()
        .map(|answer| answer["changed"] == true)
        .collect();
    assert_eq!(changed, [true, true, false, true, true]);
    assert!(answers[3]["etag"].as_str().unwrap().starts_with("v2-"));
    assert!(answers[5]["error"].as_str().unwrap().contains("demo://b"));
    // The etags are those of single requests.
    let read = client.get(A).await;
    assert_eq!(read.etag().trim_matches('"'), answers[1]["etag"]);
    assert_eq!(read.body, "new");
}

#[tokio::test]
async fn put_of_a_line_equals_single_put() {
    let client = client();
    let single = client
        .send(
            "PUT",
            A,
            &[("content-type", "text/markdown"), ("tidings-title", "T%20%C3%BC")],
            "body",
        )
        .await;
    let line = json!({ "put": "demo://a", "text": "body", "mediaType": "text/markdown", "title": "T ü" });
    let answers = client.batch(std::slice::from_ref(&line)).await;
    assert_eq!(answers[0]["changed"], false, "{answers:?}");
    assert_eq!(answers[0]["etag"], single.etag().trim_matches('"'));
    let mut other = line;
    other["title"] = "U".into();
    assert_eq!(client.batch(&[other]).await[0]["changed"], true);
}

#[tokio::test]
async fn bad_line_does_not_hide_the_others() {
    let client = client();
    let text = format!(
        "{}\n\n{{\"put\":\n{}\r\n[1]\n{}\n",
        put("demo://a", "1"),
        json!({ "put": "demo://b", "text": 7 }),
        put("demo://c", "1"),
    );
    let answers = client.batch_text(text).await;
    assert_eq!(statuses(&answers), [201, 400, 400, 400, 201]);
    let errors: Vec<&str> = answers[1..4]
        .iter()
        .map(|answer| answer["error"].as_str().unwrap())
        .collect();
    assert!(errors[0].starts_with("line 3 is no JSON"), "{errors:?}");
    assert!(errors[1].starts_with("line 4 has text"), "{errors:?}");
    assert!(errors[2].starts_with("line 5 is no JSON object"), "{errors:?}");
    assert_eq!(answers[1]["uri"], Value::Null);
    // A body beyond its limit is a refusal of its line alone.
    let long = put("demo://d", &"x".repeat(1_001));
    let answers = client.batch(&[long, put("demo://e", "1")]).await;
    assert_eq!(statuses(&answers), [413, 201]);
    assert_eq!(client.batch_text("\n \n".into()).await, [Value::Null; 0]);
}

#[tokio::test]
async fn conditions_hold_for_their_line() {
    let client = client();
    let etag = client.put(A, "1").await.etag().trim_matches('"').to_owned();
    let mut first = put("demo://a", "2");
    first["ifMatch"] = etag.as_str().into();
    let mut second = put("demo://a", "3");
    second["ifMatch"] = format!("\"{etag}\"").into();
    let mut new = put("demo://b", "1");
    new["ifNoneMatch"] = "*".into();
    let remove = json!({ "remove": "demo://a", "ifMatch": "v9-9" });
    let answers = client.batch(&[first, second, new.clone(), new, remove]).await;
    assert_eq!(statuses(&answers), [204, 412, 201, 412, 412]);
    let error = answers[1]["error"].as_str().unwrap();
    assert!(error.contains("If-Match does not name"), "{error}");
    assert_eq!(client.get(A).await.body, "2");
}

#[tokio::test]
async fn refused_condition_names_the_version_of_its_line() {
    let client = client();
    let old = client.put(A, "1").await.etag().trim_matches('"').to_owned();
    let create = |uri: &str| json!({ "put": uri, "text": "x", "ifNoneMatch": "*" });
    let guarded = |uri: &str| json!({ "remove": uri, "ifMatch": "v9-9" });
    let answers = client
        .batch(&[
            guarded("demo://a"),
            put("demo://a", "2"),
            create("demo://a"),
            put("demo://a", "3"),
            put("demo://b", "1"),
            guarded("demo://b"),
            json!({ "remove": "demo://b" }),
            json!({ "put": "demo://b", "text": "2", "ifMatch": "*" }),
            create("demo://b"),
            create("demo://b"),
        ])
        .await;
    assert_eq!(
        statuses(&answers),
        [412, 204, 412, 204, 201, 412, 204, 412, 201, 412]
    );
    let etag = |line: usize| answers[line]["etag"].as_str().unwrap();
    for (line, expected) in [
        (0, format!("demo://a is at \"{old}\", which If-Match")),
        (2, format!("demo://a is at \"{}\", which If-None-Match", etag(1))),
        (5, format!("demo://b is at \"{}\", which If-Match", etag(4))),
        (7, "demo://b does not exist, which If-Match".to_owned()),
        (9, format!("demo://b is at \"{}\", which If-None-Match", etag(8))),
    ] {
        let error = answers[line]["error"].as_str().unwrap();
        assert!(error.starts_with(&expected), "line {line}: {error}");
    }
}

#[tokio::test]
async fn condition_may_name_member_of_template() {
    let client = client();
    let template = ResourceTemplate::new("users://{id}", |uri: ResourceUri, _: Variables| async move {
        Ok((uri.as_str() == "users://1").then(|| Body::text("one")))
    });
    client.bus.add_template(template.unwrap()).await.unwrap();
    let etag = client.bus.etag("users://1").await.unwrap().to_string();
    let lines = [
        ("users://1", etag.as_str()),
        ("users://2", "*"),
        ("users://1", "v9-9"),
    ];
    let lines = lines.map(|(uri, etag)| json!({ "touch": uri, "ifMatch": etag }));
    let answers = client.batch(&lines).await;
    assert_eq!(statuses(&answers), [204, 404, 412]);
    let error = answers[2]["error"].as_str().unwrap();
    assert!(error.contains(answers[0]["etag"].as_str().unwrap()), "{error}");
}

#[tokio::test]
async fn too_long_batch_is_refused_as_a_whole() {
    let mut limits = Limits::default();
    limits.shards = 1;
    limits.batch_max = 3;
    let client = client_of(limits);
    let lines: Vec<Value> = (0..4).map(|n| put(&format!("demo://{n}"), "x")).collect();
    let text = lines.iter().map(Value::to_string).collect::<Vec<_>>().join("\n");
    let refused = client.send("POST", "/v1/resources", &[LINES], text).await;
    assert_eq!(refused.json()["linesMax"], 3);
    let detail = refused.problem(413);
    assert!(detail.contains("raise http.batch_max"), "{detail}");
    assert_eq!(client.bus.stats().await.unwrap().resources, 0);
    assert_eq!(statuses(&client.batch(&lines[..3]).await), [201; 3]);
    let large = "x".repeat(5 << 20);
    let refused = client.send("POST", "/v1/resources", &[LINES], large).await;
    assert!(refused.problem(413).contains("raise http.body_bytes_max"));
}

#[tokio::test]
async fn other_requests_to_the_list_are_no_batch() {
    let client = client();
    let line = put("demo://a", "1").to_string();
    for (headers, path, status, part) in [
        (&[TEXT][..], "/v1/resources", 415, "application/x-ndjson"),
        (&[], "/v1/resources", 415, "application/x-ndjson"),
        (&[LINES][..], "/v1/resources?x=1", 400, "no query"),
        (&[LINES, ("if-match", "*")][..], "/v1/resources", 400, "ifMatch"),
    ] {
        let answer = client.send("POST", path, headers, line.clone()).await;
        let detail = answer.problem(status);
        assert!(detail.contains(part), "{detail}");
    }
    let charset = [("content-type", "Application/X-NDJSON; charset=utf-8")];
    let answer = client.send("POST", "/v1/resources", &charset, line).await;
    assert_eq!(answer.status, StatusCode::OK);
}

#[tokio::test]
async fn batch_changes_the_list_once() {
    let client = client();
    let before = client.bus.stats().await.unwrap().list_changes;
    let lines: Vec<Value> = (0..200).map(|n| put(&format!("demo://{n}"), "x")).collect();
    assert_eq!(statuses(&client.batch(&lines).await), [201; 200]);
    assert_eq!(client.bus.stats().await.unwrap().list_changes, before + 1);
}
