//! Resources are created, replaced, touched and removed, under preconditions.

use super::*;

#[tokio::test]
async fn put_creates_replaces_or_changes_nothing() {
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
async fn stale_if_match_refuses_every_write() {
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
    let second = second.etag().to_owned();
    let touch = format!("{A}/touch");
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
async fn if_match_protects_a_description() {
    let client = client();
    let etag = client.put(A, "one").await.etag().to_owned();
    let guarded = [TEXT, ("if-match", &etag), ("tidings-title", "First")];
    let first = client.send("PUT", A, &guarded, "one").await;
    assert_eq!(first.header("tidings-changed"), Some("true"));
    assert!(first.etag().starts_with("\"v2-"), "{}", first.etag());
    let second = [TEXT, ("if-match", &etag), ("tidings-title", "Second")];
    client.send("PUT", A, &second, "two").await.problem(412);
    assert_eq!(client.get(A).await.etag(), first.etag());
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
async fn every_write_names_another_owner() {
    let client = client();
    let folder = client.bus.owned_by(Owner::Workspace);
    folder
        .register(Resource::text("demo://a", "file").unwrap())
        .await
        .unwrap();
    let touch = format!("{A}/touch");
    let none = ("if-none-match", "*");
    for (method, path, headers) in [
        ("PUT", A, &[TEXT][..]),
        ("POST", A, &[TEXT]),
        ("POST", A, &[TEXT, none]),
        ("DELETE", A, &[]),
        ("POST", &touch, &[]),
    ] {
        let detail = client.send(method, path, headers, "mine").await.problem(409);
        assert!(detail.contains("belongs to workspace"), "{method} {detail}");
    }
    assert_eq!(client.get(A).await.body, "file");
}

#[tokio::test]
async fn touch_and_delete_return_new_etag() {
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
async fn template_members_are_not_removed() {
    let client = client();
    let template = ResourceTemplate::new(
        "demo://m/{id}",
        |_: ResourceUri, variables: Variables| async move {
            let is_known = matches!(variables.get("id"), Some(id) if id == "1");
            Ok(is_known.then(|| Body::text("member")))
        },
    );
    client.bus.add_template(template.unwrap()).await.unwrap();
    let one = "/v1/resources/demo%3A%2F%2Fm%2F1";
    let two = "/v1/resources/demo%3A%2F%2Fm%2F2";
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
            let mut done = 0;
            let mut refused = 0;
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
async fn unacceptable_bodies_are_refused() {
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
    let too_long = client
        .send("PUT", A, &[TEXT], vec![b'x'; 1001])
        .await
        .problem(413);
    assert!(too_long.contains("bus.body_bytes_max"), "{too_long}");
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
async fn media_type_decides_between_text_and_bytes() {
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
