//! Slow and dead peers over real sockets: who stops reading is cut off when its time is up, and each client can read
//! why its session ended, in both eras of the protocol.

use std::time::Duration;

use serde_json::{Value, json};

use super::client::{Client, LEGACY, initialize, listen, modern_post, updates};
use super::events::{Events, updated_uri};
use super::http::{Read, Request, within};
use super::server::Server;

const A: &str = "demo://a";

/// Enough resources with names so long that their updates fill every buffer of a client that does not read.
fn many() -> Vec<String> {
    (0..100)
        .map(|number| format!("demo://many/{}/{number}", "x".repeat(400)))
        .collect()
}

async fn put_all(server: &Server, uris: &[String], round: usize) {
    for uri in uris {
        server.put(uri, &round.to_string()).await;
    }
}

/// The request for a listen stream on `uris` of a client whose kernel takes little.
fn stalling_listen(uris: &[String]) -> Request {
    let names: Vec<&str> = uris.iter().map(String::as_str).collect();
    let filter = json!({ "notifications": updates(&names) });
    modern_post(&json!("stalled"), "subscriptions/listen", filter).small_receive_buffer()
}

async fn session(server: &Server, id: &Value) -> Value {
    let path = format!("/v1/sessions/{}", id.as_str().expect("an id"));
    Request::new("GET", path).send(server.address).await.json()
}

/// Waits until the session has ended; answers how.
async fn ended(server: &Server, id: &Value) -> Value {
    within("the end of a session", async {
        loop {
            let found = session(server, id).await;
            if found["ended"].is_object() {
                return found["ended"].clone();
            }
            tokio::task::yield_now().await;
        }
    })
    .await
}

/// The id of the session with that many subscriptions.
async fn id_of(server: &Server, subscriptions: usize) -> Value {
    let sessions = server.sessions().await;
    let own = sessions.iter().find(|one| one["subscriptions"] == subscriptions);
    own.expect("its session")["id"].clone()
}

#[tokio::test]
async fn a_peer_that_stops_reading_with_full_buffers_is_cut_off_at_the_write_deadline() {
    let server = Server::with("[http]\nwrite_timeout = \"2s\"\n").await;
    let many = many();
    put_all(&server, &many, 0).await;
    server.put(A, "0").await;
    let stalled = stalling_listen(&many).open(server.address).await;
    let id = id_of(&server, many.len()).await;
    let (_, mut steady) = listen(server.address, &json!(1), updates(&[A])).await;

    let mut round = 0;
    let (mut before, mut most) = (0, 0);
    within("a peer that takes nothing is cut off", async {
        loop {
            round += 1;
            put_all(&server, &many, round).await;
            server.put(A, &round.to_string()).await;
            assert_eq!(steady.updated().await, A, "the others are told meanwhile");
            let found = session(&server, &id).await;
            if found["ended"].is_object() {
                assert_eq!(found["ended"]["reason"], "write_timeout", "{found}");
                return;
            }
            most = most.max(found["pending"]["entries"].as_u64().expect("a number"));
            if round == 3 {
                before = server.memory();
            }
        }
    })
    .await;
    assert!(most <= many.len() as u64, "{most} pending");
    let grown = server.memory().saturating_sub(before);
    assert!(grown < 8 << 20, "the server grew by {grown} bytes");
    assert!(round > 3, "{round} rounds: nothing was blocked");
    drop(stalled);
    server.assert_healthy().await;
}

#[tokio::test]
async fn a_peer_that_stops_reading_what_the_kernel_holds_is_cut_off_too() {
    let server = Server::with("[http]\nwrite_timeout = \"1s\"\n").await;
    let many = &many()[..40];
    put_all(&server, many, 0).await;
    let stalled = stalling_listen(many).open(server.address).await;
    let id = id_of(&server, many.len()).await;
    // About 20 kB: more than the client's kernel takes, less than ours holds, so nothing is refused to the service.
    put_all(&server, many, 1).await;
    let gone = ended(&server, &id).await;
    assert_eq!(
        (&gone["reason"], &gone["pending"]),
        (&json!("write_timeout"), &json!(0))
    );
    drop(stalled);
}

#[tokio::test]
async fn a_peer_that_reads_slowly_is_not_cut_off() {
    let server = Server::with("[http]\nwrite_timeout = \"2s\"\n").await;
    let many = many();
    put_all(&server, &many, 0).await;
    let mut slow = Events::new(stalling_listen(&many).open(server.address).await);
    for round in 1..=8 {
        put_all(&server, &many, round).await;
        while updated_uri(&slow.message().await) != Some(&many[99]) {}
    }
    assert_eq!(
        session(&server, &id_of(&server, many.len()).await).await["streams"],
        1
    );
}

