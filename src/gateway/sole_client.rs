//! The one client of a gateway on stdin, as it introduces itself in its first message.
//!
//! The server is connected to for this client alone, so it is told of that client's name and capabilities: it
//! may list only what its client can use.

use std::io::Cursor;
use std::time::Duration;

use rmcp::model::{ClientCapabilities, ClientConfig, Implementation};
use serde::Deserialize;
use tokio::io::{AsyncRead, AsyncReadExt};

/// The time that the gateway waits for the first message. A client that is slower is introduced by the
/// gateway's name and with every capability.
const FIRST_MESSAGE_WAIT: Duration = Duration::from_secs(1);

/// The client of the only connection to a server.
#[derive(Debug, Clone)]
pub(crate) struct SoleClient {
    pub(super) config: ClientConfig,
    /// True if its revision has sessions, in which the server may ask it at any time.
    pub(super) has_session: bool,
}

#[derive(Deserialize)]
struct FirstMessage {
    params: FirstParams,
}

/// The parameters of `initialize`, or those of any request of a revision without sessions.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct FirstParams {
    capabilities: Option<ClientCapabilities>,
    client_info: Option<Implementation>,
    #[serde(rename = "_meta")]
    meta: Option<FirstMeta>,
}

#[derive(Deserialize)]
struct FirstMeta {
    #[serde(rename = "io.modelcontextprotocol/clientCapabilities")]
    capabilities: Option<ClientCapabilities>,
    #[serde(rename = "io.modelcontextprotocol/clientInfo")]
    client_info: Option<Implementation>,
}

impl SoleClient {
    /// Reads the first message of an input. Returns its client, unless none introduces itself in time, and
    /// the whole input, that message included. A message of more than `bytes_max` introduces none.
    pub(crate) async fn read<R>(
        mut input: R,
        bytes_max: usize,
    ) -> (Option<SoleClient>, impl AsyncRead + Send + Unpin + use<R>)
    where
        R: AsyncRead + Send + Unpin + 'static,
    {
        let mut read = Vec::new();
        let line =
            tokio::time::timeout(FIRST_MESSAGE_WAIT, read_line(&mut input, &mut read, bytes_max)).await;
        let client = match line {
            Ok(Some(length)) => SoleClient::of_message(&read[..length]),
            Ok(None) | Err(_) => None,
        };
        (client, Cursor::new(read).chain(input))
    }

    /// Returns the client of a message, if it introduces one.
    fn of_message(json: &[u8]) -> Option<SoleClient> {
        let params = serde_json::from_slice::<FirstMessage>(json).ok()?.params;
        let has_session = params.capabilities.is_some();
        let (capabilities, name) = match (params.capabilities, params.meta) {
            (Some(capabilities), _) => (capabilities, params.client_info?),
            (None, Some(meta)) => (meta.capabilities?, meta.client_info?),
            (None, None) => return None,
        };
        let config = ClientConfig::new(capabilities, name);
        Some(SoleClient { config, has_session })
    }
}

/// Reads on until a line is whole. Returns its length; none at the end of the input, and for a longer line.
async fn read_line(
    input: &mut (impl AsyncRead + Unpin),
    read: &mut Vec<u8>,
    bytes_max: usize,
) -> Option<usize> {
    loop {
        let seen = read.len();
        match input.read_buf(read).await {
            Ok(0) | Err(_) => return None,
            Ok(_) => {}
        }
        if let Some(end) = read[seen..].iter().position(|byte| *byte == b'\n') {
            return Some(seen + end);
        }
        if read.len() > bytes_max {
            return None;
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tokio::io::AsyncWriteExt;

    use super::*;

    /// Returns the name of the client that introduces itself in an input, which must come out whole. It ends
    /// before it is read, or stays open meanwhile.
    async fn name_in(text: &str, ends: bool) -> Option<String> {
        let (mut writer, reader) = tokio::io::duplex(1 << 16);
        let (first, rest) = text.split_at(text.len() / 2);
        writer.write_all(first.as_bytes()).await.unwrap();
        writer.write_all(rest.as_bytes()).await.unwrap();
        let writer = (!ends).then_some(writer);
        let (client, mut input) = SoleClient::read(reader, 1_000).await;
        drop(writer);
        let mut whole = String::new();
        input.read_to_string(&mut whole).await.unwrap();
        assert_eq!(whole, text);
        client.map(|client| client.config.client_info.name)
    }

    #[tokio::test(start_paused = true)]
    async fn client_introduces_itself_in_any_revision() {
        let about = json!({ "name": "host", "version": "1" });
        let initialize =
            json!({ "method": "initialize", "params": { "capabilities": {}, "clientInfo": about } });
        let meta = json!({
            "io.modelcontextprotocol/clientCapabilities": { "sampling": {} },
            "io.modelcontextprotocol/clientInfo": about,
        });
        let discover = json!({ "method": "server/discover", "params": { "_meta": meta } });
        for message in [initialize, discover] {
            for ends in [false, true] {
                let name = name_in(&format!("{message}\nmore"), ends).await;
                assert_eq!(name.as_deref(), Some("host"));
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn input_without_a_client_is_passed_on() {
        for input in ["", "{}\n", "half a line", "no JSON\n", &"x".repeat(2_000)] {
            for ends in [false, true] {
                assert_eq!(name_in(input, ends).await, None, "{input:?}");
            }
        }
    }
}
