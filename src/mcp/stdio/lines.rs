//! The lines of the input, each a message: bounded, and judged before rmcp sees what they say.

use rmcp::ErrorData;
use rmcp::model::{ClientJsonRpcMessage, ErrorCode, RequestId, ServerJsonRpcMessage};
use serde_json::value::RawValue;
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};

use crate::mcp::params;
use crate::mcp::peek::Peek;
use crate::metrics::{self, Limit};

/// The mark that some programs write before a text of UTF-8; JSON readers may skip it (RFC 8259, section
/// 8.1).
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// A line of the input.
#[derive(Debug)]
pub(super) enum InputLine {
    /// A message that rmcp may answer.
    Message(Box<ClientJsonRpcMessage>),
    /// A message with its refusal.
    Refused(Box<ServerJsonRpcMessage>),
}

/// Reads lines of at most so many bytes.
pub(super) struct InputLines<R> {
    input: BufReader<R>,
    /// The part of the line that has come; kept here because the future of `next` may be dropped meanwhile.
    line: Vec<u8>,
    len_max: usize,
    /// The line is longer than the limit, and the rest of it is skipped.
    is_too_long: bool,
}

impl<R: AsyncRead + Unpin> InputLines<R> {
    pub(super) fn new(input: R, len_max: usize) -> InputLines<R> {
        InputLines {
            input: BufReader::new(input),
            line: Vec::new(),
            len_max,
            is_too_long: false,
        }
    }

    /// Returns the next message; none at the end of the input. Lines that are no JSON are passed over, as in
    /// the official servers: there is no id to answer, and a peer that sends answers back would never end.
    pub(super) async fn next(&mut self) -> Option<InputLine> {
        loop {
            self.until_line_feed().await?;
            let is_too_long = std::mem::take(&mut self.is_too_long);
            let judged = match is_too_long {
                true => Some(self.too_long()),
                false => judge(&self.line),
            };
            self.line.clear();
            if judged.is_some() {
                return judged;
            }
        }
    }

    /// Reads up to the end of a line; none at the end of the input, whose last line is not whole.
    async fn until_line_feed(&mut self) -> Option<()> {
        loop {
            let arrived = match self.input.fill_buf().await {
                Ok([]) => return None,
                Ok(arrived) => arrived,
                Err(error) => {
                    tracing::warn!(%error, "the input of an MCP connection cannot be read");
                    return None;
                }
            };
            let end = arrived.iter().position(|byte| *byte == b'\n');
            let piece = &arrived[..end.unwrap_or(arrived.len())];
            if self.line.len().saturating_add(piece.len()) > self.len_max {
                self.is_too_long = true;
                self.line.clear();
            }
            if !self.is_too_long {
                self.line.extend_from_slice(piece);
            }
            let taken = match end {
                Some(end) => end + 1,
                None => piece.len(),
            };
            self.input.consume(taken);
            if end.is_some() {
                return Some(());
            }
        }
    }

    fn too_long(&self) -> InputLine {
        metrics::limit_reached(Limit::HttpBodyBytes);
        let max = self.len_max;
        tracing::warn!(
            max,
            "a message on stdin was dropped, since it is too long (http.body_bytes_max)"
        );
        let text = format!("the message is longer than {max} bytes; send less or raise http.body_bytes_max");
        refused(None, ErrorData::invalid_request(text, None))
    }
}

/// Judges a line; none for one without an answer that rmcp does not read either.
fn judge(line: &[u8]) -> Option<InputLine> {
    let line = line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line);
    let peek = match Peek::of(line) {
        Ok(peek) => peek,
        Err(error) if error.is_data() => return Some(not_a_message(None, &error)),
        Err(error) => {
            if !line.trim_ascii().is_empty() {
                tracing::debug!(%error, "a line on stdin is no JSON");
            }
            return None;
        }
    };
    if let Some((id, method)) = peek.request()
        && let Err(refusal) = params::check(method, peek.params(), peek.is_stateless(None))
    {
        return Some(refused(Some(id), refusal));
    }
    match serde_json::from_slice(line) {
        Ok(message) => Some(InputLine::Message(Box::new(message))),
        Err(error) if peek.notification().is_some() => {
            // JSON-RPC 2.0, section 4.1: a notification is not answered.
            tracing::debug!(%error, "a notification on stdin cannot be read");
            None
        }
        Err(error) => Some(not_a_message(peek.id(), &error)),
    }
}

