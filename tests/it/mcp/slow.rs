//! Slow and dead peers over real sockets: a peer that stops reading is cut off when its time is up, and each
//! client can read why its session ended, in both eras of the protocol.

use std::time::Duration;

use serde_json::{Value, json};
use tidings::mcp::{McpOptions, serve_stdio};
use tidings::{Bus, Limits, Resource};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::client::{Client, LEGACY, initialize, listen, listen_request, updates};
use super::events::Events;
use super::http::{Read, Request, within};
use super::server::Server;

const A: &str = "demo://a";

/// Enough resources with names so long that their updates fill every buffer of a client that does not read.
fn many() -> Vec<String> {
    (0..60)
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
    listen_request(&json!("stalled"), updates(&names)).small_receive_buffer()
}

async fn session(server: &Server, id: &Value) -> Value {
    let path = format!("/v1/sessions/{}", id.as_str().expect("an id"));
    Request::new("GET", path).send(server.address).await.json()
}

/// Waits until the session has ended; returns how.
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
async fn blocked_peer_is_cut_off_at_write_deadline() {
    let server = Server::with("[http]\nwrite_timeout = \"3s\"\n").await;
    let many = many();
    put_all(&server, &many, 0).await;
    server.put(A, "0").await;
    let stalled = stalling_listen(&many).open(server.address).await;
    let id = id_of(&server, many.len()).await;
    let (_, mut steady) = listen(server.address, &json!(1), updates(&[A])).await;

    // The other stream gets every update until the blocked one is cut off.
    let mut round = 0;
    let mut before = None;
    let mut most = 0;
    within("a peer that takes nothing is cut off", async {
        loop {
            round += 1;
            put_all(&server, &many, round).await;
            server.put(A, &round.to_string()).await;
            assert_eq!(steady.updated().await, A, "the others receive updates meanwhile");
            let found = session(&server, &id).await;
            if found["ended"].is_object() {
                assert_eq!(found["ended"]["reason"], "write_timeout", "{found}");
                return;
            }
            most = most.max(found["pending"]["entries"].as_u64().expect("a number"));
            if found["progress"]["untakenMs"].is_u64() {
                // Every buffer on the way is full by now.
                before.get_or_insert_with(|| server.memory());
            }
        }
    })
    .await;
    assert!((1..=many.len() as u64).contains(&most), "{most} pending");
    let grown = server
        .memory()
        .saturating_sub(before.expect("it was seen to be blocked"));
    assert!(grown < 8 << 20, "the server grew by {grown} bytes");
    drop(stalled);
    server.assert_healthy().await;
}

#[tokio::test]
async fn peer_blocked_inside_kernel_is_cut_off() {
    let server = Server::with("[http]\nwrite_timeout = \"1s\"\n").await;
    let long: Vec<String> = (0..3)
        .map(|number| format!("demo://long/{}/{number}", "x".repeat(1_900)))
        .collect();
    put_all(&server, &long, 0).await;
    let stalled = stalling_listen(&long).open(server.address).await;
    let id = id_of(&server, long.len()).await;
    // About 6 kB: more than the client's kernel takes, less than ours holds. No write of the service fails,
    // so only the kernel notices.
    put_all(&server, &long, 1).await;
    let gone = ended(&server, &id).await;
    assert_eq!(
        (&gone["reason"], &gone["pending"]),
        (&json!("write_timeout"), &json!(0))
    );
    drop(stalled);
}

#[tokio::test]
async fn stalled_session_reads_reason_in_both_eras() {
    let server = Server::with("[session]\nstall_timeout = \"1s\"\n").await;
    let many = many();
    put_all(&server, &many, 0).await;
    // A session and a listen stream, neither of which reads its stream.
    let old = Client::open(server.address, "2025-11-25").await;
    for uri in &many {
        old.subscribe(uri).await;
    }
    let request = old.with_headers(Request::stream().small_receive_buffer());
    let old_stream = request.open(server.address).await;
    let old_id = id_of(&server, many.len()).await;
    let names: Vec<String> = many[..59].to_vec();
    let mut new_stream = Events::new(stalling_listen(&names).open(server.address).await);
    let new_id = id_of(&server, names.len()).await;

    // Updates are published until both are ended.
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
    // The session's next request is answered with the reason; the listen stream is cut off.
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
async fn evicted_session_reads_reason_in_both_eras() {
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
        assert_eq!(last_comment(&mut stream).await.0, "evicted: an operator ended it");
        let refused = client.request("ping", json!({})).await;
        let text = "session ended: an operator ended it; send initialize again";
        assert_eq!((refused.status, refused.error().1.as_str()), (404, text));
    }
    let (comment, result) = last_comment(&mut listening).await;
    assert_eq!(comment, "evicted: an operator ended it");
    assert_eq!(result.expect("a listen stream ends with its result")["id"], "x");
    server.until("all are gone", <[_]>::is_empty).await;
}

