//! `GET /v1/ws`, on the real binary: requests, notices, limits, and the end.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use socket2::SockRef;
use tidings::config::WsConfig;
use tidings::http::{Access, SharedLimits, ws};
use tidings::{Bus, Resource};
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::{Error, Message};

use crate::mcp::http::Request;
use crate::mcp::server::Server;
use crate::memory_store::MemoryStore;

const A: &str = "demo://a";
const B: &str = "demo://b";

/// The time after which a wait has failed.
const DEADLINE: Duration = Duration::from_secs(120);

async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    let Ok(value) = tokio::time::timeout(DEADLINE, future).await else {
        panic!("nothing within {DEADLINE:?}: {what}")
    };
    value
}

/// One end of a conversation.
pub(super) struct Client {
    socket: WebSocketStream<TcpStream>,
}

impl Client {
    async fn connect(server: SocketAddr) -> Client {
        Client::try_connect(server, None, None).await.unwrap()
    }

    /// Connects with a query, and with headers beside those of the upgrade.
    pub(super) async fn open(server: SocketAddr, query: &str, headers: &[(&'static str, &str)]) -> Client {
        let mut request = format!("ws://{server}/v1/ws{query}")
            .into_client_request()
            .unwrap();
        for (name, value) in headers {
            request.headers_mut().insert(*name, value.parse().unwrap());
        }
        Client::upgrade(server, request, None).await.unwrap()
    }

    /// Connects with a query, and takes few bytes at a time.
    pub(super) async fn narrow(server: SocketAddr, query: &str) -> Client {
        let request = format!("ws://{server}/v1/ws{query}")
            .into_client_request()
            .unwrap();
        Client::upgrade(server, request, Some(4 << 10)).await.unwrap()
    }

    async fn try_connect(
        server: SocketAddr,
        origin: Option<&str>,
        receive_buffer: Option<usize>,
    ) -> Result<Client, Error> {
        let mut request = format!("ws://{server}/v1/ws").into_client_request().unwrap();
        if let Some(origin) = origin {
            request.headers_mut().insert("origin", origin.parse().unwrap());
        }
        Client::upgrade(server, request, receive_buffer).await
    }

    async fn upgrade(
        server: SocketAddr,
        request: tokio_tungstenite::tungstenite::handshake::client::Request,
        receive_buffer: Option<usize>,
    ) -> Result<Client, Error> {
        let socket = TcpSocket::new_v4().unwrap();
        if let Some(bytes) = receive_buffer {
            SockRef::from(&socket).set_recv_buffer_size(bytes).unwrap();
        }
        let stream = within("a connection", socket.connect(server)).await.unwrap();
        let connected = tokio_tungstenite::client_async(request, stream);
        let (socket, _) = within("an upgrade", connected).await?;
        Ok(Client { socket })
    }

    async fn send(&mut self, message: Value) {
        self.socket
            .send(Message::text(message.to_string()))
            .await
            .unwrap();
    }

    /// The next message in text.
    pub(super) async fn next(&mut self) -> Value {
        loop {
            let message = within("a message", self.socket.next()).await;
            match message.expect("the connection is open").unwrap() {
                Message::Text(text) => return serde_json::from_str(&text).unwrap(),
                Message::Ping(_) | Message::Pong(_) => {}
                other => panic!("neither text nor ping: {other:?}"),
            }
        }
    }

    /// Sends a request, and takes the next message for the answer.
    pub(super) async fn ask(&mut self, message: Value) -> Value {
        self.send(message).await;
        self.next().await
    }

    /// Reads until the service closes; returns its code and reason.
    async fn closed(&mut self) -> (u16, String) {
        loop {
            match within("a close frame", self.socket.next()).await {
                Some(Ok(Message::Close(Some(frame)))) => {
                    return (frame.code.into(), frame.reason.to_string());
                }
                Some(Ok(_)) => {}
                other => panic!("no close frame: {other:?}"),
            }
        }
    }
}

#[tokio::test]
async fn client_subscribes_is_notified_and_unsubscribes() {
    let server = Server::start().await;
    let etag = server.put(A, "1").await;
    let mut client = Client::connect(server.address).await;
    let request = json!({ "type": "subscribe", "id": 1, "uris": [A, "demo://nowhere", "no uri"], "lists": ["resources", "clowns"] });
    let ack = client.ask(request).await;
    assert_eq!((&ack["type"], &ack["id"]), (&json!("ack"), &json!(1)));
    assert_eq!(
        (&ack["subscribed"], &ack["lists"]),
        (&json!({ A: etag }), &json!(["resources"]))
    );
    let refused: Vec<_> = ack["refused"].as_object().unwrap().keys().collect();
    assert_eq!(refused, ["clowns", "demo://nowhere", "no uri"]);

    let etag = server.put(A, "2").await;
    let told = client.next().await;
    let position = told["position"].as_str().unwrap().to_owned();
    assert_eq!(
        told,
        json!({ "type": "updated", "uri": A, "etag": etag, "position": position })
    );
    server.put(B, "1").await;
    let told = client.next().await;
    assert_eq!(
        (&told["type"], &told["list"]),
        (&json!("list_changed"), &json!("resources"))
    );
    assert_eq!(
        client.ask(json!({ "type": "ping", "id": "x" })).await,
        json!({ "type": "pong", "id": "x" })
    );

    let request = json!({ "type": "unsubscribe", "id": 2, "uris": [B], "lists": ["resources"] });
    let ack = client.ask(request).await;
    assert_eq!((&ack["unsubscribed"], &ack["lists"]), (&json!([]), &json!([])));
    assert_eq!(ack["refused"], json!({ B: "not subscribed to" }));
    server.api("DELETE", A, "").await;
    let told = client.next().await;
    assert_eq!((&told["type"], &told["uri"]), (&json!("removed"), &json!(A)));
    let ack = client.ask(json!({ "type": "unsubscribe", "uris": [A] })).await;
    assert_eq!((&ack["unsubscribed"], &ack["id"]), (&json!([A]), &Value::Null));
    server.put(A, "3").await;
    assert_eq!(
        client.ask(json!({ "type": "ping" })).await["type"],
        "pong",
        "a notice came after the unsubscribe"
    );
    client.socket.close(None).await.unwrap();
    server.until("no session is left", <[_]>::is_empty).await;
}

#[tokio::test]
async fn known_etags_that_differ_are_updated_at_once() {
    let server = Server::start().await;
    let old = server.put(A, "1").await;
    let same = server.put(B, "1").await;
    let new = server.put(A, "2").await;
    let mut client = Client::connect(server.address).await;
    let request = json!({ "type": "subscribe", "id": 1, "known": { A: old, B: same } });
    let ack = client.ask(request).await;
    assert_eq!(ack["subscribed"], json!({ A: new, B: same }));
    let told = client.next().await;
    assert_eq!(
        (&told["type"], &told["uri"], &told["etag"]),
        (&json!("updated"), &json!(A), &json!(new))
    );
    let request = json!({ "type": "subscribe", "id": 2, "uris": [A], "known": { B: null } });
    assert_eq!(client.ask(request).await["id"], 2);
    let told = client.next().await;
    assert_eq!((&told["uri"], &told["etag"]), (&json!(B), &json!(same)));
    assert_eq!(client.ask(json!({ "type": "ping" })).await["type"], "pong");
}

#[tokio::test]
async fn known_resource_is_waited_for_or_told_removed() {
    let server = Server::start().await;
    let held = server.put(A, "1").await;
    server.api("DELETE", A, "").await;
    let mut client = Client::connect(server.address).await;
    let request =
        json!({ "type": "subscribe", "uris": [B], "known": { A: held, B: null, "demo://c": null } });
    let ack = client.ask(request).await;
    assert_eq!(ack["refused"], json!({}));
    assert_eq!(ack["subscribed"][B], "v0-0");
    let told = client.next().await;
    assert_eq!((&told["type"], &told["uri"]), (&json!("removed"), &json!(A)));
    assert_eq!(told["etag"], ack["subscribed"][A]);
    for uri in [B, A] {
        let etag = server.put(uri, "1").await;
        let told = client.next().await;
        assert_eq!((&told["uri"], &told["etag"]), (&json!(uri), &json!(etag)));
    }
}

/// Serves `/v1/ws` for a new life of a bus with this store.
async fn serve(store: &MemoryStore) -> (Bus, SocketAddr) {
    let bus = Bus::builder().store(store.clone()).start().unwrap();
    let limits = SharedLimits::default();
    let routes = ws::router(
        bus.clone(),
        WsConfig::default(),
        DEADLINE,
        Access::default(),
        limits,
    );
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, routes).await });
    (bus, address)
}

