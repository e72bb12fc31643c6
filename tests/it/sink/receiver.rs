//! A receiver of webhooks on a socket of its own: it verifies each request, keeps it, and answers as
//! scripted.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde_json::Value;

use crate::support::until;

pub(crate) const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// The reaction to a request.
pub(crate) enum Reply {
    Status(u16),
    /// A status with a header.
    With(u16, &'static str, String),
    /// No answer.
    Hang,
}

/// A request with a valid signature.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Received {
    pub(crate) path: String,
    pub(crate) id: String,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
    pub(crate) body: Value,
}

#[derive(Default)]
struct Notes {
    received: Vec<Received>,
    script: VecDeque<Reply>,
}

type Shared = Arc<Mutex<Notes>>;

pub(crate) struct Receiver {
    pub(crate) address: SocketAddr,
    notes: Shared,
}

impl Receiver {
    /// Answers the first requests as in `script` and all others with 204.
    pub(crate) async fn start(script: impl IntoIterator<Item = Reply>) -> Receiver {
        let notes = Shared::default();
        notes.lock().unwrap().script.extend(script);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new().fallback(receive).with_state(notes.clone());
        tokio::spawn(axum::serve(listener, router).into_future());
        Receiver { address, notes }
    }

    /// Answers the next requests as in `script`, in place of what was scripted before.
    pub(crate) fn script(&self, script: impl IntoIterator<Item = Reply>) {
        self.notes.lock().unwrap().script = script.into_iter().collect();
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/hook", self.address)
    }

    pub(crate) fn received(&self) -> Vec<Received> {
        self.notes.lock().unwrap().received.clone()
    }

    /// Waits for this many requests.
    pub(crate) async fn until(&self, count: usize) -> Vec<Received> {
        until(&format!("{count} requests"), async || {
            self.received().len() >= count
        })
        .await;
        self.received()
    }
}

async fn receive(State(notes): State<Shared>, uri: Uri, headers: HeaderMap, body: Bytes) -> Response {
    let webhook = standardwebhooks::Webhook::new(SECRET).unwrap();
    if let Err(error) = webhook.verify(&body, &headers) {
        return (StatusCode::UNAUTHORIZED, error.to_string()).into_response();
    }
    let reply = {
        let mut notes = notes.lock().unwrap();
        notes.received.push(Received {
            path: uri.path().to_owned(),
            id: headers["webhook-id"].to_str().unwrap().to_owned(),
            headers,
            text: String::from_utf8(body.to_vec()).unwrap(),
            body: serde_json::from_slice(&body).unwrap(),
        });
        notes.script.pop_front().unwrap_or(Reply::Status(204))
    };
    match reply {
        Reply::Status(status) => StatusCode::from_u16(status).unwrap().into_response(),
        Reply::With(status, name, value) => {
            (StatusCode::from_u16(status).unwrap(), [(name, value)]).into_response()
        }
        Reply::Hang => std::future::pending().await,
    }
}