#[tokio::test]
async fn a_stalled_session_ends_and_each_era_can_read_why() {
    let server = Server::with("[session]\nstall_timeout = \"1s\"\n").await;
    let many = many();
    put_all(&server, &many, 0).await;
    let old = Client::open(server.address, "2025-11-25").await;
    for uri in &many {
        old.subscribe(uri).await;
    }
    let request = old.with_headers(Request::stream().small_receive_buffer());
    let old_stream = request.open(server.address).await;
    let old_id = id_of(&server, many.len()).await;
    let names: Vec<String> = many[..99].to_vec();
    let mut new_stream = Events::new(stalling_listen(&names).open(server.address).await);
    let new_id = id_of(&server, names.len()).await;

    let mut round = 0;
    let mut gone = Vec::new();
    within("both are ended", async {
        while gone.len() < 2 {
            round += 1;
            put_all(&server, &many, round).await;
            gone.clear();
            for id in [&old_id, &new_id] {
                let found = session(&server, id).await;
                gone.extend(found["ended"]["reason"].as_str().map(str::to_owned));
            }
        }
    })
    .await;
    assert_eq!(gone, ["stalled", "stalled"]);
    let refused = old.request("ping", json!({})).await;
    let text = "session ended: it took nothing for 1s (session.stall_timeout); send initialize again";
    assert_eq!((refused.status, refused.error().1.as_str()), (404, text));
    let end = within("the end of a stream that was cut", async {
        loop {
            if let Err(end) = new_stream.event().await {
                return end;
            }
        }
    })
    .await;
    assert_eq!(end, Read::Cut, "nothing more could be written to it");
    drop(old_stream);
    let again = Client::open(server.address, "2025-11-25").await;
    again.subscribe(&many[0]).await;
}

#[tokio::test]
async fn an_operator_ends_sessions_and_each_era_can_read_it() {
    let server = Server::start().await;
    server.put(A, "1").await;
    let mut ends = Vec::new();
    for revision in LEGACY {
        let client = Client::open(server.address, revision).await;
        client.subscribe(A).await;
        let stream = client.stream().await;
        ends.push((client, stream));
    }
    let (_, mut listening) = listen(server.address, &json!("x"), updates(&[A])).await;
    for one in server.sessions().await {
        let path = format!("/v1/sessions/{}", one["id"].as_str().expect("an id"));
        let reply = Request::new("DELETE", path).send(server.address).await;
        assert_eq!(reply.status, 204);
    }
    for (client, mut stream) in ends {
        assert_eq!(
            last_comment(&mut stream).await.0,
            ": evicted: an operator ended it"
        );
        let refused = client.request("ping", json!({})).await;
        let text = "session ended: an operator ended it; send initialize again";
        assert_eq!((refused.status, refused.error().1.as_str()), (404, text));
    }
    let (comment, result) = last_comment(&mut listening).await;
    assert_eq!(comment, ": evicted: an operator ended it");
    assert_eq!(result.expect("a listen stream ends with its result")["id"], "x");
    server.until("all are gone", <[_]>::is_empty).await;
}

/// Reads to the end, which must be as the framing promises; answers the last comment and the last message.
async fn last_comment(stream: &mut Events) -> (String, Option<Value>) {
    let (mut comment, mut message) = (String::new(), None);
    loop {
        match stream.event().await {
            Ok(event) if event.is_comment() => event.text.trim().clone_into(&mut comment),
            Ok(event) => {
                // A comment may stand right before a message, in one piece of text.
                message = event.message.or(message);
            }
            Err(end) => {
                assert_eq!(end, Read::End);
                return (comment, message);
            }
        }
    }
}

#[tokio::test]
async fn sessions_that_are_old_enough_end_gracefully_one_by_one() {
    let server = Server::with("[session]\nage_max = \"2s\"\n").await;
    server.put(A, "1").await;
    let client = Client::open(server.address, "2025-06-18").await;
    client.subscribe(A).await;
    let mut stream = client.stream().await;
    let (_, mut listening) = listen(server.address, &json!(7), updates(&[A])).await;
    let expected = ": evicted: it reached the greatest age, 2s (session.age_max)";
    assert_eq!(last_comment(&mut stream).await.0, expected);
    let (comment, result) = last_comment(&mut listening).await;
    assert_eq!(
        (comment.as_str(), &result.expect("a result")["id"]),
        (expected, &json!(7))
    );
    let refused = client.request("ping", json!({})).await;
    assert_eq!(refused.status, 404);
    assert!(
        refused.error().1.contains("session.age_max"),
        "{}",
        refused.text()
    );
}

#[tokio::test]
async fn one_address_has_as_many_sessions_as_it_may_and_no_more() {
    let server = Server::with("[session]\nper_peer_max = 2\n").await;
    server.put(A, "1").await;
    let one = Client::open(server.address, "2025-11-25").await;
    let (_, listening) = listen(server.address, &json!(1), updates(&[A])).await;
    let opening = Request::post(initialize("2025-11-25").to_string());
    let refused = opening.send(server.address).await;
    assert_eq!((refused.status, refused.header("retry-after")), (429, Some("5")));
    assert!(
        refused.error().1.contains("session.per_peer_max"),
        "{}",
        refused.text()
    );
    let filter = json!({ "notifications": updates(&[A]) });
    let another = modern_post(&json!("x"), "subscriptions/listen", filter);
    let refused = another.send(server.address).await;
    assert_eq!((refused.status, &refused.json()["id"]), (429, &json!("x")));
    one.delete().await;
    let again = Client::open(server.address, "2025-11-25").await;
    drop(listening);
    within("a place", async {
        while another.open(server.address).await.status != 200 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    again.delete().await;
}
