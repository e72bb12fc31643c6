//! `tidings health`: its exit status, as containers ask for it.

use std::time::{Duration, Instant};

use tokio::net::TcpListener;

use super::User;
use crate::mcp::server::Server;

#[tokio::test]
async fn working_service_is_healthy_and_ready() {
    let server = Server::start().await;
    let user = User::new();
    let url = server.address.to_string();
    assert_eq!(user.run(&["health", "--url", &url]).await.good(), "ok\n");
    assert_eq!(
        user.run(&["health", "--ready", "-q", "--url", &url]).await.good(),
        ""
    );
}

#[tokio::test]
async fn absent_or_silent_service_is_unhealthy() {
    let user = User::new();
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let begun = Instant::now();
    let error = user
        .run(&["health", "--timeout", "200ms", "--url", &address])
        .await
        .failed(1);
    assert!(error.contains("did not answer within 200ms"), "{error}");
    // The limit of a machine under load, far below that of the client itself.
    assert!(begun.elapsed() < Duration::from_secs(20));
    drop(silent);
    let error = user.run(&["health", "--url", &address]).await.failed(1);
    assert!(error.contains("cannot reach"), "{error}");
}