async fn put(bus: &Bus, uri: &str, text: &str) -> String {
    let resource = Resource::text(uri, text).unwrap();
    bus.upsert(resource).await.unwrap().etag.to_string()
}

#[tokio::test]
async fn restarted_service_tells_differences_alone() {
    let store = MemoryStore::new();
    let gone = "demo://gone";
    let (bus, _) = serve(&store).await;
    let mut known = json!({});
    for uri in [A, B, gone] {
        known[uri] = json!(put(&bus, uri, "1").await);
    }
    bus.remove(gone).await.unwrap();
    bus.shutdown(Duration::ZERO).await;

    // The client is back before the publisher.
    let (bus, address) = serve(&store).await;
    let mut client = Client::connect(address).await;
    let ack = client.ask(json!({ "type": "subscribe", "known": known })).await;
    assert_eq!(ack["refused"], json!({}));
    assert_eq!(
        (&ack["subscribed"][A], &ack["subscribed"][B]),
        (&known[A], &known[B])
    );
    let told = client.next().await;
    assert_eq!((&told["type"], &told["uri"]), (&json!("removed"), &json!(gone)));
    put(&bus, A, "1").await;
    let etag = put(&bus, B, "2").await;
    let told = client.next().await;
    assert_eq!((&told["uri"], &told["etag"]), (&json!(B), &json!(etag)));
    assert_eq!(client.ask(json!({ "type": "ping" })).await["type"], "pong");
    bus.shutdown(Duration::ZERO).await;
}

