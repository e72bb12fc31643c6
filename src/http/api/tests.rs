//! The API as a client sees it, called in process.

use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::body::Body as HttpBody;
use axum::http::{HeaderMap, Method, Request as HttpRequest, StatusCode, header};
use bytes::Bytes;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tidings_actors::{
    Body, Limits, Resource, ResourceTemplate, ResourceUri, Session, SessionOptions, SubscriberKind, Variables,
};
use tower_service::Service;

use super::*;

/// A client of the API, and what stands behind it.
#[derive(Clone)]
struct Client {
    bus: Bus,
    ready: Arc<AtomicBool>,
    router: Router,
}

/// What came back.
struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

impl Answer {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    fn etag(&self) -> &str {
        self.header("etag").unwrap()
    }

    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    /// Asserts that it is a problem of that status, and answers its detail.
    fn problem(&self, status: u16) -> String {
        assert_eq!(self.status.as_u16(), status, "{:?}", self.body);
        assert_eq!(self.header("content-type"), Some("application/problem+json"));
        let problem = self.json();
        assert_eq!(problem["status"], status);
        assert!(
            problem["type"].as_str().unwrap().starts_with("/problems/"),
            "{problem}"
        );
        assert!(
            problem["instance"].as_str().unwrap().starts_with('/'),
            "{problem}"
        );
        assert!(!problem["title"].as_str().unwrap().is_empty());
        problem["detail"].as_str().unwrap().to_owned()
    }
}

fn client_of(limits: Limits) -> Client {
    let bus = Bus::builder().limits(limits).start().unwrap();
    let ready = Arc::new(AtomicBool::new(false));
    let router = router(bus.clone(), Access::default(), ready.clone());
    Client { bus, ready, router }
}

async fn subscribe(session: &Session) {
    let answers = session
        .subscribe(vec![ResourceUri::new("demo://a").unwrap()])
        .await
        .unwrap();
    assert!(answers.iter().all(Result::is_ok));
}

fn client() -> Client {
    let mut limits = Limits::default();
    limits.shards = 1;
    limits.body_bytes_max = 1000;
    client_of(limits)
}

const A: &str = "/v1/resources/demo%3A%2F%2Fa";
const TEXT: (&str, &str) = ("content-type", "text/plain");

impl Client {
    async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<HttpBody>,
    ) -> Answer {
        let mut request = HttpRequest::builder().method(method).uri(path);
        if !headers.iter().any(|(name, _)| *name == "host") {
            request = request.header(header::HOST, "localhost:8808");
        }
        for (name, value) in headers.iter().filter(|(_, value)| *value != "<none>") {
            request = request.header(*name, value.as_bytes());
        }
        let request = request.body(body.into()).unwrap();
        let response = self.router.clone().call(request).await.unwrap();
        let (parts, body) = response.into_parts();
        Answer {
            status: parts.status,
            headers: parts.headers,
            body: body.collect().await.unwrap().to_bytes(),
        }
    }

    async fn get(&self, path: &str) -> Answer {
        self.send("GET", path, &[], "").await
    }

    async fn put(&self, path: &str, body: &'static str) -> Answer {
        self.send("PUT", path, &[TEXT], body).await
    }
}

#[tokio::test]
async fn put_creates_replaces_and_leaves_unchanged() {
    let client = client();
    let created = client.put(A, "one").await;
    assert_eq!(created.status, StatusCode::CREATED);
    assert_eq!(created.header("location"), Some(A));
    assert_eq!(created.header("tidings-changed"), Some("true"));
    assert_eq!(created.header("tidings-told"), Some("0"));
    assert!(created.etag().starts_with("\"v1-") && created.body.is_empty());

    let same = client.put(A, "one").await;
    assert_eq!(
        (same.status, same.etag()),
        (StatusCode::NO_CONTENT, created.etag())
    );
    assert_eq!(same.header("tidings-changed"), Some("false"));

    let session = client
        .bus
        .open(SessionOptions::new(SubscriberKind::Local, "test"))
        .await
        .unwrap();
    subscribe(&session).await;
    let replaced = client.put(A, "two").await;
    assert_eq!(replaced.status, StatusCode::NO_CONTENT);
    assert!(replaced.etag().starts_with("\"v2-") && replaced.header("location").is_none());
    assert_eq!(replaced.header("tidings-told"), Some("1"));

    let read = client.get(A).await;
    assert_eq!(
        (read.status, &read.body[..], read.etag()),
        (StatusCode::OK, &b"two"[..], replaced.etag())
    );
    assert_eq!(read.header("content-type"), Some("text/plain"));
    assert_eq!(read.header("x-content-type-options"), Some("nosniff"));
}