fn not_a_message(id: Option<&RawValue>, error: &serde_json::Error) -> InputLine {
    let text = format!("Invalid request: the line is no JSON-RPC message: {error}");
    refused(id, ErrorData::new(ErrorCode::INVALID_REQUEST, text, None))
}

fn refused(id: Option<&RawValue>, refusal: ErrorData) -> InputLine {
    let id = match id.map(|id| serde_json::from_str::<RequestId>(id.get())) {
        Some(Ok(id)) => Some(id),
        _ => None,
    };
    InputLine::Refused(Box::new(ServerJsonRpcMessage::error(refusal, id)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    async fn all(input: &[u8], len_max: usize) -> Vec<Value> {
        // Small pieces, so that lines and pieces end at different places.
        let (mut writer, reader) = tokio::io::duplex(7);
        let input = input.to_owned();
        let writing = tokio::spawn(async move {
            tokio::io::AsyncWriteExt::write_all(&mut writer, &input)
                .await
                .unwrap();
        });
        let mut lines = InputLines::new(reader, len_max);
        let mut seen = Vec::new();
        while let Some(line) = lines.next().await {
            seen.push(match line {
                InputLine::Message(message) => json!(message),
                InputLine::Refused(refusal) => json!(refusal),
            });
        }
        writing.await.unwrap();
        seen
    }

    const PING: &str = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;

    #[tokio::test]
    async fn messages_are_read_line_by_line() {
        let input = format!("\u{feff}{PING}\r\n\n  \nno json\n{PING}\n{PING}");
        let seen = all(input.as_bytes(), 100).await;
        let ping: Value = serde_json::from_str(PING).unwrap();
        assert_eq!(seen, [ping.clone(), ping], "a last line without its end is none");
    }

    #[tokio::test]
    async fn long_line_is_refused_and_next_one_read() {
        let input = format!("{}\n{PING}\n{}\n", "x".repeat(1_000), "[".repeat(41));
        let seen = all(input.as_bytes(), 40).await;
        assert_eq!(seen[0]["error"]["code"], -32600);
        assert_eq!(seen[1]["method"], "ping");
        assert_eq!(seen[2]["error"]["code"], -32600);
        assert_eq!(seen.len(), 3);
    }

    #[tokio::test]
    async fn wrong_messages_are_refused_with_their_id() {
        for (line, id, code) in [
            (
                r#"{"jsonrpc":"2.0","id":"a","method":"resources/read"}"#,
                json!("a"),
                -32602,
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}"#,
                json!(1),
                -32602,
            ),
            (r#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#, json!(1), -32600),
            (
                r#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#,
                json!(null),
                -32600,
            ),
            (r#"{"jsonrpc":"2.0","id":1,"method":7}"#, json!(null), -32600),
            (r#"{"jsonrpc":"2.0","id":1}"#, json!(1), -32600),
            ("[]", json!(null), -32600),
            ("7", json!(null), -32600),
        ] {
            let seen = all(format!("{line}\n").as_bytes(), 1_000).await;
            assert_eq!(seen.len(), 1, "{line}");
            assert_eq!(
                (&seen[0]["id"], &seen[0]["error"]["code"]),
                (&id, &json!(code)),
                "{line}"
            );
        }
        let silent = "{\"jsonrpc\":\"1.0\",\"method\":\"notifications/initialized\"}\n";
        assert_eq!(all(silent.as_bytes(), 1_000).await, Vec::<Value>::new());
    }
}
