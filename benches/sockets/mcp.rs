//! The handshakes by which clients of MCP subscribe, in both eras.

use std::net::TcpStream;

use anyhow::{Context, anyhow, ensure};
use serde_json::json;
use tidings::wire::connection::BlockingConnection;
use tidings::wire::dialect::{ACKNOWLEDGED, Dialect, Revision};
use tidings::wire::http1::HttpTarget;
use tidings::wire::jsonrpc::refusal;

use super::client::AT_ONCE;
use super::kind::uri;

/// The name that the benches give themselves towards servers.
const CLIENT_NAME: &str = "bench";

/// Opens a session of a revision and returns the dialect of its requests.
pub(crate) fn open_session(
    connection: &mut BlockingConnection,
    target: &HttpTarget,
    revision: Revision,
) -> anyhow::Result<Dialect> {
    let mut dialect = Dialect::new(revision, CLIENT_NAME);
    let answer = connection.exchange(&dialect.initialize(target))?;
    answer.result().map_err(|reason| anyhow!("{reason}"))?;
    let session = answer.head.session();
    let session = session.context("the answer to initialize names no session")?;
    dialect.session = Some(session.to_owned());
    let answer = connection.exchange(&dialect.initialized(target))?;
    ensure!(
        answer.head.is_success(),
        "{}",
        refusal(&answer.head, &answer.body)
    );
    Ok(dialect)
}

/// Subscribes a session to these resources.
pub(crate) fn subscribe(
    connection: &mut BlockingConnection,
    target: &HttpTarget,
    dialect: &Dialect,
    names: &[String],
) -> anyhow::Result<()> {
    let mut id = 0;
    for names in names.chunks(AT_ONCE) {
        let mut requests = Vec::new();
        for name in names {
            id += 1;
            let params = json!({ "uri": uri(name) });
            requests.extend(dialect.request(target, id, "resources/subscribe", params));
        }
        connection.send(&requests)?;
        for name in names {
            let answer = connection.answer()?.result();
            answer.map_err(|reason| anyhow!("the subscription to {name} was refused: {reason}"))?;
        }
    }
    Ok(())
}

/// Makes a connection the stream of a session.
pub(crate) fn open_session_stream(
    mut connection: BlockingConnection,
    target: &HttpTarget,
    dialect: &Dialect,
) -> anyhow::Result<TcpStream> {
    connection.open_stream(&dialect.session_stream(target, None), None)?;
    Ok(connection.into_socket())
}

/// Makes a connection a stream of the bare twin, which has no sessions.
pub(super) fn open_bare_stream(
    mut connection: BlockingConnection,
    target: &HttpTarget,
) -> anyhow::Result<TcpStream> {
    connection.open_stream(&target.request("GET").finish(), None)?;
    Ok(connection.into_socket())
}

/// Makes a connection a listen stream, and returns once the server has acknowledged it.
pub(crate) fn listen(
    mut connection: BlockingConnection,
    target: &HttpTarget,
    index: usize,
    names: &[String],
) -> anyhow::Result<TcpStream> {
    let dialect = Dialect::new(Revision::R2026_07_28, CLIENT_NAME);
    let uris: Vec<String> = names.iter().map(|name| uri(name)).collect();
    let uris: Vec<&str> = uris.iter().map(String::as_str).collect();
    // Clients count their requests, so ids are small and the same in many sessions.
    let request = dialect.listen(target, index as u64 % 8 + 1, &uris);
    connection.open_stream(&request, Some(ACKNOWLEDGED))?;
    Ok(connection.into_socket())
}
