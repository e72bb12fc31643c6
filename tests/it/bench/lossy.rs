//! A hand-written server that announces updates up to a certain number and drops the notices after it.
//!
//! It answers the requests of the load test: `subscriptions/listen`, the HTTP API with etags, and a tool
//! whose notices carry no etag.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::tcp::OwnedWriteHalf;
use tokio::net::{TcpListener, TcpStream};

pub(super) struct Lossy {
    pub(super) url: String,
}

/// A stream and its subscriptions.
type Listener = (Vec<String>, OwnedWriteHalf);

struct Shared {
    lost_from: u64,
    listeners: tokio::sync::Mutex<Vec<Listener>>,
    versions: Mutex<std::collections::HashMap<String, u64>>,
}

struct Request {
    start: String,
    body: Vec<u8>,
}

impl Lossy {
    /// Loses the notices of updates from number `lost_from` on.
    pub(super) async fn start(lost_from: u64) -> Lossy {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let shared = Arc::new(Shared {
            lost_from,
            listeners: tokio::sync::Mutex::default(),
            versions: Mutex::default(),
        });
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let shared = shared.clone();
                tokio::spawn(async move { shared.serve(socket).await });
            }
        });
        Lossy { url }
    }
}

impl Shared {
    async fn serve(&self, socket: TcpStream) {
        socket.set_nodelay(true).unwrap();
        let (reading, mut writing) = socket.into_split();
        let mut reader = BufReader::new(reading);
        while let Some(request) = read(&mut reader).await {
            let message: Value = serde_json::from_slice(&request.body).unwrap_or_default();
            let answer = match message["method"].as_str() {
                Some("subscriptions/listen") => {
                    self.listen(&message, writing).await;
                    // The connection stays open until the client closes it.
                    while read(&mut reader).await.is_some() {}
                    return;
                }
                Some("tools/call") => self.call(&message).await,
                _ if request.start.starts_with("PUT") => self.put(&request).await,
                _ => ok("application/json", "{\"items\":[]}", ""),
            };
            if writing.write_all(answer.as_bytes()).await.is_err() {
                return;
            }
        }
    }

    async fn listen(&self, message: &Value, mut writing: OwnedWriteHalf) {
        let uris = &message["params"]["notifications"]["resourceSubscriptions"];
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
        let acknowledged = json!({ "jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged",
            "params": { "notifications": { "resourceSubscriptions": uris } } });
        let hello = format!("{head}{}", chunk(&acknowledged));
        writing.write_all(hello.as_bytes()).await.unwrap();
        let uris = uris.as_array().unwrap().iter();
        let uris = uris.map(|uri| uri.as_str().unwrap().to_owned()).collect();
        self.listeners.lock().await.push((uris, writing));
    }

    async fn put(&self, request: &Request) -> String {
        let path = request.start.split_whitespace().nth(1).unwrap();
        let uri = percent_encoding::percent_decode_str(path.trim_start_matches("/v1/resources/"));
        let uri = uri.decode_utf8().unwrap().into_owned();
        let version = {
            let mut versions = self.versions.lock().unwrap();
            let version = versions.entry(uri.clone()).or_insert(0);
            *version += 1;
            *version
        };
        let etag = format!("v{version}-1");
        let number = std::str::from_utf8(&request.body)
            .unwrap()
            .strip_prefix("update ");
        if let Some(number) = number {
            let meta = json!({ "io.github.tidings/etag": etag });
            self.tell(&uri, number.parse().unwrap(), meta).await;
        }
        ok("text/plain", "", &format!("ETag: \"{etag}\"\r\n"))
    }

    async fn call(&self, message: &Value) -> String {
        let arguments = &message["params"]["arguments"];
        let uri = arguments["uri"].as_str().unwrap();
        let number = arguments["n"].as_u64().unwrap();
        self.tell(uri, number, json!({})).await;
        let answer = json!({ "jsonrpc": "2.0", "id": message["id"],
            "result": { "resultType": "complete", "content": [] } });
        ok("application/json", &answer.to_string(), "")
    }

    async fn tell(&self, uri: &str, number: u64, meta: Value) {
        if number >= self.lost_from {
            return;
        }
        let notice = json!({ "jsonrpc": "2.0", "method": "notifications/resources/updated",
            "params": { "uri": uri, "_meta": meta } });
        for (uris, stream) in self.listeners.lock().await.iter_mut() {
            if uris.iter().any(|asked| asked == uri) {
                // A client that has gone needs no notice.
                stream.write_all(chunk(&notice).as_bytes()).await.ok();
            }
        }
    }
}

async fn read(reader: &mut (impl AsyncBufReadExt + Unpin)) -> Option<Request> {
    let mut start = String::new();
    let mut line = String::new();
    let mut length = 0;
    if reader.read_line(&mut start).await.ok()? == 0 {
        return None;
    }
    while line != "\r\n" {
        line.clear();
        if reader.read_line(&mut line).await.ok()? == 0 {
            return None;
        }
        if let Some(number) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = number.trim().parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).await.ok()?;
    Some(Request { start, body })
}

fn ok(kind: &str, body: &str, headers: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n{headers}\r\n{body}")
}

fn chunk(message: &Value) -> String {
    let event = format!("data: {message}\n\n");
    format!("{:X}\r\n{event}\r\n", event.len())
}