/// Reads to the end, which must be as the framing promises; returns the last comment and the last message.
async fn last_comment(stream: &mut Events) -> (String, Option<Value>) {
    let mut comment = String::new();
    let mut message = None;
    loop {
        match stream.event().await {
            Ok(event) => {
                comment = event.comment.unwrap_or(comment);
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
async fn old_sessions_end_gracefully() {
    let server = Server::with("[session]\nage_max = \"4s\"\n").await;
    server.put(A, "1").await;
    let client = Client::open(server.address, "2025-06-18").await;
    client.subscribe(A).await;
    let mut stream = client.stream().await;
    let (_, mut listening) = listen(server.address, &json!(7), updates(&[A])).await;
    let expected = "evicted: it reached the greatest age, 4s (session.age_max)";
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
async fn sessions_per_address_are_limited() {
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
    let another = listen_request(&json!("x"), updates(&[A]));
    let refused = another.send(server.address).await;
    assert_eq!((refused.status, &refused.json()["id"]), (429, &json!("x")));
    one.delete().await;
    let again = Client::open(server.address, "2025-11-25").await;
    drop(listening);
    within("a place", async {
        while another.open(server.address).await.status != 200 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    again.delete().await;
}

#[tokio::test]
async fn stalled_stdio_client_is_reported_not_ended() {
    let mut limits = Limits::default();
    limits.stalled_after = Duration::from_millis(200);
    let bus = Bus::builder().limits(limits).start().expect("a bus");
    let put = async |round: usize| {
        for number in 0..20 {
            let resource = Resource::text(format!("demo://{number}"), round.to_string()).expect("a URI");
            bus.upsert(resource).await.expect("it is stored");
        }
    };
    put(0).await;
    let (client, server) = tokio::io::duplex(1 << 10);
    let (input, output) = tokio::io::split(server);
    let mut options = McpOptions::default();
    options.session.stall_timeout = Some(Duration::from_millis(300));
    let serving = tokio::spawn(serve_stdio(bus.clone(), options, input, output));
    let (mut reading, mut writing) = tokio::io::split(client);
    // The client reads its answers and nothing more.
    let mut say = async |message: Value, answered: bool| {
        let line = format!("{message}\n");
        writing.write_all(line.as_bytes()).await.expect("it is read");
        let mut byte = [0];
        while answered && byte != *b"\n" {
            reading.read_exact(&mut byte).await.expect("an answer");
        }
    };
    // A session with twenty subscriptions, whose client stops reading once it is ready.
    say(initialize("2025-06-18"), true).await;
    for number in 0..20 {
        let params = json!({ "uri": format!("demo://{number}") });
        let message =
            json!({ "jsonrpc": "2.0", "id": number, "method": "resources/subscribe", "params": params });
        say(message, true).await;
    }
    let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    say(ready, false).await;
    // It is still listed, and marked as stalled, long after `stall_timeout`.
    let mut round = 0;
    within(
        "it is seen to be stalled for longer than it might be elsewhere",
        async {
            loop {
                round += 1;
                put(round).await;
                let sessions = bus.sessions().await.expect("the bus runs");
                let progress = &sessions[0].progress;
                if progress.stalled && progress.untaken > Some(Duration::from_secs(1)) {
                    assert!(progress.bytes > 0 && progress.conflated > 0, "{progress:?}");
                    return;
                }
            }
        },
    )
    .await;
    // Only the end of its connection ends the session.
    drop((reading, writing));
    within("the end", serving).await.expect("no panic").ok();
    within("nothing is left", async {
        while !bus.sessions().await.expect("the bus runs").is_empty() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// Returns the number of stalled sessions on `/metrics`.
async fn stalled(server: &Server) -> String {
    let reply = Request::new("GET", "/metrics").send(server.address).await;
    let text = reply.text().to_owned();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("tidings_sessions_stalled "));
    line.expect("the number of those that stall").to_owned()
}

#[tokio::test]
async fn stalled_sessions_are_counted() {
    let server = Server::start().await;
    let many = many();
    put_all(&server, &many, 0).await;
    assert_eq!(stalled(&server).await, "0");
    let stream = stalling_listen(&many).open(server.address).await;
    within("a stalled stream in the metrics", async {
        let mut round = 0;
        // Written to until every buffer on the way is full, and left alone then.
        while stalled(&server).await != "1" {
            round += 1;
            put_all(&server, &many, round).await;
        }
    })
    .await;
    drop(stream);
    within("the end of the stall", async {
        while stalled(&server).await != "0" {
            tokio::task::yield_now().await;
        }
    })
    .await;
}
