//! The answer to a JSON-RPC request over HTTP, which may come as JSON or as a stream of events.
//!
//! Owns the reading of a whole answer: its result, or in words why there is none. It reads from no socket.

use serde_json::Value;

use crate::bench::events::Events;
use crate::bench::response::Head;

/// So much of a refusal is quoted.
const QUOTE_BYTES: usize = 200;

/// The result in an answer; or why there is none.
pub(crate) fn result(head: &Head, body: &[u8]) -> Result<Value, String> {
    let message = message(head, body);
    if let Some(error) = message.get("error") {
        return Err(format!(
            "error {}: {}",
            error["code"],
            quote(error["message"].as_str().unwrap_or_default())
        ));
    }
    match message.get("result") {
        Some(result) if is_success(head) => Ok(result.clone()),
        _ => Err(refusal(head, body)),
    }
}

/// The result of a tool that did what it was asked to.
pub(crate) fn tool_result(head: &Head, body: &[u8]) -> Result<Value, String> {
    let result = result(head, body)?;
    if result["isError"] == true {
        let text = result["content"][0]["text"]
            .as_str()
            .unwrap_or("it failed without a word");
        return Err(quote(text));
    }
    Ok(result)
}

pub(crate) fn is_success(head: &Head) -> bool {
    (200..300).contains(&head.status)
}

/// What a server said instead of doing what it was asked to.
pub(crate) fn refusal(head: &Head, body: &[u8]) -> String {
    match quote(&String::from_utf8_lossy(body)) {
        text if text.is_empty() => format!("HTTP status {}", head.status),
        text => format!("HTTP status {}: {text}", head.status),
    }
}

fn message(head: &Head, body: &[u8]) -> Value {
    if !head.is_stream {
        return serde_json::from_slice(body).unwrap_or_default();
    }
    let mut answer = Value::Null;
    let read = Events::default().read(body, |event| {
        let message: Value = serde_json::from_slice(event).unwrap_or_default();
        if message.get("method").is_none() && message.get("id").is_some() {
            answer = message;
        }
    });
    // A stream that breaks off has the answer in front of that or not at all.
    read.unwrap_or_default();
    answer
}

fn quote(text: &str) -> String {
    let text: Vec<&str> = text.split_whitespace().collect();
    let text = text.join(" ");
    match text.char_indices().find(|(at, _)| *at >= QUOTE_BYTES) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(status: u16, is_stream: bool) -> Head {
        Head {
            status,
            is_stream,
            ..Head::default()
        }
    }

    #[test]
    fn an_answer_may_come_as_json_or_as_events() {
        let json = br#"{"jsonrpc":"2.0","id":1,"result":{"x":1}}"#;
        assert_eq!(result(&head(200, false), json).unwrap()["x"], 1);
        let events = [
            &b"id: 1\ndata: \n\ndata: {\"method\":\"notifications/message\"}\n\ndata: "[..],
            json,
            b"\n\n",
        ];
        assert_eq!(result(&head(200, true), &events.concat()).unwrap()["x"], 1);
    }

    #[test]
    fn a_refusal_is_told_in_its_own_words() {
        let refused = br#"{"id":1,"error":{"code":-32602,"message":"no such\n  thing"}}"#;
        assert_eq!(
            result(&head(200, false), refused).unwrap_err(),
            "error -32602: no such thing"
        );
        assert_eq!(
            result(&head(503, false), b"too many").unwrap_err(),
            "HTTP status 503: too many"
        );
        assert_eq!(result(&head(404, false), b"").unwrap_err(), "HTTP status 404");
        let failed = br#"{"id":1,"result":{"isError":true,"content":[{"type":"text","text":"no"}]}}"#;
        assert_eq!(tool_result(&head(200, false), failed).unwrap_err(), "no");
    }
}
