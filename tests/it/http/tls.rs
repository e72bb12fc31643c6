//! TLS on the listener of the real binary, with certificates made for the test.

mod authority;

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use futures_util::{SinkExt, StreamExt};
use rcgen::SanType;
use serde_json::json;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_tungstenite::tungstenite::Message;

use super::RawConnection;
use crate::mcp::client::{Client, LEGACY, listen, updates};
use crate::mcp::events::updated_uri;
use crate::mcp::http::{Request, within};
use crate::mcp::server::Server;
use authority::{Authority, Pair, connect, tunnel};

const A: &str = "demo://a";

/// A server behind TLS, with the folder of its certificates.
struct Secure {
    server: Server,
    /// The address that speaks TLS; that of `server` leads there.
    address: SocketAddr,
    folder: TempDir,
    authority: Authority,
    pair: Pair,
}

impl Secure {
    async fn start() -> Secure {
        Secure::with("", |_, _| {}).await
    }

    /// Starts it with further lines of the section `[tls]` and of others, after `prepare` has written files.
    async fn with(config: &str, prepare: impl FnOnce(&Path, &Authority)) -> Secure {
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

    fn hang_up(&self) {
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