#[tokio::test]
async fn pages_of_other_origins_get_no_connection() {
    let server = Server::with("[http]\nallowed_origins = [\"https://app.example\"]\n").await;
    for origin in ["http://localhost:3000", "https://app.example"] {
        let client = Client::try_connect(server.address, Some(origin), None).await;
        assert!(client.is_ok(), "{origin}");
    }
    for origin in ["https://evil.example", "null"] {
        match Client::try_connect(server.address, Some(origin), None).await {
            Err(Error::Http(answer)) => assert_eq!(answer.status(), 403),
            other => panic!("{origin}: {:?}", other.map(|_| "it was let in")),
        }
    }
    let reply = Request::new("GET", "/v1/ws").send(server.address).await;
    assert_eq!((reply.status, reply.header("upgrade")), (426, Some("websocket")));
    assert_eq!(reply.header("content-type"), Some("application/problem+json"));
}

#[tokio::test]
async fn invalid_request_is_answered_oversize_closes() {
    let server = Server::with("[ws]\nmessage_bytes_max = \"1KiB\"\n").await;
    let etag = server.put(A, "1").await;
    let mut client = Client::connect(server.address).await;
    for (text, named) in [("hello", "JSON"), (r#"{"type":"listen","id":4}"#, "listen")] {
        client.socket.send(Message::text(text)).await.unwrap();
        let error = client.next().await;
        assert_eq!(error["type"], "error", "{error}");
        assert!(error["message"].as_str().unwrap().contains(named), "{error}");
    }
    let ack = client.ask(json!({ "type": "subscribe", "uris": [A] })).await;
    assert_eq!(ack["subscribed"], json!({ A: etag }), "it goes on");

    let too_long = Message::text("x".repeat(1_025));
    for (message, code) in [(too_long, 1009), (Message::binary(vec![1, 2, 3]), 1003)] {
        let mut client = Client::connect(server.address).await;
        client.socket.send(message).await.unwrap();
        assert_eq!(client.closed().await.0, code);
    }
    // A message that is far too large is not read, so the close frame may be lost with the connection.
    let mut client = Client::connect(server.address).await;
    client
        .socket
        .send(Message::text("x".repeat(5_000)))
        .await
        .unwrap();
    match within("the end", client.socket.next()).await {
        Some(Ok(Message::Close(Some(frame)))) => assert_eq!(u16::from(frame.code), 1009),
        Some(Ok(other)) => panic!("{other:?}"),
        Some(Err(_)) | None => {}
    }
    server.until("only the first is left", |all| all.len() == 1).await;
    server.assert_healthy().await;
}

#[tokio::test]
async fn connection_beyond_limit_is_told_to_come_later() {
    let server = Server::with("[ws]\nconnections_max = 1\n[session]\nsubscriptions_max = 1\n").await;
    server.put(A, "1").await;
    server.put(B, "1").await;
    let mut client = Client::connect(server.address).await;
    let ack = client.ask(json!({ "type": "subscribe", "uris": [A, B] })).await;
    assert_eq!(ack["refused"].as_object().unwrap().len(), 1, "{ack}");
    let reason = ack["refused"][B].as_str().unwrap();
    assert!(reason.contains("(session.subscriptions_max)"), "{reason}");
    let (code, reason) = Client::connect(server.address).await.closed().await;
    assert_eq!(code, 1013);
    assert!(reason.contains("ws.connections_max"), "{reason}");
    drop(client);
    within("room for a connection", async {
        loop {
            let mut client = Client::connect(server.address).await;
            client.send(json!({ "type": "ping" })).await;
            if let Some(Ok(Message::Text(_))) = client.socket.next().await {
                return;
            }
        }
    })
    .await;
    let off = Server::with("[ws]\nconnections_max = 0\n").await;
    assert_eq!(Request::new("GET", "/v1/ws").send(off.address).await.status, 404);
}

#[tokio::test]
async fn signal_closes_connections_after_last_message() {
    let mut server = Server::start().await;
    server.put(A, "1").await;
    let mut clients = Vec::new();
    for _ in 0..3 {
        let mut client = Client::connect(server.address).await;
        client.ask(json!({ "type": "subscribe", "uris": [A] })).await;
        clients.push(client);
    }
    let etag = server.put(A, "2").await;
    server.terminate();
    for client in &mut clients {
        assert_eq!(client.next().await["etag"], *etag);
        assert_eq!(client.closed().await.0, 1001);
    }
    server.assert_ended().await;
}

#[tokio::test]
async fn client_that_answers_no_ping_is_closed() {
    let server = Server::with("[http]\nkeep_alive = \"1s\"\n[ws]\npong_timeout = \"1s\"\n").await;
    // Raw bytes, as a WebSocket client would answer pings as soon as it reads.
    let silent = Client::connect(server.address).await;
    let mut silent = silent.socket.into_inner();
    let mut alive = Client::connect(server.address).await;
    let listening = tokio::spawn(async move { alive.closed().await });
    server
        .until("the silent client is gone", |all| all.len() == 1)
        .await;
    let mut bytes = Vec::new();
    within("the end", silent.read_to_end(&mut bytes)).await.unwrap();
    let (pings, close) = bytes.split_at(bytes.iter().position(|byte| *byte == 0x88).unwrap());
    assert!(
        !pings.is_empty() && pings.chunks(2).all(|ping| ping == [0x89, 0]),
        "{bytes:?}"
    );
    assert_eq!(close[2..4], 1008_u16.to_be_bytes());
    assert!(!listening.is_finished(), "the other one answers");
    listening.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stalled_client_gets_newest_and_delays_no_other() {
    const ROUNDS: usize = 60;
    let server = Server::with("[session]\nsubscriptions_max = 20\n[events]\nhistory_max = 200\n").await;
    let uris: Vec<String> = (0..20)
        .map(|n| format!("demo://{n}/{}", "x".repeat(1_500)))
        .collect();
    let mut newest = BTreeMap::new();
    for uri in &uris {
        newest.insert(uri.clone(), server.put(uri, "begin").await);
    }
    let mut stalled = Client::try_connect(server.address, None, Some(4 << 10))
        .await
        .unwrap();
    stalled.ask(json!({ "type": "subscribe", "uris": uris })).await;
    let mut healthy = Vec::new();
    for _ in 0..50 {
        let mut client = Client::connect(server.address).await;
        client
            .ask(json!({ "type": "subscribe", "uris": [uris[0]] }))
            .await;
        healthy.push(client);
    }
    let memory = server.memory();
    for round in 0..ROUNDS {
        for uri in &uris {
            newest.insert(uri.clone(), server.put(uri, &round.to_string()).await);
        }
        for client in &mut healthy {
            let told = client.next().await;
            assert_eq!(
                (&told["uri"], &told["etag"]),
                (&json!(uris[0]), &json!(newest[&uris[0]]))
            );
        }
    }
    let grown = server.memory().saturating_sub(memory);
    assert!(grown < 24 << 20, "{grown} bytes for one that does not read");
    let sessions = server.sessions().await;
    let waiting: Vec<_> = sessions
        .iter()
        .filter(|one| one["pending"]["entries"] != 0)
        .collect();
    assert_eq!(
        (waiting.len(), &waiting[0]["label"]),
        (1, &json!("websocket")),
        "{waiting:?}"
    );
    assert!(waiting[0]["pending"]["entries"].as_u64().unwrap() <= 20);
    // It reads again, and gets the newest version of each resource.
    let mut told = BTreeMap::new();
    let mut messages = 0;
    while told != newest {
        let message = stalled.next().await;
        let uri = message["uri"].as_str().unwrap().to_owned();
        told.insert(uri, message["etag"].as_str().unwrap().to_owned());
        messages += 1;
    }
    assert!(messages < ROUNDS * uris.len(), "nothing was conflated");
}
