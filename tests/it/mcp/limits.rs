//! Every limit of the service: the refusal when it is reached, its text, and the service afterwards.

use serde_json::{Value, json};

use super::client::{Client, initialize, listen, listen_request, updates};
use super::http::{Request, within};
use super::server::Server;

const A: &str = "demo://a";

#[tokio::test]
async fn sessions_beyond_limit_are_refused() {
    let server = Server::with("[session]\nmax = 2\n").await;
    server.put(A, "1").await;
    let one = Client::open(server.address, "2025-11-25").await;
    let _two = Client::open(server.address, "2025-06-18").await;
    let refused = Request::post(initialize("2025-11-25").to_string())
        .send(server.address)
        .await;
    assert_eq!(refused.status, 503, "{}", refused.text());
    assert!(refused.error().1.contains('2'), "{}", refused.text());
    assert_eq!(refused.header("mcp-session-id"), None);
    let listening = listen_request(&json!("x"), updates(&[A]));
    let refused = listening.send(server.address).await;
    assert_eq!(
        (refused.status, &refused.json()["id"]),
        (503, &json!("x")),
        "{}",
        refused.text()
    );
    one.delete().await;
    server.until("one is gone", |sessions| sessions.len() == 1).await;
    listen(server.address, &json!(1), updates(&[A])).await;
}

#[tokio::test]
async fn streams_beyond_limit_are_refused() {
    let server = Server::with("[session]\nstreams_max = 2\n").await;
    server.put(A, "1").await;
    let client = Client::open(server.address, "2025-11-25").await;
    let stream = client.stream().await;
    let (_, listening) = listen(server.address, &json!(1), updates(&[A])).await;
    let refused = client.with_headers(Request::stream()).send(server.address).await;
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("5")));
    let request = listen_request(&json!(2), updates(&[A]));
    let refused = request.send(server.address).await;
    assert_eq!((refused.status, &refused.json()["id"]), (503, &json!(2)));
    drop((stream, listening));
    server
        .until("both are gone", |all| all.len() == 1 && all[0]["streams"] == 0)
        .await;
    client.stream().await;
    listen(server.address, &json!(1), updates(&[A])).await;
}

#[tokio::test]
async fn subscriptions_beyond_limit_name_the_limit() {
    let server = Server::with("[session]\nsubscriptions_max = 2\n").await;
    let uris = ["demo://a", "demo://b", "demo://c"];
    for uri in uris {
        server.put(uri, "1").await;
    }
    let client = Client::open(server.address, "2025-11-25").await;
    client.subscribe(uris[0]).await;
    client.subscribe(uris[1]).await;
    client.subscribe(uris[1]).await;
    let refused = client
        .request("resources/subscribe", json!({ "uri": uris[2] }))
        .await
        .error();
    assert!(refused.0 == -32602 && refused.1.contains('2'), "{refused:?}");
    client.unsubscribe(uris[0]).await;
    client.subscribe(uris[2]).await;
    let request = listen_request(&json!(1), updates(&uris));
    let refused = request.send(server.address).await;
    assert_eq!(
        (refused.status, refused.error().0),
        (400, -32602),
        "{}",
        refused.text()
    );
    let (acknowledged, _stream) = listen(server.address, &json!(1), updates(&uris[..2])).await;
    let honoured = &acknowledged["params"]["notifications"]["resourceSubscriptions"];
    assert_eq!(*honoured, json!(uris[..2]));
}

#[tokio::test]
async fn connections_beyond_limit_are_closed() {
    let server = Server::with("[http]\nconnections_max = 3\n").await;
    let clients = [
        Client::open(server.address, "2025-11-25").await,
        Client::open(server.address, "2025-11-25").await,
    ];
    let health = Request::new("GET", "/healthz");
    let mut streams = Vec::new();
    for client in clients.iter().cycle() {
        let request = client.with_headers(Request::stream());
        // The connection of the request before may still be closing.
        let stream = within("a stream", request.try_open(server.address)).await;
        streams.extend(stream.filter(|stream| stream.status == 200));
        if streams.len() == 3 {
            break;
        }
    }
    assert!(
        within("a refusal", health.try_open(server.address))
            .await
            .is_none()
    );
    streams.pop();
    within("a place", async {
        while health.try_open(server.address).await.is_none() {}
    })
    .await;
}

#[tokio::test]
async fn bodies_beyond_limit_are_refused() {
    let server = Server::with("[http]\nbody_bytes_max = 1024\n[bus]\nbody_bytes_max = 2048\n").await;
    let client = Client::open(server.address, "2025-11-25").await;
    let long: Value = json!({ "uri": "demo://".to_owned() + &"a".repeat(1024) });
    assert_eq!(client.request("resources/read", long).await.status, 413);
    assert_eq!(server.api("PUT", A, &"a".repeat(2048)).await.status, 201);
    assert_eq!(server.api("PUT", A, &"a".repeat(2049)).await.status, 413);
    server.assert_healthy().await;
}
