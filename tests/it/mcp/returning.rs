//! Clients that return say which etags they hold, in both eras: they are told of each difference, once, and
//! of nothing else.

use serde_json::{Value, json};
use tidings::mcp::{ETAG_META_KEY, McpOptions, serve_stdio};
use tidings::{Bus, Limits, Resource};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream};

use super::client::{Client, LEGACY, initialize, modern_post, stateless, updates};
use super::events::{Events, updated_etag, updated_uri};
use super::http::within;
use super::local::Local;
use crate::memory_store::MemoryStore;

const A: &str = "demo://a";
const B: &str = "demo://b";
const SENTINEL: &str = "demo://sentinel";

/// Subscribes as a client that holds this etag; returns the current one.
async fn subscribe_from(client: &Client, uri: &str, held: Value) -> String {
    let params = json!({ "uri": uri, "_meta": { ETAG_META_KEY: held } });
    let result = client.call("resources/subscribe", params).await;
    let current = result["_meta"][ETAG_META_KEY].as_str();
    current.unwrap_or_else(|| panic!("{result}")).to_owned()
}

/// Opens a listen stream as a client that holds these etags; returns the current ones.
async fn listen_from(local: &Local, uris: &[&str], held: Value) -> (Value, Events) {
    let params = json!({ "notifications": updates(uris), "_meta": { ETAG_META_KEY: held } });
    let request = modern_post(&json!("l"), "subscriptions/listen", params);
    let incoming = request.open(local.server).await;
    assert_eq!(incoming.status, 200, "{:?}", incoming.headers);
    let mut events = Events::new(incoming);
    let acknowledged = events.message().await;
    assert_eq!(
        acknowledged["params"]["notifications"]["resourceSubscriptions"],
        json!(uris)
    );
    (acknowledged["params"]["_meta"][ETAG_META_KEY].clone(), events)
}

/// Returns the updates before one of the sentinel, which is changed now.
async fn told(local: &Local, stream: &mut Events) -> Vec<(String, String)> {
    local.bus.touch(SENTINEL).await.unwrap();
    told_before_sentinel(stream).await
}

async fn told_before_sentinel(stream: &mut Events) -> Vec<(String, String)> {
    let mut told = Vec::new();
    loop {
        let message = stream.message().await;
        match updated_uri(&message) {
            Some(SENTINEL) => return told,
            Some(uri) => told.push((uri.to_owned(), updated_etag(&message))),
            None => {}
        }
    }
}

#[tokio::test]
async fn session_is_told_what_it_missed() {
    for revision in LEGACY {
        let local = Local::start().await;
        for uri in [A, B, SENTINEL] {
            local.put(uri, "1").await;
        }
        let old = local.put(A, "1").await.etag.to_string();
        let new = local.put(A, "2").await.etag.to_string();
        let client = Client::open(local.server, revision).await;
        let mut stream = client.stream().await;
        client.subscribe(SENTINEL).await;
        assert_eq!(subscribe_from(&client, A, json!(old)).await, new);
        let current = local.put(B, "1").await.etag.to_string();
        assert_eq!(subscribe_from(&client, B, json!(current)).await, current);
        assert_eq!(told(&local, &mut stream).await, [(A.to_owned(), new)]);
        // A stream that is lost right after is resumed without a repetition.
        let last = stream_position(&local, &mut stream).await;
        drop(stream);
        let mut again = client.stream_after(&last).await;
        assert_eq!(told(&local, &mut again).await, [], "{revision}");
        // A resource that appears later is told when it appears.
        let absent = subscribe_from(&client, "demo://later", Value::Null).await;
        assert_eq!(absent, "v0-0");
        let created = local.put("demo://later", "1").await.etag.to_string();
        assert_eq!(
            told(&local, &mut again).await,
            [("demo://later".to_owned(), created)]
        );
    }
}

/// Returns the id of the next event, an update of the sentinel.
async fn stream_position(local: &Local, stream: &mut Events) -> String {
    local.bus.touch(SENTINEL).await.unwrap();
    stream.next().await.id.expect("an id")
}

