//! The words of the brokers: NATS and Redis, each by its own protocol on plain TCP.
//!
//! Owns: subscribing one connection, and a publication whose delivery is as long as asked, framing included. Never:
//! reads deliveries; the readers do that for all servers alike.

use std::net::{SocketAddr, TcpStream};

use super::client::Client;
use super::kind::padded;

/// Subscribes a connection to these subjects; it answers once the server has taken all of them.
pub(super) fn nats_stream(address: SocketAddr, index: usize, names: &[String]) -> anyhow::Result<TcpStream> {
    let mut client = Client::connect_from(address, index)?;
    client.until(b"\r\n")?;
    let mut words = "CONNECT {\"verbose\":false,\"pedantic\":false,\"echo\":false}\r\n".to_owned();
    for (number, name) in names.iter().enumerate() {
        words += &format!("SUB {name} {}\r\n", number + 1);
    }
    client.send((words + "PING\r\n").as_bytes())?;
    client.until(b"PONG\r\n")?;
    Ok(client.into_socket())
}

/// Subscribes a connection to these channels.
pub(super) fn redis_stream(address: SocketAddr, index: usize, names: &[String]) -> anyhow::Result<TcpStream> {
    let mut client = Client::connect_from(address, index)?;
    let mut words = format!("*{}\r\n{}", names.len() + 1, bulk("SUBSCRIBE"));
    words.extend(names.iter().map(|name| bulk(name)));
    client.send(words.as_bytes())?;
    // The last confirmation counts all of them.
    client.until(format!(":{}\r\n", names.len()).as_bytes())?;
    Ok(client.into_socket())
}

/// A publication whose delivery to a subscription with a one-digit number has `delivery_bytes` bytes.
pub(super) fn nats_publication(name: &str, state: &str, delivery_bytes: usize) -> Vec<u8> {
    let payload = payload(delivery_bytes, state, |length| {
        format!("MSG {name} 1 {length}\r\n\r\n")
    });
    format!("PUB {name} {}\r\n{payload}\r\n", payload.len()).into_bytes()
}

/// A publication whose delivery has `delivery_bytes` bytes.
pub(super) fn redis_publication(name: &str, state: &str, delivery_bytes: usize) -> Vec<u8> {
    let frame = |length| format!("*3\r\n{}{}${length}\r\n\r\n", bulk("message"), bulk(name));
    let payload = payload(delivery_bytes, state, frame);
    format!("*3\r\n{}{}{}", bulk("PUBLISH"), bulk(name), bulk(&payload)).into_bytes()
}

/// `state` with so much behind it that what `frame` puts around a payload of this length comes to `bytes`.
fn payload(bytes: usize, state: &str, frame: impl Fn(usize) -> String) -> String {
    let delivery = padded(bytes, |padding| {
        let length = state.len() + padding.len();
        vec![0; length + frame(length).len()]
    });
    let framing = frame(delivery.len()).len();
    let length = delivery.len().saturating_sub(framing).max(state.len());
    format!("{state:x<length$}")
}

fn bulk(text: &str) -> String {
    format!("${}\r\n{text}\r\n", text.len())
}
