//! The protocols of the brokers, NATS and Redis: subscriptions, and publications with deliveries of a given
//! length.

use std::net::{SocketAddr, TcpStream};

use super::client::connect_from;
use super::kind::padded;

/// Subscribes a connection to these subjects, and returns once the server has taken all of them.
pub(super) fn nats_stream(address: SocketAddr, index: usize, names: &[String]) -> anyhow::Result<TcpStream> {
    let mut connection = connect_from(address, index)?;
    // The server begins with a line about itself.
    connection.read_until(b"\r\n")?;
    let mut commands = "CONNECT {\"verbose\":false,\"pedantic\":false,\"echo\":false}\r\n".to_owned();
    for (index, name) in names.iter().enumerate() {
        commands += &format!("SUB {name} {}\r\n", index + 1);
    }
    // Commands are answered in order, so the answer to a ping follows all subscriptions.
    connection.send((commands + "PING\r\n").as_bytes())?;
    connection.read_until(b"PONG\r\n")?;
    Ok(connection.into_socket())
}

/// Subscribes a connection to these channels.
pub(super) fn redis_stream(address: SocketAddr, index: usize, names: &[String]) -> anyhow::Result<TcpStream> {
    let mut connection = connect_from(address, index)?;
    let mut command = format!("*{}\r\n{}", names.len() + 1, bulk("SUBSCRIBE"));
    for name in names {
        command += &bulk(name);
    }
    connection.send(command.as_bytes())?;
    // Each confirmation has the number of subscriptions, so the last one has the number of all.
    connection.read_until(format!(":{}\r\n", names.len()).as_bytes())?;
    Ok(connection.into_socket())
}

/// Returns a publication whose delivery to a subscription with a one-digit number has `delivery_bytes` bytes.
pub(super) fn nats_publication(name: &str, state: &str, delivery_bytes: usize) -> Vec<u8> {
    let payload = payload(delivery_bytes, state, |length| {
        format!("MSG {name} 1 {length}\r\n\r\n")
    });
    format!("PUB {name} {}\r\n{payload}\r\n", payload.len()).into_bytes()
}

/// Returns a publication whose delivery has `delivery_bytes` bytes.
pub(super) fn redis_publication(name: &str, state: &str, delivery_bytes: usize) -> Vec<u8> {
    let payload = payload(delivery_bytes, state, |length| {
        format!("*3\r\n{}{}${length}\r\n\r\n", bulk("message"), bulk(name))
    });
    format!("*3\r\n{}{}{}", bulk("PUBLISH"), bulk(name), bulk(&payload)).into_bytes()
}

/// Returns `state`, padded so that it comes to `bytes` together with the text that `frame` puts around a
/// payload of that length.
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