#[tokio::test]
async fn subscription_without_the_key_stays_as_it_is() {
    let local = Local::start().await;
    local.put(A, "1").await;
    let client = Client::open(local.server, "2025-11-25").await;
    let plain = client.call("resources/subscribe", json!({ "uri": A })).await;
    assert_eq!(plain, json!({}));
    let unknown = client.request("resources/subscribe", json!({ "uri": B })).await;
    let error = unknown.json()["error"].take();
    assert_eq!(error["code"], -32602);
    assert_eq!(error["message"], "Resource not found: demo://b");
}

#[tokio::test]
async fn malformed_etag_is_refused_by_name() {
    let local = Local::start().await;
    local.put(A, "1").await;
    let client = Client::open(local.server, "2025-06-18").await;
    let params = json!({ "uri": A, "_meta": { ETAG_META_KEY: 7 } });
    let refused = client.request("resources/subscribe", params).await.json();
    assert_eq!(refused["error"]["code"], -32602);
    let text = refused["error"]["message"].as_str().unwrap();
    assert!(text.contains(ETAG_META_KEY), "{text}");
    for held in [json!(null), json!("v1-1"), json!({ A: [] })] {
        let params = json!({ "notifications": updates(&[A]), "_meta": { ETAG_META_KEY: held } });
        let request = modern_post(&json!(1), "subscriptions/listen", params);
        let refused = request.send(local.server).await.json();
        assert_eq!(refused["error"]["code"], -32602);
        let text = refused["error"]["message"].as_str().unwrap();
        assert!(text.contains(ETAG_META_KEY), "{text}");
    }
}

#[tokio::test]
async fn listen_stream_is_told_what_it_missed() {
    let local = Local::start().await;
    for uri in [A, B, SENTINEL] {
        local.put(uri, "1").await;
    }
    let held = local.put(B, "1").await.etag.to_string();
    let old = local.put(A, "1").await.etag.to_string();
    let new = local.put(A, "2").await.etag.to_string();
    let sentinel = local.put(SENTINEL, "1").await.etag.to_string();
    let uris = [A, B, SENTINEL, "demo://later"];
    let known = json!({ A: old, B: held, SENTINEL: sentinel, "demo://later": null, "demo://other": "v1-1" });
    let (current, mut stream) = listen_from(&local, &uris, known).await;
    assert_eq!(
        current,
        json!({ A: new, B: held, SENTINEL: sentinel, "demo://later": "v0-0" })
    );
    assert_eq!(told(&local, &mut stream).await, [(A.to_owned(), new)]);
    let created = local.put("demo://later", "1").await.etag.to_string();
    assert_eq!(
        told(&local, &mut stream).await,
        [("demo://later".to_owned(), created)]
    );
    // A request with a field that is unknown here is answered alike.
    let params = json!({ "notifications": updates(&[A]), "x": 1, "_meta": { ETAG_META_KEY: { A: null } } });
    let request = modern_post(&json!(2), "subscriptions/listen", params);
    let mut events = Events::new(request.open(local.server).await);
    assert!(events.message().await["params"]["_meta"][ETAG_META_KEY][A].is_string());
    assert_eq!(events.updated().await, A);
}

/// Both eras come back to a new life of the server: before the publisher, and after it.
#[tokio::test]
async fn restart_is_told_by_difference() {
    let store = MemoryStore::new();
    let names = ["demo://same", "demo://changed", "demo://gone"];
    let mut held = json!({});
    {
        let local = Local::stored(store.clone()).await;
        for uri in names {
            held[uri] = json!(local.put(uri, "1").await.etag.to_string());
        }
        local.bus.remove("demo://gone").await.unwrap();
        local.shutdown().await;
    }
    let local = Local::stored(store).await;
    local.put(SENTINEL, "1").await;
    let session = Client::open(local.server, "2025-11-25").await;
    let mut legacy = session.stream().await;
    session.subscribe(SENTINEL).await;
    for uri in names {
        subscribe_from(&session, uri, held[uri].clone()).await;
    }
    let mut uris = names.to_vec();
    uris.push(SENTINEL);
    let (current, mut modern) = listen_from(&local, &uris, held.clone()).await;
    let gone = current["demo://gone"].as_str().unwrap().to_owned();
    local.bus.touch(SENTINEL).await.unwrap();
    for stream in [&mut legacy, &mut modern] {
        let told = told_before_sentinel(stream).await;
        assert_eq!(told, [("demo://gone".to_owned(), gone.clone())]);
    }
    // The publisher comes second.
    local.put("demo://same", "1").await;
    let changed = local.put("demo://changed", "2").await.etag.to_string();
    let expected = [("demo://changed".to_owned(), changed)];
    local.bus.touch(SENTINEL).await.unwrap();
    for stream in [&mut legacy, &mut modern] {
        assert_eq!(told_before_sentinel(stream).await, expected);
    }
    let (_, mut late) = listen_from(&local, &uris, held).await;
    let mut all = told(&local, &mut late).await;
    all.sort();
    let [changed] = expected;
    assert_eq!(all, [changed, ("demo://gone".to_owned(), gone)]);
}

