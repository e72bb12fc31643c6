//! A service without a free file descriptor: it says so, and accepts again as soon as there is one.

use nix::sys::signal::Signal;

use super::RawConnection;
use crate::sink::service::ServiceFolder;
use crate::support::until;

/// Returns the failed accepts that the service has counted.
async fn accept_errors(kept: &mut RawConnection) -> u64 {
    kept.send("GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n")
        .await;
    let (_, text) = kept.answer().await;
    let line = text
        .lines()
        .find(|line| line.starts_with("tidings_http_accept_errors_total"));
    let (_, count) = line.expect("the metric").rsplit_once(' ').expect("its value");
    count.parse().expect("a number")
}

#[tokio::test]
async fn lack_of_descriptors_is_one_line_and_ends() {
    let folder = ServiceFolder::new("");
    let service = folder.start_after("ulimit -n 80;").await;
    let log = folder.text("log");
    assert!(
        log.contains("http.connections_max") && log.contains("limit=80"),
        "{log}"
    );
    let mut kept = RawConnection::open(service.address).await;
    assert_eq!(accept_errors(&mut kept).await, 0);

    // More connections than there are descriptors; the rest waits in the kernel.
    let mut waiting = Vec::new();
    for _ in 0..80 {
        waiting.push(RawConnection::open(service.address).await);
    }
    until("several failed attempts", async || {
        accept_errors(&mut kept).await >= 5
    })
    .await;
    let log = folder.text("log");
    assert_eq!(log.matches("could not be accepted").count(), 1, "{log}");

    waiting.clear();
    let mut next = RawConnection::open(service.address).await;
    next.send("GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
        .await;
    assert_eq!(next.status().await, 200);
    service.end(Signal::SIGTERM).await;
}