#[tokio::test]
async fn head_has_the_headers_and_no_body() {
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
async fn an_unknown_resource_is_404_for_every_method() {
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
    // Whether it is there comes before what it must be.
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
async fn a_client_that_has_it_gets_304() {
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
async fn a_poll_does_not_run_a_lazy_reader() {
    let client = client();
    let runs = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = runs.clone();
    let reader = move || {
        counted.fetch_add(1, Ordering::Relaxed);
        async { Ok(Body::text("noon")) }
    };
    let outcome = client
        .bus
        .register(Resource::lazy("demo://a", reader).unwrap())
        .await
        .unwrap();
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
async fn writes_are_guarded_by_if_match() {
    let client = client();
    client
        .send("PUT", A, &[TEXT, ("if-match", "*")], "x")
        .await
        .problem(412);
    client
        .send("PUT", A, &[TEXT, ("if-match", "\"v1-1\"")], "x")
        .await
        .problem(412);
    client
        .send("POST", A, &[TEXT, ("if-match", "*")], "x")
        .await
        .problem(412);
    assert_eq!(client.get(A).await.status, StatusCode::NOT_FOUND);
    let first = client.put(A, "one").await.etag().to_owned();
    let second = client.send("PUT", A, &[TEXT, ("if-match", &first)], "two").await;
    assert_eq!(second.status, StatusCode::NO_CONTENT);
    let (second, touch) = (second.etag().to_owned(), format!("{A}/touch"));
    for (method, path) in [("PUT", A), ("DELETE", A), ("POST", &touch)] {
        for value in [first.clone(), format!("W/{second}")] {
            let answer = client
                .send(method, path, &[TEXT, ("if-match", &value)], "no")
                .await;
            let detail = answer.problem(412);
            assert!(
                detail.contains("demo://a") && detail.contains(&second),
                "{detail}"
            );
        }
        client
            .send(method, path, &[TEXT, ("if-match", "v1-1")], "no")
            .await
            .problem(400);
        client
            .send(method, path, &[TEXT, ("if-none-match", "*")], "no")
            .await
            .problem(412);
    }
    assert_eq!(
        (client.get(A).await.etag(), &client.get(A).await.body[..]),
        (&second[..], &b"two"[..])
    );
    let touched = client
        .send("POST", &touch, &[("if-match", &format!("{first}, {second}"))], "")
        .await;
    assert_eq!(touched.status, StatusCode::NO_CONTENT);
    let gone = client
        .send("DELETE", A, &[("if-match", touched.etag())], "")
        .await;
    assert_eq!(gone.status, StatusCode::NO_CONTENT);
    assert!(gone.etag().starts_with("\"v4-"), "{}", gone.etag());
}

#[tokio::test]
async fn if_none_match_star_and_post_only_create() {
    let client = client();
    let create = [TEXT, ("if-none-match", "*")];
    assert_eq!(
        client.send("PUT", A, &create, "one").await.status,
        StatusCode::CREATED
    );
    client.send("PUT", A, &create, "two").await.problem(412);
    assert!(
        client
            .send("POST", A, &[TEXT], "two")
            .await
            .problem(409)
            .contains("demo://a")
    );
    client.send("POST", A, &create, "two").await.problem(409);
    assert_eq!(&client.get(A).await.body[..], b"one");
    let b = "/v1/resources/demo%3A%2F%2Fb";
    let created = client.send("POST", b, &[TEXT], "one").await;
    assert_eq!(
        (created.status, created.header("location")),
        (StatusCode::CREATED, Some(b))
    );
}

#[tokio::test]
async fn touch_and_delete_answer_the_new_etag() {
    let client = client();
    client.put(A, "one").await;
    let touched = client.send("POST", &format!("{A}/touch"), &[], "").await;
    assert_eq!(touched.status, StatusCode::NO_CONTENT);
    assert!(touched.etag().starts_with("\"v2-") && touched.header("tidings-changed") == Some("true"));
    let gone = client.send("DELETE", A, &[], "").await;
    assert_eq!(gone.status, StatusCode::NO_CONTENT);
    assert!(gone.etag().starts_with("\"v3-"));
    client.get(A).await.problem(404);
    assert!(client.put(A, "one").await.etag().starts_with("\"v4-"));
}

#[tokio::test]
async fn members_of_a_template_are_read_and_touched_and_not_removed() {
    let client = client();
    let read = |_: ResourceUri, variables: Variables| async move {
        let known = variables.get("id").is_some_and(|id| id == "1");
        Ok(known.then(|| Body::text("member")))
    };
    client
        .bus
        .add_template(ResourceTemplate::new("demo://m/{id}", read).unwrap())
        .await
        .unwrap();
    let (one, two) = (
        "/v1/resources/demo%3A%2F%2Fm%2F1",
        "/v1/resources/demo%3A%2F%2Fm%2F2",
    );
    let etag = client.get(one).await.etag().to_owned();
    client.get(two).await.problem(404);
    client
        .send("DELETE", one, &[("if-match", &etag)], "")
        .await
        .problem(404);
    let touched = client
        .send("POST", &format!("{one}/touch"), &[("if-match", &etag)], "")
        .await;
    assert_eq!(touched.status, StatusCode::NO_CONTENT);
    client
        .send("PUT", one, &[TEXT, ("if-none-match", "*")], "x")
        .await
        .problem(412);
    let put = client
        .send("PUT", one, &[TEXT, ("if-match", touched.etag())], "x")
        .await;
    assert_eq!(
        (put.status, &client.get(one).await.body[..]),
        (StatusCode::CREATED, &b"x"[..])
    );
}

/// Each of many writers adds one to a number, many times, guarded by the etag it read: no addition is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn guarded_writers_lose_no_update() {
    const WRITERS: usize = 8;
    const EACH: usize = 25;
    let client = client();
    client.put(A, "0").await;
    let mut tasks = Vec::new();
    for _ in 0..WRITERS {
        let client = client.clone();
        tasks.push(tokio::spawn(async move {
            let (mut done, mut refused) = (0, 0);
            while done < EACH {
                let read = client.get(A).await;
                let number: usize = std::str::from_utf8(&read.body).unwrap().parse().unwrap();
                let next = (number + 1).to_string();
                let write = client
                    .send("PUT", A, &[TEXT, ("if-match", read.etag())], next)
                    .await;
                match write.status {
                    StatusCode::NO_CONTENT => done += 1,
                    StatusCode::PRECONDITION_FAILED => refused += 1,
                    other => panic!("{other}"),
                }
            }
            refused
        }));
    }
    let mut refused = 0;
    for task in tasks {
        refused += task.await.unwrap();
    }
    assert_eq!(
        &client.get(A).await.body[..],
        (WRITERS * EACH).to_string().as_bytes()
    );
    assert!(refused > 0, "the writers never met");
}

/// Many writers create the same resource at once: exactly one does.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_of_many_creators_wins() {
    let client = client();
    let mut tasks = Vec::new();
    for n in 0..16 {
        let client = client.clone();
        let create = [TEXT, ("if-none-match", "*")];
        tasks.push(tokio::spawn(async move {
            client.send("PUT", A, &create, n.to_string()).await.status
        }));
    }
    let mut created = 0;
    for task in tasks {
        match task.await.unwrap() {
            StatusCode::CREATED => created += 1,
            other => assert_eq!(other, StatusCode::PRECONDITION_FAILED),
        }
    }
    assert_eq!(created, 1);
}

#[tokio::test]
async fn bodies_that_cannot_be_taken_are_refused() {
    let client = client();
    for (headers, status, said) in [
        (
            &[("content-type", "text/plain; charset=latin1")][..],
            415,
            "latin1",
        ),
        (&[("content-type", "nonsense")], 415, "nonsense"),
        (&[("content-type", "")], 415, "type/subtype"),
        (&[TEXT, ("content-encoding", "gzip")], 415, "gzip"),
        (&[TEXT, ("content-range", "bytes 0-1/2")], 400, "content-range"),
        (&[TEXT, ("content-length", "1001")], 413, "1000"),
        (&[TEXT, ("tidings-title", "%zz")], 400, "tidings-title"),
        (&[TEXT, ("tidings-name", "%00")], 400, "control"),
        (&[TEXT, ("tidings-description", "%ff")], 400, "UTF-8"),
        (&[TEXT, ("tidings-subscribable", "no")], 400, "no"),
    ] {
        let detail = client.send("PUT", A, headers, "x").await.problem(status);
        assert!(detail.contains(said), "{detail}");
    }
    let not_text = client
        .send("PUT", A, &[TEXT], vec![b'o', b'k', 0xff])
        .await
        .problem(415);
    assert!(not_text.contains("byte 2"), "{not_text}");
    client
        .send("PUT", A, &[TEXT], vec![b'x'; 1001])
        .await
        .problem(413);
    let chunks = futures_util::stream::iter((0..11).map(|_| Ok::<_, std::io::Error>(vec![b'x'; 100])));
    client
        .send("PUT", A, &[TEXT], HttpBody::from_stream(chunks))
        .await
        .problem(413);
    let broken = futures_util::stream::iter([Err::<Bytes, _>(std::io::Error::other("cut"))]);
    assert!(
        client
            .send("PUT", A, &[TEXT], HttpBody::from_stream(broken))
            .await
            .problem(400)
            .contains("cut")
    );
    client.get(A).await.problem(404);
    let exact = client
        .send(
            "PUT",
            A,
            &[TEXT, ("content-encoding", "identity")],
            vec![b'x'; 1000],
        )
        .await;
    assert_eq!(exact.status, StatusCode::CREATED);
}

#[tokio::test]
async fn the_media_type_decides_between_text_and_bytes() {
    let client = client();
    for (media_type, text) in [
        ("text/markdown", true),
        ("application/json", true),
        ("image/svg+xml", true),
        ("application/x-thing; charset=UTF-8", true),
        ("image/png", false),
        ("<none>", false),
    ] {
        let answer = client.send("PUT", A, &[("content-type", media_type)], "x").await;
        assert!(answer.status.is_success());
        let body = client.bus.read("demo://a").await.unwrap().body;
        assert_eq!(body.as_text().is_some(), text, "{media_type}");
        let expected = if media_type == "<none>" {
            "application/octet-stream"
        } else {
            media_type
        };
        assert_eq!(client.get(A).await.header("content-type"), Some(expected));
    }
}

#[tokio::test]
async fn the_list_has_what_headers_said() {
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

async fn open(client: &Client) -> Session {
    let options = SessionOptions::new(SubscriberKind::Local, "test label");
    client.bus.open(options).await.unwrap()
}

#[tokio::test]
async fn a_session_is_asked_why_it_was_not_told() {
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
    let verdict = async |uri: &str| ask(uri).await["verdict"].as_str().unwrap().to_owned();
    assert_eq!(ask("demo://a").await["text"], "not subscribed to it");
    let denied = ask("demo://hidden").await;
    assert_eq!(denied["verdict"], "denied");
    assert!(
        denied["text"].as_str().unwrap().contains("demo://hidden"),
        "{denied}"
    );
    assert_eq!(verdict("demo://nowhere").await, "denied");

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
async fn sessions_are_refused_by_what_is_wrong_with_the_question() {
    let client = client();
    for (path, status, says) in [
        ("/v1/sessions/s99", 404, "no session s99"),
        ("/v1/sessions/99", 400, "such as s12"),
        ("/v1/sessions?limit=0", 400, "from 1 to 1000"),
        ("/v1/sessions?after=x", 400, "takes uri and limit"),
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
async fn only_the_slowest_are_shown_and_all_are_counted() {
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
async fn what_waits_is_named_up_to_a_bound_and_the_rest_is_counted() {
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
async fn sessions_and_subscribers_are_shown() {
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

#[tokio::test]
async fn weird_paths_are_refused_or_unknown() {
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
async fn another_method_is_405_with_those_that_are_allowed() {
    let client = client();
    for (method, path, allowed) in [
        ("PATCH", A.to_owned(), "GET,HEAD,PUT,POST,DELETE"),
        ("GET", format!("{A}/touch"), "POST"),
        ("DELETE", "/v1/resources".into(), "GET,HEAD"),
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
async fn strangers_are_refused_before_anything_is_done() {
    let client = client();
    for stranger in [
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
            client
                .send(method, path, &[TEXT, stranger], "x")
                .await
                .problem(403);
        }
        assert_eq!(
            client.send("GET", "/healthz", &[stranger], "").await.status,
            StatusCode::OK
        );
    }
    client.get(A).await.problem(404);
}

#[tokio::test]
async fn health_follows_the_bus_and_readiness_the_service() {
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
async fn limits_of_the_bus_have_their_status() {
    let mut limits = Limits::default();
    (limits.resources_max, limits.body_bytes_max, limits.shards) = (1, 10, 1);
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
    client.bus.update(failing).await.unwrap();
    assert!(client.get(A).await.problem(502).contains("disk gone"));
}

#[tokio::test]
async fn the_router_can_be_merged_with_others() {
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
async fn a_method_nobody_knows_does_no_harm() {
    let client = client();
    let method = Method::from_bytes(b"BREW").unwrap();
    client.send(method.as_str(), A, &[], "").await.problem(405);
}