/// A client of a bus on a pair of streams.
struct Piped {
    input: DuplexStream,
    lines: tokio::io::Lines<BufReader<DuplexStream>>,
}

impl Piped {
    fn connect(bus: &Bus) -> Piped {
        let (input, from_client) = tokio::io::duplex(1 << 16);
        let (to_client, output) = tokio::io::duplex(1 << 16);
        tokio::spawn(serve_stdio(
            bus.clone(),
            McpOptions::default(),
            from_client,
            to_client,
        ));
        Piped {
            input,
            lines: BufReader::new(output).lines(),
        }
    }

    async fn send(&mut self, message: &Value) {
        let line = format!("{message}\n");
        self.input.write_all(line.as_bytes()).await.unwrap();
    }

    /// Returns the next message that `wanted` accepts.
    async fn until(&mut self, wanted: impl Fn(&Value) -> bool) -> Value {
        loop {
            let line = within("a line", self.lines.next_line()).await.unwrap();
            let message: Value = serde_json::from_str(&line.expect("a line")).unwrap();
            if wanted(&message) {
                return message;
            }
        }
    }
}

#[tokio::test]
async fn stdio_client_is_told_what_it_missed() {
    let mut limits = Limits::default();
    limits.shards = 1;
    let bus = Bus::builder().limits(limits).start().unwrap();
    let resource = Resource::text(A, "1").unwrap();
    let current = bus.register(resource).await.unwrap().etag.to_string();
    // The older revisions.
    let mut client = Piped::connect(&bus);
    client.send(&initialize("2025-11-25")).await;
    client.until(|message| message["id"] == 0).await;
    client
        .send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }))
        .await;
    for (id, uri, held, expected) in [(1, A, "v0-1", &*current), (2, B, "v0-0", "v0-0")] {
        let params = json!({ "uri": uri, "_meta": { ETAG_META_KEY: held } });
        client
            .send(&json!({ "jsonrpc": "2.0", "id": id, "method": "resources/subscribe", "params": params }))
            .await;
        let mut seen = Vec::new();
        while seen.is_empty() || (id == 1 && seen.len() < 2) {
            // The update may overtake the answer.
            seen.push(
                client
                    .until(|message| message["id"] == id || updated_uri(message).is_some())
                    .await,
            );
        }
        for message in seen {
            match updated_uri(&message) {
                Some(told) => assert_eq!((told, &*updated_etag(&message)), (A, &*current)),
                None => assert_eq!(message["result"]["_meta"][ETAG_META_KEY], expected),
            }
        }
    }
    // 2026-07-28.
    let mut modern = Piped::connect(&bus);
    let params =
        json!({ "notifications": updates(&[A, B]), "_meta": { ETAG_META_KEY: { A: null, B: null } } });
    modern
        .send(&json!({ "jsonrpc": "2.0", "id": "l", "method": "subscriptions/listen", "params": stateless(params) }))
        .await;
    let acknowledged = modern.until(|message| message["method"].is_string()).await;
    assert_eq!(
        acknowledged["params"]["_meta"][ETAG_META_KEY],
        json!({ A: current, B: "v0-0" })
    );
    let update = modern.until(|_| true).await;
    assert_eq!((updated_uri(&update), updated_etag(&update)), (Some(A), current));
    bus.register(Resource::text(B, "1").unwrap()).await.unwrap();
    for client in [&mut client, &mut modern] {
        let update = client.until(|message| updated_uri(message).is_some()).await;
        assert_eq!(updated_uri(&update), Some(B));
    }
}
