//! TLS on the listener of the real binary, with certificates made for the test.

pub(crate) mod authority;
mod certificates;

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, SystemTime};

use axum::routing::get;
use axum::{Extension, Router};
use futures_util::{SinkExt, StreamExt};
use rcgen::SanType;
use serde_json::json;
use tempfile::TempDir;
use tidings::Bus;
use tidings::config::{HttpConfig, TlsConfig};
use tidings::http::{HttpServer, PeerCertificate, Tls};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_tungstenite::tungstenite::Message;

use super::RawConnection;
use crate::mcp::client::{Client, LEGACY, MODERN, listen, stateless, updates};
use crate::mcp::events::updated_uri;
use crate::mcp::http::{Request, within};
use crate::mcp::server::Server;
use authority::{Authority, Pair, connect, localhost, tunnel};

const A: &str = "demo://a";

/// A server behind TLS, with the folder of its certificates.
pub(super) struct Secure {
    pub(super) server: Server,
    /// The address that speaks TLS; that of `server` leads there.
    pub(super) address: SocketAddr,
    pub(super) folder: TempDir,
    pub(super) authority: Authority,
    pair: Pair,
}

impl Secure {
    async fn start() -> Secure {
        Secure::with("", |_, _| {}).await
    }

    /// Starts it with further lines of the section `[tls]` and of others, after `prepare` has written files.
    pub(super) async fn with(config: &str, prepare: impl FnOnce(&Path, &Authority)) -> Secure {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::new();
        let pair = authority.issue_server(1);
        pair.write(folder.path());
        prepare(folder.path(), &authority);
        let path = folder.path().display();
        let config = config.replace("FOLDER", &path.to_string());
        let tls = format!("[tls]\ncertificate = '{path}/server.pem'\nkey = '{path}/server.key'\n{config}");
        let mut server = Server::with(&tls).await;
        let address = server.address;
        server.address = tunnel(authority.client(None), address).await;
        Secure {
            server,
            address,
            folder,
            authority,
            pair,
        }
    }

    fn client(&self) -> TlsConnector {
        self.authority.client(None)
    }

    /// Returns true if a new connection gets this certificate.
    async fn presents(&self, pair: &Pair) -> bool {
        let stream = connect(&self.client(), self.address, false).await.unwrap();
        stream.get_ref().1.peer_certificates().unwrap()[0] == pair.der()
    }

    /// Waits until a metric has this value.
    async fn until_metric(&self, name: &str, value: u32) {
        let line = format!("{name} {value}\n");
        within(&line, async {
            loop {
                let reply = Request::new("GET", "/metrics").send(self.server.address).await;
                if reply.text().contains(&line) {
                    return;
                }
                tokio::task::yield_now().await;
            }
        })
        .await;
    }

    fn handshakes(outcome: &str) -> String {
        format!("tidings_tls_handshakes_total{{outcome=\"{outcome}\"}}")
    }

    fn reloads(outcome: &str) -> String {
        format!("tidings_tls_reloads_total{{outcome=\"{outcome}\"}}")
    }

    pub(super) fn hang_up(&self) {
        let pid = self.server.pid().to_string();
        let status = std::process::Command::new("kill").args(["-HUP", &pid]).status();
        assert!(status.unwrap().success());
    }
}

/// Sends a request for the health of the server; returns the status.
async fn status_of(client: &TlsConnector, server: SocketAddr) -> std::io::Result<u16> {
    let mut stream = connect(client, server, false).await?;
    stream
        .write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        .await?;
    let mut answer = String::new();
    // In TLS 1.3 a client learns with its first read that its certificate was refused.
    stream.read_to_string(&mut answer).await?;
    Ok(answer.split(' ').nth(1).unwrap().parse().unwrap())
}

