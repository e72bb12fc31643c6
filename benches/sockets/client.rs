//! Connections that block, until each becomes a stream or a publisher.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, ensure};
use tidings::wire::connection::BlockingConnection;
use tidings::wire::jsonrpc::refusal;

/// The limit on one answer.
const ANSWER_MAX: Duration = Duration::from_secs(20);
/// The requests that are sent before the first answer is read: fewer than fill a socket.
pub(super) const AT_ONCE: usize = 100;
/// The connections from one address: well below the number of ports that the kernel has for each.
const PER_SOURCE_MAX: usize = 10_000;

/// Opens one connection.
pub(crate) fn connect(address: SocketAddr) -> anyhow::Result<BlockingConnection> {
    connect_from(address, 0)
}

/// Opens connection number `index` of many, which leave from 127.0.0.1, 127.0.0.2 and on.
pub(crate) fn connect_from(address: SocketAddr, index: usize) -> anyhow::Result<BlockingConnection> {
    let source = Ipv4Addr::from_bits(Ipv4Addr::LOCALHOST.to_bits() + (index / PER_SOURCE_MAX) as u32);
    let source = match source == Ipv4Addr::LOCALHOST {
        true => None,
        false => Some(SocketAddr::from((source, 0))),
    };
    let connection = BlockingConnection::open(address, source, ANSWER_MAX);
    connection.with_context(|| format!("cannot connect to {address}"))
}

/// Sends requests, many at once, and waits for as many answers, each of which must be a success.
pub(crate) fn publish(connection: &mut BlockingConnection, requests: &[Vec<u8>]) -> anyhow::Result<()> {
    for requests in requests.chunks(AT_ONCE) {
        connection.send(&requests.concat())?;
        for _ in requests {
            let answer = connection.answer()?;
            ensure!(
                answer.head.is_success(),
                "{}",
                refusal(&answer.head, &answer.body)
            );
        }
    }
    Ok(())
}
