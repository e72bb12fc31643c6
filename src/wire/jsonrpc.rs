//! JSON-RPC messages, and the reader of an answer over HTTP, which is JSON or a stream of events.

use serde_json::{Value, json};

use super::connection::HttpAnswer;
use super::http1::ResponseHead;
use super::sse::EventReader;

/// The limit on the quoted part of a refusal.
const QUOTE_BYTES: usize = 200;

/// Makes a request.
pub fn request(id: impl Into<Value>, method: &str, params: Value) -> Value {
    let mut message = notification(method);
    message["id"] = id.into();
    message["params"] = params;
    message
}

/// Makes a notification without parameters.
pub fn notification(method: &str) -> Value {
    json!({ "jsonrpc": "2.0", "method": method })
}

/// Answers a request of the server: a ping with an empty result, any other one with an error. Returns none
/// for other messages.
pub fn reply(request: &Value) -> Option<Value> {
    let id = request.get("id")?;
    if request.get("method")? == "ping" {
        return Some(json!({ "jsonrpc": "2.0", "id": id, "result": {} }));
    }
    // A refusal lets a server go on that waits for the answer.
    let error = json!({ "code": -32601, "message": "Method not found" });
    Some(json!({ "jsonrpc": "2.0", "id": id, "error": error }))
}

/// Returns the result in an answer.
///
/// # Errors
/// The error in the answer, in words, or else the status and the beginning of the body.
pub fn result(head: &ResponseHead, body: &[u8]) -> Result<Value, String> {
    let mut message = message(head, body);
    if let Some(error) = message.get("error") {
        let text = quote(error["message"].as_str().unwrap_or_default());
        return Err(format!("error {}: {text}", error["code"]));
    }
    match message.get_mut("result") {
        Some(result) if head.is_success() => Ok(result.take()),
        _ => Err(refusal(head, body)),
    }
}

/// Returns the result of a tool that did its work.
///
/// # Errors
/// Those of [`result`], and the text of a tool that reports a failure of its own.
pub fn tool_result(head: &ResponseHead, body: &[u8]) -> Result<Value, String> {
    let result = result(head, body)?;
    if result["isError"] == true {
        let text = result["content"][0]["text"].as_str();
        return Err(quote(text.unwrap_or("it failed without a word")));
    }
    Ok(result)
}

/// Describes an answer that is not the expected one: its status, and the beginning of its body.
pub fn refusal(head: &ResponseHead, body: &[u8]) -> String {
    refused(&head.status.to_string(), body)
}

/// Does so for a status in words.
pub(crate) fn refused(status: &str, body: &[u8]) -> String {
    match quote(&String::from_utf8_lossy(body)) {
        text if text.is_empty() => format!("HTTP status {status}"),
        text => format!("HTTP status {status}: {text}"),
    }
}

impl HttpAnswer {
    /// Returns the result in the answer; see [`result`].
    ///
    /// # Errors
    /// Those of [`result`].
    pub fn result(&self) -> Result<Value, String> {
        result(&self.head, &self.body)
    }
}

/// Returns the message that answers the request; null if there is none.
fn message(head: &ResponseHead, body: &[u8]) -> Value {
    if !head.is_stream {
        return serde_json::from_slice(body).unwrap_or(Value::Null);
    }
    let mut answer = Value::Null;
    let read = EventReader::default().read(body, |event| {
        // Notifications and requests of the server may come before the answer.
        let message: Value = serde_json::from_slice(event.data).unwrap_or_default();
        if message.get("method").is_none() && message.get("id").is_some() {
            answer = message;
        }
    });
    match read {
        Ok(()) => answer,
        // An answer in front of an event that is too large counts all the same.
        Err(_) => answer,
    }
}

/// Shortens a text to one line of a bounded length.
fn quote(text: &str) -> String {
    // Line ends of a server's text would break the one line of an error message.
    let words: Vec<&str> = text.split_whitespace().collect();
    let text = words.join(" ");
    match text.char_indices().find(|(at, _)| *at >= QUOTE_BYTES) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(status: u16, is_stream: bool) -> ResponseHead {
        let mut head = ResponseHead::default();
        head.status = status;
        head.is_stream = is_stream;
        head
    }

    #[test]
    fn answer_comes_as_json_or_as_events() {
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
    fn refusal_is_quoted() {
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

    #[test]
    fn only_requests_of_the_server_get_a_reply() {
        let ping = json!({ "id": 4, "method": "ping" });
        assert_eq!(reply(&ping).unwrap()["result"], json!({}));
        let roots = json!({ "id": "r", "method": "roots/list" });
        assert_eq!(reply(&roots).unwrap()["error"]["code"], -32601);
        assert_eq!(reply(&json!({ "method": "notifications/message" })), None);
        assert_eq!(reply(&json!({ "id": 1, "result": {} })), None);
    }
}