#[tokio::test]
async fn every_transport_is_served_over_tls() {
    let secure = Secure::start().await;
    let server = &secure.server;
    server.put(A, "0").await;
    let client = Client::open(server.address, LEGACY[3]).await;
    client.subscribe(A).await;
    let mut stream = client.stream().await;
    let (_, mut listening) = listen(server.address, &json!(1), updates(&[A])).await;
    let mut events = RawConnection {
        stream: connect(&secure.client(), secure.address, false).await.unwrap(),
    };
    assert_eq!(events.stream.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
    events
        .send("GET /v1/events HTTP/1.1\r\nhost: localhost\r\n\r\n")
        .await;
    assert!(events.head().await.starts_with("HTTP/1.1 200 "));
    let socket = connect(&secure.client(), secure.address, false).await.unwrap();
    let (mut socket, _) = tokio_tungstenite::client_async("ws://localhost/v1/ws", socket)
        .await
        .unwrap();
    let subscribe = json!({ "type": "subscribe", "id": 1, "uris": [A] });
    socket.send(Message::text(subscribe.to_string())).await.unwrap();
    within("an answer", socket.next()).await.unwrap().unwrap();

    server.put(A, &"x".repeat(100_000)).await;
    // The list may have changed for the client since it opened.
    while updated_uri(&stream.message().await) != Some(A) {}
    assert_eq!(listening.updated().await, A);
    let notice = within("a notice", socket.next()).await.unwrap().unwrap();
    assert!(notice.to_text().unwrap().contains(A), "{notice}");
    let mut event = [0; 96];
    within("an event", events.stream.read_exact(&mut event))
        .await
        .unwrap();
    let reply = server.api("GET", A, "").await;
    assert_eq!(reply.body.len(), 100_000);
}

#[tokio::test]
async fn plain_request_is_told_to_speak_tls() {
    let secure = Secure::start().await;
    let mut plain = RawConnection::<TcpStream>::open(secure.address).await;
    plain
        .send("POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\n\r\n{}")
        .await;
    let (status, text) = plain.answer().await;
    assert_eq!(status, 400);
    assert!(text.contains("https"), "{text}");
    secure.until_metric(&Secure::handshakes("not_tls"), 1).await;
}

#[tokio::test]
async fn garbage_ends_the_connection() {
    let secure = Secure::start().await;
    for (garbage, outcome, count) in [
        (&b"\0\0\0\0"[..], "not_tls", 1),
        (&[22; 600], "refused", 1),
        (&[22, 3, 1, 0, 4, 1, 0, 0, 0], "refused", 2),
    ] {
        let mut stream = TcpStream::connect(secure.address).await.unwrap();
        stream.write_all(garbage).await.unwrap();
        let mut read = Vec::new();
        // Closed, with an alert or without; bytes that were not read may turn the end into a reset.
        within("the end", stream.read_to_end(&mut read)).await.ok();
        assert!(read.len() < 16, "{read:?}");
        secure.until_metric(&Secure::handshakes(outcome), count).await;
    }
    assert_eq!(status_of(&secure.client(), secure.address).await.unwrap(), 200);
}

#[tokio::test]
async fn handshake_that_stands_still_is_closed() {
    let secure = Secure::with("[http]\nheader_timeout = \"1s\"\n", |_, _| {}).await;
    let mut silent = TcpStream::connect(secure.address).await.unwrap();
    let mut begun = TcpStream::connect(secure.address).await.unwrap();
    begun.write_all(&[22, 3, 1, 2, 0, 1]).await.unwrap();
    for stream in [&mut silent, &mut begun] {
        let mut read = Vec::new();
        within("the end of a handshake", stream.read_to_end(&mut read))
            .await
            .unwrap();
    }
    secure.until_metric(&Secure::handshakes("late"), 2).await;
}

#[tokio::test]
async fn changed_files_are_served_while_streams_stay() {
    let secure = Secure::start().await;
    secure.server.put(A, "0").await;
    let (_, mut listening) = listen(secure.server.address, &json!(1), updates(&[A])).await;
    assert!(secure.presents(&secure.pair).await);

    let next = secure.authority.issue_server(2);
    next.write(secure.folder.path());
    within("the next certificate", async {
        while !secure.presents(&next).await {
            tokio::task::yield_now().await;
        }
    })
    .await;
    secure.until_metric(&Secure::reloads("replaced"), 1).await;
    secure.server.put(A, "1").await;
    assert_eq!(listening.updated().await, A);
}

#[tokio::test]
async fn broken_pair_keeps_the_old_certificate() {
    let secure = Secure::start().await;
    let next = secure.authority.issue_server(2);
    // A certificate without its key, and a key that is none.
    fs::write(secure.folder.path().join("server.pem"), &next.certificate).unwrap();
    secure.hang_up();
    secure.until_metric(&Secure::reloads("kept"), 1).await;
    assert!(secure.presents(&secure.pair).await);
    fs::write(secure.folder.path().join("server.key"), "no key").unwrap();
    secure.hang_up();
    secure.until_metric(&Secure::reloads("kept"), 2).await;
    assert!(secure.presents(&secure.pair).await);

    next.write(secure.folder.path());
    secure.hang_up();
    secure.until_metric(&Secure::reloads("replaced"), 1).await;
    assert!(secure.presents(&next).await);
}

#[tokio::test]
async fn client_certificate_is_verified_and_revocable() {
    let clients = Authority::new();
    let named = |name: &str| vec![SanType::URI(name.try_into().unwrap())];
    let good = clients.issue(&named("spiffe://bus/good"), 7);
    let revoked = clients.issue(&named("spiffe://bus/revoked"), 8);
    let foreign = Authority::new().issue(&named("spiffe://bus/good"), 7);
    let config = "client_ca = 'FOLDER/clients.pem'\nclient_crl = 'FOLDER/revoked.pem'\n";
    let secure = Secure::with(config, |folder, _| {
        fs::write(folder.join("clients.pem"), clients.pem()).unwrap();
        fs::write(folder.join("revoked.pem"), clients.revoke(&[8], 2999)).unwrap();
    })
    .await;
    let call = async |own: Option<&Pair>| status_of(&secure.authority.client(own), secure.address).await;
    assert_eq!(call(None).await.unwrap(), 200);
    assert_eq!(call(Some(&good)).await.unwrap(), 200);
    call(Some(&revoked)).await.unwrap_err();
    call(Some(&foreign)).await.unwrap_err();
    secure.until_metric(&Secure::handshakes("certificate"), 2).await;

    // The next list revokes the other one, and a list that has expired lets no certificate in.
    fs::write(
        secure.folder.path().join("revoked.pem"),
        clients.revoke(&[7], 2999),
    )
    .unwrap();
    secure.hang_up();
    secure.until_metric(&Secure::reloads("replaced"), 1).await;
    call(Some(&good)).await.unwrap_err();
    assert_eq!(call(Some(&revoked)).await.unwrap(), 200);
    fs::write(
        secure.folder.path().join("revoked.pem"),
        clients.revoke(&[], 2021),
    )
    .unwrap();
    secure.hang_up();
    secure.until_metric(&Secure::reloads("replaced"), 2).await;
    call(Some(&revoked)).await.unwrap_err();
    assert_eq!(call(None).await.unwrap(), 200);
}

/// The resources that a stalled reader watches: with so long names, their updates fill every buffer.
fn many() -> Vec<String> {
    let names = (0..60).map(|number| format!("demo://many/{}/{number}", "x".repeat(400)));
    names.collect()
}

/// Changes all of them in one batch.
async fn change_all(server: &Server, uris: &[String], round: usize) {
    let lines = uris.iter().map(|uri| {
        let line = json!({ "put": uri, "text": round.to_string() });
        line.to_string() + "\n"
    });
    let batch = Request::new("POST", "/v1/resources")
        .header("content-type", "application/x-ndjson")
        .body(lines.collect::<String>());
    let reply = batch.send(server.address).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
}

/// Listens on `stream` without reading until the server says that nothing is taken, and through ten rounds of
/// changes after that. Returns the updates that were handed out in all, when it reads to the end at last.
async fn updates_of_stalled_reader<S>(server: &mut Server, stream: S) -> usize
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let many = many();
    change_all(server, &many, 0).await;
    let names: Vec<&str> = many.iter().map(String::as_str).collect();
    let params = stateless(json!({ "notifications": updates(&names) }));
    let method = "subscriptions/listen";
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string();
    let mut stalled = RawConnection { stream };
    let head = format!(
        "POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         accept: application/json, text/event-stream\r\nmcp-protocol-version: {MODERN}\r\n\
         mcp-method: {method}\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stalled.send(&head).await;
    assert!(stalled.head().await.starts_with("HTTP/1.1 200 "));
    let mut round = 0;
    within("a reader that stands still", async {
        loop {
            round += 1;
            change_all(server, &many, round).await;
            let sessions = server.sessions().await;
            let own = sessions
                .iter()
                .find(|one| one["subscriptions"] == many.len())
                .unwrap();
            if own["progress"]["untakenMs"].is_u64() {
                return;
            }
        }
    })
    .await;
    for later in 1..=10 {
        change_all(server, &many, round + later).await;
    }
    server.terminate();
    let mut rest = String::new();
    // The drain delivers the newest state, and the stream ends with a farewell.
    within("the end of the stream", stalled.stream.read_to_string(&mut rest))
        .await
        .unwrap();
    assert!(rest.ends_with("0\r\n\r\n"), "the end of the chunks");
    rest.matches("notifications/resources/updated").count()
}

#[tokio::test]
async fn stalled_reader_conflates_as_without_tls() {
    let mut server = Server::start().await;
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4 << 10).unwrap();
    let stream = socket.connect(server.address).await.unwrap();
    let plain = updates_of_stalled_reader(&mut server, stream).await;

    let mut secure = Secure::start().await;
    let stream = connect(&secure.client(), secure.address, true).await.unwrap();
    let behind_tls = updates_of_stalled_reader(&mut secure.server, stream).await;
    // 60 newest ones, and those that the kernels took; a record or two more behind TLS.
    assert!(behind_tls >= 60 && plain >= 60);
    assert!(
        behind_tls <= plain + 60,
        "{behind_tls} updates, and {plain} without TLS"
    );
}

