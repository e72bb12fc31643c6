//! The end of the service while a sink cannot deliver.

use std::fs;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use tokio::net::TcpListener;

use super::receiver::SECRET;
use super::service::ServiceFolder;
use crate::support::within;

/// A folder with one webhook to this address, and a minute for the drain.
fn folder(receiver: SocketAddr) -> ServiceFolder {
    let folder = ServiceFolder::new(&format!(
        "[shutdown]\ndrain_timeout = '1m'\n[[webhook]]\nname = 'far'\nurl = 'http://{receiver}'\n\
         secret_file = 'secret'\nallow_private = true\nkinds = ['updated']\n"
    ));
    fs::write(folder.file("secret"), SECRET).unwrap();
    folder
}

#[tokio::test]
async fn dead_webhook_does_not_hold_up_a_stop() {
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = closed.local_addr().unwrap();
    drop(closed);
    let folder = folder(address);
    let service = folder.start().await;
    service.put("demo://a", "1").await;
    service
        .until("webhook/far", "a failure", |one| one["health"] == "failing")
        .await;
    let started = Instant::now();
    service.end(Signal::SIGTERM).await;
    assert!(
        started.elapsed() < Duration::from_secs(20),
        "{:?}",
        started.elapsed()
    );
}

#[tokio::test]
async fn second_signal_ends_the_service_at_once() {
    // A receiver that takes the request and never answers.
    let receiver = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let folder = folder(receiver.local_addr().unwrap());
    let service = folder.start().await;
    service.put("demo://a", "1").await;
    let _taken = within(receiver.accept()).await.unwrap();
    let started = Instant::now();
    service.signal(Signal::SIGTERM);
    service.until_logged("stopping").await;
    service.signal(Signal::SIGTERM);
    assert_eq!(service.ended().await, Some(1));
    assert!(
        folder.text("log").contains("it ended at once"),
        "{}",
        folder.text("log")
    );
    // The webhook counts as stalled after three seconds, which would end the drain too.
    assert!(
        started.elapsed() < Duration::from_millis(2500),
        "{:?}",
        started.elapsed()
    );
}