#[tokio::test]
async fn reloaded_list_ends_trust_in_certificate() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    let authority = Authority::new();
    authority.issue_server(1).write(folder.path());
    fs::write(file("clients.pem"), authority.pem()).unwrap();
    fs::write(file("revoked.pem"), authority.revoke(&[], 2999)).unwrap();
    let config = TlsConfig {
        certificate: Some(file("server.pem")),
        key: Some(file("server.key")),
        client_ca: Some(file("clients.pem")),
        client_crl: Some(file("revoked.pem")),
    };
    let tls = Tls::load(&config).unwrap().unwrap();
    let (sender, mut seen) = tokio::sync::mpsc::channel(1);
    let answer = async move |Extension(certificate): Extension<PeerCertificate>| {
        sender.send(certificate).await.unwrap();
        "x".repeat(100_000)
    };
    let bus = Bus::builder().start().unwrap();
    let router = Router::new().route("/", get(answer));
    let server = HttpServer::new(&bus, router, &HttpConfig::default()).with_tls(Some(tls.clone()));
    // A pipe of 7 bytes splits every record.
    let (near, far) = tokio::io::duplex(7);
    server.serve(([127, 0, 0, 1], 1).into(), move || Ok(far)).unwrap();
    let names = [
        SanType::Rfc822Name("a@bus.example".try_into().unwrap()),
        SanType::DnsName("reader.bus.example".try_into().unwrap()),
    ];
    let own = authority.issue(&names, 0x1f);
    let stream = authority
        .client(Some(&own))
        .connect(localhost(), near)
        .await
        .unwrap();
    let mut connection = RawConnection { stream };
    connection.send("GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
    let (status, body) = connection.answer().await;
    assert_eq!((status, body.len()), (200, 100_000));

    let certificate = within("a request", seen.recv()).await.unwrap();
    assert_eq!(certificate.name(), Some("reader.bus.example"));
    assert_eq!(
        (certificate.serial(), certificate.fingerprint().len()),
        ("1f", 64)
    );
    assert!(certificate.not_after() > SystemTime::now() && certificate.is_trusted());
    let mut changes = certificate.changes().unwrap();
    fs::write(file("revoked.pem"), authority.revoke(&[0x1f], 2999)).unwrap();
    tls.reload().await;
    within("a new generation", changes.changed()).await.unwrap();
    assert!(!certificate.is_trusted());
    bus.shutdown(Duration::ZERO).await;
}
